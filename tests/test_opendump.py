"""`open_dump`: what scripts get of one file, whole or damaged, and the page that tells of it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import dumpscope
from builders import FLOAT16, FLOAT32, NC1HWC0, Tensor, dump_file, opdebug_file, overflow_record
from dumpscope import DumpReadError, TensorRecord, open_dump
from dumpscope.errors import OptionsError, TruncatedDumpError, UnknownFormatError

ROOT = Path(__file__).resolve().parent.parent
NAME = "MatMulV2.net_MatMul-op0.5.2.1764417600000000"
OPDEBUG = "Opdebug.Node_OpDebug.9999.1.1764417600000009"


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """Two inputs and an output, one of them a scalar."""
    left = np.arange(6, dtype="<f2").reshape(2, 3)
    out = np.array([[1.0, np.inf, -2.0]], "<f4")
    path = tmp_path / NAME
    path.write_bytes(
        dump_file(
            (
                Tensor(left.tobytes(), FLOAT16, (2, 3)),
                Tensor(np.float32(0.5).tobytes(), FLOAT32, ()),
            ),
            (Tensor(out.tobytes(), FLOAT32, (1, 3)),),
            op_name="net/MatMul-op0",
            attributes=(("transpose_a", "false"),),
        )
    )
    return path


def test_tensors_come_in_the_order_of_the_file(dump: Path) -> None:
    with open_dump(dump) as opened:
        slots = [(t.role, t.index, t.dtype, t.shape) for t in opened]
        arrays = [t.load() for t in opened]
    assert slots == [
        ("input", 0, "float16", (2, 3)),
        ("input", 1, "float32", ()),
        ("output", 0, "float32", (1, 3)),
    ]
    assert arrays[0].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert arrays[1].ndim == 0
    assert arrays[1] == 0.5
    assert arrays[2].tolist() == [[1.0, float("inf"), -2.0]]
    assert not any(array.flags.writeable for array in arrays)


def test_the_execution_has_names_ids_and_attributes(dump: Path) -> None:
    opened = open_dump(str(dump))
    (execution,) = opened.executions
    assert (execution.op_type, execution.op_name) == ("MatMulV2", "net/MatMul-op0")
    assert (execution.task_id, execution.stream_id) == (5, 2)
    assert execution.timestamp == 1764417600000000
    assert ("transpose_a", "false") in execution.attributes
    assert opened.reader == "adump"
    assert opened.file.size == dump.stat().st_size
    assert opened.executions == [execution]


def test_a_blocked_tensor_comes_in_its_logical_shape(tmp_path: Path) -> None:
    logical = np.arange(2 * 3 * 2 * 2, dtype="<f2").reshape(2, 3, 2, 2)
    padded = np.full((2, 16, 2, 2), np.nan, "<f2")
    padded[:, :3] = logical
    stored = np.ascontiguousarray(padded.reshape(2, 1, 16, 2, 2).transpose(0, 1, 3, 4, 2))
    path = tmp_path / NAME
    tensor = Tensor(
        stored.tobytes(), FLOAT16, (2, 1, 2, 2, 16), NC1HWC0, original_shape=(2, 3, 2, 2)
    )
    path.write_bytes(dump_file((), (tensor,)))
    (record,) = open_dump(path)
    assert record.shape == (2, 3, 2, 2)
    assert np.array_equal(record.load(), logical)


def test_what_is_whole_of_a_damaged_file_comes_before_the_error(dump: Path) -> None:
    dump.write_bytes(dump.read_bytes()[:-4])
    seen: list[TensorRecord] = []
    with pytest.raises(TruncatedDumpError) as caught:
        seen.extend(open_dump(dump))
    assert [(t.role, t.index, t.missing_bytes) for t in seen] == [
        ("input", 0, 0),
        ("input", 1, 0),
        ("output", 0, 4),
    ]
    assert caught.value.path == NAME
    lenient = open_dump(dump, strict=False)
    assert len(list(lenient)) == 3
    assert [type(fault) for fault in lenient.faults] == [TruncatedDumpError]
    assert len(lenient.executions) == 1


def test_a_file_that_is_damaged_from_the_start_gives_nothing_but_the_error(tmp_path: Path) -> None:
    path = tmp_path / NAME
    path.write_bytes(b"\xff" * 64)
    with pytest.raises(DumpReadError):
        list(open_dump(path))
    lenient = open_dump(path, strict=False)
    assert list(lenient) == []
    assert len(lenient.faults) == 1


def test_overflow_records_are_no_tensors(tmp_path: Path) -> None:
    fields = (1, 3, 7, 0, 0, 0, 0x1000, 0x2000, 0, 0, 0x110)
    path = tmp_path / OPDEBUG
    path.write_bytes(opdebug_file(overflow_record(0, fields)))
    opened = open_dump(path)
    assert list(opened) == []
    (record,) = opened.overflow_records
    assert (record.units[0].kind, record.units[0].status) == ("AIC", (0x110,))


def test_a_graph_gives_its_operators(tmp_path: Path) -> None:
    path = tmp_path / "ge_proto_00001_Build.txt"
    path.write_text('graph {\n  name: "g"\n  op {\n    name: "a"\n    type: "Add"\n  }\n}\n')
    assert [(n.name, n.op_type) for n in open_dump(path).graph_nodes] == [("a", "Add")]


def test_a_reader_may_be_named(tmp_path: Path) -> None:
    path = tmp_path / "anything"
    np.save(path, np.ones(3, np.float32))
    renamed = path.with_name("anything.npy")
    assert open_dump(renamed, reader="npy").reader == "npy"
    with pytest.raises(OptionsError, match="there is no reader 'nonsense'"):
        open_dump(renamed, reader="nonsense")


def test_a_hashed_name_is_looked_up_in_mapping_csv(dump: Path) -> None:
    hashed = dump.rename(dump.with_name("1234567890123456789"))
    dump.with_name("mapping.csv").write_text(f"1234567890123456789,{NAME}\n")
    assert open_dump(hashed).executions[0].task_id == 5


@pytest.mark.parametrize("name", ["dump.zip", "20251129120000.tar.gz", "D.TGZ", "rank0.tar"])
def test_an_archive_is_to_be_unpacked_first(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"PK\x03\x04" + bytes(80))
    with pytest.raises(UnknownFormatError, match="is an archive: unpack it first"):
        open_dump(tmp_path / name)


def test_what_is_no_dump_file(tmp_path: Path) -> None:
    with pytest.raises(OptionsError, match="cannot be scanned"):
        open_dump(tmp_path / "nowhere")
    with pytest.raises(OptionsError, match="is a folder"):
        open_dump(tmp_path)
    strange = tmp_path / "notes.md"
    strange.write_text("not a dump")
    with pytest.raises(UnknownFormatError, match="dumpscope readers"):
        open_dump(strange)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with pytest.raises(UnknownFormatError, match="no regular file"):
        open_dump(fifo)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="no /proc here")
def test_a_dump_that_nobody_holds_any_more_is_closed(dump: Path) -> None:
    def times_open() -> int:
        links = (os.path.join("/proc/self/fd", fd) for fd in os.listdir("/proc/self/fd"))
        return sum(os.path.lexists(link) and os.readlink(link) == str(dump) for link in links)

    with open_dump(dump) as opened:
        assert times_open() == 1
        assert len(opened.executions) == 1
    assert times_open() == 0
    kept = open_dump(dump)
    tensors = list(kept)
    del kept
    assert times_open() == 1, "the tensors need it"
    assert tensors[0].load().shape == (2, 3)
    del tensors
    assert times_open() == 0


def test_the_package_offers_what_the_page_promises(tmp_path: Path) -> None:
    page = (ROOT / "docs/api.md").read_text(encoding="utf-8")
    promised = set(re.findall(r"^### `(?:dumpscope\.)?(\w+)", page, re.MULTILINE))
    assert promised, "docs/api.md lists no names"
    assert promised <= set(dumpscope.__all__)
    assert {"scan", "open_dump", "write_report", "Scan", "ScanOptions"} <= promised


def test_the_programs_of_the_page_run(tmp_path: Path) -> None:
    page = (ROOT / "docs/api.md").read_text(encoding="utf-8")
    programs = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    assert len(programs) >= 2
    os.symlink(ROOT / "fixtures/sample_dump", tmp_path / "dump_data")
    for program in programs:
        result = subprocess.run(
            [sys.executable, "-W", "error", "-c", program],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 0, result.stderr
        expected = re.findall(r"#> (.*)", program)
        assert result.stdout.splitlines()[: len(expected)] == expected
