"""Exact counts, and sums in float64 accuracy, over blocks of one tensor.

Everything is counted per contiguous block into a `Tally`, so that another kernel can take the
place of `tally_floats` without anybody noticing. Sums are formed over pieces that stay in the
cache and merged pairwise, with the deviation from the mean merged as it has to be (Chan et al.):
the result does not depend on how far the mean is from zero.
"""

from __future__ import annotations

import math
from dataclasses import field
from typing import TYPE_CHECKING, Any, TypeAlias

from dumpscope import kernel
from dumpscope.lazy_numpy import np
from dumpscope.records import record
from dumpscope.stats.floatcodes import Extremes, FloatCodes

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = [
    "KernelTally",
    "Moments",
    "Tally",
    "add_counted",
    "tally_complex",
    "tally_floats",
    "tally_integers",
    "tally_table",
]

KernelTally: TypeAlias = (
    "tuple[tuple[int, ...], tuple[int, int, int], tuple[int, float, float, float]]"
)
"""Counts, extremes and moments, as `kernel.tally` returns them."""

_PIECE = 8192
"""Elements whose float64 values stay in the first caches. OpenBLAS starts threads for dot
products of more than 10,000, which would cost more than the product."""

_COUNT_PIECE = 1 << 16


@record(frozen=False, slots=True)
class Moments:
    """Sums over `count` values: of x, of x², and of (x - mean)², with x in units of 2^exponent."""

    count: int = 0
    total: float = 0.0
    squares: float = 0.0
    deviation: float = 0.0
    exponent: int = 0

    def merge(self, other: Moments) -> None:
        """Take the values behind `other` into account."""
        if not other.count:
            return
        if not self.count:
            self.count, self.total, self.squares = other.count, other.total, other.squares
            self.deviation, self.exponent = other.deviation, other.exponent
            return
        if self.exponent != other.exponent:
            other = Moments(
                other.count, other.total, other.squares, other.deviation, other.exponent
            )
            if not other.squares or (self.squares and self.exponent > other.exponent):
                other._rescale(self.exponent)
            else:
                self._rescale(other.exponent)
        count = self.count + other.count
        gap = other.total / other.count - self.total / self.count
        self.deviation += other.deviation + gap * gap * (self.count * (other.count / count))
        self.total += other.total
        self.squares += other.squares
        self.count = count

    def _rescale(self, exponent: int) -> None:
        shift = self.exponent - exponent
        self.total = math.ldexp(self.total, shift)
        self.squares = math.ldexp(self.squares, 2 * shift)
        self.deviation = math.ldexp(self.deviation, 2 * shift)
        self.exponent = exponent

    def mean(self) -> float | None:
        return math.ldexp(self.total / self.count, self.exponent) if self.count else None

    def std(self) -> float | None:
        """Population standard deviation."""
        if not self.count:
            return None
        return math.ldexp(math.sqrt(self.deviation / self.count), self.exponent)

    def rms(self) -> float | None:
        if not self.count:
            return None
        return math.ldexp(math.sqrt(self.squares / self.count), self.exponent)

    def l2(self) -> float | None:
        """Square root of the sum of squares; `None` where float64 cannot hold it."""
        if not self.count:
            return None
        try:
            return math.ldexp(math.sqrt(self.squares), self.exponent)
        except OverflowError:
            return None


def moments_of(values: npt.NDArray[np.float64], *, wide: bool = False) -> Moments:
    """Return the sums over finite values, which are overwritten.

    `wide` says that their squares may leave the range of float64.
    """
    block = Moments()
    for start in range(0, values.size, _PIECE):
        piece = values[start : start + _PIECE]
        exponent = 0
        if wide:
            exponent = math.frexp(max(float(piece.max()), -float(piece.min())))[1]
            if -400 < exponent < 400:
                exponent = 0
            else:
                piece = np.ldexp(piece, -exponent)
        count = piece.size
        total = float(np.add.reduce(piece))
        squares = float(np.dot(piece, piece))
        piece -= total / count
        block.merge(Moments(count, total, squares, float(np.dot(piece, piece)), exponent))
    return block


@record(frozen=False, slots=True)
class Tally:
    """What was counted so far. `minimum` and `maximum` are over finite elements."""

    nan: int = 0
    posinf: int = 0
    neginf: int = 0
    saturated: int = 0
    saturated_negative: int = 0
    near_limit: int = 0
    subnormal: int = 0
    zero: int = 0
    minimum: float | int | None = None
    maximum: float | int | None = None
    moments: Moments = field(default_factory=Moments)

    @property
    def nonfinite(self) -> int:
        return self.nan + self.posinf + self.neginf

    def widen(self, low: float | None, high: float | None) -> None:
        """Take the extremes of a block into account."""
        if low is not None and (self.minimum is None or low < self.minimum):
            self.minimum = low
        if high is not None and (self.maximum is None or high > self.maximum):
            self.maximum = high


def count_nonfinite(
    tally: Tally, codes: npt.NDArray[Any], magnitudes: npt.NDArray[Any], kind: FloatCodes
) -> None:
    """Count NaN and the two Inf among codes, given their magnitudes too."""
    bad = int(np.count_nonzero(magnitudes >= kind.nonfinite))
    if bad and kind.infinite is not None:
        posinf = int(np.count_nonzero(codes == kind.infinite))
        neginf = int(np.count_nonzero(codes == (kind.sign | kind.infinite)))
        tally.posinf += posinf
        tally.neginf += neginf
        bad -= posinf + neginf
    tally.nan += bad


def count_large(
    tally: Tally,
    codes: npt.NDArray[Any],
    magnitudes: npt.NDArray[Any],
    kind: FloatCodes,
    near: int,
) -> None:
    """Count finite codes at the limit, and those above `near` but below the limit."""
    saturated = int(np.count_nonzero(magnitudes == kind.limit))
    tally.saturated += saturated
    if saturated and kind.sign <= kind.magnitude + 1:
        tally.saturated_negative += int(np.count_nonzero(codes == (kind.sign | kind.limit)))
    above = np.count_nonzero(magnitudes > near) - np.count_nonzero(magnitudes >= kind.nonfinite)
    tally.near_limit += int(above) - saturated


def tally_floats(tally: Tally, codes: npt.NDArray[Any], kind: FloatCodes, near: int) -> None:
    """Count one contiguous block of unsigned float codes.

    Parameters
    ----------
    near
        The largest magnitude that is not yet near the limit (below `kind.limit`).
    """
    if _tally_by_kernel(tally, codes, kind, near):
        return
    extremes = Extremes(kind)
    for start in range(0, codes.size, _COUNT_PIECE):
        piece = codes[start : start + _COUNT_PIECE]
        magnitudes = piece & piece.dtype.type(kind.magnitude)
        largest = int(np.maximum.reduce(magnitudes))
        if largest > near:
            count_large(tally, piece, magnitudes, kind, near)
        if largest >= kind.nonfinite:
            count_nonfinite(tally, piece, magnitudes, kind)
            keep = magnitudes < kind.nonfinite
            piece, magnitudes = piece[keep], magnitudes[keep]
        zero = piece.size - int(np.count_nonzero(magnitudes))
        tally.zero += zero
        tally.subnormal += int(np.count_nonzero(magnitudes < kind.smallest_normal)) - zero
        extremes.add(piece)
        tally.moments.merge(moments_of(kind.to_float64(piece), wide=kind.bits == 64))
    tally.widen(*extremes.values())


def _tally_by_kernel(tally: Tally, codes: npt.NDArray[Any], kind: FloatCodes, near: int) -> bool:
    """Let the C kernel count a block; false where there is none, or not for such values."""
    number = kernel.FLOAT_TYPES.get(kind.name)
    if kernel.tally is None or number is None or not codes.size:
        return False
    found = kernel.tally(codes, codes.size, number, near)
    if found is None:
        return False
    add_counted(tally, found, kind)
    return True


def add_counted(tally: Tally, found: KernelTally, kind: FloatCodes) -> None:
    """Take into account what the C kernel counted."""
    (nan, posinf, neginf, saturated, negative, near_limit, subnormal, zero), ends, sums = found
    tally.nan += nan
    tally.posinf += posinf
    tally.neginf += neginf
    tally.saturated += saturated
    tally.saturated_negative += negative
    tally.near_limit += near_limit
    tally.subnormal += subnormal
    tally.zero += zero
    if sums[0]:
        extremes = Extremes(kind)
        extremes.high, extremes.low, extremes.floor = ends
        tally.widen(*extremes.values())
        tally.moments.merge(Moments(*sums))


def tally_complex(tally: Tally, codes: npt.NDArray[Any], kind: FloatCodes) -> None:
    """Count one contiguous block of complex elements, given as the codes of their components.

    An element is NaN if a component is, else infinite if one is: positive if any is +Inf. Sums
    are over the components of finite elements.
    """
    for start in range(0, codes.size, _COUNT_PIECE):
        piece = codes[start : start + _COUNT_PIECE]
        magnitudes = piece & piece.dtype.type(kind.magnitude)
        if int(np.maximum.reduce(magnitudes)) >= kind.nonfinite:
            assert kind.infinite is not None
            bad = _either(magnitudes >= kind.nonfinite)
            nan = _either(magnitudes > kind.infinite)
            positive = _either(piece == kind.infinite) & ~nan
            tally.nan += int(np.count_nonzero(nan))
            tally.posinf += int(np.count_nonzero(positive))
            tally.neginf += int(np.count_nonzero(bad & ~nan & ~positive))
            keep = np.repeat(~bad, 2)
            piece, magnitudes = piece[keep], magnitudes[keep]
        tally.zero += int(np.count_nonzero(~_either(magnitudes != 0)))
        small = (magnitudes < kind.smallest_normal) & (magnitudes > 0)
        tally.subnormal += int(np.count_nonzero(_either(small)))
        tally.moments.merge(moments_of(kind.to_float64(piece), wide=kind.bits == 64))


def _either(holds: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Join the answers for the two components of each complex element."""
    joined: npt.NDArray[np.bool_] = holds[0::2] | holds[1::2]
    return joined


def tally_integers(tally: Tally, values: npt.NDArray[Any]) -> None:
    """Count one contiguous block of integers."""
    if not values.size:
        return
    tally.zero += values.size - int(np.count_nonzero(values))
    tally.widen(int(np.minimum.reduce(values)), int(np.maximum.reduce(values)))
    for start in range(0, values.size, _COUNT_PIECE):
        piece = values[start : start + _COUNT_PIECE].astype(np.float64)
        tally.moments.merge(moments_of(piece))


def tally_table(
    counts: npt.NDArray[np.int64],
    values: npt.NDArray[np.float64],
    *,
    limit: float | None,
    smallest_normal: float,
    near: float,
) -> Tally:
    """Work out everything from how often each code of a type occurs.

    Parameters
    ----------
    counts, values
        By code. `values` may hold NaN and Inf.
    limit, near
        The largest finite value, `None` for integers, and the value above which an element is
        near it.
    """
    used = np.flatnonzero(counts)
    counts, values = counts[used], values[used]
    tally = Tally()
    finite = np.isfinite(values)
    tally.nan = int(counts[np.isnan(values)].sum())
    tally.posinf = int(counts[values == np.inf].sum())
    tally.neginf = int(counts[values == -np.inf].sum())
    counts, values = counts[finite], values[finite]
    if not values.size:
        return tally
    sizes = np.abs(values)
    tally.zero = int(counts[sizes == 0].sum())
    if limit is not None:
        tally.saturated = int(counts[sizes == limit].sum())
        tally.saturated_negative = int(counts[values == -limit].sum())
        tally.near_limit = int(counts[(sizes > near) & (sizes < limit)].sum())
        tally.subnormal = int(counts[(sizes < smallest_normal) & (sizes > 0)].sum())
    tally.widen(float(values.min()) + 0.0, float(values.max()) + 0.0)
    total = int(counts.sum())
    weights = counts.astype(np.float64)
    mean = float((weights * values).sum()) / total
    tally.moments = Moments(
        total,
        float((weights * values).sum()),
        float((weights * values * values).sum()),
        float((weights * (values - mean) ** 2).sum()),
    )
    return tally
