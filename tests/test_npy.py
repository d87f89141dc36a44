"""One array a file: what its header, its name and its bytes say."""

from __future__ import annotations

import os
from pathlib import Path

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from array_builders import bytes_of, npy_bytes, npy_with_text
from dumpscope.dtypes import dtype_named
from dumpscope.errors import (
    CorruptDumpError,
    DumpReadError,
    TruncatedDumpError,
    UnsupportedDtypeError,
)
from dumpscope.model import FORM_CONVERTED, DumpFile, Match
from dumpscope.readers.npy import NpyReader
from dumpscope.readers.protocol import Execution, TensorRecord
from dumpscope.source import LocalSource, ReadBuffer
from dumpscope.stats.measuring import measure
from dumpscope.testing.damage import mutated
from memory_source import MemorySource, read_all, read_op
from reader_fuzz import exhaust

READER = NpyReader()
DUMP = "MatMul.net_fc_MatMul-op0.7.3.1764417600000000"


def read_array(content: bytes, name: str = "x.npy") -> tuple[TensorRecord, Execution]:
    execution, faults = read_op(READER, MemorySource(content, name))
    assert not faults
    (tensor,) = execution.tensors
    return tensor, execution


def fault_of(content: bytes, name: str = "x.npy") -> DumpReadError:
    (fault,) = read_all(READER, MemorySource(content, name))
    assert isinstance(fault, DumpReadError)
    assert fault.path == f"0/{name}"
    return fault


def local_source(path: Path) -> LocalSource:
    status = os.stat(path)
    file = DumpFile(str(path), path.name, path.name, status.st_size, 0, 0, 0)
    return LocalSource(file, ReadBuffer())


# --- the header -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("descr", "dtype"),
    [
        ("<f2", "float16"),
        ("<f4", "float32"),
        ("<f8", "float64"),
        ("|i1", "int8"),
        ("<i8", "int64"),
        ("|u1", "uint8"),
        ("<u4", "uint32"),
        ("|b1", "bool"),
        ("<c8", "complex64"),
        ("<c16", "complex128"),
    ],
)
def test_every_plain_type_is_read_as_numpy_reads_it(descr: str, dtype: str) -> None:
    expected = np.array([[0, 1, 2], [3, 4, 5]]).astype(descr)
    tensor, _ = read_array(npy_bytes(descr, (2, 3), expected.tobytes()))
    loaded = tensor.load()
    assert tensor.dtype == dtype
    assert loaded.dtype == np.dtype(descr)
    assert np.array_equal(loaded, expected)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_every_version_of_the_header_is_read(version: int) -> None:
    tensor, _ = read_array(npy_bytes("<f4", (2,), b"\0\0\x80?\0\0\0@", version=version))
    assert tensor.load().tolist() == [1.0, 2.0]


def test_what_numpy_saves_is_read_back(tmp_path: Path) -> None:
    expected = np.arange(24, dtype=np.float16).reshape(2, 3, 4)
    path = tmp_path / "saved.npy"
    np.save(path, expected)
    with local_source(path) as source:
        (execution,) = READER.read(source)
        assert isinstance(execution, Execution)
        assert np.array_equal(execution.tensors[0].load(), expected)


def test_a_scalar_stays_a_scalar() -> None:
    tensor, _ = read_array(npy_bytes("<f4", (), b"\0\0\x80?"))
    assert tensor.shape == ()
    assert tensor.load().shape == ()
    assert float(tensor.load()) == 1.0


def test_an_empty_array_has_nothing_to_check() -> None:
    tensor, _ = read_array(npy_bytes("<f4", (0, 3), b""))
    assert tensor.unchecked is None
    assert tensor.missing_bytes == 0
    assert tensor.load().shape == (0, 3)


def test_big_endian_values_are_put_in_order() -> None:
    expected = np.array([1.5, -2.0, np.inf])
    for descr in (">f4", ">f2", ">f8"):
        tensor, _ = read_array(npy_bytes(descr, (3,), expected.astype(descr).tobytes()))
        assert tensor.load().tolist() == [1.5, -2.0, np.inf]
    tensor, _ = read_array(npy_bytes(">c8", (1,), np.array([1 + 2j], ">c8").tobytes()))
    assert tensor.load().tolist() == [1 + 2j]


def test_fortran_order_gives_the_logical_indices() -> None:
    array = np.zeros((3, 4, 5), np.float32)
    array[1, 2, 3] = np.nan
    array[2, 0, 4] = np.inf
    content = npy_bytes("<f4", array.shape, array.tobytes(order="F"), fortran_order=True)
    tensor, _ = read_array(content)
    assert np.array_equal(tensor.load(), array, equal_nan=True)
    assert tensor.data is not None
    stats = measure(tensor.data, dtype_named(tensor.dtype), tensor.geometry).stats
    assert (stats.nan, stats.posinf) == (1, 1)
    assert stats.first_bad == (1, 2, 3)
    assert stats.bad_box == ((1, 2), (0, 2), (3, 4))


@pytest.mark.parametrize("shape", ["(2L, 3L)", "(2,3)", "( 2, 3, )"])
def test_shapes_of_other_writers_are_read(shape: str) -> None:
    text = f"{{'shape': {shape}, \"descr\": \"<f2\", 'fortran_order': False}}"
    tensor, _ = read_array(npy_with_text(text, bytes(12)))
    assert tensor.shape == (2, 3)


# --- types that are stored as others --------------------------------------------------------------


@pytest.mark.parametrize("descr", ["|V2", "<V2"])
def test_two_void_bytes_are_bfloat16(descr: str) -> None:
    values = np.array([1.0, np.nan, np.inf, -2.0], ml_dtypes.bfloat16)
    tensor, _ = read_array(npy_bytes(descr, (4,), values.tobytes()))
    assert tensor.dtype == "bfloat16"
    assert np.array_equal(
        tensor.load().astype(np.float32), values.astype(np.float32), equal_nan=True
    )


def test_f1_is_float8_e5m2() -> None:
    values = np.array([1.0, 57344.0, np.inf], ml_dtypes.float8_e5m2)
    tensor, _ = read_array(npy_bytes("<f1", (3,), values.tobytes()))
    assert tensor.dtype == "float8_e5m2"
    assert tensor.load().astype(np.float32).tolist() == [1.0, 57344.0, np.inf]


@pytest.mark.parametrize("descr", ["|V1", "<V1"])
def test_one_void_byte_is_ambiguous_without_a_word_for_it(descr: str) -> None:
    tensor, _ = read_array(npy_bytes(descr, (2,), b"\x38\x7f"))
    assert tensor.unchecked == "ambiguous_dtype"
    with pytest.raises(UnsupportedDtypeError):
        tensor.load()


@pytest.mark.parametrize(
    "name",
    [
        "grads_float8_e4m3fn_3.npy",
        f"{DUMP}.output.0.ND.float8_e4m3fn.npy",
        "x.float8_e4m3fn.npy",
    ],
)
def test_a_word_in_the_name_tells_the_void_byte(name: str) -> None:
    for descr in ("|V1", "<f1"):
        tensor, _ = read_array(npy_bytes(descr, (2,), b"\x38\x7f"), name)
        assert tensor.dtype == "float8_e4m3fn"
        assert np.array_equal(tensor.load().astype(np.float32), [1.0, np.nan], equal_nan=True)


def test_bfloat16_stored_as_float32_has_the_limit_of_bfloat16() -> None:
    largest = (2 - 2**-7) * 2.0**127
    values = np.array([largest, -largest, 1.0, np.nan, np.inf, -np.inf], np.float32)
    content = npy_bytes("<f4", (6,), values.tobytes())
    tensor, _ = read_array(content, f"{DUMP}.output.0.DefaultFormat.BFloat16.npy")
    assert tensor.dtype == "bfloat16"
    assert tensor.notes == ("stored_as_float32",)
    assert tensor.data is not None
    stats = measure(tensor.data, dtype_named(tensor.dtype), tensor.geometry).stats
    assert (stats.count, stats.saturated, stats.nan, stats.posinf, stats.neginf) == (6, 2, 1, 1, 1)
    assert (stats.min, stats.max) == (-largest, largest)


def test_a_nan_survives_being_narrowed() -> None:
    # Its mantissa has bits in the half that bfloat16 does not have.
    signalling = np.array([0x7F800001, 0xFFBFFFFF, 0x3F800000], np.uint32)
    content = npy_bytes("<f4", (3,), signalling.tobytes())
    tensor, _ = read_array(content, f"{DUMP}.output.0.DefaultFormat.BFloat16.npy")
    assert np.isnan(tensor.load().astype(np.float32)).tolist() == [True, True, False]


def test_a_lying_label_makes_no_finite_value_infinite() -> None:
    values = np.array([1e9, -1e9, 65504.0], np.float32)
    content = npy_bytes("<f4", (3,), values.tobytes())
    tensor, _ = read_array(content, f"{DUMP}.output.0.ND.Float16.npy")
    assert tensor.load().tolist() == [65504.0, -65504.0, 65504.0]
    content = npy_bytes("<f4", (1,), np.float32(3.4e38).tobytes())
    tensor, _ = read_array(content, f"{DUMP}.output.0.ND.BFloat16.npy")
    assert np.isfinite(tensor.load().astype(np.float32)).all()


def test_int4_stored_as_int8_is_int4() -> None:
    content = npy_bytes("|i1", (5,), np.array([1, -8, 7, -1, 0], np.int8).tobytes())
    tensor, _ = read_array(content, f"{DUMP}.input.1.DefaultFormat.Int4.npy")
    assert (tensor.dtype, tensor.role, tensor.index) == ("int4", "input", 1)
    assert tensor.load().astype(np.int8).tolist() == [1, -8, 7, -1, 0]


def test_a_label_that_cannot_be_about_the_bytes_is_only_noted() -> None:
    content = npy_bytes("<i4", (1,), np.array([-1], np.int32).tobytes())
    tensor, _ = read_array(content, f"{DUMP}.output.0.ND.Float32.npy")
    assert tensor.dtype == "int32"
    assert tensor.notes == ("labelled_float32",)
    assert tensor.load().tolist() == [-1]


@given(st.lists(st.floats(width=16), min_size=1, max_size=40), st.sampled_from(["<f2", ">f2"]))
def test_values_and_statistics_agree_with_numpy(numbers: list[float], descr: str) -> None:
    values: npt.NDArray[np.float64] = np.array(numbers, np.float64)
    tensor, _ = read_array(npy_bytes(descr, (len(numbers),), values.astype(descr).tobytes()))
    assert np.array_equal(tensor.load().astype(np.float64), values, equal_nan=True)
    assert tensor.data is not None
    stats = measure(tensor.data, dtype_named(tensor.dtype), tensor.geometry).stats
    assert stats.nan == int(np.isnan(values).sum())
    assert stats.posinf == int((values == np.inf).sum())
    assert stats.saturated == int((np.abs(values) == 65504.0).sum())


# --- names ----------------------------------------------------------------------------------------


def test_a_mindspore_name_gives_every_field() -> None:
    name = "Exp.Default_net_Exp-op0.12.65535.1795954295379008.output.0.DefaultFormat.Float32.npy"
    tensor, op = read_array(npy_bytes("<f4", (2,), bytes(8)), name)
    assert (op.op_type, op.op_name) == ("Exp", "Default_net_Exp-op0")
    assert (op.task_id, op.stream_id, op.timestamp) == (12, None, 1795954295379008)
    assert (op.form, op.partial) == (FORM_CONVERTED, True)
    assert (tensor.role, tensor.index, tensor.layout, tensor.notes) == ("output", 0, "ND", ())


def test_a_converted_name_keeps_the_timestamp_of_the_dump() -> None:
    tensor, op = read_array(npy_bytes("<f2", (4,), bytes(8)), f"{DUMP}.input.2.2x2.npy")
    assert (op.op_type, op.timestamp) == ("MatMul", 1764417600000000)
    assert (tensor.role, tensor.index, tensor.shape) == ("input", 2, (4,))


def test_a_golden_name_gives_operator_output_and_time() -> None:
    name = "resnet_conv1_Relu.1.1600000000000000.npy"
    tensor, op = read_array(npy_bytes("<f4", (2,), bytes(8)), name)
    assert (op.op_type, op.op_name, op.timestamp) == ("", "resnet_conv1_Relu", 1600000000000000)
    assert (tensor.role, tensor.index) == ("output", 1)


@pytest.mark.parametrize(
    ("name", "op_name", "role", "index", "partial"),
    [
        ("scores.npy", "scores", "output", 0, False),
        ("nan_input.npy", "nan_input", "input", 0, False),
        ("debug_Softmax_out.npy", "debug_Softmax_out", "output", 0, False),
        ("Module.fc.Linear.forward.0.input.1.npy", "Module.fc.Linear.forward.0", "input", 1, True),
    ],
)
def test_other_names_are_operators(
    name: str, op_name: str, role: str, index: int, partial: bool
) -> None:
    tensor, op = read_array(npy_bytes("<f4", (2,), bytes(8)), name)
    assert (op.op_name, op.partial) == (op_name, partial)
    assert (tensor.role, tensor.index) == (role, index)


# --- damage ---------------------------------------------------------------------------------------


def test_a_truncated_array_is_checked_as_far_as_it_goes() -> None:
    values = np.array([1.0, np.nan, 2.0, 3.0], np.float32)
    content = npy_bytes("<f4", (4,), values.tobytes())[:-6]
    execution, faults = read_op(READER, MemorySource(content, "cut.npy"))
    (tensor,) = execution.tensors
    (fault,) = faults
    assert tensor.missing_bytes == 6
    assert tensor.data is not None
    assert tensor.data.nbytes == 8
    assert isinstance(fault, TruncatedDumpError)
    assert fault.offset == len(content)
    assert "expected 16 bytes" in fault.message
    assert "found 6 fewer" in fault.message
    with pytest.raises(DumpReadError):
        tensor.load()


def test_an_array_without_any_byte_is_unchecked() -> None:
    content = npy_bytes("<f4", (4,), b"")
    execution, faults = read_op(READER, MemorySource(content, "cut.npy"))
    assert execution.tensors[0].unchecked == "truncated"
    assert len(faults) == 1


def test_bytes_behind_the_array_are_noted() -> None:
    tensor, _ = read_array(npy_bytes("<f4", (1,), bytes(10)))
    assert tensor.notes == ("surplus_bytes:6",)
    assert tensor.load().tolist() == [0.0]


@pytest.mark.parametrize("length", range(128))
def test_a_file_cut_inside_its_header_is_damage(length: int) -> None:
    content = npy_bytes("<f4", (2,), bytes(8))[:length]
    assert isinstance(fault_of(content), TruncatedDumpError)


@pytest.mark.parametrize(
    "text",
    [
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (9000000000, 9000000000), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (" + "1, " * 33 + "), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }",
        "{'descr': '<f4', 'fortran_order': 1, 'shape': (1,), }",
        "{'descr': True, 'fortran_order': False, 'shape': (1,), }",
        "{'descr': '<f4', 'descr': '<f4', 'shape': (1,), }",
        "__import__('os').abort()",
        "[" * 60_000,
    ],
)
def test_an_impossible_header_is_damage(text: str) -> None:
    assert isinstance(fault_of(npy_with_text(text, bytes(4))), CorruptDumpError)


def test_a_header_of_gigabytes_is_never_allocated() -> None:
    content = b"\x93NUMPY\x02\0\xff\xff\xff\xff" + b" " * 100
    source = MemorySource(content, "x.npy")
    (fault,) = read_all(READER, source)
    assert isinstance(fault, CorruptDumpError)
    assert source.largest_read == 0


@pytest.mark.parametrize("descr", ["|O", "<f16", "|V7", "|V0", "<x4", "<i3", ""])
def test_types_that_cannot_be_read_are_named(descr: str) -> None:
    assert isinstance(fault_of(npy_bytes(descr, (1,), bytes(32))), UnsupportedDtypeError)


def test_structures_are_refused_and_text_has_nothing_to_check() -> None:
    text = "{'descr': [('a', '<i4')], 'fortran_order': False, 'shape': (1,), }"
    assert isinstance(fault_of(npy_with_text(text, bytes(4))), UnsupportedDtypeError)
    tensor, _ = read_array(npy_bytes("<U2", (1,), bytes(8)))
    assert (tensor.dtype, tensor.unchecked) == ("string", None)


def test_content_decides_before_the_suffix() -> None:
    def sniff(content: bytes, name: str) -> Match:
        source = MemorySource(content, name)
        return READER.sniff(source.head, source.file)

    content = npy_bytes("<f4", (1,), bytes(4))
    assert sniff(content, "12345678901234567890") is Match.CONTENT
    assert sniff(b"", "x.npy") is Match.NAME
    assert sniff(b"PK\3\4", "x.npz") is Match.NONE


@given(st.integers(0, 2**32))
def test_damage_never_raises_anything_else(seed: int) -> None:
    content = npy_bytes("<f4", (3, 4), bytes_of(np.arange(12, dtype=np.float32)))
    names = ("x.npy", f"{DUMP}.output.0.ND.BFloat16.npy", "y_int4_0.npy")
    exhaust(READER, mutated(content, seed), names[seed % 3])
