"""How often rank 1 was right, counted over many networks and told at the end of the run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import pytest

from dumpscope.model import Finding
from network_builder import Case

__all__ = ["Score", "Told"]


class Told(Protocol):
    """What a scan said of a network, and what really happened in it."""

    @property
    def case(self) -> Case: ...

    @property
    def culprit(self) -> str: ...

    @property
    def first(self) -> Finding | None: ...

    @property
    def right(self) -> bool: ...

    @property
    def named(self) -> set[str]: ...


class Score:
    """How often rank 1 was right, told at the end of the run."""

    def __init__(self, tell: Callable[[str, object], None]) -> None:
        self._tell = tell
        self.asked = self.right = self.told = 0

    def count(self, answer: Told, *, holds: bool, verdicts: set[str]) -> None:
        """Require rank 1 where the dump `holds` what is needed, else one of `verdicts`."""
        if holds:
            self.asked += 1
            if answer.right:
                self.right += 1
                return
            first = answer.first
            got = None if first is None else (str(first.verdict), first.op.device, first.op.op_name)
            pytest.fail(f"{answer.case}: expected {answer.culprit}, found {got}")
        self.told += 1
        assert answer.named & verdicts, (
            f"{answer.case}: {answer.culprit} is named as {sorted(answer.named)}"
        )

    def close(self) -> None:
        self._tell("causality", f"{self.right} {self.asked} {self.told}")
