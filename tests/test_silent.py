"""Exchanges whose results were not dumped: who may have received what shows behind them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from dumpscope.model import Finding, Scan, ScanOptions
from dumpscope.scanning import scan
from dumpscope.words import render
from rank_trees import RUN, Job, multiply, write_probe_step

Array = npt.NDArray[np.float16]
FINITE = np.linspace(-2, 2, 32, dtype=np.float16).reshape(4, 8)
LARGE = np.full((4, 8), 30000, dtype=np.float16)
INFINITE = np.full((4, 8), np.inf, dtype=np.float16)


def states(answer: Scan) -> dict[int | None, str]:
    return {summary.rank: summary.state for summary in answer.ranks}


def verdicts(answer: Scan, op_type: str) -> dict[int | None, str]:
    return {f.op.device: f.verdict.value for f in answer.findings if f.op.op_type == op_type}


def best(answer: Scan) -> tuple[str, int | None, str]:
    finding = answer.findings[0]
    return finding.op.op_type, finding.op.device, finding.verdict.value


def note(answer: Scan, code: str) -> dict[str, Any]:
    return next((dict(n.parameters) for n in answer.notes if n.code == code), {})


def finding_of(answer: Scan, op_type: str, rank: int) -> Finding:
    return next(f for f in answer.findings if (f.op.op_type, f.op.device) == (op_type, rank))


def train(job: Job, culprits: Sequence[int] = ()) -> None:
    """One step: a product that overflows on the culprits, the sum of all, and what reads it."""
    total = job.all_reduce(multiply(job, FINITE, culprits))
    for rank in range(job.ranks):
        job.run(rank, "Relu", [total], [np.maximum(total, 0)])
        job.run(rank, "Square", [total], [total])


@pytest.mark.parametrize("culprits", [[0], [2], [3], [1, 3]])
def test_inputs_alone_tell_who_sent_it(tmp_path: Path, culprits: list[int]) -> None:
    job = Job(tmp_path, 4, inputs_only=True, skew_us=lambda r: 10**9 if r in culprits else 0)
    train(job)
    job.step = 1
    train(job, culprits)
    answer = scan(tmp_path)
    assert best(answer) == ("HcomAllReduce", culprits[0], "bad_input")
    assert states(answer) == {r: "own" if r in culprits else "received" for r in range(4)}
    infected = [r for r in range(4) if r not in culprits]
    expected = {r: "received" if r in infected else "propagated" for r in range(4)}
    assert verdicts(answer, "Relu") == expected
    assert verdicts(answer, "Square") == dict.fromkeys(range(4), "propagated")
    for summary in answer.ranks:
        if summary.rank in infected:
            assert summary.received is not None
            assert summary.first is not None
            assert (summary.first.op_type, summary.received.op_type) == ("Relu", "HcomAllReduce")
            assert summary.senders == tuple(culprits)
    told = note(answer, "ranks_received")
    assert (told["op_type"], told["count"]) == ("HcomAllReduce", len(infected))
    first = finding_of(answer, "Relu", infected[0])
    assert first.caused_by == finding_of(answer, "HcomAllReduce", culprits[0]).op.op_id
    sentence = render(first.reason)
    ranks = "rank 1, 3" if len(culprits) > 1 else f"rank {culprits[0]}"
    assert (
        "HcomAllReduce net/HcomAllReduce-op1 before it, whose result was not dumped, was given bad "
        f"values by {ranks.replace('rank 1,', 'ranks 1,')}: they came in through it (by order"
    ) in sentence


@pytest.mark.parametrize(("tp", "pp"), [(2, 1), (4, 1), (2, 2)])
def test_sizes_of_the_job_do_not_divide_an_exchange_without_results(
    tmp_path: Path, tp: int, pp: int
) -> None:
    train(Job(tmp_path, 4, inputs_only=True), [2])
    answer = scan(tmp_path, ScanOptions(tp=tp, pp=pp))
    assert best(answer) == ("HcomAllReduce", 2, "bad_input")
    assert states(answer) == {0: "received", 1: "received", 2: "own", 3: "received"}


def test_a_sum_that_overflowed_unseen_is_no_trouble_of_the_ranks_own(tmp_path: Path) -> None:
    job = Job(tmp_path, 4, inputs_only=True)
    total = job.all_reduce([LARGE] * 4)
    assert np.isinf(total).all()
    for rank in range(4):
        job.run(rank, "Relu", [total], [total])
    answer = scan(tmp_path)
    assert verdicts(answer, "Relu") == dict.fromkeys(range(4), "bad_input")
    assert states(answer) == dict.fromkeys(range(4), "unclear")
    assert not note(answer, "ranks_own_all")
    told = next(render(n) for n in answer.notes if n.code == "ranks_unclear")
    assert told == (
        "4 ranks of 4 may have received what is bad in step 0: they show it first in Relu "
        "net/Relu-op1, and the result of an exchange before it was not dumped: 0-3."
    )


def test_a_rank_that_is_not_in_the_dump_may_have_sent_it(tmp_path: Path) -> None:
    job = Job(tmp_path, 4, inputs_only=True)
    train(job, [2])
    for path in sorted((tmp_path / RUN / "2").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    (tmp_path / RUN / "2").rmdir()
    answer = scan(tmp_path)
    assert states(answer) == {0: "unclear", 1: "unclear", 3: "unclear"}


@pytest.mark.parametrize("inputs_only", [True, False])
def test_ranks_that_were_bad_before_any_exchange_are_still_said_to_be(
    tmp_path: Path, *, inputs_only: bool
) -> None:
    job = Job(tmp_path, 4, inputs_only=inputs_only)
    for rank in range(4):
        job.run(rank, "Cast", [INFINITE], [INFINITE])
    total = job.all_reduce([INFINITE] * 4)
    for rank in range(4):
        job.run(rank, "Relu", [total], [total])
    answer = scan(tmp_path)
    assert verdicts(answer, "Cast") == dict.fromkeys(range(4), "bad_input")
    assert states(answer) == dict.fromkeys(range(4), "own")
    assert note(answer, "ranks_own_all")["total"] == 4


def test_an_exchange_of_an_earlier_step_excuses_nobody(tmp_path: Path) -> None:
    job = Job(tmp_path, 4, inputs_only=True)
    train(job)
    job.step = 1
    for rank in range(4):
        job.run(rank, "Cast", [INFINITE if rank == 3 else FINITE], [FINITE])
    answer = scan(tmp_path)
    assert verdicts(answer, "Cast") == {3: "bad_input"}
    assert states(answer) == {0: "clean", 1: "clean", 2: "clean", 3: "own"}


def test_an_exchange_whose_result_was_dumped_and_clean_excuses_nobody(tmp_path: Path) -> None:
    job = Job(tmp_path, 4)
    total = job.all_reduce([FINITE] * 4)
    for rank in range(4):
        read = INFINITE if rank == 3 else FINITE
        job.run(rank, "Mul", [total, read], [read])
    answer = scan(tmp_path)
    assert verdicts(answer, "Mul") == {3: "bad_input"}
    assert states(answer) == {0: "clean", 1: "clean", 2: "clean", 3: "own"}


def test_a_clean_result_in_a_file_of_its_own_excuses_nobody(tmp_path: Path) -> None:
    job = Job(tmp_path, 2)
    for rank in range(2):
        first = job.run(rank, "HcomAllReduce", [FINITE], [], "net/sum")
        second = job.run(rank, "HcomAllReduce", [], [FINITE], "net/sum")
        # The same task wrote both.
        parts = second.name.split(".")
        parts[2] = first.name.split(".")[2]
        second.rename(second.with_name(".".join(parts)))
    for rank in range(2):
        job.run(rank, "Mul", [INFINITE if rank else FINITE], [FINITE])
    answer = scan(tmp_path)
    assert answer.counts.ops == 4
    assert states(answer) == {0: "clean", 1: "own"}


def test_who_gets_the_bad_part_of_a_scattered_sum_is_left_open(tmp_path: Path) -> None:
    # Rank 2 puts bad values into the part of rank 0 alone; rank 1 reads bad data of its own.
    job = Job(tmp_path, 4, inputs_only=True)
    sent = FINITE.copy()
    sent[0] = np.inf
    for rank in range(4):
        job.run(rank, "HcomReduceScatter", [sent if rank == 2 else FINITE], [FINITE[:1]])
    for rank in range(4):
        job.run(rank, "Relu", [INFINITE[:1] if rank < 2 else FINITE[:1]], [FINITE[:1]])
    answer = scan(tmp_path)
    assert best(answer) == ("HcomReduceScatter", 2, "bad_input")
    assert verdicts(answer, "Relu") == {0: "bad_input", 1: "bad_input"}
    assert states(answer) == {0: "unclear", 1: "unclear", 2: "own", 3: "clean"}


def test_what_is_larger_than_the_result_was_not_received_for_certain(tmp_path: Path) -> None:
    job = Job(tmp_path, 2, inputs_only=True)
    job.all_reduce([FINITE[:1], INFINITE[:1]])
    for rank in range(2):
        job.run(rank, "Relu", [INFINITE], [INFINITE])
    answer = scan(tmp_path)
    assert best(answer) == ("HcomAllReduce", 1, "bad_input")
    assert verdicts(answer, "Relu") == {0: "bad_input", 1: "propagated"}
    assert states(answer) == {0: "unclear", 1: "own"}


def test_what_all_gathered_may_be_larger_than_the_parts(tmp_path: Path) -> None:
    job = Job(tmp_path, 4, inputs_only=True)
    parts = [FINITE[:1], FINITE[:1], INFINITE[:1], FINITE[:1]]
    for rank, part in enumerate(parts):
        job.run(rank, "HcomAllGather", [part], [np.concatenate(parts)])
    for rank in range(4):
        job.run(rank, "Relu", [np.concatenate(parts)], [FINITE])
    answer = scan(tmp_path)
    assert best(answer) == ("HcomAllGather", 2, "bad_input")
    assert states(answer) == {0: "received", 1: "received", 2: "own", 3: "received"}


# --- msprobe -----------------------------------------------------------------------------------


def probe_tensor(largest: float) -> dict[str, object]:
    return {
        "type": "torch.Tensor", "dtype": "torch.float32", "shape": [4], "Max": largest,
        "Min": -1.0 if math.isfinite(largest) else largest, "Mean": 0.0, "Norm": 1.0,
        "requires_grad": False,
    }  # fmt: skip


def probe_sum(sent: float, ranks: list[int]) -> tuple[str, Any]:
    """torch writes the sum over what it is given, and returns nothing."""
    group = {"type": "torch.ProcessGroup", "group_ranks": ranks, "group_id": f"g{ranks[0]}"}
    return (
        "Distributed.all_reduce.0.forward",
        {"input_args": [probe_tensor(sent)], "input_kwargs": {"group": group}, "output": []},
    )


def probe_call(name: str, read: float, written: float, **more: object) -> tuple[str, Any]:
    content = {"input_args": [probe_tensor(read)], "output": [probe_tensor(written)], **more}
    return name, {"input_kwargs": {}, **content}


def probe_message(call: str, value: float, *, to_or_from: int) -> tuple[str, Any]:
    args = [probe_tensor(value), {"type": "int", "value": to_or_from}]
    content = {"input_args": args, "input_kwargs": {}, "output": []}
    return f"Distributed.{call}.0.forward", content


def test_a_sum_written_over_its_input_is_followed_within_its_group(tmp_path: Path) -> None:
    nan = math.nan
    for rank in range(4):
        pair = [0, 1] if rank < 2 else [2, 3]
        bad = nan if rank >= 2 else 1.0
        entries = [
            probe_sum(nan if rank == 3 else 1.0, pair),
            probe_call("Torch.mul.0.forward", bad, bad),
        ]
        write_probe_step(tmp_path, 0, rank, entries)
    answer = scan(tmp_path)
    assert best(answer) == ("Distributed.all_reduce", 3, "bad_input")
    assert verdicts(answer, "Torch.mul") == {2: "received", 3: "propagated"}
    assert states(answer) == {0: "clean", 1: "clean", 2: "received", 3: "own"}
    (infected,) = [s for s in answer.ranks if s.state == "received"]
    assert infected.senders == (3,)


def test_bad_weights_are_no_result_of_a_sum(tmp_path: Path) -> None:
    for rank in range(2):
        bad = math.nan if rank == 1 else 1.0
        module = "Module.fc.Linear.forward.0"
        entries = [
            probe_sum(1.0, [0, 1]),
            probe_call(module, 1.0, bad, parameters={"weight": probe_tensor(bad)}),
        ]
        write_probe_step(tmp_path, 0, rank, entries)
    answer = scan(tmp_path)
    assert [(f.op.device, f.verdict.value) for f in answer.findings] == [(1, "bad_input")]
    assert states(answer) == {0: "clean", 1: "own"}


def test_a_message_received_into_a_buffer_is_followed_to_who_sent_it(tmp_path: Path) -> None:
    sent = probe_message("send", math.nan, to_or_from=1)
    received = probe_message("recv", 1.0, to_or_from=0)
    write_probe_step(tmp_path, 0, 0, [sent])
    write_probe_step(
        tmp_path, 0, 1, [received, probe_call("Torch.relu.0.forward", math.nan, math.nan)]
    )
    answer = scan(tmp_path)
    assert best(answer) == ("Distributed.send", 0, "bad_input")
    assert verdicts(answer, "Torch.relu") == {1: "received"}
    assert states(answer) == {0: "own", 1: "received"}
