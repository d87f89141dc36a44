"""Build overflow records out of the fields that a file holds, whatever its form."""

from __future__ import annotations

from collections.abc import Sequence

from dumpscope.model import DumpFile, OverflowRecord, OverflowUnit
from dumpscope.naming import parse_name, timestamp_ns

__all__ = ["KINDS", "known_id", "make_record", "make_unit"]

KINDS = ("AIC", "AIV", "AICPU", "SDMA")
"""The units by their acc_type."""

_UNKNOWN_IDS = frozenset({0xFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF})


def known_id(number: int | None) -> int | None:
    """Return an id of a payload, `None` for the numbers that stand for "unknown"."""
    if number is None or number < 0 or number in _UNKNOWN_IDS:
        return None
    return number


def make_unit(kind: str, status: Sequence[int], fields: Sequence[tuple[str, int]]) -> OverflowUnit:
    """Build a unit from its status words and the other fields of its record."""
    named = dict(fields)
    return OverflowUnit(
        kind=kind,
        status=tuple(status),
        model_id=known_id(named.get("model_id")),
        stream_id=known_id(named.get("stream_id")),
        task_id=known_id(named.get("task_id")),
        context_id=known_id(named.get("context_id")),
        thread_id=known_id(named.get("thread_id")),
        fields=tuple(fields),
    )


def make_record(
    file: DumpFile, units: Sequence[OverflowUnit], known_kind: bool = True
) -> OverflowRecord:
    """Build a record of units that were written together; those that overflowed come first."""
    parsed = parse_name(file.name)
    timestamp = None if parsed is None else parsed.timestamp
    return OverflowRecord(
        units=tuple(sorted(units, key=lambda unit: unit.empty)),
        file=file.relative,
        timestamp=timestamp,
        start_ns=None if timestamp is None else timestamp_ns(timestamp),
        known_kind=known_kind,
        place=file.place,
    )
