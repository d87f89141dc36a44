"""Which send a receive took its message from.

Both sides may name the other rank (`Distributed.recv(tensor, src)`), a message has one size, and
what arrives is what was sent: the same bytes, or the same statistics where a dump holds no more.
So these decide, in this sequence; among messages of one pair of ranks the order does.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from dumpscope.causality.dataflow import Lane, lane_of, sequence_key
from dumpscope.model import OpRecord, TensorSummary
from dumpscope.ranks.communication import communication_kind, group_token, named_rank
from dumpscope.ranks.parallelism import Topology
from dumpscope.ranks.rendezvous import count_elements

__all__ = ["MessageBook", "match_messages"]

_MOST_CANDIDATES = 64

Message = tuple[str, "int | None", "int | None", str]
"""(job, step, number of elements, group and tag)."""


def match_messages(
    ops: Iterable[OpRecord], jobs: Mapping[str, str], topology: Topology | None = None
) -> dict[int, tuple[OpRecord, ...]]:
    """Find for every receive the send whose message it took.

    With a topology a rank that names nobody receives from the stages next to its own.

    Returns `op_id` of the receive -> sends: one where it is known, several where what the dump
    says fits all of them, none where it fits no send of the dump.
    """
    book = MessageBook(jobs, topology)
    receives = []
    for op in sorted(ops, key=lambda op: (lane_of(op), sequence_key(op))):
        kind = communication_kind(op.op_type)
        if kind == "send":
            book.add(op)
        elif kind == "recv":
            receives.append(op)
    return {op.op_id: book.find_sends(op) for op in receives}


class MessageBook:
    """All sends of a dump, by everything that a receive may know of its own."""

    def __init__(self, jobs: Mapping[str, str], topology: Topology | None = None) -> None:
        self._jobs = jobs
        self._topology = topology
        self._by_pair: dict[tuple[object, ...], list[OpRecord]] = defaultdict(list)
        self._lanes: dict[tuple[object, ...], set[Lane]] = defaultdict(set)
        self._by_values: dict[tuple[object, ...], list[OpRecord]] = defaultdict(list)
        self._received: Counter[tuple[object, ...]] = Counter()

    def add(self, send: OpRecord) -> None:
        """Note a send; those of one rank in its order."""
        message = self._message(send, send.inputs)
        target = named_rank(send)
        values = _values_of(send.inputs)
        for source in (send.device, None):
            self._by_pair[message, source, target].append(send)
            self._lanes[message, source, target].add(lane_of(send))
            self._by_values[message, source, target, values].append(send)

    def find_sends(self, receive: OpRecord) -> tuple[OpRecord, ...]:
        """Find the send of the next receive of a rank."""
        # What was given to write into has the size of what is to come.
        message = self._message(receive, receive.outputs or receive.inputs)
        source = named_rank(receive)
        turn = (lane_of(receive), message, source)
        number = self._received[turn]
        self._received[turn] += 1
        same = self._nearest(receive, self._with_values(receive, (message, source)))
        if len(same) == 1:
            return (same[0],)
        in_turn = self._in_turn(receive, (message, source), number)
        if in_turn is not None and (
            not same or _values_of(in_turn.inputs) == _values_of(receive.outputs)
        ):
            return (in_turn,)
        return tuple(same)

    # A send that names its target is surer than one that names nobody.

    def _with_values(self, receive: OpRecord, key: tuple[object, ...]) -> list[OpRecord]:
        """Sends of what was received, by other ranks; of very many the first ones."""
        values = _values_of(receive.outputs)
        for target in (receive.device, None):
            sends = self._by_values.get((*key, target, values), ())
            lane = lane_of(receive)
            found = [s for s in islice(sends, _MOST_CANDIDATES) if lane_of(s) != lane]
            if found:
                return found
        return []

    def _nearest(self, receive: OpRecord, sends: list[OpRecord]) -> list[OpRecord]:
        """Those of several sends that come from a stage next to the receiver's, if any do."""
        if self._topology is None or len(sends) < 2:
            return sends
        near = self._topology.stage_neighbours(receive.device)
        return [send for send in sends if send.device in near] or sends

    def _in_turn(self, receive: OpRecord, key: tuple[object, ...], number: int) -> OpRecord | None:
        """The send that order gives, where one side names the other and one rank is meant."""
        for target in (receive.device, None):
            pair = (*key, target)
            sends = self._by_pair.get(pair, ())
            if number < len(sends) and (target, key[1]) != (None, None):
                lanes = self._lanes[pair]
                return sends[number] if len(lanes) == 1 and lane_of(receive) not in lanes else None
        return None

    def _message(self, op: OpRecord, tensors: Sequence[TensorSummary]) -> Message:
        run = op.place.run or ""
        return (self._jobs.get(run, run), op.step, count_elements(tensors), group_token(op))


def _values_of(tensors: Iterable[TensorSummary]) -> tuple[object, ...]:
    """What two sides of a message have in common: the bytes' digest, else the statistics."""
    return tuple(
        (t.dtype, t.digest)
        if t.digest is not None
        else (t.dtype, s.nan, s.posinf, s.neginf, s.min, s.max)
        for t in tensors
        for s in (t.stats,)
    )
