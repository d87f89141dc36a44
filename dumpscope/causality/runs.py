"""Several runs in one dump path: which {time} folders are the processes of one job."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timezone

__all__ = ["group_runs", "run_time"]

SAME_JOB_SECONDS = 10
"""Processes of one job create their {time} folders within a few seconds of each other."""


def run_time(run: str) -> float | None:
    """Seconds since the epoch of a 14-digit {time} folder, `None` when it is no date."""
    try:
        return datetime.strptime(run, "%Y%m%d%H%M%S").replace(tzinfo=timezone.utc).timestamp()
    except ValueError:
        return None


def group_runs(runs: Iterable[str]) -> dict[str, str]:
    """Map every run to the name of its job: the newest run of those close together.

    A run is close when it began at most `SAME_JOB_SECONDS` after the one before it.
    """
    dated = sorted((time, run) for run in set(runs) if (time := run_time(run)) is not None)
    jobs: dict[str, str] = {run: run for run in runs}
    group: list[str] = []
    last = 0.0
    for time, run in dated:
        if group and time - last > SAME_JOB_SECONDS:
            group = []
        group.append(run)
        last = time
        for member in group:
            jobs[member] = run
    return jobs
