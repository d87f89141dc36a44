"""Which operators are asked for: step, rank, run and name filters."""

from __future__ import annotations

import fnmatch
import re

from dumpscope.records import record

__all__ = ["Selection"]


@record(frozen=True, slots=True)
class Selection:
    """A filter on operators. An empty field filters nothing; a record must pass all of them.

    `ranks` are compared with `OpRecord.device`, `runs` with `Place.run`. `op_globs` are shell
    patterns, case-sensitive, of which one must match the operator's name or type.
    """

    steps: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()
    op_globs: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.steps or self.ranks or self.op_globs or self.runs)

    def name_pattern(self) -> re.Pattern[str] | None:
        """All globs as one regular expression, `None` without any."""
        if not self.op_globs:
            return None
        return re.compile("|".join(f"(?:{fnmatch.translate(glob)})" for glob in self.op_globs))
