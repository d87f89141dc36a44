"""`dumpscope export`: names, values, true types, and a folder that nothing leaves."""

from __future__ import annotations

import json
import os
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import torch_builders
from array_builders import npy_bytes
from builders import (
    BFLOAT16,
    BOOL,
    FLOAT8_E4M3FN,
    FLOAT16,
    FLOAT32,
    HIFLOAT8,
    INT4,
    NC1HWC0,
    STRING,
    Tensor,
    dump_file,
    opdebug_file,
    overflow_record,
    stats_csv,
)
from cli_runs import ROOT, Ended, run
from dumpscope import open_dump
from dumpscope.errors import ReportError
from dumpscope.inspecting.exporting import Exporter
from dumpscope.inspecting.exportnames import FileNamer, clean_part, open_subfolder
from dumpscope.inspecting.exportvalues import ArraySource
from dumpscope.layouts import plain, plan_geometry
from dumpscope.plugins import load_readers
from dumpscope.readers.protocol import MemoryData, TensorRecord
from scan_samples import HOSTILE_NAMES

NAME = "MatMulV2.net_MatMul-op0.5.2.1764417600000000"
SAMPLE = ROOT / "fixtures/sample_dump"


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


def put(tmp_path: Path, *outputs: Tensor, name: str = NAME, **more: Any) -> Path:
    path = tmp_path / "dump" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(dump_file((), outputs, **more))
    return path


def half(values: Any) -> Tensor:
    array = np.asarray(values, "<f2")
    return Tensor(array.tobytes(), FLOAT16, array.shape)


def exported(*arguments: str | Path) -> list[Path]:
    """The paths that a call which ended well printed; they are there."""
    ended = run("export", *arguments)
    assert ended.status == 0, ended
    paths = [Path(line) for line in ended.out.splitlines()]
    assert all(path.is_file() for path in paths)
    return paths


def one(*arguments: str | Path) -> Path:
    (path,) = exported(*arguments)
    return path


# --- names ---------------------------------------------------------------------------------------


def test_a_name_keeps_operator_slot_shape_layout_and_type(tmp_path: Path) -> None:
    path = one(put(tmp_path, half([[1.0, np.inf]]), op_name="net/MatMul-op0"), "--to", "npy")
    assert str(path) == (
        "dumpscope-export/MatMulV2.net_MatMul-op0.5.2.1764417600000000.output.0.1x2.ND.float16.npy"
    )
    array = np.load(path)
    assert array.dtype == np.float16
    assert array.tolist() == [[1.0, float("inf")]]


def test_a_scalar_stays_a_scalar(tmp_path: Path) -> None:
    tensor = Tensor(np.float32(2.5).tobytes(), FLOAT32, ())
    path = one(put(tmp_path, tensor), "--to", "npy")
    assert path.name.endswith(".output.0._.ND.float32.npy")
    assert np.load(path).shape == ()
    assert float(np.load(path)) == 2.5


def test_names_without_ids(tmp_path: Path) -> None:
    (tmp_path / "hook.npy").write_bytes(npy_bytes("<f4", (2,), struct.pack("<2f", 1, 2)))
    assert one(tmp_path / "hook.npy", "--to", "npy").name == "hook.output.0.2.ND.float32.npy"


def test_a_folder_keeps_its_folders(tmp_path: Path) -> None:
    paths = exported(SAMPLE, "--to", "npy", "--output", "out")
    assert len(paths) == 304
    run_folder = "20260109173000/0/transformer_fp16/7"
    assert {str(p.parent) for p in paths} == {f"out/{run_folder}/{step}" for step in (0, 1)}
    # What was exported gives the same answer as the dump it came from.
    answer = json.loads(run("scan", "out", "--format", "json").out)
    first = answer["findings"][0]
    assert (first["op_name"], first["step"], first["verdict"]) == (
        "layer1_attn_scores",
        1,
        "origin",
    )
    assert answer["counts"]["by_verdict"] == {"expected": 3, "origin": 1, "propagated": 29}


@pytest.mark.parametrize("name", HOSTILE_NAMES)
@pytest.mark.parametrize("kind", ["npy", "npz"])
def test_no_name_leaves_the_folder(tmp_path: Path, name: str, kind: str) -> None:
    raw = name.encode("utf-8", "surrogateescape")
    path = put(tmp_path, half([1.0]), op_name=raw)
    before = sorted(tmp_path.rglob("*"))
    (written,) = exported(path, "--to", kind, "--output", "out")
    new = [p for p in tmp_path.rglob("*") if p not in before]
    assert {p.relative_to(tmp_path / "work").parts[0] for p in new} == {"out"}
    assert len(new) == 2
    assert written.name.isprintable()
    assert not set(written.name) & set('/\\<>:"|?*\n\t ')


@pytest.mark.parametrize(
    "name", ["../../escape", "..", "/etc/passwd", "a/../../b", "~root", "-rf", ".hidden", "C:\\x"]
)
def test_names_that_climb_stay_inside(tmp_path: Path, name: str) -> None:
    archive = torch_builders.archive(
        torch_builders.table_of(
            [(torch_builders.text(name), torch_builders.tensor("0", "float32", (1,)))]
        ),
        {"0": struct.pack("<f", 1.0)},
    )
    (tmp_path / "hook.pt").write_bytes(archive)
    (written,) = exported(tmp_path / "hook.pt", "--to", "npy", "--output", "out")
    assert written.resolve().parent == (tmp_path / "work/out").resolve()
    assert not (tmp_path / "escape").exists()
    assert clean_part(name)[0] not in "./~-"


def test_long_names_are_hashed_and_mapped(tmp_path: Path) -> None:
    long = "层" * 120
    path = put(tmp_path, half([np.inf]), half([1.0]), op_name=long)
    first, second = exported(path, "--to", "npy", "--output", "out")
    assert first != second
    assert len(first.stem) == len(second.stem) == 32
    rows = dict(
        line.split(",", 1) for line in Path("out/mapping.csv").read_text("utf-8").splitlines()
    )
    assert set(rows) == {first.name, second.name}
    assert rows[first.name] == f"MatMulV2.{long}.5.2.1764417600000000.output.0.1.ND.float16.npy"
    answer = json.loads(run("scan", "out", "--format", "json").out)
    assert answer["findings"][0]["op_name"] == long
    assert answer["findings"][0]["task_id"] == 5


def test_names_of_255_bytes_are_kept(tmp_path: Path) -> None:
    tail = ".5.2.1764417600000000.output.0.1.ND.float16.npy"
    for extra, kept in ((0, True), (1, False)):
        name = "x" * (254 - len("MatMulV2.") - len(tail) + extra)
        path = one(put(tmp_path, half([1.0]), op_name=name), "--to", "npy", "--output", "out")
        assert (name in path.name) is kept
        assert len(os.fsencode(path.name)) <= 255


def test_executions_of_one_name_get_a_file_each(tmp_path: Path) -> None:
    for name in ("a b", "a_b", "a/b"):
        archive = tmp_path / "in" / f"{len(list(tmp_path.glob('in/*')))}" / "hook.npy"
        archive.parent.mkdir(parents=True)
        archive.write_bytes(npy_bytes("<f4", (1,), struct.pack("<f", len(name))))
    namer = FileNamer(str(tmp_path / "out"))
    places = [namer.place("", clean_part(n), "output.0", "npy") for n in ("a b", "a_b", "A_B")]
    assert [Path(p).name for p in places] == [
        "a_b.output.0.npy",
        "a_b~2.output.0.npy",
        "A_B~3.output.0.npy",
    ]


# --- links, files that exist ---------------------------------------------------------------------


def test_a_file_that_exists_is_only_overwritten_when_forced(tmp_path: Path) -> None:
    path = put(tmp_path, half([1.0]))
    written = one(path, "--to", "npy")
    path.write_bytes(dump_file((), (half([2.0]),)))
    ended = run("export", path, "--to", "npy")
    assert (ended.status, ended.out) == (2, "")
    assert "exists already; --force overwrites it" in ended.err
    assert np.load(written).tolist() == [1.0]
    assert one(path, "--to", "npy", "--force") == written
    assert np.load(written).tolist() == [2.0]


def test_a_link_in_the_output_folder_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("kept")
    path = put(tmp_path, half([1.0]))
    written = one(path, "--to", "npy", "--output", "out")
    written.unlink()
    written.symlink_to(victim)
    assert run("export", path, "--to", "npy", "--output", "out").status == 2
    assert one(path, "--to", "npy", "--output", "out", "--force") == written
    assert victim.read_text() == "kept"
    assert not written.is_symlink()


def test_a_folder_that_leads_out_is_refused(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    Path("out").mkdir()
    Path("out/step0").symlink_to(outside)
    with pytest.raises(ReportError, match="out/step0: is no folder but a file or a link"):
        open_subfolder("out", "step0/rank1")
    put(tmp_path, half([1.0]), name=f"step0/{NAME}")
    ended = run("export", tmp_path / "dump", "--to", "npy", "--output", "out")
    assert ended.status == 2
    assert list(outside.iterdir()) == []


def test_an_output_folder_inside_of_the_dump_is_refused(tmp_path: Path) -> None:
    put(tmp_path, half([1.0]))
    for output in (tmp_path / "dump", tmp_path / "dump/deep/er"):
        ended = run("export", tmp_path / "dump", "--to", "npy", "--output", output)
        assert ended.status == 2
        assert "lies inside of" in ended.err
    assert len(list((tmp_path / "dump").iterdir())) == 1


def test_nothing_partial_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: ArraySource, target: Any) -> None:
        target.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ArraySource, "write_npy", fail)
    ended = run("export", put(tmp_path, half([1.0])), "--to", "npy", "--output", "out")
    assert ended.status == 2
    assert "No space left on device" in ended.err
    assert list(Path("out").iterdir()) == []


# --- values --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("array", "code", "dtype", "stored"),
    [
        (np.array([1.5, -np.inf, np.nan], ml_dtypes.bfloat16), BFLOAT16, "bfloat16", np.float32),
        (np.array([0.5, 448, np.nan], ml_dtypes.float8_e4m3fn), FLOAT8_E4M3FN, "float8_e4m3fn",
         np.float32),
    ],
)  # fmt: skip
def test_types_that_numpy_lacks_become_float32_and_are_named_beside(
    tmp_path: Path, array: Any, code: int, dtype: str, stored: Any
) -> None:
    path = put(tmp_path, Tensor(array.tobytes(), code, (3,)), op_name="net/a")
    written, beside = exported(path, "--to", "npy")
    values = np.load(written)
    assert values.dtype == stored
    np.testing.assert_array_equal(values, array.astype(np.float32))
    assert f".3.ND.{dtype}.npy" in written.name
    assert beside.name == written.name.replace(".npy", ".json")
    facts = json.loads(beside.read_text())
    assert (facts["dtype"], facts["stored_as"], facts["shape"]) == (dtype, "float32", [3])
    assert (facts["op_name"], facts["role"], facts["index"]) == ("net/a", "output", 0)


def test_hifloat8_int4_and_bool(tmp_path: Path) -> None:
    tensors = (
        Tensor(bytes([0x08, 0x6F, 0x80, 0x00]), HIFLOAT8, (4,)),
        Tensor(bytes([0x21, 0xF8]), INT4, (4,)),
        Tensor(bytes([0, 2]), BOOL, (2,)),
    )
    paths = exported(put(tmp_path, *tensors), "--to", "npy")
    first, second, third = (np.load(p) for p in paths if p.suffix == ".npy")
    np.testing.assert_array_equal(first, np.array([1.0, np.inf, np.nan, 0.0], np.float32))
    assert (second.dtype, second.tolist()) == (np.int8, [1, 2, -8, -1])
    assert (third.dtype, third.tolist()) == (np.bool_, [False, True])
    assert [p.suffix for p in paths] == [".npy", ".json", ".npy", ".json", ".npy"]


def blocked() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """A logical NCHW array, and how NC1HWC0 stores it, the padding full of NaN."""
    logical = np.arange(2 * 3 * 4 * 5, dtype="<f2").reshape(2, 3, 4, 5)
    padded = np.full((2, 16, 4, 5), np.nan, "<f2")
    padded[:, :3] = logical
    return logical, np.ascontiguousarray(padded.reshape(2, 1, 16, 4, 5).transpose(0, 1, 3, 4, 2))


def test_logical_and_raw_layout(tmp_path: Path) -> None:
    logical, stored = blocked()
    tensor = Tensor(stored.tobytes(), FLOAT16, stored.shape, NC1HWC0, original_shape=logical.shape)
    path = put(tmp_path, tensor)
    written = one(path, "--to", "npy")
    assert ".2x3x4x5.ND." in written.name
    np.testing.assert_array_equal(np.load(written), logical)
    raw = one(path, "--to", "npy", "--layout", "raw")
    assert ".2x1x4x5x16.NC1HWC0." in raw.name
    np.testing.assert_array_equal(np.load(raw), stored)


@pytest.mark.parametrize(
    ("layout", "stored", "original"),
    [
        ("FRACTAL_NZ", (2, 3, 16, 16), (40, 20)),
        ("FRACTAL_NZ", (3, 2, 1, 16, 16), (3, 10, 30)),
        ("FRACTAL_Z", (9, 2, 16, 16), (20, 9, 3, 3)),
        ("NDC1HWC0", (2, 3, 1, 4, 5, 16), (2, 7, 3, 4, 5)),
        ("ND", (4, 5), None),
    ],
)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int32", "complex64", "complex32"])
def test_streaming_gives_what_loading_gives(
    layout: str, stored: tuple[int, ...], original: tuple[int, ...] | None, dtype: str,
    tmp_path: Path,
) -> None:  # fmt: skip
    geometry = plan_geometry(layout, stored, original)
    assert geometry.blocked is (layout != "ND")
    count = geometry.stored_count
    size = {"float16": 2, "bfloat16": 2, "int32": 4, "complex64": 8, "complex32": 4}[dtype]
    raw = np.random.default_rng(7).integers(0, 256, count * size, np.uint8).tobytes()
    record = TensorRecord("output", 0, dtype, geometry, MemoryData(raw), size_bytes=len(raw))
    source = ArraySource(record, "logical", str(tmp_path))
    with (tmp_path / "x.npy").open("wb") as target:
        source.write_npy(target)
    loaded = record.load()
    written = np.load(tmp_path / "x.npy")
    assert written.shape == loaded.shape
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(written, loaded.astype(written.dtype))


def test_a_large_tensor_takes_no_memory(tmp_path: Path) -> None:
    class Zeros:
        """64 MiB of zeros that are never all there."""

        nbytes = 1 << 26

        def blocks(self) -> Any:
            block = memoryview(bytes(1 << 20))
            for _ in range(64):
                yield block

    shape = (64, 1, 1024, 32, 16)
    geometry = plan_geometry("NC1HWC0", shape, (64, 9, 1024, 32))
    for record in (
        TensorRecord("output", 0, "float16", plain((1 << 25,)), Zeros()),
        TensorRecord("output", 0, "float16", geometry, Zeros()),
    ):
        tracemalloc.start()
        with (tmp_path / "x.npy").open("wb") as target:
            ArraySource(record, "logical", str(tmp_path)).write_npy(target)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 16 << 20
        assert np.load(tmp_path / "x.npy", mmap_mode="r").shape == record.shape


def test_npz_holds_the_tensors_of_an_operator(tmp_path: Path) -> None:
    _, stored = blocked()
    tensors = (
        half([1.0, 2.0]),
        Tensor(stored.tobytes(), FLOAT16, stored.shape, NC1HWC0, original_shape=(2, 3, 4, 5)),
        Tensor(np.array([3.0], ml_dtypes.bfloat16).tobytes(), BFLOAT16, (1,)),
    )
    archive, beside = exported(put(tmp_path, *tensors, op_name="net/a"), "--to", "npz")
    assert archive.name == "MatMulV2.net_a.5.2.1764417600000000.npz"
    with np.load(archive) as arrays:
        assert set(arrays) == {
            "output.0.2.ND.float16",
            "output.1.2x3x4x5.ND.float16",
            "output.2.1.ND.bfloat16",
        }
        assert arrays["output.0.2.ND.float16"].tolist() == [1.0, 2.0]
        np.testing.assert_array_equal(arrays["output.1.2x3x4x5.ND.float16"], blocked()[0])
        assert arrays["output.2.1.ND.bfloat16"].tolist() == [3.0]
    facts = json.loads(beside.read_text())
    assert {key: fact["dtype"] for key, fact in facts.items()} == {
        "output.2.1.ND.bfloat16": "bfloat16"
    }


def test_the_same_tensors_give_the_same_archive(tmp_path: Path) -> None:
    path = put(tmp_path, half([1.0, 2.0]))
    first = one(path, "--to", "npz", "--output", "a").read_bytes()
    assert one(path, "--to", "npz", "--output", "b").read_bytes() == first


def test_csv_has_a_line_for_each_row(tmp_path: Path) -> None:
    values = [[[0.1, -np.inf], [np.nan, 65504.0]], [[1.0, 2.0], [3.0, 6e-8]]]
    path = one(put(tmp_path, half(values)), "--to", "csv")
    lines = path.read_text().splitlines()
    assert lines[:1] + lines[2:] == ["0.1,-inf", "1.0,2.0", "3.0,6e-08"]
    back = np.loadtxt(path, delimiter=",", dtype=np.float16).reshape(2, 2, 2)
    np.testing.assert_array_equal(back, np.array(values, np.float16))


def test_csv_of_scalars_blocked_and_empty_tensors(tmp_path: Path) -> None:
    logical, stored = blocked()
    tensors = (
        Tensor(np.float32(2.5).tobytes(), FLOAT32, ()),
        Tensor(stored.tobytes(), FLOAT16, stored.shape, NC1HWC0, original_shape=logical.shape),
        Tensor(b"", FLOAT32, (0, 3)),
        Tensor(bytes([0, 1]), BOOL, (2,)),
    )
    scalar, block, empty, flags = exported(put(tmp_path, *tensors), "--to", "csv")
    assert scalar.read_text() == "2.5\n"
    np.testing.assert_array_equal(
        np.loadtxt(block, delimiter=",").reshape(logical.shape), logical.astype(float)
    )
    assert empty.read_text() == ""
    assert flags.read_text() == "0,1\n"


def test_a_very_large_text_is_refused_unless_forced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dumpscope.inspecting.exporting.CSV_ELEMENTS_MAX", 3)
    path = put(tmp_path, half([1.0, 2.0, 3.0, 4.0]), half([1.0, 2.0, 3.0]))
    ended = run("export", path, "--to", "csv")
    assert ended.status == 2
    assert len(ended.out.splitlines()) == 1
    assert "4 elements make a very large text; --to npy, or --force" in ended.err
    assert len(exported(path, "--to", "csv", "--force")) == 2


# --- what is exported ----------------------------------------------------------------------------


def test_one_tensor_of_a_file(tmp_path: Path) -> None:
    path = put(tmp_path, half([1.0]), half([2.0]))
    assert np.load(one(f"{path}:output.1", "--to", "npy")).tolist() == [2.0]
    ended = run("export", f"{path}:input.0", "--to", "npy")
    assert (ended.status, ended.out) == (2, "")
    assert "has no input 0" in ended.err


def test_an_operator_of_the_last_scan(tmp_path: Path) -> None:
    assert run("scan", SAMPLE).status == 1
    ended = run("export", "layer1_attn_scores:output.0", "--to", "npy")
    assert ended.status == 0
    assert "the best-ranked of 2 executions is exported" in ended.err
    (line,) = ended.out.splitlines()
    assert np.isinf(np.load(line)).sum() == 3
    culprit = next(SAMPLE.rglob("BatchMatMulV2.layer1_attn_scores.33.2.1767951000066245"))
    with open_dump(culprit) as dump:
        *_, output = dump
        np.testing.assert_array_equal(np.load(line), output.load())
    relative = culprit.relative_to(SAMPLE)
    assert len(exported(str(relative), "--to", "npz")) == 1


def test_the_parts_of_an_operator(tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    folder.mkdir()
    for slot, value in (("input.0", 1.0), ("output.0", np.inf)):
        np.save(folder / f"{NAME}.{slot}.npy", np.array([value], np.float32))
    assert run("scan", folder).status == 1
    paths = exported("net_MatMul-op0", "--to", "npy")
    assert [np.load(p).tolist() for p in paths] == [[1.0], [float("inf")]]


def test_several_paths_keep_what_tells_them_apart(tmp_path: Path) -> None:
    put(tmp_path, half([1.0]), name=f"rank0/{NAME}")
    put(tmp_path, half([2.0]), name=f"rank1/{NAME}")
    paths = exported(tmp_path / "dump/rank0", tmp_path / "dump/rank1", "--to", "npy")
    assert [p.parent.name for p in paths] == ["rank0", "rank1"]


def refused(ended: Ended, said: str) -> None:
    assert (ended.status, ended.out) == (3, "")
    assert said in ended.err
    assert "wrote 0 arrays" in ended.err


def test_what_holds_no_values_is_said(tmp_path: Path) -> None:
    statistics = tmp_path / f"{NAME}.csv"
    statistics.write_bytes(stats_csv("Output,0,8,DT_FLOAT16,ND,4,1,-1,0,4,0,0,0"))
    refused(run("export", statistics, "--to", "npy"), "not dumped")
    strings = put(tmp_path, Tensor(b"ab", STRING, (1,)))
    refused(run("export", strings, "--to", "npy"), "string")
    record = tmp_path / "Opdebug.Node_OpDebug.9999.1.1764417600000009"
    record.write_bytes(opdebug_file(overflow_record(0, (1, 3, 7, 0, 0, 0, 0, 0, 0, 0, 16))))
    refused(run("export", record, "--to", "npy"), "")
    notes = tmp_path / "notes.md"
    notes.write_text("no dump")
    refused(run("export", notes, "--to", "npy"), "no known format")


def test_damage_is_said_and_the_rest_is_written(tmp_path: Path) -> None:
    path = put(tmp_path, half([1.0]), half([2.0, 3.0]))
    path.write_bytes(path.read_bytes()[:-2])
    put(tmp_path, half([4.0]), name=f"other/{NAME}")
    ended = run("export", tmp_path / "dump", "--to", "npy")
    assert ended.status == 3
    assert len(ended.out.splitlines()) == 2
    assert "lacks 2 bytes at its end: not exported" in ended.err


def test_an_array_larger_than_the_disk_is_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Usage:
        free = 7

    monkeypatch.setattr("dumpscope.inspecting.exporting.shutil.disk_usage", lambda _: Usage)
    path = put(tmp_path, half([1.0, 2.0, 3.0, 4.0]), half([1.0]))
    ended = run("export", path, "--to", "npy")
    assert ended.status == 3
    assert len(ended.out.splitlines()) == 1
    assert "takes 8 bytes, 7 are free in the output folder" in ended.err


def test_wrong_usage(tmp_path: Path) -> None:
    path = put(tmp_path, half([1.0]))
    Path("file").write_text("")
    for arguments, said in (
        ((path,), "--to"),
        (("--to", "npy"), "Missing argument"),
        ((path, "--to", "xlsx"), "--to"),
        (("nowhere", "--to", "npy"), "no such path"),
        ((path, "--to", "npy", "--output", "file"), "is no folder"),
        ((path, "--to", "npy", "--output", ""), "--output"),
        ((path, "--to", "npy", "--reader", "nonsense"), "no reader 'nonsense'"),
    ):
        ended = run("export", *arguments)
        assert (ended.status, ended.out) == (2, ""), arguments
        assert said in ended.err
    assert not Path("dumpscope-export").exists()


def test_an_exporter_can_be_used_from_python(tmp_path: Path) -> None:
    path = put(tmp_path, half([1.0]))
    with open_dump(path) as dump:
        file = dump.file
    exporter = Exporter(load_readers(), str(tmp_path / "out"))
    (written,) = exporter.export_file(file)
    assert Path(written).is_file()
    assert (exporter.written, exporter.left_out) == (1, [])
