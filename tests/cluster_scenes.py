"""A dask cluster of real processes on this machine, and a reader with which files play tricks.

The reader `scene` is a third party's: it is found through its metadata by every process that has
its folder on the path. Only where `SCENES` is set, that is on the workers, its files do what they
say; anywhere else they hold nothing.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fixtures.encode import encode_dump, entry_of

ROOT = Path(__file__).resolve().parent.parent
PATIENCE_S = 120.0

READER = """
import os, signal

class SceneReader:
    name = "scene"
    formats = "files that play tricks"
    versions = "of tests"
    companions = {}

    def sniff(self, head, file):
        return 2 if head.startswith(b"SCENE ") else 0

    def read(self, source):
        folder = os.environ.get("SCENES")
        trick = source.head.split()[1]
        if folder is None:
            return
        if trick == b"gate":
            try:
                os.unlink(folder + "/armed")
            except OSError:
                return
            with open(folder + "/inside", "wb", 0) as inside:
                inside.write(b"%d" % os.getppid())
            with open(folder + "/go", "rb", 0) as go:
                go.read(1)
        elif trick == b"process":
            os.kill(os.getpid(), signal.SIGKILL)
        elif trick == b"segfault":
            os.kill(os.getpid(), signal.SIGSEGV)
        elif trick == b"exit":
            os._exit(7)
        elif trick == b"worker":
            os.kill(os.getppid(), signal.SIGKILL)
            os._exit(1)
        yield from ()
"""

HIDING = """
import os

def hide(call):
    def hidden(path, *more, **options):
        if isinstance(path, str) and path.startswith(os.environ["HIDDEN"]):
            raise FileNotFoundError(2, "No such file or directory", path)
        return call(path, *more, **options)
    return hidden

os.open, os.lstat = hide(os.open), hide(os.lstat)
"""


def write_reader(folder: Path) -> Path:
    """Install the reader into a folder of its own."""
    info = folder / "scene_reader-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / "scene_reader.py").write_text(READER)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: scene-reader\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[dumpscope.readers]\nscene = scene_reader:SceneReader\n"
    )
    return folder


def write_dumps(root: Path, count: int, *tricks: str) -> Path:
    """A tree of small dumps of one rank, every tenth with a NaN, and files that play tricks."""
    folder = root / "20260109173000" / "0" / "net" / "1" / "0"
    folder.mkdir(parents=True)
    for number in range(count):
        values = np.full((2, 3), number, np.float16)
        doubled = values * 2
        if number % 10 == 7:
            doubled[1, 2] = np.nan
        content = encode_dump(f"op{number}", [entry_of(values)], [entry_of(doubled)])
        (folder / f"Add.op{number}.{number}.2.{1767951000000000 + number}").write_bytes(content)
    (folder / f"Add.short.1.2.{1767951000000000}").write_bytes(content[:-3])
    for number, trick in enumerate(tricks):
        (folder / f"scene{number}.bin").write_bytes(b"SCENE " + trick.encode() + b" ")
    for path in folder.iterdir():
        os.utime(path, (1767951000, 1767951000))  # nothing is still being written
    return root


class Gate:
    """Holds the first worker that comes to a file `SCENE gate` once it is armed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pipes = []
        for name in ("inside", "go"):
            os.mkfifo(folder / name)
            self._pipes.append(os.open(folder / name, os.O_RDWR | os.O_NONBLOCK))

    def arm(self) -> None:
        (self._folder / "armed").touch()

    def await_worker(self) -> int:
        """Wait until a worker is inside, and return its process."""
        assert select.select([self._pipes[0]], [], [], PATIENCE_S)[0], "nobody came to the gate"
        return int(os.read(self._pipes[0], 100))

    def open(self) -> None:
        os.write(self._pipes[1], b"!")

    def close(self) -> None:
        self.open()
        for pipe in self._pipes:
            os.close(pipe)


class Cluster:
    """A scheduler and its workers, each a process, none of them watched by a nanny.

    Parameters
    ----------
    folder
        For their files.
    site
        Where the reader `scene` is.
    """

    def __init__(self, folder: Path, site: Path) -> None:
        from distributed import Client

        self._folder = folder
        self.site = site
        self.scenes = folder / "scenes"
        self.scenes.mkdir()
        self.gate = Gate(self.scenes)
        self.file = folder / "scheduler.json"
        self.processes: list[subprocess.Popen[bytes]] = []
        self._scheduler = self._begin(
            "from distributed.cli.dask_scheduler import main; main()",
            *("--host", "127.0.0.1", "--port", "0", "--no-dashboard"),
            DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES="1",
        )
        await_true(self.file.exists)
        self.client = Client(
            scheduler_file=str(self.file), timeout=PATIENCE_S, set_as_default=False
        )

    def start_worker(self, before: str = "", site: Path | None = None, **more: str) -> int:
        """Start a worker that runs the statements `before` first."""
        there = len(self.client.nthreads())
        process = self._begin(
            f"{before or 'pass'}\nfrom distributed.cli.dask_worker import main; main()",
            *("--host", "127.0.0.1", "--no-nanny", "--nthreads", "1", "--no-dashboard"),
            *("--local-directory", str(self._folder)),
            PYTHONPATH=os.pathsep.join([str(site or self.site), str(ROOT)]),
            SCENES=str(self.scenes),
            **more,
        )
        await_true(lambda: len(self.client.nthreads()) > there or process.poll() is not None)
        return process.pid

    def need_workers(self, count: int) -> None:
        """See to it that there are so many workers."""
        while len(self.client.nthreads()) < count:
            self.start_worker()

    def lose(self, pid: int) -> None:
        """Kill a worker, and wait until the scheduler knows."""
        there = len(self.client.nthreads())
        os.kill(pid, signal.SIGKILL)
        await_true(lambda: len(self.client.nthreads()) < there)

    def kill_scheduler(self) -> None:
        self._scheduler.kill()
        self._scheduler.wait()

    def stop_scheduler(self, number: int = signal.SIGSTOP) -> None:
        """Let the scheduler hang, or go on."""
        self._scheduler.send_signal(number)

    def count_tasks(self) -> int:
        """How many tasks the scheduler knows."""
        found: int = self.client.run_on_scheduler(_count_tasks)
        return found

    def _begin(self, program: str, *arguments: str, **more: str) -> subprocess.Popen[bytes]:
        with (self._folder / "log.txt").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-c", program, "--scheduler-file", str(self.file), *arguments],
                env={**os.environ, **more},
                stdout=log,
                stderr=log,
            )
        self.processes.append(process)
        return process

    def close(self) -> None:
        self.gate.close()
        with contextlib.suppress(Exception):
            self.client.close(timeout=2)
        for process in self.processes:
            process.kill()
            process.wait()


def _count_tasks(dask_scheduler: Any) -> int:
    return len(dask_scheduler.tasks)


_count_tasks.__module__ = "__main__"  # the scheduler does not have this module: send the code


def await_true(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.02)


def names_of(root: Path, trick: str) -> Sequence[str]:
    """Paths below the root of the files that play a trick."""
    found: Iterator[Path] = root.rglob("scene*.bin")
    return sorted(
        path.relative_to(root).as_posix()
        for path in found
        if path.read_bytes().split()[1] == trick.encode()
    )
