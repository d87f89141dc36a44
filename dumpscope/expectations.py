"""Which non-finite values are there on purpose, execution by execution."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dumpscope.dataflow import Lane, Producer, lane_of
from dumpscope.dtypes import dtype_named
from dumpscope.inputs import InputState
from dumpscope.model import OpRecord, TensorSummary
from dumpscope.rules import Rule, RuleSet

__all__ = ["Expectations"]


class Expectations:
    """The outputs found to be expected so far, and the rules that say so."""

    def __init__(self, rules: RuleSet) -> None:
        self._rules = rules
        self._outputs: set[tuple[int, int]] = set()
        self._values: dict[Lane, set[tuple[object, ...]]] = {}

    def holds(self, op: OpRecord, tensor: TensorSummary) -> bool:
        """Whether `tensor`, an output of `op`, was found to be expected."""
        return (op.op_id, tensor.index) in self._outputs

    def holds_all(self, producers: Iterable[Producer]) -> bool:
        """Whether all these outputs were."""
        return all(self.holds(producer.op, producer.tensor) for producer in producers)

    def looks_expected(self, op: OpRecord, tensor: TensorSummary) -> bool:
        """Whether an earlier expected output of the rank had the same statistics."""
        return _fingerprint(tensor) in self._values.get(lane_of(op), ())

    def expect_outputs(self, op: OpRecord, inputs: Sequence[InputState]) -> dict[int, Rule]:
        """Rules by position in `op.tensors` of the non-finite outputs that are expected."""
        found = {}
        for position, tensor in enumerate(op.tensors):
            if tensor.role != "output" or not tensor.stats.nonfinite:
                continue
            rule = self.covering(op, tensor, inputs)
            if rule is not None:
                found[position] = rule
                self._outputs.add((op.op_id, tensor.index))
                self._values.setdefault(lane_of(op), set()).add(_fingerprint(tensor))
        return found

    def covering_input(self, op: OpRecord, tensor: TensorSummary) -> Rule | None:
        """The rule for an input that nothing in the dump can have made."""
        for rule in self._rules.covering(op, tensor):
            if rule.condition in ("", "producer_absent"):
                return rule
        return None

    def covering(
        self, op: OpRecord, tensor: TensorSummary, inputs: Sequence[InputState]
    ) -> Rule | None:
        """The rule that makes an output expected, given what is known of the inputs."""
        for rule in self._rules.covering(op, tensor):
            if rule.condition == "":
                return rule
            if any(state.kind == "bad" for state in inputs):
                continue
            if rule.condition == "clean_inputs":
                return rule
            if rule.condition == "same_positions" and _holds_mask(tensor, inputs):
                return rule
        return None


def _fingerprint(tensor: TensorSummary) -> tuple[object, ...]:
    """What identifies a mask where only statistics of it are known."""
    stats = tensor.stats
    mask = stats.mask.digest if stats.mask is not None else None
    return (
        dtype_named(tensor.dtype).kind, tensor.shape, stats.nan, stats.posinf, stats.neginf, mask,
        stats.max if mask is None else None,
    )  # fmt: skip


def _holds_mask(tensor: TensorSummary, inputs: Sequence[InputState]) -> bool:
    """Whether an input holds one mask constant at the positions of the bad values of `tensor`."""
    mask = tensor.stats.mask
    if mask is None or mask.digest is None:
        return False
    return any(
        state.tensor.stats.mask is not None and state.tensor.stats.mask.digest == mask.digest
        for state in inputs
        if state.kind in ("finite", "expected")
    )
