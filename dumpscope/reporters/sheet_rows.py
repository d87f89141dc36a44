"""Rows of a worksheet as XML, put straight into the archive of a workbook.

openpyxl spends several microseconds on every cell, and a night's report has millions of them. So
openpyxl makes the workbook, with its styles, views and the head row of every table; the rows
below the head are written here and spliced in where `</sheetData>` is, while the archive is
copied. The format is that of ECMA-376 part 1, 18.3.1 (worksheets) and 18.18.11 (cell types).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import BinaryIO, Protocol
from xml.sax.saxutils import escape
from zipfile import ZIP_DEFLATED, ZipFile

from dumpscope.records import record
from dumpscope.reporters.tables import Cell
from dumpscope.safetext import is_formula, make_cell_text

__all__ = ["EXACT_INTEGERS", "RowStyles", "RowWriter", "SheetBody", "fit_height", "splice_rows"]

EXACT_INTEGERS = 10**15
"""From here on an integer loses digits in a spreadsheet's float64: it is written as text."""

COMPRESSION_LEVEL = 3
"""Level 6 takes twice the time for a tenth fewer bytes."""

_LINE_POINTS = 15
_WIDE_LINE_POINTS = 17  # East Asian fonts are higher
_MOST_LINES = 8
_END_OF_ROWS = b"</sheetData>"
_CHUNK = 1 << 18


class SheetBody(Protocol):
    """What is spliced into one sheet."""

    def rows(self) -> Iterator[str]:
        """Yield the XML of the rows below the head."""

    def links(self) -> Iterator[tuple[str, str]]:
        """Yield (cell, target) of links within the workbook, after all rows."""


@record(frozen=True, slots=True)
class RowStyles:
    """Style numbers of the workbook: one per column, and one for text that looks like a formula."""

    columns: Sequence[int]
    quoted: int
    special: Mapping[str, int] = field(default_factory=dict)


class RowWriter:
    """Write rows of one table.

    Parameters
    ----------
    letters
        The columns' letters.
    styles
        The columns' styles.
    wrapped
        Width in characters of the columns whose text is wrapped, by position: they decide how
        high a row is, which LibreOffice does not find out by itself.
    """

    def __init__(
        self, letters: Sequence[str], styles: RowStyles, wrapped: Mapping[int, int]
    ) -> None:
        self._columns = list(zip(letters, styles.columns, strict=True))
        self._quoted = styles.quoted
        self._wrapped = wrapped

    def write(
        self, number: int, values: Sequence[Cell], special: Mapping[int, int] | None = None
    ) -> str:
        """Return the XML of a row.

        `special` gives other styles to some positions.
        """
        parts = [f'<row r="{number}"{self._height(values)}>']
        # A note has fewer values than there are columns.
        cells = zip(values, self._columns, strict=False)
        given = special or {}
        for position, (value, (letters, usual)) in enumerate(cells):
            if value is None or value == "":
                continue
            style = given.get(position, usual)
            start = f'<c r="{letters}{number}" s="{style}"'
            if isinstance(value, str):
                parts.append(self._text(f'<c r="{letters}{number}"', style, value))
            elif isinstance(value, bool):
                parts.append(f'{start} t="b"><v>{value:d}</v></c>')
            elif isinstance(value, float):
                if math.isfinite(value):
                    parts.append(f"{start}><v>{float(value)!r}</v></c>")
                else:
                    parts.append(self._text(f'<c r="{letters}{number}"', style, _name(value)))
            elif -EXACT_INTEGERS < value < EXACT_INTEGERS:
                parts.append(f"{start}><v>{value:d}</v></c>")
            else:
                parts.append(self._text(f'<c r="{letters}{number}"', style, f"{value:d}"))
        parts.append("</row>")
        return "".join(parts)

    def _text(self, start: str, style: int, text: str) -> str:
        """Write text that stays text: typed as such, and marked where it looks like a formula."""
        text = make_cell_text(text)
        if is_formula(text):
            style = self._quoted
        space = ' xml:space="preserve"' if text != text.strip() else ""
        return f'{start} s="{style}" t="inlineStr"><is><t{space}>{escape(text)}</t></is></c>'

    def _height(self, values: Sequence[Cell]) -> str:
        points = 0
        for position, width in self._wrapped.items():
            text = values[position] if position < len(values) else None
            if isinstance(text, str):
                points = max(points, fit_height(text, width))
        return f' ht="{points}" customHeight="1"' if points else ""


def fit_height(text: str, width: int) -> int:
    """Return the height in points of a row whose text is wrapped, 0 where one line is enough."""
    lines = count_lines(text, width)
    if lines < 2:
        return 0
    return lines * (_LINE_POINTS if text.isascii() else _WIDE_LINE_POINTS)


def count_lines(text: str, width: int) -> int:
    """Estimate the lines that a wrapped text takes; East Asian characters are two wide."""
    wide = len(text) if text.isascii() else sum(2 if ord(c) > 0x2E7F else 1 for c in text)
    # A letter is a little narrower than the digit that widths are measured in.
    return min(math.ceil(wide / (1.05 * width)), _MOST_LINES)


def splice_rows(workbook: BinaryIO, target: BinaryIO, bodies: Mapping[str, SheetBody]) -> None:
    """Copy a workbook and put rows into its sheets.

    Parameters
    ----------
    workbook
        A finished workbook whose sheets have their head rows.
    target
        Where the result goes; it need not be seekable.
    bodies
        Rows by the sheet's name in the archive ("xl/worksheets/sheet2.xml").
    """
    with (
        ZipFile(workbook) as source,
        ZipFile(
            target, "w", ZIP_DEFLATED, allowZip64=True, compresslevel=COMPRESSION_LEVEL
        ) as archive,
    ):
        for entry in source.infolist():
            content = source.read(entry)
            body = bodies.get(entry.filename)
            if body is None:
                archive.writestr(entry.filename, content)
                continue
            head, end, tail = content.partition(_END_OF_ROWS)
            assert end, f"{entry.filename} has no rows"
            with archive.open(entry.filename, "w", force_zip64=True) as sheet:
                sheet.write(head)
                for chunk in _chunks(body.rows()):
                    sheet.write(chunk)
                sheet.write(end)
                sheet.write(_insert_links(tail, body.links()))


def _chunks(rows: Iterator[str]) -> Iterator[bytes]:
    pending: list[str] = []
    size = 0
    for row in rows:
        pending.append(row)
        size += len(row)
        if size >= _CHUNK:
            yield "".join(pending).encode()
            pending.clear()
            size = 0
    yield "".join(pending).encode()


def _insert_links(tail: bytes, links: Iterator[tuple[str, str]]) -> bytes:
    """Put links where the schema wants them: after the filter, before the page's margins."""
    written = "".join(
        f'<hyperlink ref="{cell}" location="{escape(target, {chr(34): "&quot;"})}"/>'
        for cell, target in links
    )
    if not written:
        return tail
    element = f"<hyperlinks>{written}</hyperlinks>".encode()
    for before in (b"<pageMargins", b"</worksheet>"):
        position = tail.find(before)
        if position >= 0:
            return tail[:position] + element + tail[position:]
    return tail


def _name(value: float) -> str:
    return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
