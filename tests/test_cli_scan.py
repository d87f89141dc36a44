"""`dumpscope scan` as people and CI jobs call it: streams, exit statuses, acl.json, the store."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builders import FLOAT16, STRING, UNDEFINED, Tensor, dump_file, opdebug_file, overflow_record
from cli_runs import environment, run, start
from dumpscope.store import Store
from file_modes import run_bound

NAME = "MatMulV2.net_MatMul-op0.5.2.1764417600000000"
FOLDER = "20251129120000/0/net/1/0"
FIELDS = (1, 3, 7, 0, 0, 0, 0x1000, 0x2000, 4, 5, 0x110)
_FORCE = {"baseline": ("--force",)}


@pytest.fixture(autouse=True)
def _in_english(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("LC_MESSAGES", "LANG", "LC_CTYPE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LC_ALL", "en_US.UTF-8")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


def half(*values: float) -> Tensor:
    return Tensor(np.array(values, "<f2").tobytes(), FLOAT16, (len(values),))


def put(tree: Path, name: str, *outputs: Tensor, **more: Any) -> Path:
    path = tree / FOLDER / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(dump_file((half(1.0),), outputs, **more))
    return path


@pytest.fixture
def clean(tmp_path: Path) -> Path:
    tree = tmp_path / "clean"
    put(tree, NAME, half(1.0, 2.0))
    return tree


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    tree = tmp_path / "bad"
    put(tree, NAME, half(1.0, np.inf), op_name="net/MatMul-op0")
    return tree


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    tree = tmp_path / "damaged"
    path = put(tree, NAME, half(1.0, 2.0))
    path.write_bytes(path.read_bytes()[:-1])
    return tree


@pytest.fixture
def unchecked(tmp_path: Path) -> Path:
    tree = tmp_path / "unchecked"
    put(tree, NAME, Tensor(b"\1\2\3\4", UNDEFINED, (4,)), Tensor(b"ab", STRING, (1,)))
    return tree


# --- exit statuses -----------------------------------------------------------------------------


def test_a_folder_without_a_store_says_which_one_is_read(
    bad: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DUMPSCOPE_STORE", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    own = tmp_path / "state/dumpscope/scans.db"
    with monkeypatch.context() as inside:
        inside.chdir(bad)
        assert run("scan", ".").status == 1
    assert own.exists()
    said = f"dumpscope: this folder has no store, so {own} is read; --store FILE names another\n"
    for command in (
        ("report",),
        ("trace",),
        ("trend",),
        ("scans", "list"),
        ("show", "net/MatMul-op0"),
        ("baseline", "write", "known.json"),
    ):
        ended = run(*command)
        assert ended.status == 0
        assert ended.err.startswith(said)
        assert said not in run(*command, "--store", str(own), *_FORCE.get(command[0], ())).err
    # A file to show needs no store: what a scan says of it is only told along.
    assert said not in run("show", bad / FOLDER / NAME).err
    assert run("scan", bad).status == 1
    assert said not in run("report").err


def test_the_commands_that_are_told_read_the_store_of_this_scan(bad: Path) -> None:
    ended = run("scan", bad, "--store", "night 1.db")
    told = [line for line in ended.out.splitlines() if ": dumpscope " in line]
    assert told == [
        "  all tensors of the first offender: dumpscope show net/MatMul-op0 --store 'night 1.db'",
        "  a workbook to send around: dumpscope report --xlsx --store 'night 1.db'",
    ]
    for line in told:
        command = shlex.split(line.partition(": dumpscope ")[2])
        assert run(*command).status == 0
    again = run("report", "--store", "night 1.db", "--scan", "latest")
    assert "report --xlsx --store 'night 1.db' --scan latest" in again.out
    usual = run("scan", bad)
    assert usual.out.endswith("dumpscope report --xlsx\n")


def test_clean_is_0(clean: Path) -> None:
    ended = run("scan", clean)
    assert (ended.status, ended.err) == (0, "")
    assert "1 operator execution" in ended.out


def test_offenders_are_1(bad: Path) -> None:
    ended = run("scan", bad)
    assert (ended.status, ended.err) == (1, "")
    assert ended.out.startswith("MatMulV2 net/MatMul-op0 went wrong first")
    assert "dumpscope show net/MatMul-op0" in ended.out


def test_incomplete_is_3_unless_tolerated(damaged: Path, unchecked: Path, tmp_path: Path) -> None:
    for tree in (damaged, unchecked):
        ended = run("scan", tree)
        assert (ended.status, ended.err) == (3, "")
        for tolerance in ("1", "100%", "all"):
            assert run("scan", tree, "--max-unreadable", tolerance).status == 0
        assert run("scan", tree, "--max-unreadable", "20%").status == 3
        document = json.loads(run("scan", tree, "--max-unreadable", "all", "--format", "json").out)
        assert document["complete"] is False
    put(damaged, NAME.replace("5.2", "6.2"), half(np.nan))
    ended = run("scan", damaged, "--format", "json")
    assert ended.status == 1
    assert json.loads(ended.out)["complete"] is False


def test_an_empty_folder_depends_on_what_is_expected(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    assert run("scan", empty).status == 3
    assert run("scan", empty, "--expect", "model").status == 3
    assert run("scan", empty, "--expect", "overflow").status == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nowhere",), "'nowhere' cannot be scanned"),
        (("TREE", "nowhere"), "'nowhere' cannot be scanned"),
        (("TREE", "--fail-on", "everything"), "--fail-on everything: expected one of"),
        (("TREE", "--max-unreadable", "-1"), "--max-unreadable -1"),
        (("TREE", "--max-unreadable", "101%"), "--max-unreadable 101%"),
        (("TREE", "--reader", "nonsense"), "there is no reader 'nonsense'"),
        (("TREE", "--rules", "none.toml"), "none.toml"),
        (("TREE", "--run", "20000101000000"), "no such run"),
        (("TREE", "--jobs", "0"), "--jobs"),
        (("TREE", "--step", "x"), "--step"),
        (("TREE", "--limit", "-1"), "--limit"),
        (("TREE", "--stats", "all"), "--stats"),
        (("TREE", "--format", "yaml"), "--format"),
        (("TREE", "--nonsense"), "--nonsense"),
        (("TREE", "--store", "."), "."),
        (("",), "is no path"),
    ],
)
def test_wrong_usage_is_2_and_says_what_is_wrong(
    clean: Path, arguments: tuple[str, ...], said: str
) -> None:
    ended = run("scan", *(str(clean) if a == "TREE" else a for a in arguments))
    assert (ended.status, ended.out) == (2, "")
    assert said in ended.err
    assert "Traceback" not in ended.err


def test_after_a_filter_that_nothing_passes_a_report_with_another_one_goes_on(bad: Path) -> None:
    ended = run("scan", bad, "--op", "nonsense*")
    assert (ended.status, ended.out) == (2, "")
    assert "what was read is kept: dumpscope report with other filters" in ended.err
    ended = run("report", "--csv", "-", "--op", "*")
    assert (ended.status, ended.err) == (0, "")
    assert len(ended.out.splitlines()) > 1


@pytest.mark.parametrize("option", ["--baseline", "--rules", "--rank-map"])
def test_files_of_options_are_read_before_the_dump(bad: Path, option: str) -> None:
    """Else hours go by, and the newest scan is one that no report can be written of."""
    assert run("scan", bad).status == 1
    ended = run("scan", bad, option, "none")
    assert (ended.status, ended.out) == (2, "")
    assert "none" in ended.err
    assert len(run("scans", "list").out.splitlines()) == 2  # the head, and the first scan
    assert run("report").status == 0


def test_files_of_options_are_found_from_another_folder(
    bad: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("scan", bad).status == 1
    assert run("baseline", "write", "known.json").status == 0
    text = '[[rule]]\nop_type = "MatMul*"\nkind = "posinf"\nreason = "known"\n'
    Path("mine.toml").write_text(text)
    counts = {"--baseline known.json": ("baseline_known", 1), "--rules mine.toml": ("expected", 1)}
    for options, (name, number) in counts.items():
        monkeypatch.chdir(tmp_path / "work")
        assert run("scan", bad, *options.split()).status == 0
        monkeypatch.chdir(tmp_path)
        ended = run("report", "--json=-", "--store", tmp_path / "work/.dumpscope/scans.db")
        assert (ended.status, json.loads(ended.out)["counts"][name]) == (0, number), ended.err


def test_what_gives_status_1_can_be_chosen(bad: Path, tmp_path: Path) -> None:
    assert run("scan", bad, "--fail-on", "never").status == 0
    assert run("scan", bad, "--fail-on", "origin").status == 1
    assert run("scan", bad, "--fail-on", "error").status == 1
    swallowed = tmp_path / "swallowed" / FOLDER / NAME
    swallowed.parent.mkdir(parents=True)
    swallowed.write_bytes(dump_file((half(np.nan),), (half(1.0),)))
    document = json.loads(run("scan", swallowed.parent, "--format", "json").out)
    assert document["counts"]["by_verdict"] == {"bad_input": 1}
    assert run("scan", swallowed.parent, "--fail-on", "status_origin").status == 0
    assert run("scan", swallowed.parent, "--fail-on", "bad_input").status == 1


def test_overflow_records_without_their_operator_are_offenders(tmp_path: Path) -> None:
    folder = tmp_path / "dump" / FOLDER
    folder.mkdir(parents=True)
    path = folder / "Opdebug.Node_OpDebug.9999.1.1764417600000009"
    path.write_bytes(opdebug_file(overflow_record(0, FIELDS)))
    ended = run("scan", tmp_path / "dump", "--expect", "overflow", "--format", "json")
    assert ended.status == 1
    (finding,) = json.loads(ended.out)["findings"]
    assert (finding["verdict"], finding["task_id"]) == ("status_origin", 7)


def test_specials_are_passed_over_and_leave_the_scan_complete(clean: Path) -> None:
    os.mkfifo(clean / "fifo")
    (clean / "circle").symlink_to(clean)
    ended = run("scan", clean, "--format", "json")
    assert ended.status == 0
    document = json.loads(ended.out)
    assert document["complete"] is True
    assert document["counts"]["skipped"] == 2


def test_a_dangling_link_with_the_name_of_a_dump_is_a_failure(clean: Path) -> None:
    (clean / FOLDER / NAME.replace("5.2", "9.2")).symlink_to("gone")
    assert run("scan", clean).status == 3


# --- streams -----------------------------------------------------------------------------------


def test_json_alone_goes_to_stdout(bad: Path) -> None:
    for options in ((), ("--progress",), ("--lang", "zh"), ("--limit", "0")):
        ended = run("scan", bad, "--format", "json", *options)
        document = json.loads(ended.out)
        assert document["schema"] == "dumpscope.scan/1"
        assert document["exit_status"] == ended.status == 1
    assert (
        "Output 0 has 1 +Inf"
        in json.loads(run("scan", bad, "--format", "json").out)["findings"][0]["reason"]
    )


def test_the_language_is_that_of_the_locale_or_the_one_asked_for(
    bad: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "源头 origin" in run("scan", bad, "--lang", "zh").out
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    assert "源头 origin" in run("scan", bad).out
    assert "源头" not in run("scan", bad, "--lang", "en").out
    # Documents are for programs: English unless asked for.
    assert json.loads(run("scan", bad, "--format", "json").out)["findings"][0]["reason"].isascii()
    document = json.loads(run("scan", bad, "--format", "json", "--lang", "zh").out)
    assert not document["findings"][0]["reason"].isascii()
    assert document["findings"][0]["verdict"] == "origin"


def test_progress_is_shown_only_when_asked_for_or_on_a_terminal(bad: Path) -> None:
    assert run("scan", bad).err == ""
    assert run("scan", bad, "--no-progress").err == ""
    told = run("scan", bad, "--progress")
    assert "scan:" in told.err
    assert "1 files" in told.err
    assert "scan:" not in told.out


def test_the_table_is_cut_and_the_store_is_not(tmp_path: Path) -> None:
    tree = tmp_path / "many"
    for task in range(25):
        put(tree, f"Exp.e{task}.{task}.2.17644176000000{task:02}", half(np.inf), op_name=f"e{task}")
    ended = run("scan", tree)
    assert " 5 more" in ended.out
    assert " 24 more" in run("scan", tree, "--limit", "1").out
    assert "--limit 0" not in run("scan", tree, "--limit", "0").out
    document = json.loads(run("scan", tree, "--limit", "3", "--format", "json").out)
    assert len(document["findings"]) == 3
    assert document["counts"]["findings"] == 25
    assert document["truncated"] == 22
    assert len(json.loads(run("report", "--json=-").out)["findings"]) == 25


def test_ascii_terminals(bad: Path) -> None:
    put(bad, NAME.replace("5.2", "6.2"), half(np.nan), op_name="层/矩阵")
    for arguments in ((), ("--lang", "zh"), ("--format", "json")):
        ended = start("scan", bad, *arguments, env=environment(LC_ALL="C", PYTHONUTF8="0"))
        assert ended.returncode == 1
        assert "Traceback" not in ended.stderr
        if arguments == ():
            assert ended.stdout.isascii()


def test_a_reader_of_the_output_that_leaves_does_not_change_the_status(
    bad: Path, clean: Path
) -> None:
    for task in range(60):
        put(bad, f"Exp.e{task}.{task}.2.17644176000000{task:02}", half(np.inf), op_name=f"e{task}")
    script = 'set -o pipefail; "$0" -m dumpscope scan "$1" --limit 0 $2 | head -c 10 > /dev/null'
    for tree, status in ((bad, 1), (clean, 0)):
        for output in ("", "--format=json"):
            result = subprocess.run(
                ["bash", "-c", script, sys.executable, str(tree), output],
                env=environment(LC_ALL="C.UTF-8"),
                capture_output=True,
                text=True,
                check=False,
            )
            assert (result.returncode, result.stderr) == (status, "")


def test_a_stdout_that_is_closed_does_not_change_the_status(bad: Path) -> None:
    for output in ("table", "json"):
        result = subprocess.run(
            [
                *("bash", "-c", '"$0" -m dumpscope scan "$1" --format "$2" >&-'),
                *(sys.executable, str(bad), output),
            ],
            env=environment(LC_ALL="C.UTF-8"),
            capture_output=True,
            text=True,
            check=False,
        )
        assert (result.returncode, result.stderr) == (1, "")


# --- being stopped -----------------------------------------------------------------------------

SLOW = """
import sys, time
from dumpscope.examine import Examiner
from dumpscope.cli.main import run

measured = Examiner.examine

def examine(self, file):
    print("reading", file=sys.stderr, flush=True)
    time.sleep(0.2)
    return measured(self, file)

Examiner.examine = examine
sys.argv = ["dumpscope", "scan", *sys.argv[1:]]
run()
"""


@pytest.mark.parametrize(
    ("jobs", "lang", "words"),
    [
        ("1", "en", "interrupted; what was read so far is kept: `dumpscope scan --resume` goes on"),
        ("2", "zh", "已中断；已读取的内容已保存：用 `dumpscope scan --resume` 可从中断处继续"),
    ],
)
def test_ctrl_c_is_130_and_the_next_scan_goes_on(
    tmp_path: Path, jobs: str, lang: str, words: str
) -> None:
    tree = tmp_path / "slow"
    for task in range(200):
        put(tree, f"Exp.e{task}.{task}.2.1764417600000{task:03}", half(1.0))
    program = subprocess.Popen(
        [sys.executable, "-c", SLOW, str(tree), "--jobs", jobs, "--lang", lang],
        env=environment(PYTHONIOENCODING="utf-8"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.stderr is not None
    assert program.stderr.readline() == "reading\n"
    program.send_signal(signal.SIGINT)
    out, err = program.communicate(timeout=60)
    assert program.returncode == 130
    assert out == ""
    assert words in err
    assert "Traceback" not in err
    with Store.open(".dumpscope/scans.db", write=False) as store:
        (info,) = store.scans()
    assert info.state == "interrupted"
    ended = run("scan", tree, "--format", "json")
    assert ended.status == 0
    assert json.loads(ended.out)["counts"]["files"] == 200


def test_a_scan_that_is_killed_leaves_a_store_that_works(tmp_path: Path) -> None:
    tree = tmp_path / "slow"
    for task in range(50):
        put(tree, f"Exp.e{task}.{task}.2.1764417600000{task:03}", half(1.0))
    program = subprocess.Popen(
        [sys.executable, "-c", SLOW, str(tree), "--jobs", "1"],
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.stderr is not None
    assert program.stderr.readline() == "reading\n"
    program.kill()
    program.communicate()
    ended = run("scan", tree, "--format", "json")
    assert ended.status == 0
    assert json.loads(ended.out)["counts"]["ops"] == 50


# --- acl.json ----------------------------------------------------------------------------------


def write_config(folder: Path, dump_path: str, *, debug: bool = False, text: str = "") -> Path:
    section = {"dump_path": dump_path}
    section |= {"dump_debug": "on"} if debug else {"dump_mode": "output", "dump_op_switch": "on"}
    path = folder / "acl.json"
    path.write_text(text or json.dumps({"dump": section}))
    return path


def test_an_acl_json_names_what_is_scanned(bad: Path) -> None:
    config = write_config(bad.parent, bad.name)
    ended = run("scan", config, "--format", "json")
    assert ended.status == 1
    document = json.loads(ended.out)
    assert document["root"] == str(bad)
    assert document["config"]["dump_debug"] == "off"


def test_without_paths_the_acl_json_here_is_taken_else_this_folder(
    bad: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(bad.parent)
    store = str(bad.parent / "work/scans.db")
    write_config(bad.parent, bad.name)
    (bad.parent / "clean-sibling").mkdir()
    document = json.loads(run("scan", "--format", "json", "--store", store).out)
    assert (document["root"], document["exit_status"]) == (str(bad), 1)
    monkeypatch.chdir(bad)
    document = json.loads(run("scan", "--format", "json", "--store", store).out)
    assert (document["root"], document["exit_status"]) == (str(bad), 1)


@pytest.mark.parametrize("text", ["{}", '{"profiler": {"switch": "on"}}', '{"dump": {}}'])
def test_an_acl_json_that_names_no_dump_path(
    bad: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    config = write_config(bad.parent, "", text=text)
    monkeypatch.chdir(bad.parent)
    store = str(bad.parent / "work/scans.db")
    document = json.loads(run("scan", "--format", "json", "--store", store).out)
    assert (document["root"], document["exit_status"]) == (str(bad.parent), 1)
    ended = run("scan", config, "--store", store)  # this file is what was asked for
    assert (ended.status, ended.out) == (2, "")
    assert "names no dump_path" in ended.err


@pytest.mark.parametrize(("debug", "status"), [(True, 0), (False, 3)])
def test_a_dump_path_that_is_not_there(tmp_path: Path, debug: bool, status: int) -> None:
    config = write_config(tmp_path, "dump_data", debug=debug)
    ended = run("scan", config)
    assert (ended.status, ended.err) == (status, "")
    ended = run("scan", config, "--format", "json")
    assert ended.status == status
    document = json.loads(ended.out)
    assert document["counts"]["files"] == 0
    assert document["complete"] is (status == 0)
    assert run("scan", config, "--expect", "overflow").status == 0
    assert run("scan", config, "--expect", "model").status == 3


def test_an_empty_dump_path(tmp_path: Path) -> None:
    (tmp_path / "dump_data").mkdir()
    assert run("scan", write_config(tmp_path, "dump_data", debug=True)).status == 0
    assert run("scan", write_config(tmp_path, "dump_data")).status == 3


def test_comments_are_accepted_and_noted(bad: Path) -> None:
    text = '{\n  // where to\n  "dump": {"dump_path": "bad", "dump_mode": "all",},\n}\n'
    config = write_config(bad.parent, "", text=text)
    ended = run("scan", config)
    assert ended.status == 1
    assert "comments and trailing commas are accepted here, but CANN itself refuses" in " ".join(
        ended.out.split()
    )
    document = json.loads(run("scan", config, "--format", "json").out)
    assert "config_comments" in {note["code"] for note in document["notes"]}


def test_an_acl_json_that_cannot_be_read_is_2(tmp_path: Path) -> None:
    for text, said in (
        ("{", "acl.json"),
        ("[]", "acl.json"),
        ('{"dump": {"dump_mode": "all"}}', "names no dump_path"),
    ):
        ended = run("scan", write_config(tmp_path, "", text=text))
        assert (ended.status, ended.out) == (2, "")
        assert said in ended.err
        assert "Traceback" not in ended.err


def test_two_acl_json_are_2(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    first, second = write_config(tmp_path, "a"), write_config(tmp_path / "other", "b")
    ended = run("scan", first, second)
    assert (ended.status, ended.out) == (2, "")
    assert "expected one acl.json" in ended.err


# --- the store ---------------------------------------------------------------------------------


def scans_in(path: str | Path) -> int:
    with Store.open(path, create=False, write=False) as store:
        return len(store.scans())


def test_the_store_lies_where_it_is_asked_for(
    clean: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("scan", clean).status == 0
    assert scans_in(".dumpscope/scans.db") == 1
    monkeypatch.setenv("DUMPSCOPE_STORE", str(tmp_path / "named.db"))
    assert run("scan", clean).status == 0
    assert scans_in(tmp_path / "named.db") == 1
    assert run("scan", clean, "--store", "option.db").status == 0
    assert (scans_in("option.db"), scans_in(tmp_path / "named.db")) == (1, 1)
    assert scans_in(".dumpscope/scans.db") == 1


def test_a_scanned_tree_is_never_written_to(clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = sorted(clean.rglob("*"))
    monkeypatch.chdir(clean)
    ended = run("scan", ".")
    assert ended.status == 0
    assert "the result goes to" in ended.err
    assert sorted(clean.rglob("*")) == before
    assert scans_in(Path(os.environ["XDG_STATE_HOME"]) / "dumpscope/scans.db") == 1
    assert run("report", "--json=-").status == 0


def test_a_folder_that_cannot_be_written(clean: Path) -> None:
    Path.cwd().chmod(0o500)
    try:
        ended = run_bound(lambda: run("scan", clean))
    finally:
        Path.cwd().chmod(0o700)
    assert ended.status == 0
    assert "cannot be written" in ended.err


def test_a_store_that_is_none_is_2(clean: Path) -> None:
    Path("notes.db").write_text("not a database, but long enough to be looked at " * 20)
    ended = run("scan", clean, "--store", "notes.db")
    assert (ended.status, ended.out) == (2, "")
    assert "notes.db" in ended.err
    assert "Traceback" not in ended.err


def test_the_second_scan_reads_nothing_again(clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = json.loads(run("scan", clean, "--format", "json").out)

    def fail(*_: object) -> None:
        raise AssertionError("a file was read again")

    monkeypatch.setattr("dumpscope.examine.Examiner.examine", fail)
    second = json.loads(run("scan", clean, "--format", "json").out)
    first.pop("scan_id")
    second.pop("scan_id")
    assert first == second


def test_both_ways_to_start_the_program(bad: Path) -> None:
    as_module = start("scan", bad, "--format", "json")
    console = subprocess.run(
        [sys.executable, "-c", "from dumpscope.cli.main import run; run()", "scan", str(bad),
         "--format", "json"],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    documents = [json.loads(text) for text in (as_module.stdout, console.stdout)]
    for document in documents:
        document.pop("scan_id")
    assert documents[0] == documents[1]
    assert as_module.returncode == console.returncode == 1
    assert as_module.stderr == console.stderr == ""


def test_filters(tmp_path: Path) -> None:
    for step in (0, 1):
        for device in (0, 1):
            folder = tmp_path / f"dump/20251129120000/{device}/net/1/{step}"
            folder.mkdir(parents=True)
            for kind in ("Exp", "Log"):
                name = f"{kind}.{kind.lower()}.1.2.176441760000000{step}"
                (folder / name).write_bytes(dump_file((half(1.0),), (half(np.inf),), op_name=kind))

    def found(*options: str) -> set[tuple[int, int, str]]:
        document = json.loads(run("scan", tmp_path / "dump", "--format", "json", *options).out)
        return {(f["step"], f["device"], f["op_type"]) for f in document["findings"]}

    everything = {(s, d, k) for s in (0, 1) for d in (0, 1) for k in ("Exp", "Log")}
    assert found() == everything
    assert found("--step", "1") == {entry for entry in everything if entry[0] == 1}
    assert found("--step", "1", "--step", "0") == everything
    assert found("--rank", "1") == {entry for entry in everything if entry[1] == 1}
    assert found("--op", "Ex*") == {entry for entry in everything if entry[2] == "Exp"}
    assert found("--op", "Exp", "--rank", "0", "--step", "0") == {(0, 0, "Exp")}
    assert found("--run", "latest") == everything
    assert found("--run", "20251129120000") == everything


def test_a_single_file_and_several_paths(bad: Path, clean: Path) -> None:
    document = json.loads(run("scan", bad / FOLDER / NAME, "--format", "json").out)
    assert document["findings"][0]["file"] == NAME
    assert (document["findings"][0]["step"], document["findings"][0]["device"]) == (0, 0)
    document = json.loads(run("scan", bad, clean, "--format", "json").out)
    assert document["root"] == str(bad.parent)
    assert document["findings"][0]["file"] == f"bad/{FOLDER}/{NAME}"
    assert document["counts"]["files"] == 2


def test_devices_of_one_number_below_different_paths_are_different_ones(tmp_path: Path) -> None:
    first, second = tmp_path / "nodes/a", tmp_path / "nodes/b"
    put(first, "Log.log.1.2.1764417600000001", half(np.inf))
    path = put(second, "Relu.relu.2.2.1764417600000002")
    path.write_bytes(dump_file((), (half(np.inf),)))  # nothing but the order tells of its inputs

    def verdicts(*paths: Path) -> dict[str, str]:
        document = json.loads(run("scan", *paths, "--format", "json").out)
        assert document["root"] == str(tmp_path / "nodes")
        assert {finding["device"] for finding in document["findings"]} == {0}
        return {finding["op_type"]: finding["verdict"] for finding in document["findings"]}

    assert verdicts(first, second) == {"Log": "origin", "Relu": "unknown_inputs"}
    assert verdicts(tmp_path / "nodes") == {"Log": "origin", "Relu": "propagated"}


def test_full_statistics(clean: Path) -> None:
    path = next((clean / FOLDER).iterdir())
    path.write_bytes(dump_file((half(1.0),), (half(np.inf, 0.0, 2.0),)))
    put(clean, NAME.replace("5.2", "6.2"), half(3.0, 1.0))
    assert run("scan", clean, "--stats", "full").status == 1
    with Store.open(".dumpscope/scans.db", write=False) as store:
        newest = store.latest()
        assert newest is not None
        means = {t.stats.mean for op in store.ops(newest.scan_id) for t in op.outputs}
    assert means == {1.0, 2.0}
