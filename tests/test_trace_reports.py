"""The tree in the terminal, the picture, the graph and the document of a trace."""

from __future__ import annotations

import io
import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from typing import Any

import pytest
from rich.cells import cell_len

from dumpscope.model import Finding, Scan
from dumpscope.reporters.trace_document import build_trace_document, write_document
from dumpscope.reporters.trace_dot import write_dot
from dumpscope.reporters.trace_svg import write_svg
from dumpscope.reporters.trace_text import render_trace
from dumpscope.tracing.trace import build_trace
from scan_samples import HOSTILE_NAMES
from trace_scans import chain_scan, make_scan, ranks_scan, scan_of_verdicts, wide_scan

SVG = "{http://www.w3.org/2000/svg}"


def hostile_scan() -> Scan:
    """A chain in which everything that a dump names has a hostile name."""
    scan = chain_scan(len(HOSTILE_NAMES))

    def rename(found: Finding, name: str) -> Finding:
        op = replace(found.op, op_type=name, op_name=name, file=name, stack=(name,))
        parameters = {**found.reason.parameters, "producer": name, "producer_type": name}
        return replace(found, op=op, reason=replace(found.reason, parameters=parameters))

    findings = map(rename, scan.findings, HOSTILE_NAMES)
    return replace(scan, findings=tuple(findings), root="/data/\udcff\x1b]0;title\x07")


def svg_of(scan: Scan, **options: Any) -> ET.Element:
    target = io.BytesIO()
    write_svg(build_trace(scan), target, **options)
    return ET.fromstring(target.getvalue())


def texts(root: ET.Element) -> list[str]:
    return [element.text or "" for element in root.iter(f"{SVG}text")]


def styles(root: ET.Element, tag: str) -> list[str]:
    return [element.get("class", "") for element in root.iter(SVG + tag)]


# --- the tree -----------------------------------------------------------------------------------


def test_the_tree_tells_the_way_and_what_does_not_belong_to_it() -> None:
    text = render_trace(build_trace(scan_of_verdicts()))
    lines = [re.sub(r"  +", "  ", line) for line in text.splitlines()]
    assert (
        lines[0]
        == "SoftmaxV2 net/softmax is where it began (#1, origin): step 0, rank 0, stream 1."
    )
    assert "2 operators grew out of it, on rank 0, in step 0." in lines
    head = lines.index("operator  verdict  bad values  stream")
    assert lines[head + 1 : head + 4] == [
        "● SoftmaxV2 net/softmax  origin  8/32 NaN  1",
        "↓ graph net/add  propagated  8/32 NaN  2",
        "↓ address net/relu  swallowed  8/32 NaN  1",
    ]
    assert lines[head + 5 :] == [
        "Edges: graph = an edge of the graph; address = the same device address; bytes = the same "
        "bytes.",
        "Expected values that were read on the way: 1 (MaskedFill 1)",
        "Expected values beside it (on purpose, not part of this): 1 (MaskedFill 1)",
        "What began elsewhere in this scan (3 of 6 findings are not in this trace):",
        "  #2 bad input GatherV2 net/gather (step 1, rank 0; 1 grew out of it)",
        "  #3 handoff net/mul (step 0, rank 0)",
        "  `dumpscope trace --finding N` shows what grew out of one of them.",
    ]


def test_what_only_follows_is_counted_by_type() -> None:
    text = render_trace(build_trace(chain_scan(500)))
    assert "↓ … 495 operators that only follow (Add 495)" in text
    assert len(text.splitlines()) < 20
    forks = render_trace(build_trace(wide_scan(5000)))
    assert len(forks.splitlines()) < 30
    assert "swallow it" in forks


def test_256_ranks_are_told_in_a_few_lines() -> None:
    text = render_trace(build_trace(ranks_scan(256, guilty=[3, 77])))
    assert len(text.splitlines()) < 20
    assert "(also from rank 77)" in text
    assert re.search(
        r"exchange gradients/HcomAllReduce-op0 .* received +32/32 NaN +254 ranks", text
    )
    assert "The same bad values also come from #2 origin network/Mul-op0 (step 1, rank 77)." in text


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("width", [60, 100])
@pytest.mark.parametrize("limit", [None, 0])
def test_no_line_is_wider_than_the_terminal(lang: str, width: int, limit: int | None) -> None:
    for scan in (hostile_scan(), wide_scan(120), ranks_scan(20), scan_of_verdicts()):
        text = render_trace(build_trace(scan), lang=lang, width=width, limit=limit)
        assert max(cell_len(line) for line in text.splitlines()) <= width


def test_hostile_names_reach_no_terminal() -> None:
    text = render_trace(build_trace(hostile_scan()), limit=0)
    assert all(line.isprintable() for line in text.splitlines())
    text.encode()
    assert len(text.splitlines()) < 60


def test_ascii_is_enough() -> None:
    for scan in (hostile_scan(), wide_scan(120), ranks_scan(20), scan_of_verdicts()):
        text = render_trace(build_trace(scan), ascii_only=True, lang="zh")
        assert text.isascii()
    assert "\n`- ... 80 operators" in render_trace(build_trace(ranks_scan(20)), ascii_only=True)


def test_an_empty_scan_has_one_sentence() -> None:
    text = render_trace(build_trace(make_scan([])))
    assert text == "The scan has no findings: there is no way of a bad value to show.\n"


def test_the_way_to_an_operator_stands_above_it() -> None:
    scan = chain_scan(30)
    text = render_trace(build_trace(scan, scan.findings[20]))
    assert text.startswith("What grew out of net/Add_20 (#21, propagated): step 0, rank 0")
    assert "The bad value came to it from #1 origin net/MatMul_0 (step 0, rank 0)." in text
    rows = [line for line in text.splitlines() if "propagated" in line or "origin" in line][2:]
    assert rows[0].startswith("● net/MatMul_0")
    assert rows[20].startswith("↓ bytes net/Add_20 (asked for)")


# --- the picture --------------------------------------------------------------------------------


def test_the_picture_shows_every_kind_with_its_own_style() -> None:
    root = svg_of(scan_of_verdicts())
    boxes = [s for s in styles(root, "g") if s.startswith("ts-box")]
    # Each box, and each style once more in the legend.
    assert sorted(boxes) == sorted(
        2
        * ["ts-box ts-origin", "ts-box ts-expected", "ts-box ts-propagated", "ts-box ts-swallowed"]
    )
    edges = {s for s in styles(root, "path") if s.startswith("ts-edge")}
    assert edges == {"ts-edge ts-graph", "ts-edge ts-address", "ts-edge ts-bytes"}
    shown = texts(root)
    assert (
        shown[0]
        == "SoftmaxV2 net/softmax is where it began (#1, origin): step 0, rank 0, stream 1."
    )
    for text in ("origin", "#1", "SoftmaxV2", "net/softmax", "8/32 NaN", "step 0", "rank 0",
                 "stream 2", "+1 expected", "it began here"):  # fmt: skip
        assert text in shown


def test_the_picture_says_what_its_axis_is() -> None:
    text = " ".join(texts(svg_of(chain_scan(20))))
    assert "causal order, not to scale. +times are each rank's own clock" in text
    assert "+2 µs" in texts(svg_of(chain_scan(20)))
    untimed = chain_scan(20)
    findings = tuple(replace(f, op=replace(f.op, start_ns=None)) for f in untimed.findings)
    assert "the dump has no times" in " ".join(texts(svg_of(replace(untimed, findings=findings))))


def test_order_alone_is_drawn_as_a_rail() -> None:
    root = svg_of(wide_scan(40), limit=0)
    rails = [s for s in styles(root, "path") if "ts-rail" in s or s == "ts-edge ts-order rail"]
    assert rails
    assert "order: it ran later, nothing else links them" in texts(root)


@pytest.mark.parametrize(
    "scan",
    [
        pytest.param(wide_scan(5000), id="5000 operators"),
        pytest.param(ranks_scan(256, guilty=[3, 77]), id="256 ranks"),
        pytest.param(ranks_scan(256, guilty=range(0, 256, 2)), id="128 guilty ranks"),
    ],
)
def test_a_large_picture_stays_small_and_within_its_frame(scan: Scan) -> None:
    root = svg_of(scan)
    assert sum(1 for _ in root.iter()) < 1200
    assert len(ET.tostring(root)) < 200_000
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    assert width < 6000
    assert height < 3000
    for box in root.iter(f"{SVG}rect"):
        if "%" not in box.get("width", ""):
            assert float(box.get("x", 0)) + float(box.get("width", 0)) <= width
            assert float(box.get("y", 0)) + float(box.get("height", 0)) <= height


def test_hostile_names_are_only_text_in_the_picture() -> None:
    root = svg_of(hostile_scan(), limit=0)
    allowed = {"svg", "title", "desc", "style", "defs", "marker", "path", "rect", "text", "g"}
    assert {element.tag.removeprefix(SVG) for element in root.iter()} == allowed
    for element in root.iter():
        assert not any(name.startswith("on") or "href" in name for name in element.attrib)
        assert (element.text or "").replace("\n", "").isprintable()


def test_the_picture_loads_nothing() -> None:
    target = io.BytesIO()
    write_svg(build_trace(ranks_scan(4)), target)
    text = target.getvalue().decode()
    assert re.findall(r"(?:https?:)?//[^\s\"]+", text) == ["http://www.w3.org/2000/svg"]
    assert not re.search(r"url\((?!#ts-)|@import|<script|<image|<use", text)


def test_the_picture_of_an_empty_scan_says_so() -> None:
    root = svg_of(make_scan([]))
    assert texts(root)[0].startswith("The scan has no findings")


# --- the graph ----------------------------------------------------------------------------------


def dot_of(scan: Scan, **options: Any) -> str:
    target = io.BytesIO()
    write_dot(build_trace(scan), target, **options)
    return target.getvalue().decode()


def test_the_graph_has_a_cluster_for_each_rank_and_edges_by_evidence() -> None:
    text = dot_of(ranks_scan(3, guilty=[1]))
    assert re.findall(r'label="(rank \d, stream 1)"', text) == [
        "rank 1, stream 1", "rank 0, stream 1", "rank 2, stream 1",
    ]  # fmt: skip
    assert len(re.findall(r'-> n\d+ \[label="exchange"', text)) >= 2
    assert '"origin #1\\nMul\\nnetwork/Mul-op0\\n2/32 +Inf\\nstep 1"' in text


def test_names_stay_inside_their_quotes() -> None:
    text = dot_of(hostile_scan(), limit=0)
    # What is left when quoted strings are taken out, as the language of Graphviz reads them.
    bare = re.sub(r'"(?:[^"\\]|\\.)*"', '""', text)
    assert '"' not in bare.replace('""', "")
    assert set(re.findall(r"[a-z_]+", bare)) <= {
        "digraph", "trace", "charset", "rankdir", "labelloc", "t", "labeljust", "l", "label", "n",
        "node", "shape", "box", "style", "filled", "fillcolor", "subgraph", "cluster_", "color",
        "penwidth", "dashed", "dotted", "note", "constraint", "false",
    }  # fmt: skip


# --- the document -------------------------------------------------------------------------------


def document_of(scan: Scan, **options: Any) -> dict[str, object]:
    target = io.BytesIO()
    write_document(build_trace(scan), target, **options)

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no strict JSON")

    found: dict[str, object] = json.loads(target.getvalue().decode(), parse_constant=refuse)
    return found


def test_the_document_holds_nodes_and_edges() -> None:
    document = build_trace_document(build_trace(scan_of_verdicts()))
    assert document["schema"] == "dumpscope.trace/1"
    assert (document["start"], document["origin"], document["turn"]) == (1, 1, None)
    assert document["counts"] == {
        "findings": 6, "nodes": 4, "affected": 2, "joined": 0, "before": 0, "expected": 1,
        "edges": 3,
    }  # fmt: skip
    nodes = document["nodes"]
    assert [(n["op_name"], n["part"], n["verdict"], n["rank"], n["depth"]) for n in nodes] == [
        ("net/mask", "expected", "expected", None, 0),
        ("net/softmax", "start", "origin", 1, 1),
        ("net/add", "after", "propagated", 4, 2),
        ("net/relu", "after", "swallowed", 6, 3),
    ]
    assert [n["parents"] for n in nodes] == [
        [],
        [{"node": 0, "evidence": "bytes"}],
        [{"node": 1, "evidence": "graph"}],
        [{"node": 2, "evidence": "address"}],
    ]
    assert (nodes[1]["step"], nodes[1]["device"], nodes[1]["stream_id"]) == (0, 0, 1)
    assert nodes[1]["tensor"] == {
        "role": "output", "index": 0, "dtype": "float16", "shape": [4, 8], "count": 32, "nan": 8,
        "posinf": 0, "neginf": 0, "saturated": 0,
    }  # fmt: skip
    assert [(o["op_name"], o["followers"]) for o in document["outside"]] == [
        ("net/gather", 1), ("net/mul", 0),
    ]  # fmt: skip
    assert [(o["op_name"], o["rule"]) for o in document["aside"]] == [("net/mask2", "mask-fill")]


@pytest.mark.parametrize(
    ("change", "count", "nan", "saturated"),
    [({"from_statistics": True}, 32, 8, None), ({"dumped": False}, None, None, None)],
)
def test_what_is_not_known_of_a_tensor_is_null(
    change: dict[str, Any], count: int | None, nan: int | None, saturated: int | None
) -> None:
    scan = scan_of_verdicts()
    (start, *rest) = scan.findings
    assert start.deciding is not None
    tensors = list(start.op.tensors)
    tensor = tensors[start.deciding]
    stats = replace(tensor.stats, min=None, max=None)
    tensors[start.deciding] = replace(tensor, stats=stats, **change)
    start = replace(start, op=replace(start.op, tensors=tuple(tensors)))
    nodes = build_trace_document(build_trace(replace(scan, findings=(start, *rest))))["nodes"]
    (found,) = (node["tensor"] for node in nodes if node["part"] == "start")
    assert (found["count"], found["nan"], found["saturated"]) == (count, nan, saturated)


def test_a_cut_document_says_so_and_its_edges_stay_inside() -> None:
    document = document_of(wide_scan(3000))
    assert document["truncated"] == 2001
    nodes = document["nodes"]
    assert isinstance(nodes, list)
    assert len(nodes) == 1000
    assert all(p["node"] < 1000 for n in nodes for p in n["parents"])
    assert document_of(wide_scan(3000), limit=0)["truncated"] == 0


def test_hostile_names_survive_in_the_document() -> None:
    document = document_of(hostile_scan())
    nodes = document["nodes"]
    assert isinstance(nodes, list)
    assert [n["op_name"] for n in nodes] == list(HOSTILE_NAMES)
    target = io.BytesIO()
    write_document(build_trace(hostile_scan()), target)
    assert all(line.isprintable() for line in target.getvalue().decode().splitlines())


def test_the_document_of_an_empty_scan() -> None:
    document = document_of(make_scan([]))
    assert (document["start"], document["origin"], document["nodes"]) == (None, None, [])
