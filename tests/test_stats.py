"""Statistics against naive counting in plain Python, for every type and any layout."""

from __future__ import annotations

import hashlib
import math
import sys
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive_numbers
from dumpscope.dtypes import dtype_named
from dumpscope.errors import UnsupportedDtypeError
from dumpscope.layouts import plain, plan_geometry
from dumpscope.model import StatsLevel, TensorStats
from dumpscope.stats.floatcodes import FLOAT_CODES
from dumpscope.stats.inspection import mask_constants
from dumpscope.stats.measuring import exponent_histogram, measure
from streamed_bytes import StreamedBytes
from tensor_checks import check, encode, interesting_codes, pack, some_codes

SEEDS = st.integers(0, 2**32)
SMALL_SHAPES = st.lists(st.integers(1, 6), max_size=3).map(tuple)


@pytest.mark.parametrize("level", ["screen", "full"])
@pytest.mark.parametrize("name", naive_numbers.ALL)
@settings(max_examples=10)
@given(data=st.data())
def test_random_bits_of_every_type(name: str, level: StatsLevel, data: st.DataObject) -> None:
    shape = data.draw(SMALL_SHAPES)
    count = math.prod(shape)
    raw = encode(some_codes(name, count, data.draw(SEEDS)), name)
    values = naive_numbers.values_of(raw, name, count)
    measured = measure(StreamedBytes(raw), dtype_named(name), plain(shape), level=level)
    check(measured, values, name, shape, level)


@pytest.mark.parametrize("level", ["screen", "full"])
@given(data=st.data())
def test_blocks_may_end_anywhere(level: StatsLevel, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(naive_numbers.ALL))
    count = data.draw(st.integers(1, 60))
    raw = encode(some_codes(name, count, data.draw(SEEDS)), name) + data.draw(st.binary(max_size=9))
    values = naive_numbers.values_of(raw, name, count)
    streamed = StreamedBytes(raw, data.draw(st.integers(1, 48)))
    measured = measure(streamed, dtype_named(name), plain((count,)), level=level)
    check(measured, values, name, (count,), level)


@given(data=st.data())
def test_what_is_there_of_a_truncated_tensor(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(naive_numbers.ALL))
    count = data.draw(st.integers(1, 30))
    raw = encode(some_codes(name, count, data.draw(SEEDS)), name)
    shape = (count + 3, 1000)
    told = data.draw(st.integers(0, count))
    values = naive_numbers.values_of(raw, name, told)
    measured = measure(StreamedBytes(raw), dtype_named(name), plain(shape), count=told)
    check(measured, values, name, shape, "screen")
    # Untold, the bytes say how much there is (whole bytes of packed types).
    there = len(raw) * 8 // naive_numbers.bits_of(name)
    assert measure(StreamedBytes(raw), dtype_named(name), plain(shape)).stats.count == there


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float8_e4m3fn", "hifloat8"])
@pytest.mark.parametrize("share", [0.0, 0.25, 0.9, 1.0, 2.0])
def test_the_share_that_is_near_the_limit(name: str, share: float) -> None:
    bits = naive_numbers.bits_of(name)
    codes = interesting_codes(name) + list(range(0, 1 << bits, 1 << max(0, bits - 9)))
    limit = naive_numbers.LIMITS[name]
    finite = [c for c in codes if abs(naive_numbers.float_value(name, c)) < limit]
    raw = pack(finite, bits)
    values = naive_numbers.values_of(raw, name, len(finite))
    naive = naive_numbers.measure_naively(values, name, share)
    for level in ("screen", "full"):
        stats = measure(
            StreamedBytes(raw),
            dtype_named(name),
            plain((len(finite),)),
            level=level,
            near_limit_share=share,
        ).stats
        assert stats.near_limit == naive.near_limit
        assert stats.saturated == 0


@pytest.mark.parametrize("share", [0.9, 1.0, 2.0])
def test_the_limit_counts_whatever_is_near_it(share: float) -> None:
    values = np.array([448, 1, -448], np.float64).astype(ml_dtypes.float8_e4m3fn)
    for level in ("screen", "full"):
        stats = measure(
            StreamedBytes(values.tobytes()),
            dtype_named("float8_e4m3fn"),
            plain((3,)),
            level=level,
            near_limit_share=share,
        ).stats
        assert (stats.saturated, stats.saturated_negative, stats.near_limit) == (2, 1, 0)


def test_the_limit_is_no_finding_of_quantised_types() -> None:
    values = np.array([448, -448, 1, 447], np.float64).astype(ml_dtypes.float8_e4m3fn)
    measured = measure(StreamedBytes(values.tobytes()), dtype_named("float8_e4m3fn"), plain((4,)))
    # 447 is rounded to 448.
    assert (measured.stats.saturated, measured.stats.saturated_negative) == (3, 1)
    assert measured.stats.first_bad is None
    assert measured.digest is None


def test_negative_zero_has_no_sign() -> None:
    values = np.array([-0.0, 0.0, -0.0], np.float32)
    for level in ("screen", "full"):
        stats = measure(
            StreamedBytes(values.tobytes()),
            dtype_named("float32"),
            plain((3,)),
            level=level,
        ).stats
        assert str(stats.min) == "0.0"
        assert str(stats.max) == "0.0"


def digest_of(values: npt.NDArray[Any], name: str, shape: tuple[int, ...]) -> str | None:
    return measure(StreamedBytes(values.tobytes()), dtype_named(name), plain(shape)).digest


def test_the_digest_is_that_of_the_bytes() -> None:
    values = np.arange(32, dtype=np.float16)
    values[3] = np.inf
    expected = hashlib.blake2b(values.tobytes(), digest_size=16).hexdigest()
    assert digest_of(values, "float16", (32,)) == expected
    assert digest_of(values, "float16", (4, 8)) == expected
    surplus = StreamedBytes(values.tobytes() + b"\x07" * 100)
    assert measure(surplus, dtype_named("float16"), plain((32,))).digest == expected


def test_no_digest_of_clean_short_or_constant_tensors() -> None:
    values = np.arange(31, dtype=np.float16)
    assert digest_of(np.arange(64, dtype=np.float16), "float16", (64,)) is None
    values[3] = np.nan
    assert digest_of(values, "float16", (31,)) is None
    assert digest_of(np.full(100_000, np.inf, np.float32), "float32", (100_000,)) is None
    constant = np.full(100, complex(1, np.inf), np.complex64)
    assert digest_of(constant, "complex64", (100,)) is None
    constant[99] = 1
    assert digest_of(constant, "complex64", (100,)) is not None


def test_the_digest_behind_a_long_constant_beginning() -> None:
    values = np.full((200_003, 2), np.nan, np.float32)
    values[-1, 1] = 3.0
    expected = hashlib.blake2b(values.tobytes(), digest_size=16).hexdigest()
    assert digest_of(values, "float32", (200_003, 2)) == expected
    assert digest_of(values, "complex64", (200_003,)) == expected
    assert digest_of(values, "float32", (400_006,)) == expected
    uneven = StreamedBytes(values.tobytes(), 80_000)
    assert measure(uneven, dtype_named("float32"), plain((400_006,))).digest == expected


def test_nothing_to_check() -> None:
    empty = measure(StreamedBytes(b""), dtype_named("float16"), plain((3, 0)))
    assert empty.stats == TensorStats()
    assert measure(StreamedBytes(b"abc"), dtype_named("string"), plain((1,))).stats == TensorStats()
    all_padding = plan_geometry("FRACTAL_NZ", (1, 1, 2, 2), (0, 2))
    stats = measure(StreamedBytes(b"\0\x7c" * 4), dtype_named("float16"), all_padding).stats
    assert (stats.count, stats.min, stats.padding_nonfinite) == (0, None, 4)


@pytest.mark.parametrize("name", ["undefined", "hifloat4", "dtype77"])
def test_unknown_types_are_never_clean(name: str) -> None:
    with pytest.raises(UnsupportedDtypeError, match=name):
        measure(StreamedBytes(bytes(64)), dtype_named(name), plain((4,)))


@given(data=st.data())
def test_exponents(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([n for n in naive_numbers.ALL if "complex" not in n]))
    count = data.draw(st.integers(1, 40))
    raw = encode(some_codes(name, count, data.draw(SEEDS)), name)
    expected: dict[int, int] = {}
    for value in naive_numbers.values_of(raw, name, count):
        number = float(value.real)
        if number and math.isfinite(number):
            exponent = math.frexp(number)[1] - 1
            expected[exponent] = expected.get(exponent, 0) + 1
    found = exponent_histogram(StreamedBytes(raw, 7), dtype_named(name), plain((count,)))
    assert found == sorted(expected.items())


# What masks are made of: the minima of float16, bfloat16 and float32, and round numbers.
MASKS = (-65504.0, -3.3895313892515355e38, -3.39e38, -3.40e38, -3.4028234663852886e38)


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_constants_of_masks_are_those_that_numpy_rounds_to(name: str) -> None:
    stored = np.dtype(getattr(ml_dtypes, name, name))
    wanted = np.array(MASKS)
    with np.errstate(over="ignore"):
        ways = [wanted.astype(stored), wanted.astype(np.float32).astype(stored)]
    found = np.concatenate(ways).astype(np.float64)
    lowest = {"float16": -65504.0, "bfloat16": -(2 - 2.0**-7) * 2.0**127}
    lowest |= {"float32": -(2 - 2.0**-23) * 2.0**127, "float64": -sys.float_info.max}
    assert mask_constants(dtype_named(name)) == {*found[np.isfinite(found)].tolist(), lowest[name]}


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_codes_have_the_values_that_numpy_gives_them(name: str) -> None:
    stored = np.dtype(getattr(ml_dtypes, name, name))
    codes = np.arange(1 << 16, dtype=np.uint16)
    with np.errstate(invalid="ignore"):  # signalling NaN
        values = codes.view(stored).astype(np.float64)
    finite = np.flatnonzero(np.isfinite(values))
    kind = FLOAT_CODES[name]
    assert [kind.value_of(code) for code in finite.tolist()] == values[finite].tolist()
    assert finite.size == 2 * kind.nonfinite
    assert values[kind.limit] == values[finite].max()
