"""How the work on files is spread: what an executor is, and how files are put into batches.

An executor runs one function on batches of files and yields what it returned, in the order of
the batches. It never runs far ahead of who takes the results: at most a few batches a worker
are on their way, so neither a list of all files nor one of all results ever exists.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from dumpscope.closing import Closing
from dumpscope.errors import OptionsError
from dumpscope.model import DumpFile

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

__all__ = [
    "AHEAD",
    "BATCH_BYTES",
    "BATCH_FILES",
    "Executor",
    "SerialExecutor",
    "ThreadExecutor",
    "WAITING_BATCH_FILES",
    "batch_files",
    "count_jobs",
    "do_now",
    "start_threads",
    "submit",
]

BATCH_FILES = 256
"""One task per small file makes two threads slower than one."""

WAITING_BATCH_FILES = 16
"""So many where each takes a request: what counts then is how many are asked for together."""

BATCH_BYTES = 4 << 20
"""A batch ends once it holds this much, so that large files are shared out one by one."""

AHEAD = 2

Result = TypeVar("Result")


class Executor(Protocol):
    """What a scan needs of an executor. `jobs` is how many batches run at the same time."""

    jobs: int

    def run(
        self,
        work: Callable[[Sequence[DumpFile]], Result],
        batches: Iterable[Sequence[DumpFile]],
    ) -> Iterator[Result]:
        """Yield `work(batch)` for each batch, in their order.

        `batches` is only asked from the thread that takes the results. What `work` raises comes
        out at the place of its batch. Closing the iterator drops what was not begun.
        """

    def group(self, files: Iterable[DumpFile]) -> Iterator[list[DumpFile]]:
        """Group files into the batches that suit it."""

    def close(self) -> None:
        """Wait for what is running, and let the workers go."""


class SerialExecutor(Closing):
    """Does the work in the thread that asks for the results."""

    jobs = 1

    def run(
        self,
        work: Callable[[Sequence[DumpFile]], Result],
        batches: Iterable[Sequence[DumpFile]],
    ) -> Iterator[Result]:
        for batch in batches:
            yield work(batch)

    def group(self, files: Iterable[DumpFile]) -> Iterator[list[DumpFile]]:
        return batch_files(files)

    def close(self) -> None:
        pass


class ThreadExecutor(Closing):
    """Does the work in `jobs` threads. It pays where the work lets go of the interpreter.

    `most_files` is how many files a batch has at most.
    """

    def __init__(self, jobs: int, most_files: int = BATCH_FILES) -> None:
        self.jobs = jobs
        self._most_files = most_files
        self._pool = start_threads(jobs)

    def run(
        self,
        work: Callable[[Sequence[DumpFile]], Result],
        batches: Iterable[Sequence[DumpFile]],
    ) -> Iterator[Result]:
        waiting: deque[Future[Result]] = deque()
        try:
            for batch in batches:
                waiting.append(submit(self._pool, work, batch))
                if len(waiting) >= self.jobs * AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()

    def group(self, files: Iterable[DumpFile]) -> Iterator[list[DumpFile]]:
        return batch_files(files, max_files=self._most_files)

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)


def start_threads(jobs: int) -> ThreadPoolExecutor:
    """Make the threads that do the work."""
    # Imported here, as below: a scan that has nothing to read needs neither.
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(jobs, thread_name_prefix="dumpscope")


def submit(
    pool: ThreadPoolExecutor,
    work: Callable[[Sequence[DumpFile]], Result],
    batch: Sequence[DumpFile],
) -> Future[Result]:
    """Give a batch to the threads; where the system has no more of them, do it here."""
    try:
        return pool.submit(work, batch)
    except RuntimeError as full:
        if "new thread" not in str(full):  # the pool is closed
            raise
        # The threads that there are may do it as well: that changes nothing.
        return do_now(work, batch)


def do_now(
    work: Callable[[Sequence[DumpFile]], Result], batch: Sequence[DumpFile]
) -> Future[Result]:
    """Do the work on a batch; what it raises is raised where its result is asked for."""
    from concurrent.futures import Future

    done: Future[Result] = Future()
    try:
        done.set_result(work(batch))
    except Exception as error:  # noqa: BLE001 - it is raised again at the batch's place
        done.set_exception(error)
    return done


def count_jobs(jobs: int | None) -> int:
    """Say how many jobs are meant: the cores this process may use where `jobs` is `None`."""
    if jobs is None:
        if hasattr(os, "sched_getaffinity"):
            return len(os.sched_getaffinity(0))
        return os.cpu_count() or 1
    if jobs < 1:
        raise OptionsError(f"--jobs: expected a number of 1 or more, found {jobs}")
    return jobs


def batch_files(
    files: Iterable[DumpFile],
    *,
    max_files: int = BATCH_FILES,
    max_bytes: int | Callable[[], int] = BATCH_BYTES,
) -> Iterator[list[DumpFile]]:
    """Group consecutive files into batches of about the same amount of work.

    A batch has at most `max_files` files, and more than `max_bytes` bytes only when it is one
    file. The order stays. A function in the place of `max_bytes` is asked for every batch anew.
    """
    batch: list[DumpFile] = []
    size = 0
    limit = max_bytes() if callable(max_bytes) else max_bytes
    for file in files:
        if batch and (len(batch) >= max_files or size + file.size > limit):
            yield batch
            batch, size = [], 0
            if callable(max_bytes):
                limit = max_bytes()
        batch.append(file)
        size += file.size
    if batch:
        yield batch
