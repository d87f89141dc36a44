"""Bare bytes whose name says everything."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dumpscope.errors import CorruptDumpError, TruncatedDumpError
from dumpscope.model import FORM_CONVERTED, Match
from dumpscope.readers.raw_bin import RawBinReader
from dumpscope.testing.damage import mutated
from memory_source import MemorySource, read_all, read_op
from reader_fuzz import exhaust

READER = RawBinReader()
DUMP = "Conv2D.net_conv1.3.1.1600000000000000"


def sniff(name: str) -> Match:
    return READER.sniff(b"", MemorySource(b"", name).file)


def test_the_name_describes_the_tensor() -> None:
    values = np.arange(6, dtype=np.float16).reshape(1, 2, 3)
    name = f"{DUMP}.input.1.1_2_3.float16.NCHW.bin"
    op, faults = read_op(READER, MemorySource(values.tobytes(), name))
    (tensor,) = op.tensors
    assert not faults
    assert (op.op_type, op.op_name, op.task_id, op.stream_id) == ("Conv2D", "net_conv1", 3, 1)
    assert (op.timestamp, op.form, op.partial) == (1600000000000000, FORM_CONVERTED, True)
    assert (tensor.role, tensor.index, tensor.layout) == ("input", 1, "NCHW")
    assert np.array_equal(tensor.load(), values)


def test_a_name_without_a_role_is_an_output() -> None:
    name = f"{DUMP}.2.4_.float32.ND.bin"
    op, _ = read_op(READER, MemorySource(bytes(16), name))
    assert (op.op_name, op.tensors[0].role, op.tensors[0].index) == ("net_conv1", "output", 2)
    assert op.tensors[0].shape == (4,)


def test_packed_types_have_their_packed_size() -> None:
    name = f"{DUMP}.output.0.3.int4.ND.bin"
    op, faults = read_op(READER, MemorySource(b"\x81\x07", name))
    assert not faults
    assert op.tensors[0].load().astype(np.int8).tolist() == [1, -8, 7]


def test_a_workspace_is_no_tensor() -> None:
    name = f"{DUMP}.space.0.bin"
    assert sniff(name) is Match.NAME
    assert read_all(READER, MemorySource(b"\xff" * 64, name)) == []


@pytest.mark.parametrize(
    ("word", "reason"), [("undefined", "undefined_dtype"), ("variant", "unknown_dtype")]
)
def test_types_that_are_not_known_are_unchecked(word: str, reason: str) -> None:
    op, faults = read_op(READER, MemorySource(bytes(8), f"{DUMP}.output.0.2.{word}.ND.bin"))
    assert not faults
    assert op.tensors[0].unchecked == reason


def test_too_few_and_too_many_bytes() -> None:
    name = f"{DUMP}.output.0.2_2.float32.ND.bin"
    op, faults = read_op(READER, MemorySource(bytes(10), name))
    assert op.tensors[0].missing_bytes == 6
    assert [type(fault) for fault in faults] == [TruncatedDumpError]
    op, faults = read_op(READER, MemorySource(bytes(20), name))
    assert op.tensors[0].notes == ("surplus_bytes:4",)
    assert not faults


def test_a_shape_larger_than_any_memory_is_damage() -> None:
    name = f"{DUMP}.output.0.{'_'.join(['999999999'] * 8)}.float32.ND.bin"
    (fault,) = read_all(READER, MemorySource(bytes(8), name))
    assert isinstance(fault, CorruptDumpError)


@pytest.mark.parametrize(
    "name", ["weights.bin", f"{DUMP}", f"{DUMP}.output.0.npy", "input_0.bin", "a.bin.txt"]
)
def test_other_names_are_left_to_others(name: str) -> None:
    assert sniff(name) is Match.NONE


@given(st.integers(0, 2**32))
def test_damage_never_raises_anything_else(seed: int) -> None:
    names = ("2_2.float32.ND", "3_.bfloat16.NC1HWC0", "5.hifloat8.ND", "9.uint1.ND", ".float32.ND")
    exhaust(READER, mutated(bytes(range(64)), seed), f"{DUMP}.output.0.{names[seed % 5]}.bin")
