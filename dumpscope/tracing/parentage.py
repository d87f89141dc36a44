"""From what each finding got its bad values: the edges that a trace is made of.

A verdict names one producer. What else fed an operator comes from the dataflow (every bad input
has a producer of its own) and, across ranks, from the exchanges that brought bad values in.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from dumpscope.causality.dataflow import Dataflow, lane_of, sequence_key
from dumpscope.causality.inputs import is_saturated
from dumpscope.causality.runs import group_runs
from dumpscope.model import Finding, OpRecord, TensorSummary, Verdict
from dumpscope.ranks.collectives import Collectives
from dumpscope.records import record

__all__ = ["COMMUNICATION", "EVIDENCE_ORDER", "Link", "Parentage"]

COMMUNICATION = "communication"
"""Evidence of an edge between ranks: both took part in one exchange."""

EVIDENCE_ORDER: tuple[str, ...] = (
    COMMUNICATION, "own_inputs", "graph", "address", "bytes", "statistics", "status", "order",
)  # fmt: skip
"""Kinds of evidence of an edge, the strongest first."""

_LINKS = ("graph", "address", "bytes", "order")
_STRENGTH = {evidence: number for number, evidence in enumerate(EVIDENCE_ORDER)}


@record(frozen=True, slots=True)
class Link:
    """One source of what an operator read: the `op_id` of its producer, and how that is known."""

    source: int
    evidence: str


class Parentage:
    """The producers of every finding of a scan.

    Parameters
    ----------
    findings
        All findings, expected values among them.
    passing
        Executions that are no finding but not clean either: a saturation that is only passed on.
    flow
        What is known of the producers of all these; without it equal bytes among them.

    Attributes
    ----------
    links
        Producers by `op_id`: the one that the verdict names comes first, then the strongest.
    strangers
        Executions without a finding that lie between findings or that a finding names.
    """

    def __init__(
        self,
        findings: Sequence[Finding],
        passing: Iterable[OpRecord] = (),
        flow: Dataflow | None = None,
    ) -> None:
        ops = [finding.op for finding in findings]
        self._owner = _number_owners(ops)
        self._passing = {op.op_id: op for op in passing if op.op_id not in self._owner}
        self._flow = Dataflow([*ops, *self._passing.values()]) if flow is None else flow
        self._collectives = _match_exchanges(findings)
        self._split = _group_split(findings)
        self.strangers: dict[int, OpRecord] = {}
        links = {
            finding.op.op_id: self._links_of_finding(finding)
            for finding in sorted(findings, key=lambda finding: finding.op.op_id)
        }
        self._follow_passing(links)
        self.links: Mapping[int, tuple[Link, ...]] = links

    # --- findings --------------------------------------------------------------------------

    def _links_of_finding(self, finding: Finding) -> tuple[Link, ...]:
        named = finding.caused_by
        if named is not None:
            named = self._owner.get(named, named)
        return self._make_links(finding.op, self._sources_of(finding), named)

    def _make_links(
        self, op: OpRecord, sources: Iterable[tuple[int, str]], named: int | None = None
    ) -> tuple[Link, ...]:
        found: dict[int, str] = {}
        for source, evidence in sources:
            owner = self._owner.get(source, source)
            known = found.get(owner)
            if owner != op.op_id and (known is None or _STRENGTH[evidence] < _STRENGTH[known]):
                found[owner] = evidence
        links = [Link(source, evidence) for source, evidence in found.items()]
        return tuple(
            sorted(links, key=lambda link: (link.source != named, _STRENGTH[link.evidence]))
        )

    def _sources_of(self, finding: Finding) -> Iterator[tuple[int, str]]:
        received = finding.verdict is Verdict.RECEIVED
        # Who sent it to another rank may have been left out of the findings, by --rank.
        if finding.caused_by is not None and (not received or finding.caused_by in self._owner):
            evidence = COMMUNICATION if received else _link_evidence(finding)
            evidence = evidence if evidence in _STRENGTH else "order"
            yield finding.caused_by, evidence
            if evidence == "order":
                # Where only order speaks, it speaks of all threads of an operator that was split.
                when = sequence_key(finding.op)
                for part in self._split.get(finding.caused_by, ()):
                    if sequence_key(part) < when:
                        yield part.op_id, evidence
            self._note_named(finding)
        if received:
            for sender in self._senders_to(finding):
                yield sender.op_id, COMMUNICATION
        else:
            yield from self._producers_of(finding.op)

    def _producers_of(self, op: OpRecord) -> Iterator[tuple[int, str]]:
        """Yield who wrote what `op` read, as far as it is a finding or passes one on."""
        found = [p for t in op.inputs if _is_followed(t) for p in self._flow.producers_of(op, t)]
        found += [p for known in self._flow.virtual_inputs(op) for p in known.producers]
        for producer in found:
            if not _is_followed(producer.tensor):
                continue
            source = producer.op.op_id
            if source in self._owner or source in self._passing:
                yield source, producer.evidence

    def _senders_to(self, finding: Finding) -> Sequence[OpRecord]:
        """Executions of other ranks that brought the bad value, those that the verdict names."""
        if self._collectives is None:
            return ()
        senders = self._collectives.senders_to(finding.op)
        named = str(finding.reason.parameters.get("ranks") or "")
        told = [sender for sender in senders if _is_named(sender.device, named)]
        return told or senders

    # --- what is no finding ----------------------------------------------------------------

    def _note_named(self, finding: Finding) -> None:
        """Keep what is known of a producer that is clean, so that it can be shown."""
        source = finding.caused_by
        if source is None or source in self._owner or source in self.strangers:
            return
        op, parameters = finding.op, finding.reason.parameters
        producers = (
            p for t in op.inputs if _is_followed(t) for p in self._flow.producers_of(op, t)
        )
        known = next((p.op for p in producers if p.op.op_id == source), None)
        self.strangers[source] = known or OpRecord(
            op_type=str(parameters.get("producer_type") or ""),
            op_name=str(parameters.get("producer") or ""),
            step=op.step,
            device=op.device,
            place=op.place,
            op_id=source,
        )

    def _follow_passing(self, links: dict[int, tuple[Link, ...]]) -> None:
        """Add the links of what passes a saturation on, and drop what leads to no finding."""
        if not self._passing:
            return
        between: dict[int, tuple[Link, ...]] = {}
        waiting = [link.source for found in links.values() for link in found]
        while waiting:
            source = waiting.pop()
            op = self._passing.get(source)
            if op is not None and source not in between:
                between[source] = self._make_links(op, self._producers_of(op))
                waiting += [link.source for link in between[source]]
        leading = _leading_to(between, self._owner.keys())
        dropped = between.keys() - leading - self.strangers.keys()
        for op_id, found in list(links.items()):
            if any(link.source in dropped for link in found):
                links[op_id] = tuple(link for link in found if link.source not in dropped)
        for op_id in leading:
            links[op_id] = tuple(link for link in between[op_id] if link.source not in dropped)
            self.strangers[op_id] = self._passing[op_id]


def _is_named(rank: int | None, ranks: str) -> bool:
    """Whether a rank is among those that a reason names, as in "0-2, 5"; "..." names none."""
    for part in ranks.split(", "):
        first, _, last = part.partition("-")
        bounds = (first, last or first)
        if rank is not None and all(map(str.isdecimal, bounds)):
            low, high = map(int, bounds)
            if low <= rank <= high:
                return True
    return False


def _leading_to(links: Mapping[int, Sequence[Link]], goals: Iterable[int]) -> set[int]:
    """Return from which executions, following their producers, one of the goals is reached."""
    readers: dict[int, list[int]] = {}
    for op_id, found in links.items():
        for link in found:
            readers.setdefault(link.source, []).append(op_id)
    reached: set[int] = set()
    waiting = [reader for goal in goals for reader in readers.get(goal, ())]
    while waiting:
        op_id = waiting.pop()
        if op_id not in reached:
            reached.add(op_id)
            waiting += readers.get(op_id, ())
    return reached


def _number_owners(ops: Iterable[OpRecord]) -> dict[int, int]:
    """Map the numbers of executions, and of their parts, to the execution."""
    owner: dict[int, int] = {}
    for op in ops:
        owner.update((part, op.op_id) for part in op.part_ids)
        owner[op.op_id] = op.op_id
    return owner


def _group_split(findings: Iterable[Finding]) -> dict[int, list[OpRecord]]:
    """Return, by execution, all threads with bad results of an operator that was split (FFTS+)."""
    groups: dict[tuple[object, ...], list[OpRecord]] = defaultdict(list)
    for finding in findings:
        op = finding.op
        bad = any(map(_is_followed, op.outputs)) and finding.verdict is not Verdict.EXPECTED
        if bad and op.thread_id is not None and op.context_id is not None:
            key = (lane_of(op), op.step, op.op_name, op.task_id, op.stream_id, op.context_id)
            groups[key].append(op)
    return {op.op_id: ops for ops in groups.values() if len(ops) > 1 for op in ops}


def _match_exchanges(findings: Iterable[Finding]) -> Collectives | None:
    if not any(finding.verdict is Verdict.RECEIVED for finding in findings):
        return None
    ops = [finding.op for finding in findings]
    return Collectives(ops, group_runs({op.place.run for op in ops if op.place.run}))


def _is_followed(tensor: TensorSummary) -> bool:
    return tensor.stats.nonfinite > 0 or is_saturated(tensor)


def _link_evidence(finding: Finding) -> str:
    """What links a finding to the producer that it names: its inputs alone link to nothing."""
    said = finding.reason.parameters.get("evidence")
    links = [kind for kind in finding.evidence if kind in _LINKS]
    return str(said) if said in _LINKS else (*links, *finding.evidence, "order")[0]
