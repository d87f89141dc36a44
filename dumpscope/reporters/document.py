"""The scan document `dumpscope.scan/1`: the answer for scripts, as strict JSON.

Its keys are a contract (docs/reports.md): more may be added, none is renamed. Two scans of the
same files give the same document apart from `scan_id`, so nothing in it tells the time, the
machine or the number of workers. What is not known is null. Non-finite numbers are the strings
"nan", "inf" and "-inf".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO

from dumpscope.model import (
    Finding,
    OverflowFinding,
    OverflowRecord,
    OverflowUnit,
    ReadFailure,
    Reason,
    Scan,
    TensorSummary,
)
from dumpscope.overflow import describe_status
from dumpscope.reporters.json_lines import dump_lines
from dumpscope.reporters.ranks import build_ranks
from dumpscope.reporters.summary import headline_of
from dumpscope.reporters.tables import cut, known_stats
from dumpscope.words import render, render_status

__all__ = [
    "DEFAULT_LIMIT",
    "SCHEMA",
    "DocumentReporter",
    "build_document",
    "build_failure",
    "build_finding",
    "build_record",
    "build_tensor",
    "dump_document",
    "json_number",
]

SCHEMA = "dumpscope.scan/1"
DEFAULT_LIMIT = 1000
"""Findings that the document lists when nobody says how many."""

Json = Any


class DocumentReporter:
    """`--json`: the scan document."""

    name = "json"
    suffix = "json"
    option = "--json"
    for_machines = True

    def write(self, scan: Scan, target: BinaryIO, *, limit: int | None, lang: str) -> None:
        """Write the document as UTF-8; without a limit it lists 1,000 findings."""
        shown = DEFAULT_LIMIT if limit is None else limit
        target.write(dump_document(scan, limit=shown, lang=lang).encode())
        target.write(b"\n")


def dump_document(scan: Scan, *, limit: int | None = None, lang: str = "en") -> str:
    """Return the scan document as JSON text: valid UTF-8, one finding per line.

    Parameters are those of `build_document`.
    """
    return dump_lines(build_document(scan, limit=limit, lang=lang))


def build_document(scan: Scan, *, limit: int | None = None, lang: str = "en") -> dict[str, Json]:
    """Return the scan document as plain data, ready for `json.dumps(..., allow_nan=False)`.

    Parameters
    ----------
    limit
        Findings (and expected values) to list at most; `None` and 0 list all. `truncated` tells
        how many findings were left out: a document with any is no baseline.
    lang
        Language of the sentences; keys and codes never change.
    """
    findings = cut(scan.findings, limit or 0)
    expected = cut(scan.expected, limit or 0)
    ranks = {finding.op.op_id: finding.rank for finding in scan.findings}
    return {
        "schema": SCHEMA,
        "tool": {"name": "dumpscope", "version": scan.tool_version},
        "scan_id": scan.scan_id,
        "root": scan.root,
        "exit_status": scan.exit_status,
        "complete": scan.complete,
        "mode": {"number_mode": scan.mode.number_mode, "inferred": scan.mode.inferred},
        "counts": _build_counts(scan),
        "verdict": _build_reason(headline_of(scan), lang),
        "truncated": len(scan.findings) - len(findings),
        "limit": {
            "findings": limit or None,
            "findings_left_out": len(scan.findings) - len(findings),
            "expected_left_out": len(scan.expected) - len(expected),
        },
        "notes": [_build_reason(note, lang) for note in scan.notes],
        "ranks": build_ranks(scan),
        "filters": {
            "steps": list(scan.options.steps),
            "ranks": list(scan.options.ranks),
            "op": list(scan.options.op_globs),
            "run": scan.options.run,
        },
        "statistics": scan.options.stats,
        "config": None if scan.config is None else _strict(scan.config),
        "findings": [build_finding(finding, ranks, lang) for finding in findings],
        "expected": [
            {**build_finding(finding, ranks, lang), "rank": None, "rule": finding.rule}
            for finding in expected
        ],
        "read_failures": list(map(build_failure, scan.read_failures)),
        "overflow_records": [
            build_record(record, scan.record_rank.get(record.record_id), lang)
            for record in scan.overflow_records
        ],
        "unchecked": [
            {
                "file": op.file,
                "op_type": op.op_type,
                "op_name": op.op_name,
                "step": op.step,
                "device": op.device,
                "role": tensor.role,
                "index": tensor.index,
                "dtype": tensor.dtype,
                "shape": list(tensor.shape),
                "why": tensor.unchecked,
            }
            for op, tensor in scan.unchecked
        ],
        "unknown_files": list(scan.unknown_files),
    }


def _build_counts(scan: Scan) -> dict[str, Json]:
    counts = scan.counts
    return {
        "files": counts.files,
        "ops": counts.ops,
        "tensors": counts.tensors,
        "bytes": counts.bytes,
        "unchecked": counts.unchecked,
        "read_failures": counts.read_failures,
        "expected": counts.expected,
        "overflow_records": counts.overflow_records,
        "empty_overflow_records": counts.empty_overflow_records,
        "baseline_known": counts.baseline_known,
        "findings": counts.findings,
        "skipped": counts.skipped,
        "unknown_files": counts.unknown_files,
        "by_verdict": dict(counts.by_verdict),
    }


def _build_reason(reason: Reason, lang: str) -> dict[str, Json]:
    return {
        "code": reason.code,
        "parameters": _strict(reason.parameters),
        "text": render(reason, lang),
    }


def build_finding(finding: Finding, ranks: Mapping[int, int | None], lang: str) -> dict[str, Json]:
    """Return one finding; `ranks` gives the rank of an operator's number, for `caused_by`."""
    op, place = finding.op, finding.op.place
    entry: dict[str, Json] = {
        "rank": finding.rank,
        "verdict": finding.verdict.value,
        "severity": finding.severity,
        "known": finding.known,
        "step": op.step,
        "device": op.device,
        "global_rank": place.global_rank,
        "device_id": place.device_id,
        "host": place.host,
        "run": place.run,
        "op_type": op.op_type,
        "op_name": op.op_name,
        "task_id": op.task_id,
        "stream_id": op.stream_id,
        "context_id": op.context_id,
        "thread_id": op.thread_id,
        "timestamp": op.timestamp,
        "file": op.file,
        "reader": op.reader,
        "model_name": place.model_name,
        "model_id": place.model_id,
        "parent": op.parent,
        "reason": render(finding.reason, lang),
        "reason_code": finding.reason.code,
        "reason_parameters": _strict(finding.reason.parameters),
        "evidence": list(finding.evidence),
        "caused_by": None if finding.caused_by is None else ranks.get(finding.caused_by),
        "deciding": finding.deciding,
        "tensors": [build_tensor(tensor) for tensor in op.tensors],
        "overflow": _build_overflow(finding.overflow, lang),
    }
    if op.stack:
        entry["stack"] = list(op.stack)
    return entry


def build_failure(failure: ReadFailure) -> dict[str, Json]:
    """Return one read failure."""
    return {
        "file": failure.file,
        "reader": failure.reader,
        "error": failure.error,
        "offset": failure.offset,
        "message": failure.message,
    }


def build_tensor(tensor: TensorSummary) -> dict[str, Json]:
    """Return one tensor with its statistics."""
    stats = known_stats(tensor)
    return {
        "role": tensor.role,
        "index": tensor.index,
        "name": tensor.name,
        "dtype": tensor.dtype,
        "layout": tensor.layout,
        "shape": list(tensor.shape),
        "count": stats.count,
        "nan": stats.nan,
        "posinf": stats.posinf,
        "neginf": stats.neginf,
        "saturated": stats.saturated,
        "near_limit": stats.near_limit,
        "subnormal": stats.subnormal,
        "zero": stats.zero,
        "padding_nonfinite": stats.padding_nonfinite,
        "min": json_number(stats.min),
        "max": json_number(stats.max),
        "mean": json_number(stats.mean),
        "std": json_number(stats.std),
        "rms": json_number(stats.rms),
        "l2": json_number(stats.l2),
        "first_bad": None if stats.first_bad is None else list(stats.first_bad),
        "bad_box": None if stats.bad_box is None else [list(ends) for ends in stats.bad_box],
        "checked": tensor.checked if tensor.dumped else None,
        "unchecked": tensor.unchecked,
        "dumped": tensor.dumped,
        "size_bytes": tensor.size_bytes,
        "missing_bytes": tensor.missing_bytes,
        "from_statistics": tensor.from_statistics,
        "notes": list(tensor.notes),
    }


def _build_overflow(overflow: OverflowFinding | None, lang: str) -> dict[str, Json] | None:
    if overflow is None:
        return None
    return {
        "kind": overflow.kind,
        "status": list(overflow.status),
        "bits": [render_status(bit, lang) for bit in overflow.bits],
        "confirmed": overflow.confirmed,
        "file": overflow.file,
        "others": [_build_unit(unit, lang) for unit in overflow.others],
    }


def build_record(record: OverflowRecord, rank: int | None, lang: str) -> dict[str, Json]:
    """Return one overflow record; `rank` is that of the finding it belongs to."""
    units = [_build_unit(unit, lang) for unit in record.units]
    main = units[0] if units else _build_unit(OverflowUnit("", ()), lang)
    return {
        "file": record.file,
        **main,
        "rank": rank,
        "empty": record.empty,
        "known_kind": record.known_kind,
        "timestamp": record.timestamp,
        "step": record.place.step,
        "device": record.place.device,
        "others": units[1:],
    }


def _build_unit(unit: OverflowUnit, lang: str) -> dict[str, Json]:
    return {
        "kind": unit.kind,
        "status": list(unit.status),
        "bits": [render_status(bit, lang) for bit in describe_status(unit.kind, unit.status)],
        "model_id": unit.model_id,
        "stream_id": unit.stream_id,
        "task_id": unit.task_id,
        "context_id": unit.context_id,
        "thread_id": unit.thread_id,
        "fields": dict(unit.fields),
    }


def json_number(value: float | int | None) -> float | int | str | None:
    """Return a number that strict JSON can hold, or its name."""
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    return value


def _strict(value: object) -> Json:
    """Return what was read from elsewhere as plain JSON data."""
    if isinstance(value, Mapping):
        return {str(key): _strict(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        items: Iterable[object] = value
        return [_strict(inner) for inner in items]
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return json_number(value)
    return str(value)
