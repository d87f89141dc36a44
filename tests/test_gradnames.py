"""Gradients saved by index get the names that param_map files give them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import torch_builders as torch
from dumpscope.errors import CorruptDumpError
from dumpscope.model import PARAMETER, GraphNode, Match, OpRecord, Scan, ScanOptions
from dumpscope.ranks.gradnames import ParameterNames
from dumpscope.ranks.parallelism import plan_topology
from dumpscope.readers.param_map import ParamMapReader
from dumpscope.scanning import scan
from dumpscope.words import render
from memory_source import MemorySource
from op_builders import bad, make_op, tensor

NAME = "param_map_tp1pp0dp3.json"


def read(content: bytes, name: str = NAME) -> list[tuple[int, str]]:
    return [
        (record.order, record.name)
        for record in ParamMapReader().read(MemorySource(content, name))
        if isinstance(record, GraphNode)
    ]


def test_lists_and_objects_say_the_same() -> None:
    expected = [(0, "embedding.weight"), (1, "layers.0.mlp.weight")]
    assert read(b'["embedding.weight", "layers.0.mlp.weight"]') == expected
    assert read(b'{"1": "layers.0.mlp.weight", "0": "embedding.weight"}') == expected
    assert read(b'{"12": "head.weight"}') == [(12, "head.weight")]


@pytest.mark.parametrize(
    ("name", "head", "match"),
    [
        (NAME, b' ["a"]', Match.CONTENT),
        (NAME, b'{"0"', Match.CONTENT),
        (NAME, b"PK\3\4", Match.NAME),
        ("param_map.json", b"[", Match.NONE),
        ("param_map_tp1pp0.json", b"[", Match.NONE),
        ("old_param_map_tp1pp0dp3.json", b"[", Match.NONE),
    ],
)
def test_maps_are_known_by_name_and_content(name: str, head: bytes, match: Match) -> None:
    assert ParamMapReader().sniff(head, MemorySource(head, name).file) is match


@pytest.mark.parametrize(
    "content",
    [
        b"", b"[", b"3", b'"a"', b"[3]", b'[""]', b'[["a"]]', b'{"x": "a"}', b'{"-1": "a"}',
        b'{"0": null}', b'{"99999999999": "a"}', b"[" * 100_000, b'["\xff"]',
    ],
)  # fmt: skip
def test_what_is_no_list_of_names_is_refused(content: bytes) -> None:
    with pytest.raises(CorruptDumpError):
        read(content)


# --- which map belongs to which gradient ---------------------------------------------------------


def nodes(file: str, *names: str) -> list[GraphNode]:
    return [GraphNode(name, PARAMETER, order=i, file=file) for i, name in enumerate(names)]


def gradient(file: str, path: str = "1", device: int | None = None) -> OpRecord:
    output = tensor("output", 1, bad(nan=1), name=path)
    return make_op("", [], [output], name="nan_grads", file=file, device=device)


def name_of(names: ParameterNames, op: OpRecord) -> str | None:
    return names.name_tensors(op).tensors[0].name


def test_the_map_in_the_same_folder_is_used() -> None:
    names = ParameterNames([*nodes(f"a/{NAME}", "a0", "a1"), *nodes(f"b/{NAME}", "b0", "b1")])
    assert name_of(names, gradient("a/nan_grads.pt")) == "a1"
    assert name_of(names, gradient("b/x/nan_grads.pt", "grads.0")) == "b0"
    assert name_of(names, gradient("c/nan_grads.pt")) == "1"


def test_of_several_maps_in_one_folder_the_coordinates_decide() -> None:
    maps = [
        node
        for tp in range(2)
        for node in nodes(f"maps/param_map_tp{tp}pp0dp0.json", f"tp{tp}.0", f"tp{tp}.1")
    ]
    topology = plan_topology({"tp": 2, "dp": 1})
    op = gradient("maps/rank1/nan_grads.pt", device=1)
    assert name_of(ParameterNames(maps, topology), op) == "tp1.1"
    assert name_of(ParameterNames(maps), op) == "1"


@pytest.mark.parametrize(
    ("file", "path"), [("a/weights.pt", "1"), ("a/nan_grads.pt", "layers.weight"), ("g", "99")]
)
def test_other_tensors_keep_their_names(file: str, path: str) -> None:
    names = ParameterNames(nodes(f"a/{NAME}", "a0", "a1"))
    assert name_of(names, gradient(file, path)) == path


def test_without_a_map_nothing_changes() -> None:
    names = ParameterNames([GraphNode("net/MatMul", "MatMul")])
    op = gradient("a/nan_grads.pt")
    assert not names
    assert names.name_tensors(op) is op


# --- whole scans ---------------------------------------------------------------------------------


def saved(*values: bytes) -> bytes:
    """A list of float16 gradients of two elements, as torch.save writes it."""
    items = [torch.tensor(str(i), "float16", (2,)) for i in range(len(values))]
    return torch.archive(torch.series(*items), {str(i): v for i, v in enumerate(values)})


def told(answer: Scan) -> str:
    return render(answer.findings[0].reason)


def test_a_finding_names_the_parameter(tmp_path: Path) -> None:
    (tmp_path / "nan_grads.pt").write_bytes(saved(b"\0\x3c\0\x3c", b"\0\x7e\0\x3c"))
    content = json.dumps(["embedding.weight", "layers.0.mlp.weight"])
    (tmp_path / "param_map_tp0pp0dp0.json").write_text(content, encoding="utf-8")
    answer = scan(tmp_path)
    (finding,) = answer.findings
    assert finding.op.tensors[finding.deciding or 0].name == "layers.0.mlp.weight"
    assert "layers.0.mlp.weight" in told(answer)
    assert answer.counts.ops == 1
    assert answer.counts.unknown_files == 0
    assert answer.complete


def test_each_rank_has_its_own_names(tmp_path: Path) -> None:
    for tp in range(2):
        (tmp_path / f"rank{tp}").mkdir()
        (tmp_path / f"rank{tp}" / "nan_grads.pt").write_bytes(saved(b"\0\x7e\0\x3c"))
        (tmp_path / f"param_map_tp{tp}pp0dp0.json").write_text(f'{{"0": "shard{tp}"}}')
    answer = scan(tmp_path, ScanOptions(tp=2))
    assert {f.op.device: f.op.tensors[0].name for f in answer.findings} == {
        0: "shard0", 1: "shard1",
    }  # fmt: skip


def test_a_map_that_cannot_be_read_is_a_failure_and_no_more(tmp_path: Path) -> None:
    (tmp_path / "nan_grads.pt").write_bytes(saved(b"\0\x7e\0\x3c"))
    (tmp_path / NAME).write_text("[1, 2]")
    answer = scan(tmp_path)
    assert [f.reader for f in answer.read_failures] == ["param_map"]
    assert len(answer.findings) == 1
