"""The bundled dumps are small, unchanged, and lead to the answers that their manifest gives."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import dumpscope

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
FIXTURES = ROOT / "fixtures"
CASES = tomllib.loads((FIXTURES / "MANIFEST.toml").read_text(encoding="utf-8"))["case"]
LARGEST_FILE_BYTES = 50_000
LARGEST_FOLDER_BYTES = 3_000_000


def dumped_files() -> list[Path]:
    folders = (FIXTURES / "sample_dump", FIXTURES / "cases")
    return [path for folder in folders for path in folder.rglob("*") if path.is_file()]


def test_generating_again_gives_no_difference() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "fixtures.generate", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.stdout == ""
    assert result.returncode == 0


def test_fixtures_are_small() -> None:
    sizes = {path: path.stat().st_size for path in dumped_files()}
    assert sum(sizes.values()) <= LARGEST_FOLDER_BYTES
    assert [path for path, size in sizes.items() if size >= LARGEST_FILE_BYTES] == []


def test_manifest_names_every_case() -> None:
    folders = {f"cases/{path.name}" for path in (FIXTURES / "cases").iterdir() if path.is_dir()}
    assert {case["path"] for case in CASES} == folders | {"sample_dump"}
    assert {case["origin"] for case in CASES} <= {"synthetic", "captured", "derived"}


def test_derived_cases_are_the_corpus_s_files(corpus: Path) -> None:
    for case in CASES:
        if case["origin"] != "derived":
            continue
        folder = FIXTURES / case["path"]
        files = [path for path in folder.rglob("*") if path.is_file()]
        assert len(files) == case["files"]
        for path in files:
            original = corpus / case["source"] / path.relative_to(folder)
            assert path.read_bytes() == original.read_bytes(), path


@pytest.fixture(params=CASES, ids=[case["name"] for case in CASES])
def case(request: pytest.FixtureRequest) -> dict[str, Any]:
    chosen: dict[str, Any] = request.param
    return chosen


def snapshot(folder: Path) -> dict[Path, tuple[int, int]]:
    """Size and time of everything below a folder."""
    return {
        path: (path.lstat().st_size, path.lstat().st_mtime_ns)
        for path in (folder, *folder.rglob("*"))
    }


def test_answer_is_the_manifest_s(case: dict[str, Any]) -> None:
    folder = FIXTURES / case["path"]
    before = snapshot(folder)
    scan = dumpscope.scan(str(folder))
    assert snapshot(folder) == before

    expected = case["expected"]
    assert scan.exit_status == expected["exit_status"]
    if "complete" in expected:
        assert scan.complete is expected["complete"]
    if "number_mode" in expected:
        assert scan.mode.number_mode == expected["number_mode"]
    for name in ("ops", "tensors", "overflow_records", "findings"):
        if name in expected:
            assert getattr(scan.counts, name) == expected[name], name
    if "by_verdict" in expected:
        given = {str(name): count for name, count in scan.counts.by_verdict.items() if count}
        given["expected"] = scan.counts.expected
        assert {k: v for k, v in given.items() if v} == expected["by_verdict"]
    if "failed_files" in expected:
        assert sorted({f.file for f in scan.read_failures}) == expected["failed_files"]
    else:
        assert scan.read_failures == ()
    if "finding_names" in expected:
        assert [f.op.op_name for f in scan.findings] == expected["finding_names"]


def test_first_finding_is_the_manifest_s(case: dict[str, Any]) -> None:
    scan = dumpscope.scan(str(FIXTURES / case["path"]))
    expected = dict(case["expected"].get("first", {}))
    if not expected:
        assert scan.findings == ()
        return
    first = scan.findings[0]
    assert first.rank == 1
    assert first.verdict == expected.pop("verdict")
    for name in ("op_type", "op_name", "step", "device", "task_id", "file"):
        if name in expected:
            assert getattr(first.op, name) == expected.pop(name), name
    assert first.deciding is not None
    stats = first.op.tensors[first.deciding].stats
    if "first_bad" in expected:
        assert stats.first_bad == tuple(expected.pop("first_bad"))
    for name in ("nan", "posinf", "neginf", "saturated"):
        if name in expected:
            assert getattr(stats, name) == expected.pop(name), name
    if "inf" in expected:
        assert stats.posinf + stats.neginf == expected.pop("inf")
    if "overflow_kind" in expected:
        assert first.overflow is not None
        assert first.overflow.kind == expected.pop("overflow_kind")
        assert list(first.overflow.status) == expected.pop("overflow_status")
        assert first.overflow.confirmed is expected.pop("overflow_confirmed")
    # What is left would be a key of the manifest that nothing looks at.
    assert expected == {}
