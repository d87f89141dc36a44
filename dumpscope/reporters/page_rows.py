"""The tables of the page: what of them is written as HTML, and what travels packed.

The first rows of every table are plain HTML, for programs that run no script. All rows, with all
columns, are packed: one JSON text per line, each a block of rows as columns, gzip over all of it,
base64 around that. A page has a size to keep: blocks are added while there is room, and what was
left out is counted.
"""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from dumpscope.model import Scan, Verdict
from dumpscope.records import record
from dumpscope.reporters.page_charts import GROUPS, name_verdict
from dumpscope.reporters.tables import TABLES, Cell, Column, Table
from dumpscope.safetext import make_printable
from dumpscope.words import format_count, format_number, label

if TYPE_CHECKING:
    from typing import Protocol

    class _Compressor(Protocol):
        def compress(self, data: bytes, /) -> bytes: ...
        def flush(self, mode: int = ..., /) -> bytes: ...
        def copy(self) -> _Compressor: ...


__all__ = [
    "DETAILED_FINDINGS",
    "STATIC_ROWS",
    "PageColumn",
    "PageTable",
    "RowPacker",
    "clip",
    "plan_table",
]

STATIC_ROWS = 1000
"""Rows of a table that are there without a script."""

DETAILED_FINDINGS = 1000
"""Findings whose tensors are in the page."""

_BLOCK_ROWS = 50
_BLOCKS_AT_ONCE = 4
"""So few that gzip, which looks back 32 KB, still sees a name when it comes again in its row."""

NAME_MARK = "\x01"
"""Stands for the operator's name in the name of its file; no printable text holds it."""

_STATIC_CELL_LENGTH = 300
_MARKUP_BYTES = 34
_PACKED_CELL_LENGTH = 4000
_EXACT_INTEGERS = 1 << 53
"""JavaScript has whole numbers up to here; larger ones travel as text."""

_SHOWN = {
    "findings": (
        "rank",
        "verdict",
        "step",
        "device",
        "op_type",
        "op_name",
        "dtype",
        "nan",
        "posinf",
        "neginf",
        "saturated",
        "reason",
    ),
    "expected": (
        "rule",
        "step",
        "device",
        "op_type",
        "op_name",
        "dtype",
        "shape",
        "nan",
        "posinf",
        "neginf",
        "reason",
    ),
    "overflow": (
        "rank",
        "kind",
        "status",
        "bits",
        "step",
        "device",
        "stream_id",
        "task_id",
        "empty",
        "file",
    ),
    "failures": ("file", "reader", "error", "offset_hex", "message"),
    "unchecked": ("unchecked", "step", "device", "op_type", "op_name", "role", "index", "dtype"),
    "tensors": (
        "role",
        "index",
        "name",
        "dtype",
        "layout",
        "shape",
        "nan",
        "posinf",
        "neginf",
        "saturated",
        "near_limit",
        "subnormal",
        "zero",
        "min",
        "max",
        "rms",
        "first_bad",
    ),
}
_FACETS = {
    "findings": ("verdict", "step", "device", "op_type", "dtype"),
    "expected": ("rule", "step", "device"),
    "overflow": ("kind", "step", "device", "empty"),
    "failures": ("reader", "error"),
    "unchecked": ("unchecked", "step", "device", "dtype"),
}
# Where a column says nothing it only takes room.
_HIDDEN_WHEN_ZERO = frozenset({"nan", "posinf", "neginf", "saturated"})
_WORDS = frozenset({"role", "unchecked", "severity"})
_REALS = frozenset({"min", "max", "mean", "std", "rms", "l2"})


@record(frozen=True, slots=True)
class PageColumn:
    """One column: `kind` says how values are written and compared.

    "count" has thousands separators, "id" has none, "real" has six digits; "verdict", "word"
    (looked up), "flag" and "text" are words.
    """

    name: str
    heading: str
    description: str
    kind: str
    shown: bool
    number: int

    @property
    def is_number(self) -> bool:
        return self.kind in {"count", "id", "real"}


@record(frozen=True, slots=True)
class StaticRow:
    """One row in words; `group` is its verdict's."""

    cells: tuple[tuple[PageColumn, str], ...]
    group: str


@dataclass
class PageTable:
    """One table of the page: `rows` are the static ones, `total` counts all of them."""

    name: str
    title: str
    columns: tuple[PageColumn, ...]
    facets: tuple[str, ...]
    total: int
    rows: list[StaticRow] = field(default_factory=list)

    @property
    def shown(self) -> tuple[PageColumn, ...]:
        return tuple(column for column in self.columns if column.shown)

    def describe(self) -> dict[str, Any]:
        """Return what the script must know of it."""
        return {
            "title": self.title,
            "total": self.total,
            "facets": list(self.facets),
            "columns": [
                {"name": c.name, "head": c.heading, "kind": c.kind, "shown": c.shown}
                for c in self.columns
            ],
        }


def plan_table(name: str, scan: Scan, *, limit: int, lang: str, room: int) -> PageTable:
    """Return a table with its static rows, as many as fit into `room` bytes of text."""
    table = TABLES[name]
    computed = islice(table.compute(scan, limit=limit, lang=lang), STATIC_ROWS)
    values = list(computed)
    columns = tuple(_plan_columns(table, values, lang))
    page = PageTable(
        name=name,
        title=label(f"sheet_{name}", lang),
        columns=columns,
        facets=_FACETS.get(name, ()),
        total=table.count_rows(scan, limit),
    )
    words = {verdict.value: name_verdict(verdict, lang) for verdict in Verdict}
    groups: dict[Cell, str] = {verdict.value: group for verdict, group in GROUPS.items()}
    verdict_at = next((c.number for c in columns if c.kind == "verdict"), None)
    for row in values:
        cells = tuple((c, _write(row[c.number], c, words, lang)) for c in page.shown)
        room -= sum(len(text.encode()) + _MARKUP_BYTES for _, text in cells)
        if room < 0:
            break
        verdict = None if verdict_at is None else row[verdict_at]
        page.rows.append(StaticRow(cells, groups.get(verdict, "passed")))
    return page


def _plan_columns(table: Table, rows: Sequence[Sequence[Cell]], lang: str) -> Iterator[PageColumn]:
    wanted = _SHOWN[table.name]
    order = {name: position for position, name in enumerate(wanted)}
    planned = []
    for number, column in enumerate(table.columns):
        values = [row[number] for row in rows]
        empty = all(value is None or value == "" for value in values)
        zero = column.name in _HIDDEN_WHEN_ZERO and not any(values)
        shown = column.name in order and not empty and not zero
        planned.append(
            PageColumn(
                column.name,
                column.heading(lang),
                column.description(lang),
                _kind_of(column, values),
                shown,
                number,
            )
        )
    # The order of the page; what is only seen in details keeps the table's own.
    planned.sort(key=lambda column: order[column.name] if column.shown else len(order))
    return iter(planned)


def _kind_of(column: Column, values: Sequence[Cell]) -> str:
    if column.name == "verdict":
        return "verdict"
    if column.name in _WORDS:
        return "word"
    if column.name in _REALS:
        return "real"
    if column.number_format:
        return "count"
    known = [value for value in values if value is not None]
    if known and all(isinstance(value, bool) for value in known):
        return "flag"
    if known and all(isinstance(value, int) for value in known):
        return "id"
    return "text"


def _write(value: Cell, column: PageColumn, verdicts: dict[str, str], lang: str) -> str:
    """Write a value as the script writes it too."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return label("yes" if value else "no", lang)
    if isinstance(value, int):
        return format_count(value) if column.kind == "count" else str(value)
    if isinstance(value, float):
        return format_number(value)
    if column.kind == "verdict":
        return verdicts.get(value, value)
    if column.kind == "word":
        return label(value, lang)
    return clip(make_printable(value), _STATIC_CELL_LENGTH)


def clip(text: str, length: int) -> str:
    """Cut the end off a text that is longer than `length` characters."""
    return text if len(text) <= length else text[: length - 1] + "\u2026"


# --- packed rows --------------------------------------------------------------------------------


class RowPacker:
    """Packs rows until there is no more room.

    Parameters
    ----------
    room
        Bytes that the packed text may have.
    """

    def __init__(self, room: int) -> None:
        self._room = room * 3 // 4 - 64
        self._stream: _Compressor = zlib.compressobj(9, zlib.DEFLATED, 31)
        self._parts: list[bytes] = []
        self._size = 0

    def add(
        self, page: PageTable, scan: Scan, *, limit: int, lang: str, share: float = 1.0
    ) -> None:
        """Pack the rows of a table, at most `share` of the room that is left."""
        end = self._size + int((self._room - self._size) * share)
        computed = TABLES[page.name].compute(scan, limit=limit, lang=lang)
        while rows := list(islice(computed, _BLOCK_ROWS * _BLOCKS_AT_ONCE)):
            parts = [rows[i : i + _BLOCK_ROWS] for i in range(0, len(rows), _BLOCK_ROWS)]
            if not self._put("".join(_write_block(page, part) for part in parts), end):
                break

    def _put(self, text: str, end: int) -> bool:
        """Add text, unless more than `end` bytes would then be packed."""
        trial = self._stream.copy()
        data = trial.compress(text.encode()) + trial.flush(zlib.Z_SYNC_FLUSH)
        if self._size + len(data) > end:
            return False
        self._stream = trial
        self._size += len(data)
        self._parts.append(data)
        return True

    def finish(self) -> str:
        """Return all of it as base64."""
        return base64.b64encode(b"".join([*self._parts, self._stream.flush()])).decode()


def _write_block(page: PageTable, rows: Sequence[Sequence[Cell]]) -> str:
    """Write rows as one line: a list of values per column.

    Instead of a list stands 0 where all are unknown, and {"from": n} where they count upwards.
    """
    columns = [[_pack(row[column.number]) for row in rows] for column in page.columns]
    _shorten_files(page.columns, columns)
    block: dict[str, Any] = {"table": page.name, "rows": len(rows)}
    block["columns"] = [_shorten_column(column) for column in columns]
    return json.dumps(block, ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n"


def _shorten_column(values: list[Cell]) -> Any:
    if all(value is None for value in values):
        return 0
    first = values[0]
    if type(first) is int and values == list(range(first, first + len(values))):
        return {"from": first}
    return values


def _shorten_files(columns: Sequence[PageColumn], values: list[list[Cell]]) -> None:
    """Leave the operator's name out of file names, where CANN puts it with `_` for `/`."""
    places = {column.name: position for position, column in enumerate(columns)}
    if "op_name" not in places or "file" not in places:
        return
    paths = values[places["file"]]
    for row, name in enumerate(values[places["op_name"]]):
        path = paths[row]
        if isinstance(name, str) and isinstance(path, str) and name:
            paths[row] = path.replace(name.replace("/", "_"), NAME_MARK, 1)


def _pack(value: Cell) -> Cell:
    """Return a value that JSON and JavaScript hold; of floats what makes a float32 exact."""
    if isinstance(value, str):
        return clip(make_printable(value), _PACKED_CELL_LENGTH)
    if isinstance(value, float):
        return float(f"{value:.9g}") if math.isfinite(value) else format_number(value)
    if isinstance(value, int) and not -_EXACT_INTEGERS <= value <= _EXACT_INTEGERS:
        return str(value)
    return value
