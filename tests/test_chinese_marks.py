"""Chinese text is set with Chinese marks: no half-width comma or colon beside its characters."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import pytest

from cli_runs import ROOT, run

# Beside a Chinese character; a point only at the end of a sentence, as "dump.json" has one too.
# Brackets around Chinese words, and a space behind a mark that brings its own.
_HALF_WIDTH = re.compile(
    r"[\u4e00-\u9fff）][,;:!?](?![0-9])|[,;:] ?[\u4e00-\u9fff]|[\u4e00-\u9fff]\. "
    r"|\([^()]*[\u4e00-\u9fff][^()]*\)|[，：；（] (?! *$)"
)
_COMMANDS = (
    ("report",),
    ("show", "layer1_attn_scores"),
    ("trace",),
    ("trend", "--limit", "0"),
    ("report", "--html=-"),
    ("report", "--markdown=-"),
    ("trace", "--html=-"),
    ("trace", "--svg=-"),
)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A store for the sample dump, and one for the exchange between two ranks."""
    folder = tmp_path_factory.mktemp("marks")
    found = {}
    for tree in ("sample_dump", "cases/all_reduce"):
        found[tree] = folder / f"{tree.replace('/', '_')}.db"
        assert run("scan", ROOT / "fixtures" / tree, "--store", found[tree]).status == 1
    return found


def visible(page: str) -> str:
    """What a reader sees: no scripts, styles, tags or attributes."""
    page = re.sub(r"<(script|style)\b.*?</\1>", "", page, flags=re.DOTALL)
    return unescape(re.sub(r"<[^>]*>", "\n", page))


@pytest.mark.parametrize("command", _COMMANDS, ids=" ".join)
@pytest.mark.parametrize("tree", ["sample_dump", "cases/all_reduce"])
def test_no_half_width_marks(tree: str, command: tuple[str, ...], stores: dict[str, Path]) -> None:
    if command[0] == "show" and tree != "sample_dump":
        command = ("show", "gradients_loss_scale")
    ended = run(*command, "--lang", "zh", "--store", stores[tree])
    assert ended.status == 0, ended.err
    text = visible(ended.out) if ended.out.startswith("<") else ended.out
    assert re.search("[\u4e00-\u9fff]", text)
    wrong = [line for line in text.splitlines() if _HALF_WIDTH.search(line)]
    assert wrong == []


def test_the_marks_that_are_looked_for() -> None:
    for wrong in ("异常元素: [0]", "设备 0; 任务", "读取器, 大小", "次正规区. 每行", "任务: 全部",
                  "Mul (自此为 NaN)", "自行异常： Mul"):  # fmt: skip
        assert _HALF_WIDTH.search(wrong), wrong
    for right in ("设备 0，任务 3", "dump_path: a", "共 1,024 个", "3:45 的记录", "dump.json 中"):
        assert not _HALF_WIDTH.search(right), right
