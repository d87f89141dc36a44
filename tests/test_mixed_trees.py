"""One execution that was dumped in several forms is reported once, by its best form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import torch_builders
from array_builders import npy_bytes
from builders import FLOAT16, Tensor, dump_file, opdebug_file, overflow_record, stats_csv
from cli_runs import run

RAW = "Exp.net_Exp-op0.5.2.1764417600000000"
OPDEBUG = "Opdebug.Node_OpDebug.9999.1.1764417600000009"
FOLDER = "20251129120000/0/net/1/0"
FIELDS = (1, 2, 5, 0, 65535, 65535, 0x1000, 0x2000, 4, 5, 0x110)
GIVEN = np.array([1.0, 12.0], "<f2")
MADE = np.array([2.7, np.inf], "<f2")


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "dump" / FOLDER
    path.mkdir(parents=True)
    return path


def scan(tmp_path: Path, *options: str) -> dict[str, Any]:
    ended = run("scan", tmp_path / "dump", "--format", "json", *options)
    assert ended.err == ""
    document: dict[str, Any] = json.loads(ended.out)
    assert document["exit_status"] == ended.status
    return document


def raw(folder: Path, name: str = RAW, op_name: str = "net/Exp-op0") -> None:
    given = Tensor(GIVEN.tobytes(), FLOAT16, GIVEN.shape)
    made = Tensor(MADE.tobytes(), FLOAT16, MADE.shape)
    (folder / name).write_bytes(dump_file((given,), (made,), op_name=op_name))


def converted(folder: Path, form: str, name: str = RAW) -> None:
    """The files that the vendor's converter makes of the raw dump."""
    folder.mkdir(parents=True, exist_ok=True)
    for slot, array in (("input.0", GIVEN), ("output.0", MADE)):
        if form == "npy":
            content, tail = npy_bytes("<f2", (2,), array.tobytes()), f"{slot}.npy"
        elif form == "npy with shape":
            content, tail = npy_bytes("<f2", (2,), array.tobytes()), f"{slot}.2.npy"
        elif form == "bin":
            content, tail = array.tobytes(), f"{slot}.2_.float16.ND.bin"
        else:
            tensor = torch_builders.tensor("0", "float16", (2,))
            content = torch_builders.archive(tensor, {"0": array.tobytes()})
            tail = f"{slot}.pt"
        (folder / f"{name}.{tail}").write_bytes(content)


def reported_once(document: dict[str, Any], file: str) -> dict[str, Any]:
    (finding,) = document["findings"]
    assert finding["file"] == file
    assert finding["verdict"] == "origin"
    assert document["counts"]["ops"] == 1
    assert document["counts"]["tensors"] == 2
    assert [(t["role"], t["index"]) for t in finding["tensors"]] == [("input", 0), ("output", 0)]
    assert isinstance(finding, dict)
    return finding


@pytest.mark.parametrize("form", ["npy", "npy with shape", "bin", "pt"])
@pytest.mark.parametrize("beside", [True, False])
def test_raw_wins_over_converted(tmp_path: Path, folder: Path, form: str, beside: bool) -> None:
    raw(folder)
    converted(folder if beside else tmp_path / "dump" / "converted", form)
    finding = reported_once(scan(tmp_path), f"{FOLDER}/{RAW}")
    assert (finding["reader"], finding["op_name"]) == ("adump", "net/Exp-op0")


@pytest.mark.parametrize("form", ["npy", "bin", "pt"])
def test_converted_files_alone_are_one_execution(tmp_path: Path, folder: Path, form: str) -> None:
    converted(folder, form)
    (finding,) = scan(tmp_path)["findings"]
    assert finding["verdict"] == "origin"
    assert Path(finding["file"]).name.startswith(f"{RAW}.output.0.")
    assert [(t["role"], t["index"]) for t in finding["tensors"]] == [("input", 0), ("output", 0)]


def test_several_converted_forms_are_one_execution(tmp_path: Path, folder: Path) -> None:
    for form in ("npy", "bin", "pt"):
        converted(folder, form)
    document = scan(tmp_path)
    assert document["counts"]["findings"] == document["counts"]["ops"] == 1


@pytest.mark.parametrize("both", [True, False])
def test_values_win_over_statistics(tmp_path: Path, folder: Path, both: bool) -> None:
    raw(folder)
    rows = ["Output,0,4,DT_FLOAT16,ND,2,inf,2.7,inf,2,0,0,1"]
    if both:
        rows.insert(0, "Input,0,4,DT_FLOAT16,ND,2,12,1,6.5,2,0,0,0")
    (folder / f"{RAW}.csv").write_bytes(stats_csv(*rows))
    finding = reported_once(scan(tmp_path), f"{FOLDER}/{RAW}")
    assert not any(tensor["from_statistics"] for tensor in finding["tensors"])


def test_statistics_fill_in_what_values_lack(tmp_path: Path, folder: Path) -> None:
    (folder / f"{RAW}.output.0.npy").write_bytes(npy_bytes("<f2", (2,), MADE.tobytes()))
    (folder / f"{RAW}.csv").write_bytes(
        stats_csv(
            "Input,0,4,DT_FLOAT16,ND,2,12,1,6.5,2,0,0,0",
            "Output,0,4,DT_FLOAT16,ND,2,inf,2.7,inf,2,0,0,1",
        )
    )
    document = scan(tmp_path)
    (finding,) = document["findings"]
    assert finding["verdict"] == "origin"
    assert [t["from_statistics"] for t in finding["tensors"]] == [True, False]
    assert document["counts"]["ops"] == 1


def test_other_executions_of_the_same_operator_stay_apart(tmp_path: Path, folder: Path) -> None:
    raw(folder)
    converted(folder, "npy", RAW.replace("00000000", "00000777"))
    files = {finding["file"] for finding in scan(tmp_path)["findings"]}
    assert len(files) == 2
    other_step = folder.parent / "1"
    other_step.mkdir()
    raw(other_step, RAW.replace("00000000", "00000888"))
    assert len(scan(tmp_path)["findings"]) == 3


def test_the_same_record_raw_and_parsed_counts_once(tmp_path: Path, folder: Path) -> None:
    raw(folder)
    (folder / OPDEBUG).write_bytes(opdebug_file(overflow_record(0, FIELDS)))
    parsed = {
        "magic": "0x5a5a5a5a",
        "version": 0,
        "acc_list": {
            "valid": 1,
            "acc_type": "AIC",
            "rsv": 0,
            "data_len": 88,
            "data": {"model_id": 1, "stream_id": 2, "task_id": 5, "task_type": 0,
                     "context_id": 65535, "thread_id": 65535, "pc_start": "0x1000",
                     "para_base": "0x2000", "core_id": 4, "block_id": 5, "status": 272},
        },
    }  # fmt: skip
    alone = scan(tmp_path)
    (folder / f"{OPDEBUG}.output.0.json").write_text(json.dumps(parsed))
    document = scan(tmp_path)
    finding = reported_once(document, f"{FOLDER}/{RAW}")
    assert document["counts"]["overflow_records"] == alone["counts"]["overflow_records"] == 1
    assert [record["file"] for record in document["overflow_records"]] == [f"{FOLDER}/{OPDEBUG}"]
    assert finding["overflow"]["status"] == [272]
    assert finding["overflow"]["others"] == []
    (folder / OPDEBUG).unlink()
    document = scan(tmp_path)
    assert document["counts"]["overflow_records"] == 1
    assert document["findings"][0]["overflow"]["confirmed"] is True


def test_a_parsed_record_in_another_folder_counts_once_too(tmp_path: Path, folder: Path) -> None:
    raw(folder)
    (folder / OPDEBUG).write_bytes(opdebug_file(overflow_record(0, FIELDS)))
    other = tmp_path / "dump/converted"
    other.mkdir()
    data = {"model_id": 1, "stream_id": 2, "task_id": 5, "status": 272}
    unit = {"valid": 1, "acc_type": "AIC", "data_len": 88, "data": data}
    document = {"magic": "0x5a5a5a5a", "version": 0, "acc_list": unit}
    (other / f"{OPDEBUG}.output.0.json").write_text(json.dumps(document))
    answer = scan(tmp_path)
    assert answer["counts"]["overflow_records"] == 1
    assert answer["counts"]["findings"] == 1


def test_a_record_flags_the_raw_form_of_its_operator(tmp_path: Path, folder: Path) -> None:
    raw(folder)
    converted(folder, "npy")
    (folder / OPDEBUG).write_bytes(opdebug_file(overflow_record(0, FIELDS)))
    finding = reported_once(scan(tmp_path), f"{FOLDER}/{RAW}")
    assert finding["overflow"]["confirmed"] is True


def test_different_records_stay_apart(tmp_path: Path, folder: Path) -> None:
    raw(folder)
    (folder / OPDEBUG).write_bytes(opdebug_file(overflow_record(0, FIELDS)))
    later = OPDEBUG.replace("00009", "00019")
    (folder / later).write_bytes(opdebug_file(overflow_record(0, (*FIELDS[:-1], 0x20))))
    document = scan(tmp_path)
    assert document["counts"]["overflow_records"] == 2
    assert len(document["findings"]) == 1


def test_tensors_of_msprobe_belong_to_their_dump_json(tmp_path: Path) -> None:
    folder = tmp_path / "dump/step0/rank0"
    data = folder / "dump_tensor_data"
    data.mkdir(parents=True)
    names = {"input": "Torch.exp.0.forward.input.0.pt", "output": "Torch.exp.0.forward.output.0.pt"}
    leaves = {}
    for role, array in (("input", GIVEN), ("output", MADE)):
        tensor = torch_builders.tensor("0", "float16", (2,))
        content = torch_builders.archive(tensor, {"0": array.tobytes()})
        (data / names[role]).write_bytes(content)
        finite = array[np.isfinite(array)]
        leaves[role] = {"type": "torch.Tensor", "dtype": "torch.float16", "shape": [2],
                        "Max": float(array.max()), "Min": float(finite.min()), "Mean": None,
                        "Norm": None, "data_name": names[role]}  # fmt: skip
    entry = {"input_args": [leaves["input"]], "input_kwargs": {}, "output": [leaves["output"]]}
    (folder / "dump.json").write_text(
        json.dumps({"task": "tensor", "level": "L1", "dump_data_dir": str(data),
                    "data": {"Torch.exp.0.forward": entry}})
    )  # fmt: skip
    document = scan(tmp_path)
    finding = reported_once(document, "step0/rank0/dump.json")
    assert (finding["step"], finding["device"]) == (0, 0)
    assert finding["tensors"][1]["posinf"] == 1


def test_everything_in_one_folder(tmp_path: Path, folder: Path) -> None:
    """CANN, converted, torch and numpy files side by side, and some that are no dumps."""
    raw(folder)
    converted(folder, "npy")
    np.save(folder / "hook_out.npy", np.array([1.0, np.nan], np.float32))
    tensor = torch_builders.tensor("0", "float32", (1,))
    (folder / "nan_io.pt").write_bytes(torch_builders.archive(
        torch_builders.table(input=tensor, output=torch_builders.tensor("1", "float32", (1,))),
        {"0": np.float32(1).tobytes(), "1": np.float32(np.nan).tobytes()},
    ))  # fmt: skip
    (folder / "README.md").write_text("notes")
    (folder / "train.log").write_text("loss: nan")
    document = scan(tmp_path)
    found = {Path(f["file"]).name: f["verdict"] for f in document["findings"]}
    assert found[RAW] == found["nan_io.pt"] == "origin"
    assert set(found) == {RAW, "nan_io.pt", "hook_out.npy"}
    assert document["counts"]["unknown_files"] == 2
    assert document["complete"] is True
