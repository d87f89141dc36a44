"""How tensors develop from step to step, or from scan to scan.

A tensor leaves its band at the first point where

- it has NaN or Inf and no earlier point had any, or
- log2 of max|x|, or of its RMS, differs from the median of the earlier points by more than six
  times their MAD (scaled by 1.4826, so that it is a standard deviation where they are normal),
  and by more than one bit. At least three earlier points are needed.

Why the median and the MAD: one spike among the earlier points moves neither. Why a bit at least:
tensors that hardly ever change would leave a band of no width every night.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import median
from typing import Literal

from dumpscope.model import OpRecord, Role, TensorStats, TensorSummary
from dumpscope.nightly.baseline import model_key
from dumpscope.nightly.headroom import headroom_bits, largest_magnitude
from dumpscope.records import record

__all__ = [
    "LARGE_GRADIENT",
    "LeftBand",
    "Metric",
    "Point",
    "Series",
    "TrendSource",
    "is_gradient",
    "trend_series",
]

LARGE_GRADIENT = 1e4
"""An L2 norm of a gradient above this is marked."""

EARLIER_POINTS = 3
BAND_MADS = 6.0
BAND_BITS = 1.0
_NORMAL = 1.4826

MOST_IN_MEMORY = 300_000
"""Tensors of all executions that are read in one pass; of more, each pass takes a part."""

Metric = Literal["nonfinite", "max", "rms"]
_GRADIENT_WORDS = ("grad", "backward")


@record(frozen=True, slots=True)
class Point:
    """A tensor in one step, or in one scan: all its executions there taken together.

    `rms`, `mean` and `std` are over finite elements, `None` where only screening was done.
    `headroom` is in bits, `nan_share` of all elements.
    """

    scan_id: str
    run: str | None
    step: int | None
    count: int
    nan: int
    nonfinite: int
    largest: float | None
    headroom: float | None
    mean: float | None
    std: float | None
    rms: float | None
    l2: float | None

    @property
    def nan_share(self) -> float:
        return self.nan / self.count if self.count else 0.0


@record(frozen=True, slots=True)
class LeftBand:
    """Where a tensor left its band, by which number, and what the band was.

    `value`, `low` and `high` are max|x| or RMS, or the number of non-finite elements.
    """

    index: int
    metric: Metric
    value: float
    low: float
    high: float


@record(frozen=True, slots=True)
class Series:
    """One tensor over all points; `device` is `None` where devices were taken together."""

    model: str
    op_type: str
    op_name: str
    slot: str
    name: str
    dtype: str
    device: int | None
    gradient: bool
    points: tuple[Point, ...]
    left: LeftBand | None

    @property
    def large_gradient(self) -> bool:
        """Whether it is a gradient whose L2 norm is over 1e4 somewhere."""
        return self.gradient and any((p.l2 or 0.0) > LARGE_GRADIENT for p in self.points)

    @property
    def least_headroom(self) -> float | None:
        return min((p.headroom for p in self.points if p.headroom is not None), default=None)

    def order(self) -> tuple[object, ...]:
        """What comes first is most worth looking at."""
        least = self.least_headroom
        return (
            self.left is None,
            0 if self.left is None else self.left.index,
            not self.large_gradient,
            math.inf if least is None else least,
            self.identity,
        )

    @property
    def identity(self) -> tuple[object, ...]:
        device = -1 if self.device is None else self.device
        return (self.model, self.op_type, self.op_name, self.slot, self.name, device)


@record(frozen=True, slots=True)
class TrendSource:
    """One scan: its operators, which may be read several times, and how many tensors they have."""

    scan_id: str
    read_ops: Callable[[], Iterable[OpRecord]]
    tensor_count: int = 0


def trend_series(
    sources: Sequence[TrendSource],
    *,
    across_scans: bool = False,
    roles: Sequence[Role] = ("output",),
) -> Iterator[Series]:
    """Yield every tensor with its points, sorted within each pass over the sources.

    Parameters
    ----------
    sources
        Scans, the oldest first.
    across_scans
        One point for each scan, over all its steps and devices; else one for each step of each
        run, for every device apart.
    roles
        Whether inputs are followed, too.
    """
    total = sum(source.tensor_count for source in sources)
    passes = -(-max(total, 1) // MOST_IN_MEMORY)
    for part in range(passes):
        yield from _read_part(sources, across_scans, frozenset(roles), part, passes)


def is_gradient(op: OpRecord, tensor: TensorSummary) -> bool:
    """Whether a name says that a tensor is a gradient: it has "grad" or "backward" in it."""
    names = (op.op_name, op.op_type, tensor.name or "")
    return any(word in name.lower() for name in names for word in _GRADIENT_WORDS)


# --- reading ------------------------------------------------------------------------------------

_Key = tuple[str, str, str, str, str, int, int]
_At = tuple[int, str, int]
"""Where a point lies: (scan, run, step), -1 for an unknown step."""


@record(frozen=False, slots=True)
class _Sum:
    """Executions taken together; means and deviations by the pairwise formula."""

    count: int = 0
    nan: int = 0
    nonfinite: int = 0
    largest: float | None = None
    finite: int = 0
    mean: float | None = None
    spread: float | None = None
    squares: float | None = None
    known: bool = True

    def add(self, stats: TensorStats) -> None:
        self.count += stats.count
        self.nan += stats.nan
        self.nonfinite += stats.nonfinite
        largest = largest_magnitude(stats)
        if largest is not None:
            self.largest = max(largest, self.largest or 0.0)
        finite = stats.count - stats.nonfinite
        if finite <= 0:
            return
        squares = _squares(stats, finite)
        if squares is None:
            self.known = False
            return
        mean, std = stats.mean, stats.std
        if self.finite and (self.mean is None or mean is None):
            self.mean = self.spread = None
        elif mean is not None:
            before = self.mean or 0.0
            together = self.finite + finite
            shift = mean - before
            if std is None or (self.finite and self.spread is None):
                self.spread = None
            else:
                between = shift * shift * self.finite * finite / together
                self.spread = (self.spread or 0.0) + std * std * finite + between
            self.mean = before + shift * finite / together
        self.squares = (self.squares or 0.0) + squares
        self.finite += finite

    def point(self, scan_id: str, at: _At, dtype: str) -> Point:
        known = self.known and self.finite > 0
        return Point(
            scan_id=scan_id,
            run=at[1] or None,
            step=None if at[2] < 0 else at[2],
            count=self.count,
            nan=self.nan,
            nonfinite=self.nonfinite,
            largest=self.largest,
            headroom=headroom_bits(dtype, self.largest),
            mean=self.mean if known else None,
            std=_root(self.spread, self.finite) if known else None,
            rms=_root(self.squares, self.finite) if known else None,
            l2=_root(self.squares, 1) if known else None,
        )


def _squares(stats: TensorStats, finite: int) -> float | None:
    """Return the sum of squares of the finite elements, where it is known."""
    if stats.l2 is not None:
        return float(stats.l2) ** 2 if abs(stats.l2) < 1e150 else math.inf
    if stats.rms is not None:
        return float(stats.rms) ** 2 * finite if abs(stats.rms) < 1e150 else math.inf
    return None


def _root(total: float | None, count: int) -> float | None:
    return None if total is None or not math.isfinite(total) else math.sqrt(total / count)


@record(frozen=False, slots=True)
class _Gathered:
    op_key: tuple[str, str, str]
    dtype: str
    device: int | None
    gradient: bool
    sums: dict[_At, _Sum]


def _read_part(
    sources: Sequence[TrendSource],
    across_scans: bool,
    roles: frozenset[str],
    part: int,
    passes: int,
) -> Iterator[Series]:
    gathered: dict[_Key, _Gathered] = {}
    for number, source in enumerate(sources):
        for op in source.read_ops():
            model = model_key(op.place.model_name)
            if passes > 1 and _part_of(model, op, passes) != part:
                continue
            device = None if across_scans else op.device
            at: _At = (number, "", -1)
            if not across_scans:
                at = (number, op.place.run or "", -1 if op.step is None else op.step)
            for tensor in op.tensors:
                if tensor.role in roles and tensor.dumped and tensor.stats.count:
                    _add(gathered, model, op, tensor, device, at)
    for key in sorted(gathered):
        yield _make_series(key, gathered[key], [source.scan_id for source in sources])


def _part_of(model: str, op: OpRecord, passes: int) -> int:
    # Not hash(): the order of the series must be the same on every run.
    name = f"{model}/{op.op_type}/{op.op_name}".encode("utf-8", "surrogatepass")
    return zlib.crc32(name) % passes


def _add(
    gathered: dict[_Key, _Gathered],
    model: str,
    op: OpRecord,
    tensor: TensorSummary,
    device: int | None,
    at: _At,
) -> None:
    slot = f"{tensor.role}.{tensor.index}"
    source = -1 if device is None else op.place.source
    key = (
        model, op.op_type, op.op_name, slot, tensor.name or "",
        source, -1 if device is None else device,
    )  # fmt: skip
    entry = gathered.get(key)
    if entry is None:
        gradient = is_gradient(op, tensor)
        entry = gathered[key] = _Gathered(key[:3], tensor.dtype, device, gradient, {})
    total = entry.sums.get(at)
    if total is None:
        total = entry.sums[at] = _Sum()
    total.add(tensor.stats)


def _make_series(key: _Key, entry: _Gathered, scan_ids: Sequence[str]) -> Series:
    points = tuple(
        entry.sums[at].point(scan_ids[at[0]], at, entry.dtype) for at in sorted(entry.sums)
    )
    return Series(
        *key[:5],
        dtype=entry.dtype,
        device=entry.device,
        gradient=entry.gradient,
        points=points,
        left=_find_left(points),
    )


# --- the band -----------------------------------------------------------------------------------


def _find_left(points: Sequence[Point]) -> LeftBand | None:
    earlier: dict[Metric, list[float]] = {"max": [], "rms": []}
    clean = 0
    for index, point in enumerate(points):
        if point.nonfinite and clean == index > 0:
            return LeftBand(index, "nonfinite", float(point.nonfinite), 0.0, 0.0)
        clean += not point.nonfinite
        found: dict[Metric, float | None] = {"max": point.largest, "rms": point.rms}
        for metric, value in found.items():
            if not value:
                continue
            seen = earlier[metric]
            logarithm = math.log2(value)
            if len(seen) >= EARLIER_POINTS:
                middle = median(seen)
                deviation = _NORMAL * median(abs(x - middle) for x in seen)
                width = max(BAND_BITS, BAND_MADS * deviation)
                if abs(logarithm - middle) > width:
                    low, high = _power(middle - width), _power(middle + width)
                    return LeftBand(index, metric, value, low, high)
            seen.append(logarithm)
    return None


def _power(exponent: float) -> float:
    return math.inf if exponent >= 1024 else 2.0**exponent
