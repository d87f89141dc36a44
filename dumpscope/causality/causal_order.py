"""The executions of all ranks in an order in which causes come before their effects.

Clocks of different ranks are not comparable. Within a rank its own order counts; across ranks a
communication operator is a barrier: its executions on all ranks come together, after everything
that came before it on any of them.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from itertools import groupby

from dumpscope.causality.dataflow import Lane, lane_of
from dumpscope.model import OpRecord

__all__ = ["in_causal_order"]


def in_causal_order(
    ops: Sequence[OpRecord],
    members_of: Callable[[OpRecord], Sequence[OpRecord]],
) -> Iterator[list[OpRecord]]:
    """Yield executions one by one, those of one communication operator together.

    Parameters
    ----------
    ops
        Rank by rank, each rank in its order.
    members_of
        The executions that exchanged values with one, itself among them; empty for all others.

    Where ranks wait for each other in a circle, because the dump lacks something or operators
    were matched wrongly, the first of them goes on alone.
    """
    queues = [deque(group) for _, group in groupby(ops, key=lane_of)]
    lane_number: dict[Lane, int] = {lane_of(queue[0]): n for n, queue in enumerate(queues)}
    calls = _Calls(ops, members_of, lane_number)
    waiting: dict[Hashable, dict[int, OpRecord]] = {}
    ready = deque(range(len(queues)))
    while ready or waiting:
        if not ready:
            # In a circle: the first rank goes on without the others.
            key, (number, op) = min(
                ((key, next(iter(sorted(arrived.items())))) for key, arrived in waiting.items()),
                key=lambda item: item[1][0],
            )
            del waiting[key][number]
            if not waiting[key]:
                del waiting[key]
            calls.note_gone(op)
            queues[number].popleft()
            yield [op]
            ready.append(number)
            continue
        number = ready.popleft()
        queue = queues[number]
        while queue:
            op = queue[0]
            key, needed = calls.look_at(op)
            if len(needed) < 2:
                calls.note_gone(op)
                yield [queue.popleft()]
                continue
            arrived = waiting.setdefault(key, {})
            arrived[number] = op
            if len(arrived) < len(needed):
                break
            del waiting[key]
            for other, member in sorted(arrived.items()):
                calls.note_gone(member)
                queues[other].popleft()
                if other != number:
                    ready.append(other)
            yield [member for _, member in sorted(arrived.items())]


_ALONE: tuple[int, frozenset[int]] = (-1, frozenset())


class _Calls:
    """The exchanges that are still to come, each looked through once while nobody has left it.

    All of many ranks arrive at one: looking at all its members for each of them takes too long.
    """

    def __init__(
        self,
        ops: Sequence[OpRecord],
        members_of: Callable[[OpRecord], Sequence[OpRecord]],
        lane_number: Mapping[Lane, int],
    ) -> None:
        self._members_of = members_of
        self._lane_number = lane_number
        self._coming = {op.op_id for op in ops}
        # By the identity of its list of members: the list, so that it stays, and what is known.
        self._found: dict[int, tuple[Sequence[OpRecord], int, frozenset[int]]] = {}
        self._lists_with: dict[int, set[int]] = defaultdict(set)

    def look_at(self, op: OpRecord) -> tuple[int, frozenset[int]]:
        """Return the key of the exchange that `op` is part of, and the lanes that take part."""
        members = self._members_of(op)
        if not members:
            return _ALONE
        found = self._found.get(id(members))
        if found is None or found[0] is not members:
            present = [m for m in members if m.op_id in self._coming]
            lanes = frozenset(self._lane_number[lane_of(m)] for m in present)
            found = (members, min(m.op_id for m in members), lanes)
            self._found[id(members)] = found
            for member in present:
                self._lists_with[member.op_id].add(id(members))
        return found[1], found[2]

    def note_gone(self, op: OpRecord) -> None:
        """Forget what was known of the exchanges of an execution that had its turn."""
        self._coming.discard(op.op_id)
        for number in self._lists_with.pop(op.op_id, ()):
            self._found.pop(number, None)
