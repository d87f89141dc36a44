"""What `make bench` prints: each measured ratio beside what it must and should be."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass, field
from datetime import datetime, timezone
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Row:
    """One line of the table. `higher_is_better` turns both limits into lower bounds."""

    what: str
    value: float
    unit: str
    must: float
    aim: float
    details: str
    higher_is_better: bool = False
    peers: tuple[str, ...] = field(default=())

    @property
    def verdict(self) -> str:
        sign = -1 if self.higher_is_better else 1
        if sign * self.value <= sign * self.aim:
            return "aim"
        return "must" if sign * self.value <= sign * self.must else "MISSED"

    def cells(self) -> tuple[str, ...]:
        bound = "≥" if self.higher_is_better else "≤"
        return (
            self.what,
            f"{self.value:.2f} {self.unit}",
            f"{bound} {self.must:g} {self.unit}",
            f"{bound} {self.aim:g} {self.unit}",
            self.verdict,
            "; ".join((self.details, *self.peers)),
        )


HEAD = ("what", "measured", "must", "aim", "reached", "figures")


def markdown(rows: Sequence[Row]) -> str:
    lines = ["| " + " | ".join(HEAD) + " |", "|---" * len(HEAD) + "|"]
    lines += ["| " + " | ".join(row.cells()) + " |" for row in rows]
    return "\n".join(lines)


def machine() -> str:
    """Describe the machine in general words, without its name."""
    kernel = "with" if find_spec("dumpscope._kernel") else "without"
    return (
        f"{platform.system()} on {platform.machine()}, {os.cpu_count()} cores, "
        f"Python {platform.python_version()}, {kernel} the C kernel"
    )


def page(rows: Sequence[Row]) -> str:
    """Return the text of docs/benchmarks.md."""
    return f"""# Benchmarks

Written by `make bench BENCH_ARGS=--write` on {datetime.now(timezone.utc).date().isoformat()}
({machine()}). Absolute figures drift from machine to machine; the ratios are what counts, each
taken within one run, with data in the page cache and whole processes measured from start to end.

{markdown(rows)}

*must* is what a release may not miss, *aim* is what it tries to reach; `make bench` ends with
exit status 1 where a must is missed.

How each row is measured stands in `bench/rows.py`; `make bench BENCH_ARGS=--quick` runs all of
them on smaller sets in a few minutes.
"""
