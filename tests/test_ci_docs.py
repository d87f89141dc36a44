"""The recipes of docs/ci.md, taken out of their YAML and run on a dump."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from cli_runs import ROOT, environment

yaml = pytest.importorskip("yaml", reason="PyYAML reads the recipes")

PAGE = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
YAML = re.compile(r"^```yaml\n(.*?)^```$", re.DOTALL | re.MULTILINE)
RECIPES = [yaml.safe_load(body) for body in YAML.findall(PAGE)]
INSTALL = "pip install dumpscope"


def github_steps() -> dict[str, str]:
    """The shell steps of the recipe for GitHub, by name."""
    (recipe,) = [recipe for recipe in RECIPES if "jobs" in recipe]
    steps = recipe["jobs"]["dump-check"]["steps"]
    assert {"run": INSTALL} in steps
    return {step["name"]: step["run"] for step in steps if "run" in step and "name" in step}


def gitlab_script() -> str:
    """The script of the recipe for GitLab, but for installing."""
    lines = gitlab_job()["script"]
    assert lines[0] == INSTALL
    return "\n".join(lines[1:])


def gitlab_job() -> Any:
    (recipe,) = [recipe for recipe in RECIPES if "jobs" not in recipe]
    return recipe["dump-check"]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with a dump in it, and `dumpscope` on the path."""
    programs = tmp_path / "bin"
    programs.mkdir()
    program = programs / "dumpscope"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m dumpscope "$@"\n')
    program.chmod(0o755)
    folder = tmp_path / "checkout"
    shutil.copytree(ROOT / "fixtures" / "sample_dump", folder / "dump_data")
    return folder


def run_step(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a step as the runners do: bash, and the first failure ends it."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash here")
    path = f"{folder.parent / 'bin'}{os.pathsep}{os.environ['PATH']}"
    given = environment(
        PATH=path,
        LC_ALL="C.UTF-8",
        GITHUB_STEP_SUMMARY=str(folder / "summary.md"),
        GITHUB_WORKSPACE=str(folder),
    )
    return subprocess.run(
        [bash, "-eo", "pipefail", "-c", script],
        cwd=folder,
        env=given,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def clean(folder: Path) -> None:
    """Replace the dump by one without findings."""
    shutil.rmtree(folder / "dump_data")
    shutil.copytree(ROOT / "fixtures" / "cases" / "clean", folder / "dump_data")


def accept(folder: Path) -> None:
    """Write the baseline that the page tells to write."""
    line = re.search(r"^dumpscope baseline write .*$", PAGE, re.MULTILINE)
    assert line is not None
    step = run_step(f"{line.group()} --store scans.db", folder)
    assert step.returncode == 0, step.stderr


def test_github_says_it_where_people_look(checkout: Path) -> None:
    steps = github_steps()
    scan = run_step(steps["Scan the dump"], checkout)
    assert scan.returncode == 1, scan.stderr
    assert scan.stdout.startswith("::error file=dump_data/20260109173000/")
    assert "layer1\\_attn\\_scores" in (checkout / "summary.md").read_text(encoding="utf-8")
    reports = run_step(steps["Write the reports"], checkout)
    assert reports.returncode == 0, reports.stderr
    for name in ("report.xlsx", "report.xml", "report.sarif", "report.json", "trend.csv"):
        assert (checkout / f"dumpscope-{name}").stat().st_size > 0
    compare = run_step(steps["Compare with last night"], checkout)
    assert (compare.returncode, compare.stdout) == (0, ""), "one night has none before it"


def test_github_the_next_nights(checkout: Path) -> None:
    steps = github_steps()
    assert run_step(steps["Scan the dump"], checkout).returncode == 1
    accept(checkout)
    known = run_step(steps["Scan the dump"], checkout)
    assert known.returncode == 0, known.stderr
    assert "::error" not in known.stdout
    compare = run_step(steps["Compare with last night"], checkout)
    assert compare.returncode == 0
    assert compare.stdout.startswith("0 new, 0 worse")
    clean(checkout)
    assert run_step(steps["Scan the dump"], checkout).returncode == 0
    gone = run_step(steps["Compare with last night"], checkout)
    assert (gone.returncode, gone.stdout.split(",")[0]) == (0, "0 new")


def test_gitlab_fails_and_keeps_its_reports(checkout: Path) -> None:
    step = run_step(gitlab_script(), checkout)
    assert step.returncode == 1, step.stderr
    junit = gitlab_job()["artifacts"]["reports"]["junit"]
    suite = ET.parse(checkout / junit).getroot()[0]
    assert (suite.get("failures"), suite.get("errors")) == ("1", "0")
    kept = [path for glob in gitlab_job()["artifacts"]["paths"] for path in checkout.glob(glob)]
    assert {path.name for path in kept} == {
        "dumpscope-report.md", "dumpscope-report.xlsx", "dumpscope-report.xml",
        "dumpscope-trend.csv",
    }  # fmt: skip
    accept(checkout)
    assert run_step(gitlab_script(), checkout).returncode == 0


def test_gitlab_tells_an_unread_dump_from_a_bad_one(checkout: Path) -> None:
    clean(checkout)
    assert run_step(gitlab_script(), checkout).returncode == 0
    dumps = [path for path in (checkout / "dump_data").rglob("*") if path.is_file()]
    largest = max(dumps, key=lambda path: path.stat().st_size)
    largest.write_bytes(largest.read_bytes()[:-9])
    step = run_step(gitlab_script(), checkout)
    assert step.returncode == gitlab_job()["allow_failure"]["exit_codes"] == 3
    suite = ET.parse(checkout / "dumpscope-report.xml").getroot()[0]
    assert (suite.get("failures"), suite.get("errors")) == ("0", "1")
