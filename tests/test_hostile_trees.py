"""Whole trees that an enemy made: an answer, nothing changed, nothing that acts on a terminal."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from bench.hostile import WORDS, make_hostile_tree, snapshot
from builders import Tensor, dump_file
from dumpscope.dtypes import dtype_named
from dumpscope.layouts import plan_geometry
from dumpscope.model import StatsLevel
from dumpscope.scanning import scan
from dumpscope.stats.measuring import measure
from dumpscope.store import Store
from dumpscope.testing.damage import damage
from streamed_bytes import StreamedBytes

ROOT = Path(__file__).resolve().parent.parent
NAME = "Add.net_Add.1.1.1767225600000001"
INFINITE = b"\x00\x3c" * 31 + b"\x00\x7c"


def test_hostile_trees_are_scanned_and_left_as_they_were() -> None:
    """The short form of a part of `make soak`, in a process of its own, since it forks."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.soak", "--only", "trees", "--rounds", "2", "--seed", "1012"],
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=300,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    assert done.stderr == ""
    assert done.returncode == 0, done.stdout
    assert done.stdout.startswith("trees: 2 rounds, 0 faults")


def test_the_trees_hold_what_they_promise(tmp_path: Path, fixture_dir: Path) -> None:
    dumps = sorted(p for p in (fixture_dir / "sample_dump").rglob("*") if p.is_file())[:5]
    names = set()
    for seed in range(8):
        # Paths of one length: how deep a tree can be made depends on it.
        first, again = tmp_path / f"first{seed}", tmp_path / f"again{seed}"
        make_hostile_tree(first, dumps, seed)
        found = snapshot(first)
        make_hostile_tree(again, dumps, seed)
        assert [entry[3] for entry in found.values() if entry[3]]
        assert len(snapshot(again)) == len(found)
        names |= set(found)
    joined = b"\0".join(names)
    for part in (b"\x1b", b"\n", b"=cmd", b"<", b"\xff", b"d/d/d/d/d/d/d/d"):
        assert part in joined
    assert max(len(os.path.basename(name)) for name in names) >= 200


def test_damage_is_the_same_for_the_same_seed() -> None:
    content = bytes(range(256)) * 4
    made = [damage(content, random.Random(seed), WORDS) for seed in range(30)]
    assert made == [damage(content, random.Random(seed), WORDS) for seed in range(30)]
    assert len(set(made)) > 20


@pytest.mark.parametrize("level", ["screen", "full"])
@pytest.mark.parametrize("elements", [1, 2, 3])
def test_a_blocked_tensor_that_ends_before_its_padding_is_checked(
    level: StatsLevel, elements: int
) -> None:
    # Three channels in blocks of 16: the file ends within the first three elements.
    geometry = plan_geometry("NC1HWC0", (1, 1, 1, 4, 16), (1, 3, 1, 4), origin_layout="NCHW")
    raw = b"\x00\x7c" + b"\x00\x3c" * (elements - 1)
    found = measure(
        StreamedBytes(raw), dtype_named("float16"), geometry, level=level, count=elements
    ).stats
    assert (found.posinf, found.nonfinite) == (1, 1)


def test_times_of_64_bits_cost_no_answer(tmp_path: Path) -> None:
    folder = tmp_path / "20260101000000/0/net/1/0"
    folder.mkdir(parents=True)
    content = dump_file([], [Tensor(INFINITE, shape=(4, 8), address=4096)])
    (folder / NAME).write_bytes(content)
    (folder / "Add.net_Add.2.1.9999999999999999999").write_bytes(content)
    with Store.open(tmp_path / "scans.db") as store:
        answer = scan(tmp_path / "20260101000000", store=store)
        positions = store.memory(answer.scan_id).op_position.tolist()
    times = [finding.op.timestamp for finding in answer.findings]
    assert times == [1767225600000001, 9999999999999999999]
    assert sorted(positions) == [0, 1]
