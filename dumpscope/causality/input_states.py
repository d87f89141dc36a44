"""What each input of an execution means: finite, expected, bad and from where, or unknown."""

from __future__ import annotations

from dataclasses import field, replace

from dumpscope.causality.dataflow import Dataflow, KnownInput, Producer
from dumpscope.causality.expectations import Expectations
from dumpscope.causality.inputs import (
    InputState,
    holds_same,
    is_notable,
    is_rewritten,
    is_saturated,
)
from dumpscope.causality.nesting import Nesting
from dumpscope.model import OpRecord, TensorSummary
from dumpscope.msprobe_names import is_parameter
from dumpscope.ranks.collectives import fills_a_buffer
from dumpscope.records import record

__all__ = ["InputReader", "Sofar"]

_NOT_DUMPED = TensorSummary("input", 0, "undefined", "ND", (), checked=False, dumped=False)


@record(frozen=False, slots=True)
class Sofar:
    """What is known of one rank up to the execution that is being judged, by step."""

    bad: dict[int | None, OpRecord] = field(default_factory=dict)
    saturated: dict[int | None, OpRecord] = field(default_factory=dict)


class InputReader:
    """Reads inputs with everything that is known around them."""

    def __init__(self, flow: Dataflow, nesting: Nesting, expected: Expectations) -> None:
        self._flow = flow
        self._nesting = nesting
        self._expected = expected

    def read_inputs(self, op: OpRecord, lane: Sofar) -> list[InputState]:
        """Say of each input of `op` what it means for the verdict."""
        if fills_a_buffer(op):
            # What a communication operator lists as input and only receives into is not read.
            return [InputState(tensor, "absent") for tensor in op.inputs]
        states = [self._read_input(op, tensor, lane) for tensor in op.inputs]
        for state in states:
            if state.kind == "expected":
                self._expected.note(op, state.tensor, state.rule)
        states += [self._read_virtual(op, known) for known in self._flow.virtual_inputs(op)]
        for twin in self._flow.twins_of(op):
            states += self._read_twin(twin, all_tensors=not _is_backward_of(op, twin))
        return states

    def expect_buffers(self, op: OpRecord, states: list[InputState]) -> list[InputState]:
        """Name the rule for what lies in memory that `op` only receives into.

        What is there already as it came out was recorded after the fact: the result has it.
        """
        return [
            replace(state, rule=self._expected.covering_buffer(op, state.tensor))
            if state.kind == "absent"
            and is_notable(state.tensor)
            and not any(holds_same(state.tensor, output) for output in op.outputs)
            else state
            for state in states
        ]

    # --- its own inputs ------------------------------------------------------------------------

    def _read_input(self, op: OpRecord, tensor: TensorSummary, lane: Sofar) -> InputState:
        saturated = is_saturated(tensor)
        if (
            tensor.checked
            and not tensor.missing_bytes
            and not (tensor.stats.nonfinite or saturated)
        ):
            return InputState(tensor, "finite")
        if not tensor.dumped and not tensor.address and (tensor.size_bytes or not tensor.shape):
            return InputState(tensor, "absent")
        if not tensor.stats.nonfinite and (not tensor.checked or tensor.missing_bytes):
            return self._read_unseen(op, tensor)
        rule = self._expected.covering_input(op, tensor)
        if rule is not None:
            return InputState(tensor, "expected", rule=rule)
        if is_rewritten(op, tensor):
            return self._read_unseen(op, tensor)
        if not tensor.stats.nonfinite:
            return InputState(tensor, "finite", saturated=True)
        return self._read_bad(op, tensor, lane)

    def _read_unseen(self, op: OpRecord, tensor: TensorSummary) -> InputState:
        """An input that was not dumped as it was read: what was its producer's output like?"""
        known = self._flow.known_input(op, tensor)
        # An operator that changes nothing leaves the bytes of an earlier output in place.
        producers = known.producers or tuple(self._flow.same_bytes(op, tensor)[-1:])
        if producers:
            return self._judge_producers(tensor, producers)
        seen = known.witness
        if seen is not None and seen.checked and not seen.missing_bytes:
            # Nothing of the dump wrote there since another operator read it.
            return InputState(
                tensor, "bad" if seen.stats.nonfinite else "finite", evidence="address",
                saturated=is_saturated(seen), outside=known.outside, source=known.source,
            )  # fmt: skip
        return InputState(tensor, "unknown", outside=known.outside, source=known.source)

    def _judge_producers(
        self, tensor: TensorSummary, producers: tuple[Producer, ...]
    ) -> InputState:
        bad = [p for p in producers if p.tensor.stats.nonfinite]
        first = (bad or producers)[0]
        if bad and not self._expected.holds_all(bad):
            return InputState(tensor, "bad", cause=first.op, evidence=first.evidence)
        if not all(p.tensor.checked for p in producers):
            return InputState(tensor, "unknown", evidence=first.evidence)
        saturated = any(is_saturated(p.tensor) for p in producers)
        return InputState(
            tensor, "expected" if bad else "finite", saturated=saturated, cause=first.op,
            evidence=first.evidence,
        )  # fmt: skip

    def _read_bad(self, op: OpRecord, tensor: TensorSummary, lane: Sofar) -> InputState:
        known = self._flow.known_input(op, tensor)
        same = self._flow.same_bytes(op, tensor)
        by_bytes = same[0] if len(same) == 1 else None
        if known.producers:
            state = self._follow_known(op, tensor, known, by_bytes)
            if state is not None:
                return state
        elif same:
            if self._expected.holds_all(same):
                return InputState(tensor, "expected", cause=same[-1].op, evidence="bytes")
            if by_bytes is not None:
                return InputState(tensor, "bad", cause=by_bytes.op, evidence="bytes")
        if not same and not known.outside and self._expected.looks_expected(op, tensor):
            return InputState(tensor, "expected")
        # Parameters were there before the step began: neither order nor the module around explains.
        made_before = is_parameter(tensor.name)
        earlier = None if known.outside or made_before else lane.bad.get(op.step)
        if earlier is not None:
            return InputState(tensor, "bad", cause=earlier, evidence="order")
        around = None if made_before else self._arose_inside(op)
        if around is not None:
            return InputState(tensor, "bad", cause=around, evidence="graph")
        rule = self._expected.covering_foreign(op, tensor)
        if rule is not None:
            return InputState(tensor, "expected", rule=rule)
        return InputState(tensor, "bad", outside=known.outside, source=known.source)

    def _follow_known(
        self, op: OpRecord, tensor: TensorSummary, known: KnownInput, by_bytes: Producer | None
    ) -> InputState | None:
        """A bad input whose producer an edge names; `None` where the edge explains nothing."""
        against = known.against
        if by_bytes is not None and by_bytes.op.op_id not in {p.op.op_id for p in known.producers}:
            against = by_bytes.op
        bad = [p for p in known.producers if p.tensor.stats.nonfinite]
        if bad:
            expected = self._expected.holds_all(bad)
            first = next((p for p in bad if not self._expected.holds(p.op, p.tensor)), bad[0])
            if not expected or _covers_kinds(bad, tensor):
                return InputState(
                    tensor, "expected" if expected else "bad", cause=first.op,
                    evidence=first.evidence, contradiction=against,
                )  # fmt: skip
        made = known.producers[0]
        alike = (made.tensor.shape, made.tensor.dtype, made.tensor.layout) == (
            tensor.shape, tensor.dtype, tensor.layout,
        )  # fmt: skip
        if alike and made.tensor.checked and not made.tensor.missing_bytes:
            return InputState(
                tensor, "bad", clean_producer=made.op, evidence=made.evidence,
                contradiction=against,
            )  # fmt: skip
        if by_bytes is not None:
            return InputState(
                tensor, "bad", cause=by_bytes.op, evidence="bytes", contradiction=made.op
            )
        # What could not be read of a producer was not seen to be clean: it may have made this.
        unread = (p for p in known.producers if not p.tensor.checked or p.tensor.missing_bytes)
        likely = next(unread, None)
        if likely is None:
            return None
        return InputState(
            tensor, "bad", cause=likely.op, evidence=likely.evidence, contradiction=against
        )

    def _arose_inside(self, op: OpRecord) -> OpRecord | None:
        """The innermost module around `op` that was given finite values and made bad ones."""
        for module in self._nesting.enclosing(op):
            if any(t.stats.nonfinite for t in module.inputs):
                return None
            if module.inputs and any(t.stats.nonfinite for t in module.outputs):
                return module
        return None

    # --- inputs that were not dumped with it ---------------------------------------------------

    def _read_virtual(self, op: OpRecord, known: KnownInput) -> InputState:
        """An input that only an edge tells of: its producer's output is what was read."""
        if not known.producers:
            return InputState(
                _NOT_DUMPED, "unknown", own=False, outside=known.outside, source=known.source
            )
        shown = next((p for p in known.producers if p.tensor.stats.nonfinite), known.producers[0])
        state = self._judge_producers(shown.tensor, known.producers)
        return replace(state, own=False)

    def _read_twin(self, twin: OpRecord, *, all_tensors: bool) -> list[InputState]:
        """What a backward execution had saved of its forward twin."""
        states = []
        for tensor in twin.tensors if all_tensors else twin.inputs:
            if tensor.stats.nonfinite:
                expected = self._expected.holds(twin, tensor)
                states.append(
                    InputState(tensor, "expected" if expected else "bad", own=False, cause=twin,
                               evidence="graph")
                )  # fmt: skip
            elif tensor.checked:
                states.append(
                    InputState(tensor, "finite", own=False, saturated=is_saturated(tensor))
                )
        return states


def _is_backward_of(op: OpRecord, twin: OpRecord) -> bool:
    """Whether `twin` is the module's backward in which the gradients `op` were made."""
    return ".backward" in twin.op_name and ".parameters_grad" in op.op_name


def _covers_kinds(producers: list[Producer], tensor: TensorSummary) -> bool:
    """Whether the bad values of an input are of kinds that its producers wrote."""
    read = tensor.stats
    made = [producer.tensor.stats for producer in producers]
    return (
        (not read.nan or any(stats.nan for stats in made))
        and (not read.posinf or any(stats.posinf for stats in made))
        and (not read.neginf or any(stats.neginf for stats in made))
    )
