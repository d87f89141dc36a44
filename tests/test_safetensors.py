"""The safetensors format, read from its header; the package itself is the second opinion."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from array_builders import safetensors_bytes
from dumpscope.errors import CorruptDumpError, DumpReadError, TruncatedDumpError
from dumpscope.model import DumpFile, Match
from dumpscope.readers.protocol import Execution
from dumpscope.readers.safetensors_file import SafetensorsReader
from dumpscope.source import LocalSource, ReadBuffer
from dumpscope.testing.damage import mutated
from memory_source import MemorySource, read_all
from reader_fuzz import exhaust

READER = SafetensorsReader()


def read_file(content: bytes) -> tuple[list[Execution], list[DumpReadError]]:
    records = read_all(READER, MemorySource(content, "step.safetensors"))
    executions = [record for record in records if isinstance(record, Execution)]
    return executions, [record for record in records if isinstance(record, DumpReadError)]


def with_header(header: object, body: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def test_what_the_package_saves_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "step.safetensors"
    expected: dict[str, npt.NDArray[Any]] = {
        "input.0": np.arange(6, dtype=np.float32).reshape(2, 3),
        "output": np.array([1, np.nan], np.float16),
        "layers.0.weight": np.arange(4).astype(ml_dtypes.bfloat16),
        "step": np.array(7, np.int64),
    }
    save_file(expected, str(path))
    file = DumpFile(str(path), path.name, path.name, path.stat().st_size, 0, 0, 0)
    found: dict[str, object] = {}
    with LocalSource(file, ReadBuffer()) as source:
        assert READER.sniff(source.head, file) is Match.CONTENT
        names = []
        for execution in READER.read(source):
            assert isinstance(execution, Execution)
            names.append(execution.op_name)
            for tensor in execution.tensors:
                assert tensor.name is not None
                loaded = tensor.load()
                assert loaded.dtype == expected[tensor.name].dtype
                assert np.array_equal(
                    loaded, expected[tensor.name], equal_nan=loaded.dtype.kind == "f"
                )
                found[tensor.name] = (tensor.role, tensor.index)
    assert found == {
        "input.0": ("input", 0),
        "output": ("output", 0),
        "layers.0.weight": ("output", 0),
        "step": ("output", 0),
    }
    assert sorted(names) == ["step", "step.layers.0.weight", "step.step"]


@pytest.mark.parametrize(
    ("word", "dtype", "content", "expected"),
    [
        ("BF16", "bfloat16", b"\x80\x3f\x80\x7f", [1.0, np.inf]),
        ("F8_E5M2", "float8_e5m2", b"\x3c\x7b", [1.0, 57344.0]),
        ("F8_E4M3", "float8_e4m3fn", b"\x38\x7e", [1.0, 448.0]),
        ("F4", "float4_e2m1fn", b"\x72", [1.0, 6.0]),
        ("BOOL", "bool", b"\0\1", [0.0, 1.0]),
        ("U16", "uint16", b"\1\0\2\0", [1.0, 2.0]),
    ],
)
def test_types(word: str, dtype: str, content: bytes, expected: list[float]) -> None:
    executions, faults = read_file(safetensors_bytes({"x": (word, (2,), content)}, {"a": "b"}))
    (tensor,) = executions[0].tensors
    assert not faults
    assert tensor.dtype == dtype
    assert tensor.load().astype(np.float32).tolist() == expected


def test_an_unknown_type_is_unchecked() -> None:
    executions, _ = read_file(safetensors_bytes({"x": ("F3_E1M1", (2,), b"\1\2")}))
    assert executions[0].tensors[0].unchecked == "unknown_dtype"


def test_a_cut_off_file_is_checked_as_far_as_it_goes() -> None:
    content = safetensors_bytes({"a": ("F32", (2,), bytes(8)), "b": ("F32", (4,), bytes(16))})
    executions, faults = read_file(content[:-10])
    a, b = (execution.tensors[0] for execution in executions)
    assert a.load().tolist() == [0.0, 0.0]
    assert (b.missing_bytes, b.data.nbytes if b.data else 0) == (10, 4)
    (fault,) = faults
    assert isinstance(fault, TruncatedDumpError)
    assert fault.offset == len(content) - 10


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [2], "data_offsets": [8, 0]},
        {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [1] * 40, "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [2**62, 4], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [2], "data_offsets": [0, 10**30]},
        {"dtype": 3, "shape": [2], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": "2", "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [True], "data_offsets": [0, 4]},
        [],
    ],
)
def test_a_wrong_entry_does_not_hide_the_others(entry: object) -> None:
    good = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
    executions, faults = read_file(with_header({"bad": entry, "good": good}, b"\0\0\x80?" * 2))
    assert [execution.op_name for execution in executions] == ["step.good"]
    (fault,) = faults
    assert isinstance(fault, CorruptDumpError)


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"", TruncatedDumpError),
        (b"\1\2\3", TruncatedDumpError),
        (struct.pack("<Q", 2**63) + b"{}", CorruptDumpError),
        (struct.pack("<Q", 1000) + b"{}", TruncatedDumpError),
        (with_header([1, 2]), CorruptDumpError),
        (struct.pack("<Q", 8) + b"{not js}", CorruptDumpError),
        (struct.pack("<Q", 50_000) + b"[" * 50_000, CorruptDumpError),
        (struct.pack("<Q", 9_000) + b'{"a":' + b"9" * 8_994 + b"}", CorruptDumpError),
    ],
)
def test_damaged_headers(content: bytes, kind: type[DumpReadError]) -> None:
    executions, (fault,) = read_file(content)
    assert not executions
    assert isinstance(fault, kind)
    assert fault.path == "0/step.safetensors"


def test_bytes_that_only_look_alike_are_left_to_others() -> None:
    source = MemorySource(
        struct.pack("<Q", 4) + b"{abc" + bytes(90), "MatMul.x.1.2.1600000000000000"
    )
    assert READER.sniff(source.head, source.file) is Match.NONE


@given(st.integers(0, 2**32))
def test_damage_never_raises_anything_else(seed: int) -> None:
    content = safetensors_bytes({"input": ("F32", (2,), bytes(8)), "w": ("BF16", (2, 2), bytes(8))})
    exhaust(READER, mutated(content, seed), "x.safetensors")
