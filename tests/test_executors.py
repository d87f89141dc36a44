"""Executors: every batch once, in order, not far ahead, and faults where they belong."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Generator, Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dumpscope.errors import OptionsError
from dumpscope.executors import (
    BATCH_BYTES,
    BATCH_FILES,
    Executor,
    SerialExecutor,
    ThreadExecutor,
    batch_files,
    count_jobs,
)
from dumpscope.model import DumpFile
from dumpscope.sharing import MixedExecutor, open_executor

PATIENCE_S = 30.0


def dump_file(number: int, size: int = 1) -> DumpFile:
    return DumpFile(f"/d/{number}", f"{number}", f"{number}", size, 0, 0, number)


def batches_of(count: int) -> Iterator[list[DumpFile]]:
    return ([dump_file(number)] for number in range(count))


def numbers(batch: Sequence[DumpFile]) -> list[int]:
    return [file.inode for file in batch]


@pytest.fixture(params=[1, 2, 5])
def executor(request: pytest.FixtureRequest) -> Iterator[Executor]:
    with open_executor(request.param) as opened:
        yield opened


def test_results_come_in_the_order_of_the_batches(executor: Executor) -> None:
    assert list(executor.run(numbers, batches_of(100))) == [[i] for i in range(100)]
    assert list(executor.run(numbers, batches_of(0))) == []


def test_order_stays_when_later_batches_are_done_first() -> None:
    second_done = threading.Event()

    def work(batch: Sequence[DumpFile]) -> int:
        (number,) = numbers(batch)
        if number == 0:
            assert second_done.wait(PATIENCE_S)
        elif number == 1:
            second_done.set()
        return number

    with ThreadExecutor(2) as executor:
        assert list(executor.run(work, batches_of(6))) == list(range(6))


def test_threads_work_at_the_same_time() -> None:
    both = threading.Barrier(2, timeout=PATIENCE_S)
    with ThreadExecutor(2) as executor:
        # Each waits for another: one thread alone would never come to an end.
        assert len(list(executor.run(lambda _: both.wait(), batches_of(8)))) == 8


def test_batches_are_asked_from_the_thread_that_takes_the_results(executor: Executor) -> None:
    asked: set[int] = set()

    def batches() -> Iterator[list[DumpFile]]:
        for batch in batches_of(20):
            asked.add(threading.get_ident())
            yield batch

    assert len(list(executor.run(numbers, batches()))) == 20
    assert asked == {threading.get_ident()}


def test_no_more_than_a_few_batches_are_on_their_way(executor: Executor) -> None:
    begun = taken = furthest = 0

    def batches() -> Iterator[list[DumpFile]]:
        nonlocal begun, furthest
        for batch in batches_of(200):
            begun += 1
            furthest = max(furthest, begun - taken)
            yield batch

    for _ in executor.run(numbers, batches()):
        taken += 1
    assert taken == 200
    assert furthest <= 2 * executor.jobs


def test_what_the_work_raises_comes_out_at_its_place(executor: Executor) -> None:
    def work(batch: Sequence[DumpFile]) -> int:
        (number,) = numbers(batch)
        if number == 3:
            raise ZeroDivisionError("batch 3")
        return number

    results = executor.run(work, batches_of(50))
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ZeroDivisionError, match="batch 3"):
        next(results)
    # The executor is good for more.
    assert list(executor.run(numbers, batches_of(2))) == [[0], [1]]


def test_what_asking_for_batches_raises_comes_out(executor: Executor) -> None:
    def batches() -> Iterator[list[DumpFile]]:
        yield [dump_file(0)]
        raise LookupError("walk")

    with pytest.raises(LookupError, match="walk"):
        list(executor.run(numbers, batches()))


def test_leaving_in_the_middle_begins_nothing_more() -> None:
    done: list[int] = []
    with ThreadExecutor(2) as executor:
        results = executor.run(lambda batch: done.extend(numbers(batch)), batches_of(1000))
        assert isinstance(results, Generator)
        next(results)
        results.close()
    assert len(done) <= 2 * 2 + 1


def test_an_interrupt_leaves_the_executor_closed() -> None:
    def interrupt(_: list[int]) -> None:
        raise KeyboardInterrupt

    executor = ThreadExecutor(2)
    with pytest.raises(KeyboardInterrupt), executor:
        list(map(interrupt, executor.run(numbers, batches_of(10))))
    with pytest.raises(RuntimeError, match="shutdown"):
        list(executor.run(numbers, batches_of(1)))


def test_without_a_number_there_is_a_job_for_each_usable_core(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {2, 5, 7}, raising=False)
    assert count_jobs(None) == 3
    assert count_jobs(12) == 12
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert count_jobs(None) == 1
    with open_executor(None) as executor:
        assert isinstance(executor, SerialExecutor)


@pytest.mark.parametrize("jobs", [0, -1])
def test_less_than_one_job_is_no_number_of_jobs(jobs: int) -> None:
    with pytest.raises(OptionsError, match=f"--jobs: expected a number of 1 or more, found {jobs}"):
        open_executor(jobs)


@given(
    sizes=st.lists(st.integers(0, 30) | st.just(10**12), max_size=60),
    max_files=st.integers(1, 8),
    max_bytes=st.integers(1, 100),
)
def test_batches_hold_every_file_once_and_not_too_much(
    sizes: list[int], max_files: int, max_bytes: int
) -> None:
    files = [dump_file(i, size) for i, size in enumerate(sizes)]
    batches = list(batch_files(iter(files), max_files=max_files, max_bytes=max_bytes))
    assert [file for batch in batches for file in batch] == files
    for batch in batches:
        assert 0 < len(batch) <= max_files
        assert len(batch) == 1 or sum(file.size for file in batch) <= max_bytes
    for batch, following in itertools.pairwise(batches):
        # No batch ends early.
        total = sum(file.size for file in batch) + following[0].size
        assert len(batch) == max_files or total > max_bytes


def test_small_files_go_in_hundreds_and_large_ones_alone() -> None:
    small = [len(b) for b in batch_files(dump_file(i, 8192) for i in range(1000))]
    assert small == [BATCH_FILES, BATCH_FILES, BATCH_FILES, 1000 - 3 * BATCH_FILES]
    large = [len(b) for b in batch_files(dump_file(i, BATCH_BYTES) for i in range(5))]
    assert large == [1, 1, 1, 1, 1]


def test_batches_are_made_as_they_are_asked_for() -> None:
    endless = (dump_file(0) for _ in iter(int, 1))
    assert len(next(batch_files(endless, max_files=7))) == 7


@pytest.mark.parametrize("limit", [0, 1])
@pytest.mark.parametrize("kind", [ThreadExecutor, MixedExecutor])
def test_without_room_for_threads_everything_is_done(
    kind: type[ThreadExecutor | MixedExecutor], limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = 0
    start = threading.Thread.start

    def start_few(thread: threading.Thread) -> None:
        nonlocal started
        if started == limit:
            raise RuntimeError("can't start new thread")
        started += 1
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_few)
    large = [DumpFile("/d", "d", "d", 1 << 22, 0, 0, n) for n in range(20)]
    with kind(8) as executor:
        found = list(executor.run(lambda batch: batch[0].inode, ([file] for file in large)))
    assert found == list(range(20))
    assert started == limit
