"""A file that ends the process which reads it is set aside, and everything else is read."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from cluster_scenes import ROOT, names_of, write_dumps, write_reader
from dumpscope import isolation, sharing
from dumpscope.errors import LostProcessesError
from dumpscope.isolation import NotReadyError, ended_by, start_ready
from dumpscope.model import DumpFile, FileResult, ScanOptions
from dumpscope.processes import WorkerProcess
from dumpscope.scanning import scan_into
from dumpscope.sharing import MixedExecutor, open_executor
from dumpscope.store import Store
from process_work import Numbering

FATAL = 13
HERE = os.getpid()


def dump_file(number: int, size: int = 1) -> DumpFile:
    return DumpFile(f"/d/{number}", f"{number}", f"{number}", size, 0, 0, number)


def batches_of(*batches: Sequence[int], size: int = 1) -> Iterator[list[DumpFile]]:
    return ([dump_file(number, size) for number in batch] for batch in batches)


def run(executor: MixedExecutor, work: Numbering, *batches: Sequence[int]) -> list[list[Any]]:
    return list(executor.run(work, batches_of(*batches)))


def tell(results: Sequence[Any]) -> list[int | str]:
    """The numbers of a batch; of a file that was set aside what is said of it."""
    return [
        result.failures[0].message if isinstance(result, FileResult) else result[1]
        for result in results
    ]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[WorkerProcess]:
    """All processes that were started."""
    found: list[WorkerProcess] = []

    def start(*arguments: Any) -> WorkerProcess:
        found.append(WorkerProcess(*arguments))
        return found[-1]

    monkeypatch.setattr(isolation, "WorkerProcess", start)
    monkeypatch.setattr(sharing, "WorkerProcess", start)
    return found


@pytest.mark.parametrize("jobs", [1, 2, 4])
def test_only_the_file_that_ends_processes_is_set_aside(
    jobs: int, started: list[WorkerProcess]
) -> None:
    batches = [[1, 2], [3, FATAL, 4, FATAL + 1000], [5], [6, 7], [8]]
    with MixedExecutor(jobs, apart=True) as executor:
        found = run(executor, Numbering(HERE, fatal=FATAL), *batches)
    said = "and was set aside: update that reader or name another with --reader; `dumpscope scan` "
    assert [tell(results) for results in found] == [
        [1, 2],
        [
            3,
            f"ended 2 processes that read it with the reader reader13 (exit status 9) {said}"
            "of this file alone shows why",
            4,
            f"ended 2 processes that read it with the reader reader1013 (exit status 9) {said}"
            "of this file alone shows why",
        ],
        [5],
        [6, 7],
        [8],
    ]
    failure = found[1][1].failures[0]
    assert (failure.file, failure.reader, failure.error) == ("13", "reader13", "ChildProcessError")
    assert HERE not in {result[0] for batch in found for result in batch if type(result) is tuple}
    # For each file two, and one that goes on; one that names readers; those that share the work,
    # and one instead of the lost one.
    assert len(started) <= 2 * 2 + 1 + 1 + min(jobs, sharing.MOST_PROCESSES) + 1
    assert [process.ended for process in started] == [True] * len(started)


@pytest.mark.parametrize("size", [1, 1 << 24])
def test_after_the_first_such_file_nothing_is_read_here(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "ALONE_BATCHES", 1)
    with MixedExecutor(2) as executor:
        work = Numbering(HERE, fatal=FATAL)
        assert run(executor, work, [0]) == [[(HERE, 0)]]
        (process,) = executor._processes
        assert process.receive() == (False, None)
        assert process.ready
        (lost,) = run(executor, work, [FATAL])
        assert isinstance(lost[0], FileResult)
        following = list(executor.run(work, batches_of([1], [2], [3], [4], [5], size=size)))
    assert [number for ((_, number),) in following] == [1, 2, 3, 4, 5]
    assert HERE not in {process for ((process, _),) in following}


def test_a_batch_that_waits_behind_a_lost_one_is_read() -> None:
    with MixedExecutor(1, apart=True) as executor:
        work = Numbering(HERE, fatal=FATAL)
        assert [tell(results) for results in run(executor, work, [0])] == [[0]]
        found = run(executor, work, [FATAL], [1], [2])
    assert [isinstance(results[0], FileResult) for results in found] == [True, False, False]
    assert [tell(results) for results in found[1:]] == [[1], [2]]


def test_what_the_work_raises_is_no_lost_process() -> None:
    with MixedExecutor(2, apart=True) as executor:
        found = run(executor, Numbering(HERE, failing=2), [1], [2], [3])
    # Here it raises nothing; where it did, the scan would end as it does with one job.
    assert found[1] == [(HERE, 2)]
    assert [results[0][1] for results in found] == [1, 2, 3]


def test_a_scan_in_which_nearly_all_files_do_this_comes_to_an_end(
    monkeypatch: pytest.MonkeyPatch, started: list[WorkerProcess]
) -> None:
    monkeypatch.setattr(sharing, "MOST_LOST", 5)
    with (
        MixedExecutor(1, apart=True) as executor,
        pytest.raises(
            LostProcessesError,
            match=r"7 processes ended over the files that they read \(the last of these files: "
            r"2013\): .* go on with `dumpscope scan --resume`",
        ),
    ):
        # They are counted within a batch too.
        run(executor, Numbering(HERE, fatal=FATAL), [FATAL + 1000 * i for i in range(50)])
    assert len(started) <= 7 + 2


def test_larger_scans_may_lose_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "MOST_LOST", 5)
    monkeypatch.setattr(sharing, "FILES_FOR_ONE_MORE", 10)
    with MixedExecutor(1, apart=True) as executor:
        harmless = [list(range(100, 150))]
        found = run(executor, Numbering(HERE, fatal=FATAL), *harmless, [FATAL], [FATAL], [FATAL])
    assert len(found) == 4


def test_without_room_for_processes_all_is_read_here(
    monkeypatch: pytest.MonkeyPatch, started: list[WorkerProcess]
) -> None:
    monkeypatch.setattr(sharing, "can_start", lambda: False)
    with MixedExecutor(2, apart=True) as executor:
        assert run(executor, Numbering(HERE), [1], [2]) == [[(HERE, 1)], [(HERE, 2)]]
    monkeypatch.undo()
    with MixedExecutor(2, apart=True) as executor:
        # Each does other work than it should, so nobody goes on starting them.
        work = Numbering(HERE, signature="of another version")
        assert run(executor, work, *[[i] for i in range(9)]) == [[(HERE, i)] for i in range(9)]
    assert len(started) <= isolation.MOST_TRIES + 1


def test_without_room_for_one_more_process_a_lost_batch_is_read_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def start(*_: object) -> WorkerProcess:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(isolation, "WorkerProcess", start)
    with MixedExecutor(1, apart=True) as executor:
        assert run(executor, Numbering(HERE, fatal=FATAL), [FATAL]) == [[(HERE, FATAL)]]


def test_a_process_that_is_no_use_says_what_it_would_do() -> None:
    with pytest.raises(NotReadyError) as told:
        start_ready(Numbering(HERE, signature="of another version").recipe)
    assert told.value.signature == f"from {HERE}".encode()


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (3, "exit status 3"),
        (-11, "signal 11, SIGSEGV"),
        (-9, "signal 9, SIGKILL"),
        (-99, "signal 99"),
    ],
)
def test_how_a_process_ended(status: int, text: str) -> None:
    assert ended_by(status) == text


def test_who_reads_when_this_process_had_better_not() -> None:
    with open_executor(1, apart=True) as one, open_executor(1) as usual:
        assert isinstance(one, MixedExecutor)
        assert not isinstance(usual, MixedExecutor)


class Scans:
    """Scans of one tree by the program itself, with a reader whose files do what they say."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tree = write_dumps(folder / "dump", 20, "segfault", "exit")
        self.site = write_reader(folder / "site")

    def run(self, *options: str, harmless: bool = False) -> subprocess.CompletedProcess[str]:
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(self.site), str(ROOT)])}
        environ.pop("SCENES", None)
        if not harmless:
            environ["SCENES"] = str(self.folder)
        return subprocess.run(
            [sys.executable, "-m", "dumpscope", "scan", *options, "--format", "json"],
            cwd=self.folder,
            env=environ,
            capture_output=True,
            text=True,
            check=False,
        )


def test_a_scan_that_a_file_ended_goes_on_behind_it(tmp_path: Path) -> None:
    scans = Scans(tmp_path)
    ended = scans.run(str(scans.tree), "--jobs", "2")
    # Nothing can be done about the first one: few files are read by the scan itself.
    assert ended.returncode in (-signal.SIGSEGV, 7)
    documents = []
    # It goes on, and may be repeated: a file that was set aside is never read by the scan itself.
    for options in (("--resume", "--jobs", "1"), (str(scans.tree), "--jobs", "3")):
        resumed = scans.run(*options)
        assert resumed.returncode == 1, resumed.stderr
        documents.append(json.loads(resumed.stdout))
        documents[-1].pop("scan_id")
    assert documents[0] == documents[1]

    told = {failure["file"]: failure for failure in documents[0]["read_failures"]}
    for trick, how in (
        ("segfault", "signal 11, SIGSEGV"),
        ("exit", "exit status 7"),
    ):
        (name,) = names_of(scans.tree, trick)
        failure = told.pop(name)
        assert (failure["reader"], failure["error"]) == ("scene", "ChildProcessError")
        assert failure["message"].startswith(
            f"ended 2 processes that read it with the reader scene ({how}) and was set aside: "
        )
    harmless = json.loads(scans.run(str(scans.tree), "--store", "b.db", harmless=True).stdout)
    assert [failure["file"] for failure in harmless["read_failures"]] == list(told)
    assert documents[0]["findings"] == harmless["findings"]
    assert (documents[0]["complete"], len(harmless["findings"])) == (False, 2)


def test_a_scan_that_gave_up_leaves_the_next_one_warned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def give_up(*_: object) -> Iterator[list[FileResult]]:
        raise LostProcessesError("too many")

    monkeypatch.setattr(MixedExecutor, "run", give_up)
    with Store.open(tmp_path / "scans.db") as store:
        with pytest.raises(LostProcessesError):
            scan_into(store, write_dumps(tmp_path / "dump", 1), ScanOptions(jobs=2))
        newest = store.latest()
        assert newest is not None
        assert store.was_hurt(newest.root)
