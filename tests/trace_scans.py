"""Scans with a known way of the bad value, built by hand for the tests of traces."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from dumpscope.model import (
    Counts,
    Evidence,
    Finding,
    Mode,
    OpRecord,
    Reason,
    Scan,
    TensorStats,
    TensorSummary,
    Verdict,
)
from op_builders import bad, clean, make_op, tensor

__all__ = [
    "chain_scan",
    "finding",
    "make_scan",
    "named",
    "ranks_scan",
    "scan_of_verdicts",
    "wide_scan",
]


def named(stats: TensorStats, digest: str, role: str = "output", index: int = 0) -> TensorSummary:
    """A tensor whose bytes are known by `digest`."""
    return tensor("input" if role == "input" else "output", index, stats, digest=digest)


def finding(
    op: OpRecord,
    verdict: Verdict = Verdict.PROPAGATED,
    cause: OpRecord | None = None,
    evidence: Evidence = "bytes",
    **more: Any,
) -> Finding:
    """What a scan says of `op`; the tensor that decided is its first bad one."""
    deciding = next(
        (i for i, t in enumerate(op.tensors) if t.role == "output" and t.stats.nonfinite),
        next((i for i, t in enumerate(op.tensors) if t.stats.nonfinite), None),
    )
    parameters: dict[str, str | int] = {"role": "output", "index": 0, "dtype": "float16"}
    if cause is not None:
        parameters |= {"producer": cause.op_name, "producer_type": cause.op_type}
    given: dict[str, Any] = {
        "op": op,
        "verdict": verdict,
        "reason": Reason(verdict.value, parameters),
        "evidence": (evidence,),
        "deciding": deciding,
        "caused_by": None if cause is None else cause.op_id,
    }
    given.update(more)
    return Finding(**given)


def make_scan(findings: Iterable[Finding], expected: Sequence[Finding] = ()) -> Scan:
    """A scan with these findings in ranking order."""
    ranked = tuple(replace(f, rank=number) for number, f in enumerate(findings, 1))
    return Scan(
        scan_id="20260101T000000-abc",
        root="/data/run",
        tool_version="1.2.3",
        exit_status=1,
        complete=True,
        mode=Mode("inf_nan"),
        counts=Counts(findings=len(ranked), expected=len(expected)),
        findings=ranked,
        expected=tuple(expected),
    )


def chain_scan(length: int, *, device: int | None = 0) -> Scan:
    """An origin and a straight chain of `length - 1` operators that hand its Inf on."""
    ops = [make_op("MatMul", [clean()], [bad(posinf=3)], at=0, device=device)]
    found = [finding(ops[0], Verdict.ORIGIN, evidence="own_inputs")]
    for at in range(1, length):
        ops.append(make_op("Add", [bad(posinf=3)], [bad(posinf=3)], at=at, device=device))
        found.append(finding(ops[-1], cause=ops[-2]))
    return make_scan(found)


def wide_scan(count: int) -> Scan:
    """An origin and `count` followers in 50 chains over 5 steps and 2 streams, some swallowed."""
    origin = make_op("BatchMatMulV2", [clean()], [bad(posinf=3)], at=0, name="net/attn/bmm")
    found = [finding(origin, Verdict.ORIGIN, evidence="own_inputs")]
    heads = [origin] * 50
    for number in range(count):
        swallows = number % 100 == 99
        op = make_op(
            ("MatMulV2", "Add", "LayerNormV3", "Gelu")[number % 4],
            [bad(nan=4)],
            [clean() if swallows else bad(nan=4)],
            at=number + 1,
            step=number * 5 // count,
            stream_id=1 + number % 2,
            name=f"network/layers/{number // 40}/block_{number % 40}/op-{number}",
        )
        cause = heads[number % 50]
        verdict = Verdict.SWALLOWED if swallows else Verdict.PROPAGATED
        evidence: Evidence = "bytes" if number % 3 else "order"
        found.append(finding(op, verdict, cause, evidence))
        if not swallows:
            heads[number % 50] = op
    return make_scan(found)


class _Lane:
    """One rank and its clock."""

    def __init__(self, rank: int, clock: int) -> None:
        self._rank = rank
        self._clock = clock

    def run(self, op_type: str, read: TensorStats, written: TensorStats, name: str) -> OpRecord:
        self._clock += 10
        return make_op(
            op_type, [read], [written], at=self._clock, device=self._rank, name=name, step=1
        )


def ranks_scan(ranks: int, *, guilty: Sequence[int] = (3,), exchanges: int = 2) -> Scan:
    """`guilty` ranks overflow, all-reduces bring it to every other rank, which hands it on.

    Clocks of the ranks are an hour apart, in no order that helps.
    """
    found: list[Finding] = []
    rest: list[Finding] = []
    for rank in range(ranks):
        lane = _Lane(rank, (rank * 7919 % ranks) * 3_600_000_000)
        own = rank in guilty
        last = None
        if own:
            last = lane.run("Mul", clean(), bad(posinf=2), "network/Mul-op0")
            found.append(finding(last, Verdict.ORIGIN, evidence="own_inputs"))
            op = lane.run("MatMulV2", bad(posinf=2), bad(nan=8), "network/fc1/MatMulV2-op0")
            rest.append(finding(op, cause=last))
            last = op
        for number in range(exchanges):
            name = f"gradients/HcomAllReduce-op{number}"
            reduce = lane.run("HcomAllReduce", bad(nan=8) if own else clean(), bad(nan=32), name)
            if own:
                rest.append(finding(reduce, cause=last))
            else:
                given = finding(reduce, Verdict.RECEIVED, evidence="own_inputs")
                parameters = {**given.reason.parameters, "ranks": ", ".join(map(str, guilty))}
                rest.append(replace(given, reason=Reason("received", parameters)))
            for step in range(3):
                op = lane.run("ApplyAdam", bad(nan=32), bad(nan=32), f"adam/{number}/{step}")
                rest.append(finding(op, cause=reduce))
    return make_scan([*found, *rest])


def scan_of_verdicts() -> Scan:
    """One finding of each kind around one origin, with an expected mask that it read."""
    mask = make_op("MaskedFill", [clean()], [named(bad(neginf=9), "mask")], at=0, name="net/mask")
    origin = make_op(
        "SoftmaxV2", [named(bad(neginf=9), "mask", "input")], [named(bad(nan=8), "soft")], at=1,
        name="net/softmax",
    )  # fmt: skip
    follower = make_op("Add", [bad(nan=8)], [bad(nan=8)], at=2, name="net/add", stream_id=2)
    hidden = make_op("Relu", [bad(nan=8)], [clean()], at=3, name="net/relu")
    producer = make_op("Reshape", [clean()], [clean()], at=4, name="net/reshape")
    handoff = make_op("Mul", [bad(nan=1)], [bad(nan=8)], at=5, name="net/mul")
    other = make_op("GatherV2", [bad(nan=2)], [bad(nan=2)], at=0, step=1, name="net/gather")
    after_other = make_op("Cast", [bad(nan=2)], [bad(nan=2)], at=1, step=1, name="net/cast")
    unread_mask = make_op("MaskedFill", [clean()], [bad(neginf=4)], at=6, name="net/mask2")
    return make_scan(
        [
            finding(origin, Verdict.ORIGIN, evidence="own_inputs"),
            finding(other, Verdict.BAD_INPUT, evidence="own_inputs"),
            finding(handoff, Verdict.HANDOFF, producer, "address"),
            finding(follower, cause=origin, evidence="graph"),
            finding(after_other, cause=other, evidence="order"),
            finding(hidden, Verdict.SWALLOWED, follower, "address"),
        ],
        [
            finding(mask, Verdict.EXPECTED, evidence="own_inputs", rule="mask-fill"),
            finding(unread_mask, Verdict.EXPECTED, evidence="own_inputs", rule="mask-fill"),
        ],
    )
