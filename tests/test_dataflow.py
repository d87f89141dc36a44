"""Which outputs an input was read from, on the evidence of bytes, edges and twins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from dumpscope.causality.dataflow import Dataflow, KnownInput, Producer, lane_of, sequence_key
from dumpscope.model import OpRecord, Place, TensorSummary
from op_builders import bad, clean, make_op, tensor

ONE, OTHER = "1" * 32, "2" * 32


def holding(role: str, index: int, digest: str | None) -> TensorSummary:
    return tensor("input" if role == "input" else "output", index, bad(nan=1), digest=digest)


def writer(at: int, *digests: str | None, **more: Any) -> OpRecord:
    outputs = [holding("output", index, digest) for index, digest in enumerate(digests)]
    return make_op("Mul", [], list(outputs), at=at, **more)


def reader(at: int, *digests: str | None, **more: Any) -> OpRecord:
    inputs = [holding("input", index, digest) for index, digest in enumerate(digests)]
    return make_op("Add", list(inputs), [clean()], at=at, **more)


def told(found: Sequence[Producer]) -> list[tuple[int, int, str]]:
    return [(p.op.op_id, p.tensor.index, p.evidence) for p in found]


# --- lanes and order ------------------------------------------------------------------------------


def test_a_lane_is_a_device_of_a_run() -> None:
    op = make_op("Mul", [], [], run="night", device=3)
    assert lane_of(op) == (0, "night", "", -1, 3)
    assert lane_of(replace(op, device=None)) == (0, "night", "", -1, -1)
    ranked = Place(run="night", host="a", process=77, global_rank=5)
    assert lane_of(replace(op, place=ranked)) == (0, "night", "a", -1, 3)
    # A process tells ranks apart only where the folders do not number them.
    unranked = Place(run="night", host="a", process=77)
    assert lane_of(replace(op, place=unranked)) == (0, "night", "a", 77, 3)


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ({"step": 1, "start_ns": 900}, {"step": 2, "start_ns": 100}),
        ({"step": None, "start_ns": 900}, {"step": 0, "start_ns": 100}),
        ({"start_ns": 100, "task_id": 9}, {"start_ns": 101, "task_id": 1}),
        ({"start_ns": 100, "task_id": 1, "order": 8}, {"start_ns": 100, "task_id": 2, "order": 7}),
        (
            {"start_ns": None, "task_id": 9, "order": 1},
            {"start_ns": None, "task_id": 1, "order": 2},
        ),
        (
            {"start_ns": 5, "task_id": None, "order": 1},
            {"start_ns": 5, "task_id": None, "order": 2},
        ),
    ],
    ids=["step", "no step", "time", "task", "written without time", "written without task"],
)
def test_order_within_a_rank(earlier: dict[str, Any], later: dict[str, Any]) -> None:
    # Made in the wrong order, so that the numbers of the records do not help.
    last, first = (make_op("Mul", [], [], **more) for more in (later, earlier))
    assert sequence_key(first) < sequence_key(last)
    assert [op.op_id for op in Dataflow([last, first]).ops] == [first.op_id, last.op_id]


def test_executions_stand_rank_by_rank() -> None:
    ops = [make_op("Mul", [], [], at=at, device=device) for at, device in ((1, 1), (2, 0), (3, 1))]
    assert [(op.device, op.task_id) for op in Dataflow(ops).ops] == [(0, 2), (1, 1), (1, 3)]


# --- equal bytes ----------------------------------------------------------------------------------


def test_equal_bytes_lead_to_the_one_earlier_output_that_has_them() -> None:
    made, read = writer(1, OTHER, ONE), reader(2, ONE)
    flow = Dataflow([read, made])
    assert told(flow.producers_of(read, read.inputs[0])) == [(made.op_id, 1, "bytes")]
    assert flow.parents_of(read) == [made]


def test_bytes_that_two_outputs_have_are_no_evidence() -> None:
    first, second, read = writer(1, ONE), writer(2, ONE), reader(3, ONE)
    flow = Dataflow([first, second, read])
    assert flow.producers_of(read, read.inputs[0]) == ()
    assert told(flow.same_bytes(read, read.inputs[0])) == [
        (first.op_id, 0, "bytes"), (second.op_id, 0, "bytes"),
    ]  # fmt: skip


def test_two_outputs_of_one_operator_are_two() -> None:
    made, read = writer(1, ONE, ONE), reader(2, ONE)
    assert Dataflow([made, read]).producers_of(read, read.inputs[0]) == ()


def test_bytes_of_later_outputs_and_of_the_operator_itself_do_not_count() -> None:
    in_place = make_op("Add", [holding("input", 0, ONE)], [holding("output", 0, ONE)], at=1)
    flow = Dataflow([in_place, writer(2, ONE)])
    assert flow.same_bytes(in_place, in_place.inputs[0]) == []


def test_what_others_read_was_not_written_by_them() -> None:
    earlier, read = reader(1, ONE), reader(2, ONE)
    assert Dataflow([earlier, read]).same_bytes(read, read.inputs[0]) == []


def test_bytes_do_not_cross_ranks_runs_or_hosts() -> None:
    read = reader(9, ONE, device=1, run="b")
    others = [
        writer(1, ONE, device=0, run="b"), writer(2, ONE, device=2, run="b"),
        writer(3, ONE, device=1, run="a"), writer(4, ONE, device=1, run="c"),
        writer(5, ONE, device=1, place=Place(run="b", host="elsewhere")),
    ]  # fmt: skip
    assert Dataflow([*others, read]).same_bytes(read, read.inputs[0]) == []
    own = writer(6, ONE, device=1, run="b")
    flow = Dataflow([*others, own, read])
    assert told(flow.producers_of(read, read.inputs[0])) == [(own.op_id, 0, "bytes")]


def test_without_a_digest_there_are_no_equal_bytes() -> None:
    made, read = writer(1, None), reader(2, None)
    assert Dataflow([made, read]).same_bytes(read, read.inputs[0]) == []


def test_whoever_is_not_among_the_executions_has_no_earlier_ones() -> None:
    read = reader(2, ONE)
    assert Dataflow([writer(1, ONE)]).same_bytes(read, read.inputs[0]) == []


def test_of_very_many_equal_outputs_the_latest_are_told() -> None:
    made = [writer(at, ONE) for at in range(1, 41)]
    read = reader(50, ONE)
    found = Dataflow([*made, read, writer(60, ONE)]).same_bytes(read, read.inputs[0])
    assert [p.op.task_id for p in found] == list(range(25, 41))


# --- stronger evidence ----------------------------------------------------------------------------


def test_edges_are_stronger_than_bytes() -> None:
    by_bytes, by_address, read = writer(1, ONE), writer(2, OTHER), reader(3, ONE, OTHER)
    edge = Producer(by_address, by_address.outputs[0], "address")
    flow = Dataflow([by_bytes, by_address, read], {(read.op_id, 0): KnownInput((edge,))})
    assert flow.producers_of(read, read.inputs[0]) == (edge,)
    # Of the other input nothing is known but its bytes.
    assert told(flow.producers_of(read, read.inputs[1])) == [(by_address.op_id, 0, "bytes")]
    assert flow.known_input(read, read.inputs[1]) == KnownInput()


def test_what_is_learned_later_counts() -> None:
    made, read = writer(1, OTHER), reader(2, ONE)
    flow = Dataflow([made, read])
    assert flow.parents_of(read) == []
    edge = Producer(made, made.outputs[0], "graph")
    flow.learn({(read.op_id, 0): KnownInput((edge,))}, {made.op_id: (KnownInput((edge, edge)),)})
    assert flow.parents_of(read) == [made]
    assert flow.virtual_inputs(made) == (KnownInput((edge, edge)),)
    assert flow.virtual_inputs(read) == ()


def test_inputs_that_were_not_dumped_have_parents_too() -> None:
    made = writer(1, ONE)
    blind = make_op("Add", [], [bad(nan=2)], at=2)
    edge = KnownInput((Producer(made, made.outputs[0], "graph"),))
    assert Dataflow([made, blind], virtual={blind.op_id: (edge,)}).parents_of(blind) == [made]


def test_backward_reads_what_its_forward_twin_saved() -> None:
    forward = writer(1, ONE)
    backward = reader(2, OTHER)
    flow = Dataflow([forward, backward], twins={backward.op_id: (forward,)})
    assert flow.twins_of(backward) == (forward,)
    assert flow.twins_of(forward) == ()
    assert flow.parents_of(backward) == [forward]


def test_gradients_written_before_the_backward_they_come_from_stand_behind_it() -> None:
    gradient, between, backward, after = (writer(at, None) for at in (1, 2, 3, 4))
    flow = Dataflow([after, backward, between, gradient], twins={gradient.op_id: (backward,)})
    assert [op.task_id for op in flow.ops] == [2, 3, 1, 4]
    # A twin that stands before changes nothing.
    flow = Dataflow([after, backward, between, gradient], twins={after.op_id: (backward,)})
    assert [op.task_id for op in flow.ops] == [1, 2, 3, 4]


def test_ancestors_are_parents_where_nothing_can_be_stepped_over() -> None:
    made, read = writer(1, ONE), reader(2, ONE)
    flow = Dataflow([made, read])
    assert list(flow.ancestors_to([made])(read)) == [made]
    flow.through_clean = lambda sources: lambda op: [*sources, op]
    assert list(flow.ancestors_to([made])(read)) == [made, read]
