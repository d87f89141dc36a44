"""The executions that a file of torch's holds tensors of.

They are told by the keys of the saved object (`torch_tree`) and by the name of the file, whose
forms are those in `torch_pt`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dumpscope.model import FORM_CONVERTED, FORM_RAW, DumpFile, Role
from dumpscope.msprobe_names import ProbeTensorName, parse_probe_name, parse_probe_tensor
from dumpscope.readers.arguments import Positions, scalar_record
from dumpscope.readers.array_names import ArrayName, name_of_array
from dumpscope.readers.array_roles import role_of_stem
from dumpscope.readers.protocol import Execution, Record, TensorRecord
from dumpscope.readers.torch_archive import open_saved
from dumpscope.readers.torch_names import PickledTensor
from dumpscope.readers.torch_tree import TreeExecution, find_executions
from dumpscope.readers.torch_views import ViewReader
from dumpscope.regexes import regex
from dumpscope.source import DumpSource

__all__ = ["read_executions"]

_STEP = regex(r"(?:^|[_.\-])(?:step|iter)_?([0-9]{1,9})(?=[_.\-]|$)", re.IGNORECASE)
_RANK = regex(r"(?:^|[_.\-])rank_?([0-9]{1,9})(?=[_.\-]|$)", re.IGNORECASE)


def read_executions(source: DumpSource) -> Iterator[Record]:
    """Yield the executions of a saved object, and its faults.

    Raises `DumpReadError` where the object cannot be read, without the path at times.
    """
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
