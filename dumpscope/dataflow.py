"""Who wrote what an operator read.

The order of executions within one rank, and producers by evidence. Stronger evidence is asked
first; what none of it can say stays unknown, and the verdicts then fall back to order alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dumpscope.model import Evidence, OpRecord, TensorSummary

__all__ = ["Dataflow", "Lane", "Producer", "lane_of", "sequence_key"]

Lane = tuple[int, str, int]
"""One rank of one run: (source, run, device). Order and edges never cross lanes."""


def lane_of(op: OpRecord) -> Lane:
    """The rank and run whose clock `op` belongs to."""
    device = op.device
    return (op.place.source, op.place.run or "", -1 if device is None else device)


def sequence_key(op: OpRecord) -> tuple[int, int, int, int, str, int]:
    """Sort key of executions within one lane: step, start, task, then the writer's own order.

    An execution without a time sorts by the writer's order; a missing step comes first.
    """
    return (
        -1 if op.step is None else op.step,
        -1 if op.start_ns is None else op.start_ns,
        op.order if op.start_ns is None or op.task_id is None else op.task_id,
        op.order,
        op.file,
        op.op_id,
    )


@dataclass(frozen=True, slots=True)
class Producer:
    """An output that a later input was read from."""

    op: OpRecord
    tensor: TensorSummary
    evidence: Evidence


class Dataflow:
    """Producers among the executions that hold something worth following.

    Parameters
    ----------
    ops
        Executions with a tensor that is not clean, in any order.
    """

    def __init__(self, ops: Iterable[OpRecord]) -> None:
        writers: dict[tuple[Lane, str], list[Producer]] = defaultdict(list)
        ordered: Sequence[OpRecord] = sorted(ops, key=lambda op: (lane_of(op), sequence_key(op)))
        self._position = {op.op_id: number for number, op in enumerate(ordered)}
        for op in ordered:
            lane = lane_of(op)
            for tensor in op.tensors:
                if tensor.role == "output" and tensor.digest is not None:
                    writers[lane, tensor.digest].append(Producer(op, tensor, "bytes"))
        self._writers = dict(writers)

    def producer_of(self, op: OpRecord, tensor: TensorSummary) -> Producer | None:
        """The one earlier output that `tensor`, an input of `op`, was read from, if known."""
        same = self.same_bytes(op, tensor)
        return same[0] if len(same) == 1 else None

    def same_bytes(self, op: OpRecord, tensor: TensorSummary) -> list[Producer]:
        """All earlier outputs of the same rank with exactly these bytes."""
        if tensor.digest is None:
            return []
        position = self._position[op.op_id]
        return [
            producer
            for producer in self._writers.get((lane_of(op), tensor.digest), ())
            if self._position[producer.op.op_id] < position
        ]

    def parents_of(self, op: OpRecord) -> list[OpRecord]:
        """The executions that wrote inputs of `op`, on any evidence but order."""
        producers = [self.producer_of(op, tensor) for tensor in op.inputs]
        return [producer.op for producer in producers if producer is not None]

    def virtual_inputs(self, op: OpRecord) -> list[Producer]:
        """Who wrote what `op` read, where its own inputs were not dumped: graph and addresses."""
        return []

    def order_excluded(self, op: OpRecord, tensor: TensorSummary) -> bool:
        """Whether evidence says that no output of the dump was read here, whatever the order."""
        return False
