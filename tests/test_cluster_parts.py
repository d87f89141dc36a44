"""The parts of a distributed scan, each without a cluster."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli_runs import run
from dumpscope.cluster import executor
from dumpscope.cluster.checking import CheckedWork
from dumpscope.cluster.connecting import say_difference
from dumpscope.cluster.executor import AHEAD, MOST_FILES_AHEAD, DaskExecutor
from dumpscope.cluster.results import RESULTS, pack_batch, read_results, unpack_batch
from dumpscope.errors import ClusterError, OptionsError, PluginError
from dumpscope.executors import BATCH_BYTES
from dumpscope.model import DumpFile, FileResult, ScanOptions
from dumpscope.plugins import load_readers
from dumpscope.processes import Recipe, dump_result
from dumpscope.scanning import Worker, scan
from fixtures.encode import encode_dump, entry_of

RECIPE = Recipe("process_work:Echo", (), "echo")
HERE = {"version": "1.0", "readers": {"a": "dumpscope 1.0", "b": "toy 2"}, "host": "x"}


def numbered(number: int, size: int = 1) -> DumpFile:
    return DumpFile(f"/d/{number}", f"{number}", f"{number}", size, 0, 0, number)


def on_disk(path: Path) -> DumpFile:
    status = path.stat()
    return DumpFile(
        str(path), path.name, path.name, status.st_size,
        status.st_mtime_ns, status.st_ctime_ns, status.st_ino,
    )  # fmt: skip


class FakeFuture:
    """A future that is done at once or when it is waited for."""

    def __init__(self, message: bytes, is_done: bool) -> None:
        self._message = message
        self._is_done = is_done

    def done(self) -> bool:
        return self._is_done

    def result(self, timeout: float) -> bytes:
        assert timeout > 0
        batch = pickle.loads(unpack_batch(self._message)[1])
        return RESULTS + dump_result([FileResult(file=file) for file in batch], batch)


class FakeClient:
    def __init__(self, is_done: bool) -> None:
        self.is_done = is_done
        self.cancelled: list[FakeFuture] = []

    def submit(self, function: Any, text: str, names: dict[str, bytes], **_: Any) -> FakeFuture:
        assert function is eval
        assert text.endswith(".examine(message)")
        return FakeFuture(names["message"], self.is_done)

    def cancel(self, futures: list[FakeFuture]) -> None:
        self.cancelled += futures


class FakeConnection:
    lost = False

    def __init__(self, is_done: bool = False) -> None:
        self.client = FakeClient(is_done)

    def count_threads(self) -> int:
        return 7

    def close(self) -> None:
        pass


class FakeWork:
    recipe = RECIPE

    def __call__(self, batch: Sequence[DumpFile]) -> list[FileResult]:
        raise AssertionError(f"{batch} is not for this process")


def executor_of(connection: Any, jobs: int) -> DaskExecutor:
    return DaskExecutor(connection, jobs)


@pytest.mark.parametrize("is_done", [True, False])
def test_results_are_in_order_and_few_batches_on_their_way(is_done: bool) -> None:
    pytest.importorskip("distributed", reason="distributed is not installed (extra dask)")
    begun = taken = furthest = 0

    def batches() -> Iterator[list[DumpFile]]:
        nonlocal begun, furthest
        for number in range(200):
            begun += 1
            furthest = max(furthest, begun - taken)
            yield [numbered(number)]

    found = []
    with executor_of(FakeConnection(is_done), 4) as opened:
        for results in opened.run(FakeWork(), batches()):
            taken += 1
            found += [result.file.inode for result in results]
    assert found == list(range(200))
    assert furthest <= 4 * AHEAD


def test_the_files_on_their_way_are_bounded_on_the_largest_cluster() -> None:
    pytest.importorskip("distributed", reason="distributed is not installed (extra dask)")
    batch = [numbered(number) for number in range(1024)]
    sent = 0

    def batches() -> Iterator[list[DumpFile]]:
        nonlocal sent
        while True:
            sent += 1
            yield batch

    with executor_of(FakeConnection(), 100_000) as opened:
        results = opened.run(FakeWork(), batches())
        assert isinstance(results, Generator)
        next(results)
        assert sent * len(batch) == MOST_FILES_AHEAD
        results.close()
        assert len(opened._client.cancelled) == sent - 1


def test_workers_that_join_later_get_batches_too(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed", reason="distributed is not installed (extra dask)")
    monkeypatch.setattr(executor, "LOOK_EVERY_S", 1e-9)
    with executor_of(FakeConnection(), 1) as opened:
        results = opened.run(FakeWork(), ([numbered(number)] for number in range(100)))
        next(results)
        assert opened.jobs == 1
        next(results)
        assert opened.jobs == 7


def test_batches_begin_small_and_grow() -> None:
    size = 1 << 20
    with executor_of(FakeConnection(), 2) as opened:
        files = (numbered(number, size) for number in range(5000))
        lengths = [len(batch) for batch in opened.group(files)]
    assert sum(lengths) == 5000
    small = BATCH_BYTES // size
    assert lengths[: 2 * AHEAD] == [small] * (2 * AHEAD)
    assert lengths[2 * AHEAD : 4 * AHEAD] == [small * 16] * (2 * AHEAD)
    assert lengths[4 * AHEAD] == 256


def test_results_make_records_and_nothing_else(tmp_path: Path) -> None:
    file = numbered(0)
    good = dump_result([FileResult(file=file, reader="adump")], [file])
    assert read_results(good, [file]) == [FileResult(file=file, reader="adump")]
    assert read_results(good, [file])[0].file is file

    class Harmful:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.mkdir, (str(tmp_path / "made"),)

    with pytest.raises(PluginError, match=r"a worker sent a posix\.mkdir, expected plain"):
        read_results(pickle.dumps([Harmful()]), [file])
    assert not (tmp_path / "made").exists()
    with pytest.raises(PluginError, match="numpy"):
        read_results(pickle.dumps([np.float64(1)]), [file])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "cannot be read"),
        (b"\x80\x05]", "cannot be read"),
        (pickle.dumps([]), "of other files"),
        (pickle.dumps(3), "of other files"),
        (dump_result([FileResult(file=numbered(1))], []), "of other files"),
        (pickle.dumps("node1: there is no reader 'x'"), "node1: there is no reader 'x'"),
    ],
)
def test_other_results_are_refused(content: bytes, words: str) -> None:
    with pytest.raises(ClusterError, match=words):
        read_results(content, [numbered(0)])


def test_a_batch_arrives_as_it_was_sent() -> None:
    batch = [numbered(number) for number in range(3)]
    recipe, content = unpack_batch(pack_batch(RECIPE, batch))
    assert recipe == RECIPE
    assert pickle.loads(content) == batch


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    values = np.ones((2, 3), np.float16)
    path = tmp_path / f"Add.op.1.2.{1767951000000000}"
    path.write_bytes(encode_dump("op", [entry_of(values)], [entry_of(values * 2)]))
    return path


@pytest.fixture
def checked() -> CheckedWork:
    return CheckedWork(Worker(load_readers(), ScanOptions()).recipe, "node1 (tcp://n1:1)")


def examine(checked: CheckedWork, file: DumpFile) -> FileResult:
    results = checked([file])
    assert isinstance(results, list)
    return results[0]


def test_the_same_file_gives_the_same_result(dump: Path, checked: CheckedWork) -> None:
    file = on_disk(dump)
    local = Worker(load_readers(), ScanOptions())
    assert checked([file]) == local([file])
    assert checked.recipe.signature == local.recipe.signature
    assert len(examine(checked, file).ops) == 1


@pytest.mark.parametrize("change", ["size", "time"])
def test_another_file_of_the_same_path_is_no_result(
    dump: Path, checked: CheckedWork, change: str
) -> None:
    file = on_disk(dump)
    if change == "size":
        dump.write_bytes(dump.read_bytes() + b"more")
        os.utime(dump, ns=(0, file.mtime_ns))
    else:
        os.utime(dump, ns=(0, file.mtime_ns - 3_000_000_000))
    result = examine(checked, file)
    assert not result.ops
    (failure,) = result.failures
    assert failure.error == "OSError"
    assert failure.message.startswith(
        f"is not the file that the scan saw: expected {file.size} bytes"
    )
    assert "the worker node1 (tcp://n1:1) has" in failure.message
    assert "`dumpscope scans import`" in failure.message


def test_a_coarser_clock_of_the_file_system_is_the_same_file(
    dump: Path, checked: CheckedWork
) -> None:
    file = on_disk(dump)
    os.utime(dump, ns=(0, file.mtime_ns - file.mtime_ns % 1_000_000_000))
    assert len(examine(checked, file).ops) == 1


def test_a_missing_file_names_the_worker(dump: Path, checked: CheckedWork) -> None:
    file = on_disk(dump)
    dump.unlink()
    (failure,) = examine(checked, file).failures
    assert failure.error == "FileNotFoundError"
    assert failure.message.startswith(
        "cannot be read by the worker node1 (tcp://n1:1): No such file or directory: where nodes"
    )


def test_a_file_that_may_not_be_opened_names_the_worker(
    dump: Path, checked: CheckedWork, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = on_disk(dump)

    def refuse(*_: object, **__: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    (failure,) = examine(checked, file).failures
    assert failure.error == "PermissionError"
    assert failure.message == (
        "cannot be read: Permission denied (by the worker node1 (tcp://n1:1))"
    )


def test_what_stops_a_scan_here_stops_it_there(dump: Path) -> None:
    recipe = Worker(load_readers(), ScanOptions(reader="absent")).recipe
    said = CheckedWork(recipe, "node1")([on_disk(dump)])
    assert isinstance(said, str)
    assert said.startswith("node1: there is no reader 'absent'")


@pytest.mark.parametrize(
    ("there", "words"),
    [
        (HERE, None),
        ({**HERE, "version": "0.9"}, "has dumpscope 0.9, here it is 1.0"),
        (
            {**HERE, "readers": {"a": "dumpscope 1.0", "c": "new 3"}},
            "'b' is missing there, of toy 2 here; 'c' is of new 3 there, missing here",
        ),
        (ImportError("No module named 'dumpscope'"), "cannot run dumpscope 1.0 (No module named"),
    ],
)
def test_differences_are_put_into_words(there: object, words: str | None) -> None:
    said = say_difference(HERE, there)
    assert said == words if words is None else said is not None and words in said


def test_without_the_library_the_extra_is_named(
    dump: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    ended = run("scan", dump, "--executor", "dask", "--store", tmp_path / "s.db")
    assert ended.status == 2
    assert ended.err == (
        "dumpscope: the executor dask needs a library that is not there: "
        'pip install "dumpscope[dask]"\n'
    )


def test_a_scheduler_needs_the_executor(dump: Path) -> None:
    ended = run("scan", dump, "--scheduler", "tcp://127.0.0.1:1")
    assert ended.status == 2
    assert "--scheduler: only the executor dask has one; add --executor dask" in ended.err
    with pytest.raises(OptionsError, match="add --executor dask"):
        scan(dump, ScanOptions(scheduler="tcp://127.0.0.1:1"))
