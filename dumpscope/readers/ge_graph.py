"""Graphs that GE writes as text: who feeds whom, and what an operator was called before fusion.

`ge_proto_{number}_….txt` (DUMP_GE_GRAPH; protobuf text of `ge.proto.ModelDef`)::

    graph { name: "…"
      op { name: "…" type: "MatMul"
           input: "{producer}:{output index}"     index -1: a control edge; "": not connected
           attr { key: "_datadump_original_op_names" value { list { s: "…" s: "…" } } }
           output_desc { … } } }

`ge_onnx_….pbtxt` (the same graph as an ONNX model)::

    graph { node { input: "{producer}:{output index}" name: "…" op_type: "ge:MatMul"
                   attribute { name: "_datadump_original_op_names" strings: "…" } } }

where a subgraph is the attribute `graph { g { node … } }` of a node of type `subgraph`.

An om converted to JSON by atc has the fields of the first form. Unknown fields are passed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from dumpscope.errors import CorruptDumpError, TruncatedDumpError
from dumpscope.model import DumpFile, GraphNode, Match
from dumpscope.readers.graph_text import FieldEvent, stream_fields, unescape
from dumpscope.readers.protocol import Record
from dumpscope.regexes import regex
from dumpscope.source import DumpSource

__all__ = ["GeGraphReader"]

MAX_INPUTS = 65_536
"""Inputs and original names that are kept of one operator."""

_NAME = regex(r"(?:ge_proto_[0-9]{1,8}.*\.txt|ge_onnx_.*\.pbtxt)", re.DOTALL)
_PROTO_HEAD = regex(rb'\s*graph\s*\{\s*(?:name\s*:\s*"[^"]*"\s*)?op\s*\{')
_ONNX_HEAD = regex(rb"\s*(?:ir_version|producer_name)\s*:")
_JSON_HEAD = regex(rb'\s*\{\s*"(?:attr|graph|name|version|custom_version|platform)[a-z_]*"\s*:')

_NODE_KEYS = frozenset({b"op", b"node"})
_ATTRIBUTE_KEYS = frozenset({b"attr", b"attribute"})
_SKIPPED = frozenset({b"input_desc", b"output_desc"})
_ORIGINAL_NAMES = b"_datadump_original_op_names"
_INDEX = regex(r"(-?)([0-9]{1,9})")


class GeGraphReader:
    """Reads operators, edges and original names; it yields `GraphNode`s in the file's order."""

    name = "ge_graph"
    formats = "GE graph text (ge_proto_*.txt, ge_onnx_*.pbtxt) and om models converted to JSON"
    versions = "CANN 5 to 9"
    companions: Mapping[str, str] = MappingProxyType({})

    def sniff(self, head: bytes, file: DumpFile) -> Match:
        """Recognise the first fields, or the name."""
        if _PROTO_HEAD.match(head):
            return Match.CONTENT
        if _ONNX_HEAD.match(head) and b"node {" in head and b"ge:" in head:
            return Match.CONTENT
        if _JSON_HEAD.match(head) and b'"graph"' in head and b'"op"' in head:
            return Match.CONTENT
        return Match.NAME if _NAME.fullmatch(file.name) else Match.NONE

    def read(self, source: DumpSource) -> Iterator[Record]:
        """Yield one `GraphNode` for every operator of every graph in the file."""
        builder = _NodeBuilder()
        fields = stream_fields(
            source, named=_ATTRIBUTE_KEYS, wanted=_ORIGINAL_NAMES, skipped=_SKIPPED
        )
        try:
            for event in fields:
                node = builder.take(event)
                if node is not None:
                    yield node
        except TruncatedDumpError as error:
            yield error
        if not builder.count and not builder.saw_graph:
            raise CorruptDumpError(
                "expected a graph with operators, found none: GE did not write this file, "
                "or not to its end",
                path=source.file.relative,
                offset=0,
            )


class _Frame:
    """A block that is open. `node` and `attribute` are the nearest ones that contain it."""

    __slots__ = ("attribute", "is_attribute", "is_node", "node")

    def __init__(self, node: _Node | None, attribute: _Attribute | None) -> None:
        self.node = node
        self.attribute = attribute
        self.is_node = False
        self.is_attribute = False


class _Node:
    __slots__ = ("inputs", "name", "op_type", "original_names")

    def __init__(self) -> None:
        self.name = ""
        self.op_type = ""
        self.inputs: list[tuple[str, int]] = []
        self.original_names: list[str] = []


class _Attribute:
    __slots__ = ("name", "strings")

    def __init__(self) -> None:
        self.name = b""
        self.strings: list[str] = []


class _NodeBuilder:
    """Puts nodes together from fields.

    Attributes
    ----------
    count
        Nodes that were complete so far.
    saw_graph
        Whether a block called `graph` was there.
    """

    def __init__(self) -> None:
        self.count = 0
        self.saw_graph = False
        self._frames = [_Frame(None, None)]

    def take(self, event: FieldEvent) -> GraphNode | None:
        """Take one field; return the node that it completed."""
        kind, key, text = event
        top = self._frames[-1]
        if kind == "value":
            if top.is_node:
                _set_field(top.node, key, text)
            elif top.attribute is not None:
                _set_attribute(top.attribute, top.is_attribute, key, text)
            return None
        if kind == "open":
            self._open(key, top)
            return None
        if len(self._frames) > 1:
            self._frames.pop()
        if top.is_node and top.node is not None:
            return self._finish(top.node)
        attribute = top.attribute if top.is_attribute else None
        if attribute is not None and attribute.name == _ORIGINAL_NAMES and top.node is not None:
            top.node.original_names = attribute.strings
        return None

    def _open(self, key: bytes, top: _Frame) -> None:
        frame = _Frame(top.node, top.attribute)
        if key in _NODE_KEYS:
            frame.node = _Node()
            frame.attribute = None
            frame.is_node = True
        elif key in _ATTRIBUTE_KEYS and top.is_node:
            frame.attribute = _Attribute()
            frame.is_attribute = True
        elif key == b"graph":
            self.saw_graph = True
        self._frames.append(frame)

    def _finish(self, node: _Node) -> GraphNode | None:
        if not node.name or node.op_type == "subgraph":
            return None
        order = self.count
        self.count += 1
        return GraphNode(
            name=node.name,
            op_type=node.op_type.removeprefix("ge:"),
            inputs=tuple(node.inputs),
            original_names=tuple(node.original_names),
            order=order,
        )


def _set_field(node: _Node | None, key: bytes, text: bytes) -> None:
    """Set a field that stands directly in a node."""
    if node is None:
        return
    if key == b"name":
        node.name = unescape(text)
    elif key in (b"type", b"op_type"):
        node.op_type = unescape(text)
    elif key == b"input" and len(node.inputs) < MAX_INPUTS:
        edge = _parse_edge(unescape(text))
        if edge is not None:
            node.inputs.append(edge)


def _set_attribute(attribute: _Attribute, direct: bool, key: bytes, text: bytes) -> None:
    """Set the name of an attribute, or add one of its strings."""
    if direct and key in (b"key", b"name"):
        attribute.name = text
    elif key in (b"s", b"strings") and len(attribute.strings) < MAX_INPUTS:
        attribute.strings.append(unescape(text))


def _parse_edge(text: str) -> tuple[str, int] | None:
    """Parse `producer:index`; `None` for control edges and inputs that are not connected."""
    if not text or text.startswith("^"):
        return None
    producer, colon, index = text.rpartition(":")
    match = _INDEX.fullmatch(index)
    if not colon or match is None:
        return text, 0
    if match[1] or not producer:
        return None
    return producer, int(match[2])
