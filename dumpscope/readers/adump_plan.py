"""What an entry of a CANN dump's header asks for: type, geometry, and how many bytes."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import cast

from dumpscope.dtypes import Dtype, dtype_of_code
from dumpscope.layouts import Geometry, groups_of, layout_name, plain, plan_geometry
from dumpscope.model import Role
from dumpscope.readers.adump_schema import HeaderInput, HeaderOutput, HeaderShape

__all__ = [
    "MAX_NUMBER",
    "PLAIN_CODES",
    "SHAPELESS",
    "UNKNOWN_SIZE",
    "bounded",
    "origin_format",
    "plan_entry",
    "read_shape",
    "say_why_opaque",
]

MAX_NUMBER = (1 << 63) - 1
"""The largest number that every store and report can hold."""

_MAX_DIMS = 32
"""What numpy takes in every version that is supported."""

_MAX_READ_DIMS = 255
"""So many are still multiplied; what has more is no shape, and would only cost time."""

UNKNOWN_SIZE = -1
"""Stands for the bytes of a shape with dynamic dims."""

SHAPELESS = plain((0,))
"""Stands for a shape that no tensor can have."""

PLAIN_CODES = frozenset(
    code
    for code in range(256)
    if layout_name(code) in {"NCHW", "NHWC", "ND", "CHWN", "HWCN", "NDHWC", "NCDHW", "DHWCN", "NC"}
)
"""Layouts whose memory order is the logical one: the header's further fields do not matter."""


def bounded(number: int) -> int:
    """Keep a number from a header within `MAX_NUMBER`."""
    return min(number, MAX_NUMBER)


def read_shape(shape: HeaderShape) -> tuple[int, ...]:
    """Return the dims of a shape; absurdly many become one that cannot be."""
    dims = shape.dim
    # Of protobuf's own sequences, slices are several times faster than iteration.
    return tuple(dims[:]) if len(dims) <= _MAX_READ_DIMS else (MAX_NUMBER + 1,)


def origin_format(entry: HeaderInput | HeaderOutput, role: Role) -> int | None:
    """Return the format code of the original shape, which only outputs record."""
    if role == "input":
        return None
    output = cast("HeaderOutput", entry)
    return output.original_op.format if output.HasField("original_op") else None


@lru_cache(maxsize=4096)
def plan_entry(
    data_type: int,
    layout_code: int,
    shape: tuple[int, ...],
    original_shape: tuple[int, ...] = (),
    sub_format: int = 0,
    origin_code: int | None = None,
) -> tuple[Dtype, Geometry, int]:
    """Plan dtype, geometry, and how many bytes the shape asks for.

    The bytes are `UNKNOWN_SIZE` where dims are not known, 0 where the type's size is not. The
    geometry of a shape that no array can have is `SHAPELESS`.
    """
    dtype = dtype_of_code(data_type)
    if any(dim > MAX_NUMBER for dim in shape):
        return dtype, SHAPELESS, UNKNOWN_SIZE if dtype.decodable else 0
    needed = dtype.nbytes(prod(shape)) if dtype.decodable else 0
    if prod(dim for dim in shape if dim) > MAX_NUMBER:
        return dtype, SHAPELESS, needed
    if len(shape) > _MAX_DIMS:
        return dtype, plain((prod(shape),), layout_name(layout_code)), needed
    if len(original_shape) > _MAX_DIMS or prod(dim for dim in original_shape if dim) > MAX_NUMBER:
        original_shape = ()
    geometry = plan_geometry(
        layout_name(layout_code),
        shape,
        original_shape or None,
        origin_layout=None if origin_code is None else layout_name(origin_code),
        groups=sub_format if sub_format > 1 else groups_of(layout_code),
    )
    return dtype, geometry, needed


def say_why_opaque(dtype: Dtype) -> str:
    """Return the reason code for a type whose values cannot be read."""
    if dtype.name == "undefined":
        return "undefined_dtype"
    return "unknown_dtype" if dtype.name.startswith("dtype") else "unsupported_dtype"
