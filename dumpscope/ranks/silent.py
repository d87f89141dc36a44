"""Exchanges whose results were not dumped, and what may have come in through them.

A dump of inputs alone shows what every rank put into an exchange, and what it read afterwards, but
not what it got. The same goes for operators that write over what they are given and return nothing.
A bad value that shows behind such an exchange need not be the rank's own.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence

from dumpscope.causality.dataflow import Lane, lane_of, sequence_key
from dumpscope.causality.inputs import InputState
from dumpscope.model import OpRecord, TensorSummary
from dumpscope.msprobe_names import is_parameter
from dumpscope.ranks.collectives import Collectives, Group
from dumpscope.ranks.communication import communication_kind, named_rank
from dumpscope.ranks.rendezvous import count_elements
from dumpscope.records import record

__all__ = ["Arrival", "SilentExchanges", "brings_values", "may_come_in"]

_REACHES_ALL = ("all_reduce", "all_gather", "broadcast", "recv")
"""Kinds of which everybody who takes part gets all that was sent to it."""
_ONE_GETS_IT = ("gather", "reduce")
_MOST_LOOKED_AT = 16


@record(frozen=True, slots=True)
class Arrival:
    """An exchange without dumped results to which other ranks had brought bad values.

    `certain` says that this rank's result was bad too, and that what was read may be that result.
    """

    call: OpRecord
    senders: tuple[OpRecord, ...]
    certain: bool


def brings_values(op: OpRecord) -> bool:
    """Whether `op` may bring values of other ranks, and none of what it brought was dumped."""
    kind = communication_kind(op.op_type)
    if kind in (None, "send", "barrier") or any(t.checked for t in op.outputs):
        return False
    named = named_rank(op)
    if named is None or op.device is None:
        return True
    if kind in _ONE_GETS_IT:
        return named == op.device
    return kind == "recv" or named != op.device


def may_come_in(state: InputState) -> bool:
    """Whether a bad input can be the result of an exchange: neither weights nor handed in."""
    return not (state.source or is_parameter(state.tensor.name))


class SilentExchanges:
    """Looks for the exchange that a bad value without a producer may have come in through."""

    def __init__(self, collectives: Collectives) -> None:
        self._collectives = collectives
        self._calls: dict[tuple[Lane, int | None], list[OpRecord]] | None = None

    def before(self, op: OpRecord, states: Sequence[InputState]) -> Arrival | None:
        """Find the latest such exchange of the rank before `op`, in the same step.

        One that explains the first of `states`, the bad inputs of `op`, goes before all others.
        """
        if not states or not all(map(may_come_in, states)):
            return None
        if self._calls is None:
            self._calls = self._find_calls()
        calls = self._calls.get((lane_of(op), op.step))
        if not calls:
            return None
        end = bisect_left(calls, sequence_key(op), key=sequence_key)
        doubtful = None
        for call in reversed(calls[max(0, end - _MOST_LOOKED_AT) : end]):
            senders = self._collectives.senders_to(call)
            group = self._collectives.group_of(call)
            certain = (
                group is not None
                and communication_kind(call.op_type) in _REACHES_ALL
                and _may_be_result(states[0].tensor, group, senders)
            )
            if certain:
                return Arrival(call, senders, certain=True)
            doubtful = doubtful or Arrival(call, senders, certain=False)
        return doubtful

    def _find_calls(self) -> dict[tuple[Lane, int | None], list[OpRecord]]:
        found: dict[tuple[Lane, int | None], list[OpRecord]] = defaultdict(list)
        for op in self._collectives.calls:
            if not brings_values(op):
                continue
            bad = self._collectives.bad_members(op)
            # What a rank itself brought is no news to it.
            if bad and all(member.op_id != op.op_id for member in bad):
                found[lane_of(op), op.step].append(op)
        for calls in found.values():
            calls.sort(key=sequence_key)
        return dict(found)


def _may_be_result(tensor: TensorSummary, group: Group, senders: Sequence[OpRecord]) -> bool:
    """Whether a tensor may be what an exchange left, or a part of it, by its type and size."""
    sent = [t for sender in senders for t in sender.inputs]
    if all(t.dtype != tensor.dtype for t in sent):
        return False
    counts = [count_elements(member.inputs) or 0 for member in group.members]
    gathers = communication_kind(senders[0].op_type) == "all_gather"
    read = count_elements([tensor]) or 0
    return read <= (sum(counts) if gathers else max(counts))
