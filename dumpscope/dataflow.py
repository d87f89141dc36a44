"""Who wrote what an operator read.

The order of executions within one rank, and producers by evidence: graph edges, device
addresses, equal bytes. Stronger evidence is asked first and wins; what none of it can say stays
unknown, and the verdicts then fall back to order alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dumpscope.model import Evidence, OpRecord, TensorSummary

__all__ = ["Dataflow", "KnownInput", "Lane", "Producer", "VirtualInputs", "lane_of", "sequence_key"]

Lane = tuple[int, str, str, int, int]
"""One rank of one run: (source, run, host, process, device). Order never crosses lanes."""


def lane_of(op: OpRecord) -> Lane:
    """The rank and run whose clock `op` belongs to."""
    place = op.place
    # A process id tells ranks apart only where nothing better does.
    process = place.process if place.global_rank is None else None
    return (
        place.source,
        place.run or "",
        place.host or "",
        -1 if process is None else process,
        -1 if op.device is None else op.device,
    )


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


@dataclass(frozen=True, slots=True)
class KnownInput:
    """What graph edges or addresses say of one input.

    `producers` are the outputs it was read from, the best first. Without any, `outside` says
    that nothing in the dump can have written it.
    """

    producers: tuple[Producer, ...] = ()
    outside: bool = False


@dataclass(frozen=True, slots=True)
class VirtualInputs:
    """The outputs that an execution read whose own inputs were not dumped.

    `complete` says that they are all that it read; otherwise more came from outside of the dump.
    """

    producers: tuple[Producer, ...] = ()
    complete: bool = False


_NOTHING = KnownInput()
_NO_INPUTS = VirtualInputs()


class Dataflow:
    """Producers of the inputs of executions that hold something worth following.

    Parameters
    ----------
    ops
        Executions with a tensor that is not clean, in any order.
    known
        By (op_id, index) of an input what stronger evidence than equal bytes says of it.
    virtual
        By op_id what an execution read whose own inputs were not dumped.
    """

    def __init__(
        self,
        ops: Iterable[OpRecord],
        known: Mapping[tuple[int, int], KnownInput] | None = None,
        virtual: Mapping[int, VirtualInputs] | None = None,
    ) -> None:
        writers: dict[tuple[Lane, str], list[Producer]] = defaultdict(list)
        ordered: Sequence[OpRecord] = sorted(ops, key=lambda op: (lane_of(op), sequence_key(op)))
        self._position = {op.op_id: number for number, op in enumerate(ordered)}
        self._known = known or {}
        self._virtual = virtual or {}
        for op in ordered:
            lane = lane_of(op)
            for tensor in op.tensors:
                if tensor.role == "output" and tensor.digest is not None:
                    writers[lane, tensor.digest].append(Producer(op, tensor, "bytes"))
        self._writers = dict(writers)

    def producer_of(self, op: OpRecord, tensor: TensorSummary) -> Producer | None:
        """The earlier output that `tensor`, an input of `op`, was read from, if known.

        Of several outputs that share an input's memory the first bad one counts.
        """
        known = self._known.get((op.op_id, tensor.index), _NOTHING).producers
        if known:
            bad = [p for p in known if p.tensor.stats.nonfinite]
            return bad[0] if bad else known[0]
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
        parents = [p.op for p in self.virtual_inputs(op).producers]
        for tensor in op.inputs:
            known = self._known.get((op.op_id, tensor.index), _NOTHING).producers
            if known:
                parents += [p.op for p in known]
            else:
                producer = self.producer_of(op, tensor)
                if producer is not None:
                    parents.append(producer.op)
        return parents

    def virtual_inputs(self, op: OpRecord) -> VirtualInputs:
        """Who wrote what `op` read, where its own inputs were not dumped."""
        return self._virtual.get(op.op_id, _NO_INPUTS)

    def order_excluded(self, op: OpRecord, tensor: TensorSummary) -> bool:
        """Whether evidence says that no output of the dump was read here, whatever the order."""
        return self._known.get((op.op_id, tensor.index), _NOTHING).outside
