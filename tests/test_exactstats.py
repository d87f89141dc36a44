"""Sums over large tensors, in many blocks, against longer floats."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dumpscope.dtypes import dtype_named
from dumpscope.layouts import plain
from dumpscope.model import StatsLevel
from dumpscope.stats.measuring import measure
from streamed_bytes import StreamedBytes


@pytest.mark.parametrize("level", ["screen", "full"])
@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64", "int32", "uint8"])
def test_large_tensors_in_many_blocks(name: str, level: StatsLevel) -> None:
    random = np.random.default_rng(5)
    values = random.standard_normal(700_001) * 3 + 40
    exact = values.astype(dtype_named(name).numpy)
    wide = exact.astype(np.longdouble)
    streamed = StreamedBytes(exact.tobytes(), 1 << 18)
    stats = measure(streamed, dtype_named(name), plain(exact.shape), level=level).stats
    assert stats.count == 700_001
    assert stats.min == float(wide.min())
    assert stats.max == float(wide.max())
    assert stats.near_limit == 0
    if level == "full":
        assert stats.mean == pytest.approx(float(wide.mean()), rel=1e-13, abs=0)
        assert stats.std == pytest.approx(float(wide.std()), rel=1e-12, abs=0)
        assert stats.rms == pytest.approx(float(np.sqrt((wide**2).mean())), rel=1e-13, abs=0)
        assert stats.l2 == pytest.approx(float(np.sqrt((wide**2).sum())), rel=1e-13, abs=0)
    else:
        assert streamed.blocks_read == -(-exact.nbytes // (1 << 18))


def test_a_small_spread_far_from_zero() -> None:
    values = 1e9 + np.random.default_rng(0).standard_normal(300_000)
    stats = measure(
        StreamedBytes(values.tobytes()), dtype_named("float64"), plain(values.shape), level="full"
    ).stats
    assert stats.std == pytest.approx(float(values.astype(np.longdouble).std()), rel=1e-9, abs=0)


def test_float64_beyond_the_square_root_of_its_range() -> None:
    values = np.concatenate([np.full(9000, 1e300), np.full(9000, -1e300), np.full(9000, 1e-300)])
    stats = measure(
        StreamedBytes(values.tobytes()), dtype_named("float64"), plain(values.shape), level="full"
    ).stats
    assert stats.rms == pytest.approx(1e300 * math.sqrt(2 / 3), rel=1e-12, abs=0)
    assert stats.std == pytest.approx(1e300 * math.sqrt(2 / 3), rel=1e-12, abs=0)
    assert stats.mean == pytest.approx(0.0, abs=1e287)
    tiny = np.repeat([0.0, 1e-300, 0.0], 70_000)
    stats = measure(
        StreamedBytes(tiny.tobytes()), dtype_named("float64"), plain(tiny.shape), level="full"
    ).stats
    assert stats.rms == pytest.approx(1e-300 / math.sqrt(3), rel=1e-12, abs=0)
    assert stats.mean == pytest.approx(1e-300 / 3, rel=1e-12, abs=0)
    assert stats.std == pytest.approx(1e-300 * math.sqrt(2) / 3, rel=1e-12, abs=0)
    tiny = np.full(10_000, 1e-300)
    stats = measure(
        StreamedBytes(tiny.tobytes()), dtype_named("float64"), plain(tiny.shape), level="full"
    ).stats
    assert stats.rms == pytest.approx(1e-300, rel=1e-12, abs=0)
    assert stats.l2 == pytest.approx(1e-298, rel=1e-12, abs=0)
