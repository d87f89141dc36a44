"""What the judge is given: executions put together, and those that the hardware flagged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from dumpscope.causality.assembly import RawKey, assemble, part_key, raw_key
from dumpscope.causality.hardware import TaskKey, folder_of, task_key
from dumpscope.causality.inputs import is_notable
from dumpscope.model import FORM_RAW, OpRecord, OverflowRecord, TensorSummary
from dumpscope.ranks.communication import communication_kind
from dumpscope.ranks.exchanges import without_tensors
from dumpscope.records import record
from dumpscope.store import Store

__all__ = ["Material", "find_flagged", "gather"]


@record(frozen=True, slots=True)
class Material:
    """What the judge is given. `calls` are clean communication operators dumped in parts."""

    notable: tuple[OpRecord, ...]
    ops: int
    tensors_left_out: int
    unchecked_left_out: int
    calls: tuple[OpRecord, ...] = ()


def gather(store: Store, scan_id: str, records: int) -> Material:
    """Collect the executions that are not clean, those dumped in parts put together.

    `records` is how many the scan has: the parts of an execution one by one.
    """
    partial = store.count_partial(scan_id)
    whole = [op for op in store.notable_ops(scan_id, ordered=False) if not op.partial]
    ops = records - partial
    if not partial:
        return Material(tuple(whole), ops, 0, 0)
    raw = _raw_keys(store, scan_id)
    notable: list[OpRecord] = []
    calls: list[OpRecord] = []
    merged = tensors = unchecked = 0

    def counted(parts: Iterable[OpRecord]) -> Iterable[OpRecord]:
        nonlocal tensors, unchecked
        for part in parts:
            tensors += len(part.tensors)
            unchecked += sum(1 for t in part.tensors if _is_unchecked(t))
            yield part

    for op in assemble(counted(store.parts(scan_id)), raw):
        merged += 1
        tensors -= len(op.tensors)
        unchecked -= sum(1 for t in op.tensors if _is_unchecked(t))
        if any(is_notable(t) for t in op.tensors):
            notable.append(op)
        elif communication_kind(op.op_type) is not None:
            calls.append(without_tensors(op))
    return Material((*whole, *notable), ops + merged, tensors, unchecked, tuple(calls))


def _raw_keys(store: Store, scan_id: str) -> frozenset[RawKey]:
    """Keys of what was dumped raw and whole, where other forms are there as well."""
    if not store.has_other_forms(scan_id):
        return frozenset()
    keys = (
        raw_key(op)
        for op in store.ops(scan_id, light=True)
        if op.form == FORM_RAW and not op.partial
    )
    return frozenset(key for key in keys if key is not None)


def _is_unchecked(tensor: TensorSummary) -> bool:
    return tensor.unchecked is not None


def find_flagged(
    store: Store, scan_id: str, records: Iterable[OverflowRecord]
) -> dict[TaskKey, list[OpRecord]]:
    keys = {
        key
        for record in records
        for unit in record.units
        if not unit.empty and (key := task_key(record, unit)) is not None
    }
    found: dict[TaskKey, list[OpRecord]] = defaultdict(list)
    if keys:
        for op in store.ops_by_task(scan_id, {(task, stream) for _, task, stream in keys}):
            key = (folder_of(op.file), op.task_id or 0, op.stream_id or 0)
            if key in keys:
                found[key].append(op)
    return {key: _assemble_all(ops) for key, ops in found.items()}


def _assemble_all(ops: list[OpRecord]) -> list[OpRecord]:
    """Put together what lies in one folder; what was dumped raw as well is left out."""
    keys = {raw_key(op) for op in ops if op.form == FORM_RAW and not op.partial}
    raw = frozenset(key for key in keys if key is not None)
    return list(assemble(sorted(ops, key=part_key), raw))
