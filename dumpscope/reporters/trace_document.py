"""The trace document `dumpscope.trace/1`: nodes and edges for scripts, as strict JSON.

Its keys are a contract (docs/trace.md): more may be added, none is renamed. Nodes stand in causal
order, so that the parents of a node come before it. What is not known is null.
"""

from __future__ import annotations

from typing import Any, BinaryIO

from dumpscope.model import Finding, OpRecord, TensorSummary
from dumpscope.reporters.json_lines import dump_lines
from dumpscope.reporters.tables import known_stats
from dumpscope.reporters.trace_labels import deciding_tensor
from dumpscope.reporters.trace_summary import summarize_trace
from dumpscope.tracing.folding import rate_nodes
from dumpscope.tracing.trace import Node, Trace
from dumpscope.words import render

__all__ = ["DEFAULT_LIMIT", "SCHEMA", "build_trace_document", "write_document"]

SCHEMA = "dumpscope.trace/1"
DEFAULT_LIMIT = 1000
"""Nodes that the document lists when nobody says how many."""

Json = Any


def write_document(
    trace: Trace, target: BinaryIO, *, limit: int | None = None, lang: str = "en"
) -> None:
    """Write the document as UTF-8, one node per line.

    Parameters
    ----------
    limit
        Nodes to list at most, the first in causal order; 0 lists all, `None` 1,000.
    """
    shown = DEFAULT_LIMIT if limit is None else limit
    text = dump_lines(build_trace_document(trace, limit=shown, lang=lang))
    target.write(f"{text}\n".encode())


def build_trace_document(trace: Trace, *, limit: int = 0, lang: str = "en") -> dict[str, Json]:
    """Return the document as plain data, ready for `json.dumps(..., allow_nan=False)`."""
    nodes = trace.nodes[:limit] if limit else trace.nodes
    turn = rate_nodes(trace).turn
    parts = [node.part for node in trace.nodes]
    return {
        "schema": SCHEMA,
        "tool": {"name": "dumpscope", "version": trace.tool_version},
        "scan_id": trace.scan_id,
        "root": trace.root,
        "summary": summarize_trace(trace, lang),
        "start": trace.start,
        "origin": trace.origin,
        "turn": turn,
        "counts": {
            "findings": trace.findings,
            "nodes": len(trace.nodes),
            "affected": trace.affected,
            "joined": parts.count("joined"),
            "before": parts.count("before"),
            "expected": parts.count("expected"),
            "edges": sum(len(node.parents) for node in trace.nodes),
        },
        "truncated": len(trace.nodes) - len(nodes),
        "nodes": [_build_node(number, node, lang) for number, node in enumerate(nodes)],
        "outside": [
            {**_build_op(entry.finding.op, entry.finding), "followers": entry.followers}
            for entry in (trace.outside[:limit] if limit else trace.outside)
        ],
        "aside": [
            {**_build_op(finding.op, finding), "rule": finding.rule}
            for finding in (trace.aside[:limit] if limit else trace.aside)
        ],
    }


def _build_node(number: int, node: Node, lang: str) -> dict[str, Json]:
    finding = node.finding
    return {
        "node": number,
        "part": node.part,
        "depth": node.depth,
        **_build_op(node.op, finding),
        "reason": None if finding is None else render(finding.reason, lang),
        "reason_code": None if finding is None else finding.reason.code,
        "tensor": _build_tensor(deciding_tensor(node)),
        "parents": [{"node": edge.source, "evidence": edge.evidence} for edge in node.parents],
    }


def _build_op(op: OpRecord, finding: Finding | None) -> dict[str, Json]:
    place = op.place
    return {
        "rank": None if finding is None else finding.rank,
        "verdict": None if finding is None else finding.verdict.value,
        "severity": None if finding is None else finding.severity,
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
        "timestamp": op.timestamp,
        "file": op.file,
    }


def _build_tensor(tensor: TensorSummary | None) -> dict[str, Json] | None:
    if tensor is None:
        return None
    stats = known_stats(tensor)
    return {
        "role": tensor.role,
        "index": tensor.index,
        "dtype": tensor.dtype,
        "shape": list(tensor.shape),
        "count": stats.count,
        "nan": stats.nan,
        "posinf": stats.posinf,
        "neginf": stats.neginf,
        "saturated": stats.saturated,
    }
