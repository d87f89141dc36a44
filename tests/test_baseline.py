"""Known findings: what keeps a finding known, and what makes it new again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from dumpscope.cli.main import run_with
from dumpscope.errors import ConfigError, OptionsError
from dumpscope.model import Finding, OpRecord, Place, Reason, Verdict
from dumpscope.nightly.baseline import (
    Baseline,
    Entry,
    apply_baseline,
    collect_entries,
    dump_baseline,
    load_baseline,
    parse_baseline,
)
from op_builders import bad, clean, make_op, tensor

TODAY = date(2026, 1, 15)


def finding(op: OpRecord, rank: int = 2) -> Finding:
    return Finding(op=op, verdict=Verdict.ORIGIN, reason=Reason("origin"), rank=rank)


def add(nan: int = 0, posinf: int = 4, model: str = "net", at: int = 1) -> OpRecord:
    place = Place(model_name=model, step=at)
    return make_op(
        "Add", [clean()], [bad(nan=nan, posinf=posinf)], at=at, name="net/add", place=place
    )


def known(baseline: Sequence[Finding], later: Sequence[Finding]) -> list[bool]:
    applied = apply_baseline(Baseline(collect_entries(baseline)), later, TODAY)
    return [f.known for f in applied.findings]


def test_entries_name_the_slot_and_the_kind() -> None:
    (first, second) = collect_entries([finding(add(nan=8))])
    assert (first.slot, first.kind, first.share) == ("output.0", "nan", 0.25)
    assert (second.slot, second.kind, second.share) == ("output.0", "posinf", 0.125)


def test_time_step_and_file_do_not_matter() -> None:
    assert known([finding(add(at=1))], [finding(add(at=7))]) == [True]


def test_the_time_in_the_name_of_a_model_does_not_matter() -> None:
    before = finding(add(model="ge_default_20251129120000_11"))
    after = finding(add(model="ge_default_20251130120000_12"))
    assert known([before], [after]) == [True]
    assert known([before], [finding(add(model="other"))]) == [False]


def test_another_operator_is_new() -> None:
    other = make_op(
        "Add", [clean()], [bad(posinf=4)], name="net/other", place=Place(model_name="net")
    )
    assert known([finding(add())], [finding(other)]) == [False]


def test_a_new_kind_is_worse() -> None:
    assert known([finding(add())], [finding(add(nan=1))]) == [False]


def test_the_first_place_for_the_first_time_is_worse() -> None:
    assert known([finding(add(), rank=2)], [finding(add(), rank=1)]) == [False]
    assert known([finding(add(), rank=1)], [finding(add(), rank=1)]) == [True]


@pytest.mark.parametrize(("posinf", "still_known"), [(4, True), (8, True), (9, False), (1, True)])
def test_a_much_larger_share_is_worse(posinf: int, still_known: bool) -> None:
    assert known([finding(add(posinf=4))], [finding(add(posinf=posinf))]) == [still_known]


def test_an_entry_runs_out_after_its_day() -> None:
    entries = [replace(e, expires=TODAY) for e in collect_entries([finding(add())])]
    there = apply_baseline(Baseline(tuple(entries)), [finding(add())], TODAY)
    assert (there.known, there.expired) == (1, ())
    later = apply_baseline(Baseline(tuple(entries)), [finding(add())], date(2026, 1, 16))
    assert later.known == 0
    assert later.expired == tuple(entries)


def test_what_no_longer_occurs_is_told() -> None:
    applied = apply_baseline(Baseline(collect_entries([finding(add())])), [], TODAY)
    assert [entry.op_name for entry in applied.gone] == ["net/add"]


def test_a_status_without_bad_values_has_an_entry_too() -> None:
    op = make_op("Sub", [clean()], [clean()], name="net/sub")
    (entry,) = collect_entries([finding(op)])
    assert (entry.slot, entry.kind) == ("", "status")
    assert known([finding(op)], [finding(op)]) == [True]


def test_the_file_holds_everything(tmp_path: Path) -> None:
    entries = (
        Entry("m", "Add", 'a"\u4e2d', "output.0", "nan", 0.5, True, "why", date(2026, 2, 1)),
        Entry("m", "Mul", "b", "output.1", "posinf"),
    )
    path = tmp_path / "known.json"
    path.write_text(dump_baseline(entries), encoding="utf-8")
    assert load_baseline(str(path)).entries == entries
    assert json.loads(path.read_text())["schema"] == "dumpscope.baseline/1"


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{}", '{"schema": "dumpscope.baseline/2", "entries": []}',
        '{"schema": "dumpscope.baseline/1"}',
        '{"schema": "dumpscope.baseline/1", "entries": [3]}',
        '{"schema": "dumpscope.baseline/1", "entries": [{"kind": "bad"}]}',
        '{"schema": "dumpscope.baseline/1", "entries": [{"kind": "nan", "share": 2}]}',
        '{"schema": "dumpscope.baseline/1", "entries": [{"kind": "nan", "expires": "soon"}]}',
        '{"schema": "dumpscope.scan/1"}',
    ],
)  # fmt: skip
def test_what_is_no_baseline_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_baseline(text, "known.json")


def test_a_scan_document_that_was_cut_is_refused() -> None:
    with pytest.raises(OptionsError, match="--limit 0"):
        parse_baseline('{"schema": "dumpscope.scan/1", "truncated": 3, "findings": []}')


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DUMPSCOPE_STORE", raising=False)
    return tmp_path


def test_a_scan_with_its_own_baseline_has_nothing_new(
    in_folder: Path, fixture_dir: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    dump = str(fixture_dir / "sample_dump")
    assert run_with(["scan", dump]) == 1
    assert run_with(["baseline", "write", "known.json", "--reason", "issue 12"]) == 0
    capfd.readouterr()
    assert run_with(["scan", dump, "--baseline", "known.json", "--format", "json"]) == 0
    document = json.loads(capfd.readouterr().out)
    assert document["counts"]["baseline_known"] == len(document["findings"]) > 0
    assert all(entry["known"] for entry in document["findings"])
    assert run_with(["baseline", "show", "known.json"]) == 0
    assert "issue 12" in capfd.readouterr().out


def test_the_document_of_an_earlier_scan_is_a_baseline(
    in_folder: Path, fixture_dir: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    dump = str(fixture_dir / "sample_dump")
    assert run_with(["scan", dump]) == 1
    assert run_with(["report", "--json", "last.json", "--limit", "0"]) == 0
    assert run_with(["scan", dump, "--baseline", "last.json"]) == 0
    assert run_with(["report", "--json", "cut.json", "--limit", "1"]) == 0
    assert run_with(["scan", dump, "--baseline", "cut.json"]) == 2
    capfd.readouterr()


def test_update_adds_what_is_new_and_keeps_reasons(in_folder: Path, fixture_dir: Path) -> None:
    old = Entry("gone", "Old", "old", "output.0", "nan", 0.1, False, "kept")
    (in_folder / "known.json").write_text(dump_baseline([old]), encoding="utf-8")
    assert run_with(["scan", str(fixture_dir / "sample_dump")]) == 1
    assert run_with(["baseline", "update", "known.json", "--reason", "new"]) == 0
    entries = load_baseline("known.json").entries
    assert old in entries
    assert {entry.reason for entry in entries if entry != old} == {"new"}
    assert run_with(["baseline", "update", "known.json", "--drop-gone"]) == 0
    assert old not in load_baseline("known.json").entries


def test_a_file_that_exists_is_not_overwritten(in_folder: Path, fixture_dir: Path) -> None:
    (in_folder / "known.json").write_text("mine")
    assert run_with(["scan", str(fixture_dir / "sample_dump")]) == 1
    assert run_with(["baseline", "write", "known.json"]) == 2
    assert (in_folder / "known.json").read_text() == "mine"
    assert run_with(["baseline", "write", "known.json", "--force"]) == 0


def test_tensors_of_any_slot_count() -> None:
    op = make_op("Less", [tensor("input", 3, bad(nan=2))], [clean()], name="net/less")
    assert [e.slot for e in collect_entries([finding(op)])] == ["input.3"]


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no /dev/zero here")
def test_a_file_that_never_ends_is_no_baseline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dumpscope.nightly.baseline._MOST_BYTES", 1 << 20)
    with pytest.raises(ConfigError, match="/dev/zero: larger than 1 MiB; no baseline"):
        load_baseline("/dev/zero")
