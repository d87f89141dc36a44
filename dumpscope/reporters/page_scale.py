"""The tensors of the first offender on the range of their data types, in powers of two.

A scan keeps extremes and counts of a tensor, not the distribution of its values: the chart shows
just these. Positions are logarithms of |x|; what has no place on such an axis (zero, NaN, Inf)
stands in boxes beside it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from dumpscope.dtypes import Dtype, dtype_named
from dumpscope.inspecting.closeup import exponent_range
from dumpscope.model import Finding, TensorStats, TensorSummary
from dumpscope.records import record
from dumpscope.reporters.page_rows import clip
from dumpscope.reporters.tables import known_stats, list_text
from dumpscope.safetext import make_printable
from dumpscope.words import format_count, format_number, label
from dumpscope.words.page import page_word

__all__ = ["Needle", "RangeChart", "RangeRow", "draw_range"]

MOST_ROWS = 8

_LEFT = 210
_ZERO_WIDTH = 76
_AXIS_WIDTH = 520
_BEYOND_WIDTH = 200
_ROW_HEIGHT = 46
_TOP = 40
_SHORTEST_AXIS = 8


@record(frozen=True, slots=True)
class Needle:
    """One value on the axis: "up" the largest, "down" the most negative, "rms" the root mean."""

    x: float
    kind: str
    text: str


@record(frozen=True, slots=True)
class RangeRow:
    """One tensor. Positions are in the chart's units; `None` where there is nothing to draw."""

    y: int
    name: str
    type: str
    deciding: bool
    low: float | None
    normal: float | None
    high: float | None
    fill: float | None
    needles: tuple[Needle, ...]
    zero: str | None
    subnormal: str
    beyond: tuple[str, ...]
    told: str
    bad: bool


@record(frozen=True, slots=True)
class RangeChart:
    """All tensors on one axis, made for the data type of the deciding one."""

    width: int
    height: int
    axis_left: int
    axis_right: int
    zero_left: int
    beyond_left: int
    beyond_width: int
    row_height: int
    rows: tuple[RangeRow, ...]
    ticks: tuple[tuple[float, str], ...]
    limit: float
    limit_text: str
    aria: str
    left_out: str


def draw_range(finding: Finding, lang: str) -> RangeChart | None:
    """Return the chart of a finding's tensors, `None` where there is no range to draw."""
    tensors = finding.op.tensors
    place = finding.deciding
    if place is None or not 0 <= place < len(tensors):
        return None
    deciding = tensors[place]
    span = exponent_range(deciding.dtype)
    if span is None:
        return None
    chosen = _choose(tensors, place)
    axis = _Axis(span, (_largest(known_stats(tensors[i])) for i in chosen))
    limit = _limit_of(dtype_named(deciding.dtype), span)
    rows = tuple(
        _draw_row(tensors[i], number, axis, deciding=i == place, lang=lang)
        for number, i in enumerate(chosen)
    )
    beyond = _LEFT + _ZERO_WIDTH + _AXIS_WIDTH + 12
    return RangeChart(
        width=beyond + _BEYOND_WIDTH + 170,
        height=_TOP + len(rows) * _ROW_HEIGHT + 8,
        axis_left=axis.left,
        axis_right=axis.right,
        zero_left=_LEFT,
        beyond_left=beyond,
        beyond_width=_BEYOND_WIDTH,
        row_height=_ROW_HEIGHT,
        rows=rows,
        ticks=tuple(axis.ticks(span)),
        limit=axis.place(limit),
        limit_text=page_word("scale_limit", lang, limit=format_number(limit)),
        aria=page_word(
            "scale_aria",
            lang,
            operator=clip(make_printable(finding.op.op_name or finding.op.op_type), 200),
            dtype=deciding.dtype,
            limit=format_number(limit),
        ),
        left_out=page_word("scale_left_out", lang, count=len(tensors) - len(chosen))
        if len(tensors) > len(chosen)
        else "",
    )


def _choose(tensors: Sequence[TensorSummary], deciding: int) -> list[int]:
    """Take the first tensors in their order, the deciding one in any case."""
    others = [i for i in range(len(tensors)) if i != deciding][: MOST_ROWS - 1]
    return sorted([*others, deciding])


class _Axis:
    """Places of values: the whole range of a type, and as far beyond it as values reach."""

    def __init__(self, span: tuple[int, int, int], largest: Iterable[float]) -> None:
        low, _, high = span
        top = max([math.log2(value) for value in largest if value > 0], default=0.0)
        self._low = float(low)
        self._high = max(high + 1.0, math.ceil(top), low + _SHORTEST_AXIS)
        self.left = _LEFT + _ZERO_WIDTH
        self.right = self.left + _AXIS_WIDTH

    def place(self, value: float) -> float:
        """Where |value| stands, at an end when it lies beyond it."""
        return self.place_exponent(math.log2(abs(value)) if value else self._low)

    def place_exponent(self, exponent: float) -> float:
        share = (exponent - self._low) / (self._high - self._low)
        return round(self.left + min(max(share, 0.0), 1.0) * _AXIS_WIDTH, 2)

    def ticks(self, span: tuple[int, int, int]) -> list[tuple[float, str]]:
        """Name the ends of the range, its smallest normal number, 1, and what fits between."""
        low, normal, high = span
        wanted = [high, low, normal, 0]
        step = max(1, round((self._high - self._low) / 8))
        wanted += [e for e in range(int(self._low), int(self._high) + 1) if e % step == 0]
        taken: list[tuple[float, str]] = []
        for exponent in wanted:
            x = self.place_exponent(exponent)
            inside = self._low <= exponent <= self._high
            if inside and all(abs(x - other) > 44 for other, _ in taken):
                taken.append((x, str(exponent)))
        return sorted(taken)


def _draw_row(
    tensor: TensorSummary, number: int, axis: _Axis, *, deciding: bool, lang: str
) -> RangeRow:
    stats = known_stats(tensor)
    known = stats.count is not None
    span = exponent_range(tensor.dtype)
    limit = None if span is None else _limit_of(dtype_named(tensor.dtype), span)
    largest = _largest(stats)
    bad = known and bool(stats.nonfinite or (deciding and stats.saturated))
    return RangeRow(
        y=_TOP + number * _ROW_HEIGHT,
        name=f"{label(tensor.role, lang)} {tensor.index}",
        type=_short(f"{make_printable(tensor.dtype)} {list_text(tensor.shape)}"),
        deciding=deciding,
        low=None if span is None else axis.place_exponent(span[0]),
        normal=None if span is None else axis.place_exponent(span[1]),
        high=None if limit is None else axis.place(limit),
        fill=axis.place(largest) if largest > 0 else None,
        needles=tuple(_needles(stats, axis)),
        zero=None if stats.zero is None else format_count(stats.zero),
        subnormal=_count(stats.subnormal),
        beyond=tuple(_beyond(stats, lang)),
        told=_tell(tensor, stats, largest, limit, lang)
        if known
        else page_word("scale_unchecked", lang),
        bad=bad,
    )


def _needles(stats: TensorStats, axis: _Axis) -> list[Needle]:
    needles = []
    low, high, rms = stats.min, stats.max, stats.rms
    if rms is not None and rms > 0 and math.isfinite(rms):
        needles.append(Needle(axis.place(rms), "rms", f"RMS {format_number(rms)}"))
    if low is not None and low < 0 and math.isfinite(low):
        needles.append(Needle(axis.place(float(low)), "down", f"min {format_number(low)}"))
    if high is not None and high > 0 and math.isfinite(high):
        needles.append(Needle(axis.place(float(high)), "up", f"max {format_number(high)}"))
    return needles


def _beyond(stats: TensorStats, lang: str) -> list[str]:
    """What stands at the end of the range and beyond it."""
    words = [
        f"{format_count(count)} {name}"
        for count, name in (
            (stats.nan, "NaN"),
            (stats.posinf, "+Inf"),
            (stats.neginf, "\u2212Inf"),
        )
        if count
    ]
    first = ", ".join(words)
    ends = []
    if stats.saturated:
        ends.append(f"{format_count(stats.saturated)} {page_word('scale_at_limit', lang)}")
    elif stats.near_limit:
        ends.append(f"{format_count(stats.near_limit)} {page_word('scale_near', lang)}")
    return [text for text in (first, ", ".join(ends)) if text]


def _tell(
    tensor: TensorSummary, stats: TensorStats, largest: float, limit: float | None, lang: str
) -> str:
    """Say how far the largest finite value is from the end of the tensor's own type."""
    if stats.min is None and stats.max is None:
        return page_word("scale_no_finite", lang) if stats.nonfinite else ""
    if limit is None or largest <= 0 or dtype_named(tensor.dtype).kind != "float":
        return ""
    bits = math.log2(limit) - math.log2(largest)
    if bits <= 0:
        return page_word("scale_at_limit", lang)
    told = "< 0.1" if bits < 0.1 else f"{bits:.1f}"
    return page_word("scale_headroom", lang, bits=told)


def _largest(stats: TensorStats) -> float:
    """The largest finite |x|, 0 when it is not known."""
    values = [abs(float(v)) for v in (stats.min, stats.max) if v is not None]
    return max((value for value in values if math.isfinite(value)), default=0.0)


def _limit_of(dtype: Dtype, span: tuple[int, int, int]) -> float:
    return dtype.limit if dtype.limit is not None else math.ldexp(1.0, span[2])


def _count(count: int | None) -> str:
    return format_count(count) if count else ""


def _short(text: str) -> str:
    return text if len(text) <= 28 else text[:27] + "\u2026"
