"""Masks: which tensors look like one, and the digest that broadcasting does not change."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

import blocked_arrays
from dumpscope.dtypes import dtype_named
from dumpscope.layouts import plain, plan_geometry
from dumpscope.model import MaskPattern
from dumpscope.stats import inspection, maskbits
from dumpscope.stats.measuring import measure
from streamed_bytes import StreamedBytes

F32_MIN = float.fromhex("-0x1.fffffep127")
BF16_MIN = float.fromhex("-0x1.fep127")


def mask_of(
    values: npt.NDArray[Any], name: str, shape: tuple[int, ...] | None = None
) -> MaskPattern | None:
    geometry = plain(values.shape if shape is None else shape)
    return measure(StreamedBytes(values.tobytes()), dtype_named(name), geometry).stats.mask


def digest_of_pattern(pattern: npt.NDArray[np.bool_]) -> str:
    mask = mask_of(np.where(pattern, -np.inf, 1.5).astype(np.float32), "float32")
    assert mask is not None
    assert mask.digest is not None
    return mask.digest


def reduced(pattern: npt.NDArray[np.bool_]) -> tuple[tuple[int, ...], bytes]:
    """The pattern without the axes along which it does not change."""
    for axis in reversed(range(pattern.ndim)):
        first = pattern.take([0], axis)
        if (pattern == first).all():
            pattern = first.squeeze(axis)
    return pattern.shape, pattern.tobytes()


CAUSAL = np.triu(np.ones((16, 16), np.bool_), 1)


def test_a_mask_and_the_scores_it_was_added_to_agree() -> None:
    scores = np.random.default_rng(0).standard_normal((2, 3, 16, 16)).astype(np.float16)
    scores[:, :, CAUSAL] = -np.inf
    found = mask_of(scores, "float16")
    mask = mask_of(np.where(CAUSAL, -np.inf, 0.0).astype(np.float32)[None, None], "float32")
    assert found is not None
    assert mask is not None
    assert (found.value, found.count) == (-np.inf, 6 * 120)
    assert mask.count == 120
    assert found.digest == mask.digest
    scores[1, 2, 0, 0] = -np.inf
    assert mask_of(scores, "float16") != found
    assert digest_of_pattern(CAUSAL.T) != mask.digest


def test_masked_keys_are_the_same_wherever_they_are_broadcast() -> None:
    keys = np.array([0, 0, 1, 1, 0, 1, 0], np.bool_)
    wide = np.broadcast_to(keys, (2, 3, 5, 7))
    assert digest_of_pattern(wide) == digest_of_pattern(keys)
    by_batch = np.zeros((4, 1, 1, 9), np.bool_)
    by_batch[1, ..., 5:] = True
    assert digest_of_pattern(np.broadcast_to(by_batch, (4, 2, 3, 9))) == digest_of_pattern(by_batch)
    assert digest_of_pattern(by_batch) != digest_of_pattern(by_batch.swapaxes(0, 3))


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple),
    st.integers(0, 2**32),
    st.sampled_from([8, 16, 64, 1 << 20]),
)
def test_digests_are_equal_when_the_reduced_patterns_are(
    shape: tuple[int, ...], seed: int, chunk_bits: int
) -> None:
    random = np.random.default_rng(seed)
    patterns = []
    for _ in range(3):
        kept = tuple(dim if random.random() < 0.6 else 1 for dim in shape)
        patterns.append(np.broadcast_to(random.random(kept) < 0.5, shape).copy())
        patterns[-1].reshape(-1)[0] = True
    with pytest.MonkeyPatch.context() as patch:
        # Small chunks take the ways that large tensors take, and change nothing.
        patch.setattr(maskbits, "_CHUNK_BITS", chunk_bits)
        digests = [digest_of_pattern(pattern) for pattern in patterns]
        patch.undo()
        assert digests == [digest_of_pattern(pattern) for pattern in patterns]
    for i, first in enumerate(patterns):
        for j, second in enumerate(patterns):
            assert (digests[i] == digests[j]) == (reduced(first) == reduced(second))


@pytest.mark.parametrize(
    ("name", "scalar", "value", "expected"),
    [
        ("float16", np.float16, -65504, -65504.0),
        ("bfloat16", ml_dtypes.bfloat16, BF16_MIN, BF16_MIN),
        ("bfloat16", ml_dtypes.bfloat16, -3.39e38, BF16_MIN),
        ("bfloat16", ml_dtypes.bfloat16, -65504, -65536.0),
        ("float32", np.float32, -65504, -65504.0),
        ("float32", np.float32, BF16_MIN, BF16_MIN),
        ("float32", np.float32, -3.39e38, float(np.float32(-3.39e38))),
        ("float32", np.float32, -3.40e38, float(np.float32(-3.40e38))),
        ("float32", np.float32, F32_MIN, F32_MIN),
        ("float64", np.float64, F32_MIN, F32_MIN),
        ("float64", np.float64, -3.40e38, -3.40e38),
        ("float64", np.float64, float(np.float32(-3.40e38)), float(np.float32(-3.40e38))),
        ("float64", np.float64, float.fromhex("-0x1.fffffffffffffp1023"), -1.7976931348623157e308),
        ("float8_e5m2", ml_dtypes.float8_e5m2, -57344, -57344.0),
        ("float8_e4m3fn", ml_dtypes.float8_e4m3fn, -448, -448.0),
    ],
)
def test_constants_that_stand_for_masked_out(
    name: str, scalar: type, value: float, expected: float
) -> None:
    values: npt.NDArray[Any] = np.array([1, value, 2, value, 3], np.float64).astype(scalar)
    mask = mask_of(values, name)
    assert mask is not None
    assert (mask.value, mask.count) == (expected, 2)
    pattern = np.array([0, 1, 0, 1, 0], np.bool_)
    assert mask.digest == digest_of_pattern(pattern)


def test_hifloat8_has_its_own() -> None:
    mask = mask_of(np.array([0x08, 0xEE, 0x10], np.uint8), "hifloat8")
    assert mask == MaskPattern(-32768.0, 1, digest_of_pattern(np.array([False, True, False])))
    mask = mask_of(np.array([0x08, 0xEF, 0xEE], np.uint8), "hifloat8")
    assert mask == MaskPattern(-np.inf, 1, digest_of_pattern(np.array([False, True, False])))


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ([1, -65503, 2], "float32"),
        ([1, -65504, -65505], "float32"),
        ([1, -1e4, 2], "float16"),
        ([1, 65504, 2], "float16"),
        ([1, -np.inf, np.inf], "float16"),
        ([1, -np.inf, np.nan], "float32"),
        ([1, -65504, np.nan], "float32"),
        ([1, -57344, 2], "float16"),
        ([-448, 2, 448], "float8_e4m3fn"),
    ],
)
def test_what_is_no_mask(values: list[float], name: str) -> None:
    array = np.array(values, np.float64).astype(dtype_named(name).numpy)
    assert mask_of(array, name) is None


def test_integers_and_complex_numbers_hold_no_mask() -> None:
    assert mask_of(np.array([-65504, 1], np.int32), "int32") is None
    assert mask_of(np.array([complex(-np.inf, 0)], np.complex64), "complex64") is None


def test_positions_in_a_blocked_tensor_are_logical() -> None:
    pattern = np.random.default_rng(3).random((3, 5, 7)) < 0.4
    values = np.where(pattern, -65504.0, 1.0).astype(np.float32)
    stored, shape = blocked_arrays.fractal_nz(values, 4, 4, np.float32(-65504))
    geometry = plan_geometry("FRACTAL_NZ", shape, (3, 5, 7))
    assert geometry.padded
    for level in ("screen", "full"):
        data = StreamedBytes(stored.tobytes())
        mask = measure(data, dtype_named("float32"), geometry, level=level).stats.mask
        assert mask == MaskPattern(-65504.0, int(pattern.sum()), digest_of_pattern(pattern))


def test_no_digest_of_incomplete_or_enormous_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.array([1, -np.inf, 2, 3], np.float32)
    assert mask_of(values, "float32", (5,)) == MaskPattern(-np.inf, 1, None)
    assert mask_of(values, "float32", (4,)) is not None
    monkeypatch.setattr(inspection, "MASK_ELEMENTS_MAX", 3)
    assert mask_of(values, "float32", (4,)) == MaskPattern(-np.inf, 1, None)


def test_a_pattern_of_many_pieces() -> None:
    pattern = np.random.default_rng(1).random((300, 1000)) < 0.1
    wide = np.broadcast_to(pattern, (2, 300, 1000))
    assert digest_of_pattern(wide) == digest_of_pattern(pattern)
    assert digest_of_pattern(wide.reshape(600, 1000)) != digest_of_pattern(pattern)
