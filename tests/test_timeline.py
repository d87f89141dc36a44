"""How a trace is folded into a tree of few entries, and into rows and columns."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from dumpscope.model import Finding, Scan, Verdict
from dumpscope.tracing.folding import Branch, fold_tree, rate_nodes
from dumpscope.tracing.lanes import MOST_ROWS, plan_rows
from dumpscope.tracing.timeline import Timeline, plan_timeline
from dumpscope.tracing.trace import Trace, build_trace
from op_builders import bad, clean, make_op
from trace_scans import (
    chain_scan,
    finding,
    make_scan,
    ranks_scan,
    scan_of_verdicts,
    wide_scan,
)


def walk(branch: Branch) -> list[Branch]:
    found = [branch]
    for child in branch.children:
        found += walk(child)
    return found


def members(branch: Branch) -> list[int]:
    return [m for b in walk(branch) for m in (*b.members, *b.hidden)]


def fold(trace: Trace, limit: int | None = None) -> Branch:
    tree = fold_tree(trace, limit)
    assert tree is not None
    return tree


# --- the tree -----------------------------------------------------------------------------------


def test_of_a_long_chain_its_beginning_shows_and_the_rest_is_counted() -> None:
    tree = fold(build_trace(chain_scan(500)))
    shown = walk(tree)
    assert [b.members for b in shown] == [(0,), (1,), (2,), (3,), (4,)]
    assert shown[-1].hidden == tuple(range(5, 500))


def test_a_short_chain_shows_whole() -> None:
    tree = fold(build_trace(chain_scan(9)))
    assert [b.members for b in walk(tree)] == [(i,) for i in range(9)]


@pytest.mark.parametrize("limit", [1, 2, 7, 100, 499, 0])
def test_a_limit_says_how_many_show_and_nothing_is_lost(limit: int) -> None:
    trace = build_trace(wide_scan(498))
    tree = fold(trace, limit)
    shown = walk(tree)
    # What would be a count of one shows, too.
    assert len(shown) >= (limit or 499)
    assert all(len(b.hidden) != 1 for b in shown)
    assert sorted(members(tree)) == list(range(499))


def test_entries_between_are_counted() -> None:
    ops = [make_op("MatMul", [clean()], [bad(nan=3)], at=0)]
    found = [finding(ops[0], Verdict.ORIGIN)]
    for at in range(1, 60):
        ops.append(make_op("Add", [bad(nan=3)], [bad(nan=3)], at=at))
        found.append(finding(ops[-1], cause=ops[-2]))
    hidden = make_op("Relu", [bad(nan=3)], [clean()], at=61)
    found.append(finding(hidden, Verdict.SWALLOWED, ops[-1], "graph"))
    last = walk(fold(build_trace(make_scan(found))))[-1]
    assert (last.members, last.between, last.evidence) == ((60,), 55, ("graph",))


def test_what_happens_alike_on_many_ranks_is_one_entry() -> None:
    trace = build_trace(ranks_scan(256))
    tree = fold(trace)
    assert len(walk(tree)) < 12
    received = next(b for b in walk(tree) if trace.nodes[b.members[0]].verdict is Verdict.RECEIVED)
    assert {trace.nodes[m].op.device for m in received.members} == set(range(256)) - {3}
    assert len(members(tree)) == len(trace.nodes)


def test_the_same_name_twice_on_one_rank_stays_two() -> None:
    first = make_op("MatMul", [clean()], [bad(nan=1)], at=0)
    twice = [make_op("Add", [bad(nan=1)], [bad(nan=1)], at=at, name="loop/add") for at in (1, 2)]
    scan = make_scan([finding(first, Verdict.ORIGIN), *(finding(op, cause=first) for op in twice)])
    assert [b.members for b in walk(fold(build_trace(scan)))] == [(0,), (1,), (2,)]


def test_the_first_nan_after_an_inf_is_told() -> None:
    trace = build_trace(wide_scan(400))
    assert rate_nodes(trace).turn == 1
    assert rate_nodes(build_trace(chain_scan(9))).turn is None


def test_an_empty_trace_has_no_tree() -> None:
    assert fold_tree(build_trace(make_scan([]))) is None


# --- rows ---------------------------------------------------------------------------------------


def test_each_rank_and_stream_has_a_row_and_the_origin_comes_first() -> None:
    rows = plan_rows(build_trace(ranks_scan(6, guilty=[4])))
    assert [row.devices for row in rows] == [(4,), (0,), (1,), (2,), (3,), (5,)]
    assert [row.has_origin for row in rows] == [True, False, False, False, False, False]
    assert [row.received for row in rows] == [False, True, True, True, True, True]
    assert {row.likeness for row in rows} == {"stream"}
    rows = plan_rows(build_trace(wide_scan(50)))
    assert [(row.devices, row.stream) for row in rows] == [((0,), 1), ((0,), 2)]


def test_other_sources_come_before_those_that_only_received() -> None:
    rows = plan_rows(build_trace(ranks_scan(6, guilty=[4, 5])))
    assert [row.devices for row in rows] == [(4,), (5,), (0,), (1,), (2,), (3,)]
    assert [row.has_other_source for row in rows][:3] == [False, True, False]


def test_streams_of_a_rank_share_a_row_before_ranks_do() -> None:
    origin = make_op("MatMul", [clean()], [bad(nan=1)], at=0, stream_id=0)
    found = [finding(origin, Verdict.ORIGIN)]
    for at in range(1, 40):
        op = make_op("Add", [bad(nan=1)], [bad(nan=1)], at=at, stream_id=at)
        found.append(finding(op, cause=origin))
    rows = plan_rows(build_trace(make_scan(found)))
    assert [(row.likeness, row.devices, row.stream) for row in rows] == [("rank", (0,), None)]


def test_256_ranks_are_folded_by_what_happened_to_them() -> None:
    trace = build_trace(ranks_scan(256, guilty=[3, 77]))
    rows = plan_rows(trace)
    assert [row.devices for row in rows[:2]] == [(3,), (77,)]
    assert rows[2].likeness == "alike"
    assert set(rows[2].devices) == set(range(256)) - {3, 77}
    assert sum(len(row.positions) for row in rows) == len(trace.nodes)


def test_ranks_that_differ_in_details_are_folded_by_the_kind_of_it() -> None:
    scan = ranks_scan(40)

    def rename(found: Finding) -> Finding:
        op = found.op
        name = f"{op.op_name}/{op.device}" if "adam" in op.op_name else op.op_name
        return replace(found, op=replace(op, op_name=name))

    trace = build_trace(replace(scan, findings=tuple(rename(f) for f in scan.findings)))
    rows = plan_rows(trace)
    assert [(row.likeness, len(row.devices)) for row in rows] == [("stream", 1), ("similar", 39)]


@pytest.mark.parametrize("guilty", [1, 16, 17, 100])
def test_there_are_never_more_rows_than_fit(guilty: int) -> None:
    trace = build_trace(ranks_scan(128, guilty=range(guilty)))
    rows = plan_rows(trace)
    assert len(rows) <= MOST_ROWS
    assert rows[0].has_origin
    assert 0 in rows[0].devices


def test_expected_values_beside_a_rank_are_told_once() -> None:
    rows = plan_rows(build_trace(scan_of_verdicts()))
    assert [(row.stream, row.aside) for row in rows] == [(1, 1), (2, 0)]


# --- columns ------------------------------------------------------------------------------------


def check_layout(trace: Trace, timeline: Timeline) -> None:
    """What is true of every layout."""
    counted = Counter(m for item in timeline.items for m in item.members)
    assert counted == Counter(range(len(trace.nodes)))
    places = [(item.row, item.column) for item in timeline.items]
    assert len(set(places)) == len(places)
    for row in range(len(timeline.rows)):
        items = [item for item in timeline.items if item.row == row]
        columns = [item.column for item in items]
        assert columns == sorted(columns)
    for wire in timeline.wires:
        assert timeline.items[wire.source].column < timeline.items[wire.target].column
    for rail in timeline.rails:
        source = timeline.items[rail.source]
        for target in rail.targets:
            assert timeline.items[target].row == source.row
            assert timeline.items[target].column > source.column
    for item in timeline.items:
        band = timeline.bands[item.band]
        assert band.first <= item.column <= band.last


@pytest.mark.parametrize("limit", [None, 1, 30])
def test_every_operator_is_in_one_box_and_edges_lead_to_the_right(limit: int | None) -> None:
    for scan in (
        chain_scan(40),
        wide_scan(400),
        ranks_scan(8, guilty=[2, 5]),
        ranks_scan(64),
        scan_of_verdicts(),
    ):
        trace = build_trace(scan)
        check_layout(trace, plan_timeline(trace, limit))


def test_the_receiving_box_stands_right_of_the_sending_one_whatever_the_clocks() -> None:
    trace = build_trace(ranks_scan(8))
    timeline = plan_timeline(trace)
    exchanges = [w for w in timeline.wires if w.evidence == "communication"]
    assert {timeline.items[w.source].row for w in exchanges} == {0}
    assert {timeline.items[w.target].row for w in exchanges} == set(range(1, 8))


def test_steps_stand_in_bands_and_late_ones_share_the_last() -> None:
    timeline = plan_timeline(build_trace(wide_scan(200)))
    assert [band.steps for band in timeline.bands] == [(0,), (1,), (2,), (3,), (4,)]
    origin = make_op("MatMul", [clean()], [bad(nan=1)], at=0)
    found = [finding(origin, Verdict.ORIGIN)]
    for step in range(100):
        op = make_op("Add", [bad(nan=1)], [bad(nan=1)], at=step + 1, step=step)
        found.append(finding(op, cause=origin))
    timeline = plan_timeline(build_trace(make_scan(found)))
    assert [band.steps[0] for band in timeline.bands] == [0, 1, 2, 3, 4, 5]
    assert timeline.bands[-1].steps == tuple(range(5, 100))


@pytest.mark.parametrize(
    "scan",
    [
        pytest.param(wide_scan(5000), id="5000 operators"),
        pytest.param(ranks_scan(256, guilty=range(0, 256, 3)), id="256 ranks"),
    ],
)
def test_what_is_drawn_of_a_large_trace_is_bounded(scan: Scan) -> None:
    trace = build_trace(scan)
    timeline = plan_timeline(trace)
    check_layout(trace, timeline)
    assert len(timeline.items) <= 100
    assert len(timeline.wires) + sum(len(rail.targets) for rail in timeline.rails) <= 400
    assert timeline.columns <= 40


def test_all_boxes_show_when_asked_for() -> None:
    trace = build_trace(wide_scan(300))
    timeline = plan_timeline(trace, 0)
    check_layout(trace, timeline)
    assert len(timeline.items) == 301
    assert not any(item.counted for item in timeline.items)


def test_an_empty_trace_gives_an_empty_layout() -> None:
    assert plan_timeline(build_trace(make_scan([]))) == Timeline()
