"""Tensors that torch saved (.pt, .pth): hooks, crash dumps, msprobe's dump_tensor_data.

The file is a zip archive (`torch_archive`, `zip_members`) or, before PyTorch 1.6, a row of
pickles (`torch_legacy`). Its object is interpreted by `torch_unpickle`, which imports nothing and
runs nothing; its tensors are streamed from where they lie (`torch_views`). What they are tensors
of is in the keys of the object and in the name of the file (`torch_tree`)::

    {converted dump name}.{input|output}.{i}.….pt     one tensor of a CANN operator
    {msprobe key}.{input|output}.{i}.pt               one tensor of an msprobe entry
    crash_step_{n}.pt                                 anything, of step n
    {anything}.pt                                     an operator called so

Known types are those of PyTorch 2.13: float16/32/64, bfloat16, the float8 and float4 types,
complex, bool, integers, quantised integers (as the integers they are stored as).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from dumpscope.errors import DumpReadError
from dumpscope.model import FORM_CONVERTED, FORM_RAW, DumpFile, Match, Role
from dumpscope.msprobe_names import ProbeTensorName, parse_probe_name, parse_probe_tensor
from dumpscope.readers.arguments import Positions, scalar_record
from dumpscope.readers.array_names import ArrayName, name_of_array
from dumpscope.readers.array_roles import role_of_stem
from dumpscope.readers.protocol import Execution, Record, TensorRecord
from dumpscope.readers.torch_archive import open_saved
from dumpscope.readers.torch_legacy import LEGACY_MAGIC
from dumpscope.readers.torch_names import PickledTensor
from dumpscope.readers.torch_tree import TreeExecution, find_executions
from dumpscope.readers.torch_views import ViewReader
from dumpscope.readers.zip_members import ZIP_MAGIC
from dumpscope.source import DumpSource

__all__ = ["TorchReader"]

_SUFFIXES = (".pt", ".pth")
_STEP = re.compile(r"(?:^|[_.\-])(?:step|iter)_?([0-9]{1,9})(?=[_.\-]|$)", re.IGNORECASE)
_RANK = re.compile(r"(?:^|[_.\-])rank_?([0-9]{1,9})(?=[_.\-]|$)", re.IGNORECASE)


class TorchReader:
    """Reads torch.save files without torch."""

    name = "torch_pt"
    formats = "PyTorch tensors (.pt, .pth), plain containers of tensors"
    versions = "PyTorch 1.6 to 2.13 (zip), 0.4 to 1.5 (pickles); torch_npu"
    companions: Mapping[str, str] = MappingProxyType({})

    def sniff(self, head: bytes, file: DumpFile) -> Match:
        """Recognise an archive that starts with data.pkl, or the old magic number."""
        if head.startswith(LEGACY_MAGIC):
            return Match.CONTENT
        named = file.name.lower().endswith(_SUFFIXES)
        if head.startswith(ZIP_MAGIC) and len(head) > 30:
            first = head[30 : 30 + int.from_bytes(head[26:28], "little")]
            if first == b"data.pkl" or first.endswith(b"/data.pkl"):
                return Match.CONTENT
            if named and not first.endswith(b".npy"):
                return Match.CONTENT
        return Match.NAME if named else Match.NONE

    def read(self, source: DumpSource) -> Iterator[Record]:
        """Yield the executions that the object holds tensors of."""
        try:
            yield from _read(source)
        except DumpReadError as error:
            error.path = error.path or source.file.relative
            raise


def _read(source: DumpSource) -> Iterator[Record]:
    saved = open_saved(source)
    views = ViewReader(saved, source)
    probe = parse_probe_tensor(source.file.name)
    executions = (
        _named_executions(saved.value, views, source.file)
        if probe is None
        else _probe_executions(saved.value, views, probe)
    )
    for execution in executions:
        yield execution
        yield from views.faults
        views.faults.clear()
    if saved.fault is not None:
        saved.fault.path = source.file.relative
        yield saved.fault


def _probe_executions(
    value: object, views: ViewReader, probe: ProbeTensorName
) -> Iterator[Execution]:
    """One tensor that msprobe saved: its name says all."""
    name = parse_probe_name(probe.op_name)
    for tree in find_executions(value, probe.role, probe.role):
        tensors = list(_records(views, tree, probe.index, probe.path))
        yield Execution(
            name.op_type, probe.op_name, tensors, container=name.container, partial=True
        )


def _named_executions(value: object, views: ViewReader, file: DumpFile) -> Iterator[Execution]:
    name = name_of_array(file)
    stem = name.op_name
    role: Role | None = name.role if name.partial else None
    if role is None and name.timestamp is None:
        role = role_of_stem(stem)
    wanted = name.slot if name.partial else None
    for order, tree in enumerate(find_executions(value, role, name.role)):
        tensors = list(_records(views, tree, wanted, ""))
        yield _execution(name, stem, tree, tensors, order)


def _records(
    views: ViewReader, tree: TreeExecution, wanted: int | None, path: str
) -> Iterator[TensorRecord]:
    positions = {"input": Positions(), "output": Positions()}
    alone = len(tree.leaves) == 1
    for leaf in tree.leaves:
        position = wanted if alone and wanted is not None else leaf.position
        index = positions[leaf.role].take(position)
        name = path if alone and path else leaf.path
        if isinstance(leaf.value, PickledTensor):
            yield views.record(leaf.value, leaf.role, index, name)
        else:
            yield scalar_record(leaf.role, index, leaf.value, name)


def _execution(
    name: ArrayName, stem: str, tree: TreeExecution, tensors: list[TensorRecord], order: int
) -> Execution:
    """Make the execution of a file that msprobe did not name."""
    execution = name.execution(tensors, FORM_RAW if name.timestamp is None else FORM_CONVERTED)
    if tree.owner:
        execution.op_name = f"{stem}.{tree.owner}"
    execution.order = order
    if name.timestamp is None:
        execution.step = _number(_STEP, stem)
        execution.rank = _number(_RANK, stem)
    return execution


def _number(pattern: re.Pattern[str], stem: str) -> int | None:
    match = pattern.search(stem[-256:])
    return None if match is None else int(match[1])
