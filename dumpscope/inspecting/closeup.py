"""One tensor from close by: its bad elements one by one, and the exponents of its values.

Statistics say how many elements are bad and between which indices they lie; here is what they
are. Everything is streamed, so a tensor may be larger than memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Union

import numpy as np

from dumpscope.dtypes import dtype_named
from dumpscope.errors import DumpReadError
from dumpscope.readers.protocol import TensorRecord
from dumpscope.records import record
from dumpscope.stats.elements import Encoding, encoding_of, stream_elements
from dumpscope.stats.measuring import exponent_histogram
from dumpscope.stats.positions import Placement, placement_of

if TYPE_CHECKING:
    import numpy.typing as npt

    from dumpscope.dtypes import Dtype

__all__ = [
    "BAD_ELEMENTS_LISTED",
    "BadElement",
    "Closeup",
    "exponent_range",
    "look_closely",
]

BAD_ELEMENTS_LISTED = 10

Value = Union[float, complex]


@record(frozen=True, slots=True)
class BadElement:
    """One element that is not finite or at the limit of its type, by its logical index."""

    index: tuple[int, ...]
    value: Value


@record(frozen=True, slots=True)
class Closeup:
    """What only a second look at the values tells.

    Attributes
    ----------
    bad
        The first bad elements in the order of memory: NaN and Inf, or where there are none those
        at the limit of a type in which that is a finding.
    exponents
        (exponent, count), ascending: elements of 2^exponent <= |x| < 2^(exponent + 1). Zeros,
        NaN, Inf and padding are left out.
    """

    bad: tuple[BadElement, ...] = ()
    exponents: tuple[tuple[int, int], ...] = ()


def look_closely(record: TensorRecord, limit: int = BAD_ELEMENTS_LISTED) -> Closeup | None:
    """Look at the values of one tensor, as far as they are there.

    Returns
    -------
    Closeup or None
        `None` when there are no values to look at, or they cannot be read.
    """
    dtype = dtype_named(record.dtype)
    if record.data is None or record.unchecked is not None or not dtype.decodable:
        return None
    try:
        return Closeup(
            tuple(_find_bad(record, dtype, limit)),
            tuple(exponent_histogram(record.data, dtype, record.geometry)),
        )
    except (DumpReadError, OSError):
        return None  # whoever measures the tensor says why


def _find_bad(record: TensorRecord, dtype: Dtype, limit: int) -> list[BadElement]:
    if dtype.kind not in ("float", "complex") or record.data is None:
        return []
    encoding = encoding_of(dtype)
    placement = placement_of(record.geometry)
    total = min(record.geometry.stored_count, record.data.nbytes * 8 // dtype.bits)
    nonfinite: list[BadElement] = []
    saturated: list[BadElement] = []
    for start, codes, valid in stream_elements(record.data, encoding, total, placement):
        if valid is False:
            continue
        for found, which in ((nonfinite, encoding.nonfinite), (saturated, encoding.saturated)):
            if len(found) >= limit or (found is saturated and not dtype.saturates):
                continue
            bad = which(codes)
            if valid is not True:
                bad &= valid
            left = limit - len(found)
            found.extend(_elements(bad, start, codes, encoding, placement, left))
        if len(nonfinite) >= limit:
            break
    return nonfinite or saturated


def _elements(
    bad: npt.NDArray[np.bool_],
    start: int,
    codes: npt.NDArray[Any],
    encoding: Encoding,
    placement: Placement,
    limit: int,
) -> list[BadElement]:
    return [
        BadElement(placement.index_of(start + at), _value_at(at, codes, encoding))
        for at in np.flatnonzero(bad)[:limit].tolist()
    ]


def _value_at(at: int, codes: npt.NDArray[Any], encoding: Encoding) -> Value:
    if encoding.values is not None:
        return float(encoding.values[codes[at]])
    assert encoding.kind is not None
    parts = codes[at * encoding.lanes : (at + 1) * encoding.lanes]
    numbers = [float(x) for x in parts.view(encoding.kind.numpy)]
    return complex(*numbers) if encoding.lanes == 2 else numbers[0]


def exponent_range(name: str) -> tuple[int, int, int] | None:
    """Return the exponents that a real type can hold.

    Returns
    -------
    tuple of int or None
        Of the smallest subnormal, the smallest normal and the largest value; `None` for complex
        and unknown types.
    """
    dtype = dtype_named(name)
    if not dtype.decodable or dtype.kind == "complex":
        return None
    encoding = encoding_of(dtype)
    if encoding.values is not None:
        magnitudes = np.abs(encoding.values)
        magnitudes = magnitudes[np.isfinite(magnitudes) & (magnitudes > 0)]
        low, high = float(magnitudes.min()), float(magnitudes.max())
        normal = max(encoding.smallest_normal, low)
    elif encoding.kind is not None:
        kind = encoding.kind
        low, high = kind.value_of(1), kind.value_of(kind.limit)
        normal = kind.value_of(kind.smallest_normal)
    else:
        low, normal, high = 1.0, 1.0, 2.0 ** (dtype.bits - 1)
    return _exponent(low), _exponent(normal), _exponent(high)


def _exponent(value: float) -> int:
    return int(np.frexp(value)[1]) - 1
