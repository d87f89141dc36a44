"""Walking real folders, with everything in them that a night of training leaves behind."""

from __future__ import annotations

import errno
import os
import socket
import stat
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dumpscope import kernel
from dumpscope.errors import OptionsError
from dumpscope.folders import list_entries
from dumpscope.model import DumpFile, Place, Portion, ReadFailure
from dumpscope.walk import MAX_DEPTH, Walk, resolve_roots, walk
from file_modes import run_bound

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TIME = "20251129120000"
US = 1764417600000857
HEX = "0123456789abcdef0123456789abcdef"


LISTINGS = {"scandir": None} | ({"kernel": kernel.list_folder} if kernel.list_folder else {})


@pytest.fixture(autouse=True, params=list(LISTINGS.values()), ids=list(LISTINGS))
def _listing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """List folders with and, where it is there, without the kernel: all must be the same."""
    monkeypatch.setattr(kernel, "list_folder", request.param)


def write(path: Path, content: bytes = b"x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def found(walker: Walk) -> tuple[dict[str, DumpFile], dict[str, ReadFailure]]:
    files: dict[str, DumpFile] = {}
    failures: dict[str, ReadFailure] = {}
    for item in walker:
        if isinstance(item, DumpFile):
            assert item.relative not in files
            files[item.relative] = item
        else:
            failures[item.file] = item
    return files, failures


def names(root: Path, **options: Any) -> set[str]:
    files, failures = found(walk([root], **options))
    assert not failures
    return set(files)


# --- what is yielded ----------------------------------------------------------------------------


def test_a_file_is_described_as_it_is(tmp_path: Path) -> None:
    path = write(tmp_path / TIME / "3" / "net" / "1" / "7" / f"Add.n.1.2.{US}", b"12345")
    os.utime(path, ns=(1, 1_764_417_600_123_456_789))
    status = path.stat()
    walker = walk([tmp_path])
    (file,) = list(walker)
    assert isinstance(file, DumpFile)
    assert file.path == str(path)
    assert file.relative == f"{TIME}/3/net/1/7/Add.n.1.2.{US}"
    assert file.name == f"Add.n.1.2.{US}"
    assert file.size == 5
    assert file.mtime_ns == 1_764_417_600_123_456_789
    assert file.ctime_ns == status.st_ctime_ns
    assert file.inode == status.st_ino
    assert file.place == Place(run=TIME, device_id=3, model_name="net", model_id=1, step=7)
    assert walker.root == str(tmp_path)
    assert (walker.files, walker.bytes, walker.folders) == (1, 5, 6)
    assert walker.finished


def test_portions_hold_the_files_that_single_ones_are(tmp_path: Path) -> None:
    """Many names of all kinds: more than fit into one block of the system."""
    expected = {}
    for number in range(1500):
        folder = f"sub{number % 3}" if number % 2 else "top"
        name = f"{number}_" + "\udcff\nü\u2028"[: number % 5] * (number % 20)
        path = write(tmp_path / folder / name, b"x" * (number % 7))
        os.utime(path, ns=(1, number * 1_000_000_007 - 300_000_000_000))
        expected[f"{folder}/{name}"] = path.stat()
    os.symlink("nowhere", tmp_path / "top/link")
    os.mkfifo(tmp_path / "top/fifo")
    walker = walk([tmp_path])
    found = {}
    for item in walker.portions():
        assert isinstance(item, Portion)
        for file in item.files():
            found[file.relative] = file
    assert found.keys() == expected.keys()
    for relative, file in found.items():
        status = expected[relative]
        assert (file.size, file.mtime_ns) == (status.st_size, status.st_mtime_ns)
        assert (file.ctime_ns, file.inode) == (status.st_ctime_ns, status.st_ino)
        assert file.path == str(tmp_path / relative)
    assert walker.files == 1500
    assert walker.bytes == sum(number % 7 for number in range(1500))
    assert walker.skipped == {"link_dangling": 1, "fifo": 1}
    single = list(walk([tmp_path]))
    assert len(single) == 1500
    assert {file.relative: file for file in single if isinstance(file, DumpFile)} == found


@pytest.mark.parametrize("seconds", [-(1 << 31), (1 << 34) - 5, 9_300_000_000])
def test_times_that_64_bits_do_not_hold_are_told_as_they_are(tmp_path: Path, seconds: int) -> None:
    path = write(tmp_path / "file")
    os.utime(path, (1, seconds))
    (file,) = walk([tmp_path])
    assert isinstance(file, DumpFile)
    assert file.mtime_ns == path.stat().st_mtime_ns  # as far as the file system keeps it


def test_a_folder_that_is_removed_while_it_is_listed_is_empty(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    write(tmp_path / "file")
    walker = walk([tmp_path])
    stream = walker.portions()
    next(stream)
    (tmp_path / "sub").rmdir()
    (failure,) = stream
    assert isinstance(failure, ReadFailure)
    assert failure.error == "FileNotFoundError"
    folder = tmp_path / "gone"
    folder.mkdir()
    descriptor = os.open(folder, os.O_RDONLY)
    folder.rmdir()
    assert all(not any(entries) for entries in list_entries(descriptor))
    os.close(descriptor)
    with pytest.raises(OSError, match="Bad file descriptor"):
        list(list_entries(descriptor))


def test_totals_grow_while_walking(tmp_path: Path) -> None:
    for index in range(5):
        write(tmp_path / f"f{index}", b"1234")
    walker = walk([tmp_path])
    totals = [(walker.files, walker.bytes, walker.finished)]
    totals += [(walker.files, walker.bytes, walker.finished) for _ in walker]
    totals.append((walker.files, walker.bytes, walker.finished))
    assert totals == [
        (0, 0, False), (1, 4, False), (2, 8, False), (3, 12, False), (4, 16, False),
        (5, 20, False), (5, 20, True),
    ]  # fmt: skip
    assert list(walker) == []


def test_one_place_object_for_a_folder(tmp_path: Path) -> None:
    write(tmp_path / "step1" / "a")
    write(tmp_path / "step1" / "b")
    first, second = walk([tmp_path])
    assert isinstance(first, DumpFile)
    assert isinstance(second, DumpFile)
    assert first.place is second.place


def test_hidden_files_and_folders_are_offered_but_not_our_own_store(tmp_path: Path) -> None:
    write(tmp_path / ".hidden")
    write(tmp_path / ".dump_metadata" / "version")
    write(tmp_path / ".dumpscope" / "scans.db")
    write(tmp_path / "a" / ".dumpscope" / "scans.db")
    assert names(tmp_path) == {".hidden", ".dump_metadata/version"}


def test_three_thousand_files_and_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    expected = set()
    for index in range(3000):
        name = f"Add.n{index}.1.2.{US + index}"
        write(tmp_path / name, b"")
        expected.add(name)
    assert names(tmp_path) == expected


def test_folders_come_in_order(tmp_path: Path) -> None:
    for name in ("b", "a/z", "a", "c", "a/b"):
        write(tmp_path / name / "file")
    order = [file.relative for file in walk([tmp_path]) if isinstance(file, DumpFile)]
    assert order == ["a/file", "a/b/file", "a/z/file", "b/file", "c/file"]


@pytest.mark.parametrize(
    "name",
    [
        b"line\nbreak",
        b"\x1b[31mred",
        b"=cmd|'calc'!A0",
        "名字".encode(),
        b"\xff\xfe not utf-8",
        b"-rf",
        b" ",
        b"\\",
        b"n" * 255,
    ],
)
def test_any_name_survives(tmp_path: Path, name: bytes) -> None:
    path = os.path.join(os.fsencode(tmp_path), name)
    Path(os.fsdecode(path)).write_bytes(b"content")
    (file,) = list(walk([tmp_path]))
    assert isinstance(file, DumpFile)
    assert os.fsencode(file.path) == path
    assert os.fsencode(file.relative) == os.fsencode(file.name) == name
    assert Path(file.path).read_bytes() == b"content"


def test_nothing_is_changed(tmp_path: Path) -> None:
    write(tmp_path / "a" / f"Add.n.1.2.{US}")
    write(tmp_path / "a" / "mapping.csv", b"1,x\n")
    (tmp_path / "a" / "link").symlink_to("mapping.csv")

    def snapshot() -> dict[str, tuple[int, int, int, int]]:
        return {
            str(path): (s.st_mode, s.st_size, s.st_mtime_ns, s.st_ctime_ns)
            for path in [tmp_path, *tmp_path.rglob("*")]
            for s in [path.lstat()]
        }

    before = snapshot()
    list(walk([tmp_path]))
    assert snapshot() == before


def test_stopping_early_closes_the_folders(tmp_path: Path) -> None:
    write(tmp_path / "a" / "b" / "c" / "file1")
    write(tmp_path / "a" / "b" / "c" / "file2")
    before = len(os.listdir("/proc/self/fd"))
    walker = walk([tmp_path])
    next(walker)
    assert len(os.listdir("/proc/self/fd")) > before
    walker.close()
    assert len(os.listdir("/proc/self/fd")) == before


# --- what is skipped ----------------------------------------------------------------------------


def test_pipes_sockets_and_devices_are_skipped_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "dump" / "file")
    os.mkfifo(tmp_path / "dump" / f"Add.n.1.2.{US}")
    os.mkfifo(tmp_path / "dump" / "mapping.csv")
    monkeypatch.chdir(tmp_path)  # socket addresses are short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("dump/sock")
        walker = walk(["dump"])
        files, failures = run_bounded(lambda: found(walker))
    assert set(files) == {"file"}
    assert not failures
    assert walker.skipped == {"fifo": 2, "socket": 1}


def run_bounded(function: Callable[[], Any]) -> Any:
    """Run something that would hang if it opened a fifo the wrong way."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(function()), daemon=True)
    thread.start()
    thread.join(30)
    assert results, "hangs"
    return results[0]


def make_device(folder: Path) -> str:
    """A folder with a device in it; where none can be made, a device by itself."""
    try:
        os.mknod(folder / "null", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    except OSError:
        return "/dev/null"
    return str(folder)


def test_devices_are_counted(tmp_path: Path) -> None:
    walker = walk([make_device(tmp_path)])
    assert list(walker) == []
    assert walker.skipped == {"device": 1}


def test_links_are_never_followed(tmp_path: Path) -> None:
    outside = write(tmp_path / "outside" / f"Add.out.1.2.{US}")
    root = tmp_path / "dump"
    inside = write(root / "a" / f"Add.in.1.2.{US}")
    (root / "link_to_file").symlink_to(inside)
    (root / "link_to_folder").symlink_to("a")
    (root / "link_out").symlink_to(outside)
    (root / "link_out_folder").symlink_to(outside.parent)
    (root / "link_root").symlink_to("/")
    (root / "a" / "up").symlink_to("..")
    (root / "a" / "self").symlink_to("self")
    (root / "a" / "one").symlink_to("two")
    (root / "a" / "two").symlink_to("one")
    (root / "note").symlink_to("nowhere")
    walker = walk([root])
    files, failures = found(walker)
    assert set(files) == {f"a/Add.in.1.2.{US}"}
    assert not failures
    assert walker.skipped == {
        "link_inside": 2,
        "link_outside": 2,
        # up to the folder itself or one above it, and links that lead to themselves
        "link_circle": 5,
        "link_dangling": 1,
    }
    assert walker.skipped_links == 10


def test_a_folder_beside_the_root_with_the_same_beginning_is_outside(tmp_path: Path) -> None:
    write(tmp_path / "dump_old" / "file")
    (tmp_path / "dump").mkdir()
    (tmp_path / "dump" / "link").symlink_to(tmp_path / "dump_old" / "file")
    walker = walk([tmp_path / "dump"])
    assert list(walker) == []
    assert walker.skipped == {"link_outside": 1}


def test_a_link_into_another_root_is_inside(tmp_path: Path) -> None:
    write(tmp_path / "b" / "file")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "link").symlink_to("../b/file")
    walker = walk([tmp_path / "a", tmp_path / "b"])
    files, _ = found(walker)
    assert set(files) == {"b/file"}
    assert walker.skipped == {"link_inside": 1}


@pytest.mark.parametrize(
    "name",
    [f"Add.n.1.2.{US}", "dump.json", "statistic.csv", "x.npy", "x.pt", "1234"],
)
def test_a_dangling_link_with_a_dumps_name_is_a_failure(tmp_path: Path, name: str) -> None:
    write(tmp_path / "mapping.csv", f"1234,Add.real.1.2.{US}\n".encode())
    (tmp_path / "sub").mkdir()
    (tmp_path / name).symlink_to("sub/gone")
    walker = walk([tmp_path])
    files, failures = found(walker)
    assert not files
    assert set(failures) == {name}
    assert failures[name].error == "FileNotFoundError"
    assert failures[name].reader == "walk"
    assert failures[name].message == (
        "the link leads to a file that cannot be reached: No such file or directory"
    )
    assert not walker.skipped


# --- what cannot be read ------------------------------------------------------------------------


def test_a_folder_that_may_not_be_read_is_a_failure(
    tmp_path: Path,
) -> None:
    write(tmp_path / "a" / "file")
    closed = write(tmp_path / "b" / "file").parent
    write(tmp_path / "c" / "file")
    closed.chmod(0)
    try:
        walker = walk([tmp_path])
        files, failures = run_bound(lambda: found(walker))
    finally:
        closed.chmod(0o755)
    assert set(files) == {"a/file", "c/file"}
    assert failures == {
        "b": ReadFailure(
            "b", "walk", "PermissionError", None, "the folder cannot be opened: Permission denied"
        )
    }
    assert walker.finished


def deny_opening(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    real = os.open

    def fake(path: Any, flags: int, *rest: Any, **options: Any) -> int:
        if path == name:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)
        return real(path, flags, *rest, **options)

    monkeypatch.setattr(os, "open", fake)


def test_a_root_that_may_not_be_read_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deny_opening(monkeypatch, os.path.realpath(tmp_path))
    files, failures = found(walk([tmp_path]))
    assert not files
    assert set(failures) == {"."}
    assert failures["."].error == "PermissionError"


def test_a_folder_that_vanishes_before_it_is_read(tmp_path: Path) -> None:
    write(tmp_path / "file")
    gone = tmp_path / "gone"
    gone.mkdir()
    walker = walk([tmp_path])
    first = next(walker)
    assert isinstance(first, DumpFile)
    gone.rmdir()
    (failure,) = list(walker)
    assert isinstance(failure, ReadFailure)
    assert (failure.file, failure.error) == ("gone", "FileNotFoundError")


def test_a_folder_that_becomes_a_link_is_not_followed(tmp_path: Path) -> None:
    write(tmp_path / "secret" / "file")
    root = tmp_path / "dump"
    write(root / "file")
    (root / "sub").mkdir()
    walker = walk([root])
    next(walker)
    (root / "sub").rmdir()
    (root / "sub").symlink_to("../secret")
    (failure,) = list(walker)
    assert isinstance(failure, ReadFailure)
    assert (failure.file, failure.error) == ("sub", "NotADirectoryError")


class FakeEntry:
    """A file that is gone when its status is asked for, or a folder entry without a type."""

    def __init__(self, real: os.DirEntry[str], fault: OSError) -> None:
        self.name = real.name
        self._fault = fault

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        assert not follow_symlinks
        return False

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        assert not follow_symlinks
        raise self._fault


def fake_listing(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[os.DirEntry[str]], Any]
) -> None:
    monkeypatch.setattr(kernel, "list_folder", None)
    real = os.scandir

    class Listing:
        def __init__(self, folder: int) -> None:
            self._entries = real(folder)

        def __enter__(self) -> Listing:
            return self

        def __exit__(self, *_: object) -> None:
            self._entries.close()

        def __iter__(self) -> Iterator[Any]:
            return map(change, self._entries)

    monkeypatch.setattr(os, "scandir", Listing)


def test_a_file_that_vanishes_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b", "c"):
        write(tmp_path / "sub" / name)
    fault = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))

    def change(entry: os.DirEntry[str]) -> Any:
        if entry.name != "b":
            return entry
        (tmp_path / "sub/b").unlink()
        return FakeEntry(entry, fault)

    fake_listing(monkeypatch, change)
    files, failures = found(walk([tmp_path]))
    assert set(files) == {"sub/a", "sub/c"}
    assert failures == {
        "sub/b": ReadFailure(
            "sub/b",
            "walk",
            "FileNotFoundError",
            None,
            "its status cannot be read: No such file or directory",
        )
    }


def test_a_listing_that_breaks_off_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "a" / "file")
    write(tmp_path / "b" / "file")

    def change(entry: os.DirEntry[str]) -> Any:
        if Path(entry.path).name == "file" and entry.inode() == broken:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return entry

    broken = (tmp_path / "a" / "file").stat().st_ino
    fake_listing(monkeypatch, change)
    files, failures = found(walk([tmp_path]))
    assert set(files) == {"b/file"}
    assert failures["a"].message == "the folder cannot be listed: Input/output error"


def test_folders_are_read_as_deep_as_the_limit_and_one_failure_names_the_next(
    tmp_path: Path,
) -> None:
    folder = tmp_path
    for level in range(1, 71):
        folder /= f"{level}"
        folder.mkdir()
        write(folder / "file")
    files, failures = found(walk([tmp_path]))
    deepest = "/".join(str(level) for level in range(1, MAX_DEPTH + 1))
    assert MAX_DEPTH == 64
    assert len(files) == 64
    assert f"{deepest}/file" in files
    assert set(failures) == {f"{deepest}/65"}
    assert failures[f"{deepest}/65"].message == (
        "expected at most 64 levels of folders, found more: name this folder as a path of its own"
    )


def test_a_path_longer_than_the_system_opens_is_walked(tmp_path: Path) -> None:
    # 20 folders with names of 240 bytes: more than PATH_MAX, so only step by step.
    descriptor = os.open(tmp_path, os.O_RDONLY)
    try:
        for _ in range(20):
            os.mkdir("d" * 240, dir_fd=descriptor)
            deeper = os.open("d" * 240, os.O_RDONLY, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = deeper
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=descriptor))
        files, failures = found(walk([tmp_path]))
        os.unlink("file", dir_fd=descriptor)
    finally:
        os.close(descriptor)
    assert set(files) == {"/".join(["d" * 240] * 20) + "/file"}
    assert not failures


# --- mapping.csv --------------------------------------------------------------------------------


def test_hashed_names_get_their_real_ones_and_the_mapping_is_not_offered(tmp_path: Path) -> None:
    write(
        tmp_path / "mapping.csv",
        f"13656470301440836468,Add.long.1.2.{US}.csv\n{HEX},Mul.x.1.2.{US}.input.0.npy\r\n"
        f"13656470301440836468,Add.long.1.2.{US}.csv\n77,Sub".encode()
        + b"\xff\n",
    )
    for name in ("13656470301440836468", f"{HEX}.npy", "77", "99", f"Add.n.1.2.{US}"):
        write(tmp_path / name)
    write(tmp_path / "sub" / "77")
    files, failures = found(walk([tmp_path]))
    assert not failures
    assert {relative: file.name for relative, file in files.items()} == {
        "13656470301440836468": f"Add.long.1.2.{US}.csv",
        f"{HEX}.npy": f"Mul.x.1.2.{US}.input.0.npy",
        "77": "Sub\udcff",
        "99": "99",
        f"Add.n.1.2.{US}": f"Add.n.1.2.{US}",
        "sub/77": "77",  # a mapping is of its own folder
    }


def test_a_mapping_with_lines_of_any_length(tmp_path: Path) -> None:
    long_row = b"11," + b"x" * 5000 + b"\n"
    absurd = b"12," + b"y" * 20_000 + b",13,z\n"
    write(tmp_path / "mapping.csv", absurd + long_row + b"14,Add.a\n15,Add.b")
    for name in ("11", "12", "13", "14", "15"):
        write(tmp_path / name)
    files, _ = found(walk([tmp_path]))
    assert {r: f.name for r, f in files.items()} == {
        "11": "11",
        "12": "12",
        "13": "13",
        "14": "Add.a",
        "15": "Add.b",
    }


def test_a_mapping_beyond_all_bounds_is_read_in_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dumpscope.folders.MAX_MAPPING_BYTES", 20)
    write(tmp_path / "mapping.csv", b"11,Add.a\n12,Add.b\n13,Add.c\n14,Add.d\n")
    for name in ("11", "14"):
        write(tmp_path / name)
    files, failures = found(walk([tmp_path]))
    assert {r: f.name for r, f in files.items()} == {"11": "Add.a", "14": "14"}
    assert failures["mapping.csv"].message == (
        "expected at most 20 bytes, found 36: the real names after them are not known"
    )


def test_a_mapping_that_cannot_be_read_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "mapping.csv", b"11,Add.a\n")
    write(tmp_path / "11")
    deny_opening(monkeypatch, "mapping.csv")
    files, failures = found(walk([tmp_path]))
    assert files["11"].name == "11"
    assert failures["mapping.csv"].error == "PermissionError"


@pytest.mark.parametrize("kind", ["folder", "link", "dangling"])
def test_a_mapping_that_is_no_file_is_none(tmp_path: Path, kind: str) -> None:
    root = tmp_path / "dump"
    write(root / "11")
    if kind == "folder":
        write(root / "mapping.csv" / "file")
    elif kind == "link":
        (root / "mapping.csv").symlink_to(write(tmp_path / "outside", b"11,Add.a\n"))
    else:
        (root / "mapping.csv").symlink_to("nowhere")
    files, failures = found(walk([root]))
    assert files["11"].name == "11"
    assert not failures
    assert set(files) == ({"11", "mapping.csv/file"} if kind == "folder" else {"11"})


# --- companions ---------------------------------------------------------------------------------

COMPANIONS = {"dump.json": "dump_tensor_data", "debug.json": "dump_tensor_data"}


def test_files_that_belong_to_another_file_are_not_offered_apart(tmp_path: Path) -> None:
    write(tmp_path / "step0" / "dump.json")
    write(tmp_path / "step0" / "dump_tensor_data" / "a.pt")
    write(tmp_path / "step0" / "other" / "b.pt")
    write(tmp_path / "step1" / "dump_tensor_data" / "c.pt")
    (tmp_path / "step2" / "dump.json").mkdir(parents=True)
    write(tmp_path / "step2" / "dump_tensor_data" / "d.pt")
    assert names(tmp_path, companions=COMPANIONS) == {
        "step0/dump.json",
        "step0/other/b.pt",
        "step1/dump_tensor_data/c.pt",
        "step2/dump_tensor_data/d.pt",
    }
    assert "step0/dump_tensor_data/a.pt" in names(tmp_path)


def test_a_companion_folder_that_is_asked_for_is_walked(tmp_path: Path) -> None:
    write(tmp_path / "dump.json")
    write(tmp_path / "dump_tensor_data" / "a.pt")
    assert names(tmp_path / "dump_tensor_data", companions=COMPANIONS) == {"a.pt"}


# --- roots --------------------------------------------------------------------------------------


def test_a_file_is_yielded_alone_with_its_real_name_and_place(tmp_path: Path) -> None:
    folder = tmp_path / TIME / "2"
    write(folder / "mapping.csv", f"1234,Add.real.1.2.{US}\n".encode())
    path = write(folder / "1234", b"123")
    write(folder / "other")
    walker = walk([path])
    (file,) = list(walker)
    assert isinstance(file, DumpFile)
    assert walker.root == str(folder)
    assert (file.path, file.relative, file.name) == (str(path), "1234", f"Add.real.1.2.{US}")
    assert (file.size, file.inode) == (3, path.stat().st_ino)
    assert file.place == Place(run=TIME, device_id=2)
    assert (walker.files, walker.bytes, walker.finished) == (1, 3, True)


def test_a_mapping_that_is_asked_for_is_yielded(tmp_path: Path) -> None:
    path = write(tmp_path / "mapping.csv", b"1,x\n")
    (file,) = list(walk([path]))
    assert isinstance(file, DumpFile)
    assert file.name == "mapping.csv"


def test_a_link_that_the_user_names_is_followed(tmp_path: Path) -> None:
    target = write(tmp_path / "real" / TIME / "0" / f"Add.n.1.2.{US}", b"123")
    (tmp_path / "file_link").symlink_to(target)
    (tmp_path / "folder_link").symlink_to(tmp_path / "real" / TIME)
    (by_file,) = list(walk([tmp_path / "file_link"]))
    assert isinstance(by_file, DumpFile)
    assert not Path(by_file.path).is_symlink()
    assert (by_file.name, by_file.size) == (f"Add.n.1.2.{US}", 3)
    assert by_file.relative == "file_link"
    assert by_file.place == Place(run=TIME, device_id=0)
    (by_folder,) = list(walk([tmp_path / "folder_link"]))
    assert isinstance(by_folder, DumpFile)
    assert by_folder.relative == f"0/Add.n.1.2.{US}"
    assert by_folder.place == Place(run=TIME, device_id=0)
    assert Path(by_folder.path).read_bytes() == b"123"


def test_a_pipe_that_the_user_names_is_skipped(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    walker = walk([tmp_path / "pipe"])
    assert run_bounded(lambda: list(walker)) == []
    assert walker.skipped == {"fifo": 1}


def test_several_paths_have_a_common_root_and_numbers(tmp_path: Path) -> None:
    write(tmp_path / "n1" / "dump" / TIME / "0" / "a")
    write(tmp_path / "n2" / "dump" / TIME / "0" / "a")
    single = write(tmp_path / "n2" / "one")
    other = write(tmp_path / "n2" / "two")
    walker = walk([tmp_path / "n1" / "dump", tmp_path / "n2" / "dump", single, other])
    files, _ = found(walker)
    assert walker.root == str(tmp_path)
    assert {relative: file.place.source for relative, file in files.items()} == {
        f"n1/dump/{TIME}/0/a": 0,
        f"n2/dump/{TIME}/0/a": 1,
        # Two files of one folder are of one device.
        "n2/one": 2,
        "n2/two": 2,
    }


def test_equal_and_nested_paths_are_taken_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "a" / "b" / "file")
    write(tmp_path / "ab" / "file")
    (tmp_path / "link").symlink_to("a")
    monkeypatch.chdir(tmp_path)
    a = str(tmp_path / "a")
    assert resolve_roots(["a", "a/", "./a/../a", a, "link"]) == (a, [a])
    assert resolve_roots(["a/b", "a", "a/b/file"]) == (a, [a])
    assert resolve_roots(["a", "ab"]) == (str(tmp_path), [a, str(tmp_path / "ab")])
    assert resolve_roots(["a/b/file"]) == (f"{a}/b", [f"{a}/b/file"])
    assert resolve_roots(["."]) == (str(tmp_path), [str(tmp_path)])
    assert [f.relative for f in walk(["a", "a/b", "link"]) if isinstance(f, DumpFile)] == ["b/file"]


def test_dots_behind_a_link_lead_where_the_system_leads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "far" / "away").mkdir(parents=True)
    write(tmp_path / "far" / "file")
    (tmp_path / "link").symlink_to("far/away")
    monkeypatch.chdir(tmp_path)
    root = os.path.realpath(tmp_path / "far")
    assert resolve_roots(["link/.."]) == (root, [root])


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("missing", "'missing' cannot be scanned: No such file or directory"),
        ("dangling", "'dangling' cannot be scanned: No such file or directory"),
        ("circle", "'circle' cannot be scanned: Too many levels of symbolic links"),
        ("file/", "'file/' cannot be scanned: Not a directory"),
        ("", "'' is no path"),
        ("a\0b", "'a\\x00b' is no path"),
        ("\udcff\n", "'\\udcff\\n' cannot be scanned: No such file or directory"),
        ("x" * 300, f"'{'x' * 300}' cannot be scanned: File name too long"),
    ],
)
def test_a_path_that_leads_nowhere_is_a_usage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, message: str
) -> None:
    write(tmp_path / "file")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "circle").symlink_to("circle")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OptionsError) as raised:
        walk(["file", path])
    assert str(raised.value) == message


def test_no_path_is_a_usage_error() -> None:
    with pytest.raises(OptionsError, match="no path to scan"):
        walk([])


def test_the_corpus_is_walked_whole(corpus: Path) -> None:
    expected = {
        str(path.relative_to(corpus))
        for path in corpus.rglob("*")
        if path.is_file() and not path.is_symlink() and path.name != "mapping.csv"
    }
    files, failures = found(walk([corpus]))
    assert set(files) == expected
    assert not failures
    steps = {
        file.place.step for file in files.values() if file.relative.startswith("cann/ranks8/dump/")
    }
    devices = {
        file.place.device
        for file in files.values()
        if file.relative.startswith("cann/ranks8/dump/")
    }
    assert steps == {0, 1, 2}
    assert devices == set(range(8))
