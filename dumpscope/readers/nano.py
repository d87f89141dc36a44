"""Operator dumps of the nano devices: a header of tag-length-value fields, then the bytes.

Source: the layout of `DbgInputDescParamTlv2` and `DbgOutputDescParamTlv2` in GE's public
`nano_dbg_desc.h`, and the vendor's parser. All integers are little-endian and nothing is padded.

==============  ================================================================================
offset          what
==============  ================================================================================
0               u64 H, length of the header
8               u32 magic 0x5A5A5A5A
12              u32 version
16              fields up to 8 + H, each u32 tag, u32 length, then so many bytes: tag 4 inputs,
                tag 5 outputs, others are passed over
8 + H           the bytes of every input, then every output, each as many as its `size`
==============  ================================================================================

A field of inputs or outputs is a u32 count and so many entries:

==============================  ================================================================
entry                           what
==============================  ================================================================
i32 data type, i32 format       in GE's numbering (`ge_codes`)
i32 address type
i32 × 3, outputs only           original index, original data type, original format
u64 address, u64 offset
u64 size                        bytes of the tensor
u32 length                      of the fields that follow; 0: no shapes
fields                          tag 0 the shape, 1 the original shape (u64 each), 2 the original
                                name (outputs only)
==============================  ================================================================

The name of the file is that of a CANN operator dump.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from dumpscope.errors import CorruptDumpError, DumpReadError, TruncatedDumpError
from dumpscope.layouts import Geometry, layout_name, plan_geometry
from dumpscope.model import FORM_RAW, DumpFile, Match, Role
from dumpscope.naming import parse_name
from dumpscope.readers.array_records import (
    array_geometry,
    check_shape,
    record_of_array,
    truncation_of,
)
from dumpscope.readers.ge_codes import dtype_of_ge_code
from dumpscope.readers.npy_header import MAX_ELEMENTS
from dumpscope.readers.protocol import Execution, FileSlice, Record, TensorRecord
from dumpscope.readers.stored_values import Stored
from dumpscope.records import record
from dumpscope.source import DumpSource

__all__ = ["NanoReader"]

MAGIC = b"\x5a\x5a\x5a\x5a"

_MAX_HEADER_BYTES = 16 << 20
_MAX_TENSORS = 1 << 14
_FIELD = struct.Struct("<2I")
_INPUT = struct.Struct("<3i3QI")
_OUTPUT = struct.Struct("<6i3QI")
_INPUTS, _OUTPUTS = 4, 5
_SHAPE, _ORIGINAL_SHAPE, _ORIGINAL_NAME = 0, 1, 2
_DYNAMIC = 1 << 63
_MAX_NUMBER = (1 << 63) - 1


class NanoReader:
    """Reads the dumps of nano devices."""

    name = "nano"
    formats = "operator dumps of Ascend nano devices"
    versions = "any"
    companions: Mapping[str, str] = MappingProxyType({})

    def sniff(self, head: bytes, file: DumpFile) -> Match:
        """Recognise the magic bytes behind the length."""
        length = int.from_bytes(head[:8], "little")
        if head[8:12] == MAGIC and 8 <= length <= file.size - 8:
            return Match.CONTENT
        return Match.NAME if head[8:12] == MAGIC else Match.NONE

    def read(self, source: DumpSource) -> Iterator[Record]:
        """Yield the one execution."""
        path = source.file.relative
        try:
            entries, body = _read_header(source)
        except DumpReadError as error:
            error.path = path
            raise
        tensors: list[TensorRecord] = []
        start = body
        for entry in entries:
            tensors.append(_describe(source, entry, start))
            start += entry.size
        name = parse_name(source.file.name)
        yield Execution(
            op_type="" if name is None else name.op_type,
            op_name=source.file.name if name is None else name.op_name,
            tensors=tensors,
            task_id=None if name is None else name.task_id,
            stream_id=None if name is None else name.stream_id,
            timestamp=None if name is None else name.timestamp,
            context_id=None if name is None else name.context_id,
            thread_id=None if name is None else name.thread_id,
            form=FORM_RAW,
            partial=len({tensor.role for tensor in tensors}) == 1,
        )
        for tensor in tensors:
            fault = truncation_of(tensor, path, source.size)
            if fault is not None and tensor.unchecked in (None, "truncated"):
                yield fault
                break


@record(frozen=True, slots=True)
class _Entry:
    """One input or output of the header."""

    role: Role
    index: int
    data_type: int
    layout: int
    address: int
    offset: int
    size: int
    shape: tuple[int, ...] | None
    original_shape: tuple[int, ...] | None
    original_format: int | None
    name: str | None


class _Cursor:
    """Reads fields of the header one after the other, and never past its end."""

    __slots__ = ("at", "base", "end", "text")

    def __init__(self, text: bytes, at: int, end: int, base: int) -> None:
        self.text = text
        self.at = at
        self.end = end
        self.base = base

    def take(self, layout: struct.Struct) -> tuple[int, ...]:
        start = self.at
        self.need(layout.size)
        self.at += layout.size
        return layout.unpack_from(self.text, start)

    def inner(self, length: int) -> _Cursor:
        start = self.at
        self.need(length)
        self.at += length
        return _Cursor(self.text, start, start + length, self.base)

    def need(self, length: int) -> None:
        if length > self.end - self.at:
            raise CorruptDumpError(
                f"expected {length} more bytes in a field of the header, found "
                f"{self.end - self.at}",
                offset=self.base + self.at,
            )


def _read_header(source: DumpSource) -> tuple[list[_Entry], int]:
    """Return the inputs and outputs, and where their bytes start."""
    if source.size < 16:
        raise TruncatedDumpError(
            f"expected the 16 bytes that every nano dump starts with, found {source.size}",
            offset=source.size,
        )
    length = int.from_bytes(source.head[:8], "little")
    if source.head[8:12] != MAGIC:
        raise CorruptDumpError(
            f"expected the magic number {MAGIC.hex()}, found {source.head[8:12].hex()}", offset=8
        )
    if not 8 <= length <= _MAX_HEADER_BYTES:
        raise CorruptDumpError(
            f"expected a header of 8 to {_MAX_HEADER_BYTES} bytes, found a length of {length}",
            offset=0,
        )
    if length > source.size - 8:
        raise TruncatedDumpError(
            f"expected a header of {length} bytes, found {source.size - 8}: the file is cut off",
            offset=8,
        )
    text = source.read(8, length)
    cursor = _Cursor(text, 8, length, 8)
    inputs: list[_Entry] = []
    outputs: list[_Entry] = []
    while cursor.end - cursor.at >= _FIELD.size:
        tag, size = cursor.take(_FIELD)
        field = cursor.inner(size)
        if tag == _INPUTS:
            inputs.extend(_read_entries(field, "input", len(inputs)))
        elif tag == _OUTPUTS:
            outputs.extend(_read_entries(field, "output", len(outputs)))
    if not inputs and not outputs:
        raise CorruptDumpError("expected inputs or outputs in the header, found none", offset=16)
    return inputs + outputs, 8 + length


def _read_entries(field: _Cursor, role: Role, first: int) -> list[_Entry]:
    (count,) = field.take(struct.Struct("<I"))
    layout = _INPUT if role == "input" else _OUTPUT
    if count * layout.size > field.end - field.at or first + count > _MAX_TENSORS:
        raise CorruptDumpError(
            f"expected {count} {role}s in {field.end - field.at} bytes of the header, which "
            "cannot hold them",
            offset=field.base + field.at,
        )
    return [_read_entry(field, role, first + number) for number in range(count)]


def _read_entry(field: _Cursor, role: Role, index: int) -> _Entry:
    original_format: int | None = None
    if role == "input":
        data_type, layout, _, address, offset, size, length = field.take(_INPUT)
    else:
        data_type, layout, _, _, _, original_format, address, offset, size, length = field.take(
            _OUTPUT
        )
    shape: tuple[int, ...] | None = None
    original_shape: tuple[int, ...] | None = None
    name: str | None = None
    inner = field.inner(length)
    while inner.end - inner.at >= _FIELD.size:
        tag, size_bytes = inner.take(_FIELD)
        value = inner.inner(size_bytes)
        content = value.text[value.at : value.end]
        if tag == _SHAPE:
            shape = _dims(content)
        elif tag == _ORIGINAL_SHAPE:
            original_shape = _dims(content)
        elif tag == _ORIGINAL_NAME and role == "output":
            name = content.rstrip(b"\0").decode("utf-8", "surrogateescape")[:4096] or None
    return _Entry(
        role, index, data_type, layout, address, offset, size,
        shape, original_shape, original_format, name,
    )  # fmt: skip


def _dims(content: bytes) -> tuple[int, ...]:
    return tuple(dim for (dim,) in struct.iter_unpack("<Q", content[: len(content) // 8 * 8]))


def _describe(source: DumpSource, entry: _Entry, start: int) -> TensorRecord:
    """Describe one tensor whose bytes start at `start`."""
    dtype = dtype_of_ge_code(entry.data_type)
    geometry = _plan(entry)
    unchecked = None
    if not dtype.decodable and dtype.kind != "string":
        unchecked = "undefined_dtype" if dtype.name == "undefined" else "unknown_dtype"
    elif geometry is None:
        # No shape that counts: the bytes are one row of elements.
        count = entry.size * 8 // dtype.bits if dtype.bits else 0
        geometry = array_geometry((min(count, MAX_ELEMENTS),), _layout(entry.layout))
    geometry = geometry or array_geometry((0,), _layout(entry.layout))
    record = record_of_array(
        entry.role,
        entry.index,
        Stored(dtype, int(unchecked is not None), unchecked=unchecked),
        geometry,
        part=lambda nbytes: FileSlice(source, start, nbytes),
        available=min(entry.size, max(0, source.size - start)),
        offset=min(start, source.size),
        name=entry.name,
        notes=geometry.notes,
    )
    if entry.role == "input" and not entry.size and geometry.count:
        # A shape without bytes: it was not dumped.
        record.dumped = False
        record.data = record.unchecked = None
        record.missing_bytes = 0
    record.address = entry.address if entry.address <= _MAX_NUMBER else 0
    return record


def _plan(entry: _Entry) -> Geometry | None:
    """Return the geometry; `None` when there is no shape, or one with dims that are not known."""
    if entry.shape is None or not _is_possible(entry.shape):
        return None
    original = entry.original_shape
    if original is not None and not _is_possible(original):
        original = None
    origin = entry.original_format
    origin_layout = None if origin is None or origin < 0 else layout_name(origin)
    return plan_geometry(_layout(entry.layout), entry.shape, original, origin_layout=origin_layout)


def _is_possible(shape: tuple[int, ...]) -> bool:
    if any(dim >= _DYNAMIC for dim in shape):
        return False
    try:
        check_shape(shape)
    except CorruptDumpError:
        return False
    return True


def _layout(code: int) -> str:
    return "ND" if code < 0 else layout_name(code)
