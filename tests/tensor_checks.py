"""Tensors of telling codes, and the comparison of statistics with naive counting."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import naive_numbers
from dumpscope.model import StatsLevel, TensorStats
from dumpscope.stats.measuring import Measured
from naive_numbers import Naive

COUNTS = ("count", "nan", "posinf", "neginf", "saturated", "saturated_negative", "near_limit")


def interesting_codes(name: str) -> list[int]:
    """Codes around every boundary of a type."""
    bits = naive_numbers.bits_of(naive_numbers.COMPLEX.get(name, name))
    if bits <= 8:
        return list(range(1 << bits))
    float_name = naive_numbers.COMPLEX.get(name, name)
    if float_name not in naive_numbers.FLOATS:
        half = 1 << (bits - 1)
        return [0, 1, half - 1, half, half + 1, 2 * half - 1]
    fraction_bits = naive_numbers.FLOATS[float_name][2]
    infinite = ((1 << (bits - 1)) - 1) >> fraction_bits << fraction_bits
    normal = 1 << fraction_bits
    magnitudes = [0, 1, normal - 1, normal, normal + 1]
    magnitudes += [infinite - 2, infinite - 1, infinite, infinite + 1, infinite | infinite >> 1]
    magnitudes.append((1 << (bits - 1)) - 1)
    return [code | sign for code in magnitudes for sign in (0, 1 << (bits - 1))]


def some_codes(name: str, count: int, seed: int) -> list[int]:
    """Element codes (of components for complex types), many of them special.

    One seed in two gives a clean tensor: whole tensors of random bits are rarely clean. (Drawing
    hundreds of numbers one by one is what hypothesis is slow at.)
    """
    generator = random.Random(seed)
    lanes = 2 if name in naive_numbers.COMPLEX else 1
    bits = naive_numbers.bits_of(name) // lanes
    if seed % 2:
        return [generator.getrandbits(max(bits - 2, 1)) for _ in range(count * lanes)]
    special = interesting_codes(name)
    wild = generator.random()
    return [
        generator.getrandbits(bits) if generator.random() < wild else generator.choice(special)
        for _ in range(count * lanes)
    ]


def pack(codes: list[int], bits: int) -> bytes:
    stream = sum(code << (number * bits) for number, code in enumerate(codes))
    return stream.to_bytes((len(codes) * bits + 7) // 8, "little")


def encode(codes: list[int], name: str) -> bytes:
    return pack(codes, naive_numbers.bits_of(naive_numbers.COMPLEX.get(name, name)))


def compare(found: TensorStats, naive: Naive, *, filled: bool) -> None:
    """All numbers agree; sums to 1e-12 of the size of the values."""
    for field in COUNTS:
        assert getattr(found, field) == getattr(naive, field), field
    assert found.min == naive.min
    assert found.max == naive.max
    if not filled:
        rest = (found.subnormal, found.zero, found.mean, found.std, found.rms, found.l2)
        assert rest == (None,) * 6
        return
    assert found.subnormal == naive.subnormal
    assert found.zero == naive.zero
    size = naive.rms or 0.0
    for field in ("mean", "std", "rms", "l2"):
        value, expected = getattr(found, field), getattr(naive, field)
        if expected is None:
            assert value is None, field
        else:
            slack = 1e-12 * (expected if field == "l2" else size)
            assert value == pytest.approx(expected, rel=0, abs=max(slack, 5e-324)), field


def where_bad(
    values: list[Any], name: str, shape: tuple[int, ...]
) -> tuple[tuple[int, ...] | None, tuple[tuple[int, int], ...] | None]:
    """The first bad index in row-major order, and the box of all."""
    bad = naive_numbers.bad_numbers(values, name)
    if not bad:
        return None, None
    indices = [tuple(int(i) for i in np.unravel_index(n, shape)) if shape else () for n in bad]
    return indices[0], tuple((min(axis), max(axis)) for axis in zip(*indices, strict=True))


def check(
    measured: Measured, values: list[Any], name: str, shape: tuple[int, ...], level: StatsLevel
) -> None:
    naive = naive_numbers.measure_naively(values, name)
    unclean = bool(naive_numbers.bad_numbers(values, name))
    compare(measured.stats, naive, filled=level == "full" or unclean)
    assert (measured.stats.first_bad, measured.stats.bad_box) == where_bad(values, name, shape)
    assert unclean or measured.digest is None
