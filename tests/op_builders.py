"""Executions built by hand, for the tests of verdicts, dataflow and ranking."""

from __future__ import annotations

from itertools import count
from typing import Any

from dumpscope.model import MaskPattern, OpRecord, Place, Role, TensorStats, TensorSummary

__all__ = ["bad", "clean", "fresh_op_ids", "make_op", "masked", "saturated", "tensor", "unread"]

_numbers = count(1)


def fresh_op_ids() -> int:
    """The next number of an execution."""
    return next(_numbers)


def tensor(role: Role, index: int, stats: TensorStats, **more: Any) -> TensorSummary:
    """A float16 tensor of shape (4, 8) unless `more` says otherwise."""
    given: dict[str, Any] = {
        "role": role,
        "index": index,
        "dtype": "float16",
        "layout": "ND",
        "shape": (4, 8),
        "size_bytes": 64,
        "stats": stats,
    }
    given.update(more)
    return TensorSummary(**given)


def clean(largest: float = 2.0) -> TensorStats:
    """Statistics of 32 finite elements."""
    return TensorStats(count=32, min=-largest, max=largest)


def bad(nan: int = 0, posinf: int = 0, neginf: int = 0) -> TensorStats:
    """Statistics of 32 elements of which some are not finite."""
    return TensorStats(
        count=32, nan=nan, posinf=posinf, neginf=neginf, min=-1.0, max=1.0, first_bad=(0, 0),
        bad_box=((0, 3), (0, 7)), subnormal=0, zero=0,
    )  # fmt: skip


def saturated(positive: int = 3, negative: int = 0) -> TensorStats:
    """Statistics of 32 float16 elements of which some are at the limit."""
    return TensorStats(
        count=32, saturated=positive + negative, saturated_negative=negative,
        min=-65504.0 if negative else -1.0, max=65504.0 if positive else 1.0, subnormal=0, zero=0,
    )  # fmt: skip


def masked(count_: int, digest: str | None, value: float = float("-inf")) -> TensorStats:
    """Statistics of 32 elements of which `count_` hold a mask constant."""
    infinite = value == float("-inf")
    return TensorStats(
        count=32,
        neginf=count_ if infinite else 0,
        saturated=0 if infinite else count_,
        saturated_negative=0 if infinite else count_,
        min=-1.0 if infinite else value,
        max=1.0,
        mask=MaskPattern(value, count_, digest),
        subnormal=0,
        zero=0,
    )


unread = TensorStats(near_limit=None)
"""Statistics of a tensor whose values could not be read."""


def make_op(
    op_type: str,
    inputs: list[TensorStats | TensorSummary],
    outputs: list[TensorStats | TensorSummary],
    *,
    at: int = 0,
    step: int | None = 0,
    device: int | None = 0,
    name: str | None = None,
    run: str | None = None,
    **more: Any,
) -> OpRecord:
    """An execution that started at `at` µs. Statistics become float16 tensors of (4, 8)."""
    op_id = fresh_op_ids()
    tensors = [_as_tensor("input", i, given) for i, given in enumerate(inputs)]
    tensors += [_as_tensor("output", i, given) for i, given in enumerate(outputs)]
    given: dict[str, Any] = {
        "op_type": op_type,
        "op_name": name or f"net/{op_type}_{at}",
        "tensors": tuple(tensors),
        "task_id": at,
        "stream_id": 1,
        "timestamp": 1764417600000000 + at,
        "start_ns": (1764417600000000 + at) * 1000,
        "step": step,
        "device": device,
        "file": f"{run or ''}/{device}/{step}/{op_type}.{at}",
        "place": Place(run=run, step=step, device_id=device),
        "op_id": op_id,
    }
    given.update(more)
    return OpRecord(**given)


def _as_tensor(role: Role, index: int, given: TensorStats | TensorSummary) -> TensorSummary:
    if isinstance(given, TensorSummary):
        return given
    if given is unread:
        return tensor(role, index, given, checked=False, unchecked="undefined_dtype")
    return tensor(role, index, given)
