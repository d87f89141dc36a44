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
    """Yield the lines of a file; bytes that are not UTF-8 become lone surrogates."""
    start = 0
    kept = bytearray()
    cut = False
    position = 0
    for block in source.blocks(0, source.size):
        content = bytes(block)
        begin = 0
        while True:
            end = content.find(b"\n", begin)
            piece = content[begin : end if end >= 0 else len(content)]
            room = limit_bytes - len(kept)
            kept += piece[:room]
            cut = cut or len(piece) > room
            if end < 0:
                break
            yield _line(start, kept, True, cut)
            begin = end + 1
            start = position + begin
            kept.clear()
            cut = False
        position += len(content)
    if position > start:
        yield _line(start, kept, False, cut)


def _line(start: int, kept: bytearray, ended: bool, cut: bool) -> TextLine:
    raw = bytes(kept)
    if start == 0 and raw.startswith(_UTF8_MARK):
        raw = raw[len(_UTF8_MARK) :]
    if raw.endswith(b"\r"):
        raw = raw[:-1]
    return TextLine(start, raw.decode("utf-8", "surrogateescape"), ended, cut)
