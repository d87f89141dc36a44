"""Numbers of eight bits and fewer: their values by code, and how they are packed.

Where the bit rules come from (checked value by value in the tests):

=============  ====  ==========================================================================
hifloat8          8  sign, prefix-coded "dot", dot-many exponent bits, fraction: see
                     `_hifloat8_value`
float6_e3m2fn     6  sign, 3 exponent bits (bias 3), 2 fraction bits; no Inf, no NaN
float6_e2m3fn     6  sign, 2 exponent bits (bias 1), 3 fraction bits; no Inf, no NaN
float4_e2m1fn     4  sign, 2 exponent bits (bias 1), 1 fraction bit; no Inf, no NaN
float4_e1m2       4  sign, 1 exponent bit (bias 1), 2 fraction bits; no Inf, no NaN
float8_*          8  as ml_dtypes has them
int4, int2        4  two's complement
uint2, uint1      2  plain binary
=============  ====  ==========================================================================

Packed numbers fill a little-endian bit stream, the first element in the lowest bits. That order
is an assumption (one vendor tool unpacks uint1 highest bit first), so counts and extremes of
packed tensors are certain and element positions are not.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from dumpscope.dtypes import dtype_named
from dumpscope.lazy_numpy import np

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["MIN_NORMAL", "code_values", "pack_unit", "unpack_codes"]

_MINIFLOATS = {
    "float6_e3m2fn": (3, 2, 3),
    "float6_e2m3fn": (2, 3, 1),
    "float4_e2m1fn": (2, 1, 1),
    "float4_e1m2": (1, 2, 1),
}
"""Exponent bits, fraction bits, exponent bias."""

_FROM_ML_DTYPES = ("float8_e5m2", "float8_e4m3fn", "float8_e8m0fnu")

_SMALL_INTEGERS = {"int4": 4, "int2": 2, "uint2": 2, "uint1": 1}

MIN_NORMAL = {
    "float8_e5m2": 2.0**-14,
    "float8_e4m3fn": 2.0**-6,
    "float8_e8m0fnu": 0.0,
    "hifloat8": 2.0**-15,
    "float6_e3m2fn": 2.0**-2,
    "float6_e2m3fn": 1.0,
    "float4_e2m1fn": 1.0,
    "float4_e1m2": 1.0,
}
"""Smallest normal magnitude: what lies between it and zero is subnormal. e8m0 has none."""


def _hifloat8_value(code: int) -> float:
    """Decode one hifloat8 code by the rules of its bits."""
    if code == 0x80:
        return float("nan")
    sign = -1.0 if code & 0x80 else 1.0
    body = code & 0x7F
    if body == 0x6F:
        return sign * float("inf")
    if body < 0x08:
        return sign * 2.0 ** (body - 23) if body else 0.0
    # The dot says how many exponent bits follow: 11 -> 4, 10 -> 3, 01 -> 2, 001 -> 1, 0001 -> 0.
    if body >= 0x20:
        exponent_bits, left = (body >> 5) + 1, 5
    elif body >= 0x10:
        exponent_bits, left = 1, 4
    else:
        exponent_bits, left = 0, 3
    fraction_bits = left - exponent_bits
    exponent = 0
    if exponent_bits:
        field = (body >> fraction_bits) & ((1 << exponent_bits) - 1)
        half = 1 << (exponent_bits - 1)
        exponent = half | (field & (half - 1))
        if field & half:
            exponent = -exponent
    fraction = (body & ((1 << fraction_bits) - 1)) / (1 << fraction_bits)
    return sign * 2.0**exponent * (1.0 + fraction)


def _minifloat_value(code: int, exponent_bits: int, fraction_bits: int, bias: int) -> float:
    sign = -1.0 if code >> (exponent_bits + fraction_bits) & 1 else 1.0
    exponent = code >> fraction_bits & ((1 << exponent_bits) - 1)
    fraction = (code & ((1 << fraction_bits) - 1)) / (1 << fraction_bits)
    if exponent == 0:
        return sign * 2.0 ** (1 - bias) * fraction
    return sign * 2.0 ** (exponent - bias) * (1.0 + fraction)


@cache
def code_values(name: str) -> npt.NDArray[np.float64]:
    """Return the value of every code of a type of eight bits and fewer, as float64.

    Raises `KeyError` for any other type.
    """
    if name == "hifloat8":
        values = np.array([_hifloat8_value(code) for code in range(256)])
    elif name in _MINIFLOATS:
        exponent_bits, fraction_bits, bias = _MINIFLOATS[name]
        codes = range(1 << (1 + exponent_bits + fraction_bits))
        values = np.array(
            [_minifloat_value(code, exponent_bits, fraction_bits, bias) for code in codes]
        )
    elif name in _SMALL_INTEGERS:
        bits = _SMALL_INTEGERS[name]
        values = np.arange(1 << bits, dtype=np.float64)
        if name.startswith("int"):
            values[1 << (bits - 1) :] -= 1 << bits
    elif name in ("int8", "qint8", "dual_sub_int8"):
        values = np.arange(256, dtype=np.uint8).view(np.int8).astype(np.float64)
    elif name in ("uint8", "quint8", "dual_sub_uint8"):
        values = np.arange(256, dtype=np.float64)
    elif name == "bool":
        values = np.ones(256)
        values[0] = 0.0
    elif name in _FROM_ML_DTYPES:
        codes_of_bytes = np.arange(256, dtype=np.uint8)
        values = codes_of_bytes.view(np.dtype(dtype_named(name).numpy)).astype(np.float64)
    else:
        raise KeyError(name)
    values.flags.writeable = False
    return values


def pack_unit(bits: int) -> tuple[int, int]:
    """Return the smallest number of whole bytes that hold whole elements, and how many."""
    return (3, 4) if bits == 6 else (1, 8 // bits)


def unpack_codes(raw: bytes | memoryview, bits: int, count: int) -> npt.NDArray[np.uint8]:
    """Return the codes of packed elements of 1, 2, 4 or 6 bits, one byte each.

    Parameters
    ----------
    raw
        At least ceil(count × bits / 8) bytes.
    """
    packed = np.frombuffer(raw, np.uint8, (count * bits + 7) // 8)
    if bits == 6:
        whole, rest = divmod(packed.size, 3)
        if rest:
            packed = np.concatenate([packed, np.zeros(3 - rest, np.uint8)])
            whole += 1
        first, second, third = packed.reshape(whole, 3).T
        codes = np.empty((whole, 4), np.uint8)
        codes[:, 0] = first & 0x3F
        codes[:, 1] = first >> 6 | (second & 0x0F) << 2
        codes[:, 2] = second >> 4 | (third & 0x03) << 4
        codes[:, 3] = third >> 2
    else:
        per_byte = 8 // bits
        mask = (1 << bits) - 1
        codes = np.empty((packed.size, per_byte), np.uint8)
        for position in range(per_byte):
            codes[:, position] = packed >> (position * bits) & mask
    return codes.reshape(-1)[:count]
