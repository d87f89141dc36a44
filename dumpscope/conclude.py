"""From the records of a scan to its answer.

Reads what the store holds, puts executions together, joins the hardware's records, judges,
ranks and counts. Nothing here is stored: asked again, it gives the same answer.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from itertools import islice

from dumpscope.aclconfig.values import parse_steps
from dumpscope.causality.dataflow import lane_of
from dumpscope.causality.edges import connect
from dumpscope.causality.findings import note_loss_scale
from dumpscope.causality.hardware import (
    Flag,
    describe_flags,
    distinct_records,
    join_overflow,
)
from dumpscope.causality.losses import Losses
from dumpscope.causality.optypes import checks_gradients, is_source
from dumpscope.causality.ranking import rank_findings
from dumpscope.causality.runs import group_runs
from dumpscope.causality.verdicts import Judge
from dumpscope.errors import OptionsError
from dumpscope.filters import select_findings
from dumpscope.gathering import find_flagged, gather
from dumpscope.model import (
    PARAMETER,
    Counts,
    Finding,
    Mode,
    OpRecord,
    Reason,
    Scan,
    ScanOptions,
    Verdict,
)
from dumpscope.nightly.baseline import Applied, apply_baseline, load_baseline, note_baseline
from dumpscope.outcome import decide_outcome
from dumpscope.ranks.collectives import Collectives
from dumpscope.ranks.exchanges import (
    find_behind_silent_calls,
    find_presence,
    gather_calls,
)
from dumpscope.ranks.gradnames import ParameterNames
from dumpscope.ranks.patterns import explain_ranks
from dumpscope.ranks.ranksummary import summarise_ranks
from dumpscope.ranks.rankview import find_topology
from dumpscope.rules import load_rules
from dumpscope.store import Selection, Store

__all__ = ["conclude"]

_MAX_UNKNOWN_LISTED = 100
_MAX_STEPS_COMPARED = 1000
_MAX_GROWING_SHOWN = 3
_MAX_HISTORY = 4096


def conclude(store: Store, scan_id: str, options: ScanOptions) -> Scan:
    """Compute the answer of a stored scan.

    Raises
    ------
    ConfigError
        The rules file or the rank map cannot be read.
    OptionsError
        An option has no meaning (`--fail-on`, `--max-unreadable`, `--run`, `--tp` …).
    StoreError
        There is no such scan, or the store cannot be read.
    """
    with _without_collecting():
        return _conclude(store, scan_id, options)


@contextmanager
def _without_collecting() -> Iterator[None]:
    """Keep the garbage collector away while everything is gathered.

    Hundreds of thousands of records without cycles stay until the end: looking through them again
    and again takes as long as all the rest.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            if not gc.get_freeze_count():
                # All that is there counts as old now; else the next collection looks through it.
                gc.freeze()
                gc.unfreeze()
            gc.enable()


def _conclude(store: Store, scan_id: str, options: ScanOptions) -> Scan:
    info = store.scan_info(scan_id)
    totals = store.totals(scan_id)
    records = distinct_records(store.overflow_records(scan_id))
    failures = tuple(store.failures(scan_id))
    material = gather(store, scan_id, totals.ops)
    flagged = find_flagged(store, scan_id, records)
    flags, orphans = join_overflow(records, flagged)
    known = {op.op_id for op in material.notable}
    extra = {
        op.op_id: op
        for ops in flagged.values()
        for op in ops
        if op.op_id in flags and op.op_id not in known
    }
    judged = [*material.notable, *extra.values()]
    places = store.places(scan_id)
    jobs = group_runs({place.run for place in places if place.run})
    op_types = store.op_types(scan_id)
    presence = find_presence(store, scan_id, failures, jobs)
    topology, rank_notes = find_topology(options, presence)
    names = ParameterNames(store.graph_nodes(scan_id, PARAMETER), topology)
    judged = names.name_all(judged)
    flow = connect(store, scan_id, judged)
    unread = tuple(store.unchecked_tensors(scan_id))
    collectives = Collectives(
        [*judged, *gather_calls(store, scan_id, judged, material.calls, jobs, op_types)],
        jobs,
        presence=presence,
        topology=topology,
    )
    judge = Judge(
        flow,
        rules=load_rules(options.rules_file),
        flags=flags,
        jobs=jobs,
        collectives=collectives,
        losses=Losses(store.faulty_files(scan_id), unread),
    )
    found = judge.judge_all() + [_orphan_finding(flag) for flag in orphans]
    if any(checks_gradients(op_type) for op_type in op_types):
        found = note_loss_scale(found)
    mode = _infer_mode(found)
    if material.ops:
        _check_filters(store, scan_id, options)
    everything, found = found, select_findings(found, options, jobs)
    expected = tuple(
        sorted(
            (f for f in found if f.verdict is Verdict.EXPECTED),
            key=lambda f: (f.op.file, f.op.op_id),
        )
    )
    findings = tuple(
        rank_findings(
            (f for f in found if f.verdict is not Verdict.EXPECTED),
            flow,
            jobs,
            judge.members_of,
            judge.doubtful,
        )
    )
    ranks = summarise_ranks(
        _with_ranks(everything, findings),
        places,
        jobs,
        senders_to=collectives.senders_to,
        topology=topology,
        came_through=judge.came_through,
        find_doubtful=lambda ops: find_behind_silent_calls(
            store, scan_id, ops, material.calls, op_types
        ),
    )
    applied = _apply_baseline(findings, options)
    findings = applied.findings
    unchecked = totals.unchecked - material.unchecked_left_out
    counts = Counts(
        files=totals.files,
        ops=material.ops,
        tensors=totals.tensors - material.tensors_left_out,
        bytes=totals.bytes,
        unchecked=unchecked,
        read_failures=len(failures),
        expected=len(expected),
        overflow_records=sum(1 for record in records if not record.empty),
        empty_overflow_records=sum(1 for record in records if record.empty),
        baseline_known=applied.known,
        findings=len(findings),
        skipped=_whole(info.totals.get("skipped")),
        unknown_files=totals.unknown_files,
        by_verdict=_count_verdicts(findings, expected),
    )
    outcome = decide_outcome(
        counts,
        findings,
        failures,
        options,
        info.config,
        missing_steps=_missing_steps(info.config, store, scan_id),
    )
    return Scan(
        scan_id=scan_id,
        root=info.root,
        tool_version=info.tool_version,
        exit_status=outcome.exit_status,
        complete=outcome.complete and info.state == "finished",
        mode=mode,
        counts=counts,
        findings=findings,
        expected=expected,
        read_failures=failures,
        overflow_records=records,
        record_rank=_rank_of_records(findings, flags, orphans),
        unchecked=unread,
        notes=(
            *outcome.notes,
            *note_baseline(applied),
            *_note_growing(info.totals.get("growing")),
            *_note_imported(_whole(info.totals.get("imported_documents"))),
            *explain_ranks(ranks, topology),
            *rank_notes,
            *_note_runs(jobs),
            *_note_skipped(_whole(info.totals.get("skipped"))),
        ),
        options=options,
        config=info.config,
        started_at=info.started_at,
        duration_s=info.duration_s or 0.0,
        unknown_files=tuple(islice(store.unknown_files(scan_id), _MAX_UNKNOWN_LISTED)),
        ranks=ranks,
        history=_find_history(store, scan_id, findings),
    )


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


# --- judging what was found -------------------------------------------------------------------


def _infer_mode(findings: Iterable[Finding]) -> Mode:
    saturated = False
    for finding in findings:
        if finding.verdict is Verdict.EXPECTED or is_source(finding.op.op_type):
            continue
        if any(t.stats.nonfinite for t in finding.op.outputs):
            return Mode("inf_nan")
        saturated = saturated or finding.verdict is Verdict.SATURATED_ORIGIN
    return Mode("saturation" if saturated else "unknown")


def _rank_of_records(
    findings: Sequence[Finding],
    flags: Mapping[int, list[Flag]],
    orphans: Iterable[Flag],
) -> dict[int, int]:
    """Record id -> rank of the finding that the record belongs to (the best, if several)."""
    rank_of_op = {f.op.op_id: f.rank for f in findings if f.rank is not None}
    ranks: dict[int, int] = {}
    pairs = [(flag.record.record_id, op_id) for op_id, found in flags.items() for flag in found]
    pairs += [(flag.record.record_id, -1 - flag.record.record_id) for flag in orphans]
    for record_id, op_id in pairs:
        rank = rank_of_op.get(op_id)
        if rank is not None:
            ranks[record_id] = min(rank, ranks.get(record_id, rank))
    return ranks


def _with_ranks(found: Iterable[Finding], ranked: Iterable[Finding]) -> list[Finding]:
    """All findings, those that were selected as they were ranked."""
    by_op = {finding.op.op_id: finding for finding in ranked}
    return [f if f.verdict is Verdict.EXPECTED else by_op.get(f.op.op_id, f) for f in found]


def _count_verdicts(findings: Iterable[Finding], expected: Sequence[Finding]) -> Mapping[str, int]:
    counted = Counter(str(f.verdict) for f in findings)
    if expected:
        counted[str(Verdict.EXPECTED)] = len(expected)
    return dict(counted)


def _apply_baseline(findings: Sequence[Finding], options: ScanOptions) -> Applied:
    if options.baseline is None:
        return Applied(tuple(findings))
    today = date.today()  # noqa: DTZ011 - an expiry date is a day where the user is
    return apply_baseline(load_baseline(options.baseline), findings, today)


def _missing_steps(
    config: Mapping[str, object] | None, store: Store, scan_id: str
) -> tuple[int, ...]:
    """Steps that the acl.json asked for one by one and that are not in the dump."""
    asked = parse_steps(str((config or {}).get("dump_step") or "")) or ()
    found: Collection[int] = store.steps(scan_id) if asked else ()
    return tuple(
        step
        for first, last in asked
        if last - first < _MAX_STEPS_COMPARED
        for step in range(first, last + 1)
        if step not in found
    )


def _check_filters(store: Store, scan_id: str, options: ScanOptions) -> None:
    """Refuse filters that no operator passes: a name that was mistyped must not look clean."""
    asked = Selection(steps=options.steps, ranks=options.ranks, op_globs=options.op_globs)
    if asked and next(store.ops(scan_id, selection=asked, light=True), None) is None:
        words = [f"--step {step}" for step in options.steps]
        words += [f"--rank {rank}" for rank in options.ranks]
        words += [f"--op {glob}" for glob in options.op_globs]
        raise OptionsError(f"no operator of this scan matches {' '.join(words)}")


def _find_history(store: Store, scan_id: str, findings: Sequence[Finding]) -> tuple[OpRecord, ...]:
    """The first offender in the steps before and after, on its own rank."""
    if not findings or not findings[0].op.op_name:
        return ()
    op = findings[0].op
    lane = lane_of(op)
    found = store.ops(scan_id, names=[op.op_name])
    same = (o for o in found if lane_of(o) == lane and o.op_type == op.op_type)
    return tuple(islice(same, _MAX_HISTORY))


def _note_growing(names: object) -> list[Reason]:
    """Name what was still being written: a later scan reads it again."""
    if not isinstance(names, list) or not names:
        return []
    shown = ", ".join(str(name) for name in names[:_MAX_GROWING_SHOWN])
    return [Reason("still_growing", {"count": len(names), "names": shown})]


def _note_imported(documents: int) -> list[Reason]:
    return [Reason("imported_documents", {"count": documents})] if documents else []


def _note_runs(jobs: Mapping[str, str]) -> list[Reason]:
    distinct = sorted(set(jobs.values()))
    if len(distinct) < 2:
        return []
    return [Reason("several_runs", {"runs": len(distinct), "newest": distinct[-1]})]


def _note_skipped(skipped: int) -> list[Reason]:
    return [Reason("skipped_links", {"count": skipped})] if skipped else []


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0
