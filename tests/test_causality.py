"""Networks with known truth: rank 1 is the operator at fault wherever the dump can tell.

Each family runs random networks with real arithmetic (`network_program`), dumps them in one way
(`network_builder`) and compares the answer with what really happened. Where a dump does not hold
what is needed, the operator at fault must be among those named, with the verdict that says so.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from dumpscope.model import Finding, Scan, ScanOptions
from dumpscope.scanning import scan
from network_builder import Case, Network, Ran, build_network
from network_program import FAULTS, RANK_FAULTS
from network_score import Score

CLIPS_TO_FINITE = ("zero_div", "sqrt", "masked_row")
"""What saturation mode turns into 0 or an ordinary number: nothing is wrong then."""
FOREIGN = ("data", "weight")
LIMITS = ("limit", "limit_hidden")
ROOTS = ("origin", "saturated_origin", "bad_input")
TYPES = ("float16", "bfloat16", "float32")


@dataclass(frozen=True)
class Answer:
    case: Case
    network: Network
    scan: Scan

    @property
    def culprit(self) -> str:
        return fold(self.network.program.culprit)

    @property
    def first(self) -> Finding | None:
        return self.scan.findings[0] if self.scan.findings else None

    @property
    def right(self) -> bool:
        """Whether rank 1 is the operator at fault, or a healthy network is clean."""
        if not self.case.fault:
            return self.scan.exit_status == 0 and not self.scan.findings
        at = {(r.rank, r.step) for r in self.network.ran
              if fold(r.instruction.name) == self.culprit and r.truth in ROOTS}  # fmt: skip
        return (
            self.first is not None
            and fold(self.first.op.op_name) == self.culprit
            and (self.first.op.device, self.first.op.step) in at
        )

    @property
    def named(self) -> set[str]:
        """Verdicts of the operator at fault, on the rank where it was."""
        return {str(f.verdict) for f in self.scan.findings if fold(f.op.op_name) == self.culprit}

    @property
    def truth(self) -> dict[tuple[int | None, int | None, str], str]:
        """What really happened in each dumped execution, as the dump names them."""
        return {
            (r.rank, r.step, name_in_dump(r)): r.truth
            for r in self.network.ran
            if r.truth and r.instruction.dumped
        }

    @property
    def told(self) -> dict[tuple[int | None, int | None, str], str]:
        return {
            (f.op.device, f.op.step, fold(f.op.op_name)): str(f.verdict) for f in self.scan.findings
        }


def fold(name: str) -> str:
    """A name as it stands in file names."""
    return name.replace("/", "_")


def name_in_dump(ran: Ran) -> str:
    name = fold(ran.instruction.name)
    if ran.instruction.exchanges == "message" and ran.rank:
        return name.replace("HcomSend", "HcomReceive")
    return name


def ask(case: Case) -> Answer:
    with tempfile.TemporaryDirectory() as folder:
        network = build_network(Path(folder), case)
        answer = Answer(case, network, scan(folder, ScanOptions(jobs=1)))
    if case.fault:
        roots = [r for r in network.ran if r.truth in ROOTS]
        assert roots, f"{case}: the fault made nothing bad"
        assert roots[0].instruction.name == network.program.culprit, case
    return answer


def cases(
    number: int,
    *,
    faults: tuple[str, ...] = ("", *FAULTS),
    modes: tuple[bool, ...] = (False, True),
    **more: Any,
) -> Iterator[Case]:
    """Every fault in both number modes; everything else changes from case to case."""
    for fault in faults:
        for saturates in modes:
            if saturates and fault in CLIPS_TO_FINITE:
                continue
            number += 1
            case = Case(
                number, fault, dtype=TYPES[number % 3], saturates=saturates,
                steps=1 + number % 2, ranks=1 + number // 2 % 2,
            )  # fmt: skip
            yield replace(case, **more)


def compare_origins(answer: Answer) -> None:
    """Require that exactly the true origins are called so, whatever their rank."""
    truth, told = answer.truth, answer.told
    for verdict in ("origin", "saturated_origin"):
        expected = {key for key, value in truth.items() if value == verdict}
        found = {key for key, value in told.items() if value == verdict}
        assert found == expected, f"{answer.case}: {verdict}"


# --- everything was dumped ------------------------------------------------------------------------


def test_memory_that_is_used_again(score: Score) -> None:
    for case in cases(1000):
        answer = ask(case)
        score.count(answer, holds=True, verdicts=set())
        compare_origins(answer)


def test_inputs_recorded_after_they_were_overwritten(score: Score) -> None:
    for case in cases(2000, after=True):
        answer = ask(case)
        score.count(answer, holds=True, verdicts=set())
        compare_origins(answer)


def test_addresses_that_link_nothing(score: Score) -> None:
    # Nothing but addresses or a graph tells of values that pass clean operators.
    for case in cases(3000, addresses="unique", modes=(False,)):
        answer = ask(case)
        hidden = case.fault == "limit_hidden" and not case.saturates
        score.count(answer, holds=not hidden, verdicts={"saturated_origin"})
        compare_origins(answer)


def test_no_addresses(score: Score) -> None:
    for case in cases(4000, addresses="zero"):
        answer = ask(case)
        hidden = case.fault == "limit_hidden" and not case.saturates
        score.count(answer, holds=not hidden, verdicts={"saturated_origin"})
        compare_origins(answer)


@pytest.mark.parametrize("addresses", ["unique", "zero"])
def test_a_graph_takes_the_place_of_addresses(score: Score, addresses: str) -> None:
    first = 5000 + 500 * len(addresses)
    for case in cases(first, addresses=addresses, graph=True, modes=(False,)):
        answer = ask(case)
        score.count(answer, holds=True, verdicts=set())
        compare_origins(answer)


def test_statistics_only(score: Score) -> None:
    for case in cases(6000, form="stats", modes=(False,)):
        answer = ask(case)
        # Only order links operators here, and order does not make an ancestor.
        hidden = case.fault in LIMITS and not case.saturates
        score.count(answer, holds=not hidden, verdicts={"saturated_origin"})
        assert all("statistics" in f.evidence for f in answer.scan.findings)


# --- half of it was dumped ------------------------------------------------------------------------


def test_outputs_only(score: Score) -> None:
    # A mask that comes from outside cannot be told from trouble where inputs are not seen.
    for case in cases(7000, mode="output", faults=FAULTS):
        if case.saturates and case.fault in FOREIGN:
            continue  # nothing bad comes out of any operator
        answer = ask(case)
        unseen = bool(answer.network.program.masks)
        score.count(answer, holds=not unseen, verdicts={"unknown_inputs", "saturated_origin"})
        assert "origin" not in {str(f.verdict) for f in answer.scan.findings}


def test_outputs_only_beside_a_graph(score: Score) -> None:
    # What reads weights or data, which were not dumped, cannot be called an origin.
    for case in cases(8000, mode="output", graph=True, faults=FAULTS, modes=(False,)):
        answer = ask(case)
        program = answer.network.program
        own = next(i for i in program.instructions if i.name == program.culprit)
        foreign = any(name in program.state for name in own.reads)
        score.count(
            answer,
            holds=not foreign and not program.masks,
            verdicts={"unknown_inputs", "saturated_origin", "origin"},
        )


def test_inputs_only_beside_a_graph(score: Score) -> None:
    # The graph leads from whoever read the value to whoever made it, if nothing lies between.
    for case in cases(9000, mode="input", graph=True, faults=FAULTS, modes=(False,)):
        answer = ask(case)
        program = answer.network.program
        own = next(i for i in program.instructions if i.name == program.culprit)
        readers = [i for i in program.instructions if own.writes in i.reads]
        direct = any(i.dumped for i in readers) and own.in_place is None
        if case.fault not in FOREIGN and not direct:
            continue
        score.count(answer, holds=True, verdicts=set())


def test_inputs_only(score: Score) -> None:
    # Whoever read the value first is all that such a dump can name.
    for case in cases(10_000, mode="input", faults=FAULTS, modes=(False,), ranks=1, steps=1):
        if case.fault in LIMITS or case.fault == "optimizer":
            continue
        answer = ask(case)
        first = answer.first
        assert first is not None
        assert str(first.verdict) == "bad_input"
        if case.fault in FOREIGN:
            score.count(answer, holds=True, verdicts=set())
        else:
            assert first.reason.parameters["inputs_only"] is True


# --- several ranks --------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_that_infect_each_other(score: Score, ranks: int) -> None:
    modes = (False, True) if ranks == 2 else (False,)
    for bad_rank in range(ranks):
        first = 11_000 + 100 * ranks + 10 * bad_rank
        for case in cases(first, faults=RANK_FAULTS, modes=modes, steps=2):
            sent = case.fault in ("broadcast", "message")
            answer = ask(replace(case, ranks=ranks, bad_rank=0 if sent else bad_rank))
            score.count(answer, holds=True, verdicts=set())
            compare_origins(answer)
            # Later the ranks are bad by themselves, so that nobody can say who gave to whom.
            received = {k for k, truth in answer.truth.items() if truth == "received" and not k[1]}
            if not case.saturates:
                assert received == {k for k in received if answer.told.get(k) == "received"}


def test_one_rank_was_given_bad_data(score: Score) -> None:
    for bad_rank in range(3):
        for case in cases(12_000 + 10 * bad_rank, faults=("data",), modes=(False,)):
            answer = ask(replace(case, ranks=3, bad_rank=bad_rank))
            score.count(answer, holds=True, verdicts=set())
            assert answer.first is not None
            assert answer.first.op.device == bad_rank


# --- the hardware's word --------------------------------------------------------------------------


def test_records_of_the_culprit(score: Score) -> None:
    for case in cases(13_000, records="culprit", faults=FAULTS, modes=(False,)):
        if case.fault in FOREIGN:
            continue
        answer = ask(case)
        score.count(answer, holds=True, verdicts=set())
        first = answer.first
        assert first is not None
        assert first.overflow is not None
        assert first.overflow.confirmed


def test_records_of_the_innocent(score: Score) -> None:
    for case in cases(14_000, records="innocent", faults=FAULTS, modes=(False,)):
        if case.fault in FOREIGN:
            continue
        answer = ask(case)
        score.count(answer, holds=True, verdicts=set())
        accused = [str(f.verdict) for f in answer.scan.findings if f.overflow is not None]
        assert accused == ["status_origin"] * len(answer.scan.overflow_records)
