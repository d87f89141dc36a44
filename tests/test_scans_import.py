"""`dumpscope scans import`: scans of several nodes put together equal one scan of everything."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli_runs import run
from dumpscope.errors import OptionsError, StoreError
from dumpscope.importable import open_parts
from dumpscope.importing import import_parts
from dumpscope.store import Store
from rank_trees import RUN, Job

ONE_JOB = ("--jobs", "1")
REDUCED = Path(__file__).resolve().parent.parent / "fixtures/cases/all_reduce/dump/20260109173000"


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def split_nodes(source: Path, target: Path, groups: dict[str, tuple[int, ...]]) -> list[Path]:
    """Copy devices of a {time} folder to nodes of their own."""
    for node, devices in groups.items():
        for device in devices:
            shutil.copytree(source / str(device), target / node / source.name / str(device))
    return [target / node for node in groups]


def write_job(folder: Path) -> None:
    """Rank 1 of 4 makes an Inf in its second operator; AllReduce hands it to all."""
    job = Job(folder, 4)
    one = np.ones(4, np.float16)
    large = np.full(4, 60000, np.float16)
    for rank in range(4):
        with np.errstate(over="ignore"):
            out = large * 2 if rank == 1 else one * 2
        job.run(rank, "Mul", [large if rank == 1 else one], [out.astype(np.float16)])
    bad = np.full(4, np.inf, np.float16)
    total = job.all_reduce([one * 2, bad, one * 2, one * 2])
    for rank in range(4):
        job.run(rank, "Cast", [total], [total], "net/Cast-op9")


def scan_document(*arguments: str | Path, status: int = 1) -> dict[str, Any]:
    ended = run(*arguments, "--format", "json", "--limit", "0")
    assert ended.status == status, ended.err
    document = json.loads(ended.out)
    del document["scan_id"]
    assert isinstance(document, dict)
    return document


def scan_apart(nodes: list[Path], *options: str) -> list[Path]:
    stores = [Path(f"{node.name}.db").absolute() for node in nodes]
    for node, store in zip(nodes, stores, strict=True):
        run("scan", node, "--store", store, *ONE_JOB, *options)
    return stores


def stored_scans(path: Path) -> list[str]:
    with Store.open(path, create=False, write=False) as store:
        return [info.state for info in store.scans()]


@pytest.mark.parametrize("options", [(), ("--stats", "full")])
def test_two_nodes_equal_one_scan(tmp_path: Path, options: tuple[str, ...]) -> None:
    nodes = split_nodes(REDUCED, tmp_path / "disks", {"a": (0,), "b": (1,)})
    whole = scan_document("scan", *nodes, "--store", "whole.db", *options)
    stores = scan_apart(nodes, *options)
    union = scan_document("scans", "import", *stores, "--store", "union.db")
    assert union == whole
    # Apart, the rank that received cannot be told from one that made the values by itself.
    assert {finding["verdict"] for finding in union["findings"]} >= {"origin", "received"}
    assert {finding["file"].split("/")[0] for finding in union["findings"]} == {"a", "b"}


def test_devices_of_one_number_stay_apart(tmp_path: Path) -> None:
    write_job(tmp_path / "job")
    source = tmp_path / "job" / RUN
    nodes = []
    for node, devices in (("x", (0, 1)), ("y", (2, 3))):
        for local, device in enumerate(devices):
            shutil.copytree(source / str(device), tmp_path / node / RUN / str(local))
        nodes.append(tmp_path / node)
    whole = scan_document("scan", *nodes, "--store", "whole.db")
    union = scan_document("scans", "import", *scan_apart(nodes), "--store", "union.db")
    assert union == whole
    assert union["findings"][0]["file"].startswith(f"x/{RUN}/1/")
    assert union["findings"][0]["verdict"] == "origin"
    assert union["counts"]["ops"] == 12


def test_a_store_of_several_paths_and_one_of_one(tmp_path: Path) -> None:
    write_job(tmp_path / "job")
    nodes = split_nodes(tmp_path / "job" / RUN, tmp_path, {"a": (0,), "b": (1,), "c": (2, 3)})
    (nodes[2] / "notes.bin").write_bytes(b"no dump")
    (nodes[0] / RUN / "0" / "net/1/0/Cast.broken.9.1.1767225600009000").write_bytes(b"\xff" * 40)
    os.mkfifo(nodes[1] / "pipe")
    whole = scan_document("scan", *nodes, "--store", "whole.db", status=1)
    run("scan", *nodes[:2], "--store", "two.db")
    run("scan", nodes[2], "--store", "one.db")
    union = scan_document("scans", "import", "two.db", "one.db", "--store", "union.db", status=1)
    assert union == whole
    assert len(union["read_failures"]) == 1
    assert union["counts"]["skipped"] == 1


def test_what_was_put_together_is_a_scan_like_any_other(tmp_path: Path) -> None:
    nodes = split_nodes(REDUCED, tmp_path / "disks", {"a": (0,), "b": (1,)})
    stores = scan_apart(nodes)
    ended = run("scans", "import", *stores)
    assert ended.status == 1
    assert "AllReduce" in ended.out
    listed = json.loads(run("scans", "list", "--json").out)
    assert [(scan["state"], scan["root"], scan["sources"]) for scan in listed] == [
        ("finished", str(tmp_path / "disks"), [str(node) for node in nodes])
    ]
    again = run("report", "--json=-", "--limit", "0")
    assert json.loads(again.out)["counts"]["files"] == 10


def test_equal_roots_of_different_hosts_get_labels(tmp_path: Path) -> None:
    write_job(tmp_path / "job")
    source = tmp_path / "job" / RUN
    local = tmp_path / "local"
    for node, devices in (("first", (0, 1)), ("second", (2, 3))):
        split_nodes(source, tmp_path, {"local": devices})
        run("scan", local, "--store", f"{node}.db")
        shutil.rmtree(local)
    union = scan_document("scans", "import", "first.db", "second.db", "--store", "union.db")
    origin = union["findings"][0]
    assert (origin["verdict"], origin["host"]) == ("origin", "first")
    assert origin["file"].startswith(f"first/{RUN}/1/")
    assert union["root"] == str(local)
    received = {f["device"]: f["host"] for f in union["findings"] if f["verdict"] == "received"}
    assert received == {0: "first", 2: "second", 3: "second"}


def test_stores_of_one_name_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    write_job(tmp_path / "job")
    local = tmp_path / "local"
    for node, devices in (("n0", (0, 1)), ("n1", (2, 3))):
        split_nodes(tmp_path / "job" / RUN, tmp_path, {"local": devices})
        run("scan", local, "--store", tmp_path / node / "scans.db")
        shutil.rmtree(local)
    union = scan_document("scans", "import", "n0/scans.db", "n1/scans.db", "--store", "u.db")
    assert {finding["host"] for finding in union["findings"]} == {"scans", "n1-scans"}


def test_a_scan_is_not_imported_twice(tmp_path: Path) -> None:
    nodes = split_nodes(REDUCED, tmp_path / "disks", {"a": (0,)})
    (store,) = scan_apart(nodes)
    shutil.copy(store, "copy.db")
    ended = run("scans", "import", store, "copy.db", "--store", "union.db")
    assert (ended.status, ended.out) == (2, "")
    assert "hold the same scan" in ended.err
    assert not Path("union.db").exists()


def test_an_older_scan_is_chosen_by_its_id(tmp_path: Path) -> None:
    nodes = split_nodes(REDUCED, tmp_path / "disks", {"a": (0,), "b": (1,)})
    run("scan", nodes[0], "--store", "all.db")
    run("scan", nodes[1], "--store", "all.db")
    newest, oldest = json.loads(run("scans", "list", "--json", "--store", "all.db").out)
    whole = scan_document("scan", *nodes, "--store", "whole.db")
    files = [f"all.db:{scan['scan_id']}" for scan in (oldest, newest)]
    # The target may be one of the sources.
    assert scan_document("scans", "import", *files, "--store", "all.db") == whole


def test_an_unfinished_scan_is_not_taken(tmp_path: Path) -> None:
    nodes = split_nodes(REDUCED, tmp_path / "disks", {"a": (0,)})
    (store,) = scan_apart(nodes)
    with sqlite3.connect(store) as connection:
        connection.execute("UPDATE scans SET state = 'interrupted'")
    connection.close()
    ended = run("scans", "import", store, "--store", "union.db")
    assert ended.status == 2
    assert "no scan of this store was finished" in ended.err


def test_faulty_stores_end_with_one_sentence_and_leave_nothing(tmp_path: Path) -> None:
    nodes = split_nodes(REDUCED, tmp_path / "disks", {"a": (0,), "b": (1,)})
    good, other = scan_apart(nodes)
    newer, torn = Path("newer.db"), Path("torn.db")
    shutil.copy(other, newer)
    shutil.copy(other, torn)
    with sqlite3.connect(newer) as connection:
        connection.execute("PRAGMA user_version = 1000")
    connection.close()
    with sqlite3.connect(torn) as connection:
        connection.execute("UPDATE ops SET tensors = x'ff'")
    connection.close()
    Path("text.db").write_text("no store at all, " * 100, encoding="utf-8")
    run("scan", nodes[0], "--store", "union.db")
    for faulty, words in (
        (newer, "a newer dumpscope wrote it"),
        (torn, "the store is damaged"),
        (Path("text.db"), "not a store"),
        (Path("missing.db"), "there is no store here"),
    ):
        ended = run("scans", "import", good, faulty, "--store", "union.db")
        assert (ended.status, ended.out) == (2, ""), faulty
        assert words in ended.err
        assert str(faulty) in ended.err
        assert ended.err.count("\n") == 1
        assert stored_scans(Path("union.db")) == ["finished"]


def test_a_locked_store_is_refused(tmp_path: Path) -> None:
    nodes = split_nodes(REDUCED, tmp_path / "disks", {"a": (0,)})
    (source,) = scan_apart(nodes)
    with Store.open("union.db"):
        pass
    holder = sqlite3.connect("union.db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with (
        open_parts([str(source)]) as parts,
        Store.open("union.db", busy_s=0) as store,
        pytest.raises(StoreError, match="locked by another process"),
    ):
        import_parts(store, parts, {})
    holder.close()
    assert stored_scans(Path("union.db")) == []


def test_sources_are_only_read(tmp_path: Path) -> None:
    nodes = split_nodes(REDUCED, tmp_path / "disks", {"a": (0,)})
    (store,) = scan_apart(nodes)
    before = store.read_bytes()
    run("scans", "import", store, "--store", "union.db")
    assert store.read_bytes() == before


def test_other_options_are_told(tmp_path: Path) -> None:
    nodes = split_nodes(REDUCED, tmp_path / "disks", {"a": (0,), "b": (1,)})
    run("scan", nodes[0], "--store", "full.db", "--stats", "full", "--fail-on", "never")
    run("scan", nodes[1], "--store", "screen.db")
    ended = run(
        "scans", "import", "full.db", "screen.db", "--store", "union.db", "--format", "json"
    )
    assert ended.status == 0  # --fail-on of the first
    assert json.loads(ended.out)["statistics"] == "screen"
    assert "screen.db: scanned with another stats than full.db" in ended.err


def test_options_that_name_files_of_another_machine_are_refused(tmp_path: Path) -> None:
    nodes = split_nodes(REDUCED, tmp_path / "disks", {"a": (0,)})
    rules = tmp_path / "rules.toml"
    rules.write_text("", encoding="utf-8")
    run("scan", nodes[0], "--store", "a.db", "--rules", rules)
    rules.unlink()
    ended = run("scans", "import", "a.db", "--store", "union.db")
    assert ended.status == 2
    assert f"{rules}: the first scan was asked for with --rules" in ended.err
    assert stored_scans(Path("union.db")) == []


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "the rank map cannot be read: No such file"), ('{"a": 1}', "rank 'a'")],
)
def test_a_rank_map_that_is_wrong_leaves_no_scan(
    tmp_path: Path, content: str | None, said: str
) -> None:
    nodes = split_nodes(REDUCED, tmp_path / "disks", {"a": (0,)})
    run("scan", nodes[0], "--store", "a.db")
    if content is not None:
        Path("map.json").write_text(content)
    ended = run("scans", "import", "a.db", "--store", "union.db", "--rank-map", "map.json")
    assert (ended.status, ended.out) == (2, "")
    assert said in ended.err
    assert stored_scans(Path("union.db")) == []


def test_documents_become_records_again(tmp_path: Path) -> None:
    write_job(tmp_path / "job")
    nodes = split_nodes(tmp_path / "job" / RUN, tmp_path, {"a": (0, 1), "b": (2, 3)})
    for node in nodes:
        ended = run("scan", node, "--store", "s.db", "--format", "json", "--limit", "0")
        Path(f"{node.name}.json").write_text(ended.out, encoding="utf-8")
    alone = json.loads(Path("b.json").read_text(encoding="utf-8"))
    assert "received" in {finding["verdict"] for finding in alone["findings"]}
    ended = run("scans", "import", "a.json", "b.json", "--store", "union.db", "--format", "json")
    assert ended.status == 1
    assert ended.err.count("a document lists findings") == 2
    union = json.loads(ended.out)
    again = json.loads(run("report", "--json=-", "--store", "union.db").out)
    ended = run("scans", "import", "union.db", "--store", "further.db", "--format", "json")
    further = json.loads(ended.out)
    assert [f["verdict"] for f in further["findings"]] == [f["verdict"] for f in union["findings"]]
    for document in (union, again, further):
        (note,) = (n for n in document["notes"] if n["code"] == "imported_documents")
        assert note["parameters"] == {"count": 2}
    whole = scan_document("scan", *nodes, "--store", "whole.db")

    def told(document: dict[str, Any]) -> list[tuple[Any, ...]]:
        return [(f["file"], f["verdict"], f["device"], f["tensors"]) for f in document["findings"]]

    assert sorted(told(union), key=repr) == sorted(told(whole), key=repr)
    assert union["findings"][0]["file"] == whole["findings"][0]["file"]


def test_documents_keep_what_is_unchecked_and_expected(tmp_path: Path) -> None:
    job = Job(tmp_path / "n", 1)
    one = np.ones(8, np.float16)
    mask = np.where(np.arange(8) < 4, np.float16(-np.inf), np.float16(0))
    job.run(0, "Cast", [mask.astype(np.float16)], [mask.astype(np.float16)], "net/Mask-op1")
    path = job.run(0, "Mul", [one], [one], "net/Mul-op2")
    path.write_bytes(path.read_bytes()[:-4])
    document = scan_document("scan", tmp_path / "n", "--store", "s.db", status=3)
    ended = run("report", "--json=doc.json", "--limit", "0", "--store", "s.db")
    union = scan_document("scans", "import", "doc.json", "--store", "u.db", status=3)
    assert document["expected"], ended.err
    assert [e["file"] for e in union["expected"]] == [e["file"] for e in document["expected"]]
    assert union["findings"] == []
    assert union["unchecked"] == document["unchecked"]
    assert union["read_failures"] == document["read_failures"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"truncated": 3}, "write it again with --limit 0"),
        ({"schema": "dumpscope.scan/9"}, "expected a document of schema dumpscope.scan/1"),
        ({"root": "not/absolute"}, "expected an absolute path"),
        ({"findings": [{}]}, "no scan document of dumpscope"),
        ({"findings": None}, "no scan document of dumpscope"),
        ({"unknown_files": ["../up"]}, "expected a path below the root"),
        ({"config": []}, "config: expected an object"),
    ],
)
def test_faulty_documents_are_refused(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    nodes = split_nodes(REDUCED, tmp_path / "disks", {"a": (0,)})
    ended = run("scan", nodes[0], "--store", "s.db", "--format", "json", "--limit", "0")
    Path("doc.json").write_text(json.dumps({**json.loads(ended.out), **change}), encoding="utf-8")
    ended = run("scans", "import", "doc.json", "--store", "u.db")
    assert (ended.status, ended.out) == (2, "")
    assert words in ended.err
    assert not Path("u.db").exists()


def test_nothing_to_import_is_refused() -> None:
    with Store.open("u.db") as store, pytest.raises(OptionsError, match="nothing to import"):
        import_parts(store, [], {})


def test_ranks_of_eight_devices_equal_one_scan(tmp_path: Path, corpus: Path) -> None:
    (source,) = (corpus / "cann" / "ranks8" / "dump").iterdir()
    nodes = split_nodes(source, tmp_path, {"n0": (0, 1, 2, 3), "n1": (4, 5, 6, 7)})
    whole = scan_document("scan", *nodes, "--store", "whole.db", *ONE_JOB)
    stores = scan_apart(nodes)
    assert scan_document("scans", "import", *stores, "--store", "union.db") == whole
    assert {rank["device"] for rank in whole["ranks"]} == set(range(8))
