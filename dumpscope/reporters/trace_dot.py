"""A trace for Graphviz: boxes as in the picture, one cluster for each rank and stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from dumpscope.reporters.trace_drawing import style_of
from dumpscope.reporters.trace_labels import (
    count_bad,
    describe_followers,
    name_evidence,
    name_ranks,
    name_steps,
    name_verdict,
    split_name,
)
from dumpscope.reporters.trace_summary import summarize_trace
from dumpscope.tracing.timeline import Item, Timeline, plan_timeline
from dumpscope.tracing.trace import Trace
from dumpscope.words.tracing import trace_word

__all__ = ["write_dot"]

_LONGEST_NAME = 200

_BOXES = {
    "origin": 'color="#b3121d", fillcolor="#fff1f0", penwidth=3',
    "start": 'color="#0b57d0", fillcolor="#eef4ff", penwidth=3',
    "other": 'color="#a34700", penwidth=2',
    "received": 'color="#7a2fb0", penwidth=2',
    "propagated": 'color="#5b6675"',
    "swallowed": 'color="#7a6a00", style="filled,dashed"',
    "expected": 'color="#8a95a5", style="filled,dotted"',
    "clean": 'color="#2c7a3f", style="filled,dotted"',
}
_EDGES = {
    "communication": 'color="#7a2fb0", penwidth=2.5',
    "own_inputs": 'color="#1b57a8"',
    "graph": 'color="#1b57a8"',
    "address": 'color="#1b57a8", style=dashed',
    "bytes": 'color="#0b6f66", style=dashed',
    "order": 'color="#7a8494", style=dotted, constraint=false',
}


def write_dot(
    trace: Trace, target: BinaryIO, *, limit: int | None = None, lang: str = "en"
) -> None:
    """Write a digraph as UTF-8.

    Parameters
    ----------
    limit
        As for `timeline.plan_timeline`.
    """
    lines = _list_lines(trace, plan_timeline(trace, limit), lang)
    target.write(("\n".join(lines) + "\n").encode())


def _list_lines(trace: Trace, timeline: Timeline, lang: str) -> Iterator[str]:
    yield "digraph trace {"
    yield '  charset="UTF-8"; rankdir=LR; labelloc=t; labeljust=l;'
    yield f"  label={_quote(*summarize_trace(trace, lang))};"
    yield '  node [shape=box, style=filled, fillcolor="#ffffff"];'
    for number, row in enumerate(timeline.rows):
        name = name_ranks(row.devices, lang)
        if row.stream is not None:
            name += f", {trace_word('stream', lang, number=row.stream)}"
        yield f"  subgraph cluster_{number} {{"
        yield f"    label={_quote(name)};"
        for i, item in enumerate(timeline.items):
            if item.row == number:
                yield f"    n{i} [{_describe_item(trace, item, lang)}];"
        yield "  }"
    for wire in timeline.wires:
        label = name_evidence(wire.evidence, lang)
        if wire.count > 1:
            label += f" × {wire.count}"
        yield f"  n{wire.source} -> n{wire.target} [label={_quote(label)}{_style(wire.evidence)}];"
    label = name_evidence("order", lang)
    for rail in timeline.rails:
        for i in rail.targets:
            yield f"  n{rail.source} -> n{i} [label={_quote(label)}{_style('order')}];"
    yield "}"


def _style(evidence: str) -> str:
    style = _EDGES.get(evidence)
    return f", {style}" if style else ""


def _describe_item(trace: Trace, item: Item, lang: str) -> str:
    nodes = [trace.nodes[number] for number in item.members]
    node = nodes[0]
    if item.counted:
        text = describe_followers(trace, item.members, lang)
        return f'label={_quote(text)}, shape=note, fillcolor="#eef1f5"'
    kind, name = (text[:_LONGEST_NAME] for text in split_name(node.op))
    number = "" if node.finding is None or node.finding.rank is None else f" #{node.finding.rank}"
    where = [name_steps((node.op.step,), lang)]
    if len({n.op.device for n in nodes}) > 1:
        where.append(name_ranks((n.op.device for n in nodes), lang))
    lines = [name_verdict(node, lang) + number, kind, name, count_bad(node, lang), ", ".join(where)]
    return f"label={_quote(*(line for line in lines if line))}, {_BOXES[style_of(trace, node)]}"


def _quote(*lines: str) -> str:
    r"""Return lines as one quoted string; in it only `\` and `"` mean something to Graphviz."""
    escaped = (line.replace("\\", "\\\\").replace('"', '\\"') for line in lines)
    return '"' + "\\n".join(escaped) + '"'
