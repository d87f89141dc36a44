"""Numbers decoded bit by bit and counted one by one: slow, and independent of the package.

Everything here is plain Python on integers and fractions. Values are read out of the whole
tensor as one little-endian integer, so that packed and byte-sized types need no separate code.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

# Bits of sign, exponent and fraction, exponent bias, and what the highest exponent holds.
FLOATS = {
    "float16": (1, 5, 10, 15, "ieee"),
    "bfloat16": (1, 8, 7, 127, "ieee"),
    "float32": (1, 8, 23, 127, "ieee"),
    "float64": (1, 11, 52, 1023, "ieee"),
    "float8_e5m2": (1, 5, 2, 15, "ieee"),
    "float8_e4m3fn": (1, 4, 3, 7, "one nan"),
    "float6_e3m2fn": (1, 3, 2, 3, "finite"),
    "float6_e2m3fn": (1, 2, 3, 1, "finite"),
    "float4_e2m1fn": (1, 2, 1, 1, "finite"),
    "float4_e1m2": (1, 1, 2, 1, "finite"),
}
COMPLEX = {"complex32": "float16", "complex64": "float32", "complex128": "float64"}
INTEGERS = {
    **{f"int{bits}": (bits, True) for bits in (2, 4, 8, 16, 32, 64)},
    **{f"uint{bits}": (bits, False) for bits in (1, 2, 8, 16, 32, 64)},
    **{f"qint{bits}": (bits, True) for bits in (8, 16, 32)},
    **{f"quint{bits}": (bits, False) for bits in (8, 16)},
    "dual_sub_int8": (8, True),
    "dual_sub_uint8": (8, False),
    "resource": (64, True),
}
REAL_FLOATS = (*FLOATS, "hifloat8", "float8_e8m0fnu")
ALL = (*REAL_FLOATS, *COMPLEX, *INTEGERS, "bool")
LIMITS = {
    "float16": 65504.0,
    "bfloat16": float.fromhex("0x1.fep127"),
    "float32": float.fromhex("0x1.fffffep127"),
    "float64": float.fromhex("0x1.fffffffffffffp1023"),
    "float8_e5m2": 57344.0,
    "float8_e4m3fn": 448.0,
    "float8_e8m0fnu": 2.0**127,
    "hifloat8": 32768.0,
    "float6_e3m2fn": 28.0,
    "float6_e2m3fn": 7.5,
    "float4_e2m1fn": 6.0,
    "float4_e1m2": 1.75,
}
SATURATING = {"float16", "bfloat16", "float32", "float64", "hifloat8", "float8_e5m2"}


def bits_of(name: str) -> int:
    """Bits of one element."""
    if name in FLOATS:
        return sum(FLOATS[name][:3])
    if name in COMPLEX:
        return 2 * bits_of(COMPLEX[name])
    return INTEGERS[name][0] if name in INTEGERS else 8


def float_value(name: str, code: int) -> float:
    if name == "float8_e8m0fnu":
        return math.nan if code == 0xFF else 2.0 ** (code - 127)
    if name == "hifloat8":
        return hifloat8_value(code)
    _, exponent_bits, fraction_bits, bias, top = FLOATS[name]
    sign = -1.0 if code >> (exponent_bits + fraction_bits) else 1.0
    exponent = code >> fraction_bits & (2**exponent_bits - 1)
    fraction = code & (2**fraction_bits - 1)
    if top == "ieee" and exponent == 2**exponent_bits - 1:
        return math.nan if fraction else sign * math.inf
    if top == "one nan" and code & 0x7F == 0x7F:
        return math.nan
    hidden = 1 << fraction_bits if exponent else 0
    return sign * math.ldexp(hidden + fraction, max(exponent, 1) - bias - fraction_bits)


def hifloat8_value(code: int) -> float:
    """Read the bits from the left, as the format's description does."""
    special = {0x00: 0.0, 0x80: math.nan, 0x6F: math.inf, 0xEF: -math.inf}
    if code in special:
        return special[code]
    text = f"{code:08b}"
    sign = -1.0 if text[0] == "1" else 1.0
    for prefix, width in (("11", 4), ("10", 3), ("01", 2), ("001", 1), ("0001", 0)):
        if text[1:].startswith(prefix):
            rest = text[1 + len(prefix) :]
            exponent_text, fraction_text = rest[:width], rest[width:]
            exponent = 0
            if exponent_text:
                # The magnitude's leading one is not written; the exponent's sign is.
                exponent = int("1" + exponent_text[1:], 2)
                exponent = -exponent if exponent_text[0] == "1" else exponent
            fraction = int(fraction_text, 2) / 2 ** len(fraction_text)
            return sign * math.ldexp(1 + fraction, exponent)
    return sign * math.ldexp(1.0, int(text[5:], 2) - 23)


def smallest_normal(name: str) -> float:
    """What lies between zero and this is subnormal."""
    if name == "float8_e8m0fnu":
        return 0.0
    return 2.0**-15 if name == "hifloat8" else 2.0 ** (1 - FLOATS[name][3])


def codes_of(raw: bytes, bits: int, count: int) -> Iterator[int]:
    """Codes of the first elements, the first in the lowest bits."""
    stream = int.from_bytes(raw, "little")
    return (stream >> (number * bits) & (2**bits - 1) for number in range(count))


def values_of(raw: bytes, name: str, count: int) -> list[float | int | complex]:
    """Decode the first `count` elements."""
    if name in COMPLEX:
        part = COMPLEX[name]
        parts = [float_value(part, c) for c in codes_of(raw, bits_of(part), 2 * count)]
        return [complex(re, im) for re, im in zip(parts[::2], parts[1::2], strict=True)]
    codes = list(codes_of(raw, bits_of(name), count))
    if name == "bool":
        return [int(code != 0) for code in codes]
    if name in INTEGERS:
        bits, signed = INTEGERS[name]
        return [code - 2**bits if signed and code >> (bits - 1) else code for code in codes]
    return [float_value(name, code) for code in codes]


@dataclass
class Naive:
    """Counts and sums over some values, by the definitions."""

    count: int = 0
    nan: int = 0
    posinf: int = 0
    neginf: int = 0
    saturated: int = 0
    saturated_negative: int = 0
    near_limit: int = 0
    subnormal: int = 0
    zero: int = 0
    min: float | None = None
    max: float | None = None
    mean: float | None = None
    std: float | None = None
    rms: float | None = None
    l2: float | None = None


def kind_of(value: float | complex) -> str:
    """NaN if a component is, else Inf if one is: positive if any is +Inf."""
    parts = (value.real, value.imag) if isinstance(value, complex) else (value,)
    if any(math.isnan(part) for part in parts):
        return "nan"
    if any(part == math.inf for part in parts):
        return "posinf"
    if any(part == -math.inf for part in parts):
        return "neginf"
    return "finite"


def bad_numbers(values: Sequence[float | complex], name: str) -> list[int]:
    """Numbers of the bad elements: non-finite ones, else those at a limit that matters."""
    bad = [i for i, value in enumerate(values) if kind_of(value) != "finite"]
    if not bad and name in SATURATING:
        bad = [i for i, value in enumerate(values) if abs(value) == LIMITS[name]]
    return bad


def measure_naively(values: Sequence[float | complex], name: str, share: float = 0.9) -> Naive:
    naive = Naive(count=len(values))
    kinds = [kind_of(value) for value in values]
    naive.nan, naive.posinf, naive.neginf = map(kinds.count, ("nan", "posinf", "neginf"))
    finite = [value for value, kind in zip(values, kinds, strict=True) if kind == "finite"]
    naive.zero = sum(value == 0 for value in finite)
    if name in LIMITS:
        limit, least = LIMITS[name], smallest_normal(name)
        naive.saturated = sum(abs(value) == limit for value in finite)
        naive.saturated_negative = sum(value == -limit for value in finite)
        naive.near_limit = sum(share * limit < abs(value) < limit for value in finite)
        naive.subnormal = sum(0 < abs(value) < least for value in finite)
    elif name in COMPLEX:
        least = smallest_normal(COMPLEX[name])
        naive.subnormal = sum(
            any(0 < abs(part) < least for part in (value.real, value.imag)) for value in finite
        )
    if not finite:
        return naive
    # Scaling by a power of two keeps the squares of the largest and smallest float64 in range.
    parts = [part for value in finite for part in (value.real, value.imag)]
    largest = max(map(abs, parts))
    scale = math.frexp(largest)[1]
    scaled = [math.ldexp(part, -scale) for part in parts]
    squares = math.fsum(part * part for part in scaled)
    naive.rms = math.ldexp(math.sqrt(squares / len(finite)), scale)
    try:
        naive.l2 = math.ldexp(math.sqrt(squares), scale)
    except OverflowError:
        naive.l2 = None
    if name not in COMPLEX:
        real = scaled[::2]
        mean = math.fsum(real) / len(real)
        naive.mean = math.ldexp(mean, scale)
        deviation = math.fsum((value - mean) ** 2 for value in real)
        naive.std = math.ldexp(math.sqrt(deviation / len(real)), scale)
        naive.min, naive.max = min(v.real for v in finite), max(v.real for v in finite)
    return naive
