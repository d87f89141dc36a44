"""Where elements are: from positions in memory to indices in the logical shape.

Positions are numbers of stored elements, at most a file's worth of them; dimensions come from
headers and may be any number. Nothing here allocates by a dimension.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from dumpscope.layouts import Geometry

__all__ = ["Extent", "Placement", "placement_of"]

_INT64_MAX = (1 << 63) - 1

_LONG_ROW = 4096
"""Rows of this length are looked at one by one rather than as a matrix."""


_SMALL = 1 << 16
"""Up to this many stored elements the answer for the whole tensor is kept."""


@lru_cache(maxsize=64)
def placement_of(geometry: Geometry) -> Placement:
    """Return the placement of a geometry; networks have few shapes, and these come often."""
    return Placement(geometry)


class Placement:
    """The way from stored positions to logical indices, and to what is padding."""

    def __init__(self, geometry: Geometry) -> None:
        self._known: tuple[int, npt.NDArray[np.bool_] | bool] | None = None
        self.shape = geometry.shape
        self.padded = geometry.padded
        self.blocked = geometry.blocked
        self.count = geometry.count
        self.stored_count = geometry.stored_count
        self._dims = geometry.shape if geometry.split_shape is None else geometry.split_shape
        strides = [1]
        for dim in reversed(self._dims[1:]):
            strides.append(strides[-1] * dim)
        self._strides = strides[::-1]
        merges = geometry.merges if self.blocked else tuple((axis,) for axis in range(self.rank))
        self._parts = []
        for parts in merges:
            scale = 1
            scaled = []
            for part in reversed(parts):
                scaled.append((part, scale))
                scale *= self._dims[part]
            self._parts.append(scaled)
        self._cut = [
            (parts, self.shape[axis])
            for axis, parts in enumerate(self._parts)
            if self.padded and geometry.extent(axis) > self.shape[axis]
        ]
        used = {part for parts in merges for part in parts}
        for part, dim in enumerate(self._dims):
            if part not in used and dim > 1:
                self._cut.append(([(part, 1)], 1))

    @property
    def rank(self) -> int:
        return len(self.shape)

    def index(self, axis: int, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the index along a logical axis of every position."""
        total: npt.NDArray[np.int64] | None = None
        for part, scale in self._parts[axis]:
            term = _along(positions, self._strides[part], self._dims[part])
            if scale != 1:
                # A scale that does not fit comes with an index of 0 only.
                term = term * np.int64(min(scale, _INT64_MAX))
            total = term if total is None else total + term
        return np.zeros_like(positions) if total is None else total

    def index_of(self, position: int) -> tuple[int, ...]:
        """Return the logical index of one position."""
        return tuple(
            sum(position // self._strides[p] % self._dims[p] * scale for p, scale in parts)
            for parts in self._parts
        )

    def elements(self, start: int, count: int) -> npt.NDArray[np.bool_] | bool:
        """Say which of `count` stored positions from `start` are elements, not padding.

        Returns
        -------
        bool or ndarray
            One answer where it is the same for all.
        """
        if not self.padded:
            return True
        if start or count > _SMALL:
            return self._find_elements(start, count)
        if self._known is None or self._known[0] != count:
            self._known = (count, self._find_elements(start, count))
        return self._known[1]

    def _find_elements(self, start: int, count: int) -> npt.NDArray[np.bool_] | bool:
        row = self._dims[-1]
        if row >= _LONG_ROW:
            return self._elements_of_long_rows(start, count, row)
        first, last = start // row, (start + count - 1) // row
        widths = self._widths(np.arange(first, last + 1, dtype=np.int64), row)
        if (widths == row).all():
            return True
        if not widths.any():
            return False
        mask = np.arange(row, dtype=np.int64) < widths[:, None]
        skipped = start - first * row
        return mask.reshape(-1)[skipped : skipped + count]

    def _elements_of_long_rows(
        self, start: int, count: int, row: int
    ) -> npt.NDArray[np.bool_] | bool:
        mask = np.zeros(count, np.bool_)
        end = start + count
        for number in range(start // row, (end - 1) // row + 1):
            width = int(self._widths(np.array([number], np.int64), row)[0])
            begin = number * row
            mask[max(begin - start, 0) : max(min(begin + width, end) - start, 0)] = True
        return mask

    def _widths(self, rows: npt.NDArray[np.int64], row: int) -> npt.NDArray[np.int64]:
        """Return how many positions at the start of each row of `row` are elements."""
        widths = np.full(rows.shape, row, np.int64)
        last = len(self._dims) - 1
        for parts, size in self._cut:
            outer = np.zeros_like(rows)
            inner = 1
            for part, scale in parts:
                if part == last:
                    inner = row
                else:
                    term = _along(rows, self._strides[part] // row, self._dims[part])
                    outer = outer + term * np.int64(min(scale, _INT64_MAX))
            left = np.int64(min(size, _INT64_MAX)) - outer
            np.minimum(widths, left.clip(0, row) if inner != 1 else (left > 0) * row, out=widths)
        return widths


def _along(positions: npt.NDArray[np.int64], stride: int, dim: int) -> npt.NDArray[np.int64]:
    if stride > _INT64_MAX:
        return np.zeros_like(positions)
    index = positions if stride == 1 else positions // np.int64(stride)
    return index if dim > _INT64_MAX else index % np.int64(dim)


class Extent:
    """The first of some elements in logical order, and the box around all of them."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self._low: list[int] = []
        self._high: list[int] = []
        self._open: list[int] = []
        self.first: tuple[int, ...] | None = None

    def add(self, positions: npt.NDArray[np.int64]) -> None:
        """Take ascending stored positions, all behind those of earlier calls, into account."""
        if not positions.size:
            return
        placement = self._placement
        first = placement.index_of(int(positions[0]))
        last = placement.index_of(int(positions[-1]))
        if self.first is None:
            self._low, self._high = list(first), list(first)
            self._open = list(range(placement.rank))
            self.first = first
        self._widen(first)
        self._widen(last)
        settled = 0
        if placement.blocked:
            self._lower_first(positions)
        else:
            settled = self._settle(first, last, positions)
        for axis in self._open:
            if axis >= settled:
                index = placement.index(axis, positions)
                self._low[axis] = min(self._low[axis], int(index.min()))
                self._high[axis] = max(self._high[axis], int(index.max()))
        # Axes whose whole length is covered need no more looking at: bad tensors are mostly
        # bad all over, and then this costs nothing.
        self._open = [axis for axis in self._open if not self._full(axis)]

    def _full(self, axis: int) -> bool:
        return self._low[axis] == 0 and self._high[axis] == self._placement.shape[axis] - 1

    def _widen(self, index: tuple[int, ...]) -> None:
        for axis, value in enumerate(index):
            if value < self._low[axis]:
                self._low[axis] = value
            elif value > self._high[axis]:
                self._high[axis] = value

    def _settle(
        self, first: tuple[int, ...], last: tuple[int, ...], positions: npt.NDArray[np.int64]
    ) -> int:
        """Return of how many axes the ends of a range in row-major order say everything."""
        rank = self._placement.rank
        pairs = zip(first, last, strict=True)
        differing = next((axis for axis, (x, y) in enumerate(pairs) if x != y), rank)
        settled = min(differing + 1, rank)
        if int(positions[-1]) - int(positions[0]) + 1 == positions.size:
            # Without gaps, the step along `differing` passes both ends of all later axes.
            for axis in range(settled, rank):
                self._low[axis] = 0
                self._high[axis] = self._placement.shape[axis] - 1
            settled = rank
        return settled

    def _lower_first(self, positions: npt.NDArray[np.int64]) -> None:
        """Look for an element that comes before `first` in logical order."""
        assert self.first is not None
        left = positions
        best = []
        tied = True
        for axis in range(self._placement.rank):
            index = self._placement.index(axis, left)
            smallest = int(index.min())
            if tied and smallest > self.first[axis]:
                return
            tied = tied and smallest == self.first[axis]
            best.append(smallest)
            left = left[index == smallest]
        self.first = tuple(best)

    @property
    def box(self) -> tuple[tuple[int, int], ...] | None:
        """First and last index along each axis, inclusive; `None` without any element."""
        if self.first is None:
            return None
        return tuple(zip(self._low, self._high, strict=True))
