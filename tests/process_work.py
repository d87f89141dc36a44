"""Work that other processes are told to do in tests; they import this module."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from dumpscope.model import DumpFile, Place
from dumpscope.processes import Recipe

NEVER = 1 << 60


class Numbering:
    """Returns for each file the process that did the work, and the file's number.

    Parameters
    ----------
    home
        Process of the test. What follows only happens in others.
    fatal, failing
        Numbers at which the process ends at once, or the work raises; a negative `fatal` is how
        many batches a process does before it ends. Every file whose number is `fatal` more than
        a multiple of 1,000 is fatal.
    signature
        What it says of itself.
    """

    def __init__(
        self, home: int, fatal: int = NEVER, failing: int = -1, signature: str | None = None
    ) -> None:
        self.home, self.fatal, self.failing = home, fatal, failing
        self.done = 0
        self.recipe = Recipe(
            "process_work:Numbering", (home, fatal, failing), signature or f"from {home}"
        )

    def name_reader(self, file: DumpFile) -> str:
        return f"reader{file.inode}"

    def __call__(self, batch: Sequence[DumpFile]) -> list[tuple[int, int]]:
        numbers = [file.inode for file in batch]
        if os.getpid() != self.home:
            sys.stdout.write("this must not get among the results")
            sys.stdout.flush()
            self.done += 1
            if self.fatal in [number % 1000 for number in numbers] or self.done > -self.fatal > 0:
                os._exit(9)
            if self.failing in numbers:
                raise ZeroDivisionError
        return [(os.getpid(), number) for number in numbers]


class Echo:
    """Returns the files with their places, and a file and a place that are not of the batch."""

    def __init__(self) -> None:
        self.recipe = Recipe("process_work:Echo", (), "echo")

    def __call__(
        self, batch: Sequence[DumpFile]
    ) -> tuple[Sequence[tuple[DumpFile, Place]], DumpFile]:
        return [(file, file.place) for file in batch], DumpFile(
            "/n", "n", "n", 1, 2, 3, 4, Place(7)
        )
