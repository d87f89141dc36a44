"""What the documents tell people to type works, and both READMEs say the same."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# These would install something or run the tests inside the tests; `make smoke` and CI run them.
INSTALLS = re.compile(r"^(make |python3 -m venv|\.venv/bin/pip|\. \.venv/).*\n?", re.MULTILINE)
# Statuses of all calls, so that none but the last one counts.
PRELUDE = """
dumpscope() {
  given=0
  %s -m dumpscope "$@" || given=$?
  echo "$given" >> "$STATUSES"
  return "$given"
}
"""


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return [body for name, body in BLOCK.findall(text) if name == language]


def shell_blocks() -> list[tuple[str, str]]:
    found = []
    pages = ("quickstart", "ci", "reports", "trace")
    for page in ("README.md", *(f"docs/{name}.md" for name in pages)):
        for body in blocks(page, "sh"):
            script = INSTALLS.sub("", body).replace(".venv/bin/dumpscope", "dumpscope")
            if script.strip():
                found.append((page, script))
    return found


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sample dump where the documents say it is, already scanned."""
    folder = tmp_path_factory.mktemp("documents") / "work"
    for place in ("fixtures/sample_dump", "dump_data"):
        shutil.copytree(ROOT / "fixtures/sample_dump", folder / place)
    shutil.copyfile(ROOT / "fixtures/acl.json", folder / "fixtures/acl.json")
    subprocess.run(
        [sys.executable, "-m", "dumpscope", "scan", "dump_data"],
        cwd=folder,
        env=environment(),
        stdout=subprocess.DEVNULL,
        check=False,
    )
    return folder


@pytest.fixture
def workplace(prepared: Path, tmp_path: Path) -> Path:
    """A copy of the prepared folder, for one test to work in."""
    return shutil.copytree(prepared, tmp_path / "work")


def environment(**more: str) -> dict[str, str]:
    inherited = {k: v for k, v in os.environ.items() if k != "DUMPSCOPE_STORE"}
    return {**inherited, "PYTHONPATH": str(ROOT), **more}


@pytest.mark.parametrize(
    "script",
    [pytest.param(s, id=f"{page}-{i}") for i, (page, s) in enumerate(shell_blocks())],
)
def test_shell_blocks_work(script: str, workplace: Path) -> None:
    statuses = workplace / "statuses"
    result = subprocess.run(
        ["sh", "-c", PRELUDE % sys.executable + script],
        cwd=workplace,
        env=environment(STATUSES=str(statuses), DUMP_PATH="dump_data"),
        capture_output=True,
        text=True,
        check=False,
    )
    calls = len(re.findall(r"^\s*dumpscope ", script, re.MULTILINE))
    given = statuses.read_text().split()
    assert len(given) == calls, result.stderr
    assert set(given) <= {"0", "1"}, result.stderr
    assert result.returncode in {0, 1}


def test_the_step_for_ci_fails_and_leaves_its_reports(workplace: Path) -> None:
    step = next(body for body in blocks("docs/ci.md", "sh") if "scans.db" in body)
    result = subprocess.run(
        ["sh", "-c", PRELUDE % sys.executable + step],
        cwd=workplace,
        env=environment(STATUSES=str(workplace / "statuses"), DUMP_PATH="dump_data"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 1
    for suffix in ("xlsx", "csv", "json"):
        assert (workplace / f"dumpscope-report.{suffix}").stat().st_size > 0
    document = json.loads((workplace / "dumpscope-report.json").read_text(encoding="utf-8"))
    assert document["findings"][0]["op_type"] == "BatchMatMulV2"


def test_the_python_block_names_the_culprit_first(workplace: Path) -> None:
    (program,) = blocks("README.md", "python")
    result = subprocess.run(
        [sys.executable, "-c", program],
        cwd=workplace,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    first = result.stdout.splitlines()[0]
    assert first.startswith("1 origin BatchMatMulV2 ")


def test_both_readmes_say_the_same() -> None:
    english, chinese = blocks("README.md", "sh"), blocks("README.zh-CN.md", "sh")
    without_comments = [
        [re.sub(r"\s*#.*", "", body) for body in bodies] for bodies in (english, chinese)
    ]
    assert without_comments[0] == without_comments[1]
    assert blocks("README.md", "python") == blocks("README.zh-CN.md", "python")
    headings = [
        len(re.findall(r"^## ", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE))
        for page in ("README.md", "README.zh-CN.md")
    ]
    assert headings[0] == headings[1]
