"""The same work as in a local scan, on another machine: it makes sure that the files are the same.

A path is only a name there: it may lead nowhere, or to a file of the worker's own disk. What the
walk saw of a file (size and time) is compared with what the worker has, so that such a file is a
read failure that names the worker, and never counts as clean.
"""

from __future__ import annotations

import builtins
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

from dumpscope.errors import DumpscopeError
from dumpscope.isolation import failed_file
from dumpscope.model import DumpFile, FileResult, ReadFailure
from dumpscope.processes import Recipe, recipe_of

__all__ = ["CheckedWork", "make_checked", "recipe_for_worker"]

_WHAT_TO_DO = (
    "where nodes do not share the disk, scan on each of them and put the results together with "
    "`dumpscope scans import`"
)
_COARSEST_TIME_NS = 2_000_000_000
"""Some file systems keep times in steps of two seconds."""


class CheckedWork:
    """Examines batches of files and says where what it has is not what the scan saw.

    Parameters
    ----------
    inner
        The work of a local scan.
    worker
        Name of the worker for which it is done.
    """

    def __init__(self, inner: Recipe, worker: str) -> None:
        self._worker = worker
        self._work = cast("Callable[[Sequence[DumpFile]], list[FileResult]]", inner.follow())
        made = recipe_of(self._work)
        self.recipe = replace(recipe_for_worker(inner, worker), signature=made.signature)

    def __call__(self, files: Sequence[DumpFile]) -> list[FileResult] | str:
        """Return the results, or why the scan cannot go on."""
        try:
            return [self._check(result) for result in self._work(files)]
        except DumpscopeError as error:
            return f"{self._worker}: {error}"

    def _check(self, result: FileResult) -> FileResult:
        # A URL means the same everywhere.
        unlike = self._compare(result.file) if os.path.isabs(result.file.path) else None
        if unlike is not None:
            return unlike
        if not any(_is_of_system(failure.error) for failure in result.failures):
            return result
        return replace(result, failures=tuple(map(self._name_worker, result.failures)))

    def _compare(self, file: DumpFile) -> FileResult | None:
        """Make the result for a file that is not here or is another one; `None` for the same."""
        try:
            status = os.lstat(file.path)
        except OSError as error:
            text = f"cannot be read by the worker {self._worker}: {error.strerror}: {_WHAT_TO_DO}"
            return failed_file(file, type(error).__name__, text)
        differs = abs(status.st_mtime_ns - file.mtime_ns) >= _COARSEST_TIME_NS
        if not differs and status.st_size == file.size:
            return None
        text = (
            f"is not the file that the scan saw: expected {file.size} bytes of "
            f"{file.mtime_ns // 10**9} s, the worker {self._worker} has {status.st_size} bytes "
            f"of {status.st_mtime_ns // 10**9} s: it is still being written, then scan again; "
            f"{_WHAT_TO_DO}"
        )
        return failed_file(file, OSError.__name__, text)

    def _name_worker(self, failure: ReadFailure) -> ReadFailure:
        if not _is_of_system(failure.error):
            return failure
        return replace(failure, message=f"{failure.message} (by the worker {self._worker})")


def make_checked(inner: Recipe, worker: str) -> CheckedWork:
    """Make the work, in the process that does it."""
    return CheckedWork(inner, worker)


def recipe_for_worker(inner: Recipe, worker: str) -> Recipe:
    """Say how a process beside a worker makes the work."""
    return Recipe(f"{__name__}:{make_checked.__name__}", (inner, worker), inner.signature)


def _is_of_system(error: str) -> bool:
    kind = getattr(builtins, error, None)
    return isinstance(kind, type) and issubclass(kind, OSError)
