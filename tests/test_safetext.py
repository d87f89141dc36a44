"""Any text is made safe for terminals, spreadsheets and JSON, and nothing disappears silently."""

from __future__ import annotations

import json
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dumpscope.safetext import (
    CELL_TEXT_LIMIT,
    escape_json_text,
    guard_formula,
    is_formula,
    make_ascii,
    make_cell_text,
    make_printable,
)

# What the file system gives: any character, and bytes that were not UTF-8.
SURROGATE_BYTES = st.sampled_from([chr(code) for code in range(0xDC80, 0xDD00)])
ANY_TEXT = st.text(st.one_of(st.characters(), SURROGATE_BYTES, st.characters(max_codepoint=0x9F)))

# XML 1.0, production 2 (Char): what a worksheet may hold.
XML_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Add_1/conv", "Add_1/conv"),
        ("算子 层　一", "算子 层　一"),
        ("a\x1b[31mb", "a\\x1b[31mb"),
        ("a\nb\r\tc\x00", "a\\nb\\r\\tc\\x00"),
        ("\x9b31m", "\\x9b31m"),
        ("x\u202eexe", "x\\u202eexe"),
        ("a\u200bb\ufeff", "a\\u200bb\\ufeff"),
        ("\u2028", "\\u2028"),
        ("\udcff\udc80", "\\xff\\x80"),
        ("\ud800", "\\ud800"),
        ("\ufffe", "\\ufffe"),
        ("\U000e0041", "\\U000e0041"),
        ("", ""),
    ],
)
def test_what_does_not_print_becomes_a_visible_escape(text: str, expected: str) -> None:
    assert make_printable(text) == expected


@given(ANY_TEXT)
def test_printable_text_has_nothing_that_acts_on_a_terminal(text: str) -> None:
    shown = make_printable(text)
    shown.encode("utf-8")
    categories = {unicodedata.category(character) for character in shown}
    assert not categories & {"Cc", "Cf", "Cs", "Cn", "Co", "Zl", "Zp"}
    assert make_printable(shown) == shown


@given(ANY_TEXT)
def test_ascii_text_is_ascii_and_printable(text: str) -> None:
    shown = make_ascii(text)
    assert re.fullmatch("[ -~]*", shown)


def test_ascii_keeps_what_it_can() -> None:
    assert make_ascii("mul/算子 é") == "mul/\\u7b97\\u5b50 \\xe9"
    assert make_ascii("\U0001f600") == "\\U0001f600"


@pytest.mark.parametrize(
    "text",
    ["=1+1", "+1", "-1", "@SUM(1)", "\t=1", "\r=1", "  =1+1", "\u00a0=1", "＝1+1", "－2", "-"],
)
def test_what_a_spreadsheet_would_run_gets_an_apostrophe(text: str) -> None:
    assert is_formula(text)
    assert guard_formula(text) == "'" + text


@pytest.mark.parametrize("text", ["", " ", "a=1", "1+1", "#REF!", "'=1", "\u00a0"])
def test_other_text_is_left_alone(text: str) -> None:
    assert not is_formula(text)
    assert guard_formula(text) == text


@given(ANY_TEXT)
def test_a_guarded_text_is_no_formula(text: str) -> None:
    assert not is_formula(guard_formula(text))


@given(ANY_TEXT)
def test_cell_text_is_legal_in_a_worksheet(text: str) -> None:
    shown = make_cell_text(text)
    assert XML_ILLEGAL.search(shown) is None
    assert len(shown) <= CELL_TEXT_LIMIT


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("_x0041_", "_x005F_x0041_"),
        ("matmul_x1024_y", "matmul_x005F_x1024_y"),
        ("a_x00e9_x00e9_", "a_x005F_x00e9_x005F_x00e9_"),
        ("_x004", "_x004"),
        ("x0041_", "x0041_"),
        ("matmul_x_y", "matmul_x_y"),
    ],
)
def test_what_excel_takes_for_an_escape_is_escaped(text: str, expected: str) -> None:
    assert make_cell_text(text) == expected


def test_a_cell_text_is_cut_where_a_cell_ends() -> None:
    shown = make_cell_text("a" * 40_000)
    assert len(shown) == 32_767
    assert shown.endswith("a…")
    assert make_cell_text("a" * 32_767) == "a" * 32_767


@given(ANY_TEXT)
def test_json_text_means_the_same_and_is_valid_utf8(text: str) -> None:
    safe = escape_json_text(json.dumps(text, ensure_ascii=False))
    assert json.loads(safe.encode("utf-8")) == text


def test_json_text_escapes_what_acts_on_a_terminal() -> None:
    text = "\x7f\x9b\u202e\u2028\ufeff\udcff\ud83d"
    safe = escape_json_text(f'"{text}"')
    assert safe == '"\\u007f\\u009b\\u202e\\u2028\\ufeff\\udcff\\ud83d"'
    # No character, a tag that no font shows, a sign that turns the direction of digits.
    assert escape_json_text('"\u10cc\U000e0001\u0600"') == '"\\u10cc\\udb40\\udc01\\u0600"'
    assert escape_json_text('{"算子": 1,\n "a\u3000b": 2}\n') == '{"算子": 1,\n "a\u3000b": 2}\n'
