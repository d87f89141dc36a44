"""Collects the edges of a scan: graph texts and device addresses, against what was dumped.

Addresses count only where they can be believed: where not one input meets an earlier output
although equal bytes link some, they were made up by whatever wrote the dump.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from dumpscope.addresses import AddressQuery, Writer, find_writers
from dumpscope.dataflow import (
    Dataflow,
    KnownInput,
    Lane,
    Producer,
    VirtualInputs,
    lane_of,
    sequence_key,
)
from dumpscope.graphs import GraphIndex, GraphInput, fold_name
from dumpscope.inputs import is_saturated
from dumpscope.model import OpRecord, TensorSummary
from dumpscope.store import Store

__all__ = ["connect"]

_Place = tuple[Lane, "int | None", str]


def connect(store: Store, scan_id: str, ops: Sequence[OpRecord]) -> Dataflow:
    """Build the dataflow among `ops` with everything that the scan holds about edges."""
    known = _address_edges(store, scan_id, ops)
    virtual: dict[int, VirtualInputs] = {}
    graph = GraphIndex(store.graph_nodes(scan_id))
    if graph:
        _add_graph_edges(store, scan_id, ops, graph, known, virtual)
    return Dataflow(ops, known, virtual)


def _is_followed(tensor: TensorSummary) -> bool:
    return tensor.stats.nonfinite > 0 or is_saturated(tensor)


# --- addresses --------------------------------------------------------------------------------


def _address_edges(
    store: Store, scan_id: str, ops: Sequence[OpRecord]
) -> dict[tuple[int, int], KnownInput]:
    queries = [
        AddressQuery(op.op_id, t.index, t.address, t.size_bytes)
        for op in ops
        for t in op.inputs
        if t.address and t.dumped and _is_followed(t)
    ]
    if not queries:
        return {}
    asked = {query.op_id for query in queries}
    writers = find_writers(queries, store.output_addresses(scan_id, marked=asked))
    by_id = {op.op_id: op for op in ops}
    believed = _believed_runs(by_id, writers, Dataflow(ops))
    owners = _owners(store, scan_id, ops, writers)
    known = {}
    for (op_id, index), found in writers.items():
        if _run_of(by_id[op_id]) not in believed:
            continue
        producers = [
            Producer(owner, tensor, "address")
            for writer in found
            if (owner := owners.get(writer.op_id)) is not None
            and (tensor := _output(owner, writer.index)) is not None
        ]
        known[op_id, index] = KnownInput(tuple(producers), outside=not found)
    return known


def _run_of(op: OpRecord) -> tuple[int, str]:
    return (op.place.source, op.place.run or "")


def _believed_runs(
    by_id: Mapping[int, OpRecord],
    writers: Mapping[tuple[int, int], list[Writer]],
    bytes_only: Dataflow,
) -> set[tuple[int, str]]:
    """Runs in which addresses link inputs to outputs, or nothing speaks against them."""
    linked: Counter[tuple[int, str]] = Counter()
    denied: Counter[tuple[int, str]] = Counter()
    runs = set()
    for (op_id, index), found in writers.items():
        op = by_id[op_id]
        run = _run_of(op)
        runs.add(run)
        if found:
            linked[run] += 1
            continue
        tensor = next(t for t in op.inputs if t.index == index)
        if bytes_only.producer_of(op, tensor) is not None:
            denied[run] += 1
    return {run for run in runs if linked[run] or not denied[run]}


def _owners(
    store: Store,
    scan_id: str,
    ops: Iterable[OpRecord],
    writers: Mapping[tuple[int, int], list[Writer]],
) -> dict[int, OpRecord]:
    """The executions of all writers by number; clean ones are fetched."""
    owners: dict[int, OpRecord] = {}
    for op in ops:
        owners[op.op_id] = op
        owners.update((part, op) for part in op.part_ids)
    wanted = {w.op_id for found in writers.values() for w in found} - owners.keys()
    if wanted:
        owners.update((op.op_id, op) for op in store.ops(scan_id, op_ids=wanted))
    return owners


def _output(op: OpRecord, index: int) -> TensorSummary | None:
    return next((t for t in op.outputs if t.index == index), None)


# --- graphs -----------------------------------------------------------------------------------


def _add_graph_edges(
    store: Store,
    scan_id: str,
    ops: Sequence[OpRecord],
    graph: GraphIndex,
    known: dict[tuple[int, int], KnownInput],
    virtual: dict[int, VirtualInputs],
) -> None:
    """Let what the graphs say take the place of weaker evidence."""
    dumped = {fold_name(op.op_name): op.op_name for op in store.ops(scan_id, light=True)}
    inputs_of: dict[int, list[GraphInput]] = {}
    wanted: set[str] = set()
    for op in ops:
        read = graph.inputs_of(op.op_name, dumped)
        if read is not None:
            inputs_of[op.op_id] = read
            wanted |= {dumped[fold_name(r.producer)] for r in read if r.producer is not None}
    executions = _by_place(store, scan_id, ops, wanted)
    for op in ops:
        read = inputs_of.get(op.op_id)
        if read is None:
            continue
        found = [_find_producer(op, r, executions) for r in read]
        if not any(t.dumped for t in op.inputs):
            virtual[op.op_id] = VirtualInputs(
                tuple(p for p in found if p is not None),
                complete=all(p is not None for p in found),
            )
            continue
        for tensor in op.inputs:
            if tensor.index >= len(read) or not _is_followed(tensor):
                continue
            producer = found[tensor.index]
            if producer is not None:
                known[op.op_id, tensor.index] = KnownInput((producer,))
            elif read[tensor.index].outside:
                known.setdefault((op.op_id, tensor.index), KnownInput(outside=True))


def _by_place(
    store: Store, scan_id: str, ops: Iterable[OpRecord], names: Iterable[str]
) -> dict[_Place, list[OpRecord]]:
    """Executions by rank, step and folded name, in order; clean ones are fetched."""
    executions: dict[_Place, dict[int, OpRecord]] = defaultdict(dict)
    parts = {part: op for op in ops for part in op.part_ids}
    own = {op.op_id: op for op in ops}
    fetched = store.ops(scan_id, names=set(names))
    for record in [*ops, *fetched]:
        op = parts.get(record.op_id) or own.get(record.op_id) or record
        executions[lane_of(op), op.step, fold_name(op.op_name)][op.op_id] = op
    return {place: sorted(found.values(), key=sequence_key) for place, found in executions.items()}


def _find_producer(
    op: OpRecord, read: GraphInput, executions: Mapping[_Place, Sequence[OpRecord]]
) -> Producer | None:
    """The latest execution of the producer before `op`, in the same step of the same rank."""
    if read.producer is None:
        return None
    place = (lane_of(op), op.step, fold_name(read.producer))
    when = sequence_key(op)
    for candidate in reversed(executions.get(place, ())):
        if sequence_key(candidate) < when:
            tensor = _output(candidate, read.output_index)
            return None if tensor is None else Producer(candidate, tensor, "graph")
    return None
