"""Gradients that were saved by index get the names of their parameters.

Which map belongs to a gradient: the one of its rank's coordinates, where those are known; else the
one in its own folder, or in the nearest folder above with exactly one. Only tensors of files whose
name speaks of gradients are named, by the last number of their own path ("3" in a list or under
the key 3).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from dumpscope.model import PARAMETER, GraphNode, OpRecord, TensorSummary
from dumpscope.ranks.parallelism import Topology
from dumpscope.regexes import regex

__all__ = ["ParameterNames", "is_parameter"]

_COORDINATES = regex(r"param_map_tp([0-9]+)pp([0-9]+)dp([0-9]+)\.json")
_INDEX = regex(r"(?:^|[.\[])([0-9]{1,8})\]?$")
_LONGEST_PATH = 200

_Place = tuple[int, int, int]
"""(tp, pp, dp)."""


def is_parameter(node: GraphNode) -> bool:
    """Whether a node of a graph is a parameter's name instead of an operator."""
    return node.op_type == PARAMETER


class ParameterNames:
    """All maps of a scan.

    Parameters
    ----------
    nodes
        Nodes of graph texts; other than parameters are passed over.
    topology
        Coordinates of ranks, where they are known.
    """

    def __init__(self, nodes: Iterable[GraphNode], topology: Topology | None = None) -> None:
        by_file: dict[str, dict[int, str]] = defaultdict(dict)
        for node in nodes:
            if is_parameter(node):
                by_file[node.file][node.order] = node.name
        self._topology = topology
        self._by_file: Mapping[str, Mapping[int, str]] = dict(by_file)
        self._by_place: dict[_Place, list[str]] = defaultdict(list)
        self._by_folder: dict[str, list[str]] = defaultdict(list)
        for file in sorted(by_file):
            folder, _, name = file.rpartition("/")
            self._by_folder[folder].append(file)
            match = _COORDINATES.fullmatch(name)
            if match is not None:
                tp, pp, dp = map(int, match.groups())
                self._by_place[tp, pp, dp].append(file)

    def __bool__(self) -> bool:
        return bool(self._by_file)

    def name_all(self, ops: Iterable[OpRecord]) -> list[OpRecord]:
        """Return the executions with the names of their gradients, as far as they are known."""
        return [self.name_tensors(op) for op in ops]

    def name_tensors(self, op: OpRecord) -> OpRecord:
        """Return an execution with the names of its gradients, as far as they are known."""
        if not self._by_file or "grad" not in op.file.rpartition("/")[2].lower():
            return op
        names = self._names_for(op)
        if names is None:
            return op
        return replace(op, tensors=tuple(self._named(op, tensor, names) for tensor in op.tensors))

    def _named(
        self, op: OpRecord, tensor: TensorSummary, names: Mapping[int, str]
    ) -> TensorSummary:
        match = _INDEX.search((tensor.name or op.op_name)[-_LONGEST_PATH:])
        name = None if match is None else names.get(int(match[1]))
        return tensor if name is None else replace(tensor, name=name)

    def _names_for(self, op: OpRecord) -> Mapping[int, str] | None:
        for files in self._candidates(op):
            if len(files) == 1:
                return self._by_file[files[0]]
            if files:
                # Several ranks share a folder; without coordinates nobody knows whose is whose.
                return None
        return None

    def _candidates(self, op: OpRecord) -> Iterator[Sequence[str]]:
        """Yield maps that may be meant, the surest first."""
        place = {} if self._topology is None else self._topology.place_of(op.device)
        folders = _folders_above(op.file)
        if place:
            tp, pp, dp = (place.get(name, 0) for name in ("tp", "pp", "dp"))
            fitting = self._by_place.get((tp, pp, dp), [])
            for folder in folders:
                # Of several runs each has its own.
                near = [file for file in fitting if file.rpartition("/")[0] == folder]
                if near:
                    yield near
            yield fitting
        for folder in folders:
            yield self._by_folder.get(folder, ())


def _folders_above(file: str) -> list[str]:
    """The folder of a file and those around it, innermost first."""
    folders = []
    while "/" in file:
        file = file.rpartition("/")[0]
        folders.append(file)
    return [*folders, ""]
