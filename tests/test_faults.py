"""A hostile night: full disks, kills, files that change under the reader, locks, damaged stores."""

from __future__ import annotations

import errno
import json
import os
import random
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bench.soak import Outcome, find_faults
from builders import Tensor, dump_file
from dumpscope import kernel
from dumpscope.cli.main import run_with
from dumpscope.examine import Examiner
from dumpscope.model import DumpFile, FileResult
from dumpscope.plugins import load_readers
from dumpscope.scanning import scan
from dumpscope.store import Store
from dumpscope.walk import walk

ROOT = Path(__file__).resolve().parent.parent
NAME = "Add.net_Add.1.1.1767225600000001"
FINITE = b"\x00\x3c" * 32
INFINITE = b"\x00\x3c" * 31 + b"\x00\x7c"
CONTENT = dump_file([Tensor(FINITE, shape=(4, 8))], [Tensor(INFINITE, shape=(4, 8))])
LARGE_BYTES = 4 << 20
LARGE = dump_file([], [Tensor(b"\x00\x3c" * (LARGE_BYTES // 2), shape=(LARGE_BYTES // 2,))])


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """One operator whose output has one +Inf; the folder is named as the toolkit does."""
    folder = tmp_path / "dump/20260101000000/0/net/1/0"
    folder.mkdir(parents=True)
    path = folder / NAME
    path.write_bytes(CONTENT)
    return path


def walked(path: Path) -> DumpFile:
    (found,) = walk([path])
    assert isinstance(found, DumpFile)
    return found


def examine(file: DumpFile) -> FileResult:
    return Examiner(load_readers()).examine(file)


# --- files that change between the walk and the read -------------------------------------------


def vanish(path: Path) -> None:
    path.unlink()


def become_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def become_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def become_a_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def become_empty(path: Path) -> None:
    path.write_bytes(b"")


def shrink(path: Path) -> None:
    os.truncate(path, len(CONTENT) - 4)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (vanish, "FileNotFoundError", "cannot be read: No such file or directory"),
        (become_a_pipe, "DumpReadError", "no regular file any more"),
        (become_a_folder, "", ""),
        (become_a_link, "OSError", "cannot be read: Too many levels of symbolic links"),
        (become_empty, "", ""),
        (shrink, "TruncatedDumpError", ""),
    ],
)
def test_a_file_that_changed_since_the_walk_is_a_failure_and_no_more(
    dump: Path, change: Callable[[Path], None], error: str, message: str
) -> None:
    file = walked(dump)
    change(dump)
    result = examine(file)
    assert not any(t.stats.nan for op in result.ops for t in op.tensors)
    if change is become_empty:
        # Nobody knows an empty file, unless its name says what it should have been.
        assert result.failures or not result.known
        return
    (failure,) = result.failures
    assert failure.file == file.relative
    if error:
        assert failure.error == error
    assert message in failure.message


def test_a_file_that_grew_is_read_with_what_it_is_now(dump: Path) -> None:
    dump.write_bytes(CONTENT[:-20])
    file = walked(dump)
    dump.write_bytes(CONTENT)
    result = examine(file)
    assert not result.failures
    assert [t.stats.posinf for t in result.ops[0].tensors] == [0, 1]


@pytest.mark.parametrize("reads_itself", [False, True])
def test_a_large_file_that_shrinks_while_it_is_read_is_a_failure(
    dump: Path, monkeypatch: pytest.MonkeyPatch, reads_itself: bool
) -> None:
    dump.write_bytes(LARGE)
    file = walked(dump)
    true_preadv, true_read = os.preadv, kernel.read_screen
    reads = 0

    def read_screen(*arguments: Any) -> object:
        if not reads_itself or true_read is None:
            return None
        os.truncate(dump, 1 << 20)
        found: object = true_read(*arguments)
        assert found is None
        return found

    def preadv(fd: int, buffers: list[memoryview], offset: int) -> int:
        nonlocal reads
        reads += 1
        if reads == 3:
            os.truncate(dump, 1 << 20)
        return true_preadv(fd, buffers, offset)

    monkeypatch.setattr(os, "preadv", preadv)
    monkeypatch.setattr(kernel, "read_screen", read_screen)
    result = examine(file)
    (failure,) = result.failures
    assert failure.error == "TruncatedDumpError"
    assert "the file shrank while it was read" in failure.message
    assert not result.ops[0].tensors[0].checked


@pytest.mark.parametrize("code", [errno.EIO, errno.ESTALE, errno.EACCES])
@pytest.mark.parametrize("good_reads", [0, 1, 2, 4])
def test_a_disk_that_fails_anywhere_in_a_file_is_a_failure(
    dump: Path, monkeypatch: pytest.MonkeyPatch, code: int, good_reads: int
) -> None:
    dump.write_bytes(LARGE)
    file = walked(dump)
    true_preadv, true_pread = os.preadv, os.pread
    reads = 0

    def fail_late() -> None:
        nonlocal reads
        reads += 1
        if reads > good_reads:
            raise OSError(code, os.strerror(code))

    def preadv(fd: int, buffers: list[memoryview], offset: int) -> int:
        fail_late()
        return true_preadv(fd, buffers, offset)

    def pread(fd: int, length: int, offset: int) -> bytes:
        fail_late()
        return true_pread(fd, length, offset)

    monkeypatch.setattr(os, "preadv", preadv)
    monkeypatch.setattr(os, "pread", pread)
    # The kernel meets the same fault, and leaves it to the blocks to say so.
    monkeypatch.setattr(kernel, "read_screen", lambda *_: None)
    result = examine(file)
    (failure,) = result.failures
    assert failure.message == f"cannot be read: {os.strerror(code)}"
    assert not any(t.checked for op in result.ops for t in op.tensors)


def test_pipes_and_sockets_are_passed_by(dump: Path, tmp_path: Path) -> None:
    os.mkfifo(dump.with_name("Mul.net_Mul.2.1.1767225600000002"))
    os.mkfifo(dump.with_name("mapping.csv"))
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.getcwd()
        os.chdir(dump.parent)  # the name of a socket has to be short
        try:
            listener.bind("s.1.1.1.1")
        finally:
            os.chdir(here)
        answer = scan(tmp_path / "dump")
    assert [finding.op.op_name for finding in answer.findings] == ["net/MatMul-op0"]
    assert answer.counts.files == 1


# --- stores ------------------------------------------------------------------------------------


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("dump", "in_folder")
def test_a_damaged_store_is_one_sentence_or_right(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run_with(["scan", "dump"]) == 1
    store = tmp_path / ".dumpscope/scans.db"
    whole = store.read_bytes()
    chance = random.Random(5)
    refused = 0
    for _ in range(60):
        raw = bytearray(whole)
        for _ in range(chance.randint(1, 200)):
            raw[chance.randrange(len(raw))] = chance.randrange(256)
        if chance.random() < 0.2:
            del raw[chance.randrange(len(raw)) :]
        store.write_bytes(raw)
        for leftover in store.parent.glob("scans.db-*"):
            leftover.unlink()
        for command in (["report"], ["scan", "dump"]):
            capfd.readouterr()
            status = run_with(command)
            said = capfd.readouterr().err
            assert status in (0, 1, 2), said
            assert "Traceback" not in said
            if status == 2:
                refused += 1
                (line,) = said.splitlines()
                assert line.startswith("dumpscope: ")
    assert refused > 60


@pytest.mark.usefixtures("dump", "in_folder")
def test_a_store_that_another_program_holds_is_one_sentence(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_with(["scan", "dump"]) == 1
    true_open = Store.open
    monkeypatch.setattr(
        Store, "open", lambda path, **options: true_open(path, **{**options, "busy_s": 0.05})
    )
    with closing(sqlite3.connect(tmp_path / ".dumpscope/scans.db")) as other:
        other.execute("BEGIN EXCLUSIVE")
        capfd.readouterr()
        assert run_with(["scan", "dump"]) == 2
        assert "the store is locked by another process" in capfd.readouterr().err
        assert run_with(["report"]) == 0  # what was committed can be read all the time
        other.execute("ROLLBACK")
    assert run_with(["scan", "dump"]) == 1


@pytest.mark.usefixtures("in_folder")
def test_two_scans_into_one_store_at_once_are_both_right(fixture_dir: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "dumpscope", "scan", str(fixture_dir / "sample_dump")]
    command += ["--store", "s.db", "--format", "json", "--jobs", "1", "--limit", "0"]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2)]
    answers = [process.communicate(timeout=120)[0] for process in running]
    assert [process.returncode for process in running] == [1, 1]
    first, second = (json.loads(answer)["findings"] for answer in answers)
    assert first == second
    assert first
    with Store.open(tmp_path / "s.db") as store:
        assert [(info.state, info.files) for info in store.scans()] == [("finished", 117)] * 2
    with closing(sqlite3.connect(tmp_path / "s.db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


# --- the short form of `make soak` -------------------------------------------------------------


def soak(part: str, rounds: int) -> Iterator[str]:
    """Run a part in a process of its own, since it forks."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.soak", "--only", part, "--rounds", str(rounds)],
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=300,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    assert done.stderr == ""
    assert done.returncode == 0, done.stdout
    yield from done.stdout.splitlines()


def test_killed_at_any_moment_a_scan_goes_on_to_the_same_result() -> None:
    (line,) = soak("kill", 5)
    assert line.startswith("kill: 5 rounds, 0 faults")


def test_a_disk_that_is_full_at_any_byte_is_one_sentence_and_loses_nothing() -> None:
    (line,) = soak("disk", 6)
    assert line.startswith("disk: 12 rounds, 0 faults")


@pytest.mark.parametrize(
    ("outcome", "faults"),
    [
        (Outcome(1, b"fine\n", b""), 0),
        (Outcome(2, b"", b"dumpscope: one sentence\n"), 0),
        (Outcome(2, b"", b"two\nlines\n"), 1),
        (Outcome(-9, b"", b""), 1),
        (Outcome(1, b"", b"Traceback (most recent call last):\n"), 1),
        (Outcome(1, b"\x1b[31m", b""), 1),
        (Outcome(1, b"a\rb", b""), 1),
        (Outcome(1, "a\u202eb".encode(), b""), 1),
        (Outcome(1, b"\xff", b""), 1),
    ],
)
def test_the_judge_sees_what_is_wrong(outcome: Outcome, faults: int) -> None:
    assert len(find_faults("scan", outcome, (1, 2))) == faults
