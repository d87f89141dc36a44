"""The cann cases of the corpus give their ground truth. They run where the corpus is present."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dumpscope.model import Scan
from dumpscope.scanning import scan


@pytest.fixture(scope="module")
def cases(corpus: Path) -> Path:
    return corpus / "cann"


def truth_of(case: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((case / "ground_truth.json").read_text(encoding="utf-8"))
    return loaded


def name_in(case: Path, answer: Scan, number: int = 0) -> str:
    """Path of a finding's file as the ground truth writes it."""
    return (Path(answer.root) / answer.findings[number].op.file).relative_to(case).as_posix()


@pytest.mark.parametrize(
    "name",
    ["gpt_fp16_overflow", "single_op_layout", "long_names", "opdebug_old", "stats_csv_aicpu"],
)
def test_the_first_offender_is_rank_1_and_an_origin(cases: Path, name: str) -> None:
    truth = truth_of(cases / name)
    answer = scan(cases / name / "dump")
    best = answer.findings[0]
    assert name_in(cases / name, answer) == truth["first_offender"]["file"]
    assert best.verdict.value == "origin"
    assert best.op.op_type == truth["first_offender"]["op_type"]
    nan, inf = map(sum, zip(*truth["first_offender"]["output_nan_inf"], strict=True))
    stats = [t.stats for t in best.op.outputs]
    assert sum(s.nan for s in stats) == nan
    assert sum(s.posinf + s.neginf for s in stats) == inf
    origins = [f for f in answer.findings if f.verdict.value == "origin"]
    assert len(origins) == len(truth["all_origins(finite in, non-finite out)"])
    assert answer.exit_status == 1
    assert answer.mode.number_mode == "inf_nan"


def test_the_operators_that_hold_a_bad_value_are_counted(cases: Path) -> None:
    truth = truth_of(cases / "gpt_fp16_overflow")
    answer = scan(cases / "gpt_fp16_overflow" / "dump")
    assert answer.counts.ops == truth["ops"]
    assert answer.counts.findings == truth["ops_with_nonfinite"]
    assert answer.complete


def test_a_healthy_run_is_clean(cases: Path) -> None:
    answer = scan(cases / "gpt_fp16_clean" / "dump")
    assert (answer.exit_status, answer.complete, answer.findings) == (0, True, ())
    assert answer.counts.ops == truth_of(cases / "gpt_fp16_clean")["ops"]


def test_without_inputs_order_names_the_same_operator(cases: Path) -> None:
    truth = truth_of(cases / "output_only")
    answer = scan(cases / "output_only" / "dump")
    assert name_in(cases / "output_only", answer) == truth["first_offender"]["file"]
    assert answer.findings[0].verdict.value == "unknown_inputs"
    assert answer.findings[0].evidence == ("order",)


def test_overflow_records_point_to_their_operators(cases: Path) -> None:
    case = cases / "opdebug_old"
    truth = truth_of(case)
    answer = scan(case / "dump")
    flagged = {
        (name_in(case, answer, n), f.overflow.status[0])
        for n, f in enumerate(answer.findings)
        if f.overflow is not None
    }
    assert flagged == {(record["target"], record["status"]) for record in truth["opdebug"]}
    verdicts = [f.verdict.value for f in answer.findings if f.overflow is not None]
    assert verdicts == ["origin", "status_origin"]


def test_saturation_is_found_where_nothing_is_infinite(cases: Path) -> None:
    truth = truth_of(cases / "saturation_mode")["saturated_op"]
    answer = scan(cases / "saturation_mode" / "dump")
    best = answer.findings[0]
    assert name_in(cases / "saturation_mode", answer) == truth["file"]
    assert best.verdict.value == "saturated_origin"
    assert sum(t.stats.saturated for t in best.op.outputs) == truth["count_at_65504"]
    assert answer.mode.number_mode == "saturation"


def test_each_thread_of_a_split_operator_is_an_origin(cases: Path) -> None:
    case = cases / "fftsplus"
    answer = scan(case / "dump")
    origins = [n for n, f in enumerate(answer.findings) if f.verdict.value == "origin"]
    assert [name_in(case, answer, n) for n in origins] == truth_of(case)["origins"]
    assert origins == [0, 1, 2, 3]


def test_padding_is_not_judged(cases: Path) -> None:
    case = cases / "format_padding"
    truth = truth_of(case)
    answer = scan(case / "dump")
    assert name_in(case, answer) == truth["first_offender(logical)"]
    found = {name_in(case, answer, n): f for n, f in enumerate(answer.findings)}
    for entry in truth["files"]:
        if "logical_nan" not in entry:
            continue
        finding = found.pop(entry["file"], None)
        if not entry["logical_nan"] and not entry["logical_inf"]:
            assert finding is None, entry
            continue
        assert finding is not None
        tensor = finding.op.tensors[finding.deciding or 0]
        assert tensor.stats.nan == entry["logical_nan"]
        assert tensor.stats.posinf + tensor.stats.neginf == entry["logical_inf"]
        if "bad_logical_index" in entry:
            assert list(tensor.stats.first_bad or ()) == entry["bad_logical_index"][0]
    # What is left has no logical extent on record.
    assert [Path(file).name.split(".")[1] for file in found] == ["net_no_orig_shape"]


def test_every_dtype_is_counted_exactly(cases: Path) -> None:
    case = cases / "dtypes"
    answer = scan(case / "dump")
    found = {name_in(case, answer, n): f for n, f in enumerate(answer.findings)}
    for entry in truth_of(case)["files"]:
        if entry.get("nan") is None:
            continue
        finding = found.get(entry["file"])
        if not entry["nan"] and not entry["inf"]:
            assert finding is None, entry
            continue
        assert finding is not None, entry
        stats = finding.op.outputs[0].stats
        assert (stats.nan, stats.posinf + stats.neginf) == (entry["nan"], entry["inf"]), entry


def test_the_culprit_ranks_come_before_those_they_infected(cases: Path) -> None:
    case = cases / "ranks8"
    truth = truth_of(case)
    answer = scan(case / "dump")
    origins = [f for f in answer.findings if f.verdict.value == "origin"]
    assert [f.op.device for f in origins] == truth["culprit_ranks"]
    assert [f.rank for f in origins] == [1, 2]
    received: dict[int | None, str] = {}
    for number, finding in enumerate(answer.findings):
        if finding.verdict.value == "received":
            received.setdefault(finding.op.device, name_in(case, answer, number))
    for rank, entry in truth["per_rank"].items():
        if int(rank) not in truth["culprit_ranks"]:
            assert received[int(rank)] == entry["first_origin"]["file"]


def test_damaged_files_are_failures_and_never_clean(cases: Path) -> None:
    case = cases / "corrupt"
    answer = scan(case / "dump")
    assert not answer.complete
    failed = {
        (Path(answer.root) / f.file).relative_to(case).as_posix() for f in answer.read_failures
    }
    intact = {
        "good", "trailing_garbage", "format_unknown", "no_tensors", "unknown_field",
        "weird_opname", "invalid_utf8_opname", "shape_negative", "dtype_unknown",
        "hdr_bitflip", "odd_size_fp16",
    }  # fmt: skip
    for entry in truth_of(case)["files"]:
        if entry["tag"] not in intact:
            assert entry["file"] in failed, entry
    assert answer.findings[0].op.file.endswith("BatchMatMulV2.net_good.5.2.1764417600000000")
    assert answer.counts.unchecked > 0


def test_exception_dumps_are_unchecked_where_they_have_no_type(cases: Path) -> None:
    case = cases / "exception_dump"
    answer = scan(case / "extra-info")
    truth = truth_of(case)["files"][1]
    assert name_in(case, answer).endswith(truth["file"])
    stats = answer.findings[0].op.outputs[0].stats
    assert [stats.nan, stats.posinf + stats.neginf] == truth["output_nan_inf"]
    assert answer.counts.unchecked == 3
    assert not answer.complete
