"""Which findings a scan was asked for: the filters of the commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from dumpscope.errors import OptionsError
from dumpscope.model import Finding, ScanOptions

__all__ = ["check_run", "select_findings"]


def check_run(options: ScanOptions, jobs: Mapping[str, str]) -> None:
    """Raise `OptionsError` when `--run` names a run that is not among `jobs` (run -> job)."""
    if options.run not in ("all", "latest") and jobs and options.run not in jobs:
        there = ", ".join(sorted(jobs))
        raise OptionsError(
            f"--run {options.run}: no such run; there are {there}; what was read is kept: "
            "dumpscope report --run all goes on from there"
        )


def select_findings(
    findings: Sequence[Finding], options: ScanOptions, jobs: Mapping[str, str]
) -> list[Finding]:
    """Keep what `--step`, `--rank`, `--op` and `--run` ask for.

    `jobs` maps a run to its job.
    """
    kept = list(findings)
    if options.steps:
        kept = [f for f in kept if f.op.step in options.steps]
    if options.ranks:
        kept = [f for f in kept if f.op.device in options.ranks]
    if options.op_globs:
        kept = [
            f
            for f in kept
            if any(
                fnmatchcase(f.op.op_name, glob) or fnmatchcase(f.op.op_type, glob)
                for glob in options.op_globs
            )
        ]
    if options.run != "all":
        wanted = options.run
        if wanted == "latest":
            wanted = max(jobs.values(), default="")
        kept = [f for f in kept if _in_run(f, wanted, jobs)]
    return kept


def _in_run(finding: Finding, wanted: str, jobs: Mapping[str, str]) -> bool:
    run = finding.op.place.run or ""
    return wanted in (run, jobs.get(run, run))
