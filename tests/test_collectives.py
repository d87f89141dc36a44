"""Calls of communication operators that are one exchange, and who sent bad values into it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from dumpscope.model import OpRecord, Place, TensorStats, TensorSummary
from dumpscope.ranks.collectives import Collectives
from dumpscope.ranks.parallelism import plan_topology
from dumpscope.ranks.presence import Presence
from op_builders import bad, clean, make_op, tensor

NAN = bad(nan=3)


def reduce_all(
    device: int,
    sent: TensorStats | TensorSummary,
    result: TensorStats | TensorSummary,
    *,
    name: str = "grad/HcomAllReduce-op1",
    at: int = 5,
    **more: Any,
) -> OpRecord:
    return make_op("HcomAllReduce", [sent], [result], at=at, device=device, name=name, **more)


def members_of(collectives: Collectives, op: OpRecord) -> list[int | None]:
    group = collectives.group_of(op)
    assert group is not None
    return [member.device for member in group.members]


def senders_to(collectives: Collectives, op: OpRecord) -> list[int | None]:
    return [sender.device for sender in collectives.senders_to(op)]


def match(*ops: OpRecord, **more: Any) -> Collectives:
    return Collectives(ops, {}, **more)


def test_clean_ranks_belong_to_the_group() -> None:
    ops = [reduce_all(0, clean(), NAN), reduce_all(1, NAN, NAN), reduce_all(2, clean(), NAN)]
    found = match(*ops)
    assert members_of(found, ops[0]) == [0, 1, 2]
    assert senders_to(found, ops[0]) == [1]
    assert senders_to(found, ops[1]) == []
    group = found.group_of(ops[0])
    assert group is not None
    assert group.complete
    assert group.absent == ()


def test_clocks_are_not_compared() -> None:
    ops = [reduce_all(0, NAN, NAN, at=9_000_000), reduce_all(1, clean(), NAN, at=1)]
    assert senders_to(match(*ops), ops[1]) == [0]


def test_repeated_calls_of_one_name_are_matched_by_occurrence() -> None:
    early = [reduce_all(0, clean(), clean(), at=1), reduce_all(1, clean(), clean(), at=1)]
    late = [reduce_all(0, clean(), NAN, at=2), reduce_all(1, NAN, NAN, at=900)]
    found = match(*late, *early)
    assert senders_to(found, late[0]) == [1]
    assert senders_to(found, early[0]) == []
    group = found.group_of(late[0])
    assert group is not None
    assert {m.op_id for m in group.members} == {op.op_id for op in late}


def test_steps_and_jobs_are_kept_apart() -> None:
    ops = [
        reduce_all(0, clean(), NAN, step=1),
        reduce_all(1, NAN, NAN, step=2),
        reduce_all(2, NAN, NAN, step=1, run="20251129130000"),
    ]
    assert members_of(match(*ops), ops[0]) == [0]


def test_processes_of_one_job_may_have_time_folders_of_their_own() -> None:
    runs = ["20251129120000", "20251129120003"]
    ops = [reduce_all(0, clean(), NAN, run=runs[0]), reduce_all(1, NAN, NAN, run=runs[1])]
    together = Collectives(ops, dict.fromkeys(runs, runs[1]))
    apart = Collectives(ops, {run: run for run in runs})
    assert senders_to(together, ops[0]) == [1]
    assert senders_to(apart, ops[0]) == []


def test_names_whose_numbers_differ_are_matched_by_order() -> None:
    first = [reduce_all(d, clean(), clean(), name=f"AllReduce-op{d + 1}", at=1) for d in range(2)]
    second = [
        reduce_all(0, clean(), NAN, name="AllReduce-op2", at=2),
        reduce_all(1, NAN, NAN, name="AllReduce-op3", at=2),
    ]
    found = match(*first, *second)
    assert senders_to(found, second[0]) == [1]
    assert senders_to(found, first[1]) == []


def test_a_call_that_is_lost_in_the_middle_does_not_move_the_others() -> None:
    names = [f"grad/HcomAllReduce-op{n}" for n in range(4)]
    ops = {
        (device, n): reduce_all(device, clean(), NAN, name=names[n], at=n)
        for device in range(3)
        for n in range(4)
        if (device, n) != (1, 2)
    }
    found = match(*ops.values())
    assert members_of(found, ops[0, 3]) == [0, 1, 2]
    lacking = found.group_of(ops[0, 2])
    assert lacking is not None
    assert [m.device for m in lacking.members] == [0, 2]
    assert lacking.absent == (1,)
    assert not lacking.complete
    whole = found.group_of(ops[0, 1])
    assert whole is not None
    assert whole.complete


def test_a_rank_that_ran_it_in_another_step_is_missing_here() -> None:
    ops = [reduce_all(d, clean(), clean(), step=0) for d in range(3)]
    here = [reduce_all(d, clean(), NAN, step=1) for d in (0, 2)]
    group = match(*ops, *here).group_of(here[0])
    assert group is not None
    assert group.absent == (1,)


def test_ranks_that_never_ran_it_are_not_missed() -> None:
    pair = [reduce_all(d, clean(), NAN, name="tp/HcomAllReduce_a") for d in (0, 2)]
    other = [reduce_all(d, clean(), clean(), name="tp/HcomAllReduce_b") for d in (1, 3)]
    group = match(*pair, *other).group_of(pair[0])
    assert group is not None
    assert (len(group.members), group.complete) == (2, True)


def test_a_gap_in_the_numbers_is_a_rank_that_is_not_in_the_dump() -> None:
    ops = [reduce_all(d, clean(), NAN) for d in (0, 1, 3)]
    group = match(*ops).group_of(ops[0])
    assert group is not None
    assert group.absent == (2,)
    alone = reduce_all(0, clean(), NAN)
    only = match(alone).group_of(alone)
    assert only is not None
    assert not only.complete


def test_huge_rank_numbers_cost_nothing() -> None:
    ops = [reduce_all(d, clean(), NAN) for d in (0, 999_999_999)]
    group = match(*ops).group_of(ops[0])
    assert group is not None
    assert group.absent == tuple(range(1, 17))


def test_the_dump_knows_ranks_that_are_clean_or_damaged() -> None:
    ops = [reduce_all(d, clean(), NAN) for d in (0, 1)]
    all_there = Presence({"": {(0, None): frozenset({0, 1, 2})}})
    group = match(*ops, presence=all_there).group_of(ops[0])
    assert group is not None
    assert group.complete
    damaged = Presence(all_there.numbers, {("", 0): frozenset({2})})
    group = match(*ops, presence=damaged).group_of(ops[0])
    assert group is not None
    assert (group.complete, group.absent) == (False, (2,))


def test_an_input_that_could_not_be_checked_leaves_it_open() -> None:
    unread = tensor("input", 0, TensorStats(near_limit=None), checked=False, unchecked="unreadable")
    ops = [reduce_all(0, clean(), NAN), reduce_all(1, unread, NAN)]
    group = match(*ops).group_of(ops[0])
    assert group is not None
    assert not group.complete
    assert senders_to(match(*ops), ops[0]) == []


def test_exchanges_of_different_sizes_are_kept_apart() -> None:
    ops = []
    for device in range(4):
        shape = (8, 4) if device < 2 else (2, 2)
        sent = tensor("input", 0, NAN if device == 3 else clean(), shape=shape)
        ops.append(reduce_all(device, sent, tensor("output", 0, NAN, shape=shape)))
    found = match(*ops)
    assert members_of(found, ops[0]) == [0, 1]
    assert senders_to(found, ops[0]) == []
    assert senders_to(found, ops[2]) == [3]


def test_the_group_that_the_dump_states_is_used() -> None:
    ops = []
    for device in range(4):
        ranks = "0,2" if device % 2 == 0 else "1,3,5"
        ops.append(
            reduce_all(
                device, NAN if device == 3 else clean(), NAN, attributes=(("group_ranks", ranks),)
            )
        )
    found = match(*ops)
    assert members_of(found, ops[0]) == [0, 2]
    assert senders_to(found, ops[1]) == [3]
    complete, lacking = found.group_of(ops[0]), found.group_of(ops[1])
    assert complete is not None
    assert complete.complete
    assert lacking is not None
    assert lacking.absent == (5,)


def test_of_several_senders_those_with_the_same_result_count() -> None:
    ops = []
    for device in range(4):
        result = tensor("output", 0, NAN, digest="even" if device % 2 == 0 else "odd")
        ops.append(reduce_all(device, NAN if device > 1 else clean(), result))
    found = match(*ops)
    assert senders_to(found, ops[0]) == [2]
    assert senders_to(found, ops[1]) == [3]


def test_the_rank_map_divides_the_ranks_where_values_agree() -> None:
    topology = plan_topology({"tp": 2, "pp": 2, "dp": 2})
    # The bad value of rank 5 reaches its data parallel group, 5 and 7, and nobody else.
    ops = [
        reduce_all(d, NAN if d == 5 else clean(), NAN if d in (5, 7) else clean()) for d in range(8)
    ]
    found = match(*ops, topology=topology)
    group = found.group_of(ops[7])
    assert group is not None
    assert group.dimensions == ("dp",)
    assert [m.device for m in group.members] == [5, 7]
    assert group.complete
    assert senders_to(found, ops[7]) == [5]


def test_the_rank_map_knows_which_rank_of_a_group_is_not_in_the_dump() -> None:
    topology = plan_topology({"tp": 2, "dp": 4})
    ops = [reduce_all(d, clean(), NAN if d % 2 else clean()) for d in range(7)]
    group = match(*ops, topology=topology).group_of(ops[1])
    assert group is not None
    assert group.dimensions == ("dp",)
    assert group.absent == (7,)


def test_outputs_alone_tell_who_was_bad_before() -> None:
    before = make_op("Mul", [], [bad(posinf=1)], at=1, device=1)
    ops = [
        make_op("HcomAllReduce", [], [NAN], at=5, device=d, name="grad/HcomAllReduce-op1")
        for d in range(2)
    ]
    found = match(before, *ops)
    assert senders_to(found, ops[0]) == [1]
    assert senders_to(found, ops[1]) == []
    assert found.is_bad_before(ops[1])
    assert not found.is_bad_before(ops[0])


def in_place(device: int) -> OpRecord:
    return reduce_all(
        device,
        tensor("input", 0, NAN, digest="sum", address=0x1000),
        tensor("output", 0, NAN, digest="sum", address=0x1000),
    )


def test_inputs_recorded_after_the_sum_was_written_over_them_accuse_nobody() -> None:
    ops = [in_place(0), in_place(1), in_place(2)]
    assert senders_to(match(*ops), ops[0]) == []
    before = make_op("Mul", [clean()], [bad(posinf=1)], at=1, device=2)
    assert senders_to(match(before, *ops), ops[0]) == [2]


@pytest.mark.parametrize("attributes", [(("input.1", "2"),), ()])
def test_only_the_root_of_a_broadcast_sends(attributes: tuple[tuple[str, str], ...]) -> None:
    ops = []
    for device in range(3):
        # The others are given buffers, one of which holds garbage.
        stats, digest = (NAN, "root") if device == 2 else (bad(nan=device), f"buffer{device}")
        ops.append(
            make_op(
                "Distributed.broadcast",
                [tensor("input", 0, stats, digest=digest)],
                [tensor("output", 0, NAN, digest="root")],
                device=device, name="Distributed.broadcast.0.forward", attributes=attributes,
            )
        )  # fmt: skip
    found = match(*ops)
    assert senders_to(found, ops[0]) == [2]
    assert senders_to(found, ops[2]) == []


# --- messages ----------------------------------------------------------------------------------


def send(device: int, stats: TensorStats, *, to: int | None = None, at: int = 1) -> OpRecord:
    attributes = () if to is None else (("kwargs.dst", str(to)),)
    return make_op(
        "Distributed.send", [stats], [], at=at, device=device,
        name=f"Distributed.send.{at}.forward", attributes=attributes,
    )  # fmt: skip


def receive(device: int, stats: TensorStats, *, source: int | None = None, at: int = 1) -> OpRecord:
    attributes = () if source is None else (("kwargs.src", str(source)),)
    return make_op(
        "Distributed.recv", [clean()], [stats], at=at, device=device,
        name=f"Distributed.recv.{at}.forward", attributes=attributes,
    )  # fmt: skip


def test_messages_between_named_ranks_are_matched_in_order() -> None:
    sends = [
        send(0, clean(), to=1, at=1),
        send(0, clean(), to=2, at=2),
        send(0, NAN, to=1, at=3),
        send(2, NAN, to=1, at=1),
    ]
    receives = [receive(1, clean(), source=0, at=1), receive(1, NAN, source=0, at=700)]
    found = match(*sends, *receives)
    group = found.group_of(receives[1])
    assert group is not None
    assert [m.op_id for m in group.members] == [sends[2].op_id, receives[1].op_id]
    assert group.complete
    assert senders_to(found, receives[1]) == [0]
    assert senders_to(found, receives[0]) == []


def test_a_message_is_recognised_by_what_it_holds() -> None:
    sends = [send(0, bad(nan=1)), send(2, bad(nan=2)), send(3, clean())]
    taken = receive(1, bad(nan=2))
    found = match(*sends, taken)
    assert senders_to(found, taken) == [2]


def test_of_equal_messages_nobody_is_certain() -> None:
    sends = [send(0, NAN), send(2, NAN)]
    taken = receive(1, NAN)
    found = match(*sends, taken)
    assert senders_to(found, taken) == [0, 2]
    group = found.group_of(taken)
    assert group is not None
    assert not group.complete


def test_a_message_that_nobody_sent_came_from_outside() -> None:
    sends = [send(0, clean(), to=3), send(1, NAN, to=1)]
    taken = receive(1, NAN, source=0)
    found = match(*sends, taken)
    group = found.group_of(taken)
    assert group is not None
    assert ([m.device for m in group.members], group.complete) == ([1], False)
    assert senders_to(found, taken) == []


def test_thousands_of_equal_messages_are_matched() -> None:
    count = 2_000
    sends = [send(0, NAN, to=1, at=n) for n in range(count)]
    receives = [receive(1, NAN, source=0, at=n) for n in range(count)]
    found = match(*sends, *receives)
    group = found.group_of(receives[-1])
    assert group is not None
    assert group.members[0].op_id == sends[-1].op_id


# --- in any order --------------------------------------------------------------------------------


def summary(found: Collectives, ops: Sequence[OpRecord]) -> list[object]:
    return [(members_of(found, op), senders_to(found, op), found.group_of(op)) for op in ops]


@pytest.mark.parametrize("seed", range(5))
def test_the_order_in_which_operators_are_given_does_not_matter(seed: int) -> None:
    rng = random.Random(seed)
    ops = [
        reduce_all(
            device,
            NAN if rng.random() < 0.2 else clean(),
            NAN,
            name=f"AllReduce-op{n + device // 2}",
            at=n + rng.randrange(3) * 1000,
            place=Place(global_rank=device),
        )
        for device in range(4)
        for n in range(6)
    ]
    before = summary(match(*ops), ops)
    shuffled = list(ops)
    rng.shuffle(shuffled)
    assert summary(match(*shuffled), ops) == before
