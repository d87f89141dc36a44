"""What is known of one input of an execution."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from dumpscope.dtypes import dtype_named
from dumpscope.model import Evidence, OpRecord, TensorSummary
from dumpscope.records import record

if TYPE_CHECKING:
    from dumpscope.rules import Rule

__all__ = ["InputState", "holds_same", "is_notable", "is_rewritten", "is_saturated"]


@record(frozen=True, slots=True)
class InputState:
    """A tensor that an execution read and what it means for the verdict.

    Attributes
    ----------
    kind
        "finite", "expected" (non-finite on purpose), "bad", "unknown" (unchecked, cut off, not
        dumped, or recorded after it was overwritten) or "absent" (never read: a null address, a
        receive buffer).
    own
        Whether the tensor was dumped with the execution itself; else it is an output of its
        producer, or belongs to its forward twin.
    saturated
        Whether a value was at the limit of the type when it was read.
    cause, evidence
        Who made the bad value, and what says so.
    clean_producer
        Who made the tensor when it was still clean.
    rule
        What makes an input that nothing in the dump has made expected.
    contradiction
        Another execution, which weaker evidence names.
    source
        Name of what hands the value in from outside of the graph.
    outside
        Whether evidence says that no operator of the dump wrote it.
    """

    tensor: TensorSummary
    kind: Literal["finite", "expected", "bad", "unknown", "absent"]
    own: bool = True
    saturated: bool = False
    cause: OpRecord | None = None
    clean_producer: OpRecord | None = None
    evidence: Evidence | None = None
    rule: Rule | None = None
    contradiction: OpRecord | None = None
    source: str = ""
    outside: bool = False


def is_saturated(tensor: TensorSummary) -> bool:
    """Whether the tensor reaches the limit of a dtype for which that is a sign of overflow."""
    return tensor.stats.saturated > 0 and dtype_named(tensor.dtype).saturates


def is_notable(tensor: TensorSummary) -> bool:
    """Whether the tensor has a non-finite or a saturated value."""
    return tensor.stats.nonfinite > 0 or is_saturated(tensor)


def holds_same(one: TensorSummary, other: TensorSummary) -> bool:
    """Whether two tensors that are not clean hold the same bytes, as far as it is known.

    Short and constant tensors have no digest; the numbers that were counted in them then decide.
    """
    if one.digest is not None or other.digest is not None:
        return one.digest == other.digest
    first, second = one.stats, other.stats
    return (
        first.count == second.count
        and (first.nan, first.posinf, first.neginf) == (second.nan, second.posinf, second.neginf)
        and (first.saturated, first.min, first.max) == (second.saturated, second.min, second.max)
    )


def is_rewritten(op: OpRecord, tensor: TensorSummary) -> bool:
    """Whether an output has the input's address and bytes: it was recorded after the fact."""
    return tensor.address != 0 and any(
        t.address == tensor.address and holds_same(t, tensor) for t in op.outputs
    )
