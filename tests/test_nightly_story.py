"""Five nights of a training job: the job is red exactly when something is new."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from cli_runs import Ended, run
from dump_trees import write_tree

INF = float("inf")
NAN = float("nan")
BASELINE = "dump-baseline.json"


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    return tmp_path


def scan(folder: Path, *, known: bool) -> Ended:
    options = ["--baseline", BASELINE] if known else []
    return run("scan", folder, "--format", "github", "--lang", "en", *options)


def document() -> Any:
    return json.loads(run("report", "--json=-").out)


def junit() -> Any:
    return ET.fromstring(run("report", "--junit=-", "--lang", "en").out.encode())[0]


def diff() -> tuple[int, dict[str, int]]:
    ended = run("diff", "--json")
    return ended.status, json.loads(ended.out)["counts"]


def test_night_after_night(job: Path) -> None:
    statuses = []

    clean = scan(write_tree(job / "night1", {}), known=False)
    statuses.append(clean.status)
    assert clean.out.startswith("::notice title=dumpscope::No operator produced NaN")
    assert (junit().get("tests"), junit().get("failures")) == ("1", "0")

    offender = scan(write_tree(job / "night2", {"net/b": [INF]}), known=False)
    statuses.append(offender.status)
    assert offender.out.startswith("::error file=20260109173000/0/net/1/0/Add.net_b.2.2.")
    assert [case.get("name") for case in junit().iter("testcase") if len(case)] == ["net/b"]
    assert diff()[0] == 1
    assert diff()[1]["new"] == 1

    assert run("baseline", "write", BASELINE, "--reason", "issue 123").status == 0
    accepted = scan(write_tree(job / "night3", {"net/b": [INF]}), known=True)
    statuses.append(accepted.status)
    assert accepted.out.startswith("::notice title=dumpscope::Nothing new: 1 finding known")
    assert (junit().get("failures"), junit().get("skipped")) == ("0", "1")
    assert document()["counts"]["baseline_known"] == 1
    assert diff() == (0, {**diff()[1], "new": 0, "worse": 0, "same": 1})

    bad = {"net/b": [INF] * 4 + [NAN]}
    worse = scan(write_tree(job / "night4", bad), known=True)
    statuses.append(worse.status)
    assert worse.out.startswith("::error ")
    assert junit().get("failures") == "1"
    assert diff()[0] == 1
    assert diff()[1]["worse"] == 1

    fixed = scan(write_tree(job / "night5", {}), known=True)
    statuses.append(fixed.status)
    notes = {note["code"]: note["parameters"] for note in document()["notes"]}
    assert notes["baseline_gone"]["names"] == "net/b"
    assert diff() == (0, {**diff()[1], "gone": 1, "new": 0})

    assert statuses == [0, 1, 0, 1, 0]
    assert run("baseline", "update", BASELINE, "--drop-gone").status == 0
    assert json.loads((job / BASELINE).read_text(encoding="utf-8"))["entries"] == []


def test_the_trend_tells_since_when(job: Path) -> None:
    for night, values in enumerate(([], [], [], [], [30000.0], [INF]), 1):
        scan(write_tree(job / f"night{night}", {"net/b": values}), known=False)
    trend = json.loads(run("trend", "--last", "6", "--op", "net/b", "--json").out)
    (series,) = trend["series"]
    assert series["left_band"]["index"] == 4
    assert series["left_band"]["metric"] == "max"
    assert [point["nonfinite"] for point in series["points"]] == [0, 0, 0, 0, 0, 1]
