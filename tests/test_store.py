"""The store gives back exactly what was put in, in one order, whoever else writes into it."""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import random
import signal
import sqlite3
import subprocess
import sys
import types
import typing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dumpscope.errors import StoreError
from dumpscope.model import (
    DumpFile,
    FileResult,
    GraphNode,
    MaskPattern,
    OpRecord,
    OverflowRecord,
    OverflowUnit,
    Place,
    ReadFailure,
    Role,
    ScanOptions,
    TensorStats,
    TensorSummary,
)
from dumpscope.store import Selection, Store

ROOT = Path(__file__).resolve().parent.parent
SIGNATURE = "dumpscope 1|adump|screen"
OPTIONS = ScanOptions()

_numbers = itertools.count()


@pytest.fixture
def store(tmp_path: Path) -> typing.Iterator[Store]:
    with Store.open(tmp_path / "scans.db") as opened:
        yield opened


def begin(store: Store, root: str = "/dump") -> str:
    return store.begin(root, [root], OPTIONS, None, "1.0")


def reused(store: Store, scan_id: str, files: list[DumpFile], signature: str) -> list[bool]:
    """Say of each file whether its record was used again."""
    others = store.reuse(scan_id, files, signature)
    return [file not in others for file in files]


def dump_file(relative: str, **changes: typing.Any) -> DumpFile:
    fields = {
        "path": f"/dump/{relative}",
        "relative": relative,
        "name": relative.rpartition("/")[2],
        "size": 8192,
        "mtime_ns": 1_764_417_600_000_000_001,
        "ctime_ns": 1_764_417_600_000_000_002,
        "inode": 77,
    }
    return DumpFile(**{**fields, **changes})


def result_of(relative: str, *ops: OpRecord, **more: typing.Any) -> FileResult:
    file = dump_file(relative, place=ops[0].place if ops else Place())
    ops = tuple(dataclasses.replace(op, file=relative, reader="adump") for op in ops)
    return FileResult(file, reader="adump", ops=ops, **more)


def tensor(role: Role = "output", index: int = 0, **more: typing.Any) -> TensorSummary:
    stats = more.pop("stats", TensorStats(count=6, min=-1.0, max=2.0))
    fields = {"dtype": "float16", "layout": "ND", "shape": (2, 3), "size_bytes": 12, **more}
    return TensorSummary(role=role, index=index, stats=stats, **fields)


def op_of(name: str, *tensors: TensorSummary, **more: typing.Any) -> OpRecord:
    return OpRecord("Add", name, tensors or (tensor(),), **more)


BAD = TensorStats(
    count=6, nan=1, posinf=2, min=-1.0, max=2.0, first_bad=(0, 1), bad_box=((0, 1), (1, 2))
)


def names(ops: typing.Iterable[OpRecord]) -> list[str]:
    return [op.op_name for op in ops]


# --- everything comes back exactly ------------------------------------------------------------

TEXTS = st.text(st.characters(exclude_categories=()), max_size=8)
INTEGERS = st.one_of(
    st.integers(-3, 70_000), st.integers(-(1 << 130), 1 << 130), st.just((1 << 64) - 1)
)


def values_of(hint: typing.Any) -> st.SearchStrategy[typing.Any]:
    """All that a type annotation of the model allows, so that no field is ever left out."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint):
        return records_of(typing.cast("type", hint))
    if origin is typing.Literal:
        return st.sampled_from(arguments)
    if origin in (typing.Union, types.UnionType):
        return st.one_of(*map(values_of, arguments))
    if origin is tuple and arguments[-1] is Ellipsis:
        return st.lists(values_of(arguments[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values_of, arguments))
    simple = {int: INTEGERS, str: TEXTS, bool: st.booleans(), float: st.floats()}
    return st.none() if hint is type(None) else simple[hint]


def records_of(kind: type) -> st.SearchStrategy[typing.Any]:
    hints = typing.get_type_hints(kind)
    fields = [field.name for field in dataclasses.fields(kind)]
    return st.builds(kind, **{name: values_of(hints[name]) for name in fields})


@pytest.fixture(scope="module")
def shared_store(tmp_path_factory: pytest.TempPathFactory) -> typing.Iterator[Store]:
    with Store.open(tmp_path_factory.mktemp("store") / "scans.db") as opened:
        yield opened


def stored(store: Store, **parts: typing.Any) -> str:
    scan_id = begin(store)
    store.add(scan_id, [FileResult(dump_file(f"file{next(_numbers)}"), **parts)], SIGNATURE)
    return scan_id


# `repr` tells NaN from nothing, -0.0 from 0.0 and 1 from 1.0, which `==` does not.


@given(op=records_of(OpRecord))
def test_operators_come_back_exactly(shared_store: Store, op: OpRecord) -> None:
    scan_id = stored(shared_store, reader="adump", ops=(op,))
    (found,) = shared_store.ops(scan_id)
    # Numbers are the store's, and parts are only put together behind it.
    expected = dataclasses.replace(op, op_id=found.op_id, part_ids=())
    assert repr(found) == repr(expected)
    (light,) = shared_store.ops(scan_id, light=True)
    assert repr(light) == repr(dataclasses.replace(found, tensors=()))


@given(stats=records_of(TensorStats), summary=records_of(TensorSummary))
def test_tensors_of_one_kind_keep_their_own_numbers(
    shared_store: Store, stats: TensorStats, summary: TensorSummary
) -> None:
    first = dataclasses.replace(summary, stats=stats)
    moved = dataclasses.replace(
        first, address=summary.address + 1, stats=dataclasses.replace(stats, min=1.5, max=2.5)
    )
    whole = dataclasses.replace(
        moved,
        stats=TensorStats(
            stats.count, min=-1.0, max=2.0, mean=-0.0, std=math.inf, rms=math.nan, l2=1e-300,
            subnormal=0, zero=(1 << 64) - 1,
        ),
    )  # fmt: skip
    op = op_of("a", first, moved, whole, moved)
    (found,) = shared_store.ops(stored(shared_store, ops=(op,)))
    assert repr(found.tensors) == repr(op.tensors)


@given(record=records_of(OverflowRecord))
def test_overflow_records_come_back_exactly(shared_store: Store, record: OverflowRecord) -> None:
    (found,) = shared_store.overflow_records(stored(shared_store, overflow=(record,)))
    assert repr(found) == repr(dataclasses.replace(record, record_id=found.record_id))


@given(node=records_of(GraphNode), failure=records_of(ReadFailure), note=TEXTS)
def test_nodes_failures_and_notes_come_back_exactly(
    shared_store: Store, node: GraphNode, failure: ReadFailure, note: str
) -> None:
    scan_id = stored(shared_store, graph=(node,), failures=(failure,), notes=(note,))
    shared_store.add_failures(scan_id, [failure])
    assert list(shared_store.graph_nodes(scan_id)) == [node]
    assert list(shared_store.failures(scan_id)) == [failure, failure]
    assert [notes for _, notes in shared_store.file_notes(scan_id)] == [(note,)]


@given(
    options=records_of(ScanOptions),
    root=TEXTS,
    sources=st.lists(TEXTS, max_size=3),
    config=st.none() | st.dictionaries(TEXTS, TEXTS | INTEGERS | st.lists(TEXTS), max_size=3),
)
def test_what_a_scan_was_asked_for_comes_back(
    shared_store: Store,
    options: ScanOptions,
    root: str,
    sources: list[str],
    config: dict[str, object] | None,
) -> None:
    scan_id = shared_store.begin(root, sources, options, config, "1.0")
    info = shared_store.scan_info(scan_id)
    assert (info.root, info.sources, info.config) == (root, tuple(sources), config)
    assert repr(info.options) == repr(options)


def test_equal_numbers_of_different_types_stay_apart(store: Store) -> None:
    masks = [MaskPattern(-0.0, 1, None), MaskPattern(0.0, 1, None)]
    tensors = [tensor(index=i, stats=TensorStats(6, mask=m)) for i, m in enumerate(masks)]
    scan_id = begin(store)
    store.add(scan_id, [result_of("a", op_of("x", *tensors))], SIGNATURE)
    (found,) = store.ops(scan_id)
    assert [math.copysign(1, t.stats.mask.value) for t in found.tensors if t.stats.mask] == [-1, 1]


# --- order and questions ----------------------------------------------------------------------


def ordered_ops() -> list[OpRecord]:
    """Operators in the order in which the store must yield them."""
    place = Place(run="20251129120000")
    return [
        op_of("unknown run", step=9, place=Place()),
        op_of("step unknown", start_ns=9, place=place),
        op_of("step 0 device 1", step=0, device=1, start_ns=5, place=place),
        op_of("started 6", step=0, device=2, start_ns=6, task_id=9, place=place),
        op_of("started 7 task 1", step=0, device=2, start_ns=7, task_id=1, place=place),
        op_of("task 2 order 0", step=0, device=2, start_ns=7, task_id=2, place=place),
        op_of("task 2 order 1", step=0, device=2, start_ns=7, task_id=2, order=1, place=place),
        op_of("step 1", step=1, device=0, start_ns=1, place=place),
        op_of("later run", step=0, place=Place(run="20251130120000")),
        op_of("other source", step=0, place=Place(source=1)),
    ]


@pytest.mark.parametrize("seed", range(5))
def test_the_order_does_not_depend_on_how_records_were_put_in(store: Store, seed: int) -> None:
    ops = ordered_ops()
    results = [result_of(f"file{i:02}", op) for i, op in enumerate(ops)]
    shuffled = random.Random(seed).sample(results, len(results))
    scan_id = begin(store)
    for start in range(0, len(shuffled), 3):
        store.add(scan_id, shuffled[start : start + 3], SIGNATURE)
    assert names(store.ops(scan_id)) == names(ops)


def test_operators_of_one_file_keep_their_order_and_files_go_by_name(store: Store) -> None:
    scan_id = begin(store)
    store.add(
        scan_id,
        [result_of("b", op_of("3"), op_of("4")), result_of("a", op_of("2"), op_of("1"))],
        SIGNATURE,
    )
    assert names(store.ops(scan_id)) == ["2", "1", "3", "4"]


def test_notable_are_non_finite_and_saturated_where_that_is_a_finding(store: Store) -> None:
    saturated = TensorStats(count=6, saturated=1, min=-1.0, max=65504.0)
    wanted = {
        "nan": tensor(stats=TensorStats(6, nan=1)),
        "inf": tensor(stats=TensorStats(6, posinf=1)),
        "minus inf": tensor("input", stats=TensorStats(6, neginf=1)),
        "float16 at its limit": tensor(stats=saturated),
        "e5m2 at its limit": tensor(dtype="float8_e5m2", stats=saturated),
    }
    others = {
        "clean": tensor(),
        # Casts that quantise reach the limit of these every day.
        "e4m3fn at its limit": tensor(dtype="float8_e4m3fn", stats=saturated),
        "near its limit": tensor(stats=TensorStats(6, near_limit=3, min=0.0, max=65000.0)),
        "padding only": tensor(stats=TensorStats(6, padding_nonfinite=2)),
    }
    scan_id = begin(store)
    store.add(
        scan_id,
        [
            result_of(name, op_of(name, tensor("input", 1), bad))
            for name, bad in {**wanted, **others}.items()
        ],
        SIGNATURE,
    )
    found = list(store.notable_ops(scan_id))
    assert sorted(names(found)) == sorted(wanted)
    assert all(len(op.tensors) == 2 for op in found)
    assert sorted(names(store.ops(scan_id))) == sorted({**wanted, **others})


def test_questions_see_only_their_own_scan(store: Store) -> None:
    first, second = begin(store), begin(store)
    for scan_id, name in ((first, "one"), (second, "two")):
        bad = op_of(name, tensor(stats=BAD, address=4096), task_id=7, partial=True, form=1)
        store.add(
            scan_id,
            [
                result_of(
                    name,
                    dataclasses.replace(bad, tensors=(*bad.tensors, tensor(unchecked="dtype"))),
                    overflow=(OverflowRecord((OverflowUnit("AIC", (1,)),), name),),
                    graph=(GraphNode(name, "Add"),),
                    failures=(ReadFailure(name, "adump", "CorruptDumpError", 8, "bad"),),
                    notes=(name,),
                ),
                FileResult(dump_file(f"{name}.txt"), known=False),
            ],
            SIGNATURE,
        )
        store.add_failures(scan_id, [ReadFailure(f"{name} walk", "", "OSError", None, "gone")])
    assert names(store.ops(second)) == ["two"]
    assert names(store.notable_ops(second)) == ["two"]
    assert names(store.partial_ops(second)) == names(store.parts(second)) == ["two"]
    assert names(store.ops_by_task(second, [(7, None)])) == ["two"]
    assert [op.op_name for op, _ in store.unchecked_tensors(second)] == ["two"]
    assert [record.file for record in store.overflow_records(second)] == ["two"]
    assert [node.name for node in store.graph_nodes(second)] == ["two"]
    assert [failure.file for failure in store.failures(second)] == ["two", "two walk"]
    assert list(store.file_notes(second)) == [("two", ("two",))]
    assert list(store.unknown_files(second)) == ["two.txt"]
    assert len(store.memory(second).op_id) == 1
    (other,) = store.ops(first)
    assert list(store.ops(second, op_ids=[other.op_id])) == []
    assert store.count_partial(second) == 1


def test_totals_count_each_thing_apart(store: Store) -> None:
    scan_id = begin(store)
    ops = (op_of("a", tensor(), tensor(checked=False, unchecked="dtype")), op_of("b"))
    left_out = op_of("c", tensor(checked=False, dumped=False))
    full, empty = (OverflowRecord((OverflowUnit("AIC", (status,)),)) for status in (3, 0))
    failure = ReadFailure("f", "adump", "CorruptDumpError", None, "bad")
    store.add(
        scan_id,
        [
            result_of("f", *ops, left_out, bytes_read=100, failures=(failure,)),
            result_of("g", bytes_read=20, overflow=(full, empty, full)),
            FileResult(dump_file("h"), known=False),
        ],
        SIGNATURE,
    )
    store.add_failures(scan_id, [failure])
    found = store.totals(scan_id)
    assert (found.files, found.ops, found.tensors, found.bytes) == (3, 3, 4, 120)
    assert (found.unchecked, found.read_failures, found.unknown_files) == (1, 2, 1)
    assert (found.overflow_records, found.empty_overflow_records) == (2, 1)
    assert store.totals(begin(store)).ops == 0


def test_an_unchecked_tensor_is_listed_and_one_left_out_on_purpose_is_not(store: Store) -> None:
    scan_id = begin(store)
    unread = tensor("input", 1, checked=False, unchecked="dtype")
    left_out = tensor("input", 2, checked=False, dumped=False)
    store.add(scan_id, [result_of("f", op_of("a", tensor(), unread, left_out))], SIGNATURE)
    ((op, found),) = store.unchecked_tensors(scan_id)
    assert (op.op_name, found) == ("a", unread)


def test_selections_filter_by_step_rank_run_and_name(store: Store) -> None:
    scan_id = begin(store)
    runs = ["20251129120000", "20251130120000"]
    ops = [
        op_of(f"net/layer{step}/rank{device}/{run[7]}", tensor(stats=BAD), step=step,
              device=device, place=Place(run=run))
        for step in (0, 1)
        for device in (0, 1)
        for run in runs
    ]  # fmt: skip
    hostile = OpRecord("Cast\ud800", "a\0b*", (tensor(stats=BAD),), step=5)
    results = [result_of(str(i), op) for i, op in enumerate([*ops, hostile])]
    store.add(scan_id, results, SIGNATURE)

    def selected(**fields: typing.Any) -> list[str]:
        selection = Selection(**fields)
        found = names(store.ops(scan_id, selection=selection))
        assert names(store.notable_ops(scan_id, selection)) == found
        return found

    assert len(selected()) == 9
    assert selected(steps=(1,), ranks=(0,)) == ["net/layer1/rank0/9", "net/layer1/rank0/0"]
    assert selected(steps=(1,), ranks=(0,), runs=(runs[1],)) == ["net/layer1/rank0/0"]
    assert selected(op_globs=("net/layer1/*/9",)) == ["net/layer1/rank0/9", "net/layer1/rank1/9"]
    assert selected(op_globs=("Cast?",)) == ["a\0b*"]
    assert selected(op_globs=("nothing", "a\0b[*]")) == ["a\0b*"]
    assert len(selected(op_globs=("Add",))) == 8
    assert selected(op_globs=("add",)) == []


def test_operators_are_found_by_number_by_name_and_by_task(store: Store) -> None:
    scan_id = begin(store)
    huge = 1 << 70
    tasks = [(1, 2), (1, 3), (None, 2), (huge, None)]
    ops = [
        op_of(f"op{i}\udc80", task_id=task, stream_id=stream)
        for i, (task, stream) in enumerate(tasks)
    ]
    store.add(scan_id, [result_of(str(i), op) for i, op in enumerate(ops)], SIGNATURE)
    found = {op.op_name: op for op in store.ops(scan_id)}
    assert [op.op_id for op in store.ops(scan_id, op_ids=[found["op1\udc80"].op_id, 999])] == [
        found["op1\udc80"].op_id
    ]
    assert names(store.ops(scan_id, names=["op3\udc80", "other"])) == ["op3\udc80"]
    assert list(store.ops(scan_id, op_ids=[])) == []
    assert names(store.ops_by_task(scan_id, [(1, 3)])) == ["op1\udc80"]
    assert names(store.ops_by_task(scan_id, [(1, None)])) == ["op0\udc80", "op1\udc80"]
    assert names(store.ops_by_task(scan_id, [(huge, None), (None, 2)])) == ["op3\udc80"]


def test_questions_may_be_asked_side_by_side_and_left_in_the_middle(store: Store) -> None:
    scan_id = begin(store)
    store.add(scan_id, [result_of(str(i), op_of(str(i))) for i in range(9)], SIGNATURE)
    outer = store.ops(scan_id, names=["1", "2", "3"], selection=Selection(op_globs=("[23]",)))
    assert next(outer).op_name == "2"
    inner = store.ops(scan_id, names=["5"], selection=Selection(op_globs=("5",)))
    assert names(inner) == ["5"]
    assert names(outer) == ["3"]
    left = store.ops(scan_id, names=["7"])
    assert next(left).op_name == "7"
    store.close()
    # Warnings are errors: dropping what is half read says nothing, even behind a closed store.
    del left


def test_memory_is_told_in_columns_with_a_lane_for_each_device(
    store: Store,
) -> None:
    scan_id = begin(store)
    largest = (1 << 64) - 1
    odd = tensor("output", 3, address=largest, stats=TensorStats(6, min=1, max=2.0))
    ops = [
        op_of("a", tensor("input", 0, address=8), tensor("output", 0, address=16), device=0),
        op_of("b", tensor("output", 1, address=0), odd, tensor(address=32, stats=BAD), device=1),
        op_of("c", tensor(address=64, size_bytes=24, offset=5), device=1, start_ns=1),
    ]
    results = [result_of(str(i), op) for i, op in enumerate(ops)]
    store.add(scan_id, results[::-1], SIGNATURE)
    ids = {op.op_name: op.op_id for op in store.ops(scan_id)}
    memory = store.memory(scan_id)
    assert sorted(memory.op_id.tolist()) == sorted(ids.values())
    position = dict(zip(memory.op_id.tolist(), memory.op_position.tolist(), strict=True))
    assert position[ids["b"]] < position[ids["c"]]
    lane = dict(zip(memory.op_id.tolist(), memory.op_lane.tolist(), strict=True))
    assert memory.lanes[lane[ids["a"]]] == (0, "", "", -1, 0)
    assert memory.lanes[lane[ids["b"]]] == memory.lanes[lane[ids["c"]]] == (0, "", "", -1, 1)
    columns = (memory.index, memory.start, memory.end, memory.is_output)
    rows = zip(memory.op_id[memory.row].tolist(), *(c.tolist() for c in columns), strict=True)
    assert sorted(rows) == sorted(
        [
            (ids["a"], 0, 8, 20, False),
            (ids["a"], 0, 16, 28, True),
            (ids["b"], 3, largest, largest, True),
            (ids["b"], 0, 32, 44, True),
            (ids["c"], 0, 64, 88, True),
        ]
    )
    content = dict(zip(memory.start.tolist(), memory.content.tolist(), strict=True))
    assert content[8] == content[16] != content[64]  # the same size, minimum and maximum


def test_memory_tells_the_same_of_a_tensor_however_it_is_kept(store: Store) -> None:
    scan_id = begin(store)
    usual = TensorStats(6, min=-1.0, max=2.0)
    kept = [
        usual,
        dataclasses.replace(usual, mean=0.5, std=1.0, rms=1.0, l2=3.0, subnormal=0, zero=1),
        dataclasses.replace(usual, min=-1, max=2),
        TensorStats(6),
        TensorStats(6, min=2.0, max=2.0),
        # From the first of these on records are read one by one.
        dataclasses.replace(usual, mask=MaskPattern(-1.0, 2, "0" * 32)),
        dataclasses.replace(usual, min=-1, max=2.0),
    ]
    many = [tensor("output", n, address=4096 + n, stats=usual) for n in range(100)]
    ops = [
        op_of("plain", *(tensor("input", n, address=64 * n + 64, stats=s)
                         for n, s in enumerate(kept))),
        op_of("none"),
        op_of("moved", *(tensor("output", n, address=64 * n + 1024, offset=7, stats=s)
                         for n, s in enumerate(kept))),
        op_of("many", *many),
    ]  # fmt: skip
    store.add(scan_id, [result_of(str(i), op) for i, op in enumerate(ops)], SIGNATURE)
    memory = store.memory(scan_id)
    assert memory.op_id[memory.row].tolist() == sorted(memory.op_id[memory.row].tolist())
    content = dict(zip(memory.start.tolist(), memory.content.tolist(), strict=True))
    assert set(content) == {
        *range(64, 64 * 8, 64), *range(1024, 1024 + 64 * 7, 64), *range(4096, 4196),
    }  # fmt: skip
    told = content[64]
    assert told != 0
    for first in (64, 1024):
        assert [content[first + 64 * n] for n in range(7)] == [told] * 3 + [0, 0] + [told] * 2
    assert {content[n] for n in range(4096, 4196)} == {told}
    place = dict(zip(memory.start.tolist(), memory.index.tolist(), strict=True))
    assert [place[4096 + n] for n in range(100)] == list(range(100))


def test_parts_of_one_execution_stand_next_to_each_other(store: Store) -> None:
    scan_id = begin(store)
    ops = [
        op_of(name, task_id=task, start_ns=start, partial=True)
        for start, (name, task) in enumerate([("h/x", 1), ("g", 1), ("h.x", 1), ("g", 2), ("g", 1)])
    ]
    store.add(scan_id, [result_of(str(i), op) for i, op in enumerate(ops)], SIGNATURE)
    found = [(op.op_name, op.task_id) for op in store.parts(scan_id)]
    assert found == [("g", 1), ("g", 1), ("g", 2), ("h/x", 1), ("h.x", 1)]
    assert all(op.tensors == () for op in store.partial_ops(scan_id))
    assert store.op_types(scan_id) == ["Add"]
    assert not store.has_other_forms(scan_id)
    store.add(scan_id, [result_of("s", op_of("s", form=2))], SIGNATURE)
    assert store.has_other_forms(scan_id)


def test_a_scan_that_is_not_there_is_named(store: Store) -> None:
    begin(store)
    with pytest.raises(StoreError, match=r"no scan 'x'.*scans list"):
        list(store.ops("x"))
    with pytest.raises(StoreError, match="no scan 'x'"):
        store.add("x", [], SIGNATURE)


# --- using records again ----------------------------------------------------------------------


def test_an_unchanged_file_is_linked_and_gives_the_same_records(store: Store) -> None:
    results = [result_of(f"d/{i}", op_of(str(i), tensor(stats=BAD))) for i in range(600)]
    files = [result.file for result in results]
    first = begin(store)
    assert reused(store, first, files, SIGNATURE) == [False] * 600
    store.add(first, results, SIGNATURE)
    second = begin(store)
    assert reused(store, second, [*files, dump_file("d/new")], SIGNATURE) == [True] * 600 + [False]
    assert list(store.ops(second)) == list(store.ops(first))
    assert store.totals(second) == store.totals(first)


@pytest.mark.parametrize(
    "changes",
    [
        {"size": 8191},
        {"mtime_ns": 1_764_417_600_000_000_000},
        {"ctime_ns": 1_764_417_600_000_000_001},
        {"inode": 78},
        {"name": "real name"},
        {"relative": "d/g"},
        {"place": Place(source=1)},
        {"place": Place(step=0)},
    ],
    ids=str,
)
def test_a_file_that_changed_is_read_again(store: Store, changes: dict[str, typing.Any]) -> None:
    file = dump_file("d/f")
    store.add(begin(store), [FileResult(file)], SIGNATURE)
    changed = dataclasses.replace(file, **changes)
    assert reused(store, begin(store), [changed, file], SIGNATURE) == [False, True]


def test_another_signature_or_root_uses_nothing_again(store: Store) -> None:
    file = dump_file("d/f")
    store.add(begin(store), [FileResult(file)], SIGNATURE)
    assert reused(store, begin(store), [file], SIGNATURE + "|full") == [False]
    assert reused(store, begin(store, "/other"), [file], SIGNATURE) == [False]


@pytest.mark.parametrize(
    ("error", "again"),
    [("OSError", False), ("PermissionError", False), ("FileNotFoundError", False),
     ("CorruptDumpError", True), ("TruncatedDumpError", True), ("print", True)],
)  # fmt: skip
def test_a_file_that_could_not_be_opened_is_tried_again(
    store: Store, error: str, again: bool
) -> None:
    failure = ReadFailure("d/f", "adump", error, None, "text")
    store.add(begin(store), [result_of("d/f", failures=(failure,))], SIGNATURE)
    assert reused(store, begin(store), [dump_file("d/f")], SIGNATURE) == [again]


def test_old_scans_keep_the_old_version_of_a_file(store: Store) -> None:
    old, new = begin(store), begin(store)
    result = result_of("d/f", op_of("old"))
    store.add(old, [result], SIGNATURE)
    changed = dataclasses.replace(result.file, size=1)
    op = dataclasses.replace(result.ops[0], op_name="new")
    store.add(new, [dataclasses.replace(result, file=changed, ops=(op,))], SIGNATURE)
    assert (names(store.ops(old)), names(store.ops(new))) == (["old"], ["new"])
    assert reused(store, begin(store), [result.file, changed], SIGNATURE) == [True, True]


def test_what_an_unfinished_scan_committed_is_used_again(store: Store) -> None:
    results = [result_of(str(i), op_of(str(i))) for i in range(4)]
    killed = begin(store)
    store.add(killed, results[:2], SIGNATURE)
    unfinished = store.find_unfinished("/dump")
    assert unfinished is not None
    assert (unfinished.scan_id, unfinished.state) == (killed, "running")
    assert store.find_unfinished("/other") is None
    following = begin(store)
    files = [result.file for result in results]
    assert reused(store, following, files, SIGNATURE) == [True, True, False, False]
    store.add(following, results[2:], SIGNATURE)
    store.finish(following, {}, 1.0)
    assert names(store.ops(following)) == ["0", "1", "2", "3"]
    assert store.find_unfinished("/dump") is None


def test_a_scan_that_was_killed_or_lost_processes_is_remembered(store: Store) -> None:
    assert not store.was_hurt("/dump")
    killed = begin(store)
    assert store.was_hurt("/dump")
    assert not store.was_hurt("/other")
    store.finish(killed, {}, 1.0, "interrupted")
    assert not store.was_hurt("/dump")

    def scan_with(error: str) -> None:
        scan_id = begin(store)
        failure = ReadFailure("f", "adump", error, None, "")
        store.add(scan_id, [FileResult(dump_file("f"), failures=(failure,))], SIGNATURE)
        store.finish(scan_id, {}, 1.0)

    scan_with("TruncatedDumpError")
    assert not store.was_hurt("/dump")
    scan_with("ChildProcessError")
    assert store.was_hurt("/dump")
    scan_with("PermissionError")
    assert not store.was_hurt("/dump")


# --- the list of scans ------------------------------------------------------------------------


def test_scans_are_listed_newest_first_with_how_they_ended(store: Store) -> None:
    assert (store.scans(), store.latest()) == ([], None)
    ids = [begin(store) for _ in range(3)]
    assert len(set(ids)) == 3
    store.finish(ids[0], {"findings": 3, "name": "\ud800"}, 1.5)
    store.finish(ids[1], {}, 0.5, "interrupted")
    found = store.scans()
    assert [info.scan_id for info in found] == ids[::-1]
    assert [info.state for info in found] == ["running", "interrupted", "finished"]
    assert (found[2].totals, found[2].duration_s) == ({"findings": 3, "name": "\ud800"}, 1.5)
    latest = store.latest()
    assert latest is not None
    assert latest.scan_id == ids[2]


def test_a_scan_is_found_by_the_beginning_of_its_id(store: Store) -> None:
    with pytest.raises(StoreError, match="no scan yet"):
        store.find_scan("latest")
    ids = [begin(store) for _ in range(2)]
    assert store.find_scan("latest") == ids[1]
    assert store.find_scan(ids[0]) == ids[0]
    assert store.find_scan(ids[0][:-1]) == ids[0]
    with pytest.raises(StoreError, match="2 scans begin with '2'"):
        store.find_scan("2")
    for text in ("", "nothing"):
        with pytest.raises(StoreError, match="there is no scan"):
            store.find_scan(text)


def rows_left(path: str) -> dict[str, int]:
    """How many rows each table holds, with the answer of SQLite's own check."""
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        tables = connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        ).fetchall()
        counts = {
            table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            for (table,) in tables
        }
    connection.close()
    return counts


def full_result(name: str) -> FileResult:
    return result_of(
        name,
        op_of(name, tensor(stats=BAD, name=name)),
        op_of(name, place=Place(host=name)),
        overflow=(OverflowRecord((OverflowUnit("AIC", (1,)),)),),
        graph=(GraphNode(name, "Add"),),
        failures=(ReadFailure(name, "adump", "CorruptDumpError", 8, "bad"),),
    )


def test_removing_a_scan_removes_what_only_it_used(store: Store) -> None:
    results = [full_result(name) for name in "abc"]
    first, second = begin(store), begin(store)
    store.add(first, results[:2], SIGNATURE)
    begin(store)  # makes the files known to `reuse`
    assert reused(store, second, [results[1].file], SIGNATURE) == [True]
    store.add(second, results[2:], SIGNATURE)
    store.add_failures(first, [ReadFailure("w", "", "OSError", None, "")])
    kept = list(store.ops(second))
    store.remove(first)
    assert list(store.ops(second)) == kept
    with pytest.raises(StoreError, match="there is no scan"):
        store.scan_info(first)
    counts = rows_left(store.path)
    assert (counts["files"], counts["ops"], counts["overflow"], counts["graph"]) == (2, 4, 2, 2)
    assert (counts["failures"], counts["kinds"]) == (2, 3)
    assert reused(store, begin(store), [r.file for r in results], SIGNATURE) == [False, True, True]


def test_pruning_keeps_the_newest_and_an_empty_store_is_empty(store: Store) -> None:
    ids = []
    for name in "abcd":
        ids.append(begin(store))
        store.add(ids[-1], [full_result(name)], SIGNATURE)
    assert store.prune(2) == [ids[1], ids[0]]
    assert [info.scan_id for info in store.scans()] == [ids[3], ids[2]]
    assert store.prune(2) == []
    assert store.prune(0) == [ids[3], ids[2]]
    left = {table: count for table, count in rows_left(store.path).items() if count}
    assert left == {"identified": 1}
    # Numbers of removed rows may be given out again; what is behind them must be new.
    scan_id = begin(store)
    store.add(scan_id, [full_result("e")], SIGNATURE)
    assert names(store.notable_ops(scan_id)) == ["e"]
    following = begin(store)
    files = [full_result(name).file for name in "aeb"]
    assert reused(store, following, files, SIGNATURE) == [False, True, False]
    assert names(store.notable_ops(following)) == ["e"]


def test_room_is_given_back(store: Store) -> None:
    scan_id = begin(store)
    store.add(scan_id, [result_of(str(i), op_of("n" * 3000)) for i in range(300)], SIGNATURE)
    store.remove(scan_id)
    store.compact()
    store.close()
    assert os.path.getsize(store.path) < 200_000


# --- two at the same time ---------------------------------------------------------------------


def test_another_store_may_remove_what_this_one_remembers(store: Store) -> None:
    first = begin(store)
    store.add(first, [full_result("a")], SIGNATURE)
    with Store.open(store.path) as other:
        other.remove(first)
    scan_id = begin(store)
    store.add(scan_id, [full_result("a")], SIGNATURE)
    (found,) = store.notable_ops(scan_id)
    assert found.tensors == full_result("a").ops[0].tensors
    assert found.place == Place()


def test_a_batch_that_fails_leaves_nothing_behind(store: Store) -> None:
    scan_id = begin(store)
    broken = dataclasses.replace(full_result("b"), bytes_read=typing.cast("int", object()))
    with pytest.raises(StoreError):
        store.add(scan_id, [full_result("a"), broken], SIGNATURE)
    assert store.totals(scan_id).files == 0
    store.add(scan_id, [full_result("a")], SIGNATURE)
    (found,) = store.notable_ops(scan_id)
    assert found.tensors == full_result("a").ops[0].tensors


WRITER = """
import sys
sys.path[:0] = [{root!r}, {tests!r}]
from test_store import SIGNATURE, Store, begin, full_result
with Store.open(sys.argv[1]) as store:
    scan_id = begin(store)
    print(scan_id, flush=True)
    sys.stdin.readline()
    for batch in range(int(sys.argv[3])):
        store.add(scan_id, [full_result(f"{{sys.argv[2]}}{{batch}}.{{i}}") for i in range(7)],
                  SIGNATURE)
        print(batch, flush=True)
"""


def start_writer(path: str, name: str, batches: int) -> subprocess.Popen[str]:
    code = WRITER.format(root=str(ROOT), tests=str(ROOT / "tests"))
    return subprocess.Popen(
        [sys.executable, "-c", code, path, name, str(batches)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_two_scans_write_into_one_store_and_one_is_killed(tmp_path: Path) -> None:
    path = str(tmp_path / "scans.db")
    with Store.open(path):
        pass
    with start_writer(path, "a", 30) as first, start_writer(path, "b", 10**6) as second:
        ids = [line_of(first), line_of(second)]
        for process in (first, second):
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        told = [line_of(second) for _ in range(20)]
        os.kill(second.pid, signal.SIGKILL)
        assert first.communicate(timeout=60)[0].split()[-1] == "29"
        told += second.communicate(timeout=60)[0].split()
        assert (first.returncode, second.returncode) == (0, -signal.SIGKILL)
    rows_left(path)
    with Store.open(path) as store:
        assert names(store.notable_ops(ids[0])) == sorted(
            f"a{batch}.{i}" for batch in range(30) for i in range(7)
        )
        found = names(store.notable_ops(ids[1]))
        # All that was said to be there is there, and every batch is whole.
        assert len(found) % 7 == 0
        assert len(found) // 7 >= len(told)
        assert [op.tensors[0].name for op in store.notable_ops(ids[1])] == found
        following = begin(store)
        files = [dump_file(name) for name in found]
        assert not store.reuse(following, files, SIGNATURE)
