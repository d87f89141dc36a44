"""What runs inside a dask worker: it hands batches to processes of its own.

Each thread of the worker has a process beside it that opens and reads the files. So threads do
not wait for each other, the worker goes on answering its scheduler, and a file that ends the
process which reads it ends no worker: the file is found, and becomes a read failure. The
processes end by themselves when there is nothing for them to do.
"""

from __future__ import annotations

import pickle
import socket
import threading
from typing import Any, cast

from distributed import get_worker

from dumpscope.cluster.checking import recipe_for_worker
from dumpscope.cluster.results import (
    FAILED,
    OTHER_WORK,
    RESULTS,
    read_results,
    unpack_batch,
)
from dumpscope.errors import ClusterError
from dumpscope.isolation import (
    NotReadyError,
    ended_by,
    examine_alone,
    read_answer,
    recipe_of_naming,
    start_ready,
)
from dumpscope.model import DumpFile, FileResult
from dumpscope.plugins import load_readers
from dumpscope.processes import Recipe, WorkerProcess, dump_result
from dumpscope.version import VERSION

__all__ = ["describe", "examine"]

LONGEST_IDLE_S = 60.0
"""How long a process stays after its last batch: a scan on the same worker may need it again."""

_idle: dict[Recipe, list[WorkerProcess]] = {}
_lock = threading.Lock()


def describe() -> dict[str, Any]:
    """Say what must be the same on a worker and where the scan was started."""
    return {
        "version": VERSION,
        "readers": {p.name: f"{p.package} {p.version}" for p in load_readers().plugins},
        "host": socket.gethostname(),
    }


def examine(message: bytes) -> bytes:
    """Have a batch examined (see `results` for what goes in and out)."""
    inner, content = unpack_batch(message)
    recipe = recipe_for_worker(inner, f"{socket.gethostname()} ({get_worker().address})")
    try:
        answer, _ = _ask(recipe, content)
        if answer is None:
            batch = pickle.loads(content)  # noqa: S301 - from the scan, as above
            answer = dump_result([_examine_alone(recipe, inner, file) for file in batch], batch)
    except _OtherWorkError as error:
        return OTHER_WORK + f"{recipe.arguments[1]}\n{error.signature}".encode(
            "utf-8", "surrogatepass"
        )
    except (ClusterError, OSError) as error:
        return FAILED + f"{recipe.arguments[1]}: {error}".encode("utf-8", "surrogatepass")
    return RESULTS + answer


class _OtherWorkError(Exception):
    """The process would not do the same work."""

    def __init__(self, signature: str) -> None:
        super().__init__(signature)
        self.signature = signature


def _ask(recipe: Recipe, content: bytes) -> tuple[bytes | None, int]:
    """Let a process work on a batch; `None` when it ended over it, and how it ended."""
    process = _take(recipe)
    answer = process.exchange(content)
    if not answer:
        return None, process.stop()
    with _lock:
        _idle.setdefault(recipe, []).append(process)
    return answer, 0


def _take(recipe: Recipe) -> WorkerProcess:
    """Take a process that waits, or start one."""
    with _lock:
        gone = []
        for kind, processes in list(_idle.items()):
            gone += [process for process in processes if process.ended]
            _idle[kind] = [process for process in processes if not process.ended]
            if not _idle[kind]:
                del _idle[kind]
        waiting = _idle.get(recipe)
        process = waiting.pop() if waiting else None
    for ended in gone:
        ended.stop()
    if process is not None:
        return process
    try:
        return start_ready(recipe, LONGEST_IDLE_S)
    except NotReadyError as error:
        if error.signature is not None:
            raise _OtherWorkError(error.signature.decode("utf-8", "surrogatepass")) from error
        raise ClusterError(
            f"a process to read files does not start ({ended_by(error.status)}): run "
            "`dumpscope readers` there to see why"
        ) from error


def _examine_alone(recipe: Recipe, inner: Recipe, file: DumpFile) -> FileResult:
    """Examine one file of a batch with which a process was lost."""
    content = pickle.dumps([file], pickle.HIGHEST_PROTOCOL)

    def read(file: DumpFile) -> tuple[FileResult | None, int]:
        answer, status = _ask(recipe, content)
        return (None if answer is None else read_results(answer, [file])[0]), status

    def name_reader(file: DumpFile) -> str:
        answer, _ = _ask(recipe_of_naming(inner), content)
        return "" if answer is None else str(read_answer(answer, file))

    return cast("FileResult", examine_alone(file, read, name_reader))
