"""Small files are shared out to processes, and nothing is lost with any of them."""

from __future__ import annotations

import gc
import io
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from dumpscope import processes, sharing
from dumpscope.model import DumpFile, FileResult, OpRecord, Place, ScanOptions
from dumpscope.processes import ResultUnpickler, WorkerProcess, can_start, dump_result
from dumpscope.scanning import scan_into
from dumpscope.sharing import MixedExecutor
from dumpscope.store import Store
from fixtures.encode import encode_dump, entry_of
from process_work import Echo, Numbering

PATIENCE_S = 60.0


@pytest.fixture(autouse=True)
def _start_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "ALONE_BATCHES", 1)


def dump_file(number: int, size: int = 1) -> DumpFile:
    return DumpFile(f"/d/{number}", f"{number}", f"{number}", size, 0, 0, number)


class Feed:
    """Batches until enough of them were done elsewhere, or patience is at its end."""

    def __init__(self, enough: int) -> None:
        self.enough = enough
        self.count = 0
        self.elsewhere: set[int] = set()

    def __iter__(self) -> Iterator[list[DumpFile]]:
        deadline = time.monotonic() + PATIENCE_S
        while len(self.elsewhere) < self.enough and time.monotonic() < deadline:
            yield [dump_file(self.count)]
            self.count += 1

    def run(self, work: Numbering, jobs: int = 2) -> list[int]:
        found = []
        with MixedExecutor(jobs) as executor:
            for ((process, number),) in executor.run(work, self):
                found.append(number)
                if process != os.getpid():
                    self.elsewhere.add(number)
        return found


def test_results_of_processes_come_in_order() -> None:
    feed = Feed(enough=20)
    assert feed.run(Numbering(os.getpid()), jobs=3) == list(range(feed.count))
    assert len(feed.elsewhere) >= 20


def test_batches_of_a_process_that_ended_are_done_again() -> None:
    # Every third batch ends the process that gets it.
    feed = Feed(enough=1)
    found = feed.run(Numbering(os.getpid(), fatal=-2), jobs=4)
    assert found == list(range(feed.count))


def test_what_fails_in_a_process_fails_here_too() -> None:
    work = Numbering(os.getpid(), failing=0)
    process = started(work)
    assert process.send([dump_file(0)])
    assert process.receive() == (False, None)
    assert not process.alive
    process.stop()


def test_a_process_that_does_other_work_is_not_used() -> None:
    work = Numbering(os.getpid(), signature="of another version")
    process = WorkerProcess(work.recipe)
    assert process.receive() == (False, f"from {os.getpid()}".encode())
    assert not process.alive
    assert not process.send([dump_file(0)])
    process.stop()


def test_files_and_places_come_back_as_those_that_were_sent() -> None:
    process = started(Echo())
    places = [Place(step=1), Place(step=2)]
    batch = [DumpFile(f"/{i}", f"{i}", f"{i}", 1, 0, 0, i, places[i // 2]) for i in range(4)]
    assert process.send(batch)
    (has_result, result) = process.receive()
    assert has_result
    pairs, new = cast("Any", result)
    assert [file is sent for (file, _), sent in zip(pairs, batch, strict=True)] == [True] * 4
    assert [place is sent.place for (_, place), sent in zip(pairs, batch, strict=True)] == [
        True
    ] * 4
    assert new == DumpFile("/n", "n", "n", 1, 2, 3, 4, Place(7))
    process.stop()


def started(work: Numbering | Echo) -> WorkerProcess:
    process = WorkerProcess(work.recipe)
    assert not process.send([dump_file(0)]), "it is not ready yet"
    assert process.receive() == (False, None)
    assert process.ready
    return process


def test_a_process_takes_two_batches_at_a_time() -> None:
    process = started(Numbering(os.getpid()))
    sent = [process.send([dump_file(number)]) for number in range(3)]
    assert sent == [True, True, False]
    received = [process.receive() for _ in range(2)]
    assert [[number for _, number in cast("Any", result)] for _, result in received] == [[0], [1]]
    assert process.send([dump_file(5)])
    process.stop()
    assert not process.alive


def test_a_batch_larger_than_the_pipe_waits_for_the_one_before() -> None:
    process = started(Numbering(os.getpid()))
    large = [DumpFile("/" + "x" * 3000 + str(i), "r", "n", 1, 0, 0, i) for i in range(600)]
    assert process.send(large)
    assert not process.send(large)
    assert process.receive()[0]
    assert process.send(large)
    assert process.receive()[0]
    process.stop()


def test_processes_end_with_the_executor() -> None:
    with MixedExecutor(3) as executor:
        list(executor.run(Numbering(os.getpid()), ([dump_file(i)] for i in range(4))))
        running = [process._process for process in executor._processes]
        assert len(running) == 2
    assert [process.poll() is None for process in running] == [False, False]


def test_a_program_that_cannot_be_started_again_does_all_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    assert not can_start()
    with MixedExecutor(2) as executor:
        batches = ([dump_file(number)] for number in range(50))
        done = list(executor.run(Numbering(os.getpid()), batches))
    assert done == [[(os.getpid(), number)] for number in range(50)]


def test_large_files_go_to_threads() -> None:
    work = Numbering(os.getpid())
    with MixedExecutor(2) as executor:
        batches = ([dump_file(number, 1 << 24)] for number in range(50))
        assert list(executor.run(work, batches)) == [[(os.getpid(), i)] for i in range(50)]
        assert not executor._processes


def test_scans_by_processes_are_the_same(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path_factory.mktemp("dump") / "20260109173000" / "0" / "net" / "1" / "0"
    root.mkdir(parents=True)
    for number in range(900):
        values = np.full((2, 3), number, np.float16)
        if number % 100 == 7:
            values[1, 2] = np.nan
        content = encode_dump(f"op{number}", [entry_of(values)], [entry_of(values * 2)])
        (root / f"Add.op{number}.{number}.2.{1767951000000000 + number}").write_bytes(content)
    (root / f"Add.short.1.2.{1767951000000000}").write_bytes(content[:-3])
    monkeypatch.setattr(processes, "_PIPE_BYTES", 1 << 17)
    found = []
    for jobs in (1, 3):
        path = tmp_path_factory.mktemp("store") / "scans.db"
        with Store.open(path) as store:
            scan_id = scan_into(store, root, ScanOptions(jobs=jobs))
            found.append((list(store.ops(scan_id)), list(store.failures(scan_id))))
    assert found[0] == found[1]
    assert len(found[0][0]) == 901


def test_results_are_gone_when_nobody_has_them(tmp_path: Path) -> None:
    place = Place(source=1, run="20260109173000", step=3, device_id=0)
    file = DumpFile(str(tmp_path / "a"), "a", "a", 8, 1, 2, 3, place)
    result = FileResult(file=file, ops=(OpRecord("Add", "add1", (), place=place),))
    sent = dump_result([result], [file])
    gc.collect()
    gc.disable()  # a scan of a million small files collects seldom
    try:
        loaded = ResultUnpickler(io.BytesIO(sent), [file]).load()
        assert loaded == [result]
        del loaded
        assert gc.collect() == 0
    finally:
        gc.enable()
