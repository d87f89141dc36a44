"""A trace in a few sentences: what all its forms begin with."""

from __future__ import annotations

from dumpscope.model import Verdict
from dumpscope.reporters.trace_labels import (
    describe_beginning,
    describe_node,
    group_outside,
    name_op,
    name_ranks,
    name_steps,
)
from dumpscope.tracing.trace import Outside, Trace
from dumpscope.words import label, render
from dumpscope.words.tracing import trace_word

__all__ = ["summarize_trace"]

_BEGINNINGS = (
    Verdict.ORIGIN,
    Verdict.STATUS_ORIGIN,
    Verdict.SATURATED_ORIGIN,
)
_MOST_SOURCES = 3


def summarize_trace(trace: Trace, lang: str = "en") -> list[str]:
    """Return where it began, why that is so, and how far it went; one sentence each."""
    zh = lang.startswith("zh")
    if trace.start is None or trace.origin is None:
        return [trace_word("no_origin", lang)]
    node = trace.nodes[trace.start]
    op, finding = node.op, node.finding
    assert finding is not None
    began = finding.verdict in _BEGINNINGS
    first = trace_word("began_origin" if began else "began_other", lang, operator=name_op(op))
    number = f"#{finding.rank}{'，' if zh else ', '}" if finding.rank is not None else ""
    places = [name_steps((op.step,), lang), name_ranks((op.device,), lang)]
    if op.stream_id is not None:
        places.append(trace_word("stream", lang, number=op.stream_id))
    verdict = label(finding.verdict.value, lang)
    if zh:
        first += f"（{number}{verdict}）：{'，'.join(places)}。"
    else:
        first = f"{first} ({number}{verdict}): {', '.join(places)}."
    sentences = [first, render(finding.reason, lang)]
    if trace.origin != trace.start:
        source = describe_node(trace.nodes[trace.origin], lang)
        sentences.append(trace_word("way_up", lang, source=source))
    after = [n.op for n in trace.nodes if n.part == "after"]
    grew = "grew" if len(after) > 1 else "grew_one" if after else "grew_none"
    values = {
        "count": len(after),
        "ranks": name_ranks((o.device for o in after), lang),
        "steps": name_steps((o.step for o in after), lang),
    }
    sentences.append(trace_word(grew, lang, **values))
    sources = _other_sources(trace, lang)
    if sources:
        sentences.append(trace_word("joined", lang, sources=sources))
    return sentences


def _other_sources(trace: Trace, lang: str) -> str:
    """Name what else fed the operators that grew out of the origin."""
    found = [
        Outside(node.finding, 0)
        for node in trace.nodes
        if node.part == "joined" and not node.parents and node.finding is not None
    ]
    groups = group_outside(found)
    words = [describe_beginning(findings, 0, lang) for findings, _ in groups[:_MOST_SOURCES]]
    if len(groups) > _MOST_SOURCES:
        words.append(trace_word("other_count", lang, count=len(groups) - _MOST_SOURCES))
    return ("，" if lang.startswith("zh") else ", ").join(words)
