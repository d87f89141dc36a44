"""What belongs to a trace, through which edges, and in what order."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dumpscope.causality.dataflow import Dataflow, KnownInput, Producer, lane_of, sequence_key
from dumpscope.errors import OptionsError
from dumpscope.model import Finding, OpRecord, Scan, Verdict
from dumpscope.tracing.trace import Node, Trace, build_trace, find_origins
from op_builders import bad, clean, make_op, saturated
from trace_scans import (
    chain_scan,
    finding,
    make_scan,
    named,
    ranks_scan,
    scan_of_verdicts,
    wide_scan,
)


def names(trace: Trace, part: str) -> list[str]:
    return [node.op.op_name for node in trace.nodes if node.part == part]


def edges(trace: Trace) -> list[tuple[str, str, str]]:
    return [
        (trace.nodes[edge.source].op.op_name, edge.evidence, node.op.op_name)
        for node in trace.nodes
        for edge in node.parents
    ]


def node_named(trace: Trace, name: str, device: int = 0) -> Node:
    return next(n for n in trace.nodes if (n.op.op_name, n.op.device) == (name, device))


# --- where a trace begins -----------------------------------------------------------------------


def test_the_best_ranked_finding_is_where_it_begins() -> None:
    trace = build_trace(scan_of_verdicts())
    assert trace.start is not None
    assert trace.nodes[trace.start].op.op_name == "net/softmax"
    assert trace.origin == trace.start


def test_a_scan_without_findings_gives_an_empty_trace() -> None:
    trace = build_trace(make_scan([]))
    assert (trace.nodes, trace.start, trace.origin, trace.affected) == ((), None, None, 0)


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("net/add", ["net/add"]),
        ("net_add", ["net/add"]),
        ("Cast", ["net/cast"]),
        ("net/m*", ["net/mul", "net/mask", "net/mask2"]),
        ("net/mask", ["net/mask"]),
    ],
)
def test_an_operator_is_found_by_name_type_or_pattern(asked: str, found: list[str]) -> None:
    origins = find_origins(scan_of_verdicts(), asked)
    assert [f.op.op_name for f in origins] == found


def test_an_unknown_operator_is_refused_with_a_suggestion() -> None:
    with pytest.raises(OptionsError, match="did you mean net/gather") as caught:
        find_origins(scan_of_verdicts(), "net/gather_\x1b")
    assert "net/gather_\\x1b: no operator" in str(caught.value)


def test_the_number_in_the_ranking_and_filters_choose() -> None:
    scan = scan_of_verdicts()
    assert find_origins(scan, number=3)[0].op.op_name == "net/mul"
    assert [f.rank for f in find_origins(scan, steps=[1])] == [2, 5]
    ranked = find_origins(ranks_scan(5, guilty=[3, 4]), ranks=[4])
    assert ranked[0].rank == 2
    with pytest.raises(OptionsError, match="the scan has 6"):
        find_origins(scan, number=7)
    with pytest.raises(OptionsError, match="no finding is of that step and rank"):
        find_origins(scan, steps=[9])
    assert find_origins(make_scan([]), steps=[9]) == []


# --- what belongs to it -------------------------------------------------------------------------


def test_a_chain_in_its_order() -> None:
    trace = build_trace(chain_scan(5))
    assert [node.op.task_id for node in trace.nodes] == [0, 1, 2, 3, 4]
    assert [node.depth for node in trace.nodes] == [0, 1, 2, 3, 4]
    assert [[e.source for e in node.parents] for node in trace.nodes] == [[], [0], [1], [2], [3]]
    assert (trace.affected, trace.findings, trace.outside) == (4, 5, ())


def test_what_belongs_to_an_origin_and_what_does_not() -> None:
    trace = build_trace(scan_of_verdicts())
    assert names(trace, "after") == ["net/add", "net/relu"]
    assert edges(trace) == [
        ("net/mask", "bytes", "net/softmax"),
        ("net/softmax", "graph", "net/add"),
        ("net/add", "address", "net/relu"),
    ]
    assert [(o.finding.op.op_name, o.followers) for o in trace.outside] == [
        ("net/gather", 1),
        ("net/mul", 0),
    ]


def test_an_expected_value_is_shown_and_is_not_the_beginning() -> None:
    trace = build_trace(scan_of_verdicts())
    assert names(trace, "expected") == ["net/mask"]
    assert trace.origin is not None
    assert trace.nodes[trace.origin].op.op_name == "net/softmax"
    assert [f.op.op_name for f in trace.aside] == ["net/mask2"]


def test_an_expected_value_can_be_followed_when_asked_for() -> None:
    scan = scan_of_verdicts()
    trace = build_trace(scan, find_origins(scan, "net/mask")[0])
    assert names(trace, "start") == ["net/mask"]
    assert names(trace, "after") == ["net/softmax", "net/add", "net/relu"]


def test_the_way_to_an_operator_that_only_follows() -> None:
    scan = chain_scan(6)
    trace = build_trace(scan, scan.findings[3])
    assert [node.part for node in trace.nodes] == [
        "before", "before", "before", "start", "after", "after",
    ]  # fmt: skip
    assert (trace.origin, trace.start) == (0, 3)


def test_a_clean_producer_is_shown_with_what_the_finding_knows_of_it() -> None:
    scan = scan_of_verdicts()
    trace = build_trace(scan, scan.findings[2])
    producer = node_named(trace, "net/reshape")
    assert (producer.part, producer.verdict, producer.op.op_type) == ("before", None, "Reshape")
    assert edges(trace) == [("net/reshape", "address", "net/mul")]


def test_every_bad_input_has_a_producer_of_its_own() -> None:
    left = make_op("MatMul", [clean()], [named(bad(nan=1), "left")], at=1, name="left")
    right = make_op("MatMul", [clean()], [named(bad(nan=2), "right")], at=2, name="right")
    both = make_op(
        "Add",
        [named(bad(nan=1), "left", "input"), named(bad(nan=2), "right", "input", 1)],
        [bad(nan=3)],
        at=3,
        name="both",
    )
    scan = make_scan(
        [
            finding(left, Verdict.ORIGIN),
            finding(right, Verdict.ORIGIN),
            finding(both, cause=left, evidence="address"),
        ]
    )
    trace = build_trace(scan)
    assert edges(trace) == [("left", "address", "both"), ("right", "bytes", "both")]
    assert names(trace, "joined") == ["right"]
    assert trace.outside == ()
    # Seen from the other side, the tree is the other one's.
    assert edges(build_trace(scan, scan.findings[1]))[0] == ("right", "bytes", "both")


def test_a_saturation_is_followed_through_operators_without_a_finding() -> None:
    limit = saturated()
    first = make_op("MatMul", [clean()], [named(limit, "a")], at=1, name="first")
    passes = make_op("Cast", [named(limit, "a", "input")], [named(limit, "b")], at=2, name="passes")
    idle = make_op("Cast", [clean()], [named(limit, "c")], at=2, name="idle")
    last = make_op(
        "Exp",
        [named(limit, "b", "input"), named(limit, "c", "input", 1)],
        [bad(posinf=3)],
        at=3,
        name="last",
    )
    scan = make_scan([finding(first, Verdict.SATURATED_ORIGIN), finding(last, Verdict.ORIGIN)])
    assert names(build_trace(scan), "after") == []
    trace = build_trace(scan, passing=[passes, idle])
    assert names(trace, "after") == ["passes", "last"]
    assert [node.verdict for node in trace.nodes][1] is None
    assert edges(trace) == [("first", "bytes", "passes"), ("passes", "bytes", "last")]


def test_more_is_followed_where_more_is_known() -> None:
    first = make_op("MatMul", [clean()], [bad(nan=1)], at=1, name="first")
    second = make_op("Mul", [bad(nan=1)], [bad(nan=1)], at=2, name="second")
    third = make_op("Add", [bad(nan=1), bad(nan=1)], [bad(nan=1)], at=3, name="third")
    found = [finding(first, Verdict.ORIGIN), finding(second, cause=first),
             finding(third, cause=first)]  # fmt: skip
    known = {(third.op_id, 1): KnownInput((Producer(second, second.outputs[0], "graph"),))}
    flow = Dataflow([first, second, third], known)
    trace = build_trace(make_scan(found), flow=flow)
    assert edges(trace)[1:] == [("first", "bytes", "third"), ("second", "graph", "third")]


def test_parts_of_an_execution_are_the_execution() -> None:
    merged = make_op("MatMul", [clean()], [bad(nan=1)], at=1, part_ids=(9001, 9002))
    follower = make_op("Add", [bad(nan=1)], [bad(nan=1)], at=2)
    child = replace(finding(follower, cause=merged), caused_by=9002)
    trace = build_trace(make_scan([finding(merged, Verdict.ORIGIN), child]))
    assert [[e.source for e in node.parents] for node in trace.nodes] == [[], [0]]


def test_who_follows_one_thread_of_a_split_operator_by_order_follows_all_of_them() -> None:
    threads = [
        make_op("MatMulV2", [clean()], [bad(posinf=n + 1)], at=n, name="net/mm", task_id=9,
                context_id=110, thread_id=n)
        for n in range(3)
    ]  # fmt: skip
    other = make_op("MatMulV2", [clean()], [bad(nan=4)], at=3, name="net/mm", task_id=9,
                    context_id=111, thread_id=0)  # fmt: skip
    follower = make_op("SoftmaxV2", [bad(posinf=6)], [bad(nan=9)], at=2, name="net/softmax",
                       task_id=9, context_id=112, thread_id=0)  # fmt: skip
    late = replace(threads[2], start_ns=(follower.start_ns or 0) + 5000)
    scan = make_scan([
        *(finding(op, Verdict.ORIGIN, evidence="own_inputs") for op in (*threads[:2], late, other)),
        finding(follower, cause=threads[0], evidence="order"),
    ])  # fmt: skip
    trace = build_trace(scan)
    sources = [trace.nodes[e.source].op for e in node_named(trace, "net/softmax").parents]
    assert [(op.context_id, op.thread_id) for op in sources] == [(110, 0), (110, 1)]
    assert {e.evidence for e in node_named(trace, "net/softmax").parents} == {"order"}
    # What ran later, or is another operator, began elsewhere.
    assert [(o.finding.op.context_id, o.finding.op.thread_id) for o in trace.outside] == [
        (110, 2),
        (111, 0),
    ]


def test_who_is_linked_to_one_thread_by_more_than_order_follows_that_one() -> None:
    threads = [
        make_op("MatMulV2", [clean()], [bad(posinf=n + 1)], at=n, name="net/mm", task_id=9,
                context_id=110, thread_id=n)
        for n in range(2)
    ]  # fmt: skip
    follower = make_op("Exp", [bad(posinf=1)], [bad(nan=9)], at=5, name="net/exp")
    scan = make_scan([
        *(finding(op, Verdict.ORIGIN, evidence="own_inputs") for op in threads),
        finding(follower, cause=threads[0], evidence="bytes"),
    ])  # fmt: skip
    trace = build_trace(scan)
    (edge,) = node_named(trace, "net/exp").parents
    assert (trace.nodes[edge.source].op.thread_id, edge.evidence) == (0, "bytes")


# --- ranks --------------------------------------------------------------------------------------


def test_an_exchange_brings_it_to_every_rank() -> None:
    trace = build_trace(ranks_scan(8))
    received = [n for n in trace.nodes if n.verdict is Verdict.RECEIVED]
    assert {n.op.device for n in received} == {0, 1, 2, 4, 5, 6, 7}
    for node in received:
        (edge,) = node.parents
        sender = trace.nodes[edge.source]
        assert (edge.evidence, sender.op.device) == ("communication", 3)
        assert sender.op.op_name == node.op.op_name
    # 2 exchanges, each with 3 operators behind it, on 8 ranks; one more on the guilty one.
    assert trace.affected == 8 * 2 * 4 + 1


def test_every_guilty_rank_is_a_source() -> None:
    trace = build_trace(ranks_scan(6, guilty=[1, 4]))
    assert trace.start is not None
    assert trace.nodes[trace.start].op.device == 1
    assert {n.op.device for n in trace.nodes if n.part == "joined"} == {4}
    other = node_named(trace, "gradients/HcomAllReduce-op0", device=0)
    senders = [(trace.nodes[e.source].op.device, e.evidence) for e in other.parents]
    assert senders == [(1, "communication"), (4, "communication")]
    # The other guilty rank's own way is no beginning of something else.
    assert trace.outside == ()


def test_of_several_senders_those_that_the_finding_names_are_sources() -> None:
    scan = ranks_scan(8, guilty=[1, 3, 4, 5, 7])
    told = [
        replace(f, reason=replace(f.reason, parameters={**f.reason.parameters, "ranks": "3-5, 7"}))
        if f.verdict is Verdict.RECEIVED else f
        for f in scan.findings
    ]  # fmt: skip
    trace = build_trace(replace(scan, findings=tuple(told)), scan.findings[1])
    received = [n for n in trace.nodes if n.verdict is Verdict.RECEIVED]
    assert received
    for node in received:
        assert {trace.nodes[e.source].op.device for e in node.parents} == {3, 4, 5, 7}


def test_the_tree_is_that_of_the_rank_that_was_asked_for() -> None:
    scan = ranks_scan(6, guilty=[1, 4])
    trace = build_trace(scan, scan.findings[1])
    received = [n for n in trace.nodes if n.verdict is Verdict.RECEIVED]
    assert {trace.nodes[n.parents[0].source].op.device for n in received} == {4}


def test_clocks_of_ranks_are_not_compared() -> None:
    """Moving the clock of a rank changes nothing."""
    scan = ranks_scan(4, guilty=[2])

    def late(found: Finding) -> Finding:
        op = found.op
        assert op.start_ns is not None
        if op.device != 2:
            return found
        return replace(found, op=replace(op, start_ns=op.start_ns + 10**15))

    moved = replace(scan, findings=tuple(late(f) for f in scan.findings))
    order = [node.op.op_id for node in build_trace(scan).nodes]
    assert [node.op.op_id for node in build_trace(moved).nodes] == order


# --- order and size -----------------------------------------------------------------------------


def naive_closure(scan: Scan, start: int) -> set[int]:
    """All executions that grew out of `start`, by asking again until nothing is added."""
    reached = {start}
    while True:
        more = {f.op.op_id for f in scan.findings if f.caused_by in reached} - reached
        if not more:
            return reached
        reached |= more


@st.composite
def tangled_scans(draw: st.DrawFn) -> Scan:
    """Scans in which any finding may be caused by any other one, itself included, or by none."""
    count = draw(st.integers(1, 12))
    ops: list[OpRecord] = []
    for at in range(count):
        timed = draw(st.booleans())
        ops.append(
            make_op(
                draw(st.sampled_from(["Add", "Mul"])),
                [bad(nan=1)],
                [bad(nan=1)],
                at=draw(st.integers(0, 3)),
                step=draw(st.sampled_from([None, 0, 1])),
                device=draw(st.sampled_from([None, 0, 1])),
                stream_id=draw(st.sampled_from([None, 1])),
                name=f"op{at}",
                **({} if timed else {"start_ns": None}),
            )
        )
    found = []
    for op in ops:
        cause = draw(st.sampled_from([None, -7, *(other.op_id for other in ops)]))
        verdict = draw(st.sampled_from([v for v in Verdict if v is not Verdict.EXPECTED]))
        found.append(replace(finding(op, verdict), caused_by=cause))
    return make_scan(found)


@given(tangled_scans(), st.randoms(use_true_random=False))
def test_any_edges_give_each_execution_once_behind_its_sources(scan: Scan, random: Random) -> None:
    start = scan.findings[0].op.op_id
    trace = build_trace(scan)
    ids = [node.op.op_id for node in trace.nodes]
    assert len(set(ids)) == len(ids)
    for number, node in enumerate(trace.nodes):
        assert all(edge.source < number for edge in node.parents)
    grown = {n.op.op_id for n in trace.nodes if n.part in ("start", "after")}
    if all(f.verdict is not Verdict.RECEIVED for f in scan.findings):
        assert grown == naive_closure(scan, start)
    # The order in which a scan lists its findings means nothing.
    shuffled = list(scan.findings)
    random.shuffle(shuffled)
    again = build_trace(replace(scan, findings=tuple(shuffled)), scan.findings[0])
    assert again.nodes == trace.nodes


def test_within_a_rank_the_order_is_that_of_execution() -> None:
    trace = build_trace(wide_scan(300))
    ops = [node.op for node in trace.nodes]
    assert ops == sorted(ops, key=lambda op: (lane_of(op), sequence_key(op)))


def test_without_times_the_writers_order_counts() -> None:
    ops = [
        make_op("Add", [bad(nan=1)], [bad(nan=1)], at=9 - i, order=i, start_ns=None, name=f"op{i}")
        for i in range(4)
    ]
    found = [finding(ops[0], Verdict.ORIGIN)]
    found += [finding(op, cause=ops[0], evidence="order") for op in ops[1:]]
    trace = build_trace(make_scan(reversed(found)), found[0])
    assert [node.op.op_name for node in trace.nodes] == ["op0", "op1", "op2", "op3"]


def test_edges_of_many_operators() -> None:
    trace = build_trace(wide_scan(5000))
    assert trace.affected == 5000
    # 2 of 3 edges are by bytes, none is lost.
    counted = [node.parents[0].evidence for node in trace.nodes if node.parents]
    assert (counted.count("bytes"), counted.count("order")) == (3333, 1667)
