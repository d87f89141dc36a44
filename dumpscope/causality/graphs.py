"""Edges that a compiled graph knows: which operator's output an operator reads.

Graph texts name operators as the dump does. What the compiler put between two dumped operators
and was not dumped itself (a reshape, a format conversion) is stepped over as long as it reads
one tensor only.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

from dumpscope.model import PARAMETER, GraphNode
from dumpscope.records import record
from dumpscope.regexes import regex

__all__ = ["GraphIndex", "GraphInput", "fold_name", "whole_names"]

_FOLDED = regex(r"[./\\ ]")
_SLICE = regex(r"_lxslice[0-9]+")
_SUBGRAPH = regex(r"_?sgt_graph_[0-9]+$")
_MOST_STEPS = 64


@record(frozen=True, slots=True)
class GraphInput:
    """What an operator reads at one position.

    `producer` is the nearest operator of the dump before it, `None` where there is none:
    `outside` then says that the graph leads to where values come in, so that nothing in the dump
    can have made it, and `source` names that place. `direct` is false when undumped operators lie
    between.
    """

    producer: str | None
    output_index: int = 0
    direct: bool = True
    outside: bool = False
    source: str = ""


class GraphIndex:
    """Look up what operators read, by name.

    Parameters
    ----------
    nodes
        The operators of all graph texts of a scan. Of two graphs that use one name for different
        things, neither is used for it.
    """

    def __init__(self, nodes: Iterable[GraphNode]) -> None:
        self._nodes: dict[str, GraphNode] = {}
        ambiguous: set[str] = set()
        for node in nodes:
            if node.op_type == PARAMETER:
                continue
            name = fold_name(node.name)
            known = self._nodes.get(name)
            if known is None:
                self._nodes[name] = node
            elif (known.op_type, known.inputs) != (node.op_type, node.inputs) and not _refines(
                node, known
            ):
                ambiguous.add(name)
        for name in ambiguous:
            del self._nodes[name]

    def __bool__(self) -> bool:
        return bool(self._nodes)

    def inputs_of(
        self, op_name: str, dumped: Mapping[str, object], sliced: Container[str] = ()
    ) -> list[GraphInput] | None:
        """What the operator reads, position by position; `None` when the graphs do not know it.

        Parameters
        ----------
        op_name
            Its name in the dump.
        dumped
            Folded names (`fold_name`) of the operators in the dump.
        sliced
            Folded names that a graph may have for operators of which the dump holds slices
            (`whole_names`): which of these was read is not known.
        """
        node = self._nodes.get(fold_name(op_name))
        if node is None:
            return None
        return [self._trace(name, index, dumped, sliced) for name, index in node.inputs]

    def producers_of(self, name: str) -> list[str]:
        """Folded names of what the operator reads, dumped or not."""
        node = self._nodes.get(fold_name(name))
        return [] if node is None else [fold_name(producer) for producer, _ in node.inputs]

    def _trace(
        self, name: str, index: int, dumped: Mapping[str, object], sliced: Container[str]
    ) -> GraphInput:
        direct = True
        for _ in range(_MOST_STEPS):
            folded = fold_name(name)
            if folded in dumped:
                return GraphInput(name, index, direct)
            node = self._nodes.get(folded)
            if node is None or folded in sliced:
                return GraphInput(None, direct=direct)
            if not node.inputs:
                return GraphInput(None, direct=direct, outside=True, source=node.name)
            if len(node.inputs) > 1:
                return GraphInput(None, direct=direct)
            name, index = node.inputs[0]
            direct = False
        return GraphInput(None, direct=False)


def fold_name(name: str) -> str:
    """A name as it stands in file names, where dots, slashes and spaces became `_`."""
    return _FOLDED.sub("_", name)


def whole_names(folded: str) -> set[str]:
    """What a graph may call the operator of which the dump names a slice (FFTS+)."""
    if "_lxslice" not in folded and "sgt_graph_" not in folded:
        return set()  # most names, and quicker
    whole = _SLICE.sub("", folded)
    return {whole, _SUBGRAPH.sub("", whole)} - {folded}


def _refines(node: GraphNode, known: GraphNode) -> bool:
    """Whether two forms of the same graph tell the same of an operator (one may tell less)."""
    return node.file != known.file and set(node.inputs) == set(known.inputs)
