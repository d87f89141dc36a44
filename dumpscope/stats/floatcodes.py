"""Float types seen as integers: in the bit patterns of a float type the order is that of
magnitudes, so the largest values, and whether any is not finite, come from integer maxima.

That holds of IEEE types, bfloat16, float8_e5m2, float8_e4m3fn (whose NaN is the largest pattern)
and float8_e8m0fnu (which has no sign). It does not hold of hifloat8.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dumpscope.dtypes import dtype_named
from dumpscope.lazy_numpy import np
from dumpscope.lowfloats import MIN_NORMAL, code_values

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["COMPONENT_OF", "FLOAT_CODES", "Extremes", "FloatCodes"]


@dataclass(frozen=True, eq=False)
class FloatCodes:
    """The bit patterns ("codes") of one float type.

    Attributes
    ----------
    sign
        The sign bit; beyond all codes for a type without one.
    magnitude
        Mask that drops the sign.
    nonfinite
        The smallest magnitude that is not finite.
    infinite
        The magnitude of Inf, `None` without one.
    limit, smallest_normal
        Magnitudes of the largest finite and the smallest normal value.
    """

    name: str
    bits: int
    sign: int
    magnitude: int
    nonfinite: int
    infinite: int | None
    limit: int
    smallest_normal: int
    value_of: Callable[[int], float]

    @cached_property
    def signed(self) -> np.dtype[Any]:
        """The signed integers of the same width; the unsigned ones for a type without sign."""
        return np.dtype(f"<i{self.bits // 8}") if self.has_sign else self.unsigned

    @cached_property
    def unsigned(self) -> np.dtype[Any]:
        """The unsigned integers of the same width."""
        return np.dtype(f"<u{self.bits // 8}")

    @cached_property
    def numpy(self) -> np.dtype[Any]:
        """The numpy or ml_dtypes type."""
        found = dtype_named(self.name).numpy
        assert found is not None
        return found

    @property
    def has_sign(self) -> bool:
        """Whether values can be negative."""
        return self.sign < 1 << self.bits

    def code_of(self, value: float) -> int:
        """Return the code of a value rounded to this type."""
        with np.errstate(over="ignore"):
            rounded = np.array(value, np.float64).astype(self.numpy)
        return int(rounded.view(self.unsigned))

    def largest_below(self, value: float) -> int:
        """Return the largest magnitude whose value does not exceed a non-negative `value`."""
        low, high = 0, self.nonfinite
        while high - low > 1:
            middle = (low + high) // 2
            if self.value_of(middle) <= value:
                low = middle
            else:
                high = middle
        return low

    def to_float64(self, codes: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Decode codes of finite values."""
        if self.name == "bfloat16":
            floats = (codes.astype(np.uint32) << np.uint32(16)).view(np.float32)
        else:
            floats = codes.view(self.numpy)
        values: npt.NDArray[np.float64] = floats.astype(np.float64)
        return values


def _ieee_value(pack: str, unpack: str) -> Callable[[int], float]:
    to_bytes, from_bytes = struct.Struct(pack).pack, struct.Struct(unpack).unpack

    def value_of(code: int) -> float:
        return float(from_bytes(to_bytes(code))[0])

    return value_of


def _bfloat16_value(code: int) -> float:
    """Decode the upper half of a float32."""
    return float(struct.unpack("<f", struct.pack("<I", code << 16))[0])


def _ieee(name: str, bits: int, fraction_bits: int, value_of: Callable[[int], float]) -> FloatCodes:
    magnitude = (1 << (bits - 1)) - 1
    infinite = magnitude >> fraction_bits << fraction_bits
    return FloatCodes(
        name,
        bits,
        sign=1 << (bits - 1),
        magnitude=magnitude,
        nonfinite=infinite,
        infinite=infinite,
        limit=infinite - 1,
        smallest_normal=1 << fraction_bits,
        value_of=value_of,
    )


def _of_eight_bits(name: str, nonfinite: int, infinite: int | None) -> FloatCodes:
    values = code_values(name).tolist()
    signed = name != "float8_e8m0fnu"
    smallest_normal = next(code for code in range(256) if values[code] >= MIN_NORMAL[name])
    return FloatCodes(
        name,
        8,
        sign=0x80 if signed else 0x100,
        magnitude=0x7F if signed else 0xFF,
        nonfinite=nonfinite,
        infinite=infinite,
        limit=nonfinite - 1,
        smallest_normal=smallest_normal,
        value_of=values.__getitem__,
    )


class _Codes(Mapping[str, FloatCodes]):
    """Codes of types by name, each made when it is first asked for: tables take their time."""

    def __init__(self, makers: Mapping[str, Callable[[], FloatCodes]]) -> None:
        self._makers = makers
        self._made: dict[str, FloatCodes] = {}

    def __getitem__(self, name: str) -> FloatCodes:
        made = self._made.get(name)
        if made is None:
            made = self._made[name] = self._makers[name]()
        return made

    def __contains__(self, name: object) -> bool:
        return name in self._makers

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)


FLOAT_CODES: Mapping[str, FloatCodes] = _Codes(
    {
        "float16": lambda: _ieee("float16", 16, 10, _ieee_value("<H", "<e")),
        "bfloat16": lambda: _ieee("bfloat16", 16, 7, _bfloat16_value),
        "float32": lambda: _ieee("float32", 32, 23, _ieee_value("<I", "<f")),
        "float64": lambda: _ieee("float64", 64, 52, _ieee_value("<Q", "<d")),
        "float8_e5m2": lambda: _of_eight_bits("float8_e5m2", 0x7C, 0x7C),
        "float8_e4m3fn": lambda: _of_eight_bits("float8_e4m3fn", 0x7F, None),
        "float8_e8m0fnu": lambda: _of_eight_bits("float8_e8m0fnu", 0xFF, None),
    }
)

COMPONENT_OF: Mapping[str, FloatCodes] = _Codes(
    {
        "complex32": lambda: FLOAT_CODES["float16"],
        "complex64": lambda: FLOAT_CODES["float32"],
        "complex128": lambda: FLOAT_CODES["float64"],
    }
)


class Extremes:
    """The largest and smallest value among codes that are all finite, block by block."""

    __slots__ = ("_codes", "floor", "high", "low")

    def __init__(self, codes: FloatCodes) -> None:
        self._codes = codes
        self.high = -1 << 64
        """Largest code as a signed number: the largest value where any is positive."""
        self.low = -1
        """Largest code as an unsigned number: the smallest value where any is negative."""
        self.floor = 1 << 64
        """Smallest unsigned code: the other end where all values have one sign."""

    def add(self, codes: npt.NDArray[Any]) -> None:
        """Take the unsigned codes of a block into account."""
        if not codes.size:
            return
        unsigned = codes.view(self._codes.unsigned)
        self.high = max(self.high, int(np.maximum.reduce(codes.view(self._codes.signed))))
        self.low = max(self.low, int(np.maximum.reduce(unsigned)))
        if self.one_signed:
            self.floor = min(self.floor, int(np.minimum.reduce(unsigned)))

    @property
    def one_signed(self) -> bool:
        """Whether all values so far have the same sign."""
        return self.low < self._codes.sign or self.high < 0

    def values(self) -> tuple[float, float] | tuple[None, None]:
        """Return the smallest and largest value, without the sign of zero."""
        if self.low < 0:
            return None, None
        smallest = self.low if self.low >= self._codes.sign else self.floor
        largest = self.high if self.high >= 0 else self.floor
        value_of = self._codes.value_of
        return value_of(smallest) + 0.0, value_of(largest) + 0.0
