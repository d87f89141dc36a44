from __future__ import annotations

import json
import struct
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import (
    BFLOAT16,
    FLOAT16,
    FLOAT32,
    FRACTAL_NZ,
    INT4,
    INT64,
    ND,
    NHWC,
    ONES_64,
    STRING,
    UNDEFINED,
    Tensor,
    bytes_field,
    dump_file,
    dump_message,
    frame,
    number_field,
    varint,
)
from dumpscope.errors import CorruptDumpError, DumpReadError, TruncatedDumpError
from dumpscope.model import Match
from dumpscope.readers.adump import AdumpReader
from dumpscope.readers.protocol import Execution, FileSlice, TensorRecord
from memory_source import NAME, MemorySource, read_all, read_op

READER = AdumpReader()
A = np.array([[1.5, -2.0, 65504.0], [0.0, np.inf, 6e-8]], "<f2")
B = np.array([3.25, np.nan, -1e38, 7.0], "<f4")


def half(values: np.ndarray, **more: Any) -> Tensor:
    fields = {"dtype": FLOAT16, "shape": values.shape, **more}
    return Tensor(values.tobytes(), **fields)


def single(values: np.ndarray, **more: Any) -> Tensor:
    return half(values, **{"dtype": FLOAT32, **more})


def read(content: bytes, name: str = NAME) -> tuple[Execution, list[DumpReadError]]:
    return read_op(READER, MemorySource(content, name))


def only(content: bytes, name: str = NAME) -> TensorRecord:
    """The one tensor of an undamaged file."""
    execution, errors = read(content, name)
    assert errors == []
    assert len(execution.tensors) == 1
    return execution.tensors[0]


def place_of(tensor: TensorRecord) -> tuple[int, int]:
    assert isinstance(tensor.data, FileSlice)
    return tensor.data.offset, tensor.data.nbytes


def test_tensors_of_a_whole_file() -> None:
    content = dump_file(
        (half(A, address=0x1000), single(B, address=0x2000)),
        (half(A[::-1].copy(), address=0x3000, offset=64, origin_name="net/MatMul"),),
        op_name="net/layers/1/MatMul",
        attributes=(("trans", "true"),),
    )
    execution, errors = read(content)
    assert errors == []
    assert (execution.op_type, execution.op_name) == ("MatMulV2", "net/layers/1/MatMul")
    assert (execution.task_id, execution.stream_id) == (5, 2)
    assert execution.timestamp == 1764417600000000
    assert execution.attributes == (("trans", "true"),)
    assert not execution.partial
    assert [(t.role, t.index, t.dtype, t.layout, t.shape) for t in execution.tensors] == [
        ("input", 0, "float16", "ND", (2, 3)),
        ("input", 1, "float32", "ND", (4,)),
        ("output", 0, "float16", "ND", (2, 3)),
    ]
    assert [t.address for t in execution.tensors] == [0x1000, 0x2000, 0x3000]
    assert [t.offset for t in execution.tensors] == [0, 0, 64]
    assert [t.size_bytes for t in execution.tensors] == [12, 16, 12]
    assert [t.name for t in execution.tensors] == [None, None, "net/MatMul"]
    for tensor, expected in zip(execution.tensors, (A, B, A[::-1]), strict=True):
        np.testing.assert_array_equal(tensor.load(), expected)
        assert tensor.notes == ()


def test_order_of_the_bytes_is_inputs_outputs_buffers_spaces() -> None:
    content = dump_file((half(A),), (half(-A),), buffers=(b"L1L1",), spaces=(b"log of the kernel",))
    execution, errors = read(content)
    assert errors == []
    np.testing.assert_array_equal(execution.tensors[1].load(), -A)
    body = 8 + struct.unpack("<Q", content[:8])[0]
    assert [place_of(t) for t in execution.tensors] == [(body, 12), (body + 12, 12)]


@pytest.mark.parametrize("packed", [True, False])
def test_dims_may_be_packed_or_not(packed: bool) -> None:
    tensor = only(dump_file((), (half(A, packed=packed, original_shape=(2, 3)),)))
    assert tensor.shape == (2, 3)


def test_scalars_stay_without_dimensions() -> None:
    value = np.array(2.5, "<f4")
    tensor = only(dump_file((single(value),)))
    assert tensor.shape == ()
    loaded = tensor.load()
    assert loaded.shape == ()
    assert float(loaded) == 2.5
    assert not loaded.flags.writeable


def test_scalar_with_more_bytes_behind_it_is_one_item() -> None:
    tensor = only(dump_file((Tensor(B.tobytes(), FLOAT32, ()),)))
    assert float(tensor.load()) == 3.25
    assert tensor.notes == ("surplus_bytes:12",)
    assert tensor.size_bytes == 16


def test_allocation_padding_is_noted_and_not_read() -> None:
    padded = Tensor(A.tobytes() + b"\xff\x7f" * 10, FLOAT16, (2, 3))
    execution, errors = read(dump_file((padded,), (half(A),)))
    assert errors == []
    np.testing.assert_array_equal(execution.tensors[0].load(), A)
    np.testing.assert_array_equal(execution.tensors[1].load(), A)
    assert execution.tensors[0].notes == ("surplus_bytes:20",)
    assert execution.tensors[0].missing_bytes == 0


def test_empty_tensor_has_nothing_to_check() -> None:
    execution, errors = read(dump_file((half(np.empty((4, 0), "<f2")),), (half(A),)))
    assert errors == []
    empty = execution.tensors[0]
    assert (empty.shape, empty.dumped, empty.unchecked) == ((4, 0), True, None)
    np.testing.assert_array_equal(execution.tensors[1].load(), A)


@pytest.mark.parametrize("shape", [(2, 3), ()])
def test_input_without_bytes_was_not_dumped(shape: tuple[int, ...]) -> None:
    execution, errors = read(dump_file((Tensor(b"", FLOAT16, shape),), (half(A),)))
    assert errors == []
    assert not execution.tensors[0].dumped
    assert execution.tensors[0].unchecked is None
    assert execution.tensors[0].missing_bytes == 0


def test_output_without_bytes_is_cut_off() -> None:
    execution, errors = read(dump_file((half(A),), (Tensor(b"", FLOAT16, (2, 3)),)))
    assert [type(error) for error in errors] == [TruncatedDumpError]
    assert execution.tensors[1].unchecked == "truncated"
    assert execution.tensors[1].missing_bytes == 12
    assert execution.tensors[1].dumped


def test_output_without_bytes_and_address_was_not_dumped() -> None:
    content = dump_file((half(A, address=64),), (Tensor(b"", FLOAT16, (2, 3)),))
    execution, errors = read(content)
    assert errors == []
    assert not execution.tensors[1].dumped


def test_only_inputs_or_only_outputs_are_a_part() -> None:
    assert read(dump_file((half(A),)))[0].partial
    assert read(dump_file((), (half(A),)))[0].partial


@pytest.mark.parametrize(
    ("dtype", "reason"),
    [
        (UNDEFINED, "undefined_dtype"),
        (99, "unknown_dtype"),
        (25, "unsupported_dtype"),
        (41, "unsupported_dtype"),
    ],
)
def test_unknown_types_are_unchecked(dtype: int, reason: str) -> None:
    execution, errors = read(dump_file((Tensor(b"\0" * 10, dtype, (5,)),), (half(A),)))
    assert errors == []
    assert execution.tensors[0].unchecked == reason
    assert execution.tensors[0].shape == (5,)
    np.testing.assert_array_equal(execution.tensors[1].load(), A)


def test_unknown_type_is_called_by_its_number() -> None:
    assert only(dump_file((Tensor(b"\0" * 4, 99, (2,)),))).dtype == "dtype99"


def test_strings_are_neither_checked_nor_unchecked() -> None:
    tensor = only(dump_file((Tensor(b"some text", STRING, (2,)),)))
    assert (tensor.dtype, tensor.unchecked, tensor.missing_bytes) == ("string", None, 0)


def test_unknown_layout_is_shown_as_a_number() -> None:
    tensor = only(dump_file((half(A, layout=200),)))
    assert (tensor.layout, tensor.shape) == ("format200", (2, 3))


def test_packed_type_takes_half_a_byte_each() -> None:
    tensor = only(dump_file((Tensor(b"\x21\x43\x05", INT4, (5,)),)))
    assert place_of(tensor)[1] == 3
    assert tensor.load().astype(int).tolist() == [1, 2, 3, 4, 5]


def test_bfloat16_values() -> None:
    raw = (np.array([1.0, -2.5, np.inf], "<f4").view("<u4") >> 16).astype("<u2")
    tensor = only(dump_file((Tensor(raw.tobytes(), BFLOAT16, (3,)),)))
    assert tensor.load().astype(np.float32).tolist() == [1.0, -2.5, np.inf]


def test_blocked_layout_loads_in_logical_order() -> None:
    logical = np.arange(20 * 18, dtype="<f2").reshape(20, 18)
    stored = np.full((32, 32), np.nan, "<f2")
    stored[:20, :18] = logical
    blocks = stored.reshape(2, 16, 2, 16).transpose(2, 0, 1, 3).copy()
    tensor = only(dump_file((), (half(blocks, layout=FRACTAL_NZ, original_shape=(20, 18)),)))
    assert tensor.shape == (20, 18)
    assert tensor.geometry.stored_shape == (2, 2, 16, 16)
    np.testing.assert_array_equal(tensor.load(), logical)


def test_original_format_of_an_output_decides_what_the_numbers_leave_open() -> None:
    blocks = np.arange(16 * 4 * 4 * 16, dtype="<f2").reshape(16, 1, 4, 4, 16)
    output = half(blocks, layout=3, original_shape=(16, 4, 4, 16), origin_format=NHWC)
    tensor = only(dump_file((), (output,)))
    np.testing.assert_array_equal(tensor.load(), blocks[:, 0])


def test_original_shape_of_plain_layouts_changes_nothing() -> None:
    assert only(dump_file((half(A, original_shape=(6,)),))).shape == (2, 3)


# --- the name of the operator ---------------------------------------------------------------------


def test_header_without_name_takes_that_of_the_file() -> None:
    execution, _ = read(dump_file((half(A),), op_name=None))
    assert execution.op_name == "net_MatMul-op0"


def test_name_that_is_not_utf8_is_kept_in_hex() -> None:
    execution, errors = read(dump_file((half(A),), op_name=b"net/\xff\xfe\x41"))
    assert errors == []
    assert execution.op_name == "net/\\xff\\xfeA"


def test_hashed_file_is_called_by_the_header_or_as_it_is_on_disk() -> None:
    execution, _ = read(dump_file((half(A),), dump_time=1764417600123456), "10281248180722942886")
    assert (execution.op_type, execution.op_name) == ("", "net/MatMul-op0")
    assert execution.timestamp == 1764417600123456
    execution, _ = read(dump_file((half(A),), op_name=None), "10281248180722942886")
    assert execution.op_name == "10281248180722942886"
    assert execution.timestamp is None


def test_ffts_name_carries_context_and_thread() -> None:
    name = "MatMulV2.net_MatMul_sgt_graph_0.9.2.1764417600000248.4.103.1.0"
    execution, _ = read(dump_file((half(A),)), name)
    assert (execution.context_id, execution.thread_id) == (103, 1)
    assert execution.task_id == 9


# --- addresses of 0 -------------------------------------------------------------------------------


def test_tensors_without_address_are_left_out_where_the_file_is_short_by_them() -> None:
    left_out = half(A, written=b"")
    content = dump_file(
        (half(A, address=64), left_out), (single(B, address=96), replace_address(left_out, 0))
    )
    execution, errors = read(content)
    assert errors == []
    assert [t.dumped for t in execution.tensors] == [True, False, True, False]
    assert [t.unchecked for t in execution.tensors] == [None] * 4
    np.testing.assert_array_equal(execution.tensors[0].load(), A)
    np.testing.assert_array_equal(execution.tensors[2].load(), B)


def replace_address(tensor: Tensor, address: int) -> Tensor:
    return Tensor(tensor.data, tensor.dtype, tensor.shape, address=address, written=tensor.written)


def test_tensors_without_address_are_read_where_their_bytes_are() -> None:
    execution, errors = read(dump_file((half(A), single(B, address=8)), (half(-A),)))
    assert errors == []
    np.testing.assert_array_equal(execution.tensors[2].load(), -A)


def test_file_cut_behind_the_header_is_damage_where_no_entry_has_an_address() -> None:
    content = dump_file((half(A, written=b""),), (half(A, written=b""),))
    execution, errors = read(content)
    assert [type(error) for error in errors] == [TruncatedDumpError]
    assert [t.unchecked for t in execution.tensors] == ["truncated", "truncated"]


def test_file_short_by_another_number_is_damage() -> None:
    content = dump_file((half(A, address=64), half(A)), (single(B, address=96),))
    execution, errors = read(content[:-1])
    assert [type(error) for error in errors] == [TruncatedDumpError]
    assert [t.dumped for t in execution.tensors] == [True, True, True]
    assert [t.missing_bytes for t in execution.tensors] == [0, 0, 1]


# --- exception dumps ------------------------------------------------------------------------------


def test_what_is_no_tensor_is_passed_over_but_not_its_bytes() -> None:
    inputs = (
        half(A, input_type=1),
        Tensor(b"tiling data", UNDEFINED, None, input_type=7),
        single(B, input_type=2),
        Tensor(b"stack", UNDEFINED, None, input_type=104),
    )
    execution, errors = read(dump_file(inputs, (half(-A),)), "te_matmul.3.8.0.2.20251129120000123")
    assert errors == []
    assert [(t.role, t.index) for t in execution.tensors] == [
        ("input", 0),
        ("input", 2),
        ("output", 0),
    ]
    np.testing.assert_array_equal(execution.tensors[1].load(), B)
    np.testing.assert_array_equal(execution.tensors[2].load(), -A)


def test_exception_info_is_named_after_the_file() -> None:
    execution, _ = read(
        dump_file((half(A),), op_name=None), "exception_info.2.77.20251129120000123"
    )
    assert execution.op_name == "exception_info"
    assert (execution.stream_id, execution.task_id) == (2, 77)


# --- FFTS+ ----------------------------------------------------------------------------------------

FFTS_NAME = "MatMulV2.net_MatMul_sgt_graph_0.9.2.1764417600000248.4.103.{thread}.0"


def slices(*threads: tuple[tuple[int, int], ...]) -> list[list[list[dict[str, int]]]]:
    return [[[{"lower": low, "higher": high} for low, high in dims]] for dims in threads]


@pytest.mark.parametrize(("thread", "rows"), [(0, 4), (1, 2)])
def test_slice_of_a_thread_is_not_a_truncation(thread: int, rows: int) -> None:
    part = np.arange(rows * 3, dtype="<f2").reshape(rows, 3)
    cuts = slices(((0, 4), (0, 3)), ((4, 6), (0, 3)))
    attribute = json.dumps(
        {"threadMode": 1, "input_tensor_slice": cuts, "output_tensor_slice": cuts}
    )
    whole = Tensor(part.tobytes(), FLOAT16, (6, 3))
    content = dump_file((whole,), (whole,), attributes=(("ffts", attribute),))
    execution, errors = read(content, FFTS_NAME.format(thread=thread))
    assert errors == []
    for tensor in execution.tensors:
        assert tensor.shape == (rows, 3)
        assert tensor.missing_bytes == 0
        np.testing.assert_array_equal(tensor.load(), part)


def test_shape_of_the_slice_itself_needs_no_attribute() -> None:
    tensor = only(dump_file((half(A),)), FFTS_NAME.format(thread=1))
    np.testing.assert_array_equal(tensor.load(), A)


@pytest.mark.parametrize(
    "attribute",
    [
        '{"input_tensor_slice": [[[{"lower": 0, "higher": 9}, {"lower": 0, "higher": 3}]]]}',
        '{"input_tensor_slice": [[[{"lower": 2, "higher": 0}, {"lower": 0, "higher": 3}]]]}',
        '{"input_tensor_slice": [[["tensor_slice"]]]}',
        '{"input_tensor_slice": {"0": []}}',
        '{"input_tensor_slice": [[]]}',
        '{"input_tensor_slice": ' + "[" * 20000,
        '["input_tensor_slice"]',
        "no JSON: input_tensor_slice",
    ],
)
def test_slices_that_do_not_fit_leave_a_truncated_tensor(attribute: str) -> None:
    content = dump_file((Tensor(A.tobytes(), FLOAT16, (6, 3)),), attributes=(("ffts", attribute),))
    execution, errors = read(content, FFTS_NAME.format(thread=0))
    assert [type(error) for error in errors] == [TruncatedDumpError]
    assert execution.tensors[0].missing_bytes == 24


# --- version 1 ------------------------------------------------------------------------------------


def test_version_1_has_the_bytes_inside() -> None:
    content = dump_message(
        (half(A, inline=True), single(B, inline=True)),
        (half(-A, inline=True, size=0),),
        version="1.0",
        op_name="net/old",
    )
    source = MemorySource(content)
    assert READER.sniff(source.head, source.file) is Match.CONTENT
    execution, errors = read_op(READER, source)
    assert errors == []
    assert execution.op_name == "net/old"
    for tensor, expected in zip(execution.tensors, (A, B, -A), strict=True):
        np.testing.assert_array_equal(tensor.load(), expected)


def test_version_1_is_streamed_not_loaded() -> None:
    big = np.zeros(1 << 20, "<f2")
    content = dump_message((half(big, inline=True),), version="1.0")
    source = MemorySource(content)
    execution, _ = read_op(READER, source)
    assert source.largest_read < 4096
    assert place_of(execution.tensors[0]) == (content.index(b"\0" * 4096), 2 << 20)


def test_version_1_shorter_than_its_size_is_truncated() -> None:
    content = dump_message((half(A, inline=True, size=20, shape=(10,)),), version="1.0")
    execution, errors = read(content)
    assert [type(error) for error in errors] == [TruncatedDumpError]
    assert execution.tensors[0].missing_bytes == 8
    assert place_of(execution.tensors[0])[1] == 12


def test_version_1_cut_anywhere_is_damage() -> None:
    content = dump_message((half(A, inline=True),), (half(A, inline=True),), version="1.0")
    whole = read_all(READER, MemorySource(content))
    assert [type(record) for record in whole] == [Execution]
    for length in range(len(content)):
        records = read_all(READER, MemorySource(content[:length]))
        # A cut between two fields of a message leaves a message: then parts are missing from
        # the answer, and the file cannot say so.
        if length and isinstance(records[0], Execution):
            assert len(records[0].tensors) < 2 or records[0].op_name == "net_MatMul-op0"
        else:
            assert isinstance(records[-1], DumpReadError)


def test_inline_bytes_behind_a_length_are_a_file_without_its_body() -> None:
    execution, errors = read(frame(dump_message((), (half(A, inline=True),))))
    assert [type(error) for error in errors] == [TruncatedDumpError]
    assert execution.tensors[0].unchecked == "truncated"


# --- shapes and sizes that do not fit -------------------------------------------------------------


def test_size_below_the_shape_is_a_truncated_tensor() -> None:
    content = dump_file((Tensor(A.tobytes()[:7], FLOAT16, (2, 3)),), (half(A),))
    execution, errors = read(content)
    assert [type(error) for error in errors] == [TruncatedDumpError]
    cut = execution.tensors[0]
    assert cut.missing_bytes == 5
    assert place_of(cut)[1] == 6  # whole elements only
    assert cut.unchecked is None
    np.testing.assert_array_equal(execution.tensors[1].load(), A)
    with pytest.raises(DumpReadError):
        cut.load()


def test_dynamic_dims_are_checked_without_a_shape() -> None:
    tensor = only(dump_file((half(A, shape=(ONES_64, 3)),)))
    assert tensor.shape == (6,)
    assert tensor.notes == ("shape_unknown",)
    np.testing.assert_array_equal(tensor.load(), A.ravel())


@pytest.mark.parametrize("shape", [(1 << 40, 1 << 40), (1 << 62, 4), (2,) * 70])
def test_shape_beyond_every_memory(shape: tuple[int, ...]) -> None:
    execution, errors = read(dump_file((half(A, shape=shape),)))
    assert [type(error) for error in errors] == [TruncatedDumpError]
    tensor = execution.tensors[0]
    assert tensor.shape == (6,)
    assert tensor.missing_bytes == (1 << 63) - 1
    assert place_of(tensor)[1] == 12


def test_more_dims_than_an_array_can_have() -> None:
    tensor = only(dump_file((half(A.ravel(), shape=(*(1,) * 70, 6)),)))
    assert tensor.shape == (6,)


def test_very_many_dims_are_no_shape() -> None:
    tensor = only(dump_file((half(A, shape=(1 << 40,) * 20000),)))
    assert (tensor.shape, tensor.notes) == ((6,), ("shape_unknown",))


@pytest.mark.parametrize("size", [1 << 62, 1 << 63, ONES_64])
def test_giant_sizes_are_not_allocated(size: int) -> None:
    source = MemorySource(dump_file((half(A), half(A, size=size)), (half(A),)))
    execution, errors = read_op(READER, source)
    assert [type(error) for error in errors] == [TruncatedDumpError]
    assert source.largest_read < 4096
    assert all(tensor.size_bytes < 1 << 63 for tensor in execution.tensors)
    np.testing.assert_array_equal(execution.tensors[1].load(), A)
    assert execution.tensors[2].unchecked == "truncated"


@pytest.mark.parametrize("length", [1 << 62, 1 << 63, (1 << 63) + 5, ONES_64])
def test_giant_header_lengths_are_not_allocated(length: int) -> None:
    source = MemorySource(dump_file((half(A),), length=length))
    assert READER.sniff(source.head, source.file) is Match.CONTENT
    records = read_all(READER, source)
    assert [type(record) for record in records] == [TruncatedDumpError]
    assert source.largest_read == 0


def test_header_that_fills_a_giant_file_is_refused() -> None:
    source = MemorySource(dump_file((half(A),), length=(1 << 50) - 8), size=1 << 50)
    records = read_all(READER, source)
    assert [type(record) for record in records] == [CorruptDumpError]
    assert source.largest_read == 0


def test_header_of_very_many_entries_is_refused() -> None:
    source = MemorySource(frame(dump_message(extra=b"\x1a\x00" * (1 << 18))))
    records = read_all(READER, source)
    assert [type(record) for record in records] == [CorruptDumpError]
    source = MemorySource(frame(dump_message(extra=b"\x1a\x00" * (1 << 15))))
    records = read_all(READER, source)
    assert [type(record) for record in records] == [CorruptDumpError]


def test_trailing_bytes_are_noted() -> None:
    execution, errors = read(dump_file((half(A),), (half(A),), trailing=b"\x07" * 333))
    assert errors == []
    assert execution.tensors[0].notes == ()
    assert execution.tensors[1].notes == ("trailing_bytes:333",)


def test_header_without_tensors_is_empty_and_clean() -> None:
    execution, errors = read(dump_file())
    assert errors == []
    assert execution.tensors == []
    assert not execution.partial


def test_bytes_behind_a_header_without_tensors_are_damage() -> None:
    _, errors = read(dump_file(trailing=b"\0\0\0"))
    assert [type(error) for error in errors] == [CorruptDumpError]


def test_unknown_fields_are_passed_over() -> None:
    extra = bytes_field(1023, "of a newer writer") + number_field(77, 5)
    np.testing.assert_array_equal(only(dump_file((half(A),), extra=extra)).load(), A)


# --- headers of the wrong length ------------------------------------------------------------------


def field_ends(message: bytes) -> list[int]:
    """Where the top-level fields of a message (all of them length-delimited) end."""
    ends, at = [], 0
    while at < len(message):
        assert message[at] & 7 == 2
        assert message[at + 1] < 0x80
        at += 2 + message[at + 1]
        ends.append(at)
    return ends


def test_header_length_too_small_is_noticed_at_every_byte() -> None:
    inputs, outputs = (half(A, address=1), single(B, address=2)), (half(-A, address=3),)
    message = dump_message(inputs, outputs)
    body = A.tobytes() + B.tobytes() + (-A).tobytes()
    for length in range(1, len(message)):
        records = read_all(READER, MemorySource(frame(message, body, length=length)))
        assert isinstance(records[-1], CorruptDumpError), length
        if length in field_ends(message) and length > 5:
            assert f"expected {len(message)} as the header's length" in str(records[-1])


def test_header_length_too_large_is_noticed() -> None:
    message = dump_message((single(B),), (half(-A),))
    body = B.tobytes() + (-A).tobytes()
    for surplus in range(1, len(body) + 1):
        content = frame(message, body, length=len(message) + surplus)
        records = read_all(READER, MemorySource(content))
        assert isinstance(records[-1], DumpReadError), surplus


def test_data_taken_for_unknown_fields_is_noticed() -> None:
    # The first 6 bytes of the tensor are a field that the schema does not know.
    field = bytes_field(200, b"abc")
    assert len(field) == 6
    data = field + A.tobytes()[6:]
    message = dump_message((Tensor(data, FLOAT16, (2, 3)),))
    records = read_all(READER, MemorySource(frame(message, data, length=len(message) + 6)))
    assert [type(record) for record in records] == [CorruptDumpError]
    assert f"expected {len(message)} as the header's length" in str(records[0])


def test_truncation_by_as_many_bytes_as_the_name_has_is_no_wrong_length() -> None:
    message = dump_message((half(A),), op_name="12345")
    name_field = bytes_field(6, "12345")
    content = frame(message, A.tobytes())
    _, errors = read(content[: -len(name_field)])
    assert [type(error) for error in errors] == [TruncatedDumpError]


# --- damage in general ----------------------------------------------------------------------------


def test_truncation_anywhere_is_a_failure_and_what_is_there_is_kept() -> None:
    content = dump_file((half(A, address=8), single(B, address=9)), (half(-A, address=10),))
    body = 8 + struct.unpack("<Q", content[:8])[0]
    for length in range(len(content)):
        source = MemorySource(content[:length])
        assert READER.sniff(source.head, source.file) is not Match.NONE
        records = read_all(READER, source)
        assert isinstance(records[-1], TruncatedDumpError), length
        assert records[-1].path.endswith(NAME)
        assert records[-1].reader == "adump"
        if length < body:
            assert len(records) == 1
            continue
        execution = records[0]
        assert isinstance(execution, Execution)
        present = 0
        for tensor in execution.tensors:
            assert (tensor.unchecked == "truncated") == (tensor.data is None)
            present += tensor.geometry.stored_count * (4 if tensor.dtype == "float32" else 2)
            present -= tensor.missing_bytes
        assert present == length - body


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x01",
        bytes(8),
        bytes(4096),
        b"\xff" * 2048,
        b"Traceback (most recent call last):\n" * 10,
        bytes(range(256)) * 16,
        struct.pack("<Q", 3) + b"\x00\x00\x00" + bytes(100),
        struct.pack("<Q", 4) + number_field(999, 70) + bytes(100),
    ],
)
def test_garbage_under_a_dump_name_is_a_failure(content: bytes) -> None:
    source = MemorySource(content)
    assert READER.sniff(source.head, source.file) is Match.NAME
    records = read_all(READER, source)
    assert len(records) == 1
    error = records[0]
    assert isinstance(error, TruncatedDumpError | CorruptDumpError)
    assert error.offset is not None
    assert "expected" in error.message
    assert "found" in error.message


@given(st.binary(max_size=300), st.integers(0, 300))
def test_only_read_errors_leave_the_reader(noise: bytes, at: int) -> None:
    content = bytearray(dump_file((half(A), single(B)), (half(-A),)))
    content[at : at + len(noise)] = noise
    for record in read_all(READER, MemorySource(bytes(content))):
        assert isinstance(record, Execution | DumpReadError)


@given(st.integers(8, 200), st.integers(0, 7))
def test_flipped_bits_never_escape(at: int, bit: int) -> None:
    content = bytearray(dump_file((half(A, address=5), single(B, address=6)), (half(-A),)))
    content[min(at, len(content) - 1)] ^= 1 << bit
    for record in read_all(READER, MemorySource(bytes(content))):
        if isinstance(record, Execution):
            for tensor in record.tensors:
                offset, nbytes = place_of(tensor) if tensor.data is not None else (0, 0)
                assert offset + nbytes <= len(content)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 44),
            st.lists(st.integers(0, 1 << 64), max_size=6),
            st.integers(0, 1 << 64),
            st.integers(0, 60),
            st.integers(0, 300),
        ),
        max_size=4,
    ),
    st.binary(max_size=200),
)
def test_any_description_is_bounded_by_the_file(
    entries: list[tuple[int, list[int], int, int, int]], body: bytes
) -> None:
    tensors = [
        Tensor(b"", dtype, shape, layout, size=size % (1 << 64) >> (shift % 64), written=b"")
        for dtype, shape, size, shift, layout in entries
    ]
    content = dump_file(tensors[:2], tensors[2:], trailing=body)
    source = MemorySource(content)
    for record in read_all(READER, source):
        if isinstance(record, Execution):
            for tensor in record.tensors:
                if tensor.data is None:
                    continue
                offset, nbytes = place_of(tensor)
                assert nbytes == 0 or offset + nbytes <= len(content)
                assert 0 <= tensor.missing_bytes < 1 << 63
    assert source.largest_read <= len(content)


# --- sniffing -------------------------------------------------------------------------------------


def sniff(content: bytes, name: str) -> Match:
    source = MemorySource(content, name)
    return READER.sniff(source.head, source.file)


def test_content_is_known_under_any_name() -> None:
    content = dump_file((half(A),))
    for name in ("10281248180722942886", "anything", "a.bin", NAME):
        assert sniff(content, name) is Match.CONTENT


def test_content_without_a_version_is_known_by_its_tensors() -> None:
    assert sniff(dump_file((half(A),), version=None), "whatever") is Match.CONTENT
    assert sniff(dump_file(version=None, op_name=None, dfx="x"), "whatever") is Match.NONE


def test_name_alone_is_a_weaker_claim() -> None:
    assert sniff(b"\x93NUMPY", NAME) is Match.NAME
    assert sniff(b"", "exception_info.2.77.20251129120000123") is Match.NAME


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (b"\x93NUMPY\x01\x00", f"{NAME}.output.0.npy"),
        (b"Input/Output,Index", f"{NAME}.csv"),
        (b'{"a": 1}', "dump.json"),
        (b"PK\x03\x04" + bytes(30), "model.pt"),
        (struct.pack("<Q", 40) + b'{"weight":{"dtype":"F16"' + bytes(64), "a.safetensors"),
        (struct.pack("<QI", 40, 0x5A5A5A5A) + bytes(64), "anything"),
        (b"12345678\n\t1.5 is no version", "notes.txt"),
        (b"\n\n2025 log", "train.log"),
        (b"", "empty"),
    ],
)
def test_other_files_are_not_claimed(content: bytes, name: str) -> None:
    assert sniff(content, name) is Match.NONE


@pytest.mark.parametrize(
    "name",
    ["Opdebug.Node_OpDebug.9.1.1764417600003150", "OpDebug.Node_Opdebug.9.1.1764417600003150"],
)
def test_overflow_records_are_left_to_their_reader(name: str) -> None:
    assert sniff(dump_file((), (half(A),)), name) is Match.NONE


# --- the wire format itself -----------------------------------------------------------------------


@given(st.integers(0, ONES_64))
def test_builder_writes_numbers_that_the_reader_reads(value: int) -> None:
    encoded = varint(value)
    assert len(encoded) <= 10
    tensor = Tensor(A.tobytes(), FLOAT16, (2, 3), address=value % (1 << 63))
    assert only(dump_file((tensor,))).address == value % (1 << 63)


def test_entries_keep_their_order() -> None:
    values = [np.full(3, n, "<i8") for n in range(40)]
    tensors = [Tensor(v.tobytes(), INT64, (3,), ND) for v in values]
    execution, errors = read(dump_file(tensors[:30], tensors[30:]))
    assert errors == []
    assert [int(t.load()[0]) for t in execution.tensors] == list(range(40))
    offsets = [place_of(t)[0] for t in execution.tensors]
    assert all(b - a == 24 for a, b in pairwise(offsets))
