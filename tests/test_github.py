"""Annotations and job summaries: one line each, nothing of a name is markup or a command."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli_runs import run
from dumpscope.model import Scan, Verdict
from dumpscope.reporters.github import (
    GithubReporter,
    escape_message,
    escape_property,
    list_commands,
)
from dumpscope.reporters.job_summary import build_summary, code_span, escape_markdown
from dumpscope.reporters.markdown import MarkdownReporter
from scan_samples import (
    clean_scan,
    incomplete_scan,
    large_scan,
    make_finding,
    named_scan,
    overflow_scan,
)

COMMAND = re.compile(r"::(error|warning|notice) (?:file=([^:,]*),)?title=([^:,]*)::([^\r\n]*)")


def write(scan: Scan, *, limit: int | None = None, lang: str = "en") -> list[str]:
    target = io.BytesIO()
    GithubReporter().write(scan, target, limit=limit, lang=lang)
    return target.getvalue().decode().splitlines()


@pytest.fixture(autouse=True)
def _outside_of_github(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE"):
        monkeypatch.delenv(name, raising=False)


def test_an_origin_is_an_error_and_what_it_spread_to_is_counted() -> None:
    error, closing = write(overflow_scan())
    matched = COMMAND.fullmatch(error)
    assert matched is not None
    kind, file, title, sentence = matched.groups()
    assert kind == "error"
    assert file.startswith("dump/20251129120000/0/ge_default/11/0/BatchMatMulV2.")
    assert title == "origin%3A BatchMatMulV2 network_layers_1_attn_BatchMatMulV2-op0"
    assert "513 +Inf of 2,048 float16" in sentence
    assert closing.startswith("::notice title=dumpscope::BatchMatMulV2 ")
    assert "1 more operators" in closing


def test_what_does_not_fail_the_job_is_no_error() -> None:
    scan = overflow_scan()
    quiet = replace(scan, options=replace(scan.options, fail_on="never"))
    assert [line.split(" ")[0] for line in write(quiet, limit=0)] == [
        "::warning",
        "::notice",
        "::notice",
    ]


def test_known_findings_are_not_annotated() -> None:
    scan = overflow_scan()
    known = tuple(replace(finding, known=True) for finding in scan.findings)
    (line,) = write(replace(scan, findings=known))
    assert line.startswith("::notice title=dumpscope::Nothing new")


def test_an_incomplete_scan_is_an_error() -> None:
    lines = write(incomplete_scan())
    assert lines[0].startswith("::error title=dumpscope%3A incomplete::1 read failure")


def test_ten_errors_at_most() -> None:
    findings = tuple(make_finding(rank, Verdict.ORIGIN) for rank in range(1, 16))
    scan = replace(large_scan(15), findings=findings)
    lines = write(scan)
    assert sum(line.startswith("::error") for line in lines) == 10
    assert "5 more operators" in lines[-1]
    assert sum(line.startswith("::error") for line in write(scan, limit=0)) == 15
    assert sum(line.startswith("::error") for line in write(scan, limit=3)) == 3


def test_hostile_names_end_no_command_and_begin_none() -> None:
    lines = write(named_scan(), limit=0)
    assert len(lines) == len(named_scan().findings) + 1
    for line in lines:
        assert COMMAND.fullmatch(line), line


@given(st.text())
def test_escapes_are_undone_by_the_runner(text: str) -> None:
    # The runner's own order, as its source has it: %0D, %0A, %3A, %2C, and %25 last.
    escaped = escape_property(text)
    assert not set(escaped) & set("\r\n:,")
    for code, character in (
        ("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%"),
    ):  # fmt: skip
        escaped = escaped.replace(code, character)
    assert escaped == text
    message = escape_message(text)
    for code, character in (("%0D", "\r"), ("%0A", "\n"), ("%25", "%")):
        message = message.replace(code, character)
    assert message == text


def test_files_are_named_from_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_WORKSPACE", "/data")
    assert list_commands(overflow_scan())[0].startswith("::error file=run/dump/20251129120000/0/")
    monkeypatch.setenv("GITHUB_WORKSPACE", "/elsewhere")
    assert list_commands(overflow_scan())[0].startswith("::error file=dump/20251129120000/0/")


def test_the_summary_is_appended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    write(overflow_scan())
    assert summary.read_text(encoding="utf-8") == "before\n" + build_summary(overflow_scan())
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "missing" / "summary.md"))
    assert write(clean_scan())[-1] == (
        "::warning title=dumpscope::the job summary could not be written: No such file or directory"
    )


def test_scan_prints_annotations_and_keeps_its_status(
    tmp_path: Path, fixture_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    ended = run("scan", fixture_dir / "sample_dump", "--format", "github", "--lang", "en")
    assert ended.status == 1
    first = ended.out.splitlines()[0]
    assert first.startswith("::error file=20260109173000/0/transformer_fp16/7/1/BatchMatMulV2.")
    assert "layer1_attn_scores" in (tmp_path / "summary.md").read_text(encoding="utf-8")
    reported = run("report", "--github", "--lang", "en")
    assert (reported.status, reported.out) == (0, ended.out)


# --- Markdown -------------------------------------------------------------------------------------


def test_the_summary_has_the_verdict_first_and_a_row_per_finding() -> None:
    target = io.BytesIO()
    MarkdownReporter().write(overflow_scan(), target, limit=None, lang="en")
    lines = target.getvalue().decode().splitlines()
    assert lines[0].startswith("## \N{CROSS MARK} BatchMatMulV2 network\\_layers\\_1")
    rows = [line for line in lines if line.startswith("| ") and "---" not in line]
    assert len(rows) == 1 + 2
    assert rows[1].startswith(
        "| 1 | origin | 0 | 3 | `BatchMatMulV2` `network_layers_1_attn_BatchMatMulV2-op0` | "
    )


def test_states_have_their_signs() -> None:
    assert build_summary(clean_scan()).startswith("## \N{WHITE HEAVY CHECK MARK} No operator")
    assert "### What was not checked" in build_summary(incomplete_scan())
    assert "### 未检查的内容" in build_summary(incomplete_scan(), lang="zh")
    assert "30 more findings are left out" in build_summary(large_scan(50))


def test_rows_of_hostile_names_have_six_cells() -> None:
    rows = [
        line for line in build_summary(named_scan(), limit=0).splitlines() if line.startswith("| ")
    ]
    assert len(rows) == 1 + len(named_scan().findings)
    for row in rows:
        assert len(re.findall(r"(?<!\\)\|", row)) == 7, row


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("</script><b>", "&lt;/script&gt;&lt;b&gt;"),
        ("a|b", "a\\|b"),
        ("[x](y)", "\\[x\\](y)"),
        ("@all", "&#64;all"),
        ("- item", "\\- item"),
        ("1. item", "1\\. item"),
        ("https://x.example", "https<!-- -->://x.example"),
        ("a\nb", "a\\\\nb"),
        ("floating-point", "floating-point"),
    ],
)
def test_markdown_is_text(text: str, shown: str) -> None:
    assert escape_markdown(text) == shown


@given(st.text())
def test_code_spans_are_closed_and_keep_a_table_row_whole(text: str) -> None:
    span = code_span(text)
    assert not re.search(r"(?<!\\)\|", span)
    assert "\n" not in span
    if span.startswith("`"):
        assert span.count("`") == 2
        assert span.endswith("`")
    elif span:
        assert re.fullmatch(r"<code>[^<]*(<!-- -->[^<]*)*</code>", span)
