"""Run whole programs: how long they take, and how much memory they and their children use."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

POLL_S = 0.05
MIB = 2**20


class ProgramFailedError(RuntimeError):
    """A program that was to be measured answered with an unexpected status."""


@dataclass(frozen=True)
class Measured:
    """Wall-clock seconds and peak bytes of one run."""

    seconds: float
    peak_bytes: int


def dumpscope(*arguments: str) -> list[str]:
    """Return the command line of the tool in this environment."""
    return [str(Path(sys.executable).with_name("dumpscope")), *arguments]


def python(code: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", code, *arguments]


def run(
    command: Sequence[str], *, statuses: tuple[int, ...] = (0,), watch_memory: bool = False
) -> Measured:
    """Run a program to its end, its output thrown away.

    Raises `ProgramFailedError` where its exit status is none of `statuses`.
    """
    started = time.perf_counter()
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    watcher = MemoryWatcher(process.pid) if watch_memory else None
    if watcher is not None:
        watcher.start()
    _, talk = process.communicate()
    status = process.returncode
    seconds = time.perf_counter() - started
    peak = 0
    if watcher is not None:
        watcher.stop()
        peak = watcher.peak_bytes
    if status not in statuses:
        text = talk.decode(errors="replace")[-2000:]
        raise ProgramFailedError(f"{' '.join(command)} exited {status}: {text}")
    return Measured(seconds, peak)


def median_seconds(
    command: Sequence[str],
    *,
    runs: int,
    statuses: tuple[int, ...] = (0,),
    before: Callable[[], object] | None = None,
) -> float:
    """Return the median of `runs` runs; `before` is called ahead of each and not measured."""
    seconds = []
    for _ in range(runs):
        if before is not None:
            before()
        seconds.append(run(command, statuses=statuses).seconds)
    return statistics.median(seconds)


def medians_in_turn(
    commands: Sequence[Sequence[str]],
    *,
    runs: int,
    before: Callable[[], object],
) -> list[float]:
    """Return the median of `runs` runs of each command.

    They run in turn, A B C A B C: a machine that becomes faster or slower does so for all of them,
    and their ratios hold. `before` is called ahead of each run and not measured.
    """
    seconds: list[list[float]] = [[] for _ in commands]
    for _ in range(runs):
        for command, measured in zip(commands, seconds, strict=True):
            before()
            measured.append(run(command).seconds)
    return [statistics.median(measured) for measured in seconds]


class MemoryWatcher(threading.Thread):
    """Follows the memory of a process and of all that it starts.

    The peak is the larger of the highest proportional sum seen over all of them (shared pages
    counted once) and of the highest resident size that the kernel kept for any one.
    """

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.pid = pid
        self.peak_bytes = 0
        self._done = threading.Event()

    def run(self) -> None:
        while not self._done.wait(POLL_S):
            pids = family(self.pid)
            total = sum(read_kib(pid, "smaps_rollup", "Pss:") for pid in pids)
            highest = max((read_kib(pid, "status", "VmHWM:") for pid in pids), default=0)
            self.peak_bytes = max(self.peak_bytes, total * 1024, highest * 1024)

    def stop(self) -> None:
        self._done.set()
        self.join()


def family(pid: int) -> list[int]:
    """Return the process and all its descendants."""
    found = [pid]
    for member in found:
        tasks = Path(f"/proc/{member}/task")
        try:
            for task in os.listdir(tasks):
                children = (tasks / task / "children").read_text()
                found.extend(int(child) for child in children.split())
        except OSError:
            continue  # it ended between two looks
    return found


def read_kib(pid: int, file: str, key: str) -> int:
    try:
        for line in Path(f"/proc/{pid}/{file}").read_text().splitlines():
            if line.startswith(key):
                return int(line.split()[1])
    except OSError:
        pass  # it ended, or the kernel does not tell
    return 0
