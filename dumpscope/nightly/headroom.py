"""How much room a tensor has left below the largest finite value of its dtype.

Headroom is counted in bits: log2(limit / max|x|). One bit is a factor of two; at 0 the largest
element lies at the limit, and the next doubling overflows.
"""

from __future__ import annotations

import math

from dumpscope.dtypes import dtype_named
from dumpscope.model import TensorStats

__all__ = ["headroom_bits", "largest_magnitude", "magnitude_of"]


def largest_magnitude(stats: TensorStats) -> float | None:
    """Return max|x| over the finite elements, `None` when it is not known."""
    return magnitude_of(stats.min, stats.max)


def magnitude_of(least: float | int | None, most: float | int | None) -> float | None:
    """The same from the smallest and the largest value."""
    known = [abs(float(value)) for value in (least, most) if value is not None]
    finite = [value for value in known if math.isfinite(value)]
    return max(finite, default=None)


def headroom_bits(dtype: str, largest: float | None) -> float | None:
    """Return log2(limit / max|x|).

    `None` where the dtype has no limit (integers), nothing is known, or all elements are zero.

    >>> headroom_bits("float16", 32752.0)
    1.0
    """
    limit = dtype_named(dtype).limit
    if limit is None or not largest:
        return None
    # Not log2(limit / largest): the quotient of float64's limit and a small number overflows.
    return math.log2(limit) - math.log2(largest)
