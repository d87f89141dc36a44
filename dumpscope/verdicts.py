"""What happened in each operator execution. Pure: records in, findings out.

Executions of one rank are judged in their order, because what an earlier one wrote decides what
a later one read. The verdicts are tried in the sequence of docs/verdicts.md: expected, received,
handoff, bad_input or propagated or swallowed, origin, saturated_origin, status_origin,
unknown_inputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from dumpscope.dataflow import Dataflow, Lane, lane_of, sequence_key
from dumpscope.expectations import Expectations
from dumpscope.hardware import Flag, describe_flags
from dumpscope.input_states import InputReader, Sofar
from dumpscope.inputs import InputState, is_saturated
from dumpscope.model import Evidence, Finding, OpRecord, Reason, TensorSummary, Verdict
from dumpscope.nesting import Nesting
from dumpscope.optypes import is_generator, is_source
from dumpscope.reasons import Because, build_reason
from dumpscope.rules import Rule, RuleSet, is_one_sided
from dumpscope.topology import Collectives, communication_kind, ranks_of

__all__ = ["Judge"]


class Judge:
    """Judge executions with everything that is known around them.

    Parameters
    ----------
    ops
        Executions with a tensor that is not clean, or flagged by the hardware; any order.
    flow
        Producers of inputs.
    rules
        Expected values.
    flags
        Hardware flags by `op_id`.
    jobs
        Run -> job, where processes of one job wrote runs of their own.
    collectives
        Which ranks exchanged what, with the clean ones; without it `ops` alone tell.
    loss_scale
        Whether the dump holds an operator that checks gradients before they are applied.
    """

    def __init__(
        self,
        ops: Iterable[OpRecord],
        *,
        flow: Dataflow,
        rules: RuleSet,
        flags: Mapping[int, list[Flag]],
        jobs: Mapping[str, str] | None = None,
        collectives: Collectives | None = None,
        loss_scale: bool = False,
    ) -> None:
        self._ops = sorted(ops, key=lambda op: (lane_of(op), sequence_key(op)))
        self._flow = flow
        self._flags = flags
        self._loss_scale = loss_scale
        self._collectives = collectives or Collectives(self._ops, jobs or {})
        self._nesting = Nesting(self._ops)
        self._lanes: dict[Lane, Sofar] = {}
        self._expected = Expectations(rules)
        self._reader = InputReader(flow, self._nesting, self._expected)

    def judge_all(self) -> list[Finding]:
        """Return a finding for every execution that has one, expected values among them."""
        findings = []
        for op in self._ops:
            finding = self._judge(op)
            if finding is not None:
                findings.append(finding)
        return findings

    # --- one execution ---------------------------------------------------------------------

    def _judge(self, op: OpRecord) -> Finding | None:
        lane = self._lanes.setdefault(lane_of(op), Sofar())
        inputs = self._reader.read_inputs(op, lane)
        rules = self._expected.expect_outputs(op, inputs)
        bad_outputs = [
            t for t in op.outputs if t.stats.nonfinite and not self._expected.holds(op, t)
        ]
        bad_inputs = [state for state in inputs if state.kind == "bad"]
        finding = self._decide(op, lane, inputs, bad_inputs, bad_outputs, rules)
        undumped_outputs = not any(t.checked for t in op.outputs)
        if bad_outputs or (bad_inputs and undumped_outputs):
            lane.bad.setdefault(op.step, op)
        if any(is_saturated(t) and not is_one_sided(t) for t in op.outputs):
            lane.saturated.setdefault(op.step, op)
        if (
            finding is not None
            and bad_outputs
            and finding.verdict not in (Verdict.PROPAGATED, Verdict.EXPECTED)
        ):
            self._nesting.note_cause(op)
        return finding

    def _decide(
        self,
        op: OpRecord,
        lane: Sofar,
        inputs: Sequence[InputState],
        bad_inputs: Sequence[InputState],
        bad_outputs: Sequence[TensorSummary],
        rules: Mapping[int, Rule],
    ) -> Finding | None:
        because = Because(op, inputs, loss_scale=self._loss_scale)
        if bad_outputs and not bad_inputs:
            return self._judge_output(op, lane, inputs, bad_outputs[0], because)
        if bad_inputs:
            return self._judge_inputs(op, bad_inputs, bad_outputs, because)
        if rules:
            index = min(rules)
            return self._expected_finding(op, op.tensors[index], rules[index], because)
        if any(t.stats.nonfinite for t in op.outputs):
            return None
        return self._judge_finite(op, lane, inputs, because)

    def _judge_inputs(
        self,
        op: OpRecord,
        bad_inputs: Sequence[InputState],
        bad_outputs: Sequence[TensorSummary],
        because: Because,
    ) -> Finding:
        """An input is bad: where did it come from, and did it go on?"""
        against = next((s.contradiction for s in bad_inputs if s.contradiction), None)
        because = replace(because, contradiction=against)
        handoff = next((s for s in bad_inputs if s.clean_producer is not None), None)
        if handoff is not None:
            because = replace(because, producer=handoff.clean_producer, evidence=handoff.evidence)
            return self._finding(op, Verdict.HANDOFF, "handoff", handoff.tensor, because)
        made = [s for s in bad_inputs if s.cause is not None]
        if not made:
            first = bad_inputs[0]
            return self._finding(op, Verdict.BAD_INPUT, "bad_input", first.tensor, because)
        strongest = min(made, key=lambda s: _STRENGTH.index(s.evidence))
        because = replace(because, producer=strongest.cause, evidence=strongest.evidence)
        if bad_outputs:
            return self._finding(op, Verdict.PROPAGATED, "propagated", bad_outputs[0], because)
        if not any(t.checked for t in op.outputs):
            return self._finding(op, Verdict.PROPAGATED, "propagated", strongest.tensor, because)
        return self._finding(op, Verdict.SWALLOWED, "swallowed", strongest.tensor, because)

    def _judge_output(
        self,
        op: OpRecord,
        lane: Sofar,
        inputs: Sequence[InputState],
        tensor: TensorSummary,
        because: Because,
    ) -> Finding:
        """An output is bad and no input is known to be."""
        if communication_kind(op.op_type) is not None and not self._sent_it_itself(op, inputs):
            group = self._collectives.group_of(op)
            senders = self._collectives.senders_to(op)
            if senders or group is None or not group.complete:
                because = replace(because, ranks=ranks_of(senders))
                if group is not None and not senders:
                    because = replace(because, absent=group.absent, unread=group.unread)
                return self._finding(op, Verdict.RECEIVED, "received", tensor, because)
        inside = self._nesting.cause_inside(op)
        if inside is not None:
            because = replace(because, producer=inside, evidence="graph")
            return self._finding(op, Verdict.PROPAGATED, "propagated_inside", tensor, because)
        present = [s for s in inputs if s.kind != "absent"]
        flagged = op.op_id in self._flags
        if present and all(s.kind in ("finite", "expected") for s in present):
            if any(s.kind == "expected" for s in present):
                return self._finding(op, Verdict.ORIGIN, "origin_mask", tensor, because)
            code = "origin_confirmed" if flagged else "origin"
            return self._finding(op, Verdict.ORIGIN, code, tensor, because)
        virtual = self._flow.virtual_inputs(op)
        made = next((p for p in virtual.producers if p.tensor.stats.nonfinite), None)
        if made is not None and not present:
            because = replace(because, producer=made.op, evidence=made.evidence)
            return self._finding(op, Verdict.PROPAGATED, "propagated", tensor, because)
        if virtual.producers and not present:
            because = replace(because, evidence=virtual.producers[0].evidence)
            if virtual.complete:
                return self._finding(op, Verdict.ORIGIN, "origin", tensor, because)
            return self._finding(op, Verdict.UNKNOWN_INPUTS, "unknown_inputs", tensor, because)
        if not present and is_generator(op.op_type):
            return self._finding(op, Verdict.ORIGIN, "origin_generator", tensor, because)
        unread = [s for s in present if s.kind == "unknown"]
        earlier = lane.bad.get(op.step)
        if earlier is not None and not any(self._flow.order_excluded(op, s.tensor) for s in unread):
            because = replace(because, producer=earlier, evidence="order")
            return self._finding(op, Verdict.PROPAGATED, "propagated", tensor, because)
        if not present and is_source(op.op_type):
            return self._finding(op, Verdict.BAD_INPUT, "bad_input_source", tensor, because)
        because = replace(because, evidence="order")
        return self._finding(op, Verdict.UNKNOWN_INPUTS, "unknown_inputs", tensor, because)

    def _sent_it_itself(self, op: OpRecord, inputs: Sequence[InputState]) -> bool:
        """Whether a rank whose own inputs are not known brought the bad value itself."""
        if communication_kind(op.op_type) == "recv":
            return False
        known = inputs and all(state.kind != "unknown" for state in inputs)
        return not known and self._collectives.is_bad_before(op)

    def _judge_finite(
        self, op: OpRecord, lane: Sofar, inputs: Sequence[InputState], because: Because
    ) -> Finding | None:
        """Nothing non-finite goes in or comes out: saturation, or the hardware's word alone."""
        flagged = op.op_id in self._flags
        saturated = [t for t in op.outputs if is_saturated(t)]
        known = any(s.kind in ("finite", "expected") for s in inputs)
        fresh = not any(is_saturated(s.tensor) for s in inputs) and (
            known or op.step not in lane.saturated
        )
        for tensor in saturated:
            if not fresh:
                break
            rule = self._expected.covering(op, tensor, inputs)
            if rule is not None:
                return self._expected_finding(op, tensor, rule, because)
            received = self._receive_saturated(op, tensor, because)
            if received is not None:
                return received
            code = "saturated_origin_confirmed" if flagged else "saturated_origin"
            if not known:
                because = replace(because, evidence="order")
            return self._finding(op, Verdict.SATURATED_ORIGIN, code, tensor, because)
        if flagged:
            deciding = next(iter(op.outputs), None)
            return self._finding(op, Verdict.STATUS_ORIGIN, "status_origin", deciding, because)
        mask = next((s for s in inputs if s.rule is not None), None)
        if mask is not None and mask.rule is not None:
            return self._expected_finding(op, mask.tensor, mask.rule, because)
        return None

    def _receive_saturated(
        self, op: OpRecord, tensor: TensorSummary, because: Because
    ) -> Finding | None:
        """Whether a saturated result came from another rank, which was at the limit before."""
        if communication_kind(op.op_type) is None:
            return None
        senders = self._collectives.saturated_senders_to(op)
        if not senders:
            return None
        because = replace(because, ranks=ranks_of(senders))
        return self._finding(op, Verdict.RECEIVED, "received", tensor, because)

    # --- making findings -------------------------------------------------------------------

    def _expected_finding(
        self, op: OpRecord, tensor: TensorSummary, rule: Rule, because: Because
    ) -> Finding:
        finding = self._finding(op, Verdict.EXPECTED, "expected", tensor, because)
        parameters = {
            **finding.reason.parameters,
            "rule": rule.name,
            "why": rule.reason,
            "why_zh": rule.reason_zh,
        }
        return replace(finding, rule=rule.name, reason=Reason("expected", parameters))

    def _finding(
        self,
        op: OpRecord,
        verdict: Verdict,
        code: str,
        tensor: TensorSummary | None,
        because: Because,
    ) -> Finding:
        flags = self._flags.get(op.op_id)
        shown = any(t.stats.nonfinite or is_saturated(t) for t in op.outputs)
        overflow = describe_flags(flags, confirmed=shown) if flags else None
        evidence: list[Evidence] = [because.evidence or "own_inputs"]
        if overflow is not None:
            evidence.append("status")
        if any(t.from_statistics for t in op.tensors):
            evidence.append("statistics")
        deciding = None
        if tensor is not None:
            deciding = next((i for i, t in enumerate(op.tensors) if t is tensor), None)
        return Finding(
            op=op,
            verdict=verdict,
            reason=build_reason(code, tensor, because, overflow),
            evidence=tuple(evidence),
            deciding=deciding,
            overflow=overflow,
            caused_by=None if because.producer is None else because.producer.op_id,
        )


_STRENGTH: tuple[Evidence | None, ...] = ("own_inputs", "graph", "address", "bytes", "order", None)
