"""The summary of a scan as rows, and findings counted per step and device: plain values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Literal

from dumpscope.model import Scan, Verdict
from dumpscope.records import record
from dumpscope.reporters.ranks import list_rank_rows
from dumpscope.reporters.summary import (
    headline_of,
    leading_finding,
    list_config,
    next_steps,
    notes_of,
    unchecked_of,
)
from dumpscope.reporters.tables import Cell
from dumpscope.words import label, render

__all__ = ["SummaryRow", "Tally", "list_summary_rows", "tally_findings"]

_COUNTS = (
    "files",
    "ops",
    "tensors",
    "bytes",
    "findings",
    "expected",
    "overflow_records",
    "empty_overflow_records",
    "baseline_known",
    "unchecked",
    "read_failures",
    "unknown_files",
    "skipped",
)


@record(frozen=True, slots=True)
class SummaryRow:
    """One row: the headline, the head of a section, or a fact with its name."""

    kind: Literal["headline", "section", "fact"]
    name: str
    value: Cell = None


@record(frozen=True, slots=True)
class Tally:
    """Findings per step and device: `counts[i][j]` belongs to `steps[i]` and `devices[j]`."""

    steps: tuple[int | None, ...]
    devices: tuple[int | None, ...]
    counts: tuple[tuple[int, ...], ...]


def list_summary_rows(scan: Scan, lang: str) -> Iterator[SummaryRow]:
    """Yield the summary: verdict, run, counts, what was not checked, notes, how to go on."""
    yield SummaryRow("headline", render(headline_of(scan), lang))
    finding = leading_finding(scan)
    if finding is not None:
        yield SummaryRow("fact", label("why", lang), render(finding.reason, lang))
        yield SummaryRow("fact", label("file", lang), finding.op.file)
        if finding.op.stack:
            yield SummaryRow("fact", label("stack", lang), " < ".join(finding.op.stack))
    yield SummaryRow("section", label("section_run", lang))
    yield SummaryRow("fact", label("root", lang), scan.root)
    yield SummaryRow("fact", label("number_mode", lang), label(scan.mode.number_mode, lang))
    yield SummaryRow("fact", label("complete", lang), label("yes" if scan.complete else "no", lang))
    yield SummaryRow("fact", label("exit_status", lang), scan.exit_status)
    yield SummaryRow("fact", label("scan_id", lang), scan.scan_id)
    yield SummaryRow("fact", label("started_at", lang), scan.started_at or None)
    yield SummaryRow("fact", label("duration", lang), round(scan.duration_s, 3))
    yield SummaryRow("fact", label("tool_version", lang), scan.tool_version)
    yield from _rank_rows(scan, lang)
    yield SummaryRow("section", label("section_counts", lang))
    for verdict in Verdict:
        count = scan.counts.by_verdict.get(verdict.value, 0)
        if count and verdict is not Verdict.EXPECTED:
            words = label(verdict.value, lang) if lang.startswith("zh") else ""
            yield SummaryRow("fact", f"{verdict.value} {words}".strip(), count)
    for name in _COUNTS:
        yield SummaryRow("fact", label(name, lang), getattr(scan.counts, name))
    yield SummaryRow("section", label("section_not_checked", lang))
    unchecked = unchecked_of(scan)
    for number, reason in enumerate(unchecked, 1):
        yield SummaryRow("fact", str(number), render(reason, lang))
    if not unchecked:
        yield SummaryRow("fact", "", label("nothing_unchecked", lang))
    notes = notes_of(scan)
    if notes:
        yield SummaryRow("section", label("section_notes", lang))
        for number, reason in enumerate(notes, 1):
            yield SummaryRow("fact", str(number), render(reason, lang))
    if scan.config:
        yield SummaryRow("section", label("section_config", lang))
        for key, value in list_config(scan.config):
            yield SummaryRow("fact", key, value)
    steps = [reason for reason in next_steps(scan) if reason.code != "next_report"]
    if steps:
        yield SummaryRow("section", label("section_next", lang))
    for number, reason in enumerate(steps, 1):
        yield SummaryRow("fact", str(number), render(reason, lang))


def _rank_rows(scan: Scan, lang: str) -> Iterator[SummaryRow]:
    """Yield what happened to each rank, nothing where there is only one."""
    for number, (name, reason) in enumerate(list_rank_rows(scan)):
        if not number:
            yield SummaryRow("section", label("section_ranks", lang))
        yield SummaryRow("fact", name, render(reason, lang))


def tally_findings(scan: Scan, *, max_steps: int = 200, max_devices: int = 32) -> Tally:
    """Count findings per step and device; what is not known comes last.

    Of more steps or devices than fit a picture those with the most findings stay, in their order.
    """
    cells = Counter((f.op.step, f.op.device) for f in scan.findings)
    per_step: Counter[int | None] = Counter()
    per_device: Counter[int | None] = Counter()
    for (step, device), count in cells.items():
        per_step[step] += count
        per_device[device] += count
    steps = _keep_largest(per_step, max_steps)
    devices = _keep_largest(per_device, max_devices)
    counts = tuple(tuple(cells[step, device] for device in devices) for step in steps)
    return Tally(steps, devices, counts)


def _keep_largest(counts: Counter[int | None], room: int) -> tuple[int | None, ...]:
    kept = sorted(counts, key=lambda key: (-counts[key], key is None, key or 0))[:room]
    return tuple(sorted(kept, key=lambda key: (key is None, key or 0)))
