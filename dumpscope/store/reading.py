"""Taking everything but operators out of the store: failures, overflow records, graphs, counts."""

from __future__ import annotations

from collections.abc import Iterator

from dumpscope.model import Counts, GraphNode, OverflowRecord, Place, ReadFailure
from dumpscope.store.encoding import load_json, whole_text
from dumpscope.store.found_rows import make_failure, make_node, make_overflow
from dumpscope.store.op_reading import StoreOps
from dumpscope.store.selection import Selection

__all__ = ["StoreReading"]

_FILES = " FROM scan_files l CROSS JOIN files f ON f.file_id = l.file_id WHERE l.scan_no = :scan"


class StoreReading(StoreOps):
    """The reading half of `Store`. Everything is streamed, in an order that is always the same."""

    def failures(self, scan_id: str) -> Iterator[ReadFailure]:
        """Yield what could not be read, by file and offset."""
        number = self._scan_no(scan_id)
        with self._read() as connection:
            for row in connection.execute(
                "SELECT file, reader, error, byte_offset, message, failure_id FROM failures"
                " WHERE scan_no = :scan UNION ALL"
                " SELECT e.file, e.reader, e.error, e.byte_offset, e.message, e.failure_id"
                " FROM failures e WHERE e.file_id IN"
                " (SELECT file_id FROM scan_files WHERE scan_no = :scan)"
                " ORDER BY 1, 4, 5, 6",
                {"scan": number},
            ):
                yield make_failure(row[:-1])

    def places(self, scan_id: str) -> list[Place]:
        """All places in which files of a scan lie, whatever came of them."""
        number = self._scan_no(scan_id)
        places = self._places()
        with self._read() as connection:
            rows = connection.execute(
                f"SELECT DISTINCT f.place_id{_FILES} ORDER BY 1", {"scan": number}
            )
            return [places[row[0]] for row in rows]

    def faulty_files(self, scan_id: str) -> Iterator[tuple[str, Place, int]]:
        """Yield the files with read failures: path, place, and how many operators they gave."""
        number = self._scan_no(scan_id)
        places = self._places()
        with self._read() as connection:
            for relative, place_id, ops in connection.execute(
                "SELECT DISTINCT f.relative, f.place_id, f.op_count FROM failures e"
                " CROSS JOIN files f ON f.file_id = e.file_id"
                " CROSS JOIN scan_files l ON l.scan_no = :scan AND l.file_id = f.file_id"
                " ORDER BY 1",
                {"scan": number},
            ):
                yield whole_text(relative), places[place_id], ops

    def overflow_records(
        self, scan_id: str, selection: Selection | None = None
    ) -> Iterator[OverflowRecord]:
        """Yield the hardware's overflow records, the empty ones too."""
        number = self._scan_no(scan_id)
        places = self._places()
        conditions = self._place_conditions(number, selection)
        with self._read() as connection:
            for row in connection.execute(
                "SELECT r.record_id, r.place_id, r.known_kind, r.timestamp, r.start_ns, r.file,"
                " r.units, f.relative FROM overflow r"
                " CROSS JOIN scan_files l ON l.scan_no = :scan AND l.file_id = r.file_id"
                " CROSS JOIN files f ON f.file_id = r.file_id"
                f" LEFT JOIN places p ON p.place_id = r.place_id WHERE 1{conditions.text}"
                " ORDER BY p.source, p.run, p.step, p.device, r.start_ns, f.relative, r.record_id",
                conditions.parameters,
            ):
                yield make_overflow(row[:-1], row[-1], places)

    def graph_nodes(self, scan_id: str, op_type: str | None = None) -> Iterator[GraphNode]:
        """Yield the operators of graph texts, by file and order, or those of one type."""
        number = self._scan_no(scan_id)
        condition = "" if op_type is None else " WHERE g.op_type = :op_type"
        with self._read() as connection:
            for row in connection.execute(
                "SELECT g.name, g.op_type, g.order_no, g.file, g.links, f.relative FROM graph g"
                " CROSS JOIN scan_files l ON l.scan_no = :scan AND l.file_id = g.file_id"
                f" CROSS JOIN files f ON f.file_id = g.file_id{condition}"
                " ORDER BY f.relative, g.order_no, g.node_id",
                {"scan": number, "op_type": op_type},
            ):
                yield make_node(row[:-1], row[-1])

    def unknown_files(self, scan_id: str) -> Iterator[str]:
        """Yield the files that no reader knew, by path."""
        number = self._scan_no(scan_id)
        with self._read() as connection:
            for (relative,) in connection.execute(
                f"SELECT f.relative{_FILES} AND NOT f.known ORDER BY 1",
                {"scan": number},
            ):
                yield whole_text(relative)

    def file_notes(self, scan_id: str) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield the files on which readers made notes, by path, and the notes."""
        number = self._scan_no(scan_id)
        with self._read() as connection:
            for relative, notes in connection.execute(
                f"SELECT f.relative, f.notes{_FILES} AND f.notes IS NOT NULL ORDER BY 1",
                {"scan": number},
            ):
                yield whole_text(relative), tuple(load_json(notes))

    def totals(self, scan_id: str) -> Counts:
        """Count what a scan holds. What only verdicts tell is left at 0.

        `ops` counts records: the parts of a partial execution one by one.
        """
        number = self._scan_no(scan_id)
        parameters = {"scan": number}
        with self._read() as connection:
            files, ops, tensors, read_bytes, unchecked, unknown = connection.execute(
                "SELECT count(*), ifnull(sum(f.op_count), 0), ifnull(sum(f.tensor_count), 0),"
                " ifnull(sum(f.bytes_read), 0), ifnull(sum(f.unchecked_count), 0),"
                f" ifnull(sum(NOT f.known), 0){_FILES}",
                parameters,
            ).fetchone()
            (failures,) = connection.execute(
                "SELECT (SELECT count(*) FROM failures WHERE scan_no = :scan) +"
                " (SELECT count(*) FROM failures e WHERE e.file_id IN"
                " (SELECT file_id FROM scan_files WHERE scan_no = :scan))",
                parameters,
            ).fetchone()
            full, empty = connection.execute(
                "SELECT ifnull(sum(NOT r.empty), 0), ifnull(sum(r.empty), 0) FROM overflow r"
                " CROSS JOIN scan_files l ON l.scan_no = :scan AND l.file_id = r.file_id",
                parameters,
            ).fetchone()
        return Counts(
            files=files,
            ops=ops,
            tensors=tensors,
            bytes=read_bytes,
            unchecked=unchecked,
            read_failures=failures,
            overflow_records=full,
            empty_overflow_records=empty,
            unknown_files=unknown,
        )
