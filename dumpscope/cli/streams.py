"""stdin, stdout and stderr as the program needs them, whatever the caller did to them.

A command's exit status says what it found. Nothing that happens to its output may change that:
a reader that leaves (`| head`), a stream that was closed (`>&-`), a terminal that lacks letters.
"""

from __future__ import annotations

import io
import os
import select
import sys
from contextlib import suppress
from typing import Any, TextIO

__all__ = ["forget_stdout", "prepare_streams"]

_ERRORS = "backslashreplace"


def prepare_streams() -> None:
    """Make the standard streams of this process safe; called once, before anything is written."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # Else a file that is opened later would be written to as stdout. The lowest free
            # number is taken, which is this one.
            os.open(os.devnull, os.O_RDWR)
    sys.stdout = _reopen(sys.stdout, 1)
    sys.stderr = _reopen(sys.stderr, 2)


def _reopen(stream: TextIO | None, descriptor: int) -> TextIO:
    """Return a stream over the same file that outlives its reader."""
    if stream is not None:
        stream.flush()
        encoding = stream.encoding
        by_line = descriptor == 2 or stream.isatty()
    else:
        encoding, by_line = "utf-8", False
    outlet: io.RawIOBase = _Outlet(descriptor, is_talk=descriptor == 2)
    buffer = io.BufferedWriter(outlet)
    return io.TextIOWrapper(buffer, encoding=encoding, errors=_ERRORS, line_buffering=by_line)


class _Outlet(io.RawIOBase):
    """Writes to a descriptor; when nobody reads there any more, what is written is dropped.

    `is_talk` says that it is also dropped where it cannot be written for another reason: stderr
    on a full disk changes no result.
    """

    def __init__(self, descriptor: int, *, is_talk: bool = False) -> None:
        self._descriptor = descriptor
        self._is_talk = is_talk
        self._left = False

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def write(self, data: Any, /) -> int:
        while not self._left:
            try:
                return os.write(self._descriptor, data)
            except BlockingIOError:
                # Whoever shares the pipe or terminal made it so that writing does not wait.
                select.select([], [self._descriptor], [])
            except BrokenPipeError:
                self._left = True
            except OSError:
                if not self._is_talk:
                    raise
                break
        return memoryview(data).nbytes


def forget_stdout() -> None:
    """Drop what could not be written to stdout, so that leaving the program does not try again."""
    with suppress(OSError):
        descriptor = sys.stdout.fileno()
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, descriptor)
        os.close(devnull)
