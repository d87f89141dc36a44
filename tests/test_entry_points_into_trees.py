"""Steps and ranks come out the same wherever in a tree the user points."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import torch_builders
from array_builders import atb_bytes, npy_bytes
from builders import FLOAT16, Tensor, dump_file
from cli_runs import run

NAME = "Exp.net_Exp-op0.5.2.1764417600000000"
RUN = "20251129120000"
BAD = np.array([1.0, np.inf], "<f2")


def cann(path: Path, name: str = NAME) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    good = Tensor(np.array([1.0, 2.0], "<f2").tobytes(), FLOAT16, (2,))
    (path / name).write_bytes(dump_file((good,), (Tensor(BAD.tobytes(), FLOAT16, (2,)),)))
    return path / name


def numpy_file(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    file = path / f"{NAME}.output.0.DefaultFormat.Float16.npy"
    file.write_bytes(npy_bytes("<f2", (2,), BAD.tobytes()))
    return file


def msprobe(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)

    def leaf(largest: float) -> dict[str, Any]:
        return {"type": "torch.Tensor", "dtype": "torch.float16", "shape": [2],
                "Max": largest, "Min": 1.0, "Mean": 1.0, "Norm": 1.0}  # fmt: skip

    entry = {"input_args": [leaf(2.0)], "input_kwargs": {}, "output": [leaf(float("inf"))]}
    document = {"task": "statistics", "level": "L1", "dump_data_dir": None,
                "data": {"Torch.exp.0.forward": entry}}  # fmt: skip
    (path / "dump.json").write_text(json.dumps(document))
    return path / "dump.json"


def torch_file(path: Path) -> Path:
    data = path / "dump_tensor_data"
    data.mkdir(parents=True, exist_ok=True)
    file = data / "Torch.exp.0.forward.output.0.pt"
    tensor = torch_builders.tensor("0", "float16", (2,))
    file.write_bytes(torch_builders.archive(tensor, {"0": BAD.tobytes()}))
    return file


def atb(path: Path) -> Path:
    path = path / "3_SoftmaxOperation/after"
    path.mkdir(parents=True, exist_ok=True)
    (path / "outtensor0.bin").write_bytes(atb_bytes(BAD.tobytes(), dims=(2,)))
    return path / "outtensor0.bin"


Layout = tuple[str, Callable[[Path], Path], tuple[int, ...], tuple[int, ...]]
LAYOUTS: dict[str, Layout] = {
    # folder below the root with {step} and {rank}; what is written; steps; ranks
    "cann model": (f"{RUN}/{{rank}}/net/11/{{step}}", cann, (0, 3), (0, 5)),
    "step and rank around cann": (f"step{{step}}/rank{{rank}}/{RUN}/0", cann, (0, 3), (0, 5)),
    "rank around cann": (f"rank_{{rank}}/{RUN}/0/net/11/{{step}}", cann, (0, 3), (0, 5)),
    "graph mode": (
        f"worldsize8_global_rank{{rank}}/{RUN}/0/net/11/{{step}}", cann, (0, 3), (0, 5)
    ),
    "mindspore": ("rank_{rank}/net/0/{step}", numpy_file, (0, 3), (0, 5)),
    "msprobe 26": ("step{step}/rank{rank}", msprobe, (0, 3), (0, 5)),
    "msprobe tensors": ("step{step}/rank{rank}", torch_file, (0, 3), (0, 5)),
    "exception": ("extra-info/data-dump/{rank}", cann, (0,), (0, 5)),
    "atb": ("{rank}_4242/{step}", atb, (0, 3), (0, 5)),
}  # fmt: skip
NO_STEP = {"exception"}
"""Layouts that say no step."""


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


def places_in(*paths: Path) -> set[tuple[int | None, int | None]]:
    """(step, device) of every finding."""
    ended = run("scan", *paths, "--format", "json", "--limit", "0")
    assert (ended.status, ended.err) == (1, "")
    return {(f["step"], f["device"]) for f in json.loads(ended.out)["findings"]}


def build(root: Path, layout: str) -> dict[tuple[int | None, int], Path]:
    """Write the tree; return the file of every (step, rank)."""
    template, write, steps, ranks = LAYOUTS[layout]
    return {
        (None if layout in NO_STEP else step, rank): write(
            root / template.format(step=step, rank=rank)
        )
        for step in steps
        for rank in ranks
    }


def folders_between(root: Path, file: Path) -> Iterator[Path]:
    """The folders from the root down to the file's own."""
    parts = file.parent.relative_to(root).parts
    for count in range(len(parts) + 1):
        yield root.joinpath(*parts[:count])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_folder_on_the_way_and_the_file_give_the_same(tmp_path: Path, layout: str) -> None:
    root = tmp_path / "dump"
    files = build(root, layout)
    for place, file in list(files.items())[-2:]:
        assert places_in(file) == {place}, file
        for folder in folders_between(root, file):
            expected = {p for p, other in files.items() if other.is_relative_to(folder)}
            assert places_in(folder) == expected, folder


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_unrelated_folder_above_changes_nothing(tmp_path: Path, layout: str) -> None:
    root = tmp_path / "jobs/7/run_3/dump_data"
    files = build(root, layout)
    assert places_in(root) == set(files)
    assert places_in(tmp_path / "jobs") == set(files)


def test_one_process_without_a_rank(tmp_path: Path) -> None:
    root = tmp_path / "dump"
    for step in (0, 1):
        file = msprobe(root / f"step{step}/proc4711")
        for path in (root / f"step{step}", file.parent, file):
            assert places_in(path) == {(step, None)}
    assert places_in(root) == {(0, None), (1, None)}


def test_the_rank_folder_of_old_msprobe_names_none(tmp_path: Path) -> None:
    file = msprobe(tmp_path / "dump/step2/rank")
    for path in (tmp_path / "dump", tmp_path / "dump/step2", file.parent, file):
        assert places_in(path) == {(2, None)}


def test_ranks_that_are_named_one_by_one_stay_apart(tmp_path: Path) -> None:
    files = build(tmp_path / "dump", "rank around cann")
    ranks = [tmp_path / f"dump/rank_{rank}" for rank in (0, 5)]
    assert places_in(*ranks) == set(files)
    assert places_in(*files.values()) == set(files)


def test_filters_know_the_same_steps_and_ranks(tmp_path: Path) -> None:
    root = tmp_path / "dump"
    build(root, "cann model")
    for options, expected in (
        (("--step", "3"), {(3, 0), (3, 5)}),
        (("--rank", "5"), {(0, 5), (3, 5)}),
        (("--step", "0", "--rank", "0"), {(0, 0)}),
    ):
        ended = run("scan", root, "--format", "json", *options)
        found = {(f["step"], f["device"]) for f in json.loads(ended.out)["findings"]}
        assert found == expected
