"""Scans of URLs: the answer of a local scan, few requests, and no fault that ends as clean."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from array_builders import atb_bytes
from builders import FLOAT16, Tensor, dump_file
from cli_runs import run
from dump_trees import write_op, write_tree
from dumpscope import open_dump, scan
from dumpscope.errors import DumpReadError, OptionsError, StorageReadError
from dumpscope.model import DumpFile, ScanOptions
from dumpscope.remote.mounts import mount
from dumpscope.remote.reading import CHUNK_BYTES, RemoteSource
from dumpscope.source import BLOCK_BYTES, ReadBuffer
from dumpscope.store import Store
from dumpscope.walk import walk

fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed: no URLs")
known_implementations = import_module("fsspec.registry").known_implementations

if TYPE_CHECKING:
    from counted_storage import CountedStorage, Request

NAME = "MatMulV2.net_MatMul-op0.5.2.1764417600000000"
FOLDER = "20251129120000/0/net/1/0"
URL = "counted://bucket/dump"


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


@pytest.fixture
def storage() -> Iterator[type[CountedStorage]]:
    from counted_storage import counted_storage

    with counted_storage() as made:
        yield made


def half(*values: float) -> Tensor:
    return Tensor(np.array(values, "<f2").tobytes(), FLOAT16, (len(values),))


def dump(*values: float, **more: Any) -> bytes:
    return dump_file((half(1.0),), (half(*values),), **more)


def put(storage: type[CountedStorage], name: str, content: bytes, folder: str = FOLDER) -> str:
    path = f"/bucket/dump/{folder}/{name}"
    storage.put_bytes(path, content)
    return path


def told(*arguments: str | Path) -> dict[str, Any]:
    """The document of a scan, without what differs from scan to scan."""
    ended = run("scan", *arguments, "--format", "json", "--limit", "0")
    document: dict[str, Any] = json.loads(ended.out)
    for name in ("scan_id", "root", "started_at", "duration_s"):
        document.pop(name, None)
    return document


def fail_on(test: Callable[[Request], bool], error: BaseException) -> Callable[[Request], None]:
    def look(request: Request) -> None:
        if test(request):
            raise error

    return look


# --- the same answer ----------------------------------------------------------------------------


def test_a_remote_scan_tells_what_a_local_one_does(
    storage: type[CountedStorage], tmp_path: Path
) -> None:
    tree = write_tree(tmp_path / "dump", {"net/a": [np.inf], "net/b": [np.nan]}, steps=3)
    storage.put_tree(tree, "/bucket/dump")
    local, remote = told(tree), told(URL)
    assert local["counts"]["findings"] > 0
    assert remote == local
    assert told(URL, "--jobs", "1", "--store", "one.db") == local
    assert told(URL, "--stats", "full") == told(tree, "--stats", "full")


@pytest.mark.corpus
@pytest.mark.parametrize(
    "case",
    [
        "cann/corrupt", "cann/dtypes", "cann/ranks8",
        "cann/fftsplus", "cann/opdebug_old", "mindspore/exp_overflow__tensor",
        "msprobe/gpt_fp16__mix_tensor", "msprobe/gpt_fp16__debug_tensor",
        "msprobe/ddp__mix_statistics_statistics", "msprobe/gpt_fp16__mix_structure",
    ],
)  # fmt: skip
def test_real_dumps_read_the_same(case: str, storage: type[CountedStorage], corpus: Path) -> None:
    storage.put_tree(corpus / case / "dump", "/bucket/dump")
    local, remote = told(corpus / case / "dump"), told(URL)
    for document in (local, remote):
        document["counts"].pop("skipped")  # links stay behind when a tree is copied
    assert remote == local
    # Sizes come from listings, of companions too; what is damaged is asked whether it still grows.
    assert storage.count("info") < 20 + len(remote["read_failures"])


def test_bytes_saved_in_another_operation_are_followed(
    storage: type[CountedStorage], tmp_path: Path
) -> None:
    layer = "0_4711/1/5_DecoderLayer"
    files = {
        f"{layer}/0_Attention/after/outtensor0.bin": atb_bytes(b"\0\x3c\0\x7c", dims=(2,)),
        f"{layer}/1_Mlp/before/intensor0.bin": atb_bytes(
            b"", dims=(2,), saved_in="5_0_outtensor0.bin"
        ),
    }
    for name, content in files.items():
        (tmp_path / "dump" / name).parent.mkdir(parents=True)
        (tmp_path / "dump" / name).write_bytes(content)
        storage.put_bytes(f"/bucket/dump/{name}", content)
    remote = told(URL)
    assert remote == told(tmp_path / "dump")
    assert remote["counts"]["unchecked"] == 0


def test_hashed_names_are_looked_up(storage: type[CountedStorage]) -> None:
    put(storage, "123", dump(1.0, np.inf))
    put(storage, "mapping.csv", f"123,{NAME}\n".encode())
    remote = told(URL)
    assert [f["op_type"] for f in remote["findings"]] == ["MatMulV2"]
    assert [f["file"] for f in remote["findings"]] == [f"{FOLDER}/123"]
    found = [file.name for file in walk([f"{URL}/{FOLDER}/123"]) if isinstance(file, DumpFile)]
    assert found == [NAME]


def test_plain_memory_urls_work(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "dump", {"net/a": [np.inf]})
    memory = fsspec.filesystem("memory")
    memory.put(str(tree), "/here/dump", recursive=True)
    try:
        assert told("memory://here/dump", "--jobs", "1") == told(tree)
        assert scan("memory://here/dump").root == "memory://here/dump"
        assert [f["step"] for f in told("memory://")["findings"]] == [0]
    finally:
        memory.rm("/here", recursive=True)


def test_file_urls_are_local(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "dump", {"net/a": [np.inf]})
    answer = scan(f"file://{tree}")
    assert answer.root == str(tree)
    shown = run("show", f"file://{tree}/{answer.findings[0].op.file}", "--format", "json")
    assert json.loads(shown.out)["files"][0]["path"].startswith(str(tree))


def test_several_urls_are_numbered_as_paths_are(
    storage: type[CountedStorage], tmp_path: Path
) -> None:
    for node in "ab":
        write_op(tmp_path / node, "Exp", "net/x", outputs=[np.array([np.inf], "f2")])
        storage.put_tree(tmp_path / node, f"/bucket/{node}")
    local = told(tmp_path / "a", tmp_path / "b")
    assert told("counted://bucket/a", "counted://bucket/b") == local
    for node in "ab":
        assert run("scan", f"counted://bucket/{node}", "--store", f"{node}.db").status == 1
    joined = run("scans", "import", "a.db", "b.db", "--store", "ab.db", "--format", "json")
    document = json.loads(joined.out)
    assert document["root"] == "counted://bucket"
    assert [f["file"] for f in document["findings"]] == [f["file"] for f in local["findings"]]


# --- requests -----------------------------------------------------------------------------------


def test_a_small_file_costs_one_request_and_a_folder_one_more(
    storage: type[CountedStorage], tmp_path: Path
) -> None:
    tree = write_tree(tmp_path / "dump", {"net/a": [np.inf]}, steps=4)
    storage.put_tree(tree, "/bucket/dump")
    folders = 1 + sum(1 for path in tree.rglob("*") if path.is_dir())
    scan(URL)
    assert storage.count("cat") == 12
    assert storage.count("ls") == folders == 9
    assert storage.count("info") == 1  # of the root
    size = sum(path.stat().st_size for path in tree.rglob("*") if path.is_file())
    assert sum(request.bytes for request in storage.requests) == size


def test_a_large_file_costs_one_request_for_each_chunk(storage: type[CountedStorage]) -> None:
    count = 10 << 20
    content = dump_file((), (Tensor(bytes(2 * count), FLOAT16, (count,)),))
    put(storage, NAME, content)
    assert scan(URL).exit_status == 0
    chunks = -(-len(content) // CHUNK_BYTES)
    reads = [request for request in storage.requests if request.kind == "cat"]
    assert len(reads) == chunks == 6
    assert max(request.bytes for request in reads) == CHUNK_BYTES
    assert len(content) <= sum(request.bytes for request in reads) < len(content) + 16 * chunks


def test_a_large_tensor_with_bad_values_is_read_three_times(
    storage: type[CountedStorage],
) -> None:
    count = 10 << 20
    values = np.ones(count, "<f2")
    values[count - 1] = np.inf
    put(storage, NAME, dump_file((), (Tensor(values.tobytes(), FLOAT16, (count,)),)))
    answer = scan(URL)
    assert answer.findings[0].op.tensors[0].stats.posinf == 1
    assert storage.count("cat") <= 3 * 6


def test_far_pieces_of_a_large_file_are_asked_for_small(storage: type[CountedStorage]) -> None:
    content = np.arange(8 << 20, dtype="<u4").tobytes()
    storage.put_bytes("/bucket/dump/x", content)
    (file,) = [found for found in walk([URL]) if isinstance(found, DumpFile)]
    with RemoteSource(file, ReadBuffer()) as source:
        storage.requests.clear()
        assert source.read(len(content) - 100, 100) == content[-100:]
        assert source.read(20 << 20, 10) == content[20 << 20 :][:10]
        assert [request.bytes for request in storage.requests] == [100, 1 << 16]
        assert source.read((20 << 20) + (1 << 16), 10) == content[(20 << 20) + (1 << 16) :][:10]
        assert storage.requests[-1].bytes == CHUNK_BYTES
        assert source.read(5, 9 << 20) == content[5 : 5 + (9 << 20)]


@pytest.mark.parametrize(
    ("offset", "length"), [(0, 9 << 20), (7, 5 << 20), (4_194_301, 100), (3, 0)]
)
def test_blocks_hold_the_bytes_in_order(
    offset: int, length: int, storage: type[CountedStorage]
) -> None:
    content = np.random.default_rng(5).integers(0, 256, 9 << 20, dtype="u1").tobytes()
    storage.put_bytes("/bucket/dump/x", content)
    (file,) = [found for found in walk([URL]) if isinstance(found, DumpFile)]
    with RemoteSource(file, ReadBuffer()) as source:
        blocks = [bytes(block) for block in source.blocks(offset, length)]
    assert b"".join(blocks) == content[offset : offset + length]
    assert all(len(block) % 16 == 0 for block in blocks[:-1])
    assert all(0 < len(block) <= BLOCK_BYTES for block in blocks)


def test_what_did_not_change_is_not_read_again(storage: type[CountedStorage]) -> None:
    paths = [put(storage, f"{NAME}{n}", dump(1.0, n)) for n in range(4)]
    assert told(URL)["exit_status"] == 0
    storage.requests.clear()
    assert told(URL)["exit_status"] == 0
    assert storage.count("cat") == 0
    storage.put_bytes(paths[2], dump(1.0, np.inf))  # as long, at the same time, of another tag
    storage.requests.clear()
    again = told(URL)
    assert again["exit_status"] == 1
    assert [r.path for r in storage.requests if r.kind == "cat"] == [paths[2]]


def test_without_times_and_tags_everything_is_read_again(
    storage: type[CountedStorage], monkeypatch: pytest.MonkeyPatch
) -> None:
    put(storage, NAME, dump(1.0))

    def untagged(self: object, entry: dict[str, Any]) -> dict[str, Any]:
        return {key: entry[key] for key in ("name", "size", "type")}

    monkeypatch.setattr(storage, "_tagged", untagged)
    for _ in range(2):
        storage.requests.clear()
        assert told(URL)["exit_status"] == 0
        assert storage.count("cat") == 1


def test_a_scan_that_was_stopped_goes_on(storage: type[CountedStorage]) -> None:
    for number in range(40):
        put(storage, f"{NAME}{number:02}", dump(1.0, np.inf if number == 39 else 2.0))
    storage.on_request = fail_on(lambda r: r.path.endswith("39"), KeyboardInterrupt())
    assert run("scan", URL, "--jobs", "1").status == 130
    storage.on_request = None
    storage.requests.clear()
    ended = run("scan", "--resume", "--format", "json")
    assert json.loads(ended.out)["counts"]["findings"] == 1
    assert 0 < storage.count("cat") <= 16
    assert run("scan", URL, "--resume").status == 2


# --- hostile names ------------------------------------------------------------------------------


def test_odd_names_are_read_and_never_reach_the_terminal_raw(
    storage: type[CountedStorage],
) -> None:
    for name in ("a\nb", "\x1b[31mred", "=1+1", "<b>", "a?b#c%2F", "ü\udcff"):
        put(storage, f"{NAME}{name}", dump(1.0, np.inf))
    assert told(URL)["counts"]["files"] == 6
    ended = run("scan", URL)
    assert ended.status == 1
    assert "\x1b[31m" not in ended.out + ended.err


@pytest.mark.parametrize(
    "odd", ["../../up", "a/../b", "a//b", "/a", "./a", "a\0b", "20251129120000//0"]
)
def test_names_that_no_file_can_have_are_failures(odd: str, storage: type[CountedStorage]) -> None:
    put(storage, NAME, dump(1.0))
    storage.put_bytes(f"/bucket/dump/{odd}/{NAME}", dump(1.0, np.inf))
    document = told(URL)
    assert document["exit_status"] == 3
    assert [f["error"] for f in document["read_failures"]] == ["StorageReadError"]
    assert "which no file can be called" in document["read_failures"][0]["message"]


def test_an_empty_object_that_stands_for_its_folder_is_nothing(
    storage: type[CountedStorage],
) -> None:
    put(storage, NAME, dump(1.0))
    storage.put_bytes(f"/bucket/dump/{FOLDER}/", b"")
    document = told(URL)
    assert (document["exit_status"], document["read_failures"]) == (0, [])


@pytest.mark.parametrize("listed", ["/bucket/other/x", "/bucket/dump", "x", "/bucket/dumps/x"])
def test_a_listing_leads_out_of_no_folder(
    listed: str, storage: type[CountedStorage], monkeypatch: pytest.MonkeyPatch
) -> None:
    put(storage, NAME, dump(1.0))
    storage.put_bytes("/bucket/other/x", dump(1.0, np.inf))

    def lie(self: object, path: str, detail: bool = True) -> list[dict[str, Any]]:
        return [{"name": listed, "size": 9, "type": "file", "ETag": "1"}]

    monkeypatch.setattr(storage, "ls", lie)
    document = told(URL)
    assert document["exit_status"] == 3
    assert storage.count("cat") == 0


def test_a_size_that_is_a_lie_takes_no_memory(
    storage: type[CountedStorage], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put(storage, NAME, b"\xff" * 7 + b"\x0f" + bytes(100))
    monkeypatch.setattr(
        storage, "_tagged", lambda _, e: {**e, "size": 1 << 60} if e["type"] == "file" else e
    )
    assert told(URL)["complete"] is False
    assert all(r.bytes <= 108 for r in storage.requests if r.path == path)


def test_folders_beyond_all_bounds_are_named(storage: type[CountedStorage]) -> None:
    put(storage, NAME, dump(1.0), folder="/".join("d" * 70))
    (failure,) = told(URL)["read_failures"]
    assert "64 levels" in failure["message"]


# --- faults -------------------------------------------------------------------------------------


def test_an_object_that_vanished_is_a_failure(storage: type[CountedStorage]) -> None:
    put(storage, f"{NAME}0", dump(1.0))
    path = put(storage, f"{NAME}1", dump(1.0))

    def vanish(request: Request) -> None:
        if request.kind == "cat" and path in storage.store:
            del storage.store[path]

    storage.on_request = vanish
    document = told(URL, "--jobs", "1")
    assert document["exit_status"] == 3
    (failure,) = document["read_failures"]
    size = len(dump(1.0))
    assert failure["message"] == (
        f"expected {size + 1} bytes of {URL}/{FOLDER}/{NAME}1, the storage did not deliver them: "
        "there is nothing of that name (FileNotFoundError)"
    )
    assert failure["offset"] == 0


def test_an_object_that_shrank_is_a_failure(storage: type[CountedStorage]) -> None:
    content = dump(*range(100))
    path = put(storage, NAME, content)
    storage.on_request = lambda r: (
        storage.put_bytes(path, content[:-9]) if r.kind == "ls" and r.path.endswith("/0") else None
    )
    found = list(walk([URL]))
    (file,) = [f for f in found if isinstance(f, DumpFile)]
    storage.on_request = None
    storage.put_bytes(path, content[:-9])
    with RemoteSource(file, ReadBuffer()) as source:
        assert source.size == len(content) - 9
    document = told(URL)
    assert [f["error"] for f in document["read_failures"]] == ["TruncatedDumpError"]
    assert document["exit_status"] == 3


def test_an_object_that_grew_is_read_as_it_is_now(storage: type[CountedStorage]) -> None:
    content = dump(*range(100))
    storage.put_bytes("/bucket/dump/x", content[:50])
    (file,) = [f for f in walk([URL]) if isinstance(f, DumpFile)]
    storage.put_bytes("/bucket/dump/x", content)
    with RemoteSource(file, ReadBuffer()) as source:
        assert source.size == len(content)
        assert source.read(0, len(content)) == content


@pytest.mark.parametrize("cut", [CHUNK_BYTES, CHUNK_BYTES + 100])
def test_a_large_object_that_shrinks_while_it_is_read_is_a_failure(
    cut: int, storage: type[CountedStorage]
) -> None:
    count = 5 << 20
    content = dump_file((), (Tensor(bytes(2 * count), FLOAT16, (count,)),))
    path = put(storage, NAME, content)
    storage.on_request = lambda r: (
        storage.put_bytes(path, content[:cut]) if r.kind == "cat" else None
    )
    document = told(URL)
    assert document["exit_status"] == 3
    assert "shrank while it was read" in document["read_failures"][0]["message"]


def test_an_error_in_the_middle_of_a_file_names_url_and_offset(
    storage: type[CountedStorage],
) -> None:
    count = 5 << 20
    content = dump_file((), (Tensor(bytes(2 * count), FLOAT16, (count,)),))
    put(storage, NAME, content)
    put(storage, f"{NAME}1", dump(1.0, np.inf))
    error = ConnectionResetError(104, "Connection reset by peer")
    storage.on_request = fail_on(lambda r: r.kind == "cat" and r.start > CHUNK_BYTES, error)
    document = told(URL)
    assert document["complete"] is False
    assert len(document["findings"]) == 1  # the other file was read
    (failure,) = document["read_failures"]
    assert failure["error"] == "StorageReadError"
    assert CHUNK_BYTES < failure["offset"] <= 2 * CHUNK_BYTES
    assert f"of {URL}/{FOLDER}/{NAME}," in failure["message"]
    assert "Connection reset by peer" in failure["message"]
    storage.on_request = None
    again = told(URL)  # and it is read again, not taken out of the store
    assert (again["exit_status"], again["read_failures"]) == (1, [])


def test_strange_exceptions_of_a_backend_are_failures_too(storage: type[CountedStorage]) -> None:
    class OddError(Exception):
        pass

    put(storage, NAME, dump(1.0))
    storage.on_request = fail_on(lambda r: r.kind == "cat", OddError("line one\nline two"))
    (failure,) = told(URL)["read_failures"]
    assert failure["message"].endswith("them: OddError: line one line two")


def test_a_companion_that_is_not_delivered_is_told(
    storage: type[CountedStorage], corpus: Path
) -> None:
    storage.put_tree(corpus / "msprobe/ddp__mix_statistics_statistics/dump", "/bucket/dump")
    error = PermissionError(13, "Access Denied")
    storage.on_request = fail_on(
        lambda r: r.path.endswith("construct.json") or r.path.endswith("stack.json"), error
    )
    document = told(URL)
    assert document["complete"] is False
    assert len(document["read_failures"]) >= 2
    assert all("Access Denied" in failure["message"] for failure in document["read_failures"])


@pytest.mark.parametrize("error", [PermissionError("Access Denied"), TimeoutError("timed out")])
def test_a_folder_that_cannot_be_listed_is_never_clean(
    error: Exception, storage: type[CountedStorage]
) -> None:
    put(storage, NAME, dump(1.0))
    put(storage, NAME, dump(1.0), folder="20251129120000/1/net/1/0")
    storage.on_request = fail_on(lambda r: r.kind == "ls" and r.path.endswith("000/1"), error)
    document = told(URL)
    assert document["exit_status"] == 3
    (failure,) = document["read_failures"]
    assert failure["file"] == "20251129120000/1"
    assert failure["message"].startswith(
        f"the folder {URL}/20251129120000/1 cannot be listed to its end: {type(error).__name__}"
    )


def test_a_listing_without_sizes_is_never_clean(
    storage: type[CountedStorage], monkeypatch: pytest.MonkeyPatch
) -> None:
    put(storage, NAME, dump(1.0))
    monkeypatch.setattr(
        storage, "_tagged", lambda _, entry: {k: entry[k] for k in ("name", "type")}
    )
    document = told(URL)
    assert document["exit_status"] == 3
    assert "does not say how large" in document["read_failures"][0]["message"]


def test_a_storage_without_ranged_reads_is_told(
    storage: type[CountedStorage], monkeypatch: pytest.MonkeyPatch
) -> None:
    put(storage, NAME, dump_file((), (Tensor(bytes(10 << 20), FLOAT16, (5 << 20,)),)))
    whole = storage.cat_file

    def give_all(self: CountedStorage, path: str, start: Any = None, end: Any = None) -> bytes:
        return whole(self, path, 0, None)

    monkeypatch.setattr(storage, "cat_file", give_all)
    document = told(URL)
    assert document["exit_status"] == 3
    assert "does not do ranged reads" in document["read_failures"][0]["message"]


# --- what ends at once --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["counted://bucket/none"], "there is nothing of that name"),
        (["nowhere://bucket/dump"], "fsspec knows no nowhere://"),
        (["lacking://bucket/dump"], "lacking:// needs one more package: Install lackingfs"),
        (["counted://bucket//dump"], "empty parts"),
        (["zip://x::counted://bucket/x.zip"], "chained URLs"),
        ([URL, "."], "scan each"),
        ([f"{URL}/acl.json"], "an acl.json is only read from this machine"),
    ],
)
def test_wrong_urls_are_one_sentence_and_2(
    arguments: list[str],
    says: str,
    storage: type[CountedStorage],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put(storage, NAME, dump(1.0))
    monkeypatch.setitem(
        known_implementations,
        "lacking",
        {"class": "lackingfs.LackingFileSystem", "err": "Install lackingfs to access it"},
    )
    ended = run("scan", *arguments)
    assert ended.status == 2
    assert ended.out == ""
    assert says in ended.err
    assert "Traceback" not in ended.err


def test_a_refused_bucket_is_one_sentence_and_2(storage: type[CountedStorage]) -> None:
    put(storage, NAME, dump(1.0))
    storage.on_request = fail_on(lambda r: r.kind == "info", PermissionError("Access Denied"))
    ended = run("scan", URL)
    assert (ended.status, ended.out) == (2, "")
    assert ended.err == (f"dumpscope: '{URL}' cannot be scanned: PermissionError: Access Denied\n")


def test_without_fsspec_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from dumpscope.remote.mounts import close_all

    close_all()
    for name in ("fsspec.core", "fsspec"):
        monkeypatch.setitem(sys.modules, name, None)
    ended = run("scan", "memory://dump")
    assert ended.status == 2
    assert "pip install 'dumpscope[remote]'" in ended.err


def test_an_empty_folder_means_what_it_means_locally(storage: type[CountedStorage]) -> None:
    storage.put_bytes("/bucket/dump/", b"")
    assert run("scan", URL, "--expect", "overflow").status == 0
    assert run("scan", URL, "--expect", "model").status == 3


# --- secrets ------------------------------------------------------------------------------------


def test_a_password_is_used_and_kept_nowhere(storage: type[CountedStorage], tmp_path: Path) -> None:
    path = put(storage, NAME, dump(1.0, np.inf))
    put(storage, f"{NAME}1", dump(1.0))
    secret = "hunter22"
    url = f"counted://me:{secret}@bucket/dump"
    error = OSError(f"cannot GET counted://me:{secret}@bucket/x")
    storage.on_request = fail_on(lambda r: r.kind == "cat" and r.path.endswith("1"), error)
    outputs = []
    for command in (
        ["scan", url],
        ["scan", url, "--format", "json"],
        ["report", "--json", "report.json", "--html", "page.html"],
        ["show", f"counted://me:{secret}@bucket{path.removeprefix('/bucket')}"],
        ["show", f"counted://me:{secret}@bucket{path.removeprefix('/bucket')}:output.0"],
        [
            "export",
            f"counted://me:{secret}@bucket{path.removeprefix('/bucket')}",
            "--to",
            "npy",
            "--output",
            "out",
        ],
        ["scans", "list", "--json"],
        ["scans", "show"],
        ["scan", f"counted://me:{secret}@bucket/none"],
        ["show", f"counted://me:{secret}@bucket/none"],
    ):
        ended = run(*command)
        assert "Traceback" not in ended.err
        outputs.append(ended.out + ended.err)
    assert all(secret not in text for text in outputs)
    assert "counted://me@bucket/dump" in outputs[6]
    assert "me:***@bucket/x" in outputs[1]
    assert any(options.get("password") == secret for options in storage.instances)
    for file in tmp_path.rglob("*"):
        if file.is_file():
            assert secret.encode() not in file.read_bytes(), file
    assert secret not in repr(mount(url))


# --- looking again ------------------------------------------------------------------------------


def test_show_and_export_read_from_the_url(storage: type[CountedStorage], tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "dump", {"net/a": [np.inf, 3.0]})
    storage.put_tree(tree, "/bucket/dump")
    run("scan", URL)
    (file,) = {f["file"] for f in told(URL)["findings"] if f["op_name"] == "net/a"}
    for target in (f"{URL}/{file}", file, "net/a", "net/a:output.0", f"{URL}/{file}:output.0"):
        storage.requests.clear()
        shown = run("show", target, "--format", "json")
        assert shown.status == 0, shown.err
        (viewed,) = json.loads(shown.out)["files"]
        assert viewed["path"] == f"{URL}/{file}"
        assert storage.count("cat") == 1
        exported = run("export", target, "--to", "npy", "--output", f"out{hash(target)}")
        assert exported.status == 0, exported.err
        last = [line for line in exported.out.splitlines() if "output" in line]
        values = np.load(last[-1])
        assert values[0] == np.inf
        assert values[1] == 3.0
    whole = run("export", URL, "--to", "npy", "--output", "all")
    assert (whole.status, len(whole.out.splitlines())) == (0, 6)
    assert run("show", f"{URL}/20260109173000").status == 2
    assert run("report", "--csv", "-").out.count("net/a") == 1
    assert run("trace", "net/a").status == 0


def test_annotations_name_the_object_from_the_root(
    storage: type[CountedStorage], monkeypatch: pytest.MonkeyPatch
) -> None:
    put(storage, NAME, dump(1.0, np.inf))
    monkeypatch.setenv("GITHUB_WORKSPACE", os.getcwd())
    ended = run("scan", URL, "--format", "github")
    assert f"file={FOLDER}/{NAME}," in ended.out


def test_one_file_opens_in_python(storage: type[CountedStorage]) -> None:
    path = put(storage, NAME, dump(1.0, np.inf))
    with open_dump(f"counted:/{path}") as opened:
        assert [tensor.load().tolist() for tensor in opened] == [[1.0], [1.0, np.inf]]
    with pytest.raises(OptionsError, match="is a folder"):
        open_dump(URL)
    storage.on_request = fail_on(lambda r: r.kind == "cat", OSError("gone"))
    with pytest.raises(StorageReadError, match="gone"):
        open_dump(f"counted:/{path}")
    assert issubclass(StorageReadError, DumpReadError)


def test_siblings_are_kept_inside(storage: type[CountedStorage]) -> None:
    put(storage, "dump.json", b"{}")
    put(storage, "x", b"1234")
    storage.put_bytes("/bucket/dump/secret", b"no")
    files = {f.name: f for f in walk([URL]) if isinstance(f, DumpFile)}
    with RemoteSource(files["dump.json"], ReadBuffer()) as source:
        assert source.sibling("x").read(0, 4) == b"1234"
        assert source.list_folder("") == ["dump.json", "x"]
        assert source.list_folder("none") == []
        for name in ("../../../../../secret", "/bucket/dump/secret", "", "a//b", "x\0", "none"):
            with pytest.raises(DumpReadError):
                source.sibling(name)
        assert source.faults == []


# --- processes ----------------------------------------------------------------------------------


def test_another_process_connects_anew(
    storage: type[CountedStorage], monkeypatch: pytest.MonkeyPatch
) -> None:
    put(storage, NAME, dump(1.0))
    one = mount(URL)
    here = one.connect()[0]
    assert one.connect()[0] is here
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert one.connect()[0] is not here


def test_a_growing_object_is_named(storage: type[CountedStorage]) -> None:
    path = put(storage, NAME, dump(*range(100))[:-50])
    storage.on_request = lambda r: (
        storage.put_bytes(path, dump(*range(100))[:-20])
        if r.kind == "cat" and not storage.count("info") > 1
        else None
    )
    with Store.open("scans.db") as store:
        answer = scan(URL, ScanOptions(), store=store)
        assert answer.exit_status == 3
        assert store.scan_info(answer.scan_id).totals["growing"] == [f"{FOLDER}/{NAME}"]
