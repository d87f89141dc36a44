"""Deliver a report: whole or not at all, and never over a file that nobody gave up.

A report is written to a temporary file in the folder where it will lie, flushed to disk, and
renamed. A failure on the way leaves neither a partial file nor a changed old one.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, cast

from dumpscope.errors import ReportError
from dumpscope.model import Scan
from dumpscope.reporters.protocol import Reporter
from dumpscope.reporters.registry import load_reporters
from dumpscope.safetext import make_printable

__all__ = ["STDOUT", "check_target", "deliver", "open_target", "write_report"]

STDOUT = "-"


def check_target(path: str, *, force: bool = False) -> None:
    """Raise `ReportError` when a report could not be delivered to `path`.

    Called for every report before the first one is written, so that two of three reports are
    never what is left of a mistyped command.
    """
    if path == STDOUT:
        return
    shown = make_printable(path)
    if "\0" in path:
        raise ReportError(f"{shown}: a file name cannot hold a null byte")
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise ReportError(
            f"{shown}: the folder {make_printable(folder)} does not exist; create it first"
        )
    if os.path.isdir(path):
        raise ReportError(f"{shown}: is a folder; give the name of a file in it")
    if os.path.lexists(path) and not _is_device(path) and not force:
        raise ReportError(f"{shown}: exists already; --force overwrites it")


def deliver(
    reporter: Reporter,
    scan: Scan,
    path: str,
    *,
    limit: int | None = None,
    lang: str = "en",
    force: bool = False,
) -> None:
    """Write one report to `path` ("-" is stdout).

    Raises
    ------
    ReportError
        When the file exists and `force` is not set, or cannot be written.
    """
    with open_target(path, force=force) as target:
        reporter.write(scan, target, limit=limit, lang=lang)


def write_report(
    scan: Scan,
    path: str | os.PathLike[str],
    *,
    limit: int | None = None,
    lang: str = "en",
    force: bool = False,
) -> None:
    """Write a report of a scan; the end of the file's name says which kind (".xlsx", ".csv", …).

    Parameters
    ----------
    scan
        What `dumpscope.scan` returned.
    path
        The file. Its folder must exist.
    limit
        Findings to list at most: 0 for all, `None` for the kind's own default (JSON 1,000,
        others all).
    lang
        Language of the sentences, "en" or "zh".
    force
        Overwrite a file that exists.

    Raises
    ------
    ReportError
        No reporter writes such files, the file exists, or it cannot be written.
    """
    name = os.fspath(path)
    reporters = load_reporters().reporters
    fitting = [r for r in reporters if name.lower().endswith("." + r.suffix.lower())]
    if not fitting:
        known = ", ".join(sorted("." + reporter.suffix for reporter in reporters))
        raise ReportError(
            f"{make_printable(name)}: its name does not say what kind of report it is; "
            f"end it with one of {known}"
        )
    best = max(fitting, key=lambda reporter: len(reporter.suffix))
    deliver(best, scan, name, limit=limit, lang=lang, force=force)


@contextmanager
def open_target(path: str, *, force: bool = False) -> Iterator[BinaryIO]:
    """Open a file for a report; it appears under its name when the block ends well.

    Raises
    ------
    ReportError
        See `deliver`. A closed stdout stays a `BrokenPipeError`, for the command to judge.
    """
    check_target(path, force=force)
    if path == STDOUT or _is_device(path):
        with tempfile.SpooledTemporaryFile(max_size=1 << 24) as spool:
            yield cast(BinaryIO, spool)
            spool.seek(0)
            if path == STDOUT:
                shutil.copyfileobj(spool, sys.stdout.buffer)
                sys.stdout.buffer.flush()
            else:
                with _report_errors(path), open(path, "wb") as device:
                    shutil.copyfileobj(spool, device)
        return
    with _report_errors(path):
        # The target of a link is replaced, not the link.
        final = os.path.realpath(path)
        descriptor, temporary = tempfile.mkstemp(prefix=".dumpscope-", dir=os.path.dirname(final))
        try:
            with os.fdopen(descriptor, "wb") as target:
                yield target
                target.flush()
                os.fsync(target.fileno())
            Path(temporary).chmod(_mode_for(final))
            check_target(path, force=force)
            Path(temporary).replace(final)
        except BaseException:
            with suppress(OSError):
                Path(temporary).unlink()
            raise


@contextmanager
def _report_errors(path: str) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise ReportError(
            f"{make_printable(path)}: cannot be written: {reason}; nothing was left behind"
        ) from error


def _is_device(path: str) -> bool:
    """Whether the path is a pipe or device (/dev/null, /dev/stdout): written to, not replaced."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _mode_for(path: str) -> int:
    """Return the mode of the file to be replaced, else what a newly created file would get."""
    with suppress(OSError):
        return stat.S_IMODE(os.stat(path).st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
