"""The order in which findings are shown: a total order, the same on every run.

By class first: what explains more comes first. Then the newest run, the step, ranks that went
wrong by themselves before those that received it, and time. One exception: a saturation or a bad
input from which another finding descends takes the place directly before it, because there the
trouble began.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from dumpscope.dataflow import Dataflow, Lane, lane_of, sequence_key
from dumpscope.model import Finding, Verdict

__all__ = ["FAIL_ORDER", "rank_findings", "verdict_class"]

FAIL_ORDER: tuple[Verdict, ...] = (
    Verdict.ORIGIN,
    Verdict.STATUS_ORIGIN,
    Verdict.SATURATED_ORIGIN,
    Verdict.BAD_INPUT,
    Verdict.RECEIVED,
    Verdict.HANDOFF,
    Verdict.UNKNOWN_INPUTS,
    Verdict.PROPAGATED,
    Verdict.SWALLOWED,
)
"""Verdicts in ranking order, for `--fail-on VERDICT`: that one and those before it."""

_CLASS = {
    Verdict.ORIGIN: 0,
    Verdict.STATUS_ORIGIN: 2,
    Verdict.SATURATED_ORIGIN: 3,
    Verdict.BAD_INPUT: 4,
    Verdict.RECEIVED: 5,
    Verdict.HANDOFF: 6,
    Verdict.UNKNOWN_INPUTS: 7,
    Verdict.PROPAGATED: 8,
    Verdict.SWALLOWED: 9,
    Verdict.EXPECTED: 10,
}
_SATURATED_CONFIRMED = 1
_MOVABLE = (Verdict.SATURATED_ORIGIN, Verdict.BAD_INPUT)


def verdict_class(finding: Finding) -> int:
    """Position of the finding's class in the ranking, 0 first."""
    if finding.verdict is Verdict.SATURATED_ORIGIN and finding.overflow is not None:
        return _SATURATED_CONFIRMED
    return _CLASS[finding.verdict]


def rank_findings(
    findings: Iterable[Finding], flow: Dataflow, jobs: Mapping[str, str] | None = None
) -> list[Finding]:
    """Return the findings in ranking order, numbered from 1.

    `jobs` maps a run to its job; the newest job comes first.
    """
    found = list(findings)
    jobs = jobs or {}
    newest_first = sorted({_job(f, jobs) for f in found}, reverse=True)
    age = {job: number for number, job in enumerate(newest_first)}
    infected = _first_received(found)

    def key(finding: Finding) -> tuple[object, ...]:
        op = finding.op
        sequence = sequence_key(op)
        since = infected.get(lane_of(op))
        return (
            verdict_class(finding),
            age[_job(finding, jobs)],
            sequence[0],
            since is not None and since < sequence,
            -1 if op.device is None else op.device,
            lane_of(op),
            sequence,
        )

    found.sort(key=key)
    return [
        replace(finding, rank=number)
        for number, finding in enumerate(_put_ancestors_first(found, flow), start=1)
    ]


def _job(finding: Finding, jobs: Mapping[str, str]) -> str:
    run = finding.op.place.run or ""
    return jobs.get(run, run)


def _first_received(findings: Iterable[Finding]) -> dict[Lane, tuple[object, ...]]:
    """When each rank first received a bad value from another one."""
    first: dict[Lane, tuple[object, ...]] = {}
    for finding in findings:
        if finding.verdict is Verdict.RECEIVED:
            lane = lane_of(finding.op)
            sequence = sequence_key(finding.op)
            if lane not in first or sequence < first[lane]:
                first[lane] = sequence
    return first


def _put_ancestors_first(findings: Sequence[Finding], flow: Dataflow) -> list[Finding]:
    """Move saturations and bad inputs directly before the best finding that grew out of them."""
    place = {finding.op.op_id: number for number, finding in enumerate(findings)}
    movable = {f.op.op_id for f in findings if f.verdict in _MOVABLE}
    if not movable:
        return list(findings)
    # Best first, and each execution is visited once: the first visit is by its best descendant.
    best: dict[int, int] = {}
    for finding in findings:
        stack = [finding.op]
        while stack:
            for parent in flow.parents_of(stack.pop()):
                if parent.op_id not in best:
                    best[parent.op_id] = finding.op.op_id
                    stack.append(parent)
    before: dict[int, list[Finding]] = defaultdict(list)
    moved: set[int] = set()
    for op_id in movable:
        heir = best.get(op_id)
        if heir is not None and heir != op_id and place[heir] < place[op_id]:
            before[heir].append(findings[place[op_id]])
            moved.add(op_id)
    ordered: list[Finding] = []
    for finding in findings:
        ordered += sorted(
            before.get(finding.op.op_id, ()),
            key=lambda f: (lane_of(f.op), sequence_key(f.op)),
        )
        if finding.op.op_id not in moved:
            ordered.append(finding)
    return ordered
