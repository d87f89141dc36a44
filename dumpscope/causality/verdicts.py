"""What happened in each operator execution. Pure: records in, findings out.

Executions are judged in causal order, because what an earlier one wrote decides what a later one
read. The verdicts are tried in the sequence of docs/verdicts.md: expected, received, handoff,
bad_input or propagated or swallowed, origin, saturated_origin, status_origin, unknown_inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dumpscope.causality.causal_order import in_causal_order
from dumpscope.causality.dataflow import Dataflow, Lane, lane_of
from dumpscope.causality.expectations import Expectations
from dumpscope.causality.findings import compose_finding
from dumpscope.causality.hardware import Flag
from dumpscope.causality.input_states import InputReader, Sofar
from dumpscope.causality.inputs import InputState, is_notable, is_saturated
from dumpscope.causality.losses import Losses
from dumpscope.causality.nesting import Nesting
from dumpscope.causality.optypes import is_generator, is_source, keeps_state
from dumpscope.causality.reasons import Because
from dumpscope.model import Finding, OpRecord, TensorSummary, Verdict
from dumpscope.ranks.collectives import Collectives
from dumpscope.ranks.communication import communication_kind
from dumpscope.ranks.exchange import Exchange, may_have_brought
from dumpscope.ranks.presence import ranks_of
from dumpscope.ranks.silent import SilentExchanges
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
    losses
        What could not be read.

    Attributes
    ----------
    came_through
        By op_id of what received a bad value through an exchange before it: that exchange.
    doubtful
        Numbers of executions whose bad input may have come in through one.
    """

    def __init__(
        self,
        flow: Dataflow,
        *,
        rules: RuleSet,
        flags: Mapping[int, list[Flag]],
        jobs: Mapping[str, str] | None = None,
        collectives: Collectives | None = None,
        losses: Losses | None = None,
    ) -> None:
        self._flow = flow
        self._flags = flags
        self._losses = losses or Losses()
        collectives = collectives or Collectives(flow.ops, jobs or {})
        self._exchange = Exchange(collectives)
        self.members_of = self._exchange.members_of
        self.senders_to = self._exchange.senders_to
        self._silent = SilentExchanges(collectives)
        self.came_through: dict[int, OpRecord] = {}
        self.doubtful: set[int] = set()
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

    def _judge(self, op: OpRecord, inputs: Sequence[InputState]) -> list[Finding]:
        """Say what is wrong with an execution, and what is expected in it beside that."""
        lane = self._lanes[lane_of(op)]
        outputs = op.outputs
        notable = [t for t in outputs if is_notable(t)]
        rules = self._expected.expect_outputs(op, notable, inputs)
        if rules:
            notable = [t for t in notable if not self._expected.holds(op, t)]
        bad_outputs = [t for t in notable if t.stats.nonfinite]
        bad_inputs = [state for state in inputs if state.kind == "bad"]
        because = Because(op, inputs)
        finding: Finding | None
        if rules and not bad_outputs and (not bad_inputs or rules[0][0].stats.nonfinite):
            finding = self._find_expected(op, inputs, rules)
        elif bad_inputs:
            finding = self._judge_inputs(op, bad_inputs, bad_outputs, because)
        elif bad_outputs:
            finding = self._judge_output(op, lane, bad_outputs[0], because)
        else:
            finding = self._judge_finite(op, lane, notable, because)
        dumped = any(t.checked for t in outputs)
        self._note(op, lane, inputs, notable, telling=bool(bad_inputs) and not dumped)
        if finding is not None and finding.verdict not in (Verdict.PROPAGATED, Verdict.EXPECTED):
            saturates = finding.verdict is Verdict.SATURATED_ORIGIN
            if bad_outputs or saturates:
                self._nesting.note_cause(op, saturates=saturates)
        found = [] if finding is None else [finding]
        if finding is None or finding.verdict is not Verdict.EXPECTED:
            expected = self._find_expected(op, inputs, rules)
            if expected is not None:
                found.append(expected)
        return found

    def _find_expected(
        self,
        op: OpRecord,
        inputs: Sequence[InputState],
        rules: Sequence[tuple[TensorSummary, Rule]],
    ) -> Finding | None:
        """The first tensor that a rule of its own keeps out of the ranking, outputs first."""
        by_rule = [*rules, *((s.tensor, s.rule) for s in inputs if s.rule is not None)]
        if not by_rule:
            return None
        tensor, rule = by_rule[0]
        return self._finding(op, Verdict.EXPECTED, "expected", tensor, Because(op, inputs), rule)

    def _note(
        self,
        op: OpRecord,
        lane: Sofar,
        inputs: Sequence[InputState],
        notable: Sequence[TensorSummary],
        *,
        telling: bool,
    ) -> None:
        """Remember the first trouble of a step, for those of which only order speaks.

        What may be a mask does not stand for the trouble of others where no input was seen.
        """
        if op.step in lane.bad and op.step in lane.saturated:
            return
        seen = any(state.kind in ("finite", "expected", "bad") for state in inputs)
        certain = [t for t in notable if seen or not self._expected.may_be_mask(op, t)]
        if telling or any(t.stats.nonfinite for t in certain):
            lane.bad.setdefault(op.step, op)
        if any(map(is_saturated, certain)):
            lane.saturated.setdefault(op.step, op)

    def _judge_inputs(
        self,
        op: OpRecord,
        bad_inputs: Sequence[InputState],
        bad_outputs: Sequence[TensorSummary],
        because: Because,
    ) -> Finding:
        """An input is bad: where did it come from, and did it go on?"""
        handoff = strongest = None
        for state in bad_inputs:
            if state.contradiction is not None and because.contradiction is None:
                because.contradiction = state.contradiction
            if state.clean_producer is not None and handoff is None:
                handoff = state
            if state.cause is not None and (
                strongest is None or _strength(state) < _strength(strongest)
            ):
                strongest = state
        if handoff is not None:
            because.blame(handoff.clean_producer, handoff.evidence)
            return self._finding(op, Verdict.HANDOFF, "handoff", handoff.tensor, because)
        if strongest is None:
            received = self._find_arrival(op, bad_inputs, because)
            if received is not None:
                return received
            because.foreign = bad_inputs[0]
            because.seen_before = self._earlier_step(op)
            # What one of several bad inputs leaves open is open.
            addressed = all(state.outside for state in bad_inputs)
            because.lost = self._losses.before(op, addressed=addressed)
            return self._finding(op, Verdict.BAD_INPUT, "bad_input", bad_inputs[0].tensor, because)
        because.blame(strongest.cause, strongest.evidence)
        if bad_outputs:
            return self._finding(op, Verdict.PROPAGATED, "propagated", bad_outputs[0], because)
        if not any(t.checked for t in op.outputs):
            return self._finding(op, Verdict.PROPAGATED, "propagated", strongest.tensor, because)
        return self._finding(op, Verdict.SWALLOWED, "swallowed", strongest.tensor, because)

    def _find_arrival(
        self, op: OpRecord, bad_inputs: Sequence[InputState], because: Because
    ) -> Finding | None:
        """A bad input that came in through an exchange whose result was not dumped."""
        arrival = self._silent.before(op, bad_inputs)
        if arrival is None:
            return None
        if not arrival.certain:
            self.doubtful.add(op.op_id)
            return None
        self.came_through[op.op_id] = because.through = arrival.call
        because.ranks = ranks_of(arrival.senders)
        because.sender = min(arrival.senders, key=lambda m: (lane_of(m), m.op_id))
        because.evidence = "order"
        tensor = bad_inputs[0].tensor
        return self._finding(op, Verdict.RECEIVED, "received", tensor, because)

    def _earlier_step(self, op: OpRecord) -> int | None:
        """The latest step before that of `op` in which something of its rank was bad."""
        if op.step is None:
            return None
        bad = self._lanes[lane_of(op)].bad
        return max((step for step in bad if step is not None and step < op.step), default=None)

    def _judge_output(
        self, op: OpRecord, lane: Sofar, tensor: TensorSummary, because: Because
    ) -> Finding:
        """An output is bad and no input is known to be."""
        present = [s for s in because.inputs if s.kind != "absent"]
        unseen = [s for s in present if s.kind == "unknown"]
        because.evidence = next((s.evidence for s in present if not s.own and s.evidence), None)
        # Order speaks only of inputs that some operator of the dump can have written.
        by_order = not present or not all(s.outside for s in unseen)
        earlier = lane.bad.get(op.step) if by_order else None
        exchanged = self._exchange.sent_to(op)
        if exchanged is not None:
            # A rank whose own inputs are not known may have brought the value itself.
            brought = may_have_brought(op, because.inputs)
            if brought and earlier is not None:
                because.blame(earlier, "order")
                return self._finding(op, Verdict.PROPAGATED, "propagated", tensor, because)
            if exchanged.received:
                because.ranks, because.absent = exchanged.ranks, exchanged.absent
                because.unread = exchanged.unread
                because.sender = exchanged.sender if exchanged.ranks else None
                because.evidence = "order" if brought else because.evidence
                return self._finding(op, Verdict.RECEIVED, "received", tensor, because)
            if not exchanged.all_finite:
                because.evidence = "order"
                return self._finding(op, Verdict.UNKNOWN_INPUTS, "unknown_inputs", tensor, because)
        inside = self._nesting.cause_inside(op)
        if inside is not None:
            because.blame(inside, "graph")
            return self._finding(op, Verdict.PROPAGATED, "propagated_inside", tensor, because)
        if (present or exchanged is not None) and not unseen:
            expected = [s for s in present if s.kind == "expected"]
            if expected and all(is_one_sided(s.tensor) for s in expected):
                return self._finding(op, Verdict.ORIGIN, "origin_mask", tensor, because)
            if expected:
                because.expected_by = self._expected.rule_behind(expected[0])
                return self._finding(op, Verdict.ORIGIN, "origin_expected", tensor, because)
            code = "origin_confirmed" if op.op_id in self._flags else "origin"
            return self._finding(op, Verdict.ORIGIN, code, tensor, because)
        if not present and is_generator(op.op_type):
            return self._finding(op, Verdict.ORIGIN, "origin_generator", tensor, because)
        if not present and is_source(op.op_type) and not (earlier and keeps_state(op.op_type)):
            because.seen_before = self._earlier_step(op)
            return self._finding(op, Verdict.BAD_INPUT, "bad_input_source", tensor, because)
        if earlier is not None:
            because.blame(earlier, "order")
            return self._finding(op, Verdict.PROPAGATED, "propagated", tensor, because)
        because.evidence = because.evidence or "order"
        because.lost = self._losses.before(op, addressed=not by_order)
        return self._finding(op, Verdict.UNKNOWN_INPUTS, "unknown_inputs", tensor, because)

    def _judge_finite(
        self, op: OpRecord, lane: Sofar, saturated: Sequence[TensorSummary], because: Because
    ) -> Finding | None:
        """Nothing non-finite goes in or comes out: saturation, or the hardware's word alone."""
        flagged = op.op_id in self._flags
        code = "saturated_origin_confirmed" if flagged else "saturated_origin"
        inputs = because.inputs
        fresh = saturated and not any(s.saturated for s in inputs)
        if fresh and self._nesting.cause_inside(op, saturates=True) is None:
            tensor = saturated[0]
            exchanged = self._exchange.sent_to(op)
            brought = op.step in lane.saturated and may_have_brought(op, inputs)
            if exchanged is not None and exchanged.ranks_at_limit and not brought:
                because.ranks, because.sender = exchanged.ranks_at_limit, exchanged.sender
                return self._finding(op, Verdict.RECEIVED, "received", tensor, because)
            if any(s.kind in ("finite", "expected") for s in inputs):
                return self._finding(op, Verdict.SATURATED_ORIGIN, code, tensor, because)
            because.evidence = "order"
            if not flagged and self._expected.may_be_mask(op, tensor):
                return self._finding(op, Verdict.UNKNOWN_INPUTS, "unknown_inputs", tensor, because)
            if flagged or op.step not in lane.saturated:
                return self._finding(op, Verdict.SATURATED_ORIGIN, code, tensor, because)
        if flagged and not (saturated and op.step in lane.saturated):
            deciding = next(iter(saturated or [t for t in op.outputs if t.checked]), None)
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
        if tensor is not None and is_one_sided(tensor):
            known = any(s.kind in ("finite", "expected") for s in because.inputs)
            because.maybe_mask = not known or self._expected.may_be_mask(op, tensor)
        flags = self._flags.get(op.op_id)
        return compose_finding(op, verdict, code, tensor, because, flags, rule)


def _strength(state: InputState) -> int:
    """Position of the evidence for a cause, the strongest first."""
    return _STRENGTH.index(state.evidence)


_STRENGTH = ("own_inputs", "graph", "address", "bytes", "order", None)
