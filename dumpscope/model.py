"""The domain: what a dump consists of, and what dumpscope says about it.

Plain frozen dataclasses and enums. Nothing here reads a file, computes or formats. Every
number stays a number, and what is not known is `None`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from types import MappingProxyType
from typing import Literal

__all__ = [
    "BITS_UNKNOWN",
    "FORM_CONVERTED",
    "FORM_RAW",
    "FORM_STATISTICS",
    "SEVERITY_OF",
    "Counts",
    "DumpFile",
    "DumpName",
    "Edge",
    "Evidence",
    "FileResult",
    "Finding",
    "GraphNode",
    "MaskPattern",
    "Match",
    "Mode",
    "NumberMode",
    "OpRecord",
    "OverflowFinding",
    "OverflowRecord",
    "OverflowUnit",
    "Place",
    "ReadFailure",
    "Reason",
    "Role",
    "Scan",
    "ScanOptions",
    "Severity",
    "StatsLevel",
    "TensorStats",
    "TensorSummary",
    "Verdict",
]

Role = Literal["input", "output"]
Severity = Literal["error", "warning", "info"]
Evidence = Literal["own_inputs", "graph", "address", "bytes", "order", "status", "statistics"]
StatsLevel = Literal["screen", "full"]
NumberMode = Literal["inf_nan", "saturation", "unknown"]

FORM_RAW = 0
"""The writer's own binary dump: the best form of an execution."""
FORM_CONVERTED = 1
"""The same values rewritten by a tool (npy, bin, pt)."""
FORM_STATISTICS = 2
"""Only statistics of the values."""

BITS_UNKNOWN = "unknown bit"


class Match(IntEnum):
    """How sure a reader is that a file is its own. The highest match reads the file."""

    NONE = 0
    NAME = 1
    CONTENT = 2


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


# --- where a file lies and what its name says -------------------------------------------------


@dataclass(frozen=True, slots=True)
class DumpName:
    """The fields of a dump file's name (naming.py parses it).

    `timestamp` is the number as written (its unit follows from its number of digits).
    A task or stream id of 65535 is unknown and becomes `None`.
    `role`, `slot`, `layout`, `dtype` and `shape` are set for files of one tensor.
    """

    op_type: str
    op_name: str
    task_id: int | None = None
    stream_id: int | None = None
    timestamp: int | None = None
    context_id: int | None = None
    thread_id: int | None = None
    device_id: int | None = None
    role: Role | None = None
    slot: int | None = None
    layout: str | None = None
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    suffix: str = ""


@dataclass(frozen=True, slots=True)
class Place:
    """What the folders around a file say. One object for all files of a folder.

    `source` numbers the PATH argument below which the file lies: equal device numbers below
    different paths are different devices. `run` is the {time} folder (14 digits) or `None`.
    `process` is the pid that a folder names (msprobe's proc{pid}, ATB): without a rank, two
    processes are two devices.
    """

    source: int = 0
    run: str | None = None
    step: int | None = None
    device_id: int | None = None
    global_rank: int | None = None
    host: str | None = None
    model_name: str | None = None
    model_id: int | None = None
    process: int | None = None

    @property
    def device(self) -> int | None:
        """The global rank where the layout names one, else the device id."""
        return self.device_id if self.global_rank is None else self.global_rank


@dataclass(frozen=True, slots=True)
class DumpFile:
    """One regular file that the walk found.

    `path` opens it (surrogateescape for names that are not UTF-8), `relative` is the path below
    the scan's root with `/` between the parts, `name` is the real name out of mapping.csv where
    the name on disk is a hash, else the name on disk.
    """

    path: str
    relative: str
    name: str
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    place: Place = field(default_factory=Place)


# --- what was measured ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MaskPattern:
    """The elements of a tensor that hold one mask constant.

    `value` is that constant, `count` how many elements hold it. `digest` identifies their
    positions whatever the broadcasting: axes along which the pattern is constant are dropped
    before hashing, so a (1, 1, S, S) mask and the (B, H, S, S) scores it was added to agree.
    """

    value: float
    count: int
    digest: str | None


@dataclass(frozen=True, slots=True)
class TensorStats:
    """What was counted in one tensor. Elements of padding count in `padding_nonfinite` only.

    `min` and `max` are over finite elements (`None` when there are none), `mean`, `std`, `rms`
    and `l2` too, in float64 accuracy; they, `subnormal` and `zero` are `None` when only
    screening was done. `first_bad` and `bad_box` (inclusive) are indices in the logical shape of
    non-finite elements, or of saturated ones where all are finite.
    """

    count: int = 0
    nan: int = 0
    posinf: int = 0
    neginf: int = 0
    saturated: int = 0
    near_limit: int | None = 0
    subnormal: int | None = None
    zero: int | None = None
    padding_nonfinite: int = 0
    min: float | int | None = None
    max: float | int | None = None
    mean: float | None = None
    std: float | None = None
    rms: float | None = None
    l2: float | None = None
    first_bad: tuple[int, ...] | None = None
    bad_box: tuple[tuple[int, int], ...] | None = None
    saturated_negative: int = 0
    mask: MaskPattern | None = None

    @property
    def nonfinite(self) -> int:
        """How many elements are NaN, +Inf or -Inf."""
        return self.nan + self.posinf + self.neginf


@dataclass(frozen=True, slots=True)
class TensorSummary:
    """One tensor of an execution, without its data.

    `shape` is the logical shape (original_shape's order where there is one). `checked` is false
    when its values could not be read; `unchecked` then says why (a reason code), and it counts as
    unchecked. `dumped` is false where the writer left the bytes out on purpose: neither checked
    nor unchecked. `missing_bytes` is what a truncated tensor lacks; what was there is in `stats`.
    `from_statistics` marks values that another tool computed. `digest` (of the raw bytes) exists
    for tensors that are not clean.
    """

    role: Role
    index: int
    dtype: str
    layout: str
    shape: tuple[int, ...]
    checked: bool = True
    dumped: bool = True
    unchecked: str | None = None
    size_bytes: int = 0
    missing_bytes: int = 0
    address: int = 0
    offset: int = 0
    from_statistics: bool = False
    digest: str | None = None
    name: str | None = None
    notes: tuple[str, ...] = ()
    stats: TensorStats = field(default_factory=TensorStats)


@dataclass(frozen=True, slots=True)
class OpRecord:
    """One operator execution as it was measured (or one part of it, see `partial`).

    `start_ns` orders executions of one rank (`None`: the format has no time; `order` is then the
    writer's own order). `partial` says that other files may hold the rest of the execution.
    `form` tells raw dumps from converted ones and from statistics. `parent` names the module
    that contains it. `file` is relative to the root. `op_id` is the store's number,
    `part_ids` those of the records that were put together into this one.
    """

    op_type: str
    op_name: str
    tensors: tuple[TensorSummary, ...] = ()
    task_id: int | None = None
    stream_id: int | None = None
    timestamp: int | None = None
    start_ns: int | None = None
    order: int = 0
    context_id: int | None = None
    thread_id: int | None = None
    step: int | None = None
    device: int | None = None
    form: int = FORM_RAW
    partial: bool = False
    container: bool = False
    parent: str | None = None
    stack: tuple[str, ...] = ()
    attributes: tuple[tuple[str, str], ...] = ()
    reader: str = ""
    file: str = ""
    place: Place = field(default_factory=Place)
    op_id: int = 0
    part_ids: tuple[int, ...] = ()

    @property
    def inputs(self) -> tuple[TensorSummary, ...]:
        return tuple(t for t in self.tensors if t.role == "input")

    @property
    def outputs(self) -> tuple[TensorSummary, ...]:
        return tuple(t for t in self.tensors if t.role == "output")


@dataclass(frozen=True, slots=True)
class OverflowUnit:
    """What one hardware unit reported. Ids are `None` when they are all ones or 65535."""

    kind: str
    status: tuple[int, ...]
    model_id: int | None = None
    stream_id: int | None = None
    task_id: int | None = None
    context_id: int | None = None
    thread_id: int | None = None
    fields: tuple[tuple[str, int], ...] = ()

    @property
    def empty(self) -> bool:
        """All status words are zero: nothing overflowed."""
        return not any(self.status)


@dataclass(frozen=True, slots=True)
class OverflowRecord:
    """One overflow record of the hardware: `units[0]` is the main one."""

    units: tuple[OverflowUnit, ...]
    file: str = ""
    timestamp: int | None = None
    start_ns: int | None = None
    known_kind: bool = True
    place: Place = field(default_factory=Place)
    record_id: int = 0

    @property
    def empty(self) -> bool:
        return all(unit.empty for unit in self.units)


@dataclass(frozen=True, slots=True)
class GraphNode:
    """One operator of a graph text: a source of edges and of original names.

    `inputs` are (producer name, output index) pairs, without control edges.
    """

    name: str
    op_type: str
    inputs: tuple[tuple[str, int], ...] = ()
    original_names: tuple[str, ...] = ()
    order: int = 0
    file: str = ""


@dataclass(frozen=True, slots=True)
class ReadFailure:
    """A file, or a part of it, that could not be read."""

    file: str
    reader: str
    error: str
    offset: int | None
    message: str


@dataclass(frozen=True, slots=True)
class FileResult:
    """All that one file gave. Plain data: it travels between processes and machines.

    `known` is false when no reader knows the file: counted, not a failure. `auxiliary` marks
    files that describe others (graphs, configuration). `signature` is the identity under which a
    later scan may reuse the result.
    """

    file: DumpFile
    reader: str = ""
    known: bool = True
    auxiliary: bool = False
    ops: tuple[OpRecord, ...] = ()
    overflow: tuple[OverflowRecord, ...] = ()
    graph: tuple[GraphNode, ...] = ()
    failures: tuple[ReadFailure, ...] = ()
    notes: tuple[str, ...] = ()
    bytes_read: int = 0


# --- what is said about it --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reason:
    """A sentence before it is put into words: words.py renders it in each language."""

    code: str
    parameters: Mapping[str, str | int | float | bool | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Edge:
    """`producer` (op_id) wrote what `consumer` read, on this evidence."""

    producer: int
    producer_index: int
    consumer: int
    consumer_index: int
    evidence: Evidence


@dataclass(frozen=True, slots=True)
class OverflowFinding:
    """The hardware's word on a finding."""

    kind: str
    status: tuple[int, ...]
    bits: tuple[str, ...]
    confirmed: bool
    file: str
    others: tuple[OverflowUnit, ...] = ()


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class Mode:
    """How the hardware treats overflow, inferred from the data."""

    number_mode: NumberMode = "unknown"
    inferred: bool = True


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class Scan:
    """The whole answer: everything that a report is made from."""

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
