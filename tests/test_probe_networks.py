"""The networks of test_causality as msprobe would have dumped them: rank 1 is at fault.

With tensors everything is known but addresses, so that only an ancestor whose value was hidden on
the way cannot be linked. Statistics tell the extremes of a tensor and not which elements have
them: there a mask that is added to something cannot be told from trouble, and equal bytes link
nothing, so that what grew out of a limit, or out of bad data that was clipped, cannot be told from
what did not. Whoever is at fault must be among those named then.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from dumpscope.model import Finding, Scan, ScanOptions
from dumpscope.scanning import scan
from network_builder import Case, Network, Ran
from network_probe import write_probe_network
from network_program import FAULTS, RANK_FAULTS
from network_score import Score

CLIPS_TO_FINITE = ("zero_div", "sqrt", "masked_row")
FOREIGN = ("data", "weight")
LIMITS = ("limit", "limit_hidden")
ROOTS = ("origin", "saturated_origin", "bad_input")
TYPES = ("float16", "bfloat16", "float32")


@dataclass(frozen=True)
class Answer:
    case: Case
    network: Network
    written: dict[tuple[int, int, str], Ran]
    scan: Scan

    @property
    def culprit(self) -> str:
        return self.network.program.culprit

    @property
    def first(self) -> Finding | None:
        return self.scan.findings[0] if self.scan.findings else None

    def ran(self, finding: Finding) -> Ran | None:
        """What really ran where a finding is; `None` for modules."""
        op = finding.op
        return self.written.get((op.device or 0, op.step or 0, op.op_name))

    @property
    def right(self) -> bool:
        if not self.case.fault:
            return self.scan.exit_status == 0 and not self.scan.findings
        ran = None if self.first is None else self.ran(self.first)
        return ran is not None and ran.instruction.name == self.culprit and ran.truth in ROOTS

    @property
    def named(self) -> set[str]:
        found = ((f, self.ran(f)) for f in self.scan.findings)
        return {str(f.verdict) for f, ran in found if ran and ran.instruction.name == self.culprit}


def ask(case: Case, *, tensors: str = "", modules: bool = True) -> Answer:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        network, written = write_probe_network(root, case, tensors=tensors, modules=modules)
        answer = Answer(case, network, written, scan(root, ScanOptions(jobs=1)))
    assert not answer.scan.read_failures
    # Every call that makes bad values is there, so no module stands for what it contains.
    blamed = [f for f in answer.scan.findings if str(f.verdict).endswith("origin")]
    assert not [f.op.op_name for f in blamed if f.op.container], case
    return answer


def carries_mask(answer: Answer) -> bool:
    return any(i.masks == "carry" for i in answer.network.program.instructions)


def cases(number: int, faults: Sequence[str], *, saturates: bool = False) -> Iterator[Case]:
    for fault in faults:
        if not (saturates and fault in CLIPS_TO_FINITE):
            number += 1
            yield Case(number, fault, dtype=TYPES[number % 3], saturates=saturates)


def count_tensors(score: Score, answer: Answer) -> None:
    hidden = answer.case.fault == "limit_hidden" and not answer.case.saturates
    score.count(answer, holds=not hidden, verdicts={"saturated_origin"})


def count_statistics(score: Score, answer: Answer) -> None:
    case = answer.case
    linked = case.fault not in (FOREIGN if case.saturates else LIMITS)
    holds = linked and (case.saturates or not carries_mask(answer))
    if not holds and not case.fault:
        # Nobody is at fault: what is named is named as what may be a mask.
        roots = [f for f in answer.scan.findings if str(f.verdict) == "origin"]
        assert all(f.reason.parameters.get("maybe_mask") for f in roots), case
        return
    score.count(answer, holds=holds, verdicts={*ROOTS, "propagated"})
    assert all("statistics" in f.evidence for f in answer.scan.findings), case


@pytest.mark.parametrize("tensors", ["npy", "pt"])
@pytest.mark.parametrize("modules", [True, False])
def test_tensors(score: Score, tensors: str, *, modules: bool) -> None:
    first = 30_000 + 100 * len(tensors) + 1000 * modules
    # Each of the four ways has its share of the faults.
    share = FAULTS[2 * (tensors == "pt") + modules :: 4]
    for case in cases(first, ("", *share)):
        count_tensors(score, ask(case, tensors=tensors, modules=modules))


def test_tensors_of_hardware_that_saturates(score: Score) -> None:
    for case in cases(33_000, ("", "matmul", "exp", "limit", "limit_hidden"), saturates=True):
        count_tensors(score, ask(case, tensors="npy"))


@pytest.mark.parametrize("modules", [True, False])
def test_statistics(score: Score, *, modules: bool) -> None:
    for saturates in (False, True) if modules else (False,):
        first = 34_000 + 1000 * modules + 100 * saturates
        for case in cases(first, ("", *FAULTS), saturates=saturates):
            count_statistics(score, ask(case, modules=modules))


@pytest.mark.parametrize("tensors", ["", "npy"])
def test_ranks(score: Score, tensors: str) -> None:
    for number, fault in enumerate(RANK_FAULTS):
        sent = fault in ("broadcast", "message")
        for bad_rank in range(1 if sent or tensors else 2):
            seed = 36_000 + 100 * len(tensors) + 10 * number + bad_rank
            case = Case(seed, fault, dtype=TYPES[seed % 3], ranks=2 + seed % 2, bad_rank=bad_rank)
            answer = ask(case, tensors=tensors)
            (count_tensors if tensors else count_statistics)(score, answer)
            told = {
                (ran.rank, ran.instruction.name): str(f.verdict)
                for f in answer.scan.findings if (ran := answer.ran(f)) is not None
            }  # fmt: skip
            if tensors:
                for ran in answer.written.values():
                    if ran.truth == "received":
                        assert told[ran.rank, ran.instruction.name] == "received", case


def test_steps_go_on_with_what_an_earlier_one_left(score: Score) -> None:
    for case in cases(37_000, ("optimizer", "weight", "exp")):
        answer = ask(replace(case, steps=3))
        count_statistics(score, answer)
        assert answer.first is not None
        assert answer.first.op.step == 0
