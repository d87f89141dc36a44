"""What is said of a dump: verdicts, reasons, findings, and the whole answer of a scan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import Enum
from types import MappingProxyType
from typing import Literal

from dumpscope.model.measured import (
    OpRecord,
    OverflowRecord,
    OverflowUnit,
    ReadFailure,
    TensorSummary,
)
from dumpscope.model.ranks import RankSummary
from dumpscope.records import record

__all__ = [
    "SEVERITY_OF",
    "Counts",
    "Evidence",
    "Finding",
    "Mode",
    "NumberMode",
    "OverflowFinding",
    "Reason",
    "Scan",
    "ScanOptions",
    "Severity",
    "StatsLevel",
    "Verdict",
]

Severity = Literal["error", "warning", "info"]
Evidence = Literal["own_inputs", "graph", "address", "bytes", "order", "status", "statistics"]
StatsLevel = Literal["screen", "full"]
NumberMode = Literal["inf_nan", "saturation", "unknown"]


class Verdict(str, Enum):
    """What happened in one operator execution, in order of ranking class."""

    ORIGIN = "origin"
    STATUS_ORIGIN = "status_origin"
    SATURATED_ORIGIN = "saturated_origin"
    BAD_INPUT = "bad_input"
    RECEIVED = "received"
    HANDOFF = "handoff"
    UNKNOWN_INPUTS = "unknown_inputs"
    PROPAGATED = "propagated"
    SWALLOWED = "swallowed"
    EXPECTED = "expected"

    def __str__(self) -> str:
        return self.value


SEVERITY_OF: Mapping[Verdict, Severity | None] = MappingProxyType(
    {
        Verdict.ORIGIN: "error",
        Verdict.STATUS_ORIGIN: "error",
        Verdict.SATURATED_ORIGIN: "error",
        Verdict.BAD_INPUT: "error",
        Verdict.RECEIVED: "error",
        Verdict.HANDOFF: "warning",
        Verdict.UNKNOWN_INPUTS: "error",
        Verdict.PROPAGATED: "info",
        Verdict.SWALLOWED: "warning",
        Verdict.EXPECTED: None,
    }
)


@record(frozen=True, slots=True)
class Reason:
    """A sentence before it is put into words: words.py renders it in each language."""

    code: str
    parameters: Mapping[str, str | int | float | bool | None] = field(default_factory=dict)


@record(frozen=True, slots=True)
class Remark:
    """What is said to whoever runs a command, not in reports; `words.talk` has the sentences."""

    code: str
    parameters: Mapping[str, str] = field(default_factory=dict)


@record(frozen=True, slots=True)
class OverflowFinding:
    """The hardware's word on a finding."""

    kind: str
    status: tuple[int, ...]
    bits: tuple[str, ...]
    confirmed: bool
    file: str
    others: tuple[OverflowUnit, ...] = ()


@record(frozen=True, slots=True)
class Finding:
    """What is said of one operator execution.

    `rank` counts from 1 in ranking order, `None` for expected values. `deciding` is the
    position in `op.tensors` of the tensor that decided the verdict. `rule` names the rule that
    made it expected.
    """

    op: OpRecord
    verdict: Verdict
    reason: Reason
    evidence: tuple[Evidence, ...] = ()
    rank: int | None = None
    deciding: int | None = None
    overflow: OverflowFinding | None = None
    rule: str | None = None
    known: bool = False
    caused_by: int | None = None

    @property
    def severity(self) -> Severity | None:
        return SEVERITY_OF[self.verdict]


@record(frozen=True, slots=True)
class Mode:
    """How the hardware treats overflow, inferred from the data."""

    number_mode: NumberMode = "unknown"
    inferred: bool = True


@record(frozen=True, slots=True)
class Counts:
    files: int = 0
    ops: int = 0
    tensors: int = 0
    bytes: int = 0
    unchecked: int = 0
    read_failures: int = 0
    expected: int = 0
    overflow_records: int = 0
    empty_overflow_records: int = 0
    baseline_known: int = 0
    findings: int = 0
    skipped: int = 0
    unknown_files: int = 0
    by_verdict: Mapping[str, int] = field(default_factory=dict)


@record(frozen=True, slots=True)
class ScanOptions:
    """What a scan was asked for. The same options and the same files give the same result."""

    stats: StatsLevel = "screen"
    jobs: int | None = None
    fail_on: str = "warning"
    max_unreadable: str = "0"
    expect: Literal["overflow", "model"] | None = None
    reader: str | None = None
    rules_file: str | None = None
    rank_map: str | None = None
    baseline: str | None = None
    steps: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()
    op_globs: tuple[str, ...] = ()
    run: str = "all"
    near_limit_share: float = 0.9
    tp: int | None = None
    pp: int | None = None
    dp: int | None = None
    cp: int | None = None
    ep: int | None = None
    order: str | None = None
    executor: Literal["local", "dask"] | None = None
    scheduler: str | None = None


@record(frozen=True, slots=True)
class Scan:
    """The whole answer: everything that a report is made from.

    `history` holds the executions of the first offender in all steps of its rank, bad or not,
    where it was asked for.
    `found_by` are the options without which a command would read another scan (--store, --scan):
    reports name commands with them.
    """

    scan_id: str
    root: str
    tool_version: str
    exit_status: int
    complete: bool
    mode: Mode
    counts: Counts
    findings: tuple[Finding, ...] = ()
    expected: tuple[Finding, ...] = ()
    read_failures: tuple[ReadFailure, ...] = ()
    overflow_records: tuple[OverflowRecord, ...] = ()
    record_rank: Mapping[int, int] = field(default_factory=dict)
    unchecked: tuple[tuple[OpRecord, TensorSummary], ...] = ()
    notes: tuple[Reason, ...] = ()
    options: ScanOptions = field(default_factory=ScanOptions)
    config: Mapping[str, object] | None = None
    started_at: str = ""
    duration_s: float = 0.0
    unknown_files: tuple[str, ...] = ()
    ranks: tuple[RankSummary, ...] = ()
    history: tuple[OpRecord, ...] = ()
    found_by: tuple[str, ...] = ()
