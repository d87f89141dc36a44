"""Data types: codes, labels, limits, and decoding against bit-by-bit readings."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive_numbers
from dumpscope.decoding import decode
from dumpscope.dtypes import dtype_named, dtype_of_code, dtype_of_label
from dumpscope.errors import TruncatedDumpError, UnsupportedDtypeError

_CODES = """
undefined float32 float16 int8 uint8 int16 uint16 int32 int64 uint32 uint64 bool float64 string
dual_sub_int8 dual_sub_uint8 complex64 complex128 qint8 qint16 qint32 quint8 quint16 resource
string_ref dual variant bfloat16 int4 uint1 int2 uint2 complex32 hifloat8 float8_e5m2
float8_e4m3fn float8_e8m0fnu float6_e3m2fn float6_e2m3fn float4_e2m1fn float4_e1m2 hifloat4
hifloat4_scale
"""
CODES = _CODES.split()


def same(found: Any, expected: float | complex) -> bool:
    """Equal, with NaN equal to NaN and zeros told apart by their signs where floats have them."""
    if isinstance(expected, complex):
        value = complex(found)
        return same(value.real, expected.real) and same(value.imag, expected.imag)
    number = float(found)
    if math.isnan(expected):
        return math.isnan(number)
    if isinstance(expected, int):
        return int(found) == expected
    return number == expected and math.copysign(1, number) == math.copysign(1, expected)


def test_every_code_of_ge_has_its_name() -> None:
    assert [dtype_of_code(code).name for code in range(43)] == CODES


@pytest.mark.parametrize("code", [43, 99, 2**31 - 1, -1])
def test_an_unknown_code_is_shown_as_its_number(code: int) -> None:
    dtype = dtype_of_code(code)
    assert (dtype.name, dtype.kind, dtype.bits) == (f"dtype{code}", "opaque", 0)


@pytest.mark.parametrize("name", naive_numbers.ALL)
def test_width_kind_and_limit(name: str) -> None:
    dtype = dtype_named(name)
    assert dtype.name == name
    assert dtype.bits == naive_numbers.bits_of(name)
    assert dtype.limit == naive_numbers.LIMITS.get(name)
    assert dtype.saturates == (name in naive_numbers.SATURATING)
    assert dtype.packed == (dtype.bits < 8)
    expected = "float" if name in naive_numbers.REAL_FLOATS else "complex"
    if name not in naive_numbers.REAL_FLOATS and name not in naive_numbers.COMPLEX:
        signed = name in naive_numbers.INTEGERS and naive_numbers.INTEGERS[name][1]
        expected = "bool" if name == "bool" else "int" if signed else "uint"
    assert dtype.kind == expected


@pytest.mark.parametrize(
    ("name", "count", "nbytes"),
    [
        ("float16", 3, 6),
        ("int4", 63, 32),
        ("int4", 64, 32),
        ("uint1", 9, 2),
        ("int2", 5, 2),
        ("float6_e3m2fn", 4, 3),
        ("float6_e3m2fn", 5, 4),
        ("complex32", 2, 8),
        ("complex128", 2**62, 2**66),
        ("undefined", 7, 0),
    ],
)
def test_bytes_of_a_number_of_elements(name: str, count: int, nbytes: int) -> None:
    assert dtype_named(name).nbytes(count) == nbytes


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("DT_FLOAT", "float32"),
        ("DT_FLOAT16", "float16"),
        ("DT_BF16", "bfloat16"),
        ("DT_DOUBLE", "float64"),
        ("DT_BOOL", "bool"),
        ("DT_INT8", "int8"),
        ("DT_UINT64", "uint64"),
        ("DT_HIFLOAT8", "hifloat8"),
        ("DT_FLOAT8_E5M2", "float8_e5m2"),
        ("DT_FLOAT8_E4M3FN", "float8_e4m3fn"),
        ("DT_FLOAT8_E8M0", "float8_e8m0fnu"),
        ("DT_FLOAT6_E3M2", "float6_e3m2fn"),
        ("DT_FLOAT6_E2M3", "float6_e2m3fn"),
        ("DT_FLOAT4_E2M1", "float4_e2m1fn"),
        ("DT_FLOAT4_E1M2", "float4_e1m2"),
        ("DT_COMPLEX32", "complex32"),
        ("DT_DUAL_SUB_UINT8", "dual_sub_uint8"),
        ("DT_QUINT16", "quint16"),
        ("DT_STRING", "string"),
        ("DT_RESOURCE", "resource"),
        ("DT_UNDEFINED", "undefined"),
        ("Float32", "float32"),
        ("Float64", "float64"),
        ("BFloat16", "bfloat16"),
        ("Int32", "int32"),
        ("UInt8", "uint8"),
        ("Bool", "bool"),
        ("Complex64", "complex64"),
        ("Number[Float16]", "float16"),
        ("torch.float16", "float16"),
        ("torch.half", "float16"),
        ("torch.float", "float32"),
        ("torch.bfloat16", "bfloat16"),
        ("torch.double", "float64"),
        ("torch.int", "int32"),
        ("torch.long", "int64"),
        ("torch.short", "int16"),
        ("torch.float8_e4m3fn", "float8_e4m3fn"),
        ("torch.float8_e5m2", "float8_e5m2"),
        ("torch.bool", "bool"),
        ("torch.cfloat", "complex64"),
        ("torch.quint8", "quint8"),
        ("mindspore.float16", "float16"),
        ("numpy.float32", "float32"),
        ("float16", "float16"),
        ("FLOAT16", "float16"),
        (" float16 ", "float16"),
        ("bool_", "bool"),
        ("<f2", "float16"),
        ("|u1", "uint8"),
        ("<i8", "int64"),
        ("|b1", "bool"),
        ("<c16", "complex128"),
        ("F16", "float16"),
        ("I8", "int8"),
        ("F8_E4M3", "float8_e4m3fn"),
        ("-", "undefined"),
        ("", "undefined"),
        ("UNKNOW", "undefined"),
        ("unknown", "undefined"),
    ],
)
def test_labels_of_many_writers(label: str, name: str) -> None:
    assert dtype_of_label(label) is dtype_named(name)


@pytest.mark.parametrize("label", ["posit16", "<V2", ">f2", "float8_e4m3fnuz", "float", "DT_"])
def test_a_label_is_known_or_it_is_opaque(label: str) -> None:
    # C's "float" is known and a bare prefix is nothing; the others must not be mistaken.
    expected = {"float": "float32", "DT_": "undefined"}.get(label, label)
    dtype = dtype_of_label(label)
    assert dtype.name == expected
    assert dtype.decodable == (label == "float")


@given(st.text(max_size=300))
def test_no_label_is_too_odd(label: str) -> None:
    assert len(dtype_of_label(label).name) <= 64


@pytest.mark.parametrize("name", [n for n in naive_numbers.ALL if naive_numbers.bits_of(n) <= 8])
def test_all_codes_of_small_types(name: str) -> None:
    bits = naive_numbers.bits_of(name)
    stream = sum(code << (code * bits) for code in range(2**bits))
    raw = stream.to_bytes((2**bits * bits + 7) // 8, "little")
    found = decode(raw, dtype_named(name), 2**bits)
    expected = naive_numbers.values_of(raw, name, 2**bits)
    assert found.shape == (2**bits,)
    for code, (value, naive) in enumerate(zip(found.tolist(), expected, strict=True)):
        assert same(value, naive), f"code {code:#x}"


@given(st.binary(min_size=16, max_size=400), st.sampled_from(naive_numbers.ALL), st.data())
def test_random_bits_decode_as_their_bits_say(raw: bytes, name: str, data: st.DataObject) -> None:
    most = len(raw) * 8 // naive_numbers.bits_of(name)
    count = data.draw(st.integers(0, most))
    found = decode(raw, dtype_named(name), count)
    expected = naive_numbers.values_of(raw, name, count)
    assert found.shape == (count,)
    assert not found.flags.writeable
    assert all(same(value, naive) for value, naive in zip(found, expected, strict=True))


@pytest.mark.parametrize(
    ("code", "value"),
    [
        (0x00, 0.0),
        (0x01, 2.0**-22),
        (0x07, 2.0**-16),
        (0x08, 1.0),
        (0x0F, 1.875),
        (0x10, 2.0),
        (0x18, 0.5),
        (0x20, 4.0),
        (0x6E, 32768.0),
        (0x6F, math.inf),
        (0x7E, 2.0**-15),
        (0x80, math.nan),
        (0x88, -1.0),
        (0xEF, -math.inf),
    ],
)
def test_hifloat8_by_hand(code: int, value: float) -> None:
    assert same(decode(bytes([code]), dtype_named("hifloat8"), 1)[0], value)


@pytest.mark.parametrize(
    ("name", "scalar"),
    [
        ("float6_e3m2fn", ml_dtypes.float6_e3m2fn),
        ("float6_e2m3fn", ml_dtypes.float6_e2m3fn),
        ("float4_e2m1fn", ml_dtypes.float4_e2m1fn),
    ],
)
def test_small_floats_agree_with_ml_dtypes(name: str, scalar: type) -> None:
    bits = dtype_named(name).bits
    codes = np.arange(2**bits, dtype=np.uint8)
    stream = sum(code << (code * bits) for code in range(2**bits))
    raw = stream.to_bytes(2**bits * bits // 8, "little")
    found = decode(raw, dtype_named(name), 2**bits).astype(np.float32)
    np.testing.assert_array_equal(found, codes.view(scalar).astype(np.float32))


def test_types_that_arrays_come_in() -> None:
    raw = bytes(16)
    for name, expected in {
        "float16": np.dtype(np.float16),
        "bfloat16": np.dtype(ml_dtypes.bfloat16),
        "float8_e5m2": np.dtype(ml_dtypes.float8_e5m2),
        "hifloat8": np.dtype(np.float32),
        "float6_e2m3fn": np.dtype(np.float32),
        "float4_e2m1fn": np.dtype(ml_dtypes.float4_e2m1fn),
        "int4": np.dtype(ml_dtypes.int4),
        "uint1": np.dtype(np.uint8),
        "complex32": np.dtype(np.complex64),
        "bool": np.dtype(np.bool_),
        "resource": np.dtype(np.int64),
    }.items():
        assert decode(raw, dtype_named(name), 2).dtype == expected


def test_more_bytes_than_asked_for_are_ignored() -> None:
    raw = np.array([1.5, -2.0, 7.0], np.float16).tobytes() + b"\xff"
    assert decode(raw, dtype_named("float16"), 2).tolist() == [1.5, -2.0]


def test_too_few_bytes_are_an_error_that_says_how_many() -> None:
    with pytest.raises(TruncatedDumpError, match=r"expected 8 bytes for 4 elements.*found 6"):
        decode(bytes(6), dtype_named("float16"), 4)


@pytest.mark.parametrize("name", ["string", "undefined", "variant", "hifloat4", "dtype99", "x"])
def test_what_has_no_values_cannot_be_decoded(name: str) -> None:
    with pytest.raises(UnsupportedDtypeError, match=name):
        decode(bytes(16), dtype_named(name), 1)
