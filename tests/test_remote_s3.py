"""Scans of s3:// against moto's server: what is asked for over HTTP, and what breaks on the way."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from builders import FLOAT16, Tensor, dump_file
from cli_runs import environment, run, start
from dump_trees import write_tree
from dumpscope.model import DumpFile, ScanOptions
from dumpscope.plugins import load_readers
from dumpscope.processes import WorkerProcess
from dumpscope.remote.mounts import close_all
from dumpscope.scanning import Worker
from dumpscope.walk import walk

MISSING = "s3fs or moto's server is not installed (extra test-s3)"
pytest.importorskip("s3fs", reason=MISSING)
pytest.importorskip("moto.moto_server.werkzeug_app", reason=MISSING)

if TYPE_CHECKING:
    from s3_server import Answer, S3Server

NAME = "MatMulV2.net_MatMul-op0.5.2.1764417600000000"
KEY = f"dump/20251129120000/0/net/1/0/{NAME}"
SECRET = "very-secret-key"


@pytest.fixture(scope="module")
def running() -> Iterator[S3Server]:
    from s3_server import s3_server

    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "HTTP_PROXY", "http_proxy"):
            patch.delenv(name, raising=False)
        patch.setenv("AWS_ACCESS_KEY_ID", "somebody")
        patch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.setenv("AWS_CONFIG_FILE", os.devnull)
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        patch.setenv("AWS_MAX_ATTEMPTS", "1")
        patch.setenv("NO_PROXY", "127.0.0.1")
        with s3_server() as server:
            patch.setenv("AWS_ENDPOINT_URL", server.url)
            yield server
            gc.collect()  # what was not closed complains here


@pytest.fixture
def s3(running: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    running.break_answer = None
    running.page = 1000
    running.empty("bucket")
    yield running
    running.break_answer = None
    close_all()


def half(*values: float) -> bytes:
    tensor = Tensor(np.array(values, "<f2").tobytes(), FLOAT16, (len(values),))
    return dump_file((), (tensor,))


def told(*arguments: str | Path) -> dict[str, Any]:
    ended = run("scan", *arguments, "--format", "json", "--limit", "0")
    assert ended.err == ""
    document: dict[str, Any] = json.loads(ended.out)
    for name in ("scan_id", "root", "started_at", "duration_s"):
        document.pop(name, None)
    return document


def broken(
    test: Callable[[str], bool], status: int, body: bytes = b"", length: int | None = None
) -> Callable[[str, Answer], Answer | None]:
    def answer(request: str, usual: Answer) -> Answer | None:
        if not test(request):
            return None
        headers = {"Content-Type": "application/xml", "Content-Length": str(length or len(body))}
        return status, headers, body

    return answer


def error_body(code: str) -> bytes:
    return (
        f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()
    )


def is_read(request: str) -> bool:
    return request.startswith("GET /bucket/dump/")


def test_the_answer_is_that_of_a_local_scan_with_one_request_for_each_object(
    s3: S3Server, tmp_path: Path
) -> None:
    tree = write_tree(tmp_path / "dump", {"net/a": [np.inf], "net/b": [np.nan]}, steps=4)
    s3.put_tree(tree, "bucket", "dump")
    local = told(tree)
    assert local["counts"]["findings"] > 0
    assert told("s3://bucket/dump") == local
    assert sum(map(is_read, s3.requests)) == 12
    assert s3.count("HEAD") == 1
    assert s3.count("GET /bucket?list-type=2") == 1 + 9  # folders, and one to see that it is one
    s3.requests.clear()
    assert told("s3://bucket/dump") == local
    assert sum(map(is_read, s3.requests)) == 0


def test_a_large_object_is_read_in_chunks(s3: S3Server) -> None:
    count = 5 << 20
    content = dump_file((), (Tensor(bytes(2 * count), FLOAT16, (count,)),))
    s3.put("bucket", KEY, content)
    s3.requests.clear()
    assert told("s3://bucket/dump")["exit_status"] == 0
    ranges = [request.rpartition("bytes=")[2] for request in s3.requests if is_read(request)]
    assert ranges[:2] == ["0-4194303", "4194304-8388607"]
    assert len(ranges) == 3
    assert ranges[2].endswith(f"-{len(content) - 1}")


def test_a_listing_of_many_pages_is_read_to_its_end(s3: S3Server) -> None:
    for number in range(8):
        s3.put("bucket", f"{KEY}{number}", half(np.inf if number == 7 else 1.0))
    s3.page = 3
    document = told("s3://bucket/dump")
    assert document["counts"]["files"] == 8
    assert [f["file"].endswith("7") for f in document["findings"]] == [True]


def test_a_listing_that_breaks_off_is_never_clean(s3: S3Server) -> None:
    for number in range(8):
        s3.put("bucket", f"{KEY}{number}", half(1.0))
    s3.page = 3
    s3.break_answer = broken(lambda r: "continuation-token" in r, 403, error_body("AccessDenied"))
    document = told("s3://bucket/dump")
    assert document["exit_status"] == 3
    (failure,) = document["read_failures"]
    assert failure["file"] == "20251129120000/0/net/1/0"
    assert "cannot be listed to its end: PermissionError: AccessDenied" in failure["message"]


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("s3://bucket/dump", "PermissionError"),
        ("s3://none/dump", "there is nothing of that name"),
        ("s3://", "it names no bucket"),
    ],
)
def test_what_cannot_be_had_is_one_sentence_and_2(url: str, says: str, s3: S3Server) -> None:
    s3.put("bucket", KEY, half(1.0))
    s3.break_answer = broken(lambda r: " /bucket" in r, 403, error_body("AccessDenied"))
    ended = run("scan", url)
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.startswith(f"dumpscope: '{url}' cannot be scanned: ")
    assert says in ended.err
    assert ended.err.count("\n") == 1


def test_a_server_that_is_not_there_is_one_sentence_and_2(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    ended = run("scan", "s3://bucket/dump")
    assert (ended.status, ended.out) == (2, "")
    assert "Could not connect to the endpoint URL" in ended.err
    assert ended.err.count("\n") == 1


def test_an_object_that_vanished_is_a_failure(s3: S3Server) -> None:
    s3.put("bucket", KEY, half(1.0))
    s3.break_answer = broken(is_read, 404, error_body("NoSuchKey"))
    document = told("s3://bucket/dump")
    assert document["exit_status"] == 3
    (failure,) = document["read_failures"]
    assert failure["message"] == (
        f"expected {len(half(1.0)) + 1} bytes of s3://bucket/{KEY}, the storage did not deliver "
        "them: there is nothing of that name (FileNotFoundError)"
    )


def test_an_object_that_shrank_is_a_failure(s3: S3Server) -> None:
    count = 5 << 20
    content = dump_file((), (Tensor(bytes(2 * count), FLOAT16, (count,)),))
    s3.put("bucket", KEY, content)
    s3.break_answer = broken(
        lambda r: is_read(r) and "bytes=0-" not in r, 416, error_body("InvalidRange")
    )
    document = told("s3://bucket/dump")
    assert document["exit_status"] == 3
    (failure,) = document["read_failures"]
    assert failure["offset"] == 4 << 20
    assert f"of s3://bucket/{KEY}" in failure["message"]
    assert "InvalidRange" in failure["message"]


def test_an_answer_that_breaks_off_is_asked_for_again_then_a_failure(s3: S3Server) -> None:
    s3.put("bucket", f"{KEY}0", half(1.0, 2.0))
    s3.put("bucket", f"{KEY}1", half(1.0, np.inf))
    s3.requests.clear()
    s3.break_answer = broken(
        lambda r: is_read(r) and f"{NAME}0" in r, 206, half(1.0)[:20], len(half(1.0, 2.0))
    )
    document = told("s3://bucket/dump")
    assert document["complete"] is False
    assert len(document["findings"]) == 1
    (failure,) = document["read_failures"]
    assert f"s3://bucket/{KEY}0" in failure["message"]
    asked = sum(1 for r in s3.requests if is_read(r) and f"{NAME}0" in r)
    assert asked > 1  # the backend's own attempts
    s3.break_answer = None
    assert told("s3://bucket/dump")["complete"] is True


def test_another_process_reads_too(s3: S3Server) -> None:
    s3.put("bucket", KEY, half(1.0, np.inf))
    batch = [found for found in walk(["s3://bucket/dump"]) if isinstance(found, DumpFile)]
    worker = Worker(load_readers(), ScanOptions())
    process = WorkerProcess(worker.recipe)
    try:
        assert process.receive() == (False, None)
        assert process.ready
        assert process.send(batch)
        has_result, result = process.receive()
    finally:
        process.stop()
    assert has_result
    assert isinstance(result, list)
    assert [op.tensors[0].stats.posinf for op in result[0].ops] == [1]
    assert result[0].failures == ()


def test_a_fork_reads_with_a_connection_of_its_own(s3: S3Server, tmp_path: Path) -> None:
    s3.put("bucket", KEY, half(1.0, np.inf))
    program = (
        "import os, sys, warnings\n"
        "warnings.simplefilter('ignore')\n"  # that it forks with threads is what is tested
        "from dumpscope import scan\n"
        "def look():\n"
        "    found = scan('s3://bucket/dump').findings\n"
        "    return found[0].op.tensors[0].stats.posinf\n"
        "assert look() == 1\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    os._exit(40 + look())\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), look())\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env=environment(), cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert ended.stdout == "41 1\n", ended.stderr


def test_a_program_of_its_own_keeps_no_key(s3: S3Server, tmp_path: Path) -> None:
    s3.put("bucket", f"{KEY}0", half(1.0, np.inf))
    s3.put("bucket", f"{KEY}1", half(1.0))
    body = f"<Error><Code>Odd</Code><Message>key {SECRET} is odd</Message></Error>".encode()
    s3.break_answer = broken(lambda r: is_read(r) and f"{NAME}1" in r, 400, body)
    ended = start("scan", "s3://bucket/dump", "--format", "json", cwd=tmp_path)
    document = json.loads(ended.stdout)
    assert document["root"] == "s3://bucket/dump"
    assert "key *** is odd" in document["read_failures"][0]["message"]
    assert ended.stderr == ""
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert len(files) >= 1
    assert all(SECRET.encode() not in file.read_bytes() for file in files)


def test_odd_keys(s3: S3Server) -> None:
    for name in ("\x1b[31m", "a?b=1#x", "%2F", "ü"):
        s3.put("bucket", f"{KEY}{name}", half(np.inf))
    s3.put("bucket", "dump/20251129120000/", b"")  # as consoles make folders
    document = told("s3://bucket/dump")
    assert document["counts"]["files"] == 4
    assert document["read_failures"] == []
    s3.put("bucket", "dump//x", half(np.inf))
    s3.put("bucket", "dump/../x", half(np.inf))
    messages = [f["message"] for f in told("s3://bucket/dump")["read_failures"]]
    assert len(messages) == 2
    assert all("which no file can be called" in message for message in messages)
