"""Large tensors that the kernel reads itself: the same numbers and the same faults as in blocks."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from dumpscope import kernel
from dumpscope.dtypes import dtype_named
from dumpscope.errors import TruncatedDumpError
from dumpscope.layouts import plain
from dumpscope.model import DumpFile, StatsLevel, TensorStats
from dumpscope.readers.protocol import FileSlice
from dumpscope.source import BLOCK_BYTES, LocalSource, ReadBuffer
from dumpscope.stats.floatcodes import FLOAT_CODES
from dumpscope.stats.measuring import Measured, measure

compiled = pytest.importorskip(
    "dumpscope._kernel", reason="the C kernel is not built (no compiler, or DUMPSCOPE_NO_KERNEL)"
)
if kernel.read_tally is None:
    pytest.skip("the C kernel is switched off, or reads no files", allow_module_level=True)

LEVELS: tuple[StatsLevel, ...] = ("screen", "full")
NAMES = (*kernel.FLOAT_TYPES, "float8_e5m2", "float8_e4m3fn", "float8_e8m0fnu", "hifloat8")
OTHERS = ("complex64", "int8", "uint16", "int32", "uint64", "bool", "int4")
HEADER_BYTES = 77


@pytest.fixture(params=compiled.versions())
def version(request: pytest.FixtureRequest) -> Iterator[str]:
    name: str = request.param
    compiled.choose(name)
    yield name
    compiled.choose(compiled.versions()[0])


def save(folder: Path, content: bytes, *, before: int = HEADER_BYTES) -> DumpFile:
    """Write what stands behind a header of so many bytes, and before some of another tensor."""
    path = folder / "dump"
    path.write_bytes(bytes(before) + content + b"\xff" * 100)
    status = path.stat()
    return DumpFile(str(path), path.name, path.name, status.st_size, 1, 2, 3)


def count_calls(function: Any, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Watch what a function of the kernel returns."""
    found: list[Any] = []

    def call(*arguments: Any) -> Any:
        found.append(function(*arguments))
        return found[-1]

    monkeypatch.setattr(kernel, function.__name__, call)
    return found


def measure_file(
    file: DumpFile, name: str, count: int, level: StatsLevel, *, before: int = HEADER_BYTES
) -> Measured:
    dtype = dtype_named(name)
    with LocalSource(file, ReadBuffer()) as source:
        data = FileSlice(source, before, dtype.nbytes(count))
        return measure(data, dtype, plain((count,)), level=level)


def measure_in_blocks(
    file: DumpFile, name: str, count: int, level: StatsLevel, *, before: int = HEADER_BYTES
) -> Measured:
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(kernel, "read_tally", None)
        monkeypatch.setattr(kernel, "read_screen", None)
        return measure_file(file, name, count, level, before=before)


def usual(name: str, count: int) -> npt.NDArray[Any]:
    """Values as they usually are, zeros, subnormal numbers and -0.0 among them."""
    values = np.random.default_rng(count).standard_normal(count)
    values[::17] *= 1e-6
    values[::31] = 0.0
    values[5::97] = -0.0
    kind = FLOAT_CODES[name]
    return values.astype(kind.numpy).view(kind.unsigned)


def assert_equal(found: Measured, expected: Measured) -> None:
    """Compare every number for equality, NaN being no result."""
    assert found.digest == expected.digest
    for field in TensorStats.__slots__:
        assert getattr(found.stats, field) == getattr(expected.stats, field), field


@pytest.mark.parametrize("before", [0, 1, 16, HEADER_BYTES, 4096])
@pytest.mark.parametrize("nbytes", [1 << 18, (1 << 20) + 8, 5 * (1 << 19) + 24])
@pytest.mark.parametrize("name", kernel.FLOAT_TYPES)
def test_usual_values_wherever_they_begin(
    tmp_path: Path, name: str, nbytes: int, before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes = usual(name, nbytes // (FLOAT_CODES[name].bits // 8))
    # A large file: a small one is in the buffer as a whole.
    file = save(tmp_path, codes.tobytes() + bytes(BLOCK_BYTES), before=before)
    tallies = count_calls(compiled.read_tally, monkeypatch)
    screens = count_calls(compiled.read_screen, monkeypatch)
    for level in LEVELS:
        assert_equal(
            measure_file(file, name, codes.size, level, before=before),
            measure_in_blocks(file, name, codes.size, level, before=before),
        )
    assert len(tallies) == len(screens) == 1
    assert tallies[0] is not None
    assert screens[0] is not None


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", [*NAMES, *OTHERS])
def test_any_bytes(tmp_path: Path, version: str, name: str, level: StatsLevel) -> None:
    dtype = dtype_named(name)
    count = (BLOCK_BYTES + 200_000) * 8 // dtype.bits
    file = save(tmp_path, np.random.default_rng(7).bytes(dtype.nbytes(count)))
    assert_equal(
        measure_file(file, name, count, level), measure_in_blocks(file, name, count, level)
    )


@pytest.mark.parametrize("name", ["float16", "float32", "float8_e4m3fn"])
@pytest.mark.parametrize("place", [0, 70_000, -1])
@pytest.mark.parametrize("what", ["nan", "limit", "near"])
def test_one_bad_element(tmp_path: Path, name: str, place: int, what: str) -> None:
    kind = FLOAT_CODES[name]
    count = 2 * BLOCK_BYTES * 8 // kind.bits + 3
    codes = np.full(count, kind.code_of(-1.5), kind.unsigned)
    codes[place] = {
        "nan": kind.magnitude,
        "limit": kind.sign | kind.limit,
        "near": kind.limit - 1,
    }[what]
    file = save(tmp_path, codes.tobytes())
    for level in LEVELS:
        found = measure_file(file, name, count, level)
        assert_equal(found, measure_in_blocks(file, name, count, level))
        stats = found.stats
        assert (stats.nan, stats.saturated, stats.near_limit) == (
            what == "nan",
            what == "limit",
            what == "near",
        )
        assert stats.count == count


def test_numbers_that_are_known(tmp_path: Path, version: str) -> None:
    # Three million float16: what is in them is known without anything under test.
    random = np.random.default_rng(11)
    values = random.standard_normal(3_000_001).astype(np.float16)
    values[:8] = [np.nan, np.inf, -np.inf, 65504, -65504, 6e-8, -0.0, 0.0]
    values[10] = np.frombuffer(b"\x01\xfd", np.float16)[0]  # a signalling NaN with its sign
    file = save(tmp_path, values.tobytes())
    stats = measure_file(file, "float16", values.size, "full").stats
    wide = values.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    assert (stats.count, stats.nan, stats.posinf, stats.neginf) == (values.size, 2, 1, 1)
    assert (stats.saturated, stats.saturated_negative, stats.near_limit) == (2, 1, 0)
    assert stats.zero == np.count_nonzero(wide == 0)
    assert stats.subnormal == np.count_nonzero((np.abs(wide) < 2**-14) & (wide != 0))
    assert (stats.min, stats.max) == (-65504, 65504)
    assert stats.first_bad is not None
    mean = math.fsum(finite.tolist()) / finite.size
    assert stats.mean == pytest.approx(mean, rel=1e-12)
    squares = math.fsum((finite * finite).tolist())
    assert stats.l2 == pytest.approx(math.sqrt(squares), rel=1e-12)
    assert stats.std == pytest.approx(
        math.sqrt(math.fsum(((finite - mean) ** 2).tolist()) / finite.size), rel=1e-12
    )


def test_more_than_is_read_without_a_look_at_signals(tmp_path: Path) -> None:
    count = (150 << 20) // 4 + 1
    path = tmp_path / "dump"
    with path.open("wb") as sparse:
        sparse.truncate(HEADER_BYTES + count * 4)
        sparse.seek(HEADER_BYTES + (count - 1) * 4)
        sparse.write(np.float32(3.0).tobytes())
    status = path.stat()
    file = DumpFile(str(path), path.name, path.name, status.st_size, 1, 2, 3)
    stats = measure_file(file, "float32", count, "full").stats
    assert (stats.count, stats.zero, stats.min, stats.max) == (count, count - 1, 0.0, 3.0)
    assert stats.l2 == 3.0
    assert measure_file(file, "float32", count, "screen").stats.max == 3.0


@pytest.mark.parametrize("level", LEVELS)
def test_a_file_that_shrank_is_told_of_as_in_blocks(
    tmp_path: Path, level: StatsLevel, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes = usual("float16", 2 * BLOCK_BYTES)
    told = []
    results = count_calls(compiled.read_tally, monkeypatch)
    results += count_calls(compiled.read_screen, monkeypatch)
    for read in (measure_file, measure_in_blocks):
        file = save(tmp_path, codes.tobytes())
        with LocalSource(file, ReadBuffer()) as source:
            os.truncate(file.path, 3 * BLOCK_BYTES // 2)
            data = FileSlice(source, HEADER_BYTES, codes.nbytes)
            with pytest.MonkeyPatch.context() as context:
                if read is measure_in_blocks:
                    context.setattr(kernel, "read_tally", None)
                    context.setattr(kernel, "read_screen", None)
                with pytest.raises(TruncatedDumpError) as caught:
                    measure(data, dtype_named("float16"), plain((codes.size,)), level=level)
        told.append((caught.value.path, caught.value.offset, caught.value.message))
    assert told[0] == told[1]
    assert "shrank while it was read" in told[0][2]


def test_what_cannot_be_read_is_no_exception_of_the_kernel(tmp_path: Path) -> None:
    buffer = ReadBuffer().mapping
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        assert compiled.read_tally(folder, 0, 5, 0, 1, buffer) is None
        assert compiled.read_screen(folder, 0, 5, 2, 1, buffer) is None
    finally:
        os.close(folder)
    (tmp_path / "short").write_bytes(bytes(9))
    with (tmp_path / "short").open("rb") as file:
        assert compiled.read_tally(file.fileno(), 0, 5, 0, 1, buffer) is None
        assert compiled.read_tally(file.fileno(), 1, 4, 0, 1, buffer) is not None
        assert compiled.read_screen(file.fileno(), 8, 1, 2, 1, buffer) is None
        assert compiled.read_screen(file.fileno(), 8, 1, 1, 1, buffer) == (0, 0, 0, 0)


def test_squares_out_of_range_are_left_to_numpy(tmp_path: Path) -> None:
    values = np.full(300_000, 1.0)
    values[200_000:] = 1e200
    file = save(tmp_path, values.tobytes())
    found = measure_file(file, "float64", values.size, "full")
    assert_equal(found, measure_in_blocks(file, "float64", values.size, "full"))
    assert found.stats.rms == pytest.approx(1e200 / math.sqrt(3), rel=1e-12)


@pytest.mark.parametrize(
    ("function", "arguments", "error"),
    [
        ("read_tally", (-1, 0, 1, 0, 1), ValueError),
        ("read_tally", (0, -1, 1, 0, 1), ValueError),
        ("read_tally", (0, 0, 0, 0, 1), ValueError),
        ("read_tally", (0, 0, 1 << 62, 3, 1), ValueError),
        ("read_tally", (0, 0, 1, 4, 1), ValueError),
        ("read_tally", (1 << 40, 0, 1, 0, 1), ValueError),
        ("read_tally", (0, 1 << 80, 1, 0, 1), OverflowError),
        ("read_tally", (0, 0, 1, 0, -1), OverflowError),
        ("read_tally", (0, 0, 1, 0), TypeError),
        ("read_screen", (0, 0, 1, 3, 1), ValueError),
        ("read_screen", ("0", 0, 1, 2, 1), TypeError),
        ("read_screen", (0, 0, -1, 2, 1), ValueError),
    ],
)
def test_wrong_arguments_are_refused(
    function: str, arguments: tuple[Any, ...], error: type[Exception]
) -> None:
    with pytest.raises(error):
        getattr(compiled, function)(*arguments, ReadBuffer().mapping)


def test_buffers_that_do_not_suit_are_refused() -> None:
    for function, code in ((compiled.read_tally, 0), (compiled.read_screen, 2)):
        with pytest.raises(ValueError, match="expected a buffer of 1048576 bytes, found 100"):
            function(0, 0, 1, code, 1, bytearray(100))
        with pytest.raises(BufferError):
            function(0, 0, 1, code, 1, bytes(1 << 20))


def test_what_is_read_past_a_source_is_no_longer_in_its_buffer(tmp_path: Path) -> None:
    content = np.random.default_rng(3).bytes(3 * BLOCK_BYTES)
    file = save(tmp_path, content, before=0)
    with LocalSource(file, ReadBuffer()) as source:
        assert source.stretch(0, 1000) is None
        assert source.stretch(-1, BLOCK_BYTES) is None
        assert source.stretch(source.size - BLOCK_BYTES + 1, BLOCK_BYTES) is None
        stretch = source.stretch(10, 2 * BLOCK_BYTES)
        assert stretch is not None
        stretch.buffer[:] = bytes(BLOCK_BYTES)
        assert source.read(20, 50) == content[20:70]
        assert b"".join(source.blocks(0, 100)) == content[:100]
    small = replace(save(tmp_path, content[:300_000], before=0))
    with LocalSource(small, ReadBuffer()) as source:
        assert source.stretch(0, 300_000) is None  # it is there already
