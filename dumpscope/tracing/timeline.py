"""A trace laid out in rows and columns: one row per rank and stream, columns in causal order.

Clocks of different ranks are not comparable, so a column is no time. Within one row, left is
earlier; between rows, what is drawn as an edge leads to the right. Steps are comparable and stand
in bands.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence

from dumpscope.causality.dataflow import lane_of
from dumpscope.records import record
from dumpscope.tracing.folding import FOLLOWER, rate_nodes
from dumpscope.tracing.lanes import Row, plan_rows
from dumpscope.tracing.parentage import EVIDENCE_ORDER
from dumpscope.tracing.trace import Node, Trace

__all__ = ["Band", "Item", "Rail", "Row", "Timeline", "Wire", "plan_timeline"]

_MOST_SHOWN = 48
_MOST_SHOWN_IN_ROW = 8
_SMALL = 12
_MOST_BANDS = 6
_MOST_WIRES_TO_BOX = 4
_MOST_WIRES_TO_COUNTED = 2


@record(frozen=True, slots=True)
class Item:
    """A box: one operator (of several ranks, in a folded row), or a count of followers."""

    row: int
    column: int
    band: int
    members: tuple[int, ...]
    counted: bool


@record(frozen=True, slots=True)
class Wire:
    """An edge between items, with how many edges of the trace it stands for."""

    source: int
    target: int
    evidence: str
    count: int


@record(frozen=True, slots=True)
class Rail:
    """Edges by order alone from one item to later ones of the same row."""

    source: int
    targets: tuple[int, ...]


@record(frozen=True, slots=True)
class Band:
    """Columns of one step, or of several late ones."""

    steps: tuple[int, ...]
    first: int
    last: int


@record(frozen=True, slots=True)
class Timeline:
    rows: tuple[Row, ...] = ()
    items: tuple[Item, ...] = ()
    wires: tuple[Wire, ...] = ()
    rails: tuple[Rail, ...] = ()
    bands: tuple[Band, ...] = ()
    columns: int = 0
    folded: bool = False


def plan_timeline(trace: Trace, limit: int | None = None) -> Timeline:
    """Lay a trace out.

    Parameters
    ----------
    limit
        Operators to draw as boxes of their own at most; 0 draws all, `None` those that tell
        something. The others are counted.
    """
    if trace.origin is None:
        return Timeline()
    rows = plan_rows(trace)
    row_of = {number: i for i, row in enumerate(rows) for number in row.positions}
    band_steps, band_of = _plan_bands(trace.nodes)
    boxes = _bundle(trace, row_of, band_of)
    shown = _choose(trace, boxes, limit)
    groups = _count_hidden(boxes, shown)
    item_of = {number: i for i, group in enumerate(groups) for number in group.members}
    wires, rails = _connect(trace, groups, item_of)
    columns, bands = _place(groups, [*wires, *_wires_of(rails)], band_steps)
    items = tuple(
        Item(group.row, columns[i], group.band, tuple(group.members), group.counted)
        for i, group in enumerate(groups)
    )
    return Timeline(
        rows,
        items,
        _thin_out(wires, items),
        rails,
        bands,
        max(columns, default=-1) + 1,
        any(row.likeness != "stream" for row in rows),
    )


# --- what is drawn ----------------------------------------------------------------------------


@record(frozen=False, slots=True)
class _Group:
    """What becomes an item."""

    row: int
    band: int
    members: list[int]
    counted: bool = False


def _plan_bands(nodes: Iterable[Node]) -> tuple[list[tuple[int, ...]], dict[int | None, int]]:
    """Return the steps of each band, and the band of every step; late steps share the last one."""
    steps = sorted({-1 if node.op.step is None else node.op.step for node in nodes})
    bands: list[tuple[int, ...]] = [(step,) for step in steps[: _MOST_BANDS - 1]]
    if steps[_MOST_BANDS - 1 :]:
        bands.append(tuple(steps[_MOST_BANDS - 1 :]))
    band_of: dict[int | None, int] = {step: i for i, b in enumerate(bands) for step in b}
    band_of[None] = band_of.get(-1, 0)
    return bands, band_of


def _bundle(
    trace: Trace, row_of: Mapping[int, int], band_of: Mapping[int | None, int]
) -> list[_Group]:
    """Put what happens alike on the ranks of a row into one box, in causal order."""
    boxes: dict[Hashable, _Group] = {}
    repeated: Counter[Hashable] = Counter()
    for number, node in enumerate(trace.nodes):
        op = node.op
        row = row_of[number]
        alike = (row, node.part, node.verdict, op.op_type, op.op_name, op.step)
        repeated[alike, lane_of(op)] += 1
        key = (alike, repeated[alike, lane_of(op)])
        box = boxes.setdefault(key, _Group(row, band_of[op.step], []))
        box.members.append(number)
    return list(boxes.values())


def _choose(trace: Trace, boxes: Sequence[_Group], limit: int | None) -> set[int]:
    """Return which boxes are drawn; the others are counted."""
    if limit == 0 or len(boxes) <= (limit or _SMALL):
        return set(range(len(boxes)))
    levels = rate_nodes(trace).levels
    level = [min(levels[number] for number in box.members) for box in boxes]
    order = sorted(range(len(boxes)), key=lambda i: (level[i], boxes[i].members[0]))
    if limit is not None:
        return set(order[:limit])
    in_row: Counter[int] = Counter()
    chosen: set[int] = set()
    for i in order:
        row = boxes[i].row
        if level[i] < FOLLOWER and in_row[row] < _MOST_SHOWN_IN_ROW and len(chosen) < _MOST_SHOWN:
            chosen.add(i)
            in_row[row] += 1
    return chosen


def _count_hidden(boxes: Sequence[_Group], shown: set[int]) -> list[_Group]:
    """Put what is hidden between two boxes of a row into one; all in order of bands and causes."""
    order = sorted(range(len(boxes)), key=lambda i: (boxes[i].band, boxes[i].members[0]))
    runs: list[list[_Group]] = []
    open_run: dict[tuple[int, int], list[_Group]] = {}
    for i in order:
        place = (boxes[i].row, boxes[i].band)
        run = open_run.get(place)
        if i in shown or run is None:
            run = []
            runs.append(run)
        run.append(boxes[i])
        if i in shown:
            open_run.pop(place, None)
        else:
            open_run[place] = run
    # A count of one takes as much room as the box itself.
    return [run[0] if len(run) == 1 else _add_up(run) for run in runs]


def _add_up(run: Sequence[_Group]) -> _Group:
    members = [number for box in run for number in box.members]
    return _Group(run[0].row, run[0].band, members, counted=True)


# --- edges ------------------------------------------------------------------------------------


def _connect(
    trace: Trace, groups: Sequence[_Group], item_of: Mapping[int, int]
) -> tuple[list[Wire], tuple[Rail, ...]]:
    """Collect the edges between items; those by order alone within a row become rails."""
    counted: Counter[tuple[int, int, str]] = Counter()
    rails: dict[int, set[int]] = defaultdict(set)
    for number, node in enumerate(trace.nodes):
        target = item_of[number]
        for edge in node.parents:
            source = item_of[edge.source]
            if source == target:
                continue
            if edge.evidence == "order" and groups[source].row == groups[target].row:
                rails[source].add(target)
            else:
                counted[source, target, edge.evidence] += 1
    # What better evidence links needs no rail.
    better = {(source, target) for source, target, _ in counted}
    wires = [Wire(*key, count) for key, count in sorted(counted.items())]
    made = (
        Rail(source, tuple(sorted(t for t in targets if (source, t) not in better)))
        for source, targets in sorted(rails.items())
    )
    return wires, tuple(rail for rail in made if rail.targets)


def _wires_of(rails: Iterable[Rail]) -> Iterable[Wire]:
    for rail in rails:
        for target in rail.targets:
            yield Wire(rail.source, target, "order", 1)


def _thin_out(wires: Iterable[Wire], items: Sequence[Item]) -> tuple[Wire, ...]:
    """Keep the strongest edges into each item, and only those that lead to the right."""
    into: dict[int, list[Wire]] = defaultdict(list)
    for wire in wires:
        if items[wire.source].column < items[wire.target].column:
            into[wire.target].append(wire)
    kept: list[Wire] = []
    for target, found in into.items():
        found.sort(key=lambda wire: (
            EVIDENCE_ORDER.index(wire.evidence), -wire.count, -items[wire.source].column,
        ))  # fmt: skip
        most = _MOST_WIRES_TO_COUNTED if items[target].counted else _MOST_WIRES_TO_BOX
        kept += found[:most]
    return tuple(kept)


# --- columns ----------------------------------------------------------------------------------


def _place(
    groups: Sequence[_Group], wires: Iterable[Wire], band_steps: Sequence[tuple[int, ...]]
) -> tuple[list[int], tuple[Band, ...]]:
    """Give each item the first column right of its sources and of its row, band by band."""
    sources: dict[int, list[int]] = defaultdict(list)
    for wire in wires:
        sources[wire.target].append(wire.source)
    columns = [-1] * len(groups)
    bands: list[Band] = []
    next_free: dict[int, int] = {}
    start = 0
    for band, steps in enumerate(band_steps):
        end = start
        for i, group in enumerate(groups):
            if group.band != band:
                continue
            column = max(start, next_free.get(group.row, 0))
            # A count stands for many; one of them may come after what another one caused.
            column = max([column, *(columns[s] + 1 for s in sources[i] if columns[s] >= 0)])
            columns[i] = column
            next_free[group.row] = column + 1
            end = max(end, column + 1)
        if end > start:
            bands.append(Band(steps, start, end - 1))
        start = end
    return columns, tuple(bands)
