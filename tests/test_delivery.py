"""Reports are delivered whole or not at all, and over nothing that was not given up."""

from __future__ import annotations

import errno
import io
import json
import os
import stat
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import BinaryIO

import pytest

from dumpscope.errors import ReportError
from dumpscope.model import Scan
from dumpscope.reporters.delivery import check_target, deliver, write_report
from dumpscope.reporters.protocol import Reporter
from scan_samples import clean_scan, overflow_scan


class Words:
    """A reporter that writes the scan's id, and fails where it is told to."""

    name = "words"
    suffix = "words"
    option = "--words"

    def __init__(self, failure: BaseException | None = None) -> None:
        self._failure = failure

    def write(self, scan: Scan, target: BinaryIO, *, limit: int | None, lang: str) -> None:
        target.write(f"{scan.scan_id} {limit} {lang}".encode())
        target.flush()
        if self._failure is not None:
            raise self._failure


def test_a_report_is_written_with_the_usual_mode(tmp_path: Path) -> None:
    path = tmp_path / "a.words"
    old = os.umask(0o027)
    try:
        deliver(Words(), clean_scan(), str(path), limit=3, lang="zh")
    finally:
        os.umask(old)
    assert path.read_text() == "20251129-2 3 zh"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.words"]
    assert isinstance(Words(), Reporter)


def test_a_file_that_exists_is_kept_unless_forced(tmp_path: Path) -> None:
    path = tmp_path / "a.words"
    path.write_text("precious")
    path.chmod(0o604)
    with pytest.raises(ReportError, match=r"a\.words: exists already; --force overwrites it"):
        deliver(Words(), clean_scan(), str(path))
    assert path.read_text() == "precious"
    deliver(Words(), clean_scan(), str(path), force=True)
    assert path.read_text().startswith("20251129-2")
    assert stat.S_IMODE(path.stat().st_mode) == 0o604


@pytest.mark.parametrize(
    "failure",
    [ValueError("bug"), KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device")],
)
def test_a_failure_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, failure: BaseException
) -> None:
    path = tmp_path / "a.words"
    path.write_text("precious")
    expected = ReportError if isinstance(failure, OSError) else type(failure)
    with pytest.raises(expected):
        deliver(Words(failure), clean_scan(), str(path), force=True)
    assert path.read_text() == "precious"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.words"]
    new = tmp_path / "new.words"
    with pytest.raises(expected):
        deliver(Words(failure), clean_scan(), str(new))
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.words"]


def test_a_file_that_appears_meanwhile_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.words"

    class Slow(Words):
        def write(self, scan: Scan, target: BinaryIO, *, limit: int | None, lang: str) -> None:
            path.write_text("first")
            super().write(scan, target, limit=limit, lang=lang)

    with pytest.raises(ReportError, match="exists already"):
        deliver(Slow(), clean_scan(), str(path))
    assert path.read_text() == "first"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.words"]


def test_the_target_of_a_link_is_replaced_and_the_link_stays(tmp_path: Path) -> None:
    real = tmp_path / "real.words"
    real.write_text("old")
    link = tmp_path / "link.words"
    link.symlink_to(real)
    with pytest.raises(ReportError, match="exists already"):
        deliver(Words(), clean_scan(), str(link))
    deliver(Words(), clean_scan(), str(link), force=True)
    assert link.is_symlink()
    assert real.read_text().startswith("20251129-2")
    dangling = tmp_path / "dangling.words"
    dangling.symlink_to(tmp_path / "nowhere")
    with pytest.raises(ReportError, match="exists already"):
        check_target(str(dangling))


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("missing/a.csv", "the folder .*missing does not exist; create it first"),
        ("", "is a folder; give the name of a file in it"),
        ("nul\0l", r"nul\\x00l: a file name cannot hold a null byte"),
    ],
)
def test_places_where_nothing_can_be_written(tmp_path: Path, path: str, message: str) -> None:
    with pytest.raises(ReportError, match=message):
        check_target(os.path.join(tmp_path, path), force=True)


def test_a_name_that_is_too_long_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="File name too long; nothing was left behind"):
        deliver(Words(), clean_scan(), str(tmp_path / ("x" * 300)))
    assert list(tmp_path.iterdir()) == []


def test_a_device_is_written_to_and_never_replaced(tmp_path: Path) -> None:
    before = os.stat(os.devnull)
    deliver(Words(), clean_scan(), os.devnull)
    after = os.stat(os.devnull)
    assert stat.S_ISCHR(after.st_mode)
    assert after.st_ino == before.st_ino


def test_a_pipe_gets_the_report(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append(pipe.read_bytes()))
    reader.start()
    deliver(Words(), clean_scan(), str(pipe))
    reader.join(timeout=30)
    assert received == [b"20251129-2 None en"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_stdout_gets_bytes_only_when_all_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    stdout = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stdout)
    with pytest.raises(ValueError, match="bug"):
        deliver(Words(ValueError("bug")), clean_scan(), "-")
    assert stdout.buffer.getvalue() == b""
    deliver(Words(), clean_scan(), "-")
    assert stdout.buffer.getvalue() == b"20251129-2 None en"


def test_a_closed_stdout_stays_a_broken_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    class ClosedPipe(io.RawIOBase):
        def writable(self) -> bool:
            return True

        def write(self, _: object) -> int:
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=ClosedPipe()))
    with pytest.raises(BrokenPipeError):
        deliver(Words(), clean_scan(), "-")


def test_write_report_chooses_by_the_end_of_the_name(tmp_path: Path) -> None:
    write_report(overflow_scan(), tmp_path / "a.JSON")
    document = json.loads((tmp_path / "a.JSON").read_text(encoding="utf-8"))
    assert document["findings"][0]["op_type"] == "BatchMatMulV2"
    write_report(overflow_scan(), str(tmp_path / "a.csv"), limit=1)
    assert (tmp_path / "a.csv").read_bytes().count(b"\r\n") == 2
    with pytest.raises(ReportError, match="exists already"):
        write_report(overflow_scan(), tmp_path / "a.csv")
    write_report(overflow_scan(), tmp_path / "a.csv", force=True)
    with pytest.raises(ReportError, match=r"what kind of report it is; end it with one of .*\.csv"):
        write_report(overflow_scan(), tmp_path / "a.doc")
