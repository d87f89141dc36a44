"""Headings, sentences and tables for a terminal, for commands that compare scans.

Names come out of dumps: they are made printable first, and nothing in them is markup. Where the
stream or the locale cannot show more than ASCII, frames, ellipses and foreign names are ASCII.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Literal, TextIO

from dumpscope.records import record
from dumpscope.reporters.cells import shorten, wrap
from dumpscope.reporters.screen import (
    WIDTH,
    has_colour,
    is_ascii_only,
    open_console,
    read_console,
    width_of,
)
from dumpscope.safetext import make_ascii, make_printable

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["TextColumn", "TextPage", "print_page"]


@record(frozen=True, slots=True)
class TextColumn:
    """One column: its head, its width in cells (0: what is left), numbers to the right."""

    head: str
    width: int = 0
    right: bool = False


class TextPage:
    """What is printed, part by part."""

    def __init__(self, console: Console, *, ascii_only: bool) -> None:
        self._console = console
        self._ascii = ascii_only

    def say(self, text: str, style: str = "", indent: int = 0) -> None:
        """Print a sentence, broken into lines."""
        for line in wrap(self._safe(text), min(self._console.width, WIDTH) - indent) or [""]:
            self._print(" " * indent + line, style)

    def head(self, text: str) -> None:
        """Print the head of a section."""
        self._print("")
        self._print(self._safe(text), "bold")

    def table(
        self,
        columns: Sequence[TextColumn],
        rows: Iterable[Sequence[str]],
        styles: Iterable[str] = (),
    ) -> None:
        """Print a table; a cell that is too wide loses its middle, or is broken where it is last.

        `styles` are those of the rows.
        """
        from rich import box
        from rich.table import Table
        from rich.text import Text

        frame = box.SIMPLE_HEAD
        if self._ascii:
            frame = box.Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)
        table = Table(box=frame, padding=(0, 1, 0, 0), show_edge=False, pad_edge=False)
        fixed = sum(column.width for column in columns)
        left = max(12, self._console.width - fixed - 2 * len(columns))
        widths = [column.width or left for column in columns]
        for column, width in zip(columns, widths, strict=True):
            justify: Literal["left", "right"] = "right" if column.right else "left"
            table.add_column(self._safe(column.head), width=width, justify=justify)
        given = iter(styles)
        for row in rows:
            cells = []
            for position, (text, width) in enumerate(zip(row, widths, strict=True)):
                if position + 1 == len(widths) and not columns[position].width:
                    lines = wrap(self._safe(text), width)
                else:
                    ellipsis = "..." if self._ascii else "\u2026"
                    lines = [
                        shorten(self._safe(part), width, ellipsis) for part in text.split("\n")
                    ]
                cells.append(Text("\n".join(lines)))
            table.add_row(*cells, style=next(given, ""))
        self._console.print(table)

    def _print(self, line: str, style: str = "") -> None:
        from rich.text import Text

        self._console.print(Text(line, style=style), soft_wrap=True)

    def _safe(self, text: str) -> str:
        return make_ascii(text) if self._ascii else make_printable(text)


def print_page(
    fill: Callable[[TextPage, str], None], *, lang: str = "en", stream: TextIO | None = None
) -> None:
    """Let `fill` (page, language) print to a stream, stdout by default, as that can show it."""
    stream = sys.stdout if stream is None else stream
    ascii_only = is_ascii_only(getattr(stream, "encoding", None), os.environ)
    console = open_console(width_of(stream), colour=has_colour(stream))
    fill(TextPage(console, ascii_only=ascii_only), "en" if ascii_only else lang)
    stream.write(read_console(console))
