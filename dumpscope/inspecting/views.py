"""What `show` shows of one file or operator, before it is put into words."""

from __future__ import annotations

from dumpscope.inspecting.closeup import Closeup
from dumpscope.model import Finding, GraphNode, OpRecord, OverflowRecord, ReadFailure, Scan
from dumpscope.records import record

__all__ = ["FileView", "OpView", "View"]


@record(frozen=True, slots=True)
class OpView:
    """One execution.

    `closeups` go with `op.tensors`, `None` where there are no values to look at. `finding` is
    what the last scan said of it.
    """

    op: OpRecord
    closeups: tuple[Closeup | None, ...] = ()
    finding: Finding | None = None


@record(frozen=True, slots=True)
class FileView:
    """One file.

    `left_out` counts executions that were not looked at, `nodes` the operators of a graph text,
    of which `graph` are the first. `known` is false where no reader knows the file.
    """

    path: str
    reader: str = ""
    size_bytes: int = 0
    known: bool = True
    ops: tuple[OpView, ...] = ()
    left_out: int = 0
    overflow: tuple[OverflowRecord, ...] = ()
    graph: tuple[GraphNode, ...] = ()
    nodes: int = 0
    failures: tuple[ReadFailure, ...] = ()

    @property
    def read(self) -> bool:
        """Whether anything of it could be read."""
        return bool(self.ops or self.left_out or self.overflow or self.nodes)


@record(frozen=True, slots=True)
class View:
    """The files of what was asked for.

    Attributes
    ----------
    stored
        Where an operator's files can no longer be read: what the scan had measured.
    others
        Further executions of the same name, the best-ranked first.
    scan
        The scan that `finding`s and `others` come from.
    """

    asked: str
    files: tuple[FileView, ...]
    stored: OpView | None = None
    others: tuple[tuple[OpRecord, Finding | None], ...] = ()
    scan: Scan | None = None

    @property
    def exit_status(self) -> int:
        """0, or 3 when nothing of it could be read."""
        return 0 if any(file.read for file in self.files) else 3
