"""Findings as a nightly job counts them: one entry per operator, and whether it fails the job.

An operator is known by model, type and name, as in a baseline: not by time, task or step, so
that a CI server recognises it the next night.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from dumpscope.model import Finding, Scan
from dumpscope.nightly.baseline import model_key
from dumpscope.outcome import EXIT_INCOMPLETE, failing_verdicts, parse_tolerance
from dumpscope.records import record

__all__ = ["OperatorGroup", "State", "group_findings", "is_incomplete", "level_of"]

State = Literal["failed", "noted", "known"]
Level = Literal["error", "warning", "note"]

# Notes of a scan that mean that something expected is not there at all.
_MISSING = frozenset({"nothing_found", "partial_steps"})


@record(frozen=True, slots=True)
class OperatorGroup:
    """All findings of one operator, in ranking order.

    `state` is "failed" when one of them fails the job, "known" when the baseline has all of
    them, "noted" otherwise. `leading` is the one to show for it.
    """

    model: str
    op_type: str
    op_name: str
    findings: tuple[Finding, ...]
    state: State
    leading: Finding


def group_findings(findings: Iterable[Finding], fail_on: str) -> list[OperatorGroup]:
    """Put the findings of one operator together; operators come in the order of their best.

    `fail_on` is the option of that name: what fails the job.
    """
    failing = failing_verdicts(fail_on)
    groups: dict[tuple[str, str, str], list[Finding]] = {}
    for finding in findings:
        op = finding.op
        key = (model_key(op.place.model_name), op.op_type, op.op_name)
        groups.setdefault(key, []).append(finding)
    result = []
    for key, members in groups.items():
        new = [finding for finding in members if not finding.known]
        failed = [finding for finding in new if finding.verdict in failing]
        state: State = "failed" if failed else ("noted" if new else "known")
        leading = (failed or new or members)[0]
        result.append(OperatorGroup(*key, tuple(members), state, leading))
    return result


def level_of(finding: Finding, fail_on: str) -> Level:
    """How loud a finding is said: an error fails the job, the others do not."""
    if finding.verdict in failing_verdicts(fail_on) and not finding.known:
        return "error"
    if finding.known or finding.severity == "info":
        return "note"
    return "warning"


def is_incomplete(scan: Scan) -> bool:
    """Whether more is missing, unread or unchecked than `--max-unreadable` tolerates."""
    if scan.complete:
        return False
    if scan.exit_status == EXIT_INCOMPLETE or any(note.code in _MISSING for note in scan.notes):
        return True
    tolerated = parse_tolerance(scan.options.max_unreadable)(scan.counts, scan.read_failures)
    return scan.counts.read_failures + scan.counts.unchecked > tolerated
