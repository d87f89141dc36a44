"""The scan document: every key of the contract, strict JSON, nothing that changes between runs."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import pytest

from dumpscope.model import (
    Counts,
    OverflowRecord,
    Place,
    Scan,
    ScanOptions,
    TensorStats,
    TensorSummary,
)
from dumpscope.reporters.document import (
    DEFAULT_LIMIT,
    DocumentReporter,
    build_document,
    build_tensor,
    dump_document,
)
from scan_samples import (
    FOLDER,
    HOSTILE_NAMES,
    clean_scan,
    incomplete_scan,
    large_scan,
    named_scan,
    overflow_scan,
)

TOP_KEYS = {
    "schema",
    "tool",
    "scan_id",
    "root",
    "exit_status",
    "complete",
    "mode",
    "counts",
    "findings",
    "expected",
    "read_failures",
    "overflow_records",
}
COUNT_KEYS = {
    "files",
    "ops",
    "tensors",
    "bytes",
    "unchecked",
    "read_failures",
    "expected",
    "overflow_records",
    "baseline_known",
    "by_verdict",
    "findings",
    "skipped",
    "empty_overflow_records",
}
FINDING_KEYS = {
    "rank",
    "verdict",
    "severity",
    "step",
    "device",
    "global_rank",
    "device_id",
    "host",
    "run",
    "op_type",
    "op_name",
    "task_id",
    "stream_id",
    "timestamp",
    "file",
    "reason",
    "reason_code",
    "reason_parameters",
    "evidence",
    "tensors",
    "overflow",
}
TENSOR_KEYS = {
    "role",
    "index",
    "dtype",
    "layout",
    "shape",
    "nan",
    "posinf",
    "neginf",
    "saturated",
    "near_limit",
    "subnormal",
    "zero",
    "padding_nonfinite",
    "min",
    "max",
    "mean",
    "std",
    "rms",
    "l2",
    "first_bad",
    "bad_box",
    "checked",
}


def refuse_constant(name: str) -> Any:
    pytest.fail(f"{name} is no JSON")


def parse(scan: Scan, **options: Any) -> Any:
    text = dump_document(scan, **options)
    return json.loads(text.encode("utf-8"), parse_constant=refuse_constant)


def test_the_contract_of_keys() -> None:
    document = parse(overflow_scan())
    assert document.keys() >= TOP_KEYS
    assert document["counts"].keys() >= COUNT_KEYS
    for finding in document["findings"]:
        assert finding.keys() >= FINDING_KEYS
        for tensor in finding["tensors"]:
            assert tensor.keys() >= TENSOR_KEYS
    for entry in document["expected"]:
        assert entry.keys() >= FINDING_KEYS | {"rule"}


def test_the_head_of_the_document() -> None:
    document = parse(overflow_scan())
    assert document["schema"] == "dumpscope.scan/1"
    assert document["tool"] == {"name": "dumpscope", "version": "1.2.3"}
    assert document["scan_id"] == "20251129-1"
    assert document["root"] == "/data/run"
    assert document["exit_status"] == 1
    assert document["complete"] is True
    assert document["mode"] == {"number_mode": "inf_nan", "inferred": True}
    assert document["counts"]["by_verdict"] == {"origin": 1, "propagated": 1, "expected": 1}
    assert document["counts"]["bytes"] == 1_048_576
    assert document["config"] == {
        "dump_path": "/data/run",
        "dump": {"dump_list": [], "dump_mode": "all"},
    }


def test_every_count_stands_under_its_own_name() -> None:
    numbers = {name: 101 + position for position, name in enumerate(sorted(COUNT_KEYS))}
    del numbers["by_verdict"]
    counts = Counts(**numbers, unknown_files=99, by_verdict={"origin": 98})
    found = parse(replace(clean_scan(), counts=counts))["counts"]
    assert found == {**numbers, "unknown_files": 99, "by_verdict": {"origin": 98}}


def test_what_is_alike_is_not_mixed_up() -> None:
    """The rank is not the device; what was left out is neither checked nor unchecked."""
    scan = overflow_scan()
    (first, *rest) = scan.findings
    assert first.overflow is not None
    (seen, *others) = first.op.tensors
    left_out = replace(seen, dumped=False)
    unread = replace(seen, checked=False, unchecked="unsupported_dtype", stats=TensorStats())
    place = Place(step=4, global_rank=5, device_id=1)
    op = replace(first.op, step=4, device=5, place=place, tensors=(left_out, unread, *others))
    overflow = replace(first.overflow, confirmed=False)
    scan = replace(scan, findings=(replace(first, op=op, overflow=overflow), *rest))
    finding = parse(scan)["findings"][0]
    named = ("step", "device", "global_rank", "device_id", "host", "run")
    assert [finding[name] for name in named] == [4, 5, 5, 1, None, None]
    assert finding["overflow"]["confirmed"] is False
    tensors = finding["tensors"]
    assert [tensor["checked"] for tensor in tensors] == [None, False, True, True]
    numbers = TENSOR_KEYS - {"role", "index", "dtype", "layout", "shape", "checked"}
    assert all(tensor[key] is None for tensor in tensors[:2] for key in numbers)
    assert (tensors[2]["first_bad"], tensors[2]["bad_box"]) == (None, None)


def test_a_finding_with_everything() -> None:
    finding = parse(overflow_scan())["findings"][0]
    tensors = finding.pop("tensors")
    reason = finding.pop("reason")
    assert reason.startswith("Output 0 has 513 +Inf of 2,048 float16 elements while both inputs")
    parameters = finding.pop("reason_parameters")
    assert parameters["max_input"] == 412.5
    expected = {
        "rank": 1,
        "verdict": "origin",
        "severity": "error",
        "known": False,
        "step": 0,
        "device": 3,
        "global_rank": None,
        "device_id": 3,
        "host": "node-1",
        "run": "20251129120000",
        "op_type": "BatchMatMulV2",
        "op_name": "network_layers_1_attn_BatchMatMulV2-op0",
        "task_id": 24,
        "stream_id": 2,
        "timestamp": 1764417600003145,
        "reason_code": "origin_confirmed",
        "evidence": ["own_inputs", "status"],
        "deciding": 2,
        "stack": ["model.py:12 in forward", "train.py:80 in step"],
    }
    assert {key: finding[key] for key in expected} == expected
    overflow = finding["overflow"]
    others = overflow.pop("others")
    assert overflow == {
        "kind": "AIC",
        "status": [32],
        "bits": ["0x20 floating-point overflow"],
        "confirmed": True,
        "file": f"{FOLDER}/Opdebug.Node_OpDebug.1.1.1",
    }
    assert (others[0]["kind"], others[0]["status"]) == ("DHA", [0x900])
    assert len(tensors) == 3
    output = {key: tensors[2][key] for key in TENSOR_KEYS}
    assert output == {
        "role": "output",
        "index": 0,
        "dtype": "float16",
        "layout": "ND",
        "shape": [2, 32, 32],
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
        "first_bad": [0, 1, 5],
        "bad_box": [[0, 1], [1, 31], [0, 31]],
        "checked": True,
    }
    assert tensors[0]["subnormal"] is None


def test_causes_are_told_by_rank_and_a_stack_only_where_there_is_one() -> None:
    first, second = parse(overflow_scan())["findings"]
    assert (first["caused_by"], second["caused_by"]) == (None, 1)
    assert second["overflow"] is None
    assert "stack" not in second


def test_expected_entries_have_no_rank_and_no_severity() -> None:
    (entry,) = parse(overflow_scan())["expected"]
    assert (entry["rank"], entry["severity"], entry["rule"]) == (None, None, "mask-fill")
    assert entry["verdict"] == "expected"


def test_overflow_records_with_words_ids_and_rank() -> None:
    document = parse(overflow_scan())
    record, empty = document["overflow_records"]
    (other,) = record.pop("others")
    assert record == {
        "file": f"{FOLDER}/Opdebug.Node_OpDebug.1.1.1",
        "kind": "AIC",
        "status": [32],
        "bits": ["0x20 floating-point overflow"],
        "model_id": 11,
        "stream_id": 2,
        "task_id": 24,
        "context_id": None,
        "thread_id": None,
        "fields": {"pc_start": 4096, "core_id": 3},
        "rank": 1,
        "empty": False,
        "known_kind": True,
        "timestamp": 1764417600003150,
        "step": 0,
        "device": 0,
    }
    assert (other["kind"], other["bits"]) == ("DHA", ["0x900 atomic add overflow"])
    assert (empty["empty"], empty["rank"], empty["status"]) == (True, None, [0, 0, 0, 0])
    assert document["counts"]["overflow_records"] == 1
    assert document["counts"]["empty_overflow_records"] == 1


def test_a_record_without_units_is_listed() -> None:
    scan = replace(clean_scan(), overflow_records=(OverflowRecord(units=(), file="odd"),))
    (record,) = parse(scan)["overflow_records"]
    assert (record["file"], record["status"], record["empty"]) == ("odd", [], True)


def test_failures_and_unchecked_tensors() -> None:
    document = parse(incomplete_scan())
    assert document["complete"] is False
    assert document["read_failures"] == [
        {
            "file": "d/Bad.x.1.1.1",
            "reader": "adump",
            "error": "TruncatedDumpError",
            "offset": 8,
            "message": "expected 64, found 3",
        }
    ]
    (entry,) = document["unchecked"]
    assert (entry["op_name"], entry["dtype"], entry["why"]) == (
        "net/Cast",
        "complex32",
        "unsupported_dtype",
    )
    assert document["notes"][0] == {
        "code": "read_failures",
        "parameters": {"count": 1},
        "text": "1 read failure: files, or parts of them, that could not be read.",
    }


@pytest.mark.parametrize(
    ("value", "written"), [(float("nan"), "nan"), (float("inf"), "inf"), (float("-inf"), "-inf")]
)
def test_numbers_that_json_lacks_are_names(value: float, written: str) -> None:
    scan = overflow_scan()
    (first, *rest) = scan.findings
    (tensor, *tensors) = first.op.tensors
    tensor = replace(tensor, stats=replace(tensor.stats, min=value, mean=value, l2=value))
    reason = replace(first.reason, parameters={"max_input": value})
    op = replace(first.op, tensors=(tensor, *tensors))
    scan = replace(
        scan,
        findings=(replace(first, op=op, reason=reason), *rest),
        config={"a": [value, {"b": value}], "c": {1, 2}, "d": object},
    )
    document = parse(scan)
    finding = document["findings"][0]
    assert [finding["tensors"][0][key] for key in ("min", "mean", "l2")] == [written] * 3
    assert finding["reason_parameters"] == {"max_input": written}
    assert document["config"]["a"] == [written, {"b": written}]


@pytest.mark.parametrize(
    ("dtype", "low", "high", "from_statistics", "posinf", "saturated"),
    [
        ("float16", -2.0, None, True, 1, None),  # the largest finite one may be 65504
        ("float16", None, 3.0, True, 1, None),
        ("float16", None, None, True, 3, None),
        ("float16", None, None, True, 4, 0),  # all four are Inf
        ("float16", -2.0, 3.0, True, 0, 0),
        ("float16", -2.0, None, False, 1, 0),  # counted in the values
        ("int32", None, None, True, 0, 0),  # integers are never saturated
    ],
)
def test_what_written_statistics_do_not_tell_is_null(
    dtype: str,
    low: float | None,
    high: float | None,
    from_statistics: bool,
    posinf: int,
    saturated: int | None,
) -> None:
    stats = TensorStats(count=4, posinf=posinf, near_limit=None, min=low, max=high)
    tensor = TensorSummary(
        "output", 0, dtype, "ND", (4,), from_statistics=from_statistics, stats=stats
    )
    entry = build_tensor(tensor)
    assert (entry["posinf"], entry["saturated"], entry["near_limit"]) == (posinf, saturated, None)


def test_every_name_survives_and_the_text_is_valid_utf8() -> None:
    scan = named_scan()
    document = parse(scan)
    assert tuple(finding["op_name"] for finding in document["findings"]) == HOSTILE_NAMES
    assert tuple(finding["file"] for finding in document["findings"]) == HOSTILE_NAMES
    assert [failure["message"] for failure in document["read_failures"]] == list(HOSTILE_NAMES)
    assert document["root"] == scan.root
    text = dump_document(scan)
    assert not {"\x1b", "\x00", "\u202e", "\udcff"} & set(text)
    assert "算子" in text


def test_a_limit_cuts_the_list_and_says_how_much() -> None:
    scan = large_scan(12)
    document = parse(scan, limit=5)
    assert [finding["rank"] for finding in document["findings"]] == [1, 2, 3, 4, 5]
    assert document["truncated"] == 7
    assert document["limit"]["findings_left_out"] == 7
    assert document["counts"]["findings"] == 12
    for everything in (None, 0, 12, 99):
        whole = parse(scan, limit=everything)
        assert (len(whole["findings"]), whole["truncated"]) == (12, 0)


def test_a_cause_beyond_the_limit_keeps_its_rank() -> None:
    scan = overflow_scan()
    first, second = scan.findings
    swapped = (replace(second, rank=1), replace(first, rank=2))
    (finding,) = parse(replace(scan, findings=swapped), limit=1)["findings"]
    assert finding["caused_by"] == 2


def test_the_reporter_lists_a_thousand_unless_told_otherwise() -> None:
    reporter = DocumentReporter()
    scan = large_scan(DEFAULT_LIMIT + 3)
    for limit, expected in ((None, 1000), (0, 1003), (7, 7)):
        target = io.BytesIO()
        reporter.write(scan, target, limit=limit, lang="en")
        document = json.loads(target.getvalue())
        assert len(document["findings"]) == expected
        assert document["truncated"] == 1003 - expected


def test_nothing_depends_on_time_or_workers() -> None:
    first = overflow_scan()
    second = replace(
        first,
        scan_id="other",
        started_at="2031-01-01",
        duration_s=99.0,
        options=ScanOptions(jobs=7),
    )
    one, two = build_document(first), build_document(second)
    assert one.pop("scan_id") != two.pop("scan_id")
    assert one == two


def test_sentences_follow_the_language_and_keys_do_not() -> None:
    english, chinese = parse(overflow_scan()), parse(overflow_scan(), lang="zh")
    assert english.keys() == chinese.keys()
    assert chinese["verdict"]["text"].startswith("最先出错的算子是 BatchMatMulV2")
    assert chinese["findings"][0]["reason"].startswith("输出 0 的 2,048 个 float16 元素中有 513 个")
    assert chinese["findings"][0]["verdict"] == "origin"


def test_known_findings_are_marked() -> None:
    scan = overflow_scan()
    findings = tuple(replace(finding, known=True) for finding in scan.findings)
    document = parse(replace(scan, findings=findings))
    assert [finding["known"] for finding in document["findings"]] == [True, True]


def test_each_finding_has_its_own_line() -> None:
    lines = dump_document(large_scan(4)).splitlines()
    entries = [line for line in lines if line.startswith('  {"rank": ')]
    assert [json.loads(line.rstrip(",]"))["rank"] for line in entries] == [1, 2, 3, 4, None]
