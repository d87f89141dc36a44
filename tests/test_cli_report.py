"""`dumpscope report`: optional values, refused mistakes, filters, and what it writes."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

import click
import openpyxl
import pytest

from dumpscope.cli.report import make_report_command
from dumpscope.errors import DumpscopeError, PluginError
from dumpscope.model import Scan, ScanOptions
from dumpscope.plugins import BrokenPlugin
from dumpscope.reporters.document import DocumentReporter
from dumpscope.reporters.excel import ExcelReporter
from dumpscope.reporters.flat import CsvReporter
from dumpscope.reporters.registry import ReporterRegistry
from dumpscope.store import Store
from scan_samples import large_scan

BUILT_IN = ReporterRegistry((CsvReporter(), DocumentReporter(), ExcelReporter()))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[str | None, ScanOptions]]:
    """Stand in for the stored scan; the list tells what was asked of it."""
    calls: list[tuple[str | None, ScanOptions]] = []

    def load_scan(
        store: Store,
        scan_id: str | None = None,
        options: ScanOptions | None = None,
        *,
        history: bool = True,
    ) -> Scan:
        assert options is not None
        calls.append((scan_id, options))
        return large_scan(30)

    monkeypatch.chdir(tmp_path)
    for name in ("DUMPSCOPE_STORE", "LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    with Store.open(".dumpscope/scans.db") as store:
        stored = ScanOptions(fail_on="error", steps=(9,))
        first = store.begin("/data", ["/data"], stored, None, "1.0")
        store.finish(first, {}, 0.0, "finished")
    # By its module: the package gives the function `scan` under the same name.
    monkeypatch.setattr(import_module("dumpscope.scanning"), "load_scan", load_scan)
    return calls


@dataclass(frozen=True)
class Ended:
    """How a run of the command ended."""

    exit_code: int
    stdout: str
    stderr: str
    exception: BaseException | None = None


def run(arguments: Sequence[str], registry: ReporterRegistry = BUILT_IN) -> Ended:
    # click's own runner separates stderr only in newer versions.
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2)]
    code: object = 0
    failure: BaseException | None = None
    with redirect_stdout(streams[0]), redirect_stderr(streams[1]):
        try:
            make_report_command(registry).main(list(arguments), prog_name="dumpscope report")
        except SystemExit as error:
            code = error.code or 0
        except DumpscopeError as error:
            code, failure = 2, error
    for stream in streams:
        stream.flush()
    stdout, stderr = (stream.buffer.getvalue().decode() for stream in streams)
    assert isinstance(code, int)
    return Ended(code, stdout, stderr, failure)


def written(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir() if entry.name != ".dumpscope"}


@pytest.mark.parametrize(
    ("arguments", "files"),
    [
        (["--csv"], {"dumpscope-report.csv"}),
        (["--csv", "--json"], {"dumpscope-report.csv", "dumpscope-report.json"}),
        (["--csv", "--limit", "3"], {"dumpscope-report.csv"}),
        (["--csv=a.txt"], {"a.txt"}),
        (["--csv", "a.txt"], {"a.txt"}),
        (["--csv", "a.txt", "--json"], {"a.txt", "dumpscope-report.json"}),
        (["--csv", "default"], {"default"}),
        (["--limit=3", "--xlsx", "b.xlsx", "--csv=-x.csv"], {"b.xlsx", "-x.csv"}),
        (["--csv", "--xlsx", "--json"], {f"dumpscope-report.{s}" for s in ("csv", "xlsx", "json")}),
    ],
)
def test_a_report_option_takes_a_path_or_none(
    asked: list[Any], tmp_path: Path, arguments: list[str], files: set[str]
) -> None:
    result = run(arguments)
    assert (result.exit_code, result.stdout) == (0, "")
    assert written(tmp_path) == files
    for name in files:
        assert f"{name}\n" in result.stderr


def test_the_files_hold_the_scan(asked: list[Any], tmp_path: Path) -> None:
    assert run(["--csv", "--xlsx", "--json"]).exit_code == 0
    with open(tmp_path / "dumpscope-report.csv", encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    document = json.loads((tmp_path / "dumpscope-report.json").read_text(encoding="utf-8"))
    book = openpyxl.load_workbook(tmp_path / "dumpscope-report.xlsx")
    names = [f"network/layer_{rank}/Mul" for rank in range(1, 31)]
    assert [row["op_name"] for row in rows] == names
    assert [finding["op_name"] for finding in document["findings"]] == names
    assert [cell.value for cell in book["First offenders"]["D"][1:]] == names


@pytest.mark.parametrize("arguments", [["--json", "-"], ["--json=-"], ["--json=-", "--csv"]])
def test_a_dash_is_stdout_and_nothing_else_is_there(
    asked: list[Any], tmp_path: Path, arguments: list[str]
) -> None:
    result = run(arguments)
    assert result.exit_code == 0
    assert json.loads(result.stdout)["schema"] == "dumpscope.scan/1"
    assert written(tmp_path) == ({"dumpscope-report.csv"} if "--csv" in arguments else set())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--csv="], "--csv: expected a path, found an empty one"),
        (["--csv", ""], "--csv: expected a path, found an empty one"),
        (["--csv=-", "--json=-"], "--csv and --json both go to stdout"),
        (["--csv=a", "--json=./a"], "--csv and --json both go to ./a"),
        (["--limit=-1", "--csv"], "--limit"),
        (["--html"], "--html"),
        (["more"], "unexpected extra argument"),
    ],
)
def test_wrong_usage_is_status_2_and_writes_nothing(
    asked: list[Any], tmp_path: Path, arguments: list[str], message: str
) -> None:
    result = run(arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert written(tmp_path) == set()
    assert asked == []


def test_nothing_is_written_when_one_of_several_exists(asked: list[Any], tmp_path: Path) -> None:
    (tmp_path / "dumpscope-report.json").write_text("precious")
    result = run(["--csv", "--json"])
    assert isinstance(result.exception, DumpscopeError)
    assert "exists already; --force overwrites it" in str(result.exception)
    assert written(tmp_path) == {"dumpscope-report.json"}
    assert run(["--csv", "--json", "--force"]).exit_code == 0
    assert written(tmp_path) == {"dumpscope-report.json", "dumpscope-report.csv"}
    assert json.loads((tmp_path / "dumpscope-report.json").read_text())["findings"]


def test_without_a_report_option_the_table_is_printed(asked: list[Any], tmp_path: Path) -> None:
    result = run([])
    assert result.exit_code == 0
    assert result.stdout.startswith(
        "Mul network/layer_1/Mul went wrong first in step 1 on device 1"
    )
    assert "… 26 more propagated: --limit 0 shows all" in result.stdout
    assert written(tmp_path) == set()
    assert "--limit 0" not in run(["--limit", "0"]).stdout


def test_limit_and_language(
    asked: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(["--json=a", "--csv=b", "--limit=4", "--lang=zh"]).exit_code == 0
    document = json.loads((tmp_path / "a").read_text(encoding="utf-8"))
    assert (len(document["findings"]), document["truncated"]) == (4, 26)
    assert document["findings"][0]["reason"].startswith("输出 0 ")
    assert (tmp_path / "b").read_bytes().count(b"\r\n") == 5
    # By the locale only what people read changes its language.
    monkeypatch.setenv("LANG", "zh_CN.UTF-8")
    assert run(["--json=c", "--csv=d"]).exit_code == 0
    document = json.loads((tmp_path / "c").read_text(encoding="utf-8"))
    assert document["findings"][0]["reason"].startswith("All 8 float16")
    assert "输出 0 " in (tmp_path / "d").read_text(encoding="utf-8-sig")
    assert run([]).stdout.startswith("最先出错的算子是 Mul")


def test_filters_are_added_to_what_the_scan_was_asked_for(asked: list[Any]) -> None:
    assert run(["--csv=-"]).exit_code == 0
    assert (
        run(["--csv=-", "--step=1", "--step=2", "--rank=3", "--op=Mul*", "--run=latest"]).exit_code
        == 0
    )
    assert asked[0][1] == ScanOptions(fail_on="error", steps=(9,))
    assert asked[1][1] == ScanOptions(
        fail_on="error", steps=(1, 2), ranks=(3,), op_globs=("Mul*",), run="latest"
    )


def test_the_scan_is_chosen_by_the_beginning_of_its_id(asked: list[Any]) -> None:
    with Store.open(".dumpscope/scans.db") as store:
        ids = [info.scan_id for info in store.scans()]
    assert run(["--csv=-", "--scan", ids[0]]).exit_code == 0
    assert asked[-1][0] == ids[0]
    result = run(["--csv=-", "--scan", "no such id"])
    assert isinstance(result.exception, DumpscopeError)


def test_a_store_that_is_not_there_is_named(asked: list[Any], tmp_path: Path) -> None:
    result = run(["--csv=-", "--store", "nowhere.db"])
    assert isinstance(result.exception, DumpscopeError)
    assert "nowhere.db: there is no store here" in str(result.exception)
    assert written(tmp_path) == set()


class SpokenReporter:
    """A report of somebody else."""

    name = "spo-ken"
    suffix = "txt"
    option = "--spo-ken"

    def write(self, scan: Scan, target: BinaryIO, *, limit: int | None, lang: str) -> None:
        target.write(f"{lang} {limit} {len(scan.findings)}".encode())


def test_a_plugin_is_asked_for_as_built_in_ones_are(asked: list[Any], tmp_path: Path) -> None:
    broken = BrokenPlugin("bad", "elsewhere", "bad:Bad", PluginError("it lacks a leg"))
    registry = ReporterRegistry((*BUILT_IN.reporters, SpokenReporter()), (broken,))
    result = run(["--spo-ken", "--limit", "7"], registry)
    assert result.exit_code == 0
    assert (tmp_path / "dumpscope-report.txt").read_text() == "en 7 30"
    assert "the reporter 'bad' is left out: it lacks a leg" in result.stderr


def test_help_lists_every_report_with_an_example() -> None:
    result = run(["--help"])
    assert result.exit_code == 0
    for text in ("--csv [PATH]", "--xlsx [PATH]", "--json [PATH]", "Example: dumpscope report"):
        assert text in result.stdout
    assert isinstance(make_report_command(), click.Command)
