"""Whole scans of parallel jobs: who was bad first, who received it, and through what."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from dumpscope.model import Scan, ScanOptions
from dumpscope.scanning import scan
from dumpscope.words import render
from rank_trees import Job, multiply, write_probe_step

Array = npt.NDArray[np.float16]
FINITE = np.linspace(-2, 2, 32, dtype=np.float16).reshape(4, 8)
LARGE = np.full((4, 8), 30000, dtype=np.float16)
INFINITE = np.full((4, 8), np.inf, dtype=np.float16)


def verdicts(answer: Scan, op_type: str) -> dict[int | None, str]:
    return {f.op.device: f.verdict.value for f in answer.findings if f.op.op_type == op_type}


def states(answer: Scan) -> dict[int | None, str]:
    return {summary.rank: summary.state for summary in answer.ranks}


def best(answer: Scan) -> tuple[str, int | None, str]:
    finding = answer.findings[0]
    return finding.op.op_type, finding.op.device, finding.verdict.value


def notes(answer: Scan) -> dict[str, dict[str, Any]]:
    return {note.code: dict(note.parameters) for note in answer.notes}


def train(job: Job, culprits: Sequence[int] = ()) -> None:
    """One step: a product that overflows on the culprits, then the sum, then what comes after."""
    total = job.all_reduce(multiply(job, FINITE, culprits))
    for rank in range(job.ranks):
        with np.errstate(invalid="ignore"):
            job.run(rank, "Sub", [total, total], [total - total])


@pytest.mark.parametrize("culprits", [[0], [5], [7], [2, 6]])
def test_the_rank_that_overflowed_comes_first_whatever_the_clocks_say(
    tmp_path: Path, culprits: list[int]
) -> None:
    # The culprits' clocks are hours behind the others'.
    job = Job(tmp_path, 8, skew_us=lambda r: 10**10 if r in culprits else (r * 7919) % 10**6)
    train(job)
    job.step = 1
    train(job, culprits)
    answer = scan(tmp_path)
    assert best(answer) == ("Mul", culprits[0], "origin")
    assert verdicts(answer, "Mul") == dict.fromkeys(culprits, "origin")
    expected = {r: "propagated" if r in culprits else "received" for r in range(8)}
    assert verdicts(answer, "HcomAllReduce") == expected
    assert states(answer) == {r: "own" if r in culprits else "received" for r in range(8)}
    infected = next(s for s in answer.ranks if s.state == "received")
    assert infected.senders == tuple(culprits)
    assert infected.received is not None
    assert (infected.received.op_type, infected.received.step) == ("HcomAllReduce", 1)
    received = next(f for f in answer.findings if f.verdict.value == "received")
    assert received.reason.parameters["ranks"] == ", ".join(map(str, culprits))
    assert answer.exit_status == 1
    assert answer.complete


def test_a_sum_of_finite_values_that_overflows_is_the_origin_on_all_ranks(tmp_path: Path) -> None:
    job = Job(tmp_path, 4, skew_us=lambda r: 5000 * (4 - r))
    job.all_reduce([LARGE] * 4)
    answer = scan(tmp_path)
    assert verdicts(answer, "HcomAllReduce") == dict.fromkeys(range(4), "origin")
    assert best(answer) == ("HcomAllReduce", 0, "origin")
    assert states(answer) == dict.fromkeys(range(4), "together")
    assert notes(answer)["ranks_together"]["ranks"] == "0-3"


def test_a_rank_that_is_not_in_the_dump_may_have_sent_it(tmp_path: Path) -> None:
    job = Job(tmp_path, 4)
    train(job, [2])
    for path in sorted((tmp_path / "20260101000000/2").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    (tmp_path / "20260101000000/2").rmdir()
    answer = scan(tmp_path)
    assert verdicts(answer, "HcomAllReduce") == {0: "received", 1: "received", 3: "received"}
    sentence = render(answer.findings[0].reason)
    assert "came most likely from a rank that is not in the dump (missing: rank 2)" in sentence


def test_a_rank_whose_file_cannot_be_read_may_have_sent_it(tmp_path: Path) -> None:
    job = Job(tmp_path, 4)
    train(job)
    for path in (tmp_path / "20260101000000").rglob("HcomAllReduce*"):
        path.unlink()
    sent = [FINITE] * 4
    files = [job.run(r, "HcomAllReduce", [sent[r]], [INFINITE], "net/sum") for r in range(4)]
    files[3].write_bytes(b"\x07")
    answer = scan(tmp_path)
    assert verdicts(answer, "HcomAllReduce") == dict.fromkeys(range(3), "received")
    sentence = render(answer.findings[0].reason)
    assert "came from rank 3, whose inputs could not be checked" in sentence
    assert not answer.complete


def test_a_rank_whose_folder_cannot_be_read_may_have_sent_it(tmp_path: Path) -> None:
    """The last one: its number leaves no gap. One of its folders is nested too deep to be read."""
    job = Job(tmp_path, 3)
    job.all_reduce([FINITE, FINITE, INFINITE])
    for path in (tmp_path / "20260101000000/2/net/1/0").iterdir():
        path.unlink()
    (tmp_path / "20260101000000/2/net/1/0" / "/".join(["deeper"] * 70)).mkdir(parents=True)
    answer = scan(tmp_path)
    assert verdicts(answer, "HcomAllReduce") == {0: "received", 1: "received"}
    assert notes(answer)["ranks_received"]["total"] == 2


def test_a_broadcast_spreads_what_its_root_holds(tmp_path: Path) -> None:
    job = Job(tmp_path, 4)
    zero = np.zeros((4, 8), np.float16)
    with np.errstate(invalid="ignore"):
        job.run(2, "RealDiv", [zero, zero], [zero / zero])
    weights = np.full((4, 8), np.nan, np.float16)
    for rank in range(4):
        buffer = weights if rank == 2 else zero
        job.run(rank, "HcomBroadcast", [buffer], [weights])
    answer = scan(tmp_path)
    assert best(answer) == ("RealDiv", 2, "origin")
    assert verdicts(answer, "HcomBroadcast") == {
        0: "received", 1: "received", 2: "propagated", 3: "received",
    }  # fmt: skip
    assert states(answer) == {0: "received", 1: "received", 2: "own", 3: "received"}


def test_garbage_in_a_buffer_that_a_broadcast_fills_is_nothing(tmp_path: Path) -> None:
    job = Job(tmp_path, 3)
    for rank in range(3):
        job.run(rank, "HcomBroadcast", [INFINITE if rank == 1 else FINITE], [FINITE])
    answer = scan(tmp_path)
    assert answer.findings == ()
    assert states(answer) == dict.fromkeys(range(3), "clean")


def test_a_message_carries_it_from_stage_to_stage(tmp_path: Path) -> None:
    job = Job(tmp_path, 3, skew_us=lambda r: -(10**9) * r)
    with np.errstate(over="ignore"):
        product = LARGE * LARGE
    job.run(0, "BatchMatMulV2", [LARGE, LARGE], [product])
    for stage in (0, 1):
        job.run(stage, "HcomSend", [product], [], f"pipe/HcomSend-op{stage}")
        job.run(stage + 1, "HcomReceive", [], [product], f"pipe/HcomReceive-op{stage + 8}")
        job.run(stage + 1, "Relu", [product], [product])
    answer = scan(tmp_path)
    assert best(answer) == ("BatchMatMulV2", 0, "origin")
    assert verdicts(answer, "HcomReceive") == {1: "received", 2: "received"}
    assert states(answer) == {0: "own", 1: "received", 2: "received"}


@pytest.mark.parametrize("outputs_only", [False, True])
def test_where_hardware_saturates_the_rank_that_reached_the_limit_comes_first(
    tmp_path: Path, outputs_only: bool
) -> None:
    """In saturation mode 65504 takes the place of Inf, in the sum too."""
    limit = np.full((4, 8), 65504, np.float16)
    job = Job(tmp_path, 4, outputs_only=outputs_only)
    job.run(2, "Mul", [FINITE, LARGE], [limit])
    for rank in range(4):
        job.run(rank, "HcomAllReduce", [limit if rank == 2 else FINITE], [limit])
    answer = scan(tmp_path)
    assert best(answer) == ("Mul", 2, "saturated_origin")
    assert verdicts(answer, "HcomAllReduce") == {0: "received", 1: "received", 3: "received"}
    assert states(answer) == {0: "received", 1: "received", 2: "own", 3: "received"}
    assert {s.rank: s.senders for s in answer.ranks} == {0: (2,), 1: (2,), 2: (), 3: (2,)}
    assert answer.mode.number_mode == "saturation"


def test_ranks_that_reached_the_limit_themselves_received_nothing(tmp_path: Path) -> None:
    limit = np.full((4, 8), 65504, np.float16)
    job = Job(tmp_path, 3, outputs_only=True)
    for rank in range(3):
        job.run(rank, "Mul", [FINITE, LARGE], [FINITE if rank == 1 else limit])
    for rank in range(3):
        job.run(rank, "HcomAllReduce", [FINITE if rank == 1 else limit], [limit])
    answer = scan(tmp_path)
    assert verdicts(answer, "Mul") == {0: "saturated_origin", 2: "saturated_origin"}
    assert verdicts(answer, "HcomAllReduce") == {1: "received"}
    (received,) = (f for f in answer.findings if f.verdict.value == "received")
    assert received.reason.parameters["ranks"] == "0, 2"


def test_an_all_gather_spreads_one_part_to_all(tmp_path: Path) -> None:
    job = Job(tmp_path, 4)
    parts = [INFINITE if rank == 3 else FINITE for rank in range(4)]
    job.run(3, "Exp", [LARGE], [INFINITE])
    for rank in range(4):
        job.run(rank, "HcomAllGather", [parts[rank]], [np.concatenate(parts)])
    answer = scan(tmp_path)
    assert best(answer) == ("Exp", 3, "origin")
    expected = {0: "received", 1: "received", 2: "received", 3: "propagated"}
    assert verdicts(answer, "HcomAllGather") == expected


def test_inputs_and_outputs_in_two_files_are_one_exchange(tmp_path: Path) -> None:
    job = Job(tmp_path, 3)
    job.run(1, "Exp", [LARGE], [INFINITE])
    for rank in range(3):
        sent = INFINITE if rank == 1 else FINITE
        first = job.run(rank, "HcomAllReduce", [sent], [], "net/sum")
        second = job.run(rank, "HcomAllReduce", [], [INFINITE], "net/sum")
        # The same task wrote both.
        task = first.name.split(".")[2]
        parts = second.name.split(".")
        second.rename(second.with_name(".".join([*parts[:2], task, *parts[3:]])))
    answer = scan(tmp_path)
    assert answer.counts.ops == 4
    assert verdicts(answer, "HcomAllReduce") == {0: "received", 1: "propagated", 2: "received"}


def test_clean_ranks_with_inputs_and_outputs_in_two_files_are_known(tmp_path: Path) -> None:
    job = Job(tmp_path, 3)
    for rank in range(3):
        first = job.run(rank, "HcomReduce", [LARGE], [], "net/sum")
        if rank:
            continue
        second = job.run(rank, "HcomReduce", [], [INFINITE], "net/sum")
        parts = second.name.split(".")
        parts[2] = first.name.split(".")[2]
        second.rename(second.with_name(".".join(parts)))
    answer = scan(tmp_path)
    # All of them sent finite values, so the sum at the root is what went wrong.
    assert verdicts(answer, "HcomReduce") == {0: "origin"}


def test_processes_of_one_job_have_time_folders_of_their_own(tmp_path: Path) -> None:
    runs = {rank: f"2026010100000{rank}" for rank in range(4)}
    train(Job(tmp_path, 4, runs=runs), [3])
    answer = scan(tmp_path)
    assert best(answer) == ("Mul", 3, "origin")
    assert states(answer) == {0: "received", 1: "received", 2: "received", 3: "own"}
    assert {summary.run for summary in answer.ranks} == {"20260101000003"}


def test_outputs_alone_tell_who_was_bad_before_the_exchange(tmp_path: Path) -> None:
    train(Job(tmp_path, 4, outputs_only=True), [1])
    answer = scan(tmp_path)
    assert best(answer)[:2] == ("HcomAllReduce", 0) or best(answer)[:2] == ("Mul", 1)
    assert verdicts(answer, "HcomAllReduce") == {
        0: "received", 1: "propagated", 2: "received", 3: "received",
    }  # fmt: skip
    assert states(answer) == {0: "received", 1: "own", 2: "received", 3: "received"}


def test_numbers_in_names_may_differ_from_rank_to_rank(tmp_path: Path) -> None:
    job = Job(tmp_path, 3)
    for rank in range(3):
        job.run(rank, "AllReduce", [FINITE], [FINITE], f"net/AllReduce-op{10 + rank}")
    job.run(0, "Exp", [LARGE], [INFINITE])
    for rank in range(3):
        sent = FINITE if rank else INFINITE
        job.run(rank, "AllReduce", [sent], [INFINITE], f"net/AllReduce-op{11 + rank}")
    answer = scan(tmp_path)
    assert verdicts(answer, "AllReduce") == {0: "propagated", 1: "received", 2: "received"}


# --- msprobe -----------------------------------------------------------------------------------


def probe_tensor(largest: float) -> dict[str, object]:
    return {
        "type": "torch.Tensor", "dtype": "torch.float32", "shape": [4], "Max": largest,
        "Min": -1.0 if math.isfinite(largest) else largest, "Mean": 0.0, "Norm": 1.0,
        "requires_grad": False,
    }  # fmt: skip


def probe_sum(number: int, sent: float, total: float, ranks: list[int]) -> tuple[str, Any]:
    group = {
        "type": "torch.ProcessGroup",
        "group_ranks": ranks,
        "group_id": f"{len(ranks)}{ranks[0]}",
    }
    return (
        f"Distributed.all_reduce.{number}.forward",
        {
            "input_args": [probe_tensor(sent)],
            "input_kwargs": {"group": group},
            "output": [probe_tensor(total)],
        },
    )


def test_groups_that_msprobe_lists_are_kept_apart(tmp_path: Path) -> None:
    nan = math.nan
    for rank in range(4):
        pair = [0, 1] if rank < 2 else [2, 3]
        bad = rank >= 2
        entries = [probe_sum(0, nan if rank == 2 else 1.0, nan if bad else 2.0, pair)]
        write_probe_step(tmp_path, 0, rank, entries)
    answer = scan(tmp_path)
    assert verdicts(answer, "Distributed.all_reduce") == {2: "bad_input", 3: "received"}
    assert states(answer) == {0: "clean", 1: "clean", 2: "own", 3: "received"}


def test_a_rank_of_a_listed_group_that_is_not_there_is_named(tmp_path: Path) -> None:
    write_probe_step(tmp_path, 0, 0, [probe_sum(0, 1.0, math.nan, [0, 4])])
    write_probe_step(tmp_path, 0, 1, [probe_sum(0, 1.0, 1.0, [1, 5])])
    answer = scan(tmp_path)
    (finding,) = answer.findings
    assert finding.verdict.value == "received"
    assert finding.reason.parameters["absent"] == "4"


# --- the corpus --------------------------------------------------------------------------------


def test_eight_ranks_of_the_corpus(corpus: Path) -> None:
    case = corpus / "cann" / "ranks8"
    truth = json.loads((case / "ground_truth.json").read_text(encoding="utf-8"))
    answer = scan(case / "dump", ScanOptions(tp=8))
    culprits = truth["culprit_ranks"]
    assert states(answer) == {r: "own" if r in culprits else "received" for r in range(8)}
    for summary in answer.ranks:
        assert summary.first is not None
        first = truth["per_rank"][str(summary.rank)]["first_origin"]
        assert f"dump/{summary.first.file}" == first["file"]
        assert (summary.first.op_type, summary.first.step) == (first["op_type"], first["step"])
        if summary.rank not in culprits:
            assert summary.senders == tuple(culprits)
    assert notes(answer)["ranks_own_group"]["group"] == "TP=3 + TP=5"
    assert notes(answer)["ranks_assumed_order"]["order"] == "tp-cp-ep-dp-pp"


@pytest.mark.parametrize(
    "level", ["L1_statistics_statistics", "L1_statistics_md5", "mix_statistics_statistics"]
)
def test_two_ranks_of_the_corpus(corpus: Path, level: str) -> None:
    case = corpus / "msprobe" / f"ddp__{level}"
    truth = json.loads((case / "ground_truth.json").read_text(encoding="utf-8"))["expected"]
    answer = scan(case / "dump")
    own, infected = answer.ranks[truth["rank"]], answer.ranks[1 - truth["rank"]]
    assert (own.state, infected.state) == ("own", "received")
    assert own.first is not None
    assert f"{own.first.op_name} on rank {own.rank}" == truth["api"]
    assert own.first.step == truth["first_bad_step"]
    assert own.first.finding == 1
    assert infected.received is not None
    assert infected.received.op_name == truth["comm"]
    assert infected.senders == (own.rank,)


def test_modules_alone_show_which_rank_was_bad_a_step_earlier(corpus: Path) -> None:
    answer = scan(corpus / "msprobe" / "ddp__L0_statistics_statistics" / "dump")
    assert states(answer) == {0: "later", 1: "own"}
