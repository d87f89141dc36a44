"""What msprobe's Max, Min, Mean and Norm of a tensor prove.

==========  ===================================================================================
statistic   what it is
==========  ===================================================================================
Max, Min    of all elements, in their dtype; NaN when there is any NaN. The only proof: both
            finite means that every element is. Of |x| for complex tensors, true or false for bool
Mean, Norm  in the dtype, so they overflow to Inf over finite elements; null for integers
==========  ===================================================================================

All are null for empty tensors, for float8 and for tensors that were not in memory. How many
elements are not finite is unknown: the counts are 1 where there is at least one (note
`count_at_least`), or all of them where Min says so.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import NamedTuple

from dumpscope.dtypes import Dtype
from dumpscope.model import MaskPattern, TensorStats
from dumpscope.regexes import regex

__all__ = ["COUNT_AT_LEAST", "JudgedTensor", "judge_statistics", "read_number"]

COUNT_AT_LEAST = "count_at_least"
_MAGNITUDE = "magnitude"
_NEAR_LIMIT_SHARE = 0.9
_MASK_MINIMA = frozenset(
    {-65504.0, -3.3895313892515355e38, -3.4028234663852886e38, -1.7976931348623157e308}
)
"""The lowest float16, bfloat16, float32 and float64: what masks are filled with."""

_NUMBER = regex(
    r"[+-]?(?:[0-9]{1,400}(?:\.[0-9]{0,400})?(?:e[+-]?[0-9]{1,5})?|inf(?:inity)?|nan)",
    re.IGNORECASE,
)


class JudgedTensor(NamedTuple):
    """Statistics, or why there are none."""

    stats: TensorStats | None
    unchecked: str | None = None
    notes: tuple[str, ...] = ()


def read_number(value: object) -> float | int | None:
    """Read a number, a bool, or one of the words that stand for numbers; `None` for null.

    Raises
    ------
    ValueError
        It is anything else.
    """
    if value is None:
        return None
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, (int, float)):
        return value
    if isinstance(value, str):
        word = value.strip()
        if word.lower() in ("", "none", "null", "n/a"):
            return None
        if word.lower() in ("true", "false"):
            return int(word.lower() == "true")
        if _NUMBER.fullmatch(word):
            return float(word)
    raise ValueError(f"expected a number, found {value!r:.40}")


def judge_statistics(
    leaf: Mapping[str, object], dtype: Dtype, shape: tuple[int, ...]
) -> JudgedTensor:
    """Say what the statistics of a tensor prove.

    Parameters
    ----------
    leaf
        The tensor's object in the JSON.

    Raises
    ------
    ValueError
        A statistic is no number.
    """
    count = math.prod(shape)
    if not count:
        return JudgedTensor(TensorStats())
    high, low = leaf.get("Max"), leaf.get("Min")
    if type(high) is float and type(low) is float and dtype.limit is not None:
        near = _NEAR_LIMIT_SHARE * dtype.limit
        if -near < low and high < near and dtype.kind == "float":  # by far the most frequent
            mask = MaskPattern(low, 1, None) if low in _MASK_MINIMA else None
            mean, norm = _optional(leaf.get("Mean")), _optional(leaf.get("Norm"))
            stats = TensorStats(
                count, min=low, max=high, mean=_finite(mean), l2=_finite(norm), mask=mask
            )
            return JudgedTensor(stats)
    return _judge(leaf, dtype, shape, read_number(high), read_number(low))


def _judge(
    leaf: Mapping[str, object],
    dtype: Dtype,
    shape: tuple[int, ...],
    high: float | int | None,
    low: float | int | None,
) -> JudgedTensor:
    count = math.prod(shape)
    if high is None and low is None:
        return JudgedTensor(None, _why_blank(leaf))
    if dtype.kind in ("int", "uint", "bool"):
        return JudgedTensor(
            TensorStats(count=count, min=_whole(low), max=_whole(high), near_limit=None)
        )
    nan = int(_is_nan(high) or _is_nan(low))
    posinf = _spread(low == math.inf, high == math.inf, count)
    neginf = _spread(high == -math.inf, low == -math.inf, count)
    if None in (high, low) and not (nan or posinf or neginf):
        return JudgedTensor(None, "blank_statistics")
    top, bottom = _finite(high), _finite(low)
    notes: tuple[str, ...] = ()
    saturated = negative = 0
    near: int | None = None
    if dtype.kind == "complex":
        notes = (_MAGNITUDE,)
    else:
        saturated, negative, near = _reach_limit(top, bottom, dtype)
    bad = nan + posinf + neginf
    if (bad or saturated) and count > 1 and bad < count:
        notes = (*notes, COUNT_AT_LEAST)
    place = (0,) * len(shape) if count == 1 and (bad or saturated) else None
    stats = TensorStats(
        count=count,
        nan=nan,
        posinf=posinf,
        neginf=neginf,
        saturated=saturated,
        saturated_negative=negative,
        near_limit=None if bad else near,
        min=bottom,
        max=top,
        mean=None if bad else _finite(_optional(leaf.get("Mean"))),
        l2=None if bad else _finite(_optional(leaf.get("Norm"))),
        first_bad=place,
        mask=_mask_of(low, high, neginf),
    )
    return JudgedTensor(stats, notes=notes)


def _why_blank(leaf: Mapping[str, object]) -> str:
    if "Max" in leaf or "Min" in leaf:
        return "blank_statistics"
    return "no_statistics" if "md5" in leaf else "structure_only"


def _spread(all_of_them: bool, some: bool, count: int) -> int:
    """Return how many elements are infinite at least."""
    return count if all_of_them else int(some)


def _reach_limit(
    top: float | None, bottom: float | None, dtype: Dtype
) -> tuple[int, int, int | None]:
    """Return saturated, negative saturated and near-limit elements, as far as extremes show."""
    limit = dtype.limit
    if limit is None:
        return 0, 0, None
    positive = int(top == limit)
    negative = int(bottom == -limit)
    sizes = [abs(value) for value in (top, bottom) if value is not None]
    largest = max(sizes, default=0.0)
    near = int(any(_NEAR_LIMIT_SHARE * limit <= size < limit for size in sizes))
    # What lies between the extremes is only known to be near the limit when one of them is.
    return positive + negative, negative, near if near or largest < limit else None


def _mask_of(low: float | None, high: float | None, neginf: int) -> MaskPattern | None:
    """Return the mask constant that the minimum is, where the values are one-sided."""
    if low is None or high is None or math.isnan(low) or high == math.inf:
        return None
    if low == -math.inf:
        return MaskPattern(-math.inf, neginf, None)
    return MaskPattern(float(low), 1, None) if low in _MASK_MINIMA else None


def _optional(value: object) -> float | int | None:
    """Read a statistic that proves nothing: what is no number is left out."""
    if type(value) is float:
        return value
    try:
        return read_number(value)
    except ValueError:
        return None


def _whole(value: float | int | None) -> float | int | None:
    """8.3.x writes extremes of integers as floats."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1 << 53:
        return int(value)
    if isinstance(value, int) and abs(value) < 1 << 64:
        return value
    return _finite(value)


def _is_nan(value: float | int | None) -> bool:
    return value is not None and math.isnan(value)


def _finite(value: float | int | None) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None
