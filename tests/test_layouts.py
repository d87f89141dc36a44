"""Layouts: names, logical shapes, and rearranging against arrays built element by element."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import blocked_arrays
from dumpscope.errors import CorruptDumpError
from dumpscope.layouts import Geometry, groups_of, layout_name, plain, plan_geometry

NAMES = {
    0: "NCHW",
    1: "NHWC",
    2: "ND",
    3: "NC1HWC0",
    4: "FRACTAL_Z",
    9: "C1HWNC0",
    12: "NC1HWC0_C04",
    13: "FRACTAL_Z_C04",
    16: "HWCN",
    19: "FILTER_HWCK",
    20: "HASHTABLE_LOOKUP_LOOKUPS",
    24: "HASHTABLE_LOOKUP_HITS",
    25: "C1HWNCoC0",
    27: "NDHWC",
    29: "FRACTAL_NZ",
    30: "NCDHW",
    31: "DHWCN",
    32: "NDC1HWC0",
    33: "FRACTAL_Z_3D",
    36: "DHWNC",
    40: "RESERVED",
    42: "NULL",
    44: "FRACTAL_ZN_RNN",
    47: "NCL",
    49: "C1HWC0",
    50: "FRACTAL_NZ_C0_16",
    54: "FRACTAL_NZ_C0_8",
}


@pytest.mark.parametrize(("code", "name"), NAMES.items())
def test_codes_have_ge_names(code: int, name: str) -> None:
    assert layout_name(code) == name
    assert layout_name(0x5000400 | code) == name


def test_an_unknown_code_is_shown_as_its_number() -> None:
    assert layout_name(55) == "format55"
    assert layout_name(0x1FF) == "format255"


def test_groups_are_bits_8_to_23() -> None:
    assert groups_of(29 | 4 << 8) == 4
    assert groups_of(4 | 0xFFFF << 8 | 5 << 24) == 0xFFFF
    assert groups_of(29) == 0


def check(geometry: Geometry, stored: np.ndarray, logical: np.ndarray) -> None:
    """The stored elements come back as the logical array, and the padding is accounted for."""
    assert geometry.shape == logical.shape
    assert geometry.count == logical.size
    assert geometry.stored_count == stored.size
    assert geometry.padded == (stored.size > logical.size)
    np.testing.assert_array_equal(geometry.to_logical(stored), logical)


def numbered(shape: tuple[int, ...]) -> np.ndarray:
    return np.arange(math.prod(shape), dtype=np.int64).reshape(shape)


@pytest.mark.parametrize("axes", ["NCHW", "NHWC", "HWCN"])
@pytest.mark.parametrize("c0", [16, 4])
def test_nc1hwc0(axes: str, c0: int) -> None:
    size = {"N": 2, "C": 21, "H": 3, "W": 5}
    logical = numbered(tuple(size[axis] for axis in axes))
    stored, shape = blocked_arrays.nc1hwc0(logical, axes, c0, -1)
    geometry = plan_geometry("NC1HWC0", shape, logical.shape)
    assert geometry.notes == ()
    assert geometry.blocked
    check(geometry, stored, logical)


@pytest.mark.parametrize("axes", ["NCDHW", "NDHWC", "DHWCN"])
def test_ndc1hwc0(axes: str) -> None:
    size = {"N": 2, "D": 4, "C": 9, "H": 3, "W": 5}
    logical = numbered(tuple(size[axis] for axis in axes))
    stored, shape = blocked_arrays.ndc1hwc0(logical, axes, 8, -1)
    check(plan_geometry("NDC1HWC0", shape, logical.shape), stored, logical)


@pytest.mark.parametrize("axes", ["NCHW", "NHWC", "HWCN"])
def test_fractal_z(axes: str) -> None:
    size = {"N": 20, "C": 35, "H": 3, "W": 2}
    logical = numbered(tuple(size[axis] for axis in axes))
    stored, shape = blocked_arrays.fractal_z(logical, axes, 16, 16, -1)
    assert shape == (18, 2, 16, 16)
    check(plan_geometry("FRACTAL_Z", shape, logical.shape, origin_layout=axes), stored, logical)


@pytest.mark.parametrize("axes", ["NCDHW", "NDHWC", "DHWCN"])
def test_fractal_z_3d(axes: str) -> None:
    size = {"N": 5, "D": 2, "C": 7, "H": 3, "W": 2}
    logical = numbered(tuple(size[axis] for axis in axes))
    stored, shape = blocked_arrays.fractal_z(logical, axes, 4, 4, -1)
    check(plan_geometry("FRACTAL_Z_3D", shape, logical.shape, origin_layout=axes), stored, logical)


@pytest.mark.parametrize("shape", [(37, 50), (3, 37, 50), (2, 1, 3, 16, 32), (1, 1), (7,)])
@pytest.mark.parametrize("layout", ["FRACTAL_NZ", "FRACTAL_NZ_C0_8"])
def test_fractal_nz(shape: tuple[int, ...], layout: str) -> None:
    logical = numbered(shape)
    matrices = logical if len(shape) > 1 else logical.reshape(1, -1)
    stored, stored_shape = blocked_arrays.fractal_nz(matrices, 16, 8, -1)
    check(plan_geometry(layout, stored_shape, shape), stored, logical)


def test_leading_ones_may_be_missing_on_either_side() -> None:
    logical = numbered((3, 5))
    stored, shape = blocked_arrays.fractal_nz(logical, 4, 4, -1)
    check(plan_geometry("FRACTAL_NZ", (1, 1, *shape), (3, 5)), stored, logical)
    check(plan_geometry("FRACTAL_NZ", shape, (1, 1, 3, 5)), stored, logical.reshape(1, 1, 3, 5))


@pytest.mark.parametrize("shape", [(20,), (3, 20)])
def test_channels_and_batches_alone_in_nc1hwc0(shape: tuple[int, ...]) -> None:
    logical = numbered(shape)
    whole = logical.reshape((-1, 20, 1, 1))
    stored, stored_shape = blocked_arrays.nc1hwc0(whole, "NCHW", 16, -1)
    check(plan_geometry("NC1HWC0", stored_shape, shape), stored, logical)


def test_ambiguous_axes_follow_the_origin_layout_then_nchw() -> None:
    # 4 by 4 images of 4 batches: the shape (4, 4, 4, 4) says nothing about its order.
    logical = numbered((4, 4, 4, 4))
    stored, shape = blocked_arrays.nc1hwc0(logical, "NHWC", 16, -1)
    told = plan_geometry("NC1HWC0", shape, (4, 4, 4, 4), origin_layout="NHWC")
    check(told, stored, logical)
    assert "taken as NHWC" in told.notes[0]
    guessed = plan_geometry("NC1HWC0", shape, (4, 4, 4, 4))
    assert "taken as NCHW" in guessed.notes[0]
    np.testing.assert_array_equal(guessed.to_logical(stored), logical.transpose(0, 3, 1, 2))
    # An origin layout that the numbers contradict decides nothing.
    odd = plan_geometry("NC1HWC0", (2, 1, 5, 7, 16), (2, 3, 5, 7), origin_layout="NHWC")
    assert odd.notes == ()
    assert odd.merges == ((0,), (1, 4), (2,), (3,))


def test_axes_of_length_one_are_no_ambiguity() -> None:
    assert plan_geometry("NC1HWC0", (1, 1, 1, 1, 16), (1, 1, 1, 1)).notes == ()
    assert plan_geometry("NC1HWC0", (5, 1, 1, 1, 16), (5, 1, 1, 1)).notes == ()


def test_a_tight_fit_beats_a_loose_one() -> None:
    # NHWC would need one block of 16 channels for its 4, NCHW two for its 20.
    geometry = plan_geometry("NC1HWC0", (2, 2, 4, 20, 16), (2, 20, 4, 20))
    assert geometry.merges == ((0,), (1, 4), (2,), (3,))
    assert geometry.notes == ()


def test_a_blocked_tensor_without_original_shape_is_logical_as_it_is() -> None:
    stored = numbered((2, 2, 3, 3, 16)).reshape(-1)
    for original in (None, ()):
        geometry = plan_geometry("NC1HWC0", (2, 2, 3, 3, 16), original)
        assert not geometry.blocked
        assert not geometry.padded
        assert "padding is unknown" in geometry.notes[0]
        assert geometry.to_logical(stored).shape == (2, 2, 3, 3, 16)


@pytest.mark.parametrize("layout", ["FRACTAL_Z", "FRACTAL_Z_3D"])
def test_groups_are_kept_raw(layout: str) -> None:
    original = (20, 35, 3, 2) if layout == "FRACTAL_Z" else (20, 35, 1, 3, 2)
    assert plan_geometry(layout, (18, 2, 16, 16), original, groups=1).blocked
    raw = plan_geometry(layout, (18, 2, 16, 16), original, groups=4)
    assert (raw.blocked, raw.shape) == (False, (18, 2, 16, 16))
    assert "4 groups" in raw.notes[0]


def test_a_sub_format_says_nothing_about_other_layouts() -> None:
    assert plan_geometry("FRACTAL_NZ", (4, 3, 16, 16), (37, 50), groups=4).blocked


@pytest.mark.parametrize(
    ("layout", "stored", "original"),
    [
        ("NC1HWC0", (2, 2, 3, 3, 16), (2, 33, 3, 3)),
        ("NC1HWC0", (2, 2, 3, 3, 16), (2, 3, 3)),
        ("NC1HWC0", (2, 2, 3, 3), (2, 20, 3, 3)),
        ("NC1HWC0", (2, 2, 3, 3, 16), (3, 20, 3, 3)),
        ("FRACTAL_NZ", (4, 3, 16, 16), (2, 37, 50)),
        ("FRACTAL_NZ", (4, 3, 16, 16), (49, 50)),
        ("FRACTAL_NZ", (3, 16, 16), (37, 50)),
        ("FRACTAL_Z", (17, 2, 16, 16), (20, 35, 3, 2)),
        ("FRACTAL_Z", (18, 2, 16, 16), (33, 35, 3, 2)),
        ("NDC1HWC0", (2, 4, 2, 3, 5, 8), (2, 4, 9, 3)),
        ("FRACTAL_Z_3D", (24, 2, 4), (5, 7, 2, 3, 2)),
    ],
)
def test_shapes_that_contradict_each_other_are_shown_raw(
    layout: str, stored: tuple[int, ...], original: tuple[int, ...]
) -> None:
    geometry = plan_geometry(layout, stored, original)
    assert (geometry.blocked, geometry.shape) == (False, stored)
    assert "does not fit" in geometry.notes[0]


def test_other_layouts_are_taken_as_they_are() -> None:
    for layout in ("ND", "NHWC", "C1HWNC0", "FRACTAL_Z_C04", "format99"):
        geometry = plan_geometry(layout, (2, 3, 4), (2, 4, 3))
        assert geometry == plain((2, 3, 4), layout)


def test_scalars_and_empty_tensors() -> None:
    scalar = plain(())
    assert (scalar.count, scalar.stored_count, scalar.shape) == (1, 1, ())
    assert scalar.to_logical(np.array([7])).shape == ()
    empty = plain((3, 0, 2))
    assert empty.count == 0
    assert empty.to_logical(np.array([])).shape == (3, 0, 2)
    blocked = plan_geometry("NC1HWC0", (0, 2, 3, 3, 16), (0, 20, 3, 3))
    assert blocked.to_logical(np.array([])).shape == (0, 20, 3, 3)


huge = st.integers(0, 2**64) | st.integers(0, 40)


@given(
    st.sampled_from(["ND", "NC1HWC0", "FRACTAL_NZ", "FRACTAL_Z", "NDC1HWC0", "FRACTAL_Z_3D"]),
    st.lists(huge, max_size=8),
    st.lists(huge, max_size=8),
    st.integers(0, 2**16),
)
def test_no_shape_is_an_error_or_an_allocation(
    layout: str, stored: list[int], original: list[int], groups: int
) -> None:
    geometry = plan_geometry(layout, stored, original, groups=groups)
    assert geometry.stored_shape == tuple(stored)
    assert geometry.stored_count == math.prod(stored)
    assert geometry.shape in (tuple(stored), tuple(original))
    assert geometry.count <= geometry.stored_count or not geometry.blocked


def test_more_dimensions_than_an_array_has() -> None:
    with pytest.raises(CorruptDumpError, match="cannot take the shape"):
        plain((1,) * 100).to_logical(np.zeros(1))


@given(
    st.sampled_from(["NCHW", "NHWC", "HWCN"]),
    st.tuples(*[st.integers(1, 6)] * 4),
    st.sampled_from([1, 2, 4]),
    st.booleans(),
)
def test_any_small_shape_of_images(
    axes: str, shape: tuple[int, ...], c0: int, weights: bool
) -> None:
    logical = numbered(shape)
    if weights:
        stored, stored_shape = blocked_arrays.fractal_z(logical, axes, 2, c0, -1)
    else:
        stored, stored_shape = blocked_arrays.nc1hwc0(logical, axes, c0, -1)
    layout = "FRACTAL_Z" if weights else "NC1HWC0"
    geometry = plan_geometry(layout, stored_shape, shape, origin_layout=axes)
    # The numbers may leave the order open, or favour another one; what is told decides.
    if not geometry.notes or f"taken as {axes}" in geometry.notes[0]:
        found = geometry.to_logical(stored)
        assert found.shape == shape
        if not geometry.notes and _reads_otherwise(axes, geometry):
            return
        np.testing.assert_array_equal(found, logical)


def _reads_otherwise(axes: str, geometry: Geometry) -> bool:
    """A tighter fit of other axes than the true ones: possible only for tiny blocks."""
    split = geometry.split_shape
    assert split is not None
    names = {"NC1HWC0": {(0,): "N", (1, 4): "C", (2,): "H", (3,): "W"}}.get(
        geometry.layout, {(3, 4): "N", (0, 5): "C", (1,): "H", (2,): "W"}
    )
    read = "".join(names[parts] for parts in geometry.merges)
    return any(a != b and size > 1 for a, b, size in zip(read, axes, geometry.shape, strict=True))
