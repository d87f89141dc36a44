"""Who wrote the memory that an input was read from: device addresses over time.

Each output of a rank covers a range of addresses from its start on, until a later output covers
(part of) it again. An input's range at the time it was read therefore belongs to the outputs
that are still visible in it. The bounds of all outputs cut a rank's memory into pieces of which
each output covers some whole; the writer of a piece is the last one before the read.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from dumpscope.records import record

__all__ = ["Spans", "link_reads", "meeting"]

_Unsigned = npt.NDArray[np.uint64]
_Signed = npt.NDArray[np.int64]

_TOP = (1 << 64) - 1
_MOST_PIECES = 1 << 25
"""Outputs that cut each other into more pieces than this are followed one by one."""


@record(frozen=True, slots=True)
class Spans:
    """Ranges of addresses of one rank that were written or read, as columns.

    `end` is exclusive; `position` grows with time and is the same for all tensors of an execution.
    """

    position: npt.NDArray[np.int32]
    start: _Unsigned
    end: _Unsigned

    @classmethod
    def of(
        cls, position: npt.ArrayLike, address: npt.ArrayLike, size_bytes: npt.ArrayLike
    ) -> Spans:
        """Make columns; a size of 0 counts as one byte."""
        start = np.array(address, dtype=np.uint64)
        size = np.clip(np.array(size_bytes, dtype=np.uint64), 1, np.uint64(_TOP) - start)
        return cls(np.array(position, dtype=np.int32), start, start + size)

    def __len__(self) -> int:
        return len(self.position)

    def take(self, rows: npt.NDArray[np.bool_] | _Signed) -> Spans:
        """The rows that are asked for."""
        return Spans(self.position[rows], self.start[rows], self.end[rows])


def meeting(spans: Spans, low: _Unsigned, high: _Unsigned) -> npt.NDArray[np.bool_]:
    """Say of each row whether it meets one of the ranges from `low` to `high`, in any order."""
    meets = np.zeros(len(spans), dtype=bool)
    if not len(low):
        return meets
    order = np.argsort(low, kind="stable")
    lows, highs = low[order], np.maximum.accumulate(high[order])
    # Of all ranges that begin before the row ends, the one that reaches farthest decides.
    candidate = np.searchsorted(lows, spans.end, side="left") - 1
    inside = candidate >= 0
    meets[inside] = highs[candidate[inside]] > spans.start[inside]
    return meets


def link_reads(writes: Spans, reads: Spans) -> tuple[_Signed, _Signed]:
    """Find the outputs that were visible in each range when it was read.

    Parameters
    ----------
    writes, reads
        Of one rank. What an execution writes itself is not what it read.

    Returns
    -------
    tuple
        Rows of `reads` and, beside each, a row of `writes`; sorted by read, the latest writer
        first. A read that meets no earlier output does not occur.
    """
    none = np.zeros(0, dtype=np.int64)
    if not len(writes) or not len(reads):
        return none, none
    bounds = np.unique(np.concatenate([writes.start, writes.end]))
    first_written = np.searchsorted(bounds, writes.start)
    last_written = np.searchsorted(bounds, writes.end)
    first_read = np.maximum(np.searchsorted(bounds, reads.start, side="right") - 1, 0)
    last_read = np.minimum(np.searchsorted(bounds, reads.end, side="left"), len(bounds) - 1)
    last_read = np.maximum(last_read, first_read)
    pieces = int((last_written - first_written).sum()) + int((last_read - first_read).sum())
    if pieces > _MOST_PIECES:
        return _link_one_by_one(writes, reads)
    positions = int(max(writes.position.max(), reads.position.max())) + 1
    write_piece, write_row = _spread(first_written, last_written)
    write_key = write_piece * positions + writes.position[write_row]
    order = np.argsort(write_key, kind="stable")
    write_key, write_row, write_piece = write_key[order], write_row[order], write_piece[order]
    read_piece, read_row = _spread(first_read, last_read)
    at = np.searchsorted(write_key, read_piece * positions + reads.position[read_row]) - 1
    found = at >= 0
    found[found] = write_piece[at[found]] == read_piece[found]
    pair = np.unique(read_row[found] * len(writes) + write_row[at[found]])
    linked_read, linked_write = np.divmod(pair, len(writes))
    latest = np.lexsort((-linked_write, -writes.position[linked_write], linked_read))
    return linked_read[latest], linked_write[latest]


def _spread(first: _Signed, last: _Signed) -> tuple[_Signed, _Signed]:
    """All whole numbers from `first` to `last` (exclusive) of each row, and the rows."""
    count = last - first
    rows = np.repeat(np.arange(len(count), dtype=np.int64), count)
    begin = np.cumsum(count) - count
    return np.arange(int(count.sum()), dtype=np.int64) - begin[rows] + first[rows], rows


def _link_one_by_one(writes: Spans, reads: Spans) -> tuple[_Signed, _Signed]:
    """Go through the memory in the order of time: no work is done for what is covered again."""
    memory = _Memory()
    in_order = np.lexsort((np.arange(len(writes)), writes.position))
    coming: Iterator[int] = iter(in_order.tolist())
    row = next(coming, None)
    linked_read: list[int] = []
    linked_write: list[int] = []
    for read in np.argsort(reads.position, kind="stable").tolist():
        while row is not None and writes.position[row] < reads.position[read]:
            memory.write(int(writes.start[row]), int(writes.end[row]), row)
            row = next(coming, None)
        visible = memory.read(int(reads.start[read]), int(reads.end[read]))
        latest = sorted(visible, key=lambda write: (-int(writes.position[write]), -write))
        linked_read += [read] * len(latest)
        linked_write += latest
    pairs = np.array(linked_read, dtype=np.int64), np.array(linked_write, dtype=np.int64)
    by_read = np.argsort(pairs[0], kind="stable")
    return pairs[0][by_read], pairs[1][by_read]


class _Memory:
    """Ranges that do not overlap, each with the row that was written there last."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._pieces: dict[int, tuple[int, int]] = {}

    def write(self, start: int, end: int, row: int) -> None:
        first = self._first_meeting(start)
        last = bisect_left(self._starts, end)
        covered = self._starts[first:last]
        before = after = None
        if covered:
            if covered[0] < start:
                before = (covered[0], start, self._pieces[covered[0]][1])
            tail_end, tail_row = self._pieces[covered[-1]]
            if tail_end > end:
                after = (end, tail_end, tail_row)
            for piece in covered:
                del self._pieces[piece]
            del self._starts[first:last]
        for kept in (before, (start, end, row), after):
            if kept is not None:
                insort(self._starts, kept[0])
                self._pieces[kept[0]] = (kept[1], kept[2])

    def read(self, start: int, end: int) -> set[int]:
        pieces = self._starts[self._first_meeting(start) : bisect_left(self._starts, end)]
        return {self._pieces[piece][1] for piece in pieces}

    def _first_meeting(self, start: int) -> int:
        """Position of the piece that holds `start`, or of the first one after it."""
        position = bisect_right(self._starts, start) - 1
        if position >= 0 and self._pieces[self._starts[position]][0] > start:
            return position
        return position + 1
