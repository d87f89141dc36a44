"""Files that end the process which reads them: each is found, named and set aside.

A fault in a library that a reader calls, a reader that exits, memory that ran out: none of these
can be caught where it happens. So when a process was lost with a batch, its files are read again
one by one in another process. A file over which that ends too is tried once more, in a process
that has read nothing else; then it is a read failure, and the others keep their results.

One file costs at most `MOST_TRIES` processes more, and the others none: what is left of a process
reads on. How many processes a scan may lose in all is for the executors to say.
"""

from __future__ import annotations

import io
import pickle
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, cast

from dumpscope.model import DumpFile, FileResult, ReadFailure
from dumpscope.processes import Recipe, ResultUnpickler, WorkerProcess, recipe_of

__all__ = [
    "MOST_TRIES",
    "Isolation",
    "NotReadyError",
    "ended_by",
    "examine_alone",
    "failed_file",
    "read_answer",
    "recipe_of_naming",
    "start_ready",
]

MOST_TRIES = 2
"""A process may have ended for another reason than the file that it was reading."""


class NotReadyError(Exception):
    """A process cannot be started, or would not do the same work.

    Attributes
    ----------
    status
        How it ended, as `Popen` says it.
    signature
        That of the work which it would do instead, `None` when it said nothing.
    """

    def __init__(self, status: int, signature: bytes | None = None) -> None:
        super().__init__(ended_by(status))
        self.status = status
        self.signature = signature


def start_ready(recipe: Recipe, longest_idle_s: float | None = None) -> WorkerProcess:
    """Start a process and wait until it is ready.

    Raises
    ------
    NotReadyError
        It ended before, or would do other work.
    OSError
        The system starts no more processes.
    """
    said: object = None
    status = 0
    for _ in range(MOST_TRIES):
        process = WorkerProcess(recipe, longest_idle_s)
        _, said = process.receive()
        if process.ready:
            return process
        status = process.stop()
        if said is not None or status >= 0:
            break  # it ended by itself, and would again
    raise NotReadyError(status, cast("bytes | None", said))


def examine_alone(
    file: DumpFile,
    read: Callable[[DumpFile], tuple[Any, int]],
    name_reader: Callable[[DumpFile], str],
) -> Any:
    """Have one file read by a process, or set it aside.

    Parameters
    ----------
    file
        A file of a batch with which a process was lost.
    read
        Has a process read it: its result, or `None` and how the process ended.
    name_reader
        Says by which reader it is read, "" when nobody knows.

    Returns
    -------
    object
        The result, or a `FileResult` with a failure.
    """
    status = 0
    for _ in range(MOST_TRIES):
        result, status = read(file)
        if result is not None:
            return result
    reader = name_reader(file)
    by = f"with the reader {reader} " if reader else ""
    other = "update that reader or name another with --reader; " if reader else ""
    return failed_file(
        file,
        ChildProcessError.__name__,
        f"ended {MOST_TRIES} processes that read it {by}({ended_by(status)}) and was set aside: "
        f"{other}`dumpscope scan` of this file alone shows why",
        reader,
    )


class ReaderNaming:
    """Says by which reader files would be read; the work that a process does for this.

    `work` is what would read them, with a method `name_reader`.
    """

    def __init__(self, work: Any, recipe: Recipe) -> None:
        self._work = work
        self.recipe = recipe

    def __call__(self, batch: Sequence[DumpFile]) -> list[str]:
        return [str(self._work.name_reader(file)) for file in batch]


def make_naming(inner: Recipe) -> ReaderNaming:
    """Make the work that names readers, in the process that does it."""
    return ReaderNaming(inner.follow(), recipe_of_naming(inner))


def recipe_of_naming(inner: Recipe) -> Recipe:
    """Say how a process finds out by which reader the work of `inner` reads a file."""
    return Recipe(f"{__name__}:{make_naming.__name__}", (inner,), inner.signature)


class Isolation:
    """Reads the files of lost batches one by one, for a scan of this machine.

    Parameters
    ----------
    work
        What a process does with a batch: a function with a `recipe`, which returns a list with
        one result for each file.

    Attributes
    ----------
    lost
        How many processes ended over a file.
    last
        The file that was set aside last, "" before there is one.
    """

    def __init__(self, work: Callable[[Sequence[DumpFile]], Any]) -> None:
        self.lost = 0
        self.last = ""
        self._work = work
        self._recipe = recipe_of(work)
        self._processes: dict[Recipe, WorkerProcess] = {}

    def examine(self, file: DumpFile) -> Any:
        """Return the result of a file.

        Raises
        ------
        NotReadyError, OSError
            No process can be started.
        """
        return examine_alone(file, self._read, self._name_reader)

    def close(self) -> None:
        """End the processes."""
        for process in self._processes.values():
            process.stop()
        self._processes.clear()

    def _read(self, file: DumpFile) -> tuple[Any, int]:
        answer, status = self._ask(self._recipe, file)
        if answer is None:
            return None, status
        if not answer:
            return self._work([file])[0], 0  # it raised something, and does so here
        return read_answer(answer, file), 0

    def _name_reader(self, file: DumpFile) -> str:
        self.last = file.relative
        with suppress(NotReadyError, OSError):
            answer, _ = self._ask(recipe_of_naming(self._recipe), file)
            if answer:
                return str(read_answer(answer, file))
        return ""

    def _ask(self, recipe: Recipe, file: DumpFile) -> tuple[bytes | None, int]:
        """Send one file to a process; what it answered, and how it ended if it did."""
        process = self._processes.pop(recipe, None) or start_ready(recipe)
        answer = process.exchange(pickle.dumps([file], pickle.HIGHEST_PROTOCOL))
        if answer:
            self._processes[recipe] = process
            return answer, 0
        self.lost += 1
        return answer, process.stop()


def read_answer(answer: bytes, file: DumpFile) -> Any:
    """Read what a process of this machine answered about one file."""
    return ResultUnpickler(io.BytesIO(answer), [file]).load()[0]


def failed_file(file: DumpFile, error: str, message: str, reader: str = "") -> FileResult:
    """Make the result of a file that could not be read where it should have been.

    `error` is the name of a class of `OSError`, so that the next scan tries it again.
    """
    return FileResult(
        file=file, failures=(ReadFailure(file.relative, reader, error, None, message),)
    )


def ended_by(status: int) -> str:
    """Say how a process ended, from what `Popen` says of it."""
    if status >= 0:
        return f"exit status {status}"
    with suppress(ValueError):
        return f"signal {-status}, {signal.Signals(-status).name}"
    return f"signal {-status}"
