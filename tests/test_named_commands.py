"""Commands that reports name: they work when they are pasted into a shell of the same folder."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import openpyxl
import pytest

from cli_runs import ROOT, run
from dumpscope.reporters.github import list_commands
from dumpscope.reporters.job_summary import build_summary
from dumpscope.reporters.junit import JunitReporter
from dumpscope.reporters.sarif import SarifReporter
from dumpscope.reporters.webpage import PageReporter
from scan_samples import large_scan

if TYPE_CHECKING:
    from dumpscope.reporters.protocol import Reporter

STORE = "night 1.db"
TOLD = "--store 'night 1.db'"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The current folder: it has a store of an unusual name, and none of the usual one."""
    path = tmp_path_factory.mktemp("folder")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        patch.delenv("DUMPSCOPE_STORE", raising=False)
        patch.setenv("XDG_STATE_HOME", str(path / "state"))
        assert run("scan", ROOT / "fixtures" / "sample_dump", "--store", STORE).status == 1
        yield path


def commands_in(report: str, lang: str) -> list[str]:
    """Write a report and return the commands in it, as they are copied from it."""
    name = f"report.{lang}.{report}"
    ended = run("report", f"--{report}={name}", "--store", STORE, "--lang", lang)
    assert ended.status == 0, ended.err
    if report == "xlsx":
        sheet = openpyxl.load_workbook(name).worksheets[0]
        texts = [str(cell.value) for row in sheet for cell in row]
        return [text[text.index("dumpscope ") :] for text in texts if "dumpscope show" in text]
    content = Path(name).read_text(encoding="utf-8")
    if report == "markdown":
        return re.findall("`(dumpscope [^`]*)`", content)
    return [unescape(text) for text in re.findall("<code>(dumpscope [^<]*)</code>", content)]


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize(("report", "number"), [("html", 1), ("markdown", 2), ("xlsx", 1)])
@pytest.mark.usefixtures("folder")
def test_what_a_report_names_works_when_pasted(report: str, number: int, lang: str) -> None:
    commands = commands_in(report, lang)
    assert len(commands) == number
    for command in commands:
        assert command.endswith(TOLD)
        program, *words = shlex.split(command)
        assert program == "dumpscope"
        ended = run(*words, *(["--force"] if words[0] == "report" else []))
        assert ended.status == 0, ended.err


@pytest.mark.usefixtures("folder")
def test_the_way_of_a_value_names_the_store() -> None:
    padded = ROOT / "fixtures" / "cases" / "padding"  # has several beginnings
    assert run("scan", padded, "--store", "my scans.db").status == 1
    ended = run("trace", "--store", "my scans.db")
    (command,) = re.findall("`(dumpscope trace [^`]*)`", " ".join(ended.out.split()))
    assert command == "dumpscope trace --finding N --store 'my scans.db'"
    ended = run(*shlex.split(command.replace(" N ", " 1 "))[1:])
    assert ended.status == 0, ended.err


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_what_is_left_out_is_found_with_the_same_options(lang: str) -> None:
    scan = replace(large_scan(30), found_by=("--store", STORE))
    assert f"dumpscope report {TOLD}" in list_commands(scan, limit=3, lang=lang)[-1]
    summary = build_summary(scan, limit=2, lang=lang).replace("\\", "")
    assert f"dumpscope report --csv {TOLD}" in summary
    reporters: tuple[Reporter, ...] = (JunitReporter(), SarifReporter(), PageReporter())
    for reporter in reporters:
        target = BytesIO()
        reporter.write(scan, target, limit=2, lang=lang)
        text = unescape(target.getvalue().decode().replace("\\u0027", "'"))
        assert f"dumpscope report --csv {TOLD}" in text
