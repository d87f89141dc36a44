"""Dumps of small parallel jobs, computed in float16 and written operator by operator.

The truth is known without looking at any dump: who is made bad, where, and in which exchange.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from builders import Tensor, dump_file

__all__ = ["RUN", "Job", "multiply", "write_probe_step"]

RUN = "20260101000000"
START_US = 1767225600000000

Array = npt.NDArray[np.float16]


class Job:
    """Writes what each rank runs; every rank has a clock of its own.

    `runs` gives ranks {time} folders of their own, `skew_us` moves their clocks.
    """

    def __init__(
        self,
        root: Path,
        ranks: int,
        *,
        runs: Mapping[int, str] | None = None,
        skew_us: Callable[[int], int] = lambda rank: 0,
        outputs_only: bool = False,
        inputs_only: bool = False,
    ) -> None:
        self.root = root
        self.ranks = ranks
        self.step = 0
        self._runs = runs or {}
        self._skew_us = skew_us
        self._outputs_only = outputs_only
        self._inputs_only = inputs_only
        self._task = dict.fromkeys(range(ranks), 0)

    def run(
        self,
        rank: int,
        op_type: str,
        inputs: Sequence[Array],
        outputs: Sequence[Array],
        name: str = "",
    ) -> Path:
        """Write one execution of a rank. Returns its file."""
        name = name or f"net/{op_type}-op1"
        self._task[rank] += 1
        task = self._task[rank]
        folder = self.root / self._runs.get(rank, RUN) / str(rank) / "net/1" / str(self.step)
        folder.mkdir(parents=True, exist_ok=True)
        time = START_US + self._skew_us(rank) + 1000 * task
        path = folder / f"{op_type}.{name.replace('/', '_')}.{task}.1.{time}"
        path.write_bytes(
            dump_file(
                [] if self._outputs_only else [_tensor(array) for array in inputs],
                [] if self._inputs_only else [_tensor(array) for array in outputs],
                op_name=name,
            )
        )
        return path

    def all_reduce(self, sent: Sequence[Array], name: str = "net/HcomAllReduce-op1") -> Array:
        """All ranks sum up; returns what each of them gets."""
        with np.errstate(over="ignore", invalid="ignore"):
            total: Array = np.stack(sent).astype(np.float32).sum(axis=0).astype(np.float16)
        for rank, array in enumerate(sent):
            self.run(rank, "HcomAllReduce", [array], [total], name)
        return total


def _tensor(array: Array) -> Tensor:
    return Tensor(array.tobytes(), shape=array.shape)


def write_probe_step(
    root: Path, step: int, rank: int, entries: Sequence[tuple[str, Mapping[str, Any]]]
) -> None:
    """Write the dump.json of one rank and step as msprobe does."""
    folder = root / f"step{step}" / f"rank{rank}"
    folder.mkdir(parents=True, exist_ok=True)
    content = {
        "task": "statistics",
        "level": "L1",
        "framework": "pytorch",
        "dump_data_dir": None,
        "data": dict(entries),
    }
    (folder / "dump.json").write_text(json.dumps(content), encoding="utf-8")


def multiply(job: Job, values: Array, culprits: Sequence[int]) -> list[Array]:
    """Run a product on every rank that overflows on the culprits; return what each rank has."""
    products = []
    for rank in range(job.ranks):
        factor = np.float16(60000) if rank in culprits else np.float16(0.5)
        with np.errstate(over="ignore"):
            product = (values * factor).astype(np.float16)
        job.run(rank, "Mul", [values, np.full(values.shape, factor, np.float16)], [product])
        products.append(product)
    return products
