"""Sends batches of files to the workers of a dask cluster and takes the results in order.

dask gives a batch to another worker when the one that had it is lost. A batch that several
workers were lost with is split: its files are sent alone, one after the other and with nothing
beside them, so that the one which ends workers is found, named, and costs only those.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Any, TypeVar, cast

from dumpscope.closing import Closing
from dumpscope.cluster.connecting import Connection, call_text, connect
from dumpscope.cluster.results import (
    FAILED,
    OTHER_WORK,
    RESULTS,
    pack_batch,
    read_results,
)
from dumpscope.errors import ClusterError
from dumpscope.executors import BATCH_BYTES, BATCH_FILES, WAITING_BATCH_FILES, batch_files
from dumpscope.isolation import failed_file
from dumpscope.model import DumpFile, FileResult
from dumpscope.processes import Recipe, recipe_of

__all__ = ["DaskExecutor", "open_dask_executor"]

AHEAD = 3
"""So many batches for each thread of the workers are on their way: one waits while one is worked
on and one has its result taken."""

MOST_FILES_AHEAD = 1 << 16
"""So many files at most are on their way, whatever the size of the cluster: the scan holds their
names."""

GROWTH = 16
MOST_BATCH_BYTES = 1 << 30
"""Batches of large files grow up to this in steps of `GROWTH`, so that a large dump takes fewer of
them and a small one is still shared out."""

NO_WORKER_S = 120.0
"""How long to wait for another worker once all are lost."""

LOOK_EVERY_S = 5.0
"""How often to see how many workers there are."""

_TIMEOUTS = (TimeoutError, asyncio.TimeoutError)

Result = TypeVar("Result")


class _Ticket:
    """A batch on its way."""

    __slots__ = ("batch", "future")

    def __init__(self, batch: Sequence[DumpFile], future: Any) -> None:
        self.batch = batch
        self.future = future


class DaskExecutor(Closing):
    """Runs the work of a scan on the workers of a cluster.

    Parameters
    ----------
    connection
        The cluster.
    jobs
        How many batches its workers work on at the same time.
    most_files
        How many files a batch has at most.
    """

    def __init__(self, connection: Connection, jobs: int, most_files: int = BATCH_FILES) -> None:
        self.jobs = jobs
        self._most_files = most_files
        self._connection = connection
        self._client = connection.client
        self._looked_at = time.monotonic()

    def group(self, files: Iterable[DumpFile]) -> Iterator[list[DumpFile]]:
        """Group files into batches that begin small and grow."""
        sent = 0

        def limit_bytes() -> int:
            steps = sent // (self.jobs * AHEAD)
            return int(min(BATCH_BYTES * GROWTH ** min(steps, 8), MOST_BATCH_BYTES))

        for batch in batch_files(files, max_files=self._most_files, max_bytes=limit_bytes):
            sent += 1
            yield batch

    def run(
        self,
        work: Callable[[Sequence[DumpFile]], Result],
        batches: Iterable[Sequence[DumpFile]],
    ) -> Iterator[Result]:
        """Yield the results of the batches in their order; `work` needs a `recipe`."""
        recipe = recipe_of(work)
        waiting: deque[_Ticket] = deque()
        files = 0
        try:
            for batch in batches:
                waiting.append(_Ticket(batch, self._send(recipe, batch)))
                files += len(batch)
                while waiting and (
                    waiting[0].future.done()
                    or len(waiting) >= self.jobs * AHEAD
                    or files >= MOST_FILES_AHEAD
                ):
                    ticket = waiting.popleft()
                    files -= len(ticket.batch)
                    yield cast("Result", self._take(recipe, ticket))
                    self._count_workers()
            while waiting:
                yield cast("Result", self._take(recipe, waiting.popleft()))
        finally:
            self._cancel(waiting)

    def _count_workers(self) -> None:
        """See now and then whether workers have joined or left."""
        now = time.monotonic()
        if now >= self._looked_at + LOOK_EVERY_S:
            self._looked_at = now
            self.jobs = self._connection.count_threads() or 1

    def _send(self, recipe: Recipe, batch: Sequence[DumpFile]) -> Any:
        names = {"message": pack_batch(recipe, batch)}
        try:
            return self._client.submit(
                eval, call_text("examine", "message"), names, pure=False, key=None
            )
        except (OSError, RuntimeError) as error:
            raise self._connection.tell_lost() from error

    def _take(self, recipe: Recipe, ticket: _Ticket) -> list[FileResult]:
        """Wait for the results of a batch."""
        from distributed.scheduler import KilledWorker

        try:
            return self._read(self._wait(ticket.future), ticket.batch)
        except KilledWorker:
            return [self._examine_alone(recipe, file) for file in ticket.batch]

    def _examine_alone(self, recipe: Recipe, file: DumpFile) -> FileResult:
        from distributed.scheduler import KilledWorker

        try:
            return self._read(self._wait(self._send(recipe, [file])), [file])[0]
        except KilledWorker as error:
            return failed_file(
                file,
                ChildProcessError.__name__,
                f"the workers that read it were lost one after the other (the last was "
                f"{getattr(error.last_worker, 'address', error.last_worker)}), and it was set "
                "aside: `dumpscope scan` of this file alone shows why",
            )

    def _wait(self, future: Any) -> bytes:
        """Wait for an answer as long as there are workers.

        Raises
        ------
        ClusterError
            The scheduler is lost, there are no workers, or one of them failed.
        KilledWorker
            Too many workers were lost with this batch.
        """
        from distributed.scheduler import KilledWorker

        while True:
            try:
                answer: object = future.result(timeout=LOOK_EVERY_S)
            except _TIMEOUTS:
                if future.status == "pending":
                    self.jobs = self._connection.await_worker(NO_WORKER_S)
            except KilledWorker:
                raise
            except (CancelledError, asyncio.CancelledError) as error:
                raise self._connection.tell_lost() from error
            except Exception as error:
                if future.status != "error":
                    raise self._connection.tell_lost() from error
                raise ClusterError(
                    f"a worker failed ({type(error).__name__}: {error}): make sure that the same "
                    "dumpscope can be imported on every worker"
                ) from error
            else:
                if isinstance(answer, bytes):
                    return answer
                raise ClusterError("a worker sent something else than results")

    def _read(self, answer: bytes, batch: Sequence[DumpFile]) -> list[FileResult]:
        kind, content = answer[:1], answer[1:]
        if kind == RESULTS:
            return read_results(content, batch)
        text = content.decode("utf-8", "surrogatepass")
        if kind == OTHER_WORK:
            worker, _, signature = text.partition("\n")
            raise ClusterError(
                f"the worker {worker} would not read as this program does: its dumpscope or "
                f"readers are others (there: {signature}): install the same on both and go on with "
                "`dumpscope scan --resume`"
            )
        if kind == FAILED:
            raise ClusterError(f"the worker {text}")
        raise ClusterError("a worker sent something else than results")

    def _cancel(self, waiting: Iterable[_Ticket]) -> None:
        futures = [ticket.future for ticket in waiting]
        if futures and not self._connection.lost:
            with suppress(OSError, RuntimeError, *_TIMEOUTS):
                self._client.cancel(futures)

    def close(self) -> None:
        """Let go of the cluster."""
        self._connection.close()


def open_dask_executor(scheduler: str | None, jobs: int, *, waits: bool = False) -> DaskExecutor:
    """Reach a cluster, or start one of `jobs` processes on this machine without a `scheduler`.

    `waits` says that the work is mostly waiting for a storage.

    Raises
    ------
    OptionsError
        `distributed` is not installed.
    ClusterError
        There is no such scheduler, it has no workers, or they differ from this program.
    """
    connection, threads = connect(scheduler, jobs)
    return DaskExecutor(connection, threads, WAITING_BATCH_FILES if waits else BATCH_FILES)
