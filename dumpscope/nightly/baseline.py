"""Findings that are known: a file of them, and what is new beside it.

A finding is known by what it is, not by when or where it was seen: model, operator type and
name, slot and kind of value. It counts as new again when it gets worse: a kind that was not
there, a much larger share, or the first place of the ranking for the first time.

The file is JSON, schema `dumpscope.baseline/1`; the scan document of an earlier run stands for
one as well.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from typing import Any

from dumpscope.causality.inputs import is_saturated
from dumpscope.errors import ConfigError, OptionsError
from dumpscope.model import Finding, Reason, TensorSummary
from dumpscope.records import record
from dumpscope.regexes import regex

__all__ = [
    "BASELINE_SCHEMA",
    "Applied",
    "Baseline",
    "Entry",
    "EntryKey",
    "apply_baseline",
    "collect_entries",
    "dump_baseline",
    "entries_in_document",
    "is_covered",
    "list_entries",
    "load_baseline",
    "local_today",
    "model_key",
    "note_baseline",
    "parse_baseline",
]

BASELINE_SCHEMA = "dumpscope.baseline/1"
_SCAN_SCHEMA = "dumpscope.scan/1"
_MOST_BYTES = 256 << 20
_MOST_NAMES_SHOWN = 5
_KINDS = ("nan", "posinf", "neginf", "saturated", "status")

_WORSE_FACTOR = 2.0
_WORSE_SHARE = 0.01
"""A share is much larger when it doubled and grew by at least a hundredth of the tensor."""

# What differs from run to run in the names that CANN gives to models.
_RUN_IN_NAME = regex(r"(?<![0-9])20[0-9]{12}(?![0-9])(_[0-9]+)?")

EntryKey = tuple[str, str, str, str, str]
"""(model, operator type, operator name, slot, kind)."""


@record(frozen=True, slots=True)
class Entry:
    """One known thing. `share` is of the tensor's elements, `first` whether it led the ranking."""

    model: str
    op_type: str
    op_name: str
    slot: str
    kind: str
    share: float = 0.0
    first: bool = False
    reason: str = ""
    expires: date | None = None

    @property
    def key(self) -> EntryKey:
        return (self.model, self.op_type, self.op_name, self.slot, self.kind)


@record(frozen=True, slots=True)
class Baseline:
    """The entries of a file, and where they come from."""

    entries: tuple[Entry, ...]
    path: str = ""


@record(frozen=True, slots=True)
class Applied:
    """Findings with the known ones marked, and entries that no longer occur or ran out."""

    findings: tuple[Finding, ...]
    known: int = 0
    gone: tuple[Entry, ...] = ()
    expired: tuple[Entry, ...] = ()


def local_today() -> date:
    """Return the day where the user is: an expiry date is one."""
    return datetime.now().astimezone().date()


def apply_baseline(baseline: Baseline, findings: Sequence[Finding], today: date) -> Applied:
    """Mark the findings that `baseline` knows and that did not get worse.

    `today` decides which entries have run out.
    """
    valid = {e.key: e for e in baseline.entries if e.expires is None or e.expires >= today}
    expired = tuple(e for e in baseline.entries if e.expires is not None and e.expires < today)
    seen: set[EntryKey] = set()
    marked = []
    for finding in findings:
        entries = list_entries(finding)
        seen.update(entry.key for entry in entries)
        known = bool(entries) and all(is_covered(valid.get(e.key), e) for e in entries)
        marked.append(replace(finding, known=known))
    return Applied(
        findings=tuple(marked),
        known=sum(1 for f in marked if f.known),
        gone=tuple(e for e in baseline.entries if e.key not in seen),
        expired=expired,
    )


def collect_entries(findings: Iterable[Finding]) -> tuple[Entry, ...]:
    """Make the entries under which `findings` are known from now on, sorted."""
    return _merged(entry for finding in findings for entry in list_entries(finding))


def note_baseline(applied: Applied) -> list[Reason]:
    """What the baseline says beside the findings themselves."""
    notes = []
    if applied.known:
        notes.append(Reason("baseline_known", {"count": applied.known}))
    for code, entries in (("baseline_gone", applied.gone), ("baseline_expired", applied.expired)):
        if entries:
            names = sorted({entry.op_name or entry.op_type for entry in entries})
            shown = ", ".join(names[:_MOST_NAMES_SHOWN])
            notes.append(Reason(code, {"count": len(entries), "names": shown}))
    return notes


def model_key(name: str | None) -> str:
    """What stays the same from night to night in the name of a model."""
    return _RUN_IN_NAME.sub("*", name or "")


def is_covered(known: Entry | None, entry: Entry) -> bool:
    """Whether `entry` is known and did not get worse."""
    if known is None or (entry.first and not known.first):
        return False
    grown = entry.share - known.share
    return not (grown > _WORSE_SHARE and entry.share > _WORSE_FACTOR * known.share)


def list_entries(finding: Finding) -> list[Entry]:
    """Make the entries of one finding: one for each slot and kind of bad value."""
    op = finding.op
    found = [
        (f"{tensor.role}.{tensor.index}", kind, share)
        for tensor in op.tensors
        for kind, share in _kinds_of(tensor)
    ]
    if not found:
        found = [("", "status", 0.0)]
    model = model_key(op.place.model_name)
    return [
        Entry(model, op.op_type, op.op_name, slot, kind, share, first=finding.rank == 1)
        for slot, kind, share in found
    ]


def _kinds_of(tensor: TensorSummary) -> list[tuple[str, float]]:
    stats = tensor.stats
    counts = {"nan": stats.nan, "posinf": stats.posinf, "neginf": stats.neginf}
    if is_saturated(tensor):
        counts["saturated"] = stats.saturated
    return [(kind, n / (stats.count or 1)) for kind, n in counts.items() if n]


def _merged(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """One entry for each key, with the largest share and the best place."""
    best: dict[EntryKey, Entry] = {}
    for entry in entries:
        known = best.setdefault(entry.key, entry)
        best[entry.key] = replace(
            known,
            share=max(known.share, entry.share),
            first=known.first or entry.first,
        )
    return tuple(best[key] for key in sorted(best))


# --- the file ---------------------------------------------------------------------------------


def load_baseline(path: str) -> Baseline:
    """Read a baseline file, or the scan document of an earlier run.

    Raises
    ------
    OptionsError
        A scan document that was cut by `--limit`: what was left out would count as new.
    ConfigError
        The file cannot be read or is neither.
    """
    try:
        with open(path, "rb") as file:
            content = file.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise ConfigError(f"{path}: larger than {_MOST_BYTES >> 20} MiB; no baseline")
        text = content.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    return parse_baseline(text, path)


def parse_baseline(text: str, path: str = "") -> Baseline:
    """Understand the text of a baseline file or of a scan document. Raises like `load_baseline`."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: no JSON: {error}") from error
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema == BASELINE_SCHEMA:
        return Baseline(_read_entries(document, path), path)
    if schema == _SCAN_SCHEMA:
        return Baseline(_read_scan(document, path), path)
    raise ConfigError(
        f"{path}: expected schema {BASELINE_SCHEMA} or {_SCAN_SCHEMA}, found {schema!r}; "
        "write a baseline with: dumpscope baseline write FILE"
    )


def dump_baseline(entries: Iterable[Entry]) -> str:
    """The text of a baseline file, one entry a line so that a diff of it can be read."""
    lines = []
    for entry in entries:
        fields: dict[str, object] = {
            "model": entry.model,
            "op_type": entry.op_type,
            "op_name": entry.op_name,
            "slot": entry.slot,
            "kind": entry.kind,
            "share": round(entry.share, 9),
            "first": entry.first,
            "reason": entry.reason,
            "expires": None if entry.expires is None else entry.expires.isoformat(),
        }
        lines.append("  " + json.dumps(fields))
    body = ",\n".join(lines)
    return f'{{"schema": "{BASELINE_SCHEMA}", "entries": [\n{body}\n]}}\n'


def _read_entries(document: Mapping[str, Any], path: str) -> tuple[Entry, ...]:
    entries = document.get("entries")
    if not isinstance(entries, list):
        raise ConfigError(f"{path}: entries: expected a list")
    return tuple(_read_entry(e, f"{path}: entries[{n}]") for n, e in enumerate(entries))


def _read_entry(entry: object, where: str) -> Entry:
    if not isinstance(entry, dict):
        raise ConfigError(f"{where}: expected an object")
    texts = {}
    for key in ("model", "op_type", "op_name", "slot", "kind", "reason"):
        texts[key] = entry.get(key, "")
        if not isinstance(texts[key], str):
            raise ConfigError(f"{where}.{key}: expected a string, found {texts[key]!r}")
    if texts["kind"] not in _KINDS:
        raise ConfigError(f"{where}.kind: expected one of {list(_KINDS)}, found {texts['kind']!r}")
    share = entry.get("share", 0.0)
    if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 <= share <= 1:
        raise ConfigError(f"{where}.share: expected a number from 0 to 1, found {share!r}")
    expires = entry.get("expires")
    try:
        ends = None if expires is None else date.fromisoformat(expires)
    except (ValueError, TypeError):
        raise ConfigError(
            f"{where}.expires: expected a date (2026-12-31) or null, found {expires!r}"
        ) from None
    return Entry(**texts, share=float(share), first=bool(entry.get("first", False)), expires=ends)


def _read_scan(document: Mapping[str, Any], path: str) -> tuple[Entry, ...]:
    left_out = document.get("truncated", 0)
    if left_out:
        raise OptionsError(
            f"{path}: its list of findings was cut, {left_out} were left out; "
            "write it again with --limit 0"
        )
    entries: list[Entry] = []
    try:
        for finding in document["findings"]:
            entries += entries_in_document(finding)
    except (KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path}: no scan document of dumpscope: {error!r}") from error
    return _merged(entries)


def entries_in_document(finding: Mapping[str, Any]) -> list[Entry]:
    """Make the entries of one finding of a scan document.

    Raises `KeyError`, `TypeError` or `AttributeError` when it is none.
    """
    names = (
        model_key(finding.get("model_name")),
        finding["op_type"] or "",
        finding["op_name"] or "",
    )
    first = finding["rank"] == 1
    kinds = list(_kinds_in_document(finding["tensors"])) or [("", "status", 0.0)]
    return [Entry(*names, slot, kind, share, first) for slot, kind, share in kinds]


def _kinds_in_document(tensors: Iterable[Mapping[str, Any]]) -> Iterable[tuple[str, str, float]]:
    from dumpscope.dtypes import dtype_named

    for tensor in tensors:
        slot = f"{tensor['role']}.{tensor['index']}"
        count = tensor.get("count") or 1
        for kind in ("nan", "posinf", "neginf", "saturated"):
            bad = tensor[kind]
            if bad and (kind != "saturated" or dtype_named(tensor["dtype"]).saturates):
                yield slot, kind, bad / count
