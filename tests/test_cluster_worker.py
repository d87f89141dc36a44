"""What a dask worker does with a batch, called here as the worker would call it."""

from __future__ import annotations

import pickle
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("distributed", reason="distributed is not installed (extra dask)")

from dumpscope import isolation
from dumpscope.cluster import worker
from dumpscope.cluster.executor import DaskExecutor
from dumpscope.cluster.results import FAILED, OTHER_WORK, RESULTS, pack_batch, read_results
from dumpscope.errors import ClusterError
from dumpscope.model import DumpFile, ScanOptions
from dumpscope.plugins import load_readers
from dumpscope.processes import WorkerProcess
from dumpscope.scanning import Worker
from fixtures.encode import encode_dump, entry_of

NOBODY: Any = SimpleNamespace()


@pytest.fixture(autouse=True)
def _as_a_worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(worker, "get_worker", lambda: SimpleNamespace(address="tcp://n1:1"))
    monkeypatch.setattr(socket, "gethostname", lambda: "node1")
    yield
    for processes in worker._idle.values():
        for process in processes:
            process.stop()
    worker._idle.clear()


@pytest.fixture
def files(tmp_path: Path) -> list[DumpFile]:
    found = []
    for number in range(3):
        values = np.full((2, 3), number, np.float16)
        path = tmp_path / f"Add.op{number}.{number}.2.{1767951000000000 + number}"
        path.write_bytes(encode_dump("op", [entry_of(values)], [entry_of(values * 2)]))
        status = path.stat()
        found.append(
            DumpFile(
                str(path), path.name, path.name, status.st_size,
                status.st_mtime_ns, status.st_ctime_ns, status.st_ino,
            )
        )  # fmt: skip
    return found


def test_a_batch_gives_what_a_local_scan_gives(files: list[DumpFile]) -> None:
    local = Worker(load_readers(), ScanOptions())
    message = pack_batch(local.recipe, files)
    answers = [worker.examine(message) for _ in range(2)]
    for answer in answers:
        assert answer[:1] == RESULTS
        assert read_results(answer[1:], files) == local(files)
    (processes,) = worker._idle.values()
    assert len(processes) == 1, "the second batch went to the same process"


def test_a_process_that_ended_meanwhile_is_replaced(files: list[DumpFile]) -> None:
    local = Worker(load_readers(), ScanOptions())
    message = pack_batch(local.recipe, files)
    worker.examine(message)
    (processes,) = worker._idle.values()
    first = processes[0]
    first._process.kill()
    first._process.wait()
    assert read_results(worker.examine(message)[1:], files) == local(files)
    (processes,) = worker._idle.values()
    assert processes[0] is not first


def test_a_process_ends_when_there_is_nothing_to_do(
    files: list[DumpFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "LONGEST_IDLE_S", 0.2)
    worker.examine(pack_batch(Worker(load_readers(), ScanOptions()).recipe, files))
    (processes,) = worker._idle.values()
    assert processes[0]._process.wait(60) == 0


def test_a_worker_with_other_readers_says_so(files: list[DumpFile]) -> None:
    recipe = replace(Worker(load_readers(), ScanOptions()).recipe, signature="of another scan")
    answer = worker.examine(pack_batch(recipe, files))
    assert answer.startswith(OTHER_WORK + b"node1 (tcp://n1:1)\n")
    with pytest.raises(
        ClusterError, match=r"the worker node1 \(tcp://n1:1\) would not read as this program does"
    ):
        DaskExecutor._read(NOBODY, answer, files)


def test_a_worker_that_cannot_read_says_why(
    files: list[DumpFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = replace(Worker(load_readers(), ScanOptions()).recipe, factory="absent:make")
    answer = worker.examine(pack_batch(recipe, files))
    assert answer.startswith(FAILED + b"node1 (tcp://n1:1): a process to read files does not start")
    with pytest.raises(ClusterError, match=r"does not start \(exit status 1\)"):
        DaskExecutor._read(NOBODY, answer, files)


def test_a_process_that_is_killed_before_it_begins_is_replaced(
    files: list[DumpFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[WorkerProcess] = []

    def start(*arguments: Any) -> WorkerProcess:
        process = WorkerProcess(*arguments)
        if not started:
            process._process.kill()
        started.append(process)
        return process

    monkeypatch.setattr(isolation, "WorkerProcess", start)
    local = Worker(load_readers(), ScanOptions())
    answer = worker.examine(pack_batch(local.recipe, files))
    assert read_results(answer[1:], files) == local(files)
    assert len(started) == 2


def test_a_worker_describes_itself() -> None:
    said = worker.describe()
    assert said["host"] == "node1"
    assert said["readers"]["adump"].startswith("dumpscope ")
    assert pickle.loads(pickle.dumps(said)) == said
