"""Who wrote what an operator read.

The order of executions within one rank, and producers by evidence: graph edges, device
addresses, equal bytes. Stronger evidence is asked first and wins; what none of it can say stays
unknown, and the verdicts then fall back to order alone.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence

from dumpscope.model import Evidence, OpRecord, TensorSummary
from dumpscope.records import record

__all__ = ["Ancestors", "Dataflow", "KnownInput", "Lane", "Producer", "lane_of", "sequence_key"]

Lane = tuple[int, str, str, int, int]
"""One rank of one run: (source, run, host, process, device). Order never crosses lanes."""

Ancestors = Callable[[OpRecord], Iterable[OpRecord]]
"""Tells of an execution which others its inputs come from, clean operators between them or not."""


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


@record(frozen=True, slots=True)
class Producer:
    """An output that a later input was read from."""

    op: OpRecord
    tensor: TensorSummary
    evidence: Evidence


@record(frozen=True, slots=True)
class KnownInput:
    """What graph edges or addresses say of one input.

    Attributes
    ----------
    producers
        The outputs it was read from, the latest first.
    outside
        Without producers: nothing in the dump can have written it.
    source
        Name of what hands it in from outside of the graph, where that is known.
    against
        An execution that weaker evidence names instead.
    witness
        Without producers: the tensor as an earlier execution read it from the same memory.
    """

    producers: tuple[Producer, ...] = ()
    outside: bool = False
    source: str = ""
    against: OpRecord | None = None
    witness: TensorSummary | None = None


_NOTHING = KnownInput()
_MOST_ALIKE = 16


class Dataflow:
    """Producers of the inputs of executions that hold something worth following.

    Parameters
    ----------
    ops
        Executions with a tensor that is not clean, in any order.
    known
        By (op_id, index) of an input what stronger evidence than equal bytes says of it.
    virtual
        By op_id what an execution read whose own inputs were not dumped, input by input.
    twins
        By op_id of a backward execution those whose tensors it had saved: its forward twin with
        all of them, and for gradients of parameters the module's backward with its inputs.

    Attributes
    ----------
    ops
        The executions, rank by rank and in order.
    through_clean
        Makes the function that `ancestors_to` returns, where there is something to step over.
    """

    def __init__(
        self,
        ops: Iterable[OpRecord],
        known: Mapping[tuple[int, int], KnownInput] | None = None,
        virtual: Mapping[int, tuple[KnownInput, ...]] | None = None,
        twins: Mapping[int, tuple[OpRecord, ...]] | None = None,
    ) -> None:
        ordered = sorted(ops, key=lambda op: (lane_of(op), sequence_key(op)))
        if twins:
            ordered = _put_behind_twins(ordered, twins)
        self.ops: Sequence[OpRecord] = ordered
        self._position = {op.op_id: number for number, op in enumerate(ordered)}
        self._known = known or {}
        self._virtual = virtual or {}
        self._twins = twins or {}
        self.through_clean: Callable[[Sequence[OpRecord]], Ancestors] | None = None
        # Positions of the executions that wrote some bytes, ascending, and which output it was.
        self._writers: dict[str, list[tuple[int, int]]] = {}
        # Where the rank of each position begins.
        self._lane_begin = array("q")
        lane: Lane | None = None
        begin = 0
        for number, op in enumerate(ordered):
            own = lane_of(op)
            if own != lane:
                lane, begin = own, number
            self._lane_begin.append(begin)
            for place, tensor in enumerate(op.tensors):
                if tensor.role == "output" and tensor.digest is not None:
                    self._writers.setdefault(tensor.digest, []).append((number, place))

    def known_input(self, op: OpRecord, tensor: TensorSummary) -> KnownInput:
        """What graph edges or addresses say of `tensor`, an input of `op`."""
        return self._known.get((op.op_id, tensor.index), _NOTHING)

    def producers_of(self, op: OpRecord, tensor: TensorSummary) -> tuple[Producer, ...]:
        """The earlier outputs that `tensor`, an input of `op`, was read from, if known.

        Equal bytes are believed when only one earlier output has them.
        """
        known = self.known_input(op, tensor).producers
        if known:
            return known
        same = self.same_bytes(op, tensor)
        return (same[0],) if len(same) == 1 else ()

    def same_bytes(self, op: OpRecord, tensor: TensorSummary) -> list[Producer]:
        """Earlier outputs of the same rank with exactly these bytes, the latest last.

        Of very many, the latest.
        """
        if tensor.digest is None:
            return []
        writers = self._writers.get(tensor.digest)
        position = self._position.get(op.op_id)
        if writers is None or position is None:
            return []
        begin = bisect_left(writers, (self._lane_begin[position], -1))
        end = bisect_left(writers, (position, -1), begin)
        found = []
        for number, place in writers[max(end - _MOST_ALIKE, begin) : end]:
            writer = self.ops[number]
            found.append(Producer(writer, writer.tensors[place], "bytes"))
        return found

    def learn(
        self,
        known: Mapping[tuple[int, int], KnownInput],
        virtual: Mapping[int, tuple[KnownInput, ...]],
    ) -> None:
        """Take over what was found out about inputs after the executions were put in order."""
        self._known = known
        self._virtual = virtual

    def virtual_inputs(self, op: OpRecord) -> tuple[KnownInput, ...]:
        """What `op` read, input by input, where its own inputs were not dumped."""
        return self._virtual.get(op.op_id, ())

    def twins_of(self, op: OpRecord) -> tuple[OpRecord, ...]:
        """The executions whose tensors `op`, a backward one, had saved."""
        return self._twins.get(op.op_id, ())

    def parents_of(self, op: OpRecord) -> list[OpRecord]:
        """The executions that wrote what `op` read, on any evidence but order."""
        parents = [p.op for known in self.virtual_inputs(op) for p in known.producers]
        parents += self.twins_of(op)
        for tensor in op.inputs:
            parents += [p.op for p in self.producers_of(op, tensor)]
        return parents

    def ancestors_to(self, sources: Sequence[OpRecord]) -> Ancestors:
        """A `parents_of` that also steps over clean operators on the way to `sources`."""
        return self.parents_of if self.through_clean is None else self.through_clean(sources)


def _put_behind_twins(
    ordered: Sequence[OpRecord], twins: Mapping[int, tuple[OpRecord, ...]]
) -> list[OpRecord]:
    """Move executions that stand before those whose tensors they had saved right behind them.

    msprobe writes the gradients of a module's parameters before the module's backward.
    """
    position = {op.op_id: number for number, op in enumerate(ordered)}
    place = {
        op.op_id: max([number, *(position.get(t.op_id, -1) for t in twins.get(op.op_id, ()))])
        for number, op in enumerate(ordered)
    }
    return sorted(
        ordered,
        key=lambda op: (place[op.op_id], place[op.op_id] != position[op.op_id], position[op.op_id]),
    )
