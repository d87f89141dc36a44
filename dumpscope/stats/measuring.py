"""Counts, extremes and sums of one tensor.

`measure` screens (see `screening`), and that is all a clean tensor costs. A tensor that is not
clean is looked at again: counted exactly, with its sums, and where its bad elements are.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from dumpscope import kernel
from dumpscope.errors import UnsupportedDtypeError
from dumpscope.lazy_numpy import np
from dumpscope.lowfloats import unpack_codes
from dumpscope.model import MaskPattern, StatsLevel, TensorStats
from dumpscope.stats.elements import Data, Encoding, encoding_of, stream_elements
from dumpscope.stats.exactstats import (
    Tally,
    add_counted,
    tally_complex,
    tally_floats,
    tally_integers,
    tally_table,
)
from dumpscope.stats.inspection import inspect_bad, mask_constants, mask_pattern
from dumpscope.stats.padded_screening import screen_padded, split_padding
from dumpscope.stats.positions import placement_of
from dumpscope.stats.screening import near_code, screen_for
from dumpscope.stats.stretches import read_tally

if TYPE_CHECKING:
    import numpy.typing as npt

    from dumpscope.dtypes import Dtype
    from dumpscope.layouts import Geometry

__all__ = ["Measured", "exponent_histogram", "measure"]

_HISTOGRAM_MIN_COUNT = 1 << 18
"""From here on counting all 65536 codes of a 16-bit type is cheaper than decoding the values."""


class Measured(NamedTuple):
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
    if dtype.kind in ("opaque", "string"):
        if dtype.kind == "string":
            return Measured(TensorStats())
        raise UnsupportedDtypeError(f"values of type {dtype.name} cannot be read")
    if data.nbytes * 8 < total * dtype.bits:
        total = data.nbytes * 8 // dtype.bits
    if total <= 0:
        return Measured(TensorStats())
    if level == "screen":
        stats = _screen(data, dtype, geometry, near_limit_share, total)
        if stats is not None:
            return Measured(stats)
    return _measure_exactly(data, dtype, geometry, level, near_limit_share, total)


def _screen(
    data: Data, dtype: Dtype, geometry: Geometry, near_limit_share: float, total: int
) -> TensorStats | None:
    """Measure a clean tensor; `None` when it is not clean or its type cannot be screened."""
    padding_nonfinite = 0
    if geometry.padded:
        placement = placement_of(geometry)
        found, padding_nonfinite = screen_padded(
            data, encoding_of(dtype), total, placement, near_limit_share
        )
    else:
        screen = screen_for(dtype, near_limit_share)
        found = None if screen is None else screen.run(data, total)
        if found is not None and found.count < total:
            return None
    if found is None:
        return None
    mask = None
    minimum, large = found.minimum, found.large
    if minimum is not None and minimum in mask_constants(dtype):
        mask = _find_mask(data, dtype, geometry, total, minimum, found.maximum)
    # By position: this is made for every clean tensor, and names cost half as much again.
    saturated = near_limit = negative = 0
    if large is not None:
        saturated, near_limit = large.saturated, large.near_limit
        negative = large.saturated_negative
    return TensorStats(
        found.count,
        0,  # NaN
        0,  # +Inf
        0,  # -Inf
        saturated,
        near_limit,
        None,  # subnormal
        None,  # zero
        padding_nonfinite,
        minimum,
        found.maximum,
        saturated_negative=negative,
        mask=mask,
    )


def _find_mask(
    data: Data,
    dtype: Dtype,
    geometry: Geometry,
    total: int,
    minimum: float,
    maximum: float | None,
) -> MaskPattern | None:
    """Look at a tensor without non-finite elements whose minimum is a mask constant."""
    if not dtype.saturates and maximum == dtype.limit:
        return None  # a quantised tensor fills its range on both sides
    return mask_pattern(data, encoding_of(dtype), placement_of(geometry), total, minimum)


# --- everything, exactly ----------------------------------------------------------------------


def _measure_exactly(
    data: Data,
    dtype: Dtype,
    geometry: Geometry,
    level: StatsLevel,
    near_limit_share: float,
    total: int,
) -> Measured:
    encoding = encoding_of(dtype)
    placement = placement_of(geometry)
    sweep = _Sweep(encoding, near_limit_share, total)
    if not placement.padded and sweep.add_whole(data, total):
        pass
    elif dtype.packed and dtype.bits <= 4 and not placement.padded:
        sweep.add_bytes(data, total)
    else:
        for codes, padding in split_padding(data, encoding, total, placement):
            sweep.add(codes, padding)
    tally = sweep.result()
    unclean = bool(tally.nonfinite or (tally.saturated and dtype.saturates))
    extent = None
    digest = None
    if unclean:
        extent, digest = inspect_bad(
            data, encoding, placement, total, nonfinite=tally.nonfinite > 0
        )
    mask = None
    if dtype.kind == "float" and not tally.nan and not tally.posinf:
        if tally.neginf:
            lowest = tally.minimum
            mask = mask_pattern(data, encoding, placement, total, -math.inf, lowest=lowest)
        elif tally.minimum is not None and tally.minimum in mask_constants(dtype):
            mask = _find_mask(data, dtype, geometry, total, tally.minimum, tally.maximum)
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
            bits <= 8
            or (
                bits == 16
                and total >= _HISTOGRAM_MIN_COUNT
                and (kernel.tally is None or encoding.kind is None)
            )
        )
        self._counts = np.zeros(1 << max(bits, 8), np.int64) if tabled else None

    def add_whole(self, data: Data, total: int) -> bool:
        """Let the C kernel read and count all elements; false where it does not."""
        kind = self._encoding.kind
        number = None if kind is None else kernel.FLOAT_TYPES.get(kind.name)
        if kind is None or number is None or self._encoding.lanes == 2:
            return False
        found = read_tally(data, total, number, near_code(kind, self._share))
        if found is None:
            return False
        add_counted(self._tally, found, kind)
        self.count += total
        self._counts = None
        return True

    def add(self, codes: npt.NDArray[Any], padding: npt.NDArray[Any] | None) -> None:
        encoding = self._encoding
        if padding is not None:
            self.padding_nonfinite += encoding.count_nonfinite(padding)
        if not codes.size:
            return
        self.count += codes.size // encoding.lanes
        if self._counts is not None:
            _count_codes(self._counts, codes)
        elif encoding.lanes == 2:
            assert encoding.kind is not None
            tally_complex(self._tally, codes, encoding.kind)
        elif encoding.kind is not None:
            near = near_code(encoding.kind, self._share)
            tally_floats(self._tally, codes, encoding.kind, near)
        else:
            tally_integers(self._tally, codes)

    def add_bytes(self, data: Data, total: int) -> None:
        """Count the first `total` elements of a type that divides a byte, byte by byte."""
        assert self._counts is not None
        bits = self._encoding.dtype.bits
        whole = total * bits // 8
        left = whole
        per_byte = np.zeros(256, np.int64)
        last = b""
        for block in data.blocks():
            used = min(left, len(block))
            _count_codes(per_byte, np.frombuffer(block, np.uint8, used))
            left -= used
            if used < len(block):
                last = bytes(block[used : used + 1])
                break
        for shift in range(0, 8, bits):
            np.add.at(self._counts, np.arange(256) >> shift & ((1 << bits) - 1), per_byte)
        rest = total - whole * 8 // bits
        if rest:
            _count_codes(self._counts, unpack_codes(last, bits, rest))
        self.count = total

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
    if kernel.count_bytes is not None and counts.size == 256 and codes.flags.c_contiguous:
        kernel.count_bytes(codes, counts)
        return
    even = codes.size & ~1
    if even >= 1 << 18 and codes.flags.c_contiguous:
        # Two at a time: the conversion that bincount does first costs more than its counting.
        pairs = np.bincount(codes[:even].view(np.uint16), minlength=1 << 16).reshape(256, 256)
        counts += pairs.sum(axis=0) + pairs.sum(axis=1)
        codes = codes[even:]
    counts += np.bincount(codes, minlength=256)


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
    placement = placement_of(geometry)
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
