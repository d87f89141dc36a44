"""Graph texts: operators, edges and original names, in three forms and in bounded memory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import ARCHIVES
from dumpscope.errors import CorruptDumpError, TruncatedDumpError
from dumpscope.model import DumpFile, GraphNode, Match
from dumpscope.readers.ge_graph import GeGraphReader
from dumpscope.readers.protocol import Record
from dumpscope.source import LocalSource, ReadBuffer
from dumpscope.testing.damage import mutated
from memory_source import MemorySource, read_all
from reader_fuzz import exhaust

READER = GeGraphReader()

PROTO = r"""
graph {
  name: "g"
  op {
    name: "data"
    type: "Data"
    attr {
      key: "index"
      value {
        i: 0
      }
    }
    output_desc {
      name: "op {"
      dtype: DT_FLOAT
      shape {
        dim: 2
      }
    }
  }
  op {
    name: "fc/Mat\"Mul"
    type: "MatMulV2"
    input: "data:0"
    input: "weight:1"
    input: ""
    input: "barrier:-1"
    attr {
      key: "_datadump_original_op_names"
      value {
        list {
          s: "fc/MatMul"
          s: "fc/Add\303\251"
          val_type: VT_LIST_STRING
        }
      }
    }
    attr {
      key: "note"
      value {
        s: "} op { name: \"no\" }"
      }
    }
    id: 7
  }
}
graph {
  name: "sub"
  op {
    name: "inner"
    type: "Relu"
    input: "fc/Mat\"Mul:0"
  }
}
"""
NODES = [
    GraphNode("data", "Data", (), (), 0),
    GraphNode('fc/Mat"Mul', "MatMulV2", (("data", 0), ("weight", 1)), ("fc/MatMul", "fc/Addé"), 1),
    GraphNode("inner", "Relu", (('fc/Mat"Mul', 0),), (), 2),
]

ONNX = r"""ir_version: 6
producer_name: "GE"
graph {
  node {
    output: "data:0"
    name: "data"
    op_type: "ge:Data"
    attribute {
      name: "index"
      type: INT
    }
  }
  node {
    input: "data:0"
    input: "weight:1"
    input: ""
    input: "barrier:-1"
    name: "fc/Mat\"Mul"
    op_type: "ge:MatMulV2"
    attribute {
      name: "_datadump_original_op_names"
      strings: "fc/MatMul"
      strings: "fc/Add\303\251"
      type: STRINGS
    }
    attribute {
      name: "note"
      s: "} node { name: \"no\" }"
    }
  }
  node {
    name: "sub"
    op_type: "subgraph"
    attribute {
      name: "graph"
      g {
        node {
          input: "fc/Mat\"Mul:0"
          name: "inner"
          op_type: "ge:Relu"
        }
      }
    }
  }
  name: "g"
}
"""

JSON = json.dumps(
    {
        "name": "model",
        "graph": [
            {
                "name": "g",
                "op": [
                    {"attr": [{"key": "index", "value": {"i": 0}}], "name": "data", "type": "Data"},
                    {
                        "attr": [
                            {
                                "key": "_datadump_original_op_names",
                                "value": {"list": {"s": ["fc/MatMul", "fc/Addé"], "val_type": 1}},
                            }
                        ],
                        "input": ["data:0", "weight:1", "", "barrier:-1"],
                        "name": 'fc/Mat"Mul',
                        "type": "MatMulV2",
                    },
                ],
            },
            {"op": [{"name": "inner", "type": "Relu", "input": ['fc/Mat"Mul:0']}]},
        ],
    }
)
PROTO_NAME = "ge_proto_00000001_Build.txt"
ONNX_NAME = "ge_onnx_00000001_graph_11_Build.pbtxt"


def read_text(text: str | bytes, name: str = PROTO_NAME) -> list[Record]:
    content = text.encode() if isinstance(text, str) else text
    return read_all(READER, MemorySource(content, name))


@pytest.mark.parametrize(
    ("text", "name"), [(PROTO, PROTO_NAME), (ONNX, ONNX_NAME), (JSON, "model.json")]
)
def test_the_three_forms_give_the_same_graph(text: str, name: str) -> None:
    source = MemorySource(text.encode(), name)
    assert READER.sniff(source.head, source.file) is Match.CONTENT
    assert read_text(text, name) == NODES


@pytest.mark.parametrize("text", [PROTO, ONNX])
def test_the_layout_of_the_text_does_not_matter(text: str) -> None:
    lines = [line.strip() for line in text.splitlines()]
    assert read_text(" ".join(lines)) == NODES
    assert read_text("\n".join(lines)) == NODES
    assert read_text("\n".join(f"\t{line}  # }}" for line in lines)) == NODES
    assert read_text(text.replace("\n", "\r\n")) == NODES


def test_json_with_blanks_and_escapes() -> None:
    indented = json.dumps(json.loads(JSON), indent=3, separators=(" ,", " : "), ensure_ascii=True)
    assert read_text(indented, "model.json") == NODES


def test_single_quotes_and_lists_of_protobuf_text() -> None:
    text = "graph { op { name: 'a' type: 'Add' input: ['x:0', 'y:3'] } }"
    assert read_text(text) == [GraphNode("a", "Add", (("x", 0), ("y", 3)), (), 0)]


def test_edges_of_other_writers() -> None:
    text = (
        'graph { op { name: "a" type: "T" input: "x" input: "^c" input: "scope:x:2" input: ":0" } }'
    )
    assert read_text(text)[0] == GraphNode("a", "T", (("x", 0), ("scope:x", 2)), (), 0)


@pytest.mark.parametrize(
    ("last", "complete"),
    [("graph", 0), ('key: "index"', 0), ('type: "MatMulV2"', 1), ('s: "fc/Mat', 1), ("sub", 2)],
)
def test_what_is_complete_of_a_cut_off_graph_counts(last: str, complete: int) -> None:
    records = read_text(PROTO[: PROTO.index(last) + len(last)])
    assert records[:-1] == NODES[:complete]
    assert isinstance(records[-1], TruncatedDumpError | CorruptDumpError)


def test_weights_in_the_text_are_not_kept(tmp_path: Path) -> None:
    weight = "\\" * 2 + "\\303x{}" * 700_000
    one_line = f'graph {{ name: "{weight}" op {{ name: "a" type: "Const" value: "{weight}" }} }}'
    proto = PROTO.replace('s: "} op { name: \\"no\\" }"', f's: "{weight}"')
    for text, expected in ((one_line, [GraphNode("a", "Const")]), (proto, NODES)):
        path = tmp_path / PROTO_NAME
        path.write_text(text, encoding="utf-8")
        file = DumpFile(str(path), path.name, path.name, path.stat().st_size, 0, 0, 0)
        with LocalSource(file, ReadBuffer()) as source:
            assert list(READER.read(source)) == expected


def test_tokens_on_the_edge_of_a_block(tmp_path: Path) -> None:
    path = tmp_path / PROTO_NAME
    for shift in range(0, 700, 29):
        # Comments push the graph over the edge between the first block and the second.
        text = "#" * ((1 << 20) - 700 + shift) + "\n" + PROTO.lstrip("\n")
        path.write_text(text, encoding="utf-8")
        file = DumpFile(str(path), path.name, path.name, path.stat().st_size, 0, 0, 0)
        with LocalSource(file, ReadBuffer()) as source:
            assert list(READER.read(source)) == NODES


@pytest.mark.parametrize("text", ["", "hello", "\0" * 100, '{"weights": [1, 2, 3]}', "op"])
def test_what_is_no_graph_is_damage(text: str) -> None:
    (fault,) = read_text(text)
    assert isinstance(fault, CorruptDumpError)
    assert fault.path == f"0/{PROTO_NAME}"


def test_blocks_nested_deeper_than_any_graph_are_damage() -> None:
    records = read_text("graph {" + "a {" * 100_000)
    assert isinstance(records[-1], CorruptDumpError)


@pytest.mark.parametrize(
    ("content", "name", "match"),
    [
        (b"", PROTO_NAME, Match.NAME),
        (b"", ONNX_NAME, Match.NAME),
        (b'{"graph": 1}', "construct.json", Match.NONE),
        (b'{"dump_data_dir": "", "data": {}}', "dump.json", Match.NONE),
        (b'ir_version: 8\ngraph { node { op_type: "Relu" } }', "other.pbtxt", Match.NONE),
        (b"graph {", "notes.txt", Match.NONE),
    ],
)
def test_names_and_strangers(content: bytes, name: str, match: Match) -> None:
    assert READER.sniff(content, MemorySource(content, name).file) is match


@given(st.integers(0, 2**32), st.sampled_from([PROTO, ONNX, JSON]))
def test_damage_never_raises_anything_else(seed: int, text: str) -> None:
    exhaust(READER, mutated(text.encode(), seed), PROTO_NAME)


def _graph(path: Path) -> list[GraphNode]:
    file = DumpFile(str(path), path.name, path.name, path.stat().st_size, 0, 0, 0)
    with LocalSource(file, ReadBuffer()) as source:
        records = list(READER.read(source))
    nodes = [record for record in records if isinstance(record, GraphNode)]
    assert nodes == records
    return nodes


@pytest.mark.parametrize(
    ("proto", "onnx", "count"),
    [
        ("ge_proto_00000000_Build.txt", "ge_onnx_00000000_graph_1_Build.pbtxt", 6),
        ("ge_proto_00000001_Build.txt", "ge_onnx_00000001_graph_11_Build.pbtxt", 18),
    ],
)
def test_both_texts_of_a_real_graph_agree(proto: str, onnx: str, count: int) -> None:
    folder = ARCHIVES / "graphs"
    if not folder.is_dir():
        pytest.skip("the real graph texts are not here (../shared/corpus/graphs)")
    nodes = _graph(folder / proto)
    described = {(n.name, n.op_type, n.inputs, n.original_names) for n in nodes}
    others = {(n.name, n.op_type, n.inputs, n.original_names) for n in _graph(folder / onnx)}
    assert described == others
    # Protobuf indents the operators of every graph by two blanks.
    lines = (folder / proto).read_text(encoding="utf-8").splitlines()
    assert len(nodes) == len(described) == lines.count("  op {") == count
    by_name = {node.name: node for node in nodes}
    if count == 18:
        assert by_name["GatherV2"].inputs[0] == ("Unique", 0)
    else:
        assert by_name["Variable/Assign"].inputs == (("Variable", 0), ("Variable/initial_value", 0))
