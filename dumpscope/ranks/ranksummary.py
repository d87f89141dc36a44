"""Which ranks went wrong by themselves, and which were infected, through what. Pure.

Within a rank its own clock and order count; between ranks only what they exchanged does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace

from dumpscope.causality.dataflow import sequence_key
from dumpscope.model import (
    Finding,
    OpRecord,
    Place,
    RankEvent,
    RankState,
    RankSummary,
    Verdict,
)
from dumpscope.msprobe_names import is_parameter
from dumpscope.ranks.communication import communication_kind
from dumpscope.ranks.parallelism import Topology
from dumpscope.ranks.presence import ranks_of
from dumpscope.records import record

__all__ = ["summarise_ranks"]

# What may be the consequence of an earlier step without anything in the dump to show it.
_INHERITED = frozenset(
    {
        Verdict.BAD_INPUT,
        Verdict.HANDOFF,
        Verdict.PROPAGATED,
        Verdict.SWALLOWED,
        Verdict.UNKNOWN_INPUTS,
    }
)

_Key = tuple[str, int, str, int, int]
"""(job, source, host, process, rank)."""


@record(frozen=False, slots=True)
class _Rank:
    place: Place
    device: int | None
    findings: list[Finding] = field(default_factory=list)


def summarise_ranks(
    findings: Iterable[Finding],
    places: Iterable[Place],
    jobs: Mapping[str, str],
    *,
    senders_to: Callable[[OpRecord], Sequence[OpRecord]] = lambda op: (),
    topology: Topology | None = None,
    came_through: Mapping[int, OpRecord] | None = None,
    find_doubtful: Callable[[Sequence[OpRecord]], Collection[int]] = lambda ops: (),
) -> tuple[RankSummary, ...]:
    """Say of every rank of a dump what happened to it first.

    Parameters
    ----------
    findings
        All findings of the scan; expected values are left out.
    places
        Where the dump's files lie, so that clean ranks are known too.
    jobs
        Run -> job.
    senders_to
        `Judge.senders_to`.
    topology
        Coordinates of ranks, where they are known.
    came_through
        `Judge.came_through`: the exchanges before what received something through them.
    find_doubtful
        Tells, by number, behind which executions an exchange has no dumped result.

    Returns
    -------
    tuple
        One entry for each rank of each job, the newest job first, by host and rank.
    """
    ranks: dict[_Key, _Rank] = {}
    for place in places:
        if place.device is not None or place.process is not None:
            ranks.setdefault(_key(place, place.device, jobs), _Rank(place, place.device))
    for finding in findings:
        op = finding.op
        if finding.verdict is not Verdict.EXPECTED and (
            op.device is not None or op.place.process is not None
        ):
            key = _key(op.place, op.device, jobs)
            ranks.setdefault(key, _Rank(op.place, op.device)).findings.append(finding)
    firsts = {key: _find_first(rank) for key, rank in ranks.items()}
    doubtful = find_doubtful([f.op for f in firsts.values() if f is not None and _may_come_in(f)])
    summaries = [
        (key, _summarise(key[0], rank, firsts[key], senders_to, topology, came_through or {}))
        for key, rank in ranks.items()
    ]
    summaries = [(key, _mark_unclear(summary, firsts[key], doubtful)) for key, summary in summaries]
    return tuple(_mark_later(summaries))


def _key(place: Place, device: int | None, jobs: Mapping[str, str]) -> _Key:
    run = place.run or ""
    process = place.process if place.global_rank is None else None
    return (
        jobs.get(run, run),
        place.source,
        place.host or "",
        -1 if process is None else process,
        -1 if device is None else device,
    )


def _find_first(rank: _Rank) -> Finding | None:
    """What went wrong first on a rank."""
    rank.findings.sort(key=lambda finding: sequence_key(finding.op))
    first = next((f for f in rank.findings if _holds_bad(f.op)), None)
    return first or next((f for f in rank.findings if f.severity == "error"), None)


def _may_come_in(first: Finding) -> bool:
    """Whether what a rank shows first may be what it received: neither made nor handed in."""
    if first.verdict not in _INHERITED or first.reason.code == "bad_input_source":
        return False
    if first.reason.parameters.get("source"):
        return False
    return first.deciding is None or not is_parameter(first.op.tensors[first.deciding].name)


def _mark_unclear(
    summary: RankSummary, first: Finding | None, doubtful: Collection[int]
) -> RankSummary:
    unclear = summary.state == "own" and first is not None and first.op.op_id in doubtful
    return replace(summary, state="unclear") if unclear else summary


def _summarise(
    job: str,
    rank: _Rank,
    first: Finding | None,
    senders_to: Callable[[OpRecord], Sequence[OpRecord]],
    topology: Topology | None,
    came_through: Mapping[int, OpRecord],
) -> RankSummary:
    place = rank.place
    dimensions = () if topology is None else topology.dimensions
    coordinates = {} if topology is None else topology.place_of(rank.device)
    summary = RankSummary(
        rank.device,
        "clean",
        run=job or None,
        host=place.host,
        device_id=place.device_id,
        source=place.source,
        process=place.process,
        coordinates=tuple((d, coordinates[d]) for d in dimensions if d in coordinates),
    )
    if first is None:
        return summary
    received = next((f for f in rank.findings if f.verdict is Verdict.RECEIVED), None)
    if received is None:
        return replace(summary, state=_state_of(first), first=_event(first))
    through = came_through.get(received.op.op_id, received.op)
    return replace(
        summary,
        state=_state_of(first),
        first=_event(first),
        received=_event(received, through),
        senders=ranks_of(senders_to(through)),
    )


def _holds_bad(op: OpRecord) -> bool:
    return any(tensor.stats.nonfinite for tensor in op.tensors)


def _state_of(first: Finding) -> RankState:
    if first.verdict is Verdict.RECEIVED:
        return "received"
    if first.verdict is Verdict.ORIGIN and communication_kind(first.op.op_type) is not None:
        return "together"
    return "own"


def _event(finding: Finding, op: OpRecord | None = None) -> RankEvent:
    op = op or finding.op
    return RankEvent(op.op_type, op.op_name, op.step, finding.verdict.value, op.file, finding.rank)


def _mark_later(summaries: Iterable[tuple[_Key, RankSummary]]) -> Iterable[RankSummary]:
    """Tell apart ranks that show only in a later step what an earlier one left behind."""
    by_job: dict[str, list[tuple[_Key, RankSummary]]] = defaultdict(list)
    for key, summary in summaries:
        by_job[key[0]].append((key, summary))
    for job in sorted(by_job, reverse=True):
        begun = [_step_of(s) for _, s in by_job[job] if s.first is not None]
        earliest = min(begun, default=-1)
        for _, summary in sorted(by_job[job], key=lambda item: item[0]):
            inherited = (
                summary.state == "own"
                and summary.first is not None
                and Verdict(summary.first.verdict) in _INHERITED
                and _step_of(summary) > earliest
            )
            yield replace(summary, state="later") if inherited else summary


def _step_of(summary: RankSummary) -> int:
    step = None if summary.first is None else summary.first.step
    return -1 if step is None else step
