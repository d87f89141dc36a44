"""The elements of a tensor as they stream by: codes, positions, and what of them is padding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Protocol

from dumpscope.lazy_numpy import np
from dumpscope.lowfloats import MIN_NORMAL, code_values, pack_unit, unpack_codes
from dumpscope.stats.floatcodes import COMPONENT_OF, FLOAT_CODES, FloatCodes
from dumpscope.stats.padding import Tile

if TYPE_CHECKING:
    import numpy.typing as npt

    from dumpscope.dtypes import Dtype
    from dumpscope.stats.positions import Placement

__all__ = ["Data", "Encoding", "encoding_of", "stream_codes", "stream_elements"]

_PIECE = 1 << 16
"""Elements that are looked at together where positions matter."""

_PACKED_PIECE = 1 << 15


class Data(Protocol):
    """The bytes of a tensor (see `readers.protocol.TensorData`)."""

    @property
    def nbytes(self) -> int: ...

    def blocks(self) -> Iterator[memoryview]: ...


@dataclass(frozen=True, eq=False)
class Encoding:
    """How the elements of one type are looked at.

    Attributes
    ----------
    lanes
        Components of an element: 2 for complex types.
    kind
        The ordered float type of an element or component, `None` for other types.
    values
        The value of every code, for all types of at most 8 bits.
    """

    dtype: Dtype
    lanes: int
    kind: FloatCodes | None
    values: npt.NDArray[np.float64] | None

    @cached_property
    def codes(self) -> np.dtype[Any]:
        """The integer type that one element, or one component of it, is read as."""
        if self.kind is not None:
            return self.kind.unsigned
        if self.dtype.bits <= 8:
            return np.dtype(np.uint8)
        assert self.dtype.numpy is not None
        return self.dtype.numpy

    @property
    def unit_bytes(self) -> int:
        """The smallest number of bytes that hold whole elements."""
        return pack_unit(self.dtype.bits)[0] if self.dtype.packed else self.dtype.bits // 8

    @property
    def smallest_normal(self) -> float:
        return MIN_NORMAL.get(self.dtype.name, 0.0)

    def nonfinite(self, codes: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Say which elements are NaN or Inf."""
        found: npt.NDArray[np.bool_]
        if self.kind is not None:
            found = (codes & codes.dtype.type(self.kind.magnitude)) >= self.kind.nonfinite
            if self.lanes == 2:
                found = found[0::2] | found[1::2]
        elif self.dtype.kind == "float":
            assert self.values is not None
            found = ~np.isfinite(self.values)[codes]
        else:
            found = np.zeros(codes.size, np.bool_)
        return found

    def count_nonfinite(self, codes: npt.NDArray[Any]) -> int:
        """Count elements that are NaN or Inf."""
        if self.dtype.kind not in ("float", "complex"):
            return 0
        return int(np.count_nonzero(self.nonfinite(codes)))

    def saturated(self, codes: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Say which elements are at the limit of the type."""
        found: npt.NDArray[np.bool_]
        if self.kind is not None and self.lanes == 1:
            found = (codes & codes.dtype.type(self.kind.magnitude)) == self.kind.limit
        elif self.dtype.kind == "float":
            assert self.values is not None
            found = (np.abs(self.values) == self.dtype.limit)[codes]
        else:
            found = np.zeros(codes.size // self.lanes, np.bool_)
        return found

    def code_of(self, value: float) -> int:
        """Return the code of a value that the real float type has."""
        if self.kind is not None:
            return self.kind.code_of(value)
        assert self.values is not None
        return int(np.flatnonzero(self.values == value)[0])

    def table(self) -> npt.NDArray[np.float64]:
        """Return the value of every code of a type of at most 16 bits."""
        return _table(self.dtype.name) if self.values is None else self.values

    def to_float64(self, codes: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Decode finite elements of a real type."""
        values: npt.NDArray[np.float64]
        if self.values is not None:
            values = self.values[codes]
        elif self.kind is not None:
            values = self.kind.to_float64(codes)
        else:
            values = codes.astype(np.float64)
        return values


@cache
def _table(name: str) -> npt.NDArray[np.float64]:
    codes = np.arange(1 << 16, dtype=np.uint16)
    if name not in FLOAT_CODES:
        return codes.view(np.int16 if "uint" not in name else np.uint16).astype(np.float64)
    kind = FLOAT_CODES[name]
    finite = (codes & kind.magnitude) < kind.nonfinite
    values = np.full(codes.size, np.nan)
    values[finite] = kind.to_float64(codes[finite])
    if kind.infinite is not None:
        values[kind.infinite] = np.inf
        values[kind.sign | kind.infinite] = -np.inf
    return values


_ENCODINGS: dict[str, Encoding] = {}


def encoding_of(dtype: Dtype) -> Encoding:
    """Return how the elements of a decodable type are looked at."""
    encoding = _ENCODINGS.get(dtype.name)
    if encoding is None:
        encoding = _ENCODINGS[dtype.name] = _make_encoding(dtype)
    return encoding


def _make_encoding(dtype: Dtype) -> Encoding:
    values = code_values(dtype.name) if dtype.bits <= 8 else None
    if dtype.kind == "complex":
        kind: FloatCodes | None = COMPONENT_OF[dtype.name]
        assert kind is not None
        return Encoding(dtype, 2, kind, None)
    kind = FLOAT_CODES.get(dtype.name)
    if kind is not None:
        return Encoding(dtype, 1, kind, values)
    return Encoding(dtype, 1, None, values)


def stream_codes(
    data: Data, encoding: Encoding, total: int
) -> Iterator[tuple[int, npt.NDArray[Any]]]:
    """Yield (number of the first element, codes) for the first `total` elements.

    Blocks that end inside an element are put together. An array is valid until the next one is
    asked for; complex elements are two codes each.
    """
    unit = encoding.unit_bytes
    start = 0
    rest = b""
    for block in data.blocks():
        if start >= total:
            return
        whole: bytes | memoryview = block
        if rest:
            whole = rest + bytes(block)
            rest = b""
        surplus = len(whole) % unit
        if surplus:
            rest = bytes(whole[len(whole) - surplus :])
            whole = whole[: len(whole) - surplus]
        for codes in _decode_block(whole, encoding, total - start):
            yield start, codes
            start += codes.size // encoding.lanes
    if rest and start < total and encoding.dtype.packed:
        left = min(total - start, len(rest) * 8 // encoding.dtype.bits)
        yield start, unpack_codes(rest, encoding.dtype.bits, left)


def _decode_block(
    block: bytes | memoryview, encoding: Encoding, wanted: int
) -> Iterator[npt.NDArray[Any]]:
    bits = encoding.dtype.bits
    if not encoding.dtype.packed:
        count = min(len(block) * 8 // bits, wanted)
        if count:
            yield np.frombuffer(block, encoding.codes, count * encoding.lanes)
        return
    step = _PACKED_PIECE // encoding.unit_bytes * encoding.unit_bytes
    for begin in range(0, len(block), step):
        part = block[begin : begin + step]
        count = min(len(part) * 8 // bits, wanted)
        if count <= 0:
            return
        yield unpack_codes(part, bits, count)
        wanted -= count


def stream_elements(
    data: Data, encoding: Encoding, total: int, placement: Placement
) -> Iterator[tuple[int, npt.NDArray[Any], npt.NDArray[np.bool_] | bool]]:
    """Yield (start, codes, which of them are elements) in pieces of bounded size.

    The last item is one bool where it is the same for the whole piece, else an array.
    """
    lanes = encoding.lanes
    for start, codes in stream_codes(data, encoding, total):
        for first, size, valid, offset in placement.segments(start, codes.size // lanes):
            for begin in range(0, size, _PIECE):
                at = first + begin
                count = min(_PIECE, size - begin)
                piece = codes[(at - start) * lanes : (at - start + count) * lanes]
                if isinstance(valid, Tile):
                    yield at, piece, valid.mask[offset + begin : offset + begin + count]
                else:
                    yield at, piece, valid
