"""Which stored elements of a blocked tensor are padding, as runs and short repeating patterns.

In every blocked layout that is understood, the last dimension is a row of C0 elements, and rows
lie in slabs, one for each block of the axis whose inner part the row is (C1 or W1). Within a
slab, periods of R rows repeat, of which the first few hold elements (the axis N1·N0 or H1·H0).
So a slab is one of three kinds: whole rows, rows cut to a few elements (the last block), or
nothing but padding. Their patterns are kept as tiles while they are short, and are runs of one
answer where they are long: no mask of a whole tensor is ever made.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Union

from dumpscope.lazy_numpy import np

if TYPE_CHECKING:
    import numpy.typing as npt

    from dumpscope.layouts import Geometry

__all__ = ["PaddingPattern", "Segment", "Tile"]

_TILE = 1 << 16
"""Longest pattern that is kept."""


class Tile:
    """A repeating pattern of elements and padding, repeated a few times."""

    __slots__ = ("_codes", "mask", "period")

    def __init__(self, pattern: npt.NDArray[np.bool_]) -> None:
        self.period = pattern.size
        self.mask = np.tile(pattern, max(1, _TILE // max(pattern.size, 1)))
        self._codes: dict[np.dtype[Any], npt.NDArray[Any]] = {}

    def codes(self, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """Return the mask as integers of a type: all ones for elements, zero for padding."""
        codes = self._codes.get(dtype)
        if codes is None:
            codes = np.zeros(self.mask.size, dtype)
            codes[self.mask] = ~dtype.type(0)
            self._codes[dtype] = codes
        return codes


Segment = tuple[int, int, Union[bool, Tile], int]
"""First position, number of positions, whether all of them are elements, else a tile and where
in the tile the first position is."""


class PaddingPattern:
    """The pattern of one padded geometry."""

    def __init__(self, geometry: Geometry) -> None:
        dims = geometry.split_shape
        assert dims is not None
        last = len(dims) - 1
        axis, parts = next((a, p) for a, p in enumerate(geometry.merges) if last in p)
        self._row = row = dims[last]
        self._blocks = dims[parts[0]]
        self._slab = math.prod(dims[parts[0] + 1 :])
        self._whole_blocks, self._width = divmod(geometry.shape[axis], row)
        self._period, self._used = self._rows(geometry, row)
        period, used, width = self._period, self._used, self._width
        self._all: Tile | None = None
        self._whole: Tile | None = None
        self._cut: Tile | None = None
        self._columns: Tile | None = None
        if self._slab * self._blocks <= _TILE:
            position = np.arange(self._slab * self._blocks)
            block = position // self._slab
            mask = position % self._slab % period < used
            self._all = Tile(mask & (block * row + position % row < geometry.shape[axis]))
        elif period <= _TILE:
            position = np.arange(period)
            self._whole = Tile(position < used)
            self._cut = Tile((position < used) & (position % row < width))
        elif row <= _TILE:
            self._columns = Tile(np.arange(row) < width)

    @staticmethod
    def _rows(geometry: Geometry, row: int) -> tuple[int, int]:
        """Return the length of a period of rows, and how much of its beginning is not padding."""
        dims = geometry.split_shape
        assert dims is not None
        pair = (len(dims) - 3, len(dims) - 2)
        for axis, parts in enumerate(geometry.merges):
            if parts == pair:
                return dims[pair[0]] * dims[pair[1]] * row, geometry.shape[axis] * row
        if any(pair[1] in parts for parts in geometry.merges):
            return row, row
        # The rows of a vector that is stored as a matrix: only the first is its own.
        return dims[pair[0]] * dims[pair[1]] * row, row

    def segments(self, start: int, count: int) -> Iterator[Segment]:
        """Describe `count` stored positions from `start`, in order."""
        end = start + count
        if self._all is not None:
            yield from _tiled(self._all, start, end, start % self._all.period)
            return
        while start < end:
            slab, offset = divmod(start, self._slab)
            block = slab % self._blocks
            if block < self._whole_blocks:
                left = (self._whole_blocks - block) * self._slab - offset
                kind = "whole"
            elif block == self._whole_blocks and self._width:
                left = self._slab - offset
                kind = "cut"
            else:
                left = (self._blocks - block) * self._slab - offset
                kind = "padding"
            stop = min(end, start + left)
            if kind == "padding" or (kind == "whole" and self._used == self._period):
                yield start, stop - start, kind == "whole", 0
            else:
                yield from self._slabs(start, stop, offset, kind)
            start = stop

    def _slabs(self, start: int, end: int, offset: int, kind: str) -> Iterator[Segment]:
        """Describe positions of slabs of one kind; `offset` is that of `start` in its slab."""
        tile = self._whole if kind == "whole" else self._cut
        if tile is not None:
            yield from _tiled(tile, start, end, offset % tile.period)
            return
        while start < end:
            offset %= self._period
            if offset >= self._used:
                stop = min(end, start + self._period - offset)
                yield start, stop - start, False, 0
            else:
                stop = min(end, start + self._used - offset)
                if kind == "whole":
                    yield start, stop - start, True, 0
                elif self._columns is not None:
                    yield from _tiled(self._columns, start, stop, offset % self._row)
                else:
                    yield from self._long_rows(start, stop, offset)
            offset += stop - start
            start = stop

    def _long_rows(self, start: int, end: int, offset: int) -> Iterator[Segment]:
        while start < end:
            offset %= self._row
            inside = offset < self._width
            stop = min(end, start + (self._width if inside else self._row) - offset)
            yield start, stop - start, inside, 0
            offset += stop - start
            start = stop


def _tiled(tile: Tile, start: int, end: int, offset: int) -> Iterator[Segment]:
    while start < end:
        stop = min(end, start + tile.mask.size - offset)
        yield start, stop - start, tile, offset
        # The tile holds whole periods, so the next position is at its beginning.
        offset = 0
        start = stop
