"""Which calls of communication operators, on different ranks, are one exchange.

Clocks of ranks are not comparable, so only names, order and sizes count. Calls of one family (same
job, step, type, and name without its numbers) are matched by

1. name and occurrence, where every rank's names are among those of the rank with the most calls:
   what a rank then lacks in the middle was lost from the dump;
2. order, where ranks made equally many calls under names that differ in their numbers;
3. name alone, otherwise.

Calls whose sizes contradict each other are kept apart.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod

from dumpscope.causality.dataflow import Lane, lane_of, sequence_key
from dumpscope.causality.graphs import fold_name
from dumpscope.model import OpRecord, TensorSummary
from dumpscope.ranks.communication import (
    communication_kind,
    family_name,
    group_token,
)
from dumpscope.records import record

__all__ = ["Family", "Meeting", "count_elements", "group_calls", "is_exact", "match_calls"]

_CHECKED_SIZES = frozenset({"all_reduce", "all_gather", "broadcast", "reduce", "reduce_scatter"})

Label = tuple[str, int]
"""(name, occurrence of that name)."""


@record(frozen=True, slots=True)
class Family:
    """What calls have in common that may belong to one exchange."""

    job: str
    step: int | None
    op_type: str
    name: str
    token: str


@record(frozen=True, slots=True)
class Meeting:
    """Calls of different ranks that are one exchange.

    `lost` are lanes that made the calls before and after this one, but whose own is not there.
    """

    family: Family
    calls: tuple[OpRecord, ...]
    lost: frozenset[Lane] = frozenset()


def group_calls(
    ops: Iterable[OpRecord], jobs: Mapping[str, str]
) -> dict[Family, dict[Lane, list[OpRecord]]]:
    """Put collective calls into families, each lane's in its order."""
    families: dict[Family, dict[Lane, list[OpRecord]]] = defaultdict(lambda: defaultdict(list))
    for op in sorted(ops, key=lambda op: (lane_of(op), sequence_key(op))):
        if communication_kind(op.op_type) in (None, "send", "recv"):
            continue
        run = op.place.run or ""
        family = Family(
            jobs.get(run, run),
            op.step,
            op.op_type,
            family_name(fold_name(op.op_name)),
            group_token(op),
        )
        families[family][lane_of(op)].append(op)
    return {family: dict(lanes) for family, lanes in families.items()}


def match_calls(family: Family, lanes: Mapping[Lane, Sequence[OpRecord]]) -> list[Meeting]:
    """Match the calls of one family."""
    labels = {lane: _labels(calls) for lane, calls in lanes.items()}
    everything = {label for found in labels.values() for label in found}
    most = max(map(len, labels.values()))
    nested = len(everything) == most
    by_key: dict[object, dict[Lane, OpRecord]] = defaultdict(dict)
    if not nested and all(len(found) == most for found in labels.values()):
        for lane, calls in lanes.items():
            for number, op in enumerate(calls):
                by_key[number][lane] = op
    else:
        for lane, calls in lanes.items():
            for label, op in zip(labels[lane], calls, strict=True):
                by_key[label][lane] = op
    holes = _find_holes(labels) if nested else {}
    return [
        Meeting(family, tuple(part), holes.get(key, frozenset()))
        for key, found in by_key.items()
        for part in _split_by_size(list(found.values()))
    ]


def is_exact(lanes: Mapping[Lane, Sequence[OpRecord]]) -> bool:
    """Whether names alone match the calls of a family, so that their sizes cannot matter."""
    labels = [_labels(calls) for calls in lanes.values()]
    return len({label for found in labels for label in found}) == max(map(len, labels))


def _labels(calls: Sequence[OpRecord]) -> list[Label]:
    seen: Counter[str] = Counter()
    labels = []
    for op in calls:
        name = fold_name(op.op_name)
        labels.append((name, seen[name]))
        seen[name] += 1
    return labels


def _find_holes(labels: Mapping[Lane, Sequence[Label]]) -> dict[object, frozenset[Lane]]:
    """Label -> lanes that lack it although they have later ones."""
    longest = max(labels.values(), key=len)
    holes: dict[object, set[Lane]] = defaultdict(set)
    for lane, found in labels.items():
        if len(found) == len(longest):
            continue
        own = set(found)
        last = max(number for number, label in enumerate(longest) if label in own)
        for label in longest[:last]:
            if label not in own:
                holes[label].add(lane)
    return {label: frozenset(found) for label, found in holes.items()}


# --- sizes ------------------------------------------------------------------------------------


def _split_by_size(calls: Sequence[OpRecord]) -> Iterator[list[OpRecord]]:
    """Keep calls apart that exchange different numbers of elements."""
    if communication_kind(calls[0].op_type) not in _CHECKED_SIZES:
        yield list(calls)
        return
    by_size: dict[int | None, list[OpRecord]] = defaultdict(list)
    for op in calls:
        by_size[_exchanged(op)].append(op)
    unknown = by_size.pop(None, [])
    if not by_size:
        yield unknown
        return
    # Those whose size is not known go with the most.
    largest = max(by_size, key=lambda size: (len(by_size[size] or ()), size or 0))
    by_size[largest] += unknown
    yield from by_size.values()


def _exchanged(op: OpRecord) -> int | None:
    """Number of elements that all ranks of a collective operator agree on."""
    kind = communication_kind(op.op_type)
    if kind == "all_gather":
        # Parts may differ in size, the whole does not.
        return count_elements(op.outputs)
    if kind in ("broadcast", "reduce_scatter"):
        return max((count_elements(op.inputs) or 0, count_elements(op.outputs) or 0)) or None
    return count_elements(op.inputs) or count_elements(op.outputs)


def count_elements(tensors: Iterable[TensorSummary]) -> int | None:
    """Elements of all tensors by their shapes, `None` without any tensor."""
    counts = [prod(tensor.shape) for tensor in tensors]
    return sum(counts) if counts else None
