"""The column dictionary: plain values, one row per finding, words for every column."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dumpscope.model import OpRecord, Reason, TensorStats, TensorSummary
from dumpscope.reporters.overview import list_summary_rows, tally_findings
from dumpscope.reporters.summary import headline_of, list_config, next_steps, notes_of, unchecked_of
from dumpscope.reporters.tables import TABLES, Cell, list_text
from dumpscope.words import render
from scan_samples import (
    FOLDER,
    clean_scan,
    incomplete_scan,
    large_scan,
    make_finding,
    overflow_scan,
)


def rows_of(name: str, **options: Any) -> list[dict[str, Cell]]:
    scan = options.pop("scan", None) or overflow_scan()
    table = TABLES[name]
    names = [column.name for column in table.columns]
    rows = table.compute(scan, **options)
    return [dict(zip(names, row, strict=True)) for row in rows]


def test_a_finding_is_one_row_with_the_tensor_that_decided_it() -> None:
    first, second = rows_of("findings")
    reason = first.pop("reason")
    assert isinstance(reason, str)
    assert reason.startswith("Output 0 has 513 +Inf of 2,048 float16 elements while both inputs")
    assert first == {
        "rank": 1,
        "verdict": "origin",
        "severity": "error",
        "known": False,
        "step": 0,
        "device": 3,
        "op_type": "BatchMatMulV2",
        "op_name": "network_layers_1_attn_BatchMatMulV2-op0",
        "role": "output",
        "index": 0,
        "dtype": "float16",
        "layout": "ND",
        "shape": "[2, 32, 32]",
        "count": 2048,
        "nan": 0,
        "posinf": 513,
        "neginf": 0,
        "saturated": 0,
        "near_limit": 7,
        "subnormal": 1,
        "zero": 2,
        "padding_nonfinite": 0,
        "min": -60000.0,
        "max": 65312.0,
        "mean": 12.5,
        "std": 0.1,
        "rms": 1e-7,
        "l2": 3.5e38,
        "first_bad": "[0, 1, 5]",
        "bad_box": "[[0, 1], [1, 31], [0, 31]]",
        "checked": True,
        "task_id": 24,
        "stream_id": 2,
        "timestamp": 1764417600003145,
        "run": "20251129120000",
        "host": "node-1",
        "global_rank": None,
        "device_id": 3,
        "evidence": "own_inputs, status",
        "overflow_kind": "AIC",
        "overflow_status": "0x20",
        "overflow_bits": "0x20 floating-point overflow",
        "overflow_confirmed": True,
        "overflow_file": f"{FOLDER}/Opdebug.Node_OpDebug.1.1.1",
        "reason_code": "origin_confirmed",
        "caused_by": None,
        "parent": None,
        "stack": "model.py:12 in forward < train.py:80 in step",
        "file": f"{FOLDER}/BatchMatMulV2.network_layers_1_attn_BatchMatMulV2-op0"
        ".24.2.1764417600003145",
    }
    assert second["caused_by"] == 1
    assert second["subnormal"] is None
    assert second["overflow_kind"] is None
    assert second["severity"] == "info"


def test_words_follow_the_language_and_keys_do_not() -> None:
    english, chinese = (rows_of("findings", lang=lang)[0] for lang in ("en", "zh"))
    assert chinese["overflow_bits"] == "0x20 浮点运算溢出"
    changed = {name for name in english if english[name] != chinese[name]}
    assert changed == {"reason", "overflow_bits"}


def test_a_finding_without_a_tensor_has_empty_cells() -> None:
    finding = make_finding(1)
    bare = replace(finding, op=replace(finding.op, tensors=()), deciding=None)
    beyond = replace(finding, deciding=9)
    for row in rows_of("findings", scan=replace(overflow_scan(), findings=(bare, beyond))):
        assert row["dtype"] is None
        assert row["shape"] is None
        assert row["nan"] is None
        assert row["checked"] is None


def test_what_was_not_measured_is_not_zero() -> None:
    tensors = (
        TensorSummary("input", 0, "float16", "ND", (4,), checked=False, unchecked="blank"),
        TensorSummary(
            "input", 1, "float16", "ND", (4,), checked=False, stats=TensorStats(count=2, nan=1)
        ),
        TensorSummary("input", 2, "float16", "ND", (4,), dumped=False),
        TensorSummary("input", 3, "float16", "ND", (0,)),
    )
    finding = make_finding(1)
    scan = replace(
        overflow_scan(), findings=(replace(finding, op=replace(finding.op, tensors=tensors)),)
    )
    rows = rows_of("tensors", scan=scan)
    assert [row["nan"] for row in rows] == [None, 1, None, 0]
    assert [row["count"] for row in rows] == [None, 2, None, 0]
    assert [row["checked"] for row in rows] == [False, False, None, True]


def test_tensors_are_all_tensors_of_the_listed_operators() -> None:
    rows = rows_of("tensors")
    assert [(row["rank"], row["role"], row["index"]) for row in rows] == [
        (1, "input", 0),
        (1, "input", 1),
        (1, "output", 0),
        (2, "input", 0),
        (2, "output", 0),
    ]
    assert rows[0]["min"] == -412.5
    assert rows[0]["size_bytes"] == 2048
    assert len(rows_of("tensors", limit=1)) == 3


def test_overflow_rows_tell_registers_in_hex_decimal_and_words() -> None:
    main, other, empty = rows_of("overflow")
    assert (main["status"], main["status_decimal"], main["bits"]) == (
        "0x20",
        "32",
        "0x20 floating-point overflow",
    )
    assert main["fields"] == "pc_start=0x1000, core_id=0x3"
    assert (main["rank"], main["main"], main["task_id"]) == (1, True, 24)
    assert (other["kind"], other["main"]) == ("DHA", False)
    assert other["bits"] == "0x900 atomic add overflow"
    assert empty["status"] == "0x0 0x0 0x0 0x0"
    assert (empty["empty"], empty["rank"], empty["task_id"], empty["bits"]) == (
        True,
        None,
        None,
        "",
    )


def test_expected_rows_name_their_rule() -> None:
    (row,) = rows_of("expected")
    assert (row["rule"], row["op_type"], row["neginf"]) == ("mask-fill", "MaskedFill", 4)
    assert row["reason"] == (
        "All 4 float16 elements of output 0 are -Inf, on purpose: a mask; rule mask-fill."
    )


def test_failures_and_unchecked_tensors() -> None:
    scan = incomplete_scan()
    assert rows_of("failures", scan=scan) == [
        {
            "file": "d/Bad.x.1.1.1",
            "reader": "adump",
            "error": "TruncatedDumpError",
            "offset": 8,
            "offset_hex": "0x8",
            "message": "expected 64, found 3",
        }
    ]
    (row,) = rows_of("unchecked", scan=scan)
    assert (row["op_name"], row["dtype"], row["unchecked"]) == (
        "net/Cast",
        "complex32",
        "unsupported_dtype",
    )


@pytest.mark.parametrize("name", TABLES)
def test_every_column_has_words_in_both_languages(name: str) -> None:
    columns = TABLES[name].columns
    assert len({column.name for column in columns}) == len(columns)
    for column in columns:
        assert column.heading("en").isascii()
        assert column.description("en").isascii()
        assert not column.description("zh").isascii()
        assert 5 < column.width < 100


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("limit", [0, 1, 3])
def test_the_number_of_rows_is_known_beforehand(name: str, limit: int) -> None:
    for scan in (overflow_scan(), incomplete_scan(), large_scan(5)):
        table = TABLES[name]
        assert len(list(table.compute(scan, limit=limit))) == table.count_rows(scan, limit)


@pytest.mark.parametrize("name", TABLES)
def test_values_are_plain(name: str) -> None:
    for scan in (overflow_scan(), incomplete_scan()):
        for row in TABLES[name].compute(scan):
            assert all(value is None or type(value) in {str, int, float, bool} for value in row)


def test_lists_are_written_as_json_writes_them() -> None:
    assert list_text(None) is None
    assert list_text(()) == "[]"
    assert list_text((2, -1)) == "[2, -1]"
    assert list_text(((0, 1), (2, 3))) == "[[0, 1], [2, 3]]"


# --- the summary --------------------------------------------------------------------------------


def test_the_headline_names_operator_step_and_device() -> None:
    assert render(headline_of(overflow_scan())) == (
        "BatchMatMulV2 network_layers_1_attn_BatchMatMulV2-op0 went wrong first in step 0 on "
        "device 3."
    )


def test_the_headline_skips_what_the_baseline_knows() -> None:
    scan = overflow_scan()
    first, second = scan.findings
    known = replace(scan, findings=(replace(first, known=True), second))
    assert headline_of(known).code == "headline_propagated"
    all_known = replace(known, findings=(known.findings[0], replace(second, known=True)))
    assert render(headline_of(all_known)) == "Nothing new: 2 findings known to the baseline."


def test_the_headline_of_a_run_without_findings() -> None:
    assert render(headline_of(clean_scan())) == (
        "No operator produced NaN, Inf or saturated values in 24 executions with 75 tensors."
    )
    assert headline_of(incomplete_scan()).code == "headline_incomplete"
    empty = replace(clean_scan(), notes=(Reason("nothing_expected"),))
    assert headline_of(empty).code == "nothing_expected"
    assert notes_of(empty) == []


def test_what_was_not_checked_is_told_once_with_its_counts() -> None:
    reasons = unchecked_of(incomplete_scan())
    assert [(r.code, r.parameters["count"]) for r in reasons] == [
        ("read_failures", 1),
        ("unchecked", 1),
        ("skipped_links", 2),
    ]
    assert unchecked_of(clean_scan()) == []
    assert [reason.code for reason in notes_of(overflow_scan())] == [
        "expected_values",
        "empty_overflow_records",
    ]


def test_next_steps_quote_names_and_leave_out_those_that_cannot_be_typed() -> None:
    scan = overflow_scan()
    (first, *_) = scan.findings

    def targets(name: str) -> list[object]:
        op: OpRecord = replace(first.op, op_name=name, file=name)
        found = next_steps(replace(scan, findings=(replace(first, op=op),)))
        return [r.parameters["target"] for r in found if r.code == "next_show"]

    assert targets("net/mul") == ["net/mul"]
    assert targets("a b$(c)") == ["'a b$(c)'"]
    assert targets("a\x1b[2J") == []
    assert [reason.code for reason in next_steps(incomplete_scan())] == ["next_failures"]


def test_the_summary_has_verdict_counts_and_configuration() -> None:
    rows = list(list_summary_rows(overflow_scan(), "en"))
    assert rows[0].kind == "headline"
    facts = {row.name: row.value for row in rows if row.kind == "fact"}
    assert facts["origin"] == 1
    assert facts["tensors"] == 75
    assert facts["bytes"] == 1_048_576
    assert facts["number mode"] == "INF/NaN (inferred)"
    assert facts["dump.dump_mode"] == "all"
    assert facts["dump.dump_list"] == "[]"
    assert facts["complete"] == "yes"
    assert [row.name for row in rows if row.kind == "section"] == [
        "Run",
        "Counts",
        "What was not checked",
        "Notes",
        "Configuration",
        "How to go on",
    ]
    chinese = {row.name: row.value for row in list_summary_rows(overflow_scan(), "zh")}
    assert chinese["origin 源头"] == 1


def test_configuration_is_flattened() -> None:
    config = {"a": {"b": {"c": 1}, "d": None}, "e": "x\x1b", "f\n": [1, "二"]}
    assert dict(list_config(config)) == {
        "a.b.c": "1",
        "a.d": "null",
        "e": "x\\x1b",
        "f\\n": '[1, "二"]',
    }
    assert list(list_config(None)) == []


def test_findings_are_counted_per_step_and_device() -> None:
    tally = tally_findings(large_scan(16))
    assert tally.steps == (0, 1, 2, 3)
    assert tally.devices == tuple(range(8))
    assert [sum(row) for row in tally.counts] == [4, 4, 4, 4]
    assert tally.counts[1] == (0, 2, 0, 0, 0, 2, 0, 0)


def test_of_many_steps_the_fullest_stay_and_the_unknown_come_last() -> None:
    scan = large_scan(9)
    (first, *rest) = scan.findings
    unknown = replace(first, op=replace(first.op, step=None, device=None))
    tally = tally_findings(replace(scan, findings=(unknown, *rest)), max_steps=3, max_devices=20)
    # Steps 2..9 modulo 4: 1 twice, 2 and 3 and 0 twice, and one unknown.
    assert tally.steps == (0, 1, 2)
    tally = tally_findings(replace(scan, findings=(unknown, *rest)))
    assert tally.steps == (0, 1, 2, 3, None)
    assert tally.devices[-1] is None
