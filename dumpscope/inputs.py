"""What is known of one input of an execution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dumpscope.dtypes import dtype_named
from dumpscope.model import Evidence, OpRecord, TensorSummary
from dumpscope.rules import Rule

__all__ = ["InputState", "is_saturated"]


@dataclass(frozen=True, slots=True)
class InputState:
    """An input tensor and what it means for the verdict.

    `kind` is "finite", "expected" (non-finite on purpose), "bad", "unknown" (unchecked, cut off,
    not dumped, or recorded after it was overwritten) or "absent" (never read: a null address, a
    receive buffer). `cause` made the bad value, on `evidence`; `clean_producer` made the tensor
    when it was still clean. `rule` is what makes an input from outside of the dump expected.
    `contradiction` is another execution that weaker evidence names.
    """

    tensor: TensorSummary
    kind: Literal["finite", "expected", "bad", "unknown", "absent"]
    cause: OpRecord | None = None
    clean_producer: OpRecord | None = None
    evidence: Evidence | None = None
    rule: Rule | None = None
    contradiction: OpRecord | None = None


def is_saturated(tensor: TensorSummary) -> bool:
    """Whether the tensor reaches the limit of a dtype for which that is a sign of overflow."""
    return tensor.stats.saturated > 0 and dtype_named(tensor.dtype).saturates
