"""Statistics instead of tensors (`dump_data: stats`): `{dump name}.csv`, one row per tensor.

Sources: the public CANN code that writes these files; there are two writers.

======================  ==========================================================================
column                  what
======================  ==========================================================================
Input/Output, Index     role and slot
Data Size               bytes
Data Type, Format       GE's names (`DT_FLOAT16`, `ND`); `-` or `UNKNOW` for a type not known
Shape                   `2x3`, or `-`
Max, Min, Avg Value     over the elements; Max and Min skip NaN, unless element 0 is one
Count                   elements
Nan Count               NaN
Negative, Positive Inf  `Negative Inf Count`, `Positive Inf Count`
Count
l2norm                  only where it was chosen
======================  ==========================================================================

The second writer puts `Count` right behind `Shape` and then only the chosen items, unless the
default ones are chosen; a row without values then lacks its Count too. So columns are found by
the header's names. A value is a number, `nan`, `-nan`, `inf`, `-inf`, `NA` or empty.

What a row proves: the counts decide, but a Max of Inf is never clean. Without counts a finite Avg
or l2norm shows that every element is finite, since a NaN or Inf would have spread into the sum;
Max and Min cannot show that there is no NaN, but a non-finite one shows that there is something.
What is neither proved stays unchecked, and so does a type that the writer did not know, whatever
it wrote for its values. Over a blocked layout everything includes the padding.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from dumpscope.dtypes import UNDEFINED, Dtype, dtype_of_label
from dumpscope.errors import CorruptDumpError, DumpReadError, TruncatedDumpError
from dumpscope.layouts import plain
from dumpscope.model import FORM_STATISTICS, DumpFile, Match, Role, TensorStats
from dumpscope.naming import parse_name
from dumpscope.readers.protocol import Execution, Record, TensorRecord
from dumpscope.records import record
from dumpscope.regexes import regex
from dumpscope.source import DumpSource

__all__ = ["StatsCsvReader"]

_FIXED = ("input/output", "index", "data size", "data type", "format", "shape")
_START = regex(rb"(?:\xef\xbb\xbf)?input/output\s*,\s*index\s*,\s*data size\s*,", re.IGNORECASE)
_SHAPE = regex(r"[0-9]{1,18}(?:x[0-9]{1,18}){0,31}x?")
_INTEGER = regex(r"-?[0-9]{1,40}")
_BLANK = frozenset({"", "na", "n/a", "-", "null", "none"})

_VALUE_COLUMNS = (
    *("max value", "min value", "avg value", "max", "min", "avg", "mean value"),
    *("nan count", "negative inf count", "positive inf count"),
    *("l2norm", "l2norm value", "l2 norm"),
)

_MAX_BYTES = 16 << 20
_MAX_ROWS = 1 << 14
_MAX_NUMBER = (1 << 63) - 1

_TEXT_TOLERANCE = 2e-6
"""Writers print six digits or more: so near to a dtype's limit is the limit itself."""


class StatsCsvReader:
    """Reads the statistics that CANN writes in place of tensors."""

    name = "stats_csv"
    formats = "CANN statistics (dump_data: stats)"
    versions = "the AICPU writer; the one with chosen items"
    companions: Mapping[str, str] = MappingProxyType({})

    def sniff(self, head: bytes, file: DumpFile) -> Match:
        if _START.match(head):
            return Match.CONTENT
        if file.name[-4:].lower() != ".csv":
            return Match.NONE
        parsed = parse_name(file.name)
        if parsed is None or parsed.suffix != "csv" or parsed.role is not None:
            return Match.NONE
        return Match.NAME

    def read(self, source: DumpSource) -> Iterator[Record]:
        rows = self._load(source)
        columns = {name: at for at, name in reversed(list(enumerate(rows[0])))}
        if any(name not in columns for name in _FIXED):
            raise self._damage(
                source, 0, f"expected the columns {', '.join(_FIXED)}, found {rows[0]!r:.200}"
            )
        errors: list[DumpReadError] = []
        tensors = []
        for number, cells in enumerate(rows[1:], 2):
            if not any(cells):
                continue
            try:
                tensors.append(_read_row(columns, rows[0], cells))
            except ValueError as error:
                errors.append(self._damage(source, None, f"row {number}: {error}"))
        if not tensors and not errors:
            errors.append(
                self._cut(source, "expected a row of statistics for every tensor, found none")
            )
        elif len(rows[-1]) < len(rows[0]) and source.read(source.size - 1, 1) != b"\n":
            errors.append(
                self._cut(
                    source,
                    f"expected {len(rows[0])} cells and the end of the line in row {len(rows)}, "
                    f"found {len(rows[-1])} cells",
                )
            )
        yield _describe_execution(source.file, tensors)
        yield from errors

    def _load(self, source: DumpSource) -> list[list[str]]:
        """Return the rows, the header's names in lower case."""
        if source.size > _MAX_BYTES:
            raise self._damage(
                source, 0, f"expected at most {_MAX_BYTES} bytes of statistics, found {source.size}"
            )
        text = source.read(0, source.size).decode("utf-8-sig", "backslashreplace")
        rows: list[list[str]] = []
        try:
            for row in csv.reader(text.splitlines()):
                rows.append([cell.strip() for cell in row])
                if len(rows) > _MAX_ROWS:
                    raise self._damage(
                        source, None, f"expected at most {_MAX_ROWS} rows, found more"
                    )
        except csv.Error as error:
            raise self._damage(source, None, f"expected rows of CSV: {error}") from error
        if not rows:
            raise self._cut(source, "expected a header and rows, found an empty file")
        rows[0] = [cell.lower() for cell in rows[0]]
        return rows

    def _cut(self, source: DumpSource, message: str) -> TruncatedDumpError:
        return TruncatedDumpError(
            message, path=source.file.relative, reader=self.name, offset=source.size
        )

    def _damage(self, source: DumpSource, offset: int | None, message: str) -> CorruptDumpError:
        return CorruptDumpError(message, path=source.file.relative, reader=self.name, offset=offset)


@record(frozen=False, slots=True)
class _Row:
    """The value cells of one row; `None` where a cell is blank or the column is not there."""

    dtype: Dtype
    count: int | None
    nan: int | None
    neginf: int | None
    posinf: int | None
    max: float | int | None
    min: float | int | None
    mean: float | None
    l2: float | None


def _describe_execution(file: DumpFile, tensors: list[TensorRecord]) -> Execution:
    # Always a part: the values may lie beside it, or the other role in a second file.
    name = parse_name(file.name)
    if name is None:
        return Execution("", file.name, tensors, form=FORM_STATISTICS, partial=True)
    return Execution(
        name.op_type,
        name.op_name,
        tensors,
        task_id=name.task_id,
        stream_id=name.stream_id,
        timestamp=name.timestamp,
        context_id=name.context_id,
        thread_id=name.thread_id,
        form=FORM_STATISTICS,
        partial=True,
    )


def _read_row(
    columns: Mapping[str, int], header: Sequence[str], cells: Sequence[str]
) -> TensorRecord:
    """Read one row.

    Raises
    ------
    ValueError
        It has no role, slot or shape, or a cell is no number.
    """
    if len(cells) <= max(columns[name] for name in _FIXED):
        raise ValueError(f"expected {len(header)} cells, found {len(cells)}")
    cells = _align(columns, header, cells)

    def cell(*names: str) -> str:
        for name in names:
            at = columns.get(name)
            if at is not None and at < len(cells):
                return cells[at]
        return ""

    role = _read_role(cell("input/output"))
    index = _read_count(cell("index"))
    if index is None:
        raise ValueError(f"expected the slot of an {role}, found {cell('index')!r:.40}")
    label = cell("data type")
    dtype = dtype_of_label(label)
    shape = _read_shape(cell("shape"))
    layout = cell("format").upper()
    if layout.lower() in _BLANK:
        layout = "ND"
    size = _read_count(cell("data size")) or 0
    row = _Row(
        dtype,
        _read_count(cell("count")),
        _read_count(cell("nan count")),
        _read_count(cell("negative inf count")),
        _read_count(cell("positive inf count")),
        _read_value(cell("max value", "max")),
        _read_value(cell("min value", "min")),
        _read_value(cell("avg value", "avg", "mean value")),
        _read_value(cell("l2norm", "l2norm value", "l2 norm")),
    )
    record = TensorRecord(
        role,
        index,
        dtype.name,
        plain(shape, layout[:64]),
        size_bytes=min(size, _MAX_NUMBER),
    )
    if 0 in shape or dtype.kind == "string":
        return record  # nothing to check
    if role == "input" and shape and not size and cell("data size"):
        record.dumped = False
        return record
    if all(name not in columns for name in _VALUE_COLUMNS):
        record.unchecked = "statistics_missing"
        return record
    _judge(record, row, min(math.prod(shape), _MAX_NUMBER))
    if record.stats is not None and _is_blocked(record.layout):
        record.notes += ("padding_included",)
    return record


def _judge(record: TensorRecord, row: _Row, count: int) -> None:
    """Fill in the statistics that a row proves, or say why it proves none."""
    dtype, low, high = row.dtype, row.min, row.max
    counts = (row.nan, row.neginf, row.posinf)
    sums = [value for value in (row.mean, row.l2) if value is not None]
    if all(value is None for value in (*counts, low, high, *sums)):
        record.unchecked = "statistics_blank"
        return
    all_finite = dtype.kind in ("int", "uint", "bool") or any(map(math.isfinite, sums))
    nan, neginf, posinf = (0 if all_finite and value is None else value for value in counts)
    if nan is None and _proves_nan(low, high, sums):
        nan = 1
    if posinf is None:
        posinf = _count_infinite(high, low, math.inf)
    if neginf is None:
        neginf = _count_infinite(low, high, -math.inf)
    known = (nan, neginf, posinf)
    if not any(known) and row.count != 0 and dtype.kind not in ("int", "uint", "bool"):
        # An extreme that is not finite outweighs counts that say so: never clean by mistake.
        shown = _show_by_extremes(low, high)
        known = nan, neginf, posinf = shown if any(shown) else known
    if not any(known) and (None in known or dtype is UNDEFINED):
        record.unchecked = "undefined_dtype" if dtype is UNDEFINED else "statistics_incomplete"
        return
    negative, positive = _reaches(low, dtype, -1), _reaches(high, dtype, 1)
    if (any(known) and known != counts) or negative or positive:
        record.notes += ("counts_are_lower_bounds",)
    record.stats = TensorStats(
        count=count if row.count is None else row.count,
        nan=nan or 0,
        neginf=neginf or 0,
        posinf=posinf or 0,
        saturated=positive + negative,
        saturated_negative=int(negative),
        near_limit=None,
        min=_finite(low),
        max=_finite(high),
        mean=_finite(row.mean),
        l2=_finite(row.l2),
    )


def _proves_nan(low: float | None, high: float | None, sums: Sequence[float]) -> bool:
    """Say whether one of the values is NaN and no pair of infinities can have made it so."""
    if any(value is not None and math.isnan(value) for value in (low, high)):
        return True
    return any(map(math.isnan, sums)) and not (low == -math.inf and high == math.inf)


def _show_by_extremes(low: float | None, high: float | None) -> tuple[int, int, int]:
    """Return how many NaN, -Inf and +Inf there are at the least, by Max and Min alone."""
    extremes = [value for value in (low, high) if value is not None]
    return (
        int(any(map(math.isnan, extremes))),
        int(-math.inf in extremes),
        int(math.inf in extremes),
    )


def _count_infinite(nearer: float | None, farther: float | None, sign: float) -> int | None:
    """Return 1 if an extreme value is the infinity, 0 if it shows that there is none."""
    if farther == sign:
        return 1
    if nearer is None or math.isnan(nearer):
        return None
    return int(nearer == sign)


def _reaches(value: float | None, dtype: Dtype, sign: int) -> bool:
    """Say whether an extreme value is the largest finite one of the dtype, as far as printed."""
    limit = dtype.limit
    if value is None or limit is None:
        return False
    return math.isclose(value, sign * limit, rel_tol=_TEXT_TOLERANCE)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _is_blocked(layout: str) -> bool:
    return layout.startswith("FRACTAL_") or "C0" in layout


def _align(
    columns: Mapping[str, int], header: Sequence[str], cells: Sequence[str]
) -> Sequence[str]:
    """Put the Count back that the second writer leaves out of a row without values."""
    at = columns.get("count")
    if at == columns["shape"] + 1 and len(cells) == len(header) - 1:
        rest = cells[at:]
        if all(cell.lower() in _BLANK for cell in rest):
            return [*cells[:at], "", *rest]
    return cells


def _read_role(text: str) -> Role:
    word = text.lower()
    if word.startswith("input"):
        return "input"
    if word.startswith("output"):
        return "output"
    raise ValueError(f"expected Input or Output, found {text!r:.40}")


def _read_count(text: str) -> int | None:
    if text.lower() in _BLANK:
        return None
    if not re.fullmatch(r"[0-9]{1,18}(?:\.0*)?", text):
        raise ValueError(f"expected a number of elements or bytes, found {text!r:.40}")
    return int(text.partition(".")[0])


def _read_value(text: str) -> float | int | None:
    lowered = text.lower()
    if lowered in _BLANK:
        return None
    if lowered in ("true", "false"):
        return int(lowered == "true")
    if _INTEGER.fullmatch(text):
        number = int(text)
        return number if abs(number) <= _MAX_NUMBER else float(number)
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"expected a value, found {text!r:.40}") from None


def _read_shape(text: str) -> tuple[int, ...]:
    if text.lower() in _BLANK:
        return ()
    if not _SHAPE.fullmatch(text.lower()):
        raise ValueError(f"expected a shape like 2x3, found {text!r:.40}")
    return tuple(int(dim) for dim in text.lower().rstrip("x").split("x"))
