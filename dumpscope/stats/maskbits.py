"""Which elements hold a mask constant, as one digest that broadcasting does not change.

The positions are kept as packed bits (16 MiB at most). Axes along which the pattern is constant
are dropped, and what remains is hashed together with its shape: a (1, 1, S, S) mask and the
(B, H, S, S) scores it was added to get the same digest.
"""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING

from dumpscope.lazy_numpy import np

if TYPE_CHECKING:
    import numpy.typing as npt

    from dumpscope.stats.positions import Placement

__all__ = ["MASK_ELEMENTS_MAX", "MaskBits"]

MASK_ELEMENTS_MAX = 1 << 27
"""No digest for larger tensors: their bits would not fit into a worker's memory."""

_CHUNK_BITS = 1 << 20
_DIGEST_BYTES = 16


class MaskBits:
    """One bit for every element of the logical shape, the first in the highest bit of a byte."""

    def __init__(self, placement: Placement) -> None:
        count = math.prod(placement.shape)
        self._placement = placement
        self._shape = tuple(dim for dim in placement.shape if dim != 1)
        self._bits = np.zeros((count + 7) // 8, np.uint8)
        self._strides = [
            math.prod(placement.shape[axis + 1 :]) for axis in range(len(placement.shape))
        ]

    def add(self, start: int, holds: npt.NDArray[np.bool_]) -> None:
        """Take the answers for the stored elements from `start` on into account."""
        if not self._placement.blocked and start % 8 == 0:
            packed = np.packbits(holds)
            self._bits[start // 8 : start // 8 + packed.size] |= packed
            return
        positions = np.flatnonzero(holds).astype(np.int64) + start
        where = np.zeros_like(positions)
        for axis, stride in enumerate(self._strides):
            where += self._placement.index(axis, positions) * stride
        np.bitwise_or.at(self._bits, where >> 3, np.uint8(0x80) >> (where & 7).astype(np.uint8))

    def _range(self, start: int, stop: int) -> npt.NDArray[np.uint8]:
        unpacked = np.unpackbits(self._bits[start >> 3 : (stop + 7) >> 3])
        return unpacked[start & 7 : (start & 7) + stop - start]

    def _constant(self, outer: int, dim: int, inner: int) -> bool:
        """Say whether bits[outer, dim, inner] are the same all along the middle axis."""
        slab = dim * inner
        if slab <= _CHUNK_BITS:
            group = _CHUNK_BITS // slab
            for begin in range(0, outer, group):
                end = min(begin + group, outer)
                cube = self._range(begin * slab, end * slab).reshape(end - begin, dim, inner)
                if not (cube == cube[:, :1]).all():
                    return False
            return True
        width = min(inner, _CHUNK_BITS)
        rows = max(1, _CHUNK_BITS // width)
        for base in range(0, outer * slab, slab):
            for left in range(0, inner, width):
                size = min(width, inner - left)
                model = self._range(base + left, base + left + size)
                step = rows if size == inner else 1
                for begin in range(0, dim, step):
                    end = min(begin + step, dim)
                    at = base + begin * inner + left
                    chunk = self._range(at, at + (end - begin - 1) * inner + size)
                    if not (chunk.reshape(end - begin, size) == model).all():
                        return False
        return True

    def digest(self) -> str:
        """Return the hex digest of the pattern without the axes along which it is constant."""
        shape = self._shape
        kept = []
        for axis, dim in enumerate(shape):
            outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
            if not self._constant(outer, dim, inner):
                kept.append(axis)
        reduced = tuple(shape[axis] for axis in kept)
        count = math.prod(reduced)
        hasher = hashlib.blake2b(repr(reduced).encode(), digest_size=_DIGEST_BYTES)
        strides = [math.prod(shape[axis + 1 :]) for axis in kept]
        for begin in range(0, count, _CHUNK_BITS):
            end = min(begin + _CHUNK_BITS, count)
            if kept == list(range(len(shape) - len(kept), len(shape))):
                picked = self._range(begin, end)
            else:
                number = np.arange(begin, end, dtype=np.int64)
                where = np.zeros_like(number)
                for dim, stride in zip(reversed(reduced), reversed(strides), strict=True):
                    number, index = np.divmod(number, dim)
                    where += index * stride
                picked = self._bits[where >> 3] >> (7 - (where & 7)).astype(np.uint8) & 1
            hasher.update(np.packbits(picked).tobytes())
        return hasher.hexdigest()
