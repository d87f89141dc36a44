"""Puts a finding together: verdict, reason, evidence, and the hardware's word."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from dumpscope.causality.hardware import Flag, describe_flags
from dumpscope.causality.inputs import is_notable
from dumpscope.causality.optypes import is_backward
from dumpscope.causality.reasons import Because, build_reason
from dumpscope.model import Evidence, Finding, OpRecord, Reason, TensorSummary, Verdict
from dumpscope.rules import Rule

__all__ = ["compose_finding", "note_loss_scale"]

_ORDER: tuple[Evidence, ...] = (
    "own_inputs", "graph", "address", "bytes", "order", "status", "statistics",
)  # fmt: skip
_SEEN = "seen_at_consumer"

_BEGINNINGS = (
    Verdict.ORIGIN, Verdict.SATURATED_ORIGIN, Verdict.STATUS_ORIGIN, Verdict.BAD_INPUT,
    Verdict.RECEIVED, Verdict.HANDOFF, Verdict.UNKNOWN_INPUTS,
)  # fmt: skip


def compose_finding(
    op: OpRecord,
    verdict: Verdict,
    code: str,
    tensor: TensorSummary | None,
    because: Because,
    flags: list[Flag] | None = None,
    rule: Rule | None = None,
) -> Finding:
    """Make a finding of a verdict.

    Parameters
    ----------
    tensor
        The one that decided.
    flags
        The hardware's records of the execution.
    rule
        What makes it expected.
    """
    overflow = None
    if flags:
        shown = any(is_notable(t) for t in op.outputs)
        overflow = describe_flags(flags, confirmed=shown)
    deciding = None
    counted = seen = False
    for position, own in enumerate(op.tensors):
        counted = counted or own.from_statistics
        seen = seen or _SEEN in own.notes
        if own is tensor:
            deciding = position
    reason = build_reason(code, tensor, because, overflow, counted=counted)
    if rule is not None:
        told = {"rule": rule.name, "why": rule.reason, "why_zh": rule.reason_zh}
        reason = Reason(code, {**reason.parameters, **told})
    if seen:
        # What was only seen at whoever read it is no tensor of this execution's dump.
        op = replace(op, tensors=tuple(t for t in op.tensors if _SEEN not in t.notes))
        deciding = next((i for i, t in enumerate(op.tensors) if t is tensor), None)
    cause = because.producer or because.sender
    return Finding(
        op, verdict, reason, _list_evidence(because, status=overflow is not None, counted=counted),
        None, deciding, overflow, None if rule is None else rule.name, False,
        None if cause is None else cause.op_id,
    )  # fmt: skip


_EVIDENCE: dict[frozenset[Evidence], tuple[Evidence, ...]] = {}


def _list_evidence(because: Because, *, status: bool, counted: bool) -> tuple[Evidence, ...]:
    """All evidence that was used, in the usual order; equal lists are one object."""
    used = set(because.evidence_of_inputs())
    if status:
        used.add("status")
    if counted:
        used.add("statistics")
    key = frozenset(used)
    found = _EVIDENCE.get(key)
    if found is None:
        found = _EVIDENCE[key] = tuple(kind for kind in _ORDER if kind in used)
    return found


def note_loss_scale(findings: Iterable[Finding]) -> list[Finding]:
    """Say of steps whose trouble begins in backward only that they would be skipped.

    To be asked where the dump holds an operator that checks gradients before they are applied.
    """
    found = list(findings)
    begun: dict[tuple[str, int | None], list[Finding]] = defaultdict(list)
    for finding in found:
        if finding.verdict in _BEGINNINGS:
            begun[finding.op.place.run or "", finding.op.step].append(finding)
    skipped = {
        key
        for key, some in begun.items()
        if all(is_backward(f.op.op_name, f.op.op_type) for f in some)
    }
    return [
        replace(f, reason=Reason(f.reason.code, {**f.reason.parameters, "loss_scale": True}))
        if f.verdict in _BEGINNINGS and (f.op.place.run or "", f.op.step) in skipped
        else f
        for f in found
    ]
