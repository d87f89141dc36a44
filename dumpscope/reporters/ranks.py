"""What reports say of ranks: notes for the top, rows for the workbook, entries of the document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dumpscope.model import RankEvent, RankState, RankSummary, Reason, Scan
from dumpscope.ranks.patterns import RANK_NOTES, name_coordinate

__all__ = ["MOST_ROWS", "build_ranks", "list_rank_rows", "rank_notes"]

MOST_ROWS = 64
"""Rows of the table of ranks."""

_SEQUENCE: tuple[RankState, ...] = (
    "own", "together", "unclear", "received", "later", "clean",
)  # fmt: skip

Json = Any


def rank_notes(scan: Scan) -> list[Reason]:
    """Return the notes that tell which ranks went bad, and how."""
    return [note for note in scan.notes if note.code in RANK_NOTES]


def list_rank_rows(scan: Scan) -> Iterator[tuple[str, Reason]]:
    """Yield (name of the rank, what happened to it), those bad by themselves first.

    Of more than `MOST_ROWS` the last ones are left out.
    """
    if len(scan.ranks) < 2 or all(summary.state == "clean" for summary in scan.ranks):
        return
    runs = {summary.run for summary in scan.ranks}
    ordered = sorted(scan.ranks, key=lambda summary: _SEQUENCE.index(summary.state))
    for summary in ordered[:MOST_ROWS]:
        yield name_rank(summary, with_run=len(runs) > 1), _tell(summary)


def name_rank(summary: RankSummary, *, with_run: bool) -> str:
    """Name a rank with all that tells it apart from others: run, host, number, coordinates."""
    number = "-" if summary.rank is None else str(summary.rank)
    parts = [summary.run if with_run else None, summary.host, f"rank {number}"]
    parts += [name_coordinate(dimension, value) for dimension, value in summary.coordinates]
    return " ".join(part for part in parts if part)


def _tell(summary: RankSummary) -> Reason:
    event = summary.first
    if event is None:
        return Reason("rank_clean")
    if summary.state == "received" and summary.received is not None:
        event = summary.received
    return Reason(
        f"rank_{summary.state}",
        {
            "op_type": event.op_type,
            "op_name": event.op_name,
            "step": event.step,
            "finding": event.finding,
            "senders": ", ".join(map(str, summary.senders)) or None,
        },
    )


def build_ranks(scan: Scan) -> list[dict[str, Json]]:
    """Return the `ranks` of the scan document, one entry for each rank of each run."""
    return [
        {
            "device": summary.rank,
            "device_id": summary.device_id,
            "host": summary.host,
            "run": summary.run,
            "process": summary.process,
            "state": summary.state,
            "first": _build_event(summary.first),
            "received": _build_event(summary.received),
            "senders": list(summary.senders),
            "coordinates": dict(summary.coordinates) or None,
        }
        for summary in scan.ranks
    ]


def _build_event(event: RankEvent | None) -> dict[str, Json] | None:
    if event is None:
        return None
    return {
        "rank": event.finding,
        "verdict": event.verdict,
        "op_type": event.op_type,
        "op_name": event.op_name,
        "step": event.step,
        "file": event.file,
    }
