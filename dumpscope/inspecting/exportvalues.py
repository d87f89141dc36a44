"""Stream the values of one tensor into a file that numpy reads.

numpy has no bfloat16, no 8-bit floats and no packed types: such values are written as float32
(integers as int8 or uint8), which holds every one of them exactly. A tensor may be larger than
memory: plain layouts are written block by block, blocked ones are scattered over a mapped file.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, cast

import numpy as np

from dumpscope.dtypes import Dtype, dtype_named
from dumpscope.errors import DumpReadError, UnsupportedDtypeError
from dumpscope.readers.protocol import TensorRecord
from dumpscope.stats.elements import Encoding, encoding_of, stream_codes, stream_elements
from dumpscope.stats.positions import Placement, placement_of

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["ArrayLayout", "ArraySource", "stored_type"]

ArrayLayout = Literal["logical", "raw"]

_MOST_DIMENSIONS = 32
"""What every version of numpy reads."""

_BLOCK = 1 << 20
_CSV_BLOCK = 1 << 16


def stored_type(dtype: Dtype) -> np.dtype[Any]:
    """Return the numpy type that values of a decodable type are written as.

    Raises `UnsupportedDtypeError` for strings and unknown types.
    """
    if not dtype.decodable:
        raise UnsupportedDtypeError(f"values of type {dtype.name} cannot be decoded")
    if dtype.name == "complex32":
        return np.dtype("<c8")
    if dtype.kind == "float" and dtype.name not in ("float16", "float32", "float64"):
        return np.dtype("<f4")
    if dtype.packed:
        return np.dtype(np.int8 if dtype.kind == "int" else np.uint8)
    assert dtype.numpy is not None
    return dtype.numpy


class ArraySource:
    """The values of one tensor in one layout, ready to be written.

    Parameters
    ----------
    record
        The tensor; its file must be open.
    layout
        `logical` gives the logical shape, `raw` the elements as they lie in memory.
    spool_folder
        Where a blocked tensor is put in order.

    Attributes
    ----------
    shape, dtype, stored, nbytes
        Of what is written: shape, true type, numpy type, size of the values in bytes.

    Raises
    ------
    UnsupportedDtypeError
        There are no values, or no way to decode them.
    DumpReadError
        The bytes are not all there, or no array can have that shape.
    """

    def __init__(
        self, record: TensorRecord, layout: ArrayLayout, spool_folder: str | None = None
    ) -> None:
        geometry = record.geometry
        self.record = record
        self._spool_folder = spool_folder
        self.dtype = dtype_named(record.dtype)
        empty = geometry.stored_count == 0
        if record.unchecked is not None or (record.data is None and not empty):
            why = record.unchecked or ("strings" if self.dtype.kind == "string" else "not dumped")
            raise UnsupportedDtypeError(f"there are no values to export: {why}")
        self.stored = stored_type(self.dtype)
        self._scattered = layout == "logical" and geometry.blocked
        self.shape = geometry.shape if layout == "logical" else geometry.stored_shape
        self.layout = "ND" if self._scattered else geometry.layout
        if len(self.shape) > _MOST_DIMENSIONS:
            raise DumpReadError(f"an array of {len(self.shape)} dimensions cannot be written")
        available = 0 if record.data is None else record.data.nbytes
        missing = self.dtype.nbytes(geometry.stored_count) - available
        if missing > 0 or record.missing_bytes:
            raise DumpReadError(
                f"lacks {max(missing, record.missing_bytes)} bytes at its end: not exported"
            )
        self.count = math.prod(self.shape)
        self.nbytes = self.count * self.stored.itemsize

    @property
    def needed_bytes(self) -> int:
        """How much room on the disk writing takes at most, apart from what CSV adds."""
        return 2 * self.nbytes if self._scattered else self.nbytes

    def write_npy(self, target: BinaryIO) -> None:
        """Write an .npy file."""
        write_header(target, self.stored, self.shape)
        target.writelines(values.tobytes() for values in self._ordered())

    def write_csv(self, target: BinaryIO) -> None:
        """Write one line for each index of all dimensions but the last."""
        columns = self.shape[-1] if self.shape else 1
        column = 0
        for block in self._ordered():
            values = block.view(np.uint8) if block.dtype == np.bool_ else block
            for start in range(0, values.size, _CSV_BLOCK):
                words = [str(v) for v in values[start : start + _CSV_BLOCK]]
                at = 0
                while at < len(words):
                    taken = words[at : at + columns - column]
                    target.write((b"," if column else b"") + ",".join(taken).encode())
                    at += len(taken)
                    column += len(taken)
                    if column == columns:
                        target.write(b"\n")
                        column = 0

    def _ordered(self) -> Iterator[npt.NDArray[Any]]:
        """Yield the values in the order of `shape`, in blocks."""
        if not self._scattered:
            yield from self._stream()
        elif self.count:
            with tempfile.TemporaryFile(dir=self._spool_folder) as spool:
                array = np.memmap(spool, self.stored, "w+", shape=(self.count,))
                self._scatter(array)
                for start in range(0, self.count, _BLOCK):
                    yield array[start : start + _BLOCK]

    def _stream(self) -> Iterator[npt.NDArray[Any]]:
        if self.record.data is None:
            return
        encoding = encoding_of(self.dtype)
        for _, codes in stream_codes(self.record.data, encoding, self.count):
            yield _values_of(codes, encoding, self.stored)

    def _scatter(self, target: npt.NDArray[Any]) -> None:
        """Put the elements where they belong in the logical order; padding is left out."""
        record = self.record
        if record.data is None:
            return
        encoding = encoding_of(self.dtype)
        placement = placement_of(record.geometry)
        strides = _strides(self.shape)
        total = record.geometry.stored_count
        for start, codes, valid in stream_elements(record.data, encoding, total, placement):
            if valid is False:
                continue
            values = _values_of(codes, encoding, self.stored)
            positions = np.arange(start, start + values.size, dtype=np.int64)
            if valid is not True:
                values, positions = values[valid], positions[valid]
            target[_flat_index(placement, positions, strides)] = values


def write_header(target: BinaryIO, stored: np.dtype[Any], shape: tuple[int, ...]) -> None:
    """Write the header of an .npy file."""
    header = {
        "descr": np.lib.format.dtype_to_descr(stored),
        "fortran_order": False,
        "shape": shape,
    }
    np.lib.format.write_array_header_1_0(cast(Any, target), header)


def _strides(shape: tuple[int, ...]) -> list[int]:
    strides = []
    stride = 1
    for dim in reversed(shape):
        strides.append(stride)
        stride *= dim
    return strides[::-1]


def _flat_index(
    placement: Placement, positions: npt.NDArray[np.int64], strides: list[int]
) -> npt.NDArray[np.int64]:
    flat = np.zeros_like(positions)
    for axis, stride in enumerate(strides):
        flat += placement.index(axis, positions) * stride
    return flat


def _values_of(
    codes: npt.NDArray[Any], encoding: Encoding, stored: np.dtype[Any]
) -> npt.NDArray[Any]:
    """Decode codes, exactly."""
    dtype = encoding.dtype
    values: npt.NDArray[Any]
    if encoding.values is not None:
        values = encoding.values.astype(stored)[codes]
    elif dtype.name == "bfloat16":
        values = (codes.astype("<u4") << np.uint32(16)).view("<f4")
    elif dtype.name == "complex32":
        values = codes.view("<f2").astype("<f4").view("<c8")
    else:
        values = codes.view(stored)
    return values
