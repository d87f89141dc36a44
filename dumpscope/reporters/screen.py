"""What the terminal behind a stream can show: how wide, in colour, in which letters."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from io import StringIO
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "WIDEST",
    "WIDTH",
    "can_encode",
    "has_colour",
    "is_ascii_only",
    "open_console",
    "read_console",
    "width_of",
]

WIDTH = 100
"""Columns of sentences, and of all that does not go to a terminal."""

WIDEST = 160
"""Columns that tables take at most, so that long names of operators are seen whole."""

_MIN_WIDTH = 60


def width_of(stream: TextIO) -> int:
    """Return how wide a table may be on a stream."""
    if not stream.isatty():
        return WIDTH
    return min(WIDEST, shutil.get_terminal_size((WIDTH, 24)).columns)


def has_colour(stream: TextIO) -> bool:
    """Whether colours are shown: on a terminal, but not where NO_COLOR is set."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def open_console(width: int, *, colour: bool) -> Console:
    """Make a console that prints into a text of its own; names in it are no markup."""
    from rich.console import Console

    return Console(
        file=StringIO(),
        width=max(width, _MIN_WIDTH),
        force_terminal=colour,
        color_system="standard" if colour else None,
        no_color=not colour,
        legacy_windows=False,
        markup=False,
        highlight=False,
        emoji=False,
    )


def read_console(console: Console) -> str:
    """Return what was printed on such a console, without blanks at the end of lines."""
    assert isinstance(console.file, StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines()) + "\n"


def is_ascii_only(encoding: str | None, environment: Mapping[str, str]) -> bool:
    """Whether a stream may show ASCII only: by its encoding, or because the locale is C.

    Python itself takes the C locale for UTF-8, but the terminal behind it need not.
    """
    if not can_encode(encoding, "─…"):
        return True
    names = ("LC_ALL", "LC_CTYPE", "LANG")
    locale = next((environment[name] for name in names if environment.get(name)), "")
    return locale in {"C", "POSIX"}


def can_encode(encoding: str | None, text: str) -> bool:
    try:
        text.encode(encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return False
    return True
