"""The order in which findings are shown: a total order, the same on every run.

By class first: what explains more comes first. Then the newest run, the step, ranks that went
wrong by themselves before those that received it, and time. One exception: a saturation or a bad
input from which another finding descends takes the place directly before it, because there the
trouble began.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from dumpscope.causality.dataflow import Ancestors, Dataflow, Lane, lane_of, sequence_key
from dumpscope.model import Finding, OpRecord, Verdict

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


Members = Callable[[OpRecord], Sequence[OpRecord]]


def verdict_class(finding: Finding) -> int:
    """Position of the finding's class in the ranking, 0 first."""
    if finding.verdict is Verdict.SATURATED_ORIGIN and finding.overflow is not None:
        return _SATURATED_CONFIRMED
    return _CLASS[finding.verdict]


def rank_findings(
    findings: Iterable[Finding],
    flow: Dataflow,
    jobs: Mapping[str, str] | None = None,
    members_of: Members = lambda op: (),
    doubtful: Collection[int] = (),
) -> list[Finding]:
    """Return the findings in ranking order, numbered from 1.

    Parameters
    ----------
    flow
        Where inputs come from.
    jobs
        Maps a run to its job; the newest job comes first.
    members_of
        The executions that exchanged values with one: what came out of it came from all.
    doubtful
        Numbers of executions that may have received what they read.
    """
    found = list(findings)
    jobs = jobs or {}
    newest_first = sorted({_job(f, jobs) for f in found}, reverse=True)
    age = {job: number for number, job in enumerate(newest_first)}
    infected = _first_received(found, doubtful)

    def key(finding: Finding) -> tuple[object, ...]:
        op = finding.op
        sequence, lane = sequence_key(op), lane_of(op)
        since = infected.get(lane)
        return (
            verdict_class(finding),
            age[_job(finding, jobs)],
            sequence[0],
            (since is not None and since < sequence) or op.op_id in doubtful,
            lane[-1],
            lane,
            sequence,
        )

    found.sort(key=key)
    ordered = _put_ancestors_first(found, flow, members_of)
    return [_with_rank(finding, number) for number, finding in enumerate(ordered, start=1)]


def _with_rank(f: Finding, rank: int) -> Finding:
    # What dataclasses.replace does takes eight times as long.
    return Finding(
        f.op, f.verdict, f.reason, f.evidence, rank, f.deciding, f.overflow, f.rule, f.known,
        f.caused_by,
    )  # fmt: skip


def _job(finding: Finding, jobs: Mapping[str, str]) -> str:
    run = finding.op.place.run or ""
    return jobs.get(run, run)


def _first_received(
    findings: Iterable[Finding], doubtful: Collection[int]
) -> dict[Lane, tuple[object, ...]]:
    """When each rank first received a bad value from another one."""
    first: dict[Lane, tuple[object, ...]] = {}
    for finding in findings:
        if finding.verdict is Verdict.RECEIVED or finding.op.op_id in doubtful:
            lane = lane_of(finding.op)
            sequence = sequence_key(finding.op)
            if lane not in first or sequence < first[lane]:
                first[lane] = sequence
    return first


def _put_ancestors_first(
    findings: Sequence[Finding], flow: Dataflow, members_of: Members
) -> list[Finding]:
    """Move saturations and bad inputs directly before the best finding that grew out of them."""
    place = {finding.op.op_id: number for number, finding in enumerate(findings)}
    movable = [f for f in findings if f.verdict in _MOVABLE and place[f.op.op_id] > 0]
    if not movable:
        return list(findings)
    ancestors = flow.ancestors_to([f.op for f in movable])
    heir_of = _find_heirs(findings, movable, ancestors, members_of)
    before: dict[int, list[Finding]] = defaultdict(list)
    for finding in movable:
        heir = heir_of.get(finding.op.op_id)
        if heir is not None and place[heir] < place[finding.op.op_id]:
            before[heir].append(finding)
    moved = {f.op.op_id for some in before.values() for f in some}
    ordered: list[Finding] = []
    for finding in findings:
        if finding.op.op_id in moved:
            continue
        ahead = before.get(finding.op.op_id, ())
        ordered += sorted(ahead, key=lambda f: (lane_of(f.op), sequence_key(f.op)))
        ordered.append(finding)
    return ordered


def _find_heirs(
    findings: Sequence[Finding],
    movable: Sequence[Finding],
    ancestors: Ancestors,
    members_of: Members,
) -> dict[int, int]:
    """Of each of `movable` the best finding that descends from it, by number of the execution."""
    sought = {f.op.op_id for f in movable}
    last = max(number for number, f in enumerate(findings) if f.op.op_id in sought)
    heir_of: dict[int, int] = {}
    seen: set[int] = set()
    # Best first, and each execution is visited once: the first visit is by its best descendant.
    # So the best descendant itself descends from no better one, and is not moved.
    for finding in findings[:last]:
        own = finding.op.op_id
        if own in seen:
            continue
        seen.add(own)
        stack = [finding.op]
        while stack:
            op = stack.pop()
            for other in (op, *members_of(op)):
                for parent in ancestors(other):
                    if parent.op_id not in seen:
                        seen.add(parent.op_id)
                        heir_of[parent.op_id] = own
                        stack.append(parent)
    return {op_id: heir for op_id, heir in heir_of.items() if op_id in sought}
