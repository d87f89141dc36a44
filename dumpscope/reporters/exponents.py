"""A small histogram of exponents, drawn with characters against the range of the data type."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["MOST_COLUMNS", "draw_exponents"]

MOST_COLUMNS = 64

_ROWS = 3
_BLOCKS = " \u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"
_ASCII_BLOCKS = " .:#"


def draw_exponents(
    exponents: Sequence[tuple[int, int]], span: tuple[int, int, int], *, ascii_only: bool = False
) -> list[str]:
    """Draw how often each power of two occurs.

    Parameters
    ----------
    exponents
        (exponent, count).
    span
        Exponents of the smallest subnormal, the smallest normal and the largest value.

    Returns
    -------
    list of str
        Bars whose height is the logarithm of the count (the smallest count is still seen), an
        axis that is dotted where values are subnormal, and the ends of the range below it.
    """
    low, normal, high = span
    step = max(1, -(-(high - low + 1) // MOST_COLUMNS))
    columns = [0] * -(-(high - low + 1) // step)
    for exponent, count in exponents:
        at = (min(max(exponent, low), high) - low) // step
        columns[at] += count
    blocks = _ASCII_BLOCKS if ascii_only else _BLOCKS
    levels = len(blocks) - 1
    top = math.log1p(max(columns, default=0)) or 1.0
    heights = [
        max(1, round(math.log1p(count) / top * _ROWS * levels)) if count else 0 for count in columns
    ]
    lines = [
        "".join(blocks[min(max(height - row * levels, 0), levels)] for height in heights).rstrip()
        for row in reversed(range(_ROWS))
    ]
    subnormal = min(len(columns), -(-(normal - low) // step))
    dotted, solid = (".", "-") if ascii_only else ("\u00b7", "\u2500")
    lines.append(dotted * subnormal + solid * (len(columns) - subnormal))
    left, right = f"2^{low}", f"2^{high}"
    lines.append(left + right.rjust(max(len(columns) - len(left), len(right) + 1)))
    return lines
