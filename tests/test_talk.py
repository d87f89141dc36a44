"""What commands say beside reports, in both languages: complete, used, and at its place."""

from __future__ import annotations

import ast
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli_runs import ROOT, run
from dumpscope.aclconfig.values import Issue, make_error, make_warning
from dumpscope.cli.talking import tell
from dumpscope.safetext import count_cells
from dumpscope.words.acl import CHINESE_ISSUES, render_issue
from dumpscope.words.talk import TALK, talk

FIELD = re.compile(r"\{(\w+)")
PACKAGE = ROOT / "dumpscope"
SAYING = {"say", "tell", "talk", "Remark"}
# Made of a variable and a beginning: the columns, facts and states of `dumpscope scans`.
BUILT = ("head_", "fact_", "state_")


def calls(folder: Path) -> Iterator[tuple[str, ast.Call]]:
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                yield node.func.id, node


def literals(node: ast.AST) -> set[str]:
    """Strings somewhere in an expression, but not those in a formatted one."""
    if isinstance(node, ast.JoinedStr):
        return set()
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return {node.value}
    return set().union(*map(literals, ast.iter_child_nodes(node)))


@pytest.mark.parametrize("key", TALK)
def test_both_languages_have_the_same_fields(key: str) -> None:
    english, chinese = TALK[key]
    assert english.replace("…", "").isascii()
    assert re.search("[\u4e00-\u9fff]", chinese)
    assert sorted(set(FIELD.findall(english))) == sorted(set(FIELD.findall(chinese)))


def test_every_sentence_is_there_and_used() -> None:
    asked = set()
    for name, call in calls(PACKAGE):
        if name in SAYING and call.args:
            asked |= literals(call.args[0])
    assert {"interrupted_scan", "import_config", "baseline_wrote", "removed"} <= asked
    assert asked <= TALK.keys()
    source = "".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    unused = {
        key
        for key in TALK
        if source.count(f'"{key}"') < 2 and not key.startswith(BUILT)  # once where it is declared
    }
    assert unused == set()


def test_values_are_put_in_as_they_are() -> None:
    assert talk("wrote", path="a  b {path}") == "wrote a  b {path}"
    assert talk("config_accepted", path="x", errors=1, warnings=2000) == (
        "x: CANN accepts it (1 error, 2,000 warnings)"
    )
    assert talk("config_accepted", "zh", path="x", errors=1, warnings=2000) == (
        "x：CANN 接受它（1 个错误，2,000 个警告）"
    )


@pytest.mark.parametrize(("encoding", "words"), [("utf-8", "已写入 a"), ("ascii", "wrote a")])
def test_a_stream_without_chinese_letters_gets_english(
    encoding: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding, write_through=True)
    monkeypatch.setattr("sys.stderr", stream)
    tell("wrote", "zh", path="a")
    assert isinstance(stream.buffer, io.BytesIO)
    assert stream.buffer.getvalue().decode() == f"dumpscope: {words}\n"


# --- acl.json -------------------------------------------------------------------------------------


def test_every_issue_has_chinese_words_with_the_same_fields() -> None:
    made = set()
    for name, call in calls(PACKAGE / "aclconfig"):
        if name in {"make_error", "make_warning", "_check_conflicts"}:
            made |= literals(call.args[1])
    source = (PACKAGE / "aclconfig" / "rules.py").read_text(encoding="utf-8")
    made |= {text for text in CHINESE_ISSUES if text.startswith("{path} ") and text in source}
    assert made == set(CHINESE_ISSUES)
    for english, chinese in CHINESE_ISSUES.items():
        assert set(FIELD.findall(english)) == set(FIELD.findall(chinese))
        assert re.search("[\u4e00-\u9fff]", chinese)


@pytest.mark.parametrize(
    ("issue", "english", "chinese"),
    [
        (
            make_error("dump", "expected an object, found {found}", found="the string 'x'"),
            "error: dump: expected an object, found the string 'x'",
            "错误：dump：应为对象，实为字符串 'x'",
        ),
        (
            make_error("dump", "expected an object, found {found}", found="a number"),
            "error: dump: expected an object, found a number",
            "错误：dump：应为对象，实为数字",
        ),
        (
            make_warning("", "is there twice in one object; the last one counts"),
            "warning: is there twice in one object; the last one counts",
            "警告：在同一对象中出现两次；以最后一个为准",
        ),
        (
            Issue("error", "dump", "somebody else's"),
            "error: dump: somebody else's",
            "错误：dump：somebody else's",
        ),
    ],
)
def test_an_issue_in_words(issue: Issue, english: str, chinese: str) -> None:
    assert render_issue(issue) == str(issue) == english
    assert render_issue(issue, "zh") == chinese


# --- commands -------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a scan of the sample dump in its store."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DUMPSCOPE_STORE", raising=False)
    assert run("scan", ROOT / "fixtures" / "sample_dump").status == 1
    return tmp_path


@pytest.mark.parametrize("how", ["option", "locale"])
@pytest.mark.usefixtures("folder")
def test_commands_speak_chinese(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ("--lang", "zh") if how == "option" else ()
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8" if how == "locale" else "C")

    listed = run("scans", "list", *asked).out.splitlines()
    assert listed[0].split() == ["扫描", "开始（UTC）", "状态", "文件数", "根目录"]
    scan_id = listed[1].split()[0]
    assert "已完成" in listed[1]
    # Columns begin below each other, at two cells for a Chinese character.
    assert [count_cells(line[: line.index(mark)]) for line, mark in
            zip(listed, ("状态", "已完成"), strict=True)] == [len(scan_id) + 23] * 2  # fmt: skip

    shown = run("scans", "show", *asked).out
    assert re.search(r"^耗时 +[\d.]+ 秒$", shown, re.MULTILINE)
    assert re.search(r"^算子执行 +\d+$", shown, re.MULTILINE)

    ended = run("report", "--json", "--csv", *asked)
    assert ended.err.splitlines() == [
        "dumpscope: 已写入 dumpscope-report.csv",
        "dumpscope: 已写入 dumpscope-report.json",
    ]
    ended = run("baseline", "write", "known.json", "--expires", "2020-02-29", *asked)
    assert re.fullmatch(
        r"dumpscope: 已将 \d+ 项发现写入 known.json，共 \d+ 个条目：每个张量的每种异常值一个\n",
        ended.err,
    )
    assert "已于 2020-02-29 过期" in run("baseline", "show", "known.json", *asked).out
    assert "排在第一位" in run("baseline", "show", "known.json", *asked).out
    ended = run("baseline", "update", "known.json", *asked)
    assert re.fullmatch(r"dumpscope: known.json：新增 0 个，删除 0 个，现有 \d+ 个\n", ended.err)

    ended = run("config", "init", "--preset", "overflow", "--output", "my acl.json", *asked)
    assert ended.err == (
        "已写入 my acl.json。接下来：创建目录 dump_data，将 my acl.json 交给 aclInit 或 "
        "aclmdlSetDump 并运行程序，然后执行：dumpscope scan 'my acl.json'\n"
    )
    ended = run("config", "check", "my acl.json", *asked)
    assert ended.out == (
        "警告：dump.dump_path：'dump_data' 不是本机上的目录：CANN 要求程序启动时它已存在\n"
        "my acl.json：CANN 接受它（0 个错误，1 个警告）\n"
    )
    assert run("checks", *asked).out.startswith("# 结论\n")
    assert run("scans", "rm", scan_id, *asked).out == f"已删除 {scan_id}\n"
    assert run("scans", "prune", "--keep", "1", *asked).err == "没有可删除的扫描\n"


def test_keys_of_json_stay_english(folder: Path) -> None:
    listed = json.loads(run("scans", "list", "--json", "--lang", "zh").out)
    assert listed[0]["state"] == "finished"
    shown = json.loads(run("scans", "show", "--json", "--lang", "zh").out)
    assert {"scan_id", "duration_s", "counts"} <= shown.keys()
    assert folder.is_dir()


def test_where_the_result_goes_is_said_in_chinese(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DUMPSCOPE_STORE", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    store = tmp_path / "state" / "dumpscope" / "scans.db"
    ended = run("scan", ".", "--expect", "overflow", "--lang", "zh")
    assert ended.err == (
        f"dumpscope: 当前目录属于被扫描的内容，因此结果写入 {store}；"
        "可用 --store FILE 指定其他位置\n"
    )
    ended = run("report", "--lang", "zh")
    assert ended.err == (
        f"dumpscope: 当前目录没有结果库，因此读取 {store}；可用 --store FILE 指定另一个\n"
    )
