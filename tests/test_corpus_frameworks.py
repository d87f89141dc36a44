"""The mindspore and msprobe cases of the corpus give their ground truth."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dumpscope.model import Scan
from dumpscope.scanning import scan


def truth_of(case: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((case / "ground_truth.json").read_text(encoding="utf-8"))
    return loaded


def best_of(answer: Scan) -> tuple[int | None, int | None, str, str]:
    best = answer.findings[0]
    return best.op.step, best.op.device, best.op.op_name, best.verdict.value


@pytest.mark.parametrize("name", ["exp_overflow__tensor", "exp_overflow__statistic_synth"])
def test_mindspore_names_the_operator_and_the_iteration(corpus: Path, name: str) -> None:
    case = corpus / "mindspore" / name
    answer = scan(case / "dump")
    truth = truth_of(corpus / "mindspore" / "exp_overflow__tensor")
    op_type, op_name, role, slot = truth["first_nonfinite"]
    best = answer.findings[0]
    tensor = best.op.tensors[best.deciding or 0]
    assert (best.op.op_type, best.op.op_name) == (op_type, op_name)
    assert (tensor.role, tensor.index) == (role, slot)
    assert best.op.step == truth["first_bad_iteration"]
    assert best.verdict.value == "origin"
    assert answer.exit_status == 1


def test_mindspore_tensors_are_counted_exactly(corpus: Path) -> None:
    case = corpus / "mindspore" / "exp_overflow__tensor"
    answer = scan(case / "dump")
    observed = {Path(entry["dir"]).name: entry for entry in truth_of(case)["observed"]}
    bad = [t for f in answer.findings if f.op.step == 1 for t in f.op.tensors if t.stats.nonfinite]
    assert len(bad) == observed["1"]["files_nonfinite"]
    assert sum(t.stats.nonfinite for t in bad) == observed["1"]["nonfinite_elements"]


def test_mindspore_healthy_run_is_clean(corpus: Path) -> None:
    answer = scan(corpus / "mindspore" / "clean__tensor" / "dump")
    assert (answer.exit_status, answer.findings, answer.expected) == (0, (), ())


@pytest.mark.parametrize(
    "name",
    [
        "gpt_fp16__L1_statistics_statistics", "gpt_fp16__L1_statistics_md5",
        "gpt_fp16__mix_statistics_statistics", "gpt_fp16__mix_tensor", "cnn_log0__L1_tensor",
        "cnn_log0__mix_statistics_statistics", "cnn_log0__L1_statistics_statistics_v833",
        "cnn_log0__mix_statistics_statistics_v833", "bwd_sqrt0__mix_statistics_statistics",
        "ddp__L1_statistics_statistics", "ddp__L1_statistics_md5",
        "ddp__mix_statistics_statistics",
    ],
)  # fmt: skip
def test_msprobe_names_the_api_the_step_and_the_rank(corpus: Path, name: str) -> None:
    expected = truth_of(corpus / "msprobe" / name)["expected"]
    answer = scan(corpus / "msprobe" / name / "dump")
    step, device, op_name, verdict = best_of(answer)
    api, _, rank = expected["api"].partition(" on rank ")
    assert (op_name, step, verdict) == (api, expected["first_bad_step"], "origin")
    assert device == (int(rank) if rank else None)
    assert answer.findings[0].op.stack
    assert answer.exit_status == 1


@pytest.mark.parametrize(
    ("name", "step", "device", "op_name", "verdict"),
    [
        ("gpt_fp16__L0_statistics_statistics", 0, None,
         "Module.layers.1.attn.Attention.forward.0", "origin"),
        ("bwd_sqrt0__L0_statistics_statistics", 1, None,
         "Module.fc.Linear.backward.0", "bad_input"),
        ("ddp__L0_statistics_statistics", 1, 1, "Module.fc1.Linear.forward.0", "bad_input"),
        ("gpt_fp16__debug_tensor", 0, None, "scores.0.debug", "unknown_inputs"),
    ],
)  # fmt: skip
def test_msprobe_modules_alone_name_the_module(
    corpus: Path, name: str, step: int, device: int | None, op_name: str, verdict: str
) -> None:
    answer = scan(corpus / "msprobe" / name / "dump")
    assert best_of(answer) == (step, device, op_name, verdict)


def test_msprobe_loss_outside_of_every_module_shows_at_its_gradient(corpus: Path) -> None:
    answer = scan(corpus / "msprobe" / "cnn_log0__L0_statistics_statistics" / "dump")
    step, _, op_name, _ = best_of(answer)
    assert step == 1
    assert op_name.startswith("Module.fc.Linear.")


@pytest.mark.parametrize("name", ["clean__mix_statistics_statistics"])
def test_msprobe_healthy_run_is_clean(corpus: Path, name: str) -> None:
    answer = scan(corpus / "msprobe" / name / "dump")
    assert (answer.exit_status, answer.complete, answer.findings) == (0, True, ())


def test_msprobe_benign_mask_is_expected_and_listed(corpus: Path) -> None:
    answer = scan(corpus / "msprobe" / "benign_mask__mix_statistics_statistics" / "dump")
    assert (answer.exit_status, answer.findings) == (0, ())
    assert {f.op.op_type for f in answer.expected} == {"Tensor.masked_fill"}
    assert answer.counts.expected == len(answer.expected) > 0


@pytest.mark.parametrize("name", ["gpt_fp16__L1_statistics_xor", "gpt_fp16__mix_structure"])
def test_msprobe_without_values_is_incomplete_and_never_clean(corpus: Path, name: str) -> None:
    answer = scan(corpus / "msprobe" / name / "dump")
    assert (answer.exit_status, answer.complete, answer.findings) == (3, False, ())
    assert answer.counts.unchecked > 0


def test_the_way_into_the_tree_does_not_matter(corpus: Path) -> None:
    root = corpus / "msprobe" / "ddp__L1_statistics_statistics" / "dump"
    whole = scan(root).findings[0]
    for part in ("step1", "step1/rank1", "step1/rank1/dump.json"):
        best = scan(root / part).findings[0]
        assert (best.op.op_name, best.op.step, best.op.device) == (
            whole.op.op_name, whole.op.step, whole.op.device,
        )  # fmt: skip
