"""How a scan of this machine shares out its files: over threads, and over processes.

A file may end the process that reads it. Where that is a process that was started to help, the
file is found and set aside; where it is the scanning one, nothing can be done but to have the next
scan of the same tree read apart (`Store.was_hurt`).
"""

from __future__ import annotations

import selectors
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import Generic, TypeVar, cast

from dumpscope.closing import Closing
from dumpscope.errors import LostProcessesError
from dumpscope.executors import (
    AHEAD,
    WAITING_BATCH_FILES,
    SerialExecutor,
    ThreadExecutor,
    batch_files,
    count_jobs,
    do_now,
    start_threads,
    submit,
)
from dumpscope.isolation import MOST_TRIES, Isolation, NotReadyError
from dumpscope.model import DumpFile
from dumpscope.processes import Recipe, WorkerProcess, can_start

__all__ = ["MixedExecutor", "open_executor"]

WAITING_JOBS = 8
"""Workers that mostly wait for requests are more than cores, unless a number is given."""

LARGE_FILE_BYTES = 1 << 19
"""Files of this size keep the processor busy with their bytes, smaller ones with Python."""

ALONE_BATCHES = 4
"""So many batches of small files are done before processes are started for more of them. Each
takes about a quarter of a second to start, on another core, so they are for trees of thousands of
files."""

MOST_PROCESSES = 3
"""What one thread can walk, take back and store, two processes can examine: more would wait."""

MOST_LOST = 300
FILES_FOR_ONE_MORE = 1000
"""So many processes may end over files, three for each file that does this, and one more for every
thousand files: a scan nearly all of whose files do it comes to an end soon."""

Result = TypeVar("Result")


class _Ticket(Generic[Result]):
    """A batch on its way.

    `lost` says that the process that had it is no more, `raised` that its work raised something.
    """

    __slots__ = ("batch", "future", "in_thread", "lost", "raised")

    def __init__(self, batch: Sequence[DumpFile]) -> None:
        self.batch = batch
        self.future: Future[Result] = Future()
        self.in_thread = False
        self.lost = self.raised = False


_Sent = dict[WorkerProcess, deque[_Ticket[Result]]]


class MixedExecutor(Closing):
    """Takes threads for large files, and processes for many small ones.

    Threads pay where the work lets go of the interpreter, that is for large files. Small ones
    are worked on in the thread that asks for the results, and once there are very many of them in
    a few processes too (see `processes`), where the work has a `recipe`; then it returns a list
    with one result for each file.

    A batch with which a process was lost is read one file at a time (see `isolation`), and from
    then on processes read everything, so that the next such file does not end this one.

    Parameters
    ----------
    jobs
        How many batches are worked on at the same time.
    apart
        Have processes read everything from the beginning.
    """

    def __init__(self, jobs: int, *, apart: bool = False) -> None:
        self.jobs = jobs
        self._apart = apart
        self._pool = start_threads(jobs)
        self._processes: list[WorkerProcess] = []
        self._selector = selectors.DefaultSelector()
        self._isolation: Isolation | None = None
        self._done_here = self._files_done = self._not_started = self._lost = 0

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
                while waiting and (waiting[0].future.done() or len(waiting) >= self.jobs * AHEAD):
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
        large = sum(file.size for file in batch) >= len(batch) * LARGE_FILE_BYTES
        if large and not self._apart:
            ticket.future = submit(self._pool, work, batch)
            ticket.in_thread = True
            return ticket
        self._collect(sent, 0)
        recipe: Recipe | None = getattr(work, "recipe", None)
        if self._send(ticket, sent):
            return ticket
        while self._apart:
            if len(self._processes) < (self.jobs if large else min(self.jobs, MOST_PROCESSES)):
                self._start_process(recipe)
            if not self._processes:
                break  # none can be started: then this process reads, and a file may end it
            self._collect(sent, None)
            if self._send(ticket, sent):
                return ticket
        ticket.future = do_now(work, batch)
        self._done_here += 1
        if self._done_here == ALONE_BATCHES:
            for _ in range(min(self.jobs - 1, MOST_PROCESSES)):
                self._start_process(recipe)
        return ticket

    def _send(self, ticket: _Ticket[Result], sent: _Sent[Result]) -> bool:
        """Give a batch to a process that has not enough to do."""
        for process in sorted(self._processes, key=_count_waiting):
            if process.send(ticket.batch):
                sent.setdefault(process, deque()).append(ticket)
                return True
        return False

    def _finish(
        self,
        work: Callable[[Sequence[DumpFile]], Result],
        ticket: _Ticket[Result],
        sent: _Sent[Result],
    ) -> Result:
        """Wait for a batch, or have it done again when it was lost."""
        self._files_done += len(ticket.batch)
        while not (ticket.in_thread or ticket.future.done()):
            if ticket.raised:
                return work(ticket.batch)
            if ticket.lost:
                return self._isolate(work, ticket.batch)
            self._collect(sent, None)
        return ticket.future.result()

    def _isolate(
        self, work: Callable[[Sequence[DumpFile]], Result], batch: Sequence[DumpFile]
    ) -> Result:
        """Read a batch with which a process was lost one file at a time."""
        isolation = self._isolation = self._isolation or Isolation(work)
        results = []
        for file in batch:
            try:
                results.append(isolation.examine(file))
            except (NotReadyError, OSError):
                # No process can be started: then this one reads, and a file may end it.
                return work(batch)
            self._check_lost(isolation)
        return cast("Result", results)

    def _check_lost(self, isolation: Isolation) -> None:
        """Give up where nearly everything ends the processes that read it."""
        lost = self._lost + isolation.lost
        if lost > MOST_LOST + self._files_done // FILES_FOR_ONE_MORE:
            raise LostProcessesError(
                f"{lost} processes ended over the files that they read (the last of these files: "
                f"{isolation.last}): update or uninstall their reader (`dumpscope readers` lists "
                "all), see whether the machine has memory left, and go on with `dumpscope scan "
                "--resume`"
            )

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
                self._take_back(process, sent.pop(process, ()))
                self._dismiss(process)

    def _take_back(self, process: WorkerProcess, tickets: Sequence[_Ticket[Result]]) -> None:
        """Note what a process left undone that is no more."""
        for ticket in tickets:
            ticket.lost = True
        if process.raised:
            tickets[0].raised = True
        elif process.ready:
            self._lost += 1
            self._apart = True
        else:
            self._not_started += 1

    def _start_process(self, recipe: Recipe | None) -> None:
        """Start one more process, if that is possible."""
        if recipe is None or self._not_started >= MOST_TRIES or not can_start():
            return
        try:
            process = WorkerProcess(recipe)
        except OSError:  # no room for more of them: then without
            self._not_started = MOST_TRIES
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
        if self._isolation is not None:
            self._isolation.close()
        self._selector.close()
        self._pool.shutdown(wait=True, cancel_futures=True)


def _count_waiting(process: WorkerProcess) -> int:
    return process.waiting


def open_executor(
    jobs: int | None = None, *, waits: bool = False, apart: bool = False
) -> SerialExecutor | ThreadExecutor | MixedExecutor:
    """Make the executor for `--jobs N`; without a number one job for each core.

    `waits` says that the work is mostly waiting for a storage: then threads do it, and without a
    number there are at least `WAITING_JOBS` of them. `apart` says that this process had better not
    read itself, because it may not survive it; threads do so all the same.

    Raises
    ------
    OptionsError
        `jobs` is less than 1.
    """
    count = count_jobs(jobs)
    if waits:
        threads = max(count, WAITING_JOBS) if jobs is None else count
        return ThreadExecutor(threads, WAITING_BATCH_FILES)
    return SerialExecutor() if count == 1 and not apart else MixedExecutor(count, apart=apart)
