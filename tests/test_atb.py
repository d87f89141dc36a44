"""ATB tensors: the text header, the folders, bytes that were saved elsewhere, statistics."""

from __future__ import annotations

import os
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from array_builders import (
    FORMAT_FRACTAL_NZ,
    GE_BFLOAT16,
    GE_FLOAT16,
    GE_FLOAT32,
    GE_INT4,
    GE_INT32,
    GE_UNDEFINED,
    atb_bytes,
)
from dumpscope.errors import CorruptDumpError, DumpReadError, TruncatedDumpError
from dumpscope.model import FORM_RAW, FORM_STATISTICS, DumpFile, Match, Place
from dumpscope.readers.atb import AtbReader
from dumpscope.readers.atb_paths import order_of_ids
from dumpscope.readers.protocol import Execution, TensorRecord
from dumpscope.source import LocalSource, ReadBuffer
from dumpscope.testing.damage import mutated
from memory_source import MemorySource, read_all, read_op
from reader_fuzz import exhaust

READER = AtbReader()
LAYER = "data/0_39943/2/5_Prefill_layer"
KERNEL = f"{LAYER}/0_Attention/1_Gather16I64Kernel"
HEADER = (
    "Device and PID,Execution Count,Op Name,Op Type,Op Id,Input/Output,Index,Dtype,Format,Shape,"
    "Max,Min,Mean,Norm,Tensor Path"
)


def put(root: Path, relative: str, content: bytes) -> DumpFile:
    path = root / relative
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return DumpFile(str(path), relative, path.name, len(content), 0, 0, 0)


def read_file(file: DumpFile) -> tuple[Execution, TensorRecord, list[float]]:
    with LocalSource(file, ReadBuffer()) as source:
        for record in READER.read(source):
            assert isinstance(record, Execution)
            (tensor,) = record.tensors
            values = [] if tensor.unchecked or not tensor.dumped else tensor.load().ravel().tolist()
            return record, tensor, values
    raise AssertionError("no record")


def read_bytes(content: bytes, name: str = "outtensor0.bin") -> TensorRecord:
    op, faults = read_op(READER, MemorySource(content, name))
    assert not faults
    return op.tensors[0]


# --- tensors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "dtype", "content", "expected"),
    [
        (GE_FLOAT32, "float32", np.array([1, 2], "<f4").tobytes(), [1, 2]),
        (GE_FLOAT16, "float16", np.array([1, 2], "<f2").tobytes(), [1, 2]),
        (GE_BFLOAT16, "bfloat16", np.array([1, 2], ml_dtypes.bfloat16).tobytes(), [1, 2]),
        (GE_INT32, "int32", np.array([-1, 2], "<i4").tobytes(), [-1, 2]),
        (GE_INT4, "int4", b"\x2f", [-1, 2]),
        (9, "int64", np.array([-1, 2], "<i8").tobytes(), [-1, 2]),
        (12, "bool", b"\0\1", [0, 1]),
        (36, "float8_e4m3fn", b"\x38\x40", [1, 2]),
    ],
)
def test_types_are_in_ges_own_numbering(
    code: int, dtype: str, content: bytes, expected: list[float]
) -> None:
    tensor = read_bytes(atb_bytes(content, dtype=code, dims=(2,)))
    assert tensor.dtype == dtype
    assert tensor.load().astype(np.float64).tolist() == expected


@pytest.mark.parametrize(
    ("code", "reason"),
    [(GE_UNDEFINED, "undefined_dtype"), (-1, "undefined_dtype"), (99, "unknown_dtype")],
)
def test_types_that_are_not_known_are_unchecked(code: int, reason: str) -> None:
    assert read_bytes(atb_bytes(bytes(4), dtype=code, dims=(2,))).unchecked == reason


def test_layout_shape_and_place_of_the_bytes() -> None:
    content = atb_bytes(
        b"junk" + np.arange(4, dtype="<f2").tobytes() + b"more",
        layout=FORMAT_FRACTAL_NZ,
        dims=(2, 2),
        place=(4, 8),
    )
    tensor = read_bytes(content)
    assert (tensor.layout, tensor.shape, tensor.notes) == ("FRACTAL_NZ", (2, 2), ())
    assert tensor.load().tolist() == [[0, 1], [2, 3]]


def test_a_scalar_has_no_dims() -> None:
    assert read_bytes(atb_bytes(b"\0\x3c")).load().shape == ()


def test_a_cut_off_tensor_is_checked_as_far_as_it_goes() -> None:
    content = atb_bytes(bytes(16), dims=(8,))[:-5]
    op, faults = read_op(READER, MemorySource(content, "intensor0.bin"))
    assert op.tensors[0].missing_bytes == 5
    assert [type(fault) for fault in faults] == [TruncatedDumpError]


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"$Version=1.0\nformat=2\n", TruncatedDumpError),
        (b"$Version=" + b"1" * 100_000, CorruptDumpError),
        (b"$Version=1.0\ndtype=x\n$End=1\n", CorruptDumpError),
        (b"$Version=1.0\ndims=-1\n$End=1\n", CorruptDumpError),
        (b"$Version=1.0\ndims=" + b"9" * 25 + b"\n$End=1\n", CorruptDumpError),
        (b"$Version=1.0\n$Object.data=1\n$End=1\n", CorruptDumpError),
        (b"$Version=1.0\n$Object.data=-1,4\n$End=1\n", CorruptDumpError),
    ],
)
def test_damaged_headers(content: bytes, kind: type[DumpReadError]) -> None:
    (fault,) = read_all(READER, MemorySource(content, "intensor0.bin"))
    assert isinstance(fault, kind)
    assert fault.path == "0/intensor0.bin"


# --- folders --------------------------------------------------------------------------------------


def test_the_folders_name_the_operation(tmp_path: Path) -> None:
    content = atb_bytes(b"\0\x3c", dims=(1,))
    op, tensor, values = read_file(put(tmp_path, f"{KERNEL}/before/intensor1.bin", content))
    assert values == [1.0]
    assert (op.op_type, op.op_name) == (
        "Gather16I64Kernel",
        "5_Prefill_layer/0_Attention/1_Gather16I64Kernel",
    )
    assert (op.parent, op.container) == ("5_Prefill_layer/0_Attention", False)
    assert (op.form, op.partial) == (FORM_RAW, True)
    assert (tensor.role, tensor.index) == ("input", 1)
    layer, tensor, _ = read_file(put(tmp_path, f"{LAYER}/after/outtensor0.bin", content))
    assert (layer.op_type, layer.parent, layer.container) == ("Prefill_layer", None, True)
    assert (tensor.role, tensor.index) == ("output", 0)


def test_the_name_of_the_file_decides_the_role(tmp_path: Path) -> None:
    content = atb_bytes(b"\0\x3c", dims=(1,))
    _, tensor, _ = read_file(put(tmp_path, f"{LAYER}/after/intensor3.bin", content))
    assert (tensor.role, tensor.index) == ("input", 3)
    _, tensor, _ = read_file(put(tmp_path, f"{LAYER}/before/other.bin", content))
    assert tensor.role == "input"


def test_operations_are_ordered_as_they_end() -> None:
    ordered = [(0, 0, 0), (0, 0, 1), (0, 0), (0, 1), (0,), (1, 0), (1,), (4094,), (10**9, 1)]
    numbers = [order_of_ids(ids) for ids in ordered]
    assert numbers[:-1] == sorted(numbers[:-1])
    assert len(set(numbers[:-1])) == len(ordered) - 1
    assert all(number < 1 << 63 for number in numbers)


# --- bytes that are saved elsewhere ---------------------------------------------------------------


def test_bytes_in_another_operation_are_followed(tmp_path: Path) -> None:
    put(
        tmp_path, f"{LAYER}/0_Attention/after/outtensor0.bin", atb_bytes(b"\0\x3c\0\x40", dims=(2,))
    )
    content = atb_bytes(b"", dims=(2,), saved_in="5_0_outtensor0.bin")
    _, tensor, values = read_file(put(tmp_path, f"{LAYER}/1_Mlp/before/intensor0.bin", content))
    assert values == [1.0, 2.0]
    assert tensor.notes == (f"bytes_in:{LAYER}/0_Attention/after/outtensor0.bin",)


def test_bytes_in_the_same_folder_are_followed(tmp_path: Path) -> None:
    put(tmp_path, f"{LAYER}/after/outtensor0.bin", atb_bytes(b"\0\x3c", dims=(1,)))
    content = atb_bytes(b"", dims=(1,), saved_in="outtensor0.bin")
    assert read_file(put(tmp_path, f"{LAYER}/after/outtensor1.bin", content))[2] == [1.0]


@pytest.mark.parametrize(
    "name",
    [
        "5_0_outtensor0.bin",
        "../../../../../../secret.bin",
        "/etc/passwd",
        "5_0_outtensor0.bin/x",
        "x" * 5000,
        "5_7_outtensor0.bin",
    ],
)
def test_what_cannot_be_followed_is_unchecked(name: str, tmp_path: Path) -> None:
    secret = atb_bytes(b"\0\x3c", dims=(1,))
    (tmp_path / "secret.bin").write_bytes(secret)
    put(tmp_path, f"dump/{LAYER}/7_X/after/outtensor0.bin", secret)
    os.symlink(tmp_path / "secret.bin", tmp_path / f"dump/{LAYER}/7_X/after/outtensor1.bin")
    content = atb_bytes(b"", dims=(1,), saved_in=name)
    file = put(tmp_path / "dump", f"{LAYER}/1_Mlp/before/intensor0.bin", content)
    _, tensor, _ = read_file(file)
    if name == "5_7_outtensor0.bin":
        assert tensor.unchecked is None
    else:
        assert tensor.unchecked == "data_elsewhere"


def test_links_are_not_followed_and_the_tree_is_not_left(tmp_path: Path) -> None:
    target = put(tmp_path, f"{LAYER}/0_A/after/outtensor0.bin", atb_bytes(b"\0\x3c", dims=(1,)))
    os.symlink(target.path, tmp_path / LAYER / "0_A/after/outtensor1.bin")
    os.symlink(tmp_path / LAYER / "0_A", tmp_path / LAYER / "2_B")
    for name in ("5_0_outtensor1.bin", "5_2_outtensor0.bin"):
        content = atb_bytes(b"", dims=(1,), saved_in=name)
        file = put(tmp_path, f"{LAYER}/1_Mlp/before/intensor0.bin", content)
        assert read_file(file)[1].unchecked == "data_elsewhere"
    # Only the folder of one operation was given to be scanned: its neighbours are out of reach.
    content = atb_bytes(b"", dims=(1,), saved_in="5_0_outtensor0.bin")
    file = put(tmp_path, f"{LAYER}/1_Mlp/before/intensor0.bin", content)
    assert read_file(file)[2] == [1.0]
    alone = DumpFile(file.path, "before/intensor0.bin", file.name, file.size, 0, 0, 0)
    assert read_file(alone)[1].unchecked == "data_elsewhere"


def test_a_tensor_that_names_itself_was_left_out_on_purpose(tmp_path: Path) -> None:
    content = atb_bytes(b"", dims=(1,), saved_in="intensor0.bin")
    _, tensor, _ = read_file(put(tmp_path, f"{KERNEL}/before/intensor0.bin", content))
    assert (tensor.dumped, tensor.unchecked) == (False, None)


def test_two_files_that_name_each_other_end_there(tmp_path: Path) -> None:
    put(tmp_path, f"{LAYER}/after/outtensor1.bin", atb_bytes(b"", saved_in="outtensor0.bin"))
    content = atb_bytes(b"", saved_in="outtensor1.bin")
    _, tensor, _ = read_file(put(tmp_path, f"{LAYER}/after/outtensor0.bin", content))
    assert tensor.unchecked == "data_elsewhere"


# --- statistics -----------------------------------------------------------------------------------


def read_csv(*rows: str, place: Place | None = None) -> tuple[list[Execution], list[DumpReadError]]:
    content = "\n".join([HEADER, *rows, ""]).encode()
    source = MemorySource(content, "statistic.csv", place=place)
    assert READER.sniff(source.head, source.file) is Match.CONTENT
    records = read_all(READER, source)
    executions = [record for record in records if isinstance(record, Execution)]
    return executions, [record for record in records if isinstance(record, DumpReadError)]


def test_statistics_name_the_same_operations_as_the_folders() -> None:
    executions, faults = read_csv(
        "0_39943,2,Prefill_layer/Attention,Attention,5_0,input,0,float16,nd,36x128,2,-1,0.5,9,N/A",
        "0_39943,2,Prefill_layer/Attention,Attention,5_0,output,0,bf16,nd,36x128,inf,-1,inf,inf,N/A",
        "0_39943,2,Prefill_layer,Prefill_layer,5,output,0,float16,nd,2,2,-1,0.5,9,N/A",
    )
    assert not faults
    attention, layer = executions
    assert (attention.op_type, attention.op_name) == ("Attention", "5_Prefill_layer/0_Attention")
    assert (attention.parent, attention.step, attention.rank) == ("5_Prefill_layer", 2, 0)
    assert (attention.form, attention.partial) == (FORM_STATISTICS, True)
    clean, bad = attention.tensors
    assert (clean.dtype, clean.layout, clean.shape) == ("float16", "ND", (36, 128))
    assert clean.stats is not None
    assert bad.stats is not None
    assert (clean.stats.nonfinite, bad.stats.posinf, bad.dtype) == (0, 1, "bfloat16")
    assert attention.order < layer.order


def test_the_place_of_the_folder_is_not_overruled() -> None:
    place = Place(step=7, device_id=3)
    (op,), _ = read_csv("0_1,2,A,A,5,input,0,float,nd,2,1,1,1,1,N/A", place=place)
    assert (op.step, op.rank) == (None, None)


def test_extremes_that_pass_over_nan_prove_nothing_alone() -> None:
    (op,), _ = read_csv(
        "0_1,2,A,A,5,input,0,float,nd,2,1,1,nan,nan,N/A",
        "0_1,2,A,A,5,input,1,float,nd,2,1,1,N/A,N/A,N/A",
    )
    first, second = op.tensors
    assert first.stats is not None
    assert first.stats.nan == 1
    assert second.unchecked == "statistics_incomplete"


def test_rows_without_values_point_to_the_file_that_has_them() -> None:
    (op,), _ = read_csv(
        "0_1,2,A,A,5,input,0,float,nd,2,N/A,N/A,N/A,N/A,/x/before/intensor0.bin",
        "0_1,2,A,A,5,input,1,float,nd,2,N/A,N/A,N/A,N/A,N/A",
    )
    first, second = op.tensors
    assert (first.dumped, first.unchecked) == (False, None)
    assert (second.dumped, second.unchecked) == (True, "statistics_blank")


def test_damaged_rows_do_not_hide_the_others() -> None:
    executions, faults = read_csv(
        "0_1,2,A,A,5,sideways,0,float,nd,2,1,1,1,1,N/A",
        "0_1,2,A,A,x,input,0,float,nd,2,1,1,1,1,N/A",
        "0_1,2,A,A,5,input,0,float,nd,two,1,1,1,1,N/A",
        "0_1,2,A,A,5,input,4,float,nd,2,1,1,1,1,N/A",
    )
    assert [t.index for t in executions[0].tensors] == [4]
    assert [type(fault) for fault in faults] == [CorruptDumpError] * 3


# --- damage ---------------------------------------------------------------------------------------


@given(st.integers(0, 2**32))
def test_damage_never_raises_anything_else(seed: int) -> None:
    tensor = atb_bytes(bytes(16), dims=(2, 4))
    link = atb_bytes(b"", dims=(2,), saved_in="5_0_outtensor0.bin")
    table = f"{HEADER}\n0_1,2,A/B,B,5_0,input,0,float,nd,2x2,1,1,1,1,N/A\n".encode()
    for content in (tensor, link, table):
        exhaust(READER, mutated(content, seed), "intensor0.bin")
