"""What is said of one rank: whether it went wrong by itself, or through which operator."""

from __future__ import annotations

from typing import Literal

from dumpscope.records import record

__all__ = ["RankEvent", "RankState", "RankSummary"]

RankState = Literal["clean", "own", "received", "together", "later", "unclear"]


@record(frozen=True, slots=True)
class RankEvent:
    """An operator execution of the rank. `finding` is its place in the ranking, if it has one."""

    op_type: str
    op_name: str
    step: int | None
    verdict: str
    file: str
    finding: int | None = None


@record(frozen=True, slots=True)
class RankSummary:
    """One rank of a job.

    Attributes
    ----------
    rank
        The global rank where the layout names one, else the device id.
    state
        "clean"; "own": bad before it received anything; "received": infected through a
        communication operator; "together": an exchange of finite values overflowed on all ranks;
        "later": bad only in a later step than other ranks, through what an earlier step left;
        "unclear": bad behind an exchange whose result was not dumped, so perhaps received.
    first
        The first execution that holds a bad value.
    received
        The first one that took a bad value in from other ranks.
    senders
        The ranks that it came from, as far as they are known.
    coordinates
        (dimension, number) out of the rank map or the sizes of the job, of the dimensions in
        which its ranks differ.
    """

    rank: int | None
    state: RankState
    first: RankEvent | None = None
    received: RankEvent | None = None
    senders: tuple[int, ...] = ()
    run: str | None = None
    host: str | None = None
    device_id: int | None = None
    source: int = 0
    process: int | None = None
    coordinates: tuple[tuple[str, int], ...] = ()
