"""The lanes of a trace, folded into rows that one picture has room for.

A lane is a stream of a rank. With many of them, the streams of a rank share a row first, then ranks
do to which the same happened, or the same kind of thing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from typing import Literal

from dumpscope.causality.dataflow import Lane, lane_of
from dumpscope.model import Verdict
from dumpscope.records import record
from dumpscope.tracing.trace import Trace

__all__ = ["MOST_ROWS", "Likeness", "Row", "plan_rows"]

MOST_ROWS = 16
"""More lanes than this are folded."""

Likeness = Literal["stream", "rank", "alike", "similar"]
"""What the lanes of a row have in common: all, the rank, what happened, or the kind of it."""

_Stream = tuple[Lane, "int | None"]


@record(frozen=True, slots=True)
class Row:
    """Lanes that are drawn as one. `positions` are those of their nodes in the trace."""

    likeness: Likeness
    positions: tuple[int, ...]
    devices: tuple[int | None, ...]
    stream: int | None
    has_origin: bool
    has_other_source: bool
    received: bool
    aside: int = 0


def plan_rows(trace: Trace) -> tuple[Row, ...]:
    """Fold lanes until there are few enough; the origin's row comes first."""
    lanes: dict[_Stream, list[int]] = defaultdict(list)
    for number, node in enumerate(trace.nodes):
        lanes[lane_of(node.op), node.op.stream_id].append(number)
    ranks: dict[Lane, list[int]] = defaultdict(list)
    for (lane, _), positions in lanes.items():
        ranks[lane] = sorted([*ranks[lane], *positions])
    groups: list[tuple[Likeness, list[list[int]]]] = [
        ("stream", list(lanes.values())),
        ("rank", list(ranks.values())),
    ]
    for same, describe in _LIKENESSES:
        found: dict[Hashable, list[int]] = defaultdict(list)
        for positions in ranks.values():
            found[describe(trace, positions)] += positions
        groups.append((same, [sorted(positions) for positions in found.values()]))
    likeness, chosen = next((g for g in groups if len(g[1]) <= MOST_ROWS), groups[-1])
    rows = sorted((_make_row(trace, likeness, found) for found in chosen), key=_row_order)
    aside = Counter(lane_of(finding.op) for finding in trace.aside)
    # What stands beside a rank is told once, in the first of its rows.
    return tuple(
        replace(row, aside=sum(aside.pop(lane, 0) for lane in _lanes_of(trace, row.positions)))
        for row in rows
    )


def _lanes_of(trace: Trace, positions: Iterable[int]) -> set[Lane]:
    return {lane_of(trace.nodes[number].op) for number in positions}


def _make_row(trace: Trace, likeness: Likeness, positions: Sequence[int]) -> Row:
    nodes = [trace.nodes[number] for number in positions]
    streams = {node.op.stream_id for node in nodes}
    one_rank = len(_lanes_of(trace, positions)) == 1
    return Row(
        likeness if not one_rank else ("stream" if len(streams) == 1 else "rank"),
        tuple(positions),
        tuple(sorted({n.op.device for n in nodes}, key=lambda d: -1 if d is None else d)),
        streams.pop() if len(streams) == 1 else None,
        any(node is trace.nodes[trace.origin or 0] for node in nodes),
        any(node.part == "joined" and not node.parents for node in nodes),
        any(node.verdict is Verdict.RECEIVED for node in nodes),
    )


def _row_order(row: Row) -> tuple[object, ...]:
    first = row.devices[0] if row.devices else None
    return (
        not row.has_origin,
        not row.has_other_source,
        -1 if first is None else first,
        row.positions[0],
    )


def _what_happened(trace: Trace, positions: Sequence[int]) -> Hashable:
    """Return all that happened on a rank: the same for ranks whose rows would look the same."""
    return tuple(
        (node.part, node.verdict, node.op.op_type, node.op.op_name, node.op.step)
        for node in (trace.nodes[number] for number in positions)
    )


def _kind_of_it(trace: Trace, positions: Sequence[int]) -> Hashable:
    nodes = [trace.nodes[number] for number in positions]
    telling = frozenset(n.verdict for n in nodes if n.verdict is not Verdict.PROPAGATED)
    return (_role(trace, positions), telling, nodes[0].op.step)


def _role(trace: Trace, positions: Sequence[int]) -> int:
    parts = {trace.nodes[number].part for number in positions}
    if "start" in parts:
        return 0
    if "joined" in parts:
        return 1
    received = any(trace.nodes[number].verdict is Verdict.RECEIVED for number in positions)
    return 2 if received else 3


_LIKENESSES: tuple[tuple[Likeness, Callable[[Trace, Sequence[int]], Hashable]], ...] = (
    ("alike", _what_happened),
    ("similar", _kind_of_it),
    ("similar", _role),
)
