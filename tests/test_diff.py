"""Two scans side by side: new, worse, moved and gone findings, and drift in bits."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli_runs import run
from dump_trees import write_op, write_tree
from dumpscope.errors import ConfigError
from dumpscope.model import Reason
from dumpscope.nightly import diffing, sides
from dumpscope.nightly.baseline import Entry
from dumpscope.nightly.diffing import Diff, FindingBrief, Reading, Side, compare
from dumpscope.nightly.headroom import headroom_bits
from dumpscope.reporters.diff_report import build_diff, print_diff
from scan_samples import HOSTILE_NAMES

INF = float("inf")
NAN = float("nan")


def brief(
    name: str = "net/add",
    share: float = 0.1,
    *,
    kind: str = "nan",
    rank: int = 2,
    step: int = 0,
    slot: str = "output.0",
) -> FindingBrief:
    entry = Entry("net", "Add", name, slot, kind, share, first=rank == 1)
    return FindingBrief((entry,), rank, step, 0, "origin", Reason("origin"))


def reading(
    name: str,
    largest: float | None,
    *,
    dtype: str = "float16",
    zero: int | None = 0,
    subnormal: int | None = 0,
) -> Reading:
    return Reading(("net", "Add", name, "output.0"), dtype, largest, 100, zero, subnormal)


def side(findings: Sequence[FindingBrief] = (), tensors: Sequence[Reading] = ()) -> Side:
    def read() -> Iterator[Reading]:
        return iter(tensors)

    return Side("s", "scan", "/root", tuple(findings), read, read, len(tensors))


def kinds(before: Sequence[FindingBrief], now: Sequence[FindingBrief]) -> list[str]:
    return [change.kind for change in compare(side(before), side(now)).changes]


# --- findings -----------------------------------------------------------------------------------


def test_the_kinds_of_change() -> None:
    assert kinds([], [brief()]) == ["new"]
    assert kinds([brief()], []) == ["gone"]
    assert kinds([brief()], [brief()]) == ["same"]
    assert kinds([brief(rank=2)], [brief(rank=3)]) == ["moved"]
    assert kinds([brief(step=2)], [brief(step=3)]) == ["moved"]
    assert kinds([brief()], [brief("net/other")]) == ["new", "gone"]


@pytest.mark.parametrize(
    ("now", "kind"),
    [
        (brief(share=0.2), "same"),
        (brief(share=0.21), "worse"),
        (brief(kind="posinf"), "worse"),
        (brief(slot="output.1"), "worse"),
        (brief(rank=1), "worse"),
        (brief(share=0.01), "same"),
    ],
)
def test_worse_is_what_a_baseline_says(now: FindingBrief, kind: str) -> None:
    assert kinds([brief(share=0.1)], [now]) == [kind]


def test_the_leader_that_stays_first_is_the_same() -> None:
    assert kinds([brief(rank=1)], [brief(rank=1)]) == ["same"]


def test_executions_of_one_operator_are_one_change() -> None:
    before = [brief(rank=1, step=0), brief(rank=2, step=1, share=0.5)]
    now = [brief(rank=1, step=0, share=0.5), brief(rank=2, step=1)]
    assert kinds(before, now) == ["same"]


def test_only_new_and_worse_fail() -> None:
    def status(before: list[FindingBrief], now: list[FindingBrief]) -> int:
        return compare(side(before), side(now)).exit_status

    assert status([], [brief()]) == 1
    assert status([brief()], [brief(share=0.9)]) == 1
    assert status([brief()], [brief(rank=7)]) == 0
    assert status([brief()], []) == 0


# --- drift --------------------------------------------------------------------------------------


def drift_of(before: list[Reading], now: list[Reading], most: int = 0) -> Diff:
    return compare(side((), before), side((), now), most_drift=most)


@pytest.mark.parametrize(
    ("dtype", "largest", "bits"),
    [
        ("float16", 65504.0, 0.0),
        ("float16", 32752.0, 1.0),
        ("float16", 65504.0 / 16, 4.0),
        ("bfloat16", float.fromhex("0x1.fep127") / 4, 2.0),
        ("float64", 2.0**-1074, 2098.0),
        ("int32", 5.0, None),
        ("float16", 0.0, None),
        ("float16", None, None),
    ],
)
def test_headroom_is_in_bits(dtype: str, largest: float | None, bits: float | None) -> None:
    found = headroom_bits(dtype, largest)
    assert found == (None if bits is None else pytest.approx(bits, abs=1e-9))


def test_drift_is_told_with_the_largest_loss_first() -> None:
    before = [reading("a", 1024.0), reading("b", 1024.0), reading("c", 1024.0), reading("x", 1.0)]
    now = [reading("a", 2048.0), reading("b", 32768.0), reading("c", 1100.0), reading("y", 1.0)]
    diff = drift_of(before, now)
    assert [entry.op_name for entry in diff.drift] == ["b", "a"]
    assert diff.drift[0].lost_bits == pytest.approx(5.0)
    assert (diff.drift_count, diff.compared) == (2, 3)
    assert diff.exit_status == 0


def test_executions_are_taken_together() -> None:
    before = [reading("a", 8.0), reading("a", 2.0)]
    now = [reading("a", 2.0), reading("a", 16.0)]
    (entry,) = drift_of(before, now).drift
    assert (entry.largest_before, entry.largest_now) == (8.0, 16.0)


def test_shares_at_the_lower_end() -> None:
    before = [reading("a", 1.0, zero=0, subnormal=10), reading("b", 1.0, zero=10)]
    now = [reading("a", 1.0, zero=0, subnormal=40), reading("b", 1.0, zero=None)]
    (entry,) = drift_of(before, now).drift
    assert entry.op_name == "a"
    assert (entry.subnormal_before, entry.subnormal_now) == (0.1, 0.4)


def test_another_dtype_has_another_limit() -> None:
    before = [reading("a", 1000.0, dtype="bfloat16")]
    (entry,) = drift_of(before, [reading("a", 1000.0)]).drift
    assert (entry.dtype_before, entry.dtype_now) == ("bfloat16", "float16")
    assert entry.lost_bits > 100


def test_several_passes_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    before = [reading(f"t{n}", 1.0) for n in range(50)]
    now = [reading(f"t{n}", 2.0 ** (n % 7)) for n in range(50)]
    whole = drift_of(before, now)
    monkeypatch.setattr(diffing, "MOST_IN_MEMORY", 9)
    assert drift_of(before, now).drift == whole.drift
    few = drift_of(before, now, most=5)
    assert few.drift == whole.drift[:5]
    assert few.drift_count == whole.drift_count == 50 - 8


def test_hostile_names_stay_text(capsys: pytest.CaptureFixture[str]) -> None:
    now = [brief(name, rank=n) for n, name in enumerate(HOSTILE_NAMES, 2)]
    tensors = [reading(name, 1.0) for name in HOSTILE_NAMES]
    later = [reading(name, 9.0) for name in HOSTILE_NAMES]
    diff = compare(side((), tensors), side(now, later))
    for lang in ("en", "zh"):
        print_diff(diff, lang=lang)
        out = capsys.readouterr().out
        assert "\x1b" not in out
        assert "\u202e" not in out
        assert max(map(len, out.splitlines())) <= 100
    document = build_diff(diff)
    assert [entry["op_name"] for entry in document["new"]] == list(HOSTILE_NAMES)


def test_what_only_follows_is_told_in_short(capsys: pytest.CaptureFixture[str]) -> None:
    reason = Reason("propagated", {"producer": "net/first", "evidence": "bytes", "nan": 3})
    follower = replace(brief("net/second", rank=2), verdict="propagated", reason=reason)
    leader = replace(brief("net/first", rank=1), reason=Reason("origin", {"nan": 3}))
    diff = compare(side(), side((leader, follower)))
    for lang, words in (("en", "follows net/first (equal bytes)"),
                        ("zh", "源自 net/first（数据逐字节相同）")):  # fmt: skip
        print_diff(diff, lang=lang)
        lines = capsys.readouterr().out.splitlines()
        (row,) = [number for number, line in enumerate(lines) if "#2" in line]
        told = lines[row].partition("#2")[2] + lines[row + 1].partition("step 0")[2]
        assert told.replace(" ", "") == words.replace(" ", "")


# --- the command --------------------------------------------------------------------------------


@pytest.fixture
def nights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two scans: last night b overflowed, tonight c does and b is worse."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LC_ALL", "en_US.UTF-8")
    last = write_tree(tmp_path / "last", {"net/a": [4096.0], "net/b": [INF]})
    tonight = write_tree(tmp_path / "tonight", {"net/a": [32768.0], "net/b": [INF] * 9 + [NAN]})
    write_op(
        tonight, "Mul", "net/c2", inputs=[np.ones(4, np.float16)],
        outputs=[np.full(4, INF, np.float16)], task=9,
    )  # fmt: skip
    for folder in (last, tonight):
        assert run("scan", folder, "--stats", "full").status == 1
    return tmp_path


def diff_json(*arguments: str, status: int = 1) -> Any:
    ended = run("diff", *arguments, "--json")
    assert ended.status == status, ended.err
    return json.loads(ended.out)


def test_the_two_newest_scans_are_compared(nights: Path) -> None:
    document = diff_json()
    assert document["schema"] == "dumpscope.diff/1"
    assert document["counts"]["new"] == document["counts"]["worse"] == 1
    (new,) = document["new"]
    assert (new["op_type"], new["op_name"], new["before"]) == ("Mul", "net/c2", None)
    (worse,) = document["worse"]
    assert worse["op_name"] == "net/b"
    parts = {part["kind"]: part for part in worse["changes"]}
    assert (parts["posinf"]["share_before"], parts["posinf"]["share_now"]) == (1 / 64, 9 / 64)
    assert parts["nan"]["share_before"] is None
    (drift,) = [d for d in document["drift"] if d["op_name"] == "net/a" and d["slot"] == "output.0"]
    assert drift["headroom_before"] == pytest.approx(np.log2(65504 / 4096))
    assert drift["headroom_now"] == pytest.approx(np.log2(65504 / 32768))


def test_the_other_way_round_it_is_gone(nights: Path) -> None:
    document = diff_json("latest", "latest~1", status=0)
    assert [entry["op_name"] for entry in document["gone"]] == ["net/c2"]
    assert document["counts"]["new"] == 0


def test_documents_and_stores_are_sides_too(nights: Path) -> None:
    whole = diff_json()
    assert run("report", "--scan", "latest", "--json", "now.json", "--limit", "0").status == 0
    document = diff_json("latest~1", "now.json")
    assert document["new"] == whole["new"]
    assert document["worse"] == whole["worse"]
    assert diff_json("latest~1", ".dumpscope/scans.db")["new"] == whole["new"]
    assert diff_json("now.json", "latest", status=0)["drift"] == []


def test_the_table_says_it_in_bits(nights: Path) -> None:
    ended = run("diff", "--lang", "en")
    assert ended.status == 1
    assert ended.out.startswith("1 new, 1 worse, 0 moved, 0 gone, 0 unchanged\n")
    assert "output.0: nan is new" in ended.out
    assert "headroom, bits" in ended.out
    assert "4.0" in ended.out
    assert "1.0" in ended.out
    assert run("diff", "--lang", "zh").out.startswith("新增 1，恶化 1")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("latest~7",), "asks for 8 scans and there are 2"),
        (("nothing",), "there is no scan 'nothing'"),
        (("cut.json", "latest"), "2 were left out"),
        (("other.json", "latest"), "expected schema dumpscope.scan/1"),
        (("damaged.json", "latest"), "no scan document of dumpscope"),
        (("plain.txt", "latest"), "neither a store nor a scan document"),
    ],
)
def test_wrong_usage(nights: Path, arguments: tuple[str, ...], message: str) -> None:
    (nights / "cut.json").write_text('{"schema": "dumpscope.scan/1", "truncated": 2}')
    (nights / "other.json").write_text('{"schema": "x"}')
    (nights / "damaged.json").write_text('{"schema": "dumpscope.scan/1", "findings": [3]}')
    (nights / "plain.txt").write_text("hello")
    ended = run("diff", *arguments)
    assert ended.status == 2
    assert message in ended.err
    assert ended.out == ""


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no /dev/zero here")
def test_a_file_that_never_ends_is_no_side(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dumpscope.nightly.sides._MOST_BYTES", 1 << 20)
    with pytest.raises(ConfigError, match="/dev/zero: larger than 0 GiB; name its store instead"):
        sides._load_document("/dev/zero")
