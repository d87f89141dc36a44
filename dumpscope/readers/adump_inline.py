"""Version 1 of the CANN dump: the bytes are inside the message.

The file is one `DumpData` without a length in front (`OpInput.data`, field 4; `OpOutput.data`,
field 5; `OpBuffer.data` and `Workspace.data`, field 2). Parsing it whole would take as much
memory as the file, so only what describes the tensors goes to the parser, and the places of the
`data` fields are noted: the tensors are then streamed as from any other dump.
"""

from __future__ import annotations

from collections.abc import Callable

from dumpscope.errors import CorruptDumpError
from dumpscope.readers.adump_schema import Header, parse_header
from dumpscope.readers.adump_wire import LENGTH_DELIMITED, WireField, walk_fields
from dumpscope.records import record
from dumpscope.source import DumpSource

__all__ = ["MAX_FIELDS", "MAX_HEADER_BYTES", "InlineDump", "read_inline"]

MAX_HEADER_BYTES = 16 << 20
"""More than any writer needs to describe one operator; a longer header is damage."""

MAX_FIELDS = 1 << 16
"""Entries in one header: far above what one operator can have, and bounded in memory."""

_DATA_FIELD = {3: 5, 4: 4, 5: 2, 8: 2}
"""Field of `DumpData` -> field of its message that holds the bytes."""


@record(frozen=True, slots=True)
class InlineDump:
    """A version 1 file: the header without bytes, and where the bytes of each entry are."""

    header: Header
    inputs: list[tuple[int, int]]
    outputs: list[tuple[int, int]]


def read_inline(source: DumpSource) -> InlineDump:
    """Read the description of a version 1 file.

    Raises
    ------
    DumpReadError
        The file is not one whole message with a version and bytes inside.
    """
    read = source.read
    kept = bytearray()
    spans: dict[int, list[tuple[int, int]]] = {3: [], 4: [], 5: [], 8: []}
    fields = 0
    has_data = False
    for field in walk_fields(read, 0, source.size):
        fields += 1
        if field.kind == LENGTH_DELIMITED and field.number in _DATA_FIELD:
            inner = bytearray()
            span = (field.start, 0)
            for part in walk_fields(read, field.start, field.end):
                fields += 1
                if part.number == _DATA_FIELD[field.number] and part.kind == LENGTH_DELIMITED:
                    span = (part.start, part.end - part.start)
                    has_data = has_data or span[1] > 0
                else:
                    _keep(inner, read, part)
                _check_bounds(fields, len(kept) + len(inner), part.begin)
            kept += _encode(field.number << 3 | LENGTH_DELIMITED) + _encode(len(inner)) + inner
            spans[field.number].append(span)
        else:
            _keep(kept, read, field)
        _check_bounds(fields, len(kept), field.begin)
    header = parse_header(bytes(kept))
    if not header.version or not has_data:
        raise CorruptDumpError("expected a version and tensors with their bytes, found neither")
    return InlineDump(header, spans[4], spans[3])


def _keep(kept: bytearray, read: Callable[[int, int], bytes], field: WireField) -> None:
    length = field.end - field.begin
    if length > MAX_HEADER_BYTES:
        raise CorruptDumpError(
            f"expected at most {MAX_HEADER_BYTES} bytes in field {field.number}, found {length}",
            offset=field.begin,
        )
    kept += read(field.begin, length)


def _check_bounds(fields: int, size: int, offset: int) -> None:
    if fields > MAX_FIELDS or size > MAX_HEADER_BYTES:
        raise CorruptDumpError(
            f"expected at most {MAX_FIELDS} fields and {MAX_HEADER_BYTES} bytes of description, "
            f"found {fields} and {size}",
            offset=offset,
        )


def _encode(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
