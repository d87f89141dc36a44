"""The operator dump of CANN ("adump"): one file is one execution of one operator.

Sources: `dump_data.proto` and `dump_task.proto` with the code that fills them in the public CANN
repositories. All integers are little-endian, every `size` is in bytes.

=========  ======================================================================================
offset     what
=========  ======================================================================================
0          u64 H, length of the header
8          H bytes: the protobuf message `DumpData` (version 2.0; its fields: `adump_schema`)
8 + H      the bytes of every input, then output, then buffer, then space, in message order, each
           as many as its `size` says
=========  ======================================================================================

What the writers do with it:

- A `size` above shape × itemsize is allocation padding; below it the tensor is cut off, except
  in FFTS+ dumps, whose header may describe the whole tensor while the file holds the slice of
  one thread: attribute 0 then lists the slices (`adump_slices`).
- An empty shape with bytes is a scalar. A 0 in the shape is an empty tensor. An input that has a
  shape and no bytes was not dumped.
- One writer announces the sizes of tensors whose address is 0 but writes no bytes for them: so
  it is where a file is short by exactly these, and other entries of it do have addresses.
- Exception dumps describe raw memory (data type 0) and list among the inputs what is no tensor
  (`input_type`: 0-3 are tensors, the rest workspaces, logs, tiling data, stacks and so on).
- Dims of -1 (stored as 2**64 - 1) are dynamic: the bytes are then checked without a shape.
- Version 1 files are the message alone, with the bytes inside it (`adump_inline`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from math import prod
from types import MappingProxyType

from dumpscope.dtypes import Dtype
from dumpscope.errors import CorruptDumpError, DumpReadError, TruncatedDumpError
from dumpscope.layouts import plain
from dumpscope.model import DumpFile, DumpName, Match, Role
from dumpscope.naming import parse_name
from dumpscope.readers.adump_header import (
    DumpHeader,
    find_fitting_length,
    has_dump_content,
    is_overflow_file,
    open_header,
)
from dumpscope.readers.adump_plan import (
    MAX_NUMBER,
    PLAIN_CODES,
    SHAPELESS,
    UNKNOWN_SIZE,
    bounded,
    origin_format,
    plan_entry,
    read_shape,
    say_why_opaque,
)
from dumpscope.readers.adump_schema import Header, HeaderInput, HeaderOutput
from dumpscope.readers.adump_slices import ThreadSlices, read_slices
from dumpscope.readers.adump_usual import LAST_TENSOR_TYPE, take_usual
from dumpscope.readers.protocol import Execution, FileSlice, Record, TensorRecord
from dumpscope.source import DumpSource

__all__ = ["AdumpReader"]

_MAX_TENSORS = 1 << 14
_MAX_TEXT = 1 << 16


class AdumpReader:
    """Reads operator dumps and exception dumps of CANN."""

    name = "adump"
    formats = "CANN operator dumps and exception dumps"
    versions = "version 1 (bytes inside the message), 2.0"
    companions: Mapping[str, str] = MappingProxyType({})

    def sniff(self, head: bytes, file: DumpFile) -> Match:
        name = file.name
        if is_overflow_file(name):
            return Match.NONE
        if has_dump_content(head, file.size):
            return Match.CONTENT
        parsed = parse_name(name)
        return Match.NAME if parsed is not None and not parsed.suffix else Match.NONE

    def read(self, source: DumpSource) -> Iterator[Record]:
        dump = open_header(source, self.name)
        inputs = dump.header.input[:]  # a slice is several times faster than list()
        outputs = dump.header.output[:]
        if len(inputs) + len(outputs) > _MAX_TENSORS:
            raise CorruptDumpError(
                f"expected at most {_MAX_TENSORS} tensors of one operator, found "
                f"{len(inputs) + len(outputs)}",
                path=source.file.relative,
                reader=self.name,
                offset=8,
            )
        name = parse_name(source.file.name)
        own_name = dump.header.op_name
        if dump.inline is None:
            tensors = take_usual(source, dump.body, own_name, inputs, outputs)
            if tensors is not None:
                yield _describe_execution(dump.header, source.file, name, tensors)
                return
        body = _Body(source, dump, name, self.name, inputs, outputs)
        for index, entry in enumerate(inputs):
            body.take(index, entry, "input", entry.input_type <= LAST_TENSOR_TYPE)
        for index, result in enumerate(outputs):
            body.take(index, result, "output", True)
            origin = result.original_op.name
            if origin and origin != own_name:  # a fused operator's output
                body.tensors[-1].name = _text(origin)
        if body.trailing:
            body.note_trailing()
        yield _describe_execution(dump.header, source.file, name, body.tensors)
        yield from body.errors


class _Body:
    """The bytes behind a header, taken entry by entry."""

    def __init__(
        self,
        source: DumpSource,
        dump: DumpHeader,
        name: DumpName | None,
        reader: str,
        inputs: Sequence[HeaderInput],
        outputs: Sequence[HeaderOutput],
    ) -> None:
        self.source = source
        self.size = source.size
        self.dump = dump
        self.inline = dump.inline
        self.name = name
        self.reader = reader
        self.entries: list[HeaderInput | HeaderOutput] = [*inputs, *outputs]
        self.tensors: list[TensorRecord] = []
        self.errors: list[DumpReadError] = []
        self.trailing = 0
        self.skips_unaddressed = False
        self.next = dump.body
        if dump.inline is None:
            announced = dump.body + sum([entry.size for entry in self.entries])
            if announced != source.size:
                self._explain_size(announced)

    def _explain_size(self, announced: int) -> None:
        """Find out why the tensors do not end where the file does."""
        header = self.dump.header
        body = self.dump.body
        announced += sum(span.size for spans in (header.buffer, header.space) for span in spans)
        missing = announced - self.size
        if not missing:
            return
        unaddressed = sum(entry.size for entry in self.entries if not entry.address)
        if missing == unaddressed and self.has_addresses:
            self.skips_unaddressed = True
            return
        fitting = find_fitting_length(self.source, body - 8, missing)
        if fitting is not None:
            raise CorruptDumpError(
                f"expected {fitting} as the header's length, with which its sizes fill the file, "
                f"found {body - 8}: the first 8 bytes are damaged",
                path=self.source.file.relative,
                reader=self.reader,
                offset=0,
            )
        if missing < 0:
            self.trailing = -missing
        else:
            self._report(
                f"expected {announced} bytes by the sizes in the header, found {self.size}: "
                "the end of the data is missing",
                self.size,
            )

    def take(self, index: int, entry: HeaderInput | HeaderOutput, role: Role, wanted: bool) -> None:
        """Describe the next entry (if it is a tensor) and move past its bytes."""
        size = entry.size
        address = entry.address
        start = self.next
        if self.inline is not None:
            start, present = (self.inline.inputs if role == "input" else self.inline.outputs)[index]
            if size > present:
                self._report(
                    f"{role} {index}: expected {size} bytes in its data field, found {present}",
                    start,
                )
            size = size or present
            present = min(size, present)
        elif self.skips_unaddressed and not address:
            size = present = 0
        else:
            self.next = start + size
            present = size if self.next <= self.size else max(self.size - start, 0)
        if not wanted:
            return
        shape = read_shape(entry.shape)
        layout_code = entry.format
        if layout_code in PLAIN_CODES:
            plan = plan_entry(entry.data_type, layout_code, shape)
        else:
            plan = plan_entry(
                entry.data_type,
                layout_code,
                shape,
                read_shape(entry.original_shape),
                entry.sub_format,
                origin_format(entry, role),
            )
        dtype, geometry, needed = plan
        record = TensorRecord(role, index, dtype.name, geometry)
        record.size_bytes = size if size <= MAX_NUMBER else MAX_NUMBER  # noqa: FURB136 - faster
        record.address = address if address <= MAX_NUMBER else 0
        offset = entry.offset
        if offset:
            record.offset = bounded(offset)
        if geometry.notes:
            record.notes = geometry.notes
        self.tensors.append(record)
        if 0 < needed <= present:  # as it should be, and by far the most frequent
            record.data = FileSlice(self.source, start, needed)
            if needed < present:
                record.notes += (f"surplus_bytes:{present - needed}",)
        elif size:
            self._take_unusual(record, dtype, needed, size, start, present)
        elif 0 in shape:
            pass  # an empty tensor: nothing to check
        elif role == "input" or not shape or (not address and self.has_addresses):
            record.dumped = False
        else:
            record.unchecked = "truncated"
            if needed > 0:
                self._report_short(record, dtype, needed, 0, start)
                record.missing_bytes = bounded(needed)

    @cached_property
    def has_addresses(self) -> bool:
        """Whether the writer recorded addresses, so that one of 0 means something."""
        return any(entry.address for entry in self.entries)

    @cached_property
    def slices(self) -> ThreadSlices:
        """The slices of an FFTS+ operator, none where the attributes list none."""
        return read_slices(self.dump.header, self.name)

    def _take_unusual(
        self, record: TensorRecord, dtype: Dtype, needed: int, size: int, start: int, present: int
    ) -> None:
        """Describe a tensor whose type is not known, or whose bytes do not match its shape."""
        nbytes = present
        if not dtype.decodable:
            if dtype.kind != "string":
                record.unchecked = say_why_opaque(dtype)
            elif present < size:
                record.unchecked = "truncated"
            record.missing_bytes = bounded(size - present)
        elif needed == 0:
            nbytes = 0
            record.notes += (f"surplus_bytes:{present}",)
        else:
            if needed > size:
                shape = self.slices.shape_of(record.role, record.index)
                asked = 0 if shape is None else dtype.nbytes(prod(shape))
                if shape is not None and 0 < asked <= size:
                    record.geometry = plain(shape, record.geometry.layout)
                    record.notes += ("slice_of_thread",)
                    needed = asked
                else:
                    self._report_short(record, dtype, needed, size, start)
            elif needed == UNKNOWN_SIZE:
                needed = size
                record.notes += ("shape_unknown",)
            nbytes = min(needed, present)
            if nbytes < needed:
                record.missing_bytes = bounded(needed - nbytes)
            if dtype.bits >= 8:
                nbytes -= nbytes % (dtype.bits // 8)
            if not nbytes:
                record.unchecked = "truncated"
            if record.geometry is SHAPELESS:
                record.geometry = plain((nbytes * 8 // dtype.bits,))
            elif needed < present:
                record.notes += (f"surplus_bytes:{present - needed}",)
        if nbytes:
            record.data = FileSlice(self.source, start, nbytes)

    def note_trailing(self) -> None:
        """Say that bytes follow the last entry."""
        if self.tensors:
            self.tensors[-1].notes += (f"trailing_bytes:{self.trailing}",)
        elif not self.entries:
            self._report(
                f"expected the end of the file behind a header without tensors, found "
                f"{self.trailing} more bytes: the header is damaged",
                self.dump.body,
                CorruptDumpError,
            )

    def _report_short(
        self, record: TensorRecord, dtype: Dtype, needed: int, size: int, start: int
    ) -> None:
        count = needed * 8 // dtype.bits
        self._report(
            f"{record.role} {record.index}: expected {needed} bytes for {count} elements of "
            f"{dtype.name}, found a size of {size}: it was cut off when it was dumped",
            start,
        )

    def _report(
        self, message: str, offset: int, kind: type[DumpReadError] = TruncatedDumpError
    ) -> None:
        self.errors.append(
            kind(message, path=self.source.file.relative, reader=self.reader, offset=offset)
        )


def _describe_execution(
    header: Header, file: DumpFile, name: DumpName | None, tensors: list[TensorRecord]
) -> Execution:
    op_name = _text(header.op_name)
    # Inputs come first, so that the ends tell whether both roles are there.
    partial = bool(tensors) and tensors[0].role == tensors[-1].role
    attributes: tuple[tuple[str, str], ...] = ()
    if header.attr:
        attributes = tuple((_text(item.name), _text(item.value)) for item in header.attr)
    if header.dfx_message:
        attributes += (("dfx_message", _text(header.dfx_message)),)
    if name is None:
        time = header.dump_time
        return Execution(
            "",
            op_name or file.name,
            tensors,
            timestamp=time if 0 < time <= MAX_NUMBER else None,
            partial=partial,
            attributes=attributes,
        )
    return Execution(
        name.op_type,
        op_name or name.op_name,
        tensors,
        name.task_id,
        name.stream_id,
        name.timestamp,
        name.context_id,
        name.thread_id,
        partial=partial,
        attributes=attributes,
    )


def _text(raw: bytes) -> str:
    """Decode a name; bytes that are not UTF-8 are written in hex, as Python escapes them."""
    return raw[:_MAX_TEXT].decode("utf-8", "backslashreplace")
