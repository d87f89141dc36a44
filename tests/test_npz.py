"""Archives of arrays: keys, roles, deflated members, damage."""

from __future__ import annotations

import io
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from array_builders import npy_bytes, npz_bytes
from dumpscope.dtypes import dtype_named
from dumpscope.errors import (
    CorruptDumpError,
    DumpReadError,
    TruncatedDumpError,
    UnsupportedDtypeError,
)
from dumpscope.model import DumpFile, Match
from dumpscope.readers.array_roles import locate_key, role_of_key, role_of_stem, split_key
from dumpscope.readers.npz import NpzReader
from dumpscope.readers.protocol import Execution
from dumpscope.source import LocalSource, ReadBuffer
from dumpscope.stats.measuring import measure
from dumpscope.testing.damage import mutated
from memory_source import MemorySource, read_all
from reader_fuzz import exhaust

READER = NpzReader()
ONE = npy_bytes("<f4", (1,), b"\0\0\x80?")
TWO = npy_bytes("<f4", (1,), b"\0\0\0@")


def read_npz(content: bytes, name: str = "hook.npz") -> tuple[list[Execution], list[DumpReadError]]:
    records = read_all(READER, MemorySource(content, name))
    executions = [record for record in records if isinstance(record, Execution)]
    return executions, [record for record in records if isinstance(record, DumpReadError)]


def slots(execution: Execution) -> list[tuple[str, int, float]]:
    return [(t.role, t.index, float(t.load().ravel()[0])) for t in execution.tensors]


# --- keys -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key", ["input", "Inputs", "in", "args", "kwargs", "grad_output", "gradOutputs"]
)
def test_keys_of_inputs(key: str) -> None:
    assert role_of_key(key) == ("input",)


@pytest.mark.parametrize("key", ["output", "outputs", "OUT", "result", "grad_input", "gradInput"])
def test_keys_of_outputs(key: str) -> None:
    assert role_of_key(key) == ("output",)


@pytest.mark.parametrize("key", ["weight", "", "inputting", "x" * 5000, "3", "input_mask"])
def test_keys_that_say_nothing(key: str) -> None:
    assert role_of_key(key) == ()


def test_numbers_and_owners_of_keys() -> None:
    assert split_key("inputs.3") == ("input", 3)
    assert split_key("output_0") == ("output", 0)
    assert split_key("arg1") == ("input", 1)
    assert split_key("args[2]") == ("input", 2)
    assert split_key("weight_1") == (None, 1)
    assert locate_key("layer1/grad_output/0") == ("layer1", "input", 0)
    assert locate_key("layer1.fc.output") == ("layer1.fc", "output", None)
    assert locate_key("layer1.weight") == ("layer1.weight", None, None)
    assert role_of_stem("nan_input") == "input"
    assert role_of_stem("debug_Softmax_out") == "output"
    assert role_of_stem("about") is None


# --- archives -------------------------------------------------------------------------------------


@pytest.mark.parametrize("deflated", [False, True])
def test_roles_make_one_operator_and_other_keys_one_each(deflated: bool) -> None:
    content = npz_bytes(
        {"input": ONE, "output": TWO, "inputs_1": TWO, "weight": ONE}, deflated=deflated
    )
    executions, faults = read_npz(content)
    assert not faults
    assert [op.op_name for op in executions] == ["hook", "hook.weight"]
    assert slots(executions[0]) == [("input", 0, 1.0), ("output", 0, 2.0), ("input", 1, 2.0)]
    assert slots(executions[1]) == [("output", 0, 1.0)]
    assert executions[0].tensors[2].name == "inputs_1"


def test_keys_with_the_same_slot_get_free_ones() -> None:
    executions, _ = read_npz(npz_bytes({"input": ONE, "x/input": TWO, "inputs": TWO}))
    execution = executions[0]
    assert [(t.role, t.index) for t in execution.tensors] == [("input", 0), ("input", 1)]


def test_a_backward_hook_is_the_other_way_round() -> None:
    executions, _ = read_npz(npz_bytes({"fc/grad_output": ONE, "fc/grad_input": TWO}))
    assert executions[0].op_name == "hook.fc"
    assert slots(executions[0]) == [("input", 0, 1.0), ("output", 0, 2.0)]


def test_one_array_without_a_key_is_the_file() -> None:
    executions, _ = read_npz(npz_bytes({"arr_0": ONE}))
    assert [op.op_name for op in executions] == ["hook"]
    executions, _ = read_npz(npz_bytes({"arr_0": ONE, "arr_1": ONE}))
    assert [op.op_name for op in executions] == ["hook.arr_0", "hook.arr_1"]


def test_a_file_of_inputs_holds_inputs() -> None:
    executions, _ = read_npz(npz_bytes({"a": ONE, "b": TWO}), "nan_input.npz")
    assert [op.op_name for op in executions] == ["nan_input"]
    assert slots(executions[0]) == [("input", 0, 1.0), ("input", 1, 2.0)]


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_what_numpy_saves_is_read_back(save: object, tmp_path: Path) -> None:
    assert callable(save)
    array = np.asfortranarray(np.arange(300_000, dtype=np.float64).reshape(500, 600))
    array[400, 7] = np.inf
    path = tmp_path / "saved.npz"
    save(path, output=array, input=np.float16(3))
    status = path.stat()
    file = DumpFile(str(path), path.name, path.name, status.st_size, 0, 0, 0)
    with LocalSource(file, ReadBuffer()) as source:
        (execution,) = READER.read(source)
        assert isinstance(execution, Execution)
        output, scalar = execution.tensors
        assert (output.role, scalar.role, scalar.shape) == ("output", "input", ())
        assert np.array_equal(output.load(), array)
        assert output.data is not None
        blocks = [len(block) for block in output.data.blocks()]
        assert sum(blocks) == array.nbytes
        assert all(size % 16 == 0 for size in blocks[:-1])
        stats = measure(output.data, dtype_named("float64"), output.geometry).stats
        assert (stats.posinf, stats.first_bad) == (1, (400, 7))


def test_an_empty_archive_holds_nothing() -> None:
    out = io.BytesIO()
    np.savez(out)
    assert read_all(READER, MemorySource(out.getvalue(), "x.npz")) == []


# --- damage ---------------------------------------------------------------------------------------


def test_a_member_that_is_no_array_does_not_hide_the_others() -> None:
    objects = npy_bytes("|O", (1,), b"cos\nsystem\n(S'true'\ntR.")
    executions, faults = read_npz(npz_bytes({"a": objects, "b": ONE, "c": b"nonsense"}))
    assert [op.op_name for op in executions] == ["hook.b"]
    assert [type(fault) for fault in faults] == [UnsupportedDtypeError, CorruptDumpError]
    assert all(fault.path == "0/hook.npz" for fault in faults)


@pytest.mark.parametrize("deflated", [False, True])
def test_what_is_complete_of_a_cut_off_archive_counts(deflated: bool) -> None:
    noise = np.random.default_rng(1).integers(0, 256, 4096, np.uint8)
    big = npy_bytes("|u1", (4096,), noise.tobytes())
    content = npz_bytes({"input": ONE, "output": big}, deflated=deflated)
    executions, faults = read_npz(content[: len(content) // 2])
    loaded = [t for t in executions[0].tensors if t.role == "input"]
    assert float(loaded[0].load()[0]) == 1.0
    assert any(isinstance(fault, TruncatedDumpError) for fault in faults)
    assert "directory" in str(faults[-1]) or "directory" in str(faults[0])


def test_members_that_share_bytes_are_refused() -> None:
    content = bytearray(npz_bytes({"a": ONE, "b": ONE}))
    for _ in range(2):  # both entries of the directory claim the whole file
        at = content.index(b"PK\1\2")
        struct.pack_into("<2I", content, at + 20, len(content) - 100, len(content) - 100)
        content[at : at + 2] = b"QK"
    content = bytearray(bytes(content).replace(b"QK\1\2", b"PK\1\2"))
    executions, faults = read_npz(bytes(content))
    assert not executions
    assert isinstance(faults[0], CorruptDumpError)


def test_a_size_that_deflate_cannot_make_is_refused() -> None:
    content = bytearray(npz_bytes({"a": npy_bytes("|u1", (10,), bytes(10))}, deflated=True))
    at = content.index(b"PK\1\2")
    struct.pack_into("<I", content, at + 24, 0x7FFFFFFF)
    executions, faults = read_npz(bytes(content))
    assert not executions
    assert isinstance(faults[0], CorruptDumpError)


def test_an_archive_of_something_else_is_left_to_others() -> None:
    source = MemorySource(npz_bytes({"a": ONE}), "hook.zip")
    assert READER.sniff(source.head, source.file) is Match.CONTENT
    other = MemorySource(b"PK\3\4" + bytes(22) + b"\x10\0\0\0archive/data.pkl", "x.pt")
    assert READER.sniff(other.head, other.file) is Match.NONE
    (fault,) = read_npz(b"no zip file", "x.npz")[1]
    assert isinstance(fault, CorruptDumpError)


@given(st.integers(0, 2**32), st.booleans())
def test_damage_never_raises_anything_else(seed: int, deflated: bool) -> None:
    content = npz_bytes({"input": ONE, "w": TWO, "output": ONE}, deflated=deflated)
    exhaust(READER, mutated(content, seed), "x.npz")
