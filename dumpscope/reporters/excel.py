"""The workbook: what people send around.

Sheets: Summary, First offenders, Tensors, Overflow status, Expected, Failures, Unchecked (where
something was), Charts, Legend. openpyxl makes the workbook; the rows of its tables are written by
sheet_rows.py, one by one, so that memory does not grow with them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from dumpscope.model import Reason, Scan, Verdict
from dumpscope.reporters.overview import list_summary_rows, tally_findings
from dumpscope.reporters.sheet_pages import print_columns, set_up_page
from dumpscope.reporters.sheet_rows import (
    EXACT_INTEGERS,
    RowStyles,
    RowWriter,
    fit_height,
    splice_rows,
)
from dumpscope.reporters.tables import TABLES, Cell, Column, Table
from dumpscope.safetext import is_formula, make_cell_text
from dumpscope.words import describe_verdict, label, render

if TYPE_CHECKING:
    from openpyxl import Workbook

__all__ = ["ROWS_PER_SHEET", "ExcelReporter"]

ROWS_PER_SHEET = 1_048_576
"""Rows of a sheet, its head included (ECMA-376, Excel's specification and limits)."""

_LINKED_ROWS = 1000
"""Findings that link to their tensors; many more links make a workbook slow to open."""

_FILLS = {
    "origin": "F8CBAD",
    "saturated_origin": "F8CBAD",
    "status_origin": "F8CBAD",
    "bad_input": "FFE699",
    "received": "FFE699",
    "unknown_inputs": "FFE699",
    "handoff": "DDEBF7",
    "swallowed": "DDEBF7",
    "propagated": "EDEDED",
}
_STATUS_FILLS = {0: "C6E0B4", 1: "F8CBAD", 3: "FFE699"}
_HEAD_FILL = "1F3864"
_LINK_COLOUR = "0563C1"
_SUMMARY_WIDTHS = (30, 120)


class ExcelReporter:
    """`--xlsx`: the workbook.

    Parameters
    ----------
    rows_per_sheet
        Rows that a sheet may have; what does not fit is cut by rank, and the sheet says so.
    """

    name = "xlsx"
    suffix = "xlsx"
    option = "--xlsx"

    def __init__(self, rows_per_sheet: int = ROWS_PER_SHEET) -> None:
        self._rows_per_sheet = rows_per_sheet

    def write(self, scan: Scan, target: BinaryIO, *, limit: int | None, lang: str) -> None:
        """Write the workbook; without a limit it lists as many findings as a sheet holds."""
        from openpyxl import Workbook

        book = Workbook(write_only=True)
        book.properties.title = "dumpscope"
        book.properties.creator = f"dumpscope {scan.tool_version}"
        writer = _BookWriter(book, scan, limit or 0, lang, self._rows_per_sheet)
        writer.write_sheets()
        with tempfile.TemporaryFile() as frame:
            book.save(frame)
            splice_rows(cast(BinaryIO, frame), target, writer.bodies)


class _BookWriter:
    """One workbook while it is written. `bodies` are the rows of its tables, still to come."""

    def __init__(self, book: Workbook, scan: Scan, limit: int, lang: str, rows: int) -> None:
        self.bodies: dict[str, _TableBody] = {}
        self._book = book
        self._scan = scan
        self._limit = limit
        self._lang = lang
        self._rows = rows
        self._tables = [t for t in TABLES.values() if t.name != "unchecked" or scan.unchecked]

    def write_sheets(self) -> None:
        self._write_summary()
        for table in self._tables:
            self._write_table(table)
        self._write_charts()
        self._write_legend()

    # --- sheets ----------------------------------------------------------------------------

    def _write_summary(self) -> None:
        sheet = self._add_sheet("summary", _SUMMARY_WIDTHS)
        sheet.sheet_view.showGridLines = False
        fill = _STATUS_FILLS.get(self._scan.exit_status, "EDEDED")
        sheet.row_dimensions[1].height = 24
        number = 0
        for row in list_summary_rows(self._scan, self._lang):
            number += 1
            if row.kind == "headline":
                head = _style(_text_cell(sheet, row.name), bold=True, size=14, fill=fill)
                sheet.append([head, _style(_text_cell(sheet, ""), fill=fill)])
            elif row.kind == "section":
                number += 1
                sheet.append([])
                sheet.append([_style(_text_cell(sheet, row.name), bold=True, size=12)])
            else:
                points = fit_height(str(row.value), _SUMMARY_WIDTHS[1])
                if points:
                    # Must be set before the row is appended.
                    sheet.row_dimensions[number].height = points
                name = _style(_text_cell(sheet, row.name), color="595959", wrap=True)
                sheet.append([name, _style(_value_cell(sheet, row.value), wrap=True)])
        sheet.append([])
        sheet.append([_style(_text_cell(sheet, label("section_sheets", self._lang)), bold=True)])
        for table in self._tables:
            title = self._title(table.name)
            count = _value_cell(sheet, table.count_rows(self._scan, self._limit))
            sheet.append([_link(_text_cell(sheet, title), title), _style(count, wrap=True)])

    def _write_table(self, table: Table) -> None:
        """Write the head of a table; its rows are spliced in when the archive is copied."""
        from openpyxl.utils import get_column_letter

        columns = table.columns
        letters = [get_column_letter(number) for number in range(1, len(columns) + 1)]
        sheet = self._add_sheet(table.name, [max(c.width, len(c.name) + 4) for c in columns])
        sheet.freeze_panes = "D2" if table.name == "findings" else "A2"
        body = _TableBody(
            table, self._scan, self._limit, self._lang, self._rows, self._title("tensors")
        )
        names = [column.name for column in columns]
        print_columns(sheet, table.name, names, body.shown + 1 + len(list(body.closing_notes())))
        sheet.auto_filter.ref = f"A1:{letters[-1]}{max(2, body.shown + 1)}"
        sheet.append([_head_cell(sheet, column.name) for column in columns])
        styles = _register_styles(sheet, columns)
        wrapped = {i: column.width for i, column in enumerate(columns) if column.wrap}
        body.prepare(RowWriter(letters, styles, wrapped), styles)
        self.bodies[f"xl/worksheets/sheet{len(self._book.worksheets)}.xml"] = body

    def _write_charts(self) -> None:
        from openpyxl.chart import BarChart, Reference
        from openpyxl.utils import get_column_letter

        sheet = self._add_sheet("charts", [12])
        tally = tally_findings(self._scan)
        title = label("chart_findings", self._lang)
        sheet.append([_style(_text_cell(sheet, title), bold=True, size=12)])
        if not tally.steps:
            sheet.append([label("no_rows", self._lang)])
            return
        device = label("device", self._lang)
        names = [f"{device} {'?' if d is None else d}" for d in tally.devices]
        sheet.append([_head_cell(sheet, text) for text in (label("step", self._lang), *names)])
        for step, counts in zip(tally.steps, tally.counts, strict=True):
            sheet.append(["?" if step is None else step, *counts])
        chart = BarChart()
        chart.type, chart.grouping, chart.overlap = "col", "stacked", 100
        chart.title, chart.width, chart.height = title, 26, 12
        chart.x_axis.title = label("step", self._lang)
        chart.y_axis.title = label("count", self._lang)
        # Left to the default, newer versions of Excel draw no axes at all.
        chart.x_axis.delete = chart.y_axis.delete = False
        last_row, last_column = len(tally.steps) + 2, len(names) + 1
        data = Reference(sheet, min_col=2, max_col=last_column, min_row=2, max_row=last_row)
        chart.add_data(data, titles_from_data=True)
        chart.set_categories(Reference(sheet, min_col=1, min_row=3, max_row=last_row))
        sheet.add_chart(chart, f"{get_column_letter(last_column + 2)}2")

    def _write_legend(self) -> None:
        sheet = self._add_sheet("legend", [24, 24, 90])
        sheet.freeze_panes = "A2"
        sheet.print_title_rows = "1:1"
        heads = [label(key, self._lang) for key in ("name", "heading", "meaning")]
        sheet.append([_head_cell(sheet, head) for head in heads])
        for verdict in Verdict:
            cell = _style(_text_cell(sheet, verdict.value), fill=_FILLS.get(verdict.value, ""))
            words = [label(verdict.value, self._lang), describe_verdict(verdict, self._lang)]
            sheet.append([cell, *words])
        known: dict[str, Column] = {}
        for table in self._tables:
            for column in table.columns:
                known.setdefault(column.name, column)
        for column in known.values():
            words = [column.name, column.heading(self._lang), column.description(self._lang)]
            sheet.append([_text_cell(sheet, word) for word in words])

    # --- parts -----------------------------------------------------------------------------

    def _title(self, name: str) -> str:
        return label(f"sheet_{name}", self._lang)

    def _add_sheet(self, name: str, widths: Sequence[int]) -> Any:
        """Add a sheet; widths must be set before the first row, later ones are not written."""
        from openpyxl.utils import get_column_letter

        sheet = self._book.create_sheet(self._title(name))
        for number, width in enumerate(widths, 1):
            sheet.column_dimensions[get_column_letter(number)].width = width
        set_up_page(sheet, self._title(name))
        return sheet


class _TableBody:
    """The rows of one table: see `sheet_rows.SheetBody`."""

    def __init__(
        self, table: Table, scan: Scan, limit: int, lang: str, rows: int, tensors: str
    ) -> None:
        total = table.count_rows(scan, limit)
        self.shown = total if total < rows else max(0, rows - 2)
        self._left_out = total - self.shown
        self._table, self._scan, self._limit, self._lang = table, scan, limit, lang
        self._rows = rows
        self._tensors = tensors.replace("'", "''")

    def prepare(self, writer: RowWriter, styles: RowStyles) -> None:
        self._writer = writer
        self._styles = styles

    def rows(self) -> Iterator[str]:
        verdict = None
        if self._table.name == "findings":
            verdict = [column.name for column in self._table.columns].index("verdict")
        computed = self._table.compute(self._scan, limit=self._limit, lang=self._lang)
        special: dict[int, int] = {}
        for number, row in enumerate(islice(computed, self.shown), 2):
            if verdict is not None:
                special = {verdict: self._styles.special[str(row[verdict])]}
                if number < _LINKED_ROWS + 2 and self._scan.findings[number - 2].op.tensors:
                    special[0] = self._styles.special["link"]
            yield self._writer.write(number, row, special)
        for number, note in enumerate(self.closing_notes(), self.shown + 2):
            yield self._writer.write(number, [note], {0: self._styles.special["note"]})

    def links(self) -> Iterator[tuple[str, str]]:
        """Let the number of a finding lead to the first of its tensors."""
        if self._table.name != "findings":
            return
        row = 2
        for number, finding in enumerate(self._scan.findings[: min(self.shown, _LINKED_ROWS)], 2):
            tensors = len(finding.op.tensors)
            if tensors and row < self._rows:
                yield f"A{number}", f"'{self._tensors}'!A{row}"
            row += tensors

    def closing_notes(self) -> Iterator[str]:
        """What a reader of the sheet must know about rows that are not there."""
        beyond = len(self._scan.findings) - self._limit
        if self._left_out:
            reason = Reason("sheet_full", {"limit": self._rows, "count": self._left_out})
            yield render(reason, self._lang)
        elif self._table.name == "findings" and self._limit and beyond > 0:
            reason = Reason("findings_left_out", {"limit": self._limit, "count": beyond})
            yield render(reason, self._lang)
        elif not self.shown:
            yield label("no_rows", self._lang)


def _register_styles(sheet: Any, columns: Sequence[Column]) -> RowStyles:
    """Put the styles that rows use into the workbook and return their numbers."""
    numbers = [
        _style(
            _text_cell(sheet, ""),
            wrap=column.wrap,
            number_format=column.number_format,
            # Short numbers and words would touch what stands beside them.
            centre=column.width < 10,
        )
        for column in columns
    ]
    special = {
        verdict.value: _style(_text_cell(sheet, ""), fill=_FILLS.get(verdict.value, "")).style_id
        for verdict in Verdict
    }
    special["link"] = _style(_text_cell(sheet, ""), color=_LINK_COLOUR, centre=True).style_id
    special["note"] = _style(_text_cell(sheet, ""), color="7F7F7F").style_id
    quoted = _style(_text_cell(sheet, "=")).style_id
    return RowStyles([cell.style_id for cell in numbers], quoted, special)


def _text_cell(sheet: Any, text: str) -> Any:
    """Make a cell whose text is never a formula, not even when somebody edits it."""
    from openpyxl.cell import WriteOnlyCell

    text = make_cell_text(text)
    cell = WriteOnlyCell(sheet, value=text)
    cell.data_type = "s"
    if is_formula(text):
        cell.quotePrefix = True
    return cell


def _value_cell(sheet: Any, value: Cell) -> Any:
    from openpyxl.cell import WriteOnlyCell

    if value is None or isinstance(value, str):
        return _text_cell(sheet, value or "")
    if isinstance(value, int) and not -EXACT_INTEGERS < value < EXACT_INTEGERS:
        return _text_cell(sheet, str(value))
    cell = WriteOnlyCell(sheet, value=value)
    if isinstance(value, int) and not isinstance(value, bool):
        cell.number_format = "#,##0"
    return cell


def _head_cell(sheet: Any, text: str) -> Any:
    return _style(_text_cell(sheet, text), bold=True, color="FFFFFF", fill=_HEAD_FILL, centre=True)


def _style(
    cell: Any,
    *,
    bold: bool = False,
    size: int = 11,
    color: str = "000000",
    fill: str = "",
    wrap: bool = False,
    centre: bool = False,
    number_format: str = "",
) -> Any:
    """Give a cell its look; all stand at the top of their row, beside wrapped sentences."""
    from openpyxl.styles import Alignment, Font, PatternFill

    if bold or size != 11 or color != "000000":
        cell.font = Font(name="Calibri", size=size, bold=bold, color=color)
    if fill:
        cell.fill = PatternFill("solid", fgColor=fill)
    horizontal = "left" if wrap else ("center" if centre else None)
    cell.alignment = Alignment(vertical="top", horizontal=horizontal, wrap_text=wrap or None)
    if number_format:
        cell.number_format = number_format
    return cell


def _link(cell: Any, sheet_title: str) -> Any:
    """Let a cell lead to another sheet."""
    from openpyxl.worksheet.hyperlink import Hyperlink

    cell.row = cell.column = 1  # the reference needs a place; appending sets the real one
    quoted = sheet_title.replace("'", "''")
    cell.hyperlink = Hyperlink(ref="", location=f"'{quoted}'!A1")
    return _style(cell, color=_LINK_COLOUR)
