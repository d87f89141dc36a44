"""Edges of compiled graphs: what is stepped over, what is not known, what verdicts make of it.

Graphs are written by hand as GE's protobuf text; the truth is who wrote what in the made dump.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from dumpscope.causality.graphs import GraphIndex, GraphInput, fold_name
from dumpscope.model import PARAMETER, Finding, GraphNode
from dumpscope.words import render
from handmade import Array, Dump

VALUES = np.random.default_rng(5).uniform(-3, 3, (8, 16)).astype(np.float16)

Graph = Mapping[str, tuple[str, Sequence[str]]]
"""Name -> type and inputs ("producer:output index"; index -1 is a control edge)."""


def node(name: str, op_type: str, *inputs: tuple[str, int], file: str = "a.txt") -> GraphNode:
    return GraphNode(name, op_type, inputs, (), 0, file=file)


def with_nan(*rows: int) -> Array:
    values: Array = VALUES.copy()
    values[list(rows), 3] = np.nan
    return values


def write_graph(dump: Dump, graph: Graph, name: str = "ge_proto_00000001_Build.txt") -> None:
    lines = ["graph {", '  name: "g"']
    for op_name, (op_type, inputs) in graph.items():
        lines += ["  op {", f'    name: "{op_name}"', f'    type: "{op_type}"']
        lines += [f'    input: "{given}"' for given in inputs]
        lines.append("  }")
    dump.root.mkdir(parents=True, exist_ok=True)
    (dump.root / name).write_text("\n".join([*lines, "}"]) + "\n", encoding="utf-8")


@pytest.fixture
def dump(tmp_path: Path) -> Dump:
    return Dump(tmp_path / "dump")


def told(dump: Dump) -> dict[str, Finding]:
    return {finding.op.op_type: finding for finding in dump.ask().findings}


# --- the index ------------------------------------------------------------------------------------

DUMPED = {"net_mm": "net/mm", "net_add": "net/add"}


def inputs_of(name: str, *nodes: GraphNode) -> list[GraphInput] | None:
    return GraphIndex(nodes).inputs_of(name, DUMPED)


def test_names_are_compared_as_they_stand_in_file_names() -> None:
    assert fold_name("net/layer.0\\mm x") == "net_layer_0_mm_x"
    graph = node("net/add", "Add", ("net/mm", 1))
    assert inputs_of("net_add", graph) == [GraphInput("net/mm", 1)]
    assert inputs_of("net.add", graph) == [GraphInput("net/mm", 1)]


def test_an_operator_that_is_in_no_graph_has_no_edges() -> None:
    assert inputs_of("net/other", node("net/add", "Add", ("net/mm", 0))) is None
    assert not GraphIndex(())


def test_what_was_not_dumped_is_stepped_over_while_it_reads_one_tensor() -> None:
    nodes = (
        node("cast", "Cast", ("reshape", 0)),
        node("reshape", "Reshape", ("net/mm", 2)),
        node("both", "Concat", ("net/mm", 0), ("net/mm", 1)),
    )
    assert inputs_of(
        "net/add", node("net/add", "Add", ("cast", 0), ("both", 0), ("gone", 0)), *nodes
    ) == [
        GraphInput("net/mm", 2, direct=False),
        GraphInput(None),
        GraphInput(None),
    ]


def test_what_the_graph_hands_in_is_outside() -> None:
    nodes = (node("cast", "Cast", ("net/weight", 0)), node("net/weight", "Const"))
    assert inputs_of("net/add", node("net/add", "Add", ("net/weight", 0), ("cast", 0)), *nodes) == [
        GraphInput(None, outside=True, source="net/weight"),
        GraphInput(None, direct=False, outside=True, source="net/weight"),
    ]


def test_a_graph_that_runs_in_a_circle_ends() -> None:
    nodes = (node("a", "Cast", ("b", 0)), node("b", "Cast", ("a", 0)))
    assert inputs_of("net/add", node("net/add", "Add", ("a", 0)), *nodes) == [
        GraphInput(None, direct=False)
    ]


@pytest.mark.parametrize(
    ("other", "known"),
    [
        (node("net/add", "Add", ("net/mm", 0), file="b.txt"), True),
        (node("net/add", "Mul", ("net/mm", 0), file="b.txt"), True),  # the same edges
        (node("net/add", "Add", ("net/mm", 1), file="b.txt"), False),
        (node("net/add", "Add", file="b.txt"), False),
        (node("net/add", "Mul", ("net/mm", 0)), False),  # twice in one file
    ],
)
def test_of_two_graphs_that_disagree_neither_counts(other: GraphNode, known: bool) -> None:
    found = inputs_of("net/add", node("net/add", "Add", ("net/mm", 0)), other)
    assert found == ([GraphInput("net/mm", 0)] if known else None)


def test_parameters_are_no_operators() -> None:
    index = GraphIndex([node("net/add", PARAMETER), node("net/add", "Add", ("net/mm", 0))])
    assert index.inputs_of("net/add", DUMPED) == [GraphInput("net/mm", 0)]
    assert index.producers_of("net.add") == ["net_mm"]
    assert index.producers_of("net/mm") == []


# --- what verdicts make of them -------------------------------------------------------------------

CHAIN: Graph = {
    "x": ("Data", ()),
    "MatMul_op": ("MatMul", ("x:0", "w:0")),
    "w": ("Const", ()),
    "Log_op": ("Log", ("x:0",)),
    "shape": ("Reshape", ("MatMul_op:0",)),
    "Add_op": ("Add", ("shape:0", "Log_op:-1", "x:0")),
}


def test_an_edge_names_the_producer_where_order_would_name_another(dump: Dump) -> None:
    write_graph(dump, CHAIN)
    dump.run("MatMul", [VALUES, VALUES], [with_nan(1)])
    dump.run("Log", [VALUES], [with_nan(2)])
    dump.run("Add", [with_nan(1), VALUES], [with_nan(1)])
    add = told(dump)["Add"]
    assert (str(add.verdict), add.evidence) == ("propagated", ("own_inputs", "graph"))
    assert add.reason.parameters["producer"] == "MatMul_op"


def test_a_control_edge_carries_no_values(dump: Dump) -> None:
    write_graph(dump, {**CHAIN, "Add_op": ("Add", ("x:0", "MatMul_op:-1"))})
    dump.run("MatMul", [VALUES, VALUES], [with_nan(1)])
    dump.run("Add", [with_nan(2)], [with_nan(2)])
    add = told(dump)["Add"]
    assert str(add.verdict) == "bad_input"
    assert add.reason.parameters["source"] == "x"
    assert "x hands it in from outside of the graph" in render(add.reason)


def test_a_clean_producer_at_the_other_end_of_an_edge_is_a_handoff(dump: Dump) -> None:
    write_graph(dump, CHAIN)
    dump.run("MatMul", [VALUES, VALUES], [VALUES])
    dump.run("Log", [VALUES], [with_nan(2)])
    dump.run("Add", [with_nan(1), VALUES], [with_nan(1)])
    add = told(dump)["Add"]
    assert str(add.verdict) == "handoff"
    assert add.reason.parameters["producer"] == "MatMul_op"


def test_the_output_index_of_an_edge_counts(dump: Dump) -> None:
    write_graph(dump, {**CHAIN, "Add_op": ("Add", ("MatMul_op:1",))})
    dump.run("MatMul", [VALUES, VALUES], [with_nan(1), VALUES])
    dump.run("Add", [with_nan(1) + 1], [with_nan(1)])
    assert str(told(dump)["Add"].verdict) == "handoff"


def test_outputs_alone_beside_a_graph_tell_who_was_given_finite_values(dump: Dump) -> None:
    graph = {
        "Relu_op": ("Relu", ("x:0",)),
        "Exp_op": ("Exp", ("Relu_op:0",)),
        "Log_op": ("Log", ("Relu_op:0",)),
        "Add_op": ("Add", ("Exp_op:0", "Log_op:0")),
        "x": ("Data", ()),
    }
    write_graph(dump, graph)
    dump.run("Relu", [], [VALUES])
    dump.run("Exp", [], [with_nan(1)])
    dump.run("Log", [], [with_nan(2)])
    dump.run("Add", [], [with_nan(1, 2)])
    assert dump.verdicts() == {"Exp": "origin", "Log": "origin", "Add": "propagated"}
    assert told(dump)["Exp"].evidence == ("graph",)


@pytest.mark.parametrize("ending", ["_lxslice{}", "_lxslice{}_sgt_graph_0", "_sgt_graph_0"])
@pytest.mark.parametrize("data", ["Relu_op:0", ""])
def test_what_was_dumped_in_slices_is_not_stepped_over(dump: Dump, ending: str, data: str) -> None:
    # Manual slicing of FFTS+ gives an operator other names in the dump than in the graph.
    graph = {
        "Relu_op": ("Relu", ("x:0",)),
        "Exp_op": ("Exp", (data,) if data else ()),
        "Add_op": ("Add", ("Exp_op:0",)),
        "x": ("Data", ()),
    }
    write_graph(dump, graph)
    dump.run("Relu", [], [VALUES])
    dump.run("Exp", [], [with_nan(1)], name=f"Exp_op{ending.format(0)}")
    dump.run("Add", [], [with_nan(1)])
    # The ReLU is clean, but the Add did not read it.
    assert dump.verdicts() == {"Exp": "unknown_inputs", "Add": "propagated"}


def test_inputs_alone_beside_a_graph_show_the_output_at_its_reader(dump: Dump) -> None:
    graph = {"Exp_op": ("Exp", ("x:0",)), "Add_op": ("Add", ("Exp_op:0",)), "x": ("Data", ())}
    write_graph(dump, graph)
    dump.run("Exp", [VALUES], [])
    dump.run("Add", [with_nan(1)], [])
    found = told(dump)
    assert str(found["Exp"].verdict) == "origin"
    assert str(found["Add"].verdict) == "propagated"
    assert "judged by what the operator that read it was given" in render(
        found["Exp"].reason
    ).replace("Its", "its").replace("Judged", "judged")
    # What was only seen at the reader is no tensor of the dump.
    assert [t.role for t in found["Exp"].op.tensors] == ["input"]


def test_edges_do_not_reach_into_another_step(dump: Dump) -> None:
    write_graph(dump, CHAIN)
    dump.run("MatMul", [VALUES, VALUES], [with_nan(1)], step=0)
    dump.run("Add", [with_nan(4), VALUES], [with_nan(4)], step=1)
    add = told(dump)["Add"]
    assert str(add.verdict) == "bad_input"
    assert add.reason.parameters["seen_before"] == 0


def test_the_producer_is_sought_in_the_step_of_the_reader(dump: Dump) -> None:
    write_graph(dump, CHAIN)
    dump.run("MatMul", [VALUES, VALUES], [with_nan(1)], step=0)
    dump.run("MatMul", [VALUES, VALUES], [VALUES], step=1)
    dump.run("Add", [with_nan(4), VALUES], [with_nan(4)], step=1)
    assert str(told(dump)["Add"].verdict) == "handoff"


def test_what_lies_between_may_have_made_what_its_reader_shows(dump: Dump) -> None:
    graph = {"Exp_op": ("Exp", ("x:0",)), "between": ("Cast", ("Exp_op:0",)),
             "Add_op": ("Add", ("between:0",)), "x": ("Data", ())}  # fmt: skip
    write_graph(dump, graph)
    dump.run("Exp", [VALUES], [])
    dump.run("Add", [with_nan(1)], [])
    assert dump.verdicts() == {"Add": "bad_input"}


def test_an_execution_after_the_reader_is_not_its_producer(dump: Dump) -> None:
    write_graph(dump, CHAIN)
    dump.run("MatMul", [VALUES, VALUES], [VALUES])
    dump.run("Add", [with_nan(1), VALUES], [with_nan(1)])
    dump.run("MatMul", [VALUES, VALUES], [with_nan(1)])
    assert str(told(dump)["Add"].verdict) == "handoff"


def test_a_graph_that_is_cut_off_or_foreign_changes_no_verdict(dump: Dump) -> None:
    write_graph(dump, {"other": ("Add", ("another:0",))})
    dump.run("MatMul", [VALUES, VALUES], [with_nan(1)])
    dump.run("Add", [with_nan(1)], [with_nan(1, 2)])
    assert dump.verdicts() == {"MatMul": "origin", "Add": "propagated"}
    assert told(dump)["Add"].evidence == ("own_inputs", "bytes")
