"""Whole scans of small trees: the same answer whatever the way, and nothing touched."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from builders import Tensor, dump_file
from dumpscope.errors import OptionsError, StoreError
from dumpscope.model import DumpFile, FileResult, Scan, ScanOptions
from dumpscope.scanning import Progress, Worker, load_scan, scan, scan_into
from dumpscope.store import Store
from dumpscope.words import render

FINITE = b"\x00\x3c" * 32
INFINITE = b"\x00\x7c" * 32


def write_op(
    root: Path, op_type: str, at: int, inputs: list[bytes], outputs: list[bytes], **more: int
) -> Path:
    """Write one float16 execution into `root`/20260101000000/{device}/net/1/{step}."""
    folder = (
        root / "20260101000000" / str(more.get("device", 0)) / "net/1" / str(more.get("step", 0))
    )
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{op_type}.net_{op_type}.{at}.1.{1767225600000000 + at}"

    def tensor(raw: bytes) -> Tensor:
        return Tensor(raw, shape=(4, 8))

    path.write_bytes(
        dump_file(
            [tensor(raw) for raw in inputs],
            [tensor(raw) for raw in outputs],
            op_name=f"net/{op_type}",
        )
    )
    return path


def essence(answer: Scan) -> Scan:
    """An answer without what differs from one scan to the next."""
    return replace(
        answer,
        scan_id="",
        started_at="",
        duration_s=0.0,
        options=ScanOptions(),
        findings=tuple(
            replace(f, op=replace(f.op, op_id=0), caused_by=None) for f in answer.findings
        ),
        expected=tuple(
            replace(f, op=replace(f.op, op_id=0), caused_by=None) for f in answer.expected
        ),
        overflow_records=tuple(replace(r, record_id=0) for r in answer.overflow_records),
        record_rank={},
    )


@pytest.fixture
def sample(fixture_dir: Path) -> Path:
    return fixture_dir / "sample_dump"


def snapshot(root: Path) -> dict[str, tuple[bytes | None, int, int]]:
    found = {}
    for path in [root, *sorted(root.rglob("*"))]:
        status = path.stat()
        content = path.read_bytes() if path.is_file() else None
        found[str(path)] = (content, status.st_mtime_ns, status.st_mode)
    return found


def test_the_tree_is_left_byte_for_byte_as_it_was(sample: Path, tmp_path: Path) -> None:
    copy = tmp_path / "dump"
    shutil.copytree(sample, copy)
    before = snapshot(copy)
    assert scan(copy).exit_status == 1
    assert snapshot(copy) == before


@pytest.mark.parametrize("jobs", [2, 3])
def test_any_number_of_jobs_gives_the_same_answer(sample: Path, jobs: int) -> None:
    alone = scan(sample, ScanOptions(jobs=1))
    assert essence(scan(sample, ScanOptions(jobs=jobs))) == essence(alone)
    assert alone.findings


def test_full_statistics_change_no_verdict(sample: Path) -> None:
    screened = scan(sample)
    full = scan(sample, ScanOptions(stats="full"))
    assert [(f.rank, f.verdict, f.op.file) for f in full.findings] == [
        (f.rank, f.verdict, f.op.file) for f in screened.findings
    ]


def test_an_unchanged_tree_is_not_read_again(
    sample: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.open(tmp_path / "scans.db") as store:
        first = scan(sample, store=store)

        def refuse(self: Worker, files: list[DumpFile]) -> list[FileResult]:
            raise AssertionError(f"read again: {files[0].relative}")

        monkeypatch.setattr(Worker, "__call__", refuse)
        second = scan(sample, store=store)
    assert essence(second) == essence(first)
    assert second.scan_id != first.scan_id


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path = write_op(tmp_path / "dump", "Add", 1, [FINITE], [FINITE])
    with Store.open(tmp_path / "scans.db") as store:
        assert scan(tmp_path / "dump", store=store).exit_status == 0
        path.write_bytes(path.read_bytes().replace(FINITE + FINITE, FINITE + INFINITE))
        assert scan(tmp_path / "dump", store=store).findings[0].verdict.value == "origin"


def test_an_interrupted_scan_leaves_what_it_read(
    sample: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dumpscope.executors.BATCH_FILES", 10)
    seen = []

    def stop(progress: Progress) -> None:
        seen.append(progress.files)
        if progress.files >= 10:
            raise KeyboardInterrupt

    with Store.open(tmp_path / "scans.db") as store:
        with pytest.raises(KeyboardInterrupt):
            scan_into(store, sample, ScanOptions(jobs=1), progress=stop)
        unfinished = store.latest()
        assert unfinished is not None
        assert unfinished.state == "interrupted"
        assert not load_scan(store, unfinished.scan_id).complete
        whole = scan(sample, store=store)
    assert essence(whole) == essence(scan(sample))


@pytest.mark.parametrize(("wait_s", "transactions"), [(1e9, [3]), (0.0, [1, 1, 1])])
def test_large_files_share_a_transaction_unless_it_would_be_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait_s: float, transactions: list[int]
) -> None:
    raw = b"\x00\x3c" * (3 << 19)  # two of these are more than a batch
    for number in range(3):
        path = tmp_path / f"dump/Add.net_Add.{number}.1.176722560000000{number}"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(dump_file([], [Tensor(raw, shape=(3 << 19,))]))
    stored = []
    add = Store.add

    def watched(store: Store, scan_id: str, results: Sequence[FileResult], signature: str) -> None:
        stored.append(len(results))
        add(store, scan_id, results, signature)

    monkeypatch.setattr(Store, "add", watched)
    monkeypatch.setattr("dumpscope.scanning.COMMIT_S", wait_s)
    for jobs in (1, 2):
        stored.clear()
        answer = scan(tmp_path / "dump", ScanOptions(jobs=jobs))
        assert stored == transactions
        assert answer.counts.files == 3
        assert answer.exit_status == 0


@pytest.mark.parametrize("jobs", [1, 2])
def test_what_waits_to_be_stored_is_stored_when_the_scan_is_stopped(
    sample: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: int
) -> None:
    monkeypatch.setattr("dumpscope.scanning.COMMIT_S", 1e9)
    monkeypatch.setattr("dumpscope.executors.BATCH_FILES", 1)
    monkeypatch.setattr("dumpscope.executors.BATCH_BYTES", 1)
    seen: list[int] = []

    def stop(progress: Progress) -> None:
        seen.append(progress.files)
        if progress.files >= 5:
            raise KeyboardInterrupt

    with Store.open(tmp_path / "scans.db") as store:
        with pytest.raises(KeyboardInterrupt):
            scan_into(store, sample, ScanOptions(jobs=jobs), progress=stop)
        assert load_scan(store).counts.files == seen[-1]


def test_load_scan_gives_the_same_answer_again(sample: Path, tmp_path: Path) -> None:
    with Store.open(tmp_path / "scans.db") as store:
        first = scan(sample, store=store)
        assert load_scan(store) == replace(first, duration_s=load_scan(store).duration_s)
        with pytest.raises(StoreError):
            load_scan(store, "no-such-scan")


def test_an_empty_store_says_so(tmp_path: Path) -> None:
    with Store.open(tmp_path / "scans.db") as store, pytest.raises(StoreError, match="no scan yet"):
        load_scan(store)


@pytest.mark.parametrize(
    ("expect", "status", "complete"), [(None, 3, False), ("model", 3, False), ("overflow", 0, True)]
)
def test_what_an_empty_folder_means(
    tmp_path: Path, expect: Literal["overflow", "model"] | None, status: int, complete: bool
) -> None:
    answer = scan(tmp_path, ScanOptions(expect=expect))
    assert (answer.exit_status, answer.complete) == (status, complete)


def test_a_path_that_is_not_there_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(OptionsError):
        scan(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("fail_on", "status"),
    [
        ("info", 1), ("warning", 1), ("error", 1), ("never", 0), ("origin", 0),
        ("saturated_origin", 0), ("bad_input", 1), ("propagated", 1),
    ],
)  # fmt: skip
def test_fail_on_decides_what_an_offender_is(tmp_path: Path, fail_on: str, status: int) -> None:
    write_op(tmp_path, "Exp", 1, [INFINITE], [INFINITE])
    answer = scan(tmp_path, ScanOptions(fail_on=fail_on))
    assert [f.verdict.value for f in answer.findings] == ["bad_input"]
    assert answer.exit_status == status


def test_fail_on_tells_severities_apart(tmp_path: Path) -> None:
    write_op(tmp_path, "Add", 1, [FINITE], [INFINITE], step=0)
    write_op(tmp_path, "Less", 2, [INFINITE], [FINITE], step=0)
    only = ScanOptions(op_globs=("Less",))
    assert [f.verdict.value for f in scan(tmp_path, only).findings] == ["swallowed"]
    assert scan(tmp_path, replace(only, fail_on="warning")).exit_status == 1
    assert scan(tmp_path, replace(only, fail_on="error")).exit_status == 0


@pytest.mark.parametrize(
    ("tolerated", "status"), [("0", 3), ("1", 0), ("all", 0), ("24%", 3), ("25%", 0), ("100%", 0)]
)
def test_max_unreadable_counts_files_and_tensors(
    tmp_path: Path, tolerated: str, status: int
) -> None:
    write_op(tmp_path, "Add", 1, [FINITE, FINITE], [FINITE])
    write_op(tmp_path, "Cut", 2, [FINITE], [FINITE]).write_bytes(b"")
    answer = scan(tmp_path, ScanOptions(max_unreadable=tolerated))
    assert answer.exit_status == status
    assert not answer.complete
    assert answer.counts.read_failures == 1


def test_offenders_beside_unreadable_files_are_1_and_incomplete(tmp_path: Path) -> None:
    write_op(tmp_path, "Add", 1, [FINITE], [INFINITE])
    write_op(tmp_path, "Cut", 2, [FINITE], [FINITE]).write_bytes(b"")
    answer = scan(tmp_path)
    assert (answer.exit_status, answer.complete) == (1, False)


@pytest.mark.parametrize(
    "options", [ScanOptions(fail_on="sometimes"), ScanOptions(max_unreadable="101%"),
                ScanOptions(max_unreadable="-1"), ScanOptions(run="20250101000000")]
)  # fmt: skip
def test_options_without_meaning_are_refused(tmp_path: Path, options: ScanOptions) -> None:
    write_op(tmp_path, "Add", 1, [FINITE], [INFINITE])
    with pytest.raises(OptionsError):
        scan(tmp_path, options)


def test_filters_keep_step_rank_and_name(tmp_path: Path) -> None:
    for device in (0, 1):
        for step in (0, 1):
            write_op(tmp_path, "Add", 1, [FINITE], [INFINITE], device=device, step=step)
    assert scan(tmp_path).counts.findings == 4
    only = scan(tmp_path, ScanOptions(steps=(1,), ranks=(0,)))
    assert [(f.op.step, f.op.device, f.rank) for f in only.findings] == [(1, 0, 1)]
    assert scan(tmp_path, ScanOptions(op_globs=("Ad*",))).counts.findings == 4


@pytest.mark.parametrize(
    "options", [ScanOptions(op_globs=("Mul*",)), ScanOptions(op_globs=("Add",), steps=(7,))]
)
def test_filters_that_nothing_passes_are_not_clean(tmp_path: Path, options: ScanOptions) -> None:
    write_op(tmp_path, "Add", 1, [FINITE], [FINITE])
    with Store.open(tmp_path / "scans.db") as store:
        scan(tmp_path, store=store)
        with pytest.raises(OptionsError, match="no operator of this scan matches"):
            load_scan(store, options=options)


def test_inputs_and_outputs_of_a_communication_operator_are_one_execution(tmp_path: Path) -> None:
    write_op(tmp_path, "HcomAllReduce", 1, [FINITE], [])
    outputs = (
        tmp_path / "20260101000000/0/net/1/0/HcomAllReduce.net_HcomAllReduce.1.1.1767225600000009"
    )
    outputs.write_bytes(
        dump_file([], [Tensor(INFINITE, shape=(4, 8))], op_name="net/HcomAllReduce")
    )
    answer = scan(tmp_path)
    assert (answer.counts.files, answer.counts.ops, answer.counts.tensors) == (2, 1, 2)
    (finding,) = answer.findings
    assert [t.role for t in finding.op.tensors] == ["input", "output"]
    assert finding.op.file.endswith("1767225600000009")
    # The other ranks of its group are not in the dump.
    assert finding.verdict.value == "received"


def looks_skipped(root: Path) -> list[bool]:
    """Whether the reason of each finding says that a loss scaler would skip the step."""
    told = [render(finding.reason) for finding in scan(root).findings]
    return ["would skip this step" in text for text in told]


@pytest.mark.parametrize(
    "check",
    ["NPUGetFloatStatusV2", "NPUAllocFloatStatus", "NPUClearFloatStatus", "AllFinite",
     "aclnnNonFiniteCheckOp", "_amp_foreach_non_finite_check_and_unscale_", "DynamicLossScale"],
)  # fmt: skip
def test_gradients_that_a_loss_scaler_checks_are_found_and_called_skipped(
    tmp_path: Path, check: str
) -> None:
    write_op(tmp_path, "ReluGrad", 1, [FINITE], [INFINITE])
    assert looks_skipped(tmp_path) == [False]
    write_op(tmp_path, check, 2, [FINITE], [FINITE])
    assert looks_skipped(tmp_path) == [True]
    # Trouble in forward is no matter of the scale, wherever it comes in the step.
    write_op(tmp_path, "Log", 3, [FINITE], [INFINITE])
    assert looks_skipped(tmp_path) == [False, False]


@pytest.mark.parametrize("check", ["IsFinite", "Mul"])
def test_what_checks_no_gradients_skips_nothing(tmp_path: Path, check: str) -> None:
    write_op(tmp_path, "ReluGrad", 1, [FINITE], [INFINITE])
    write_op(tmp_path, check, 2, [FINITE], [FINITE])
    assert looks_skipped(tmp_path) == [False]


def test_archives_are_to_be_unpacked(tmp_path: Path) -> None:
    write_op(tmp_path, "Mul", 1, [FINITE], [FINITE])
    for name in ("a.log", "b.tar.gz", "c.zip"):
        (tmp_path / name).write_bytes(b"\x1f\x8b" + bytes(80))
    answer = scan(tmp_path)
    # Nobody knows whether dumps are in them, so nothing is missing for certain.
    assert (answer.exit_status, answer.complete, answer.counts.unknown_files) == (0, True, 3)
    (note,) = [note for note in answer.notes if note.code == "archives"]
    assert note.parameters == {"count": 2, "path": "b.tar.gz"}
    told = render(note)
    assert told.startswith("2 archives were not looked into, the first is b.tar.gz")
    assert told.endswith("unpack it first.")
    assert "解压" in render(note, "zh")


def test_addresses_name_the_producer_across_a_gap(tmp_path: Path) -> None:
    # Equal bytes cannot tell: the consumer reads a part of what the producer wrote.
    folder = tmp_path / "20260101000000/0/net/1/0"
    folder.mkdir(parents=True)

    def put(name: str, at: int, inputs: list[Tensor], outputs: list[Tensor]) -> None:
        (folder / f"{name}.net_{name}.{at}.1.{1767225600000000 + at}").write_bytes(
            dump_file(inputs, outputs, op_name=f"net/{name}")
        )

    def at(address: int, raw: bytes) -> Tensor:
        return Tensor(raw, shape=(len(raw) // 2,), address=address)

    put("Origin", 1, [at(0x1000, FINITE)], [at(0x2000, FINITE + INFINITE)])
    put("Part", 2, [at(0x2040, INFINITE)], [at(0x3000, INFINITE)])
    put("Other", 3, [at(0x9000, INFINITE[:-2] + b"\x00\x3c")], [at(0xA000, FINITE)])
    answer = scan(tmp_path)
    told = {f.op.op_type: (f.verdict.value, f.evidence[-1]) for f in answer.findings}
    assert told == {
        "Origin": ("origin", "own_inputs"),
        "Part": ("propagated", "address"),
        # Its address meets no output of the dump, so order must not blame the origin.
        "Other": ("bad_input", "own_inputs"),
    }


def test_a_graph_tells_what_outputs_alone_do_not(tmp_path: Path) -> None:
    write_op(tmp_path, "Bad", 1, [], [INFINITE])
    write_op(tmp_path, "Clean", 2, [], [FINITE])
    write_op(tmp_path, "After", 3, [], [INFINITE])
    write_op(tmp_path, "Fresh", 4, [], [INFINITE])
    (tmp_path / "ge_proto_00000001_graph_0_Build.txt").write_text(
        'graph {\n  name: "g"\n'
        '  op {\n    name: "net/Bad"\n    type: "Bad"\n    input: "net/Clean:0"\n  }\n'
        '  op {\n    name: "net/Clean"\n    type: "Clean"\n    input: "data:0"\n  }\n'
        '  op {\n    name: "net/After"\n    type: "After"\n    input: "net/Bad:0"\n  }\n'
        '  op {\n    name: "net/Fresh"\n    type: "Fresh"\n    input: "net/Clean:0"\n  }\n'
        "}\n"
    )
    answer = scan(tmp_path)
    told = {f.op.op_type: (f.verdict.value, f.evidence[0]) for f in answer.findings}
    assert told["After"] == ("propagated", "graph")
    assert told["Fresh"] == ("origin", "graph")


def test_names_that_are_not_utf8_survive(tmp_path: Path) -> None:
    path = write_op(tmp_path, "Add", 1, [FINITE], [INFINITE])
    os.rename(os.fsencode(path), os.fsencode(path.parent) + b"/Add.n\xff\xfe.1.1.1767225600000001")
    answer = scan(tmp_path)
    assert os.fsencode(answer.findings[0].op.file).endswith(b"/Add.n\xff\xfe.1.1.1767225600000001")
