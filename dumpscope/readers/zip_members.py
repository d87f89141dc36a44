"""The members of a zip archive, found without trusting it (PKWARE's APPNOTE, sections 4.3-4.5).

=====================================  ==========================================================
record                                 what is used of it
=====================================  ==========================================================
end of central directory `PK 05 06`    at the end of the file: 10 u16 number of members, 12 u32
                                       size and 16 u32 offset of the directory, 20 u16 comment
zip64 locator `PK 06 07`               20 bytes before it: 8 u64 offset of
zip64 end record `PK 06 06`            32 u64 members, 40 u64 size, 48 u64 offset
directory entry `PK 01 02`             8 u16 flags, 10 u16 method, 16 u32 CRC, 20 u32 stored size,
                                       24 u32 size, 28 u16 name, 30 u16 extra, 32 u16 comment,
                                       42 u32 offset of the local header; extra field 1: their
                                       zip64 values
local header `PK 03 04`                26 u16 name, 28 u16 extra; the bytes follow
=====================================  ==========================================================

Only members that are stored or deflated are read, and every offset is checked against the file.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple, NoReturn

from dumpscope.errors import CorruptDumpError, TruncatedDumpError
from dumpscope.source import BLOCK_BYTES, DumpSource

__all__ = ["ZIP_MAGIC", "Member", "inflate", "locate", "read_directory", "read_member"]

ZIP_MAGIC = b"PK\x03\x04"

_END = struct.Struct("<4s4H2IH")
_LOCATOR = struct.Struct("<4sIQI")
_END_64 = struct.Struct("<4sQ2H2I4Q")
_ENTRY = struct.Struct("<4s4x2H4x3I3H8xI")
_LOCAL = struct.Struct("<4s5H3I2H")
_LONGEST_COMMENT = 0xFFFF
_MAX_DIRECTORY_BYTES = 64 << 20
_FULL = 0xFFFFFFFF
_STORED = 0
_DEFLATED = 8
_ENCRYPTED = 1
_BEST_RATIO = 1032
"""Deflate cannot do better, so a larger size is a lie."""


class Member(NamedTuple):
    """One member: `size` bytes, kept as `stored_size` bytes behind the header at `header`."""

    name: str
    header: int
    stored_size: int
    size: int
    crc: int
    deflated: bool


def read_directory(source: DumpSource) -> dict[str, Member]:
    """Read the directory at the end of the archive.

    Returns
    -------
    dict
        Members by name; of several with one name the first, as torch does.

    Raises
    ------
    TruncatedDumpError
        The directory is not there: the file was cut off.
    CorruptDumpError
        It contradicts the file.
    """
    tail_size = min(source.size, _END.size + _LONGEST_COMMENT)
    tail_start = source.size - tail_size
    tail = source.read(tail_start, tail_size)
    position = _find_end(tail)
    if position is None:
        raise TruncatedDumpError(
            "expected the directory of the archive at the end of the file, found none: the file "
            "was cut off while it was written or copied",
            offset=source.size,
        )
    _, _, _, _, count, length, start, _ = _END.unpack_from(tail, position)
    end = tail_start + position
    if count == 0xFFFF or _FULL in (length, start):
        count, length, start, end = _read_end_64(source, end, (count, length, start))
    if start + length > end:
        raise CorruptDumpError(
            f"expected the archive's directory of {length} bytes at 0x{start:x}, but only "
            f"{max(0, end - start)} bytes lie there",
            offset=end,
        )
    if length > _MAX_DIRECTORY_BYTES or count * _ENTRY.size > length:
        raise CorruptDumpError(
            f"the archive's directory of {length} bytes cannot hold {count} members that are read",
            offset=end,
        )
    return _parse_directory(source.read(start, length), start)


def _find_end(tail: bytes) -> int | None:
    """Find the end record: the last one whose comment reaches the end of the file."""
    position = len(tail)
    while True:
        position = tail.rfind(b"PK\5\6", 0, position + 3)
        if position < 0:
            return None
        if len(tail) - position >= _END.size:
            comment = int.from_bytes(tail[position + 20 : position + 22], "little")
            if position + _END.size + comment == len(tail):
                return position


def _read_end_64(
    source: DumpSource, end: int, plain: tuple[int, int, int]
) -> tuple[int, int, int, int]:
    """Read the zip64 end record; without one the plain values hold."""
    if end < _LOCATOR.size + _END_64.size:
        return (*plain, end)
    magic, _, offset, _ = _LOCATOR.unpack(source.read(end - _LOCATOR.size, _LOCATOR.size))
    if magic != b"PK\6\7":
        return (*plain, end)
    if offset + _END_64.size > end - _LOCATOR.size:
        raise CorruptDumpError("the zip64 record of the archive lies outside of it", offset=end)
    fields = _END_64.unpack(source.read(offset, _END_64.size))
    if fields[0] != b"PK\6\6":
        raise CorruptDumpError("the archive has no zip64 record where it says", offset=offset)
    return fields[7], fields[8], fields[9], offset


def _parse_directory(directory: bytes, start: int) -> dict[str, Member]:
    members: dict[str, Member] = {}
    position = 0
    length = len(directory)
    while position + _ENTRY.size <= length:
        (
            magic, flags, method, crc, stored_size, size,
            name_length, extra_length, comment_length, header,
        ) = _ENTRY.unpack_from(directory, position)  # fmt: skip
        if magic != b"PK\1\2":
            break
        name_start = position + _ENTRY.size
        extra_start = name_start + name_length
        following = extra_start + extra_length + comment_length
        if following > length:
            raise CorruptDumpError(
                "an entry of the archive's directory is longer than the directory",
                offset=start + position,
            )
        name = directory[name_start:extra_start].decode("utf-8", "surrogateescape")
        if _FULL in (size, stored_size, header):
            extra = directory[extra_start : extra_start + extra_length]
            size, stored_size, header = _widen((size, stored_size, header), extra)
        deflated = method == _DEFLATED
        largest = stored_size * _BEST_RATIO + 64 if deflated else stored_size
        if flags & _ENCRYPTED or size > largest or method not in (_STORED, _DEFLATED):
            _refuse(name, flags, method, size, stored_size, start + position)
        if name not in members:
            members[name] = Member(name, header, stored_size, size, crc, deflated)
        position = following
    return members


def _widen(sizes: tuple[int, int, int], extra: bytes) -> tuple[int, int, int]:
    """Replace what is all ones by the values of extra field 1, in this order."""
    position = 0
    while position + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, position)
        position += 4
        if kind == 1:
            wide = extra[position : position + length]
            values = iter(struct.unpack(f"<{len(wide) // 8}Q", wide[: len(wide) // 8 * 8]))
            size, stored, header = (
                next(values, value) if value == _FULL else value for value in sizes
            )
            return size, stored, header
        position += length
    return sizes


def _refuse(
    name: str, flags: int, method: int, size: int, stored_size: int, offset: int
) -> NoReturn:
    """Say why a member cannot be read."""
    what = f"the member {name[:80]!a} of the archive"
    if flags & _ENCRYPTED:
        raise CorruptDumpError(f"{what} is encrypted", offset=offset)
    if method not in (_STORED, _DEFLATED):
        raise CorruptDumpError(
            f"{what} is compressed by method {method}: only stored (0) and deflated (8) are read",
            offset=offset,
        )
    raise CorruptDumpError(
        f"{what} says that {stored_size} bytes become {size}, which cannot be",
        offset=offset,
    )


def locate(source: DumpSource, member: Member) -> int:
    """Return where the bytes of a member start, after a look at its local header.

    Raises
    ------
    CorruptDumpError
        There is no such header, or it is another member's.
    TruncatedDumpError
        The file ends before the last byte.
    """
    fields = _LOCAL.unpack(source.read(member.header, _LOCAL.size))
    if fields[0] != ZIP_MAGIC or (fields[3] == _DEFLATED) != member.deflated:
        raise CorruptDumpError(
            f"expected the header of {member.name[:80]!a}, found {fields[0]!r}",
            offset=member.header,
        )
    start = int(member.header + _LOCAL.size + fields[9] + fields[10])
    if start + member.stored_size > source.size:
        raise TruncatedDumpError(
            f"expected {member.stored_size} bytes of {member.name[:80]!a}, found "
            f"{max(0, source.size - start)}",
            offset=start,
        )
    return start


def read_member(source: DumpSource, member: Member, limit: int) -> bytes:
    """Read all of a small member and check its CRC.

    Raises
    ------
    CorruptDumpError
        It is larger than `limit` bytes, or its bytes are not those that were written.
    """
    start = locate(source, member)
    if member.size > limit:
        raise CorruptDumpError(
            f"{member.name[:80]!a} has {member.size} bytes, more than the {limit} that are read",
            offset=start,
        )
    if member.deflated:
        content = b"".join(inflate(source, member, start, 0, member.size))
    else:
        content = source.read(start, member.size)
    if zlib.crc32(content) != member.crc:
        raise CorruptDumpError(
            f"expected CRC 0x{member.crc:08x} of {member.name[:80]!a}, found "
            f"0x{zlib.crc32(content):08x}: the file is damaged",
            offset=start,
        )
    return content


def inflate(
    source: DumpSource, member: Member, start: int, skipped: int, length: int
) -> Iterator[bytes]:
    """Yield `length` bytes of a deflated member from its byte `skipped` on, block by block.

    Raises
    ------
    CorruptDumpError
        They do not inflate, or are fewer.
    """
    engine = zlib.decompressobj(-zlib.MAX_WBITS)
    position = 0
    end = skipped + length
    for offset in range(start, start + member.stored_size, BLOCK_BYTES):
        packed = source.read(offset, min(BLOCK_BYTES, start + member.stored_size - offset))
        while position < end:
            try:
                block = engine.decompress(packed, BLOCK_BYTES)
            except zlib.error as error:
                raise CorruptDumpError(
                    f"{member.name[:80]!a} does not inflate: {error}", offset=offset
                ) from error
            packed = engine.unconsumed_tail
            kept = block[max(0, skipped - position) : end - position]
            position += len(block)
            if kept:
                yield kept
            if not block and not packed:
                break
        if position >= end:
            return
    raise CorruptDumpError(
        f"expected {length} bytes of {member.name[:80]!a} from {skipped}, found "
        f"{max(0, position - skipped)}",
        offset=start,
    )
