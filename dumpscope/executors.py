"""How the work on files is spread: here and now, or over threads.

An executor runs one function on batches of files and yields what it returned, in the order of
the batches. It never runs far ahead of who takes the results: at most a few batches a worker
are on their way, so neither a list of all files nor one of all results ever exists.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol, TypeVar

from dumpscope.errors import OptionsError
from dumpscope.model import DumpFile

__all__ = [
    "BATCH_BYTES",
    "BATCH_FILES",
    "Executor",
    "SerialExecutor",
    "ThreadExecutor",
    "batch_files",
    "count_jobs",
    "open_executor",
]

BATCH_FILES = 256
"""One task per small file makes two threads slower than one."""

BATCH_BYTES = 4 << 20
"""A batch ends once it holds this much, so that large files are shared out one by one."""

_AHEAD = 2

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

    def close(self) -> None:
        """Wait for what is running, and let the workers go."""


class SerialExecutor:
    """Does the work in the thread that asks for the results."""

    jobs = 1

    def run(
        self,
        work: Callable[[Sequence[DumpFile]], Result],
        batches: Iterable[Sequence[DumpFile]],
    ) -> Iterator[Result]:
        for batch in batches:
            yield work(batch)

    def close(self) -> None:
        pass

    def __enter__(self) -> SerialExecutor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ThreadExecutor:
    """Does the work in `jobs` threads. It pays where the work lets go of the interpreter."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self._pool = ThreadPoolExecutor(jobs, thread_name_prefix="dumpscope")

    def run(
        self,
        work: Callable[[Sequence[DumpFile]], Result],
        batches: Iterable[Sequence[DumpFile]],
    ) -> Iterator[Result]:
        waiting: deque[Future[Result]] = deque()
        try:
            for batch in batches:
                waiting.append(self._pool.submit(work, batch))
                if len(waiting) >= self.jobs * _AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def __enter__(self) -> ThreadExecutor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_executor(jobs: int | None = None) -> SerialExecutor | ThreadExecutor:
    """Make the executor for `--jobs N`; without a number one job for each core.

    Raises
    ------
    OptionsError
        `jobs` is less than 1.
    """
    count = count_jobs(jobs)
    return SerialExecutor() if count == 1 else ThreadExecutor(count)


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
    files: Iterable[DumpFile], *, max_files: int = BATCH_FILES, max_bytes: int = BATCH_BYTES
) -> Iterator[list[DumpFile]]:
    """Group consecutive files into batches of about the same amount of work.

    A batch has at most `max_files` files, and more than `max_bytes` bytes only when it is one
    file. The order stays.
    """
    batch: list[DumpFile] = []
    size = 0
    for file in files:
        if batch and (len(batch) >= max_files or size + file.size > max_bytes):
            yield batch
            batch, size = [], 0
        batch.append(file)
        size += file.size
    if batch:
        yield batch
