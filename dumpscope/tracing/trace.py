"""The way of a bad value: everything that grew out of one operator execution.

Pure: a `Scan` in, a `Trace` out. Its nodes stand in causal order, so that every edge leads from an
earlier node to a later one. That order never compares the clocks of two ranks: within one rank it
is the order of execution, between ranks only what one sent and another received counts.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from itertools import chain
from typing import Literal

from dumpscope.causality.dataflow import Dataflow, Lane, lane_of, sequence_key
from dumpscope.causality.graphs import fold_name
from dumpscope.errors import OptionsError
from dumpscope.model import Finding, OpRecord, Scan, Verdict
from dumpscope.records import record
from dumpscope.safetext import make_printable
from dumpscope.tracing.parentage import Link, Parentage

__all__ = ["Edge", "Node", "Outside", "Part", "Trace", "build_trace", "find_origins"]

Part = Literal["before", "start", "after", "joined", "expected"]
"""What a node is to the one that was asked for: on the way to it, itself, grown out of it, another
source of these, or an expected value that one of these read."""

_SUGGESTIONS = 3
_MOST_NAMES = 20_000


@record(frozen=True, slots=True)
class Edge:
    """`source` is a position in `Trace.nodes`; `evidence` says how the edge is known."""

    source: int
    evidence: str


@record(frozen=True, slots=True)
class Node:
    """One execution in a trace.

    `finding` is `None` for an execution that is clean or only passes a saturation on. `parents`
    has the edge of the tree first; `depth` counts edges of the tree from its root.
    """

    op: OpRecord
    finding: Finding | None
    part: Part
    parents: tuple[Edge, ...] = ()
    depth: int = 0

    @property
    def verdict(self) -> Verdict | None:
        return None if self.finding is None else self.finding.verdict


@record(frozen=True, slots=True)
class Outside:
    """A finding from which others grew that have nothing to do with the trace, and how many."""

    finding: Finding
    followers: int


@record(frozen=True, slots=True)
class Trace:
    """All that grew out of one finding, in causal order.

    `start` is its position in `nodes`, `origin` that of the beginning of the way to it, in most
    traces the same; both are `None` when the scan has no finding. `outside` lists the other
    beginnings, in ranking order. `aside` are expected values of the same ranks and steps that
    nothing in the trace is known to have read. `found_by` is as in `Scan`.
    """

    scan_id: str
    root: str
    tool_version: str
    nodes: tuple[Node, ...] = ()
    start: int | None = None
    origin: int | None = None
    outside: tuple[Outside, ...] = ()
    aside: tuple[Finding, ...] = ()
    findings: int = 0
    found_by: tuple[str, ...] = ()

    @property
    def affected(self) -> int:
        """How many executions grew out of the start."""
        return sum(1 for node in self.nodes if node.part == "after")


def find_origins(
    scan: Scan,
    name: str | None = None,
    *,
    number: int | None = None,
    steps: Sequence[int] = (),
    ranks: Sequence[int] = (),
) -> list[Finding]:
    """Return the findings that a user may mean, the best-ranked first; expected values last.

    Parameters
    ----------
    name
        The operator's own name; else as file names spell it, its type, or a pattern.
    number
        Place in the ranking.
    steps, ranks
        Only findings of these.

    Raises
    ------
    OptionsError
        The scan has findings, but none that fits.
    """
    found = [
        finding
        for finding in (*scan.findings, *scan.expected)
        if (not steps or finding.op.step in steps) and (not ranks or finding.op.device in ranks)
    ]
    if number is not None:
        found = [finding for finding in found if finding.rank == number]
        if not found:
            raise OptionsError(
                f"--finding {number}: there is no such finding; the scan has {len(scan.findings)}"
            )
    if name is not None:
        found = _match_name(found, name)
    elif not found and (steps or ranks) and (scan.findings or scan.expected):
        raise OptionsError("no finding is of that step and rank: `dumpscope report` lists them")
    return found if name is not None or number is not None else found[: len(scan.findings)]


def _match_name(findings: Sequence[Finding], name: str) -> list[Finding]:
    folded = fold_name(name)
    for fits in (
        lambda op: op.op_name == name,
        lambda op: fold_name(op.op_name) == folded,
        lambda op: op.op_type == name,
        lambda op: fnmatchcase(op.op_name, name),
    ):
        found = [finding for finding in findings if fits(finding.op)]
        if found:
            return found
    names = {f.op.op_name.lower(): f.op.op_name for f in findings[:_MOST_NAMES] if f.op.op_name}
    close = get_close_matches(name.lower(), names, _SUGGESTIONS, 0.5)
    close += [n for n in names if name.lower() in n][: _SUGGESTIONS - len(close)]
    known = " or ".join(make_printable(names[n]) for n in dict.fromkeys(close))
    advice = f": did you mean {known}?" if known else "; `dumpscope report` lists them"
    raise OptionsError(f"{make_printable(name)}: no operator with a finding has this name{advice}")


def build_trace(
    scan: Scan,
    start: Finding | None = None,
    *,
    passing: Iterable[OpRecord] = (),
    flow: Dataflow | None = None,
) -> Trace:
    """Collect everything that grew out of `start`, the best-ranked finding by default.

    Parameters
    ----------
    scan
        The answer of a scan, with all its findings.
    passing
        Executions without a finding that are not clean, for chains that lead through them.
    flow
        Producers of inputs, where more is known than equal bytes tell.
    """
    if start is None:
        start = next(iter(scan.findings), None)
    if start is None:
        return Trace(scan.scan_id, scan.root, scan.tool_version, found_by=scan.found_by)
    findings = {f.op.op_id: f for f in (*scan.expected, *scan.findings)}
    parentage = Parentage(list(findings.values()), passing, flow)
    parts, way = _collect(start.op.op_id, parentage.links, findings)
    records = {
        op_id: findings[op_id].op if op_id in findings else parentage.strangers[op_id]
        for op_id in parts
    }
    links = {
        op_id: [link for link in parentage.links.get(op_id, ()) if link.source in parts]
        for op_id in parts
    }
    ordered = _sort_causally(records, links)
    position = {op_id: number for number, op_id in enumerate(ordered)}
    nodes: list[Node] = []
    for number, op_id in enumerate(ordered):
        known = [link for link in links[op_id] if position[link.source] < number]
        # The tree is the start's: what else fed an operator comes behind.
        known.sort(key=lambda link: parts[link.source] in ("joined", "expected"))
        parents = tuple(Edge(position[link.source], link.evidence) for link in known)
        depth = nodes[parents[0].source].depth + 1 if parents else 0
        nodes.append(Node(records[op_id], findings.get(op_id), parts[op_id], parents, depth))
    touched = {(lane_of(op), op.step) for op in records.values()}
    return Trace(
        scan.scan_id,
        scan.root,
        scan.tool_version,
        tuple(nodes),
        position[start.op.op_id],
        position[(way or [start.op.op_id])[-1]],
        _list_outside(scan.findings, parentage.links, parts),
        tuple(
            f for f in scan.expected
            if f.op.op_id not in parts and (lane_of(f.op), f.op.step) in touched
        ),
        len(scan.findings),
        scan.found_by,
    )  # fmt: skip


# --- what belongs to a trace ------------------------------------------------------------------


def _collect(
    start: int, links: Mapping[int, Sequence[Link]], findings: Mapping[int, Finding]
) -> tuple[dict[int, Part], list[int]]:
    """Return what each execution is to the start, only those of its trace; and the way up."""
    readers: dict[int, list[int]] = defaultdict(list)
    for op_id, found in links.items():
        for link in found:
            readers[link.source].append(op_id)
    parts: dict[int, Part] = {start: "start"}
    waiting = [start]
    while waiting:
        for reader in readers.get(waiting.pop(), ()):
            if reader not in parts:
                parts[reader] = "after"
                waiting.append(reader)
    way = [op_id for op_id in _way_up(start, links, findings) if op_id not in parts]
    parts.update(dict.fromkeys(way, "before"))
    for op_id in list(parts):
        for link in links.get(op_id, ()):
            if link.source in parts:
                continue
            source = findings.get(link.source)
            if source is not None and source.verdict is Verdict.EXPECTED:
                parts[link.source] = "expected"
            elif parts[op_id] in ("after", "start"):
                for above in chain((link.source,), _way_up(link.source, links, findings)):
                    if above in parts:
                        break
                    parts[above] = "joined"
    return parts, way


def _way_up(
    op_id: int, links: Mapping[int, Sequence[Link]], findings: Mapping[int, Finding]
) -> Iterator[int]:
    """Follow the producers that verdicts name, to the beginning; without `op_id` itself.

    What is expected is the beginning of nothing.
    """
    seen = {op_id}
    while True:
        above = next(
            (
                link.source
                for link in links.get(op_id, ())
                if link.source not in findings
                or findings[link.source].verdict is not Verdict.EXPECTED
            ),
            None,
        )
        if above is None or above in seen:
            return
        seen.add(above)
        yield above
        op_id = above


def _list_outside(
    findings: Sequence[Finding], links: Mapping[int, Sequence[Link]], parts: Mapping[int, Part]
) -> tuple[Outside, ...]:
    """List where the other findings began, with how many grew out of each.

    What grew out of another source of this trace began in the trace.
    """
    begun: dict[int, int] = {}
    followers: Counter[int] = Counter()
    elsewhere = {f.op.op_id: f for f in findings if f.op.op_id not in parts}
    for op_id in elsewhere:
        way = [op_id]
        seen = {op_id}
        while way[-1] not in begun and links.get(way[-1]):
            above = links[way[-1]][0].source
            if above in seen:
                break
            way.append(above)
            if above not in elsewhere:
                break
            seen.add(above)
        root = begun.get(way[-1], way[-1])
        if root not in elsewhere and root not in parts:
            # Only an operator that is clean stands above: the finding itself is the beginning.
            root = way[-2]
        begun.update(dict.fromkeys(way, root))
        followers[root] += op_id != root
    return tuple(
        Outside(finding, followers[op_id])
        for op_id, finding in elsewhere.items()
        if begun[op_id] == op_id
    )


# --- causal order -----------------------------------------------------------------------------


def _sort_causally(
    records: Mapping[int, OpRecord], links: Mapping[int, Sequence[Link]]
) -> list[int]:
    """Sort so that producers come first; a circle is broken at its earliest member.

    Among those that do not depend on each other: by step, then by place in the order of their own
    rank, then by rank. No two clocks are compared.
    """
    keys = _place_in_lanes(records)
    missing = {op_id: len({link.source for link in links[op_id]}) for op_id in records}
    readers: dict[int, set[int]] = defaultdict(set)
    for op_id in records:
        for link in links[op_id]:
            readers[link.source].add(op_id)
    ready = [(keys[op_id], op_id) for op_id, count in missing.items() if not count]
    heapq.heapify(ready)
    everything = sorted((key, op_id) for op_id, key in keys.items())
    earliest = iter(everything)
    ordered: dict[int, None] = {}
    while len(ordered) < len(records):
        op_id = heapq.heappop(ready)[1] if ready else next(earliest)[1]
        if op_id in ordered:
            continue
        ordered[op_id] = None
        for reader in readers[op_id]:
            missing[reader] -= 1
            if not missing[reader] and reader not in ordered:
                heapq.heappush(ready, (keys[reader], reader))
    return list(ordered)


def _place_in_lanes(records: Mapping[int, OpRecord]) -> dict[int, tuple[int, int, Lane]]:
    """Return step, place in its own rank's order, and rank of every execution."""
    ordered = sorted(records.values(), key=lambda op: (lane_of(op), sequence_key(op)))
    counted: Counter[Lane] = Counter()
    keys = {}
    for op in ordered:
        lane = lane_of(op)
        keys[op.op_id] = (-1 if op.step is None else op.step, counted[lane], lane)
        counted[lane] += 1
    return keys
