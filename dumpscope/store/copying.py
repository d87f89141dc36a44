"""Taking the whole records of files out of the store, to put them into another one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dumpscope.model import (
    DumpFile,
    FileResult,
    GraphNode,
    OverflowRecord,
    Place,
    ReadFailure,
)
from dumpscope.store.encoding import load_json, whole_number, whole_text
from dumpscope.store.found_rows import make_failure, make_node, make_overflow
from dumpscope.store.querying import OP_COLUMNS, KindReader, StoreQuerying, make_op

__all__ = ["StoreCopying"]

_FILES_AT_ONCE = 256

_FILES = (
    "SELECT f.file_id, f.place_id, f.relative, f.size, f.reader, f.known, f.auxiliary,"
    " f.bytes_read, f.first_op, f.op_count, f.has_more, f.notes FROM scan_files l"
    " CROSS JOIN files f ON f.file_id = l.file_id"
    " WHERE l.scan_no = ? AND l.file_id > ? ORDER BY l.file_id LIMIT ?"
)
_OPS = (
    f"SELECT {OP_COLUMNS}, o.tensors FROM ops o CROSS JOIN files f ON f.file_id = o.file_id"
    " WHERE o.op_id >= ? AND o.op_id < ? ORDER BY o.op_id"
)
_OVERFLOW = (
    "SELECT record_id, place_id, known_kind, timestamp, start_ns, file, units FROM overflow"
    " WHERE file_id = ? ORDER BY record_id"
)
_GRAPH = "SELECT name, op_type, order_no, file, links FROM graph WHERE file_id = ? ORDER BY node_id"
_FAILURE = "SELECT file, reader, error, byte_offset, message FROM failures"


class StoreCopying(StoreQuerying):
    """The part of `Store` that gives records back as readers made them.

    Nothing is held open between two files, so another connection can write to the same store.
    """

    def results(self, scan_id: str) -> Iterator[FileResult]:
        """Yield what each file of a scan gave, in the order in which it was stored.

        The path, times and inode of a file are not kept: they are empty and 0.
        """
        number = self._scan_no(scan_id)
        places = self._places()
        kind_at = KindReader(self._connection)
        last = 0
        while True:
            with self._read() as connection:
                rows = connection.execute(_FILES, (number, last, _FILES_AT_ONCE)).fetchall()
            for row in rows:
                with self._read():
                    result = self._result_of(row, places, kind_at)
                yield result
            if len(rows) < _FILES_AT_ONCE:
                return
            last = rows[-1][0]

    def failures_without_file(self, scan_id: str) -> Iterator[ReadFailure]:
        """Yield the failures of the scan itself: what the walk could not reach."""
        number = self._scan_no(scan_id)
        with self._read() as connection:
            rows = connection.execute(
                f"{_FAILURE} WHERE scan_no = ? ORDER BY failure_id", (number,)
            ).fetchall()
            yield from map(make_failure, rows)

    def _result_of(
        self, row: tuple[Any, ...], places: dict[int, Place], kind_at: KindReader
    ) -> FileResult:
        (
            file_id, place_id, name, size, reader, known, auxiliary, bytes_read, first_op,
            op_count, has_more, notes,
        ) = row  # fmt: skip
        relative = whole_text(name)
        place = places[place_id]
        connection = self._connection
        ops = tuple(
            make_op(op, places, kind_at)
            for op in connection.execute(_OPS, (first_op, first_op + op_count)).fetchall()
        )
        overflow: tuple[OverflowRecord, ...] = ()
        graph: tuple[GraphNode, ...] = ()
        failures: tuple[ReadFailure, ...] = ()
        if has_more:
            asked = (file_id,)
            overflow = tuple(
                make_overflow(found, relative, places)
                for found in connection.execute(_OVERFLOW, asked).fetchall()
            )
            graph = tuple(
                make_node(found, relative) for found in connection.execute(_GRAPH, asked).fetchall()
            )
            failures = tuple(
                map(
                    make_failure,
                    connection.execute(
                        f"{_FAILURE} WHERE file_id = ? ORDER BY failure_id", asked
                    ).fetchall(),
                )
            )
        return FileResult(
            DumpFile("", relative, relative.rpartition("/")[2], whole_number(size), 0, 0, 0, place),
            whole_text(reader),
            bool(known),
            bool(auxiliary),
            ops,
            overflow,
            graph,
            failures,
            () if notes is None else tuple(load_json(notes)),
            whole_number(bytes_read),
        )
