"""Taking the records of a scan out of the store.

Everything is streamed, in an order that does not depend on how it was put in: input path, run,
step, device, start, task, the writer's order, file, place within the file. What is not known
comes before what is.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from dumpscope.errors import StoreError
from dumpscope.model import (
    Counts,
    GraphNode,
    OpRecord,
    OverflowRecord,
    OverflowUnit,
    Place,
    ReadFailure,
    TensorSummary,
)
from dumpscope.store.encoding import (
    AddressColumns,
    Kind,
    collect_outputs,
    decode_tensors,
    load_json,
    parse_kind,
    whole_number,
    whole_text,
)
from dumpscope.store.opening import StoreConnection, told
from dumpscope.store.selection import Selection

__all__ = ["StoreReading"]

_KINDS_KEPT = 1 << 16
_CHUNK = 10_000

_ORDER = (
    " ORDER BY p.source, p.run, o.step, o.device, o.start_ns, o.task_id, o.order_no, f.relative,"
    " o.op_id"
)
_LIGHT = (
    "o.op_id, o.place_id, o.partial, o.step, o.device, o.start_ns, o.task_id, o.stream_id,"
    " o.order_no, o.timestamp, o.op_type, o.op_name, f.relative, f.reader, o.rest"
)
_WHOLE = f"{_LIGHT}, o.tensors"
_ALL = (
    " FROM scan_files l CROSS JOIN files f ON f.file_id = l.file_id"
    " CROSS JOIN ops o ON o.op_id >= f.first_op AND o.op_id < f.first_op + f.op_count"
    " JOIN places p ON p.place_id = o.place_id WHERE l.scan_no = :scan"
)
# The marked operators of all scans are few enough to be looked at one by one.
_MARKED = (
    " FROM ops o INDEXED BY {index} CROSS JOIN scan_files l ON l.scan_no = :scan"
    " AND l.file_id = o.file_id CROSS JOIN files f ON f.file_id = o.file_id"
    " JOIN places p ON p.place_id = o.place_id WHERE {condition}"
)


class StoreReading(StoreConnection):
    """The reading half of `Store`."""

    # --- operators ----------------------------------------------------------------------------

    def notable_ops(
        self, scan_id: str, selection: Selection | None = None
    ) -> Iterator[OpRecord]:
        """Yield the operators of which some tensor has a non-finite or a saturated value.

        Saturated values count in the dtypes in which they are a finding.
        """
        source = _MARKED.format(index="ops_notable", condition="o.notable")
        return self._ops(scan_id, source, selection)

    def partial_ops(
        self, scan_id: str, selection: Selection | None = None
    ) -> Iterator[OpRecord]:
        """Yield the parts of executions that several files share, without their tensors."""
        source = _MARKED.format(index="ops_partial", condition="o.partial")
        return self._ops(scan_id, source, selection, light=True)

    def ops(
        self,
        scan_id: str,
        op_ids: Iterable[int] | None = None,
        names: Iterable[str] | None = None,
        selection: Selection | None = None,
        *,
        light: bool = False,
    ) -> Iterator[OpRecord]:
        """Yield the operators of a scan: all, those of some numbers, or those of some names.

        `light` leaves the tensors out.
        """
        source = _ALL
        parameters: list[tuple[str, list[Any]]] = []
        if op_ids is not None:
            source = _MARKED_BY_NUMBER
            parameters.append(("wanted", sorted(set(op_ids))))
        if names is not None:
            source += " AND o.op_name IN (SELECT value FROM wanted_names)"
            parameters.append(("wanted_names", [_sql_text(n) for n in set(names)]))
        return self._ops(scan_id, source, selection, light=light, wanted=parameters)

    def ops_by_task(
        self,
        scan_id: str,
        tasks: Iterable[tuple[int, int | None]],
        selection: Selection | None = None,
        *,
        light: bool = False,
    ) -> Iterator[OpRecord]:
        """Yield the operators with one of these (task id, stream id); a stream of `None` is any."""
        wanted = set(tasks)
        source = f"{_ALL} AND o.task_id IN (SELECT value FROM wanted_tasks)"
        numbers = ("wanted_tasks", sorted({_sql_number(task) for task, _ in wanted}, key=repr))
        for op in self._ops(scan_id, source, selection, light=light, wanted=[numbers]):
            task = op.task_id
            if task is not None and ((task, None) in wanted or (task, op.stream_id) in wanted):
                yield op

    def unchecked_tensors(
        self, scan_id: str, selection: Selection | None = None
    ) -> Iterator[tuple[OpRecord, TensorSummary]]:
        """Yield the tensors whose values could not be read, each with its operator."""
        source = _MARKED.format(index="ops_unchecked", condition="o.unchecked_count")
        for op in self._ops(scan_id, source, selection):
            for tensor in op.tensors:
                if tensor.unchecked is not None or (tensor.dumped and not tensor.checked):
                    yield op, tensor

    def output_addresses(
        self, scan_id: str, selection: Selection | None = None
    ) -> Iterator[AddressColumns]:
        """Yield the outputs that have a device address, in columns of some 10,000 rows."""
        number = self._scan_no(scan_id)
        kind_at = self._kind_reader()
        lanes: dict[tuple[Any, ...], int] = {}
        columns = AddressColumns()
        condition, values = self._condition(selection)
        with self._read():
            rows = self._connection.execute(
                "SELECT o.op_id, p.source, p.run, p.host, o.device, o.tensors"
                f"{_ALL}{condition}{_ORDER}",
                {"scan": number, **values},
            )
            for position, (op_id, source, run, host, device, blob) in enumerate(rows):
                lane = lanes.setdefault((source, run, host, device), len(lanes))
                collect_outputs(columns, op_id, position, lane, blob, kind_at)
                if len(columns.op_id) >= _CHUNK:
                    yield columns
                    columns = AddressColumns()
        if columns.op_id:
            yield columns

    def _ops(
        self,
        scan_id: str,
        source: str,
        selection: Selection | None,
        *,
        light: bool = False,
        wanted: Sequence[tuple[str, list[Any]]] = (),
    ) -> Iterator[OpRecord]:
        number = self._scan_no(scan_id)
        places = self._places()
        kind_at = self._kind_reader()
        condition, values = self._condition(selection)
        with self._read():
            for table, items in wanted:
                source = self._fill(table, items, source)
            statement = f"SELECT {_LIGHT if light else _WHOLE}{source}{condition}{_ORDER}"
            for row in self._connection.execute(statement, {"scan": number, **values}):
                yield _op(row, places, kind_at)

    def _fill(self, table: str, items: list[Any], source: str) -> str:
        """Put values into a table of this connection alone, under a name of its own."""
        self._tables = getattr(self, "_tables", 0) + 1
        name = f"{table}_{self._tables}"
        self._connection.execute(f"CREATE TEMP TABLE {name}(value PRIMARY KEY) WITHOUT ROWID")
        self._connection.executemany(
            f"INSERT INTO {name} VALUES(?)", [(item,) for item in items]
        )
        return source.replace(f"FROM {table}", f"FROM {name}")

    # --- the rest -----------------------------------------------------------------------------

    def failures(self, scan_id: str) -> Iterator[ReadFailure]:
        """Yield what could not be read, by file and offset."""
        number = self._scan_no(scan_id)
        with self._read():
            for row in self._connection.execute(
                "SELECT file, reader, error, byte_offset, message, failure_id FROM failures"
                " WHERE scan_no = :scan UNION ALL"
                " SELECT e.file, e.reader, e.error, e.byte_offset, e.message, e.failure_id"
                " FROM failures e WHERE e.file_id IN"
                " (SELECT file_id FROM scan_files WHERE scan_no = :scan)"
                " ORDER BY 1, 4, 6",
                {"scan": number},
            ):
                yield ReadFailure(
                    whole_text(row[0]), whole_text(row[1]), whole_text(row[2]),
                    whole_number(row[3]), whole_text(row[4]),
                )  # fmt: skip

    def overflow_records(
        self, scan_id: str, selection: Selection | None = None
    ) -> Iterator[OverflowRecord]:
        """Yield the hardware's overflow records, the empty ones too."""
        number = self._scan_no(scan_id)
        places = self._places()
        condition, values = self._place_condition(selection)
        with self._read():
            for row in self._connection.execute(
                "SELECT r.record_id, r.place_id, r.known_kind, r.timestamp, r.start_ns, r.file,"
                " r.units, f.relative FROM overflow r"
                " CROSS JOIN scan_files l ON l.scan_no = :scan AND l.file_id = r.file_id"
                " CROSS JOIN files f ON f.file_id = r.file_id"
                f" JOIN places p ON p.place_id = r.place_id WHERE 1{condition}"
                " ORDER BY p.source, p.run, p.step, p.device,"
                " r.start_ns, f.relative, r.record_id",
                {"scan": number, **values},
            ):
                units = tuple(
                    OverflowUnit(u[0], tuple(u[1]), *u[2:7], tuple((n, v) for n, v in u[7]))
                    for u in load_json(row[6])
                )
                yield OverflowRecord(
                    units,
                    whole_text(row[7] if row[5] is None else row[5]),
                    whole_number(row[3]),
                    whole_number(row[4]),
                    bool(row[2]),
                    places[row[1]],
                    row[0],
                )

    def graph_nodes(self, scan_id: str) -> Iterator[GraphNode]:
        """Yield the operators of graph texts, by file and order."""
        number = self._scan_no(scan_id)
        with self._read():
            for row in self._connection.execute(
                "SELECT g.name, g.op_type, g.order_no, g.file, g.links, f.relative FROM graph g"
                " CROSS JOIN scan_files l ON l.scan_no = :scan AND l.file_id = g.file_id"
                " CROSS JOIN files f ON f.file_id = g.file_id"
                " ORDER BY f.relative, g.order_no, g.node_id",
                {"scan": number},
            ):
                inputs, names = load_json(row[4])
                yield GraphNode(
                    whole_text(row[0]),
                    whole_text(row[1]),
                    tuple((name, index) for name, index in inputs),
                    tuple(names),
                    whole_number(row[2]),
                    whole_text(row[5] if row[3] is None else row[3]),
                )

    def unknown_files(self, scan_id: str) -> Iterator[str]:
        """Yield the files that no reader knew, by path."""
        number = self._scan_no(scan_id)
        with self._read():
            for (relative,) in self._connection.execute(
                "SELECT f.relative FROM scan_files l CROSS JOIN files f ON f.file_id = l.file_id"
                " WHERE l.scan_no = ? AND NOT f.known ORDER BY 1",
                (number,),
            ):
                yield whole_text(relative)

    def file_notes(self, scan_id: str) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield the notes that readers made on files, by path."""
        number = self._scan_no(scan_id)
        with self._read():
            for relative, notes in self._connection.execute(
                "SELECT f.relative, f.notes FROM scan_files l"
                " CROSS JOIN files f ON f.file_id = l.file_id"
                " WHERE l.scan_no = ? AND f.notes IS NOT NULL ORDER BY 1",
                (number,),
            ):
                yield whole_text(relative), tuple(load_json(notes))

    def totals(self, scan_id: str) -> Counts:
        """Count what a scan holds. What only verdicts tell is left at 0.

        `ops` counts records: the parts of a partial execution one by one.
        """
        number = self._scan_no(scan_id)
        with self._read():
            row = self._connection.execute(
                "SELECT count(*), ifnull(sum(f.op_count), 0), ifnull(sum(f.tensor_count), 0),"
                " ifnull(sum(f.bytes_read), 0), ifnull(sum(f.unchecked_count), 0),"
                " ifnull(sum(NOT f.known), 0) FROM scan_files l"
                " CROSS JOIN files f ON f.file_id = l.file_id WHERE l.scan_no = ?",
                (number,),
            ).fetchone()
            failures = self._connection.execute(
                "SELECT (SELECT count(*) FROM failures WHERE scan_no = :scan) +"
                " (SELECT count(*) FROM failures e WHERE e.file_id IN"
                " (SELECT file_id FROM scan_files WHERE scan_no = :scan))",
                {"scan": number},
            ).fetchone()[0]
            full, empty = self._connection.execute(
                "SELECT ifnull(sum(NOT r.empty), 0), ifnull(sum(r.empty), 0) FROM overflow r"
                " JOIN scan_files l ON l.scan_no = ? AND l.file_id = r.file_id",
                (number,),
            ).fetchone()
        return Counts(
            files=row[0],
            ops=row[1],
            tensors=row[2],
            bytes=row[3],
            unchecked=row[4],
            unknown_files=row[5],
            read_failures=failures,
            overflow_records=full,
            empty_overflow_records=empty,
        )

    # --- shared rows and conditions -----------------------------------------------------------

    @contextmanager
    def _read(self) -> Iterator[None]:
        try:
            with told(self.path):
                yield
        except (ValueError, KeyError, IndexError, TypeError, struct.error) as error:
            raise StoreError(
                f"{self.path}: the store is damaged ({error}); move it away and scan again"
            ) from error

    def _places(self) -> dict[int, Place]:
        with self._read():
            rows = self._connection.execute("SELECT place_id, content FROM places")
            return {number: Place(**load_json(content)) for number, content in rows}

    def _kind_reader(self) -> _Kinds:
        return _Kinds(self._connection)

    def _condition(self, selection: Selection | None) -> tuple[str, dict[str, Any]]:
        if not selection:
            return "", {}
        text, values = "", {}
        for column, name, wanted in (
            ("o.step", "step", selection.steps),
            ("o.device", "rank", selection.ranks),
            ("p.run", "run", selection.runs),
        ):
            more, parameters = _in(column, name, wanted)
            text += more
            values.update(parameters)
        pattern = selection.name_pattern()
        if pattern is not None:
            match = pattern.match
            self._connection.create_function(
                "dumpscope_name",
                2,
                lambda name, op_type: bool(match(whole_text(name)) or match(whole_text(op_type))),
                deterministic=True,
            )
            text += " AND dumpscope_name(o.op_name, o.op_type)"
        return text, values

    def _place_condition(self, selection: Selection | None) -> tuple[str, dict[str, Any]]:
        if not selection:
            return "", {}
        text, values = "", {}
        for column, name, wanted in (
            ("p.step", "step", selection.steps),
            ("p.device", "rank", selection.ranks),
            ("p.run", "run", selection.runs),
        ):
            more, parameters = _in(column, name, wanted)
            text += more
            values.update(parameters)
        return text, values


_MARKED_BY_NUMBER = (
    " FROM (SELECT value FROM wanted) w CROSS JOIN ops o ON o.op_id = w.value"
    " CROSS JOIN scan_files l ON l.scan_no = :scan AND l.file_id = o.file_id"
    " CROSS JOIN files f ON f.file_id = o.file_id"
    " JOIN places p ON p.place_id = o.place_id WHERE 1"
)


class _Kinds:
    """Rows of `kinds`, remembered."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._known: dict[int, Kind] = {}

    def __call__(self, number: int) -> Kind:
        kind = self._known.get(number)
        if kind is None:
            row = self._connection.execute(
                "SELECT content FROM kinds WHERE kind_id = ?", (number,)
            ).fetchone()
            if row is None:
                raise KeyError(f"kind {number}")
            if len(self._known) >= _KINDS_KEPT:
                self._known.clear()
            kind = self._known[number] = parse_kind(row[0])
        return kind


def _in(column: str, name: str, wanted: Sequence[Any]) -> tuple[str, dict[str, Any]]:
    if not wanted:
        return "", {}
    values = {f"{name}{i}": item for i, item in enumerate(wanted)}
    return f" AND {column} IN ({','.join(':' + key for key in values)})", values


def _sql_text(text: str) -> Any:
    from dumpscope.store.encoding import bindable

    return bindable(text)


def _sql_number(number: int) -> Any:
    from dumpscope.store.encoding import bindable

    return bindable(number)


def _op(row: tuple[Any, ...], places: dict[int, Place], kind_at: _Kinds) -> OpRecord:
    (
        op_id, place_id, partial, step, device, start_ns, task_id, stream_id, order, timestamp,
        op_type, op_name, file, reader, rest, *blob,
    ) = row  # fmt: skip
    if bytes in map(type, row[3:14]):
        step, device, start_ns, task_id, stream_id, order, timestamp = map(
            whole_number, row[3:10]
        )
        op_type, op_name, file, reader = map(whole_text, row[10:14])
    context_id = thread_id = parent = None
    form, container = 0, False
    stack: tuple[str, ...] = ()
    attributes: tuple[tuple[str, str], ...] = ()
    if rest is not None:
        context_id, thread_id, form, container, parent, frames, pairs, own, path = load_json(rest)
        stack = tuple(frames)
        attributes = tuple((name, value) for name, value in pairs)
        reader = reader if own is None else own
        file = file if path is None else path
    return OpRecord(
        op_type, op_name, decode_tensors(blob[0], kind_at) if blob else (), task_id, stream_id,
        timestamp, start_ns, order, context_id, thread_id, step, device, form, bool(partial),
        container, parent, stack, attributes, reader, file, places[place_id], op_id,
    )  # fmt: skip
