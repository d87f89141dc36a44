"""`dumpscope show`: one file, one tensor, one operator, from close by."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from builders import (
    BFLOAT16,
    COMPLEX64,
    FLOAT16,
    FLOAT32,
    INT8,
    NC1HWC0,
    Tensor,
    dump_file,
    opdebug_file,
    overflow_record,
    stats_csv,
)
from cli_runs import ROOT, run
from dumpscope.inspecting.closeup import exponent_range
from dumpscope.inspecting.showing import show_file
from dumpscope.reporters.closeup_text import print_view
from dumpscope.reporters.exponents import draw_exponents
from dumpscope.safetext import count_cells
from dumpscope.words.closeup import describe_place, format_value
from scan_samples import HOSTILE_NAMES

NAME = "MatMulV2.net_MatMul-op0.5.2.1764417600000000"
LATER = "MatMulV2.net_MatMul-op0.5.2.1764417600000900"
SAMPLE = ROOT / "fixtures/sample_dump"
CULPRIT = "BatchMatMulV2.layer1_attn_scores.33.2.1767951000066245"


@pytest.fixture(autouse=True)
def _in_english(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LC_ALL", "C.UTF-8")


def write_op(path: Path, *outputs: Tensor, inputs: tuple[Tensor, ...] = (), **more: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(dump_file(inputs, outputs, **more))
    return path


def half(values: Any) -> Tensor:
    array = np.asarray(values, "<f2")
    return Tensor(array.tobytes(), FLOAT16, array.shape)


def shown(*arguments: str | Path) -> dict[str, Any]:
    """The JSON document of a call that ended well."""
    ended = run("show", *arguments, "--format", "json")
    assert (ended.status, ended.err) == (0, "")
    document = json.loads(ended.out)
    assert isinstance(document, dict)
    return document


def tensors_of(document: dict[str, Any]) -> list[dict[str, Any]]:
    (file,) = document["files"]
    (execution,) = file["executions"]
    tensors: list[dict[str, Any]] = execution["tensors"]
    return tensors


# --- a file ------------------------------------------------------------------------------------


def test_a_file_shows_header_attributes_and_all_statistics(tmp_path: Path) -> None:
    rows = np.ones((1024, 8), "<f2")
    rows[900:] = np.inf
    path = write_op(
        tmp_path / NAME,
        half(rows),
        inputs=(half([[0.5, -3.0], [0.0, 6e-8]]),),
        op_name="net/MatMul-op0",
        attributes=(("transpose_a", "true"),),
    )
    ended = run("show", path)
    assert (ended.status, ended.err) == (0, "")
    text = ended.out
    assert "MatMulV2 net/MatMul-op0\n" in text
    assert "task 5, stream 2, timestamp 1764417600000000" in text
    assert "transpose_a = true" in text
    assert "input 0  float16  ND  2x2  8 bytes" in text
    assert "subnormal 1   zero 1" in text
    assert "min -3   max 0.5   mean -0.625" in text
    assert "+Inf 992 " in text
    assert "where rows 900-1023 only (of 1,024): every element there" in text
    assert "bad elements (the first 10 of 992): [900, 0] +Inf; [900, 1] +Inf;" in text
    assert "[901, 1] +Inf\n" in text
    assert "float16 holds 2^-24 to 2^15" in text
    assert max(map(len, text.splitlines()[1:])) <= 100


def test_the_document_holds_the_same_numbers(tmp_path: Path) -> None:
    values = np.array([[1.0, np.nan], [np.inf, -np.inf]], "<f2")
    path = write_op(tmp_path / NAME, half(values), inputs=(half([0.25, 65504.0]),))
    given, output = tensors_of(shown(path))
    assert (output["nan"], output["posinf"], output["neginf"]) == (1, 1, 1)
    assert output["bad_elements"] == [
        {"index": [0, 1], "value": "nan"},
        {"index": [1, 0], "value": "inf"},
        {"index": [1, 1], "value": "-inf"},
    ]
    assert output["exponents"] == [[0, 1]]
    assert given["exponents"] == [[-2, 1], [15, 1]]
    assert given["exponent_range"] == [-24, -14, 15]
    assert given["saturated"] == 1
    assert given["bad_elements"] == [{"index": [1], "value": 65504.0}]
    assert given["std"] == pytest.approx(float(np.std([0.25, 65504.0])))


def test_one_tensor_is_picked_behind_a_colon(tmp_path: Path) -> None:
    path = write_op(tmp_path / NAME, half([1.0]), half([2.0]), inputs=(half([3.0]),))
    (tensor,) = tensors_of(shown(f"{path}:output.1"))
    assert (tensor["role"], tensor["index"], tensor["max"]) == ("output", 1, 2.0)
    ended = run("show", f"{path}:output.7")
    assert ended.status == 2
    assert ended.out == ""
    assert "no such tensor (output 7)" in ended.err


def test_a_path_that_exists_wins_over_the_colon(tmp_path: Path) -> None:
    write_op(tmp_path / NAME, half([1.0]))
    odd = write_op(tmp_path / f"{NAME}:output.0", half([5.0]), half([6.0]))
    tensors = tensors_of(shown(odd, "--reader", "adump"))
    assert [t["max"] for t in tensors] == [5.0, 6.0]


def test_elements_of_a_blocked_layout_have_logical_indices(tmp_path: Path) -> None:
    logical = np.ones((1, 3, 2, 2), "<f2")
    logical[0, 2, 1, 0] = np.nan
    padded = np.full((1, 16, 2, 2), np.inf, "<f2")
    padded[:, :3] = logical
    stored = np.ascontiguousarray(padded.reshape(1, 1, 16, 2, 2).transpose(0, 1, 3, 4, 2))
    tensor = Tensor(stored.tobytes(), FLOAT16, stored.shape, NC1HWC0, original_shape=(1, 3, 2, 2))
    (found,) = tensors_of(shown(write_op(tmp_path / NAME, tensor)))
    assert found["bad_elements"] == [{"index": [0, 2, 1, 0], "value": "nan"}]
    assert found["padding_nonfinite"] == 13 * 4
    assert found["exponents"] == [[0, 11]]


@pytest.mark.parametrize(
    ("raw", "code", "value"),
    [
        (np.array([1, -np.inf], ml_dtypes.bfloat16), BFLOAT16, "-inf"),
        (np.array([1, complex(0, np.nan)], "<c8"), COMPLEX64, [0.0, "nan"]),
        (np.array([1, np.finfo("<f4").max], "<f4"), FLOAT32, float(np.finfo("<f4").max)),
    ],
)
def test_values_of_other_types(tmp_path: Path, raw: Any, code: int, value: Any) -> None:
    path = write_op(tmp_path / NAME, Tensor(raw.tobytes(), code, (2,)))
    (tensor,) = tensors_of(shown(path))
    assert tensor["bad_elements"] == [{"index": [1], "value": value}]


def test_integers_have_exponents_and_nothing_bad(tmp_path: Path) -> None:
    raw = np.array([0, 1, -2, 3, 127, -128], np.int8)
    (tensor,) = tensors_of(shown(write_op(tmp_path / NAME, Tensor(raw.tobytes(), INT8, (6,)))))
    assert tensor["bad_elements"] == []
    assert tensor["exponents"] == [[0, 1], [1, 2], [6, 1], [7, 1]]
    assert tensor["exponent_range"] == [0, 0, 7]


def test_overflow_registers_are_put_into_words(tmp_path: Path) -> None:
    fields = (1, 3, 7, 0, 0, 0, 0x1000, 0x2000, 4, 5, 0x110)
    path = tmp_path / "Opdebug.Node_OpDebug.9999.1.1764417600000009"
    path.write_bytes(opdebug_file(overflow_record(0, fields)))
    ended = run("show", path)
    assert ended.status == 0
    assert "AIC: status 0x110 (272)\n    0x10 integer add, subtract, multiply" in ended.out
    assert "0x100 float32 or int32 to float16" in ended.out
    assert "task 7, " in ended.out
    (record,) = shown(path)["files"][0]["overflow_records"]
    assert (record["status"], record["task_id"], record["stream_id"]) == ([0x110], 7, 3)


def test_statistics_say_that_there_are_no_values(tmp_path: Path) -> None:
    row = "Output,0,8,DT_FLOAT16,ND,4,inf,-1,nan,4,0,0,1"
    path = tmp_path / f"{NAME}.csv"
    path.write_bytes(stats_csv(row))
    ended = run("show", path)
    assert ended.status == 0
    assert "the file holds no values" in ended.out
    assert "+Inf 1 " in ended.out
    (tensor,) = tensors_of(shown(path))
    assert (tensor["bad_elements"], tensor["exponents"]) == (None, None)


def test_call_stacks_are_shown(tmp_path: Path) -> None:
    entry = {
        "input_args": [],
        "input_kwargs": {},
        "output": [{"type": "torch.Tensor", "dtype": "torch.float16", "shape": [2],
                    "Max": float("inf"), "Min": 1.0, "Mean": 1.0, "Norm": 1.0}],
    }  # fmt: skip
    (tmp_path / "dump.json").write_text(
        json.dumps({"task": "statistics", "level": "L1", "dump_data_dir": None,
                    "data": {"Torch.exp.0.forward": entry}})
    )  # fmt: skip
    frames = ["File train.py, line 12, in step", "File model.py, line 3, in forward"]
    (tmp_path / "stack.json").write_text(json.dumps({"0": [["Torch.exp.0.forward"], frames]}))
    text = run("show", "dump.json").out
    assert "called from\n    File train.py, line 12, in step\n" in text
    (execution,) = shown("dump.json")["files"][0]["executions"]
    assert execution["stack"] == frames


def test_many_operators_in_one_file_are_cut_and_picked(tmp_path: Path) -> None:
    arrays: dict[str, Any] = {f"layer{i}": np.full(2, i, np.float32) for i in range(30)}
    np.savez(tmp_path / "hook.npz", **arrays)
    text = run("show", "hook.npz").out
    assert "and 20 more operators; --op PATTERN picks some" in text
    assert len(shown("hook.npz", "--limit", "0")["files"][0]["executions"]) == 30
    (execution,) = shown("hook.npz", "--op", "*layer2?", "--limit", "1")["files"][0]["executions"]
    assert execution["op_name"] == "hook.layer20"
    ended = run("show", "hook.npz", "--op", "nothing*")
    assert (ended.status, ended.out) == (2, "")


def test_a_graph_names_its_operators(tmp_path: Path) -> None:
    ops = "".join(f'  op {{ name: "n{i}" type: "Add" }}\n' for i in range(25))
    path = tmp_path / "ge_proto_00001_Build.txt"
    path.write_text(f'graph {{\n  name: "g"\n{ops}}}\n')
    ended = run("show", path)
    assert ended.status == 0
    assert "a graph of 25 operators:\n  Add n0\n" in ended.out
    assert "… and 5 more" in ended.out


# --- what cannot be shown ------------------------------------------------------------------------


def test_a_damaged_file_shows_what_is_whole(tmp_path: Path) -> None:
    path = write_op(tmp_path / NAME, half([1.0, np.inf, 3.0, 4.0]))
    path.write_bytes(path.read_bytes()[:-4])
    ended = run("show", path)
    assert ended.status == 0
    assert "4 bytes at its end are missing" in ended.out
    assert "[1] +Inf" in ended.out
    assert "damage:\n  TruncatedDumpError 0x" in ended.out


@pytest.mark.parametrize("content", [b"", b"\xff" * 100])
def test_nothing_that_can_be_read_is_status_3(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / NAME
    path.write_bytes(content)
    ended = run("show", path)
    assert ended.status == 3
    assert "damage:" in ended.out
    document = json.loads(run("show", path, "--format", "json").out)
    assert document["exit_status"] == 3
    assert document["files"][0]["read_failures"][0]["reader"] == "adump"


def test_an_unknown_format_is_status_3(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("no dump")
    ended = run("show", "notes.md")
    assert ended.status == 3
    assert "no reader knows this file" in ended.out


def test_an_archive_is_to_be_unpacked(tmp_path: Path) -> None:
    (tmp_path / "dump.tar.gz").write_bytes(b"\x1f\x8b" + bytes(80))
    ended = run("show", "dump.tar.gz")
    assert (ended.status, "unpack it first" in ended.out) == (3, True)
    assert "no reader" not in ended.out


def test_wrong_usage_is_status_2(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for arguments, said in (
        (("folder",), "is a folder"),
        (("nowhere",), "no such path, and no scan"),
        (("nowhere", "--store", "none.db"), "none.db"),
        (("",), "neither a path nor"),
        ((), "Missing argument"),
        (("folder", "--limit", "-1"), "--limit"),
    ):
        ended = run("show", *arguments)
        assert (ended.status, ended.out) == (2, ""), arguments
        assert said in ended.err
        assert "Traceback" not in ended.err


# --- an operator of the last scan ---------------------------------------------------------------


@pytest.fixture
def scanned(tmp_path: Path) -> Path:
    """The sample dump, scanned from the current folder."""
    assert run("scan", SAMPLE, "--limit", "1").status == 1
    return tmp_path


def test_an_operator_shows_its_best_ranked_execution_and_lists_the_others(scanned: Path) -> None:
    text = run("show", "layer1_attn_scores").out
    assert "#1 origin (of scan 20" in text
    assert "Output 0 has 2 +Inf and 1 -Inf of 512 float16 elements while both inputs" in text
    assert "AIC: status 0x120 (288)" in text
    assert "[0, 2, 3] +Inf; [0, 5, 10] -Inf; [1, 12, 0] +Inf" in text
    assert "other executions of the same name (1):\n  no finding, step 0, device 0" in text
    document = shown("layer1_attn_scores")
    assert document["files"][0]["path"].endswith(f"/7/1/{CULPRIT}")
    assert document["files"][0]["executions"][0]["finding"]["rank"] == 1
    assert [other["step"] for other in document["others"]] == [0]


def test_one_tensor_of_an_operator(scanned: Path) -> None:
    (tensor,) = tensors_of(shown("layer1_attn_scores:output.0"))
    assert (tensor["role"], tensor["posinf"]) == ("output", 2)
    ended = run("show", "layer1_attn_scores:input.9")
    assert ended.status == 2
    assert "its tensors: input.0, input.1, output.0" in ended.err


def test_names_may_be_types_patterns_and_paths_of_reports(scanned: Path) -> None:
    assert shown("BatchMatMulV2")["files"][0]["path"].endswith(CULPRIT)
    assert shown("layer1_*_scores")["files"][0]["path"].endswith(CULPRIT)
    relative = next(p for p in SAMPLE.rglob(CULPRIT)).relative_to(SAMPLE)
    by_path = shown(str(relative))
    assert by_path["files"][0]["executions"][0]["finding"]["rank"] == 1


def test_a_name_that_is_not_there_names_those_that_are_spelled_alike(scanned: Path) -> None:
    ended = run("show", "layer1_attn_scorez")
    assert (ended.status, ended.out) == (2, "")
    assert "did you mean layer1_attn_scores" in ended.err


def test_a_file_of_the_last_scan_tells_its_finding(scanned: Path) -> None:
    path = next(p for p in SAMPLE.rglob(CULPRIT))
    assert "#1 origin" in run("show", path).out
    other = next(p for p in SAMPLE.rglob("BatchMatMulV2.layer1_attn_scores.*") if p != path)
    assert "origin" not in run("show", other).out


def test_files_that_are_gone_leave_what_was_measured(tmp_path: Path) -> None:
    dump = tmp_path / "dump"
    path = write_op(dump / NAME, half([np.nan, 1.0]), inputs=(half([1.0, 1.0]),), op_name="mm")
    assert run("scan", dump).status == 1
    path.unlink()
    ended = run("show", "mm")
    assert ended.status == 3
    assert "was it moved?" in ended.out
    assert "had measured" in ended.out
    assert "NaN 1 " in ended.out


def test_the_parts_of_an_execution_are_shown_together(tmp_path: Path) -> None:
    folder = tmp_path / "dump"
    folder.mkdir()
    for slot, values in (("input.0", [1.0, 1.0]), ("output.0", [np.inf, 1.0])):
        np.save(folder / f"{NAME}.{slot}.npy", np.array(values, np.float32))
    assert run("scan", folder).status == 1
    document = shown("net_MatMul-op0")
    assert [Path(file["path"]).name for file in document["files"]] == [
        f"{NAME}.input.0.npy",
        f"{NAME}.output.0.npy",
    ]
    assert {f["executions"][0]["finding"]["verdict"] for f in document["files"]} == {"origin"}


def test_an_older_scan_and_another_store(scanned: Path, tmp_path: Path) -> None:
    dump = write_op(tmp_path / "dump" / NAME, half([np.nan]), op_name="other").parent
    assert run("scan", dump, "--store", "other.db").status == 1
    assert run("show", "other").status == 2
    assert run("show", "other", "--store", "other.db").status == 0
    assert run("show", "other", "--scan", "2000").status == 2


# --- text -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_no_name_reaches_the_terminal_raw(tmp_path: Path, name: str) -> None:
    raw = name.encode("utf-8", "surrogateescape")
    path = write_op(tmp_path / NAME, half([np.inf]), op_name=raw, attributes=(("a\x1b", "\u202e"),))
    for arguments in ((), ("--lang", "zh"), ("--format", "json")):
        ended = run("show", path, *arguments)
        assert ended.status == 0
        assert ended.out.replace("\n", "").isprintable()


def test_ascii_terminals_get_ascii(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    path = write_op(tmp_path / NAME, half([1.0, 2.0, 1000.0]), op_name="层/矩阵")
    text = run("show", path).out
    assert text.isascii()
    assert "\\u5c42" in text


@pytest.mark.parametrize(("lang", "name"), [("en", "L2"), ("zh", "L2 范数")])
@pytest.mark.usefixtures("scanned")
def test_a_number_stands_in_the_line_of_its_name(lang: str, name: str) -> None:
    lines = run("show", "layer1_attn_scores", "--lang", lang).out.splitlines()
    told = [line for line in lines if f" {name} " in line]
    assert [line.rpartition(" ")[2] for line in told] == ["1778.59", "1830.1", "539,539"]


class Terminal(io.StringIO):
    """A terminal; how wide it is says COLUMNS."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize(("columns", "width"), [("80", 80), ("160", 100)])
def test_lines_are_no_wider_than_the_terminal(
    tmp_path: Path, lang: str, columns: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    many = half([float("inf")] * 40)
    path = write_op(tmp_path / NAME, many, half(np.arange(64)), inputs=(many,))
    stream = Terminal()
    print_view(show_file(os.fspath(path)), lang=lang, stream=stream)
    lines = [line for line in stream.getvalue().splitlines() if NAME not in line]
    assert max(map(count_cells, lines)) <= width
    assert any(count_cells(line) > width - 20 for line in lines)


def test_chinese(tmp_path: Path) -> None:
    rows = np.ones((16, 4), "<f2")
    rows[3] = np.nan
    text = run("show", write_op(tmp_path / NAME, half(rows)), "--lang", "zh").out
    assert "仅行 3（共 16）：其中每个元素" in text
    assert "float16 可表示 2^-24 至 2^15" in text


@pytest.mark.parametrize(
    ("shape", "box", "bad", "words"),
    [
        ((8,), ((0, 7),), 8, "every element"),
        ((), (), 1, "every element"),
        ((8,), ((3, 3),), 1, "one element, element 3 only (of 8)"),
        ((4, 8), ((0, 3), (5, 5)), 4, "column 5 only (of 8): every element there"),
        ((4, 8), ((0, 3), (0, 7)), 3, "all over the tensor: 3 of the 32 elements there (9.38 %)"),
        (
            (2, 4, 1000, 1000),
            ((1, 1), (0, 3), (0, 999), (0, 999)),
            2,
            "axis 0, 1 only (of 2): 2 of the 4,000,000 elements there (<0.01 %)",
        ),
    ],
)
def test_places_in_words(
    shape: tuple[int, ...], box: tuple[tuple[int, int], ...], bad: int, words: str
) -> None:
    assert describe_place(shape, box, bad) == words


def test_values_in_words() -> None:
    assert format_value(float("nan")) == "NaN"
    assert format_value(complex(1.5, float("-inf"))) == "1.5 -Infi"
    assert format_value(complex(0, 2)) == "0 +2i"


@pytest.mark.parametrize(
    ("name", "span"),
    [
        ("float16", (-24, -14, 15)),
        ("bfloat16", (-133, -126, 127)),
        ("float32", (-149, -126, 127)),
        ("float64", (-1074, -1022, 1023)),
        ("float8_e5m2", (-16, -14, 15)),
        ("float8_e4m3fn", (-9, -6, 8)),
        ("hifloat8", (-22, -15, 15)),
        ("int4", (0, 0, 3)),
        ("int64", (0, 0, 63)),
        ("uint8", (0, 0, 7)),
        ("bool", (0, 0, 0)),
        ("complex64", None),
        ("undefined", None),
    ],
)
def test_what_a_type_can_hold(name: str, span: tuple[int, int, int] | None) -> None:
    assert exponent_range(name) == span


def test_the_histogram_has_the_range_of_the_type() -> None:
    lines = draw_exponents([(-20, 1), (0, 1000), (15, 1000)], (-24, -14, 15), ascii_only=True)
    assert lines[-1] == "2^-24" + " " * 31 + "2^15"
    assert lines[-2] == "." * 10 + "-" * 30
    assert [line.rstrip().count("#") for line in lines[:-2]] == [2, 2, 2]
    assert lines[-3][4] == "."
    wide = draw_exponents([(0, 5)], (-1074, -1022, 1023))
    assert all(len(line) <= 64 for line in wide)
    assert draw_exponents([], (0, 0, 0))[-1] == "2^0 2^0"
