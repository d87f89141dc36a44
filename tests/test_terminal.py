"""The terminal table: at most 100 cells wide in every language, and safe with any name."""

from __future__ import annotations

import io
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from dumpscope.model import ReadFailure, Reason, Scan, Verdict
from dumpscope.reporters.cells import shorten, wrap
from dumpscope.reporters.screen import is_ascii_only
from dumpscope.reporters.terminal import print_scan, render_scan
from dumpscope.words.followers import render_follower
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
    table = lines[4:12]
    assert table == [
        " #  verdict           operator                       what and why",
        "─" * 100,
        " 1  origin            BatchMatMulV2                  513 +Inf of 2,048 float16",
        "    step 0 dev 3      network_l…n_BatchMatMulV2-op0  Both inputs are finite (largest |x| "
        "412.5): the",
        " " * 53 + "operator itself produced the Inf (float16 ends",
        " " * 53 + "at 65,504); the hardware confirms it (0x20",
        " " * 53 + "floating-point overflow).",
        " 2  propagated        network/layer_2/Mul            dev 0: follows bmm (equal bytes)",
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


def numbers_of(text: str) -> list[int]:
    """The places in the ranking that a table lists."""
    return [int(n) for n in re.findall(r"^ *(\d+)  [a-z_]+ ", text, re.MULTILINE)]


def test_the_parts_of_an_operator_that_was_split_can_be_told_apart() -> None:
    parts = [make_finding(i, Verdict.ORIGIN, "net/bmm") for i in (1, 2)]
    parts = [replace(f, op=replace(f.op, thread_id=i)) for i, f in enumerate(parts)]
    scan = replace(overflow_scan(), findings=tuple(parts))
    for lang, word in (("en", "thread"), ("zh", "线程")):
        told = re.findall(rf"^    {word} (\d)  ", render_scan(scan, lang=lang), re.MULTILINE)
        assert told == ["0", "1"]
    assert "thread" not in render_scan(overflow_scan())


def test_the_commands_name_the_store_and_the_scan_that_were_asked_for() -> None:
    place = ("--store", "night 1.db", "--scan", "latest~1")
    told = "--store 'night 1.db' --scan 'latest~1'"
    lines = render_scan(replace(overflow_scan(), found_by=place)).splitlines()
    assert lines[-1] == f"  a workbook to send around: dumpscope report --xlsx {told}"
    assert lines[-2].endswith(f"network_layers_1_attn_BatchMatMulV2-op0 {told}")
    lines = render_scan(replace(incomplete_scan(), found_by=place), lang="zh").splitlines()
    assert lines[-1].endswith(f"dumpscope report --json=- --limit 1 {told}")


def test_it_is_told_why_tensors_were_not_checked() -> None:
    op = make_finding(1).op
    whys = ["structure_only", "truncated", "structure_only"]
    scan = replace(
        incomplete_scan(),
        unchecked=tuple((op, replace(op.tensors[0], unchecked=why)) for why in whys),
    )
    lines = render_scan(scan).splitlines()
    first = lines.index("    1: it is truncated")
    assert lines[first - 1].startswith("    2: ")
    assert "structure" in lines[first - 1]
    assert "    1：数据被截断" in render_scan(scan, lang="zh").splitlines()


def test_the_first_files_that_could_not_be_read_are_named() -> None:
    failures = tuple(
        ReadFailure(f"d/{i}\x1b[2J", "adump", "CorruptDumpError", 0, f"expected {i} bytes")
        for i in range(5)
    )
    few = replace(incomplete_scan(), read_failures=failures[:3])
    lines = render_scan(few).splitlines()
    first = lines.index("    d/0\\x1b[2J: expected 0 bytes")
    assert lines[first + 1 : first + 3] == [
        "    d/1\\x1b[2J: expected 1 bytes",
        "    d/2\\x1b[2J: expected 2 bytes",
    ]
    assert not any("more" in line for line in lines[first:])
    many = render_scan(replace(few, read_failures=failures), ascii_only=True).splitlines()
    assert many[first + 3] == "    ... and 2 more"
    assert "    ……另有 2 个" in render_scan(replace(few, read_failures=failures), lang="zh")


def test_the_first_files_of_no_known_format_are_named() -> None:
    base = clean_scan()
    scan = replace(
        base,
        counts=replace(base.counts, unknown_files=5),
        unknown_files=("d/a.log", "d/b\x1b[2J", "d/c", "d/d", "d/e"),
    )
    lines = render_scan(scan).splitlines()
    first = lines.index("    d/a.log")
    assert "5 files of no known format" in lines[first - 1]
    assert lines[first + 1 : first + 4] == ["    d/b\\x1b[2J", "    d/c", "    … and 2 more"]
    assert "    ……另有 2 个" in render_scan(scan, lang="zh").splitlines()


def test_the_limit_says_how_many_are_left() -> None:
    text = render_scan(large_scan(1234), limit=5)
    assert numbers_of(text) == [1, 2, 3, 4, 5]
    assert "… 1,229 more propagated: --limit 0 shows all" in text.splitlines()
    whole = render_scan(large_scan(12), limit=0)
    assert numbers_of(whole) == list(range(1, 13))
    assert "--limit" not in whole
    text = render_scan(large_scan(12), limit=2, ascii_only=True)
    assert "... 10 more propagated: --limit 0 shows all" in text.splitlines()
    text = render_scan(large_scan(12), limit=2, lang="zh")
    assert "……另有 传播 propagated 10 项：--limit 0 显示全部" in text.splitlines()


def verdicts_scan(verdicts: Sequence[Verdict]) -> Scan:
    """A scan of findings with these verdicts, all in one step on one rank."""
    findings = tuple(make_finding(i, verdict) for i, verdict in enumerate(verdicts, 1))
    return replace(overflow_scan(), findings=findings)


def test_without_a_limit_few_of_those_that_follow_are_shown() -> None:
    many = [Verdict.ORIGIN] * 2 + [Verdict.PROPAGATED] * 7 + [Verdict.SWALLOWED] * 2
    text = render_scan(verdicts_scan(many))
    assert numbers_of(text) == [1, 2, 3, 4, 5]
    assert "… 4 more propagated, 2 swallowed: --limit 0 shows all" in text.splitlines()
    # Four are few: the line that counts would take the room of one.
    assert numbers_of(render_scan(verdicts_scan(many[:6]))) == [1, 2, 3, 4, 5, 6]
    assert numbers_of(render_scan(verdicts_scan(many[:7]))) == [1, 2, 3, 4, 5]
    heads = render_scan(verdicts_scan([Verdict.RECEIVED] * 30 + [Verdict.PROPAGATED] * 9))
    assert numbers_of(heads) == [*range(1, 21), 31, 32, 33]
    assert "… 10 more received, 6 propagated: --limit 0 shows all" in heads.splitlines()


def test_what_follows_has_one_line_and_the_first_finding_never_follows() -> None:
    scan = verdicts_scan([Verdict.PROPAGATED] * 3)
    lines = render_scan(scan).splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith(" 1  propagated"))
    assert (
        lines[first] == " 1  propagated        Mul                            all 8 float16 are NaN"
    )
    rows = [line for line in lines[first:] if re.match(r" [23]  ", line)]
    assert rows == [
        " 2  propagated        network/layer_2/Mul            follows bmm (equal bytes)",
        " 3  propagated        network/layer_3/Mul            follows bmm (equal bytes)",
    ]


def test_a_step_or_rank_of_its_own_is_told_in_the_line() -> None:
    findings = list(verdicts_scan([Verdict.ORIGIN, *[Verdict.PROPAGATED] * 4]).findings)
    places = [(0, 0), (0, 3), (1, 3), (1, 3), (0, 0)]
    for i, (step, device) in enumerate(places):
        op = replace(findings[i].op, step=step, device=device)
        findings[i] = replace(findings[i], op=op)
    scan = replace(overflow_scan(), findings=tuple(findings))
    told = re.findall(r"Mul {12}(.*)follows", render_scan(scan))
    assert told == ["dev 3: ", "step 1: ", "", "step 0 dev 0: "]


@pytest.mark.parametrize(
    ("reason", "english", "chinese"),
    [
        (
            Reason("propagated", {"producer": "a/b", "evidence": "bytes"}),
            "follows a/b (equal bytes)",
            "源自 a/b（数据逐字节相同）",
        ),
        (
            Reason("propagated", {"producer_type": "Add", "evidence": "order"}),
            "follows Add (order only)",
            "源自 Add（仅依据顺序）",
        ),
        (
            Reason("propagated", {"evidence": "address"}),
            "read non-finite values (device address)",
            "读到非有限值（设备地址）",
        ),
        (Reason("propagated"), "read non-finite values", "读到非有限值"),
        (
            Reason("propagated_inside", {"producer": "a/b", "evidence": "order"}),
            "holds a/b",
            "内含 a/b",
        ),
        (Reason("swallowed"), "bad input, finite outputs", "输入异常，输出均为有限值"),
    ],
)
def test_why_an_operator_follows(reason: Reason, english: str, chinese: str) -> None:
    assert render_follower(reason, "en", lambda name, used: name) == english
    assert render_follower(reason, "zh", lambda name, used: name) == chinese


def test_the_name_of_what_is_followed_gives_way() -> None:
    reason = Reason("propagated", {"producer": "x" * 80, "evidence": "graph"})
    told = render_follower(reason, "en", lambda name, used: shorten(name, 40 - used))
    assert len(told) == 40
    assert told.endswith(" (graph edge)")


def test_in_a_narrow_column_the_name_goes_before_how_it_is_known() -> None:
    reason = Reason("propagated", {"producer": "layer1_attn_scores", "evidence": "address"})
    told = [
        render_follower(reason, lang, lambda name, used: shorten(name, 16 - used))
        for lang in ("en", "zh")
    ]
    assert told == ["follows la…cores", "源自 lay…_scores"]


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
    text = render_scan(named_scan(), limit=0, colour=colour, ascii_only=ascii_only)
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


def test_a_wide_terminal_shows_long_names_whole(plain_locale: pytest.MonkeyPatch) -> None:
    plain_locale.setenv("TERM", "dumb")
    name = "network/layers/11/attention/output/dense/MatMulV2"
    finding = make_finding(1, Verdict.ORIGIN, name)
    scan = replace(overflow_scan(), findings=(finding,))
    for columns, width in (("100", 100), ("160", 160), ("400", 160)):
        plain_locale.setenv("COLUMNS", columns)
        lines = printed(scan, Stream("utf-8", terminal=True)).splitlines()
        frame = lines.index("─" * width)
        table = lines[frame : lines.index("", frame)]
        assert any(name in line for line in table) is (width == 160)
        # Sentences stay as long as they can be read.
        assert max(map(len, lines[: frame - 1])) <= 100


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
    # Brackets stay with what they hold, also where that is no East Asian character.
    assert wrap("最大值为 237.125）：因此", 14) == ["最大值为", "237.125）：因", "此"]
    assert wrap("由该算子产生（float16 的上限）", 16) == ["由该算子产生", "（float16 的上", "限）"]
    assert wrap("an operator of this rank", 11) == ["an operator", "of this", "rank"]
    assert wrap("", 10) == []


def test_hostile_names_are_listed_one_by_one() -> None:
    text = render_scan(named_scan(), limit=0)
    numbers = re.findall(r"^ ?(\d+)  propagated", text, re.MULTILINE)
    assert [int(number) for number in numbers] == list(range(1, len(HOSTILE_NAMES) + 1))
