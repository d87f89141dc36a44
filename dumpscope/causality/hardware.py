"""Overflow records of the hardware, joined to the operators that they speak of.

A record's file name carries the ids of the debug task; the offender's are in its payload. Per
unit the operator is sought in the same folder by (task, stream) and, where the payload knows
them, (context, thread); of several the latest that started before the record was written.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

from dumpscope.model import OpRecord, OverflowFinding, OverflowRecord, OverflowUnit
from dumpscope.overflow import describe_status
from dumpscope.records import record
from dumpscope.regexes import regex

__all__ = [
    "Flag",
    "TaskKey",
    "describe_flags",
    "distinct_records",
    "folder_of",
    "join_overflow",
    "task_key",
]

_PARSED = regex(r"(.+?)(?:\.output\.[0-9]{1,5})?\.json", re.DOTALL)

TaskKey = tuple[str, int, int]
"""(folder, task id, stream id)."""


@record(frozen=True, slots=True)
class Flag:
    """One unit of a record whose status is not zero."""

    record: OverflowRecord
    unit: OverflowUnit


def folder_of(file: str) -> str:
    """The folder of a path relative to the root."""
    return file.rpartition("/")[0]


def task_key(record: OverflowRecord, unit: OverflowUnit) -> TaskKey | None:
    """Where to look for the operator of `unit`, `None` when its ids are not known."""
    if unit.task_id is None or unit.stream_id is None:
        return None
    return (folder_of(record.file), unit.task_id, unit.stream_id)


def distinct_records(records: Iterable[OverflowRecord]) -> tuple[OverflowRecord, ...]:
    """Leave out the parsed form of records whose raw form is there too.

    The parsed form of a file is called `{file}.output.0.json`, and may lie in another folder.
    """
    kept = tuple(records)
    raw: dict[tuple[int, str], set[int | None]] = {}
    for status in kept:
        if _parsed_from(status.file) is None:
            key = (status.place.source, status.file.rpartition("/")[2].lower())
            raw.setdefault(key, set()).add(status.place.device)

    def repeats(record: OverflowRecord) -> bool:
        origin = _parsed_from(record.file)
        devices = raw.get((record.place.source, origin)) if origin is not None else None
        device = record.place.device
        return devices is not None and (device is None or device in devices)

    return tuple(status for status in kept if not repeats(status))


def _parsed_from(file: str) -> str | None:
    """The name of the raw file that a parsed record was made of, `None` for any other file."""
    name = file.rpartition("/")[2].lower()
    match = _PARSED.fullmatch(name)
    return None if match is None else match[1]


def join_overflow(
    records: Iterable[OverflowRecord], candidates: Mapping[TaskKey, list[OpRecord]]
) -> tuple[dict[int, list[Flag]], list[Flag]]:
    """Find the operator of every unit that overflowed.

    Returns the flags by the operator's `op_id`, and those whose operator was not dumped.
    Records of an unknown kind are nobody's.
    """
    joined: dict[int, list[Flag]] = defaultdict(list)
    orphans: list[Flag] = []
    for status in records:
        if not status.known_kind:
            continue
        for unit in status.units:
            if unit.empty:
                continue
            flag = Flag(status, unit)
            key = task_key(status, unit)
            op = _best(status, unit, candidates.get(key, []) if key else [])
            if op is None:
                orphans.append(flag)
            else:
                joined[op.op_id].append(flag)
    return dict(joined), orphans


def _best(record: OverflowRecord, unit: OverflowUnit, ops: list[OpRecord]) -> OpRecord | None:
    fitting = [
        op
        for op in ops
        if (unit.context_id is None or op.context_id is None or op.context_id == unit.context_id)
        and (unit.thread_id is None or op.thread_id is None or op.thread_id == unit.thread_id)
    ]
    if not fitting:
        return None
    when = record.start_ns
    before = [op for op in fitting if when is None or op.start_ns is None or op.start_ns <= when]
    # All of them later than the record: clocks of two writers; the nearest is the earliest.
    if not before:
        return min(fitting, key=lambda op: (op.start_ns or 0, op.file))
    return max(before, key=lambda op: (op.start_ns or 0, op.file))


def describe_flags(flags: list[Flag], *, confirmed: bool) -> OverflowFinding:
    """What the hardware said of one operator: the first flag leads, the others go along."""
    flags = sorted(flags, key=lambda flag: (flag.record.start_ns or 0, flag.record.file))
    first = flags[0]
    others = tuple(flag.unit for flag in flags[1:])
    return OverflowFinding(
        kind=first.unit.kind,
        status=first.unit.status,
        bits=tuple(describe_status(first.unit.kind, first.unit.status)),
        confirmed=confirmed,
        file=first.record.file,
        others=others,
    )
