"""The terminal table: at most 100 cells wide in every language, and safe with any name."""

from __future__ import annotations

import io
import re
import unicodedata
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from dumpscope.model import Scan
from dumpscope.reporters.cells import shorten, wrap
from dumpscope.reporters.terminal import is_ascii_only, print_scan, render_scan
from scan_samples import (
    HOSTILE_NAMES,
    clean_scan,
    incomplete_scan,
    large_scan,
    make_finding,
    named_scan,
    overflow_scan,
)

SCANS = {
    "overflow": overflow_scan(),
    "clean": clean_scan(),
    "incomplete": incomplete_scan(),
    "hostile": named_scan(),
    "many": large_scan(1234),
}


def width_of(text: str) -> int:
    """Terminal cells by Unicode's own table, without the library under test."""
    return sum(
        0
        if unicodedata.combining(character)
        else 2
        if unicodedata.east_asian_width(character) in "WF"
        else 1
        for character in text
    )


@pytest.mark.parametrize("name", SCANS)
@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("width", [60, 80, 100])
@pytest.mark.parametrize("ascii_only", [False, True])
def test_no_line_is_too_wide(name: str, lang: str, width: int, ascii_only: bool) -> None:
    text = render_scan(SCANS[name], limit=30, lang=lang, width=width, ascii_only=ascii_only)
    for line in text.splitlines():
        if not re.search("[:：] ?dumpscope ", line):  # a command is never broken
            assert width_of(line) <= width, line


def test_the_table_of_an_overflow() -> None:
    lines = render_scan(overflow_scan()).splitlines()
    assert lines[0] == (
        "BatchMatMulV2 network_layers_1_attn_BatchMatMulV2-op0 went wrong first in step 0 on "
        "device 3."
    )
    table = lines[4:14]
    assert table == [
        " #  verdict           operator                       what and why",
        "─" * 100,
        " 1  origin            BatchMatMulV2                  513 +Inf of 2,048 float16",
        "    step 0 dev 3      network_l…n_BatchMatMulV2-op0  Both inputs are finite (largest |x| "
        "412.5): the",
        " " * 53 + "operator itself produced the Inf (float16 ends",
        " " * 53 + "at 65,504); the hardware confirms it (0x20",
        " " * 53 + "floating-point overflow).",
        " 2  propagated        Mul                            all 8 float16 are NaN",
        "    step 0 dev 0      network/layer_2/Mul            It read non-finite values that "
        "BatchMatMulV2",
        " " * 53 + "bmm produced (linked by equal bytes).",
    ]
    position = lines.index(
        "2 findings, 24 operator executions, 75 tensors, 25 files, 1 overflow record; number mode "
        "INF/NaN"
    )
    assert lines[position + 1] == "(inferred)."
    assert lines[-1] == "  a workbook to send around: dumpscope report --xlsx"
    assert (
        "  all tensors of the first offender: dumpscope show "
        "network_layers_1_attn_BatchMatMulV2-op0" in lines
    )


def test_the_table_in_chinese() -> None:
    lines = render_scan(overflow_scan(), lang="zh").splitlines()
    assert lines[0].startswith("最先出错的算子是 BatchMatMulV2 network_layers_1_attn")
    assert any(line.startswith(" 1  源头 origin") for line in lines)
    assert "生成可转发的工作簿：dumpscope report --xlsx" in lines[-1]
    for line in lines:
        assert not re.match(r"\s*[，。；：、）]", line), line


def test_the_limit_says_how_many_are_left() -> None:
    text = render_scan(large_scan(1234), limit=2)
    assert "… and 1,232 more (--limit 0 shows all)" in text.splitlines()
    assert text.count("propagated") == 1
    whole = render_scan(large_scan(12), limit=0)
    assert "more (--limit" not in whole
    assert whole.count("propagated") == 11
    assert render_scan(large_scan(12)) == whole
    assert "... and 10 more" in render_scan(large_scan(12), limit=2, ascii_only=True)


def test_without_findings_there_is_no_table() -> None:
    assert render_scan(clean_scan()).splitlines() == [
        "No operator produced NaN, Inf or saturated values in 24 executions with 75 tensors.",
        "",
        "0 findings, 24 operator executions, 75 tensors, 24 files, 0 overflow records; "
        "number mode unknown.",
    ]


def test_what_was_not_checked_is_told() -> None:
    text = render_scan(incomplete_scan())
    assert "What was not checked:\n  1 read failure" in text
    assert "  1 tensor could not be checked: unchecked is not clean." in text


@pytest.mark.parametrize("ascii_only", [False, True])
@pytest.mark.parametrize("colour", [False, True])
def test_no_name_reaches_the_terminal_raw(ascii_only: bool, colour: bool) -> None:
    text = render_scan(named_scan(), colour=colour, ascii_only=ascii_only)
    # The only escape sequences are the table's own colours.
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text) if colour else text
    categories = {unicodedata.category(character) for character in plain if character != "\n"}
    assert not categories & {"Cc", "Cf", "Cs", "Cn"}
    assert "[bold red]markup[/bold red]" in plain
    if ascii_only:
        assert plain.isascii()


def test_colour_only_when_asked_for() -> None:
    assert "\x1b" not in render_scan(overflow_scan())
    coloured = render_scan(overflow_scan(), colour=True)
    assert "\x1b[1;31m" in coloured
    stripped = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    assert [line.rstrip() for line in stripped.splitlines()] == render_scan(
        overflow_scan()
    ).splitlines()


def test_a_record_without_an_operator_shows_its_file() -> None:
    finding = make_finding(1)
    op = replace(finding.op, op_type="", op_name="", file="a/b/Opdebug.Node.1.2.3")
    text = render_scan(replace(overflow_scan(), findings=(replace(finding, op=op),)))
    assert "Opdebug.Node.1.2.3" in text


class Stream(io.StringIO):
    """A text stream with an encoding, a terminal or not."""

    def __init__(self, encoding: str, *, terminal: bool = False) -> None:
        super().__init__()
        self._encoding = encoding
        self._terminal = terminal

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding

    def isatty(self) -> bool:
        return self._terminal


@pytest.fixture
def plain_locale(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("LC_ALL", "LC_CTYPE", "LANG", "NO_COLOR", "TERM", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def printed(scan: Scan, stream: Stream, lang: str = "en") -> str:
    print_scan(scan, limit=3, lang=lang, stream=stream)
    return stream.getvalue()


def test_a_stream_of_ascii_gets_ascii(plain_locale: pytest.MonkeyPatch) -> None:
    for lang in ("en", "zh"):
        assert printed(named_scan(), Stream("ascii"), lang).isascii()
    assert "─" in printed(overflow_scan(), Stream("utf-8"))
    assert "源头" in printed(overflow_scan(), Stream("gb18030"), "zh")


def test_the_c_locale_gets_an_ascii_frame(plain_locale: pytest.MonkeyPatch) -> None:
    plain_locale.setenv("LC_ALL", "C")
    assert printed(overflow_scan(), Stream("utf-8")).isascii()
    assert "─" not in printed(overflow_scan(), Stream("utf-8"), "zh")


def test_colour_needs_a_terminal_and_no_objection(plain_locale: pytest.MonkeyPatch) -> None:
    assert "\x1b" not in printed(overflow_scan(), Stream("utf-8"))
    assert "\x1b" in printed(overflow_scan(), Stream("utf-8", terminal=True))
    plain_locale.setenv("NO_COLOR", "1")
    assert "\x1b" not in printed(overflow_scan(), Stream("utf-8", terminal=True))
    plain_locale.delenv("NO_COLOR")
    plain_locale.setenv("TERM", "dumb")
    assert "\x1b" not in printed(overflow_scan(), Stream("utf-8", terminal=True))


def test_a_narrow_terminal_gets_a_narrow_table(plain_locale: pytest.MonkeyPatch) -> None:
    plain_locale.setenv("COLUMNS", "72")
    plain_locale.setenv("TERM", "dumb")
    lines = printed(large_scan(5), Stream("utf-8", terminal=True)).splitlines()
    assert "─" * 72 in lines
    assert "─" * 100 in printed(large_scan(5), Stream("utf-8")).splitlines()


@pytest.mark.parametrize(
    ("encoding", "environment", "expected"),
    [
        ("utf-8", {}, False),
        ("utf-8", {"LANG": "en_US.UTF-8"}, False),
        ("utf-8", {"LANG": "en_US.UTF-8", "LC_ALL": "C"}, True),
        ("utf-8", {"LC_ALL": "", "LANG": "POSIX"}, True),
        ("utf-8", {"LC_ALL": "C.UTF-8"}, False),
        ("ascii", {"LC_ALL": "C.UTF-8"}, True),
        ("latin-1", {}, True),
        ("no such encoding", {}, True),
        (None, {}, True),
    ],
)
def test_where_only_ascii_is_shown(
    encoding: str | None, environment: dict[str, str], expected: bool
) -> None:
    assert is_ascii_only(encoding, environment) is expected


@pytest.mark.parametrize(
    ("text", "width", "expected"),
    [
        ("short", 5, "short"),
        ("network/layers/1/attn/BatchMatMulV2-op0", 20, "networ…hMatMulV2-op0"),
        ("算子算子算子算子", 9, "算…子算子"),
        ("abc", 1, "…"),
    ],
)
def test_names_lose_their_middle(text: str, width: int, expected: str) -> None:
    short = shorten(text, width)
    assert width_of(short) <= width
    assert short == expected


@given(st.text(st.characters(exclude_categories=["C", "M", "Z"])), st.integers(4, 40))
def test_a_shortened_name_fits(text: str, width: int) -> None:
    short = shorten(text, width)
    assert cell_len(short) <= width
    assert (short == text) == (cell_len(text) <= width)


@given(
    st.lists(st.text(st.sampled_from("abcXY,.:()算子输出（），。：0123")), max_size=12),
    st.integers(4, 50),
)
def test_wrapping_keeps_every_character_and_the_width(words: list[str], width: int) -> None:
    text = " ".join(words)
    lines = wrap(text, width)
    assert all(cell_len(line) <= width for line in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")


def test_chinese_breaks_anywhere_but_not_before_punctuation() -> None:
    assert wrap("输出含有非有限值，而输入均为有限值。", 16) == [
        "输出含有非有限",
        "值，而输入均为有",
        "限值。",
    ]
    assert wrap("an operator of this rank", 11) == ["an operator", "of this", "rank"]
    assert wrap("", 10) == []


def test_hostile_names_are_listed_one_by_one() -> None:
    text = render_scan(named_scan(), limit=0)
    numbers = re.findall(r"^ ?(\d+)  propagated", text, re.MULTILINE)
    assert [int(number) for number in numbers] == list(range(1, len(HOSTILE_NAMES) + 1))
