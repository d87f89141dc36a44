"""Finding the cluster, and making sure before a scan that its workers would do the same.

Workers are asked by an expression made of Python's own names: what a worker cannot import then
comes back as an error. A function of dumpscope's would be lost with a worker that has none.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from typing import Any

from dumpscope.errors import ClusterError, OptionsError

__all__ = ["CONNECT_S", "Connection", "call_text", "connect", "say_difference"]

CONNECT_S = 30.0
"""How long a scheduler may take to answer."""

_LONGEST_GREETING_S = 5.0
"""How much later than that it may be, since the library does not count the first words."""

FIRST_WORKER_S = 60.0
"""How long to wait for the first worker of a cluster that has none."""

ANSWER_S = 120.0
"""How long a busy scheduler may take to say which workers it has. One that is stopped, or whose
machine hangs, keeps its connections."""

MOST_PER_CORE = 4
"""So many workers at most for each core, when the cluster is made for the scan."""

_LOOK_EVERY_S = 0.5
_GONE = (OSError, RuntimeError, ValueError, TimeoutError, asyncio.TimeoutError)
"""What calls of a client raise whose scheduler is gone."""

_MISSING = 'the executor dask needs a library that is not there: pip install "dumpscope[dask]"'


def call_text(function: str, arguments: str = "") -> str:
    """Write the expression that calls a function of `dumpscope.cluster.worker`."""
    module = "__import__('dumpscope.cluster.worker', fromlist=['worker'])"
    return f"{module}.{function}({arguments})"


class Connection:
    """A client of a scheduler, and the cluster when it was made for this scan.

    Parameters
    ----------
    scheduler
        Address of the scheduler or its scheduler file; without one there is a cluster of
        processes on this machine, which ends with the connection.
    jobs
        How many workers such a cluster gets.

    Raises
    ------
    OptionsError
        `distributed` is not installed.
    ClusterError
        The scheduler does not answer.
    """

    client: Any  # what distributed says of its types differs from version to version

    def __init__(self, scheduler: str | None, jobs: int) -> None:
        try:
            import distributed
        except ImportError as error:
            raise OptionsError(_MISSING) from error
        # A lost connection is told in one sentence, not in the log of a library.
        self._levels = {logger: logger.level for logger in _loggers_of("distributed")}
        for logger in self._levels:
            logger.setLevel(logging.CRITICAL)
        self._cluster: Any = None
        self.lost = False
        try:
            if scheduler is None:
                self.client = self._start(distributed, jobs)
            else:
                self.client = _find(distributed, scheduler)
        except BaseException:
            self._end_cluster()
            raise
        self.address: str = scheduler or "of this machine"

    def _start(self, distributed: Any, jobs: int) -> Any:
        with warnings.catch_warnings(), _without_interrupts():
            warnings.simplefilter("ignore")  # the port of a page that nobody asked for is taken
            self._cluster = distributed.LocalCluster(
                n_workers=min(jobs, MOST_PER_CORE * (os.cpu_count() or 1)),
                threads_per_worker=1,
                processes=True,
                host="127.0.0.1",
                dashboard_address=None,
                memory_limit=0,  # workers hold little, their own processes at most a block
                silence_logs=logging.CRITICAL,
            )
        return distributed.Client(self._cluster, set_as_default=False)

    def count_threads(self) -> int:
        """How many batches the workers work on at the same time; 0 without workers.

        Raises `ClusterError` when the scheduler is lost.
        """
        try:
            ask = self.client.scheduler.ncores
            threads: dict[str, int] = self.client.sync(ask, callback_timeout=ANSWER_S)
            return sum(threads.values())
        except _GONE as error:
            raise self.tell_lost() from error

    def await_worker(self, patience_s: float) -> int:
        """Wait until there is a worker, and count like `count_threads`.

        Raises `ClusterError` when there is none after `patience_s`.
        """
        deadline = time.monotonic() + patience_s
        while not (threads := self.count_threads()):
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"the scheduler {self.address} has had no worker for {patience_s:.0f} s: start "
                    "some (dask worker ADDRESS) and scan again with --resume"
                )
            time.sleep(_LOOK_EVERY_S)
        return threads

    def compare_workers(self) -> None:
        """Refuse workers that would not do what this program does.

        Raises
        ------
        ClusterError
            A worker has no dumpscope, another version of it, or other readers.
        """
        from dumpscope.cluster.worker import describe

        here = describe()
        try:
            answers = self.client.run(eval, call_text("describe"), on_error="return")
        except _GONE as error:
            raise self.tell_lost() from error
        for address, there in sorted(answers.items()):
            difference = say_difference(here, there)
            if difference is not None:
                raise ClusterError(f"the worker {address} {difference}")

    def tell_lost(self) -> ClusterError:
        """Make the error for a scheduler that is gone."""
        self.lost = True
        return ClusterError(
            f"the connection to the dask scheduler {self.address} is lost; what was read so far is "
            "kept: start it again and go on with `dumpscope scan --resume` (with `--executor "
            "local` on this machine alone)"
        )

    def close(self) -> None:
        """Leave the cluster as it was; end it when it was made for this scan."""
        try:
            with suppress(*_GONE):
                self.client.close(timeout=1 if self.lost else CONNECT_S)
        finally:
            self._end_cluster()

    def _end_cluster(self) -> None:
        try:
            if self._cluster is not None:
                with suppress(*_GONE):
                    self._cluster.close()
        finally:
            for logger, level in self._levels.items():
                logger.setLevel(level)


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Put Ctrl-C off, for good in the threads and processes that are started meanwhile.

    It reaches every process of the terminal, and a cluster of this machine is taken down by who
    started it. One that comes while the cluster is half made is delivered afterwards.
    """
    # Starting it later would let the interrupt through again in the thread that starts workers.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def connect(scheduler: str | None, jobs: int) -> tuple[Connection, int]:
    """Reach the cluster, wait for a worker, and compare the workers with this program.

    Returns
    -------
    tuple of Connection and int
        The connection, and how many batches the workers work on at the same time.
    """
    connection = Connection(scheduler, jobs)
    try:
        threads = connection.await_worker(FIRST_WORKER_S)
        connection.compare_workers()
    except BaseException:
        connection.close()
        raise
    return connection, threads


def say_difference(here: Mapping[str, Any], there: object) -> str | None:
    """Say what is different on a worker, `None` where nothing is.

    Parameters
    ----------
    here, there
        What `worker.describe` says in this program and on the worker, or the error there.
    """
    if not isinstance(there, Mapping):
        return (
            f"cannot run dumpscope {here['version']} ({there}): install the same version there as "
            "here, and the same readers"
        )
    if there["version"] != here["version"]:
        return (
            f"on {there['host']} has dumpscope {there['version']}, here it is {here['version']}: "
            "install the same version on both"
        )
    if there["readers"] == here["readers"]:
        return None
    parts = _say_readers(here["readers"], there["readers"])
    return (
        f"on {there['host']} has other readers than this program: {'; '.join(parts)}: install the "
        "same plugins on both"
    )


def _say_readers(here: Mapping[str, str], there: Mapping[str, str]) -> Sequence[str]:
    return [
        f"{name!r} is {_name_package(there.get(name))} there, {_name_package(here.get(name))} here"
        for name in sorted({*here, *there})
        if here.get(name) != there.get(name)
    ]


def _name_package(package: str | None) -> str:
    return "missing" if package is None else f"of {package}"


def _find(distributed: Any, scheduler: str) -> Any:
    """Connect to a scheduler that somebody started."""
    where: dict[str, str]
    if "://" not in scheduler and os.path.isfile(scheduler):
        where = {"scheduler_file": scheduler}
    else:
        where = {"address": scheduler}
    try:
        return _call_within(
            CONNECT_S + _LONGEST_GREETING_S,
            lambda: distributed.Client(**where, timeout=CONNECT_S, set_as_default=False),
        )
    except (*_GONE, TypeError, LookupError) as error:
        raise ClusterError(
            f"the dask scheduler {scheduler} cannot be reached ({_text(error)}): expected an "
            "address such as tcp://10.0.0.1:8786, or the file of `dask scheduler "
            "--scheduler-file`, of one that runs"
        ) from error


def _call_within(patience_s: float, call: Callable[[], Any]) -> Any:
    """Call what may never return: a scheduler that is stopped takes connections and says nothing.

    Raises `TimeoutError` after `patience_s`, and what the call raises.
    """
    answers: list[tuple[Any, Exception | None]] = []

    def run() -> None:
        try:
            answers.append((call(), None))
        except Exception as error:  # noqa: BLE001 - it is raised again by who waits
            answers.append((None, error))

    thread = threading.Thread(target=run, name="dumpscope-connect", daemon=True)
    thread.start()
    thread.join(patience_s)
    if not answers:
        raise TimeoutError(f"no answer within {patience_s:.0f} s")
    answer, error = answers[0]
    if error is not None:
        raise error
    return answer


def _loggers_of(library: str) -> list[logging.Logger]:
    """Return the logger of a library and those below it that have a level of their own."""
    below = [
        logger
        for name, logger in logging.root.manager.loggerDict.items()
        if isinstance(logger, logging.Logger) and name.startswith(f"{library}.") and logger.level
    ]
    return [logging.getLogger(library), *below]


def _text(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
