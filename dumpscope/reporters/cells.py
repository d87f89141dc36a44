"""Text in terminal cells: East Asian characters are two wide, and lines break beside them."""

from __future__ import annotations

import re

from dumpscope.regexes import regex

__all__ = ["shorten", "wrap"]

# What may not begin a line, and what may not end one.
_CLOSING = "，。；：！？、）》」』】％,.;:!?)]}"
_OPENING = "（《「『【([{"
_WIDE = "\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uff60"
_PIECES = regex(rf" +|[{re.escape(_OPENING)}]*(?:[{_WIDE}]|[^ {_WIDE}]+)[{re.escape(_CLOSING)}]*")


def shorten(text: str, width: int, ellipsis: str = "…") -> str:
    """Cut the middle out of a text that is wider than `width` cells.

    More of the end is kept: it tells operators apart.
    """
    from rich.cells import cell_len

    if cell_len(text) <= width:
        return text
    room = max(0, width - cell_len(ellipsis))
    head = _take(text, room // 3)
    tail = _take(text[::-1], room - cell_len(head))[::-1]
    return head + ellipsis + tail


def wrap(text: str, width: int) -> list[str]:
    """Break a text into lines of at most `width` cells (at least 4).

    Lines break at spaces and beside East Asian characters; what is wider than a line is cut.
    """
    from rich.cells import cell_len

    width = max(width, 4)
    lines = [""]
    room = width
    for piece in _PIECES.findall(text):
        size = cell_len(piece)
        if size > room and piece.isspace():
            lines.append("")
            room = width
            continue
        if size > room and lines[-1].strip():
            lines.append("")
            room = width
        rest = piece.lstrip() if not lines[-1] else piece
        while cell_len(rest) > width:
            start = _take(rest, width)
            lines[-1] = start
            lines.append("")
            rest = rest[len(start) :]
        lines[-1] += rest
        room = width - cell_len(lines[-1])
    return [line.rstrip() for line in lines if line.strip()]


def _take(text: str, width: int) -> str:
    """Return as much of the start of a text as fits into `width` cells."""
    from rich.cells import cell_len

    used = 0
    for position, character in enumerate(text):
        used += cell_len(character)
        if used > width:
            return text[:position]
    return text
