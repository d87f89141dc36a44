"""File names of every writer, and names that no writer would think of."""

from __future__ import annotations

import calendar
import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dumpscope.model import DumpName
from dumpscope.naming import (
    is_overflow_name,
    parse_name,
    parse_run_time,
    read_mapping,
    real_name,
    timestamp_ns,
)

if TYPE_CHECKING:
    from pathlib import Path

US = 1764417600000857  # 2025-11-29 12:00:00.000857 UTC


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            f"MatMulV2.network_layers_0_attn_k_MatMulV2-op0.8.2.{US}",
            DumpName("MatMulV2", "network_layers_0_attn_k_MatMulV2-op0", 8, 2, US),
        ),
        (f"Add.net_Add.5.{US}", DumpName("Add", "net_Add", 5, None, US)),
        # An operator whose name is a number, in both forms.
        (f"Add.12.5.{US}", DumpName("Add", "12", 5, None, US)),
        (f"Add.7.12.5.{US}", DumpName("Add", "7", 12, 5, US)),
        (f"Add..7.0.{US}", DumpName("Add", "", 7, 0, US)),
        (f"Add.a.b.c.7.0.{US}", DumpName("Add", "a.b.c", 7, 0, US)),
        ("Add.n.7.0.1764417600", DumpName("Add", "n", 7, 0, 1764417600)),
        ("Add.n.7.0.1764417600000", DumpName("Add", "n", 7, 0, 1764417600000)),
        ("Add.n.7.0.17644176000000000000", DumpName("Add", "n", 7, 0, 17644176000000000000)),
        (
            f"Softmax.n_lxslice2_sgt_graph_0.9.2.{US}.4.103.1.7",
            DumpName("Softmax", "n_lxslice2_sgt_graph_0", 9, 2, US, 103, 1, 7),
        ),
        (f"Add.n.9.{US}.4.103.0.0", DumpName("Add", "n", 9, None, US, 103, 0, 0)),
        (f"Add.n.65535.2.{US}", DumpName("Add", "n", None, 2, US)),
        (f"Add.n.9.65535.{US}", DumpName("Add", "n", 9, None, US)),
        (f"Add.n.4294967295.4294967295.{US}", DumpName("Add", "n", None, None, US)),
        (
            f"Opdebug.Node_OpDebug.7.3.{US}",
            DumpName("Opdebug", "Node_OpDebug", 7, 3, US),
        ),
        (
            f"Opdebug.Node_OpDebug.7.3.{US}.output.0.json",
            DumpName(
                "Opdebug", "Node_OpDebug", 7, 3, US, role="output", slot=0, suffix="json"
            ),
        ),
        (
            "exception_info.2.77.20251129120000123",
            DumpName("exception_info", "exception_info", 77, 2, 20251129120000123),
        ),
        (
            "BatchMatMulV2.net_op0.77.20251129120000124",
            DumpName("BatchMatMulV2", "net_op0", 77, None, 20251129120000124),
        ),
        (
            "te_add_1__kernel0.3.12.AIV.5.20251129120000123",
            DumpName("te_add_1__kernel0", "te_add_1__kernel0", 12, 3, 20251129120000123),
        ),
        (
            "te_add_1__kernel0.3.12.0.5.20251129120000123",
            DumpName("te_add_1__kernel0", "te_add_1__kernel0", 12, 3, 20251129120000123),
        ),
        (f"Add.n.1.2.{US}.csv", DumpName("Add", "n", 1, 2, US, suffix="csv")),
        (f"Add.n.1.2.{US}.pt", DumpName("Add", "n", 1, 2, US, suffix="pt")),
        (
            f"Add.n.1.2.{US}.input.3.npy",
            DumpName("Add", "n", 1, 2, US, role="input", slot=3, suffix="npy"),
        ),
        (
            f"Add.n.9.2.{US}.4.103.1.0.output.1.npy",
            DumpName("Add", "n", 9, 2, US, 103, 1, 0, role="output", slot=1, suffix="npy"),
        ),
        (
            f"Add.n.1.2.{US}.input.0.3x4x1.npy",
            DumpName("Add", "n", 1, 2, US, role="input", slot=0, shape=(3, 4, 1), suffix="npy"),
        ),
        (
            f"Add.n.1.2.{US}.output.0.5.npy",
            DumpName("Add", "n", 1, 2, US, role="output", slot=0, shape=(5,), suffix="npy"),
        ),
        (
            f"Add.n.1.2.{US}.output.0.3_4_.float16.FRACTAL_NZ.bin",
            DumpName(
                "Add", "n", 1, 2, US, role="output", slot=0, layout="FRACTAL_NZ",
                dtype="float16", shape=(3, 4), suffix="bin",
            ),
        ),
        (
            f"Add.n.1.2.{US}.output.0..bfloat16.ND.bin",
            DumpName(
                "Add", "n", 1, 2, US, role="output", slot=0, layout="ND", dtype="bfloat16",
                shape=(), suffix="bin",
            ),
        ),
        (
            f"Add.n.1.2.{US}.output.0.NCHW.npy",
            DumpName("Add", "n", 1, 2, US, role="output", slot=0, layout="NCHW", suffix="npy"),
        ),
        (
            f"Parameter.fc1_weight.0.0.{US}.output.0.DefaultFormat.BFloat16.npy",
            DumpName(
                "Parameter", "fc1_weight", 0, 0, US, role="output", slot=0,
                layout="DefaultFormat", dtype="BFloat16", suffix="npy",
            ),
        ),
        (
            f"Add.n.1.2.{US}.output.0.DefaultFormat.float8_e4m3fn.npy",
            DumpName(
                "Add", "n", 1, 2, US, role="output", slot=0,
                layout="DefaultFormat", dtype="float8_e4m3fn", suffix="npy",
            ),
        ),
        (
            f"Add.n.1.2.{US}.space.3.bin",
            DumpName("Add", "n", 1, 2, US, slot=3, suffix="space.bin"),
        ),
        (
            f"conv_2d.1.{US}.npy",
            DumpName("", "conv_2d", timestamp=US, role="output", slot=1, suffix="npy"),
        ),
        (
            f"block.0.conv.1.{US}.npy",
            DumpName("", "block.0.conv", timestamp=US, role="output", slot=1, suffix="npy"),
        ),
        (f"Add.n.7.0.{US}.npy", DumpName("Add", "n", 7, 0, US, suffix="npy")),
        (f"Add.line\nbreak.7.0.{US}", DumpName("Add", "line\nbreak", 7, 0, US)),
        (f"Add.\udcff\u202e.7.0.{US}", DumpName("Add", "\udcff\u202e", 7, 0, US)),
    ],
)  # fmt: skip
def test_a_name_gives_its_fields(name: str, expected: DumpName) -> None:
    assert parse_name(name) == expected


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "dump.json",
        "statistic.csv",
        "mapping.csv",
        "13656470301440836468",
        "0123456789abcdef0123456789abcdef.npy",
        "Functional.linear.0.forward.input.0.pt",
        f".Add.n.7.0.{US}",  # hidden: an editor's copy
        f"Add.n.7.0.{US}.swp",
        f"Add.n.7.0.{US}~",
        f"Add.n.7.0.{US}\n",
        "Add.n.7.0.123456789",
        "Add.n.7.0.17644176000",  # 11 digits: no unit
        "Add.n.7.0.176441760000000000000",  # 21 digits
        "Add.n.7.0." + "9" * 200,
        f"Add.n.{'9' * 200}.{'9' * 40}.{US}x",
        "Add.n.７.０.１７６４４１７６０００００８５７",
        f"Add.n.7.²5.{US}5x",
        f"Add.n.-1.0.{US}x",
        f"{US}",
        f"7.{US}",
    ],
)
def test_other_names_are_none(name: str) -> None:
    assert parse_name(name) is None


def test_digits_of_other_scripts_are_no_numbers() -> None:
    parsed = parse_name(f"Add.n.７.0.{US}")
    # Not the task id 7: the name has no stream then, and 7 belongs to the operator's name.
    assert parsed == DumpName("Add", "n.７", 0, None, US)


def test_huge_numbers_never_become_integers() -> None:
    parsed = parse_name(f"Add.{'9' * 5000}.7.0.{US}")
    assert parsed is not None
    assert parsed.op_name == "9" * 5000
    assert parse_name(f"Add.n.{'9' * 5000}.{US}.{'9' * 5000}") is None


@given(st.text(max_size=300))
@example("1." * 127)
@example("." * 255)
@example(f"A.x.1.2.{US}." + "4." * 100)
def test_any_text_parses_or_does_not(text: str) -> None:
    parsed = parse_name(text)
    if parsed is not None:
        assert parsed.timestamp is not None
        assert 0 <= parsed.timestamp < 10**20
        assert parsed.op_name in text


identifier = st.text(st.characters(exclude_characters="."), min_size=1, max_size=40).filter(
    lambda text: not re.fullmatch(r"exception_info|[0-9]+", text)
)
number = st.integers(0, 2**31 - 1)
any_id = number.filter(lambda n: n != 65535)
time = st.integers(10**12, 10**20 - 1)


@given(identifier, identifier, any_id, any_id, time)
def test_what_a_writer_joins_comes_apart_again(
    op_type: str, op_name: str, task: int, stream: int, stamp: int
) -> None:
    name = f"{op_type}.{op_name}.{task}.{stream}.{stamp}"
    assert parse_name(name) == DumpName(op_type, op_name, task, stream, stamp)


@given(identifier, identifier, any_id, time)
def test_the_same_without_a_stream(op_type: str, op_name: str, task: int, stamp: int) -> None:
    assert parse_name(f"{op_type}.{op_name}.{task}.{stamp}") == DumpName(
        op_type, op_name, task, None, stamp
    )


@given(identifier, identifier, any_id, any_id, time, number, number, st.integers(0, 99999))
def test_the_same_with_thread_fields(
    op_type: str, op_name: str, task: int, stream: int, stamp: int, c: int, t: int, d: int
) -> None:
    name = f"{op_type}.{op_name}.{task}.{stream}.{stamp}.4.{c}.{t}.{d}"
    assert parse_name(name) == DumpName(op_type, op_name, task, stream, stamp, c, t, d)


@pytest.mark.parametrize(
    ("op_type", "expected"),
    [("Opdebug", True), ("OpDebug", True), ("OPDEBUG", True), ("Add", False), ("", False)],
)
def test_overflow_names_in_any_case(op_type: str, expected: bool) -> None:
    assert is_overflow_name(DumpName(op_type, "Node_OpDebug")) is expected


def test_every_name_of_the_corpus_is_understood(corpus: Path) -> None:
    unknown = [
        path.name
        for path in corpus.glob("cann/*/dump/**/*")
        if path.is_file() and not path.name.isdecimal() and parse_name(path.name) is None
    ]
    assert set(unknown) == {"mapping.csv"}


# --- timestamps ---------------------------------------------------------------------------------


def utc_ns(year: int, month: int, day: int, *time: int) -> int:
    return calendar.timegm((year, month, day, *time)) * 10**9


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (1764417600, 1764417600 * 10**9),
        (1764417600123, 1764417600123 * 10**6),
        (176441760012345, 176441760012345 * 10**3),
        (1764417600123456, 1764417600123456 * 10**3),
        (1764417600123456789, 1764417600123456789),
        (20251129120000, utc_ns(2025, 11, 29, 12, 0, 0)),
        (20240229235959, utc_ns(2024, 2, 29, 23, 59, 59)),
        (20251129120000123, utc_ns(2025, 11, 29, 12, 0, 0) + 123 * 10**6),
        (20250229120000, None),  # no leap year
        (20251329120000, None),
        (20251129240000, None),
        (20251129126000, None),
        (99999999999999999, None),
        (0, None),
        (-1764417600, None),
        (123456789, None),
        (17644176001, None),
        (176441760012, None),
        (176441760012345678, 1764417600123456780),  # tens of nanoseconds, by its digits
        (17644176001234567890, 1764417600123456789),
        (10**20, None),
        (10**400, None),
    ],
)
def test_the_number_of_digits_is_the_unit(number: int, expected: int | None) -> None:
    assert timestamp_ns(number) == expected


@given(st.integers(-(10**22), 10**22))
def test_any_number_converts_or_does_not(number: int) -> None:
    result = timestamp_ns(number)
    digits = len(str(number)) if number > 0 else 0
    if digits in {10, 13, 15, 16, 18, 19}:
        assert result is not None
        assert str(result).startswith(str(number))
    elif digits == 20:
        assert str(result) == str(number)[:-1]
    elif digits not in {14, 17}:
        assert result is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("20251129120000", utc_ns(2025, 11, 29, 12, 0, 0)),
        ("20251329120000", None),
        ("19991129120000", None),
        ("2025112912000", None),
        ("202511291200000", None),
        ("２０２５１１２９１２００００", None),
        ("rank_0", None),
    ],
)
def test_time_folders(name: str, expected: int | None) -> None:
    assert parse_run_time(name) == expected


# --- mapping.csv --------------------------------------------------------------------------------

HEX = "0123456789abcdef0123456789ABCDEF"


def test_rows_are_split_at_the_first_comma_and_may_repeat() -> None:
    rows = [
        "13656470301440836468,Add.a,b.1.2.3\n",
        "13656470301440836468,Add.other.1.2.3\n",
        "\n",
        "no comma\n",
        "15011062411520912849,\n",
        f"{HEX},Mul.x.1.2.3.input.0.npy\r\n",
        "77,Sub.half a row",
    ]
    assert read_mapping(rows) == {
        "13656470301440836468": "Add.a,b.1.2.3",
        HEX: "Mul.x.1.2.3.input.0.npy",
        "77": "Sub.half a row",
    }


def test_a_row_renames_only_files_that_are_called_by_a_hash() -> None:
    assert read_mapping([f"Add.n.1.2.{US},Mul.n.1.2.{US}\n", "dump.json,Mul\n", ",x\n"]) == {}


def test_real_names_are_names_not_paths() -> None:
    assert read_mapping(["1,/a/b/Add.n\n", "2,../../etc/passwd\n", "3,dir/\n"]) == {
        "1": "Add.n",
        "2": "passwd",
    }


def test_a_hash_is_found_with_its_suffix_and_without() -> None:
    with_suffix = {f"{HEX}.npy": "Mul.x.npy"}
    without = {HEX: "Mul.x", "12": "Add.y"}
    assert real_name(f"{HEX}.npy", with_suffix) == "Mul.x.npy"
    assert real_name(f"{HEX}.npy", without) == "Mul.x.npy"
    assert real_name(f"{HEX}.npy", {HEX: "Mul.x.npy"}) == "Mul.x.npy"
    assert real_name("12", without) == "Add.y"
    assert real_name("13", without) == "13"
    assert real_name(f"{HEX}.pt", {}) == f"{HEX}.pt"


@given(st.lists(st.text(max_size=60), max_size=20))
def test_any_lines_make_a_mapping(lines: list[str]) -> None:
    for key, real in read_mapping(lines).items():
        assert re.fullmatch(r"[0-9]+|[0-9a-fA-F]{32}(\.[A-Za-z0-9]+)?", key, re.ASCII)
        assert real
        assert "/" not in real
