"""Trees of dumps as a training job writes them night after night, from hand-written bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from builders import FLOAT16, Tensor, dump_file

__all__ = ["write_op", "write_tree"]

RUN = "20260109173000"
_FIRST_US = 1767951000000000

Array = npt.NDArray[np.float16]


def write_op(
    root: Path,
    op_type: str,
    op_name: str,
    *,
    inputs: Sequence[Array] = (),
    outputs: Sequence[Array] = (),
    step: int = 0,
    device: int = 0,
    task: int = 1,
) -> Path:
    """Write one execution of an operator into the folder that CANN gives it."""
    folder = root / RUN / str(device) / "net" / "1" / str(step)
    folder.mkdir(parents=True, exist_ok=True)
    time_us = _FIRST_US + step * 100_000 + task
    path = folder / f"{op_type}.{op_name.replace('/', '_')}.{task}.2.{time_us}"
    content = dump_file(
        [_tensor(array) for array in inputs],
        [_tensor(array) for array in outputs],
        op_name=op_name,
    )
    path.write_bytes(content)
    return path


def _tensor(array: Array) -> Tensor:
    return Tensor(array.astype("<f2").tobytes(), FLOAT16, array.shape)


def write_tree(root: Path, bad: Mapping[str, Sequence[float]], *, steps: int = 1) -> Path:
    """Write a chain of three operators without edges between them, `steps` times.

    `bad` maps the name of an operator ("net/a", "net/b", "net/c") to the values that begin its
    output; everything else is 1.
    """
    for step in range(steps):
        for task, name in enumerate(("net/a", "net/b", "net/c"), 1):
            values = np.ones(64, np.float16)
            first = bad.get(name, ())
            values[: len(first)] = first
            write_op(
                root,
                "Add",
                name,
                inputs=[np.full(64, task, np.float16)],
                outputs=[values],
                step=step,
                task=task,
            )
    return root
