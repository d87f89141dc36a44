"""What the conclusion of a scan asks beyond single records: parts, forms, types of operators."""

from __future__ import annotations

from collections.abc import Iterator

from dumpscope.model import OpRecord
from dumpscope.store.encoding import whole_text
from dumpscope.store.reading import _ALL, _MARKED, _WHOLE, StoreReading, _op

__all__ = ["StoreQuestions"]

# The order of assembly.part_key, then that of the parts of one execution.
_PART_ORDER = (
    " ORDER BY p.source, p.run, o.step, o.device, o.op_type, replace(replace(replace(replace("
    "o.op_name, '.', '_'), '/', '_'), '\\', '_'), ' ', '_'), o.task_id, o.stream_id, p.content,"
    " o.start_ns, o.order_no, f.relative, o.op_id"
)


class StoreQuestions(StoreReading):
    """Questions about a whole scan."""

    def count_partial(self, scan_id: str) -> int:
        """How many records are parts of executions that several files share."""
        source = _MARKED.format(index="ops_partial", condition="o.partial")
        return self._number(scan_id, f"SELECT count(*){source}")

    def has_other_forms(self, scan_id: str) -> bool:
        """Whether there are raw dumps beside converted ones or statistics."""
        readers = self._number(
            scan_id,
            "SELECT count(DISTINCT f.reader) FROM scan_files l"
            " CROSS JOIN files f ON f.file_id = l.file_id WHERE l.scan_no = :scan AND f.op_count",
        )
        return readers > 1

    def parts(self, scan_id: str) -> Iterator[OpRecord]:
        """Yield the parts with their tensors, those of one execution next to each other."""
        number = self._scan_no(scan_id)
        places = self._places()
        kind_at = self._kind_reader()
        source = _MARKED.format(index="ops_partial", condition="o.partial")
        with self._read():
            for row in self._connection.execute(
                f"SELECT {_WHOLE}{source}{_PART_ORDER}", {"scan": number}
            ):
                yield _op(row, places, kind_at)

    def op_types(self, scan_id: str) -> list[str]:
        """All types of operators in a scan, sorted."""
        number = self._scan_no(scan_id)
        with self._read():
            rows = self._connection.execute(
                f"SELECT DISTINCT o.op_type{_ALL}", {"scan": number}
            ).fetchall()
        return sorted(whole_text(row[0]) for row in rows)

    def _number(self, scan_id: str, statement: str) -> int:
        number = self._scan_no(scan_id)
        with self._read():
            return int(self._connection.execute(statement, {"scan": number}).fetchone()[0])
