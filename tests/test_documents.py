"""What the documents tell people to type works, and both READMEs say the same."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import unicodedata
from html import unescape
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# These would install something or run the tests inside the tests; `make smoke` and CI run them.
INSTALLS = re.compile(r"^(make |python3 -m venv|\.venv/bin/pip|\. \.venv/).*\n?", re.MULTILINE)
# Commands and statuses of all calls, so that none but the last one counts.
PRELUDE = """
dumpscope() {
  given=0
  %s -m dumpscope "$@" || given=$?
  echo "$given $*" >> "$STATUSES"
  return "$given"
}
"""
TRANSLATED = ("quickstart", "find-the-nan", "verdicts", "ci", "cluster", "remote")
# Comments are in the language of the page; "#!" and "#SBATCH" are none.
COMMENT = re.compile(r"[ ]+# .*")


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return [body for name, body in BLOCK.findall(text) if name == language]


def shell_blocks() -> list[tuple[str, str]]:
    found = []
    pages = ("quickstart", "find-the-nan", "ci", "reports", "trace")
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
    case = "fixtures/cases/all_reduce"
    shutil.copytree(ROOT / case, folder / case)
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
    calls = [line.split(maxsplit=1) for line in statuses.read_text().splitlines()]
    written = re.findall(r"^\s*dumpscope (\S+)", script, re.MULTILINE)
    assert [command.split()[0] for _, command in calls] == written, result.stderr
    for status, command in calls:
        assert int(status) == expected_status(command), (command, result.stderr)
    allowed = script.rstrip().endswith("|| [ $? -eq 1 ]")
    last = 1 if 'exit "$status"' in script else int(calls[-1][0])
    assert result.returncode == (0 if allowed else last), result.stderr


def expected_status(command: str) -> int:
    """All dumps of the documents hold offenders; a baseline is written from the same dump."""
    return int(command.startswith("scan ") and "--baseline" not in command)


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


@pytest.mark.parametrize("page", TRANSLATED)
def test_both_languages_say_the_same(page: str) -> None:
    english, chinese = f"docs/{page}.md", f"docs/zh/{page}.md"
    for language in ("sh", "yaml", "toml"):
        both = [[COMMENT.sub("", b) for b in blocks(p, language)] for p in (english, chinese)]
        assert both[0] == both[1]
    told = [text for body in blocks(chinese, "sh") for text in COMMENT.findall(body)]
    assert [text for text in told if text.isascii()] == []
    texts = [(ROOT / name).read_text(encoding="utf-8") for name in (english, chinese)]
    headings = [re.findall(r"^#+ ", text, re.MULTILINE) for text in texts]
    assert headings[0] == headings[1]
    rows = [len(re.findall(r"^\|", text, re.MULTILINE)) for text in texts]
    assert rows[0] == rows[1]
    assert f"zh/{page}.md" in texts[0]
    assert f"../{page}.md" in texts[1]
    for other in TRANSLATED:
        assert f"({other}.md" in texts[1] or other == page
    assert f"docs/zh/{page}.md" in (ROOT / "README.zh-CN.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("page", "lang"), [("find-the-nan", "en"), ("zh/find-the-nan", "zh")])
def test_the_walk_shows_what_is_printed(page: str, lang: str, prepared: Path) -> None:
    quoted, *more = blocks(f"docs/{page}.md", "text")
    folders = ["fixtures/sample_dump", *(["fixtures/cases/all_reduce"] if more else [])]
    for text, folder in zip([quoted, *more], folders, strict=True):
        result = subprocess.run(
            [sys.executable, "-m", "dumpscope", "scan", folder, "--lang", lang],
            cwd=prepared,
            env=environment(DUMPSCOPE_STORE=str(prepared / "walk.db")),
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=False,
        )
        assert result.returncode == 1
        printed = {" ".join(line.split()) for line in result.stdout.splitlines()}
        for line in text.splitlines():
            shown = " ".join(line.rstrip("…").split())
            assert any(real.startswith(shown) for real in printed), line


@pytest.mark.parametrize(("suffix", "lang"), [("", "en"), (".zh-CN", "zh")])
def test_the_picture_of_a_scan_shows_what_is_printed(
    suffix: str, lang: str, prepared: Path
) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "dumpscope", "scan", "dump_data", "--lang", lang, "--limit", "4"],
        cwd=prepared,
        env=environment(DUMPSCOPE_STORE=str(prepared / "walk.db")),
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert result.returncode == 1
    picture = (ROOT / f"docs/pictures/scan{suffix}.svg").read_text(encoding="utf-8")
    lines: dict[float, str] = {}
    for y, length, text in re.findall(r'y="([\d.]+)" textLength="([\d.]+)"[^>]*>([^<]+)', picture):
        shown = unescape(text).rstrip("\n")
        lines[float(y)] = lines.get(float(y), "") + "".join(shown.split())
        wide = sum(unicodedata.east_asian_width(character) in "WF" for character in shown)
        if shown:
            assert float(length) == pytest.approx(12.2 * (len(shown) + wide), abs=0.1), shown
    drawn = [lines[y] for y in sorted(lines) if lines[y]]
    assert drawn == ["".join(line.split()) for line in result.stdout.splitlines() if line]


def test_the_site_has_all_pages_and_asks_nobody() -> None:
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = re.findall(r": ([\w/-]+\.md)$", site, re.MULTILINE)
    pages = [str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")]
    assert sorted(listed) == sorted(pages)
    assert "font: false" in site
    assert "://" not in site
