from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import STATS_HEADER, dump_file, stats_csv
from dumpscope.errors import CorruptDumpError, DumpReadError, TruncatedDumpError
from dumpscope.model import FORM_STATISTICS, Match, TensorStats
from dumpscope.readers.adump import AdumpReader
from dumpscope.readers.protocol import Execution, TensorRecord
from dumpscope.readers.stats_csv import StatsCsvReader
from memory_source import MemorySource, read_all, read_op

READER = StatsCsvReader()
NAME = "BatchMatMulV2.net_layers_1_attn_BatchMatMulV2-op0.24.2.1764417600001540.csv"
FIXED = "Input/Output,Index,Data Size,Data Type,Format,Shape"
HEADER_COUNT_FIRST = f"{FIXED},Count,Max Value,Min Value,Avg Value,l2norm"


def read(*rows: str, header: str = STATS_HEADER) -> list[TensorRecord]:
    """The rows of an undamaged file."""
    execution, errors = read_op(READER, MemorySource(stats_csv(*rows, header=header), NAME))
    assert errors == []
    return execution.tensors


def one(row: str, header: str = STATS_HEADER) -> TensorRecord:
    (tensor,) = read(row, header=header)
    return tensor


def stats_of(row: str, header: str = STATS_HEADER) -> TensorStats:
    tensor = one(row, header)
    assert tensor.unchecked is None
    assert tensor.stats is not None
    return tensor.stats


def test_rows_of_the_default_header() -> None:
    source = MemorySource(
        stats_csv(
            "Input,0,1536,DT_FLOAT16,ND,2x12x32,3.25586,-3.3418,-4.51505e-06,768,0,0,0",
            "Input,1,96,DT_INT64,ND,12,63,0,31.2083,12,0,0,0",
            "Output,0,3072,DT_FLOAT,FRACTAL_NZ,2x12x32,inf,-1,nan,768,3,0,513",
        ),
        NAME,
    )
    execution, errors = read_op(READER, source)
    assert errors == []
    assert execution.op_type == "BatchMatMulV2"
    assert execution.op_name == "net_layers_1_attn_BatchMatMulV2-op0"
    assert (execution.task_id, execution.stream_id) == (24, 2)
    assert execution.timestamp == 1764417600001540
    assert execution.form == FORM_STATISTICS
    assert execution.partial
    first, second, third = execution.tensors
    assert (first.role, first.index, first.dtype, first.layout, first.shape) == (
        "input",
        0,
        "float16",
        "ND",
        (2, 12, 32),
    )
    assert first.size_bytes == 1536
    assert first.data is None
    assert first.stats == TensorStats(
        count=768, near_limit=None, min=-3.3418, max=3.25586, mean=-4.51505e-06
    )
    assert first.notes == ()
    assert second.stats is not None
    assert (second.dtype, second.stats.max, second.stats.min) == ("int64", 63, 0)
    assert isinstance(second.stats.max, int)
    assert third.stats is not None
    assert (third.role, third.dtype) == ("output", "float32")
    assert (third.stats.nan, third.stats.posinf, third.stats.neginf) == (3, 513, 0)
    assert (third.stats.max, third.stats.min, third.stats.mean) == (None, -1, None)
    assert third.notes == ("padding_included",)


def test_nan_hidden_from_max_and_min_is_counted() -> None:
    stats = stats_of("Output,0,8,DT_FLOAT16,ND,4,1,0,nan,4,1,0,0")
    assert stats.nan == 1
    assert stats.nonfinite == 1


def test_every_value_nan() -> None:
    stats = stats_of("Output,0,1536,DT_FLOAT16,ND,2x12x32,-nan,-nan,-nan,768,768,0,0")
    assert (stats.nan, stats.min, stats.max) == (768, None, None)


def test_columns_are_found_by_name() -> None:
    header = f"{FIXED},Positive Inf Count,Nan Count,Count,Negative Inf Count,Min Value,Max Value"
    stats = stats_of("Output,0,8,DT_FLOAT,ND,2,5,6,20,7,-1,2", header)
    assert (stats.posinf, stats.nan, stats.count, stats.neginf) == (5, 6, 20, 7)
    assert (stats.min, stats.max) == (-1, 2)


def test_count_may_stand_behind_the_shape() -> None:
    stats = stats_of("Output,0,8,DT_FLOAT,ND,2,2,0.5,-0.5,0,0.7071", HEADER_COUNT_FIRST)
    assert (stats.count, stats.max, stats.min, stats.mean, stats.l2) == (2, 0.5, -0.5, 0, 0.7071)


def test_row_without_values_is_one_cell_short() -> None:
    tensor = one("Output,0,8,DT_BF16,ND,4,NA,NA,NA,NA", HEADER_COUNT_FIRST)
    assert tensor.unchecked == "statistics_blank"
    assert tensor.stats is None
    assert tensor.dtype == "bfloat16"
    assert tensor.shape == (4,)


@pytest.mark.parametrize(
    "row",
    [
        "Output,0,8,DT_BF16,ND,4,,,,,,,",
        "Output,0,8,DT_BF16,ND,4,NA,NA,NA,NA,NA,NA,NA",
        "Output,0,8,-,ND,4,,,,,,,",
        "Output,0,8,UNKNOW,ND,4,NA,NA,NA,4,NA,NA,NA",
        "Output,0,8,DT_FLOAT8_E5M2,ND,4,-,-,-,-,-,-,-",
        "Output,0,8,DT_FLOAT,ND,4",
    ],
)
def test_blank_values_are_unchecked(row: str) -> None:
    tensor = one(row)
    assert tensor.unchecked == "statistics_blank"
    assert tensor.stats is None


def test_header_without_values_is_unchecked() -> None:
    assert one("Output,0,8,DT_FLOAT,ND,2", FIXED).unchecked == "statistics_missing"
    assert one("Output,0,8,DT_FLOAT,ND,2,2", f"{FIXED},Count").unchecked == "statistics_missing"


def test_type_that_is_not_known() -> None:
    assert one("Output,0,8,UNKNOW,ND,4,NA,NA,NA,4,NA,NA,NA").dtype == "undefined"


@pytest.mark.parametrize("label", ["UNKNOW", "-"])
def test_values_of_a_type_that_its_writer_did_not_know_are_not_clean(label: str) -> None:
    tensor = one(f"Output,0,8,{label},ND,4,0,0,0,4,0,0,0")
    assert (tensor.stats, tensor.unchecked) == (None, "undefined_dtype")
    assert stats_of(f"Output,0,8,{label},ND,4,0,0,0,4,2,0,0").nan == 2


@pytest.mark.parametrize(
    ("extremes", "expected"),
    [
        ("inf,1", (0, 1, 0)),
        ("1,-inf", (0, 0, 1)),
        ("inf,-inf", (0, 1, 1)),
        ("nan,nan", (1, 0, 0)),
        ("nan,-inf", (1, 0, 1)),
    ],
)
def test_extremes_outweigh_counts_of_zero(extremes: str, expected: tuple[int, int, int]) -> None:
    tensor = one(f"Output,0,8,DT_FLOAT16,ND,4,{extremes},nan,4,0,0,0")
    assert tensor.stats is not None
    assert (tensor.stats.nan, tensor.stats.posinf, tensor.stats.neginf) == expected
    assert tensor.notes == ("counts_are_lower_bounds",)


def test_extremes_that_nothing_was_put_into_prove_nothing() -> None:
    # A writer begins with -Inf and Inf and passes over NaN: of NaN alone, or of nothing, they stay.
    stats = stats_of("Output,0,8,DT_FLOAT16,ND,4,-inf,inf,nan,4,4,0,0")
    assert (stats.nan, stats.posinf, stats.neginf) == (4, 0, 0)
    assert stats_of("Output,0,8,DT_FLOAT16,ND,-,-inf,inf,0,0,0,0,0").nonfinite == 0


@pytest.mark.parametrize("columns", ["Max Value,Min Value", "Max Value", "Positive Inf Count"])
def test_what_does_not_prove_that_there_is_no_nan_is_incomplete(columns: str) -> None:
    cells = "0,0" if "," in columns else "0"
    tensor = one(f"Output,0,8,DT_FLOAT16,ND,4,{cells}", f"{FIXED},{columns}")
    assert tensor.unchecked == "statistics_incomplete"
    assert tensor.stats is None


@pytest.mark.parametrize("columns", ["Avg Value", "l2norm", "Max Value,Min Value,Avg Value"])
def test_a_finite_sum_proves_every_element_finite(columns: str) -> None:
    cells = ",".join("1" for _ in columns.split(","))
    stats = stats_of(f"Output,0,8,DT_FLOAT16,ND,4,{cells}", f"{FIXED},{columns}")
    assert stats.nonfinite == 0
    assert stats.count == 4


def test_nan_count_with_finite_extremes_is_complete() -> None:
    header = f"{FIXED},Max Value,Min Value,Nan Count"
    assert stats_of("Output,0,8,DT_FLOAT16,ND,4,1,-1,0", header).nonfinite == 0
    assert stats_of("Output,0,8,DT_FLOAT16,ND,4,1,-1,2", header).nan == 2
    header = f"{FIXED},Max Value,Nan Count"
    assert one("Output,0,8,DT_FLOAT16,ND,4,1,0", header).unchecked == "statistics_incomplete"


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ("inf,0,inf", (0, 1, 0)),
        ("0,-inf,-inf", (0, 0, 1)),
        ("inf,-inf,nan", (0, 1, 1)),
        ("nan,nan,nan", (1, 0, 0)),
        ("1,0,nan", (1, 0, 0)),
        ("inf,0,nan", (1, 1, 0)),
        ("inf,inf,inf", (0, 1, 0)),
        ("-inf,-inf,-inf", (0, 0, 1)),
    ],
)
def test_values_prove_that_something_is_wrong(cells: str, expected: tuple[int, int, int]) -> None:
    header = f"{FIXED},Max Value,Min Value,Avg Value"
    tensor = one(f"Output,0,8,DT_FLOAT16,ND,4,{cells}", header)
    assert tensor.stats is not None
    assert (tensor.stats.nan, tensor.stats.posinf, tensor.stats.neginf) == expected
    assert tensor.notes == ("counts_are_lower_bounds",)


def test_average_that_overflowed_over_finite_extremes_proves_nothing_bad() -> None:
    header = f"{FIXED},Max Value,Min Value,Avg Value,Nan Count"
    assert stats_of("Output,0,8,DT_FLOAT,ND,4,3e38,1e38,inf,0", header).nonfinite == 0


def test_integers_are_never_bad() -> None:
    stats = stats_of("Output,0,8,DT_INT32,ND,2,5,-5", f"{FIXED},Max Value,Min Value")
    assert (stats.nonfinite, stats.max, stats.min) == (0, 5, -5)


@pytest.mark.parametrize(
    ("dtype", "high", "low", "saturated", "negative"),
    [
        ("DT_FLOAT16", "65504", "-1", 1, 0),
        ("DT_FLOAT16", "65504.000000", "-65504", 2, 1),
        ("DT_FLOAT16", "65472", "-65472", 0, 0),
        ("DT_BF16", "3.38953e+38", "0", 1, 0),
        ("DT_FLOAT", "3.40282e+38", "0", 1, 0),
        ("DT_FLOAT", "3.38953e+38", "0", 0, 0),
        ("DT_INT32", "2147483647", "0", 0, 0),
    ],
)
def test_extremes_at_the_limit_are_saturated(
    dtype: str, high: str, low: str, saturated: int, negative: int
) -> None:
    tensor = one(f"Output,0,8,{dtype},ND,4,{high},{low},0,4,0,0,0")
    assert tensor.stats is not None
    assert (tensor.stats.saturated, tensor.stats.saturated_negative) == (saturated, negative)
    assert ("counts_are_lower_bounds" in tensor.notes) == (saturated > 0)


def test_scalars_and_empty_tensors() -> None:
    scalar, empty, left_out = read(
        "Input,0,4,DT_FLOAT,ND,-,2,2,2,1,0,0,0",
        "Input,1,0,DT_FLOAT,ND,4x0,NA,NA,NA,0,NA,NA,NA",
        "Input,2,0,DT_FLOAT,ND,4,NA,NA,NA,NA,NA,NA,NA",
    )
    assert scalar.shape == ()
    assert scalar.stats is not None
    assert scalar.stats.count == 1
    assert (empty.shape, empty.unchecked, empty.dumped) == ((4, 0), None, True)
    assert (left_out.unchecked, left_out.dumped) == (None, False)


def test_strings_are_neither_checked_nor_unchecked() -> None:
    tensor = one("Input,0,40,DT_STRING,ND,2,NA,NA,NA,NA,NA,NA,NA")
    assert (tensor.dtype, tensor.unchecked, tensor.stats) == ("string", None, None)


def test_only_one_role_is_a_part() -> None:
    source = MemorySource(stats_csv("Output,0,8,DT_FLOAT,ND,2,1,1,1,2,0,0,0"), NAME)
    assert read_op(READER, source)[0].partial


@pytest.mark.parametrize("layout", ["NC1HWC0", "FRACTAL_Z", "fractal_nz", "NDC1HWC0"])
def test_blocked_layouts_count_their_padding(layout: str) -> None:
    tensor = one(f"Output,0,8,DT_FLOAT16,{layout},1x1x1x1x16,1,1,1,16,0,0,0")
    assert tensor.notes == ("padding_included",)
    assert tensor.layout == layout.upper()


def test_byte_order_mark_and_windows_lines() -> None:
    content = stats_csv("Output,0,8,DT_FLOAT,ND,2,1,1,1,2,0,0,0", bom=True)
    source = MemorySource(content.replace(b"\n", b"\r\n"), NAME)
    assert READER.sniff(source.head, source.file) is Match.CONTENT
    assert len(read_op(READER, source)[0].tensors) == 1


# --- damage ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "row",
    [
        "Sideways,0,8,DT_FLOAT,ND,2,1,1,1,2,0,0,0",
        "Output,x,8,DT_FLOAT,ND,2,1,1,1,2,0,0,0",
        "Output,,8,DT_FLOAT,ND,2,1,1,1,2,0,0,0",
        "Output,0,8,DT_FLOAT,ND,two,1,1,1,2,0,0,0",
        "Output,0,8,DT_FLOAT,ND,2,1,1,1,2,-3,0,0",
        "Output,0,8,DT_FLOAT,ND,2,big,1,1,2,0,0,0",
        "Output,0,8,DT_FLOAT,ND,2x" + "9" * 5000 + ",1,1,1,2,0,0,0",
        "Output,0",
        "Output",
    ],
)
def test_damaged_rows_are_failures_and_the_others_are_kept(row: str) -> None:
    good = "Output,1,8,DT_FLOAT,ND,2,1,1,1,2,0,0,0"
    execution, errors = read_op(READER, MemorySource(stats_csv(row, good), NAME))
    assert [tensor.index for tensor in execution.tensors] == [1]
    assert [type(error) for error in errors] == [CorruptDumpError]
    assert "row 2" in errors[0].message


def test_header_alone_is_truncated() -> None:
    _, errors = read_op(READER, MemorySource(stats_csv(), NAME))
    assert [type(error) for error in errors] == [TruncatedDumpError]


def test_last_row_that_ends_inside_is_truncated() -> None:
    whole = stats_csv("Output,0,8,DT_FLOAT,ND,2,1,1,1,2,0,0,0")
    execution, errors = read_op(READER, MemorySource(whole[:-1], NAME))
    assert errors == []
    execution, errors = read_op(READER, MemorySource(whole[:-3], NAME))
    assert [type(error) for error in errors] == [TruncatedDumpError]
    assert len(execution.tensors) == 1


@pytest.mark.parametrize("content", [b"", b"\n", b"Input/Output,Index", b"a,b\n1,2\n", b"\0" * 50])
def test_garbage_under_a_statistics_name_is_a_failure(content: bytes) -> None:
    source = MemorySource(content, NAME)
    assert READER.sniff(source.head, source.file) is Match.NAME
    (error,) = read_all(READER, source)
    assert isinstance(error, TruncatedDumpError | CorruptDumpError)


def test_giant_file_is_not_loaded() -> None:
    source = MemorySource(stats_csv(), NAME, size=1 << 40)
    (error,) = read_all(READER, source)
    assert isinstance(error, CorruptDumpError)
    assert source.largest_read == 0


def test_truncation_anywhere_never_escapes() -> None:
    content = stats_csv(
        "Input,0,1536,DT_FLOAT16,ND,2x12x32,3.25586,-3.3418,-4.51505e-06,768,0,0,0",
        "Output,0,3072,DT_FLOAT,ND,2x12x32,inf,-1,nan,768,3,0,513",
    )
    for length in range(len(content)):
        for record in read_all(READER, MemorySource(content[:length], NAME)):
            assert isinstance(record, Execution | DumpReadError)


@given(st.binary(max_size=200))
def test_any_rows_are_read_or_refused(noise: bytes) -> None:
    for content in (noise, stats_csv() + noise, stats_csv() + b"Output,0,8," + noise):
        for record in read_all(READER, MemorySource(content, NAME)):
            assert isinstance(record, Execution | DumpReadError)


@given(
    st.lists(st.floats(width=16, allow_nan=True, allow_infinity=True), min_size=1, max_size=20),
    st.sets(st.sampled_from(["Max Value", "Min Value", "Avg Value", "Nan Count"]), min_size=1),
)
def test_nothing_bad_is_called_clean_and_nothing_clean_bad(
    values: list[float], chosen: set[str]
) -> None:
    # What a writer would print, with Max and Min that skip NaN.
    bad = [value for value in values if not math.isfinite(value)]
    seen = [value for value in values if not math.isnan(value)] or [math.nan]
    total = math.inf if math.inf in values else -math.inf if -math.inf in values else 1.0
    if any(map(math.isnan, values)) or (math.inf in values and -math.inf in values):
        total = math.nan
    cells = {
        "Max Value": max(seen),
        "Min Value": min(seen),
        "Avg Value": total,
        "Nan Count": sum(map(math.isnan, values)),
    }
    columns = sorted(chosen)
    row = ",".join(f"{cells[name]:g}" for name in columns)
    tensor = one(f"Output,0,2,DT_FLOAT16,ND,{len(values)},{row}", f"{FIXED},{','.join(columns)}")
    if tensor.stats is None:
        assert tensor.unchecked in ("statistics_incomplete", "statistics_blank")
    else:
        assert (tensor.stats.nonfinite > 0) == bool(bad)
        assert tensor.stats.nonfinite <= len(bad)


# --- sniffing -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "name", "expected"),
    [
        (stats_csv(), NAME, Match.CONTENT),
        (stats_csv(), "10281248180722942886", Match.CONTENT),
        (stats_csv(header=HEADER_COUNT_FIRST), NAME, Match.CONTENT),
        (b"Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot\n", "statistic.csv", Match.NONE),
        (b"Device and PID,Op Name,Input/Output,Index,Dtype\n", "statistic.csv", Match.NONE),
        (b"10281248180722942886,MatMul.a.1.2.1764417600000000\n", "mapping.csv", Match.NONE),
        (dump_file(), NAME.removesuffix(".csv"), Match.NONE),
    ],
)
def test_sniffing(content: bytes, name: str, expected: Match) -> None:
    source = MemorySource(content, name)
    assert READER.sniff(source.head, source.file) is expected
    if expected:
        assert AdumpReader().sniff(source.head, source.file) is Match.NONE
