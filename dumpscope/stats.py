"""Counts, extremes and sums of one tensor.

`measure` screens: integer maxima over the blocks of a float tensor say whether anything in it is
not finite, at the limit or near it, and give its exact extremes (see `floatcodes`). That is all
a clean tensor costs. A tensor that is not clean is looked at again in full.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from dumpscope.elements import Data, Encoding, encoding_of, stream_codes, stream_elements
from dumpscope.errors import UnsupportedDtypeError
from dumpscope.exactstats import (
    Tally,
    count_large,
    tally_complex,
    tally_floats,
    tally_integers,
    tally_table,
)
from dumpscope.floatcodes import Extremes, FloatCodes, mask_codes
from dumpscope.maskbits import MASK_ELEMENTS_MAX, MaskBits
from dumpscope.model import MaskPattern, StatsLevel, TensorStats
from dumpscope.positions import Extent, Placement

if TYPE_CHECKING:
    import numpy.typing as npt

    from dumpscope.dtypes import Dtype
    from dumpscope.layouts import Geometry

__all__ = ["Measured", "exponent_histogram", "measure"]

_DIGEST_BYTES = 16
_DIGEST_MIN_BYTES = 64

_HISTOGRAM_MIN_COUNT = 1 << 18
"""From here on counting all 65536 codes of a 16-bit type is cheaper than decoding the values."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The statistics of a tensor; `digest` of its bytes unless it is clean, short or constant."""

    stats: TensorStats
    digest: str | None = None


def measure(
    data: Data,
    dtype: Dtype,
    geometry: Geometry,
    *,
    level: StatsLevel = "screen",
    near_limit_share: float = 0.9,
    count: int | None = None,
) -> Measured:
    """Measure one tensor, streaming its bytes.

    Parameters
    ----------
    data
        Its bytes; more of them than the shape asks for are ignored.
    level
        `screen` fills nan, posinf, neginf, saturated, near_limit, min and max, and everything
        for a tensor that is not clean; `full` fills everything.
    near_limit_share
        The share of the dtype's limit above which a finite value is near it.
    count
        How many of the stored elements are there, when the tensor is truncated.

    Returns
    -------
    Measured
        `stats.count` is the number of elements that were there, without padding. Mean and
        standard deviation of a complex tensor are `None`, its RMS and L2 are over |x|.
        `first_bad` and `bad_box` show saturated values only in types where they are a finding.

    Raises
    ------
    UnsupportedDtypeError
        The type of the values is not known. Strings have nothing to check and give no error.
    """
    total = geometry.stored_count
    if count is not None and count < total:
        total = count
    bits = dtype.bits
    if bits and data.nbytes * 8 < total * bits:
        total = data.nbytes * 8 // bits
    if total <= 0 or dtype.kind == "string":
        if dtype.kind == "opaque":
            raise UnsupportedDtypeError(f"values of type {dtype.name} cannot be read")
        return Measured(TensorStats())
    if not dtype.decodable:
        raise UnsupportedDtypeError(f"values of type {dtype.name} cannot be read")
    encoding = encoding_of(dtype)
    kind = encoding.kind
    if level == "screen" and encoding.lanes == 1 and not geometry.padded:
        if kind is not None:
            near = _near_code(kind, near_limit_share)
            stats = _screen_floats(data, dtype, kind, near, geometry, total)
        elif encoding.values is None or dtype.name in ("int8", "uint8", "bool"):
            stats = _screen_integers(data, dtype, encoding, total)
        else:
            stats = None
        if stats is not None:
            return Measured(stats)
    return _measure_exactly(data, encoding, geometry, level, near_limit_share, total)


@lru_cache(maxsize=64)
def _near_code(kind: FloatCodes, share: float) -> int:
    """Return the largest magnitude that is not near the limit; the limit itself never is."""
    near = kind.largest_below(max(share, 0.0) * kind.value_of(kind.limit))
    return min(near, kind.limit - 1)


_max = np.maximum.reduce
_min = np.minimum.reduce


def _screen_floats(
    data: Data, dtype: Dtype, kind: FloatCodes, near: int, geometry: Geometry, total: int
) -> TensorStats | None:
    """Screen an unpadded tensor of a float type; `None` when it is not clean."""
    size = dtype.bits // 8
    signed, unsigned, sign = kind.signed, kind.unsigned, kind.sign
    suspect_negative = sign | near
    bad = kind.limit if dtype.saturates else kind.nonfinite
    bad_negative = sign | bad
    highest, lowest, floor = -1 << 64, -1, 1 << 64
    tally: Tally | None = None
    left = total
    for block in data.blocks():
        count = len(block) // size
        if count * size != len(block) and count < left:
            return None  # a block ends inside an element: the careful way copes
        codes = np.frombuffer(block, unsigned, count if count < left else left)
        high = int(_max(codes.view(signed)))
        low = int(_max(codes))
        if high > near or low > suspect_negative:
            if high >= bad or low >= bad_negative:
                return None
            tally = Tally() if tally is None else tally
            count_large(tally, codes, codes & codes.dtype.type(kind.magnitude), kind, near)
        if high > highest:
            highest = high
        if low > lowest:
            lowest = low
        if lowest < sign or highest < 0:
            least = int(_min(codes))
            if least < floor:
                floor = least
        left -= codes.size
        if left <= 0:
            break
    if left > 0:
        return None
    smallest = lowest if lowest >= sign else floor
    value_of = kind.value_of
    low_value, high_value = value_of(smallest) + 0.0, value_of(highest if highest >= 0 else floor)
    mask = None
    if smallest >= sign and low_value in _mask_values(kind):
        mask = _mask_pattern(data, encoding_of(dtype), Placement(geometry), total, smallest)
    if tally is None:
        return TensorStats(count=total, min=low_value, max=high_value + 0.0, mask=mask)
    return TensorStats(
        count=total,
        saturated=tally.saturated,
        saturated_negative=tally.saturated_negative,
        near_limit=tally.near_limit,
        min=low_value,
        max=high_value + 0.0,
        mask=mask,
    )


@lru_cache(maxsize=None)
def _mask_values(kind: FloatCodes) -> frozenset[float]:
    return frozenset(mask_codes(kind.name).values())


def _screen_integers(
    data: Data, dtype: Dtype, encoding: Encoding, total: int
) -> TensorStats | None:
    assert dtype.numpy is not None
    plain = np.dtype(np.uint8) if dtype.kind == "bool" else dtype.numpy
    size = plain.itemsize
    low: int | None = None
    high = 0
    left = total
    for block in data.blocks():
        count = len(block) // size
        if count * size != len(block) and count < left:
            return None
        values = np.frombuffer(block, plain, min(count, left))
        least, largest = int(_min(values)), int(_max(values))
        low, high = (least, largest) if low is None else (min(low, least), max(high, largest))
        left -= values.size
        if left <= 0:
            break
    if left > 0 or low is None:
        return None
    if dtype.kind == "bool":
        low, high = int(low > 0), int(high > 0)
    return TensorStats(count=total, min=low, max=high)


# --- everything, exactly ----------------------------------------------------------------------


def _measure_exactly(
    data: Data,
    encoding: Encoding,
    geometry: Geometry,
    level: StatsLevel,
    near_limit_share: float,
    total: int,
) -> Measured:
    dtype = encoding.dtype
    placement = Placement(geometry)
    sweep = _Sweep(encoding, near_limit_share, total)
    for codes, padding in _split(data, encoding, total, placement):
        sweep.add(codes, padding)
    tally = sweep.result()
    unclean = bool(tally.nonfinite or (tally.saturated and dtype.saturates))
    extent = None
    digest = None
    if unclean:
        extent, digest = _inspect(data, encoding, placement, total, tally)
    mask = None
    if encoding.kind is not None and encoding.lanes == 1:
        mask = _find_mask(data, encoding, placement, total, tally, sweep)
    filled = level == "full" or unclean
    moments = tally.moments
    real = dtype.kind != "complex"
    if not real:
        moments.count //= 2
    stats = TensorStats(
        count=sweep.count,
        nan=tally.nan,
        posinf=tally.posinf,
        neginf=tally.neginf,
        saturated=tally.saturated,
        near_limit=tally.near_limit,
        subnormal=tally.subnormal if filled else None,
        zero=tally.zero if filled else None,
        padding_nonfinite=sweep.padding_nonfinite,
        min=tally.minimum,
        max=tally.maximum,
        mean=moments.mean() if filled and real else None,
        std=moments.std() if filled and real else None,
        rms=moments.rms() if filled else None,
        l2=moments.l2() if filled else None,
        first_bad=extent.first if extent else None,
        bad_box=extent.box if extent else None,
        saturated_negative=tally.saturated_negative,
        mask=mask,
    )
    return Measured(stats, digest)


def _split(
    data: Data, encoding: Encoding, total: int, placement: Placement
) -> Any:
    """Yield (codes of elements, codes of padding) block by block."""
    if not placement.padded:
        for _, codes in stream_codes(data, encoding, total):
            yield codes, None
        return
    for _, codes, valid in stream_elements(data, encoding, total, placement):
        if valid is True:
            yield codes, None
        elif valid is False:
            yield codes[:0], codes
        else:
            rows = codes.reshape(-1, encoding.lanes) if encoding.lanes > 1 else codes
            yield rows[valid].reshape(-1), rows[~valid].reshape(-1)


class _Sweep:
    """Takes blocks of codes and counts them in the way that suits their type."""

    def __init__(self, encoding: Encoding, near_limit_share: float, total: int) -> None:
        self._encoding = encoding
        self._share = near_limit_share
        self._tally = Tally()
        self.count = 0
        self.padding_nonfinite = 0
        bits = encoding.dtype.bits
        tabled = encoding.lanes == 1 and (
            bits <= 8 or (bits == 16 and total >= _HISTOGRAM_MIN_COUNT)
        )
        self._counts = np.zeros(1 << max(bits, 8), np.int64) if tabled else None

    def add(self, codes: npt.NDArray[Any], padding: npt.NDArray[Any] | None) -> None:
        encoding = self._encoding
        if padding is not None and encoding.dtype.kind in ("float", "complex"):
            self.padding_nonfinite += int(np.count_nonzero(encoding.nonfinite(padding)))
        if not codes.size:
            return
        self.count += codes.size // encoding.lanes
        if self._counts is not None:
            _count_codes(self._counts, codes)
        elif encoding.lanes == 2:
            assert encoding.kind is not None
            tally_complex(self._tally, codes, encoding.kind)
        elif encoding.kind is not None:
            near = _near_code(encoding.kind, self._share)
            tally_floats(self._tally, codes, encoding.kind, near)
        else:
            tally_integers(self._tally, codes)

    def result(self) -> Tally:
        if self._counts is None:
            return self._tally
        encoding = self._encoding
        dtype = encoding.dtype
        kind = encoding.kind
        table = encoding.table()
        tally = tally_table(
            self._counts[: table.size],
            table,
            limit=dtype.limit,
            smallest_normal=(
                encoding.smallest_normal if kind is None else kind.value_of(kind.smallest_normal)
            ),
            near=max(self._share, 0.0) * (dtype.limit or 0.0),
        )
        if dtype.kind != "float" and tally.minimum is not None and tally.maximum is not None:
            tally.minimum, tally.maximum = int(tally.minimum), int(tally.maximum)
        return tally


def _count_codes(counts: npt.NDArray[np.int64], codes: npt.NDArray[Any]) -> None:
    """Add to `counts` how often each code occurs."""
    if codes.dtype.itemsize == 2:
        counts += np.bincount(codes.view(np.uint16), minlength=1 << 16)
        return
    even = codes.size & ~1
    if even >= 1 << 18 and codes.flags.c_contiguous:
        # Two at a time: the conversion that bincount does first costs more than its counting.
        pairs = np.bincount(codes[:even].view(np.uint16), minlength=1 << 16).reshape(256, 256)
        counts += pairs.sum(axis=0) + pairs.sum(axis=1)
        codes = codes[even:]
    counts += np.bincount(codes, minlength=256)


def _inspect(
    data: Data, encoding: Encoding, placement: Placement, total: int, tally: Tally
) -> tuple[Extent, str | None]:
    """Find where the bad elements of a tensor are, and hash its bytes."""
    find = encoding.nonfinite if tally.nonfinite else encoding.saturated
    lanes = encoding.lanes
    extent = Extent(placement)
    hasher = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    constant = True
    model: npt.NDArray[Any] | None = None
    for start, codes, valid in stream_elements(data, encoding, total, placement):
        hasher.update(codes)
        if model is None:
            model = codes[:lanes].copy()
        if constant:
            constant = bool((codes.reshape(-1, lanes) == model).all())
        if valid is False:
            continue
        bad = find(codes)
        if valid is not True:
            bad &= valid
        extent.add(np.flatnonzero(bad).astype(np.int64, copy=False) + start)
    short = encoding.dtype.nbytes(total) < _DIGEST_MIN_BYTES
    return extent, None if short or constant else hasher.hexdigest()


def _find_mask(
    data: Data,
    encoding: Encoding,
    placement: Placement,
    total: int,
    tally: Tally,
    sweep: _Sweep,
) -> MaskPattern | None:
    kind = encoding.kind
    assert kind is not None
    if tally.nan or tally.posinf:
        return None
    if tally.neginf:
        assert kind.infinite is not None
        return _mask_pattern(data, encoding, placement, total, kind.sign | kind.infinite)
    for code, value in mask_codes(kind.name).items():
        if tally.minimum == value:
            return _mask_pattern(data, encoding, placement, total, code)
    return None


def _mask_pattern(
    data: Data, encoding: Encoding, placement: Placement, total: int, code: int
) -> MaskPattern:
    """Find which elements hold a code, for a tensor in which they look like a mask."""
    kind = encoding.kind
    assert kind is not None
    count = 0
    bits = None
    if placement.count <= MASK_ELEMENTS_MAX and total == placement.stored_count:
        bits = MaskBits(placement)
    for start, codes, valid in stream_elements(data, encoding, total, placement):
        if valid is False:
            continue
        holds = codes == code
        if valid is not True:
            holds &= valid
        found = int(np.count_nonzero(holds))
        count += found
        if bits is not None and found:
            bits.add(start, holds)
    return MaskPattern(kind.value_of(code), count, bits.digest() if bits else None)


def exponent_histogram(
    data: Data, dtype: Dtype, geometry: Geometry, *, count: int | None = None
) -> list[tuple[int, int]]:
    """Count the elements of a real tensor by the power of two below their magnitude.

    Returns
    -------
    list of (exponent, count)
        Ascending; an element counts at e when 2^e <= |x| < 2^(e+1). Zero, NaN, Inf and padding
        are left out. Empty for types whose values cannot be read.
    """
    if not dtype.decodable or dtype.kind == "complex":
        return []
    encoding = encoding_of(dtype)
    total = min(geometry.stored_count, data.nbytes * 8 // dtype.bits)
    if count is not None:
        total = min(total, count)
    counts: dict[int, int] = {}
    placement = Placement(geometry)
    for _, codes, valid in stream_elements(data, encoding, max(total, 0), placement):
        if valid is False:
            continue
        keep = ~encoding.nonfinite(codes)
        if valid is not True:
            keep &= valid
        values = encoding.to_float64(codes[keep])
        _, exponents = np.frexp(values[values != 0])
        for exponent, found in zip(*np.unique(exponents, return_counts=True), strict=True):
            counts[int(exponent) - 1] = counts.get(int(exponent) - 1, 0) + int(found)
    return sorted(counts.items())
