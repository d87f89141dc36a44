"""The workbook, opened again and compared cell by cell."""

from __future__ import annotations

import csv
import io
import math
import os
import shutil
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import openpyxl
import pytest

from dumpscope.model import Scan, Verdict
from dumpscope.reporters.excel import ROWS_PER_SHEET, ExcelReporter
from dumpscope.reporters.sheet_rows import count_lines
from dumpscope.reporters.tables import TABLES, Cell
from scan_samples import (
    HOSTILE_NAMES,
    clean_scan,
    incomplete_scan,
    large_scan,
    make_finding,
    named_scan,
    overflow_scan,
)

SHEETS = {
    "findings": "First offenders",
    "tensors": "Tensors",
    "overflow": "Overflow status",
    "expected": "Expected",
    "failures": "Failures",
    "unchecked": "Unchecked",
}

# What HOSTILE_NAMES must read as, by hand: openpyxl does not undo Excel's _xHHHH_ escapes.
SAFE_NAMES = (
    '=HYPERLINK("http://evil.example","open")',
    "+1+cmd|' /C calc'!A0",
    "-2+3",
    "@SUM(1)",
    "\\t=1+1",
    "#REF!",
    "esc\\x1b[31mred\\x1b[0m\\x07",
    "bidi\\u202egnp.exe",
    "raw\\xff\\x80bytes",
    "null\\x00byte",
    "line\\nbreak\\r\\nand\\ttab",
    'quote"comma,semicolon;',
    "[bold red]markup[/bold red]",
    "</script><b>html</b>",
    "_x005F_x0041_escape",
    "matmul_x005F_x1024_y",
    "算子/注意力/乘法",
    "emoji \U0001f600 and \\ufffe",
    "{braces} %s %(x)s $(id) `id`",
    "'quoted",
)


def write(scan: Scan, *, limit: int | None = None, lang: str = "en", rows: int = 0) -> bytes:
    target = io.BytesIO()
    reporter = ExcelReporter(rows_per_sheet=rows) if rows else ExcelReporter()
    reporter.write(scan, target, limit=limit, lang=lang)
    return target.getvalue()


def load(content: bytes) -> Any:
    return openpyxl.load_workbook(io.BytesIO(content))


def records(sheet: Any) -> list[dict[str, Any]]:
    head, *rows = [list(row) for row in sheet.iter_rows(values_only=True)]
    return [dict(zip(head, row, strict=True)) for row in rows]


@pytest.mark.parametrize("name", SHEETS)
def test_every_table_reads_back_cell_by_cell(name: str) -> None:
    scan = incomplete_scan() if name in {"failures", "unchecked"} else overflow_scan()
    table = TABLES[name]
    sheet = load(write(scan))[SHEETS[name]]
    rows = [list(row) for row in sheet.iter_rows(values_only=True)]
    assert rows[0] == [column.name for column in table.columns]
    expected = list(table.compute(scan))
    assert expected
    for row, values in zip(rows[1:], expected, strict=True):
        for read, value in zip(row, values, strict=True):
            if isinstance(value, int) and abs(value) >= 10**15:
                assert read == str(value)
            elif value == "":
                assert read is None
            else:
                assert read == value
                assert isinstance(read, bool) == isinstance(value, bool)


def test_numbers_are_numbers_and_long_ones_keep_their_digits() -> None:
    (first, _) = records(load(write(overflow_scan()))["First offenders"])
    assert first["posinf"] == 513
    assert first["std"] == 0.1
    assert first["l2"] == 3.5e38
    assert first["timestamp"] == "1764417600003145"
    assert first["checked"] is True


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        (float("-inf"), "-inf"),
        (5e-324, 5e-324),
        (1.7976931348623157e308, 1.7976931348623157e308),
        (-0.1, -0.1),
        (10**15 - 1, 10**15 - 1),
        (10**15, str(10**15)),
        (-(2**63), str(-(2**63))),
    ],
)
def test_numbers_at_the_limits(value: float, expected: Cell) -> None:
    finding = make_finding(1)
    (_, output) = finding.op.tensors
    output = replace(output, stats=replace(output.stats, max=value))
    op = replace(finding.op, tensors=(finding.op.tensors[0], output))
    scan = replace(overflow_scan(), findings=(replace(finding, op=op),))
    (row,) = records(load(write(scan))["First offenders"])
    assert row["max"] == expected


def test_hostile_names_are_text_and_whole() -> None:
    book = load(write(named_scan()))
    assert len(SAFE_NAMES) == len(HOSTILE_NAMES) - 1
    for name, column in (("First offenders", "op_name"), ("Failures", "message")):
        rows = records(book[name])
        assert tuple(row[column] for row in rows[:-1]) == SAFE_NAMES
        assert rows[-1][column] is None
    for sheet in book:
        for row in sheet.iter_rows():
            for cell in row:
                assert cell.data_type not in {"f", "e"}, cell.coordinate


def test_formula_like_text_stays_text_when_edited() -> None:
    sheet = load(write(named_scan()))["First offenders"]
    marked = {cell.value for cell in sheet["D"][1:] if cell.quotePrefix}
    assert marked == set(SAFE_NAMES[:4])


def test_every_part_is_well_formed() -> None:
    with zipfile.ZipFile(io.BytesIO(write(named_scan()))) as archive:
        assert archive.testzip() is None
        names = archive.namelist()
        assert len(set(names)) == len(names)
        for name in names:
            if name.endswith((".xml", ".rels")):
                ET.fromstring(archive.read(name))


def test_views_and_filters() -> None:
    book = load(write(overflow_scan()))
    assert book.sheetnames == [
        "Summary",
        "First offenders",
        "Tensors",
        "Overflow status",
        "Expected",
        "Failures",
        "Charts",
        "Legend",
    ]
    sheet = book["First offenders"]
    assert sheet.freeze_panes == "D2"
    assert sheet.auto_filter.ref == f"A1:{openpyxl.utils.get_column_letter(sheet.max_column)}3"
    assert sheet.column_dimensions["D"].width == 44
    for name in ("Tensors", "Overflow status", "Expected", "Failures"):
        assert book[name].freeze_panes == "A2"
        assert book[name].auto_filter.ref.startswith("A1:")
    assert sheet["A1"].font.bold
    assert sheet["A1"].fill.fgColor.rgb == "001F3864"


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_sheet_prints_as_wide_as_one_page(lang: str) -> None:
    book = load(write(incomplete_scan(), lang=lang))
    assert len(book.sheetnames) == 9
    for sheet in book:
        assert sheet.page_setup.orientation == "landscape"
        assert int(sheet.page_setup.paperSize) == 9
        assert sheet.sheet_properties.pageSetUpPr.fitToPage is True
        assert (sheet.page_setup.fitToWidth, sheet.page_setup.fitToHeight) == (1, 0)
        assert sheet.oddFooter.left.text == sheet.title
        assert sheet.oddFooter.right.text == "&P / &N"


def test_the_head_is_printed_again_and_only_columns_that_matter() -> None:
    book = load(write(incomplete_scan()))
    # The last column on paper: the answer, not the forty columns behind it.
    last = {
        "First offenders": "reason",
        "Tensors": "near_limit",
        "Overflow status": "timestamp",
        "Expected": "reason",
        "Failures": "message",
        "Unchecked": "file",
    }
    for name, column in last.items():
        sheet = book[name]
        assert sheet.print_title_rows == "$1:$1"
        heads = [cell.value for cell in sheet[1]]
        letter = openpyxl.utils.get_column_letter(heads.index(column) + 1)
        assert sheet.print_area == f"'{name}'!$A$1:${letter}${sheet.max_row}"
    assert book["Legend"].print_title_rows == "$1:$1"
    for name in ("Summary", "Charts", "Legend"):
        assert not book[name].print_area  # all of it


def test_a_long_name_is_seen_whole() -> None:
    finding = make_finding(1, name="network/" + "deep/" * 20 + "MatMul")
    scan = replace(overflow_scan(), findings=(finding,))
    sheet = load(write(scan))["First offenders"]
    name = next(cell for cell in sheet[2] if cell.value == finding.op.op_name)
    assert name.alignment.wrap_text
    assert sheet.row_dimensions[2].height == 3 * 15  # 114 characters in a column of 44


def test_verdicts_have_their_colours() -> None:
    findings = tuple(
        replace(make_finding(rank), verdict=verdict)
        for rank, verdict in enumerate(Verdict, 1)
        if verdict is not Verdict.EXPECTED
    )
    sheet = load(write(replace(overflow_scan(), findings=findings)))["First offenders"]
    colours = {row[1].value: row[1].fill.fgColor.rgb for row in sheet.iter_rows(min_row=2)}
    assert colours["origin"] == colours["status_origin"] == "00F8CBAD"
    assert colours["bad_input"] == "00FFE699"
    assert colours["propagated"] == "00EDEDED"
    assert set(colours) == {finding.verdict.value for finding in findings}


def test_links_lead_to_the_tensors_of_a_finding() -> None:
    sheet = load(write(overflow_scan()))["First offenders"]
    assert sheet["A2"].hyperlink.location == "'Tensors'!A2"
    assert sheet["A3"].hyperlink.location == "'Tensors'!A5"
    tensors = load(write(overflow_scan()))["Tensors"]
    assert (tensors["A5"].value, tensors["A4"].value) == (2, 1)
    summary = load(write(overflow_scan()))["Summary"]
    targets = {
        cell.value: cell.hyperlink.location for (cell, *_) in summary.iter_rows() if cell.hyperlink
    }
    assert targets["First offenders"] == "'First offenders'!A1"
    assert targets["Failures"] == "'Failures'!A1"


def test_the_summary_answers_the_question() -> None:
    sheet = load(write(overflow_scan()))["Summary"]
    rows = [(row[0].value, row[1].value) for row in sheet.iter_rows()]
    assert rows[0][0] == (
        "BatchMatMulV2 network_layers_1_attn_BatchMatMulV2-op0 went wrong first in step 0 on "
        "device 3."
    )
    assert sheet["A1"].fill.fgColor.rgb == "00F8CBAD"
    facts = dict(rows)
    assert facts["why"].startswith("Output 0 has 513 +Inf of 2,048 float16 elements")
    assert facts["number mode"] == "INF/NaN (inferred)"
    assert facts["tensors"] == 75
    assert facts["origin"] == 1
    assert facts["dump.dump_mode"] == "all"
    assert facts["Tensors"] == 5
    assert load(write(clean_scan()))["Summary"]["A1"].fill.fgColor.rgb == "00C6E0B4"


def test_the_summary_says_what_was_not_checked() -> None:
    book = load(write(incomplete_scan()))
    texts = [cell.value for cell in book["Summary"]["B"]]
    assert "1 tensor could not be checked: unchecked is not clean." in texts
    assert "Unchecked" in book.sheetnames
    assert "nothing: every file and tensor found was checked" in [
        cell.value for cell in load(write(clean_scan()))["Summary"]["B"]
    ]


def test_chinese_words_and_the_same_keys() -> None:
    book = load(write(overflow_scan(), lang="zh"))
    assert book.sheetnames[:4] == ["摘要", "首个出错算子", "张量", "溢出状态"]
    (first, _) = records(book["首个出错算子"])
    assert first["verdict"] == "origin"
    assert first["reason"].startswith("输出 0 的 2,048 个 float16 元素中有 513 个 +Inf")
    assert first["overflow_bits"] == "0x20 浮点运算溢出"
    assert book["首个出错算子"]["A2"].hyperlink.location == "'张量'!A2"
    legend = {row[0].value: row[2].value for row in book["说明"].iter_rows()}
    assert legend["posinf"] == "+Inf 元素个数"
    assert legend["origin"].startswith("输出为 NaN 或 Inf")


def test_the_legend_explains_every_column() -> None:
    book = load(write(incomplete_scan()))
    legend = {row[0].value for row in book["Legend"].iter_rows()}
    for name in SHEETS.values():
        assert {cell.value for cell in book[name][1]} <= legend


def test_a_chart_of_findings_per_step_and_device() -> None:
    sheet = load(write(large_scan(16)))["Charts"]
    rows = [list(row) for row in sheet.iter_rows(values_only=True)]
    assert rows[1][:3] == ["step", "device 0", "device 1"]
    assert rows[3] == [1, 0, 2, 0, 0, 0, 2, 0, 0]
    (chart,) = sheet._charts
    assert len(chart.series) == 8
    empty = load(write(clean_scan()))["Charts"]
    assert [row[0].value for row in empty.iter_rows()][1] == "none"
    assert empty._charts == []


def test_more_rows_than_a_sheet_holds_are_cut_by_rank_and_it_says_so() -> None:
    book = load(write(large_scan(9), rows=6))
    column = [cell.value for cell in book["First offenders"]["A"]]
    assert column == [
        "rank",
        1,
        2,
        3,
        4,
        "5 rows left out, the lowest in the ranking: a sheet holds 6 rows.",
    ]
    assert book["First offenders"].auto_filter.ref.endswith("5")
    tensors = [cell.value for cell in book["Tensors"]["A"]]
    assert tensors[1:-1] == [1, 1, 2, 2]
    assert tensors[-1].startswith("14 rows left out")
    links = [cell.hyperlink and cell.hyperlink.location for cell in book["First offenders"]["A"]]
    assert links == [None, "'Tensors'!A2", "'Tensors'!A4", None, None, None]


def test_a_sheet_that_is_just_full_is_not_cut() -> None:
    column = [cell.value for cell in load(write(large_scan(5), rows=6))["First offenders"]["A"]]
    assert column == ["rank", 1, 2, 3, 4, 5]
    assert ROWS_PER_SHEET == 2**20


def test_a_limit_is_told_on_the_sheet() -> None:
    column = [cell.value for cell in load(write(large_scan(5), limit=2))["First offenders"]["A"]]
    assert column == [
        "rank",
        1,
        2,
        "3 findings left out by --limit 2; --limit 0 gives all.",
    ]


def test_rows_are_as_high_as_their_reason() -> None:
    sheet = load(write(overflow_scan()))["First offenders"]
    reason = sheet["G2"].value
    assert sheet["G1"].value == "reason"
    assert sheet.row_dimensions[2].height == 15 * math.ceil(len(reason) / 94.5)
    assert count_lines("", 10) == 0
    assert count_lines("abc" * 100, 10) == 8
    assert count_lines("字" * 10, 10) == 2


def test_the_target_need_not_be_seekable() -> None:
    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

        def seek(self, *_: int) -> int:
            raise io.UnsupportedOperation

        def tell(self) -> int:
            raise io.UnsupportedOperation

    pipe = Pipe()
    ExcelReporter().write(overflow_scan(), pipe, limit=None, lang="en")
    assert load(pipe.getvalue()).sheetnames[0] == "Summary"


@pytest.mark.skipif(
    shutil.which("soffice") is None, reason="needs LibreOffice (soffice) to open a workbook"
)
def test_libreoffice_opens_it_and_shows_names_as_text(tmp_path: Path) -> None:
    workbook = tmp_path / "report.xlsx"
    workbook.write_bytes(write(named_scan()))
    filter_options = "44,34,76,1,,0,false,true,false,false,false,2"  # sheet 2 as UTF-8 CSV
    subprocess.run(
        [
            "soffice",
            f"-env:UserInstallation=file://{tmp_path}/profile",
            "--headless",
            "--convert-to",
            f"csv:Text - txt - csv (StarCalc):{filter_options}",
            "--outdir",
            str(tmp_path),
            str(workbook),
        ],
        check=True,
        capture_output=True,
        timeout=300,
        env={**os.environ, "HOME": str(tmp_path)},
    )
    (converted,) = tmp_path.glob("*.csv")
    rows = list(csv.DictReader(io.StringIO(converted.read_text(encoding="utf-8"), newline="")))
    shown = [row["op_name"] for row in rows]
    # LibreOffice undoes Excel's escapes: there the names are what they were.
    expected = [name.replace("_x005F_", "_") for name in SAFE_NAMES]
    assert shown[:-1] == expected
    assert rows[0]["verdict"] == "propagated"
    assert rows[0]["nan"] == "8"
