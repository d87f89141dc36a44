"""Producers by the edges of compiled graphs, within one step of one rank."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace

from dumpscope.causality.dataflow import KnownInput, Lane, Producer, lane_of, sequence_key
from dumpscope.causality.graphs import GraphIndex, GraphInput, fold_name, whole_names
from dumpscope.causality.inputs import is_notable, is_rewritten
from dumpscope.model import Evidence, OpRecord, TensorSummary
from dumpscope.records import record
from dumpscope.store import Store

__all__ = ["GraphEdges", "SeenOutputs", "find_graph_edges", "merge_seen", "note_seen"]

SeenOutputs = dict[int, tuple[OpRecord, dict[int, TensorSummary]]]
"""Outputs that were not dumped, or not readable, as their consumer read them: by the op_id of the
producer, and by output index."""

Place = tuple[Lane, "int | None", str]
"""A rank, a step, and the folded name of an operator."""


@record(frozen=False, slots=True)
class GraphEdges:
    """What the graphs say of the executions that were asked for.

    `known` is by (op_id, input index), `virtual` by op_id for executions whose own inputs were
    not dumped.
    """

    known: dict[tuple[int, int], KnownInput] = field(default_factory=dict)
    virtual: dict[int, tuple[KnownInput, ...]] = field(default_factory=dict)
    seen: SeenOutputs = field(default_factory=dict)


def find_graph_edges(
    store: Store, scan_id: str, ops: Sequence[OpRecord], graph: GraphIndex
) -> GraphEdges:
    """Follow the graph's edges from the inputs of `ops` that are not clean or were not dumped."""
    edges = GraphEdges()
    dumped = {fold_name(name): name for name in store.op_names(scan_id)}
    sliced = {whole for name in dumped for whole in whole_names(name)} - dumped.keys()
    inputs_of: dict[int, list[GraphInput]] = {}
    wanted: set[Place] = set()
    for op in ops:
        read = graph.inputs_of(op.op_name, dumped, sliced)
        if read is not None:
            inputs_of[op.op_id] = read
            lane = lane_of(op)
            wanted |= {(lane, op.step, fold_name(r.producer)) for r in read if r.producer}
    executions = _by_place(store, scan_id, ops, wanted, dumped)
    for op in ops:
        read = inputs_of.get(op.op_id)
        if read is None:
            continue
        found = [_known_input(op, r, executions) for r in read]
        if not any(t.dumped for t in op.inputs):
            edges.virtual[op.op_id] = tuple(found)
            continue
        for tensor in op.inputs:
            if tensor.index >= len(read) or (tensor.checked and not is_notable(tensor)):
                continue
            known = found[tensor.index]
            if known.producers or known.outside:
                edges.known[op.op_id, tensor.index] = known
            elif read[tensor.index].direct and is_notable(tensor):
                _note_seen(op, tensor, read[tensor.index], executions, edges)
    return edges


def _by_place(
    store: Store,
    scan_id: str,
    ops: Iterable[OpRecord],
    wanted: set[Place],
    dumped: Mapping[str, str],
) -> dict[Place, list[OpRecord]]:
    """The executions at the places wanted, in order; clean ones are fetched."""
    executions: dict[Place, dict[int, OpRecord]] = defaultdict(dict)
    parts = {part: op for op in ops for part in op.part_ids}
    own = {op.op_id: op for op in ops}
    names = {dumped[name] for _, _, name in wanted}
    for seen in (*ops, *store.ops(scan_id, names=names)) if names else ops:
        place = (lane_of(seen), seen.step, fold_name(seen.op_name))
        if place in wanted:
            op = parts.get(seen.op_id) or own.get(seen.op_id) or seen
            executions[place][op.op_id] = op
    return {place: sorted(found.values(), key=sequence_key) for place, found in executions.items()}


def _before(
    op: OpRecord, read: GraphInput, executions: Mapping[Place, Sequence[OpRecord]]
) -> list[OpRecord]:
    """The latest execution of the producer before `op`, of one that was split each thread's."""
    if read.producer is None:
        return []
    place = (lane_of(op), op.step, fold_name(read.producer))
    when = sequence_key(op)
    latest: dict[tuple[int | None, int | None], OpRecord] = {}
    for candidate in executions.get(place, ()):
        if sequence_key(candidate) < when:
            latest[candidate.context_id, candidate.thread_id] = candidate
    return sorted(
        latest.values(),
        key=lambda found: (found.thread_id == op.thread_id, sequence_key(found)),
        reverse=True,
    )


def _known_input(
    op: OpRecord, read: GraphInput, executions: Mapping[Place, Sequence[OpRecord]]
) -> KnownInput:
    producers = tuple(
        Producer(candidate, tensor, "graph")
        for candidate in _before(op, read, executions)
        for tensor in candidate.outputs
        if tensor.index == read.output_index and tensor.checked
    )
    return KnownInput(producers, outside=read.outside and not producers, source=read.source)


def _note_seen(
    op: OpRecord,
    tensor: TensorSummary,
    read: GraphInput,
    executions: Mapping[Place, Sequence[OpRecord]],
    edges: GraphEdges,
) -> None:
    """What `op` read is what its producer wrote, although that was not dumped there."""
    producers = _before(op, read, executions)
    if len(producers) == 1 and not is_rewritten(op, tensor):
        known = note_seen(edges.seen, producers[0], read.output_index, tensor, "graph")
        edges.known[op.op_id, tensor.index] = known


def note_seen(
    seen: SeenOutputs, producer: OpRecord, index: int, read: TensorSummary, evidence: Evidence
) -> KnownInput:
    """Add to `seen` output `index` of `producer` as the input `read` shows it."""
    output = replace(read, role="output", index=index, name=None)
    seen.setdefault(producer.op_id, (producer, {}))[1].setdefault(index, output)
    return KnownInput((Producer(producer, output, evidence),))


def merge_seen(first: SeenOutputs, second: SeenOutputs) -> SeenOutputs:
    """Put both together; where both show an output, as in the first."""
    merged = dict(first)
    for op_id, (producer, outputs) in second.items():
        merged[op_id] = (producer, {**outputs, **merged.get(op_id, (producer, {}))[1]})
    return merged
