"""What ranks gave each other in a communication operator, as it was judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dumpscope.causality.dataflow import Lane, lane_of
from dumpscope.causality.input_states import Sofar
from dumpscope.causality.inputs import InputState, is_saturated
from dumpscope.model import OpRecord
from dumpscope.ranks.collectives import Collectives, Group, fills_a_buffer
from dumpscope.ranks.communication import communication_kind
from dumpscope.ranks.presence import ranks_of
from dumpscope.records import record

__all__ = ["Exchange", "Sent", "may_have_brought"]

_RECEIVERS = ("recv", "broadcast")
_REACHES_ALL = ("all_reduce", "all_gather", "broadcast")
"""Kinds whose output holds what every sender sent, on every rank."""


@record(frozen=True, slots=True)
class Sent:
    """What the other ranks put into a communication operator.

    `received` says that a rank was bad before, or is not in the dump; `ranks` are those that were
    bad, `absent` and `unread` those of which nothing is known. `all_finite` says that all others
    are known to have given finite values, `ranks_at_limit` which of them gave values at the limit.
    `sender` is the execution of the first of the ranks, those at the limit where none was bad.
    """

    received: bool
    ranks: tuple[int, ...] = ()
    absent: tuple[int, ...] = ()
    unread: tuple[int, ...] = ()
    all_finite: bool = False
    ranks_at_limit: tuple[int, ...] = ()
    sender: OpRecord | None = None


@record(frozen=True, slots=True)
class _Given:
    """Members of a group by what they put in."""

    group: Group
    bad: Sequence[OpRecord]
    unknown: Sequence[OpRecord]
    at_limit: Sequence[OpRecord]


class Exchange:
    """Follow values from rank to rank, communication operator by communication operator."""

    def __init__(self, collectives: Collectives) -> None:
        self._collectives = collectives
        self._bad_before: dict[int, bool | None] = {}
        self._at_limit: dict[int, bool] = {}
        self._given: dict[int, _Given] = {}

    def members_of(self, op: OpRecord) -> Sequence[OpRecord]:
        """The executions that exchanged values with `op`, itself among them."""
        group = self._collectives.group_of(op)
        return () if group is None else group.members

    def senders_to(self, op: OpRecord) -> Sequence[OpRecord]:
        """Executions of other ranks that brought bad values, else those that brought the limit."""
        senders = self._collectives.senders_to(op)
        group = self._collectives.group_of(op)
        if senders or group is None:
            return senders
        return [m for m in self._given_by(group).at_limit if m.op_id != op.op_id]

    def settle(
        self,
        together: Sequence[OpRecord],
        read: dict[int, list[InputState]],
        lanes: Mapping[Lane, Sofar],
    ) -> None:
        """Note who was bad before the operator that `together` ran.

        Of a broadcast in which every rank has the same before and after, the rank whose value has
        a known cause is the root; what the others list as input is then their buffer.
        """
        exchanging = [op for op in together if communication_kind(op.op_type) is not None]
        broadcast = [op for op in exchanging if communication_kind(op.op_type) == "broadcast"]
        if any(s.kind == "bad" and s.cause for op in broadcast for s in read[op.op_id]):
            for op in broadcast:
                read[op.op_id] = [
                    replace(s, kind="absent")
                    if s.kind == "unknown" or (s.kind == "bad" and s.cause is None)
                    else s
                    for s in read[op.op_id]
                ]
        for op in exchanging:
            states = read[op.op_id]
            lane = lanes[lane_of(op)]
            self._bad_before[op.op_id] = _was_bad(op, states, op.step in lane.bad)
            self._at_limit[op.op_id] = any(s.saturated for s in states if s.kind != "absent") or (
                op.step in lane.saturated and may_have_brought(op, states)
            )

    def sent_to(self, op: OpRecord) -> Sent | None:
        """What the other ranks gave to `op`; `None` for operators that exchange nothing."""
        if communication_kind(op.op_type) is None:
            return None
        group = self._collectives.group_of(op)
        if group is None:
            return Sent(received=True)
        given = self._given_by(group)
        senders = [m for m in given.bad if m.op_id != op.op_id]
        likely = _narrow(op, senders)
        at_limit = [m for m in given.at_limit if m.op_id != op.op_id]
        return Sent(
            received=bool(senders) or not group.complete,
            ranks=ranks_of(likely),
            absent=() if senders else group.absent,
            unread=() if senders else group.unread,
            all_finite=all(m.op_id == op.op_id for m in (*given.bad, *given.unknown)),
            ranks_at_limit=ranks_of(at_limit),
            sender=min(likely or at_limit, key=lambda m: (lane_of(m), m.op_id), default=None),
        )

    def _given_by(self, group: Group) -> _Given:
        """Sort the members of a group by what they gave, once for all of them."""
        given = self._given.get(id(group))
        if given is None:
            known = {m.op_id: self._is_bad(m) for m in group.members}
            given = self._given[id(group)] = _Given(
                group,
                [m for m in group.members if known[m.op_id]],
                [m for m in group.members if known[m.op_id] is None],
                [m for m in group.members if self._is_at_limit(m)],
            )
        return given

    def _is_bad(self, member: OpRecord) -> bool | None:
        if member.op_id in self._bad_before:
            return self._bad_before[member.op_id]
        # Not judged: clean, or still to come in a circle of ranks that wait for each other.
        if communication_kind(member.op_type) == "recv" or fills_a_buffer(member):
            return False
        if any(t.stats.nonfinite for t in member.inputs):
            return True
        return False if member.inputs and all(t.checked for t in member.inputs) else None

    def _is_at_limit(self, member: OpRecord) -> bool:
        known = self._at_limit.get(member.op_id)
        if known is not None:
            return known
        receives = communication_kind(member.op_type) == "recv" or fills_a_buffer(member)
        return not receives and any(map(is_saturated, member.inputs))


def may_have_brought(op: OpRecord, states: Sequence[InputState]) -> bool:
    """Whether what was there on this rank may have gone into `op`: not all it sent was seen."""
    if not states:
        return communication_kind(op.op_type) != "recv"
    return any(s.kind == "unknown" for s in states)


def _was_bad(op: OpRecord, states: Sequence[InputState], bad_earlier: bool) -> bool | None:
    """Whether what a rank put in was bad; `None` where nothing tells."""
    present = [s for s in states if s.kind != "absent"]
    if any(s.kind == "bad" for s in present):
        return True
    if not present and (states or communication_kind(op.op_type) == "recv"):
        return False if communication_kind(op.op_type) in _RECEIVERS else None
    if present and all(s.kind != "unknown" for s in present):
        return False
    return True if bad_earlier else None


def _narrow(op: OpRecord, senders: Sequence[OpRecord]) -> Sequence[OpRecord]:
    """Of several senders those that are left with the same result as `op`, if any are.

    Only where the operator gives all ranks the same one.
    """
    if len(senders) < 2 or communication_kind(op.op_type) not in _REACHES_ALL:
        return senders
    result = _result_of(op)
    return [m for m in senders if _result_of(m) == result] or senders


def _result_of(op: OpRecord) -> list[tuple[object, ...]]:
    return [
        (t.digest,) if t.digest
        else (t.dtype, t.stats.nan, t.stats.posinf, t.stats.neginf, t.stats.min, t.stats.max)
        for t in op.outputs
    ]  # fmt: skip
