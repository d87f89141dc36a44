"""From what is not clean to ranked findings: the whole of causality, fed out of a store.

Who wrote what each execution read, what ranks exchanged, what the rules expect, the verdicts, and
which comes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dumpscope.causality.edges import connect
from dumpscope.causality.findings import note_loss_scale
from dumpscope.causality.hardware import Flag, describe_flags
from dumpscope.causality.losses import Losses
from dumpscope.causality.optypes import checks_gradients, is_source
from dumpscope.causality.ranking import rank_findings
from dumpscope.causality.verdicts import Judge
from dumpscope.filters import select_findings
from dumpscope.gathering import Judged, Suspects
from dumpscope.model import (
    PARAMETER,
    Finding,
    Mode,
    OpRecord,
    Place,
    Reason,
    ScanOptions,
    Verdict,
)
from dumpscope.ranks.collectives import Collectives
from dumpscope.ranks.exchanges import find_behind_silent_calls, gather_calls
from dumpscope.ranks.gradnames import ParameterNames
from dumpscope.ranks.parallelism import Topology
from dumpscope.ranks.presence import Presence
from dumpscope.ranks.ranksummary import summarise_ranks
from dumpscope.rules import load_rules
from dumpscope.store import Store

__all__ = ["judge"]


def judge(
    store: Store,
    scan_id: str,
    options: ScanOptions,
    suspects: Suspects,
    *,
    places: Sequence[Place],
    jobs: Mapping[str, str],
    presence: Presence,
    topology: Topology | None,
) -> Judged:
    """Judge and rank what is not clean.

    Parameters
    ----------
    places
        Where the files of the scan lie, so that clean ranks are known too.
    jobs
        Run -> job.
    presence
        Which ranks the scan holds.
    topology
        Coordinates of ranks, where they are known.

    Raises
    ------
    ConfigError
        The rules file or the rank map cannot be read.
    OptionsError
        An option has no meaning.
    StoreError
        The store cannot be read.
    """
    op_types = store.op_types(scan_id)
    names = ParameterNames(store.graph_nodes(scan_id, PARAMETER), topology)
    ops = names.name_all(suspects.ops)
    flow = connect(store, scan_id, ops)
    collectives = Collectives(
        [*ops, *gather_calls(store, scan_id, ops, suspects.calls, jobs, op_types)],
        jobs,
        presence=presence,
        topology=topology,
    )
    chair = Judge(
        flow,
        rules=load_rules(options.rules_file),
        flags=suspects.flags,
        jobs=jobs,
        collectives=collectives,
        losses=Losses(store.faulty_files(scan_id), suspects.unread),
    )
    found = chair.judge_all() + [_orphan_finding(flag) for flag in suspects.orphans]
    if any(checks_gradients(op_type) for op_type in op_types):
        found = note_loss_scale(found)
    selected = select_findings(found, options, jobs)
    expected = tuple(
        sorted(
            (f for f in selected if f.verdict is Verdict.EXPECTED),
            key=lambda f: (f.op.file, f.op.op_id),
        )
    )
    findings = tuple(
        rank_findings(
            (f for f in selected if f.verdict is not Verdict.EXPECTED),
            flow,
            jobs,
            chair.members_of,
            chair.doubtful,
        )
    )
    ranks = summarise_ranks(
        _with_ranks(found, findings),
        places,
        jobs,
        senders_to=chair.senders_to,
        topology=topology,
        came_through=chair.came_through,
        find_doubtful=lambda ops: find_behind_silent_calls(
            store, scan_id, ops, suspects.calls, op_types
        ),
    )
    return Judged(_infer_mode(found), findings, expected, ranks)


def _orphan_finding(flag: Flag) -> Finding:
    """A record whose operator was not dumped: all that is known are the ids of its payload."""
    record, unit = flag.record, flag.unit
    place = record.place
    op = OpRecord(
        op_type="",
        op_name="",
        task_id=unit.task_id,
        stream_id=unit.stream_id,
        context_id=unit.context_id,
        thread_id=unit.thread_id,
        timestamp=record.timestamp,
        start_ns=record.start_ns,
        step=place.step,
        device=place.device,
        file=record.file,
        place=place,
        op_id=-1 - record.record_id,
    )
    overflow = describe_flags([flag], confirmed=False)
    return Finding(
        op=op,
        verdict=Verdict.STATUS_ORIGIN,
        reason=Reason(
            "status_origin_not_dumped",
            {
                "task_id": unit.task_id,
                "stream_id": unit.stream_id,
                "kind": unit.kind,
                "hardware": ", ".join(overflow.bits)
                or " ".join(f"0x{word:x}" for word in unit.status),
                "step": place.step,
                "device": place.device,
            },
        ),
        evidence=("status",),
        overflow=overflow,
    )


def _infer_mode(findings: Iterable[Finding]) -> Mode:
    saturated = False
    for finding in findings:
        if finding.verdict is Verdict.EXPECTED or is_source(finding.op.op_type):
            continue
        if any(t.stats.nonfinite for t in finding.op.outputs):
            return Mode("inf_nan")
        saturated = saturated or finding.verdict is Verdict.SATURATED_ORIGIN
    return Mode("saturation" if saturated else "unknown")


def _with_ranks(found: Iterable[Finding], ranked: Iterable[Finding]) -> list[Finding]:
    """All findings, those that were selected as they were ranked."""
    by_op = {finding.op.op_id: finding for finding in ranked}
    return [f if f.verdict is Verdict.EXPECTED else by_op.get(f.op.op_id, f) for f in found]
