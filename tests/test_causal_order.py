"""Causes come before effects: each rank in its own order, exchanges together, and none is lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

from hypothesis import given
from hypothesis import strategies as st

from dumpscope.causality.causal_order import in_causal_order
from dumpscope.model import OpRecord
from op_builders import clean, make_op

Plan = list[list[int]]
"""Of each rank the exchanges that it takes part in, in its order; 0 is an operator of its own."""


class Counted(Sequence[OpRecord]):
    """Members of an exchange; counts how often one of them is looked at."""

    def __init__(self, members: Sequence[OpRecord]) -> None:
        self.members = members
        self.looks = 0

    @overload
    def __getitem__(self, index: int) -> OpRecord: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[OpRecord]: ...

    def __getitem__(self, index: int | slice) -> OpRecord | Sequence[OpRecord]:
        return self.members[index]

    def __iter__(self) -> Iterator[OpRecord]:
        for member in self.members:
            self.looks += 1
            yield member

    def __len__(self) -> int:
        return len(self.members)


def build(plan: Plan) -> tuple[list[OpRecord], dict[int, Counted]]:
    """Executions of all ranks, and by op_id whom they met: equal numbers are one exchange."""
    ops: list[OpRecord] = []
    met: dict[int, list[OpRecord]] = {}
    for device, exchanges in enumerate(plan):
        for at, exchange in enumerate(exchanges):
            op = make_op("HcomAllReduce", [clean()], [clean()], at=at, device=device)
            ops.append(op)
            if exchange:
                met.setdefault(exchange, []).append(op)
    groups = [Counted(members) for members in met.values()]
    return ops, {op.op_id: group for group in groups for op in group.members}


def order(plan: Plan) -> tuple[list[list[tuple[int, int]]], dict[int, Counted]]:
    """(device, position in the rank) of what is yielded."""
    ops, groups = build(plan)
    found = in_causal_order(ops, lambda op: groups.get(op.op_id, ()))
    return [[(op.device or 0, op.task_id or 0) for op in together] for together in found], groups


def test_an_exchange_waits_for_all_of_its_ranks() -> None:
    assert order([[1, 0], [0, 0, 1]])[0] == [
        [(1, 0)], [(1, 1)], [(0, 0), (1, 2)], [(0, 1)],
    ]  # fmt: skip


def test_ranks_that_wait_for_each_other_go_on() -> None:
    assert order([[1, 2], [2, 1]])[0] == [[(0, 0)], [(0, 1), (1, 0)], [(1, 1)]]


@given(st.lists(st.lists(st.integers(0, 4), max_size=6, unique_by=lambda n: n or object())))
def test_every_execution_has_one_turn_in_the_order_of_its_rank(plan: Plan) -> None:
    found, _ = order(plan)
    turns = [turn for together in found for turn in together]
    assert sorted(turns) == [(d, at) for d, own in enumerate(plan) for at in range(len(own))]
    for device in range(len(plan)):
        own = [at for d, at in turns if d == device]
        assert own == sorted(own)


@given(st.lists(st.integers(1, 3), min_size=1, max_size=3, unique=True), st.integers(2, 9))
def test_ranks_that_exchange_in_the_same_order_do_so_together(same: list[int], ranks: int) -> None:
    found, _ = order([same] * ranks)
    assert found == [[(d, at) for d in range(ranks)] for at in range(len(same))]


def test_many_ranks_are_not_looked_at_for_each_of_them() -> None:
    ranks, exchanges = 60, list(range(1, 5))
    _, groups = order([exchanges] * ranks)
    looks = sum(group.looks for group in {id(g): g for g in groups.values()}.values())
    assert looks <= 4 * ranks * len(exchanges)
