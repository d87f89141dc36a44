"""The executions of all ranks in an order in which causes come before their effects.

Clocks of different ranks are not comparable. Within a rank its own order counts; across ranks a
communication operator is a barrier: its executions on all ranks come together, after everything
that came before it on any of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
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
    coming = {op.op_id for op in ops}
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
            coming.discard(op.op_id)
            queues[number].popleft()
            yield [op]
            ready.append(number)
            continue
        number = ready.popleft()
        queue = queues[number]
        while queue:
            op = queue[0]
            members = members_of(op)
            needed = {lane_number[lane_of(member)] for member in members if member.op_id in coming}
            if len(needed) < 2:
                coming.discard(op.op_id)
                yield [queue.popleft()]
                continue
            key = min(member.op_id for member in members)
            arrived = waiting.setdefault(key, {})
            arrived[number] = op
            if arrived.keys() < needed:
                break
            del waiting[key]
            for other, member in sorted(arrived.items()):
                coming.discard(member.op_id)
                queues[other].popleft()
                if other != number:
                    ready.append(other)
            yield [member for _, member in sorted(arrived.items())]
