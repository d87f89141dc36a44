"""MindSpore: statistic.csv with every set of columns, execution order, the corpus."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dumpscope.dtypes import dtype_named
from dumpscope.errors import CorruptDumpError, DumpReadError, TruncatedDumpError
from dumpscope.model import FORM_STATISTICS, DumpFile, GraphNode, Match, TensorStats
from dumpscope.readers.execution_order import ExecutionOrderReader
from dumpscope.readers.mindspore_csv import MindSporeCsvReader
from dumpscope.readers.npy import NpyReader
from dumpscope.readers.protocol import Execution, TensorRecord
from dumpscope.readers.written_stats import WrittenValues, judge_values, read_value
from dumpscope.source import LocalSource, ReadBuffer
from dumpscope.stats.measuring import measure
from dumpscope.testing.damage import mutated
from memory_source import MemorySource, read_all
from reader_fuzz import exhaust

READER = MindSporeCsvReader()
FIXED = "Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape"
OLD = (
    f"{FIXED},Max Value,Min Value,Avg Value,Count,Negative Zero Count,Positive Zero Count,"
    "NaN Count,Negative Inf Count,Positive Inf Count,Zero Count"
)
KBK = f"{FIXED},Max Value,Min Value,Avg Value,L2Norm Value,Count"
SHORT = f"{FIXED},Max Value,Min Value,L2Norm Value"


def row(
    values: str,
    *,
    name: str = "Default_Exp-op0",
    io: str = "output",
    slot: int = 0,
    dtype: str = "float32",
    shape: str = '"(2, 3)"',
    time: int = 1700000000000001,
) -> str:
    return f"Exp,{name},3,4294967295,{time},{io},{slot},24,{dtype},{shape},{values}"


def read_csv(*lines: str, end: str = "\n") -> tuple[list[Execution], list[DumpReadError]]:
    content = ("\n".join(lines) + end).encode()
    records = read_all(READER, MemorySource(content, "statistic.csv"))
    executions = [record for record in records if isinstance(record, Execution)]
    return executions, [record for record in records if isinstance(record, DumpReadError)]


def read_row(header: str, values: str, **more: Any) -> TensorRecord:
    executions, faults = read_csv(header, row(values, **more))
    assert not faults
    ((tensor,),) = ([*execution.tensors] for execution in executions)
    return tensor


def stats_of(tensor: TensorRecord) -> TensorStats:
    assert tensor.unchecked is None
    assert tensor.stats is not None
    return tensor.stats


# --- statistics -----------------------------------------------------------------------------------


def test_the_old_columns_are_read_by_name() -> None:
    tensor = read_row(OLD, "7.5,-3,1.25,6,2,1,1,0,1,1")
    stats = stats_of(tensor)
    assert (tensor.role, tensor.index, tensor.dtype, tensor.shape) == (
        "output",
        0,
        "float32",
        (2, 3),
    )
    assert (stats.count, stats.nan, stats.neginf, stats.posinf, stats.zero) == (6, 1, 0, 1, 1)
    assert (stats.max, stats.min, stats.mean) == (7.5, -3, 1.25)
    assert tensor.notes == ()


def test_negative_zero_count_counts_negative_values() -> None:
    # Two negative and one positive value: no zero is among them.
    assert stats_of(read_row(OLD, "7.5,-3,1.25,3,2,1,0,0,0,0", shape='"(3)"')).zero == 0


def test_null_means_that_no_element_is_finite() -> None:
    stats = stats_of(read_row(OLD, "null,null,null,6,0,0,4,1,1,0"))
    assert (stats.nan, stats.neginf, stats.posinf, stats.nonfinite) == (4, 1, 1, 6)
    assert (stats.max, stats.min, stats.mean) == (None, None, None)
    stats = stats_of(read_row(KBK, "null,null,null,null,6"))
    assert stats.nonfinite == 6


def test_null_beside_counts_of_nothing_proves_nothing() -> None:
    assert read_row(OLD, "null,null,null,6,0,0,0,0,0,0").unchecked == "statistics_incomplete"


@pytest.mark.parametrize("spelling", ["NaN Count", "Nan Count", "nan count"])
def test_the_spellings_of_the_nan_column(spelling: str) -> None:
    header = f"{FIXED},{spelling},Positive Inf Count,Negative Inf Count,SHA1"
    stats = stats_of(read_row(header, "2,0,0,abc"))
    assert (stats.nan, stats.count) == (2, 6)


def test_a_finite_norm_proves_that_everything_is_finite() -> None:
    tensor = read_row(KBK, "7.5,-3,1.25,9.5,6")
    stats = stats_of(tensor)
    assert (stats.nonfinite, stats.l2, tensor.notes) == (0, 9.5, ())


@pytest.mark.parametrize(
    ("values", "counts"),
    [
        ("inf,0,inf,inf,6", (0, 1, 0)),
        ("2,-inf,-inf,inf,6", (0, 0, 1)),
        ("nan,nan,nan,nan,6", (1, 0, 0)),
        ("2,1,1.5,nan,6", (1, 0, 0)),
        ("-nan,1,1.5,9,6", (1, 0, 0)),
        ("inf,-1,1.5,9,6", (0, 1, 0)),
        ("2,1,inf,inf,6", (0, 1, 0)),
    ],
)
def test_values_without_counts_give_lower_bounds(values: str, counts: tuple[int, ...]) -> None:
    tensor = read_row(KBK, values)
    stats = stats_of(tensor)
    assert (stats.nan, stats.posinf, stats.neginf) == counts
    assert ("counts_are_lower_bounds" in tensor.notes) == any(counts)


@pytest.mark.parametrize(
    ("header", "values"),
    [
        (SHORT, "2,1,"),
        (SHORT, "3e25,1,inf"),
        (f"{FIXED},Avg Value", "1.5"),
        (f"{FIXED},NaN Count,Max Value,Min Value", "0,2,1"),
    ],
)
def test_what_proves_nothing_is_unchecked(header: str, values: str) -> None:
    tensor = read_row(header, values)
    assert tensor.stats is None
    assert tensor.unchecked == "statistics_incomplete"


@pytest.mark.parametrize("header", [f"{FIXED},MD5", f"{FIXED},Max Value,MD5"])
def test_a_checksum_alone_is_unchecked(header: str) -> None:
    values = "d41d8cd98f00b204" if header.count(",") == 10 else ",d41d8cd98f00b204"
    assert read_row(header, values).unchecked == "statistics_blank"


def test_integers_are_finite_whatever_is_missing() -> None:
    assert stats_of(read_row(SHORT, "5,-5,", dtype="int32")).nonfinite == 0


@pytest.mark.parametrize(
    ("dtype", "largest"),
    [("float16", "65504"), ("bfloat16", "3.38953e+38"), ("float32", "3.40282e+38")],
)
def test_the_limit_of_a_type_is_known_as_far_as_printed(dtype: str, largest: str) -> None:
    tensor = read_row(OLD, f"{largest},-{largest},0,6,3,3,0,0,0,0", dtype=dtype)
    stats = stats_of(tensor)
    assert (stats.saturated, stats.saturated_negative) == (2, 1)
    assert "counts_are_lower_bounds" in tensor.notes
    assert stats_of(read_row(OLD, "65472,0,0,6,0,6,0,0,0,0", dtype="float16")).saturated == 0


@pytest.mark.parametrize(
    ("text", "shape"), [('"()"', ()), ('"(2,3)"', (2, 3)), ('"(4,)"', (4,)), ('"(0, 3)"', (0, 3))]
)
def test_shapes(text: str, shape: tuple[int, ...]) -> None:
    assert read_row(OLD, "1,1,1,1,0,1,0,0,0,0", shape=text).shape == shape


def test_the_rows_of_one_operator_are_one_execution() -> None:
    executions, faults = read_csv(
        SHORT,
        row("1,1,1", io="input", slot=0, time=1700000000000001),
        row("1,1,1", io="input", slot=1, time=1700000000000002),
        row("1,1,1", io="output", slot=0, time=1700000000000003),
        row("1,1,1", io="input", slot=0, time=1700000000000004),
        row("1,1,1", name="Default_Log-op0", time=1700000000000005),
    )
    assert not faults
    assert [len(op.tensors) for op in executions] == [3, 1, 1]
    first = executions[0]
    assert (first.op_type, first.op_name, first.task_id, first.stream_id) == (
        "Exp",
        "Default_Exp-op0",
        3,
        None,
    )
    assert [op.timestamp for op in executions] == [
        1700000000000001,
        1700000000000004,
        1700000000000005,
    ]
    assert [op.order for op in executions] == [0, 1, 2]
    assert all((op.form, op.partial) == (FORM_STATISTICS, True) for op in executions)


def test_a_comma_too_many_and_brackets_do_no_harm() -> None:
    stats = stats_of(read_row(SHORT, "[3],[1],[4.5],"))
    assert (stats.max, stats.min, stats.l2) == (3, 1, 4.5)


def test_a_byte_order_mark_and_windows_line_ends() -> None:
    content = b"\xef\xbb\xbf" + "\r\n".join([OLD, row("1,1,1,6,0,6,0,0,0,0"), ""]).encode()
    source = MemorySource(content, "statistic.csv")
    assert READER.sniff(source.head, source.file) is Match.CONTENT
    (execution,) = read_all(READER, source)
    assert isinstance(execution, Execution)
    assert stats_of(execution.tensors[0]).zero == 0


def test_a_cut_off_last_line_is_damage_after_what_was_complete() -> None:
    executions, faults = read_csv(
        OLD, row("1,1,1,6,0,6,0,0,0,0"), "Exp,Default_Exp-op0,3,0,17000", end=""
    )
    assert len(executions) == 1
    (fault,) = faults
    assert isinstance(fault, TruncatedDumpError)
    assert fault.offset == len(OLD) + len(row("1,1,1,6,0,6,0,0,0,0")) + 2


def test_a_last_line_without_its_end_counts_when_it_is_whole() -> None:
    executions, faults = read_csv(OLD, row("1,1,1,6,0,6,0,0,0,0"), end="")
    assert len(executions) == 1
    assert not faults


@pytest.mark.parametrize(
    "values",
    [
        "what,1,1,6,0,6,0,0,0,0",
        "1,1,1,-6,0,6,0,0,0,0",
        "1,1,1,6,0,6,nan,0,0,0",
        "9" * 5000 + ",1,1,6,0,6,0,0,0,0",
    ],
)
def test_a_damaged_row_does_not_hide_the_others(values: str) -> None:
    executions, faults = read_csv(OLD, row(values, slot=1), row("1,1,1,6,0,6,0,0,0,0"))
    assert [t.index for t in executions[0].tensors] == [0]
    assert [type(fault) for fault in faults] == [CorruptDumpError]


def test_a_file_of_nothing_but_damage_is_given_up() -> None:
    executions, faults = read_csv(OLD, *["x,y,z"] * 1000)
    assert not executions
    assert len(faults) == 51


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"", TruncatedDumpError),
        (b"\n", TruncatedDumpError),
        (b"Op Type,Op Name,Task ID\n", CorruptDumpError),
        (b"\0" * 4000, CorruptDumpError),
    ],
)
def test_damaged_headers(content: bytes, kind: type[DumpReadError]) -> None:
    (fault,) = read_all(READER, MemorySource(content, "statistic.csv"))
    assert isinstance(fault, kind)


def test_a_line_without_an_end_is_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "statistic.csv"
    path.write_bytes(
        OLD.encode() + b"\n" + b"x" * (3 << 20) + b"\n" + row("1,1,1,6,0,6,0,0,0,0").encode()
    )
    with LocalSource(_file(path), ReadBuffer()) as source:
        records = list(READER.read(source))
    assert isinstance(records[0], CorruptDumpError)
    assert isinstance(records[1], Execution)


@given(st.integers(0, 2**32))
def test_damage_never_raises_anything_else(seed: int) -> None:
    content = "\n".join([OLD, row("1,1,1,6,0,6,0,0,0,0"), row("null,1,nan,6,0,6,0,0,0,0", slot=1)])
    exhaust(READER, mutated(content.encode(), seed), "statistic.csv")


# --- what statistics prove ------------------------------------------------------------------------


@given(st.lists(st.floats(width=32), min_size=1, max_size=20))
def test_no_finding_is_made_up_and_none_is_lost(numbers: list[float]) -> None:
    """Statistics of a writer that passes over NaN and Inf in its extremes, and counts nothing."""
    values = np.array(numbers, np.float64)
    finite = values[np.isfinite(values)]
    with np.errstate(all="ignore"):
        norm = float(np.sqrt(np.sum(values * values)))
    written = WrittenValues(
        max=float(finite.max()) if finite.size else None,
        min=float(finite.min()) if finite.size else None,
        l2=norm,
        all_nonfinite=not finite.size,
    )
    judged = judge_values(written, dtype_named("float32"), (len(numbers),))
    if judged.stats is not None:
        assert (judged.stats.nonfinite > 0) == (finite.size < values.size)
    else:
        assert judged.unchecked == "statistics_incomplete"
        assert not np.isfinite(norm)


def test_values_as_writers_print_them() -> None:
    assert read_value("1e+05") == 100000.0
    assert read_value("True") == 1
    assert read_value("-inf") == -np.inf
    assert read_value("N/A") is None
    assert read_value("9223372036854775808") == 9.223372036854775808e18
    for text in ("1.2.3", "0x10", "inf inity", "١"):
        with pytest.raises(ValueError, match="expected a value"):
            read_value(text)


# --- execution order ------------------------------------------------------------------------------


def test_execution_order_gives_the_operators_in_order() -> None:
    reader = ExecutionOrderReader()
    content = b"NodeExecutionOrder-FullNameWithScope\nDefault/net/MatMul-op0\nDefault/net/Exp-op0\n"
    source = MemorySource(content, "ms_execution_order_graph_0.csv")
    assert reader.sniff(source.head, source.file) is Match.CONTENT
    assert read_all(reader, source) == [
        GraphNode("Default/net/MatMul-op0", "", order=0),
        GraphNode("Default/net/Exp-op0", "", order=1),
    ]


def test_the_global_order_names_no_operators() -> None:
    reader = ExecutionOrderReader()
    source = MemorySource(b"0\n1\n", "ms_global_execution_order_graph_0.csv")
    assert reader.sniff(source.head, source.file) is Match.NAME
    assert read_all(reader, source) == []
    other = MemorySource(b"0\n1\n", "order.csv")
    assert reader.sniff(other.head, other.file) is Match.NONE


@given(st.binary(max_size=300))
def test_any_bytes_are_read_as_some_order(content: bytes) -> None:
    exhaust(ExecutionOrderReader(), content, "ms_execution_order_graph_0.csv")


# --- the corpus -----------------------------------------------------------------------------------


def _file(path: Path) -> DumpFile:
    status = path.stat()
    return DumpFile(str(path), path.name, path.name, status.st_size, 0, 0, 0)


def _executions(folder: Path) -> Iterator[Execution]:
    buffer = ReadBuffer()
    for path in sorted(folder.iterdir()):
        reader = NpyReader() if path.suffix == ".npy" else READER
        with LocalSource(_file(path), buffer) as source:
            for record in reader.read(source):
                assert isinstance(record, Execution)
                yield record


def _nonfinite(tensor: TensorRecord) -> int:
    if tensor.stats is not None:
        return tensor.stats.nonfinite
    assert tensor.data is not None
    return measure(tensor.data, dtype_named(tensor.dtype), tensor.geometry).stats.nonfinite


@pytest.mark.parametrize(
    "case", ["clean__tensor", "exp_overflow__tensor", "exp_overflow__statistic_synth"]
)
def test_the_corpus_gives_its_ground_truth(case: str, corpus: Path) -> None:
    root = corpus / "mindspore" / case
    truth = json.loads((root / "ground_truth.json").read_text())
    for observed in truth["observed"]:
        bad = []
        tensors = 0
        for op in _executions(root / observed["dir"]):
            for tensor in op.tensors:
                tensors += 1
                assert tensor.unchecked is None
                if count := _nonfinite(tensor):
                    bad.append((op.timestamp, op.op_type, op.op_name, tensor.role, count))
        assert tensors == observed["files"]
        assert len(bad) == observed["files_nonfinite"]
        assert sum(entry[-1] for entry in bad) == observed["nonfinite_elements"]
        if bad and case.endswith("tensor"):
            op_type, op_name, role, _ = truth["first_nonfinite"]
            assert min(bad)[1:4] == (op_type, op_name, role)
