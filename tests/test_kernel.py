from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dumpscope import kernel
from dumpscope.dtypes import dtype_named
from dumpscope.layouts import plain
from dumpscope.readers.protocol import MemoryData
from dumpscope.stats.exactstats import Moments, Tally, tally_floats
from dumpscope.stats.floatcodes import FLOAT_CODES
from dumpscope.stats.measuring import measure
from dumpscope.stats.screening import near_code

compiled = pytest.importorskip(
    "dumpscope._kernel", reason="the C kernel is not built (no compiler, or DUMPSCOPE_NO_KERNEL)"
)
if kernel.tally is None:
    pytest.skip("the C kernel is switched off by DUMPSCOPE_NO_KERNEL", allow_module_level=True)

Codes = npt.NDArray[Any]
PIECE = 4096
"""Elements that the kernel takes at a time: sizes around it are where it can go wrong."""
TYPES = tuple(kernel.FLOAT_TYPES)
SIZES = (1, 7, 15, 16, 17, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE + 5)


@pytest.fixture(params=compiled.versions())
def version(request: pytest.FixtureRequest) -> Iterator[str]:
    name: str = request.param
    compiled.choose(name)
    yield name
    compiled.choose(compiled.versions()[0])


def codes_of(name: str, size: int, seed: int, kind: str) -> Codes:
    """Bit patterns of one type: of any kind, or of values as they usually are."""
    codes = FLOAT_CODES[name]
    random = np.random.default_rng(seed)
    if kind == "any":
        return np.frombuffer(random.bytes(size * codes.bits // 8), codes.unsigned)
    spread = {"usual": 1.0, "small": 1e-7, "far": 0.01}[kind]
    values = random.standard_normal(size) * spread + (100.0 if kind == "far" else 0.0)
    if kind == "small":
        values[::5] = 0.0
    return values.astype(codes.numpy).view(codes.unsigned)


def count_by(tally: Any, codes: Codes, name: str, monkeypatch: pytest.MonkeyPatch) -> Tally:
    """Count codes with the kernel's function, or with NumPy when it is `None`."""
    monkeypatch.setattr(kernel, "tally", tally)
    counted = Tally()
    tally_floats(counted, codes, FLOAT_CODES[name], near_code(FLOAT_CODES[name], 0.9))
    return counted


def fields_but_moments(tally: Tally) -> dict[str, Any]:
    return {name: getattr(tally, name) for name in Tally.__slots__ if name != "moments"}


def are_close(found: Moments, expected: Moments) -> bool:
    """Whether sums are equal within 1e-12 of what was added up."""
    if found.count != expected.count:
        return False
    if not found.count:
        return True
    scale = expected.rms() or 0.0
    pairs = ((found.mean(), expected.mean()), (found.std(), expected.std()))
    return all(
        abs(a - b) <= 1e-12 * scale for a, b in pairs if a is not None and b is not None
    ) and (math.isclose(found.rms() or 0.0, expected.rms() or 0.0, rel_tol=1e-12))


@pytest.mark.parametrize("kind", ["any", "usual", "small", "far"])
@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("size", SIZES)
def test_kernel_and_numpy_count_the_same(
    version: str, name: str, size: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes = codes_of(name, size, size, kind)
    found = count_by(compiled.tally, codes, name, monkeypatch)
    expected = count_by(None, codes, name, monkeypatch)
    assert fields_but_moments(found) == fields_but_moments(expected)
    assert are_close(found.moments, expected.moments)


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(TYPES),
    st.lists(st.integers(0, (1 << 64) - 1), min_size=1, max_size=40),
    st.integers(0, PIECE + 3),
    st.sampled_from(compiled.versions()),
)
@example("float16", [0x7C00, 0xFC00, 0x7E00, 0x7BFF, 0xFBFF, 0, 0x8000, 1], PIECE - 4, "plain")
@example("float64", [0x7FF0 << 48, 1, 0x7FEF_FFFF_FFFF_FFFF], 0, "plain")
def test_chosen_codes_among_ones(name: str, chosen: list[int], before: int, version: str) -> None:
    codes = FLOAT_CODES[name]
    one = codes.code_of(1.0)
    mixed = np.full(before + len(chosen), one, codes.unsigned)
    mixed[before:] = [code & ((1 << codes.bits) - 1) for code in chosen]
    compiled.choose(version)
    try:
        with pytest.MonkeyPatch.context() as monkeypatch:
            found = count_by(compiled.tally, mixed, name, monkeypatch)
            expected = count_by(None, mixed, name, monkeypatch)
    finally:
        compiled.choose(compiled.versions()[0])
    assert fields_but_moments(found) == fields_but_moments(expected)
    assert are_close(found.moments, expected.moments)


def test_counts_of_float16_are_those_of_float64_numpy(version: str) -> None:
    # Every code of the type, each once: what is in them is known without any kernel.
    codes = np.arange(1 << 16, dtype=np.uint16)
    near = FLOAT_CODES["float16"].code_of(60000.0)
    counts, (high, low, _), (count, total, squares, _) = compiled.tally(codes, 1 << 16, 0, near)
    assert counts == (2 * 1023, 1, 1, 2, 1, 2 * (0x7BFF - near - 1), 2 * 1023, 2)
    assert (high, low, count) == (0x7BFF, 0xFBFF, 2 * 0x7C00)
    with np.errstate(invalid="ignore"):
        values = codes.view(np.float16).astype(np.float64)
    values = values[np.isfinite(values)]
    assert total == 0.0
    assert squares == pytest.approx(math.fsum((values * values).tolist()), rel=1e-13)


def test_sums_of_values_far_from_zero(version: str) -> None:
    values = 1e6 + np.random.default_rng(3).standard_normal(100_000).astype(np.float32)
    _, _, (count, total, squares, deviation) = compiled.tally(values, values.size, 2, 0x7F7FFFFE)
    wide = values.astype(np.float64)
    mean = math.fsum(wide.tolist()) / wide.size
    assert count == wide.size
    assert total / count == pytest.approx(mean, rel=1e-14)
    assert squares == pytest.approx(math.fsum((wide * wide).tolist()), rel=1e-14)
    assert deviation == pytest.approx(math.fsum(((wide - mean) ** 2).tolist()), rel=1e-11)


def test_float64_squares_out_of_range_are_left_to_numpy() -> None:
    limit = (0x7FF << 52) - 2
    for value, left in ((1e200, True), (1e-200, True), (1e100, False), (0.0, False)):
        found = compiled.tally(np.full(5, value), 5, 3, limit)
        assert (found is None) == left, value
    stats = measure(
        MemoryData(np.full(5, 1e200).tobytes()), dtype_named("float64"), plain((5,)), level="full"
    ).stats
    assert stats.rms == pytest.approx(1e200, rel=1e-12)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_screen_finds_the_extremes(version: str, bits: int, size: int) -> None:
    content = np.random.default_rng(bits + size).bytes(size * bits // 8)
    signed = np.frombuffer(content, f"<i{bits // 8}")
    unsigned = np.frombuffer(content, f"<u{bits // 8}")
    expected = (signed.max(), signed.min(), unsigned.max(), unsigned.min())
    assert compiled.screen(content, size, bits // 8) == expected


def test_blocks_may_begin_anywhere(version: str) -> None:
    content = np.random.default_rng(9).bytes(8 * 5000 + 8)
    for shift in range(8):
        moved = content[shift : shift + 40000]
        for number, name in enumerate(TYPES):
            count = 40000 * 8 // FLOAT_CODES[name].bits
            view = memoryview(content)[shift : shift + 40000]
            assert compiled.tally(view, count, number, 1) == compiled.tally(
                np.frombuffer(moved, FLOAT_CODES[name].unsigned).copy(), count, number, 1
            )


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 100_003])
def test_bytes_are_counted(size: int) -> None:
    content = np.random.default_rng(size).integers(0, 250, size, dtype=np.uint8)
    counts = np.full(256, 3, np.int64)
    compiled.count_bytes(content, counts)
    assert (counts == 3 + np.bincount(content, minlength=256)).all()


def test_equal_bytes_are_counted() -> None:
    counts = np.zeros(256, np.int64)
    compiled.count_bytes(bytes(200_001), counts)
    assert counts[0] == 200_001
    assert not counts[1:].any()


@pytest.mark.parametrize(
    ("function", "arguments", "error"),
    [
        ("screen", (b"abcd", 3, 2), ValueError),
        ("screen", (b"abcd", 0, 2), ValueError),
        ("screen", (b"abcd", -1, 2), ValueError),
        ("screen", (b"abcdef", 2, 3), ValueError),
        ("screen", (b"abcd", 1 << 62, 8), ValueError),
        ("screen", ("text", 1, 1), TypeError),
        ("screen", (b"abcd", 2), TypeError),
        ("screen", (np.zeros((4, 4), np.uint8)[:, 1], 4, 1), (BufferError, ValueError)),
        ("tally", (b"abcd", 3, 0, 5), ValueError),
        ("tally", (b"abcd", 1, 4, 5), ValueError),
        ("tally", (b"abcd", 1, 0, -5), OverflowError),
        ("tally", (b"abcd", 1, 0), TypeError),
        ("screen_floats", (b"abcd", 3, 0, 5), ValueError),
        ("screen_floats", (b"abcd", 1, -1, 5), ValueError),
        ("screen_floats", (b"abcd", 1, 0), TypeError),
        ("count_bytes", (b"abcd", np.zeros(255, np.int64)), ValueError),
        ("count_bytes", (b"abcd", bytes(2048)), BufferError),
        ("count_bytes", (b"abcd",), TypeError),
        ("choose", ("fastest",), ValueError),
    ],
)
def test_wrong_arguments_are_refused(
    function: str, arguments: tuple[Any, ...], error: type[Exception]
) -> None:
    with pytest.raises(error):
        getattr(compiled, function)(*arguments)


@pytest.mark.parametrize("name", [*TYPES, "float8_e5m2", "float8_e4m3fn", "hifloat8", "int4"])
@pytest.mark.parametrize("level", ["screen", "full"])
def test_statistics_are_the_same_without_the_kernel(
    name: str, level: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    dtype = dtype_named(name)
    content = np.random.default_rng(len(name)).bytes(dtype.nbytes(5000))
    found = measure(MemoryData(content), dtype, plain((5000,)), level=level)
    for part in ("screen", "screen_floats", "tally", "count_bytes"):
        monkeypatch.setattr(kernel, part, None)
    expected = measure(MemoryData(content), dtype, plain((5000,)), level=level)
    assert found.digest == expected.digest
    for field in type(found.stats).__slots__:
        one, other = getattr(found.stats, field), getattr(expected.stats, field)
        if field in ("mean", "std", "rms", "l2") and one is not None:
            assert one == pytest.approx(other, rel=1e-12, abs=1e-12 * (expected.stats.rms or 0.0))
        else:
            assert one == other, field


def test_the_kernel_can_be_switched_off() -> None:
    code = "from dumpscope import kernel; print(kernel.screen, kernel.describe_kernel())"
    found = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, kernel.NO_KERNEL: "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == "None not used: DUMPSCOPE_NO_KERNEL is set"
    assert kernel.describe_kernel() == f"in use, version {compiled.versions()[0]}"


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("signs", ["both", "positive", "negative"])
def test_ends_of_clean_floats(version: str, name: str, signs: str) -> None:
    codes = FLOAT_CODES[name]
    values = np.random.default_rng(5).standard_normal(777).astype(codes.numpy)
    wide = values.astype(np.float64)
    if signs != "both":
        wide = np.abs(wide) * (1 if signs == "positive" else -1)
        values = wide.astype(codes.numpy)
    number, near = kernel.FLOAT_TYPES[name], near_code(codes, 0.9)
    ends = compiled.screen_floats(values.view(codes.unsigned), 777, number, near)
    assert ends == (wide.min(), wide.max())
    # One bit more than what is clean.
    view = values.view(codes.unsigned).copy()
    view[400] = near
    assert compiled.screen_floats(view, 777, number, near) is not None
    for bad in (near + 1, codes.sign | (near + 1), codes.nonfinite, codes.sign | codes.magnitude):
        view[400] = bad
        assert compiled.screen_floats(view, 777, number, near) is None


def test_every_value_of_16_bits_comes_out_exactly(version: str) -> None:
    for number, name in enumerate(("float16", "bfloat16")):
        codes = FLOAT_CODES[name]
        for code in range(codes.nonfinite):
            one = code.to_bytes(2, "little")
            value = codes.value_of(code)
            assert compiled.screen_floats(one, 1, number, codes.limit) == (value, value)


def test_negative_zero_is_zero(version: str) -> None:
    for number, name in enumerate(TYPES):
        content = FLOAT_CODES[name].sign.to_bytes(FLOAT_CODES[name].bits // 8, "little")
        ends = compiled.screen_floats(content, 1, number, 5)
        assert [math.copysign(1, end) for end in ends] == [1.0, 1.0]
