"""Files of torch: tensors out of them, and nothing else whatever they ask for."""

from __future__ import annotations

import json
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import torch_builders as tb
from dumpscope.dtypes import dtype_named
from dumpscope.errors import CorruptDumpError, DumpReadError, TruncatedDumpError
from dumpscope.model import FORM_CONVERTED, FORM_RAW, DumpFile, Match, TensorStats
from dumpscope.readers import torch_unpickle, torch_views
from dumpscope.readers.protocol import Execution, Record, TensorRecord
from dumpscope.readers.torch_pt import TorchReader
from dumpscope.source import LocalSource, ReadBuffer
from dumpscope.stats.measuring import measure
from dumpscope.testing.damage import mutated
from reader_fuzz import exhaust

NAN = float("nan")
INF = float("inf")


def file_of(path: Path) -> DumpFile:
    status = path.stat()
    return DumpFile(str(path), path.name, path.name, status.st_size, 0, 0, status.st_ino)


Opened = Callable[..., list[Record]]


@pytest.fixture
def read(tmp_path: Path) -> Opened:
    """Return what reads bytes under a name, each source staying open until the test ends."""

    def run(content: bytes, file_name: str = "dump.pt") -> list[Record]:
        path = tmp_path / file_name
        path.write_bytes(content)
        source = LocalSource(file_of(path), ReadBuffer())
        return list(TorchReader().read(source))

    return run


def executions(records: list[Record]) -> list[Execution]:
    return [record for record in records if isinstance(record, Execution)]


def faults(records: list[Record]) -> list[DumpReadError]:
    return [record for record in records if isinstance(record, DumpReadError)]


def only(records: list[Record]) -> TensorRecord:
    (execution,) = executions(records)
    (tensor,) = execution.tensors
    return tensor


def stats_of(tensor: TensorRecord) -> TensorStats:
    if tensor.stats is not None:
        return tensor.stats
    assert tensor.data is not None
    return measure(tensor.data, dtype_named(tensor.dtype), tensor.geometry).stats


def float32s(*values: float) -> bytes:
    return np.array(values, "<f4").tobytes()


# --- values --------------------------------------------------------------------------------------

DTYPES = [
    ("float16", "<f2", "float16"),
    ("float32", "<f4", "float32"),
    ("float64", "<f8", "float64"),
    ("bfloat16", ml_dtypes.bfloat16, "bfloat16"),
    ("float8_e5m2", ml_dtypes.float8_e5m2, "float8_e5m2"),
    ("float8_e4m3fn", ml_dtypes.float8_e4m3fn, "float8_e4m3fn"),
    ("complex64", "<c8", "complex64"),
    ("complex128", "<c16", "complex128"),
    ("int8", "i1", "int8"),
    ("uint8", "u1", "uint8"),
    ("int16", "<i2", "int16"),
    ("uint16", "<u2", "uint16"),
    ("int32", "<i4", "int32"),
    ("uint32", "<u4", "uint32"),
    ("int64", "<i8", "int64"),
    ("uint64", "<u8", "uint64"),
    ("bool", "?", "bool"),
    ("qint8", "i1", "qint8"),
]


@pytest.mark.parametrize(("torch_name", "kind", "ours"), DTYPES)
@pytest.mark.parametrize("order", ["little", "big"])
def test_values_of_every_dtype(
    read: Opened, torch_name: str, kind: Any, ours: str, order: str
) -> None:
    expected = np.array([[1, 0, 1], [0, 1, 1]]).astype(kind)
    itemsize = expected.dtype.itemsize
    content = expected.tobytes()
    if order == "big":
        part = itemsize // 2 if expected.dtype.kind == "c" else itemsize
        content = np.frombuffer(content, f"u{part}").byteswap().tobytes()
    expression = tb.tensor("0", torch_name, (2, 3), itemsize=itemsize)
    tensor = only(read(tb.archive(expression, {"0": content}, byteorder=order)))
    assert (tensor.role, tensor.index, tensor.dtype, tensor.shape) == ("output", 0, ours, (2, 3))
    loaded = tensor.load()
    assert not loaded.flags.writeable
    assert loaded.tobytes() == expected.tobytes()
    assert stats_of(tensor).nonfinite == 0


def test_complex32_and_float4_over_bytes(read: Opened) -> None:
    halves = np.array([1.5, -2.0, NAN, 0.0], "<f2").tobytes()
    pair = only(read(tb.archive(tb.tensor("0", "complex32", (2,), itemsize=4), {"0": halves})))
    assert pair.dtype == "complex32"
    assert pair.load()[0] == np.complex64(1.5 - 2j)
    assert stats_of(pair).nan == 1
    nibbles = only(
        read(tb.archive(tb.tensor("0", "float4_e2m1fn_x2", (3,)), {"0": b"\x21\x43\x75"}))
    )
    assert (nibbles.dtype, nibbles.shape) == ("float4_e2m1fn", (6,))
    assert nibbles.load().astype(np.float32).tolist() == [0.5, 1.0, 1.5, 2.0, 3.0, 6.0]


def test_a_scalar_stays_a_scalar_and_an_empty_tensor_is_clean(read: Opened) -> None:
    scalar = only(read(tb.archive(tb.tensor("0", "float32", ()), {"0": float32s(INF)})))
    assert scalar.load().shape == ()
    assert stats_of(scalar).posinf == 1
    empty = only(read(tb.archive(tb.tensor("0", "float32", (0, 3)), {"0": b""})))
    assert empty.load().shape == (0, 3)
    assert (empty.unchecked, empty.missing_bytes) == (None, 0)


def test_types_that_nobody_can_decode_are_unchecked(read: Opened) -> None:
    made = tb.tensor("0", "float8_e4m3fnuz", (4,), itemsize=1)
    assert only(read(tb.archive(made, {"0": bytes(4)}))).unchecked == "unsupported_dtype"
    meta = tb.call(
        tb.name("torch._utils", "_rebuild_meta_tensor_no_storage"),
        tb.name("torch", "float32"),
        tb.sizes([3]),
        tb.sizes([1]),
        b"\x89",
    )
    tensor = only(read(tb.archive(meta)))
    assert (tensor.unchecked, tensor.shape) == ("no_values", (3,))


@pytest.mark.parametrize("protocol", [2, 5])
def test_wrappers_and_containers_are_seen_through(read: Opened, protocol: int) -> None:
    def made(key: str) -> bytes:
        return tb.tensor(key, "float32", (2,))

    wrapped = [
        tb.call(tb.name("torch._utils", "_rebuild_parameter"), made("0"), b"\x88", b"}"),
        tb.call(
            tb.name("torch._utils", "_rebuild_parameter_with_state"), made("0"), b"\x88", b"}", b"}"
        ),
        tb.call(
            tb.name("torch._tensor", "_rebuild_from_type_v2"),
            tb.name("torch._utils", "_rebuild_parameter"),
            tb.name("torch.nn.parameter", "Parameter"),
            tb.row(made("0"), b"\x88", b"}"),
            tb.table(note=tb.text("x")),
        ),
        tb.call(
            tb.name("torch_npu.utils.storage", "_rebuild_npu_tensor"),
            tb.storage("0", "FloatStorage", 2),
            tb.number(0),
            tb.sizes([2]),
            tb.sizes([1]),
            b"\x89",
            b"}",
            tb.number(2),
        ),
        tb.call(tb.name("torch.return_types", "max"), tb.row(made("0")), b"}"),
        tb.call(tb.name("builtins", "set"), tb.series(made("0"))),
    ]
    for expression in wrapped:
        raw = tb.pickled(expression, protocol)
        tensor = only(read(tb.archive(b"", {"0": float32s(1, NAN)}, raw_pickle=raw)))
        assert stats_of(tensor).nan == 1


def test_protocol_4_and_5_operations(read: Opened) -> None:
    def short(value: str) -> bytes:
        return b"\x8c" + bytes([len(value)]) + value.encode() + b"\x94"

    kind = short("torch") + short("FloatStorage") + b"\x93"
    pid = b"(" + short("storage") + kind + short("0") + short("cpu") + b"K\x02t\x94Q"
    rebuild = short("torch._utils") + short("_rebuild_tensor_v2") + b"\x93"
    hooks = short("collections") + short("OrderedDict") + b"\x93)R"
    body = rebuild + b"(" + pid + b"K\x00K\x02\x85K\x01\x85\x89" + hooks + b"t\x94R\x94."
    raw = b"\x80\x05\x95" + struct.pack("<Q", len(body)) + body
    tensor = only(read(tb.archive(b"", {"0": float32s(3, -INF)}, raw_pickle=raw)))
    assert tensor.load().tolist() == [3.0, -INF]


# --- views ---------------------------------------------------------------------------------------


@pytest.fixture
def values() -> np.ndarray[Any, np.dtype[np.float32]]:
    array = np.arange(24, dtype="<f4").reshape(4, 6)
    array[2, 3] = np.nan
    return array


VIEWS: dict[str, Callable[[Any], Any]] = {
    "rows": lambda a: a[1:],
    "transposed": lambda a: a.T,
    "columns": lambda a: a[:, 2:5],
    "every_second": lambda a: a[::2, ::3],
    "expanded": lambda a: np.broadcast_to(a[2:3, 3:4], (5, 7)),
    "repeated_row": lambda a: np.broadcast_to(a[2], (3, 6)),
    "windows": lambda a: np.lib.stride_tricks.as_strided(a, (4, 3, 6), (24, 4, 4))[:3, :, :4],
    "kept_axes": lambda a: a.T[:, None, :],
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_views_load_and_measure_in_their_own_order(
    read: Opened, values: Any, view: str, compression: int
) -> None:
    expected = VIEWS[view](values)
    start = expected.__array_interface__["data"][0] - values.__array_interface__["data"][0]
    made = tb.tensor(
        "0",
        "float32",
        expected.shape,
        count=24,
        strides=[stride // 4 for stride in expected.strides],
        offset=start // 4,
    )
    tensor = only(read(tb.archive(made, {"0": values.tobytes()}, compression=compression)))
    np.testing.assert_array_equal(tensor.load(), expected)
    stats = stats_of(tensor)
    assert stats.count == expected.size
    assert stats.nan == np.isnan(expected).sum()
    bad = np.argwhere(np.isnan(expected))
    assert stats.first_bad == (tuple(bad[0]) if len(bad) else None)


@pytest.fixture
def tiny_gathers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat every view as one that is too large to be put in order in memory."""
    monkeypatch.setattr(torch_views, "_GATHERED_BYTES", 0)
    torch_views._plan.cache_clear()
    monkeypatch.setattr(torch_views, "_SHORTEST_RUN_BYTES", 8)


@pytest.mark.usefixtures("tiny_gathers")
@pytest.mark.parametrize("view", ["columns", "repeated_row", "expanded", "every_second"])
def test_large_views_are_streamed_from_what_is_stored(read: Opened, values: Any, view: str) -> None:
    expected = VIEWS[view](values)
    start = expected.__array_interface__["data"][0] - values.__array_interface__["data"][0]
    made = tb.tensor(
        "0",
        "float32",
        expected.shape,
        count=24,
        strides=[stride // 4 for stride in expected.strides],
        offset=start // 4,
    )
    tensor = only(read(tb.archive(made, {"0": values.tobytes()})))
    torch_views._plan.cache_clear()
    loaded = tensor.load()
    if view == "columns":
        np.testing.assert_array_equal(loaded, expected)
        assert tensor.notes == ()
    elif view == "every_second":
        # What lies between is measured too, and that is said.
        np.testing.assert_array_equal(loaded, values.reshape(-1)[: loaded.size])
        assert tensor.notes == ("storage_region",)
    else:
        kept = expected[:1] if view == "repeated_row" else expected[:1, :1]
        np.testing.assert_array_equal(loaded, kept)
        assert tensor.notes == (f"expanded:{expected.shape[0]}x{expected.shape[1]}",)


def test_an_expanded_petabyte_costs_what_is_stored(read: Opened) -> None:
    made = tb.tensor("0", "float32", (1 << 24, 1 << 24), count=1, strides=(0, 0))
    content = tb.archive(made, {"0": float32s(NAN)})
    tracemalloc.start()
    try:
        tensor = only(read(content))
        stats = stats_of(tensor)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (stats.nan, stats.count) == (1, 1)
    assert tensor.notes == ("expanded:16777216x16777216",)
    assert peak < 8 << 20


def test_a_view_beyond_its_storage_is_unchecked(read: Opened) -> None:
    strided = tb.tensor("0", "float32", (2, 2), count=4, strides=(1 << 40, 1))
    records = read(tb.archive(strided, {"0": float32s(1, 2, 3, 4)}))
    assert only(records).unchecked == "unreadable"
    (fault,) = faults(records)
    assert isinstance(fault, TruncatedDumpError)
    assert fault.path == "dump.pt"


def test_what_is_there_of_a_short_storage_is_measured(read: Opened) -> None:
    records = read(tb.archive(tb.tensor("0", "float32", (8,)), {"0": float32s(1, NAN, 3)}))
    tensor = only(records)
    assert tensor.missing_bytes == 20
    assert (stats_of(tensor).nan, stats_of(tensor).count) == (1, 3)
    assert [type(fault) for fault in faults(records)] == [TruncatedDumpError]


def test_storages_that_many_tensors_share_are_read_so_often_only(
    read: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_views, "_FREE_BYTES", 0)
    made = [tb.tensor("0", "float32", (1 << 16,)) for _ in range(40)]
    records = read(tb.archive(tb.series(*made), {"0": bytes(1 << 18)}))
    (execution,) = executions(records)
    checked = [tensor for tensor in execution.tensors if tensor.unchecked is None]
    assert 10 <= len(checked) < 20
    assert len(faults(records)) == 40 - len(checked)


# --- names and roles -----------------------------------------------------------------------------


def summary(records: list[Record]) -> list[tuple[str, list[tuple[str, int, str | None]]]]:
    return [
        (execution.op_name, [(t.role, t.index, t.name) for t in execution.tensors])
        for execution in executions(records)
    ]


def one(key: str = "0") -> bytes:
    return tb.tensor(key, "float32", (1,))


ROLES: list[tuple[str, bytes, list[Any]]] = [
    ("act.pt", one(), [("act", [("output", 0, "")])]),
    ("nan_io.pt", tb.table(input=one(), output=one()),
     [("nan_io", [("input", 0, "input"), ("output", 0, "output")])]),
    ("nan_io.pt", tb.table(inputs=tb.series(one(), b"N", one()), args=tb.row(tb.real(1.5))),
     [("nan_io", [("input", 0, "inputs.0"), ("input", 2, "inputs.2"), ("input", 1, "args.0")])]),
    ("hook.pt", tb.table(grad_output=tb.row(one()), grad_input=tb.row(b"N", one())),
     [("hook.backward", [("input", 0, "grad_output.0"), ("output", 1, "grad_input.1")])]),
    ("nan_input.pt", tb.row(one(), one()),
     [("nan_input", [("input", 0, "0"), ("input", 1, "1")])]),
    ("debug_Softmax_out.pt", one(), [("debug_Softmax_out", [("output", 0, "")])]),
    ("nan_grads.pt", tb.ordered(("fc.weight", one()), ("fc.bias", one())),
     [("nan_grads.fc.weight", [("output", 0, "fc.weight")]),
      ("nan_grads.fc.bias", [("output", 0, "fc.bias")])]),
    ("acts.pt", tb.table(conv1=tb.table(input=one(), output=one()), fc=one()),
     [("acts.conv1", [("input", 0, "conv1.input"), ("output", 0, "conv1.output")]),
      ("acts.fc", [("output", 0, "fc")])]),
    ("acts.pt", tb.table_of([(tb.text("conv1.input.3"), one()), (tb.number(7), one())]),
     [("acts.conv1", [("input", 3, "conv1.input.3")]), ("acts.7", [("output", 0, "7")])]),
    ("steps.pt", tb.series(tb.table(input=one()), tb.table(input=one())),
     [("steps.0", [("input", 0, "0.input")]), ("steps.1", [("input", 0, "1.input")])]),
    ("settings.pt", tb.table(lr=tb.real(0.1), best=tb.real(INF), loss=tb.real(NAN), n=tb.number(3)),
     [("settings.loss", [("output", 0, "loss")])]),
]  # fmt: skip


@pytest.mark.parametrize(("file_name", "value", "expected"), ROLES)
def test_keys_and_file_names_give_the_roles(
    read: Opened, file_name: str, value: bytes, expected: list[Any]
) -> None:
    assert summary(read(tb.archive(value, {"0": float32s(1)}), file_name)) == expected


def test_a_number_among_the_arguments_is_a_tensor_of_no_dimensions(read: Opened) -> None:
    value = tb.table(args=tb.row(one(), tb.real(NAN), tb.number(2)), out=tb.real(-INF))
    (execution,) = executions(read(tb.archive(value, {"0": float32s(1)})))
    _, number, result = execution.tensors
    assert (number.role, number.index, number.shape) == ("input", 1, ())
    assert (stats_of(number).nan, stats_of(result).neginf) == (1, 1)
    assert np.isnan(number.load())


def test_a_tensor_under_two_keys_is_in_both_places(read: Opened) -> None:
    shared = one() + b"q\x01"
    value = tb.table_of([(tb.text("input"), shared), (tb.text("output"), b"h\x01")])
    (execution,) = executions(read(tb.archive(value, {"0": float32s(NAN)})))
    assert [tensor.role for tensor in execution.tensors] == ["input", "output"]


@pytest.mark.parametrize(
    ("file_name", "op_type", "op_name", "role", "index"),
    [
        ("Torch.exp.0.forward.output.0.pt", "Torch.exp", "Torch.exp.0.forward", "output", 0),
        ("Functional.linear.2.backward.input.1.pt", "Functional.linear",
         "Functional.linear.2.backward", "input", 1),
        ("Module.a.fc.Linear.forward.0.parameters.weight.pt", "Linear",
         "Module.a.fc.Linear.forward.0", "input", 0),
        ("Module.fc.Linear.parameters_grad.0.bias.pt", "Linear",
         "Module.fc.Linear.parameters_grad.0", "output", 0),
        ("scores.0.debug.x.1.pt", "debug", "scores.0.debug", "output", 0),
    ],
)  # fmt: skip
def test_tensors_of_msprobe_without_their_dump_json(
    read: Opened, file_name: str, op_type: str, op_name: str, role: str, index: int
) -> None:
    (execution,) = executions(read(tb.archive(one(), {"0": float32s(1)}), file_name))
    assert (execution.op_type, execution.op_name, execution.partial) == (op_type, op_name, True)
    assert execution.container == op_name.startswith("Module.a")
    assert [(t.role, t.index) for t in execution.tensors] == [(role, index)]


def test_tensors_that_a_tool_converted(read: Opened) -> None:
    name = "MatMul.net_fc_MatMul.24.2.1764417600003145.output.1.pt"
    (execution,) = executions(read(tb.archive(one(), {"0": float32s(1)}), name))
    assert (execution.op_type, execution.op_name) == ("MatMul", "net_fc_MatMul")
    assert (execution.task_id, execution.timestamp) == (24, 1764417600003145)
    assert (execution.form, execution.partial) == (FORM_CONVERTED, True)
    assert [(t.role, t.index) for t in execution.tensors] == [("output", 1)]


def test_step_and_rank_of_a_crash_file(read: Opened) -> None:
    content = tb.archive(tb.table(input=one(), output=one()), {"0": float32s(1)})
    (execution,) = executions(read(content, "crash_step_120_rank3.pt"))
    assert (execution.step, execution.rank, execution.form) == (120, 3, FORM_RAW)
    (plain,) = executions(read(content, "footstep_2.pt"))
    assert (plain.step, plain.rank) == (None, None)


# --- the file around it --------------------------------------------------------------------------


def test_the_archive_as_torch_writes_it_and_its_remains(read: Opened) -> None:
    value = tb.table(a=tb.tensor("0", "float32", (3,)), b=tb.tensor("1", "float32", (50,)))
    second = np.arange(50, dtype="<f4")
    second[1] = np.inf
    whole = tb.streamed_archive(value, {"0": float32s(1, NAN, 3), "1": second.tobytes()})
    assert [stats_of(e.tensors[0]).nonfinite for e in executions(read(whole))] == [1, 1]
    cut = whole[: whole.index(second.tobytes()) + 20]
    records = read(cut)
    first, other = (execution.tensors[0] for execution in executions(records))
    assert first.load().tolist()[::2] == [1.0, 3.0]
    assert (stats_of(other).posinf, stats_of(other).count) == (1, 5)
    assert other.missing_bytes == 180
    assert {type(fault) for fault in faults(records)} == {TruncatedDumpError}
    before = whole[: whole.index(float32s(1, NAN, 3)) + 12]
    first, other = (execution.tensors[0] for execution in executions(read(before)))
    assert (stats_of(first).nan, other.unchecked) == (1, "unreadable")


@pytest.mark.parametrize("order", ["little", "big"])
def test_files_from_before_the_archive(read: Opened, order: str) -> None:
    first = np.array([1, NAN], "<f4" if order == "little" else ">f4")
    second = np.array([[2, 3, INF]], "<f2" if order == "little" else ">f2")
    value = tb.table(input=tb.tensor("94", "float32", (2,)), out=tb.tensor("7", "float16", (1, 3)))
    storages = {"7": (3, second.tobytes()), "94": (2, first.tobytes())}
    records = read(tb.legacy(value, storages, little=order == "little"))
    (execution,) = executions(records)
    assert [stats_of(t).nonfinite for t in execution.tensors] == [1, 1]
    assert execution.tensors[1].load().tolist() == [[2.0, 3.0, INF]]
    cut = read(tb.legacy(value, storages, little=order == "little")[:-4])
    (execution,) = executions(cut)
    assert execution.tensors[0].missing_bytes == 4
    assert len(faults(cut)) == 1


def test_an_archive_packed_again(read: Opened) -> None:
    expected = np.ones((300, 1000), "<f4")
    expected[299, 999] = np.inf
    made = tb.tensor("0", "float32", (300, 1000))
    content = tb.archive(made, {"0": expected.tobytes()}, compression=zipfile.ZIP_DEFLATED)
    tensor = only(read(content))
    stats = stats_of(tensor)
    assert (stats.posinf, stats.first_bad) == (1, (299, 999))
    np.testing.assert_array_equal(tensor.load(), expected)


def test_recognised_by_content_and_only_then_by_name(tmp_path: Path) -> None:
    reader = TorchReader()

    def sniff(content: bytes, name: str) -> Match:
        path = tmp_path / name
        path.write_bytes(content)
        return reader.sniff(content[:4096], file_of(path))

    whole = tb.archive(one(), {"0": float32s(1)})
    assert sniff(whole, "no_suffix") is Match.CONTENT
    assert sniff(tb.legacy(one(), {}), "old.bin") is Match.CONTENT
    assert sniff(b"", "empty.pt") is Match.NAME
    assert sniff(b"anything", "x.PTH") is Match.NAME
    assert sniff(b"anything", "x.bin") is Match.NONE
    npz = tmp_path / "arrays.npz"
    np.savez(npz, a=np.zeros(3))
    assert sniff(npz.read_bytes(), "arrays.zip") is Match.NONE
    assert sniff(npz.read_bytes(), "arrays.pt") is Match.NAME


def survives(content: bytes) -> bool:
    """Read, measure and load whatever there is; say whether a fault was told."""
    return exhaust(TorchReader(), content, "dump.pt") > 0


@pytest.mark.parametrize("kind", ["archive", "streamed", "legacy"])
def test_cut_off_at_every_byte(kind: str) -> None:
    value = tb.table(input=tb.tensor("0", "float32", (3,)), output=tb.tensor("1", "float16", (2,)))
    data = {"0": float32s(1, NAN, 2), "1": np.array([1, 2], "<f2").tobytes()}
    content = {
        "archive": lambda: tb.archive(value, data),
        "streamed": lambda: tb.streamed_archive(value, data),
        "legacy": lambda: tb.legacy(value, {"0": (3, data["0"]), "1": (2, data["1"])}),
    }[kind]()
    assert not survives(content)
    for length in range(len(content)):
        assert survives(content[:length]), f"nothing was said of {length} bytes"


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@given(seed=st.integers(0, 1 << 32))
def test_damaged_bytes_give_read_errors_only(compression: int, seed: int) -> None:
    value = tb.table(input=tb.series(one(), tb.real(1.0)), output=tb.tensor("1", "float16", (2,)))
    content = tb.archive(value, {"0": float32s(1), "1": bytes(4)}, compression=compression)
    survives(mutated(content, seed))


@given(st.lists(st.sampled_from([
    b"(", b"0", b"1", b"2", b".", b"N", b"\x88", b"K\x05", b"]", b"}", b")", b"t", b"\x85", b"\x86",
    b"a", b"e", b"s", b"u", b"R", b"b", b"Q", b"q\x01", b"h\x01", b"\x94", b"\x81", b"\x93", b"l",
    b"X\x01\x00\x00\x00k", b"\x8f", b"\x90", b"\x91",
    tb.name("collections", "OrderedDict"), tb.name("torch", "Size"), tb.name("torch", "float16"),
    tb.storage("0", "FloatStorage", 1), one(), tb.real(1.0),
]), max_size=40))  # fmt: skip
def test_any_order_of_operations_gives_read_errors_only(operations: list[bytes]) -> None:
    raw = b"\x80\x02" + b"".join(operations) + b"."
    content = tb.archive(b"", {"0": float32s(1)}, raw_pickle=raw)
    survives(content)


# --- hostile pickles -----------------------------------------------------------------------------


def refused(read: Opened, raw: bytes) -> str:
    """Return the message of the error that a pickle gives."""
    with pytest.raises(DumpReadError) as caught:
        read(tb.archive(b"", {"0": float32s(1)}, raw_pickle=raw))
    return str(caught.value)


HOSTILE = [
    ("posix", "system"),
    ("os", "system"),
    ("subprocess", "Popen"),
    ("builtins", "eval"),
    ("__builtin__", "getattr"),
    ("torch", "load"),
    ("torch.serialization", "load"),
    ("torch.hub", "load"),
    ("torch._utils", "_rebuild_wrapper_subclass"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("torch_npu_evil", "_rebuild_npu_tensor"),
    ("collections", "OrderedDict.fromkeys"),
    ("torch.return_types.evil", "max"),
]


@pytest.mark.parametrize(("module", "function"), HOSTILE)
def test_nothing_is_called_and_the_name_is_told(
    read: Opened, tmp_path: Path, module: str, function: str
) -> None:
    witness = tmp_path / "called"
    raw = tb.pickled(tb.call(tb.name(module, function), tb.text(f"touch {witness}")))
    assert f"{module}.{function}" in refused(read, raw)
    assert not witness.exists()


def test_protocol_4_names_are_no_way_around(read: Opened, tmp_path: Path) -> None:
    witness = tmp_path / "called"
    command = tb.text(f"touch {witness}")
    raw = tb.pickled(tb.text("os") + tb.text("system") + b"\x93" + command + b"\x85R", 4)
    assert "os.system" in refused(read, raw)
    assert not witness.exists()


@pytest.mark.parametrize(
    "operations",
    [
        b"(S'touch x'\nios\nsystem\n",  # INST
        b"(cos\nsystem\nS'x'\no",  # OBJ
        b"\x82\x01",  # EXT1
        b"P0\n",  # PERSID
        b"\x97",  # NEXT_BUFFER
        b"]" + tb.table(x=b"N") + b"b",  # a state for a list
        tb.name("torch", "float16") + b")R",  # calls a type
        tb.name("torch", "Tensor") + b")\x81",  # makes an instance
        tb.call(tb.name("torch", "Size")),  # without arguments
        tb.row(tb.text("storage"), tb.text("x"), tb.text("0"), tb.text("cpu"), tb.number(1)) + b"Q",
        tb.text("key") + b"Q",
        b"N" * 3 + b"s",
        b"t",
        b"h\x05",
    ],
)
def test_operations_that_tensors_do_not_need_are_refused(read: Opened, operations: bytes) -> None:
    refused(read, b"\x80\x02" + operations + b".")


@pytest.mark.parametrize(
    "operations",
    [
        b"N" + b"r\xff\xff\xff\xff",  # a memo of four thousand million entries
        b"\x8e" + struct.pack("<Q", 1 << 62),  # BINBYTES8
        b"\x8d" + struct.pack("<Q", (1 << 64) - 1),  # BINUNICODE8
        b"\x96" + struct.pack("<Q", 1 << 40),  # BYTEARRAY8
        b"\x95" + struct.pack("<Q", 1 << 62),  # FRAME
        b"\x8b\xff\xff\xff\x7f",  # LONG4
        b"B\xff\xff\xff\xff",  # BINBYTES
    ],
)
def test_announced_lengths_allocate_nothing(operations: bytes) -> None:
    content = tb.archive(b"", raw_pickle=b"\x80\x04" + operations + b".")
    tracemalloc.start()
    try:
        survives(content)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20


def test_containers_that_hold_each_other_are_walked_once(read: Opened) -> None:
    laughs = b"](K\x01e" + b"q\x00"
    for level in range(60):
        twice = b"h" + bytes([level])
        laughs += b"0](" + twice + twice + b"eq" + bytes([level + 1])
    assert read(tb.archive(laughs)) == []
    nested = tb.series(one()) + b"q\x00" + b"h\x00a"  # a list that holds itself
    assert len(executions(read(tb.archive(nested, {"0": float32s(1)})))) == 1


@pytest.mark.parametrize("wrap", [b"\x85", b"q\x010](h\x01e"])
def test_deep_nesting_ends_in_an_error(read: Opened, wrap: bytes) -> None:
    assert "nest" in refused(read, b"\x80\x02" + one() + wrap * 100_000 + b".")


def test_keys_are_never_hashed(read: Opened) -> None:
    """Integers of one hash would make a real dictionary take a day."""
    modulus = (1 << 61) - 1
    pairs = [(tb.number(i * modulus), b"N") for i in range(1, 20_000)]
    assert read(tb.archive(tb.table_of(pairs))) == []
    unhashable = tb.table_of([(tb.series(), one())])
    assert len(executions(read(tb.archive(unhashable, {"0": float32s(1)})))) == 1


def test_the_number_of_operations_is_bounded(read: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_unpickle, "MAX_OPERATIONS", 10_000)
    assert "10,000 operations" in refused(read, b"\x80\x02" + b"N" * 20_000 + b".")


def test_impossible_shapes_are_refused(read: Opened) -> None:
    for shape, strides in [((1 << 40, 1 << 40), (0, 0)), ((2,) * 65, (1,) * 65), ((2,), (1, 1))]:
        made = tb.tensor("0", "float32", shape, count=1, strides=strides)
        assert "sizes" in refused(read, tb.pickled(made))
    negative = tb.tensor("0", "float32", (2,), count=2, strides=(-1,))
    assert "strides" in refused(read, tb.pickled(negative))


def test_a_zip_bomb_is_a_read_error(read: Opened) -> None:
    zeros = bytes(4 << 20)
    content = bytearray(
        tb.archive(
            tb.tensor("0", "uint8", (4 << 20,)), {"0": zeros}, compression=zipfile.ZIP_DEFLATED
        )
    )
    place = content.rindex(b"archive/data/0") - 46
    assert content[place : place + 4] == b"PK\1\2"
    struct.pack_into("<I", content, place + 24, (1 << 32) - 2)
    with pytest.raises(CorruptDumpError, match="cannot be"):
        read(bytes(content))


def test_members_that_lie_about_themselves(read: Opened) -> None:
    content = bytearray(tb.archive(one(), {"0": float32s(1)}))
    place = content.rindex(b"archive/data/0") - 46
    moved = bytearray(content)
    struct.pack_into("<I", moved, place + 42, 7)
    assert only(read(bytes(moved))).unchecked == "unreadable"
    encrypted = bytearray(content)
    struct.pack_into("<H", encrypted, place + 8, 1)
    with pytest.raises(CorruptDumpError, match="encrypted"):
        read(bytes(encrypted))
    pickle_damaged = bytearray(content)
    pickle_damaged[content.index(b"_rebuild_tensor_v2") + 3] ^= 1
    with pytest.raises(CorruptDumpError, match="CRC"):
        read(bytes(pickle_damaged))


def test_a_storage_that_is_not_there(read: Opened) -> None:
    records = read(tb.archive(tb.series(one("0"), one("../../etc/passwd")), {"0": float32s(1)}))
    (execution,) = executions(records)
    assert [tensor.unchecked for tensor in execution.tensors] == [None, "unreadable"]
    assert len(faults(records)) == 1


def test_other_archives_and_other_files_say_what_to_do(read: Opened, tmp_path: Path) -> None:
    packed = tmp_path / "x.zip"
    with zipfile.ZipFile(packed, "w") as out:
        out.writestr("readme.txt", "hello")
    with pytest.raises(CorruptDumpError, match=r"data\.pkl"):
        read(packed.read_bytes())
    with pytest.raises(CorruptDumpError, match="save the tensors again"):
        read(b"\x1f\x8b\x08 not torch")


@pytest.mark.corpus
def test_every_tensor_of_the_corpus_has_the_extremes_that_msprobe_wrote(corpus: Path) -> None:
    checked = 0
    for listing in sorted(corpus.glob("msprobe/cnn_log0__L1_tensor/dump/*/*/dump.json")):
        leaves: list[dict[str, Any]] = []

        def keep(item: dict[str, Any], leaves: list[dict[str, Any]] = leaves) -> dict[str, Any]:
            if "data_name" in item:
                leaves.append(item)
            return item

        json.loads(listing.read_text(), object_hook=keep)
        for leaf in leaves:
            path = listing.parent / "dump_tensor_data" / leaf["data_name"]
            with LocalSource(file_of(path), ReadBuffer()) as source:
                tensor = only(list(TorchReader().read(source)))
                array = np.asarray(tensor.load(), np.float64)
            assert list(tensor.shape) == leaf["shape"]
            assert f"torch.{tensor.dtype}" == leaf["dtype"]
            np.testing.assert_allclose(array.max(), leaf["Max"], rtol=1e-6)
            np.testing.assert_allclose(array.min(), leaf["Min"], rtol=1e-6)
            checked += 1
    assert checked > 100
