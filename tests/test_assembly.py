"""Executions that lie in several files come together as one; what is there twice comes once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from dumpscope.causality.assembly import assemble, part_key, raw_key
from dumpscope.model import (
    FORM_CONVERTED,
    FORM_RAW,
    FORM_STATISTICS,
    OpRecord,
    Place,
    TensorStats,
    TensorSummary,
)
from op_builders import bad, clean, make_op, saturated, tensor, unread


def part(*tensors: TensorSummary, at: int = 1, file: str = "", **more: Any) -> OpRecord:
    """A part of the all-reduce `net/sum`, task 7."""
    given: dict[str, Any] = {
        "at": at, "name": "net/sum", "task_id": 7, "tensors": tensors, "partial": True,
        "file": file or f"file{at}",
    }  # fmt: skip
    given.update(more)
    return make_op("HcomAllReduce", [], [], **given)


def data(index: int, stats: TensorStats | None = None, **more: Any) -> TensorSummary:
    return tensor("input", index, stats or clean(), **more)


def result(index: int, stats: TensorStats | None = None, **more: Any) -> TensorSummary:
    return tensor("output", index, stats or clean(), **more)


def told(ops: Iterable[OpRecord]) -> list[list[tuple[str, int]]]:
    return [[(t.role, t.index) for t in op.tensors] for op in ops]


# --- parts of one execution -----------------------------------------------------------------------


def test_inputs_and_outputs_of_two_files_are_one_execution() -> None:
    after, before = part(result(0), at=5, file="out"), part(data(0), data(1), at=2, file="in")
    (op,) = assemble([after, before])
    assert told([op]) == [[("input", 0), ("input", 1), ("output", 0)]]
    assert op.part_ids == (before.op_id, after.op_id)
    assert op.start_ns == before.start_ns  # the earlier of both
    assert op.op_id == before.op_id
    assert not op.partial


def test_one_file_for_each_tensor_comes_together_in_the_order_of_slots() -> None:
    parts = [part(t, file=f"f{n}") for n, t in enumerate([result(1), data(1), result(0), data(0)])]
    (op,) = assemble(parts)
    assert told([op]) == [[("input", 0), ("input", 1), ("output", 0), ("output", 1)]]


def test_an_execution_of_one_file_stays_as_it_is() -> None:
    alone = part(data(0), result(0))
    assert list(assemble([alone])) == [alone]


def test_nothing_comes_from_nothing() -> None:
    assert list(assemble([])) == []


def test_a_slot_that_comes_again_later_begins_the_next_execution() -> None:
    runs = [part(data(0), at=1), part(result(0), at=2), part(data(0), at=3), part(result(0), at=4)]
    found = list(assemble(runs))
    assert [op.part_ids for op in found] == [
        (runs[0].op_id, runs[1].op_id), (runs[2].op_id, runs[3].op_id),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "other",
    [
        {"task_id": 8},
        {"stream_id": 2},
        {"step": 1},
        {"device": 1},
        {"name": "net/other"},
        {"context_id": 0},
        {"thread_id": 0},
        {"place": Place(step=0, device_id=0, model_id=3)},
        {"place": Place(step=0, device_id=0, run="night")},
        {"place": Place(step=0, device_id=0, host="a")},
        {"place": Place(step=0, device_id=0, process=3)},
        {"place": Place(step=0, device_id=0, model_name="net")},
    ],
    ids=str,
)
def test_parts_of_different_executions_stay_apart(other: dict[str, Any]) -> None:
    one, two = part(data(0)), part(result(0), **other)
    assert part_key(one) != part_key(two)
    assert len(list(assemble(sorted([one, two], key=part_key)))) == 2


def test_slashes_and_dots_of_a_name_that_a_file_name_cannot_keep_make_no_difference() -> None:
    assert part_key(part(name="net/a.b/sum")) == part_key(part(name="net_a_b_sum"))


def test_keys_sort_by_number() -> None:
    keys = sorted(part_key(part(step=step)) for step in (10, 2, None))
    assert keys == [part_key(part(step=step)) for step in (None, 2, 10)]


# --- what a user opens first ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("of_input", "of_output", "file"),
    [
        (clean(), bad(nan=1), "out"),
        (bad(nan=1), bad(nan=1), "out"),
        (bad(posinf=1), clean(), "in"),
        (clean(), saturated(), "out"),
        (clean(), clean(), "in"),
    ],
)
def test_the_file_is_the_one_with_the_bad_output(
    of_input: TensorStats, of_output: TensorStats, file: str
) -> None:
    parts = [part(data(0, of_input), at=1, file="in"), part(result(0, of_output), at=4, file="out")]
    (op,) = assemble(parts)
    assert op.file == file
    assert op.timestamp == parts[file == "out"].timestamp


# --- the same execution twice ---------------------------------------------------------------------


def test_what_was_dumped_raw_is_not_told_again_from_converted_files() -> None:
    raw = replace(part(data(0), result(0), file="raw"), partial=False)
    key = raw_key(raw)
    assert key is not None
    converted = [
        part(data(0), form=FORM_CONVERTED, file="a.npy"),
        part(result(0), form=FORM_CONVERTED, file="b.npy"),
    ]
    assert list(assemble(converted, {key})) == []
    assert len(list(assemble(converted))) == 1
    # A raw part is never left out, nor is a conversion of another moment.
    assert list(assemble([part(data(0), form=FORM_RAW)], {key})) != []
    assert list(assemble([part(data(0), at=2, form=FORM_CONVERTED)], {key})) != []


def test_without_a_timestamp_nothing_is_known_to_be_the_same() -> None:
    assert raw_key(part(data(0), timestamp=None)) is None
    one, two = (part(data(0), timestamp=None, file=f) for f in ("a", "b"))
    assert len(list(assemble([one, two]))) == 2


def test_the_same_tensors_of_the_same_moment_in_two_files_are_one() -> None:
    parts = [part(data(0), file="a.npy"), part(data(0), file="b.bin", form=FORM_CONVERTED)]
    (op,) = assemble(parts)
    assert (op.op_id, op.file) == (parts[0].op_id, "a.npy")


def test_what_could_not_be_read_is_taken_from_the_other_file() -> None:
    broken = data(0, unread, checked=False, unchecked="undefined_dtype")
    parts = [part(broken, result(0), file="a"), part(data(0, bad(nan=3)), file="b")]
    (op,) = assemble(parts)
    assert [(t.role, t.unchecked, t.stats.nan) for t in op.tensors] == [
        ("input", None, 3), ("output", None, 0),
    ]  # fmt: skip
    assert (op.op_id, op.file, op.partial) == (parts[0].op_id, "b", False)


def test_what_no_file_can_tell_stays_as_the_first_one_has_it() -> None:
    first, second = (data(0, unread, checked=False, unchecked=why) for why in ("cut", "undefined"))
    (op,) = assemble([part(first, file="a"), part(second, file="b")])
    assert [t.unchecked for t in op.tensors] == ["cut"]


def test_two_records_of_one_file_are_two_executions() -> None:
    twice = [part(data(0), file="stats.csv", order=order) for order in (1, 2)]
    assert [op.op_id for op in assemble(twice)] == [p.op_id for p in twice]


def test_statistics_tell_what_could_not_be_read() -> None:
    broken = data(0, unread, checked=False, unchecked="undefined_dtype")
    values = part(broken, result(0), file="in.bin")
    counted = part(
        data(0, bad(nan=3), from_statistics=True), file="stats.csv", form=FORM_STATISTICS
    )
    (op,) = assemble([values, counted])
    assert [(t.unchecked, t.from_statistics, t.stats.nan) for t in op.tensors] == [
        (None, True, 3), (None, False, 0),
    ]  # fmt: skip


def test_statistics_add_what_the_values_lack() -> None:
    values = part(data(0, bad(nan=2)), file="in.npy", form=FORM_CONVERTED)
    counted = part(
        data(0, from_statistics=True), result(0, from_statistics=True), file="stats.csv",
        form=FORM_STATISTICS,
    )  # fmt: skip
    (op,) = assemble([counted, values])
    assert [(t.role, t.from_statistics) for t in op.tensors] == [("input", False), ("output", True)]
    assert op.tensors[0].stats.nan == 2


def test_statistics_of_another_moment_go_to_the_execution_that_lacks_them() -> None:
    runs = [part(data(0), result(0), at=1), part(data(0), at=2)]
    counted = part(result(0, from_statistics=True), at=9, form=FORM_STATISTICS)
    first, second = assemble([*runs, counted])
    assert told([first, second]) == [[("input", 0), ("output", 0)]] * 2
    assert [t.from_statistics for t in second.tensors] == [False, True]


def test_statistics_alone_are_executions_of_their_own() -> None:
    parts = [part(data(0), at=at, form=FORM_STATISTICS) for at in (1, 2)]
    assert [op.op_id for op in assemble(parts)] == [p.op_id for p in parts]
