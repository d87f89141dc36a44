"""Dumps of msprobe (mindstudio-probe): dump.json, debug.json, and the tensor files beside them.

=======================  =======================================================================
member of dump.json      what it is
=======================  =======================================================================
`task`                   statistics, tensor, structure, nan_check, …
`level`                  L0 modules, L1 APIs, mix both, debug variables saved by hand
`framework`              pytorch, mindspore
`dump_data_dir`          where the tensor files were written; not used
`step`, `rank`           of some versions
`data`                   `{key: entry}` (`msprobe_names`, `msprobe_entry`)
=======================  =======================================================================

Beside it lie `construct.json` and `stack.json` (`msprobe_tree`) and `dump_tensor_data/`
(`msprobe_files`). Keys are in the order in which operators completed, so a module stands after
what ran inside it. Two kinds of entry stand before their time: `parameters_grad` of 8.3.x, which
is put behind the module's last backward, and the gradients of variables in debug.json, which
come last. `order` is twice the position, so that there is room for these.

Facts from the tool's documentation and from dumps of mindstudio-probe 8.3.3 and 26.2.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from dumpscope.errors import CorruptDumpError, DumpReadError
from dumpscope.layouts import plain
from dumpscope.model import FORM_RAW, FORM_STATISTICS, DumpFile, Match
from dumpscope.msprobe_names import (
    ProbeTensorName,
    module_backward,
    parse_probe_name,
    parse_probe_tensor,
)
from dumpscope.readers.arguments import Positions
from dumpscope.readers.msprobe_entry import make_execution
from dumpscope.readers.msprobe_files import FOLDER, TensorFiles
from dumpscope.readers.msprobe_json import JsonMember, parse_value, read_members
from dumpscope.readers.msprobe_tree import CONSTRUCT, STACK, ModuleTree, check_tree
from dumpscope.readers.protocol import Execution, Record, TensorRecord
from dumpscope.source import DumpSource

__all__ = ["MsprobeReader"]

_DUMPS = ("dump.json", "debug.json")
_BESIDE = (CONSTRUCT, STACK)
_LONGEST_KEY = 4096
_MAX_NUMBER = 1 << 31


class MsprobeReader:
    """Reads the dumps of msprobe."""

    name = "msprobe"
    formats = "msprobe dumps (dump.json, debug.json with construct.json, stack.json, tensors)"
    versions = "mindstudio-probe 8.0 to 26.2; levels L0, L1, mix, debug"
    companions: Mapping[str, str] = MappingProxyType(dict.fromkeys(_DUMPS, FOLDER))

    def sniff(self, head: bytes, file: DumpFile) -> Match:
        """Recognise the members that every dump.json starts with, else the name."""
        start = head.removeprefix(b"\xef\xbb\xbf").lstrip()
        if start.startswith(b"{") and b'"dump_data_dir"' in head and b'"task"' in head:
            return Match.CONTENT
        named = file.name in _DUMPS or (file.name in _BESIDE and start.startswith(b"{"))
        return Match.NAME if named else Match.NONE

    def read(self, source: DumpSource) -> Iterator[Record]:
        """Yield one execution for every entry; nothing for the tree and the stacks."""
        if source.file.name in _BESIDE:
            check_tree(source)
            return
        for record in _Dump(source).records():
            if isinstance(record, DumpReadError):
                record.path = record.path or source.file.relative
            yield record


class _Later(NamedTuple):
    """An entry that stands before its time; it is parsed again when that has come."""

    key: str
    offset: int
    length: int


class _Dump:
    """One run over a dump.json."""

    def __init__(self, source: DumpSource) -> None:
        self._source = source
        self._tree = ModuleTree(source)
        self._files = TensorFiles(source)
        self._seen: set[int] = set()
        self._about: dict[str, object] = {}
        self._count = 0
        self._gradients: dict[str, _Later] = {}
        self._last_backward: dict[str, int] = {}
        self._variables: list[_Later] = []

    def records(self) -> Iterator[Record]:
        yield from self._tree.faults
        fault: DumpReadError | None
        try:
            for member in read_members(self._source, "data"):
                if member.section:
                    yield from self._take(member)
                elif len(self._about) < 64:
                    self._about[member.key[:64]] = member.value
            fault = self._missing_data()
        except DumpReadError as error:
            fault = error
        yield from self._belated()
        yield from self._unnamed()
        if not self._count and fault is None:
            yield from self._placeholders()
        if fault is not None:
            yield fault

    def _missing_data(self) -> DumpReadError | None:
        if isinstance(self._about.get("data"), dict):
            return None
        return CorruptDumpError("expected a member 'data' with an object, as msprobe writes it")

    # --- entries ------------------------------------------------------------------------------

    def _take(self, member: JsonMember) -> Iterator[Record]:
        key, entry = member.key, member.value
        order = 2 * self._count
        self._count += 1
        if len(key) > _LONGEST_KEY or hash(key) in self._seen:
            what = "stands twice" if len(key) <= _LONGEST_KEY else "is too long"
            yield CorruptDumpError(f"the key {key[:120]!a} {what}", offset=member.offset)
            return
        self._seen.add(hash(key))
        name = parse_probe_name(key)
        if name.kind == "parameters_grad" and name.index is None:
            self._gradients[name.stem] = _Later(key, member.offset, member.length)
            return
        if name.kind == "debug" and name.stem.endswith("_grad"):
            self._variables.append(_Later(key, member.offset, member.length))
            return
        if name.kind == "module" and name.direction == "backward" and name.stem in self._gradients:
            self._last_backward[name.stem] = order
        yield from self._execution(key, entry, order, member.offset)

    def _execution(self, key: str, entry: object, order: int, offset: int) -> Iterator[Record]:
        if entry is None:
            return
        faults: list[DumpReadError] = []
        self._files.start_execution()
        try:
            execution = make_execution(key, entry, order, self._files.open, faults)
        except DumpReadError as error:
            faults.append(error)
        else:
            self._finish(execution)
            yield execution
        for fault in faults:
            fault.offset = offset if fault.offset is None else fault.offset
        yield from faults
        yield from self._file_faults()

    def _finish(self, execution: Execution) -> None:
        self._tree.complete(execution)
        execution.step = self._number("step")
        execution.rank = self._number("rank")

    def _number(self, member: str) -> int | None:
        value = self._about.get(member)
        if type(value) is int and 0 <= value < _MAX_NUMBER:
            return value
        return None

    def _file_faults(self) -> Iterator[DumpReadError]:
        yield from self._files.faults
        self._files.faults.clear()

    def _belated(self) -> Iterator[Record]:
        """Yield what stood before its time."""
        end = 2 * self._count
        for stem, later in self._gradients.items():
            order = self._last_backward.get(stem, end)
            yield from self._parse_again(later, order + 1)
        for number, later in enumerate(reversed(self._variables)):
            yield from self._parse_again(later, end + 2 + number)

    def _parse_again(self, later: _Later, order: int) -> Iterator[Record]:
        entry = parse_value(self._source.read(later.offset, later.length))
        yield from self._execution(later.key, entry, order, later.offset)

    # --- what no entry says ---------------------------------------------------------------------

    def _unnamed(self) -> Iterator[Record]:
        """Yield the tensors whose entries were lost, called by the names of their files."""
        owners: dict[str, list[tuple[str, ProbeTensorName]]] = {}
        written: dict[str, int] = {}
        for file_name in self._files.unnamed():
            parsed = parse_probe_tensor(file_name)
            if parsed is None:
                continue
            owners.setdefault(parsed.op_name, []).append((file_name, parsed))
            time = self._files.modified_ns(file_name)
            written[parsed.op_name] = min(time, written.get(parsed.op_name, time))
        order = 2 * self._count + len(self._variables) + 4
        for op_name in sorted(owners, key=lambda name: (written[name], name)):
            order += 2
            yield from self._file_execution(op_name, owners[op_name], order)

    def _file_execution(
        self, op_name: str, files: list[tuple[str, ProbeTensorName]], order: int
    ) -> Iterator[Record]:
        self._files.start_execution()
        numbered = [parsed.index for _, parsed in files if parsed.index is not None]
        reserved = max(numbered, default=-1) + 1
        positions = {"input": Positions(reserved), "output": Positions(reserved)}
        tensors = []
        for file_name, parsed in files:
            index = positions[parsed.role].take(parsed.index)
            record = TensorRecord(
                parsed.role, index, "undefined", plain(()), unchecked="unreadable",
                name=parsed.path,
            )  # fmt: skip
            tensors.append(self._files.open(file_name, record) or record)
        name = parse_probe_name(op_name)
        execution = Execution(
            name.op_type,
            op_name,
            tensors,
            order=order,
            form=FORM_RAW,
            partial=True,
            container=name.container,
            parent=module_backward(op_name),
        )
        self._finish(execution)
        yield execution
        yield from self._file_faults()

    def _placeholders(self) -> Iterator[Record]:
        """Name what ran when nothing was recorded of it (task structure): it is unchecked."""
        for position, op_name in enumerate(self._tree.names()):
            name = parse_probe_name(op_name)
            record = TensorRecord("output", 0, "undefined", plain(()), unchecked="structure_only")
            execution = Execution(
                name.op_type,
                op_name,
                [record],
                order=2 * position,
                form=FORM_STATISTICS,
                container=name.container,
            )
            self._finish(execution)
            yield execution
