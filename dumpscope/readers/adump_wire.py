"""Walk over protobuf's wire format without looking into the values.

For what a parser cannot do: find out where a field's bytes are in the file, how many fields there
are before any of them takes memory, and whether a message really fills its bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from dumpscope.errors import CorruptDumpError, TruncatedDumpError

__all__ = ["LENGTH_DELIMITED", "WireField", "walk_fields"]

_VARINT = 0
_FIXED64 = 1
LENGTH_DELIMITED = 2
_FIXED32 = 5


class WireField(NamedTuple):
    """One field: its number, wire type, where its tag begins and where its value is."""

    number: int
    kind: int
    begin: int
    start: int
    end: int


def walk_fields(read: Callable[[int, int], bytes], start: int, end: int) -> Iterator[WireField]:
    """Yield the fields of the message in `[start, end)`, without looking into their values.

    Parameters
    ----------
    read
        Returns `length` bytes from an offset.

    Raises
    ------
    CorruptDumpError
        The bytes are no message.
    TruncatedDumpError
        A field ends behind `end`.
    """
    offset = start
    while offset < end:
        piece = read(offset, min(20, end - offset))
        tag, used = _varint(piece, 0, offset)
        number, kind = tag >> 3, tag & 7
        if not 0 < number < 1 << 29:
            raise CorruptDumpError(f"found field number {number} in a message", offset=offset)
        begin, value = offset, offset + used
        if kind == LENGTH_DELIMITED:
            length, used = _varint(piece, used, offset)
            value = begin + used
            offset = value + length
        elif kind == _VARINT:
            _, used = _varint(piece, used, offset)
            offset = begin + used
        elif kind == _FIXED64:
            offset = value + 8
        elif kind == _FIXED32:
            offset = value + 4
        else:
            raise CorruptDumpError(f"found wire type {kind} in a message", offset=begin)
        if offset > end:
            raise TruncatedDumpError(
                f"expected field {number} to end at 0x{offset:x}, but its message ends at "
                f"0x{end:x}",
                offset=begin,
            )
        yield WireField(number, kind, begin, value, offset)


def _varint(piece: bytes, index: int, offset: int) -> tuple[int, int]:
    """Decode a varint of `piece`, which begins at `offset`; return it and the index behind it."""
    value = 0
    for position, byte in enumerate(piece[index : index + 10]):
        value |= (byte & 0x7F) << (7 * position)
        if byte < 0x80:
            return value, index + position + 1
    if len(piece) - index >= 10:
        raise CorruptDumpError("found a number of more than ten bytes", offset=offset)
    raise TruncatedDumpError("the message ends inside a number", offset=offset)
