"""Lines of a text file, streamed in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from dumpscope.source import DumpSource

__all__ = ["MAX_LINE_BYTES", "TextLine", "stream_lines"]

MAX_LINE_BYTES = 1 << 20
"""Longer lines are cut: no writer makes them, and a file without any line end must not fill
the memory."""

_UTF8_MARK = b"\xef\xbb\xbf"


class TextLine(NamedTuple):
    """One line without its end.

    `offset` is where it starts in the file. `ended` is false for a last line without a line
    end: its writer may have died in it. `cut` says that the line was longer than was kept.
    """

    offset: int
    text: str
    ended: bool
    cut: bool


def stream_lines(source: DumpSource, limit_bytes: int = MAX_LINE_BYTES) -> Iterator[TextLine]:
    """Yield the lines of a file that are not empty.

    Bytes that are not UTF-8 become lone surrogates.
    """
    start = 0
    rest = b""
    dropped = 0
    for block in source.blocks(0, source.size):
        pieces = (rest + bytes(block)).split(b"\n")
        rest = pieces.pop()
        for piece in pieces:
            if piece:
                yield _line(start, piece[:limit_bytes], True, dropped or len(piece) > limit_bytes)
            start += len(piece) + dropped + 1
            dropped = 0
        if len(rest) > limit_bytes:
            dropped += len(rest) - limit_bytes
            rest = rest[:limit_bytes]
    if rest:
        yield _line(start, rest, False, dropped)


def _line(start: int, raw: bytes, ended: bool, cut: int) -> TextLine:
    if start == 0 and raw.startswith(_UTF8_MARK):
        raw = raw[len(_UTF8_MARK) :]
    if raw.endswith(b"\r"):
        raw = raw[:-1]
    return TextLine(start, raw.decode("utf-8", "surrogateescape"), ended, bool(cut))
