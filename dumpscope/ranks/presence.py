"""Which ranks a dump holds, and of which something could not be read."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from dumpscope.model import OpRecord, Place, ReadFailure
from dumpscope.naming import parse_name
from dumpscope.places import place_of
from dumpscope.records import record

if TYPE_CHECKING:
    from dumpscope.store import Store

__all__ = ["Presence", "find_presence", "present_ranks", "ranks_of"]

_MOST_GAPS = 16


@record(frozen=True, slots=True)
class Presence:
    """Which ranks are in the dump, whether their operators are clean or not.

    `numbers` are those of the ranks of a job, by the folder that counts them (a rank map counts
    over all hosts, device ids in each). `damaged` are ranks of which something could not be read,
    by job and step.
    """

    numbers: Mapping[str, Mapping[tuple[object, ...], frozenset[int]]] = field(default_factory=dict)
    damaged: Mapping[tuple[str, int | None], frozenset[int]] = field(default_factory=dict)

    def damaged_ranks(self, job: str, step: int | None) -> frozenset[int]:
        """Ranks of which something of a step could not be read; `None` stands for every step."""
        nothing: frozenset[int] = frozenset()
        return self.damaged.get((job, step), nothing) | self.damaged.get((job, None), nothing)

    def missing_from(self, job: str) -> list[int]:
        """The first gaps in the numbers of a job's ranks."""
        gaps: list[int] = []
        for found in self.numbers.get(job, {}).values():
            number = 0
            while len(gaps) < _MOST_GAPS and number < max(found, default=-1):
                if number not in found:
                    gaps.append(number)
                number += 1
        return gaps


def present_ranks(ops: Iterable[OpRecord], jobs: Mapping[str, str]) -> Presence:
    """Return what the operators alone tell of the ranks in the dump."""
    numbers: dict[str, dict[tuple[object, ...], set[int]]] = defaultdict(lambda: defaultdict(set))
    for op in ops:
        if op.device is not None:
            place = op.place
            run = place.run or ""
            counter = () if place.global_rank is not None else (place.source, place.host)
            numbers[jobs.get(run, run)][counter].add(op.device)
    return Presence(
        {job: {k: frozenset(v) for k, v in found.items()} for job, found in numbers.items()}
    )


def ranks_of(ops: Iterable[OpRecord]) -> tuple[int, ...]:
    """The numbers of the ranks that ran some operators, ascending."""
    return tuple(sorted({op.device for op in ops if op.device is not None}))


def find_presence(
    store: Store, scan_id: str, failures: Iterable[ReadFailure], jobs: Mapping[str, str]
) -> Presence:
    """Find which ranks a scan holds, and of which it could not read everything."""
    numbers: dict[str, dict[tuple[object, ...], set[int]]] = defaultdict(lambda: defaultdict(set))
    for place in store.places(scan_id):
        if place.device is not None:
            counter = () if place.global_rank is not None else (place.source, place.host)
            numbers[_job(place, jobs)][counter].add(place.device)
    damaged: dict[tuple[str, int | None], set[int]] = defaultdict(set)
    faulty = set()
    for file, place, _ in store.faulty_files(scan_id):
        faulty.add(file)
        # A file of one operator is missed by its name, see _lost_calls.
        if place.device is not None and parse_name(os.path.basename(file)) is None:
            damaged[_job(place, jobs), place.step].add(place.device)
    root = store.scan_info(scan_id).root
    for failure in failures:
        if failure.file not in faulty:
            # A folder that could not be looked into.
            place = place_of(os.path.join(root, failure.file), root=root)
            if place.device is not None:
                damaged[_job(place, jobs), place.step].add(place.device)
    return Presence(
        {job: {k: frozenset(v) for k, v in found.items()} for job, found in numbers.items()},
        {key: frozenset(found) for key, found in damaged.items()},
    )


def _job(place: Place, jobs: Mapping[str, str]) -> str:
    run = place.run or ""
    return jobs.get(run, run)
