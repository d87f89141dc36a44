"""Which non-finite values are there on purpose, execution by execution."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dumpscope.causality.dataflow import Lane, Producer, lane_of
from dumpscope.causality.inputs import InputState
from dumpscope.dtypes import dtype_named
from dumpscope.model import OpRecord, Role, TensorSummary
from dumpscope.rules import Condition, Rule, RuleSet, is_one_sided

__all__ = ["Expectations"]

_OUTPUT_CONDITIONS: tuple[Condition, ...] = ("", "clean_inputs", "same_positions")


class Expectations:
    """The tensors found to be expected so far, and the rules that say so."""

    def __init__(self, rules: RuleSet) -> None:
        self._rules = rules
        self._tensors: dict[tuple[int, Role, int], Rule | None] = {}
        self._values: dict[Lane, set[tuple[object, ...]]] = {}
        self._patterns: dict[Lane, set[str]] = {}

    # --- what was found so far -----------------------------------------------------------------

    def holds(self, op: OpRecord, tensor: TensorSummary) -> bool:
        """Whether `tensor`, of `op`, was found to be expected."""
        return (op.op_id, tensor.role, tensor.index) in self._tensors

    def rule_behind(self, state: InputState) -> Rule | None:
        """The rule by which an expected input is expected, where one of its own is known."""
        if state.rule is not None or state.cause is None:
            return state.rule
        of_cause = (self._tensors.get((state.cause.op_id, t.role, t.index))
                    for t in state.cause.outputs)  # fmt: skip
        return next((rule for rule in of_cause if rule is not None), None)

    def holds_all(self, producers: Iterable[Producer]) -> bool:
        """Whether all these outputs were."""
        return all(self.holds(producer.op, producer.tensor) for producer in producers)

    def looks_expected(self, op: OpRecord, tensor: TensorSummary) -> bool:
        """Whether an earlier expected tensor of the rank had the same statistics."""
        return self._can_read(op, tensor) and _fingerprint(tensor) in self._values.get(
            lane_of(op), ()
        )

    def note(self, op: OpRecord, tensor: TensorSummary, rule: Rule | None) -> None:
        """Remember a tensor that is expected, and the rule where it has one of its own."""
        lane = lane_of(op)
        self._tensors[op.op_id, tensor.role, tensor.index] = rule
        self._values.setdefault(lane, set()).add(_fingerprint(tensor))
        mask = tensor.stats.mask
        if mask is not None and mask.digest is not None:
            self._patterns.setdefault(lane, set()).add(mask.digest)

    # --- outputs -------------------------------------------------------------------------------

    def expect_outputs(
        self, op: OpRecord, notable: Sequence[TensorSummary], inputs: Sequence[InputState]
    ) -> list[tuple[TensorSummary, Rule]]:
        """Those of the `notable` outputs of `op` that are expected, with the rule of each."""
        found = []
        for tensor in notable:
            rule = self._covering_output(op, tensor, inputs)
            if rule is not None:
                found.append((tensor, rule))
                self.note(op, tensor, rule)
        return found

    def _covering_output(
        self, op: OpRecord, tensor: TensorSummary, inputs: Sequence[InputState]
    ) -> Rule | None:
        for rule in self._rules.covering(op, tensor, _OUTPUT_CONDITIONS):
            if rule.condition == "":
                return rule
            if rule.condition == "clean_inputs" and not any(map(_is_trouble, inputs)):
                return rule
            if rule.condition == "same_positions" and self._holds_mask(op, tensor, inputs):
                return rule
        return None

    def may_be_mask(self, op: OpRecord, tensor: TensorSummary) -> bool:
        """Whether `tensor` looks like a mask and `op` could have made or carried one."""
        return is_one_sided(tensor) and self._rules.speaks_of_masks(op.op_type)

    def _holds_mask(
        self, op: OpRecord, tensor: TensorSummary, inputs: Sequence[InputState]
    ) -> bool:
        """Whether an input held one mask constant where `tensor` has its bad values."""
        if any(state.kind == "bad" for state in inputs):
            return False
        mask = tensor.stats.mask
        digest = None if mask is None else mask.digest
        read = [state.tensor for state in inputs if state.kind in ("finite", "expected")]
        for candidate in read:
            held = candidate.stats.mask
            if held is not None and held.digest is not None and digest is not None:
                if held.digest == digest:
                    return True
            elif is_one_sided(candidate) and _same_share(tensor, candidate):
                return True
        # Where no input can be looked at, a mask that was found before has the same positions.
        return not read and digest is not None and digest in self._patterns.get(lane_of(op), ())

    # --- inputs --------------------------------------------------------------------------------

    def covering_input(self, op: OpRecord, tensor: TensorSummary) -> Rule | None:
        """The rule for an input, whoever made it."""
        return self._covering(op, tensor, "")

    def covering_foreign(self, op: OpRecord, tensor: TensorSummary) -> Rule | None:
        """The rule for an input that nothing in the dump can have made.

        A dump without outputs cannot show that: what looks like a mask stays a finding there.
        """
        if not any(output.dumped for output in op.outputs):
            return None
        rule = self._covering(op, tensor, "producer_absent")
        return rule if rule is not None and self._can_read(op, tensor) else None

    def _can_read(self, op: OpRecord, tensor: TensorSummary) -> bool:
        """Whether an operator can read `tensor` as a mask.

        A constant that is bad everywhere is of use only to operators that make or carry masks.
        """
        everywhere = tensor.stats.nonfinite == tensor.stats.count
        return not everywhere or self._rules.speaks_of_masks(op.op_type)

    def covering_buffer(self, op: OpRecord, tensor: TensorSummary) -> Rule | None:
        """The rule for what a communication operator lists as input and receives into."""
        return self._covering(op, tensor, "") or self._covering(op, tensor, "receive_buffer")

    def _covering(self, op: OpRecord, tensor: TensorSummary, condition: Condition) -> Rule | None:
        rules = self._rules.covering(op, tensor, (condition,))
        return rules[0] if rules else None


def _is_trouble(state: InputState) -> bool:
    """Whether an input is bad, and not just a one-sided constant from outside of the dump."""
    return state.kind == "bad" and (
        state.cause is not None
        or state.clean_producer is not None
        or not is_one_sided(state.tensor)
    )


def _fingerprint(tensor: TensorSummary) -> tuple[object, ...]:
    """What identifies a mask where only statistics of it are known."""
    stats = tensor.stats
    mask = stats.mask.digest if stats.mask is not None else None
    return (
        dtype_named(tensor.dtype).kind, tensor.shape, stats.nan, stats.posinf, stats.neginf, mask,
        stats.max if mask is None else None,
    )  # fmt: skip


def _same_share(tensor: TensorSummary, mask: TensorSummary) -> bool:
    """Whether as large a share of both is bad, so that nothing was added to a broadcast mask.

    What reads a mask has bad values wherever the mask has them; as many as that are no more.
    """
    if {"count_at_least"} & {*tensor.notes, *mask.notes} or not mask.stats.count:
        return False
    bad, held = (t.stats.nonfinite or t.stats.saturated for t in (tensor, mask))
    return held > 0 and bad * mask.stats.count == held * tensor.stats.count
