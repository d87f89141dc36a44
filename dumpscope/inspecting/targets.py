"""What a user means who names a file, one tensor of it, or an operator of the last scan.

An existing path wins; else a trailing `:input.N` or `:output.N` is split off; else it is an
operator of the scan, or a file by its path below the scan's root.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from fnmatch import fnmatchcase

from dumpscope.causality.assembly import assemble, part_key
from dumpscope.causality.graphs import fold_name
from dumpscope.errors import OptionsError
from dumpscope.model import Finding, OpRecord, Role, Scan
from dumpscope.readers.protocol import Execution
from dumpscope.records import record
from dumpscope.regexes import regex
from dumpscope.remote.mounts import mount
from dumpscope.remote.urls import is_url, local_path
from dumpscope.remote.walking import is_remote_file
from dumpscope.safetext import make_printable
from dumpscope.store import Store

__all__ = ["Candidate", "Slot", "Target", "find_executions", "is_same_execution", "parse_target"]

Slot = tuple[Role, int]

_SLOT = regex(r"(.+):(input|output)\.([0-9]{1,6})", re.DOTALL)
_GLOB = regex(r"[*?\[]")
_MOST_NAMES = 100_000
_SUGGESTIONS = 3


@record(frozen=True, slots=True)
class Target:
    """What was named: a path, or else an operator; and one tensor of it."""

    text: str
    path: str | None = None
    name: str = ""
    slot: Slot | None = None


def parse_target(text: str) -> Target:
    """Decide what a user named.

    Raises `OptionsError` for what can be neither path nor name.
    """
    if not text or "\0" in text:
        raise OptionsError(f"{text!r} is neither a path nor the name of an operator")
    text = local_path(text)
    match = _SLOT.fullmatch(text)
    if is_url(text):
        return _parse_url(text, match)
    if os.path.lexists(text):
        return Target(text, path=text)
    if match is None:
        return Target(text, name=text)
    role: Role = "input" if match[2] == "input" else "output"
    slot = (role, int(match[3]))
    if os.path.lexists(match[1]):
        return Target(text, path=match[1], slot=slot)
    return Target(text, name=match[1], slot=slot)


def _parse_url(text: str, match: re.Match[str] | None) -> Target:
    """Decide what a URL names. What is kept of it has no password."""
    if match is None or is_remote_file(text):
        url = mount(text).url
        return Target(url, path=url)
    role: Role = "input" if match[2] == "input" else "output"
    url = mount(match[1]).url
    return Target(f"{url}:{role}.{match[3]}", path=url, slot=(role, int(match[3])))


@record(frozen=True, slots=True)
class Candidate:
    """One execution of a scan, what was said of it, and its parts, one in each file."""

    op: OpRecord
    finding: Finding | None
    parts: tuple[OpRecord, ...]


def find_executions(store: Store, scan: Scan, name: str) -> list[Candidate]:
    """Find the executions of an operator in a scan, the best-ranked first.

    The name is the operator's own; else as file names spell it (with underscores), a type, or a
    pattern with `*` and `?`.

    Raises
    ------
    OptionsError
        There is none; the text names those that are spelled alike.
    """
    found = list(store.ops(scan.scan_id, names=[name]))
    if not found:
        found = _find_otherwise(store, scan, name)
    findings = _findings_by_id(scan)
    candidates = [_candidate(op, findings, found) for op in _whole_executions(found)]
    return sorted(candidates, key=_place_in_order)


def _find_otherwise(store: Store, scan: Scan, name: str) -> list[OpRecord]:
    folded = fold_name(name)
    by_name: list[int] = []
    by_type: list[int] = []
    by_pattern: list[int] = []
    is_pattern = _GLOB.search(name) is not None
    known: set[str] = set()
    for op in store.ops(scan.scan_id, light=True):
        if len(known) < _MOST_NAMES:
            known.update((op.op_name, op.op_type))
        if fold_name(op.op_name) == folded:
            by_name.append(op.op_id)
        elif op.op_type == name:
            by_type.append(op.op_id)
        elif is_pattern and fnmatchcase(op.op_name, name):
            by_pattern.append(op.op_id)
    chosen = by_name or by_type or by_pattern
    if not chosen:
        raise OptionsError(
            f"{make_printable(name)}: there is no such path, and scan {scan.scan_id} has no such "
            f"operator{_suggest(name, known)}"
        )
    return list(store.ops(scan.scan_id, op_ids=chosen))


def _suggest(name: str, known: Iterable[str]) -> str:
    lowered = {candidate.lower(): candidate for candidate in known if candidate}
    close = get_close_matches(name.lower(), lowered, _SUGGESTIONS, 0.5)
    if not close:
        ends = [candidate for candidate in lowered if name.lower() in candidate]
        close = sorted(ends, key=lambda candidate: (len(candidate), candidate))[:_SUGGESTIONS]
    if not close:
        return ""
    return ": did you mean " + " or ".join(make_printable(lowered[c]) for c in close) + "?"


def _whole_executions(found: Iterable[OpRecord]) -> Iterator[OpRecord]:
    """Put the parts of executions together."""
    parts = []
    for op in found:
        if op.partial:
            parts.append(op)
        else:
            yield op
    yield from assemble(sorted(parts, key=lambda op: repr(part_key(op))))


def _findings_by_id(scan: Scan) -> dict[int, Finding]:
    findings: dict[int, Finding] = {}
    for finding in (*scan.expected, *reversed(scan.findings)):
        for op_id in (finding.op.op_id, *finding.op.part_ids):
            findings[op_id] = finding
    return findings


def _candidate(op: OpRecord, findings: dict[int, Finding], found: Iterable[OpRecord]) -> Candidate:
    finding = next((findings[i] for i in (op.op_id, *op.part_ids) if i in findings), None)
    if finding is not None:
        op = finding.op
    parts = tuple(part for part in found if part.op_id in op.part_ids) or (op,)
    return Candidate(op, finding, parts)


def _place_in_order(candidate: Candidate) -> tuple[object, ...]:
    op, finding = candidate.op, candidate.finding
    rank = None if finding is None else finding.rank
    return (
        rank is None, rank or 0, finding is None,
        *(-1 if number is None else number for number in (op.step, op.device, op.start_ns)),
        op.order, op.op_id,
    )  # fmt: skip


def is_same_execution(execution: Execution, op: OpRecord) -> bool:
    """Whether what a reader yields is what a scan recorded."""
    return (
        execution.op_name == op.op_name
        and execution.op_type == op.op_type
        and execution.task_id == op.task_id
        and execution.stream_id == op.stream_id
        and execution.context_id == op.context_id
        and execution.thread_id == op.thread_id
        and execution.timestamp == op.timestamp
        and execution.order == op.order
    )
