"""The communication operators of a scan that matter to what went wrong, and the ranks it holds.

Verdicts need the clean members of an exchange too: a rank whose inputs were finite must be known as
present. They are fetched in two steps, so that a dump with many of them stays cheap: all of them
without their tensors, and everything of those that met one which is not clean.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import nlargest
from itertools import chain
from operator import itemgetter

from dumpscope.causality.assembly import assemble, part_key
from dumpscope.causality.dataflow import Lane, lane_of, sequence_key
from dumpscope.causality.losses import lost_call
from dumpscope.model import OpRecord
from dumpscope.naming import parse_name
from dumpscope.ranks.communication import communication_kind
from dumpscope.ranks.rendezvous import Family, group_calls, is_exact, match_calls
from dumpscope.ranks.silent import brings_values
from dumpscope.store import Selection, Store

__all__ = ["find_behind_silent_calls", "gather_calls"]

_MOST_LOOKED_AT = 8
_MOST_KEPT = 64


def gather_calls(
    store: Store,
    scan_id: str,
    notable: Iterable[OpRecord],
    split_calls: Iterable[OpRecord],
    jobs: Mapping[str, str],
    op_types: Iterable[str],
) -> tuple[OpRecord, ...]:
    """Collect the other calls of what the communication operators among `notable` are part of.

    Parameters
    ----------
    notable
        The operators that are not clean.
    split_calls
        Clean communication operators that were dumped in several files, as mere calls.
    jobs
        Run -> job.
    op_types
        All types of operators in the scan.

    Returns
    -------
    tuple
        Calls that met a notable one with their tensors, others of the same operators without, and
        calls of which the dump holds only a file that cannot be read.
    """
    judged = {op.op_id: op for op in notable if communication_kind(op.op_type) is not None}
    if not judged:
        return ()
    parts = {part for op in judged.values() for part in op.part_ids}
    types = [op_type for op_type in op_types if communication_kind(op_type) is not None]
    calls = list(judged.values())
    calls += [op for op in split_calls if op.op_id not in judged]
    calls += [
        op
        for op in store.ops(scan_id, op_types=types, light=True)
        if not op.partial and op.op_id not in judged and op.op_id not in parts
    ]
    calls += _lost_calls(store, scan_id)
    kept, wanted = _choose_collectives(calls, judged.keys(), jobs)
    messages = _choose_messages(calls, judged.keys(), jobs)
    others = (op for op in (*wanted, *messages) if op.op_id not in judged)
    whole = _fetch(store, scan_id, others)
    return tuple(whole.get(op.op_id, op) for op in [*kept, *messages] if op.op_id not in judged)


def _choose_collectives(
    calls: Sequence[OpRecord], marked: Collection[int], jobs: Mapping[str, str]
) -> tuple[list[OpRecord], list[OpRecord]]:
    """Return the calls that tell who takes part, and those of them whose tensors are needed."""
    families = group_calls(calls, jobs)
    concerned = {
        replace(family, step=None)
        for family, lanes in families.items()
        if any(op.op_id in marked for found in lanes.values() for op in found)
    }
    kept: list[OpRecord] = []
    wanted: list[OpRecord] = []
    for family, lanes in families.items():
        if replace(family, step=None) in concerned:
            kept += [op for found in lanes.values() for op in found]
            wanted += _meeting_calls(family, lanes, marked)
    return kept, wanted


def _meeting_calls(
    family: Family, lanes: Mapping[Lane, Sequence[OpRecord]], marked: Collection[int]
) -> Iterator[OpRecord]:
    """Yield the calls of a family that may have met one that is marked."""
    calls = [op for found in lanes.values() for op in found]
    if not any(op.op_id in marked for op in calls):
        return
    if not is_exact(lanes):
        # Then sizes have a say in who met whom.
        yield from calls
        return
    for meeting in match_calls(family, lanes):
        if any(op.op_id in marked for op in meeting.calls):
            yield from meeting.calls


def _choose_messages(
    calls: Iterable[OpRecord], marked: Collection[int], jobs: Mapping[str, str]
) -> list[OpRecord]:
    """Return the messages of every step in which one is marked."""
    by_step: dict[tuple[str, int | None], list[OpRecord]] = defaultdict(list)
    concerned = set()
    for op in calls:
        kind = communication_kind(op.op_type)
        if kind in ("send", "recv"):
            run = op.place.run or ""
            key = (jobs.get(run, run), op.step)
            by_step[key].append(op)
            if op.op_id in marked:
                concerned.add(key)
    return [op for key in concerned for op in by_step[key]]


def _fetch(store: Store, scan_id: str, calls: Iterable[OpRecord]) -> dict[int, OpRecord]:
    """Fetch calls with their tensors, by number; parts are put together again."""
    wanted = {part for op in calls for part in op.part_ids or (op.op_id,) if op.op_id >= 0}
    if not wanted:
        return {}
    fetched = list(store.ops(scan_id, op_ids=wanted))
    whole = [op for op in fetched if not op.partial]
    split = sorted((op for op in fetched if op.partial), key=lambda op: repr(part_key(op)))
    return {op.op_id: op for op in (*whole, *assemble(split))}


# --- exchanges without results -----------------------------------------------------------------


def find_behind_silent_calls(
    store: Store,
    scan_id: str,
    ops: Sequence[OpRecord],
    split_calls: Iterable[OpRecord],
    op_types: Iterable[str],
) -> frozenset[int]:
    """Find those of `ops` before which their rank exchanged values that were not dumped.

    In the same step; `ops` are few, one of a rank. Of each the latest exchanges are looked at.
    """
    types = [t for t in op_types if communication_kind(t) not in (None, "send", "barrier")]
    if not ops or not types:
        return frozenset()
    steps = {op.step for op in ops}
    asked = Selection(steps=tuple(s for s in steps if s is not None) if None not in steps else ())
    sought = {(lane_of(op), op.step): (sequence_key(op), op.op_id) for op in ops}
    whole = store.ops(scan_id, selection=asked, op_types=types, light=True)
    calls: dict[int, list[tuple[tuple[object, ...], OpRecord]]] = defaultdict(list)
    for call in chain(split_calls, (op for op in whole if not op.partial)):
        end, op_id = sought.get((lane_of(call), call.step), (None, -1))
        if end is not None and (place := sequence_key(call)) < end:
            found = calls[op_id]
            found.append((place, call))
            if len(found) > _MOST_KEPT:
                found[:] = nlargest(_MOST_LOOKED_AT, found, key=itemgetter(0))
    latest = {
        op_id: [call for _, call in nlargest(_MOST_LOOKED_AT, found, key=itemgetter(0))]
        for op_id, found in calls.items()
    }
    fetched = _fetch(store, scan_id, chain.from_iterable(latest.values()))
    return frozenset(
        op_id
        for op_id, found in latest.items()
        if any(brings_values(fetched[call.op_id]) for call in found if call.op_id in fetched)
    )


def _lost_calls(store: Store, scan_id: str) -> Iterator[OpRecord]:
    """Yield the communication operators whose files gave nothing, as calls without tensors."""
    for number, (file, place, ops) in enumerate(store.faulty_files(scan_id), start=1):
        name = parse_name(os.path.basename(file))
        if ops or name is None or communication_kind(name.op_type) is None:
            continue
        yield lost_call(file, place, name, -number)
