"""CSV read back with the csv module: the same values, and nothing that a spreadsheet runs."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import numpy as np
import pytest

from dumpscope.model import Scan
from dumpscope.reporters.document import build_document
from dumpscope.reporters.flat import CsvReporter, format_cell, write_table
from dumpscope.reporters.tables import TABLES, Cell
from scan_samples import HOSTILE_NAMES, clean_scan, large_scan, named_scan, overflow_scan

# What HOSTILE_NAMES must read as, by hand.
SAFE_NAMES = (
    '\'=HYPERLINK("http://evil.example","open")',
    "'+1+cmd|' /C calc'!A0",
    "'-2+3",
    "'@SUM(1)",
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
    "_x0041_escape",
    "matmul_x1024_y",
    "算子/注意力/乘法",
    "emoji \U0001f600 and \\ufffe",
    "{braces} %s %(x)s $(id) `id`",
    "'quoted",
    "",
)


def write(scan: Scan, *, limit: int | None = None, lang: str = "en") -> bytes:
    target = io.BytesIO()
    CsvReporter().write(scan, target, limit=limit, lang=lang)
    return target.getvalue()


def read(content: bytes) -> list[dict[str, str]]:
    text = content.decode("utf-8-sig")
    return list(csv.DictReader(io.StringIO(text, newline=""), strict=True))


def test_the_file_reads_back_cell_by_cell() -> None:
    rows = read(write(overflow_scan()))
    table = TABLES["findings"]
    expected = list(table.compute(overflow_scan()))
    assert len(rows) == len(expected) == 2
    for row, values in zip(rows, expected, strict=True):
        assert list(row) == [column.name for column in table.columns]
        for text, value in zip(row.values(), values, strict=True):
            if isinstance(value, bool):
                assert text == str(value).lower()
            elif isinstance(value, (int, float)):
                assert type(value)(text) == value
            else:
                assert text == (value or "")
    assert rows[0]["posinf"] == "513"
    assert rows[0]["rms"] == "1e-07"
    assert rows[0]["timestamp"] == "1764417600003145"
    assert rows[0]["shape"] == "[2, 32, 32]"
    assert rows[1]["subnormal"] == ""


def test_columns_are_named_as_the_keys_of_the_document() -> None:
    finding = build_document(overflow_scan())["findings"][0]
    parts = {"tensors", "overflow", "reason_parameters"}  # what becomes columns of its own
    keys = finding.keys() - parts | finding["tensors"][0].keys()
    keys |= {f"overflow_{key}" for key in finding["overflow"]}
    (row, _) = read(write(overflow_scan()))
    assert row.keys() <= keys
    promised = "rank verdict severity known step device global_rank device_id host run op_type"
    promised += " op_name task_id stream_id timestamp file reason reason_code evidence stack"
    promised += " role index dtype layout shape nan posinf neginf saturated near_limit subnormal"
    promised += " zero padding_nonfinite min max mean std rms l2 first_bad bad_box checked"
    promised += " overflow_kind overflow_status overflow_bits overflow_confirmed overflow_file"
    assert row.keys() >= set(promised.split())


def test_lines_end_as_rfc_4180_wants() -> None:
    content = write(overflow_scan())
    assert content.count(b"\r\n") == 3
    assert content.count(b"\n") == 3
    assert content.endswith(b"\r\n")


def test_names_are_safe_and_still_there() -> None:
    rows = read(write(named_scan()))
    assert tuple(row["op_name"] for row in rows) == SAFE_NAMES
    assert tuple(row["file"] for row in rows) == SAFE_NAMES
    assert len(SAFE_NAMES) == len(HOSTILE_NAMES)
    for row in rows:
        for text in row.values():
            assert not text.startswith(("=", "+", "@", "\t", "\r"))
            assert text.isprintable()


def test_a_byte_order_mark_only_where_text_needs_it() -> None:
    assert write(overflow_scan()).startswith(b"rank,verdict,op_type,")
    assert write(named_scan()).startswith(b"\xef\xbb\xbfrank,verdict,")
    chinese = write(overflow_scan(), lang="zh")
    assert chinese.startswith(b"\xef\xbb\xbfrank,verdict,")
    assert read(chinese)[0]["reason"].startswith("输出 0 的 2,048 个")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ""),
        (True, "true"),
        (False, "false"),
        (0, "0"),
        (-3, "-3"),
        (2**63, "9223372036854775808"),
        (0.1, "0.1"),
        (-0.0, "-0.0"),
        (3.3895313892515355e38, "3.3895313892515355e+38"),
        (5e-324, "5e-324"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        (float("-inf"), "-inf"),
        ("-inf", "'-inf"),
        ("a", "a"),
    ],
)
def test_values(value: Cell, expected: str) -> None:
    assert format_cell(value) == expected


def test_numbers_of_numpy_are_numbers() -> None:
    assert format_cell(np.float64(0.5)) == "0.5"


def test_the_limit() -> None:
    scan = large_scan(7)
    assert len(read(write(scan))) == 7
    assert len(read(write(scan, limit=0))) == 7
    assert [row["rank"] for row in read(write(scan, limit=2))] == ["1", "2"]


def test_a_scan_without_findings_has_a_head() -> None:
    content = write(clean_scan())
    assert content.startswith(b"rank,verdict,")
    assert read(content) == []


@pytest.mark.parametrize("name", TABLES)
def test_every_table_can_be_written(name: str) -> None:
    target = io.BytesIO()
    write_table(name, named_scan(), target)
    rows = read(target.getvalue())
    assert len(rows) == TABLES[name].count_rows(named_scan(), 0)


def test_causes_beyond_the_ranking_are_empty() -> None:
    scan = overflow_scan()
    (_, second) = scan.findings
    (row,) = read(write(replace(scan, findings=(second,))))
    assert row["caused_by"] == ""
