"""Random parallel jobs with known truth: who went bad first, and who got it from whom.

Every rank runs some layers, each with a sum over its tensor parallel group; stages hand their
results on by messages; gradients are summed over data parallel groups. Names say nothing of the
groups: all ranks run calls of the same names, as one program does on all of them.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass, field

import pytest

from dumpscope.causality.dataflow import Dataflow
from dumpscope.causality.verdicts import Judge
from dumpscope.model import OpRecord, Place, TensorStats, TensorSummary
from dumpscope.ranks.collectives import Collectives
from dumpscope.ranks.parallelism import Topology, plan_topology
from dumpscope.ranks.ranksummary import summarise_ranks
from dumpscope.rules import load_rules
from op_builders import bad, clean, make_op, tensor

SEEDS = range(100)


@dataclass
class Truth:
    """What must be found: ranks bad by themselves, and for the others who sent it first."""

    own: set[int] = field(default_factory=set)
    received_from: dict[int, set[int]] = field(default_factory=dict)


class Network:
    """Runs one step of a job. A bad value stands for its history: a sum makes another one."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self.tp, self.dp, self.pp = rng.choice([2, 4]), rng.choice([1, 2]), rng.choice([1, 2, 3])
        self.world = self.tp * self.dp * self.pp
        self.layers = rng.randint(1, 3)
        self.named_peers = rng.random() < 0.5
        self.with_digests = rng.random() < 0.7
        self.clock = {rank: rng.randrange(10**9) for rank in range(self.world)}
        self.calls = dict.fromkeys(range(self.world), 0)
        self.value: dict[int, str] = {}
        self.ops: list[OpRecord] = []
        self.truth = Truth()
        count = rng.choice([1, 1, 1, 2])
        self.culprits = {
            (rng.randrange(self.world), rng.randrange(self.layers)) for _ in range(count)
        }
        for stage in range(self.pp):
            self.run_stage(stage)
        for rank in range(self.tp * self.pp) if self.dp > 1 else ():
            stage, shard = divmod(rank, self.tp)
            self.sum_over([self.rank_at(shard, d, stage) for d in range(self.dp)])

    def rank_at(self, tp: int, dp: int, pp: int) -> int:
        return tp + self.tp * (dp + self.dp * pp)

    def run_stage(self, stage: int) -> None:
        for dp in range(self.dp):
            group = [self.rank_at(tp, dp, stage) for tp in range(self.tp)]
            if stage:
                for rank in group:
                    self.receive(rank - self.tp * self.dp, rank)
            for layer in range(self.layers):
                for rank in group:
                    self.multiply(rank, layer)
                self.sum_over(group)

    def multiply(self, rank: int, layer: int) -> None:
        before = self.value.get(rank)
        if (rank, layer) in self.culprits and before is None:
            self.value[rank] = f"made by {rank} in {layer}"
            if rank not in self.truth.received_from:
                self.truth.own.add(rank)
        self.record(rank, "Mul", before, self.value.get(rank), f"net/Mul-op{layer}")

    def sum_over(self, group: list[int]) -> None:
        sent = {rank: self.value.get(rank) for rank in group}
        guilty = {rank for rank, value in sent.items() if value is not None}
        total = None
        if guilty:
            parts = sorted(filter(None, sent.values()))
            total = hashlib.sha256(f"{parts} over {group}".encode()).hexdigest()
        for rank in group:
            if total is not None:
                self.note_received(rank, guilty - {rank})
                self.value[rank] = total
            name = f"Distributed.all_reduce.{self.calls[rank]}.forward"
            self.calls[rank] += 1
            self.record(rank, "Distributed.all_reduce", sent[rank], total, name)

    def receive(self, source: int, rank: int) -> None:
        value = self.value.get(source)
        to = (("kwargs.dst", str(rank)),) if self.named_peers else ()
        of = (("kwargs.src", str(source)),) if self.named_peers else ()
        self.record(source, "Distributed.send", value, "", "Distributed.send.0.forward", to)
        if value is not None:
            self.note_received(rank, {source})
            self.value[rank] = value
        self.record(rank, "Distributed.recv", None, value, "Distributed.recv.0.forward", of)

    def note_received(self, rank: int, senders: set[int]) -> None:
        if self.value.get(rank) is None:
            self.truth.received_from.setdefault(rank, senders)

    def record(
        self,
        rank: int,
        op_type: str,
        sent: str | None,
        result: str | None,
        name: str,
        attributes: tuple[tuple[str, str], ...] = (),
    ) -> None:
        self.clock[rank] += 1
        inputs = [self.as_tensor("input", sent)]
        outputs = [] if result == "" else [self.as_tensor("output", result)]
        self.ops.append(
            make_op(
                op_type, inputs, outputs, at=self.clock[rank], device=rank, name=name,
                attributes=attributes, place=Place(step=0, global_rank=rank),
            )
        )  # fmt: skip

    def as_tensor(self, role: str, value: str | None) -> TensorStats | TensorSummary:
        if value is None:
            return clean()
        digest = value if self.with_digests else None
        # Without digests only statistics tell values apart.
        stats = bad(nan=1 + sum(value.encode()) % 30)
        return tensor("input" if role == "input" else "output", 0, stats, digest=digest)


def find(network: Network, topology: Topology | None) -> tuple[set[int], dict[int, set[int]]]:
    """Who is found to be bad by itself, and for the infected ones who sent it."""
    ops = list(network.ops)
    random.Random(0).shuffle(ops)
    collectives = Collectives(ops, {}, topology=topology)
    judged = [op for op in ops if any(t.stats.nonfinite for t in op.tensors)]
    flow = Dataflow(judged)
    judge = Judge(flow, rules=load_rules(), flags={}, collectives=collectives)
    found = summarise_ranks(
        judge.judge_all(), [op.place for op in ops], {}, senders_to=collectives.senders_to
    )
    assert len(found) == network.world
    own = {s.rank for s in found if s.state == "own" and s.rank is not None}
    received = {
        s.rank: set(s.senders) for s in found if s.state == "received" and s.rank is not None
    }
    assert {s.state for s in found} <= {"own", "received", "clean"}
    return own, received


@pytest.mark.parametrize("seed", SEEDS)
def test_who_was_bad_first_and_who_sent_it_is_found(seed: int) -> None:
    network = Network(seed)
    own, received = find(network, None)
    assert own == network.truth.own
    assert received.keys() == network.truth.received_from.keys()
    for rank, senders in network.truth.received_from.items():
        if network.named_peers and network.with_digests:
            assert received[rank] == senders
        else:
            # Equal values are sent by several ranks, and nothing names one: it is among them.
            assert received[rank] >= senders


@pytest.mark.parametrize("seed", SEEDS)
def test_a_rank_map_tells_apart_who_sent_the_same(seed: int) -> None:
    network = Network(seed)
    sizes = {"tp": network.tp, "dp": network.dp, "pp": network.pp}
    own, received = find(network, plan_topology(sizes))
    assert own == network.truth.own
    assert received == network.truth.received_from


def test_the_networks_hold_what_they_are_to_test() -> None:
    networks = [Network(seed) for seed in SEEDS]
    ambiguous = [find(n, None)[1] != n.truth.received_from for n in networks]
    assert 10 < sum(ambiguous) < len(networks) / 2
    assert any(len(n.truth.own) > 1 for n in networks)
    assert all(n.truth.own for n in networks)
    assert sum(bool(n.truth.received_from) for n in networks) > 80
