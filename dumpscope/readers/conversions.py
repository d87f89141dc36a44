"""Blocks of stored bytes turned into blocks of the values' own type (see `stored_values`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from dumpscope.dtypes import Dtype
    from dumpscope.readers.stored_values import Convert

__all__ = ["narrowing", "packing", "swapping"]


def narrowing(stored: Dtype, true: Dtype) -> Convert:
    """Return what turns floats into narrower ones that can hold every one of the values."""
    if stored.name == "float32" and true.name == "bfloat16":
        return _cut_to_bfloat16
    wide = stored.numpy
    narrow = true.numpy
    limit = true.limit

    def convert(block: memoryview) -> npt.NDArray[Any]:
        values = np.frombuffer(block, wide)
        with np.errstate(all="ignore"):
            # A label may lie: a finite value must not become infinite by being narrowed.
            if limit is not None:
                values = np.where(np.isinf(values), values, np.clip(values, -limit, limit))
            return values.astype(narrow).view(np.uint8)

    return convert


def _cut_to_bfloat16(block: memoryview) -> npt.NDArray[Any]:
    """Drop the lower half of every float32: it is empty where a bfloat16 was widened."""
    bits = np.frombuffer(block, "<u4")
    halves = (bits >> 16).astype("<u2")
    nan = (bits & 0x7FFFFFFF) > 0x7F800000
    if nan.any():
        halves[nan] |= 0x40  # a NaN whose mantissa was in the lower half only
    return halves


def packing(bits: int) -> Convert:
    """Return what packs elements of one byte into `bits` bits each, lowest bits first."""

    def convert(block: memoryview) -> npt.NDArray[Any]:
        codes = np.frombuffer(block, np.uint8).reshape(-1, 1)
        kept = np.unpackbits(codes, axis=1, bitorder="little")[:, :bits]
        return np.packbits(kept.reshape(-1), bitorder="little")

    return convert


def swapping(native: Dtype, convert: Convert | None) -> Convert:
    """Return what puts the bytes of big-endian elements in order, and then calls `convert`."""
    little = native.numpy
    assert little is not None
    big = little.newbyteorder(">")

    def swap(block: memoryview) -> npt.NDArray[Any]:
        values = np.frombuffer(block, big).astype(little)
        return values if convert is None else convert(values.view(np.uint8).data)

    return swap
