"""The groups of ranks that exchanged values, and who of them sent bad ones.

A matched communication operator (`rendezvous`, `messages`) is a barrier in the causal order: what
a rank sent came before what any other rank received. Which ranks belong to its group is known, best
first, from what the dump itself lists, from the rank map (the smallest grouping of the job that
agrees with where bad values went in and came out), or else it is all ranks of the dump that ran the
operator of that name in that step; a gap in their numbers is a rank that is not in the dump.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from dumpscope.causality.dataflow import Lane, lane_of, sequence_key
from dumpscope.model import OpRecord, TensorSummary
from dumpscope.ranks.communication import (
    communication_kind,
    gives_all_the_same,
    group_ranks_of,
    named_rank,
)
from dumpscope.ranks.messages import match_messages
from dumpscope.ranks.parallelism import Partition, Topology
from dumpscope.ranks.presence import Presence, present_ranks, ranks_of
from dumpscope.ranks.rendezvous import Family, Meeting, group_calls, match_calls
from dumpscope.records import record

__all__ = ["Collectives", "Group", "fills_a_buffer"]

_MOST_ABSENT_NAMED = 16


@record(frozen=True, slots=True)
class Group:
    """The executions of one communication operator by the ranks that ran it together.

    `complete` is false when a rank of the group is missing from the dump or its inputs could not
    be checked, or when only one rank is there: what the others sent then is not known. `absent`
    names the missing ranks (the first few), `unread` those whose inputs are not known.
    `dimensions` say which grouping of the job it is.
    """

    members: tuple[OpRecord, ...]
    complete: bool
    absent: tuple[int, ...] = ()
    unread: tuple[int, ...] = ()
    dimensions: tuple[str, ...] = ()


class Collectives:
    """Match communication operators across ranks.

    Parameters
    ----------
    ops
        Executions with a tensor that is not clean, and the clean communication operators that
        belong to the same exchanges; any order, and others too.
    jobs
        Run -> job (`runs.group_runs`): the processes of one job may have {time} folders of their
        own.
    presence
        The ranks that the dump holds; without it those of `ops`.
    topology
        Coordinates of the ranks, where they are known.
    """

    def __init__(
        self,
        ops: Iterable[OpRecord],
        jobs: Mapping[str, str],
        *,
        presence: Presence | None = None,
        topology: Topology | None = None,
    ) -> None:
        given = list(ops)
        self._jobs = jobs
        self._presence = present_ranks(given, jobs) if presence is None else presence
        self._topology = topology
        self._group_of: dict[int, Group] = {}
        self._bad_since = _first_bad_outputs(given)
        self._bad_members: dict[int, tuple[OpRecord, ...]] = {}
        self._chosen: dict[tuple[str, str], Partition] = {}
        self.calls = calls = [op for op in given if communication_kind(op.op_type) is not None]
        families = group_calls(calls, jobs)
        usual = _usual_lanes(families)
        for family, lanes in families.items():
            elsewhere = usual[replace(family, step=None)] - lanes.keys()
            for meeting in match_calls(family, lanes):
                self._add_meeting(meeting, elsewhere)
        self._add_messages(calls)

    def group_of(self, op: OpRecord) -> Group | None:
        """The executions that exchanged values with `op`, itself among them."""
        return self._group_of.get(op.op_id)

    def bad_members(self, op: OpRecord) -> tuple[OpRecord, ...]:
        """All that brought bad values into the exchange of `op`, by rank."""
        group = self._group_of.get(op.op_id)
        if group is None:
            return ()
        # Groups live as long as this object, so that their identity names them.
        bad = self._bad_members.get(id(group))
        if bad is None:
            bad = self._bad_members[id(group)] = tuple(filter(self._sends_bad, group.members))
        return bad

    def senders_to(self, op: OpRecord) -> tuple[OpRecord, ...]:
        """Executions of other ranks that brought bad values into the exchange, by rank.

        Of several those come into question that are left with the same result as `op`, where the
        operator gives all ranks the same one.
        """
        senders = [member for member in self.bad_members(op) if member.op_id != op.op_id]
        if gives_all_the_same(op.op_type) and len(senders) > 1:
            result = _result_of(op)
            alike = [m for m in senders if _result_of(m) == result]
            senders = alike or senders
        return tuple(senders)

    def is_bad_before(self, op: OpRecord) -> bool:
        """Whether the rank had written a bad value earlier in the same step."""
        since = self._bad_since.get((lane_of(op), op.step))
        return since is not None and since < sequence_key(op)

    # --- who sends -------------------------------------------------------------------------

    def _sends_bad(self, op: OpRecord) -> bool:
        """Whether what `op` put into the exchange was bad before it."""
        kind = communication_kind(op.op_type)
        if kind == "recv":
            return False
        if kind == "scatter" and named_rank(op) not in (None, op.device):
            return False
        bad = [t for t in op.inputs if t.stats.nonfinite]
        if not bad:
            # Outputs only: what the rank wrote before is all that is known.
            return not any(t.checked for t in op.inputs) and self.is_bad_before(op)
        if fills_a_buffer(op):
            return False
        if all(_is_rewritten(op, t) for t in bad):
            return self.is_bad_before(op)
        return True

    # --- who belongs to the group ----------------------------------------------------------

    def _add_meeting(self, meeting: Meeting, elsewhere: set[Lane]) -> None:
        job, step = meeting.family.job, meeting.family.step
        damaged = self._presence.damaged_ranks(job, step)
        here = {op.device for op in meeting.calls}
        lost = {lane[-1] for lane in (*meeting.lost, *elsewhere) if lane[-1] >= 0}
        lost |= damaged - here
        for members, ranks, dimensions in self._divide(meeting):
            if ranks is None:
                absent = sorted({*self._presence.missing_from(job), *lost})
            else:
                absent = sorted(ranks - {op.device for op in members})
            unread = [op for op in members if not _is_known(op)]
            group = Group(
                tuple(members),
                len(members) > 1 and not absent and not unread,
                tuple(absent[:_MOST_ABSENT_NAMED]),
                ranks_of(unread),
                dimensions,
            )
            for op in members:
                self._group_of[op.op_id] = group

    def _divide(
        self, meeting: Meeting
    ) -> Iterable[tuple[Sequence[OpRecord], frozenset[int] | None, tuple[str, ...]]]:
        """Divide calls that match into groups, with all ranks of each where those are known."""
        stated: dict[tuple[int, ...] | None, list[OpRecord]] = defaultdict(list)
        for op in meeting.calls:
            stated[group_ranks_of(op)].append(op)
        for ranks, calls in stated.items():
            if ranks is not None:
                yield calls, frozenset(ranks), ()
                continue
            partition = self._choose_partition(meeting.family, calls)
            if partition is None:
                yield calls, None, ()
                continue
            by_rank = {op.device: op for op in calls}
            for group in partition.groups:
                members = [by_rank[rank] for rank in sorted(group & by_rank.keys())]
                if members:
                    yield members, group, partition.dimensions

    def _choose_partition(self, family: Family, calls: Sequence[OpRecord]) -> Partition | None:
        """Choose the smallest grouping that agrees with what went in and came out."""
        ranks = {op.device for op in calls}
        if self._topology is None or len(ranks) < len(calls) or not ranks <= self._topology.ranks:
            return None
        outcomes = {
            op.device: _Outcome(self._sends_bad(op), _output_state(op), _result_of(op))
            for op in calls
        }
        if not any(outcome.sent_bad or outcome.bad for outcome in outcomes.values()):
            return None
        key = (family.op_type, family.name)
        same = gives_all_the_same(family.op_type)
        usual = self._chosen.get(key)
        if all(outcome.bad is None for outcome in outcomes.values()):
            # No result was dumped: nothing speaks for one grouping rather than another.
            return usual
        if usual is not None and _agreement(usual, outcomes, same=same) == (0, 0):
            return usual
        scored = [
            (_agreement(partition, outcomes, same=same), number)
            for number, partition in enumerate(self._topology.partitions)
        ]
        if not scored:
            return None
        (wrong, unexplained), number = min(scored)
        if wrong:
            return None
        chosen = self._topology.partitions[number]
        if not unexplained:
            self._chosen.setdefault(key, chosen)
        return chosen

    # --- messages --------------------------------------------------------------------------

    def _add_messages(self, calls: Iterable[OpRecord]) -> None:
        calls = list(calls)
        by_id = {op.op_id: op for op in calls}
        for receive, sends in match_messages(calls, self._jobs, self._topology).items():
            certain = len(sends) == 1 and all(map(_is_known, sends))
            group = Group((*sends, by_id[receive]), certain)
            self._group_of[receive] = group
            if certain:
                self._group_of.setdefault(sends[0].op_id, group)


# --- what tensors tell ------------------------------------------------------------------------


def _first_bad_outputs(
    ops: Iterable[OpRecord],
) -> dict[tuple[Lane, int | None], tuple[object, ...]]:
    first: dict[tuple[Lane, int | None], tuple[object, ...]] = {}
    for op in ops:
        if any(t.stats.nonfinite for t in op.outputs):
            key, sequence = (lane_of(op), op.step), sequence_key(op)
            if key not in first or sequence < first[key]:
                first[key] = sequence
    return first


def _usual_lanes(families: Mapping[Family, Mapping[Lane, object]]) -> dict[Family, set[Lane]]:
    """Lanes that ran a family in any step."""
    usual: dict[Family, set[Lane]] = defaultdict(set)
    for family, lanes in families.items():
        usual[replace(family, step=None)] |= lanes.keys()
    return usual


def _is_known(op: OpRecord) -> bool:
    """Whether all that `op` sent is known."""
    inputs = [t for t in op.inputs if t.dumped or t.address or not t.size_bytes]
    return bool(inputs) and all(t.checked and not t.missing_bytes for t in inputs)


def _is_rewritten(op: OpRecord, tensor: TensorSummary) -> bool:
    """Whether an input was recorded after the operator had written its result over it."""
    return (
        tensor.address != 0
        and tensor.digest is not None
        and any(t.address == tensor.address and t.digest == tensor.digest for t in op.outputs)
    )


def fills_a_buffer(op: OpRecord) -> bool:
    """Whether what `op` lists as its input is only the memory that it receives into.

    Of a broadcast only the root's input is read. Where the call does not name the root, an input
    that differs from what came out was overwritten, so it is not the root's.
    """
    kind = communication_kind(op.op_type)
    if kind == "recv":
        return True
    if kind != "broadcast":
        return False
    root = named_rank(op)
    if root is not None and op.device is not None:
        return root != op.device
    return any(_differ(out, inp) for out, inp in zip(op.outputs, op.inputs, strict=False))


def _differ(a: TensorSummary, b: TensorSummary) -> bool:
    x, y = a.stats, b.stats
    if (x.nan, x.posinf, x.neginf, x.min, x.max) != (y.nan, y.posinf, y.neginf, y.min, y.max):
        return True
    return a.digest is not None and b.digest is not None and a.digest != b.digest


def _output_state(op: OpRecord) -> bool | None:
    """Whether a result is bad, `None` when that is not known."""
    if any(t.stats.nonfinite for t in op.outputs):
        return True
    return False if op.outputs and all(t.checked for t in op.outputs) else None


def _result_of(op: OpRecord) -> tuple[object, ...]:
    """What identifies the result of an operator that gives all ranks the same."""
    return tuple(
        t.digest or (t.dtype, t.stats.nan, t.stats.posinf, t.stats.neginf, t.stats.min, t.stats.max)
        for t in op.outputs
    )


class _Outcome(NamedTuple):
    """What one rank put into an exchange and got out of it; `bad` is `None` where unknown."""

    sent_bad: bool
    bad: bool | None
    result: tuple[object, ...]


def _agreement(
    partition: Partition, outcomes: Mapping[int | None, _Outcome], *, same: bool
) -> tuple[int, int]:
    """Count groups that contradict what is known, and those whose bad result nobody explains."""
    wrong = unexplained = 0
    for group in partition.groups:
        found = [outcomes[rank] for rank in group if rank in outcomes]
        sent = any(outcome.sent_bad for outcome in found)
        known = {(outcome.bad, outcome.result) for outcome in found if outcome.bad is not None}
        if same and (len(known) > 1 or (sent and any(not bad for bad, _ in known))):
            wrong += 1
        elif any(bad for bad, _ in known) and not sent and len(found) == len(group):
            unexplained += 1
    return wrong, unexplained
