"""Dumps of nano devices: tag-length-value header, bytes behind it."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from array_builders import (
    FORMAT_NC1HWC0,
    GE_FLOAT16,
    GE_FLOAT32,
    GE_INT8,
    GE_UNDEFINED,
    nano_bytes,
    nano_input,
    nano_output,
    tlv,
)
from dumpscope.errors import CorruptDumpError, DumpReadError, TruncatedDumpError
from dumpscope.model import FORM_RAW, Match
from dumpscope.readers.nano import NanoReader
from dumpscope.testing.damage import mutated
from memory_source import MemorySource, read_all, read_op
from reader_fuzz import exhaust

READER = NanoReader()
F32 = np.array([1, 2, 3, 4], "<f4").tobytes()
F16 = np.array([5, 6], "<f2").tobytes()


def test_inputs_and_outputs_with_their_bytes() -> None:
    content = nano_bytes(
        [nano_input(GE_FLOAT32, 16, (2, 2), (2, 2), address=64)],
        [nano_output(GE_FLOAT16, 4, (2,), name="before_fusion\0")],
        F32 + F16,
    )
    source = MemorySource(content)
    assert READER.sniff(source.head, source.file) is Match.CONTENT
    op, faults = read_op(READER, source)
    assert not faults
    assert (op.op_type, op.op_name) == ("MatMulV2", "net_MatMul-op0")
    assert (op.task_id, op.stream_id, op.timestamp) == (5, 2, 1764417600000000)
    assert (op.form, op.partial) == (FORM_RAW, False)
    first, second = op.tensors
    assert (first.role, first.index, first.dtype, first.address) == ("input", 0, "float32", 64)
    assert first.load().tolist() == [[1, 2], [3, 4]]
    assert (second.role, second.dtype, second.name) == ("output", "float16", "before_fusion")
    assert second.load().tolist() == [5, 6]
    assert second.offset == len(content) - 4


def test_a_blocked_layout_is_put_in_order() -> None:
    blocked = np.full((1, 1, 2, 1, 16), np.nan, np.float16)
    blocked[0, 0, :, 0, :3] = [[1, 2, 3], [4, 5, 6]]
    content = nano_bytes(
        [],
        [nano_output(GE_FLOAT16, 64, (1, 1, 2, 1, 16), (1, 3, 2, 1), layout=FORMAT_NC1HWC0,
                     original_format=0)],
        blocked.tobytes(),
    )  # fmt: skip
    op, _ = read_op(READER, MemorySource(content))
    (tensor,) = op.tensors
    assert (tensor.layout, tensor.shape) == ("NC1HWC0", (1, 3, 2, 1))
    assert tensor.load().reshape(3, 2).tolist() == [[1, 4], [2, 5], [3, 6]]


def test_without_shapes_the_bytes_are_one_row() -> None:
    content = nano_bytes([nano_input(GE_FLOAT32, 16)], [], F32)
    op, _ = read_op(READER, MemorySource(content))
    assert op.tensors[0].load().tolist() == [1, 2, 3, 4]
    assert op.partial


def test_a_dynamic_shape_is_no_shape() -> None:
    content = nano_bytes([nano_input(GE_FLOAT32, 16, (2**64 - 1, 4))], [], F32)
    op, _ = read_op(READER, MemorySource(content))
    assert op.tensors[0].shape == (4,)


def test_an_empty_shape_is_a_scalar_and_padding_is_noted() -> None:
    content = nano_bytes([nano_input(GE_FLOAT32, 16, ())], [], F32)
    op, faults = read_op(READER, MemorySource(content))
    (tensor,) = op.tensors
    assert not faults
    assert float(tensor.load()) == 1.0
    assert tensor.load().shape == ()
    assert tensor.notes == ("surplus_bytes:12",)


def test_an_input_with_a_shape_and_no_bytes_was_not_dumped() -> None:
    content = nano_bytes(
        [nano_input(GE_FLOAT32, 0, (2, 2)), nano_input(GE_FLOAT32, 0, (0, 2))],
        [nano_output(GE_FLOAT16, 4, (2,))],
        F16,
    )
    op, faults = read_op(READER, MemorySource(content))
    first, empty, last = op.tensors
    assert not faults
    assert (first.dumped, first.unchecked, first.missing_bytes) == (False, None, 0)
    assert empty.dumped
    assert last.load().tolist() == [5, 6]


@pytest.mark.parametrize(
    ("code", "reason"), [(GE_UNDEFINED, "undefined_dtype"), (77, "unknown_dtype")]
)
def test_types_that_are_not_known_are_unchecked(code: int, reason: str) -> None:
    content = nano_bytes(
        [nano_input(code, 16, (2, 2))], [nano_output(GE_FLOAT16, 4, (2,))], F32 + F16
    )
    op, faults = read_op(READER, MemorySource(content))
    assert not faults
    assert op.tensors[0].unchecked == reason
    assert op.tensors[1].load().tolist() == [5, 6]


def test_unknown_fields_are_passed_over() -> None:
    header = struct.pack("<2I", 0x5A5A5A5A, 9) + tlv(0, b"name") + tlv(99, bytes(7))
    header += tlv(4, struct.pack("<I", 1) + nano_input(GE_INT8, 2, (2,)))
    content = struct.pack("<Q", len(header)) + header + b"\1\2"
    op, _ = read_op(READER, MemorySource(content))
    assert op.tensors[0].load().tolist() == [1, 2]


def test_a_cut_off_file_is_checked_as_far_as_it_goes() -> None:
    content = nano_bytes(
        [nano_input(GE_FLOAT32, 16, (4,))], [nano_output(GE_FLOAT16, 4, (2,))], F32 + F16
    )
    op, faults = read_op(READER, MemorySource(content[:-10]))
    first, second = op.tensors
    assert (first.missing_bytes, first.data.nbytes if first.data else 0) == (6, 8)
    assert second.unchecked == "truncated"
    assert [type(fault) for fault in faults] == [TruncatedDumpError]


@pytest.mark.parametrize("length", range(16))
def test_a_file_cut_inside_its_start_is_damage(length: int) -> None:
    content = nano_bytes([nano_input(GE_FLOAT32, 16, (4,))], [], F32)[:length]
    (fault,) = read_all(READER, MemorySource(content))
    assert isinstance(fault, TruncatedDumpError)


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (nano_bytes([nano_input(GE_FLOAT32, 0)], [], b"", length=2**63), CorruptDumpError),
        (nano_bytes([nano_input(GE_FLOAT32, 0)], [], b"", length=4), CorruptDumpError),
        (nano_bytes([nano_input(GE_FLOAT32, 0)], [], b"", length=5000), TruncatedDumpError),
        (nano_bytes([], [], b"x" * 40), CorruptDumpError),
        (
            struct.pack("<Q3I", 16, 0x5A5A5A5A, 1, 4) + struct.pack("<I", 2**32 - 1),
            CorruptDumpError,
        ),
        (
            struct.pack("<Q2I", 20, 0x5A5A5A5A, 1) + tlv(4, struct.pack("<I", 2**32 - 1)),
            CorruptDumpError,
        ),
        (bytes(64), CorruptDumpError),
    ],
)
def test_damaged_headers(content: bytes, kind: type[DumpReadError]) -> None:
    source = MemorySource(content)
    (fault,) = read_all(READER, source)
    assert isinstance(fault, kind)
    assert fault.path == source.file.relative
    assert source.largest_read <= len(content)


def test_a_cann_dump_is_left_to_others() -> None:
    source = MemorySource(struct.pack("<Q", 20) + b"\x0a\x032.0" + bytes(40))
    assert READER.sniff(source.head, source.file) is Match.NONE


@given(st.integers(0, 2**32))
def test_damage_never_raises_anything_else(seed: int) -> None:
    content = nano_bytes(
        [nano_input(GE_FLOAT32, 16, (2, 2), (2, 2)), nano_input(GE_INT8, 0)],
        [nano_output(GE_FLOAT16, 4, (2,), (2,), name="x")],
        F32 + F16,
    )
    exhaust(READER, mutated(content, seed), "Add.x.1.2.1764417600000000")
