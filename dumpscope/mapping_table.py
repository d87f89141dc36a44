"""The mapping.csv of a folder: which file it is, and its lines within bounds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TextIO

__all__ = ["MAPPING", "MAX_MAPPING_BYTES", "bounded_lines"]

MAPPING = "mapping.csv"
"""It tells the real names of files whose names on disk are hashes."""

MAX_MAPPING_BYTES = 64 << 20
"""How much of it is read."""

_MAX_LINE = 8192


def bounded_lines(lines: TextIO, most: int) -> Iterator[str]:
    """Yield the lines that are not absurdly long, up to `most` characters of the file."""
    left = most
    begun = False
    while left > 0:
        line = lines.readline(_MAX_LINE)
        if not line:
            return
        left -= len(line)
        complete = line.endswith("\n")
        if not begun and (complete or len(line) < _MAX_LINE):
            yield line
        begun = not complete
