"""Look at one file, or at one operator of a scan, as closely as the bytes allow.

The files are read again, whatever the scan had computed: every statistic of every tensor that
was asked for, where its bad elements are, and what they are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from dumpscope.errors import OptionsError
from dumpscope.examine import Examiner
from dumpscope.inspecting.closeup import Closeup, look_closely
from dumpscope.inspecting.targets import Slot, find_executions, is_same_execution
from dumpscope.inspecting.views import FileView, OpView, View
from dumpscope.model import DumpFile, Match, OpRecord, ReadFailure, Scan
from dumpscope.opendump import find_file
from dumpscope.plugins import ReaderRegistry, load_readers
from dumpscope.readers.protocol import Execution, Reader, Record
from dumpscope.remote.urls import is_url
from dumpscope.roots import join, relative_to
from dumpscope.source import DumpSource
from dumpscope.store import Store

__all__ = ["show_file", "show_operator"]

_NODES_SHOWN = 20
_FILES_SHOWN = 64
"""Parts of one execution that are opened at most."""

Wanted = Callable[[Execution], bool]


class _Watch:
    """Which executions and tensors of a file are wanted, and what was seen of them."""

    def __init__(self, wanted: Wanted | None, slot: Slot | None, limit: int) -> None:
        self._wanted = wanted
        self._slot = slot
        self._limit = limit
        self.closeups: list[tuple[Closeup | None, ...]] = []
        self.left_out = 0

    def pick(self, execution: Execution) -> Execution | None:
        """Return what is to be measured of an execution, `None` when it is not wanted."""
        if self._wanted is not None and not self._wanted(execution):
            return None
        tensors = execution.tensors
        if self._slot is not None:
            tensors = [t for t in tensors if (t.role, t.index) == self._slot]
            if not tensors:
                return None
        if self._limit and len(self.closeups) >= self._limit:
            self.left_out += 1
            return None
        return replace(execution, tensors=tensors)

    def look(self, execution: Execution) -> None:
        """Look closely at what was measured."""
        self.closeups.append(tuple(look_closely(tensor) for tensor in execution.tensors))


class _WatchedReader:
    """A reader of which only the wanted executions are passed on."""

    def __init__(self, reader: Reader, watch: _Watch) -> None:
        self.name = reader.name
        self.formats = reader.formats
        self.versions = reader.versions
        self.companions = reader.companions
        self._reader = reader
        self._watch = watch

    def sniff(self, head: bytes, file: DumpFile) -> Match:
        return self._reader.sniff(head, file)

    def read(self, source: DumpSource) -> Iterator[Record]:
        for record in self._reader.read(source):
            if not isinstance(record, Execution):
                yield record
                continue
            picked = self._watch.pick(record)
            if picked is not None:
                yield picked
                # The examiner has measured it by now, and the file is still open.
                self._watch.look(picked)


class _WatchedReaders(ReaderRegistry):
    """All readers, each watched."""

    watch: _Watch

    def choose(self, head: bytes, file: DumpFile, override: str | None = None) -> Reader | None:
        chosen = super().choose(head, file, override)
        return None if chosen is None else _WatchedReader(chosen, self.watch)


def show_file(
    path: str,
    *,
    slot: Slot | None = None,
    op_globs: Sequence[str] = (),
    reader: str | None = None,
    limit: int = 0,
    scan: Scan | None = None,
    asked: str | None = None,
) -> View:
    """Look at one file.

    Parameters
    ----------
    slot
        The one tensor that is wanted of every execution.
    op_globs
        Patterns of which one must match the name or type of an operator.
    limit
        Executions to look at; 0 for all.
    scan
        A scan that may have something to say of the file.

    Raises
    ------
    OptionsError
        There is no such file, it is a folder, or holds nothing of what was asked for.
    """
    found = find_file(path)

    def is_wanted(execution: Execution) -> bool:
        return any(
            fnmatchcase(execution.op_name, glob) or fnmatchcase(execution.op_type, glob)
            for glob in op_globs
        )

    view = _examine(found, path, is_wanted if op_globs else None, slot, limit, reader)
    if not view.ops and not view.failures and (slot is not None or op_globs):
        what = "no operator that the patterns match" if op_globs else "no such tensor"
        if slot is not None:
            what += f" ({slot[0]} {slot[1]})"
        raise OptionsError(f"{path!r} holds {what}; show the file without them to see what it has")
    if scan is not None:
        view = replace(view, ops=tuple(_with_finding(op, found, scan) for op in view.ops))
    return View(asked or path, (view,), scan=scan)


def show_operator(
    store: Store,
    scan: Scan,
    name: str,
    *,
    slot: Slot | None = None,
    asked: str | None = None,
) -> View:
    """Look at the best-ranked execution of an operator of a scan, and list the others.

    Raises
    ------
    OptionsError
        The scan has no such operator, or it has no such tensor.
    """
    best, *others = find_executions(store, scan, name)
    if slot is not None and all((t.role, t.index) != slot for t in best.op.tensors):
        has = ", ".join(f"{t.role}.{t.index}" for t in best.op.tensors) or "none"
        raise OptionsError(f"{name!r} has no {slot[0]} {slot[1]}; its tensors: {has}")
    files = []
    for file in list(dict.fromkeys(part.file for part in best.parts))[:_FILES_SHOWN]:
        parts = [part for part in best.parts if part.file == file]
        view = _examine_part(scan, file, parts, slot)
        files.append(replace(view, ops=tuple(replace(op, finding=best.finding) for op in view.ops)))
    stored = None
    if not any(file.ops for file in files):
        stored = OpView(best.op, finding=best.finding)
    return View(
        asked or name,
        tuple(files),
        stored,
        tuple((other.op, other.finding) for other in others),
        scan,
    )


def _examine_part(scan: Scan, file: str, parts: Sequence[OpRecord], slot: Slot | None) -> FileView:
    """Look at what one file holds of an execution."""
    path = join(scan.root, file)

    def is_wanted(execution: Execution) -> bool:
        return any(is_same_execution(execution, part) for part in parts)

    try:
        found = find_file(path)
    except OptionsError as error:
        gone = ReadFailure(file, "", type(error).__name__, None, f"{error}; was it moved?")
        return FileView(path, known=True, failures=(gone,))
    return _examine(found, path, is_wanted, slot, 0, parts[0].reader or None)


def _examine(
    file: DumpFile,
    path: str,
    wanted: Wanted | None,
    slot: Slot | None,
    limit: int,
    reader: str | None,
) -> FileView:
    registry = load_readers()
    watched = _WatchedReaders(registry.readers, registry.broken, registry.plugins)
    watched.watch = _Watch(wanted, slot, limit)
    result = Examiner(watched, level="full", reader=reader).examine(file)
    closeups = watched.watch.closeups
    # A fault may have ended the reading between measuring and looking.
    closeups += [()] * (len(result.ops) - len(closeups))
    return FileView(
        path,
        result.reader,
        file.size,
        result.known,
        tuple(OpView(op, seen) for op, seen in zip(result.ops, closeups, strict=True)),
        watched.watch.left_out,
        result.overflow,
        result.graph[:_NODES_SHOWN],
        len(result.graph),
        result.failures,
    )


def _with_finding(view: OpView, file: DumpFile, scan: Scan) -> OpView:
    """Add what a scan said of an execution that lies in `file`."""
    if is_url(file.path) or is_url(scan.root):
        relative = relative_to(file.path, scan.root)
    else:
        relative = os.path.relpath(os.path.realpath(file.path), os.path.realpath(scan.root))
    folder = os.path.dirname(relative)
    for finding in (*scan.findings, *scan.expected):
        op = finding.op
        if (
            os.path.dirname(op.file) == folder
            and (op.file == relative or op.part_ids)
            and _identity(op) == _identity(view.op)
        ):
            return replace(view, finding=finding)
    return view


def _identity(op: OpRecord) -> tuple[object, ...]:
    return (op.op_type, op.op_name, op.task_id, op.stream_id, op.context_id, op.thread_id)
