"""Scans by the workers of a real dask cluster equal a local one, whoever is lost on the way."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("distributed", reason="distributed is not installed (extra dask)")

from cli_runs import environment, run
from cluster_scenes import (
    HIDING,
    PATIENCE_S,
    Cluster,
    Gate,
    await_true,
    names_of,
    write_dumps,
    write_reader,
)
from dumpscope.cluster import connecting, executor
from dumpscope.store import Store
from dumpscope.version import VERSION

FILES = 60


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_reader(tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, site: Path) -> Iterator[Cluster]:
    opened = Cluster(tmp_path_factory.mktemp("cluster"), site)
    yield opened
    opened.close()


@pytest.fixture
def own_cluster(tmp_path: Path, site: Path) -> Iterator[Cluster]:
    """A cluster that a test may destroy."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    opened = Cluster(folder, site)
    yield opened
    opened.close()


@pytest.fixture(autouse=True)
def _small_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, site: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(site))
    # A few files in each batch, and not hundreds of them.
    monkeypatch.setattr(executor, "MOST_BATCH_BYTES", 2000)


def document_of(out: str) -> dict[str, Any]:
    document = json.loads(out)
    del document["scan_id"]
    assert isinstance(document, dict)
    return document


def scan_here(tree: Path, status: int = 1) -> dict[str, Any]:
    ended = run("scan", tree, "--store", "here.db", "--format", "json", "--limit", "0")
    assert ended.status == status, ended.err
    return document_of(ended.out)


def scan_there(tree: Path, cluster: Cluster, *more: str, status: int = 1) -> dict[str, Any]:
    ended = run(
        *("scan", tree, "--store", "there.db", "--format", "json", "--limit", "0"),
        *("--executor", "dask", "--scheduler", str(cluster.file), *more),
    )
    assert ended.status == status, ended.err
    return document_of(ended.out)


def running_in(session: int) -> list[str]:
    """Processes of a session that have not ended, whether or not somebody waited for them."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, _, of = stat.read_text().rpartition(")")[2].split()[:4]
            if int(of) == session and state not in "ZX":
                found.append(stat.parent.name)
    return found


def at_the_gate(cluster: Cluster, action: Callable[[int], object]) -> threading.Thread:
    """Arm the gate; once a worker is inside, do something, and open it."""
    cluster.gate.arm()

    def watch() -> None:
        action(cluster.gate.await_worker())
        cluster.gate.open()

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


def test_a_worker_that_is_killed_costs_nothing(tmp_path: Path, cluster: Cluster) -> None:
    tree = write_dumps(tmp_path / "tree", FILES, "gate")
    cluster.need_workers(3)
    killed: list[int] = []

    def kill(worker: int) -> None:
        cluster.lose(worker)
        killed.append(worker)

    watch = at_the_gate(cluster, kill)
    document = scan_there(tree, cluster)
    watch.join(PATIENCE_S)
    assert len(killed) == 1
    assert document == scan_here(tree)
    assert document["counts"]["files"] == FILES + 2
    assert [f["op_name"] for f in document["findings"]] == [f"op{i}" for i in range(7, FILES, 10)]
    await_true(lambda: cluster.count_tasks() == 0)


def test_a_file_that_ends_the_process_that_reads_it_is_named(
    tmp_path: Path, cluster: Cluster
) -> None:
    tree = write_dumps(tmp_path / "tree", FILES, "process", "nothing")
    cluster.need_workers(2)
    document = scan_there(tree, cluster)
    here = scan_here(tree)
    (name,) = names_of(tree, "process")
    failures = {failure["file"]: failure for failure in document["read_failures"]}
    failure = failures.pop(name)
    assert failure["error"] == "ChildProcessError"
    assert failure["message"].startswith(
        "ended 2 processes that read it with the reader scene (signal 9, SIGKILL)"
    )
    assert list(failures.values()) == here["read_failures"]
    assert document["findings"] == here["findings"]
    assert not document["complete"]
    assert len(cluster.client.nthreads()) >= 2, "no worker was lost"


def test_a_file_that_ends_every_worker_is_named(tmp_path: Path, cluster: Cluster) -> None:
    tree = write_dumps(tmp_path / "tree", 12, "worker")
    cluster.need_workers(5)
    document = scan_there(tree, cluster)
    here = scan_here(tree)
    (name,) = names_of(tree, "worker")
    failures = {failure["file"]: failure for failure in document["read_failures"]}
    failure = failures.pop(name)
    assert failure["error"] == "ChildProcessError"
    assert failure["message"].startswith("the workers that read it were lost one after the other")
    assert list(failures.values()) == here["read_failures"]
    assert document["findings"] == here["findings"]
    # Twice with its batch, twice alone: as often as this scheduler allows.
    assert len(cluster.client.nthreads()) == 1


@pytest.mark.parametrize(
    ("before", "words"),
    [
        (
            "import dumpscope.version\ndumpscope.version.VERSION = '0.0.0'",
            f"has dumpscope 0.0.0, here it is {VERSION}: install the same version on both",
        ),
        (
            "import sys\nsys.path.pop(1)",
            "has other readers than this program: 'scene' is missing there, "
            "of scene-reader 1.0 here: install the same plugins on both",
        ),
        (
            "import sys\nsys.modules['dumpscope'] = None",
            f"cannot run dumpscope {VERSION}",
        ),
    ],
    ids=["version", "readers", "none"],
)
def test_workers_that_differ_are_told_before_the_scan(
    tmp_path: Path, cluster: Cluster, before: str, words: str
) -> None:
    tree = write_dumps(tmp_path / "tree", 2)
    other = cluster.start_worker(before)
    try:
        ended = run(
            *("scan", tree, "--store", "s.db", "--executor", "dask"),
            *("--scheduler", str(cluster.file)),
        )
    finally:
        cluster.lose(other)
    assert ended.status == 2
    assert ended.err.startswith("dumpscope: the worker tcp://127.0.0.1:")
    assert words in ended.err
    assert ended.err.count("\n") == 1
    with Store.open(Path("s.db"), create=False, write=False) as store:
        assert list(store.scans()) == []


def test_what_a_worker_cannot_see_is_not_clean(tmp_path: Path, own_cluster: Cluster) -> None:
    tree = write_dumps(tmp_path / "tree", 8)
    hiding = tmp_path / "hiding"
    hiding.mkdir()
    (hiding / "sitecustomize.py").write_text(HIDING)
    path = Path(f"{hiding}{os.pathsep}{own_cluster.site}")
    own_cluster.start_worker(site=path, HIDDEN=str(tree))
    document = scan_there(tree, own_cluster, status=3)
    assert document["counts"]["ops"] == 0
    assert not document["complete"]
    assert len(document["read_failures"]) == 9
    (address,) = own_cluster.client.nthreads()
    for failure in document["read_failures"]:
        assert failure["error"] == "FileNotFoundError"
        assert f"({address}): No such file or directory" in failure["message"]
        assert "scan on each of them" in failure["message"]
        assert "`dumpscope scans import`" in failure["message"]
    # The same store, another worker: nothing is taken from the scan before.
    (pid,) = (process.pid for process in own_cluster.processes[1:])
    own_cluster.lose(pid)
    own_cluster.start_worker()
    assert scan_there(tree, own_cluster) == scan_here(tree)


def test_a_lost_scheduler_is_told_and_the_scan_goes_on_later(
    tmp_path: Path, own_cluster: Cluster
) -> None:
    tree = write_dumps(tmp_path / "tree", FILES, "gate")
    own_cluster.start_worker()
    watch = at_the_gate(own_cluster, lambda _: own_cluster.kill_scheduler())
    arguments = ("scan", tree, "--store", "s.db", "--format", "json", "--limit", "0")
    where = ("--executor", "dask", "--scheduler", str(own_cluster.file))
    ended = run(*arguments, *where)
    watch.join(PATIENCE_S)
    assert ended.status == 2
    assert ended.err == (
        f"dumpscope: the connection to the dask scheduler {own_cluster.file} is lost; what was "
        "read so far is kept: start it again and go on with `dumpscope scan --resume` (with "
        "`--executor local` on this machine alone)\n"
    )
    with Store.open(Path("s.db"), create=False, write=False) as store:
        assert [info.state for info in store.scans()] == ["interrupted"]
    resumed = run(
        *("scan", "--store", "s.db", "--format", "json", "--limit", "0"),
        *("--resume", "--executor", "local"),
    )
    assert resumed.status == 1
    assert document_of(resumed.out) == scan_here(tree)


def test_a_scheduler_that_stops_answering_is_told(
    tmp_path: Path, own_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "ANSWER_S", 1.0)
    monkeypatch.setattr(executor, "LOOK_EVERY_S", 0.5)
    tree = write_dumps(tmp_path / "tree", 6, "gate")
    own_cluster.start_worker()
    watch = at_the_gate(own_cluster, lambda _: own_cluster.stop_scheduler())
    where = ("--executor", "dask", "--scheduler", str(own_cluster.file))
    try:
        ended = run("scan", tree, "--store", "s.db", *where)
    finally:
        own_cluster.stop_scheduler(signal.SIGCONT)
        watch.join(PATIENCE_S)
    assert ended.status == 2
    assert ended.err.startswith("dumpscope: the connection to the dask scheduler ")
    assert ended.err.count("\n") == 1


def test_nothing_of_the_library_is_logged_while_a_cluster_is_used(cluster: Cluster) -> None:
    client = logging.getLogger("distributed.client")
    before = client.level
    client.setLevel(logging.WARNING)  # as its configuration does
    try:
        connection = connecting.Connection(str(cluster.file), 1)
        assert not client.isEnabledFor(logging.ERROR)
        assert not logging.getLogger("distributed.core").isEnabledFor(logging.ERROR)
        connection.close()
        assert client.level == logging.WARNING
    finally:
        client.setLevel(before)


def test_an_interrupt_leaves_the_cluster_alone(tmp_path: Path, cluster: Cluster) -> None:
    tree = write_dumps(tmp_path / "tree", 6, "gate")
    cluster.need_workers(1)
    cluster.gate.arm()
    with subprocess.Popen(
        [
            *(sys.executable, "-m", "dumpscope", "scan", str(tree), "--store", "s.db"),
            *("--executor", "dask", "--scheduler", str(cluster.file)),
        ],
        env=environment(PYTHONPATH=os.pathsep.join([str(cluster.site), *sys.path])),
        stderr=subprocess.PIPE,
        text=True,
    ) as scan:
        try:
            cluster.gate.await_worker()
            scan.send_signal(signal.SIGINT)
            _, said = scan.communicate(timeout=PATIENCE_S)
        finally:
            scan.kill()  # else a failure would wait for it
    workers = len(cluster.client.nthreads())
    cluster.gate.open()
    assert scan.returncode == 130, said
    assert "interrupted; what was read so far is kept" in said
    assert "Traceback" not in said
    assert workers >= 1
    await_true(lambda: cluster.count_tasks() == 0)


def test_without_an_address_there_is_a_cluster_on_this_machine(tmp_path: Path) -> None:
    tree = write_dumps(tmp_path / "tree", 20)
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "dumpscope", "scan", str(tree), "--store", "s.db"),
            *("--executor", "dask", "--jobs", "2", "--format", "json", "--limit", "0"),
        ],
        env=environment(PYTHONPATH=os.pathsep.join(sys.path)),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert ended.returncode == 1, ended.stderr
    assert ended.stderr == ""
    assert document_of(ended.stdout) == scan_here(tree)


def test_an_interrupt_of_the_terminal_ends_a_cluster_on_this_machine(
    tmp_path: Path, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = write_dumps(tmp_path / "tree", 6, "gate")
    scenes = tmp_path / "scenes"
    scenes.mkdir()
    gate = Gate(scenes)
    gate.arm()
    with subprocess.Popen(
        [
            *(sys.executable, "-m", "dumpscope", "scan", str(tree), "--store", "s.db"),
            *("--executor", "dask", "--jobs", "2"),
        ],
        env=environment(PYTHONPATH=os.pathsep.join([str(site), *sys.path]), SCENES=str(scenes)),
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as scan:
        try:
            gate.await_worker()
            os.killpg(scan.pid, signal.SIGINT)  # as a terminal sends it: to the workers too
            _, said = scan.communicate(timeout=PATIENCE_S)
        finally:
            scan.kill()
    gate.close()
    assert scan.returncode == 130, said
    assert said.strip().startswith("dumpscope: interrupted; what was read so far is kept")
    assert len(said.strip().splitlines()) == 1
    await_true(lambda: not running_in(scan.pid))


def test_a_scheduler_without_workers_is_told(
    tmp_path: Path, own_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "FIRST_WORKER_S", 0.0)
    tree = write_dumps(tmp_path / "tree", 1)
    ended = run(
        *("scan", tree, "--store", "s.db", "--executor", "dask"),
        *("--scheduler", str(own_cluster.file)),
    )
    assert ended.status == 2
    assert "has had no worker for 0 s: start some (dask worker ADDRESS)" in ended.err


def test_a_scheduler_that_does_not_answer_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "CONNECT_S", 0.5)
    tree = write_dumps(tmp_path / "tree", 1)
    where = ("--executor", "dask", "--scheduler", "tcp://127.0.0.1:1")
    ended = run("scan", tree, "--store", "s.db", *where)
    assert ended.status == 2
    assert ended.err.startswith(
        "dumpscope: the dask scheduler tcp://127.0.0.1:1 cannot be reached ("
    )
    assert ended.err.count("\n") == 1


def test_a_scheduler_that_takes_the_call_and_says_nothing_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "CONNECT_S", 0.5)
    monkeypatch.setattr(connecting, "_LONGEST_GREETING_S", 0.5)
    tree = write_dumps(tmp_path / "tree", 1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        ended = run("scan", tree, "--store", "s.db", "--executor", "dask", "--scheduler", address)
    assert ended.status == 2
    assert ended.err.startswith(f"dumpscope: the dask scheduler {address} cannot be reached (")
    assert ended.err.count("\n") == 1
