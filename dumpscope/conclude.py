"""From the records of a scan to its answer.

Reads what the store holds, puts executions together, joins the hardware's records, has judged what
is not clean (`judging`), and counts. Nothing here is stored: asked again, it gives the same answer.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice

from dumpscope.causality.dataflow import lane_of
from dumpscope.causality.hardware import Flag, distinct_records, join_overflow
from dumpscope.causality.runs import group_runs
from dumpscope.errors import OptionsError
from dumpscope.filters import check_run
from dumpscope.gathering import Judged, Suspects, find_flagged, gather
from dumpscope.model import Counts, Finding, OpRecord, Reason, Scan, ScanOptions, Verdict
from dumpscope.naming import is_archive_name
from dumpscope.outcome import decide_outcome
from dumpscope.ranks.patterns import explain_ranks
from dumpscope.ranks.presence import find_presence
from dumpscope.ranks.ranksummary import summarise_ranks
from dumpscope.ranks.rankview import find_topology
from dumpscope.store import Selection, Store

__all__ = ["check_files", "conclude"]

_MAX_UNKNOWN_LISTED = 100
_MAX_STEPS_COMPARED = 1000
_MAX_GROWING_SHOWN = 3
_MAX_HISTORY = 4096


def check_files(options: ScanOptions) -> None:
    """Read the rules and the baseline that a scan will be concluded with: before hours of reading.

    Raises
    ------
    ConfigError
        One of them cannot be read.
    OptionsError
        The baseline is a scan document that was cut.
    """
    if options.rules_file is not None:
        from dumpscope.rules import load_rules

        load_rules(options.rules_file)
    if options.baseline is not None:
        from dumpscope.nightly.baseline import load_baseline

        load_baseline(options.baseline)


def conclude(store: Store, scan_id: str, options: ScanOptions, *, history: bool = True) -> Scan:
    """Compute the answer of a stored scan.

    `history` asks for the first offender in all steps, for which all operators are looked at.

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
        return _conclude(store, scan_id, options, history)


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


def _conclude(store: Store, scan_id: str, options: ScanOptions, history: bool) -> Scan:
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
    places = store.places(scan_id)
    jobs = group_runs({place.run for place in places if place.run})
    presence = find_presence(store, scan_id, failures, jobs)
    topology, rank_notes = find_topology(options, presence)
    unread = tuple(store.unchecked_tensors(scan_id))
    if material.ops:
        _check_filters(store, scan_id, options)
    check_run(options, jobs)
    suspects = Suspects(
        (*material.notable, *extra.values()), material.calls, flags, tuple(orphans), unread
    )
    if suspects.ops or orphans or options.rules_file is not None:
        # Imported here: most dumps are clean, and then nobody is to be judged.
        from dumpscope.judging import judge

        judged = judge(
            store,
            scan_id,
            options,
            suspects,
            places=places,
            jobs=jobs,
            presence=presence,
            topology=topology,
        )
    else:
        judged = Judged(ranks=summarise_ranks((), places, jobs, topology=topology))
    expected = judged.expected
    findings, baseline_known, baseline_notes = _apply_baseline(judged.findings, options)
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
        baseline_known=baseline_known,
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
    unknown, archives = _name_unknown(store, scan_id) if totals.unknown_files else ((), ())
    return Scan(
        scan_id=scan_id,
        root=info.root,
        tool_version=info.tool_version,
        exit_status=outcome.exit_status,
        complete=outcome.complete and info.state == "finished",
        mode=judged.mode,
        counts=counts,
        findings=findings,
        expected=expected,
        read_failures=failures,
        overflow_records=records,
        record_rank=_rank_of_records(findings, flags, orphans),
        unchecked=unread,
        notes=(
            *outcome.notes,
            *archives,
            *baseline_notes,
            *_note_growing(info.totals.get("growing")),
            *_note_imported(_whole(info.totals.get("imported_documents"))),
            *explain_ranks(judged.ranks, topology),
            *rank_notes,
            *_note_runs(jobs),
            *_note_skipped(_whole(info.totals.get("skipped"))),
        ),
        options=options,
        config=info.config,
        started_at=info.started_at,
        duration_s=info.duration_s or 0.0,
        unknown_files=unknown,
        ranks=judged.ranks,
        history=_find_history(store, scan_id, findings) if history else (),
    )


def _name_unknown(store: Store, scan_id: str) -> tuple[tuple[str, ...], tuple[Reason, ...]]:
    """Return the first files that no reader knew, and what to do with archives among all."""
    listed: list[str] = []
    first, count = "", 0
    for name in store.unknown_files(scan_id):
        if len(listed) < _MAX_UNKNOWN_LISTED:
            listed.append(name)
        if is_archive_name(name):
            first, count = first or name, count + 1
    notes = (Reason("archives", {"count": count, "path": first}),) if count else ()
    return tuple(listed), notes


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


def _count_verdicts(findings: Iterable[Finding], expected: Sequence[Finding]) -> Mapping[str, int]:
    counted = Counter(str(f.verdict) for f in findings)
    if expected:
        counted[str(Verdict.EXPECTED)] = len(expected)
    return dict(counted)


def _apply_baseline(
    findings: tuple[Finding, ...], options: ScanOptions
) -> tuple[tuple[Finding, ...], int, Sequence[Reason]]:
    """Mark the findings that a baseline knows; return them, how many these are, and notes."""
    if options.baseline is None:
        return findings, 0, ()
    from dumpscope.nightly.baseline import (
        apply_baseline,
        load_baseline,
        local_today,
        note_baseline,
    )

    applied = apply_baseline(load_baseline(options.baseline), findings, local_today())
    return applied.findings, applied.known, note_baseline(applied)


def _missing_steps(
    config: Mapping[str, object] | None, store: Store, scan_id: str
) -> tuple[int, ...]:
    """Steps that the acl.json asked for one by one and that are not in the dump."""
    said = str((config or {}).get("dump_step") or "")
    if not said:
        return ()
    from dumpscope.aclconfig.values import parse_steps

    asked = parse_steps(said) or ()
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
        raise OptionsError(
            f"no operator of this scan matches {' '.join(words)}; what was read is kept: dumpscope "
            "report with other filters goes on from there"
        )


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
