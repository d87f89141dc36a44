"""Processes that do the work on batches of small files.

Python's threads take turns, so small files, whose time goes into Python, need processes. They
are programs of their own, started with the interpreter of this one: nothing is forked, so it does
not matter what threads, locks and devices the calling program has. What travels are pickles, each
behind its length (u64, little-endian):

- to the process: a `Recipe`, then one batch after the other; end of file ends the process;
- from it: the signature of the work it made, when it is ready, then one result for each batch.

A process that ends early loses nothing: who started it notices and does the work itself.
"""

from __future__ import annotations

import fcntl
import json
import os
import pickle
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any, cast

from dumpscope.model import DumpFile

__all__ = ["Recipe", "WorkerProcess", "can_start", "serve"]

_LENGTH = struct.Struct("<Q")
_PIPE_BYTES = 1 << 20
_USUAL_PIPE_BYTES = 1 << 16
_BOOT = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from dumpscope.processes import serve
serve()
"""
_LONGEST_END_S = 5.0


@dataclass(frozen=True)
class Recipe:
    """How another process makes the same work.

    `factory` is `module:function`; called with `arguments` it returns a function of a batch with
    an attribute `recipe`, whose `signature` must be the same as this one.
    """

    factory: str
    arguments: tuple[Any, ...]
    signature: str

    def follow(self) -> Callable[[Sequence[DumpFile]], object]:
        """Make the work."""
        module, _, function = self.factory.partition(":")
        made = getattr(import_module(module), function)(*self.arguments)
        return cast("Callable[[Sequence[DumpFile]], object]", made)


class WorkerProcess:
    """One process, seen from the one that started it.

    Attributes
    ----------
    ready
        Whether it said that it can do the same work.
    alive
        Whether something may still come from it.
    waiting
        How many batches it was sent whose results were not received.
    """

    def __init__(self, recipe: Recipe) -> None:
        self._signature = recipe.signature
        self.ready = False
        self.alive = True
        self.waiting = 0
        self._process = subprocess.Popen(  # noqa: S603 - this very interpreter
            [sys.executable, "-c", _BOOT, json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._to = self._process.stdin.fileno()
        self._from = self._process.stdout.fileno()
        # So that neither side waits for the other to read.
        self._room = _enlarge(self._to)
        _enlarge(self._from)
        with suppress(BrokenPipeError):
            _send(self._to, pickle.dumps(recipe, pickle.HIGHEST_PROTOCOL))

    def fileno(self) -> int:
        """Return the descriptor that can be read when there is something to `receive`."""
        return self._from

    def send(self, batch: Sequence[DumpFile]) -> bool:
        """Send a batch; false when the process has enough to do, or is no more."""
        if not self.ready or self.waiting > 1:
            return False
        message = pickle.dumps(batch, pickle.HIGHEST_PROTOCOL)
        # A second batch has to fit into the pipe: the process will not read it for a while, and
        # may itself be waiting for its result to be read.
        if self.waiting and len(message) + 2 * _LENGTH.size > self._room:
            return False
        try:
            _send(self._to, message)
        except BrokenPipeError:
            return False
        self.waiting += 1
        return True

    def receive(self) -> tuple[bool, object]:
        """Wait for the next message.

        Returns
        -------
        tuple of bool and object
            Whether there was a result, and the result. Without one the process has become ready,
            or it is of no use any more: see `alive`.
        """
        content = _receive(self._from)
        if content is None:
            self.alive = False
            return False, None
        message = pickle.loads(content)  # noqa: S301 - from a process that this one started
        if self.ready:
            self.waiting -= 1
            return True, message
        self.ready = self.alive = message == self._signature
        return False, None

    def stop(self) -> None:
        """End the process, at once when it is at work."""
        self.ready = self.alive = False
        process = self._process
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        if self.waiting:
            process.kill()
        try:
            process.wait(_LONGEST_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def can_start() -> bool:
    """Say whether this program's interpreter can be started again for other work."""
    return bool(sys.executable) and not getattr(sys, "frozen", False)


def serve() -> None:
    """Do the work, in the process that was started for it, until there is no more."""
    # Ctrl-C reaches every process of the terminal; the one that started this one decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    results = os.dup(1)
    os.dup2(2, 1)  # what anything prints must not get among the results
    content = _receive(0)
    if content is None:
        return
    recipe: Recipe = pickle.loads(content)  # noqa: S301 - from the process that started this one
    work = recipe.follow()
    made = cast("Recipe", work.recipe)  # type: ignore[attr-defined]
    with suppress(BrokenPipeError):
        _send(results, pickle.dumps(made.signature, pickle.HIGHEST_PROTOCOL))
        while (content := _receive(0)) is not None:
            batch = pickle.loads(content)  # noqa: S301 - the same
            _send(results, pickle.dumps(work(batch), pickle.HIGHEST_PROTOCOL))


def _enlarge(pipe: int) -> int:
    """Make a pipe hold more, and return how many bytes it holds."""
    with suppress(OSError, AttributeError):  # a limit of the system, or a system without this
        return fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    return _USUAL_PIPE_BYTES


def _send(pipe: int, content: bytes) -> None:
    rest = memoryview(_LENGTH.pack(len(content)) + content)
    while rest:
        rest = rest[os.write(pipe, rest) :]


def _receive(pipe: int) -> bytes | None:
    """Read one message, `None` at the end of the stream or when it breaks off."""
    head = _read(pipe, _LENGTH.size)
    return None if head is None else _read(pipe, _LENGTH.unpack(head)[0])


def _read(pipe: int, length: int) -> bytes | None:
    parts = []
    while length:
        part = os.read(pipe, min(length, _PIPE_BYTES))
        if not part:
            return None
        parts.append(part)
        length -= len(part)
    return b"".join(parts)
