"""The way of a bad value as a tree for terminals: at most 100 columns, in any locale."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TextIO

from dumpscope.records import record
from dumpscope.reporters.cells import shorten, wrap
from dumpscope.reporters.screen import (
    WIDTH,
    has_colour,
    is_ascii_only,
    open_console,
    read_console,
    width_of,
)
from dumpscope.reporters.summary import options_of
from dumpscope.reporters.trace_labels import (
    count_bad,
    describe_beginning,
    describe_followers,
    describe_types,
    group_outside,
    name_evidence,
    name_op,
    name_ranks,
    name_turn,
    name_verdict,
)
from dumpscope.reporters.trace_summary import summarize_trace
from dumpscope.safetext import make_ascii
from dumpscope.tracing.folding import Branch, fold_tree, rate_nodes
from dumpscope.tracing.parentage import EVIDENCE_ORDER
from dumpscope.tracing.trace import Node, Trace
from dumpscope.words import format_count
from dumpscope.words.tracing import trace_word

if TYPE_CHECKING:
    from rich.text import Text

__all__ = ["print_trace", "render_trace"]

_LEAST_ROOM = 24
"""Cells that the names have at least; columns on the right are left out for them."""
_MOST_OUTSIDE = 5
_COLOURS = {"error": "bold red", "warning": "yellow", "info": "default"}
_ASCII = {
    "├─ ": "|- ", "└─ ": "`- ", "│  ": "|  ", "↓ ": "v ", "● ": "* ", "…": "...", "≥": ">=",
}  # fmt: skip


@record(frozen=True, slots=True)
class _Line:
    """One entry of the tree: what is drawn before it, and the cells of its row."""

    lead: str
    edge: str
    name: str
    cells: tuple[str, ...] = ()
    style: str = ""


def print_trace(
    trace: Trace, *, limit: int | None = None, lang: str = "en", stream: TextIO | None = None
) -> None:
    """Print the tree to a stream, stdout by default, as that stream can show it.

    Colours are used only on a terminal, and not where NO_COLOR is set.
    """
    stream = sys.stdout if stream is None else stream
    stream.write(
        render_trace(
            trace,
            limit=limit,
            lang=lang,
            width=width_of(stream),
            colour=has_colour(stream),
            ascii_only=is_ascii_only(getattr(stream, "encoding", None), os.environ),
        )
    )


def render_trace(
    trace: Trace,
    *,
    limit: int | None = None,
    lang: str = "en",
    width: int = WIDTH,
    colour: bool = False,
    ascii_only: bool = False,
) -> str:
    """Return the tree as text.

    Parameters
    ----------
    limit
        Operators to show by name at most; 0 shows all, `None` those that tell something.
    width
        Terminal cells of a line at most (at least 60).
    ascii_only
        Draw with ASCII and escape everything else.
    """
    from rich.text import Text

    console = open_console(width, colour=colour)
    width = console.width
    page = _Page(trace, limit, "en" if ascii_only else lang, width, ascii_only=ascii_only)
    for line in page.lines():
        shown = line if isinstance(line, Text) else Text(line)
        console.print(shown, soft_wrap=True)
    return read_console(console)


class _Page:
    """What is printed, part by part."""

    def __init__(
        self, trace: Trace, limit: int | None, lang: str, width: int, *, ascii_only: bool
    ) -> None:
        self._trace = trace
        self._limit = limit
        self._lang = lang
        self._zh = lang.startswith("zh")
        self._width = width
        self._ascii = ascii_only
        # Deeper branches stand below each other.
        self._deepest = (width - 40) // 2
        self._turn = rate_nodes(trace).turn
        self._columns = self._choose_columns()

    def lines(self) -> Iterator[Text | str]:
        """Yield the lines without their ends."""
        from rich.text import Text

        summary = summarize_trace(self._trace, self._lang)
        for number, sentence in enumerate(summary):
            for line in wrap(self._safe(sentence), min(self._width, WIDTH)):
                yield Text(line, style="" if number else "bold")
        tree = fold_tree(self._trace, self._limit)
        if tree is None:
            return
        yield ""
        yield from self._table(list(self._walk(tree)))
        yield from self._notes()

    # --- the tree --------------------------------------------------------------------------

    def _walk(self, root: Branch) -> Iterator[_Line]:
        """Yield the entries; a branch that does not fork goes straight down."""
        waiting: list[tuple[Branch | _Line, str, str]] = [(root, "", "● ")]
        while waiting:
            branch, indent, mark = waiting.pop()
            indent = indent[: self._deepest]
            if isinstance(branch, _Line):
                yield replace(branch, lead=indent + mark)
                continue
            yield self._entry(branch, indent + mark)
            below = indent + ("│  " if mark == "├─ " else "   " if mark == "└─ " else "")
            following: list[Branch | _Line] = list(branch.children)
            if branch.hidden:
                following.append(self._counted(branch.hidden))
            if len(following) == 1:
                waiting.append((following[0], below, "↓ "))
                continue
            for number, child in enumerate(reversed(following)):
                waiting.append((child, below, "├─ " if number else "└─ "))

    def _entry(self, branch: Branch, lead: str) -> _Line:
        nodes = [self._trace.nodes[number] for number in branch.members]
        node = nodes[0]
        words = [name_evidence(evidence, self._lang) for evidence in branch.evidence]
        if branch.between:
            words.append(trace_word("between", self._lang, count=branch.between))
        edge = ("，" if self._zh else ", ").join(words)
        name = name_op(node.op)
        if self._turn in branch.members:
            assert self._turn is not None
            name += self._bracket(name_turn(self._trace.nodes[self._turn], self._lang))
        if self._trace.start in branch.members and self._trace.start != self._trace.origin:
            name += self._bracket(trace_word("asked_for", self._lang))
        extra = self._other_sources(nodes)
        if extra:
            name += extra
        severity = None if node.finding is None else node.finding.severity
        style = _COLOURS.get(severity or "", "dim")
        return _Line(lead, edge, name, tuple(self._cells(nodes)), style)

    def _other_sources(self, nodes: Sequence[Node]) -> str:
        """Name the other ranks outside of the tree that sent the same value."""
        sources = {
            self._trace.nodes[edge.source].op.device
            for node in nodes
            for edge in node.parents
            if self._trace.nodes[edge.source].part == "joined"
            and self._trace.nodes[edge.source].op.device != node.op.device
        }
        if not sources:
            return ""
        ranks = name_ranks(sources, self._lang)
        return self._bracket(trace_word("also_from", self._lang, ranks=ranks))

    def _bracket(self, text: str) -> str:
        return f"（{text}）" if self._zh else f" ({text})"

    def _counted(self, members: Sequence[int]) -> _Line:
        return _Line("", "", describe_followers(self._trace, members, self._lang), style="dim")

    def _cells(self, nodes: Sequence[Node]) -> Iterator[str]:
        node = nodes[0]
        for column in self._columns:
            if column == "verdict":
                yield name_verdict(node, self._lang)
            elif column == "bad":
                yield count_bad(node, self._lang)
            elif column == "step":
                yield "" if node.op.step is None else str(node.op.step)
            elif column == "stream":
                streams = {n.op.stream_id for n in nodes}
                stream = streams.pop()
                yield "" if streams or stream is None else str(stream)
            else:
                ranks = name_ranks((n.op.device for n in nodes), self._lang, longest=12)
                yield ranks.removeprefix("ranks ").removeprefix("rank ")

    def _choose_columns(self) -> tuple[str, ...]:
        """Leave out what is the same in every row: the first sentence says it."""
        ops = [node.op for node in self._trace.nodes]
        columns = ["verdict", "bad"]
        for name, values in (
            ("step", {op.step for op in ops}),
            ("rank", {op.device for op in ops}),
            ("stream", {op.stream_id for op in ops}),
        ):
            if len(values) > 1:
                columns.append(name)
        return tuple(columns)

    def _table(self, lines: Sequence[_Line]) -> Iterator[Text]:
        """Put the entries under heads; what does not fit is shortened in its middle."""
        from rich.cells import cell_len
        from rich.text import Text

        heads = [self._safe(trace_word(f"head_{column}", self._lang)) for column in self._columns]
        cells = [line.cells for line in lines if line.cells]
        widths = [
            max([cell_len(head), *(cell_len(self._safe(row[i])) for row in cells)])
            for i, head in enumerate(heads)
        ]
        while sum(widths) + 2 * len(widths) > self._width - _LEAST_ROOM:
            widths.pop()
        # What belongs together stands together: no wider than the longest name.
        room = min(
            self._width - sum(widths) - 2 * len(widths),
            max([_LEAST_ROOM, *(self._cells_of(line) for line in lines if line.cells)]),
        )
        head = Text(_pad(self._safe(trace_word("head_operator", self._lang)), room), style="dim")
        for width, name in zip(widths, heads, strict=False):
            head.append("  " + _pad(name, width))
        yield head
        for line in lines:
            lead = self._draw(line.lead)
            space = max(4, room - cell_len(lead) - 9)
            edge = shorten(self._safe(line.edge), space, self._ellipsis)
            row = Text(lead, style="dim")
            row.append(f"{edge} " if edge else "", style="cyan")
            used = cell_len(lead) + cell_len(row.plain[len(lead) :])
            if not line.cells:
                counted = wrap(self._draw(self._safe(line.name)), max(20, self._width - used))
                row.append(counted[0], style="dim")
                yield row
                below = lead.replace("├", "│").replace("─", " ").replace("└", " ").replace("↓", " ")
                for more in counted[1:]:
                    yield Text(self._draw(below) + "  " + more, style="dim")
                continue
            name = shorten(self._safe(line.name), max(4, room - used), self._ellipsis)
            row.append(_pad(name, room - used), style="bold" if line.lead.endswith("● ") else "")
            for number, (width, cell) in enumerate(zip(widths, line.cells, strict=False)):
                row.append("  " + _pad(self._safe(cell), width), "" if number else line.style)
            yield row

    def _cells_of(self, line: _Line) -> int:
        from rich.cells import cell_len

        edge = f"{line.edge} " if line.edge else ""
        return cell_len(self._draw(line.lead) + self._safe(edge) + self._safe(line.name))

    # --- below it --------------------------------------------------------------------------

    def _notes(self) -> Iterator[str]:
        evidence = {edge.evidence for node in self._trace.nodes for edge in node.parents}
        if evidence:
            words = [
                f"{name_evidence(kind, self._lang)} = {trace_word('means_' + kind, self._lang)}"
                for kind in EVIDENCE_ORDER
                if kind in evidence
            ]
            yield ""
            means = f"{'；'.join(words)}。" if self._zh else f" {'; '.join(words)}."
            yield from self._wrapped(trace_word("edges", self._lang) + means)
        yield from self._expected_values()
        yield from self._outside()

    def _expected_values(self) -> Iterator[str]:
        read = [i for i, node in enumerate(self._trace.nodes) if node.part == "expected"]
        if read:
            yield from self._wrapped(
                f"{trace_word('read_expected', self._lang)} "
                f"{format_count(len(read))} ({describe_types(self._trace, read)})"
            )
        aside = self._trace.aside
        if aside:
            beside = Trace("", "", "", tuple(Node(f.op, f, "expected") for f in aside))
            types = describe_types(beside, range(len(aside)))
            yield from self._wrapped(trace_word("aside", self._lang, count=len(aside), types=types))

    def _outside(self) -> Iterator[str]:
        groups = group_outside(self._trace.outside)
        if not groups:
            return
        inside = sum(1 for node in self._trace.nodes if node.finding and node.finding.rank)
        count = self._trace.findings - inside
        yield from self._wrapped(
            trace_word("outside", self._lang, count=count, findings=self._trace.findings)
        )
        for findings, followers in groups[:_MOST_OUTSIDE]:
            yield from self._wrapped(describe_beginning(findings, followers, self._lang), 2)
        if len(groups) > _MOST_OUTSIDE:
            more = len(groups) - _MOST_OUTSIDE
            yield from self._wrapped(trace_word("outside_more", self._lang, count=more), 2)
        yield from self._wrapped(
            trace_word("next_finding", self._lang, options=options_of(self._trace.found_by)), 2
        )

    # --- parts -----------------------------------------------------------------------------

    @property
    def _ellipsis(self) -> str:
        return "..." if self._ascii else "…"

    def _wrapped(self, text: str, indent: int = 0) -> Iterator[str]:
        room = min(self._width, WIDTH) - indent - 2
        for number, line in enumerate(wrap(self._draw(self._safe(text)), room)):
            yield " " * (indent + (2 if number else 0)) + line

    def _draw(self, text: str) -> str:
        if self._ascii:
            for shape, plain in _ASCII.items():
                text = text.replace(shape, plain)
        return text

    def _safe(self, text: str) -> str:
        return make_ascii(self._draw(text)) if self._ascii else text


def _pad(text: str, width: int) -> str:
    from rich.cells import cell_len

    return text + " " * max(0, width - cell_len(text))
