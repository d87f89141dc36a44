"""The domain: what a dump consists of, and what dumpscope says about it.

Frozen dataclasses and enums (those that a scan makes by the million are frozen for the type
checker only, see `records`). Nothing here reads a file, computes or formats. Every number stays a
number, and what is not known is `None`.
"""

from __future__ import annotations

from dumpscope.model.answer import (
    SEVERITY_OF,
    Counts,
    Evidence,
    Finding,
    Mode,
    NumberMode,
    OverflowFinding,
    Reason,
    Remark,
    Scan,
    ScanOptions,
    Severity,
    StatsLevel,
    Verdict,
)
from dumpscope.model.found import (
    FACTS,
    DumpFile,
    DumpName,
    Match,
    Place,
    Portion,
    Role,
)
from dumpscope.model.measured import (
    BITS_UNKNOWN,
    FORM_CONVERTED,
    FORM_RAW,
    FORM_STATISTICS,
    PARAMETER,
    FileResult,
    GraphNode,
    MaskPattern,
    OpRecord,
    OverflowRecord,
    OverflowUnit,
    ReadFailure,
    TensorStats,
    TensorSummary,
)
from dumpscope.model.ranks import RankEvent, RankState, RankSummary

__all__ = [
    "BITS_UNKNOWN",
    "FACTS",
    "FORM_CONVERTED",
    "FORM_RAW",
    "FORM_STATISTICS",
    "PARAMETER",
    "SEVERITY_OF",
    "Counts",
    "DumpFile",
    "DumpName",
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
    "Portion",
    "RankEvent",
    "RankState",
    "RankSummary",
    "ReadFailure",
    "Reason",
    "Remark",
    "Role",
    "Scan",
    "ScanOptions",
    "Severity",
    "StatsLevel",
    "TensorStats",
    "TensorSummary",
    "Verdict",
]
