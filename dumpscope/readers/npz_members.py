"""The arrays inside an .npz archive: where they are, also when the archive is cut off.

An archive without its directory, which stands at the end, still has a local header before each
member; their sizes are in it unless the writer could not seek (`zip_members` has the records).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from dumpscope.errors import CorruptDumpError, DumpReadError, TruncatedDumpError
from dumpscope.readers.zip_members import ZIP_MAGIC, Member, inflate, locate, read_directory
from dumpscope.records import record
from dumpscope.source import BLOCK_BYTES, DumpSource

__all__ = ["InflatedData", "NpzMember", "list_members"]

_LOCAL = struct.Struct("<4s5H3I2H")
_DEFLATED = 8
_SIZES_FOLLOW = 8
_FULL = 0xFFFFFFFF


class NpzMember(NamedTuple):
    """A member whose bytes start at `offset`; `present` of its bytes are in the file."""

    member: Member
    offset: int
    present: int


def list_members(source: DumpSource, faults: list[DumpReadError]) -> Iterator[NpzMember]:
    """Yield the members of an archive; what is wrong with one goes to `faults`.

    Raises
    ------
    CorruptDumpError
        The directory contradicts the file.
    """
    try:
        directory = read_directory(source)
    except TruncatedDumpError as error:
        faults.append(error)
        yield from _walk_local_headers(source)
        return
    # Members that share bytes would make a small file unpack to any size.
    total = sum(member.stored_size for member in directory.values())
    if total > source.size:
        raise CorruptDumpError(
            f"expected members that fit into {source.size} bytes, found {total}: they overlap",
            offset=source.size,
        )
    for member in directory.values():
        try:
            yield NpzMember(member, locate(source, member), member.stored_size)
        except DumpReadError as error:
            faults.append(error)


@record(frozen=True, slots=True)
class InflatedData:
    """`nbytes` bytes from `skipped` of a deflated member, inflated while they are streamed."""

    source: DumpSource
    member: Member
    offset: int
    skipped: int
    nbytes: int

    def blocks(self) -> Iterator[memoryview]:
        """Yield the bytes in blocks of one size, holding one block at a time."""
        block = bytearray()
        pieces = inflate(self.source, self.member, self.offset, self.skipped, self.nbytes)
        for piece in pieces:
            block += piece
            while len(block) >= BLOCK_BYTES:
                yield memoryview(bytes(block[:BLOCK_BYTES]))
                del block[:BLOCK_BYTES]
        if block:
            yield memoryview(bytes(block))


def _walk_local_headers(source: DumpSource) -> Iterator[NpzMember]:
    """Yield the members of an archive without a directory, as far as their sizes are known."""
    at = 0
    while at + _LOCAL.size <= source.size:
        fields = _LOCAL.unpack(source.read(at, _LOCAL.size))
        magic, _, flags, method, _, _, crc, stored_size, size, name_length, extra_length = fields
        start = at + _LOCAL.size + name_length + extra_length
        if magic != ZIP_MAGIC or start > source.size or method not in (0, _DEFLATED) or flags & 1:
            return
        text = source.read(at + _LOCAL.size, name_length + extra_length)
        if _FULL in (size, stored_size):
            size, stored_size = _wide_sizes(text[name_length:], size, stored_size)
        if flags & _SIZES_FOLLOW and not size:
            return
        name = text[:name_length].decode("utf-8", "surrogateescape")
        member = Member(name, at, stored_size, size, crc, method == _DEFLATED)
        yield NpzMember(member, start, min(stored_size, source.size - start))
        at = start + stored_size


def _wide_sizes(extra: bytes, size: int, stored_size: int) -> tuple[int, int]:
    """Return both sizes of extra field 1, which a local header has together."""
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, at)
        if kind == 1 and length >= 16 and at + 20 <= len(extra):
            wide_size, wide_stored = struct.unpack_from("<2Q", extra, at + 4)
            return wide_size, wide_stored
        at += 4 + length
    return size, stored_size
