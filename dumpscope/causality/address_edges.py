"""Producers by device address, for the inputs that are asked for and for whole ranks.

Addresses count only where they can be believed. Where inputs hold exactly what an earlier output
held, addresses have to lead there; dumps in which they mostly do not have addresses that were made
up by whatever wrote them.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from dumpscope.causality.addresses import Spans, link_reads, meeting
from dumpscope.causality.dataflow import Lane
from dumpscope.records import record
from dumpscope.store import Memory

__all__ = ["AddressMap", "AddressQuery", "RowLinks", "Run", "Writer"]

Run = tuple[int, str]
"""(source, run): what one writer wrote."""

_Rows = npt.NDArray[np.int64]

_SAMPLE = 100_000


@record(frozen=True, slots=True)
class AddressQuery:
    """An input whose writers are sought: `size_bytes` from `address` of the operator `op_id`."""

    op_id: int
    index: int
    address: int
    size_bytes: int


@record(frozen=True, slots=True)
class Writer:
    """An output that is visible in an input's range."""

    op_id: int
    index: int


class RowLinks:
    """Which executions wrote what an execution read, by row.

    `goals` are the rows that are looked for. Of the others, those that read what one other wrote
    are jumped over: in a long chain the writer is the next goal, or the next branch.
    """

    def __init__(
        self,
        reader: npt.NDArray[np.int32],
        writer: npt.NDArray[np.int32],
        goals: npt.NDArray[np.bool_],
    ) -> None:
        order = np.argsort(reader, kind="stable")
        begin = np.searchsorted(reader[order], np.arange(len(goals) + 1)).astype(np.int32)
        writer = writer[order].astype(np.int32)
        passing = ~goals & (np.diff(begin) == 1)
        target = np.arange(len(goals), dtype=np.int32)
        target[passing] = writer[begin[:-1][passing]]
        # Each time the jumps get twice as long. They lead to earlier rows, so they come to an end.
        while passing[target].any() and not np.array_equal(target, farther := target[target]):
            target = farther
        # Arrays of Python's own: single items of them are read faster.
        self._writer = array("i", target[writer].tobytes())
        self._begin = array("i", begin.tobytes())

    def parents_of(self, row: int) -> array[int]:
        """Rows of the writers."""
        return self._writer[self._begin[row] : self._begin[row + 1]]


class AddressMap:
    """The device memory of a scan over time."""

    def __init__(self, memory: Memory) -> None:
        self.lanes: Sequence[Lane] = memory.lanes
        self._op_id = memory.op_id
        self._by_id = np.argsort(memory.op_id, kind="stable")
        self._op_lane = memory.op_lane
        self._op_position = memory.op_position
        self._row = memory.row
        self._index = memory.index
        self._start = memory.start
        self._end = memory.end
        self._output = memory.is_output
        self._votes = self._count_votes(memory.content)

    def _spans(self, tensors: _Rows) -> Spans:
        """When and where some tensors were written or read."""
        position = self._op_position[self._row[tensors]]
        return Spans(position, self._start[tensors], self._end[tensors])

    # --- can they be believed? -----------------------------------------------------------------

    def runs(self) -> set[Run]:
        """All runs in which an output has an address."""
        lanes = np.unique(self._op_lane[self._row[self._output]])
        return {_run(self.lanes[lane]) for lane in lanes.tolist()}

    def votes_of(self, run: Run) -> tuple[int, int]:
        """How often equal contents say that addresses are right, and that they are wrong."""
        return self._votes.get(run, (0, 0))

    def _count_votes(self, content: npt.NDArray[np.uint64]) -> dict[Run, tuple[int, int]]:
        """Ask some inputs of each rank whether the output that holds the same is where they are."""
        counted: dict[Run, tuple[int, int]] = defaultdict(lambda: (0, 0))
        for lane, tensors in self._tensors_by_lane(content != 0):
            order = np.argsort(self._op_position[self._row[tensors]], kind="stable")
            early = tensors[order[:_SAMPLE]]
            outputs, inputs = early[self._output[early]], early[~self._output[early]]
            writes, reads = self._spans(outputs), self._spans(inputs)
            read, write = link_reads(writes, reads)
            right = np.zeros(len(inputs), dtype=bool)
            right[read[content[inputs[read]] == content[outputs[write]]]] = True
            known, first = np.unique(content[outputs], return_index=True)
            made = np.zeros(len(inputs), dtype=bool)
            if len(known):
                at = np.minimum(np.searchsorted(known, content[inputs]), len(known) - 1)
                # `outputs` is in the order of time, so the first of a content is the earliest.
                made = (known[at] == content[inputs]) & (
                    writes.position[first[at]] < reads.position
                )
            run = _run(self.lanes[lane])
            yes, no = counted[run]
            counted[run] = (yes + int(right.sum()), no + int((made & ~right).sum()))
        return dict(counted)

    # --- edges ---------------------------------------------------------------------------------

    def find_writers(self, queries: Sequence[AddressQuery]) -> dict[tuple[int, int], list[Writer]]:
        """Find the outputs visible in each input's range when the input was read.

        Returns
        -------
        dict
            By (op_id, index) of the query the writers, the latest first; an empty list where no
            earlier output of the same rank meets the range. Queries of operators that the store
            does not know are left out.
        """
        found: dict[tuple[int, int], list[Writer]] = {}
        by_lane: dict[int, list[tuple[int, AddressQuery]]] = defaultdict(list)
        rows = self.rows_of(query.op_id for query in queries)
        for row, query in zip(rows, queries, strict=True):
            if row is not None:
                by_lane[int(self._op_lane[row])].append((int(self._op_position[row]), query))
        for lane, outputs in self._tensors_by_lane(self._output):
            asked = by_lane.pop(lane, [])
            if asked:
                self._answer(asked, outputs, found)
        for asked in by_lane.values():
            found.update(((query.op_id, query.index), []) for _, query in asked)
        return found

    def find_readers(
        self, queries: Sequence[AddressQuery]
    ) -> dict[tuple[int, int], tuple[int, int]]:
        """Find who read exactly the same memory before each input was read, the latest each.

        Returns
        -------
        dict
            By (op_id, index) of the query operator and input index of the reader.
        """
        found: dict[tuple[int, int], tuple[int, int]] = {}
        rows = self.rows_of(query.op_id for query in queries)
        wanted = np.array([query.address for query in queries], dtype=np.uint64)
        inputs = np.flatnonzero(~self._output & np.isin(self._start, wanted))
        inputs = inputs[np.argsort(self._op_position[self._row[inputs]], kind="stable")]
        by_range: dict[tuple[int, int, int], list[int]] = defaultdict(list)
        for tensor in inputs.tolist():
            lane = int(self._op_lane[self._row[tensor]])
            by_range[lane, int(self._start[tensor]), int(self._end[tensor])].append(tensor)
        for row, query in zip(rows, queries, strict=True):
            if row is None:
                continue
            end = query.address + max(query.size_bytes, 1)
            earlier = by_range.get((int(self._op_lane[row]), query.address, end), [])
            position = self._op_position[row]
            before = [t for t in earlier if self._op_position[self._row[t]] < position]
            if before:
                reader = before[-1]
                op_id = int(self._op_id[self._row[reader]])
                found[query.op_id, query.index] = (op_id, int(self._index[reader]))
        return found

    def _answer(
        self,
        asked: Sequence[tuple[int, AddressQuery]],
        outputs: _Rows,
        found: dict[tuple[int, int], list[Writer]],
    ) -> None:
        reads = Spans.of(
            [position for position, _ in asked],
            [query.address for _, query in asked],
            [query.size_bytes for _, query in asked],
        )
        writes = self._spans(outputs)
        meets = meeting(writes, reads.start, reads.end)
        writes, outputs = writes.take(meets), outputs[meets]
        answers = [found.setdefault((q.op_id, q.index), []) for _, q in asked]
        read, write = link_reads(writes, reads)
        op_ids = self._op_id[self._row[outputs[write]]].tolist()
        indexes = self._index[outputs[write]].tolist()
        for number, op_id, index in zip(read.tolist(), op_ids, indexes, strict=True):
            answers[number].append(Writer(op_id, index))

    def link_lanes(self, first: Mapping[Lane, int], goals: Iterable[int]) -> RowLinks:
        """Link all executions of some ranks, those before the row `first` of the rank left out.

        `goals` are the rows of which it matters that they are on the way.
        """
        readers: list[npt.NDArray[np.int32]] = [np.zeros(0, dtype=np.int32)]
        writers: list[npt.NDArray[np.int32]] = [np.zeros(0, dtype=np.int32)]
        wanted = {
            number: int(self._op_position[first[lane]])
            for number, lane in enumerate(self.lanes)
            if lane in first
        }
        for lane, tensors in self._tensors_by_lane(np.ones(len(self._row), dtype=bool)):
            if lane not in wanted:
                continue
            late = tensors[self._op_position[self._row[tensors]] >= wanted[lane]]
            outputs, inputs = late[self._output[late]], late[~self._output[late]]
            read, write = link_reads(self._spans(outputs), self._spans(inputs))
            reader, writer = self._row[inputs[read]], self._row[outputs[write]]
            again = np.zeros(len(reader), dtype=bool)
            again[1:] = (reader[1:] == reader[:-1]) & (writer[1:] == writer[:-1])
            readers.append(reader[~again])
            writers.append(writer[~again])
        sought = np.zeros(self.rows, dtype=bool)
        sought[list(goals)] = True
        return RowLinks(np.concatenate(readers), np.concatenate(writers), sought)

    # --- rows ----------------------------------------------------------------------------------

    @property
    def rows(self) -> int:
        """How many executions there are."""
        return len(self._op_id)

    def rows_of(self, op_ids: Iterable[int]) -> list[int | None]:
        """Rows of executions by number; `None` for those that are not in the store."""
        wanted = np.array(list(op_ids), dtype=np.int64)
        if not len(self._op_id):
            return [None] * len(wanted)
        at = np.searchsorted(self._op_id, wanted, sorter=self._by_id)
        rows = self._by_id[np.minimum(at, len(self._op_id) - 1)]
        there = self._op_id[rows] == wanted
        return [
            row if known else None for row, known in zip(rows.tolist(), there.tolist(), strict=True)
        ]

    def _tensors_by_lane(self, of_interest: npt.NDArray[np.bool_]) -> Iterator[tuple[int, _Rows]]:
        """Yield the numbers of the lanes and those of their tensors that are of interest."""
        tensors = np.flatnonzero(of_interest)
        lanes = self._op_lane[self._row[tensors]]
        order = np.argsort(lanes, kind="stable")
        numbers, begin = np.unique(lanes[order], return_index=True)
        parts = np.split(tensors[order], begin[1:].tolist())
        yield from zip(numbers.tolist(), parts, strict=len(numbers) > 0)


def _run(lane: Lane) -> Run:
    return lane[0], lane[1]
