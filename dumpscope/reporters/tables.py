"""The column dictionary: every table that a report shows, as plain values.

Rows are computed here and nowhere else; a reporter only formats them. A column is named as the
key of the scan document that it comes from, flattened (`overflow.kind` is `overflow_kind`). What
is not known is `None`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from operator import attrgetter
from typing import Any, Union

from dumpscope.dtypes import dtype_named
from dumpscope.model import Finding, OpRecord, OverflowRecord, OverflowUnit, Scan, TensorSummary
from dumpscope.overflow import describe_status
from dumpscope.records import record
from dumpscope.words import describe_column, head_column, render, render_status

__all__ = ["TABLES", "Cell", "Column", "Table", "cut", "known_stats", "list_text"]

Cell = Union[str, int, float, bool, None]


@record(frozen=True, slots=True)
class Column:
    """One column of a table.

    `width` is in characters, `number_format` a spreadsheet's format ("" is general), `wrap` asks
    for a cell of several lines. `get` computes the value from a row.
    """

    name: str
    width: int
    get: Callable[[Any], Cell]
    number_format: str = ""
    wrap: bool = False

    def heading(self, lang: str = "en") -> str:
        """Return the column's head for people; files keep `name`."""
        return head_column(self.name, lang)

    def description(self, lang: str = "en") -> str:
        return describe_column(self.name, lang)


@record(frozen=True, slots=True)
class Table:
    """Columns, and the rows of a scan that they are computed from."""

    name: str
    columns: tuple[Column, ...]
    list_rows: Callable[[Scan, int, str], Iterator[object]]
    count_rows: Callable[[Scan, int], int]

    def compute(self, scan: Scan, *, limit: int = 0, lang: str = "en") -> Iterator[list[Cell]]:
        """Yield the rows as lists of values; `limit` 0 is all findings."""
        getters = [column.get for column in self.columns]
        for row in self.list_rows(scan, limit, lang):
            yield [get(row) for get in getters]


class _Nothing:
    """Stands for a tensor or overflow record that is not there: everything of it is unknown."""

    def __getattr__(self, name: str) -> None:
        return None


_NOTHING = _Nothing()


@record(frozen=True, slots=True)
class _FindingRow:
    finding: Finding
    op: OpRecord
    tensor: TensorSummary | _Nothing
    stats: Any
    overflow: Any
    reason: str
    lang: str
    caused_by: int | None


@record(frozen=True, slots=True)
class _TensorRow:
    rank: int | None
    op: OpRecord
    tensor: TensorSummary
    stats: Any


@record(frozen=True, slots=True)
class _OverflowRow:
    record: OverflowRecord
    unit: OverflowUnit
    main: bool
    rank: int | None
    lang: str


def cut(findings: tuple[Finding, ...], limit: int) -> tuple[Finding, ...]:
    """Return the first `limit` findings, all of them when `limit` is 0."""
    return findings[:limit] if limit else findings


def known_stats(tensor: TensorSummary) -> Any:
    """Return the statistics of a tensor, or an object without any where none were taken.

    Extremes that the writer did not give (an Inf took their place) could have told that elements
    are at the limit: no element is known to be, and none not to be.
    """
    if not tensor.dumped or not (tensor.checked or tensor.stats.count):
        return _NOTHING
    stats = tensor.stats
    if (
        tensor.from_statistics
        and not stats.saturated
        and None in (stats.min, stats.max)
        and stats.nonfinite < stats.count
        and dtype_named(tensor.dtype).limit is not None
    ):
        return replace(stats, saturated=None)  # type: ignore[arg-type]
    return stats


def list_text(values: tuple[object, ...] | None) -> str | None:
    """Write a tuple as JSON writes a list: `[2, 4]`, `[[0, 1], [1, 3]]`."""
    if values is None:
        return None
    inner = [(list_text(v) or "") if isinstance(v, tuple) else str(v) for v in values]
    return f"[{', '.join(inner)}]"


# --- rows ---------------------------------------------------------------------------------------


def _finding_rows(findings: tuple[Finding, ...], scan: Scan, lang: str) -> Iterator[_FindingRow]:
    ranks = {finding.op.op_id: finding.rank for finding in scan.findings}
    for finding in findings:
        tensors = finding.op.tensors
        deciding = finding.deciding
        inside = deciding is not None and 0 <= deciding < len(tensors)
        tensor = tensors[deciding] if deciding is not None and inside else None
        yield _FindingRow(
            finding=finding,
            op=finding.op,
            tensor=_NOTHING if tensor is None else tensor,
            stats=_NOTHING if tensor is None else known_stats(tensor),
            overflow=_NOTHING if finding.overflow is None else finding.overflow,
            reason=render(finding.reason, lang),
            lang=lang,
            caused_by=None if finding.caused_by is None else ranks.get(finding.caused_by),
        )


def _list_findings(scan: Scan, limit: int, lang: str) -> Iterator[object]:
    return _finding_rows(cut(scan.findings, limit), scan, lang)


def _list_expected(scan: Scan, limit: int, lang: str) -> Iterator[object]:
    return _finding_rows(cut(scan.expected, limit), scan, lang)


def _list_tensors(scan: Scan, limit: int, lang: str) -> Iterator[object]:
    del lang
    for finding in cut(scan.findings, limit):
        for tensor in finding.op.tensors:
            yield _TensorRow(finding.rank, finding.op, tensor, known_stats(tensor))


def _list_overflow(scan: Scan, limit: int, lang: str) -> Iterator[object]:
    del limit
    for status in scan.overflow_records:
        rank = scan.record_rank.get(status.record_id)
        for position, unit in enumerate(status.units):
            yield _OverflowRow(status, unit, position == 0, rank, lang)


def _list_failures(scan: Scan, limit: int, lang: str) -> Iterator[object]:
    del limit, lang
    return iter(scan.read_failures)


def _list_unchecked(scan: Scan, limit: int, lang: str) -> Iterator[object]:
    del limit, lang
    for op, tensor in scan.unchecked:
        yield _TensorRow(None, op, tensor, known_stats(tensor))


# --- columns ------------------------------------------------------------------------------------


def _flag(path: str) -> Callable[[Any], Cell]:
    get = attrgetter(path)

    def _read(row: Any) -> Cell:
        value = get(row)
        return value if isinstance(value, bool) else None

    return _read


def _sequence(path: str) -> Callable[[Any], Cell]:
    get = attrgetter(path)
    return lambda row: list_text(get(row))


def _hex_words(status: tuple[int, ...] | None) -> str | None:
    return None if status is None else " ".join(f"0x{word:x}" for word in status)


def _join_bits(bits: tuple[str, ...] | list[str] | None, lang: str) -> str | None:
    if bits is None:
        return None
    return ("；" if lang.startswith("zh") else "; ").join(render_status(bit, lang) for bit in bits)


def _hex_offset(row: Any) -> Cell:
    return None if row.offset is None else f"0x{row.offset:x}"


def _checked(row: Any) -> Cell:
    if row.tensor.dumped is None:
        return None
    return row.tensor.checked if row.tensor.dumped else None


_COUNT = "#,##0"

_OP_TYPE = Column("op_type", 20, attrgetter("op.op_type"))
_PLACE = (
    Column("step", 6, attrgetter("op.step")),
    Column("device", 7, attrgetter("op.device")),
)
_IDENTITY = (_OP_TYPE, Column("op_name", 44, attrgetter("op.op_name")), *_PLACE)
# Beside a sentence of several lines there is room for all of a long name.
_WHOLE_NAME = (_OP_TYPE, Column("op_name", 44, attrgetter("op.op_name"), wrap=True), *_PLACE)

_TENSOR = (
    Column("role", 8, attrgetter("tensor.role")),
    Column("index", 7, attrgetter("tensor.index")),
    Column("dtype", 12, attrgetter("tensor.dtype")),
    Column("layout", 14, attrgetter("tensor.layout")),
    Column("shape", 18, _sequence("tensor.shape")),
)

_STATISTICS = (
    Column("count", 12, attrgetter("stats.count"), _COUNT),
    Column("nan", 10, attrgetter("stats.nan"), _COUNT),
    Column("posinf", 10, attrgetter("stats.posinf"), _COUNT),
    Column("neginf", 10, attrgetter("stats.neginf"), _COUNT),
    Column("saturated", 10, attrgetter("stats.saturated"), _COUNT),
    Column("near_limit", 10, attrgetter("stats.near_limit"), _COUNT),
    Column("subnormal", 10, attrgetter("stats.subnormal"), _COUNT),
    Column("zero", 10, attrgetter("stats.zero"), _COUNT),
    Column("padding_nonfinite", 10, attrgetter("stats.padding_nonfinite"), _COUNT),
    Column("min", 12, attrgetter("stats.min")),
    Column("max", 12, attrgetter("stats.max")),
    Column("mean", 12, attrgetter("stats.mean")),
    Column("std", 12, attrgetter("stats.std")),
    Column("rms", 12, attrgetter("stats.rms")),
    Column("l2", 12, attrgetter("stats.l2")),
    Column("first_bad", 14, _sequence("stats.first_bad")),
    Column("bad_box", 20, _sequence("stats.bad_box")),
    Column("checked", 9, _checked),
)

_ORIGIN = (
    Column("task_id", 8, attrgetter("op.task_id")),
    Column("stream_id", 8, attrgetter("op.stream_id")),
    Column("timestamp", 19, attrgetter("op.timestamp")),
    Column("run", 16, attrgetter("op.place.run")),
    Column("host", 12, attrgetter("op.place.host")),
    Column("global_rank", 8, attrgetter("op.place.global_rank")),
    Column("device_id", 8, attrgetter("op.place.device_id")),
    Column("evidence", 14, lambda row: ", ".join(row.finding.evidence)),
    Column("overflow_kind", 8, attrgetter("overflow.kind")),
    Column("overflow_status", 12, lambda row: _hex_words(row.overflow.status)),
    Column("overflow_bits", 30, lambda row: _join_bits(row.overflow.bits, row.lang)),
    Column("overflow_confirmed", 10, _flag("overflow.confirmed")),
    Column("overflow_file", 30, attrgetter("overflow.file")),
    Column("reason_code", 18, attrgetter("finding.reason.code")),
    Column("caused_by", 8, attrgetter("caused_by")),
    Column("parent", 20, attrgetter("op.parent")),
    Column("stack", 30, lambda row: " < ".join(row.op.stack) or None),
    Column("file", 60, attrgetter("op.file")),
)

_REASON = Column("reason", 90, attrgetter("reason"), wrap=True)

_FINDINGS = (
    Column("rank", 6, attrgetter("finding.rank")),
    Column("verdict", 16, lambda row: row.finding.verdict.value),
    *_WHOLE_NAME,
    _REASON,
    *_TENSOR,
    *_STATISTICS,
    *_ORIGIN,
    Column("severity", 9, attrgetter("finding.severity")),
    Column("known", 7, attrgetter("finding.known")),
)

_EXPECTED = (
    Column("rule", 24, attrgetter("finding.rule")),
    *_WHOLE_NAME,
    _REASON,
    *_TENSOR,
    *_STATISTICS,
    *(c for c in _ORIGIN if not c.name.startswith(("overflow", "caused"))),
)

_TENSORS = (
    Column("rank", 6, attrgetter("rank")),
    *_IDENTITY,
    *_TENSOR,
    Column("name", 14, attrgetter("tensor.name")),
    *_STATISTICS,
    Column("size_bytes", 12, attrgetter("tensor.size_bytes"), _COUNT),
    Column("missing_bytes", 10, attrgetter("tensor.missing_bytes"), _COUNT),
    Column("from_statistics", 10, attrgetter("tensor.from_statistics")),
)

_OVERFLOW = (
    Column("rank", 6, attrgetter("rank")),
    Column("kind", 8, attrgetter("unit.kind")),
    Column("status", 24, lambda row: _hex_words(row.unit.status)),
    Column("status_decimal", 12, lambda row: " ".join(map(str, row.unit.status))),
    Column("bits", 60, lambda row: _join_bits(_bits_of(row.unit), row.lang), wrap=True),
    Column("empty", 8, attrgetter("unit.empty")),
    Column("main", 8, attrgetter("main")),
    Column("step", 6, attrgetter("record.place.step")),
    Column("device", 7, attrgetter("record.place.device")),
    Column("model_id", 8, attrgetter("unit.model_id")),
    Column("stream_id", 8, attrgetter("unit.stream_id")),
    Column("task_id", 8, attrgetter("unit.task_id")),
    Column("context_id", 8, attrgetter("unit.context_id")),
    Column("thread_id", 8, attrgetter("unit.thread_id")),
    Column("timestamp", 19, attrgetter("record.timestamp")),
    Column("fields", 40, lambda row: ", ".join(f"{k}=0x{v:x}" for k, v in row.unit.fields)),
    Column("file", 60, attrgetter("record.file")),
)

_FAILURES = (
    Column("file", 60, attrgetter("file"), wrap=True),
    Column("reader", 14, attrgetter("reader")),
    Column("error", 24, attrgetter("error")),
    Column("offset", 12, attrgetter("offset"), "0_)"),  # stands off from what follows
    Column("offset_hex", 12, _hex_offset),
    Column("message", 80, attrgetter("message"), wrap=True),
)

_UNCHECKED = (
    *_IDENTITY,
    *_TENSOR,
    Column("unchecked", 24, attrgetter("tensor.unchecked")),
    Column("size_bytes", 12, attrgetter("tensor.size_bytes"), _COUNT),
    Column("missing_bytes", 10, attrgetter("tensor.missing_bytes"), _COUNT),
    Column("file", 60, attrgetter("op.file")),
)


def _bits_of(unit: OverflowUnit) -> tuple[str, ...]:
    return tuple(describe_status(unit.kind, unit.status))


def _count_tensors(scan: Scan, limit: int) -> int:
    return sum(len(finding.op.tensors) for finding in cut(scan.findings, limit))


TABLES = {
    table.name: table
    for table in (
        Table("findings", _FINDINGS, _list_findings, lambda scan, n: len(cut(scan.findings, n))),
        Table("tensors", _TENSORS, _list_tensors, _count_tensors),
        Table(
            "overflow",
            _OVERFLOW,
            _list_overflow,
            lambda scan, _: sum(len(record.units) for record in scan.overflow_records),
        ),
        Table("expected", _EXPECTED, _list_expected, lambda scan, n: len(cut(scan.expected, n))),
        Table("failures", _FAILURES, _list_failures, lambda scan, _: len(scan.read_failures)),
        Table("unchecked", _UNCHECKED, _list_unchecked, lambda scan, _: len(scan.unchecked)),
    )
}
