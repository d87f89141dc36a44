"""What the ranks that went bad by themselves have in common: the group that explains them.

Notes of a run, most telling first: all and only the ranks of one coordinate (TP=3), of two of one
dimension, of two dimensions crossed, of one host; else the smallest group that holds them all; else
their numbers. Over several jobs: one device that is bad by itself in every one of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from math import comb

from dumpscope.model import RankSummary, Reason
from dumpscope.ranks.parallelism import DIMENSIONS, Topology, format_ranks

__all__ = ["RANK_NOTES", "explain_ranks", "name_coordinate"]

RANK_NOTES = (
    "ranks_own",
    "ranks_own_group",
    "ranks_own_inside",
    "ranks_own_all",
    "ranks_together",
    "ranks_received",
    "ranks_unclear",
    "ranks_later",
    "ranks_same_device",
)
"""Codes of the notes that tell how ranks went bad, in the order in which they are read."""

_MERE_CHANCE = 0.1

_Group = tuple[str, frozenset[int]]


def explain_ranks(
    summaries: Sequence[RankSummary], topology: Topology | None = None
) -> list[Reason]:
    """Return notes on how the ranks of a scan went bad; none where there is only one rank.

    The newest job that has a bad rank is explained; where there are several jobs, also what they
    have in common.
    """
    jobs: dict[str | None, list[RankSummary]] = defaultdict(list)
    for summary in summaries:
        jobs[summary.run].append(summary)
    notes: list[Reason] = []
    for found in jobs.values():
        if len(found) > 1 and any(s.state != "clean" for s in found):
            notes = _explain_job(found, topology)
            break
    return notes + _same_device(list(jobs.values()))


def _explain_job(ranks: Sequence[RankSummary], topology: Topology | None) -> list[Reason]:
    by_state: dict[str, list[RankSummary]] = defaultdict(list)
    for summary in ranks:
        by_state[summary.state].append(summary)
    notes = []
    if by_state["own"]:
        notes.append(_explain_own(by_state["own"], ranks, topology))
    notes += [
        _tell_group(f"ranks_{state}", by_state[state], len(ranks))
        for state in ("together", "received", "unclear", "later")
        if by_state[state]
    ]
    return notes


def _explain_own(
    own: Sequence[RankSummary], ranks: Sequence[RankSummary], topology: Topology | None
) -> Reason:
    steps = [s.first.step for s in own if s.first is not None and s.first.step is not None]
    parameters: dict[str, str | int | float | bool | None] = {
        "ranks": _name_ranks(own),
        "count": len(own),
        "total": len(ranks),
        "step": min(steps, default=None),
    }
    if len(own) == len(ranks):
        return Reason("ranks_own_all", parameters)
    everybody: Mapping[int, RankSummary] = {s.rank: s for s in ranks if s.rank is not None}
    numbers = frozenset(s.rank for s in own if s.rank is not None)
    if len(everybody) < len(ranks):
        # Equal numbers on several hosts, or processes without any: nothing to reason with.
        everybody, numbers = {}, frozenset()
    groups = list(_groups(everybody, numbers, topology))
    exact = next((name for name, members in groups if members == numbers), None)
    if len(own) == 1:
        exact = " ".join(name_coordinate(d, n) for d, n in own[0].coordinates) or exact
        return Reason("ranks_own", {**parameters, "place": exact})
    if exact is not None:
        return Reason("ranks_own_group", {**parameters, "group": exact})
    around = [(len(m), number) for number, (_, m) in enumerate(groups) if numbers < m]
    size, number = min(around, default=(len(ranks), 0))
    # Some group holds a few ranks by mere chance: how likely is that?
    chance = len(groups) * comb(size, len(own)) / comb(len(ranks), len(own))
    if numbers and around and chance < _MERE_CHANCE:
        return Reason("ranks_own_inside", {**parameters, "group": groups[number][0], "size": size})
    return Reason("ranks_own", parameters)


def _groups(
    everybody: Mapping[int, RankSummary], numbers: frozenset[int], topology: Topology | None
) -> Iterator[_Group]:
    """Yield groups of ranks that have a name and hold one of `numbers`, the simplest first."""
    singles: list[tuple[str, int, frozenset[int]]] = []
    for dimension in DIMENSIONS if topology is not None else ():
        values: dict[int, set[int]] = defaultdict(set)
        for rank in everybody:
            place = topology.place_of(rank) if topology is not None else {}
            if dimension in place:
                values[place[dimension]].add(rank)
        if len(values) > 1:
            singles += [
                (dimension, value, frozenset(values[value]))
                for value in sorted(values)
                if values[value] & numbers
            ]
    for dimension, value, members in singles:
        yield name_coordinate(dimension, value), members
    yield from _hosts(everybody)
    for (d, a, members), (other, b, more) in combinations(singles, 2):
        # Crossed, or of one dimension where that is all and nothing else.
        if d != other:
            yield f"{name_coordinate(d, a)} {name_coordinate(other, b)}", members & more
        elif len(members) + len(more) == len(numbers):
            yield f"{name_coordinate(d, a)} + {name_coordinate(d, b)}", members | more


def _hosts(everybody: Mapping[int, RankSummary]) -> Iterator[_Group]:
    hosts: dict[str, set[int]] = defaultdict(set)
    for rank, summary in everybody.items():
        if summary.host:
            hosts[summary.host].add(rank)
    if len(hosts) > 1:
        for host in sorted(hosts):
            yield host, frozenset(hosts[host])


def _tell_group(code: str, ranks: Sequence[RankSummary], total: int) -> Reason:
    """Say of ranks through which operator they first went bad, and in which step."""
    events = [s.received or s.first for s in ranks]
    first = min(
        (event for event in events if event is not None),
        key=lambda event: (-1 if event.step is None else event.step, event.finding or 1 << 62),
    )
    senders = {sender for s in ranks for sender in s.senders}
    return Reason(
        code,
        {
            "ranks": _name_ranks(ranks),
            "count": len(ranks),
            "total": total,
            "step": first.step,
            "op_type": first.op_type,
            "op_name": first.op_name,
            "senders": format_ranks(senders) or None,
        },
    )


def _same_device(jobs: Sequence[Sequence[RankSummary]]) -> list[Reason]:
    """Find devices that went bad by themselves in every job with bad ranks."""
    blamed = [
        {_device(s) for s in ranks if s.state == "own"}
        for ranks in jobs
        if any(s.state != "clean" for s in ranks)
    ]
    if len(blamed) < 2:
        return []
    common = set.intersection(*blamed)
    everywhere = {_device(s) for ranks in jobs for s in ranks}
    if not common or len(common) == len(everywhere):
        return []
    hosts = sorted({host for host, _ in common if host})
    return [
        Reason(
            "ranks_same_device",
            {
                "devices": format_ranks(number for _, number in common),
                "count": len(common),
                "jobs": len(blamed),
                "host": ", ".join(hosts) or None,
            },
        )
    ]


def _device(summary: RankSummary) -> tuple[str, int]:
    """What stays the same from job to job: the host's device, else the rank."""
    number = summary.rank if summary.device_id is None else summary.device_id
    return (summary.host or "", -1 if number is None else number)


def _name_ranks(ranks: Iterable[RankSummary]) -> str:
    """Numbers of ranks; with their hosts where numbers repeat."""
    by_host: dict[str, list[int]] = defaultdict(list)
    nameless = 0
    for summary in ranks:
        if summary.rank is None:
            nameless += 1
        else:
            by_host[summary.host or ""].append(summary.rank)
    numbers = [rank for found in by_host.values() for rank in found]
    if nameless:
        return f"{nameless} without a number"
    if len(set(numbers)) == len(numbers):
        return format_ranks(numbers)
    return "; ".join(
        f"{host}: {format_ranks(by_host[host])}".lstrip(": ") for host in sorted(by_host)
    )


def name_coordinate(dimension: str, number: int) -> str:
    """Name a coordinate as people do: TP=3, PP stage 5."""
    return f"PP stage {number}" if dimension == "pp" else f"{dimension.upper()}={number}"
