"""The lines of a trace's picture: edges between boxes, and rails for order alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dumpscope.records import record
from dumpscope.reporters.trace_labels import name_evidence
from dumpscope.tracing.parentage import EVIDENCE_ORDER
from dumpscope.tracing.timeline import Item, Rail, Timeline, Wire
from dumpscope.words import format_count

__all__ = [
    "BOX_HEIGHT",
    "BOX_WIDTH",
    "COLUMN_STEP",
    "LABEL_WIDTH",
    "ROW_STEP",
    "Path",
    "draw_paths",
]

BOX_WIDTH, BOX_HEIGHT = 152, 90
COLUMN_STEP, ROW_STEP = 192, 130
LABEL_WIDTH = 150
_ARC = 22

Corner = Callable[[Item], tuple[float, float]]
"""Where the upper left corner of an item's box is."""


@record(frozen=True, slots=True)
class Path:
    """A line along `d`; `style` is the evidence."""

    d: str
    style: str
    hint: str = ""
    source: int = -1
    target: int = -1


def draw_paths(timeline: Timeline, corner: Corner, lang: str) -> Iterator[Path]:
    for rail in timeline.rails:
        yield from _draw_rail(rail, timeline, corner, lang)
    for wire in sorted(timeline.wires, key=lambda w: -EVIDENCE_ORDER.index(w.evidence)):
        yield _draw_wire(wire, timeline, corner, lang)


def _draw_wire(wire: Wire, timeline: Timeline, corner: Corner, lang: str) -> Path:
    source, target = (timeline.items[i] for i in (wire.source, wire.target))
    (ax, ay), (bx, by) = corner(source), corner(target)
    middle = BOX_HEIGHT / 2
    start, end = (ax + BOX_WIDTH, ay + middle), (bx - 3, by + middle)
    if source.row == target.row and target.column - source.column > 1:
        # Over the boxes between them.
        lift = min(_ARC, 8 + 3 * (target.column - source.column))
        start, end = (ax + BOX_WIDTH - 18, ay), (bx + 18, by - 3)
        d = (
            f"M{_xy(*start)} C{_xy(start[0] + 14, ay - lift)} {_xy(start[0] + 24, ay - lift)} "
            f"{_xy(start[0] + 40, ay - lift)} L{_xy(end[0] - 40, by - lift)} "
            f"C{_xy(end[0] - 24, by - lift)} {_xy(end[0] - 4, by - lift)} {_xy(*end)}"
        )
    elif source.row == target.row:
        d = f"M{_xy(*start)} L{_xy(*end)}"
    else:
        # Down (or up) in the gap before the target, so that it crosses no box on the way.
        gap = bx - (COLUMN_STEP - BOX_WIDTH) / 2 - 3
        down = by > ay
        edge_y = ay + BOX_HEIGHT + 12 if down else ay - 8
        if target.column - source.column == 1:
            d = f"M{_xy(*start)} C{_xy(gap + 12, start[1])} {_xy(gap - 12, end[1])} {_xy(*end)}"
        else:
            d = (
                f"M{_xy(*start)} C{_xy(start[0] + 16, start[1])} "
                f"{_xy(start[0] + 10, edge_y)} {_xy(start[0] + 26, edge_y)} "
                f"L{_xy(gap - 12, edge_y)} C{_xy(gap + 8, edge_y)} {_xy(gap - 8, end[1])} "
                f"{_xy(*end)}"
            )
    name = name_evidence(wire.evidence, lang)
    hint = name if wire.count == 1 else f"{name} × {format_count(wire.count)}"
    return Path(d, wire.evidence, hint, wire.source, wire.target)


def _draw_rail(rail: Rail, timeline: Timeline, corner: Corner, lang: str) -> Iterator[Path]:
    """Draw one line under the boxes with a tick at every one that ran later."""
    source = timeline.items[rail.source]
    targets = [timeline.items[i] for i in rail.targets]
    last = max(targets, key=lambda item: item.column)
    ax, ay = corner(source)
    y = ay + BOX_HEIGHT + 9
    end = corner(last)[0] + BOX_WIDTH / 2
    start = ax + BOX_WIDTH / 2
    yield Path(
        f"M{_xy(start, ay + BOX_HEIGHT)} L{_xy(start, y)} L{_xy(end, y)}", "order rail",
        name_evidence("order", lang), rail.source,
    )  # fmt: skip
    for number, item in zip(rail.targets, targets, strict=True):
        x = corner(item)[0] + BOX_WIDTH / 2
        bottom = ay + BOX_HEIGHT - (6 if item.counted else 0) + 3
        yield Path(f"M{_xy(x, y)} L{_xy(x, bottom)}", "order", "", rail.source, number)


def _xy(x: float, y: float) -> str:
    return f"{x:g},{y:g}"
