"""How rows are asked for and made into records again."""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from dumpscope.errors import StoreError
from dumpscope.model import OpRecord, Place
from dumpscope.store.connection import StoreConnection
from dumpscope.store.encoding import (
    Kind,
    SqlValue,
    decode_tensors,
    load_json,
    parse_kind,
    whole_number,
    whole_text,
)
from dumpscope.store.opening import told
from dumpscope.store.selection import Selection

__all__ = ["KindReader", "OP_COLUMNS", "Conditions", "StoreQuerying", "make_op", "select_ops"]

_MOST_KEPT = 1 << 13
_FETCHED_AT_ONCE = 64

OP_COLUMNS = (
    "o.op_id, o.place_id, o.partial, o.form, o.step, o.device, o.start_ns, o.task_id,"
    " o.stream_id, o.context_id, o.thread_id, o.order_no, o.timestamp, o.op_type, o.op_name,"
    " f.relative, f.reader, o.rest"
)
"""What `make_op` takes, with or without `o.tensors` behind it."""


_INDEXES = {
    "notable": " INDEXED BY ops_notable",
    "partial": " INDEXED BY ops_partial",
    "unchecked_count": " INDEXED BY ops_unchecked",
    "form": " INDEXED BY ops_other_form",
    "op_id": "",
}


class KindReader:
    """Rows of `kinds` by number, remembered.

    Operators that were put in together have kinds that were numbered together, so while numbers
    stay close to each other, those that follow are fetched with them.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._known: dict[int, Kind] = {}
        self._fetched: dict[int, bytes] = {}
        self._last = -_FETCHED_AT_ONCE

    def __call__(self, number: int) -> Kind:
        kind = self._known.get(number)
        if kind is None:
            content = self._fetched.pop(number, None)
            if content is None:
                content = self._fetch(number)
            kind = parse_kind(content)
            if len(self._known) >= _MOST_KEPT:
                self._known.clear()
            self._known[number] = kind
        return kind

    def _fetch(self, number: int) -> bytes:
        count = _FETCHED_AT_ONCE if abs(number - self._last) <= _FETCHED_AT_ONCE else 1
        self._last = number + count
        if len(self._fetched) >= _MOST_KEPT:
            self._fetched.clear()
        self._fetched.update(
            self._connection.execute(
                "SELECT kind_id, content FROM kinds WHERE kind_id >= ? AND kind_id < ?",
                (number, number + count),
            )
        )
        content = self._fetched.pop(number, None)
        if content is None:
            raise LookupError(f"tensor kind {number} is not there")
        return content


class Conditions:
    """What follows WHERE for a selection, and the parameters in it."""

    def __init__(self, scan_no: int) -> None:
        self.text = ""
        self.parameters: dict[str, SqlValue] = {"scan": scan_no}

    def require(self, column: str, wanted: Sequence[int] | Sequence[str]) -> None:
        """One of these values must be in the column; without any every value may."""
        if wanted:
            first = len(self.parameters)
            names = [f"value{first + i}" for i in range(len(wanted))]
            self.text += f" AND {column} IN ({','.join(':' + name for name in names)})"
            self.parameters.update(zip(names, wanted, strict=True))


class StoreQuerying(StoreConnection):
    """Ground of the reading half of `Store`."""

    @contextmanager
    def _read(self) -> Iterator[sqlite3.Connection]:
        """Turn everything that damaged rows can raise into one sentence."""
        try:
            with told(self.path):
                yield self._connection
        except (ValueError, LookupError, TypeError, struct.error) as error:
            raise StoreError(
                f"{self.path}: the store is damaged ({error}); move it away and scan again"
            ) from error

    def _places(self) -> dict[int, Place]:
        with self._read() as connection:
            rows = connection.execute("SELECT place_id, content FROM places")
            return {number: Place(**load_json(content)) for number, content in rows}

    def _count(self, scan_id: str, statement: str) -> int:
        number = self._scan_no(scan_id)
        with self._read() as connection:
            return int(connection.execute(statement, {"scan": number}).fetchone()[0])

    def _op_conditions(self, scan_no: int, selection: Selection | None) -> Conditions:
        conditions = Conditions(scan_no)
        if selection is None:
            return conditions
        conditions.require("o.step", selection.steps)
        conditions.require("o.device", selection.ranks)
        conditions.require("p.run", selection.runs)
        pattern = selection.name_pattern()
        if pattern is not None:
            match = pattern.match

            def is_wanted(name: str | bytes, op_type: str | bytes) -> bool:
                return bool(match(whole_text(name)) or match(whole_text(op_type)))

            # A name of its own, so that another query that is still running keeps its filter.
            name = f"is_wanted_{id(pattern)}"
            self._connection.create_function(name, 2, is_wanted, deterministic=True)
            conditions.text += f" AND {name}(o.op_name, o.op_type)"
        return conditions

    def _place_conditions(self, scan_no: int, selection: Selection | None) -> Conditions:
        conditions = Conditions(scan_no)
        if selection is not None:
            conditions.require("p.step", selection.steps)
            conditions.require("p.device", selection.ranks)
            conditions.require("p.run", selection.runs)
        return conditions


def select_ops(columns: str, mark: str | None = None) -> str:
    """Begin a question for the operators of a scan; conditions and order are put behind it.

    `mark` names a column by which some operators are indexed: "notable", "partial",
    "unchecked_count" or "form". They are few enough, even of all scans, to look at one by one.
    With "op_id" the conditions say which numbers are meant.
    """
    if mark is None:
        source = (
            "scan_files l CROSS JOIN files f ON f.file_id = l.file_id"
            " CROSS JOIN ops o ON o.op_id >= f.first_op AND o.op_id < f.first_op + f.op_count"
        )
        condition = ""
    else:
        source = (
            f"ops o{_INDEXES[mark]} CROSS JOIN scan_files l ON l.file_id = o.file_id"
            " CROSS JOIN files f ON f.file_id = o.file_id"
        )
        condition = f" AND o.{mark}"
    return (
        f"SELECT {columns} FROM {source} LEFT JOIN places p ON p.place_id = o.place_id"
        f" WHERE l.scan_no = :scan{condition}"
    )


def make_op(
    row: tuple[Any, ...], places: dict[int, Place], kind_at: Callable[[int], Kind]
) -> OpRecord:
    """Make a row of `OP_COLUMNS` into a record."""
    (
        op_id, place_id, partial, form, step, device, start_ns, task_id, stream_id, context_id,
        thread_id, order, timestamp, op_type, op_name, file, reader, rest, *blob,
    ) = row  # fmt: skip
    if bytes in map(type, row[3:17]):
        form, step, device, start_ns, task_id, stream_id, context_id, thread_id = map(
            whole_number, row[3:11]
        )
        order, timestamp = map(whole_number, row[11:13])
        op_type, op_name, file, reader = map(whole_text, row[13:17])
    container, parent = False, None
    stack: tuple[str, ...] = ()
    attributes: tuple[tuple[str, str], ...] = ()
    if rest is not None:
        container, parent, frames, pairs, own_reader, own_file = load_json(rest)
        stack = tuple(frames)
        attributes = tuple((name, value) for name, value in pairs)
        reader = reader if own_reader is None else own_reader
        file = file if own_file is None else own_file
    return OpRecord(
        op_type, op_name, decode_tensors(blob[0], kind_at) if blob else (), task_id, stream_id,
        timestamp, start_ns, order, context_id, thread_id, step, device, form, bool(partial),
        container, parent, stack, attributes, reader, file, places[place_id], op_id,
    )  # fmt: skip
