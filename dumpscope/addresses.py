"""Who wrote the memory that an input was read from: device addresses over time.

Each output of a rank covers a range of addresses from its start on, until a later output covers
(part of) it again. An input's range at the time it was read therefore belongs to the outputs
that are still visible in it. Only outputs that meet a range somebody asks for are looked at.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from dumpscope.store import AddressColumns

__all__ = ["AddressQuery", "Writer", "find_writers"]

_UnsignedColumn = npt.NDArray[np.uint64]
_SignedColumn = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class AddressQuery:
    """An input whose writers are sought: `size_bytes` from `address` of the operator `op_id`."""

    op_id: int
    index: int
    address: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Writer:
    """An output that is visible in an input's range, and how many bytes of it."""

    op_id: int
    index: int
    visible_bytes: int


def find_writers(
    queries: Sequence[AddressQuery], chunks: Iterable[AddressColumns]
) -> dict[tuple[int, int], list[Writer]]:
    """Find the outputs visible in each input's range when the input was read.

    Parameters
    ----------
    queries
        The inputs.
    chunks
        All outputs with an address, with marks for the operators of `queries`.

    Returns
    -------
    dict
        By (op_id, index) of the query the writers, the latest first; an empty list where no
        earlier output of the same rank meets the range.
    """
    ranges = _merge_ranges((q.address, q.address + max(q.size_bytes, 1)) for q in queries)
    lows = np.array([low for low, _ in ranges], dtype=np.uint64)
    highs = np.array([high for _, high in ranges], dtype=np.uint64)
    marks: dict[int, tuple[int, int]] = {}
    writes: dict[int, list[tuple[int, int, int, int, int]]] = defaultdict(list)
    for columns in chunks:
        marks.update(columns.marks)
        for row in _meeting(columns, lows, highs):
            start = columns.address[row]
            end = start + max(columns.size_bytes[row], 1)
            writes[columns.lane[row]].append(
                (columns.position[row], start, end, columns.op_id[row], columns.index[row])
            )
    found: dict[tuple[int, int], list[Writer]] = {}
    reads: dict[int, list[tuple[int, AddressQuery]]] = defaultdict(list)
    for query in queries:
        mark = marks.get(query.op_id)
        if mark is not None:
            reads[mark[1]].append((mark[0], query))
    for lane, asked in reads.items():
        _replay(asked, writes.get(lane, []), found)
    return found


def _meeting(columns: AddressColumns, lows: _UnsignedColumn, highs: _UnsignedColumn) -> list[int]:
    """Rows of outputs that meet one of the merged ranges."""
    if not columns.address or not len(lows):
        return []
    start = np.array(columns.address, dtype=np.uint64)
    size = np.maximum(np.array(columns.size_bytes, dtype=np.uint64), 1)
    end = start + size
    # The last range that begins before the output ends is the only one that can meet it.
    candidate: _SignedColumn = np.searchsorted(lows, end, side="left") - 1
    inside = candidate >= 0
    meets = np.zeros(len(start), dtype=bool)
    meets[inside] = highs[candidate[inside]] > start[inside]
    return [int(row) for row in np.flatnonzero(meets)]


def _merge_ranges(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return [(low, min(high, (1 << 64) - 1)) for low, high in merged if low < 1 << 64]


def _replay(
    asked: list[tuple[int, AddressQuery]],
    writes: list[tuple[int, int, int, int, int]],
    found: dict[tuple[int, int], list[Writer]],
) -> None:
    """Go through one rank's memory in the order of time and answer what is asked."""
    memory = _Memory()
    asked.sort(key=lambda item: item[0])
    writes.sort()
    done = 0
    for position, query in asked:
        # What an operator writes itself is not what it read.
        while done < len(writes) and writes[done][0] < position:
            _, start, end, op_id, index = writes[done]
            memory.write(start, end, (done, op_id, index))
            done += 1
        visible = memory.read(query.address, query.address + max(query.size_bytes, 1))
        found[query.op_id, query.index] = [
            Writer(op_id, index, count) for (_, op_id, index), count in visible
        ]


_Owner = tuple[int, int, int]


class _Memory:
    """Ranges that do not overlap, each with the output that was written there last."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._pieces: dict[int, tuple[int, _Owner]] = {}

    def write(self, start: int, end: int, owner: _Owner) -> None:
        first = self._first_meeting(start)
        last = bisect_left(self._starts, end)
        covered = self._starts[first:last]
        before = after = None
        if covered:
            _, head_owner = self._pieces[covered[0]]
            if covered[0] < start:
                before = (covered[0], start, head_owner)
            tail_end, tail_owner = self._pieces[covered[-1]]
            if tail_end > end:
                after = (end, tail_end, tail_owner)
            for piece in covered:
                del self._pieces[piece]
            del self._starts[first:last]
        for kept in (before, (start, end, owner), after):
            if kept is not None:
                insort(self._starts, kept[0])
                self._pieces[kept[0]] = (kept[1], kept[2])

    def read(self, start: int, end: int) -> list[tuple[_Owner, int]]:
        counted: dict[_Owner, int] = defaultdict(int)
        for piece in self._starts[self._first_meeting(start) : bisect_left(self._starts, end)]:
            piece_end, owner = self._pieces[piece]
            count = min(end, piece_end) - max(start, piece)
            if count > 0:
                counted[owner] += count
        return sorted(counted.items(), key=lambda item: -item[0][0])

    def _first_meeting(self, start: int) -> int:
        """Position of the piece that holds `start`, or of the first one after it."""
        position = bisect_right(self._starts, start) - 1
        if position >= 0 and self._pieces[self._starts[position]][0] > start:
            return position
        return position + 1
