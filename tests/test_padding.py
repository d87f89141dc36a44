"""Blocked tensors: padding counts for nothing, indices are logical, shapes cost no memory."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import blocked_arrays
import naive_numbers
from dumpscope.dtypes import dtype_named
from dumpscope.layouts import Geometry, plain, plan_geometry
from dumpscope.model import StatsLevel
from dumpscope.stats import elements, padding, positions
from dumpscope.stats.measuring import exponent_histogram, measure
from streamed_bytes import StreamedBytes
from tensor_checks import check, encode, some_codes

SEEDS = st.integers(0, 2**32)
BLOCKED_TYPES = ("float16", "bfloat16", "float32", "float8_e4m3fn", "hifloat8", "complex64")


def blocked_numbers(
    draw: st.DrawFn, layout: str
) -> tuple[npt.NDArray[np.int64], Geometry, tuple[int, ...]]:
    """Numbers of the logical elements in stored order, -1 for padding."""
    size = st.integers(1, 4)
    if layout == "FRACTAL_NZ":
        shape = draw(st.lists(size, min_size=2, max_size=4).map(tuple))
        logical = np.arange(math.prod(shape)).reshape(shape)
        stored, stored_shape = blocked_arrays.fractal_nz(logical, 4, 2, -1)
        return stored, plan_geometry(layout, stored_shape, shape), shape
    axes = "NCDHW" if layout in ("NDC1HWC0", "FRACTAL_Z_3D") else "NCHW"
    shape = draw(st.tuples(*[size] * len(axes)))
    logical = np.arange(math.prod(shape)).reshape(shape)
    if layout.startswith("FRACTAL"):
        stored, stored_shape = blocked_arrays.fractal_z(logical, axes, 2, 4, -1)
    elif layout == "NC1HWC0":
        stored, stored_shape = blocked_arrays.nc1hwc0(logical, axes, 4, -1)
    else:
        stored, stored_shape = blocked_arrays.ndc1hwc0(logical, axes, 4, -1)
    return stored, plan_geometry(layout, stored_shape, shape, origin_layout=axes), shape


@pytest.mark.parametrize("level", ["screen", "full"])
@pytest.mark.parametrize(
    "layout", ["NC1HWC0", "FRACTAL_NZ", "FRACTAL_Z", "NDC1HWC0", "FRACTAL_Z_3D"]
)
@settings(max_examples=25)
@given(data=st.data())
def test_padding_counts_for_nothing(layout: str, level: StatsLevel, data: st.DataObject) -> None:
    stored, geometry, shape = data.draw(st.composite(blocked_numbers)(layout))
    if geometry.to_logical(stored).reshape(-1).tolist() != list(range(math.prod(shape))):
        return  # read in another order than the true one, which the numbers leave open
    name = data.draw(st.sampled_from((*BLOCKED_TYPES, "int4", "int32")))
    lanes = 2 if name in naive_numbers.COMPLEX else 1
    codes = some_codes(name, stored.size, data.draw(SEEDS))
    raw = encode(codes, name)
    values = naive_numbers.values_of(raw, name, stored.size)
    assert len(codes) == stored.size * lanes
    inside = sorted((int(n), values[at]) for at, n in enumerate(stored) if n >= 0)
    outside = [values[at] for at, number in enumerate(stored) if number < 0]
    with pytest.MonkeyPatch.context() as patch:
        # Pieces that end anywhere, and the ways that only large tensors take.
        patch.setattr(elements, "_PIECE", data.draw(st.sampled_from([5, 16, 1 << 16])))
        patch.setattr(positions, "_LONG_ROW", data.draw(st.sampled_from([0, 1 << 12])))
        patch.setattr(padding, "_TILE", data.draw(st.sampled_from([0, 8, 1 << 16])))
        positions.placement_of.cache_clear()
        measured = measure(StreamedBytes(raw, 64), dtype_named(name), geometry, level=level)
    positions.placement_of.cache_clear()
    check(measured, [value for _, value in inside], name, shape, level)
    bad = sum(naive_numbers.kind_of(value) != "finite" for value in outside)
    assert measured.stats.padding_nonfinite == bad


@pytest.mark.parametrize("longest_tile", [0, 3, 8, 20, 1 << 16])
@given(
    layout=st.sampled_from(["NC1HWC0", "FRACTAL_NZ", "FRACTAL_Z", "NDC1HWC0", "FRACTAL_Z_3D"]),
    data=st.data(),
)
def test_segments_say_what_is_padding(longest_tile: int, layout: str, data: st.DataObject) -> None:
    """Whatever is kept as a pattern, and wherever reading starts."""
    stored, geometry, _ = data.draw(st.composite(blocked_numbers)(layout))
    if not geometry.padded:
        return
    is_element = geometry_mask(geometry)
    assert np.count_nonzero(is_element) == np.count_nonzero(stored >= 0)
    start = data.draw(st.integers(0, stored.size))
    count = data.draw(st.integers(0, stored.size - start))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(padding, "_TILE", longest_tile)
        pattern = padding.PaddingPattern(geometry)
        found: list[bool] = []
        for at, size, valid, offset in pattern.segments(start, count):
            assert at == start + len(found)
            assert size > 0
            if isinstance(valid, padding.Tile):
                found.extend(valid.mask[offset : offset + size].tolist())
            else:
                found.extend([valid] * size)
    assert found == is_element[start : start + count].tolist()


def geometry_mask(geometry: Geometry) -> npt.NDArray[np.bool_]:
    """Which stored elements `to_logical` keeps."""
    kept = geometry.to_logical(np.arange(geometry.stored_count))
    mask = np.zeros(geometry.stored_count, np.bool_)
    mask[kept.reshape(-1)] = True
    return mask


def test_the_rows_of_a_vector_stored_as_a_matrix() -> None:
    geometry = plan_geometry("FRACTAL_NZ", (3, 2, 4, 8), (19,))
    assert np.flatnonzero(geometry_mask(geometry)).tolist() == [
        *range(8),
        *range(64, 72),
        *range(128, 131),
    ]
    values = np.full(192, np.nan, np.float32)
    values[geometry_mask(geometry)] = np.arange(19)
    stats = measure(StreamedBytes(values.tobytes()), dtype_named("float32"), geometry).stats
    assert (stats.count, stats.nan, stats.max, stats.padding_nonfinite) == (19, 0, 18.0, 173)


@pytest.mark.parametrize("rows", [7, 4096, 5000])
def test_rows_longer_than_a_piece(rows: int) -> None:
    """One block of FRACTAL_NZ whose last dimension is long: 3 of 5 rows, part of the columns."""
    values = np.random.default_rng(rows).standard_normal((1, 5, rows)).astype(np.float16)
    values[0, 1, 2], values[0, 3:, :], values[0, :, rows - 2 :] = np.nan, np.inf, np.nan
    geometry = plan_geometry("FRACTAL_NZ", (1, 1, 5, rows), (3, rows - 2))
    stats = measure(StreamedBytes(values.tobytes()), dtype_named("float16"), geometry).stats
    assert (stats.count, stats.nan, stats.posinf) == (3 * (rows - 2), 1, 0)
    assert stats.first_bad == (1, 2)
    assert stats.padding_nonfinite == 2 * rows + 3 * 2
    inside = values[0, :3, : rows - 2].astype(np.float64)
    assert stats.max == np.nanmax(inside)
    assert stats.mean == pytest.approx(np.nanmean(inside), abs=1e-12)


def test_shapes_larger_than_any_memory() -> None:
    values = np.array([1, 2, 3, np.nan], np.float16).tobytes()
    flat = measure(StreamedBytes(values), dtype_named("float16"), plain((2**40, 2**40))).stats
    assert (flat.count, flat.first_bad, flat.bad_box) == (4, (0, 3), ((0, 0), (3, 3)))
    geometry = plan_geometry("NC1HWC0", (3, 2**50, 2**40, 2**40, 2), (3, 2**51 - 1, 2**40, 2**40))
    assert geometry.padded
    blocked = measure(StreamedBytes(values), dtype_named("float16"), geometry).stats
    assert (blocked.count, blocked.first_bad) == (4, (0, 1, 0, 1))
    long_row = plan_geometry("FRACTAL_NZ", (1, 1, 1, 2**60), (1, 3))
    cut = measure(StreamedBytes(values), dtype_named("float16"), long_row).stats
    assert (cut.count, cut.nan, cut.padding_nonfinite) == (3, 0, 1)


def test_a_large_bad_tensor_takes_little_memory() -> None:
    content = np.full(8 << 20, np.nan, np.float16).tobytes()
    geometry = plan_geometry("FRACTAL_NZ", (64, 512, 16, 16), (8190, 1023))
    tracemalloc.start()
    try:
        flat = measure(StreamedBytes(content), dtype_named("float16"), plain((2048, 4096)))
        blocked = measure(StreamedBytes(content), dtype_named("float16"), geometry)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 12 << 20
    assert flat.stats.bad_box == ((0, 2047), (0, 4095))
    assert flat.digest is None
    assert blocked.stats.nan == 8190 * 1023
    assert blocked.stats.bad_box == ((0, 8189), (0, 1022))
    assert blocked.stats.padding_nonfinite == (8 << 20) - 8190 * 1023


def test_exponents_leave_padding_out() -> None:
    geometry = plan_geometry("FRACTAL_NZ", (1, 1, 2, 2), (1, 2))
    raw = np.array([1, 2, 64, 64], np.float32).tobytes()
    assert exponent_histogram(StreamedBytes(raw), dtype_named("float32"), geometry) == [
        (0, 1),
        (1, 1),
    ]
    assert exponent_histogram(StreamedBytes(raw), dtype_named("undefined"), geometry) == []


def test_the_first_index_may_come_last_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    # Weights lie channel block by channel block: (0, 4, 2, 1) behind all the others.
    bad = [(0, 5, 0, 0), (1, 0, 0, 0), (0, 5, 0, 1), (1, 3, 2, 0), (0, 4, 2, 1)]
    logical = np.zeros((2, 6, 3, 2), np.float32)
    logical[tuple(np.array(bad).T)] = np.nan
    stored, shape = blocked_arrays.fractal_z(logical, "NCHW", 2, 8, np.float32(0))
    geometry = plan_geometry("FRACTAL_Z", shape, logical.shape)
    for piece in (8, 16, 1 << 16):
        monkeypatch.setattr(elements, "_PIECE", piece)
        stats = measure(StreamedBytes(stored.tobytes()), dtype_named("float32"), geometry).stats
        assert stats.first_bad == (0, 4, 2, 1)
        assert stats.bad_box == ((0, 1), (0, 5), (0, 2), (0, 1))


@pytest.mark.parametrize("level", ["screen", "full"])
@pytest.mark.parametrize("padding_value", [0.0, 3.0, -3.0, np.nan])
@pytest.mark.parametrize(("low", "high"), [(-2.0, -1.0), (1.0, 2.0), (-1.0, 0.0), (0.0, 1.0)])
def test_extremes_are_those_of_elements(
    level: StatsLevel, padding_value: float, low: float, high: float
) -> None:
    logical = np.linspace(low, high, 2 * 5 * 7).astype(np.float16).reshape(2, 5, 7)
    stored, shape = blocked_arrays.fractal_nz(logical, 4, 4, np.float16(padding_value))
    geometry = plan_geometry("FRACTAL_NZ", shape, logical.shape)
    data = StreamedBytes(stored.tobytes(), 32)
    stats = measure(data, dtype_named("float16"), geometry, level=level).stats
    assert (stats.count, stats.min, stats.max) == (70, low, high)
    assert stats.padding_nonfinite == (stored.size - 70) * math.isnan(padding_value)
