"""SARIF 2.1.0: findings for code scanning services and editors.

The verdicts are the rules. A result's place is the dump file, relative to the folder that was
scanned (the base `DUMP`), and the operator as a logical location; its level is "error" when the
finding fails the job, "warning" or "note" otherwise. Findings that the baseline knows are
suppressed, not left out. What could not be read is a notification of the invocation.

Source: SARIF Version 2.1.0, OASIS Standard (https://docs.oasis-open.org/sarif/sarif/v2.1.0/).
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, BinaryIO
from urllib.parse import quote

from dumpscope.causality.ranking import FAIL_ORDER
from dumpscope.model import SEVERITY_OF, Finding, OpRecord, ReadFailure, Scan, Verdict
from dumpscope.nightly.baseline import model_key
from dumpscope.reporters.operator_groups import is_incomplete, level_of
from dumpscope.reporters.summary import headline_of, options_of, unchecked_of
from dumpscope.reporters.tables import cut
from dumpscope.safetext import escape_json_text, make_printable
from dumpscope.words import describe_verdict, label, render
from dumpscope.words.nightly import nightly_word

__all__ = ["DEFAULT_LIMIT", "SarifReporter", "artifact_uri", "build_log"]

DEFAULT_LIMIT = 5000
"""Results when nobody says how many: code scanning services show no more than that."""

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_VERSION = "2.1.0"
_BASE = "DUMP"
_LEVELS = {"error": "error", "warning": "warning", "info": "note"}

Json = Any


class SarifReporter:
    """`--sarif`: a SARIF log with one run."""

    name = "sarif"
    suffix = "sarif"
    option = "--sarif"

    def write(self, scan: Scan, target: BinaryIO, *, limit: int | None, lang: str) -> None:
        """Write the log as UTF-8; without a limit it has 5,000 results at most."""
        log = build_log(scan, limit=DEFAULT_LIMIT if limit is None else limit, lang=lang)
        text = json.dumps(log, ensure_ascii=False, allow_nan=False, indent=1)
        target.write(escape_json_text(text).encode())
        target.write(b"\n")


def build_log(scan: Scan, *, limit: int = 0, lang: str = "en") -> dict[str, Json]:
    """Return the log as plain data; `limit` 0 is all findings."""
    findings = cut(scan.findings, limit)
    run: dict[str, Json] = {
        "tool": {
            "driver": {
                "name": "dumpscope",
                "version": scan.tool_version,
                "rules": [_build_rule(verdict, lang) for verdict in FAIL_ORDER],
            }
        },
        "invocations": [_build_invocation(scan, len(scan.findings) - len(findings), lang)],
        "originalUriBaseIds": {_BASE: {"description": {"text": nightly_word("dump_folder", lang)}}},
        "columnKind": "unicodeCodePoints",
        "results": [_build_result(finding, scan, lang) for finding in findings],
        "properties": {
            "scanId": scan.scan_id,
            "verdict": render(headline_of(scan), lang),
            "complete": scan.complete,
        },
    }
    return {"$schema": _SCHEMA, "version": _VERSION, "runs": [run]}


def artifact_uri(relative: str) -> str:
    """Return a path below the dump as a relative URI, percent-encoded.

    Bytes that were not UTF-8 are encoded as the bytes that they were.

    >>> artifact_uri("0/Add.net a.1")
    '0/Add.net%20a.1'
    """
    try:
        raw = relative.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raw = relative.encode("utf-8", "surrogatepass")
    return quote(raw.lstrip(b"/"), safe="/")


def _build_rule(verdict: Verdict, lang: str) -> dict[str, Json]:
    text = describe_verdict(verdict, lang)
    return {
        "id": verdict.value,
        "name": "".join(word.capitalize() for word in verdict.value.split("_")),
        "shortDescription": {"text": label(verdict.value, lang)},
        "fullDescription": {"text": text},
        "help": {"text": text},
        "defaultConfiguration": {"level": _LEVELS[SEVERITY_OF[verdict] or "info"]},
    }


def _build_result(finding: Finding, scan: Scan, lang: str) -> dict[str, Json]:
    op = finding.op
    result: dict[str, Json] = {
        "ruleId": finding.verdict.value,
        "ruleIndex": FAIL_ORDER.index(finding.verdict),
        "level": level_of(finding, scan.options.fail_on),
        "message": {"text": render(finding.reason, lang) or label(finding.verdict.value, lang)},
        "locations": [_build_location(op)],
        "partialFingerprints": {"dumpscopeOperator/v1": _fingerprint(finding)},
        "properties": {
            "rank": finding.rank,
            "step": op.step,
            "device": op.device,
            "known": finding.known,
            "opType": make_printable(op.op_type),
            "opName": make_printable(op.op_name),
        },
    }
    if finding.known:
        result["suppressions"] = [
            {
                "kind": "external",
                "status": "accepted",
                "justification": nightly_word("known", lang),
            }
        ]
    return result


def _build_location(op: OpRecord) -> dict[str, Json]:
    names = [model_key(op.place.model_name), op.op_type, op.op_name]
    location: dict[str, Json] = {
        "logicalLocations": [
            {
                "name": make_printable(op.op_name or op.op_type),
                "fullyQualifiedName": make_printable("/".join(name for name in names if name)),
                "kind": "function",
            }
        ]
    }
    if op.file:
        location["physicalLocation"] = _build_place(op.file)
    return location


def _build_place(file: str) -> dict[str, Json]:
    # A dump has no lines, but services show only results that have one.
    return {
        "artifactLocation": {"uri": artifact_uri(file), "uriBaseId": _BASE},
        "region": {"startLine": 1},
    }


def _fingerprint(finding: Finding) -> str:
    """Identify a finding from night to night: by operator and verdict, never by time."""
    op = finding.op
    parts = (model_key(op.place.model_name), op.op_type, op.op_name, finding.verdict.value)
    text = json.dumps(parts).encode()
    return hashlib.sha256(text).hexdigest()


def _build_invocation(scan: Scan, left_out: int, lang: str) -> dict[str, Json]:
    notices = [_build_notice(failure) for failure in scan.read_failures]
    notices += [
        {"level": "warning", "message": {"text": render(reason, lang)}}
        for reason in unchecked_of(scan)
    ]
    if left_out:
        text = nightly_word("left_out", lang, count=left_out, options=options_of(scan.found_by))
        notices.append({"level": "note", "message": {"text": text}})
    return {
        "executionSuccessful": not is_incomplete(scan),
        "exitCode": scan.exit_status,
        "toolExecutionNotifications": notices,
    }


def _build_notice(failure: ReadFailure) -> dict[str, Json]:
    notice: dict[str, Json] = {
        "level": "error",
        "descriptor": {"id": make_printable(failure.error) or "ReadFailure"},
        "message": {"text": make_printable(failure.message) or make_printable(failure.error)},
    }
    if failure.file:
        notice["locations"] = [{"physicalLocation": _build_place(failure.file)}]
    return notice
