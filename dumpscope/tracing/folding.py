"""Which operators of a trace are worth a place of their own, and the tree that shows those.

A trace has thousands of operators, and nearly all of them only hand on what they were given. They
are counted, not listed. What stays is where something happens: the origin, the first operators
after it, a saturation or Inf that turns into something worse, an exchange that brings the value to
another rank, and whatever has a verdict of its own.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from dumpscope.causality.dataflow import Lane, lane_of
from dumpscope.model import OpRecord, Verdict
from dumpscope.records import record
from dumpscope.tracing.parentage import COMMUNICATION
from dumpscope.tracing.trace import Node, Trace

__all__ = ["FOLLOWER", "Branch", "Rating", "count_types", "fold_tree", "rate_nodes"]

ALWAYS, TELLING, NEAR, HIDING, FOLLOWER = range(5)
"""How much a node tells: the origin and the way to it; where something happens; the first ones
after the origin; where the bad value vanishes; what only follows."""

_NEAR_COUNT = 4
_HIDING_COUNT = 3
_SMALL = 12
"""Up to so many entries nothing is left out."""

_QUIET = (Verdict.PROPAGATED, Verdict.RECEIVED, Verdict.SWALLOWED, Verdict.EXPECTED)


@record(frozen=True, slots=True)
class Rating:
    """`levels` by position; `turn` is the node in which what was bad became worse, if any."""

    levels: tuple[int, ...]
    turn: int | None = None


@record(frozen=True, slots=True)
class Branch:
    """An entry of the folded tree, with those that grew out of it.

    `members` are positions of one operator on one or several ranks. `between` counts operators
    that lie between it and the entry above, `hidden` are the ones that are counted here.
    """

    members: tuple[int, ...]
    evidence: tuple[str, ...] = ()
    between: int = 0
    children: tuple[Branch, ...] = ()
    hidden: tuple[int, ...] = ()


def rate_nodes(trace: Trace) -> Rating:
    """Say how much each node of a trace tells."""
    turn = _find_turn(trace)
    levels = [_rate_alone(node) for node in trace.nodes]
    if turn is not None:
        levels[turn] = min(levels[turn], TELLING)
    near = 0
    hiding: dict[tuple[str, str, int | None], None] = {}
    reached: set[Lane] = {
        lane_of(node.op) for node in trace.nodes if node.part in ("start", "before")
    }
    for number, node in enumerate(trace.nodes):
        if node.verdict is Verdict.RECEIVED and lane_of(node.op) not in reached:
            reached.add(lane_of(node.op))
            levels[number] = min(levels[number], TELLING)
            for edge in node.parents:
                if edge.evidence == COMMUNICATION:
                    levels[edge.source] = min(levels[edge.source], TELLING)
        if levels[number] == HIDING:
            key = (node.op.op_type, node.op.op_name, node.op.step)
            if len(hiding) < _HIDING_COUNT:
                hiding[key] = None
            if key not in hiding:
                levels[number] = FOLLOWER
        if node.part == "after" and near < _NEAR_COUNT:
            near += 1
            levels[number] = min(levels[number], NEAR)
    return Rating(tuple(levels), turn)


def _rate_alone(node: Node) -> int:
    if node.part in ("start", "before"):
        return ALWAYS
    if node.part == "joined" and not node.parents:
        return TELLING
    if node.finding is not None and node.finding.overflow is not None:
        return TELLING
    if node.verdict is None or node.verdict not in _QUIET:
        return TELLING
    return HIDING if node.verdict in (Verdict.SWALLOWED, Verdict.EXPECTED) else FOLLOWER


def _find_turn(trace: Trace) -> int | None:
    """Find the first node with something worse than the origin has: saturated, Inf, NaN."""
    if trace.origin is None:
        return None
    begun = _worst_output(trace.nodes[trace.origin].op)
    if not begun:
        return None
    for number, node in enumerate(trace.nodes):
        if node.part == "after" and _worst_output(node.op) > begun:
            return number
    return None


def _worst_output(op: OpRecord) -> int:
    worst = 0
    for tensor in op.outputs:
        stats = tensor.stats
        worst = max(worst, 3 if stats.nan else 2 if stats.nonfinite else stats.saturated > 0)
    return worst


def count_types(trace: Trace, members: Iterable[int]) -> list[tuple[str, int]]:
    """Count operators by type, the most frequent first."""
    counted = Counter(trace.nodes[number].op.op_type for number in members)
    return sorted(counted.items(), key=lambda entry: (-entry[1], entry[0]))


# --- the tree ---------------------------------------------------------------------------------


@record(frozen=False, slots=True)
class _Entry:
    """The same operator with the same verdict on one or several ranks."""

    members: list[int]
    above: int | None
    evidence: list[str]
    level: int


def fold_tree(trace: Trace, limit: int | None = None) -> Branch | None:
    """Fold what grew out of the origin into a tree of few entries.

    Parameters
    ----------
    limit
        Operators to show by name at most; 0 shows all, `None` those that tell something (30 at
        most).

    Returns
    -------
    Branch | None
        The beginning of the way to the origin; `None` for an empty trace.
    """
    if trace.origin is None:
        return None
    entries = _bundle_ranks(trace)
    shown = _choose(entries, limit)
    return _build_branch(entries, shown)


def _bundle_ranks(trace: Trace) -> list[_Entry]:
    """Put what happens alike on several ranks into one entry; entry 0 is the root."""
    levels = rate_nodes(trace).levels
    entries: list[_Entry] = []
    entry_of: dict[int, int] = {}
    by_key: dict[tuple[object, ...], int] = {}
    repeated: Counter[tuple[object, ...]] = Counter()
    for number, node in enumerate(trace.nodes):
        if node.part in ("joined", "expected"):
            continue
        edge = next((e for e in node.parents if e.source in entry_of), None)
        # What lost its edge to a circle still grew out of the origin.
        above = 0 if edge is None else entry_of[edge.source]
        evidence = "" if edge is None else edge.evidence
        op = node.op
        alike = (above, node.verdict, op.op_type, op.op_name, op.step, evidence)
        repeated[alike, lane_of(op)] += 1
        found = by_key.setdefault((alike, repeated[alike, lane_of(op)]), len(entries))
        if found == len(entries):
            entries.append(_Entry([], above if entries else None, [], levels[number]))
        entry = entries[found]
        entry.members.append(number)
        entry.level = min(entry.level, levels[number])
        if evidence and evidence not in entry.evidence:
            entry.evidence.append(evidence)
        entry_of[number] = found
    return entries


def _choose(entries: Sequence[_Entry], limit: int | None) -> set[int]:
    """Return which entries are shown by name."""
    if limit == 0 or len(entries) <= (limit or _SMALL):
        return set(range(len(entries)))
    order = sorted(range(len(entries)), key=lambda number: (entries[number].level, number))
    if limit is None:
        order = [number for number in order if entries[number].level < FOLLOWER]
    return {0, *order[: limit or _DEFAULT_SHOWN]}


_DEFAULT_SHOWN = 30


def _build_branch(entries: Sequence[_Entry], shown: set[int]) -> Branch:
    counted: dict[int, list[int]] = defaultdict(list)
    for number, above in _nearest_shown(entries, shown).items():
        if number not in shown:
            counted[above].append(number)
    # A count of one takes as much room as the entry itself.
    shown = shown | {found[0] for found in counted.values() if len(found) == 1}
    nearest = _nearest_shown(entries, shown)
    children: dict[int, list[int]] = defaultdict(list)
    hidden: dict[int, list[int]] = defaultdict(list)
    between: dict[int, int] = {}
    for number, entry in enumerate(entries):
        above = 0 if entry.above is None else entry.above
        between[number] = 0 if number in shown else between[above] + 1
        if number not in shown:
            hidden[nearest[number]] += entry.members
        elif entry.above is not None:
            children[nearest[above]].append(number)
    built: dict[int, Branch] = {}
    # Entries stand behind the ones that they grew out of.
    for number in sorted(shown, reverse=True):
        entry = entries[number]
        built[number] = Branch(
            tuple(entry.members),
            tuple(entry.evidence),
            0 if entry.above is None else between[entry.above],
            tuple(built[child] for child in children[number]),
            tuple(hidden[number]),
        )
    return built[0]


def _nearest_shown(entries: Sequence[_Entry], shown: set[int]) -> dict[int, int]:
    """Return for each entry itself where it is shown, else the nearest one above that is."""
    nearest: dict[int, int] = {}
    for number, entry in enumerate(entries):
        nearest[number] = number if number in shown or entry.above is None else nearest[entry.above]
    return nearest
