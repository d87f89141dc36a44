"""One dump file in, one plain result out.

This is what a worker does: open the file, ask which reader knows it, read its records and
measure every tensor. A damaged file gives a result with failures, never an exception; anything
else that is raised here is a bug. The result holds no open file and no array, so it may travel
to another process or machine.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import replace

from dumpscope.dtypes import dtype_named
from dumpscope.errors import DumpReadError, UnsupportedDtypeError
from dumpscope.model import (
    DumpFile,
    FileResult,
    GraphNode,
    OpRecord,
    OverflowRecord,
    ReadFailure,
    StatsLevel,
    TensorStats,
    TensorSummary,
)
from dumpscope.naming import timestamp_ns
from dumpscope.opening import open_source as open_anywhere
from dumpscope.plugins import ReaderRegistry
from dumpscope.readers.protocol import Execution, Reader, Record, TensorRecord
from dumpscope.source import DumpSource, ReadBuffer
from dumpscope.stats.measuring import measure
from dumpscope.stats.screening import screen_small

__all__ = ["Examiner", "failure_of"]

_NO_STATS = TensorStats(near_limit=None)
_CLEAN = TensorStats()


class Examiner:
    """Examine files one after the other with one set of readers and one buffer.

    Parameters
    ----------
    registry
        The readers.
    level
        "screen" or "full" statistics.
    near_limit_share
        Share of the dtype's limit above which a value counts as near it.
    reader
        Name of the reader to use for every file, whatever they say themselves.
    """

    def __init__(
        self,
        registry: ReaderRegistry,
        *,
        level: StatsLevel = "screen",
        near_limit_share: float = 0.9,
        reader: str | None = None,
        open_source: Callable[[DumpFile, ReadBuffer], AbstractContextManager[DumpSource]]
        | None = None,
    ) -> None:
        self.registry = registry
        self.level: StatsLevel = level
        self._screens = level == "screen"
        self.near_limit_share = near_limit_share
        self.reader = reader
        self._buffer = ReadBuffer()
        self._open = open_source or open_anywhere

    def examine(self, file: DumpFile) -> FileResult:
        """Read and measure one file."""
        try:
            with self._open(file, self._buffer) as source:
                reader = self.registry.choose(source.head, file, self.reader)
                if reader is None:
                    return FileResult(file=file, known=False)
                return self._collect(reader, source)
        except DumpReadError as error:
            return FileResult(file=file, failures=(failure_of(error, file, ""),))
        except OSError as error:
            return FileResult(file=file, failures=(_failure_of_os(error, file, ""),))

    def name_reader(self, file: DumpFile) -> str:
        """Name the reader that reads a file; "" for none, and for a file that cannot be opened."""
        try:
            with self._open(file, self._buffer) as source:
                reader = self.registry.choose(source.head, file, self.reader)
        except (DumpReadError, OSError):
            return ""
        return "" if reader is None else reader.name

    def examine_batch(self, files: Iterable[DumpFile]) -> list[FileResult]:
        """Examine several small files in one go."""
        return [self.examine(file) for file in files]

    def _collect(self, reader: Reader, source: DumpSource) -> FileResult:
        file = source.file
        ops: list[OpRecord] = []
        overflow: list[OverflowRecord] = []
        graph: list[GraphNode] = []
        failures: list[ReadFailure] = []
        try:
            for record in reader.read(source):
                if isinstance(record, Execution):
                    ops.append(self._measure_execution(record, file, reader.name, failures))
                else:
                    _sort_record(record, file, reader.name, overflow, graph, failures)
        except DumpReadError as error:
            failures.append(failure_of(error, file, reader.name))
        except OSError as error:
            failures.append(_failure_of_os(error, file, reader.name))
        for fault in getattr(source, "faults", ()):
            # A reader may have taken for absent what a storage only did not deliver.
            failure = failure_of(fault, file, reader.name)
            if all(told.message != failure.message for told in failures):
                failures.append(failure)
        return FileResult(
            file,
            reader.name,
            True,  # it is known
            bool(graph) and not ops,
            tuple(ops),
            tuple(overflow),
            tuple(graph),
            tuple(failures),
            bytes_read=source.size,
        )

    def _measure_execution(
        self, execution: Execution, file: DumpFile, reader: str, failures: list[ReadFailure]
    ) -> OpRecord:
        place = file.place
        stamp = execution.timestamp
        tensors = []
        for record in execution.tensors:
            try:
                tensors.append(self._measure_tensor(record))
            except (DumpReadError, OSError) as error:
                failures.append(
                    failure_of(error, file, reader)
                    if isinstance(error, DumpReadError)
                    else _failure_of_os(error, file, reader)
                )
                record.unchecked = "unreadable"
                tensors.append(self._measure_tensor(record))
        # By position: names cost half as much again.
        return OpRecord(
            execution.op_type,
            execution.op_name,
            tuple(tensors),
            execution.task_id,
            execution.stream_id,
            stamp,
            None if stamp is None else timestamp_ns(stamp),
            execution.order,
            execution.context_id,
            execution.thread_id,
            place.step if execution.step is None else execution.step,
            place.device if execution.rank is None else execution.rank,
            execution.form,
            execution.partial,
            execution.container,
            execution.parent,
            execution.stack,
            execution.attributes,
            reader,
            file.relative,
            place,
        )

    def _measure_tensor(self, record: TensorRecord) -> TensorSummary:
        data = record.data
        geometry = record.geometry
        dumped = record.dumped
        unchecked = record.unchecked
        from_statistics = False
        digest = None
        if unchecked is not None:
            stats = _NO_STATS
        elif record.stats is not None:
            stats = record.stats
            from_statistics = data is None
        elif not dumped:
            stats = _NO_STATS
        elif data is None:
            stats = _CLEAN  # an empty tensor or strings: nothing to check, hence nothing wrong
        else:
            small = None
            if self._screens:
                small = screen_small(data, record.dtype, geometry, self.near_limit_share)
            if small is not None:
                stats = small
            else:
                try:
                    stats, digest = measure(
                        data,
                        dtype_named(record.dtype),
                        geometry,
                        level=self.level,
                        near_limit_share=self.near_limit_share,
                    )
                except UnsupportedDtypeError:
                    stats, unchecked = _NO_STATS, "unsupported_dtype"
        # By position: names cost half as much again.
        return TensorSummary(
            record.role,
            record.index,
            record.dtype,
            geometry.layout,
            geometry.shape,
            unchecked is None and dumped,
            dumped,
            unchecked,
            record.size_bytes,
            record.missing_bytes,
            record.address,
            record.offset,
            from_statistics,
            digest,
            record.name,
            record.notes,
            stats,
        )


def _sort_record(
    record: Record,
    file: DumpFile,
    reader: str,
    overflow: list[OverflowRecord],
    graph: list[GraphNode],
    failures: list[ReadFailure],
) -> None:
    """Put a record that is no execution where it belongs."""
    if isinstance(record, OverflowRecord):
        overflow.append(replace(record, file=file.relative, place=file.place))
    elif isinstance(record, GraphNode):
        graph.append(replace(record, file=file.relative))
    elif isinstance(record, DumpReadError):
        failures.append(failure_of(record, file, reader))


def failure_of(error: DumpReadError, file: DumpFile, reader: str) -> ReadFailure:
    """Turn a reader's exception into the result that a report shows."""
    return ReadFailure(
        file=error.path or file.relative,
        reader=error.reader or reader,
        error=type(error).__name__,
        offset=error.offset,
        message=error.message,
    )


def _failure_of_os(error: OSError, file: DumpFile, reader: str) -> ReadFailure:
    text = error.strerror or os.strerror(error.errno or 0)
    return ReadFailure(
        file=file.relative,
        reader=reader,
        error=type(error).__name__,
        offset=None,
        message=f"cannot be read: {text}",
    )
