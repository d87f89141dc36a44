"""The order of findings: by class, run, step and time, and ancestors before their heirs."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from dumpscope.causality.dataflow import Dataflow
from dumpscope.causality.ranking import rank_findings
from dumpscope.causality.runs import group_runs
from dumpscope.causality.verdicts import Judge
from dumpscope.model import Finding, OpRecord, TensorSummary
from dumpscope.rules import load_rules
from op_builders import bad, clean, make_op, saturated, tensor


def rank(ops: Sequence[OpRecord], jobs: dict[str, str] | None = None) -> list[Finding]:
    flow = Dataflow(ops)
    findings = Judge(flow, rules=load_rules(), flags={}, jobs=jobs).judge_all()
    return rank_findings(findings, flow, jobs)


def names(findings: Sequence[Finding]) -> list[str]:
    return [f.op.op_type for f in findings]


def test_ranks_count_from_one() -> None:
    ops = [make_op("A", [clean()], [bad(nan=1)], at=n) for n in range(4)]
    assert [f.rank for f in rank(ops)] == [1, 2, 3, 4]


def test_an_origin_comes_before_an_earlier_unrelated_saturation() -> None:
    ops = [
        make_op("Sat", [clean()], [saturated(1)], at=1),
        make_op("Origin", [clean()], [bad(nan=1)], at=2),
    ]
    assert names(rank(ops)) == ["Origin", "Sat"]


def test_a_saturation_comes_before_the_origin_that_descends_from_it() -> None:
    ops = [
        make_op("Other", [clean()], [bad(nan=1)], at=0, step=1),
        make_op("Sat", [clean()], [tensor("output", 0, saturated(1), digest="s")], at=1),
        make_op("Origin", [tensor("input", 0, saturated(1), digest="s")], [bad(posinf=1)], at=2),
    ]
    assert names(rank(ops)) == ["Sat", "Origin", "Other"]


def test_a_chain_of_ancestors_keeps_its_own_order() -> None:
    def passed(name: str) -> tuple[TensorSummary, TensorSummary]:
        return (
            tensor("output", 0, saturated(1), digest=name),
            tensor("input", 0, saturated(1), digest=name),
        )

    first_out, first_in = passed("a")
    second_out, second_in = passed("b")
    ops = [
        make_op("Sat1", [clean()], [first_out], at=1),
        make_op("Carry", [first_in], [second_out], at=2),
        make_op("Origin", [second_in], [bad(nan=1)], at=3),
    ]
    assert names(rank(ops)) == ["Sat1", "Origin"]


def test_earlier_steps_come_first_and_then_earlier_times() -> None:
    ops = [
        make_op("Late", [clean()], [bad(nan=1)], at=9, step=0),
        make_op("NextStep", [clean()], [bad(nan=1)], at=1, step=1),
        make_op("Early", [clean()], [bad(nan=1)], at=2, step=0),
    ]
    assert names(rank(ops)) == ["Early", "Late", "NextStep"]


def test_clocks_of_different_ranks_are_not_compared() -> None:
    ops = [
        make_op("Rank1", [clean()], [bad(nan=1)], at=1, device=1),
        make_op("Rank0", [clean()], [bad(nan=1)], at=900, device=0),
    ]
    assert names(rank(ops)) == ["Rank0", "Rank1"]


def test_the_newest_run_comes_first() -> None:
    ops = [
        make_op("Monday", [clean()], [bad(nan=1)], run="20251124010000"),
        make_op("Tuesday", [clean()], [bad(nan=1)], run="20251125010000"),
    ]
    jobs = group_runs({"20251124010000", "20251125010000"})
    assert names(rank(ops, jobs)) == ["Tuesday", "Monday"]


def test_folders_a_few_seconds_apart_are_one_job() -> None:
    assert group_runs({"20251124010000", "20251124010003", "20251125010000"}) == {
        "20251124010000": "20251124010003",
        "20251124010003": "20251124010003",
        "20251125010000": "20251125010000",
    }


def test_infected_ranks_come_after_those_that_went_wrong_by_themselves() -> None:
    ops = [
        make_op("HcomAllReduce", [clean()], [bad(nan=1)], at=1, device=0, name="r"),
        make_op("HcomAllReduce", [bad(nan=1)], [bad(nan=1)], at=5, device=1, name="r"),
        make_op("LaterOnRank0", [clean()], [bad(nan=1)], at=6, device=0),
        make_op("FirstOnRank1", [clean()], [bad(nan=1)], at=1, device=1),
    ]
    assert names(rank(ops))[:2] == ["FirstOnRank1", "LaterOnRank0"]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["origin", "follows", "saturated", "swallows"]),
            st.integers(0, 2),
            st.integers(0, 3),
            st.integers(0, 2),
        ),
        min_size=1,
        max_size=24,
    ),
    st.randoms(use_true_random=False),
)
def test_the_order_does_not_depend_on_the_order_of_reading(
    plan: list[tuple[str, int, int, int]], random: Random
) -> None:
    shapes = {
        "origin": ([clean()], [bad(posinf=1)]),
        "follows": ([bad(nan=1)], [bad(nan=1)]),
        "saturated": ([clean()], [saturated(2)]),
        "swallows": ([bad(nan=1)], [clean()]),
    }
    ops = []
    for number, (kind, step, at, device) in enumerate(plan):
        inputs, outputs = shapes[kind]
        ops.append(
            make_op(kind, list(inputs), list(outputs), at=at, step=step, device=device,
                    file=f"f{number}")
        )  # fmt: skip
    first = [f.op.op_id for f in rank(ops)]
    shuffled = list(ops)
    random.shuffle(shuffled)
    assert [f.op.op_id for f in rank(shuffled)] == first
    assert len(set(first)) == len(first)
