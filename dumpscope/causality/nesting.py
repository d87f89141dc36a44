"""Operators inside modules.

Module trees (msprobe) tell what ran inside what. Two things follow from them: a module is not
the offender when something inside it is, and a bad value that turns up inside a module whose own
inputs are finite arose inside it, even when the operator that made it was not dumped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dumpscope.causality.dataflow import Lane, lane_of
from dumpscope.model import OpRecord

__all__ = ["Nesting"]

_DEEPEST = 256


class Nesting:
    """Look up the modules around operators among the executions that are not clean."""

    def __init__(self, ops: Iterable[OpRecord]) -> None:
        self._by_name: dict[tuple[Lane, int | None, str], OpRecord] = {}
        self._parent_of: dict[tuple[Lane, int | None, str], str] = {}
        self._cause: dict[tuple[Lane, int | None, str, bool], OpRecord] = {}
        for op in ops:
            if op.container or op.parent is not None:
                key = (lane_of(op), op.step, op.op_name)
                self._by_name.setdefault(key, op)
                if op.parent is not None:
                    self._parent_of.setdefault(key, op.parent)

    def containers(self, op: OpRecord) -> Iterator[str]:
        """Names of the modules around `op`, innermost first."""
        lane = lane_of(op)
        name = op.parent
        for _ in range(_DEEPEST):
            if not name or name == op.op_name:
                return
            yield name
            name = self._parent_of.get((lane, op.step, name))

    def enclosing(self, op: OpRecord) -> Iterator[OpRecord]:
        """The modules around `op` that are not clean themselves, innermost first."""
        lane = lane_of(op)
        for name in self.containers(op):
            found = self._by_name.get((lane, op.step, name))
            if found is not None:
                yield found

    def note_cause(self, op: OpRecord, *, saturates: bool = False) -> None:
        """Remember that the trouble of every module around `op` began with `op`."""
        lane = lane_of(op)
        for name in self.containers(op):
            self._cause.setdefault((lane, op.step, name, saturates), op)

    def cause_inside(self, op: OpRecord, *, saturates: bool = False) -> OpRecord | None:
        """The operator inside the module `op` with which its trouble began."""
        return self._cause.get((lane_of(op), op.step, op.op_name, saturates))
