"""Statistics that a writer put into text cells, and what they prove about the values.

Counts of NaN and Inf decide where they are there. Without them: a norm that is finite shows that
every element is, since a NaN or Inf would have spread into it; so does a mean, where the writer
takes it over all elements. Max and Min cannot show that there is no NaN (several writers skip
it), but a non-finite one shows that there is something. What proves neither stays unchecked.
"""

from __future__ import annotations

import math
import re

from dumpscope.dtypes import Dtype
from dumpscope.model import TensorStats
from dumpscope.records import record
from dumpscope.regexes import regex

__all__ = ["BLANK", "Judged", "WrittenValues", "judge_values", "read_count", "read_value"]

BLANK = frozenset({"", "-", "na", "n/a", "none"})
NULL = "null"

_INTEGER = regex(r"-?[0-9]{1,40}")
_FLOAT = regex(
    r"[+-]?(?:(?:[0-9]{1,400}(?:\.[0-9]{0,400})?|\.[0-9]{1,400})(?:e[+-]?[0-9]{1,5})?|inf(?:inity)?|nan)",
    re.IGNORECASE,
)
_COUNT = regex(r"([0-9]{1,18})(?:\.0*)?")
_MAX_INTEGER = (1 << 63) - 1
_TEXT_TOLERANCE = 2e-6
"""Writers print six digits or more: so near to a dtype's limit is the limit itself."""
_F32_MAX = 3.4e38


@record(frozen=False, slots=True)
class WrittenValues:
    """The cells of one row; `None` where a cell is blank or the column is not there.

    `all_nonfinite` says that the writer found no finite element. `mean_is_of_all` says that this
    writer takes NaN and Inf into the mean.
    """

    count: int | None = None
    nan: int | None = None
    neginf: int | None = None
    posinf: int | None = None
    zero: int | None = None
    max: float | int | None = None
    min: float | int | None = None
    mean: float | None = None
    l2: float | None = None
    all_nonfinite: bool = False
    mean_is_of_all: bool = False


@record(frozen=True, slots=True)
class Judged:
    """Statistics, or why there are none."""

    stats: TensorStats | None
    unchecked: str | None = None
    notes: tuple[str, ...] = ()


def judge_values(values: WrittenValues, dtype: Dtype, shape: tuple[int, ...]) -> Judged:
    """Say what a row of statistics proves.

    Parameters
    ----------
    dtype, shape
        Of the tensor: integers have no NaN, and the shape gives the count where no cell does.
    """
    count = math.prod(shape) if values.count is None else values.count
    low, high = values.min, values.max
    sums = [values.l2]
    if values.mean_is_of_all:
        sums.append(values.mean)
    counts = (values.nan, values.neginf, values.posinf)
    if not values.all_nonfinite and all(
        value is None for value in (*counts, low, high, values.mean, values.l2)
    ):
        return Judged(None, "statistics_blank")
    nan, neginf, posinf = counts
    lower_bounds = False
    if None in counts:
        if dtype.kind in ("int", "uint", "bool") or any(map(_is_finite, sums)):
            nan, neginf, posinf = nan or 0, neginf or 0, posinf or 0
        elif values.all_nonfinite:
            nan = max(0, count - (neginf or 0) - (posinf or 0)) if nan is None else nan
        else:
            nan, neginf, posinf = _deduce(values, count, sums)
            lower_bounds = True
    shown = _shown_by_extremes(low, high) if count and dtype.kind == "float" else (0, 0, 0)
    if any(
        there and not counted for there, counted in zip(shown, (nan, neginf, posinf), strict=True)
    ):
        # A cell that says Inf outweighs one that says there is none: never clean by mistake.
        nan, neginf, posinf = (
            max(there, counted or 0)
            for there, counted in zip(shown, (nan, neginf, posinf), strict=True)
        )
        lower_bounds = True
    known = (nan, neginf, posinf)
    if not any(known) and (None in known or values.all_nonfinite):
        return Judged(None, "statistics_incomplete")
    positive, negative = _reaches(high, dtype, 1), _reaches(low, dtype, -1)
    lower_bounds = (lower_bounds and any(known)) or positive or negative
    stats = TensorStats(
        count=count,
        nan=nan or 0,
        posinf=posinf or 0,
        neginf=neginf or 0,
        saturated=positive + negative,
        saturated_negative=int(negative),
        near_limit=None,
        zero=values.zero,
        min=_finite(low),
        max=_finite(high),
        mean=_finite(values.mean),
        l2=_finite(values.l2),
    )
    return Judged(stats, notes=("counts_are_lower_bounds",) if lower_bounds else ())


def _shown_by_extremes(*extremes: float | int | None) -> tuple[int, int, int]:
    """How many NaN, -Inf and +Inf there are at the least, by Max and Min alone."""
    known = [float(value) for value in extremes if value is not None]
    return (
        int(any(math.isnan(value) for value in known)),
        int(-math.inf in known),
        int(math.inf in known),
    )


def read_count(text: str) -> int | None:
    """Read a number of elements.

    Raises
    ------
    ValueError
        The cell holds something else.
    """
    if text.lower() in BLANK or text == NULL:
        return None
    match = _COUNT.fullmatch(text)
    if match is None:
        raise ValueError(f"expected a number of elements, found {text!r:.40}")
    return int(match[1])


def read_value(text: str) -> float | int | None:
    """Read a value; `None` for a blank cell, and for `null`.

    Raises
    ------
    ValueError
        The cell holds something else.
    """
    word = text.strip("[] ")
    lowered = word.lower()
    if lowered in BLANK or lowered == NULL:
        return None
    if lowered in ("true", "false"):
        return int(lowered == "true")
    if _INTEGER.fullmatch(word):
        number = int(word)
        return number if abs(number) <= _MAX_INTEGER else float(number)
    if not _FLOAT.fullmatch(word):
        raise ValueError(f"expected a value, found {text!r:.40}")
    return float(word)


def _deduce(
    values: WrittenValues, count: int, sums: list[float | None]
) -> tuple[int | None, int | None, int | None]:
    """Find lower bounds of the counts that are not given, `None` where nothing shows them."""
    low, high = values.min, values.max
    nan, neginf, posinf = values.nan, values.neginf, values.posinf
    if nan is None and (_is_nan(low) or _is_nan(high) or _is_nan(values.l2)):
        nan = 1
    if posinf is None:
        posinf = 1 if math.inf in (low, high) else None
    if neginf is None:
        neginf = 1 if -math.inf in (low, high) else None
    if not any((nan, neginf, posinf)) and math.inf in (sums[0], values.mean):
        largest = max(_size(low), _size(high))
        # Such a norm cannot have overflowed on its way: something infinite is in it.
        if largest * largest * max(1, count) < _F32_MAX:
            posinf = 1
    return nan, neginf, posinf


def _size(value: float | int | None) -> float:
    """Return |value|; what is not known could be of any size."""
    return math.inf if value is None or math.isnan(value) else abs(value)


def _is_nan(value: float | int | None) -> bool:
    return value is not None and math.isnan(value)


def _is_finite(value: float | int | None) -> bool:
    return value is not None and math.isfinite(value)


def _finite(value: float | int | None) -> float | int | None:
    return value if value is not None and math.isfinite(value) else None


def _reaches(value: float | int | None, dtype: Dtype, sign: int) -> bool:
    """Say whether an extreme value is the largest finite one of the dtype, as far as printed."""
    limit = dtype.limit
    if value is None or limit is None:
        return False
    return math.isclose(value, sign * limit, rel_tol=_TEXT_TOLERANCE)
