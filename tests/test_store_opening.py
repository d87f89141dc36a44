"""Opening a store: where it lies, how it is journalled, and a sentence for all that is wrong."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from dumpscope.errors import StoreError
from dumpscope.model import DumpFile, FileResult, OpRecord, Remark, ScanOptions, TensorSummary
from dumpscope.store import Store, default_store_path, existing_store_path
from dumpscope.store.opening import is_network_path
from file_modes import run_bound

ROOT = Path(__file__).resolve().parent.parent


def fill(store: Store, files: int = 3) -> str:
    """Put a scan of some files into a store."""
    scan_id = store.begin("/dump", ["/dump"], ScanOptions(), None, "1.0")
    summary = TensorSummary("output", 0, "float16", "ND", (2,))
    for i in range(files):
        file = DumpFile(f"/dump/{i}", f"{i}", f"{i}", 1, 2, 3, 4)
        store.add(scan_id, [FileResult(file, ops=(OpRecord("Add", f"{i}", (summary,)),))], "s")
    return scan_id


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with one scan in it."""
    name = tmp_path / "scans.db"
    with Store.open(name) as store:
        fill(store)
    return name


def op_names(path: Path, **how: Any) -> list[str]:
    with Store.open(path, **how) as store:
        latest = store.latest()
        assert latest is not None
        return [op.op_name for op in store.ops(latest.scan_id)]


# --- journals ---------------------------------------------------------------------------------


def test_local_stores_have_a_log_beside_them_that_is_gone_when_they_are_closed(
    tmp_path: Path,
) -> None:
    name = tmp_path / "made" / "for" / "it" / "scans.db"
    with Store.open(name) as store:
        fill(store)
        assert store.journal == "wal"
        assert sorted(os.listdir(name.parent)) == ["scans.db", "scans.db-shm", "scans.db-wal"]
    assert os.listdir(name.parent) == ["scans.db"]
    assert op_names(name) == ["0", "1", "2"]


def test_a_file_system_without_shared_memory_gets_a_rollback_journal(tmp_path: Path) -> None:
    name = tmp_path / "scans.db"
    # This layer of SQLite locks with a folder and has no shared memory, as some networks.
    with Store.open(name, vfs="unix-dotfile") as store:
        fill(store)
        assert store.journal == "delete"
        assert not os.path.exists(f"{name}-wal")
    assert op_names(name, vfs="unix-dotfile") == ["0", "1", "2"]


def test_a_network_file_system_gets_a_rollback_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dumpscope.store.opening.is_network_path", lambda _: True)
    with Store.open(tmp_path / "scans.db") as store:
        fill(store)
        assert store.journal == "delete"
    assert op_names(tmp_path / "scans.db") == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("place", "network"),
    [
        ("/", False),
        ("/home/me/x.db", True),
        ("/homework/x.db", False),
        ("/home/local/x.db", False),
        ("/mnt/two words/x.db", True),
        ("/scratch/x.db", True),
        ("/scratch/remote/x.db", True),
        ("/tmp/x.db", False),
    ],
)
def test_network_file_systems_are_known_by_the_table_of_mounts(
    tmp_path: Path, place: str, network: bool
) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "overlay / overlay rw 0 0\n"
        "server:/home /home nfs4 rw 0 0\n"
        "/dev/sdb /home/local xfs rw 0 0\n"
        "//server/share /mnt/two\\040words cifs rw 0 0\n"
        "tmpfs /tmp tmpfs rw 0 0\n"
        "10.0.0.1@tcp:/lustre /scratch lustre rw 0 0\n"
        "sshfs#me@host: /scratch/remote fuse.sshfs rw 0 0\n"
        "nonsense\n"
    )
    assert is_network_path(place, str(mounts)) is network
    assert not is_network_path(place, str(tmp_path / "not there"))


# --- what can be wrong ------------------------------------------------------------------------


@contextmanager
def refused(text: str, **how: Any) -> Iterator[None]:
    with pytest.raises(StoreError, match=text) as caught:
        yield
    assert "\n" not in str(caught.value)


def test_a_store_that_is_not_there_is_made_only_when_asked(tmp_path: Path) -> None:
    name = tmp_path / "scans.db"
    for create, write in ((False, True), (True, False)):
        with refused("scans.db: there is no store here; `dumpscope scan PATH` makes one"):
            Store.open(name, create=create, write=write)
    assert os.listdir(tmp_path) == []


def test_a_folder_or_a_path_below_a_file_is_no_place_for_a_store(tmp_path: Path) -> None:
    with refused("expected a store file, found a folder"):
        Store.open(tmp_path)
    (tmp_path / "file").touch()
    with refused("its folder cannot be made"):
        Store.open(tmp_path / "file" / "scans.db")


@pytest.mark.parametrize("write", [True, False])
def test_files_of_other_kinds_are_left_alone(tmp_path: Path, write: bool) -> None:
    text = tmp_path / "text"
    text.write_bytes(b"no store, but many bytes\n" * 400)
    with refused(r"text: the file is not a store \(no SQLite file\)"):
        Store.open(text, write=write)
    other = tmp_path / "other"
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE of_another_program(x)")
    before = other.read_bytes()
    with refused("SQLite file of another program"):
        Store.open(other, write=write)
    assert other.read_bytes() == before
    assert text.read_bytes() == b"no store, but many bytes\n" * 400


def test_an_empty_file_becomes_a_store_when_it_is_written(tmp_path: Path) -> None:
    name = tmp_path / "scans.db"
    name.touch()
    with refused("the store is empty; `dumpscope scan PATH` fills it"):
        Store.open(name, write=False)
    with Store.open(name) as store:
        fill(store)
    assert op_names(name, write=False) == ["0", "1", "2"]


@pytest.mark.parametrize("write", [True, False])
def test_a_store_of_a_newer_version_is_left_alone(path: Path, write: bool) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 999")
    before = path.read_bytes()
    with refused("expected a store of version 2 or older, found 999; a newer dumpscope wrote it"):
        Store.open(path, write=write)
    assert path.read_bytes() == before


def test_a_locked_store_is_waited_for_and_then_named(path: Path) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with Store.open(path, busy_s=0.05) as store:
            # Readers go on beside a writer.
            assert len(store.scans()) == 1
            with refused("the store is locked by another process"):
                fill(store)
        other.execute("ROLLBACK")
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA journal_mode = DELETE")
        other.execute("BEGIN EXCLUSIVE")
        with refused("the store is locked by another process"):
            Store.open(path, busy_s=0.05)


def test_a_store_opened_for_reading_is_not_written(path: Path) -> None:
    before = path.read_bytes()
    with Store.open(path, write=False) as store:
        assert store.journal == "off"
        assert op_names(path, write=False) == ["0", "1", "2"]
        with refused("the store is read-only; choose another place with --store FILE"):
            fill(store)
    assert path.read_bytes() == before


def test_a_store_on_media_that_cannot_be_written_is_read(path: Path) -> None:
    # Without shared memory the log of WAL cannot be opened: the same as on a read-only disk.
    assert op_names(path, write=False, vfs="unix-dotfile") == ["0", "1", "2"]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with refused("the store cannot be opened"):
            run_bound(lambda: Store.open(tmp_path / "scans.db"))
    finally:
        tmp_path.chmod(0o700)


def test_whatever_is_damaged_ends_in_one_sentence(path: Path) -> None:
    with Store.open(path) as store:
        fill(store, files=60)
    whole = path.read_bytes()
    sentences = []
    for start in range(100, len(whole), 1511):
        path.write_bytes(whole[:start] + b"\xff" * 600 + whole[start + 600 :])
        try:
            with Store.open(path, write=False) as store:
                for info in store.scans():
                    list(store.ops(info.scan_id))
        except StoreError as error:
            sentences.append(str(error))
    # SQLite has no checksums: what is changed inside of values is not noticed.
    assert len(sentences) > 3
    assert all("damaged" in text or "not a store" in text for text in sentences)
    path.write_bytes(whole[: len(whole) // 2])
    with refused("the store is damaged; move it away and scan again"), Store.open(path) as store:
        list(store.ops(store.scans()[0].scan_id))


def test_missing_rows_and_nonsense_in_them_are_damage(path: Path) -> None:
    for statement in (
        "DELETE FROM kinds",
        "DELETE FROM places",
        "UPDATE ops SET tensors = x'01'",
        "UPDATE ops SET tensors = x'77'",
        "UPDATE ops SET rest = x'ff'",
        "UPDATE kinds SET content = '[1, 2]'",
        "ALTER TABLE ops RENAME TO other",
    ):
        copy = path.with_name("copy.db")
        shutil.copy(path, copy)
        with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
            connection.execute(statement)
        with Store.open(copy) as store, refused("the store is damaged"):
            pytest.fail(f"{statement}: {list(store.ops(store.scans()[0].scan_id))}")


FULL_DISK = """
import resource, sys
sys.path[:0] = [{root!r}, {tests!r}]
import signal
from test_store_opening import Store, StoreError, fill
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = Store.open(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (120_000, resource.RLIM_INFINITY))
try:
    fill(store, files=5000)
except StoreError as error:
    print(error)
"""


def test_a_full_disk_is_named_and_what_was_committed_stays(path: Path) -> None:
    code = FULL_DISK.format(root=str(ROOT), tests=str(ROOT / "tests"))
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stderr == ""
    assert "the disk is full" in done.stdout
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    with Store.open(path) as store:
        newest, oldest = store.scans()
        assert 0 < newest.files < 5000
        assert [op.op_name for op in store.ops(oldest.scan_id)] == ["0", "1", "2"]
        fill(store)


def test_two_processes_may_make_the_same_store(tmp_path: Path) -> None:
    code = (
        f"import sys; sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / 'tests')!r}]\n"
        "from test_store_opening import Store, fill\nsys.stdin.readline()\n"
        "with Store.open(sys.argv[1]) as store: fill(store)"
    )
    name = str(tmp_path / "scans.db")
    processes = [
        subprocess.Popen([sys.executable, "-c", code, name], stdin=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in processes:
        process.communicate(timeout=60)
        assert process.returncode == 0
    with Store.open(name) as store:
        assert [info.files for info in store.scans()] == [3, 3, 3]


# --- places -----------------------------------------------------------------------------------


@pytest.fixture
def away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The store below the state folder, seen from a current folder `work`."""
    (tmp_path / "work" / "dump").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return str(tmp_path / "state" / "dumpscope" / "scans.db")


@pytest.mark.usefixtures("away")
def test_the_usual_place_is_a_hidden_folder_here() -> None:
    assert default_store_path(["dump", "/elsewhere"]) == (".dumpscope/scans.db", None)
    assert existing_store_path() == ".dumpscope/scans.db"


@pytest.mark.usefixtures("away")
def test_the_option_goes_before_the_variable_before_the_usual_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DUMPSCOPE_STORE", "/from/variable.db")
    assert default_store_path(["."]) == ("/from/variable.db", None)
    assert default_store_path(["."], store="option.db") == ("option.db", None)
    assert existing_store_path() == "/from/variable.db"
    assert existing_store_path(store="option.db") == "option.db"


@pytest.mark.parametrize("root", [".", "..", "/", "../work/", "link"])
def test_nothing_is_written_into_what_is_scanned(away: str, root: str) -> None:
    os.symlink("..", "link")
    path, said = default_store_path(["dump", root])
    assert path == away
    assert said == Remark("store_beside_scanned", {"path": away})


def test_a_folder_with_the_beginning_of_the_name_is_not_inside(tmp_path: Path, away: str) -> None:
    (tmp_path / "wor").mkdir()
    assert default_store_path([str(tmp_path / "wor")])[0] != away


def test_where_nothing_can_be_written_it_goes_to_the_state_folder(
    away: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    path, said = default_store_path(["dump"])
    assert path == away
    assert said == Remark("store_beside_readonly", {"path": away})


def test_without_a_state_variable_it_is_below_the_home_folder(
    tmp_path: Path, away: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for value in ("", "relative"):
        monkeypatch.setenv("XDG_STATE_HOME", value)
        path, _ = default_store_path(["."])
        assert path == str(tmp_path / "home" / ".local" / "state" / "dumpscope" / "scans.db")
        assert path != away


@pytest.mark.usefixtures("away")
def test_a_user_without_a_home_folder_is_asked_for_a_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def know_nobody(_: int) -> None:
        raise KeyError("uid not found")

    monkeypatch.setattr("pwd.getpwuid", know_nobody)
    monkeypatch.delenv("XDG_STATE_HOME")
    for home in ("", None):
        if home is None:
            monkeypatch.delenv("HOME")
        else:
            monkeypatch.setenv("HOME", home)
        with pytest.raises(StoreError, match=r"no home folder .* \(--store FILE\)"):
            default_store_path(["."])
        assert default_store_path(["dump"]) == (".dumpscope/scans.db", None)
        assert existing_store_path() == ".dumpscope/scans.db"
    assert os.listdir() == ["dump"]


def test_a_command_that_only_reads_finds_the_store_that_was_put_away(away: str) -> None:
    with Store.open(away):
        pass
    assert existing_store_path() == away
    with Store.open(".dumpscope/scans.db"):
        pass
    assert existing_store_path() == ".dumpscope/scans.db"
