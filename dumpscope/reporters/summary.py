"""The answer of a scan in a few sentences: what every report begins with.

Sentences stay `Reason`s here; the reports put them into words.
"""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from dumpscope.model import Finding, Reason, Scan, Verdict
from dumpscope.safetext import make_printable

__all__ = [
    "count_unchecked",
    "headline_of",
    "leading_finding",
    "list_config",
    "next_steps",
    "options_of",
    "split_command",
    "notes_of",
    "unchecked_of",
]

_HEADLINES = {
    Verdict.BAD_INPUT: "headline_bad_input",
    Verdict.RECEIVED: "headline_received",
    Verdict.HANDOFF: "headline_handoff",
    Verdict.UNKNOWN_INPUTS: "headline_unknown_inputs",
    Verdict.PROPAGATED: "headline_propagated",
    Verdict.SWALLOWED: "headline_swallowed",
}

# Notes that say that something was not looked at; the others are only worth knowing.
_UNCHECKED_NOTES = frozenset(
    {
        "archives",
        "interrupted",
        "nothing_found",
        "partial_steps",
        "read_failures",
        "skipped_links",
        "unchecked",
        "unknown_files",
    }
)


def leading_finding(scan: Scan) -> Finding | None:
    """Return the first finding that the baseline does not know, `None` when there is none."""
    return next((finding for finding in scan.findings if not finding.known), None)


def headline_of(scan: Scan) -> Reason:
    """Return the verdict of a run as one sentence."""
    counts = scan.counts
    finding = leading_finding(scan)
    if finding is not None:
        op = finding.op
        return Reason(
            _HEADLINES.get(finding.verdict, "headline_origin"),
            {
                "op_type": op.op_type,
                "op_name": op.op_name,
                "step": op.step,
                "device": op.device,
                "file": op.file,
                "findings": counts.findings,
            },
        )
    if not scan.complete:
        return Reason("headline_incomplete")
    if scan.findings:
        return Reason("headline_known", {"findings": len(scan.findings)})
    for note in scan.notes:
        if note.code in {"nothing_expected", "nothing_found"}:
            return note
    return Reason("headline_clean", {"ops": counts.ops, "tensors": counts.tensors})


def unchecked_of(scan: Scan) -> list[Reason]:
    """Return what was not looked at, with counts; empty when everything was."""
    counts = scan.counts
    found = {note.code: note for note in scan.notes if note.code in _UNCHECKED_NOTES}
    for code, count in (
        ("read_failures", counts.read_failures),
        ("unchecked", counts.unchecked),
        ("unknown_files", counts.unknown_files),
        ("skipped_links", counts.skipped),
    ):
        if count:
            found.setdefault(code, Reason(code, {"count": count}))
    return list(found.values())


def count_unchecked(scan: Scan) -> list[tuple[str, int]]:
    """Return why tensors could not be checked, the most frequent of it first, with counts."""
    return Counter(tensor.unchecked or "" for _, tensor in scan.unchecked).most_common()


def notes_of(scan: Scan) -> list[Reason]:
    """Return what else is worth knowing about the run."""
    counts = scan.counts
    headline = headline_of(scan).code
    found = {
        note.code: note
        for note in scan.notes
        if note.code not in _UNCHECKED_NOTES and note.code not in {"clean", headline}
    }
    for code, count in (
        ("expected_values", counts.expected),
        ("baseline_known", counts.baseline_known),
        ("empty_overflow_records", counts.empty_overflow_records),
    ):
        if count:
            found.setdefault(code, Reason(code, {"count": count}))
    return list(found.values())


def options_of(found_by: Sequence[str]) -> str:
    """Return `Scan.found_by` as it stands behind a command: " --store 'night 1.db'"."""
    return "".join(f" {shlex.quote(word)}" for word in found_by)


def next_steps(scan: Scan) -> list[Reason]:
    """Return what to do next, each with a command that can be copied."""
    steps = []
    told = {"place": shlex.join(scan.found_by)} if scan.found_by else {}
    finding = leading_finding(scan)
    if finding is not None:
        name = finding.op.op_name or finding.op.file
        # A name that had to be escaped would not be found again.
        if name and make_printable(name) == name:
            steps.append(Reason("next_show", {"target": shlex.quote(name), **told}))
        steps.append(Reason("next_report", told))
    if scan.counts.read_failures or scan.counts.unchecked:
        steps.append(Reason("next_failures", told))
    elif scan.counts.unknown_files:
        steps.append(Reason("next_formats"))
    return steps


def split_command(text: str) -> tuple[str, str]:
    """Split a next step into its words and the command to copy."""
    place = text.find("dumpscope ")
    if place < 0:
        return text, ""
    return text[:place].rstrip(), text[place:]


def list_config(config: Mapping[str, object] | None) -> Iterator[tuple[str, str]]:
    """Yield the configuration flattened, as (dotted key, text)."""
    if config is None:
        return
    for key, value in config.items():
        name = make_printable(str(key))
        if isinstance(value, Mapping):
            for inner, text in list_config(value):
                yield f"{name}.{inner}", text
        elif isinstance(value, str):
            yield name, make_printable(value)
        else:
            yield name, make_printable(json.dumps(value, ensure_ascii=False, default=str))
