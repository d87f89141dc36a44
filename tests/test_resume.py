"""Scans that were stopped go on; trees that still grow are named."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from datetime import datetime, timedelta, tzinfo
from pathlib import Path

import pytest

from builders import Tensor, dump_file
from dumpscope.cli.main import run_with
from dumpscope.errors import StoreError
from dumpscope.growth import RECENT_NS, is_growing
from dumpscope.model import DumpFile, ScanOptions
from dumpscope.scanning import scan
from dumpscope.store import Store

FINITE = b"\x00\x3c" * 32


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DUMPSCOPE_STORE", raising=False)
    return tmp_path


def grow(sample: Path, folder: Path, copies: int) -> Path:
    """A tree with several runs of the sample dump."""
    for number in range(copies):
        shutil.copytree(sample, folder / f"rank_{number}")
    return folder


def test_a_killed_scan_goes_on_and_gives_the_same_answer(
    in_folder: Path, fixture_dir: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tree = grow(fixture_dir / "sample_dump", in_folder / "dump", 12)
    scanner = subprocess.Popen(
        [sys.executable, "-m", "dumpscope", "scan", str(tree), "--jobs", "1"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    store_file = in_folder / ".dumpscope/scans.db"
    while scanner.poll() is None and not (store_file.exists() and read_files(store_file)):
        time.sleep(0.005)
    scanner.send_signal(signal.SIGKILL)
    scanner.wait()
    with Store.open(store_file) as store:
        stopped = store.latest()
        assert stopped is not None
        # On a machine so fast that it finished first there is nothing to resume.
        finished = stopped.state == "finished"
    assert run_with(["scan", "--resume"]) == (2 if finished else 1)
    with Store.open(store_file) as store:
        resumed = store.latest()
        assert resumed is not None
        assert resumed.state == "finished"
        assert resumed.files == 12 * 117
    capfd.readouterr()
    assert run_with(["report", "--csv", "-", "--limit", "0"]) == 0
    resumed_report = capfd.readouterr().out
    assert run_with(["scan", str(tree), "--store", "other.db"]) == 1
    capfd.readouterr()
    assert run_with(["report", "--store", "other.db", "--csv", "-", "--limit", "0"]) == 0
    assert capfd.readouterr().out == resumed_report


def read_files(store_file: Path) -> int:
    """How many files the newest scan of a store has so far."""
    try:
        with Store.open(store_file, create=False, write=False) as store:
            newest = store.latest()
            return 0 if newest is None else newest.files
    except StoreError:  # it is being made in this very moment
        return 0


def test_without_a_stopped_scan_there_is_nothing_to_resume(
    in_folder: Path, fixture_dir: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run_with(["scan", str(fixture_dir / "cases/clean")]) == 0
    assert run_with(["scan", "--resume"]) == 2
    assert "--resume" in capfd.readouterr().err


def test_a_file_that_is_still_written_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "20260101000000/0/net/1/0"
    folder.mkdir(parents=True)
    whole = dump_file([Tensor(FINITE, shape=(4, 8))], [Tensor(FINITE, shape=(4, 8))])
    (folder / "Add.net_Add.1.1.1767225600000001").write_bytes(whole)
    cut = folder / "Mul.net_Mul.2.1.1767225600000002"
    cut.write_bytes(whole[:-8])
    answer = scan(tmp_path)
    note = next(note for note in answer.notes if note.code == "still_growing")
    assert note.parameters == {
        "count": 1, "names": "20260101000000/0/net/1/0/Mul.net_Mul.2.1.1767225600000002",
    }  # fmt: skip
    assert (answer.exit_status, answer.complete) == (3, False)
    os.utime(cut, ns=(1, 1))
    assert not [note for note in scan(tmp_path).notes if note.code == "still_growing"]


def test_a_file_that_changed_since_the_walk_grows(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345678")
    os.utime(path, ns=(1000, 1000))
    status = path.stat()
    seen = DumpFile(
        str(path), "file", "file", status.st_size, status.st_mtime_ns, status.st_ctime_ns,
        status.st_ino,
    )  # fmt: skip
    assert not is_growing(seen, 1000 + RECENT_NS)
    assert is_growing(seen, 999 + RECENT_NS)
    path.write_bytes(b"123456789")
    os.utime(path, ns=(1000, 1000))
    assert is_growing(seen, 1000 + RECENT_NS)
    path.unlink()
    assert not is_growing(seen, 1000 + RECENT_NS)


class SetBack(datetime):
    """A clock that somebody sets back by a day whenever it is looked at."""

    day = 28

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> SetBack:
        SetBack.day -= 1
        return cls(2026, 11, SetBack.day, 3, 0, 0, tzinfo=tz)


def test_a_clock_that_is_set_back_between_scans_changes_nothing(
    in_folder: Path, fixture_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = Path(shutil.copytree(fixture_dir / "cases/clean", in_folder / "dump"))
    now = datetime.now().astimezone()
    monkeypatch.setattr("dumpscope.store.writing.datetime", SetBack)
    with Store.open(str(in_folder / "scans.db")) as store:
        first = scan(tree, store=store)
        # A file that is written again then is older than it was, and is another one all the same.
        victim = next(path for path in sorted(tree.rglob("*")) if path.name.startswith("Add"))
        cut = victim.read_bytes()[:-8]
        victim.write_bytes(cut)
        yesterday = (now - timedelta(days=1)).timestamp()
        os.utime(victim, (yesterday, yesterday))
        second = scan(tree, store=store)
        unfinished = store.begin(str(tree), [str(tree)], ScanOptions(), None, "0")
        ids = [first.scan_id, second.scan_id, unfinished]
        assert [i[:8] for i in ids] == ["20261127", "20261126", "20261125"]
        assert [info.scan_id for info in store.scans()] == ids[::-1]
        assert store.find_scan("latest") == unfinished
        left = store.find_unfinished(str(tree))
        assert left is not None
        assert left.scan_id == unfinished
        assert store.prune(2) == [first.scan_id]
    assert (first.exit_status, first.counts.read_failures) == (0, 0)
    assert (second.exit_status, second.counts.read_failures) == (3, 1)
    assert second.read_failures[0].file == victim.relative_to(tree).as_posix()
