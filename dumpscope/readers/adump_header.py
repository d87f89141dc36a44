"""Find and parse the header of a CANN dump file (see `adump` for the byte table).

Kept apart from the reader of tensors since the overflow records come in the same container.
"""

from __future__ import annotations

import struct

from dumpscope.errors import CorruptDumpError, DumpReadError, TruncatedDumpError
from dumpscope.readers.adump_inline import (
    MAX_FIELDS,
    MAX_HEADER_BYTES,
    InlineDump,
    read_inline,
)
from dumpscope.readers.adump_schema import Header, parse_header, try_parse
from dumpscope.readers.adump_wire import walk_fields
from dumpscope.records import record
from dumpscope.regexes import regex
from dumpscope.source import DumpSource

__all__ = [
    "DumpHeader",
    "find_fitting_length",
    "has_dump_content",
    "is_overflow_file",
    "open_header",
]

_LENGTH = struct.Struct("<Q")

# A version as every writer spells it ("2.0"), and the tag of a field that can come after it.
_VERSION = regex(
    rb"\n(?:\x01[0-9]|\x02[0-9.]{2}|\x03[0-9.]{3}|\x04[0-9.]{4}|\x05[0-9.]{5}|\x06[0-9.]{6}"
    rb"|\x07[0-9.]{7}|\x08[0-9.]{8})(?:[\x10\x1a\x22\x2a\x32\x3a\x42\x4a]|\Z)"
)
_VERSION_START = regex(rb"\n[\x01-\x08][0-9]")
_FIRST_TAGS = frozenset(b"\x10\x1a\x22\x2a\x32\x3a\x42\x4a")

_QUICK_HEADER_BYTES = 1 << 18
"""Up to this length a header cannot hold so many entries that they need counting first."""

_SEARCH_BYTES = 1 << 16
"""How far behind a wrong length the true end of the header is looked for."""


@record(frozen=True, slots=True)
class DumpHeader:
    """A parsed header, where the bytes behind it begin, and the version 1 places if it is one."""

    header: Header
    body: int
    inline: InlineDump | None = None


def is_overflow_file(name: str) -> bool:
    """Say whether the name is that of an overflow record, in whatever letter case."""
    return name[:8].lower() == "opdebug."


def has_dump_content(head: bytes, size: int) -> bool:
    """Say whether a file that begins with `head` is surely a CANN dump."""
    if len(head) < 12:
        return False
    length = _LENGTH.unpack_from(head)[0]
    fits = 0 < length <= size - 8
    if head[8] == 0x0A:
        if (_VERSION_START if fits else _VERSION).match(head, 8):
            return True
    elif fits and head[8] in _FIRST_TAGS and 8 + length <= len(head):
        # A writer that leaves the version out: then only the whole header can tell.
        header = try_parse(head[8 : 8 + length])
        return header is not None and bool(header.input or header.output)
    return not fits and _VERSION.match(head) is not None


def open_header(source: DumpSource, reader: str) -> DumpHeader:
    """Parse a file's header.

    Raises
    ------
    TruncatedDumpError
        The file ends inside its header.
    CorruptDumpError
        There is no header that describes anything.
    """
    path = source.file.relative
    size = source.size
    head = source.head
    if len(head) <= 8:
        raise TruncatedDumpError(
            f"expected 8 bytes that say how long the header is, and the header, found {len(head)}",
            path=path,
            reader=reader,
            offset=0,
        )
    length = _LENGTH.unpack_from(head)[0]
    if not 0 < length <= size - 8:
        if head[0] == 0x0A and _VERSION_START.match(head):
            return _open_inline(source, reader)
        raise _length_error(head, length, size, path, reader)
    if length > _QUICK_HEADER_BYTES:
        _check_header_size(source, length, reader)
    end = 8 + length
    try:
        data = head[8:end] if end <= len(head) else source.read(8, length)
        header = parse_header(data)
    except CorruptDumpError as error:
        raise CorruptDumpError(
            f"expected a header of {length} bytes, found bytes that do not parse as one "
            f"({error.message}): its length or its content is damaged",
            path=path,
            reader=reader,
            offset=8,
        ) from error
    if not (header.version or header.input or header.output or header.op_name):
        raise CorruptDumpError(
            f"expected a version, a name or tensors in the header of {length} bytes, found none",
            path=path,
            reader=reader,
            offset=8,
        )
    return DumpHeader(header, end)


def find_fitting_length(source: DumpSource, length: int, missing: int) -> int | None:
    """Look for the header length that makes the header's sizes fill the file exactly.

    Parameters
    ----------
    length
        The length at the file's beginning.
    missing
        How many bytes the file is too short by that length; negative when it is too long.

    Returns
    -------
    int or None
        A length other than `length` under which the file is whole: proof that the number at the
        beginning is damaged, and that the tensors are not where it puts them.
    """
    if missing > 0:
        # Bytes of the first tensor were taken for the header's end: unknown fields, if anything.
        shorter = length - missing
        if shorter <= 0 or shorter > MAX_HEADER_BYTES:
            return None
        data = source.read(8, length)
        whole = try_parse(data)
        kept = try_parse(data[:shorter])
        if whole is None or kept is None or _known_fields(whole) != _known_fields(kept):
            return None
        return shorter
    window = min(source.size - 8, length + _SEARCH_BYTES)
    if window > MAX_HEADER_BYTES:
        return None
    data = source.read(8, window)

    def read(offset: int, count: int) -> bytes:
        return data[offset : offset + count]

    try:
        for count, field in enumerate(walk_fields(read, length, window)):
            if not 1 <= field.number <= 9 or count > MAX_FIELDS >> 6:
                break
            total = _total(data[: field.end])
            if total is not None and 8 + field.end + total == source.size:
                return field.end
    except DumpReadError:
        pass
    return None


def _known_fields(header: Header) -> tuple[object, ...]:
    """Return what tells two readings of one header apart."""
    return (
        header.version,
        header.dump_time,
        header.op_name,
        header.dfx_message,
        *(len(part) for part in (header.input, header.output, header.attr)),
        *(len(part) for part in (header.buffer, header.space)),
    )


def _total(data: bytes) -> int | None:
    """Add up the sizes in a header, `None` when the bytes are none."""
    header = try_parse(data)
    if header is None:
        return None
    entries = (header.input, header.output, header.buffer, header.space)
    return sum(entry.size for part in entries for entry in part)


def _open_inline(source: DumpSource, reader: str) -> DumpHeader:
    try:
        inline = read_inline(source)
    except DumpReadError as error:
        error.message = f"expected a whole version 1 dump: {error.message}"
        error.path = source.file.relative
        error.reader = reader
        raise
    return DumpHeader(inline.header, source.size, inline)


def _length_error(head: bytes, length: int, size: int, path: str, reader: str) -> DumpReadError:
    if 0 < length <= MAX_HEADER_BYTES or (length and _VERSION_START.match(head, 8)):
        return TruncatedDumpError(
            f"expected a header of {length} bytes, found {size - 8} bytes up to the end of the "
            "file: the file is cut off or its first 8 bytes are damaged",
            path=path,
            reader=reader,
            offset=8,
        )
    return CorruptDumpError(
        f"expected a header length of 1 to {max(size - 8, 1)}, found {length}: "
        "this is no CANN dump or its first 8 bytes are damaged",
        path=path,
        reader=reader,
        offset=0,
    )


def _check_header_size(source: DumpSource, length: int, reader: str) -> None:
    """Refuse a header that would take far more memory than any operator's."""
    fields = 0
    if length <= MAX_HEADER_BYTES:
        try:
            for _ in walk_fields(source.read, 8, 8 + length):
                fields += 1
                if fields > MAX_FIELDS:
                    break
        except DumpReadError as error:
            error.path = source.file.relative
            error.reader = reader
            raise
    if length > MAX_HEADER_BYTES or fields > MAX_FIELDS:
        raise CorruptDumpError(
            f"expected a header of at most {MAX_HEADER_BYTES} bytes and {MAX_FIELDS} entries, "
            f"found {length} bytes and {'more' if fields > MAX_FIELDS else fields}",
            path=source.file.relative,
            reader=reader,
            offset=0,
        )
