"""Who wrote the memory that was read, against ranges worked out by hand.

In the drawings of memory a letter is the output that was written there last.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dumpscope.causality import addresses
from dumpscope.causality.address_edges import AddressMap, AddressQuery, RowLinks, Writer
from dumpscope.causality.addresses import Spans, link_reads, meeting
from dumpscope.store import Memory

TOP = (1 << 64) - 1
Range = tuple[int, int, int]
"""When, from which address on, how many bytes."""


def spans(*ranges: Range) -> Spans:
    position, start, size = zip(*ranges, strict=True) if ranges else ((), (), ())
    return Spans.of(position, start, size)


@pytest.fixture(params=["pieces", "one by one"])
def both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Follow the outputs by pieces of memory, and one by one as where these are too many."""
    if request.param == "one by one":
        monkeypatch.setattr(addresses, "_MOST_PIECES", -1)


def links(writes: list[Range], *reads: Range) -> list[list[int]]:
    """Numbers of the writers of each read, the latest first."""
    read, write = link_reads(spans(*writes), spans(*reads))
    found: list[list[int]] = [[] for _ in reads]
    for one, writer in zip(read.tolist(), write.tolist(), strict=True):
        found[one].append(writer)
    return found


@pytest.mark.usefixtures("both_ways")
class TestLinks:
    def test_a_read_meets_the_output_it_overlaps_by_a_byte(self) -> None:
        writes = [(1, 100, 10)]  # 100 to 109
        assert links(writes, (2, 109, 50), (2, 110, 50), (2, 90, 10), (2, 90, 11)) == [
            [0], [], [], [0],
        ]  # fmt: skip

    def test_a_part_of_an_output_is_read_from_it(self) -> None:
        assert links([(1, 1000, 512)], (2, 1128, 64)) == [[0]]

    def test_an_output_that_was_covered_again_is_not_read(self) -> None:
        writes = [(1, 100, 10), (3, 100, 10)]
        assert links(writes, (2, 100, 10), (3, 100, 10), (4, 100, 10)) == [[0], [0], [1]]

    def test_what_is_left_of_an_output_is_still_read(self) -> None:
        writes = [(1, 100, 30), (2, 110, 10)]  # aaaaaaaaaabbbbbbbbbbaaaaaaaaaa
        assert links(writes, (3, 100, 10), (3, 110, 10), (3, 120, 10), (3, 100, 30)) == [
            [0], [1], [0], [1, 0],
        ]  # fmt: skip

    def test_a_single_byte_that_is_left_is_still_read(self) -> None:
        writes = [(1, 100, 10), (2, 101, 8)]  # abbbbbbbba
        assert links(writes, (3, 100, 1), (3, 101, 1), (3, 108, 1), (3, 109, 1)) == [
            [0], [1], [1], [0],
        ]  # fmt: skip

    def test_one_read_meets_several_outputs_the_latest_first(self) -> None:
        writes = [(5, 100, 10), (2, 110, 10), (3, 120, 10)]
        assert links(writes, (9, 100, 30), (4, 100, 30)) == [[0, 2, 1], [2, 1]]

    def test_what_an_operator_writes_in_place_is_not_what_it_read(self) -> None:
        writes = [(1, 100, 10), (2, 100, 10)]
        assert links(writes, (2, 100, 10)) == [[0]]

    def test_later_outputs_are_not_read(self) -> None:
        assert links([(7, 100, 10)], (6, 100, 10)) == [[]]

    def test_a_size_of_0_counts_as_one_byte(self) -> None:
        assert links([(1, 100, 0)], (2, 100, 1), (2, 101, 1), (2, 99, 1)) == [[0], [], []]
        assert links([(1, 100, 10)], (2, 109, 0), (2, 110, 0)) == [[0], []]

    def test_ranges_end_at_the_top_of_64_bits(self) -> None:
        writes = [(1, TOP - 16, 64), (1, 0, 8)]  # the first would go on at 0
        assert links(writes, (2, TOP - 1, 1), (2, 0, 8), (2, TOP - 32, 1 << 63)) == [[0], [1], [0]]

    def test_sizes_above_63_bits_reach_to_the_end(self) -> None:
        assert links([(1, 16, TOP)], (2, 8, 8), (2, 1 << 63, 4)) == [[], [0]]

    def test_nothing_written_or_read_links_nothing(self) -> None:
        assert links([], (1, 0, 8)) == [[]]
        assert links([(1, 0, 8)]) == []


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 12), st.integers(1, 6)), max_size=12),
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 12), st.integers(1, 6)), max_size=6),
    st.booleans(),
)
def test_links_are_those_of_a_memory_of_single_bytes(
    writes: list[Range], reads: list[Range], one_by_one: bool
) -> None:
    expected = []
    for when, start, size in reads:
        last: dict[int, tuple[int, int]] = {}
        for number, (time, begin, length) in enumerate(writes):
            for byte in range(begin, begin + length):
                if time < when and start <= byte < start + size:
                    last[byte] = max(last.get(byte, (-1, -1)), (time, number))
        expected.append([number for _, number in sorted(set(last.values()), reverse=True)])
    with pytest.MonkeyPatch.context() as patch:
        if one_by_one:
            patch.setattr(addresses, "_MOST_PIECES", -1)
        assert links(writes, *reads) == expected


def test_which_spans_meet_some_range() -> None:
    found = meeting(
        spans((1, 0, 10), (1, 10, 10), (1, 20, 10), (1, 30, 10)),
        np.array([25, 5], dtype=np.uint64),
        np.array([30, 10], dtype=np.uint64),
    )
    assert found.tolist() == [True, False, True, False]
    behind = np.array([10], dtype=np.uint64), np.array([20], dtype=np.uint64)
    assert meeting(spans((1, 0, 10), (1, 20, 10)), *behind).tolist() == [False, False]
    wide = np.array([0, 2], dtype=np.uint64), np.array([100, 3], dtype=np.uint64)
    assert meeting(spans((1, 50, 1)), *wide).tolist() == [True]
    assert meeting(spans((1, 50, 1)), *(ends[:0] for ends in wide)).tolist() == [False]


# --- whole scans ----------------------------------------------------------------------------------

LANES = [(0, "run", "", -1, 0), (0, "run", "", -1, 1), (0, "other", "", -1, 0)]
Tensor = tuple[int, str, int, int, int, int]
"""op_id, role, index, address, size and what it holds (0: nothing that tells)."""


def address_map(ops: list[tuple[int, int, int]], tensors: list[Tensor]) -> AddressMap:
    """A map of operators (op_id, lane, position) and their tensors."""
    ids = [op_id for op_id, _, _ in ops]
    start = np.array([t[3] for t in tensors], np.uint64)
    return AddressMap(
        Memory(
            LANES,
            np.array(ids, np.int64),
            np.array([lane for _, lane, _ in ops], np.int32),
            np.array([position for _, _, position in ops], np.int32),
            np.array([ids.index(t[0]) for t in tensors], np.int32),
            np.array([t[2] for t in tensors], np.int32),
            start,
            start + np.array([t[4] for t in tensors], np.uint64),
            np.array([t[1] == "out" for t in tensors]),
            np.array([t[5] for t in tensors], np.uint64),
        )
    )


def test_writers_are_those_of_the_same_rank() -> None:
    found = address_map(
        [(11, 0, 0), (12, 1, 1), (13, 0, 2)],
        [(11, "out", 0, 64, 8, 0), (11, "out", 3, 72, 8, 0), (12, "out", 0, 64, 8, 0),
         (13, "in", 5, 64, 16, 0)],
    ).find_writers([AddressQuery(13, 5, 64, 16), AddressQuery(12, 0, 64, 8),
                    AddressQuery(99, 0, 64, 8)])  # fmt: skip
    assert {key: sorted(w.index for w in some) for key, some in found.items()} == {
        (13, 5): [0, 3],
        (12, 0): [],
    }
    assert set(found[13, 5]) == {Writer(11, 0), Writer(11, 3)}


def test_the_last_reader_of_the_same_range_is_found() -> None:
    read = address_map(
        [(1, 0, 0), (2, 0, 1), (3, 0, 2), (4, 0, 3), (5, 1, 1)],
        [(1, "in", 0, 64, 8, 0), (2, "in", 1, 64, 8, 0), (2, "in", 2, 64, 4, 0),
         (3, "in", 0, 64, 8, 0), (4, "in", 0, 64, 8, 0), (5, "in", 0, 64, 8, 0)],
    )  # fmt: skip
    queries = [AddressQuery(3, 0, 64, 8), AddressQuery(1, 0, 64, 8), AddressQuery(4, 0, 64, 4)]
    assert read.find_readers(queries) == {(3, 0): (2, 1), (4, 0): (2, 2)}


def test_equal_contents_vote_for_and_against_addresses() -> None:
    voted = address_map(
        [(1, 0, 0), (2, 0, 1), (3, 1, 0), (4, 1, 1), (5, 2, 0), (6, 2, 1)],
        [
            (1, "out", 0, 64, 8, 7), (1, "out", 1, 128, 8, 8), (1, "out", 2, 192, 8, 0),
            (2, "in", 0, 64, 8, 7),  # where it was written: right
            (2, "in", 1, 256, 8, 8),  # written elsewhere: wrong
            (2, "in", 2, 128, 8, 9),  # nobody wrote that: no vote
            (2, "in", 3, 192, 8, 0),  # says nothing
            # Another rank of the same run: one more for it.
            (3, "out", 0, 64, 8, 7), (4, "in", 0, 64, 8, 7),
            # Another run: what is written later was not read, so nobody is wrong.
            (5, "in", 0, 64, 8, 7), (6, "out", 0, 128, 8, 7),
        ],
    )  # fmt: skip
    assert voted.runs() == {(0, "run"), (0, "other")}
    assert voted.votes_of((0, "run")) == (2, 1)
    assert voted.votes_of((0, "other")) == (0, 0)
    assert voted.votes_of((1, "run")) == (0, 0)


# --- links between executions ---------------------------------------------------------------------


def row_links(pairs: list[tuple[int, int]], goals: list[bool]) -> RowLinks:
    reader, writer = (np.array(column, np.int32) for column in zip(*pairs, strict=True))
    return RowLinks(reader, writer, np.array(goals))


def test_chains_are_jumped_over_to_the_next_goal() -> None:
    # 0 <- 1 <- 2 <- 3 <- 4 <- 5; 0 and 3 are looked for.
    found = row_links([(n, n - 1) for n in range(1, 6)], [n in (0, 3) for n in range(6)])
    assert list(found.parents_of(5)) == [3]
    assert list(found.parents_of(3)) == [0]
    assert list(found.parents_of(0)) == []


def test_branches_are_stopped_at() -> None:
    # 4 reads 3; 3 reads 1 and 2; 2 reads 0.
    found = row_links([(2, 0), (3, 1), (3, 2), (4, 3), (5, 4)], [True] + [False] * 5)
    assert list(found.parents_of(5)) == [3]
    assert sorted(found.parents_of(3)) == [0, 1]


def test_a_chain_that_begins_nowhere_ends_at_its_beginning() -> None:
    found = row_links([(1, 0), (2, 1), (3, 2)], [False, False, False, True])
    assert list(found.parents_of(3)) == [0]


def test_ways_of_whole_ranks_begin_with_the_row_asked_for() -> None:
    chain = [(n, 0, n) for n in range(4)]
    tensors = [(n, "out", 0, 64 * n, 64, 0) for n in range(4)]
    tensors += [(n, "in", 0, 64 * (n - 1), 64, 0) for n in range(1, 4)]
    everything = address_map(chain, tensors)
    far = everything.link_lanes({LANES[0]: 0}, [0, 3])
    assert list(far.parents_of(3)) == [0]
    near = everything.link_lanes({LANES[0]: 2}, [0, 3])
    assert list(near.parents_of(3)) == [2]
    assert list(near.parents_of(2)) == []
    assert list(everything.link_lanes({LANES[1]: 0}, []).parents_of(3)) == []
