"""Where elements are: from positions in memory to indices in the logical shape.

Positions are numbers of stored elements, at most a file's worth of them; dimensions come from
headers and may be any number. Nothing here allocates by a dimension.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from dumpscope.lazy_numpy import np
from dumpscope.stats.padding import PaddingPattern, Segment

if TYPE_CHECKING:
    import numpy.typing as npt

    from dumpscope.layouts import Geometry

__all__ = ["Extent", "Placement", "placement_of"]

_INT64_MAX = (1 << 63) - 1

_LONG_ROW = 1 << 12
"""Up to here looking at bad elements by rows of memory pays."""


@lru_cache(maxsize=16)
def placement_of(geometry: Geometry) -> Placement:
    """Return the placement of a geometry; networks have few shapes, and these come often."""
    return Placement(geometry)


class Placement:
    """The way from stored positions to logical indices, and to what is padding."""

    def __init__(self, geometry: Geometry) -> None:
        self.shape = geometry.shape
        self.rank = len(geometry.shape)
        self.padded = geometry.padded
        self.blocked = geometry.blocked
        self.count = geometry.count
        self.stored_count = geometry.stored_count
        self._dims = geometry.shape if geometry.split_shape is None else geometry.split_shape
        self._pattern: PaddingPattern | None = None
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
        last = len(self._dims) - 1
        self.row = self._dims[last] if self._dims else 1
        """Length of the last stored dimension."""
        self.row_axis = next((a for a, parts in enumerate(merges) if last in parts), -1)
        """The logical axis that this dimension is part of."""
        if self.padded and self.stored_count:
            self._pattern = PaddingPattern(geometry)

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

    def segments(self, start: int, count: int) -> Iterator[Segment]:
        """Say which of `count` stored positions from `start` are elements (see `padding`)."""
        if self._pattern is None:
            return iter([(start, count, True, 0)])
        return self._pattern.segments(start, count)


def _along(positions: npt.NDArray[np.int64], stride: int, dim: int) -> npt.NDArray[np.int64]:
    if stride > _INT64_MAX:
        return np.zeros_like(positions)
    index = positions if stride == 1 else positions // np.int64(stride)
    return index if dim > _INT64_MAX else index % np.int64(dim)


def _any_in_row(bad: npt.NDArray[np.bool_], row: int) -> npt.NDArray[np.bool_]:
    """Say of every row of a matrix whether anything in it is true."""
    found: npt.NDArray[np.bool_]
    if row % 8 or row > 64:
        matrix = bad.reshape(-1, row)
        found = np.logical_or.reduce(matrix, axis=1)
        return found
    # Eight at a time: numpy is slow at reducing many short rows.
    words = bad.view(np.uint64).reshape(-1, row // 8)
    joined = words[:, 0].copy()
    for column in range(1, row // 8):
        joined |= words[:, column]
    found = joined != 0
    return found


class Extent:
    """The first of some elements in logical order, and the box around all of them."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self._low: list[int] = []
        self._high: list[int] = []
        self._open: list[int] = []
        self.first: tuple[int, ...] | None = None

    def add(self, start: int, bad: npt.NDArray[np.bool_]) -> None:
        """Take the answers for the stored positions from `start` on into account.

        Positions must come in ascending order.
        """
        count = int(np.count_nonzero(bad))
        if not count:
            return
        placement = self._placement
        begin = int(bad.argmax())
        end = bad.size - 1 - int(bad[::-1].argmax())
        first, last = placement.index_of(start + begin), placement.index_of(start + end)
        if self.first is None:
            self._low, self._high = list(first), list(first)
            self._open = list(range(placement.rank))
            self.first = first
        self._widen(first)
        self._widen(last)
        if not placement.blocked:
            settled = self._settle(first, last, gapless=end - begin + 1 == count)
            open_axes = [axis for axis in self._open if axis >= settled]
            if open_axes:
                positions = np.flatnonzero(bad) + start
                for axis in open_axes:
                    self._widen_axis(axis, placement.index(axis, positions))
        elif self._open or any(self.first):
            if placement.row <= _LONG_ROW:
                self._add_rows(start, bad)
            else:
                self._add_positions(np.flatnonzero(bad) + start)
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

    def _widen_axis(self, axis: int, index: npt.NDArray[np.int64]) -> None:
        self._low[axis] = min(self._low[axis], int(index.min()))
        self._high[axis] = max(self._high[axis], int(index.max()))

    def _settle(self, first: tuple[int, ...], last: tuple[int, ...], *, gapless: bool) -> int:
        """Return of how many axes the ends of a range in row-major order say everything."""
        rank = self._placement.rank
        pairs = zip(first, last, strict=True)
        differing = next((axis for axis, (x, y) in enumerate(pairs) if x != y), rank)
        settled = min(differing + 1, rank)
        if gapless:
            # The step along `differing` passes both ends of all later axes.
            for axis in range(settled, rank):
                self._low[axis] = 0
                self._high[axis] = self._placement.shape[axis] - 1
            settled = rank
        return settled

    def _add_positions(self, positions: npt.NDArray[np.int64]) -> None:
        for axis in self._open:
            self._widen_axis(axis, self._placement.index(axis, positions))
        left = positions
        best = []
        for axis in range(self._placement.rank):
            index = self._placement.index(axis, left)
            best.append(int(index.min()))
            left = left[index == best[-1]]
        assert self.first is not None
        self.first = min(self.first, tuple(best))

    def _add_rows(self, start: int, bad: npt.NDArray[np.bool_]) -> None:
        """Do the same by rows of the last stored dimension, which are many times fewer."""
        placement = self._placement
        row = placement.row
        skipped = start % row
        if skipped or bad.size % row:
            aligned = np.zeros(-(-(skipped + bad.size) // row) * row, np.bool_)
            aligned[skipped : skipped + bad.size] = bad
            bad = aligned
            start -= skipped
        matrix = bad.reshape(-1, row)
        numbers = np.flatnonzero(_any_in_row(bad, row))
        if numbers.size < len(matrix):
            matrix = matrix[numbers]
        positions = numbers * row + start
        for axis in self._open:
            index = placement.index(axis, positions)
            if axis == placement.row_axis:
                self._widen_row_axis(axis, index, matrix)
            else:
                self._widen_axis(axis, index)
        assert self.first is not None
        if not any(self.first):
            return
        best = []
        for axis in range(placement.rank):
            index = placement.index(axis, positions)
            smallest = int(index.min())
            tied = index == smallest
            positions, matrix = positions[tied], matrix[tied]
            if axis == placement.row_axis:
                column = int(matrix.any(axis=0).argmax())
                smallest += column
                positions, matrix = positions[matrix[:, column]], matrix[matrix[:, column]]
            best.append(smallest)
            if best > list(self.first[: axis + 1]):
                return
        self.first = tuple(best)

    def _widen_row_axis(
        self, axis: int, index: npt.NDArray[np.int64], matrix: npt.NDArray[np.bool_]
    ) -> None:
        # The outermost blocks decide, and within them the outermost columns.
        least, most = int(index.min()), int(index.max())
        last = matrix.shape[1] - 1
        if least < self._low[axis]:
            columns = matrix[index == least].any(axis=0)
            self._low[axis] = min(self._low[axis], least + int(columns.argmax()))
        if most + last > self._high[axis]:
            columns = matrix[index == most].any(axis=0)[::-1]
            self._high[axis] = max(self._high[axis], most + last - int(columns.argmax()))

    @property
    def box(self) -> tuple[tuple[int, int], ...] | None:
        """First and last index along each axis, inclusive; `None` without any element."""
        if self.first is None:
            return None
        return tuple(zip(self._low, self._high, strict=True))
