"""The facts behind a verdict, as the parameters of one sentence. words.py puts them into words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dumpscope.dtypes import dtype_named
from dumpscope.inputs import InputState
from dumpscope.model import Evidence, OpRecord, OverflowFinding, Reason, TensorSummary
from dumpscope.optypes import is_backward
from dumpscope.parallelism import format_ranks
from dumpscope.rules import is_one_sided

__all__ = ["Because", "build_reason"]


@dataclass(frozen=True, slots=True)
class Because:
    """What a verdict rests on, beside the tensor that decided it."""

    op: OpRecord
    inputs: Sequence[InputState] = ()
    producer: OpRecord | None = None
    evidence: Evidence | None = None
    ranks: tuple[int, ...] = ()
    absent: tuple[int, ...] = ()
    unread: tuple[int, ...] = ()
    contradiction: OpRecord | None = None
    loss_scale: bool = False


def build_reason(
    code: str, tensor: TensorSummary | None, because: Because, overflow: OverflowFinding | None
) -> Reason:
    """Collect the numbers that the sentence of `code` may use."""
    op = because.op
    parameters: dict[str, str | int | float | bool | None] = {
        "op_type": op.op_type,
        "op_name": op.op_name,
        "step": op.step,
        "device": op.device,
        "task_id": op.task_id,
        "stream_id": op.stream_id,
        "inputs": sum(1 for s in because.inputs if s.kind in ("finite", "expected")),
        "max_input": _largest_input(because.inputs),
        "evidence": because.evidence or "own_inputs",
        "from_statistics": any(t.from_statistics for t in op.tensors),
        "loss_scale": because.loss_scale and is_backward(op.op_name),
    }
    if tensor is not None:
        stats = tensor.stats
        parameters.update(
            role=tensor.role,
            index=tensor.index,
            dtype=tensor.dtype,
            nan=stats.nan,
            posinf=stats.posinf,
            neginf=stats.neginf,
            saturated=stats.saturated,
            total=stats.count,
            limit=dtype_named(tensor.dtype).limit,
            maybe_mask=stats.neginf > 0 and is_one_sided(tensor),
            padding_included="padding_included" in tensor.notes,
            at_least="count_at_least" in tensor.notes,
        )
        if tensor.name:
            parameters["tensor_name"] = tensor.name
    expected = next((s.tensor.index for s in because.inputs if s.kind == "expected"), None)
    if expected is not None:
        parameters["index_in"] = expected
    if because.producer is not None:
        parameters["producer"] = because.producer.op_name
        parameters["producer_type"] = because.producer.op_type
    if because.contradiction is not None:
        parameters["contradicts"] = because.contradiction.op_name
    for name in ("ranks", "absent", "unread"):
        ranks: tuple[int, ...] = getattr(because, name)
        if ranks:
            parameters[name] = format_ranks(ranks)
    if overflow is not None:
        parameters["hardware"] = ", ".join(overflow.bits) or " ".join(
            f"0x{word:x}" for word in overflow.status
        )
        parameters["kind"] = overflow.kind
    return Reason(code, parameters)


def _largest_input(inputs: Sequence[InputState]) -> float | None:
    """The largest finite magnitude among the inputs, where it is known."""
    largest: float | None = None
    for state in inputs:
        for value in (state.tensor.stats.min, state.tensor.stats.max):
            if value is not None and (largest is None or abs(value) > largest):
                largest = abs(float(value))
    return largest
