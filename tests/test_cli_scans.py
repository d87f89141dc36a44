"""`dumpscope scans` as a user types it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from dumpscope.cli.main import run_with
from dumpscope.errors import StoreError
from dumpscope.model import DumpFile, FileResult, OpRecord, ScanOptions, TensorSummary
from dumpscope.store import Store

STORE = ".dumpscope/scans.db"


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = run_with(["scans", *arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def fill(path: str = STORE, root: str = "/dump", files: int = 1) -> str:
    """Put a finished scan into a store; each file has one operator with two tensors."""
    with Store.open(path) as store:
        scan_id = store.begin(root, [root], ScanOptions(steps=(3,)), None, "0.9")
        tensors = tuple(TensorSummary("output", i, "float16", "ND", (2,)) for i in range(2))
        for i in range(files):
            file = DumpFile(f"{root}/{i}", f"{i}", f"{i}", 1, 2, 3, 4)
            result = FileResult(file, ops=(OpRecord("Add", "n" * 2000, tensors),), bytes_read=1000)
            store.add(scan_id, [result], "s")
        store.finish(scan_id, {}, 1234.56)
    return scan_id


def test_scans_are_listed_newest_first(capsys: pytest.CaptureFixture[str]) -> None:
    first = fill(files=1)
    second = fill(root="/other dump", files=1234)
    status, out, err = run(capsys, "list")
    assert (status, err) == (0, "")
    head, *lines = out.splitlines()
    assert head.split() == ["SCAN", "BEGUN", "(UTC)", "STATE", "FILES", "ROOT"]
    assert [line.split()[0] for line in lines] == [second, first]
    assert lines[0].endswith("finished  1,234  /other dump")
    assert lines[1].endswith("finished  1      /dump")


def test_the_list_is_json_when_asked(capsys: pytest.CaptureFixture[str]) -> None:
    scan_id = fill(root="/d\udcff\x1b[31m")
    status, out, err = run(capsys, "list", "--json")
    (entry,) = json.loads(out)
    assert (status, err) == (0, "")
    assert out.isascii()
    assert "\x1b" not in out
    assert (entry["scan_id"], entry["root"], entry["state"]) == (
        scan_id,
        "/d\udcff\x1b[31m",
        "finished",
    )
    assert (entry["files"], entry["duration_s"], entry["options"]["steps"]) == (1, 1234.56, [3])


def test_a_scan_is_shown_with_its_counts(capsys: pytest.CaptureFixture[str]) -> None:
    old = fill(files=2)
    fill()
    status, out, _ = run(capsys, "show", old)
    lines = [line.split(maxsplit=1) for line in out.splitlines()]
    assert status == 0
    assert ["scan", old] in lines
    assert ["duration", "1,234.6 s"] in lines
    assert ["ops", "2"] in lines
    assert ["tensors", "4"] in lines
    assert ["bytes", "2,000"] in lines
    assert ["root", "/dump"] in lines
    assert json.loads(run(capsys, "show", "--json")[1])["counts"]["ops"] == 1


def test_names_from_dumps_do_not_reach_the_terminal_raw(
    capsys: pytest.CaptureFixture[str],
) -> None:
    fill(root="/a\x1b[2J\nb\u202e\udcff")
    for arguments in (["list"], ["show"]):
        out = run(capsys, *arguments)[1]
        assert r"/a\x1b[2J\nb\u202e\xff" in out
        assert "\x1b" not in out


def test_the_beginning_of_an_id_is_enough_to_remove(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = fill(), fill()
    assert run(capsys, "rm", first[:-1], first) == (0, f"removed {first}\n", "")
    with Store.open(STORE) as store:
        assert [info.scan_id for info in store.scans()] == [second]


def test_nothing_is_removed_when_one_id_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    first = fill()
    fill()
    status, out, err = run(capsys, "rm", first, "nonsense")
    assert (status, out) == (2, "")
    assert err == (
        f"dumpscope: {STORE}: there is no scan 'nonsense'; `dumpscope scans list` shows them\n"
    )
    assert run(capsys, "rm", "2")[0] == 2
    with Store.open(STORE) as store:
        assert len(store.scans()) == 2


def test_pruning_keeps_the_newest_and_gives_room_back(capsys: pytest.CaptureFixture[str]) -> None:
    ids = [fill(root=f"/{i}", files=300) for i in range(3)]
    before = os.path.getsize(STORE)
    status, out, err = run(capsys, "prune", "--keep", "1")
    assert (status, err) == (0, "")
    assert out.splitlines() == [f"removed {ids[1]}", f"removed {ids[0]}"]
    assert os.path.getsize(STORE) < before / 2
    assert run(capsys, "prune", "--keep", "1") == (0, "", "nothing to remove\n")
    assert run(capsys, "prune", "--keep", "0")[1] == f"removed {ids[2]}\n"


def test_scans_are_removed_even_where_the_room_cannot_be_given_back(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    scan_id = fill()

    def compact(store: Store) -> None:
        raise StoreError(f"{store.path}: the store is locked by another process")

    monkeypatch.setattr(Store, "compact", compact)
    status, out, err = run(capsys, "prune", "--keep", "0")
    assert (status, out) == (0, f"removed {scan_id}\n")
    assert err.startswith("dumpscope: the file stays as large as it was: ")


@pytest.mark.parametrize(
    "arguments", [["list"], ["show"], ["rm", "x"], ["prune", "--keep", "1"]], ids=str
)
def test_without_a_store_it_is_said_what_makes_one(
    capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, "")
    assert err.startswith(f"dumpscope: {STORE}: there is no store here; `dumpscope scan PATH`")
    assert os.listdir() == []


def test_the_option_and_the_variable_name_the_store(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    scan_id = fill("a.db")
    other = fill("b.db")
    monkeypatch.setenv("DUMPSCOPE_STORE", "b.db")
    assert other in run(capsys, "list")[1]
    assert scan_id in run(capsys, "list", "--store", "a.db")[1]


@pytest.mark.parametrize("arguments", [["prune"], ["prune", "--keep", "-1"], ["rm"]], ids=str)
def test_wrong_usage_is_status_2(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert run(capsys, *arguments)[0] == 2
