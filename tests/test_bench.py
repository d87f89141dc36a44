"""The benchmark measures what it says: its dumps are whole, its limits point the right way."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import dumpscope
from bench import dumps, large_store
from bench.processes import MIB, ProgramFailedError, python, run
from bench.table import Row, markdown

ROOT = Path(__file__).resolve().parent.parent


def test_large_dumps_are_clean_and_of_the_size_asked(tmp_path: Path) -> None:
    size = dumps.write_large(tmp_path, count=2, mib=1)
    scan = dumpscope.scan(str(tmp_path))
    assert (scan.exit_status, scan.complete) == (0, True)
    assert (scan.counts.files, scan.counts.tensors) == (2, 2)
    assert size == sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert 2 * MIB < size < 2 * MIB + 1000


def test_small_dumps_hold_an_infinity_only_where_asked(tmp_path: Path) -> None:
    dumps.write_small(tmp_path / "good", count=3)
    dumps.write_small(tmp_path / "bad", count=3, bad=True)
    good, bad = (dumpscope.scan(str(tmp_path / name)) for name in ("good", "bad"))
    assert good.findings == ()
    assert [str(finding.verdict) for finding in bad.findings] == ["origin"] * 3
    sizes = {path.stat().st_size // 100 for path in tmp_path.rglob("MatMul*")}
    assert all(81 <= size <= 84 for size in sizes)


def test_a_sparse_dump_is_one_whole_tensor(tmp_path: Path) -> None:
    size = dumps.write_sparse(tmp_path, gib=1)
    (path,) = (p for p in tmp_path.rglob("*") if p.is_file())
    assert path.stat().st_size == size
    assert path.stat().st_blocks * 512 < MIB


@pytest.mark.parametrize("addresses", [True, False])
def test_a_large_store_is_bad_in_the_last_tenth_of_every_step(
    tmp_path: Path, *, addresses: bool
) -> None:
    path = tmp_path / "scans.db"
    large_store.fill(path, ops=4000, addresses=addresses)
    found = large_store.conclude_alone(path)
    # 4 ranks and 5 steps of 200 operators: the last 20 are bad, and one before them at its limit.
    assert found.findings == 4 * 5 * (20 + 1)
    # Only addresses lead from the limit over clean operators to the first Inf.
    assert found.first == ("saturated_origin" if addresses else "origin")
    assert found.seconds > 0
    assert found.peak_mib > 10


def row(value: float, *, higher_is_better: bool = False) -> Row:
    must, aim = (1.5, 1.9) if higher_is_better else (3.0, 1.3)
    return Row("what", value, "×", must, aim, "figures", higher_is_better=higher_is_better)


@pytest.mark.parametrize(
    ("measured", "verdict"),
    [
        (row(1.3), "aim"),
        (row(1.31), "must"),
        (row(3.01), "MISSED"),
        (row(1.9, higher_is_better=True), "aim"),
        (row(1.6, higher_is_better=True), "must"),
        (row(1.4, higher_is_better=True), "MISSED"),
    ],
)
def test_limits_point_the_right_way(measured: Row, verdict: str) -> None:
    assert measured.verdict == verdict
    assert f"| {verdict} |" in markdown([measured]).splitlines()[-1]


def test_memory_is_that_of_all_processes() -> None:
    child = "import time; x = bytearray(60 << 20); time.sleep(0.5)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    measured = run(python(parent), watch_memory=True)
    assert 60 * MIB < measured.peak_bytes < 160 * MIB


def test_a_failing_program_is_not_measured() -> None:
    with pytest.raises(ProgramFailedError, match=r"exited 3: no$"):
        run(python("import sys; sys.stderr.write('no'); sys.exit(3)"))


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    command = ["-m", "bench", "--only", "start-up", "--runs", "1", "--folder", str(tmp_path)]
    result = subprocess.run(
        [sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode in {0, 1}, result.stderr
    assert "`dumpscope --version`" in result.stdout
    assert list(tmp_path.iterdir()) == []
