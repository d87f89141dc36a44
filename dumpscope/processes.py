"""Processes that do the work on batches of small files.

Python's threads take turns, so small files, whose time goes into Python, need processes. They
are programs of their own, started with the interpreter of this one: nothing is forked, so it does
not matter what threads, locks and devices the calling program has. What travels are pickles, each
behind its length (u64, little-endian):

- to the process: a `Recipe`, then one batch after the other; end of file ends the process;
- from it: the signature of the work it made, when it is ready, then one result for each batch.
  In a result the files of the batch and their places are numbers: who gets it has them. A message
  without content says that the work raised something; then the process ends.

A process that ends early loses nothing: who started it notices, and has the work done again (see
`isolation`).
"""

from __future__ import annotations

import fcntl
import gc
import io
import json
import os
import pickle
import select
import signal
import struct
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any, Protocol, cast

from dumpscope.model import DumpFile, Place
from dumpscope.records import record

__all__ = [
    "Recipe",
    "ResultUnpickler",
    "WorkerProcess",
    "can_start",
    "dump_result",
    "recipe_of",
    "seldom_collecting",
    "serve",
]

_LENGTH = struct.Struct("<Q")
_PIPE_BYTES = 1 << 20
_USUAL_PIPE_BYTES = 1 << 16
_BOOT = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from dumpscope.processes import serve
serve(json.loads(sys.argv[2]))
"""
_LONGEST_END_S = 5.0


@record(frozen=True, slots=True)
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


class Work(Protocol):
    """Work that another process can make too, by its recipe."""

    recipe: Recipe

    def __call__(self, batch: Sequence[DumpFile], /) -> object:
        """Do it on a batch of files."""


def recipe_of(work: Callable[..., object]) -> Recipe:
    """Return the recipe of work that has one."""
    return cast("Work", work).recipe


class WorkerProcess:
    """One process, seen from the one that started it.

    Parameters
    ----------
    recipe
        The work.
    longest_idle_s
        After so long without a batch the process ends by itself.

    Attributes
    ----------
    ready
        Whether it said that it can do the same work.
    alive
        Whether something may still come from it.
    raised
        Whether it said that the work raised something.
    """

    def __init__(self, recipe: Recipe, longest_idle_s: float | None = None) -> None:
        self._signature = recipe.signature.encode("utf-8", "surrogatepass")
        self.ready = False
        self.alive = True
        self.raised = False
        self._sent: deque[Sequence[DumpFile]] = deque()
        self._process = subprocess.Popen(  # noqa: S603 - this very interpreter
            [
                *(sys.executable, "-c", _BOOT),
                *(json.dumps(sys.path), json.dumps(longest_idle_s)),
            ],
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

    @property
    def waiting(self) -> int:
        """How many batches it was sent whose results were not received."""
        return len(self._sent)

    @property
    def ended(self) -> bool:
        """Whether the process is no more."""
        return self._process.poll() is not None

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
        self._sent.append(batch)
        return True

    def exchange(self, batch: bytes) -> bytes | None:
        """Send a pickled batch and wait for its pickled result.

        There is none where the process ended over it (`None`), or where the work raised something
        (no content).
        """
        try:
            _send(self._to, batch)
        except BrokenPipeError:
            return None
        return _receive(self._from)

    def receive(self) -> tuple[bool, object]:
        """Wait for the next message.

        Returns
        -------
        tuple of bool and object
            Whether there was a result, and the result. Without one the process has become ready,
            or it is of no use any more: see `alive`; the signature of other work that it would
            do is then in the place of the result.
        """
        content = _receive(self._from)
        if not content:
            self.alive = False
            self.raised = content is not None
            return False, None
        if self.ready:
            return True, ResultUnpickler(io.BytesIO(content), self._sent.popleft()).load()
        self.ready = self.alive = content == self._signature
        return False, None if self.ready else content

    def stop(self) -> int:
        """End the process, at once when it is at work. Returns how it ended, as `Popen` does."""
        self.ready = self.alive = False
        process = self._process
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        if self.waiting:
            process.kill()
        try:
            return process.wait(_LONGEST_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()


def can_start() -> bool:
    """Say whether this program's interpreter can be started again for other work."""
    return bool(sys.executable) and not getattr(sys, "frozen", False)


def serve(longest_idle_s: float | None = None) -> None:
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
    made = recipe_of(work)
    gc.freeze()  # what is there now stays
    with suppress(BrokenPipeError), seldom_collecting():
        _send(results, made.signature.encode("utf-8", "surrogatepass"))
        while select.select([0], [], [], longest_idle_s)[0]:
            content = _receive(0)
            if content is None:
                return
            batch = pickle.loads(content)  # noqa: S301 - the same
            try:
                result = dump_result(work(batch), batch)
            except Exception:
                _send(results, b"")
                raise
            _send(results, result)


@contextmanager
def seldom_collecting() -> Iterator[None]:
    """Let the garbage collector look at new objects seldom.

    Results are made by the hundred and dropped again, without cycles: looking for these takes
    one part in fifteen of the time.
    """
    thresholds = gc.get_threshold()
    gc.set_threshold(max(thresholds[0], 50_000), *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


def dump_result(result: object, batch: Sequence[DumpFile]) -> bytes:
    """Pickle a result, with numbers in the place of the batch's files and their places."""
    files = {id(file): number for number, file in enumerate(batch)}
    places = {id(file.place): number for number, file in enumerate(batch)}

    def reduce_file(file: DumpFile) -> Any:
        number = files.get(id(file))
        return file.__reduce__() if number is None else (_file_at, (number,))

    def reduce_place(place: Place) -> Any:
        number = places.get(id(place))
        return place.__reduce__() if number is None else (_place_at, (number,))

    content = io.BytesIO()
    pickler = pickle.Pickler(content, pickle.HIGHEST_PROTOCOL)
    pickler.dispatch_table = {DumpFile: reduce_file, Place: reduce_place}
    pickler.dump(result)
    return content.getvalue()


def _file_at(number: int) -> DumpFile:
    """Stand for a file of the batch in a pickle."""
    raise NotImplementedError


def _place_at(number: int) -> Place:
    """Stand for the place of a file of the batch in a pickle."""
    raise NotImplementedError


class ResultUnpickler(pickle.Unpickler):
    """Undoes `dump_result`, given the batch."""

    def __init__(self, content: io.BytesIO, batch: Sequence[DumpFile]) -> None:
        super().__init__(content)
        self._batch = batch

    def find_class(self, module: str, name: str) -> Any:
        if module == __name__:
            if name == _file_at.__name__:
                return self._batch.__getitem__
            if name == _place_at.__name__:
                # Without `self`: what is unpickled would stay until the collector finds the cycle.
                batch = self._batch
                return lambda number: batch[number].place
        return super().find_class(module, name)


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
