"""Which group explains the ranks that went bad by themselves, and how all that is reported."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import openpyxl
import pytest

from cli_runs import run
from dumpscope.errors import ConfigError, OptionsError
from dumpscope.model import (
    Finding,
    OpRecord,
    Place,
    RankEvent,
    RankState,
    RankSummary,
    Reason,
    Scan,
    ScanOptions,
    Verdict,
)
from dumpscope.ranks.parallelism import Topology, plan_topology
from dumpscope.ranks.patterns import explain_ranks
from dumpscope.ranks.presence import Presence
from dumpscope.ranks.ranksummary import summarise_ranks
from dumpscope.ranks.rankview import check_rank_options, find_topology
from dumpscope.reporters.document import build_document
from dumpscope.reporters.excel import ExcelReporter
from dumpscope.reporters.terminal import render_scan
from dumpscope.words import render
from op_builders import bad, clean, make_op, saturated
from rank_trees import Job
from scan_samples import overflow_scan

EVENT = RankEvent("Mul", "net/Mul", 1, "origin", "3/Mul", 1)
RECEIVED = RankEvent("HcomAllReduce", "net/sum", 1, "received", "0/sum", 4)


def ranks_of(
    count: int,
    own: Iterable[int],
    *,
    others: RankState = "received",
    topology: Topology | None = None,
    **more: Any,
) -> list[RankSummary]:
    """The ranks of a job, of which some went bad by themselves."""
    culprits = set(own)
    found = []
    for rank in range(count):
        place = {} if topology is None else topology.place_of(rank)
        state: RankState = "own" if rank in culprits else others
        found.append(
            RankSummary(
                rank,
                state,
                first=None if state == "clean" else EVENT if state == "own" else RECEIVED,
                received=RECEIVED if state == "received" else None,
                senders=tuple(culprits) if state == "received" else (),
                coordinates=tuple(place.items()),
                **more,
            )
        )
    return found


def own_note(ranks: list[RankSummary], topology: Topology | None = None) -> tuple[str, str]:
    """Code of the note on the ranks that went bad by themselves, and its sentence."""
    note = explain_ranks(ranks, topology)[0]
    return note.code, render(note)


LARGE = plan_topology({"tp": 8, "dp": 4, "pp": 8})
"""256 ranks: tp = rank % 8, dp = rank // 8 % 4, pp = rank // 32."""


@pytest.mark.parametrize(
    ("own", "group"),
    [
        ([r for r in range(256) if r % 8 == 3], "TP=3"),
        ([r for r in range(256) if r // 32 == 5], "PP stage 5"),
        ([r for r in range(256) if r // 8 % 4 == 2], "DP=2"),
        ([r for r in range(256) if r % 8 in (3, 5)], "TP=3 + TP=5"),
        ([r for r in range(256) if r % 8 == 3 and r // 32 == 5], "TP=3 PP stage 5"),
    ],
)
def test_the_group_that_explains_all_and_only_the_bad_ranks_is_named(
    own: list[int], group: str
) -> None:
    code, sentence = own_note(ranks_of(256, own, topology=LARGE), LARGE)
    assert code == "ranks_own_group"
    assert f", all and only {group}; first in step 1" in sentence


def test_ranks_of_one_group_are_told_where_it_can_hardly_be_chance() -> None:
    own = [160, 165, 171, 180, 191]
    code, sentence = own_note(ranks_of(256, own, topology=LARGE), LARGE)
    assert code == "ranks_own_inside"
    assert "160, 165, 171, 180, 191, all in PP stage 5 (32 ranks)" in sentence
    two = plan_topology({"tp": 2, "dp": 4})
    assert own_note(ranks_of(8, [3, 5], topology=two), two)[0] == "ranks_own"


def test_without_a_rank_map_numbers_are_told() -> None:
    code, sentence = own_note(ranks_of(8, [3, 5]))
    assert code == "ranks_own"
    assert sentence == "2 ranks of 8 went bad before receiving anything: 3, 5, first in step 1."


def test_one_rank_is_told_with_its_coordinates() -> None:
    topology = plan_topology({"tp": 2, "pp": 2, "dp": 2})
    code, sentence = own_note(ranks_of(8, [5], topology=topology), topology)
    assert code == "ranks_own"
    assert "1 rank of 8 went bad before receiving anything: 5 (TP=1" in sentence
    assert "PP stage 1" in sentence


def test_where_all_ranks_went_bad_no_device_is_suspected() -> None:
    assert own_note(ranks_of(8, range(8)))[0] == "ranks_own_all"


def test_ranks_of_one_host_are_told_by_it() -> None:
    found = [
        replace(summary, host="node-1" if summary.rank in (4, 5) else "node-0")
        for summary in ranks_of(6, [4, 5])
    ]
    assert "all and only node-1" in own_note(found)[1]


def test_equal_numbers_on_several_hosts_are_told_by_host() -> None:
    found = [
        replace(summary, host=host)
        for host, own in (("node-0", [1]), ("node-1", [1, 2]))
        for summary in ranks_of(4, own)
    ]
    code, sentence = own_note(found, plan_topology({"tp": 4}))
    assert code == "ranks_own"
    assert "node-0: 1; node-1: 1, 2" in sentence


def test_what_others_received_is_told_with_the_operator() -> None:
    received = explain_ranks(ranks_of(4, [2]))[1]
    assert received.code == "ranks_received"
    assert render(received) == (
        "3 ranks of 4 received bad values in step 1 through HcomAllReduce net/sum, sent by 2: "
        "0, 1, 3."
    )


@pytest.mark.parametrize("found", [[], ranks_of(1, [0]), ranks_of(4, [], others="clean")])
def test_nothing_is_told_of_one_rank_or_of_clean_ones(found: list[RankSummary]) -> None:
    assert explain_ranks(found) == []


def jobs_of(*own: list[int], device_ids: bool = False) -> list[RankSummary]:
    found = []
    for number, culprits in enumerate(own):
        for summary in ranks_of(8, culprits, run=f"2026010{number}000000"):
            device = summary.rank if not device_ids or summary.rank is None else summary.rank % 4
            found.append(replace(summary, device_id=device))
    return found


def test_one_device_in_every_job_is_suspected() -> None:
    note = explain_ranks(jobs_of([3, 6], [3], [1, 3]))[-1]
    assert note.code == "ranks_same_device"
    assert "1 device went bad unaided in each of the 3 runs that hold bad values: 3;" in render(
        note
    )


def test_devices_are_compared_where_ranks_were_placed_otherwise() -> None:
    note = explain_ranks(jobs_of([2], [6], device_ids=True))[-1]
    assert note.code == "ranks_same_device"
    assert note.parameters["devices"] == "2"


@pytest.mark.parametrize("own", [([3], [4]), ([3],), (list(range(8)), list(range(8)))])
def test_no_device_is_suspected_without_a_pattern(own: tuple[list[int], ...]) -> None:
    assert "ranks_same_device" not in {note.code for note in explain_ranks(jobs_of(*own))}


# --- summaries -----------------------------------------------------------------------------------


def finding(op: OpRecord, verdict: Verdict, rank: int | None = None) -> Finding:
    return Finding(op, verdict, Reason(verdict.value), rank=rank)


def summaries(*findings: Finding, ranks: int = 3) -> dict[int | None, RankSummary]:
    places = [Place(device_id=n, step=s) for n in range(ranks) for s in range(2)]
    found = summarise_ranks(findings, places, {}, senders_to=lambda op: ())
    assert len(found) == ranks
    return {summary.rank: summary for summary in found}


def reduced(device: int, at: int, step: int = 0) -> OpRecord:
    return make_op("HcomAllReduce", [clean()], [bad(nan=1)], at=at, device=device, step=step)


def test_the_first_bad_value_of_a_rank_decides() -> None:
    own = make_op("Mul", [clean()], [bad(posinf=1)], at=2, device=1)
    late = make_op("Mul", [clean()], [bad(posinf=1)], at=9, device=2)
    found = summaries(
        finding(own, Verdict.ORIGIN, 1),
        finding(reduced(1, 5), Verdict.RECEIVED, 3),
        finding(reduced(2, 5), Verdict.RECEIVED, 4),
        finding(late, Verdict.ORIGIN, 2),
    )
    assert {rank: s.state for rank, s in found.items()} == {0: "clean", 1: "own", 2: "received"}
    assert found[1].first == RankEvent("Mul", "net/Mul_2", 0, "origin", own.file, 1)
    assert found[1].received is not None
    assert found[2].first == found[2].received


def test_a_saturation_that_nothing_follows_does_not_hide_what_was_received() -> None:
    op = make_op("Mul", [clean()], [saturated(3)], at=1, device=2)
    found = summaries(
        finding(op, Verdict.SATURATED_ORIGIN), finding(reduced(2, 5), Verdict.RECEIVED)
    )
    assert found[2].state == "received"
    alone = summaries(finding(op, Verdict.SATURATED_ORIGIN))
    assert alone[2].state == "own"


def test_what_an_earlier_step_left_behind_is_told_apart() -> None:
    weights = make_op("MatMulV2", [bad(nan=1)], [bad(nan=1)], at=1, device=0, step=1)
    origin = make_op("Mul", [clean()], [bad(nan=1)], at=9, device=1, step=0)
    fresh = make_op("Mul", [clean()], [bad(nan=1)], at=1, device=2, step=1)
    found = summaries(
        finding(weights, Verdict.BAD_INPUT),
        finding(origin, Verdict.ORIGIN),
        finding(fresh, Verdict.ORIGIN),
    )
    assert {rank: s.state for rank, s in found.items()} == {0: "later", 1: "own", 2: "own"}


def test_expected_values_make_no_rank_bad() -> None:
    assert summaries(finding(reduced(1, 5), Verdict.EXPECTED))[1].state == "clean"


# --- options -------------------------------------------------------------------------------------


def presence(*numbers: int) -> Presence:
    return Presence({"": {(): frozenset(numbers)}})


def test_sizes_that_the_dump_contradicts_are_not_used() -> None:
    options = ScanOptions(tp=2, dp=2)
    topology, notes = find_topology(options, presence(0, 7))
    assert topology is None
    assert [note.code for note in notes] == ["ranks_beyond_sizes"]
    assert notes[0].parameters == {"sizes": "tp 2 x dp 2", "world": 4, "highest": 7}
    assert find_topology(ScanOptions(), presence(0, 7)) == (None, [])


def test_device_ids_of_several_hosts_are_no_ranks() -> None:
    several = Presence({"": {(0, "a"): frozenset({0}), (0, "b"): frozenset({0})}})
    topology, notes = find_topology(ScanOptions(tp=2), several)
    assert topology is None
    assert [note.code for note in notes] == ["ranks_not_global"]


def test_ranks_that_the_map_does_not_name_are_told(tmp_path: Path) -> None:
    path = tmp_path / "map.csv"
    path.write_text("rank,tp\n0,0\n1,1\n", encoding="utf-8")
    options = ScanOptions(rank_map=str(path))
    topology, notes = find_topology(options, presence(0, 1, 2, 3))
    assert topology is not None
    assert notes == [Reason("ranks_not_mapped", {"ranks": "2, 3", "count": 2})]


def test_options_that_exclude_each_other_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "map.csv"
    path.write_text("rank,tp\n0,0\n", encoding="utf-8")
    with pytest.raises(OptionsError, match="leave --tp, --order out"):
        check_rank_options(ScanOptions(rank_map=str(path), tp=2, order="tp-dp"))
    with pytest.raises(OptionsError, match="--order: give the sizes"):
        check_rank_options(ScanOptions(order="tp-dp"))
    with pytest.raises(ConfigError, match="cannot be read"):
        check_rank_options(ScanOptions(rank_map=str(tmp_path)))
    check_rank_options(ScanOptions(tp=2, ep=4))


# --- reports -------------------------------------------------------------------------------------


@pytest.fixture
def answer() -> Scan:
    topology = plan_topology({"tp": 2, "dp": 2})
    found = tuple(ranks_of(4, [3], topology=topology))
    notes = (*explain_ranks(found, topology), Reason("several_runs", {"runs": 2, "newest": "x"}))
    return replace(overflow_scan(), ranks=found, notes=notes)


def test_the_document_tells_of_every_rank(answer: Scan) -> None:
    found = build_document(answer)["ranks"]
    assert [entry["device"] for entry in found] == [0, 1, 2, 3]
    assert [entry["state"] for entry in found] == ["received"] * 3 + ["own"]
    assert found[3]["first"] == {
        "rank": 1, "verdict": "origin", "op_type": "Mul", "op_name": "net/Mul", "step": 1,
        "file": "3/Mul",
    }  # fmt: skip
    assert found[3]["received"] is None
    assert found[0]["received"]["op_type"] == "HcomAllReduce"
    assert found[0]["senders"] == [3]
    assert found[1]["coordinates"]["tp"] == 1
    assert build_document(replace(answer, ranks=()))["ranks"] == []


def test_the_terminal_tells_it_once_below_the_headline(answer: Scan) -> None:
    text = render_scan(answer)
    head, _, rest = text.partition("verdict")
    assert "1 rank of 4 went bad before receiving anything: 3 (TP=1" in " ".join(head.split())
    assert "3 ranks of 4 received bad values" in " ".join(head.split())
    assert "went bad before receiving" not in rest
    assert "--run picks one" in " ".join(rest.split())


def test_the_workbook_has_a_row_for_every_rank(answer: Scan) -> None:
    target = io.BytesIO()
    ExcelReporter().write(answer, target, limit=None, lang="en")
    sheet = openpyxl.load_workbook(target).worksheets[0]
    rows = [[cell for cell in row if cell is not None] for row in sheet.iter_rows(values_only=True)]
    start = rows.index(["Ranks"])
    assert rows[start + 1][0] == "rank 3 TP=1 CP=0 EP=0 DP=1 PP stage 0"
    assert rows[start + 1][1] == (
        "Bad before receiving anything: Mul net/Mul in step 1, finding 1."
    )
    assert str(rows[start + 2][0]).startswith("rank 0 ")
    assert rows[start + 5] == []


def test_a_single_rank_has_no_table(answer: Scan) -> None:
    target = io.BytesIO()
    ExcelReporter().write(replace(answer, ranks=answer.ranks[:1]), target, limit=None, lang="en")
    sheet = openpyxl.load_workbook(target).worksheets[0]
    assert "Ranks" not in {cell for row in sheet.iter_rows(values_only=True) for cell in row}


# --- the commands --------------------------------------------------------------------------------


@pytest.fixture
def small_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four ranks of which rank 1 and rank 3 overflow."""
    import numpy as np

    root = tmp_path / "dump"
    job = Job(root, 4)
    finite = np.ones((4, 8), np.float16)
    infinite = np.full((4, 8), np.inf, np.float16)
    for rank in (1, 3):
        job.run(rank, "Exp", [finite], [infinite])
    for rank in range(4):
        job.run(rank, "HcomAllReduce", [infinite if rank % 2 else finite], [infinite])
    monkeypatch.chdir(tmp_path)
    return root


def codes_of(out: str) -> set[str]:
    return {note["code"] for note in json.loads(out)["notes"]}


def test_scan_and_report_take_the_layout_of_the_job(small_job: Path) -> None:
    Path("map.json").write_text(
        json.dumps({str(r): {"tp": r % 2, "pp": 0, "dp": r // 2} for r in range(4)}),
        encoding="utf-8",
    )
    ended = run("scan", small_job, "--rank-map", "map.json", "--format", "json")
    assert ended.status == 1
    document = json.loads(ended.out)
    (note,) = (note for note in document["notes"] if note["code"] == "ranks_own_group")
    assert note["parameters"]["group"] == "TP=1"
    assert document["ranks"][3]["coordinates"] == {"tp": 1, "dp": 1}
    assert codes_of(run("report", "--json=-").out) == codes_of(ended.out)
    # Other sizes take the place of the map.
    again = run("report", "--json=-", "--tp", "4")
    assert {"ranks_assumed_order", "ranks_own_group"} <= codes_of(again.out)
    assert "ranks_assumed_order" not in codes_of(
        run("report", "--json=-", "--tp", "4", "--order", "tp-dp").out
    )


def test_a_stored_rank_map_is_found_from_another_folder(
    small_job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("map.csv").write_text("rank,tp\n0,0\n1,1\n2,2\n3,3\n", encoding="utf-8")
    assert run("scan", small_job, "--rank-map", "map.csv", "--store", "s.db").status == 1
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert run("report", "--store", "../s.db", "--json=-").status == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--tp", "2", "--dp", "1"], "tp 2 x dp 1 = 2 ranks, but the dump holds rank 3"),
        (["--tp", "0"], "--tp"),
        (["--rank-map", "none.csv"], "none.csv: the rank map cannot be read"),
        (["--order", "tp"], "--order: give the sizes"),
        (["--tp", "2", "--order", "pt"], "--order pt: expected each of"),
    ],
)
def test_a_layout_that_cannot_be_is_wrong_usage(
    small_job: Path, options: list[str], message: str
) -> None:
    ended = run("scan", small_job, *options)
    assert ended.status == 2
    assert message in ended.err
    assert ended.out == ""


def test_sizes_that_were_wrong_can_be_corrected_without_scanning_again(small_job: Path) -> None:
    assert run("scan", small_job, "--tp", "2", "--dp", "1").status == 2
    ended = run("report", "--json=-")
    assert ended.status == 0
    assert "ranks_beyond_sizes" in codes_of(ended.out)
    assert run("report", "--json=-", "--tp", "2", "--dp", "1").status == 2
    assert "ranks_own_group" in codes_of(run("report", "--json=-", "--tp", "2").out)
