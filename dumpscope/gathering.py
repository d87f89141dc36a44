"""What is given to the judge, executions put together, and what comes back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from dumpscope.causality.assembly import RawKey, assemble, part_key, raw_key
from dumpscope.causality.hardware import Flag, TaskKey, folder_of, task_key
from dumpscope.causality.inputs import is_notable
from dumpscope.model import (
    FORM_RAW,
    Finding,
    Mode,
    OpRecord,
    OverflowRecord,
    RankSummary,
    TensorSummary,
)
from dumpscope.ranks.communication import communication_kind
from dumpscope.records import record
from dumpscope.store import Store

__all__ = ["Judged", "Material", "Suspects", "find_flagged", "gather"]


@record(frozen=True, slots=True)
class Material:
    """What a scan holds. `calls` are clean communication operators dumped in parts."""

    notable: tuple[OpRecord, ...]
    ops: int
    tensors_left_out: int
    unchecked_left_out: int
    calls: tuple[OpRecord, ...] = ()


@record(frozen=True, slots=True)
class Suspects:
    """What has to be judged.

    Attributes
    ----------
    ops
        Executions that are not clean, or that the hardware flagged.
    calls
        Clean communication operators that were dumped in parts, as mere calls.
    flags, orphans
        What the hardware says of executions, by number, and of some that were not dumped.
    unread
        Tensors whose values are not known, with their executions.
    """

    ops: tuple[OpRecord, ...]
    calls: tuple[OpRecord, ...]
    flags: Mapping[int, list[Flag]]
    orphans: tuple[Flag, ...]
    unread: Sequence[tuple[OpRecord, TensorSummary]]


@record(frozen=True, slots=True)
class Judged:
    """What comes back: findings in ranking order, values that are expected, and all ranks."""

    mode: Mode = Mode("unknown")
    findings: tuple[Finding, ...] = ()
    expected: tuple[Finding, ...] = ()
    ranks: tuple[RankSummary, ...] = ()


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
            calls.append(_as_mere_call(op))
    return Material((*whole, *notable), ops + merged, tensors, unchecked, tuple(calls))


def _as_mere_call(op: OpRecord) -> OpRecord:
    """The same execution without tensors, to be fetched again where they matter."""
    return replace(op, tensors=(), part_ids=op.part_ids or (op.op_id,))


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
