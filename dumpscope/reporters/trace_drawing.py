"""From rows and columns to coordinates and texts: what the picture of a trace is drawn from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from dumpscope.model import Verdict
from dumpscope.records import record
from dumpscope.reporters.cells import shorten, wrap
from dumpscope.reporters.trace_labels import (
    count_bad,
    describe_followers,
    describe_types,
    first_times,
    name_evidence,
    name_op,
    name_ranks,
    name_steps,
    name_turn,
    name_verdict,
    since_first,
    split_name,
)
from dumpscope.reporters.trace_summary import summarize_trace
from dumpscope.reporters.trace_wiring import (
    BOX_HEIGHT,
    BOX_WIDTH,
    COLUMN_STEP,
    LABEL_WIDTH,
    ROW_STEP,
    Path,
    draw_paths,
)
from dumpscope.tracing.folding import rate_nodes
from dumpscope.tracing.parentage import EVIDENCE_ORDER
from dumpscope.tracing.timeline import Item, Row, Timeline, plan_timeline
from dumpscope.tracing.trace import Node, Trace
from dumpscope.words.tracing import format_ranges, trace_word

__all__ = ["Box", "Picture", "draw_trace", "style_of"]

TOP_MARGIN, BAND_HEAD = 18, 26
LEGEND_ROW = 22
_MIN_WIDTH = 980
_STYLES = (
    "origin", "start", "other", "received", "propagated", "swallowed", "expected", "clean", "pill",
)  # fmt: skip
_TITLE_CELLS, _NAME_CELLS, _HEAD_CELLS = 16, 21, 17
_CELLS_PER_PIXEL = 1 / 7.1


@record(frozen=True, slots=True)
class Label:
    x: float
    y: float
    text: str
    style: str = ""


@record(frozen=True, slots=True)
class Box:
    """An operator, or a count of operators. `lines` are drawn in it, `hint` explains it."""

    number: int
    x: float
    y: float
    width: float
    height: float
    style: str
    head: str
    mark: str
    lines: tuple[Label, ...]
    hint: str
    members: tuple[int, ...]
    counted: bool


@record(frozen=True, slots=True)
class Area:
    x: float
    y: float
    width: float
    height: float
    style: str
    text: str = ""


@record(frozen=True, slots=True)
class Key:
    """An entry of the legend: a swatch (a box, or a line of some evidence) and what it means."""

    x: float
    y: float
    style: str
    text: str
    line: bool


@record(frozen=True, slots=True)
class Picture:
    """Everything that a picture consists of, in pixels; texts are printable."""

    width: float
    height: float
    title: str
    description: str
    heading: tuple[Label, ...]
    bands: tuple[Area, ...]
    lanes: tuple[Area, ...]
    labels: tuple[Label, ...]
    paths: tuple[Path, ...]
    boxes: tuple[Box, ...]
    legend: tuple[Key, ...]
    notes: tuple[Label, ...]
    evidence: tuple[str, ...] = EVIDENCE_ORDER


def draw_trace(
    trace: Trace, *, limit: int | None = None, lang: str = "en", heading: bool = True
) -> Picture:
    """Lay out the picture of a trace.

    Parameters
    ----------
    limit
        As for `plan_timeline`.
    heading
        Whether the picture itself says what it shows; a page says that around it.
    """
    return _Drawing(trace, plan_timeline(trace, limit), lang).draw(heading=heading)


def style_of(trace: Trace, node: Node) -> str:
    """Return the style of an operator's box: what happened in it, as the legend tells it."""
    if trace.origin is not None and node is trace.nodes[trace.origin]:
        return "origin"
    if node.part == "start":
        return "start"
    verdict = node.verdict
    if verdict is None:
        return "clean"
    known = {
        Verdict.RECEIVED: "received",
        Verdict.PROPAGATED: "propagated",
        Verdict.SWALLOWED: "swallowed",
        Verdict.EXPECTED: "expected",
    }
    return known.get(verdict, "other")


class _Drawing:
    """Computes one picture."""

    def __init__(self, trace: Trace, timeline: Timeline, lang: str) -> None:
        self._trace = trace
        self._timeline = timeline
        self._lang = lang
        self._comma, self._colon = ("，", "：") if lang.startswith("zh") else (", ", ": ")
        self._top = 0.0
        self._begun = first_times(trace)
        self._turn = rate_nodes(trace).turn

    def draw(self, *, heading: bool) -> Picture:
        timeline = self._timeline
        width = max(_MIN_WIDTH, LABEL_WIDTH + timeline.columns * COLUMN_STEP + 16)
        summary = summarize_trace(self._trace, self._lang)
        lines = list(self._heading(summary, width)) if heading else []
        self._top = (lines[-1].y + 18 if lines else 0.0) + BAND_HEAD
        bottom = self._top + len(timeline.rows) * ROW_STEP + 4
        boxes = tuple(self._box(number, item) for number, item in enumerate(timeline.items))
        legend = tuple(self._legend(boxes, bottom + 16, width))
        below = (legend[-1].y if legend else bottom) + 26
        notes = tuple(
            Label(16, below + 16 * i, line, "note")
            for i, line in enumerate(wrap(self._axis(), int((width - 32) * _CELLS_PER_PIXEL)))
        )
        return Picture(
            width,
            (notes[-1].y if notes else below) + 12,
            summary[0],
            " ".join(summary[1:]),
            tuple(lines),
            tuple(self._bands(bottom)),
            tuple(self._lanes(width)),
            tuple(self._row_labels()),
            tuple(draw_paths(self._timeline, self._corner, self._lang)),
            boxes,
            legend,
            notes,
        )

    # --- around it -------------------------------------------------------------------------

    def _heading(self, summary: Sequence[str], width: float) -> Iterator[Label]:
        y = TOP_MARGIN + 8.0
        for number, sentence in enumerate(summary):
            size = 8.6 if not number else 6.6
            for line in wrap(sentence, int((width - 32) / size)):
                yield Label(16, y, line, "subtitle" if number else "title")
                y += 16 if number else 20

    def _bands(self, bottom: float) -> Iterator[Area]:
        for number, band in enumerate(self._timeline.bands):
            steps = [step for step in band.steps if step >= 0]
            x = LABEL_WIDTH + band.first * COLUMN_STEP - (COLUMN_STEP - BOX_WIDTH) / 2
            yield Area(
                x,
                self._top - BAND_HEAD,
                (band.last - band.first + 1) * COLUMN_STEP,
                bottom - self._top + BAND_HEAD,
                "odd" if number % 2 else "even",
                name_steps(steps, self._lang) if steps else "",
            )

    def _lanes(self, width: float) -> Iterator[Area]:
        for number in range(len(self._timeline.rows)):
            yield Area(0, self._top + number * ROW_STEP, width, ROW_STEP, "lane")

    def _row_labels(self) -> Iterator[Label]:
        for number, row in enumerate(self._timeline.rows):
            y = self._row_top(number) + 16
            yield Label(16, y, name_ranks(row.devices, self._lang, longest=9), "rank")
            for line in self._describe_row(row):
                y += 15
                yield Label(16, y, line, "lane-note")

    def _describe_row(self, row: Row) -> Iterator[str]:
        ranges = format_ranges(device for device in row.devices if device is not None)
        if len(row.devices) > 1 and 9 < len(ranges) <= _NAME_CELLS:
            yield ranges
        if row.likeness == "stream" and row.stream is not None:
            yield trace_word("stream", self._lang, number=row.stream)
        elif row.likeness in ("alike", "similar"):
            yield trace_word(f"folded_{row.likeness}", self._lang)
        if row.has_origin:
            yield trace_word("row_origin", self._lang)
        elif row.has_other_source:
            yield trace_word("row_joined", self._lang)
        elif row.received:
            yield trace_word("row_received", self._lang)
        if row.aside:
            yield trace_word("row_aside", self._lang, count=row.aside)

    def _axis(self) -> str:
        return trace_word("axis" if self._begun else "axis_untimed", self._lang)

    def _legend(self, boxes: Iterable[Box], y: float, width: float) -> Iterator[Key]:
        """Explain the boxes and lines that are there, and no others."""
        if not self._timeline.items:
            return
        used = {box.style for box in boxes}
        keys: list[tuple[str, str, bool]] = [
            (style, trace_word(f"legend_{style}", self._lang), False)
            for style in _STYLES
            if style in used
        ]  # fmt: skip
        drawn = {wire.evidence for wire in self._timeline.wires}
        if self._timeline.rails:
            drawn.add("order")
        for evidence in EVIDENCE_ORDER:
            if evidence in drawn:
                name = name_evidence(evidence, self._lang)
                means = trace_word(f"means_{evidence}", self._lang)
                keys.append((evidence, f"{name}{self._colon}{means}", True))
        x = 16.0
        for style, text, line in keys:
            room = 44 + len(wrap_cells(text)) * 6.6
            if x > 16 and x + room > width - 16:
                x, y = 16.0, y + LEGEND_ROW
            yield Key(x, y, style, text, line)
            x += room + 14

    # --- boxes -----------------------------------------------------------------------------

    def _row_top(self, row: int) -> float:
        return self._top + row * ROW_STEP + 26

    def _corner(self, item: Item) -> tuple[float, float]:
        return LABEL_WIDTH + item.column * COLUMN_STEP, self._row_top(item.row)

    def _box(self, number: int, item: Item) -> Box:
        x, y = self._corner(item)
        if item.counted:
            return self._counted_box(number, item, x, y)
        nodes = [self._trace.nodes[i] for i in item.members]
        node = nodes[0]
        kind, name = split_name(node.op)
        rank = node.finding.rank if node.finding is not None else None
        mark = f"#{rank}" if rank is not None else ""
        ranks = {n.op.device for n in nodes}
        where = (
            name_ranks(ranks, self._lang, longest=16)
            if len(ranks) > 1
            else since_first(node, self._begun)
        )
        head = name_verdict(node, self._lang)
        if self._turn in item.members and node.verdict is Verdict.PROPAGATED:
            head = name_turn(node, self._lang)
        texts = [
            (shorten(kind or name, _TITLE_CELLS), "type"),
            *((line, "name") for line in _break_name(name if kind else "")),
            (shorten(count_bad(node, self._lang), _NAME_CELLS), "bad"),
            (where, "where"),
        ]
        lines = [
            Label(x + 8, y + 30 + 13.5 * i, text, style)
            for i, (text, style) in enumerate(entry for entry in texts if entry[0])
        ]
        style, head = style_of(self._trace, node), shorten(head, _HEAD_CELLS)
        return Box(
            number, x, y, BOX_WIDTH, BOX_HEIGHT, style, head, mark, tuple(lines),
            self._hint(nodes), item.members, counted=False,
        )  # fmt: skip

    def _counted_box(self, number: int, item: Item, x: float, y: float) -> Box:
        members = item.members
        key = "follow_short_one" if len(members) == 1 else "follow_short"
        verdicts = [self._trace.nodes[i].verdict for i in members]
        extra = [
            trace_word(word, self._lang, count=verdicts.count(verdict))
            for verdict, word in (
                (Verdict.RECEIVED, "received_count"),
                (Verdict.SWALLOWED, "swallowed_count"),
            )
            if verdict in verdicts
        ]
        middle = x + BOX_WIDTH / 2
        texts = [
            (trace_word(key, self._lang, count=len(members)), "count"),
            (self._name_types(members), "name"),
            (shorten(self._comma.join(extra), _NAME_CELLS), "name"),
        ]
        lines = tuple(
            Label(middle, y + (33 if extra else 41) + 15 * i, text, f"{style} middle")
            for i, (text, style) in enumerate(texts)
            if text
        )
        return Box(
            number, x, y + 2, BOX_WIDTH, BOX_HEIGHT - 8, "pill", "", "", lines,
            describe_followers(self._trace, members, self._lang), members, counted=True,
        )  # fmt: skip

    def _name_types(self, members: Sequence[int]) -> str:
        """Name the most frequent types, as many as the box has room for."""
        from rich.cells import cell_len

        for most in (3, 2):
            words = describe_types(self._trace, members, most=most)
            if cell_len(words) <= _NAME_CELLS:
                return words
        words = describe_types(self._trace, members, most=1)
        return shorten(words, _NAME_CELLS)

    def _hint(self, nodes: Sequence[Node]) -> str:
        node = nodes[0]
        words = [name_verdict(node, self._lang), name_op(node.op), count_bad(node, self._lang)]
        words += [
            name_steps((node.op.step,), self._lang),
            name_ranks((n.op.device for n in nodes), self._lang, longest=200),
        ]
        return self._comma.join(word for word in words if word)


def _break_name(name: str) -> list[str]:
    """Return a name in two lines that fit into a box, broken behind a separator where possible."""
    from rich.cells import cell_len

    if cell_len(name) <= _NAME_CELLS:
        return [name] if name else []
    name = shorten(name, 2 * _NAME_CELLS - 3)
    for separators in ("/", "._-:"):
        ends = [i + 1 for i, character in enumerate(name) if character in separators]
        for end in reversed(ends):
            if cell_len(name[:end]) <= _NAME_CELLS and cell_len(name[end:]) <= _NAME_CELLS:
                return [name[:end], name[end:]]
    lines = wrap(name, _NAME_CELLS)
    return [lines[0], shorten("".join(lines[1:]), _NAME_CELLS)]


def wrap_cells(text: str) -> str:
    """Return a text with as many characters as it has cells."""
    from rich.cells import cell_len

    return " " * cell_len(text)
