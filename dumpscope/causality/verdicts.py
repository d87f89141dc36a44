"""What happened in each operator execution. Pure: records in, findings out.

Executions are judged in causal order, because what an earlier one wrote decides what a later one
read. The verdicts are tried in the sequence of docs/verdicts.md: expected, received, handoff,
bad_input or propagated or swallowed, origin, saturated_origin, status_origin, unknown_inputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from dumpscope.causality.causal_order import in_causal_order
from dumpscope.causality.dataflow import Dataflow, Lane, lane_of
from dumpscope.causality.expectations import Expectations
from dumpscope.causality.findings import compose_finding
from dumpscope.causality.hardware import Flag
from dumpscope.causality.input_states import InputReader, Sofar
from dumpscope.causality.inputs import InputState, is_saturated
from dumpscope.causality.nesting import Nesting
from dumpscope.causality.optypes import is_generator, is_source, keeps_state
from dumpscope.causality.reasons import Because
from dumpscope.model import Finding, OpRecord, TensorSummary, Verdict
from dumpscope.ranks.exchange import Exchange
from dumpscope.ranks.topology import Collectives, communication_kind
from dumpscope.rules import Rule, RuleSet, is_one_sided

__all__ = ["Judge"]


class Judge:
    """Judge executions with everything that is known around them.

    Parameters
    ----------
    flow
        The executions with a tensor that is not clean, or flagged by the hardware, and the
        producers of their inputs.
    rules
        Expected values.
    flags
        Hardware flags by `op_id`.
    jobs
        Run -> job, where processes of one job wrote runs of their own.
    collectives
        Which ranks exchanged what, with the clean ones; without it the executions alone tell.
    """

    def __init__(
        self,
        flow: Dataflow,
        *,
        rules: RuleSet,
        flags: Mapping[int, list[Flag]],
        jobs: Mapping[str, str] | None = None,
        collectives: Collectives | None = None,
    ) -> None:
        self._flow = flow
        self._flags = flags
        self._exchange = Exchange(collectives or Collectives(flow.ops, jobs or {}))
        self.members_of = self._exchange.members_of
        self._nesting = Nesting(flow.ops)
        self._lanes: dict[Lane, Sofar] = {}
        self._expected = Expectations(rules)
        self._reader = InputReader(flow, self._nesting, self._expected)

    def judge_all(self) -> list[Finding]:
        """Return a finding for every execution that has one, expected values among them."""
        findings: list[Finding] = []
        for together in in_causal_order(self._flow.ops, self._exchange.members_of):
            read = {}
            for op in together:
                lane = self._lanes.setdefault(lane_of(op), Sofar())
                read[op.op_id] = self._reader.read_inputs(op, lane)
            self._exchange.settle(together, read, self._lanes)
            for op in together:
                if communication_kind(op.op_type) is not None:
                    read[op.op_id] = self._reader.expect_buffers(op, read[op.op_id])
                findings += self._judge(op, read[op.op_id])
        return findings

    # --- one execution ---------------------------------------------------------------------

    def _judge(self, op: OpRecord, inputs: Sequence[InputState]) -> Iterator[Finding]:
        """Yield what is wrong with an execution, and what is expected in it beside that."""
        lane = self._lanes[lane_of(op)]
        rules = self._expected.expect_outputs(op, inputs)
        bad_outputs = [
            t for t in op.outputs if t.stats.nonfinite and not self._expected.holds(op, t)
        ]
        bad_inputs = [state for state in inputs if state.kind == "bad"]
        finding = self._decide(op, lane, inputs, bad_inputs, bad_outputs, rules)
        # What may be a mask does not stand for the trouble of others where only order speaks.
        unseen = not any(state.kind in ("finite", "expected", "bad") for state in inputs)
        if not any(t.checked for t in op.outputs):
            telling = bool(bad_inputs)
        else:
            telling = any(not (unseen and self._expected.may_be_mask(op, t)) for t in bad_outputs)
        if telling:
            lane.bad.setdefault(op.step, op)
        if any(
            is_saturated(t)
            and not self._expected.holds(op, t)
            and not (unseen and self._expected.may_be_mask(op, t))
            for t in op.outputs
        ):
            lane.saturated.setdefault(op.step, op)
        if finding is not None and finding.verdict not in (Verdict.PROPAGATED, Verdict.EXPECTED):
            saturates = finding.verdict is Verdict.SATURATED_ORIGIN
            if bad_outputs or saturates:
                self._nesting.note_cause(op, saturates=saturates)
        if finding is not None:
            yield finding
        if finding is None or finding.verdict is not Verdict.EXPECTED:
            expected = self._find_expected(op, inputs, rules)
            if expected is not None:
                yield expected

    def _find_expected(
        self, op: OpRecord, inputs: Sequence[InputState], rules: Mapping[int, Rule]
    ) -> Finding | None:
        """The first tensor that a rule of its own keeps out of the ranking, outputs first."""
        because = Because(op, inputs)
        if rules:
            position = min(rules)
            tensor, rule = op.tensors[position], rules[position]
            return self._finding(op, Verdict.EXPECTED, "expected", tensor, because, rule)
        state = next((s for s in inputs if s.rule is not None), None)
        if state is None:
            return None
        return self._finding(op, Verdict.EXPECTED, "expected", state.tensor, because, state.rule)

    def _decide(
        self,
        op: OpRecord,
        lane: Sofar,
        inputs: Sequence[InputState],
        bad_inputs: Sequence[InputState],
        bad_outputs: Sequence[TensorSummary],
        rules: Mapping[int, Rule],
    ) -> Finding | None:
        because = Because(op, inputs)
        first = op.tensors[min(rules)] if rules else None
        if first is not None and not bad_outputs and (first.stats.nonfinite or not bad_inputs):
            return self._find_expected(op, inputs, rules)
        if bad_inputs:
            return self._judge_inputs(op, bad_inputs, bad_outputs, because)
        if bad_outputs:
            return self._judge_output(op, lane, inputs, bad_outputs[0], because)
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
            because = replace(because, foreign=first, seen_before=self._earlier_step(op))
            return self._finding(op, Verdict.BAD_INPUT, "bad_input", first.tensor, because)
        strongest = min(made, key=lambda s: _STRENGTH.index(s.evidence))
        because = replace(because, producer=strongest.cause, evidence=strongest.evidence)
        if bad_outputs:
            return self._finding(op, Verdict.PROPAGATED, "propagated", bad_outputs[0], because)
        if not any(t.checked for t in op.outputs):
            return self._finding(op, Verdict.PROPAGATED, "propagated", strongest.tensor, because)
        return self._finding(op, Verdict.SWALLOWED, "swallowed", strongest.tensor, because)

    def _earlier_step(self, op: OpRecord) -> int | None:
        """The latest step before that of `op` in which something of its rank was bad."""
        if op.step is None:
            return None
        bad = self._lanes[lane_of(op)].bad
        return max((step for step in bad if step is not None and step < op.step), default=None)

    def _judge_output(
        self,
        op: OpRecord,
        lane: Sofar,
        inputs: Sequence[InputState],
        tensor: TensorSummary,
        because: Because,
    ) -> Finding:
        """An output is bad and no input is known to be."""
        present = [s for s in inputs if s.kind != "absent"]
        unseen = [s for s in present if s.kind == "unknown"]
        evidence = next((s.evidence for s in present if not s.own and s.evidence), None)
        because = replace(because, evidence=evidence)
        # Order speaks only of inputs that some operator of the dump can have written.
        by_order = not present or not all(s.outside for s in unseen)
        earlier = lane.bad.get(op.step) if by_order else None
        exchanged = self._exchange.sent_to(op)
        if exchanged is not None:
            # A rank whose own inputs are not known may have brought the value itself.
            brought = unseen or (not inputs and communication_kind(op.op_type) != "recv")
            if brought and earlier is not None:
                because = replace(because, producer=earlier, evidence="order")
                return self._finding(op, Verdict.PROPAGATED, "propagated", tensor, because)
            if exchanged.received:
                because = replace(
                    because,
                    ranks=exchanged.ranks,
                    absent=exchanged.absent,
                    unread=exchanged.unread,
                    evidence="order" if brought else evidence,
                )
                return self._finding(op, Verdict.RECEIVED, "received", tensor, because)
            if not exchanged.all_finite:
                because = replace(because, evidence="order")
                return self._finding(op, Verdict.UNKNOWN_INPUTS, "unknown_inputs", tensor, because)
        inside = self._nesting.cause_inside(op)
        if inside is not None:
            because = replace(because, producer=inside, evidence="graph")
            return self._finding(op, Verdict.PROPAGATED, "propagated_inside", tensor, because)
        if (present or exchanged is not None) and not unseen:
            expected = [s for s in present if s.kind == "expected"]
            if expected and all(is_one_sided(s.tensor) for s in expected):
                return self._finding(op, Verdict.ORIGIN, "origin_mask", tensor, because)
            if expected:
                because = replace(because, expected_by=self._expected.rule_behind(expected[0]))
                return self._finding(op, Verdict.ORIGIN, "origin_expected", tensor, because)
            code = "origin_confirmed" if op.op_id in self._flags else "origin"
            return self._finding(op, Verdict.ORIGIN, code, tensor, because)
        if not present and is_generator(op.op_type):
            return self._finding(op, Verdict.ORIGIN, "origin_generator", tensor, because)
        if not present and is_source(op.op_type) and not (earlier and keeps_state(op.op_type)):
            because = replace(because, seen_before=self._earlier_step(op))
            return self._finding(op, Verdict.BAD_INPUT, "bad_input_source", tensor, because)
        if earlier is not None:
            because = replace(because, producer=earlier, evidence="order")
            return self._finding(op, Verdict.PROPAGATED, "propagated", tensor, because)
        because = replace(because, evidence=evidence or "order")
        return self._finding(op, Verdict.UNKNOWN_INPUTS, "unknown_inputs", tensor, because)

    def _judge_finite(
        self, op: OpRecord, lane: Sofar, inputs: Sequence[InputState], because: Because
    ) -> Finding | None:
        """Nothing non-finite goes in or comes out: saturation, or the hardware's word alone."""
        flagged = op.op_id in self._flags
        saturated = [t for t in op.outputs if is_saturated(t) and not self._expected.holds(op, t)]
        known = any(s.kind in ("finite", "expected") for s in inputs)
        passed_on = any(s.saturated for s in inputs)
        inside = self._nesting.cause_inside(op, saturates=True)
        if saturated and not passed_on and inside is None:
            exchanged = self._exchange.sent_to(op)
            if exchanged is not None and exchanged.ranks_at_limit:
                because = replace(because, ranks=exchanged.ranks_at_limit)
                return self._finding(op, Verdict.RECEIVED, "received", saturated[0], because)
            if known:
                code = "saturated_origin_confirmed" if flagged else "saturated_origin"
                return self._finding(op, Verdict.SATURATED_ORIGIN, code, saturated[0], because)
            because = replace(because, evidence="order")
            if not flagged and self._expected.may_be_mask(op, saturated[0]):
                return self._finding(
                    op, Verdict.UNKNOWN_INPUTS, "unknown_inputs", saturated[0], because
                )
            if flagged or op.step not in lane.saturated:
                code = "saturated_origin_confirmed" if flagged else "saturated_origin"
                return self._finding(op, Verdict.SATURATED_ORIGIN, code, saturated[0], because)
        if flagged and not (saturated and op.step in lane.saturated):
            deciding = next(iter(op.outputs), None)
            return self._finding(op, Verdict.STATUS_ORIGIN, "status_origin", deciding, because)
        return None

    def _finding(
        self,
        op: OpRecord,
        verdict: Verdict,
        code: str,
        tensor: TensorSummary | None,
        because: Because,
        rule: Rule | None = None,
    ) -> Finding:
        if tensor is not None:
            provenance_known = any(s.kind in ("finite", "expected") for s in because.inputs)
            maybe_mask = self._expected.may_be_mask(op, tensor) or not provenance_known
            because = replace(because, maybe_mask=maybe_mask)
        flags = self._flags.get(op.op_id)
        return compose_finding(op, verdict, code, tensor, because, flags, rule)


_STRENGTH = ("own_inputs", "graph", "address", "bytes", "order", None)
