"""What each input of an execution means: finite, expected, bad and from where, or unknown."""

from __future__ import annotations

from dataclasses import dataclass, field

from dumpscope.dataflow import Dataflow, Producer
from dumpscope.expectations import Expectations
from dumpscope.inputs import InputState
from dumpscope.model import OpRecord, TensorSummary
from dumpscope.nesting import Nesting
from dumpscope.topology import fills_a_buffer

__all__ = ["InputReader", "Sofar"]


@dataclass(slots=True)
class Sofar:
    """What is known of one rank up to the execution that is being judged, by step."""

    bad: dict[int | None, OpRecord] = field(default_factory=dict)
    saturated: dict[int | None, OpRecord] = field(default_factory=dict)


class InputReader:
    """Reads inputs with everything that is known around them."""

    def __init__(
        self,
        flow: Dataflow,
        nesting: Nesting,
        expected: Expectations,
    ) -> None:
        self._flow = flow
        self._nesting = nesting
        self._expected = expected

    def read_inputs(self, op: OpRecord, lane: Sofar) -> list[InputState]:
        """Say of each input of `op` what it means for the verdict."""
        buffer = fills_a_buffer(op)
        states = []
        for tensor in op.inputs:
            if buffer:
                states.append(InputState(tensor, "absent"))
            else:
                states.append(self._read_input(op, tensor, lane))
        twin = self._nesting.twin_tensors(op)
        if twin is not None:
            forward, tensors = twin
            for tensor in tensors:
                if not tensor.stats.nonfinite:
                    continue
                if tensor.role == "output" and self._expected.holds(forward, tensor):
                    continue
                states.append(InputState(tensor, "bad", cause=forward, evidence="graph"))
        return states

    def _read_input(self, op: OpRecord, tensor: TensorSummary, lane: Sofar) -> InputState:
        if not tensor.dumped:
            missing = tensor.address != 0 or not tensor.size_bytes
            return InputState(tensor, "unknown" if missing else "absent")
        if not tensor.stats.nonfinite:
            complete = tensor.checked and not tensor.missing_bytes
            return InputState(tensor, "finite" if complete else "unknown")
        if self._is_rewritten(op, tensor):
            return self._read_rewritten(op, tensor)
        same = self._flow.same_bytes(op, tensor)
        producer = self._flow.producer_of(op, tensor)
        contradiction = None
        if producer is not None and producer.evidence != "bytes":
            if len(same) == 1 and same[0].op.op_id != producer.op.op_id:
                contradiction = same[0].op
            if not producer.tensor.stats.nonfinite:
                return self._read_overwritten(tensor, producer, contradiction)
            same = [producer]
        if same and self._expected.holds_all(same):
            return InputState(tensor, "expected", cause=same[-1].op)
        if not same and self._expected.looks_expected(op, tensor):
            return InputState(tensor, "expected")
        if producer is not None:
            return InputState(
                tensor, "bad", cause=producer.op, evidence=producer.evidence,
                contradiction=contradiction,
            )  # fmt: skip
        excluded = self._flow.order_excluded(op, tensor)
        earlier = None if excluded else lane.bad.get(op.step)
        if earlier is not None:
            return InputState(tensor, "bad", cause=earlier, evidence="order")
        around = self._arose_inside(op)
        if around is not None:
            return InputState(tensor, "bad", cause=around, evidence="graph")
        rule = self._expected.covering_input(op, tensor)
        if rule is not None:
            return InputState(tensor, "expected", rule=rule)
        return InputState(tensor, "bad")

    def _read_overwritten(
        self, tensor: TensorSummary, producer: Producer, contradiction: OpRecord | None
    ) -> InputState:
        """A bad input whose producer wrote finite values: something came between them."""
        made = producer.tensor
        alike = (made.shape, made.dtype, made.layout) == (
            tensor.shape, tensor.dtype, tensor.layout,
        )  # fmt: skip
        if alike and made.checked:
            return InputState(
                tensor, "bad", clean_producer=producer.op, evidence=producer.evidence,
                contradiction=contradiction,
            )  # fmt: skip
        return InputState(tensor, "bad", contradiction=contradiction)

    def _is_rewritten(self, op: OpRecord, tensor: TensorSummary) -> bool:
        """Whether an output has the input's address and bytes: it was recorded after the fact."""
        return (
            tensor.address != 0
            and tensor.digest is not None
            and any(t.address == tensor.address and t.digest == tensor.digest for t in op.outputs)
        )

    def _read_rewritten(self, op: OpRecord, tensor: TensorSummary) -> InputState:
        producer = self._flow.producer_of(op, tensor)
        if producer is None:
            return InputState(tensor, "unknown")
        if producer.tensor.stats.nonfinite:
            return InputState(tensor, "bad", cause=producer.op, evidence=producer.evidence)
        return InputState(tensor, "finite", evidence=producer.evidence)

    def _arose_inside(self, op: OpRecord) -> OpRecord | None:
        """The innermost module around `op` that was given finite values and made bad ones."""
        for module in self._nesting.enclosing(op):
            if any(t.stats.nonfinite for t in module.inputs):
                return None
            if module.inputs and any(t.stats.nonfinite for t in module.outputs):
                return module
        return None
