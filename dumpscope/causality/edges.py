"""Collects the edges of a scan: graph texts, device addresses, and twins of backward."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from dumpscope.causality.address_edges import AddressMap, AddressQuery, Run, Writer
from dumpscope.causality.ancestry import CleanPaths
from dumpscope.causality.dataflow import Ancestors, Dataflow, KnownInput, Producer, lane_of
from dumpscope.causality.graph_edges import SeenOutputs, find_graph_edges, merge_seen, note_seen
from dumpscope.causality.graphs import GraphIndex
from dumpscope.causality.inputs import is_notable, is_rewritten
from dumpscope.causality.optypes import is_source
from dumpscope.model import OpRecord, TensorSummary
from dumpscope.msprobe_names import forward_twin, module_backward
from dumpscope.store import Store

__all__ = ["connect"]

_HANDED_IN = -1
"""Outputs of sources are asked for as if they were inputs with indices from here downwards."""


def connect(store: Store, scan_id: str, ops: Sequence[OpRecord]) -> Dataflow:
    """Build the dataflow among `ops` with everything that the scan holds about edges.

    An execution whose output was not dumped but can be seen at whoever read it joins `ops`
    (`Dataflow.ops`), with that output.
    """
    twins = _find_twins(store, scan_id, ops)
    flow = Dataflow(ops, twins=twins)
    by_address = _AddressEdges(store, scan_id, flow)
    graph = GraphIndex(store.graph_nodes(scan_id))
    known = by_address.known
    virtual = by_address.virtual
    seen = by_address.seen
    if graph:
        by_graph = find_graph_edges(store, scan_id, ops, graph)
        known = _let_graph_win(by_graph.known, by_address.known)
        virtual = {**by_graph.virtual, **by_address.virtual}
        seen = merge_seen(by_graph.seen, by_address.seen)
    if seen:
        flow = Dataflow(_with_seen_outputs(ops, seen), twins=twins)
    flow.learn(known, virtual)

    def through_clean(sources: Sequence[OpRecord]) -> Ancestors:
        return CleanPaths(
            flow.parents_of, flow.ops, by_address.map, by_address.believed, graph, sources
        )

    flow.through_clean = through_clean
    return flow


def _let_graph_win(
    by_graph: Mapping[tuple[int, int], KnownInput], by_address: Mapping[tuple[int, int], KnownInput]
) -> dict[tuple[int, int], KnownInput]:
    """Put both kinds of evidence together: graphs are stronger, and contradictions are kept."""
    known = dict(by_address)
    for key, stronger in by_graph.items():
        weaker = known.get(key)
        if stronger.outside and weaker is not None and weaker.producers:
            # A graph speaks of one step: what comes in from outside may be what the step before
            # left in memory.
            known[key] = replace(weaker, source=stronger.source)
            continue
        if weaker is not None and weaker.producers:
            said = {p.op.op_id for p in stronger.producers}
            other = next((p.op for p in weaker.producers if p.op.op_id not in said), None)
            agrees = any(p.op.op_id in said for p in weaker.producers)
            if not agrees:
                known[key] = replace(stronger, against=other)
                continue
        known[key] = stronger
    return known


def _with_seen_outputs(ops: Sequence[OpRecord], shown: SeenOutputs) -> list[OpRecord]:
    """Give executions the outputs that only their consumers show."""
    seen = dict(shown)
    judged = []
    for op in ops:
        found = seen.pop(op.op_id, None)
        judged.append(op if found is None else _with_outputs(op, found[1]))
    return judged + [_with_outputs(op, outputs) for op, outputs in seen.values()]


def _with_outputs(op: OpRecord, outputs: Mapping[int, TensorSummary]) -> OpRecord:
    seen = [replace(t, notes=(*t.notes, "seen_at_consumer")) for t in outputs.values()]
    return replace(op, tensors=(*op.tensors, *seen))


def _find_twins(
    store: Store, scan_id: str, ops: Sequence[OpRecord]
) -> dict[int, tuple[OpRecord, ...]]:
    """What backward executions had saved of others, by op_id; clean ones are fetched."""
    names = {
        op.op_id: [name for name in (forward_twin(op.op_name), module_backward(op.op_name)) if name]
        for op in ops
        if ".backward" in op.op_name or ".parameters_grad" in op.op_name
    }
    wanted = set(chain.from_iterable(names.values()))
    if not wanted:
        return {}
    found = {}
    own = {op.op_id: op for op in ops}
    for record in store.ops(scan_id, names=wanted):
        op = own.get(record.op_id, record)
        found[lane_of(op), op.step, op.op_name] = op
    twins = {}
    for op_id, some in names.items():
        op = own[op_id]
        places = [(lane_of(op), op.step, name) for name in some]
        twins[op_id] = tuple(found[place] for place in places if place in found)
    return twins


# --- addresses --------------------------------------------------------------------------------


class _AddressEdges:
    """What device addresses say of the inputs of `ops` that are not clean or not readable."""

    def __init__(self, store: Store, scan_id: str, flow: Dataflow) -> None:
        ops = flow.ops
        self.known: dict[tuple[int, int], KnownInput] = {}
        self.map: AddressMap | None = None
        self.believed: set[Run] = set()
        self.virtual: dict[int, tuple[KnownInput, ...]] = {}
        self.seen: SeenOutputs = {}
        queries = [
            AddressQuery(op.op_id, t.index, t.address, t.size_bytes)
            for op in ops
            for t in op.tensors
            if t.role == "input" and t.address and (not t.checked or is_notable(t))
        ]
        # What only hands in a value wrote nothing: the writer of its memory is sought.
        queries += [
            AddressQuery(op.op_id, _HANDED_IN - t.index, t.address, t.size_bytes)
            for op in ops
            if not op.inputs and is_source(op.op_type)
            for t in op.outputs
            if t.address and is_notable(t)
        ]
        if not queries:
            return
        self.map = AddressMap(store.memory(scan_id))
        writers = self.map.find_writers(queries)
        by_id = {op.op_id: op for op in ops}
        self.believed = _believed_runs(self.map, writers, by_id, flow)
        # What was recorded after it was overwritten, or could not be read, may have been read
        # before by somebody else.
        unseen = [
            query
            for query in queries
            if not writers.get((query.op_id, query.index), [None])
            and query.index > _HANDED_IN
            and _is_unseen(by_id[query.op_id], query.index)
        ]
        readers = self.map.find_readers(unseen)
        wanted = {w.op_id for found in writers.values() for w in found}
        wanted |= {reader for reader, _ in readers.values()}
        owners = _owners(store, scan_id, ops, wanted)
        for (op_id, index), found in writers.items():
            if lane_of(by_id[op_id])[:2] not in self.believed:
                continue
            producers = [
                Producer(owner, tensor, "address")
                for writer in found
                if (owner := owners.get(writer.op_id)) is not None
                for tensor in owner.tensors
                if tensor.index == writer.index and tensor.role == "output"
            ]
            known = KnownInput(tuple(producers), outside=not found)
            if index > _HANDED_IN:
                reader = readers.get((op_id, index))
                if reader is not None and reader[0] in owners:
                    read = (t for t in owners[reader[0]].inputs if t.index == reader[1])
                    known = replace(known, witness=next(read, None))
                if len(found) == len(producers) == 1:
                    known = self._look_at_reader(by_id[op_id], index, known)
                self.known[op_id, index] = known
            elif any(p.tensor.stats.nonfinite for p in producers):
                self.virtual[op_id] = (*self.virtual.get(op_id, ()), known)

    def _look_at_reader(self, op: OpRecord, index: int, known: KnownInput) -> KnownInput:
        """What only the file of a producer has lost is seen at whoever read all of it."""
        made = known.producers[0]
        read = next(t for t in op.inputs if t.index == index)
        unread = not made.tensor.checked or made.tensor.missing_bytes
        if (
            not unread
            or is_notable(made.tensor)
            or not is_notable(read)
            or is_rewritten(op, read)
            or (read.address, read.dtype, read.layout, read.shape)
            != (made.tensor.address, made.tensor.dtype, made.tensor.layout, made.tensor.shape)
        ):
            return known
        return note_seen(self.seen, made.op, made.tensor.index, read, "address")


def _believed_runs(
    addresses: AddressMap,
    writers: Mapping[tuple[int, int], list[Writer]],
    by_id: Mapping[int, OpRecord],
    flow: Dataflow,
) -> set[Run]:
    """Runs in which equal contents say at least as often that addresses are right as not.

    Beside the contents that the map compares, the bytes of tensors that are not clean count.
    """
    yes: dict[Run, int] = defaultdict(int)
    no: dict[Run, int] = defaultdict(int)
    for (op_id, index), found in writers.items():
        op = by_id[op_id]
        for tensor in op.tensors:
            if tensor.index == index and tensor.role == "input":
                break
        else:
            continue
        same = flow.producers_of(op, tensor)
        if same:
            made = same[0].op
            ids = made.part_ids or (made.op_id,)
            agrees = any(writer.op_id in ids for writer in found)
            (yes if agrees else no)[lane_of(op)[:2]] += 1
    believed = set()
    for run in addresses.runs():
        right, wrong = addresses.votes_of(run)
        if yes[run] + right >= no[run] + wrong:
            believed.add(run)
    return believed


def _is_unseen(op: OpRecord, index: int) -> bool:
    """Whether an input was not recorded as it was read."""
    tensor = next((t for t in op.inputs if t.index == index), None)
    return tensor is not None and (not tensor.checked or is_rewritten(op, tensor))


def _owners(
    store: Store,
    scan_id: str,
    ops: Iterable[OpRecord],
    wanted: set[int],
) -> dict[int, OpRecord]:
    """The executions wanted, by number; clean ones are fetched."""
    owners: dict[int, OpRecord] = {}
    for op in ops:
        owners[op.op_id] = op
        owners.update((part, op) for part in op.part_ids)
    missing = wanted - owners.keys()
    if missing:
        owners.update((op.op_id, op) for op in store.ops(scan_id, op_ids=missing))
    return owners
