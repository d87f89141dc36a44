"""Executions that were dumped in several files, put together again.

Communication operators write their inputs and outputs as two files, converted dumps and
MindSpore write one file per tensor, and a tree may hold the same execution twice, raw and
converted or with statistics. One execution is reported once, by its best form.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import field, replace
from itertools import groupby

from dumpscope.causality.graphs import fold_name
from dumpscope.model import FORM_RAW, FORM_STATISTICS, OpRecord, Role, TensorSummary
from dumpscope.records import record

__all__ = ["PartKey", "RawKey", "assemble", "part_key", "raw_key"]

RawKey = tuple[int, str, str, int, int, int]
"""What a raw dump and its converted files share: source, type, name, task, stream, timestamp."""

PartKey = tuple[int, str, str, int, int, int, str, int, str, str, int, int, int, int]
"""What the parts of an execution share; where a number is missing stands -1, so keys have order."""

_Slot = tuple[Role, int]


def raw_key(op: OpRecord) -> RawKey | None:
    """The identity of one execution whatever folder it lies in; `None` without a timestamp."""
    if op.timestamp is None:
        return None
    return (
        op.place.source, op.op_type, fold_name(op.op_name), _number(op.task_id),
        _number(op.stream_id), op.timestamp,
    )  # fmt: skip


def part_key(op: OpRecord) -> PartKey:
    """What all parts of an execution, and its repetitions, have in common."""
    place = op.place
    return (
        place.source, place.run or "", place.host or "", _number(place.process), _number(op.step),
        _number(op.device),
        place.model_name or "", _number(place.model_id), op.op_type, fold_name(op.op_name),
        _number(op.task_id), _number(op.stream_id), _number(op.context_id),
        _number(op.thread_id),
    )  # fmt: skip


def assemble(parts: Iterable[OpRecord], raw: Container[RawKey] = ()) -> Iterator[OpRecord]:
    """Put parts together into executions.

    Parameters
    ----------
    parts
        Records of which each may be a part, those with the same `part_key` next to each other.
    raw
        Keys of executions that were dumped raw and whole: other forms of them are left out.
    """
    for _, group in groupby(parts, key=part_key):
        members = [op for op in group if op.form == FORM_RAW or raw_key(op) not in raw]
        yield from _assemble_group(members)


@record(frozen=False, slots=True)
class _Execution:
    parts: list[OpRecord] = field(default_factory=list)
    tensors: dict[_Slot, tuple[TensorSummary, OpRecord]] = field(default_factory=dict)

    def holds(self, part: OpRecord) -> bool:
        return any((t.role, t.index) in self.tensors for t in part.tensors)

    def repeats(self, part: OpRecord) -> bool:
        """Whether a part is there already, in another form: the same tensors of one moment."""
        if part.timestamp is None or not part.tensors:
            return False
        held = [self.tensors.get((t.role, t.index)) for t in part.tensors]
        return all(
            found is not None
            and found[1].timestamp == part.timestamp
            and found[1].file != part.file
            for found in held
        )

    def improve(self, part: OpRecord) -> None:
        """Take from a part what is lacking, or could not be checked where it was."""
        for tensor in part.tensors:
            held = self.tensors.setdefault((tensor.role, tensor.index), (tensor, part))[0]
            if tensor.unchecked is None and held.unchecked is not None:
                self.tensors[tensor.role, tensor.index] = (tensor, part)

    def add(self, part: OpRecord) -> None:
        self.parts.append(part)
        self.improve(part)


def _assemble_group(members: Sequence[OpRecord]) -> Iterator[OpRecord]:
    executions: list[_Execution] = []
    for part in sorted(members, key=_part_order):
        if part.form == FORM_STATISTICS and _fill_in(part, executions):
            continue
        if executions and executions[-1].repeats(part):
            executions[-1].improve(part)
            continue
        if not executions or executions[-1].holds(part):
            executions.append(_Execution())
        executions[-1].add(part)
    for execution in executions:
        yield _merged(execution)


def _fill_in(part: OpRecord, executions: Sequence[_Execution]) -> bool:
    """Give statistics to the execution whose values are there: they add what it lacks."""
    for execution in executions:
        better = [p for p in execution.parts if p.form < FORM_STATISTICS]
        if better and any(p.timestamp == part.timestamp for p in better):
            execution.add(part)
            return True
    lacking = [e for e in executions if e.parts[0].form < FORM_STATISTICS and not e.holds(part)]
    if lacking:
        lacking[0].add(part)
        return True
    return False


def _merged(execution: _Execution) -> OpRecord:
    parts = execution.parts
    first = parts[0]
    if len(parts) == 1 and all(part is first for _, part in execution.tensors.values()):
        return first
    slots = sorted(execution.tensors)
    tensors = tuple(execution.tensors[slot][0] for slot in slots)
    # The file to open first: the one that holds a bad output, else a bad input, else the first.
    file = first.file
    for slot in reversed(slots):
        tensor, part = execution.tensors[slot]
        if tensor.stats.nonfinite or tensor.stats.saturated:
            file = part.file
            if tensor.role == "output":
                break
    started = [p.start_ns for p in parts if p.start_ns is not None]
    return replace(
        first,
        tensors=tensors,
        file=file,
        start_ns=min(started) if started else None,
        timestamp=next((p.timestamp for p in parts if p.file == file), first.timestamp),
        order=min(p.order for p in parts),
        partial=False,
        part_ids=tuple(p.op_id for p in parts),
        attributes=next((p.attributes for p in parts if p.attributes), ()),
        stack=next((p.stack for p in parts if p.stack), ()),
    )


def _part_order(op: OpRecord) -> tuple[int, int, int, str, int]:
    return (op.form, -1 if op.start_ns is None else op.start_ns, op.order, op.file, op.op_id)


def _number(value: int | None) -> int:
    return -1 if value is None else value
