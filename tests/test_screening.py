"""What is screened in one call gives what the long way gives, or nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dumpscope import kernel
from dumpscope.dtypes import dtype_named
from dumpscope.layouts import Geometry, plain, plan_geometry
from dumpscope.readers.protocol import MemoryData
from dumpscope.stats.floatcodes import FLOAT_CODES
from dumpscope.stats.measuring import measure
from dumpscope.stats.screening import SMALL_BYTES, screen_small

pytestmark = pytest.mark.skipif(
    kernel.screen_floats is None, reason="the C kernel is not built, so all go the long way"
)


def content_of(name: str, values: list[float]) -> bytes:
    with np.errstate(over="ignore", invalid="ignore"):
        return np.array(values, np.float64).astype(FLOAT_CODES[name].numpy).tobytes()


@settings(deadline=None, max_examples=150)
@given(
    st.sampled_from([*kernel.FLOAT_TYPES, "float8_e5m2"]),
    st.lists(
        st.floats(-3, 3)
        | st.sampled_from([0.0, -0.0, 65504.0, -65504.0, 6e4, 3e38, np.inf, -np.inf, np.nan]),
        min_size=1,
        max_size=12,
    ),
    st.sampled_from([0.5, 0.9]),
)
def test_it_gives_what_measure_gives(name: str, values: list[float], share: float) -> None:
    data = MemoryData(content_of(name, values))
    geometry = plain((len(values),))
    expected = measure(data, dtype_named(name), geometry, near_limit_share=share).stats
    found = screen_small(data, name, geometry, share)
    if found is None:
        usual = name in kernel.FLOAT_TYPES and all(abs(value) <= 3 for value in values)
        assert not usual
    else:
        assert found == expected


def test_shares_are_told_apart() -> None:
    geometry = plain((2,))
    data = MemoryData(content_of("float16", [40000.0, 1.0]))
    assert screen_small(data, "float16", geometry, 0.9) is not None
    assert screen_small(data, "float16", geometry, 0.5) is None
    assert screen_small(data, "float16", geometry, 0.9) is not None


@pytest.mark.parametrize(
    ("name", "geometry", "nbytes"),
    [
        ("float16", plain((3,)), 5),
        ("float16", plain((0,)), 0),
        ("float16", plain((SMALL_BYTES,)), 2 * SMALL_BYTES),
        ("int32", plain((3,)), 12),
        ("string", plain((3,)), 12),
        ("dtype77", plain((3,)), 12),
        ("float16", plan_geometry("FRACTAL_NZ", (1, 1, 16, 16), (3, 5)), 512),
    ],
    ids=["truncated", "empty", "large", "integers", "strings", "unknown", "padded"],
)
def test_others_go_the_long_way(name: str, geometry: Geometry, nbytes: int) -> None:
    assert screen_small(MemoryData(bytes(nbytes)), name, geometry, 0.9) is None


def test_padding_at_the_end_is_not_looked_at() -> None:
    data = MemoryData(content_of("float32", [1.0, -2.0, np.nan]))
    found = screen_small(data, "float32", plain((2,)), 0.9)
    assert found is not None
    assert (found.count, found.min, found.max, found.nan) == (2, -2.0, 1.0, 0)
