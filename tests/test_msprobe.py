"""msprobe's dumps: entries, statistics, tensor files, the tree, and files that end too early."""

from __future__ import annotations

import itertools
import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import torch_builders as tb
from dumpscope.dtypes import dtype_named, dtype_of_label
from dumpscope.errors import CorruptDumpError, DumpReadError, TruncatedDumpError
from dumpscope.model import FORM_RAW, FORM_STATISTICS, DumpFile, Match, TensorStats
from dumpscope.msprobe_names import forward_twin, module_backward, parse_probe_name
from dumpscope.readers import msprobe_json
from dumpscope.readers.msprobe import MsprobeReader
from dumpscope.readers.msprobe_json import JsonMember, read_members
from dumpscope.readers.msprobe_statistics import judge_statistics
from dumpscope.readers.protocol import Execution, Record, TensorRecord
from dumpscope.source import LocalSource, ReadBuffer
from dumpscope.stats.measuring import measure
from dumpscope.testing.damage import mutated
from memory_source import MemorySource
from reader_fuzz import exhaust

NAN = float("nan")
INF = float("inf")


def leaf(high: Any = 1.0, low: Any = -1.0, **more: Any) -> dict[str, Any]:
    """A tensor as msprobe writes it."""
    made = {
        "type": "torch.Tensor",
        "dtype": "torch.float16",
        "shape": [2, 3],
        "Max": high,
        "Min": low,
        "Mean": 0.0,
        "Norm": 2.0,
        "requires_grad": False,
    }
    return {**made, **more}


def number(value: Any, kind: str = "float") -> dict[str, Any]:
    return {"type": kind, "value": value}


def forward(*inputs: Any, outputs: Any = None, **more: Any) -> dict[str, Any]:
    return {
        "input_args": list(inputs),
        "input_kwargs": {},
        "output": [leaf()] if outputs is None else outputs,
        **more,
    }


def document(data: Any, **more: Any) -> dict[str, Any]:
    about = {"task": "statistics", "level": "mix", "framework": "pytorch", "dump_data_dir": None}
    return {**about, **more, "data": data}


def source_of(path: Path) -> LocalSource:
    status = path.stat()
    relative = f"step0/proc7/{path.name}"
    file = DumpFile(str(path), relative, path.name, status.st_size, 0, 0, status.st_ino)
    return LocalSource(file, ReadBuffer())


def read(folder: Path, content: Any, name: str = "dump.json", **beside: Any) -> list[Record]:
    """Write a dump and read it; `beside` are construct and stack."""
    text = content if isinstance(content, str) else json.dumps(content, indent=1)
    (folder / name).write_text(text)
    for stem, value in beside.items():
        (folder / f"{stem}.json").write_text(value if isinstance(value, str) else json.dumps(value))
    return list(MsprobeReader().read(source_of(folder / name)))


def executions(records: list[Record]) -> list[Execution]:
    return [record for record in records if isinstance(record, Execution)]


def faults(records: list[Record]) -> list[DumpReadError]:
    return [record for record in records if isinstance(record, DumpReadError)]


def slots(execution: Execution) -> list[tuple[str, int, str | None]]:
    return [(tensor.role, tensor.index, tensor.name) for tensor in execution.tensors]


def stats_of(tensor: TensorRecord) -> TensorStats:
    if tensor.stats is not None:
        return tensor.stats
    assert tensor.data is not None
    return measure(tensor.data, dtype_named(tensor.dtype), tensor.geometry).stats


# --- statistics ----------------------------------------------------------------------------------


def judged(label: str, shape: tuple[int, ...], **values: Any) -> tuple[TensorStats, Any]:
    found = judge_statistics(values, dtype_of_label(label), shape)
    assert found.stats is not None, found.unchecked
    return found.stats, found.notes


@pytest.mark.parametrize(
    ("high", "low", "nan", "posinf", "neginf", "extremes"),
    [
        (1.5, -2.0, 0, 0, 0, (-2.0, 1.5)),
        (3, 0, 0, 0, 0, (0.0, 3.0)),
        (NAN, NAN, 1, 0, 0, (None, None)),
        ("nan", "nan", 1, 0, 0, (None, None)),
        ("-nan", "NaN", 1, 0, 0, (None, None)),
        (INF, -1.0, 0, 1, 0, (-1.0, None)),
        ("inf", "-1.0", 0, 1, 0, (-1.0, None)),
        (1.0, "-Infinity", 0, 0, 1, (None, 1.0)),
        (INF, -INF, 0, 1, 1, (None, None)),
        (INF, INF, 0, 6, 0, (None, None)),
        (-INF, -INF, 0, 0, 6, (None, None)),
        (INF, None, 0, 1, 0, (None, None)),
    ],
)
def test_max_and_min_prove_what_is_not_finite(
    high: Any, low: Any, nan: int, posinf: int, neginf: int, extremes: tuple[Any, Any]
) -> None:
    stats, notes = judged("torch.float32", (2, 3), Max=high, Min=low, Mean=0.5, Norm=1.0)
    assert (stats.nan, stats.posinf, stats.neginf) == (nan, posinf, neginf)
    assert (stats.min, stats.max) == extremes
    assert stats.count == 6
    bad = nan + posinf + neginf
    assert notes == (("count_at_least",) if 0 < bad < 6 else ())
    assert (stats.mean, stats.l2) == ((None, None) if bad else (0.5, 1.0))


def test_norm_and_mean_overflow_over_finite_data() -> None:
    stats, notes = judged("torch.float16", (4,), Max=60000.0, Min=-1.0, Mean=INF, Norm="inf")
    assert (stats.nonfinite, stats.mean, stats.l2, notes) == (0, None, None, ())
    assert stats.near_limit == 1


@pytest.mark.parametrize(
    ("label", "limit"),
    [
        ("torch.float16", 65504.0),
        ("torch.bfloat16", 3.3895313892515355e38),
        ("torch.float32", 3.4028234663852886e38),
        ("Float32", 3.4028234663852886e38),
        ("torch.float64", 1.7976931348623157e308),
    ],
)
def test_the_limit_of_the_dtype_is_saturated(label: str, limit: float) -> None:
    stats, notes = judged(label, (2, 3), Max=limit, Min=-1.0)
    assert (stats.saturated, stats.saturated_negative, notes) == (1, 0, ("count_at_least",))
    assert stats.mask is None
    stats, _ = judged(label, (2, 3), Max=limit, Min=-limit)
    assert (stats.saturated, stats.saturated_negative) == (2, 1)
    stats, _ = judged(label, (2, 3), Max=limit * 0.95, Min=0.0)
    assert (stats.saturated, stats.near_limit) == (0, 1)
    stats, _ = judged(label, (2, 3), Max=limit * 0.8, Min=0.0)
    assert stats.near_limit == 0


@pytest.mark.parametrize(
    ("high", "low", "mask"),
    [
        (1.0, -INF, -INF),
        (-INF, -INF, -INF),
        (0.0, -65504.0, -65504.0),
        (0.0, -3.4028234663852886e38, -3.4028234663852886e38),
        (0.0, -3.3895313892515355e38, -3.3895313892515355e38),
        (INF, -INF, None),
        (0.0, -65000.0, None),
        (NAN, NAN, None),
    ],
)
def test_a_one_sided_minimum_may_be_a_mask(high: float, low: float, mask: float | None) -> None:
    stats, _ = judged("torch.float32", (2, 3), Max=high, Min=low)
    assert (None if stats.mask is None else stats.mask.value) == mask
    if stats.mask is not None:
        assert stats.mask.digest is None


def test_one_element_is_known_exactly() -> None:
    stats, notes = judged("torch.float32", (), Max=INF, Min=INF)
    assert (stats.posinf, stats.first_bad, notes) == (1, (), ())
    stats, notes = judged("torch.float32", (1, 1), Max=NAN, Min=NAN)
    assert (stats.nan, stats.first_bad, notes) == (1, (0, 0), ())


def test_types_without_nan_and_complex_numbers() -> None:
    stats, _ = judged("torch.bool", (4,), Max=True, Min=False)
    assert (stats.min, stats.max, stats.nonfinite) == (0, 1, 0)
    stats, _ = judged("torch.int64", (4,), Max=4.0, Min=-9007199254740993, Mean=None, Norm=None)
    assert (stats.min, stats.max) == (-9007199254740993, 4)
    assert type(stats.max) is int
    stats, notes = judged("torch.complex64", (4,), Max=INF, Min=0.5)
    assert (stats.posinf, notes) == (1, ("magnitude", "count_at_least"))
    stats, notes = judged("torch.complex64", (4,), Max=3.4028234663852886e38, Min=0.5)
    assert (stats.saturated, notes) == (0, ("magnitude",))


@pytest.mark.parametrize(
    ("label", "shape", "values", "expected"),
    [
        ("torch.float8_e5m2", (4,), {"Max": None, "Min": None}, "blank_statistics"),
        ("torch.float32", (4,), {"Max": 1.0, "Min": None}, "blank_statistics"),
        ("torch.float32", (4,), {"md5": "0x2c"}, "no_statistics"),
        ("torch.int64", (4,), {"md5": "0x2c"}, "no_statistics"),
        ("torch.float32", (4,), {}, "structure_only"),
        ("torch.float32", (0, 4), {"Max": None, "Min": None}, None),
        ("torch.float32", (0, 4), {}, None),
    ],
)
def test_blank_statistics_are_unchecked_unless_nothing_is_there(
    label: str, shape: tuple[int, ...], values: Any, expected: str | None
) -> None:
    found = judge_statistics(values, dtype_of_label(label), shape)
    assert found.unchecked == expected
    assert (found.stats is None) == (expected is not None)


# --- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "kind", "op_type", "twin"),
    [
        ("Torch.sqrt.0.backward", "api", "Torch.sqrt", "Torch.sqrt.0.forward"),
        ("Tensor.__mul__.12.forward", "api", "Tensor.__mul__", None),
        ("Primitive.norm.RMSNorm.3.backward", "api", "Primitive.norm.RMSNorm",
         "Primitive.norm.RMSNorm.3.forward"),
        ("Module.a.0.fc.Linear.backward.2", "module", "Linear", "Module.a.0.fc.Linear.forward.2"),
        ("Cell.net.Dense.forward.0", "module", "Dense", None),
        ("Module.fc.Linear.parameters_grad.1", "parameters_grad", "Linear",
         "Module.fc.Linear.forward.1"),
        ("Module.fc.Linear.parameters_grad", "parameters_grad", "Linear",
         "Module.fc.Linear.forward.0"),
        ("scores.0.debug", "debug", "debug", None),
        ("anything", "other", "anything", None),
        ("", "other", "", None),
    ],
)  # fmt: skip
def test_keys_are_taken_apart(key: str, kind: str, op_type: str, twin: str | None) -> None:
    name = parse_probe_name(key)
    assert (name.kind, name.op_type, name.container) == (kind, op_type, kind == "module")
    assert forward_twin(key) == twin


def test_gradients_of_parameters_are_made_in_the_backward() -> None:
    assert module_backward("Module.fc.Linear.parameters_grad.1") == "Module.fc.Linear.backward.1"
    assert module_backward("Module.fc.Linear.parameters_grad") == "Module.fc.Linear.backward.0"
    assert module_backward("Module.fc.Linear.forward.1") is None


# --- entries -------------------------------------------------------------------------------------


def test_an_entry_is_an_execution(tmp_path: Path) -> None:
    data = {
        "Functional.linear.0.forward": forward(
            leaf(), None, leaf(2.0), number(3, "int"), number(0.5), [leaf(), {"k": leaf()}],
            input_kwargs={"bias": leaf(), "flag": number(True, "bool")},
            outputs=[None, leaf(INF)],
        ),
        "Module.fc.Linear.forward.0": forward(
            leaf(), outputs=leaf(), parameters={"weight": leaf(), "bias": leaf()}
        ),
        "Functional.linear.0.backward": {"input": [leaf()], "output": [leaf(), None, leaf()]},
    }  # fmt: skip
    records = read(
        tmp_path,
        document(data),
        construct={"Functional.linear.0.forward": "Module.fc.Linear.forward.0"},
        stack={"0": [["Functional.linear.0.forward"], ["File a.py, line 3", "File b.py, line 1"]]},
    )
    assert not faults(records)
    linear, module, backward = executions(records)
    assert (linear.op_type, linear.op_name) == ("Functional.linear", "Functional.linear.0.forward")
    assert slots(linear) == [
        ("input", 0, "input.0"), ("input", 2, "input.2"), ("input", 4, "input.4"),
        ("input", 6, "input.5.0"), ("input", 7, "input.5.1.k"), ("input", 8, "kwargs.bias"),
        ("output", 1, "output.1"),
    ]  # fmt: skip
    assert [t.shape for t in linear.tensors[:3]] == [(2, 3), (2, 3), ()]
    assert linear.tensors[-1].stats is not None
    assert linear.tensors[-1].stats.posinf == 1
    assert (linear.parent, linear.form) == ("Module.fc.Linear.forward.0", FORM_STATISTICS)
    assert linear.stack == ("File a.py, line 3", "File b.py, line 1")
    assert slots(module) == [
        ("input", 0, "input.0"), ("input", 1, "parameters.weight"),
        ("input", 2, "parameters.bias"), ("output", 0, "output.0"),
    ]  # fmt: skip
    assert (module.op_type, module.container, module.parent) == ("Linear", True, None)
    assert slots(backward) == [
        ("input", 0, "input.0"), ("output", 0, "output.0"), ("output", 2, "output.2")
    ]  # fmt: skip
    assert backward.stack == linear.stack
    assert ("stack_of", "Functional.linear.0.forward") in backward.attributes
    assert [e.order for e in (linear, module, backward)] == [0, 2, 4]


def test_numbers_among_the_arguments(tmp_path: Path) -> None:
    data = {
        "Tensor.__mul__.0.forward": forward(leaf(), number("nan")),
        "Tensor.masked_fill.0.forward": forward(leaf(), leaf(), number(-INF)),
        "Torch.norm.0.forward": forward(
            leaf(), input_kwargs={"p": number(INF), "s": number("inf", "str")}
        ),
        "Torch.add.0.forward": forward(leaf(), number(65504.0), number(1.5, "complex")),
    }  # fmt: skip
    nan, mask, norm, add = executions(read(tmp_path, document(data)))
    (_, scalar, _) = nan.tensors
    assert (stats_of(scalar).nan, scalar.dtype, scalar.shape) == (1, "float64", ())
    assert np.isnan(scalar.load())
    # An infinite argument is a constant of the program, not a value that went wrong.
    assert [slot[2] for slot in slots(mask)] == ["input.0", "input.1", "output.0"]
    assert ("input.2", "-inf") in mask.attributes
    assert norm.attributes == (("kwargs.p", "inf"),)
    assert [t.name for t in add.tensors] == ["input.0", "input.1", "output.0"]
    assert stats_of(add.tensors[1]).saturated == 0


def test_attributes_tell_what_else_an_entry_says(tmp_path: Path) -> None:
    group = {"type": "torch.ProcessGroup", "group_ranks": [0, 4], "group_id": "9f3c"}
    send = {"class_type": "torch.distributed.P2POp", "tensor": leaf(), "op": "isend", "peer": 1}
    receive = {**send, "op": "irecv", "tensor": leaf(NAN, NAN)}
    data = {
        "Tensor.add_.0.forward": forward(leaf(), leaf(), is_recompute=True),
        "Functional.relu.0.forward": forward(
            leaf(), input_kwargs={"inplace": number(True, "bool")}
        ),
        "Torch.exp.0.forward": forward(leaf(), is_nan=1, is_recompute=False),
        "Distributed.broadcast.0.forward": forward(
            leaf(), number(0, "int"), input_kwargs={"group": group}
        ),
        "Distributed.batch_isend_irecv.0.forward": forward(
            [send, receive], outputs=[[send, receive]]
        ),
    }
    add, relu, exp, broadcast, batch = executions(read(tmp_path, document(data)))
    assert add.attributes == (("is_recompute", "true"), ("in_place", "true"))
    assert relu.attributes == (("in_place", "true"),)
    assert exp.attributes == (("is_nan", "1"),)
    assert dict(broadcast.attributes) == {
        "input.1": "0", "group_ranks": "0,4", "group_id": "9f3c", "in_place": "true",
    }  # fmt: skip
    assert [(t.role, t.name) for t in batch.tensors] == [
        ("input", "input.0.0.tensor"),
        ("output", "output.0.0.tensor"),
        ("output", "output.0.1.tensor"),
    ]


def test_gradients_that_stand_before_their_time_come_after_the_backward(tmp_path: Path) -> None:
    gradients = {"weight": [leaf(NAN, NAN)], "bias": [None]}
    data = {
        "Module.fc.Linear.forward.0": forward(leaf()),
        "Module.fc.Linear.parameters_grad": gradients,
        "Module.lost.Linear.parameters_grad": gradients,
        "Torch.exp.0.forward": forward(leaf()),
        "Module.fc.Linear.backward.1": {"input": [leaf()], "output": []},
        "Module.fc.Linear.backward.0": {"input": [leaf()], "output": []},
        "Torch.exp.0.backward": {"input": [leaf()], "output": []},
    }
    found = executions(read(tmp_path, document(data)))
    ordered = sorted(found, key=lambda execution: execution.order)
    assert [execution.op_name for execution in ordered] == [
        "Module.fc.Linear.forward.0",
        "Torch.exp.0.forward",
        "Module.fc.Linear.backward.1",
        "Module.fc.Linear.backward.0",
        "Module.fc.Linear.parameters_grad",
        "Torch.exp.0.backward",
        "Module.lost.Linear.parameters_grad",
    ]
    assert len({execution.order for execution in ordered}) == 7
    late = ordered[4]
    assert slots(late) == [("output", 0, "weight")]
    assert (late.container, late.parent) == (False, "Module.fc.Linear.backward.0")


def test_gradients_of_26_stay_where_they_are(tmp_path: Path) -> None:
    data = {
        "Module.fc.Linear.parameters_grad.0": {"weight": [leaf()], "bias": [leaf(INF)]},
        "Module.fc.Linear.backward.0": {"input": [leaf()], "output": []},
    }
    first, second = executions(read(tmp_path, document(data)))
    assert (first.order, second.order) == (0, 2)
    assert slots(first) == [("output", 0, "weight"), ("output", 1, "bias")]


def test_variables_saved_by_hand(tmp_path: Path) -> None:
    data = {
        "a.0.debug": leaf(),
        "a_grad.0.debug": leaf(INF),
        "nested.0.debug": {"x": [leaf(), None, number(NAN)]},
        "nested_grad.0.debug": {"x": [None]},
        "pair.0.debug": [leaf(), leaf()],
        "nothing.0.debug": None,
    }
    found = executions(read(tmp_path, document(data, level="debug"), "debug.json"))
    ordered = sorted(found, key=lambda execution: execution.order)
    assert [execution.op_name for execution in ordered] == [
        "a.0.debug", "nested.0.debug", "pair.0.debug", "nested_grad.0.debug", "a_grad.0.debug"
    ]  # fmt: skip
    assert slots(ordered[0]) == [("output", 0, "")]
    assert slots(ordered[1]) == [("output", 0, "x.0"), ("output", 1, "x.2")]
    assert slots(ordered[2]) == [("output", 0, "0"), ("output", 1, "1")]
    assert ordered[0].op_type == "debug"


def test_step_and_rank_only_where_the_json_says_them(tmp_path: Path) -> None:
    data = {"Torch.exp.0.forward": forward(leaf())}
    (plain,) = executions(read(tmp_path, document(data)))
    assert (plain.step, plain.rank) == (None, None)
    (told,) = executions(read(tmp_path, document(data, step=7, rank=3)))
    assert (told.step, told.rank) == (7, 3)
    (odd,) = executions(read(tmp_path, document(data, step="7", rank=-1)))
    assert (odd.step, odd.rank) == (None, None)


def test_parents_with_micro_steps_and_old_stacks(tmp_path: Path) -> None:
    data = {"Torch.exp.0.forward": forward(leaf()), "Torch.exp.1.forward": forward(leaf())}
    first, second = executions(
        read(
            tmp_path,
            document(data),
            construct={"Torch.exp.0.forward": ["Module.m.M.forward.0", 3], "optimizer": None},
            stack={"Torch.exp.1.forward": ["File a.py"]},
        )
    )
    assert (first.parent, first.attributes) == ("Module.m.M.forward.0", (("micro_step", "3"),))
    assert second.stack == ("File a.py",)


def test_structure_only_names_what_ran_and_checks_nothing(tmp_path: Path) -> None:
    records = read(
        tmp_path,
        document({}, task="structure"),
        construct={
            "Torch.exp.0.forward": "Module.m.M.forward.0",
            "Module.m.M.forward.0": None,
            "optimizer": None,
        },
        stack={"0": [["Torch.exp.0.forward", "Torch.log.0.forward"], ["File a.py"]]},
    )
    assert not faults(records)
    found = executions(records)
    assert [execution.op_name for execution in found] == [
        "Torch.exp.0.forward", "Module.m.M.forward.0", "Torch.log.0.forward"
    ]  # fmt: skip
    assert all(e.tensors[0].unchecked == "structure_only" for e in found)
    assert [e.container for e in found] == [False, True, False]


def test_a_damaged_tree_is_told_and_the_entries_are_read(tmp_path: Path) -> None:
    data = {"Torch.exp.0.forward": forward(leaf())}
    records = read(tmp_path, document(data), construct='{"a": ', stack="[" * 100_000)
    assert len(executions(records)) == 1
    assert {fault.path for fault in faults(records)} == {
        "step0/proc7/construct.json", "step0/proc7/stack.json"
    }  # fmt: skip


def test_tree_and_stacks_alone_give_nothing(tmp_path: Path) -> None:
    assert read(tmp_path, {"Torch.exp.0.forward": None}, "construct.json") == []
    assert read(tmp_path, {}, "stack.json") == []
    with pytest.raises(CorruptDumpError):
        read(tmp_path, "[]", "construct.json")


# --- tensor files --------------------------------------------------------------------------------


@pytest.fixture
def tensors(tmp_path: Path) -> Path:
    folder = tmp_path / "dump_tensor_data"
    folder.mkdir()
    return folder


def torch_file(values: Any, dtype: str = "float16") -> bytes:
    array = np.array(values, ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    made = tb.tensor("0", dtype, array.shape)
    return tb.streamed_archive(made, {"0": array.tobytes()})


def test_values_count_where_there_are_values(tmp_path: Path, tensors: Path) -> None:
    name = "Torch.exp.0.forward.output.0.pt"
    (tensors / name).write_bytes(torch_file([[1, INF, NAN], [4, INF, 6]]))
    data = {"Torch.exp.0.forward": forward(outputs=[leaf(1.0, 0.0, data_name=name)])}
    (execution,) = executions(read(tmp_path, document(data, task="tensor")))
    (tensor,) = execution.tensors
    assert execution.form == FORM_RAW
    assert tensor.stats is None
    assert (stats_of(tensor).nan, stats_of(tensor).posinf) == (1, 2)
    assert stats_of(tensor).first_bad == (0, 1)
    assert tensor.load().astype(float)[1].tolist() == [4, INF, 6]


def test_a_large_tensor_is_opened_again_when_it_is_streamed(tmp_path: Path, tensors: Path) -> None:
    values = np.arange(40_000, dtype="<f4").reshape(200, 200)
    values[150, 7] = -np.inf
    made = tb.tensor("0", "float32", (200, 200))
    (tensors / "big.pt").write_bytes(tb.archive(made, {"0": values.tobytes()}))
    np.save(tensors / "big.npy", values)
    entry = forward(
        outputs=[
            leaf(dtype="torch.float32", data_name="big.pt"),
            leaf(dtype="Float32", data_name="big.npy"),
        ]
    )
    records = read(tmp_path, document({"Torch.exp.0.forward": entry}))
    (execution,) = executions(records)
    for tensor in execution.tensors:
        np.testing.assert_array_equal(tensor.load(), values)
        assert stats_of(tensor).first_bad == (150, 7)


def test_mindspore_stores_bfloat16_as_float32(tmp_path: Path, tensors: Path) -> None:
    np.save(tensors / "x.npy", np.array([3.3895313892515355e38, 1.0], np.float32))
    entry = forward(outputs=[leaf(dtype="BFloat16", data_name="x.npy")])
    (execution,) = executions(read(tmp_path, document({"Mint.add.0.forward": entry})))
    (tensor,) = execution.tensors
    assert (tensor.dtype, tensor.notes) == ("bfloat16", ("stored_as_float32",))
    assert stats_of(tensor).saturated == 1


@pytest.mark.parametrize(
    "damage", ["missing", "cut", "empty", "hostile", "two", "escape", "absolute", "twice"]
)
def test_a_file_that_cannot_be_read_leaves_the_statistics(
    tmp_path: Path, tensors: Path, damage: str
) -> None:
    name = "Torch.exp.0.forward.output.0.pt"
    whole = torch_file([[1, 2, 3], [4, 5, 6]])
    (tensors / "other.pt").write_bytes(whole)
    (tmp_path / "outside.pt").write_bytes(whole)
    if damage == "cut":
        (tensors / name).write_bytes(whole[:100])
    elif damage == "empty":
        (tensors / name).write_bytes(b"")
    elif damage == "hostile":
        raw = tb.pickled(tb.call(tb.name("os", "system"), tb.text("true")))
        (tensors / name).write_bytes(tb.archive(b"", raw_pickle=raw))
    elif damage == "two":
        pair = tb.series(tb.tensor("0", "float16", (1,)), tb.tensor("0", "float16", (1,)))
        (tensors / name).write_bytes(tb.archive(pair, {"0": bytes(2)}))
    elif damage == "escape":
        name = "../outside.pt"
    elif damage == "absolute":
        name = str(tmp_path / "outside.pt")
    elif damage == "twice":
        (tensors / name).write_bytes(whole)
    outputs = [leaf(INF, 0.0, data_name=name)]
    if damage == "twice":
        outputs.insert(0, leaf(data_name=name))
    records = read(tmp_path, document({"Torch.exp.0.forward": forward(outputs=outputs)}))
    (execution,) = executions(records)[:1]
    tensor = execution.tensors[-1]
    assert tensor.stats is not None
    assert (tensor.stats.posinf, tensor.notes) == (1, ("count_at_least",))
    (fault,) = faults(records)
    assert fault.path.startswith("step0/proc7/")


def test_a_folder_that_was_not_copied_is_told_once(tmp_path: Path) -> None:
    data = {
        f"Torch.exp.{i}.forward": forward(outputs=[leaf(data_name=f"{i}.pt")]) for i in range(9)
    }
    records = read(tmp_path, document(data, task="tensor"))
    assert len(executions(records)) == 9
    (fault,) = faults(records)
    assert "dump_tensor_data" in str(fault)


def test_files_that_no_entry_names_are_called_by_their_names(tmp_path: Path, tensors: Path) -> None:
    named = "Torch.exp.0.forward.output.0.pt"
    for name, value in [
        (named, 1.0),
        ("Torch.log.0.forward.output.0.pt", INF),
        ("Torch.log.0.forward.input.0.pt", 0.0),
        ("Torch.log.0.forward.kwargs.out.pt", 0.0),
        ("Module.fc.Linear.forward.0.parameters.weight.pt", 1.0),
        ("readme.pt", 1.0),
    ]:
        (tensors / name).write_bytes(torch_file([value]))
    (tensors / "notes.txt").write_text("x")
    text = json.dumps(
        document({"Torch.exp.0.forward": forward(outputs=[leaf(data_name=named)])}), indent=1
    )
    cut = text[: text.rindex("]") + 1]
    records = read(tmp_path, cut)
    assert [type(fault) for fault in faults(records)] == [TruncatedDumpError]
    found = {execution.op_name: execution for execution in executions(records)}
    assert set(found) == {
        "Torch.exp.0.forward", "Torch.log.0.forward", "Module.fc.Linear.forward.0"
    }  # fmt: skip
    log = found["Torch.log.0.forward"]
    assert (log.op_type, log.partial) == ("Torch.log", True)
    assert sorted(slots(log)) == [
        ("input", 0, "input.0"), ("input", 1, "kwargs.out"), ("output", 0, "output.0")
    ]  # fmt: skip
    assert sum(stats_of(tensor).posinf for tensor in log.tensors) == 1
    assert log.order > found["Torch.exp.0.forward"].order
    assert found["Module.fc.Linear.forward.0"].container


# --- files that are damaged ----------------------------------------------------------------------


def small_dump() -> bytes:
    data = {
        "Tensor.é.0.forward": forward(leaf(), number(NAN), None, [leaf("inf")]),
        "Module.fc.Linear.parameters_grad": {"weight": [leaf()]},
        "Torch.exp.0.forward": forward(leaf(-INF, -INF), outputs=[]),
    }
    return json.dumps(document(data), indent=1, ensure_ascii=False).encode()


def test_cut_off_at_every_byte() -> None:
    content = small_dump()
    assert exhaust(MsprobeReader(), content, "dump.json") == 0
    ends = [content.index(b'"Module.fc'), content.index(b'"Torch.exp'), len(content)]
    for length in range(len(content)):
        source = MemorySource(content[:length], "dump.json")
        records = list(MsprobeReader().read(source))
        (fault,) = faults(records)
        assert isinstance(fault, TruncatedDumpError), f"{length}: {fault}"
        complete = sum(length >= end for end in ends[:2])
        assert complete <= len(executions(records)) <= complete + 1


@given(st.integers(0, 1 << 32))
def test_damaged_bytes_give_read_errors_only(seed: int) -> None:
    exhaust(MsprobeReader(), mutated(small_dump(), seed), "dump.json")


def entry_of(argument: str) -> str:
    """Return the text of an entry with one argument, valid or not."""
    return '"Torch.exp.0.forward": {"input_args": [' + argument + '], "output": []}'


def data_of(*entries: str) -> str:
    return '{"data": {' + ", ".join(entries) + "}}"


@pytest.mark.parametrize(
    "text",
    [
        data_of(entry_of(""), entry_of("")),
        '{"data": {"Torch.exp.0.forward": {"output": [], "output": []}}}',
        data_of(entry_of("[" * 100_000)),
        data_of(entry_of("[" * 500 + "]" * 500)),
        data_of(entry_of("9" * 5000)),
        '{"data": {NaN: {}}}',
        '{"data": {1: {}}}',
        '{"data": []}',
        '{"data": 5}',
        '{"task": "statistics"}',
        "{}",
        "[]",
        '"data"',
        "nonsense",
        '{"data": {}} trailing',
        '{"data": {"Torch.exp.0.forward": 5}}',
        '{"data": {"Torch.exp.0.forward": []}}',
        data_of('"' + "k" * 5000 + '": {}'),
        data_of(entry_of(json.dumps(leaf(shape=[2, -3])))),
        data_of(entry_of(json.dumps(leaf(shape=[1 << 40, 1 << 40])))),
        data_of(entry_of(json.dumps(leaf(shape="2x3")))),
        data_of(entry_of(json.dumps(leaf(shape=[True])))),
        data_of(entry_of(json.dumps(leaf("large")))),
        data_of(entry_of(json.dumps(leaf([1.0])))),
        data_of(entry_of(json.dumps(number({})))),
    ],
    ids=itertools.count(),
)
def test_what_msprobe_never_writes_is_a_read_error(tmp_path: Path, text: str) -> None:
    found = faults(read(tmp_path, text))
    assert [type(fault) for fault in found] == [CorruptDumpError]
    assert found[0].path == "step0/proc7/dump.json"


def test_one_bad_tensor_does_not_hide_the_others(tmp_path: Path) -> None:
    entry = forward(leaf(shape=None), leaf(INF))
    records = read(tmp_path, document({"Torch.exp.0.forward": entry}))
    (execution,) = executions(records)
    assert [t.unchecked for t in execution.tensors] == ["unreadable", None, None]
    assert len(faults(records)) == 1


# --- the stream of members -----------------------------------------------------------------------


def members_of(content: bytes) -> list[JsonMember]:
    return list(read_members(MemorySource(content, "dump.json"), "data"))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats(allow_nan=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(
    data=st.dictionaries(st.text(max_size=5), JSON, max_size=5),
    about=st.dictionaries(st.text(max_size=3).filter(lambda key: key != "data"), JSON, max_size=3),
    block=st.sampled_from([1, 3, 16, 1 << 20]),
    ascii_only=st.booleans(),
    indent=st.sampled_from([None, 1]),
)
def test_members_are_those_that_json_reads(
    data: dict[str, Any], about: dict[str, Any], block: int, ascii_only: bool, indent: int | None
) -> None:
    text = json.dumps({**about, "data": data}, ensure_ascii=ascii_only, indent=indent)
    content = text.encode("utf-8", "surrogatepass")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(msprobe_json, "_BLOCK_BYTES", block)
        found = members_of(content)
    if "\ud800" <= max(text, default="") <= "\udfff":
        return
    inner = [member for member in found if member.section]
    assert [(member.key, member.value) for member in inner] == list(data.items())
    outer = [member for member in found if not member.section]
    assert [(m.key, m.value) for m in outer] == [*about.items(), ("data", {})]
    for member in inner:
        raw = content[member.offset : member.offset + member.length]
        assert json.loads(raw) == member.value


def test_memory_holds_one_entry_and_not_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(msprobe_json, "_BLOCK_BYTES", 1 << 16)
    entry = json.dumps(forward(*[leaf()] * 30), indent=1)
    with (tmp_path / "dump.json").open("w") as out:
        out.write('{"task": "statistics", "dump_data_dir": null, "data": {')
        out.write(",\n".join(f'"Torch.exp.{i}.forward": {entry}' for i in range(400)))
        out.write("}}")
    size = (tmp_path / "dump.json").stat().st_size
    assert size > 2 << 20

    def count(records: Iterator[Record]) -> int:
        return sum(len(r.tensors) for r in records if isinstance(r, Execution))

    with source_of(tmp_path / "dump.json") as source:
        tracemalloc.start()
        try:
            assert count(MsprobeReader().read(source)) == 400 * 31
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak < 1 << 20


def test_an_entry_larger_than_any_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(msprobe_json, "_LARGEST_VALUE_CHARS", 1 << 20)
    records = read(tmp_path, data_of(entry_of('"' + "x" * (4 << 20))))
    (fault,) = faults(records)
    assert isinstance(fault, CorruptDumpError)


def test_text_that_is_not_utf_8_and_a_mark_at_the_start(tmp_path: Path) -> None:
    content = b'\xef\xbb\xbf{"data": {"Torch.\xff.0.forward": {"input": [], "output": []}}}'
    (tmp_path / "dump.json").write_bytes(content)
    records = list(MsprobeReader().read(source_of(tmp_path / "dump.json")))
    assert [e.op_name for e in executions(records)] == ["Torch.\udcff.0.forward"]


# --- recognising ---------------------------------------------------------------------------------


def test_recognised_by_content_and_only_then_by_name() -> None:
    reader = MsprobeReader()
    content = json.dumps(document({})).encode()

    def sniff(head: bytes, name: str) -> Match:
        return reader.sniff(head, MemorySource(head, name).file)

    assert sniff(content, "rank0.txt") is Match.CONTENT
    assert sniff(b"\xef\xbb\xbf\n " + content, "dump.json") is Match.CONTENT
    assert sniff(b"", "dump.json") is Match.NAME
    assert sniff(b'{"a', "debug.json") is Match.NAME
    assert sniff(b"{}", "construct.json") is Match.NAME
    assert sniff(b"[]", "construct.json") is Match.NONE
    assert sniff(b'{"op": []}', "acl.json") is Match.NONE
    assert dict(reader.companions) == {
        "dump.json": "dump_tensor_data", "debug.json": "dump_tensor_data"
    }  # fmt: skip


# --- real dumps ----------------------------------------------------------------------------------


def bad_sides(execution: Execution) -> tuple[bool, bool]:
    """Whether something that went in, and something that came out, is not finite."""
    bad = {"input": False, "output": False}
    for tensor in execution.tensors:
        if tensor.unchecked is None and stats_of(tensor).nonfinite:
            bad[tensor.role] = True
    return bad["input"], bad["output"]


@pytest.mark.corpus
def test_every_dump_of_the_corpus_shows_what_was_observed(corpus: Path) -> None:
    seen = 0
    for truth in sorted(corpus.glob("msprobe/*/ground_truth.json")):
        for observed in json.loads(truth.read_text()).get("observed_in_dump", []):
            path = truth.parent / observed["dump"]
            records = list(MsprobeReader().read(source_of(path)))
            assert not faults(records), path
            found = sorted(executions(records), key=lambda execution: execution.order)
            if observed["entries"]:
                assert len(found) == observed["entries"], path
            sides = [(execution, *bad_sides(execution)) for execution in found]
            bad = [execution.op_name for execution, inside, out in sides if inside or out]
            assert len(bad) == observed["entries_with_nonfinite_max_or_min"], path
            made = [
                execution.op_name
                for execution, inside, out in sides
                if out and not inside and "parameters_grad" not in execution.op_name
            ]
            assert made == observed["entries_finite_in_nonfinite_out"], path
            early = observed["first_entry_with_nonfinite"]
            if early is not None and not early.endswith("parameters_grad"):
                assert bad[0] == early, path
            seen += 1
    assert seen > 40
