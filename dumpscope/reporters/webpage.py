"""The report as one HTML file that needs nothing else: no network, no other file.

It may come as a mail attachment and hold names that somebody else chose. So text is escaped by
the template, the script writes text only as text, and a content security policy allows the one
style sheet and the one script that are part of the page, by their hashes, and nothing to load.
"""

from __future__ import annotations

import base64
import hashlib
import json
from importlib.resources import files
from typing import TYPE_CHECKING, Any, BinaryIO

from markupsafe import Markup

from dumpscope.model import Finding, OverflowFinding, Scan, Verdict
from dumpscope.nightly.trend import TrendSource, trend_series
from dumpscope.reporters.overview import SummaryRow, list_summary_rows
from dumpscope.reporters.page_charts import GROUPS, draw_heat_map, draw_lanes, name_verdict
from dumpscope.reporters.page_rows import DETAILED_FINDINGS, RowPacker, plan_table
from dumpscope.reporters.page_scale import draw_range
from dumpscope.reporters.summary import (
    headline_of,
    leading_finding,
    next_steps,
    notes_of,
    options_of,
    split_command,
    unchecked_of,
)
from dumpscope.reporters.trend_plot import draw_trend
from dumpscope.safetext import make_printable
from dumpscope.words import describe_verdict, label, render, render_status
from dumpscope.words.page import page_word, page_words

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["PAGE_BYTES", "PageReporter"]

PAGE_BYTES = 5_000_000
"""A page is not larger, however many findings there are: mail servers and browsers take that."""

_STATIC_SHARE, _OTHER_STATIC_SHARE = 5, 25
"""Parts of a page that the plain rows of the findings, and of each other table, may take."""
_RESERVE = 120_000
_SCRIPTS = ("page_rows.js", "page_table.js", "page.js")
_OTHER_TABLES = ("overflow", "expected", "failures", "unchecked")
_SENTENCE_LENGTH = 2000
# The page itself is the report, and lists what could not be read.
_NEEDLESS_STEPS = frozenset({"next_report", "next_failures"})


class PageReporter:
    """`--html`: the page.

    Parameters
    ----------
    page_bytes
        Size that the page keeps, by leaving out the last rows.
    """

    name = "html"
    suffix = "html"
    option = "--html"
    shows_history = True

    def __init__(self, page_bytes: int = PAGE_BYTES) -> None:
        self._page_bytes = page_bytes

    def write(self, scan: Scan, target: BinaryIO, *, limit: int | None, lang: str) -> None:
        """Write the page; without a limit it holds as many findings as its size allows."""
        page = _build(scan, limit or 0, lang, self._page_bytes)
        target.write(page.encode())


def _build(scan: Scan, limit: int, lang: str, page_bytes: int) -> str:
    environment = _environment()
    style = _own_text("page.css")
    script = "\n".join(_own_text(name) for name in _SCRIPTS)
    findings = plan_table(
        "findings", scan, limit=limit, lang=lang, room=page_bytes // _STATIC_SHARE
    )
    room = page_bytes // _OTHER_STATIC_SHARE
    tensors = plan_table("tensors", scan, limit=1, lang=lang, room=room)
    others = [plan_table(name, scan, limit=limit, lang=lang, room=room) for name in _OTHER_TABLES]
    others = [table for table in others if table.total]
    context: dict[str, Any] = {
        "lang": "zh-CN" if lang.startswith("zh") else "en",
        "stop": "。" if lang.startswith("zh") else ".",
        "policy": _policy(style, script),
        "style": style,
        "tables": [findings, *others],
        "word": lambda key, **values: page_word(key, lang, **values),
        "label": lambda key: label(key, lang),
        **_describe_scan(scan, lang),
    }
    lead = leading_finding(scan)
    context["offender"] = None if lead is None else _describe_offender(lead, lang)
    context["offender_tensors"] = (
        tensors if lead is not None and lead.rank == 1 and tensors.rows else None
    )
    context["cut_by_limit"] = max(0, len(scan.findings) - limit) if limit else 0
    static = environment.get_template("page.html.j2").render(context)
    packer = RowPacker(page_bytes - len(static.encode()) - _RESERVE)
    for table in others:
        packer.add(table, scan, limit=limit, lang=lang, share=0.08)
    shown = min(limit or DETAILED_FINDINGS, DETAILED_FINDINGS)
    detail = plan_table("tensors", scan, limit=shown, lang=lang, room=0)
    packer.add(detail, scan, limit=shown, lang=lang, share=0.3)
    packer.add(findings, scan, limit=limit, lang=lang)
    meta = {
        "lang": context["lang"],
        "words": page_words(lang, options=options_of(scan.found_by)),
        "labels": _labels(scan, lang),
        "groups": {verdict.value: group for verdict, group in GROUPS.items()},
        "tables": {table.name: table.describe() for table in (findings, *others, detail)},
        "detailed": shown,
    }
    end = environment.get_template("page_end.html.j2").render(
        meta=_script_json(meta), packed=packer.finish(), script=script
    )
    return static + end


def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("dumpscope.reporters", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _own_text(name: str) -> str:
    """Read a style sheet or script of ours. Line ends are what a browser hashes: without CR."""
    text = (
        files("dumpscope.reporters")
        .joinpath("templates")
        .joinpath(name)
        .read_text(encoding="utf-8")
    )
    return text.replace("\r\n", "\n")


def _policy(style: str, script: str) -> str:
    """Return the content security policy: our own style and script, and nothing else at all."""
    hashes = {
        kind: base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for kind, text in (("style", style), ("script", script))
    }
    return (
        f"default-src 'none'; style-src 'sha256-{hashes['style']}'; "
        f"script-src 'sha256-{hashes['script']}'; base-uri 'none'; form-action 'none'"
    )


def _script_json(value: object) -> str:
    """Write JSON that can stand in a script element whatever its strings hold."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _labels(scan: Scan, lang: str) -> dict[str, str]:
    """Words for values that the script looks up."""
    found = {verdict.value: name_verdict(verdict, lang) for verdict in Verdict}
    reasons = {tensor.unchecked for _, tensor in scan.unchecked if tensor.unchecked}
    for key in (*sorted(reasons)[:200], "input", "output", "error", "warning", "info", "yes", "no"):
        found[make_printable(key)] = label(key, lang)
    return found


def _describe_scan(scan: Scan, lang: str) -> dict[str, Any]:
    """What the head of the page and its closing sections say."""
    counts = scan.counts
    status = scan.exit_status if scan.exit_status in {0, 1, 3} else 3
    verdicts = [
        {
            "value": verdict.value,
            "name": name_verdict(verdict, lang),
            "group": GROUPS[verdict],
            "count": counts.by_verdict.get(verdict.value, 0),
            "meaning": describe_verdict(verdict, lang),
        }
        for verdict in Verdict
        if counts.by_verdict.get(verdict.value, 0) and verdict is not Verdict.EXPECTED
    ]
    figures = [
        (name, label(name, lang), getattr(counts, name))
        for name in (
            "findings",
            "ops",
            "tensors",
            "files",
            "overflow_records",
            "unchecked",
            "read_failures",
            "expected",
            "baseline_known",
        )
        if getattr(counts, name) or name in {"findings", "ops", "tensors", "files"}
    ]
    return {
        "scan": scan,
        "root": make_printable(scan.root),
        "status": status,
        "headline": _say(render(headline_of(scan), lang)),
        "verdicts": verdicts,
        "figures": figures,
        "unchecked": [_say(render(reason, lang)) for reason in unchecked_of(scan)],
        "notes": [_say(render(reason, lang)) for reason in notes_of(scan)],
        "next_steps": [
            split_command(step) for step in _list_steps(scan, lang) if len(step) <= _SENTENCE_LENGTH
        ],
        "heat": draw_heat_map(scan, lang),
        "lanes": draw_lanes(scan, lang),
        "trend": _draw_history(scan, lang),
        "groups": ("made", "came", "hint", "passed"),
        "run_sections": _run_sections(scan, lang),
        "detailed": DETAILED_FINDINGS,
    }


def _draw_history(scan: Scan, lang: str) -> Markup | None:
    """Draw the headroom of the first offender's outputs over the steps, where there are some."""
    series = [
        entry
        for entry in trend_series([TrendSource(scan.scan_id, lambda: scan.history)])
        if len(entry.points) > 1
    ]
    # The plot escapes the names that stand in it.
    return Markup(draw_trend(series, lang)) if series else None  # noqa: S704 - see above


def _describe_offender(finding: Finding, lang: str) -> dict[str, Any]:
    """What is said of the first offender, beside the headline."""
    op = finding.op
    facts = [(label("file", lang), make_printable(op.file))]
    if op.stack:
        facts.append((label("stack", lang), make_printable(" < ".join(op.stack))))
    if finding.overflow is not None and finding.overflow.bits:
        facts.append((page_word("overflow_words", lang), _overflow_words(finding.overflow, lang)))
    return {
        "rank": finding.rank,
        "verdict": finding.verdict.value,
        "group": GROUPS[finding.verdict],
        "name": name_verdict(finding.verdict, lang),
        "reason": _say(render(finding.reason, lang)),
        "facts": [(name, _say(text)) for name, text in facts],
        "range": draw_range(finding, lang),
    }


def _overflow_words(overflow: OverflowFinding, lang: str) -> str:
    mark, colon = ("；", "：") if lang.startswith("zh") else ("; ", ": ")
    bits = mark.join(render_status(bit, lang) for bit in overflow.bits)
    return make_printable(f"{overflow.kind}{colon}{bits}")


def _list_steps(scan: Scan, lang: str) -> list[str]:
    steps = [reason for reason in next_steps(scan) if reason.code not in _NEEDLESS_STEPS]
    return [render(reason, lang) for reason in steps]


def _run_sections(scan: Scan, lang: str) -> list[tuple[str, list[SummaryRow]]]:
    """Return the summary's sections that the page does not show elsewhere."""
    elsewhere = {
        label(key, lang) for key in ("section_not_checked", "section_notes", "section_next")
    }
    sections: list[tuple[str, list[SummaryRow]]] = []
    for row in list_summary_rows(scan, lang):
        if row.kind == "section":
            sections.append((row.name, []))
        elif sections and row.value is not None:
            value = row.value
            if isinstance(value, str):
                value = _say(make_printable(value))
            sections[-1][1].append(SummaryRow("fact", _say(make_printable(row.name)), value))
    return [(name, rows) for name, rows in sections if name not in elsewhere and rows]


def _say(text: str) -> str:
    return text if len(text) <= _SENTENCE_LENGTH else text[: _SENTENCE_LENGTH - 1] + "\u2026"
