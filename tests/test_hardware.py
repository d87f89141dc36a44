"""Overflow records find the operator whose ids they hold, and say no more than the data shows.

Truth by hand: which ids stand in the payload, which in the names of the files, and when.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import builders
from dumpscope.model import Finding, Scan, ScanOptions
from dumpscope.scanning import scan
from dumpscope.words import render

Array = npt.NDArray[Any]
CLEAN = np.linspace(-2, 2, 64, dtype=np.float16)
OVERFLOWN = np.where(CLEAN > 1.5, np.float16(np.inf), CLEAN)
START_US = 1764417600000000
UNKNOWN = builders.ONES_64


@dataclass
class Folder:
    """The folder of one device and step."""

    root: Path
    step: int = 0

    @property
    def path(self) -> Path:
        path = self.root / "20251129120000" / "0" / "net" / "1" / str(self.step)
        path.mkdir(parents=True, exist_ok=True)
        return path

    def op(
        self, op_type: str, output: Array, *, task: int, at: int, stream: int = 2, split: str = ""
    ) -> None:
        """Write an execution that started at `at`; `split` are the fields of FFTS+."""
        name = f"{op_type}.{op_type}_op.{task}.{stream}.{START_US + at}{split}"
        tensors = [builders.Tensor(a.tobytes(), builders.FLOAT16, a.shape) for a in (CLEAN, output)]
        (self.path / name).write_bytes(
            builders.dump_file(tensors[:1], tensors[1:], op_name=f"{op_type}_op")
        )

    def record(self, payload: bytes, *, at: int, task: int = 900) -> Path:
        """Write a record; the ids in its name are those of the debug task."""
        path = self.path / f"Opdebug.Node_OpDebug.{task}.77.{START_US + at}"
        path.write_bytes(builders.opdebug_file(payload))
        return path


def aic(
    task: int, status: int = 0x20, *, stream: int = 2, context: int = UNKNOWN, thread: int = UNKNOWN
) -> bytes:
    """A record of the new layout: model, stream, task, type, context, thread, …, status."""
    fields = (1, stream, task, 0, context, thread, 0x1000, 0x2000, 5, 6, status)
    return builders.overflow_record(0, fields)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "dump")


def ask(folder: Folder) -> Scan:
    return scan(folder.root, ScanOptions(jobs=1))


def flagged(answer: Scan) -> list[tuple[str, str]]:
    return [(f.op.op_type, str(f.verdict)) for f in answer.findings if f.overflow is not None]


def only(answer: Scan) -> Finding:
    (finding,) = answer.findings
    return finding


# --- whose record it is ---------------------------------------------------------------------------


def test_the_ids_of_the_payload_count_and_not_those_of_the_file_name(folder: Folder) -> None:
    folder.op("Mul", CLEAN, task=900, stream=77, at=1)
    folder.op("Sub", CLEAN, task=7, at=2)
    folder.record(aic(7, 0x10), at=3)
    answer = ask(folder)
    assert flagged(answer) == [("Sub", "status_origin")]
    assert list(answer.record_rank.values()) == [1]
    told = render(only(answer).reason)
    assert "0x10 integer add, subtract, multiply or multiply-add" in told
    assert told.endswith("status only.")


def test_a_record_confirms_what_the_data_shows(folder: Folder) -> None:
    folder.op("Mul", OVERFLOWN, task=7, at=2)
    folder.record(aic(7), at=3)
    finding = only(ask(folder))
    assert (str(finding.verdict), finding.reason.code) == ("origin", "origin_confirmed")
    assert finding.overflow is not None
    assert (finding.overflow.confirmed, finding.overflow.status) == (True, (0x20,))
    assert finding.evidence == ("own_inputs", "status")


def write_op(folder: Folder, inputs: list[Array], outputs: list[Array]) -> None:
    """Write an execution of task 7 that started at 2."""
    read, written = (
        [builders.Tensor(a.tobytes(), builders.FLOAT16, a.shape) for a in arrays]
        for arrays in (inputs, outputs)
    )
    (folder.path / f"Mul.Mul_op.7.2.{START_US + 2}").write_bytes(
        builders.dump_file(read, written, op_name="Mul_op")
    )
    folder.record(aic(7), at=3)


def test_a_status_alone_does_not_deny_the_saturation_that_came_in(folder: Folder) -> None:
    clipped = np.where(CLEAN > 1.5, np.float16(65504), CLEAN)
    write_op(folder, [clipped], [CLEAN, clipped])
    finding = only(ask(folder))
    assert (str(finding.verdict), finding.deciding) == ("status_origin", 2)
    count = int((CLEAN > 1.5).sum())
    told = render(finding.reason)
    assert f"output 1 has {count} of 64 float16 elements at the limit of 65,504" in told
    assert "neither" not in told
    assert "没有饱和值" not in render(finding.reason, "zh")


def test_a_status_alone_says_nothing_of_outputs_that_are_not_there(folder: Folder) -> None:
    write_op(folder, [CLEAN], [])
    finding = only(ask(folder))
    assert (str(finding.verdict), finding.deciding) == ("status_origin", None)
    assert "its outputs were not dumped or could not be checked: status" in render(finding.reason)
    assert "neither" not in render(finding.reason)
    assert "没有饱和值" not in render(finding.reason, "zh")


@pytest.mark.parametrize(("task", "stream"), [(8, 2), (7, 3)])
def test_another_task_or_stream_is_another_operator(folder: Folder, task: int, stream: int) -> None:
    folder.op("Mul", CLEAN, task=7, stream=2, at=2)
    folder.record(aic(task, stream=stream), at=3)
    finding = only(ask(folder))
    assert (finding.op.op_type, finding.reason.code) == ("", "status_origin_not_dumped")
    assert f"(the record names task {task}, stream {stream})" in render(finding.reason)


@pytest.mark.parametrize(
    ("at", "expected"), [(15, "First"), (25, "Second"), (35, "Third"), (30, "Third"), (5, "First")]
)
def test_of_several_executions_the_latest_before_the_record_counts(
    folder: Folder, at: int, expected: str
) -> None:
    for op_type, started in (("First", 10), ("Second", 20), ("Third", 30)):
        folder.op(op_type, CLEAN, task=7, at=started)
    folder.record(aic(7), at=at)
    assert flagged(ask(folder)) == [(expected, "status_origin")]


def test_records_are_sought_in_their_own_folder(folder: Folder) -> None:
    folder.op("Mul", CLEAN, task=7, at=2)
    Folder(folder.root, step=1).record(aic(7), at=3)
    finding = only(ask(folder))
    assert (finding.reason.code, finding.op.step) == ("status_origin_not_dumped", 1)


@pytest.mark.parametrize("task", [UNKNOWN, 65535])
def test_a_record_without_ids_is_nobodys(folder: Folder, task: int) -> None:
    folder.op("Mul", CLEAN, task=65535, at=2)
    folder.record(aic(task), at=3)
    finding = only(ask(folder))
    assert finding.reason.code == "status_origin_not_dumped"
    assert "task" not in render(finding.reason).split("dumped")[1]


# --- FFTS+: one task, many contexts and threads ---------------------------------------------------


@pytest.mark.parametrize(
    ("context", "thread", "expected"),
    [
        (110, 0, "B0"), (110, 1, "B1"), (111, 0, "C0"), (110, UNKNOWN, "B1"),
        (UNKNOWN, UNKNOWN, "C1"), (UNKNOWN, 0, "C0"), (109, 65535, "A1"), (110, 65535, "B1"),
    ],
)  # fmt: skip
def test_context_and_thread_tell_the_part_of_a_split_operator(
    folder: Folder, context: int, thread: int, expected: str
) -> None:
    at = 0
    for name, own_context in (("A", 109), ("B", 110), ("C", 111)):
        for own_thread in (0, 1):
            at += 10
            split = f".4.{own_context}.{own_thread}.0"
            folder.op(f"{name}{own_thread}", CLEAN, task=9, at=at, split=split)
    folder.record(aic(9, context=context, thread=thread), at=at + 5)
    assert flagged(ask(folder)) == [(expected, "status_origin")]


def test_a_part_that_was_not_dumped_is_no_other_part(folder: Folder) -> None:
    folder.op("B0", CLEAN, task=9, at=1, split=".4.110.0.0")
    folder.record(aic(9, context=110, thread=1), at=5)
    assert only(ask(folder)).reason.code == "status_origin_not_dumped"


# --- several units, several records ---------------------------------------------------------------


def test_units_of_the_old_layout_have_ids_of_their_own(folder: Folder) -> None:
    # The builder numbers the units' tasks: AI Core 7, DHA 8, L2 9.
    for op_type, task in (("Core", 7), ("Atomic", 8), ("Cache", 9)):
        folder.op(op_type, CLEAN, task=task, stream=3, at=task)
    folder.record(builders.old_payload(aic=0x400, dha=0x900, l2=0, task_id=7), at=20)
    answer = ask(folder)
    kinds = {f.op.op_type: f.overflow.kind for f in answer.findings if f.overflow}
    assert kinds == {"Core": "AIC", "Atomic": "DHA"}
    assert answer.counts.overflow_records == 1


def test_several_records_of_one_operator_are_one_finding(folder: Folder) -> None:
    folder.op("Mul", CLEAN, task=7, at=1)
    folder.record(aic(7, 0x10), at=12, task=901)
    folder.record(aic(7, 0x100), at=11, task=902)
    answer = ask(folder)
    overflow = only(answer).overflow
    assert overflow is not None
    assert overflow.status == (0x100,)
    assert [unit.status for unit in overflow.others] == [(0x10,)]
    assert list(answer.record_rank.values()) == [1, 1]


def test_a_record_without_a_status_accuses_nobody(folder: Folder) -> None:
    folder.op("Mul", CLEAN, task=7, at=1)
    folder.record(aic(7, 0), at=2)
    answer = ask(folder)
    assert (answer.findings, answer.exit_status, answer.complete) == ((), 0, True)
    assert (answer.counts.overflow_records, answer.counts.empty_overflow_records) == (0, 1)


def test_a_unit_of_an_unknown_kind_is_listed_and_accuses_nobody(folder: Folder) -> None:
    folder.op("Mul", CLEAN, task=7, at=1)
    folder.record(builders.overflow_record(9, (1, 2, 7, 0, 0, 0, 0, 0, 0, 0, 0x20)), at=2)
    answer = ask(folder)
    assert (answer.findings, answer.exit_status, answer.complete) == ((), 0, True)
    assert len(answer.overflow_records) == 1
    assert answer.record_rank == {}


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_parsed_record_beside_its_raw_form_counts_once(folder: Folder, elsewhere: bool) -> None:
    folder.op("Mul", CLEAN, task=7, at=1)
    raw = folder.record(aic(7, 0x20), at=2)
    units = {"AI Core": {"model_id": 1, "stream_id": 2, "task_id": 7, "task_type": 0,
                         "pc_start": "0x1000", "para_base": "0x2000", "kernel_code": "0x0",
                         "block_idx": 0, "status": 0x20}}  # fmt: skip
    target = folder.root / "parsed" if elsewhere else raw.parent
    target.mkdir(exist_ok=True)
    (target / f"{raw.name}.output.0.json").write_text(json.dumps(units), encoding="utf-8")
    answer = ask(folder)
    assert flagged(answer) == [("Mul", "status_origin")]
    assert answer.counts.overflow_records == 1
    raw.unlink()
    again = ask(folder)
    assert again.counts.overflow_records == 1
    # Alone it counts, and in its folder it knows the operator.
    assert flagged(again) == ([("", "status_origin")] if elsewhere else flagged(answer))


def test_status_alone_never_stands_before_an_operator_whose_data_shows_it(folder: Folder) -> None:
    folder.op("Sub", CLEAN, task=5, at=1)
    folder.op("Mul", OVERFLOWN, task=7, at=5)
    folder.record(aic(5, 0x20), at=2)
    assert [(f.op.op_type, str(f.verdict)) for f in ask(folder).findings] == [
        ("Mul", "origin"),
        ("Sub", "status_origin"),
    ]
