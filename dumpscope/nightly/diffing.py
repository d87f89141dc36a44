"""What changed from one scan to another: findings by the rules of a baseline, tensors by drift.

Findings are compared per operator (model, type, name), as in a baseline:

=======  ==========================================================================
new      the operator had no finding before
worse    it had; now a slot or kind of bad value is new, its share is much larger,
         or it leads the ranking for the first time
moved    the same finding at another place of the ranking, or in another step
gone     the operator has no finding any more
=======  ==========================================================================

Drift is per tensor over all its executions: how far max|x| lies below the dtype's limit
(headroom, in bits), and the shares of zeros and of subnormal elements, which say how much of a
tensor has left the range at its lower end.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from typing import Literal

from dumpscope.model import Reason
from dumpscope.nightly.baseline import Entry, EntryKey, is_covered
from dumpscope.nightly.headroom import headroom_bits
from dumpscope.records import record

__all__ = [
    "Change",
    "Diff",
    "Drift",
    "FindingBrief",
    "Kind",
    "OperatorChange",
    "Reading",
    "Side",
    "compare",
]

Kind = Literal["new", "worse", "moved", "gone", "same"]
OperatorKey = tuple[str, str, str]
TensorKey = tuple[str, str, str, str]
"""(model, operator type, operator name, slot)."""

MOST_IN_MEMORY = 300_000
"""Tensors that are held at a time; of more, a part is compared in each of several passes."""

LEAST_BITS = 0.5
LEAST_SHARE = 0.01
"""Smaller changes of headroom, and of a share, are no drift."""


@record(frozen=True, slots=True)
class FindingBrief:
    """What a comparison needs of a finding, whether it comes from a store or a document."""

    entries: tuple[Entry, ...]
    rank: int | None
    step: int | None
    device: int | None
    verdict: str
    reason: Reason

    @property
    def operator(self) -> OperatorKey:
        entry = self.entries[0]
        return (entry.model, entry.op_type, entry.op_name)


@record(frozen=True, slots=True)
class Reading:
    """What was measured of one tensor in one execution.

    `zero` and `subnormal` are `None` where only screening was done.
    """

    key: TensorKey
    dtype: str
    largest: float | None
    count: int
    zero: int | None
    subnormal: int | None


@record(frozen=True, slots=True)
class Side:
    """One of the two scans.

    `read_listed` reads the tensors of the operators that a scan document lists, `read_tensors`
    all of them, and is `None` where only a document is there. Both may be called several times.
    """

    source: str
    scan_id: str
    root: str
    findings: tuple[FindingBrief, ...]
    read_listed: Callable[[], Iterator[Reading]]
    read_tensors: Callable[[], Iterator[Reading]] | None = None
    tensor_count: int = 0


@record(frozen=True, slots=True)
class Change:
    """One slot and kind that got worse; where `share_before` is `None`, it was not there.

    `first_time_first`: it was there, and leads the ranking for the first time.
    """

    slot: str
    kind: str
    share_before: float | None
    share_now: float
    first_time_first: bool


@record(frozen=True, slots=True)
class OperatorChange:
    """What became of the findings of one operator; each side is told by its best finding."""

    kind: Kind
    model: str
    op_type: str
    op_name: str
    before: FindingBrief | None
    now: FindingBrief | None
    changes: tuple[Change, ...] = ()


@record(frozen=True, slots=True)
class Drift:
    """One tensor on both sides. Headroom is in bits, shares are of its elements."""

    model: str
    op_type: str
    op_name: str
    slot: str
    dtype_before: str
    dtype_now: str
    largest_before: float | None
    largest_now: float | None
    headroom_before: float | None
    headroom_now: float | None
    zero_before: float | None
    zero_now: float | None
    subnormal_before: float | None
    subnormal_now: float | None

    @property
    def lost_bits(self) -> float:
        """How much headroom was lost; negative when it grew, 0 when it is not known."""
        if self.headroom_before is None or self.headroom_now is None:
            return 0.0
        return self.headroom_before - self.headroom_now

    @property
    def share_change(self) -> float:
        """The larger of the changes of the two shares."""
        pairs = (
            (self.zero_before, self.zero_now),
            (self.subnormal_before, self.subnormal_now),
        )
        return max(abs(b - a) if a is not None and b is not None else 0.0 for a, b in pairs)


@record(frozen=True, slots=True)
class Diff:
    """The whole comparison. `compared` counts the tensors that both sides have."""

    before: Side
    now: Side
    changes: tuple[OperatorChange, ...]
    drift: tuple[Drift, ...]
    drift_count: int
    compared: int

    def of_kind(self, kind: Kind) -> list[OperatorChange]:
        return [change for change in self.changes if change.kind == kind]

    @property
    def exit_status(self) -> int:
        """1 when something is new or worse."""
        return int(any(change.kind in ("new", "worse") for change in self.changes))


def compare(before: Side, now: Side, *, most_drift: int = 0) -> Diff:
    """Compare two scans.

    Parameters
    ----------
    most_drift
        Tensors whose drift is kept, those that lost most headroom first; 0 keeps all.
    """
    drift, count, compared = _compare_tensors(before, now, most_drift)
    return Diff(
        before=before,
        now=now,
        changes=tuple(_compare_findings(before.findings, now.findings)),
        drift=tuple(drift),
        drift_count=count,
        compared=compared,
    )


# --- findings -----------------------------------------------------------------------------------


def _compare_findings(
    before: Iterable[FindingBrief], now: Iterable[FindingBrief]
) -> Iterator[OperatorChange]:
    old, new = _group(before), _group(now)
    for operator, briefs in new.items():
        best = briefs[0]
        if operator not in old:
            yield OperatorChange("new", *operator, None, best)
            continue
        was = old[operator][0]
        changes = tuple(_find_worse(old[operator], briefs))
        moved = (was.rank, was.step) != (best.rank, best.step)
        kind: Kind = "worse" if changes else ("moved" if moved else "same")
        yield OperatorChange(kind, *operator, was, best, changes)
    for operator, briefs in old.items():
        if operator not in new:
            yield OperatorChange("gone", *operator, briefs[0], None)


def _group(findings: Iterable[FindingBrief]) -> dict[OperatorKey, list[FindingBrief]]:
    """Findings of one operator together, in the order of the ranking."""
    groups: dict[OperatorKey, list[FindingBrief]] = {}
    for finding in findings:
        groups.setdefault(finding.operator, []).append(finding)
    return groups


def _find_worse(before: list[FindingBrief], now: list[FindingBrief]) -> Iterator[Change]:
    known = _merge(before)
    for key, entry in _merge(now).items():
        old = known.get(key)
        if not is_covered(old, entry):
            yield Change(
                entry.slot,
                entry.kind,
                None if old is None else old.share,
                entry.share,
                entry.first and old is not None and not old.first,
            )


def _merge(findings: Iterable[FindingBrief]) -> dict[EntryKey, Entry]:
    """The largest share and the best place of every slot and kind."""
    best: dict[EntryKey, Entry] = {}
    for entry in (entry for finding in findings for entry in finding.entries):
        known = best.setdefault(entry.key, entry)
        share, first = max(known.share, entry.share), known.first or entry.first
        best[entry.key] = Entry(*entry.key, share, first)
    return best


# --- drift --------------------------------------------------------------------------------------


@record(frozen=False, slots=True)
class _Total:
    dtype: str
    largest: float | None = None
    counted: int = 0
    zero: int = 0
    subnormal: int = 0
    known: bool = True

    def add(self, reading: Reading) -> None:
        if reading.largest is not None:
            self.largest = max(reading.largest, self.largest or 0.0)
        if reading.zero is None or reading.subnormal is None:
            self.known = False
            return
        self.counted += reading.count
        self.zero += reading.zero
        self.subnormal += reading.subnormal

    def share(self, count: int) -> float | None:
        return count / self.counted if self.known and self.counted else None


def _compare_tensors(before: Side, now: Side, most: int) -> tuple[list[Drift], int, int]:
    read_old, read_new = before.read_tensors, now.read_tensors
    if read_old is None or read_new is None:
        # A maximum over all steps beside one over those with findings would be no drift.
        read_old, read_new = before.read_listed, now.read_listed
    passes = -(-max(before.tensor_count, now.tensor_count, 1) // MOST_IN_MEMORY)
    kept: list[tuple[tuple[float, float, TensorKey], Drift]] = []
    found = compared = 0
    for part in range(passes):
        old = _total(read_old(), part, passes)
        new = _total(read_new(), part, passes)
        for key in old.keys() & new.keys():
            compared += 1
            drift = _drift_of(key, old[key], new[key])
            if abs(drift.lost_bits) < LEAST_BITS and drift.share_change < LEAST_SHARE:
                continue
            found += 1
            kept.append(((-drift.lost_bits, -drift.share_change, key), drift))
        if most and len(kept) > most:
            kept = heapq.nsmallest(most, kept, key=lambda item: item[0])
    kept.sort(key=lambda item: item[0])
    return [drift for _, drift in kept], found, compared


def _total(readings: Iterable[Reading], part: int, passes: int) -> dict[TensorKey, _Total]:
    totals: dict[TensorKey, _Total] = {}
    for reading in readings:
        # Only within this process: which part a tensor belongs to does not show in the result.
        if passes > 1 and hash(reading.key) % passes != part:
            continue
        total = totals.get(reading.key)
        if total is None:
            total = totals[reading.key] = _Total(reading.dtype)
        total.add(reading)
    return totals


def _drift_of(key: TensorKey, old: _Total, new: _Total) -> Drift:
    return Drift(
        *key,
        dtype_before=old.dtype,
        dtype_now=new.dtype,
        largest_before=old.largest,
        largest_now=new.largest,
        headroom_before=headroom_bits(old.dtype, old.largest),
        headroom_now=headroom_bits(new.dtype, new.largest),
        zero_before=old.share(old.zero),
        zero_now=new.share(new.zero),
        subnormal_before=old.share(old.subnormal),
        subnormal_now=new.share(new.subnormal),
    )
