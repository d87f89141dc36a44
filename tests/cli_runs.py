"""Run the program in this process, or in one of its own, and look at how it ended."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dumpscope.cli.main import run_with

__all__ = ["ROOT", "Ended", "environment", "run", "start"]

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Ended:
    """Exit status, and what went to stdout and stderr."""

    status: int
    out: str
    err: str


def run(*arguments: str | Path) -> Ended:
    """Run the program in this process, in the current folder."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2)]
    with redirect_stdout(streams[0]), redirect_stderr(streams[1]):
        status = run_with([os.fspath(argument) for argument in arguments])
    texts = []
    for stream in streams:
        stream.flush()
        assert isinstance(stream.buffer, io.BytesIO)
        texts.append(stream.buffer.getvalue().decode())
    return Ended(status, *texts)


def environment(**more: str) -> dict[str, str]:
    """The environment of a process of its own: this source tree, and no store of the user's."""
    kept = {k: v for k, v in os.environ.items() if k != "DUMPSCOPE_STORE"}
    return {**kept, "PYTHONPATH": str(ROOT), **more}


def start(
    *arguments: str | Path, env: dict[str, str] | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run `python -m dumpscope` as a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "dumpscope", *(os.fspath(a) for a in arguments)],
        env=env or environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        **options,
    )
