"""Ancestors of findings, also behind operators of which nothing is notable.

A value at the limit may pass operators that keep it finite and away from the limit before it
becomes an Inf. Device addresses and graph edges tell the way of all values, so they are followed
through clean operators as well.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

from dumpscope.causality.address_edges import AddressMap, RowLinks, Run
from dumpscope.causality.dataflow import Lane, lane_of, sequence_key
from dumpscope.causality.graphs import GraphIndex, fold_name
from dumpscope.model import OpRecord

__all__ = ["CleanPaths"]

_Name = tuple[Lane, "int | None", str]


class CleanPaths:
    """Steps from an execution to those that its inputs come from, over clean ones between.

    Every clean operator is stepped over once, whoever comes to it first: so ask for the executions
    that matter most first.

    Parameters
    ----------
    parents_of
        The direct way, between executions that are not clean.
    ops
        The executions that are not clean.
    addresses, believed
        Device memory, and the runs in which it can be believed.
    graph
        Edges of compiled graphs.
    sources
        The executions to which ways are sought.
    """

    def __init__(
        self,
        parents_of: Callable[[OpRecord], Iterable[OpRecord]],
        ops: Sequence[OpRecord],
        addresses: AddressMap | None,
        believed: set[Run],
        graph: GraphIndex,
        sources: Sequence[OpRecord],
    ) -> None:
        self._parents_of = parents_of
        self._addresses = addresses
        self._graph = graph
        self._seen_rows = bytearray()
        self._seen_names: set[_Name] = set()
        self._links: RowLinks | None = None
        self._op_at: dict[int, OpRecord] = {}
        self._rows_of: dict[int, tuple[int, ...]] = {}
        self._named: dict[_Name, list[OpRecord]] = defaultdict(list)
        if addresses is not None:
            self._link_rows(addresses, ops, sources, believed)
        if graph:
            for op in ops:
                self._named[lane_of(op), op.step, fold_name(op.op_name)].append(op)

    def _link_rows(
        self,
        addresses: AddressMap,
        ops: Sequence[OpRecord],
        sources: Sequence[OpRecord],
        believed: set[Run],
    ) -> None:
        numbers = [(part, op) for op in ops for part in op.part_ids or (op.op_id,)]
        rows = addresses.rows_of(number for number, _ in numbers)
        for (_, op), row in zip(numbers, rows, strict=True):
            if row is not None:
                self._op_at[row] = op
                self._rows_of[op.op_id] = (*self._rows_of.get(op.op_id, ()), row)
        first: dict[Lane, OpRecord] = {}
        for op in sources:
            lane = lane_of(op)
            if lane[:2] not in believed or op.op_id not in self._rows_of:
                continue
            if lane not in first or sequence_key(op) < sequence_key(first[lane]):
                first[lane] = op
        if first:
            self._seen_rows = bytearray(addresses.rows)
            self._links = addresses.link_lanes(
                {lane: self._rows_of[op.op_id][0] for lane, op in first.items()}, self._op_at
            )

    def __call__(self, op: OpRecord) -> list[OpRecord]:
        """Return the ancestors of `op` that are not clean and have no such other between."""
        found = list(self._parents_of(op))
        if self._links is not None:
            found += self._over_rows(self._links, self._rows_of.get(op.op_id, ()))
        if self._graph:
            found += self._over_names(op)
        return found

    def _over_rows(self, links: RowLinks, rows: Sequence[int]) -> list[OpRecord]:
        found = []
        stack = list(rows)
        seen, op_at = self._seen_rows, self._op_at
        while stack:
            for parent in links.parents_of(stack.pop()):
                if seen[parent]:
                    continue
                op = op_at.get(parent)
                if op is not None:
                    found.append(op)
                else:
                    seen[parent] = 1
                    stack.append(parent)
        return found

    def _over_names(self, op: OpRecord) -> Iterator[OpRecord]:
        lane, step, when = lane_of(op), op.step, sequence_key(op)
        stack = [fold_name(op.op_name)]
        while stack:
            for name in self._graph.producers_of(stack.pop()):
                place = (lane, step, name)
                named = self._named.get(place)
                if named is not None:
                    yield from (found for found in named if sequence_key(found) < when)
                elif place not in self._seen_names:
                    self._seen_names.add(place)
                    stack.append(name)
