"""Blocked tensors built element by element from the formulas of each layout.

Each builder takes a logical array and returns the stored elements, flat, with `padding` where
the blocks hold no element, and the stored shape.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Where = Callable[..., int]


def _fill(
    logical: Array, axes: str, stored_shape: tuple[int, ...], where: Where, padding: Any
) -> Array:
    """Put each element of `logical` (whose axes are named) at the position `where` names."""
    stored = np.full(int(np.prod(stored_shape)), padding, logical.dtype)
    taken = set()
    for index in product(*map(range, logical.shape)):
        position = where(**dict(zip(axes, index, strict=True)))
        assert position not in taken
        taken.add(position)
        stored[position] = logical[index]
    return stored


def nc1hwc0(logical: Array, axes: str, c0: int, padding: Any) -> tuple[Array, tuple[int, ...]]:
    size = dict(zip(axes, logical.shape, strict=True))
    n, c, h, w = (int(size[axis]) for axis in "NCHW")
    c1 = -(-c // c0)

    def where(N: int, C: int, H: int, W: int) -> int:
        return (((N * c1 + C // c0) * h + H) * w + W) * c0 + C % c0

    shape = (n, c1, h, w, c0)
    return _fill(logical, axes, shape, where, padding), shape


def ndc1hwc0(logical: Array, axes: str, c0: int, padding: Any) -> tuple[Array, tuple[int, ...]]:
    size = dict(zip(axes, logical.shape, strict=True))
    n, d, c, h, w = (int(size[axis]) for axis in "NDCHW")
    c1 = -(-c // c0)

    def where(N: int, D: int, C: int, H: int, W: int) -> int:
        return ((((N * d + D) * c1 + C // c0) * h + H) * w + W) * c0 + C % c0

    shape = (n, d, c1, h, w, c0)
    return _fill(logical, axes, shape, where, padding), shape


def fractal_z(
    logical: Array, axes: str, n0: int, c0: int, padding: Any
) -> tuple[Array, tuple[int, ...]]:
    """Of four axes FRACTAL_Z, of five FRACTAL_Z_3D."""
    size = dict(zip(axes, logical.shape, strict=True))
    d, n, c, h, w = (int(size.get(axis, 1)) for axis in "DNCHW")
    c1, n1 = -(-c // c0), -(-n // n0)

    def where(N: int, C: int, H: int, W: int, D: int = 0) -> int:
        outer = ((D * c1 + C // c0) * h + H) * w + W
        return ((outer * n1 + N // n0) * n0 + N % n0) * c0 + C % c0

    shape = (d * c1 * h * w, n1, n0, c0)
    return _fill(logical, axes, shape, where, padding), shape


def fractal_nz(logical: Array, h0: int, w0: int, padding: Any) -> tuple[Array, tuple[int, ...]]:
    *lead, h, w = map(int, logical.shape)
    h1, w1 = -(-h // h0), -(-w // w0)
    matrices = logical.reshape((-1, h, w))

    def where(B: int, H: int, W: int) -> int:
        return (((B * w1 + W // w0) * h1 + H // h0) * h0 + H % h0) * w0 + W % w0

    shape = (*lead, w1, h1, h0, w0)
    return _fill(matrices, "BHW", (len(matrices), w1, h1, h0, w0), where, padding), shape
