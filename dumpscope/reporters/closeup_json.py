"""One file or operator for scripts: the document `dumpscope.show/1`, strict JSON.

Executions and tensors are spelled as in the scan document; more keys may be added.
"""

from __future__ import annotations

import json
from typing import Any

from dumpscope.inspecting.closeup import Closeup, exponent_range
from dumpscope.inspecting.views import FileView, OpView, View
from dumpscope.model import Finding, OpRecord
from dumpscope.reporters.document import (
    build_failure,
    build_finding,
    build_record,
    build_tensor,
    json_number,
)
from dumpscope.safetext import escape_json_text

__all__ = ["SCHEMA", "build_view", "dump_view"]

SCHEMA = "dumpscope.show/1"

Json = Any


def dump_view(view: View, *, lang: str = "en") -> str:
    """Return the document as JSON text: valid UTF-8, one line."""
    return escape_json_text(
        json.dumps(build_view(view, lang=lang), ensure_ascii=False, allow_nan=False)
    )


def build_view(view: View, *, lang: str = "en") -> dict[str, Json]:
    """Return the document as plain data."""
    scan = view.scan
    ranks = {} if scan is None else {f.op.op_id: f.rank for f in scan.findings}
    return {
        "schema": SCHEMA,
        "asked": view.asked,
        "exit_status": view.exit_status,
        "scan_id": None if scan is None else scan.scan_id,
        "files": [_build_file(file, ranks, lang) for file in view.files],
        "stored": None if view.stored is None else _build_op(view.stored, ranks, lang),
        "others": [_build_other(op, finding) for op, finding in view.others],
    }


def _build_file(file: FileView, ranks: dict[int, int | None], lang: str) -> dict[str, Json]:
    return {
        "path": file.path,
        "reader": file.reader or None,
        "known": file.known,
        "size_bytes": file.size_bytes,
        "executions": [_build_op(op, ranks, lang) for op in file.ops],
        "executions_left_out": file.left_out,
        "overflow_records": [build_record(record, None, lang) for record in file.overflow],
        "graph_nodes": file.nodes,
        "read_failures": list(map(build_failure, file.failures)),
    }


def _build_op(view: OpView, ranks: dict[int, int | None], lang: str) -> dict[str, Json]:
    op = view.op
    return {
        "op_type": op.op_type,
        "op_name": op.op_name,
        "step": op.step,
        "device": op.device,
        "task_id": op.task_id,
        "stream_id": op.stream_id,
        "context_id": op.context_id,
        "thread_id": op.thread_id,
        "timestamp": op.timestamp,
        "parent": op.parent,
        "stack": list(op.stack),
        "attributes": [list(pair) for pair in op.attributes],
        "tensors": [
            {
                **build_tensor(tensor),
                "address": tensor.address,
                "offset": tensor.offset,
                **_build_closeup(
                    tensor.dtype, view.closeups[at] if at < len(view.closeups) else None
                ),
            }
            for at, tensor in enumerate(op.tensors)
        ],
        "finding": None if view.finding is None else build_finding(view.finding, ranks, lang),
    }


def _build_closeup(dtype: str, closeup: Closeup | None) -> dict[str, Json]:
    if closeup is None:
        return {"bad_elements": None, "exponents": None, "exponent_range": None}
    span = exponent_range(dtype)
    return {
        "bad_elements": [
            {"index": list(element.index), "value": _build_value(element.value)}
            for element in closeup.bad
        ],
        "exponents": [list(pair) for pair in closeup.exponents],
        "exponent_range": None if span is None else list(span),
    }


def _build_value(value: float | complex) -> Json:
    if isinstance(value, complex):
        return [json_number(value.real), json_number(value.imag)]
    return json_number(value)


def _build_other(op: OpRecord, finding: Finding | None) -> dict[str, Json]:
    return {
        "rank": None if finding is None else finding.rank,
        "verdict": None if finding is None else finding.verdict.value,
        "op_type": op.op_type,
        "op_name": op.op_name,
        "step": op.step,
        "device": op.device,
        "task_id": op.task_id,
        "stream_id": op.stream_id,
        "timestamp": op.timestamp,
        "file": op.file,
    }
