"""What was read and measured: tensors, executions, overflow records, graphs, failures."""

from __future__ import annotations

from dataclasses import field

from dumpscope.model.found import DumpFile, Place, Role
from dumpscope.records import record

__all__ = [
    "BITS_UNKNOWN",
    "FORM_CONVERTED",
    "FORM_RAW",
    "FORM_STATISTICS",
    "FileResult",
    "GraphNode",
    "MaskPattern",
    "OpRecord",
    "OverflowRecord",
    "OverflowUnit",
    "PARAMETER",
    "ReadFailure",
    "TensorStats",
    "TensorSummary",
]

BITS_UNKNOWN = "unknown bit"
"""How the text of a status bit begins whose meaning is not on record."""

PARAMETER = "parameter"
"""The type of a `GraphNode` that is the name of a parameter; its order is the index."""

FORM_RAW = 0
"""The writer's own binary dump: the best form of an execution."""
FORM_CONVERTED = 1
"""The same values rewritten by a tool (npy, bin, pt)."""
FORM_STATISTICS = 2
"""Only statistics of the values."""


@record(frozen=True, slots=True)
class MaskPattern:
    """The elements of a tensor that hold one mask constant.

    `value` is that constant, `count` how many elements hold it. `digest` identifies their
    positions whatever the broadcasting: axes along which the pattern is constant are dropped
    before hashing, so a (1, 1, S, S) mask and the (B, H, S, S) scores it was added to agree.
    """

    value: float
    count: int
    digest: str | None


@record(frozen=True, slots=True)
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


@record(frozen=True, slots=True)
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


@record(frozen=True, slots=True)
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
        return tuple([t for t in self.tensors if t.role == "input"])

    @property
    def outputs(self) -> tuple[TensorSummary, ...]:
        return tuple([t for t in self.tensors if t.role == "output"])


@record(frozen=True, slots=True)
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


@record(frozen=True, slots=True)
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


@record(frozen=True, slots=True)
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


@record(frozen=True, slots=True)
class ReadFailure:
    """A file, or a part of it, that could not be read."""

    file: str
    reader: str
    error: str
    offset: int | None
    message: str


@record(frozen=True, slots=True)
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
