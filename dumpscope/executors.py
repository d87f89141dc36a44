"""How the work on files is spread: here and now, over threads, or over processes.

An executor runs one function on batches of files and yields what it returned, in the order of
the batches. It never runs far ahead of who takes the results: at most a few batches a worker
are on their way, so neither a list of all files nor one of all results ever exists.
"""

from __future__ import annotations

import os
import selectors
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar, cast

from dumpscope.errors import OptionsError
from dumpscope.model import DumpFile
from dumpscope.processes import Recipe, WorkerProcess, can_start

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

__all__ = [
    "BATCH_BYTES",
    "BATCH_FILES",
    "Executor",
    "MixedExecutor",
    "SerialExecutor",
    "ThreadExecutor",
    "WAITING_BATCH_FILES",
    "batch_files",
    "count_jobs",
    "open_executor",
]

BATCH_FILES = 256
"""One task per small file makes two threads slower than one."""

WAITING_BATCH_FILES = 16
"""So many where each takes a request: what counts then is how many are asked for together."""

WAITING_JOBS = 8
"""Workers that mostly wait for requests are more than cores, unless a number is given."""

BATCH_BYTES = 4 << 20
"""A batch ends once it holds this much, so that large files are shared out one by one."""

LARGE_FILE_BYTES = 1 << 19
"""Files of this size keep the processor busy with their bytes, smaller ones with Python."""

ALONE_BATCHES = 8
"""So many batches of small files are done before processes are started for more of them. Each
takes about half a second of processor time to start, on another core, so they are for trees of
thousands of files and more."""

MOST_PROCESSES = 3
"""What one thread can walk, take back and store, two processes can examine: more would wait."""

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

    def group(self, files: Iterable[DumpFile]) -> Iterator[list[DumpFile]]:
        """Group files into the batches that suit it."""

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

    def group(self, files: Iterable[DumpFile]) -> Iterator[list[DumpFile]]:
        return batch_files(files)

    def close(self) -> None:
        pass

    def __enter__(self) -> SerialExecutor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ThreadExecutor:
    """Does the work in `jobs` threads. It pays where the work lets go of the interpreter.

    `most_files` is how many files a batch has at most.
    """

    def __init__(self, jobs: int, most_files: int = BATCH_FILES) -> None:
        self.jobs = jobs
        self._most_files = most_files
        self._pool = _start_threads(jobs)

    def run(
        self,
        work: Callable[[Sequence[DumpFile]], Result],
        batches: Iterable[Sequence[DumpFile]],
    ) -> Iterator[Result]:
        waiting: deque[Future[Result]] = deque()
        try:
            for batch in batches:
                waiting.append(_submit(self._pool, work, batch))
                if len(waiting) >= self.jobs * _AHEAD:
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

    def __enter__(self) -> ThreadExecutor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Ticket(Generic[Result]):
    """A batch on its way. `lost` says that the process that had it is no more."""

    __slots__ = ("batch", "future", "in_thread", "lost")

    def __init__(self, batch: Sequence[DumpFile]) -> None:
        self.batch = batch
        self.future: Future[Result] = _new_future()
        self.in_thread = False
        self.lost = False


_Sent = dict[WorkerProcess, deque[_Ticket[Result]]]


class MixedExecutor:
    """Takes threads for large files, and processes for many small ones.

    Threads pay where the work lets go of the interpreter, that is for large files. Small ones
    are worked on in the thread that asks for the results, and once there are very many of them in
    a few processes too (see `processes`), where the work has a `recipe`.
    """

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self._pool = _start_threads(jobs)
        self._processes: list[WorkerProcess] = []
        self._selector = selectors.DefaultSelector()
        self._done_here = 0

    def run(
        self,
        work: Callable[[Sequence[DumpFile]], Result],
        batches: Iterable[Sequence[DumpFile]],
    ) -> Iterator[Result]:
        waiting: deque[_Ticket[Result]] = deque()
        sent: _Sent[Result] = {}
        try:
            for batch in batches:
                waiting.append(self._begin(work, batch, sent))
                while waiting and (waiting[0].future.done() or len(waiting) >= self.jobs * _AHEAD):
                    yield self._finish(work, waiting.popleft(), sent)
            while waiting:
                yield self._finish(work, waiting.popleft(), sent)
        finally:
            for ticket in waiting:
                ticket.future.cancel()
            for process, tickets in sent.items():
                if tickets:
                    self._dismiss(process)

    def _begin(
        self,
        work: Callable[[Sequence[DumpFile]], Result],
        batch: Sequence[DumpFile],
        sent: _Sent[Result],
    ) -> _Ticket[Result]:
        """Give a batch to whom it suits best."""
        ticket = _Ticket[Result](batch)
        if sum(file.size for file in batch) >= len(batch) * LARGE_FILE_BYTES:
            ticket.future = _submit(self._pool, work, batch)
            ticket.in_thread = True
            return ticket
        self._collect(sent, 0)
        for process in sorted(self._processes, key=_count_waiting):
            if process.send(batch):
                sent.setdefault(process, deque()).append(ticket)
                return ticket
        try:
            ticket.future.set_result(work(batch))
        except Exception as error:  # noqa: BLE001 - it is raised again at the batch's place
            ticket.future.set_exception(error)
        self._done_here += 1
        if self._done_here == ALONE_BATCHES:
            self._start_processes(getattr(work, "recipe", None))
        return ticket

    def _finish(
        self,
        work: Callable[[Sequence[DumpFile]], Result],
        ticket: _Ticket[Result],
        sent: _Sent[Result],
    ) -> Result:
        """Wait for a batch, or do what was lost."""
        while not (ticket.in_thread or ticket.future.done()):
            if ticket.lost:
                return work(ticket.batch)
            self._collect(sent, None)
        return ticket.future.result()

    def _collect(self, sent: _Sent[Result], timeout_s: float | None) -> None:
        """Take what the processes have to say, waiting for it at most `timeout_s`."""
        if not self._processes:
            return
        for key, _ in self._selector.select(timeout_s):
            process: WorkerProcess = key.data
            has_result, result = process.receive()
            if has_result:
                sent[process].popleft().future.set_result(cast("Result", result))
            elif not process.alive:
                for ticket in sent.pop(process, ()):
                    ticket.lost = True
                self._dismiss(process)

    def _start_processes(self, recipe: Recipe | None) -> None:
        if recipe is None or not can_start():
            return
        for _ in range(min(self.jobs - 1, MOST_PROCESSES)):
            try:
                process = WorkerProcess(recipe)
            except OSError:  # no room for more of them: then without
                return
            self._processes.append(process)
            self._selector.register(process.fileno(), selectors.EVENT_READ, process)

    def _dismiss(self, process: WorkerProcess) -> None:
        self._processes.remove(process)
        self._selector.unregister(process.fileno())
        process.stop()

    def group(self, files: Iterable[DumpFile]) -> Iterator[list[DumpFile]]:
        return batch_files(files)

    def close(self) -> None:
        for process in list(self._processes):
            self._dismiss(process)
        self._selector.close()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def __enter__(self) -> MixedExecutor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _start_threads(jobs: int) -> ThreadPoolExecutor:
    # Imported here, as in `_new_future`: a scan that has nothing to read needs neither.
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(jobs, thread_name_prefix="dumpscope")


def _new_future() -> Future[Result]:
    from concurrent.futures import Future

    return Future()


def _submit(
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
        done: Future[Result] = _new_future()
        try:
            done.set_result(work(batch))
        except Exception as error:  # noqa: BLE001 - it is raised again at the batch's place
            done.set_exception(error)
        return done


def _count_waiting(process: WorkerProcess) -> int:
    return process.waiting


def open_executor(
    jobs: int | None = None, *, waits: bool = False
) -> SerialExecutor | ThreadExecutor | MixedExecutor:
    """Make the executor for `--jobs N`; without a number one job for each core.

    `waits` says that the work is mostly waiting for a storage: then threads do it, and without a
    number there are at least `WAITING_JOBS` of them.

    Raises
    ------
    OptionsError
        `jobs` is less than 1.
    """
    count = count_jobs(jobs)
    if waits:
        threads = max(count, WAITING_JOBS) if jobs is None else count
        return ThreadExecutor(threads, WAITING_BATCH_FILES)
    return SerialExecutor() if count == 1 else MixedExecutor(count)


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
