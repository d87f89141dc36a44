"""The page of a trace: one file that needs no network, with the picture, filters and a table.

Everything that comes out of a dump is text: escaped in the markup, and set as text by the script.
The page's own policy allows its one script and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

from dumpscope.records import record
from dumpscope.reporters.summary import options_of
from dumpscope.reporters.trace_drawing import Picture, draw_trace, style_of
from dumpscope.reporters.trace_labels import (
    count_bad,
    describe_beginning,
    first_times,
    group_outside,
    name_evidence,
    name_op,
    name_verdict,
    since_first,
    split_name,
)
from dumpscope.reporters.trace_summary import summarize_trace
from dumpscope.reporters.trace_svg import (
    make_svg,
    picture_style,
    read_template,
    template_environment,
)
from dumpscope.safetext import make_printable
from dumpscope.tracing.trace import Node, Trace
from dumpscope.words import render
from dumpscope.words.tracing import trace_word

__all__ = ["write_page"]

_STATIC_ROWS = 50
_MOST_DATA_BYTES = 3_500_000
"""So many bytes of operators go into a page: it stays below 5 MB."""
_LONGEST_NAME, _LONGEST_REASON = 300, 600
_MOST_OUTSIDE = 40


@record(frozen=True, slots=True)
class _Row:
    """One operator as the table shows it."""

    rank: int | None
    verdict: str
    style: str
    kind: str
    name: str
    bad: str
    step: int | None
    device: int | None
    stream: int | None
    since: str
    source: int
    evidence: str
    reason: str


def write_page(
    trace: Trace, target: BinaryIO, *, limit: int | None = None, lang: str = "en"
) -> None:
    """Write the page.

    Parameters are those of `trace_drawing.draw_trace`; the table holds all operators, or as many
    as a page of 5 MB has room for.
    """
    target.write(_make_page(trace, limit, lang).encode())


def _make_page(trace: Trace, limit: int | None, lang: str) -> str:
    picture = draw_trace(trace, limit=limit, lang=lang, heading=False)
    rows = list(_fitting_rows(trace, lang))
    script = read_template("trace_page.js").strip()
    summary = summarize_trace(trace, lang)
    outside = [
        describe_beginning(findings, followers, lang)
        for findings, followers in group_outside(trace.outside)
    ]
    left_out = len(outside) - _MOST_OUTSIDE
    if left_out > 0:
        more = trace_word("outside_more", lang, count=left_out)
        outside = [*outside[:_MOST_OUTSIDE], more]
    template = template_environment().get_template("trace_page.html.j2")
    return template.render(
        lang_tag="zh-CN" if lang.startswith("zh") else "en",
        title=f"{trace_word('title', lang)}{'：' if lang.startswith('zh') else ': '}{summary[0]}",
        summary=summary,
        picture=make_svg(picture, inline=True),
        style=picture_style() + read_template("trace_page.css"),
        script=script,
        script_hash=_hash_of(script),
        data=_embed(_make_data(rows, picture, lang)),
        rows=len(rows),
        left_out=len(trace.nodes) - len(rows),
        options=options_of(trace.found_by),
        static_rows=[_static_row(trace, row, lang) for row in rows[:_STATIC_ROWS]],
        ranks=sorted({row.device for row in rows if row.device is not None}),
        steps=sorted({row.step for row in rows if row.step is not None}),
        verdicts=_distinct(row.verdict for row in rows),
        outside=outside,
        made_by=trace_word(
            "page_made_by",
            lang,
            version=trace.tool_version,
            scan=trace.scan_id,
            root=make_printable(trace.root),
        ),
        word=lambda key, **values: trace_word(key, lang, **values),
    )


def _fitting_rows(trace: Trace, lang: str) -> Iterator[_Row]:
    """Yield operators in causal order as long as there is room for them."""
    begun = first_times(trace)
    room = _MOST_DATA_BYTES
    for node in trace.nodes:
        row = _make_row(trace, node, begun, lang)
        room -= 120 + len(row.name.encode()) + len(row.reason.encode())
        if room < 0:
            return
        yield row


def _make_row(trace: Trace, node: Node, begun: dict[object, int], lang: str) -> _Row:
    op, finding = node.op, node.finding
    kind, name = split_name(op)
    edge = node.parents[0] if node.parents else None
    return _Row(
        None if finding is None else finding.rank,
        name_verdict(node, lang),
        style_of(trace, node),
        kind[:_LONGEST_NAME],
        name[:_LONGEST_NAME],
        count_bad(node, lang),
        op.step,
        op.device,
        op.stream_id,
        since_first(node, begun),
        -1 if edge is None else edge.source,
        "" if edge is None else name_evidence(edge.evidence, lang),
        "" if finding is None else render(finding.reason, lang)[:_LONGEST_REASON],
    )


def _static_row(trace: Trace, row: _Row, lang: str) -> dict[str, object]:
    """Return a row as the page shows it without a script."""
    source = ""
    if row.source >= 0:
        node = trace.nodes[row.source]
        number = None if node.finding is None else node.finding.rank
        source = name_op(node.op) if number is None else f"#{number}"
        source += _bracket_of(lang).replace("{}", row.evidence)
    shown = {
        "rank": row.rank, "step": row.step, "device": row.device, "stream": row.stream,
    }  # fmt: skip
    return {
        **{key: "" if value is None else value for key, value in shown.items()},
        "verdict": row.verdict,
        "style": row.style,
        "name": f"{row.kind} {row.name}".strip(),
        "bad": row.bad,
        "since": row.since,
        "source": source,
        "reason": row.reason,
    }


def _bracket_of(lang: str) -> str:
    return "（{}）" if lang.startswith("zh") else " ({})"


def _make_data(rows: Sequence[_Row], picture: Picture, lang: str) -> dict[str, Any]:
    """Return what the script reads: columns, and numbers for texts that come again."""
    types, verdicts, styles, evidence = (
        _distinct(getattr(row, name) for row in rows)
        for name in ("kind", "verdict", "style", "evidence")
    )
    number = {
        name: {text: i for i, text in enumerate(texts)}
        for name, texts in (
            ("kind", types), ("verdict", verdicts), ("style", styles), ("evidence", evidence),
        )
    }  # fmt: skip
    return {
        "types": types,
        "verdicts": verdicts,
        "styles": styles,
        "evidence": evidence,
        "bracket": _bracket_of(lang),
        "members": [box.members for box in picture.boxes],
        "columns": {
            "rank": [row.rank for row in rows],
            "verdict": [number["verdict"][row.verdict] for row in rows],
            "style": [number["style"][row.style] for row in rows],
            "type": [number["kind"][row.kind] for row in rows],
            "name": [row.name for row in rows],
            "bad": [row.bad for row in rows],
            "step": [row.step for row in rows],
            "device": [row.device for row in rows],
            "stream": [row.stream for row in rows],
            "since": [row.since for row in rows],
            "source": [row.source for row in rows],
            "evidence": [number["evidence"][row.evidence] for row in rows],
            "reason": [row.reason for row in rows],
        },
    }


def _embed(data: object) -> str:
    """Write data so that nothing in it can end the element that holds it."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _distinct(texts: Iterator[str]) -> list[str]:
    return list(dict.fromkeys(texts))


def _hash_of(script: str) -> str:
    """Return what a content security policy calls a script by."""
    digest = hashlib.sha256(script.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
