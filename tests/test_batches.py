"""Files that did not change are found by the hash of hundreds, and nothing else passes for them."""

from __future__ import annotations

import dataclasses
import shutil
import sqlite3
import struct
import typing
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dump_trees import write_op
from dumpscope.cutting import LEAST, MOST, USUAL, cut
from dumpscope.errors import StoreError
from dumpscope.model import (
    DumpFile,
    FileResult,
    OpRecord,
    Place,
    Portion,
    ReadFailure,
    ScanOptions,
    TensorStats,
    TensorSummary,
)
from dumpscope.scanning import scan
from dumpscope.store import Store
from dumpscope.store.identity import IdentityMaker
from dumpscope.store.migrations import APPLICATION_ID, m001_first_schema

SIGNATURE = "dumpscope 1|adump|screen"


@pytest.fixture
def store(tmp_path: Path) -> typing.Iterator[Store]:
    with Store.open(tmp_path / "scans.db") as opened:
        yield opened


def begin(store: Store, root: str = "/dump") -> str:
    return store.begin(root, [root], ScanOptions(), None, "1.0")


def file_named(relative: str, **changes: typing.Any) -> DumpFile:
    fields: dict[str, typing.Any] = {
        "name": relative.rpartition("/")[2],
        "size": 8192,
        "mtime_ns": 1,
        "ctime_ns": 2,
        "inode": 3,
    }
    return DumpFile(f"/dump/{relative}", relative, **{**fields, **changes})


def files_named(names: str) -> list[DumpFile]:
    return [file_named(f"d/{name}") for name in names]


def result_of(file: DumpFile, *failures: ReadFailure) -> FileResult:
    stats = TensorStats(count=2, nan=1, min=0.0, max=0.0)
    bad = TensorSummary("output", 0, "float16", "ND", (2,), size_bytes=4, stats=stats)
    op = OpRecord("Add", file.name, (bad,), file=file.relative, place=file.place)
    return FileResult(file, reader="adump", ops=(op,), failures=failures)


def scan_all(store: Store, files: list[DumpFile], together: int = 1000) -> tuple[str, list[bool]]:
    """What a scan does, except that it reads nothing. `together` are stored at a time."""
    scan_id = begin(store)
    others = store.reuse(scan_id, files, SIGNATURE)
    rest = iter(others)
    while some := list(islice(rest, together)):
        store.add(scan_id, [result_of(file) for file in some], SIGNATURE)
    store.finish(scan_id, {}, 1.0)
    return scan_id, [file not in others for file in files]


def names_in(store: Store, scan_id: str) -> list[str]:
    return sorted(op.op_name for op in store.notable_ops(scan_id))


def count_rows(store: Store, table: str) -> int:
    connection = sqlite3.connect(store.path)
    (count,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
    connection.close()
    return int(count)


# --- the store --------------------------------------------------------------------------------


@pytest.mark.parametrize("together", [1, 3, 1000])
def test_an_unchanged_batch_is_found_without_looking_for_its_files(
    store: Store, together: int
) -> None:
    files = files_named("abcdefgh")
    first, reused = scan_all(store, files, together)
    assert reused == [False] * 8
    second, reused = scan_all(store, files)
    assert reused == [True] * 8
    assert names_in(store, second) == names_in(store, first) == list("abcdefgh")
    # The index of single files was not even made, and the batch is one row.
    assert (count_rows(store, "identities"), count_rows(store, "batches")) == (0, 1)
    assert store.scan_info(second).files == 8


@pytest.mark.parametrize(
    "changes",
    [
        {"size": 8191}, {"mtime_ns": 9}, {"ctime_ns": 9}, {"inode": 9}, {"name": "real"},
        {"relative": "d/x"}, {"place": Place(source=1)}, {"place": Place(step=0)},
    ],
    ids=str,
)  # fmt: skip
def test_one_changed_file_is_read_and_the_batch_is_known_again(
    store: Store, changes: dict[str, typing.Any]
) -> None:
    files = files_named("abcde")
    scan_all(store, files)
    files[2] = dataclasses.replace(files[2], **changes)
    _, reused = scan_all(store, files)
    assert reused == [True, True, False, True, True]
    before = count_rows(store, "identities")
    third, reused = scan_all(store, files)
    assert reused == [True] * 5
    # The file that was read last is not in the index: so it was not asked.
    assert (before, count_rows(store, "identities")) == (5, 5)
    assert len(names_in(store, third)) == 5


def test_files_that_come_and_go_are_told_from_those_that_stay(store: Store) -> None:
    scan_all(store, files_named("abcdef"))
    for names, reused in [
        ("abcdefg", [True] * 6 + [False]),
        ("bcdefg", [True] * 6),
        ("bcdefg", [True] * 6),
        ("fedcba", [True] * 6),
        ("abcdef", [True] * 6),
        ("xabcdef", [False] + [True] * 6),
    ]:
        scan_id, found = scan_all(store, files_named(names))
        assert found == reused
        assert names_in(store, scan_id) == sorted(names)


def test_another_root_or_signature_knows_no_batch(store: Store) -> None:
    files = files_named("abc")
    scan_all(store, files)
    assert store.reuse(begin(store, "/other"), files, SIGNATURE) == files
    assert store.reuse(begin(store), files, SIGNATURE + "|full") == files


def test_a_file_that_could_not_be_opened_keeps_its_batch_from_being_known(store: Store) -> None:
    files = files_named("abc")
    scan_id = begin(store)
    store.reuse(scan_id, files, SIGNATURE)
    denied = ReadFailure("d/b", "adump", "PermissionError", None, "denied")
    results = [result_of(file) for file in files]
    results[1] = result_of(files[1], denied)
    store.add(scan_id, results, SIGNATURE)
    assert scan_all(store, files)[1] == [True, False, True]
    assert scan_all(store, files)[1] == [True, True, True]


def test_what_changed_between_walk_and_reading_is_not_what_the_walk_saw(store: Store) -> None:
    files = files_named("abc")
    scan_id = begin(store)
    store.reuse(scan_id, files, SIGNATURE)
    grown = dataclasses.replace(files[1], size=9000)
    store.add(scan_id, [result_of(f) for f in (files[0], grown, files[2])], SIGNATURE)
    assert scan_all(store, files)[1] == [True, False, True]


def test_copies_of_the_files_complete_a_batch_too(store: Store) -> None:
    files = files_named("abc")
    scan_id = begin(store)
    store.reuse(scan_id, files, SIGNATURE)
    store.add(scan_id, [result_of(dataclasses.replace(file)) for file in files], SIGNATURE)
    assert count_rows(store, "batches") == 1
    assert scan_all(store, files)[1] == [True] * 3


def test_a_scan_that_was_stopped_within_a_batch_goes_on(store: Store) -> None:
    files = files_named("abcdef")
    scan_id = begin(store)
    store.reuse(scan_id, files, SIGNATURE)
    store.add(scan_id, [result_of(file) for file in files[:4]], SIGNATURE)
    with Store.open(store.path) as other:
        following, reused = scan_all(other, files)
        assert reused == [True] * 4 + [False] * 2
        assert scan_all(other, files)[1] == [True] * 6
        assert count_rows(other, "batches") == 1
        assert names_in(other, following) == list("abcdef")


def test_the_same_file_twice_does_no_harm(store: Store) -> None:
    (file,) = files_named("a")
    for _ in range(3):
        scan_id, _ = scan_all(store, [file, file])
        assert set(names_in(store, scan_id)) == {"a"}
    assert store.reuse(begin(store), [], SIGNATURE) == []


def test_a_store_of_the_first_version_is_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    connection = sqlite3.connect(path)
    m001_first_schema.apply(connection)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute("PRAGMA user_version = 1")
    connection.commit()
    connection.close()
    files = files_named("abc")
    with Store.open(path) as store:
        scan_all(store, files)
    with Store.open(path) as store:
        assert count_rows(store, "batches") == 1
        assert scan_all(store, files)[1] == [True] * 3


# --- numbers that are given out again ---------------------------------------------------------


def test_a_batch_goes_with_the_first_of_its_files(store: Store) -> None:
    old, _ = scan_all(store, files_named("abc"))
    scan_all(store, files_named("b"))
    store.remove(old)
    assert count_rows(store, "batches") == 1
    scan_all(store, files_named("xyz"))  # may get the numbers of a and c
    scan_id, reused = scan_all(store, files_named("abc"))
    assert reused == [False, True, False]
    assert names_in(store, scan_id) == list("abc")


def test_a_batch_stays_while_another_scan_uses_all_of_it(store: Store) -> None:
    old, _ = scan_all(store, files_named("abc"))
    scan_all(store, files_named("abcd"))
    store.remove(old)
    assert scan_all(store, files_named("abc"))[1] == [True] * 3
    assert count_rows(store, "identities") == 3


@pytest.mark.parametrize("elsewhere", [False, True])
def test_files_removed_while_a_batch_is_waited_for(store: Store, elsewhere: bool) -> None:
    files = files_named("abcd")
    killed = begin(store)
    store.reuse(killed, files, SIGNATURE)
    store.add(killed, [result_of(file) for file in files[:2]], SIGNATURE)
    if elsewhere:
        with Store.open(store.path) as other:
            other.remove(killed)
    else:
        store.remove(killed)
    # Numbers 1 and 2 are given out again, and then the other half of the batch comes.
    following = begin(store)
    store.add(following, [result_of(file) for file in files_named("xy")], SIGNATURE)
    store.add(following, [result_of(file) for file in files[2:]], SIGNATURE)
    scan_id, reused = scan_all(store, files)
    assert reused == [False, False, True, True]
    assert names_in(store, scan_id) == list("abcd")


def test_two_scans_at_once_know_their_batches_afterwards(store: Store) -> None:
    mine, others = files_named("abcd"), files_named("stuv")
    with Store.open(store.path) as other:
        scans = [(store, begin(store), mine), (other, begin(other), others)]
        for opened, scan_id, files in scans:
            assert opened.reuse(scan_id, files, SIGNATURE) == files
        for start in range(0, 4, 2):
            for opened, scan_id, files in scans:
                results = [result_of(file) for file in files[start : start + 2]]
                opened.add(scan_id, results, SIGNATURE)
    # Each has its numbers in two ranges, between which are those of the other.
    assert (count_rows(store, "batches"), count_rows(store, "identities")) == (4, 0)
    scan_id, reused = scan_all(store, others)
    assert reused == [True] * 4
    assert names_in(store, scan_id) == list("stuv")
    assert count_rows(store, "identities") == 0


def test_what_was_not_committed_is_in_no_batch(store: Store) -> None:
    files = files_named("ab")
    scan_id = begin(store)
    store.reuse(scan_id, files, SIGNATURE)
    broken = dataclasses.replace(result_of(files[1]), bytes_read=typing.cast("int", object()))
    with pytest.raises(StoreError):
        store.add(scan_id, [result_of(files[0]), broken], SIGNATURE)
    store.add(scan_id, [result_of(file) for file in files_named("xy")], SIGNATURE)
    assert count_rows(store, "batches") == 0
    assert scan_all(store, files)[1] == [False, False]


# --- hashes -----------------------------------------------------------------------------------


def test_values_that_look_alike_side_by_side_are_told_apart() -> None:
    maker = IdentityMaker("/r", "s")
    same_text = [
        file_named("a", name="bc"),
        file_named("ab", name="c"),
        file_named("a", name="b", size=11, mtime_ns=1),
        file_named("a", name="b", size=1, mtime_ns=11),
        file_named("a\0b", name="c"),
        file_named("a", name="\0bc"),
        file_named("\udc80", name="c"),
        file_named("\x80", name="c"),
    ]
    assert len({maker.hash(file) for file in same_text}) == len(same_text)
    pairs = [[a, b] for a in same_text for b in same_text]
    assert len({maker.hash_batch(pair) for pair in pairs}) == len(pairs)
    assert IdentityMaker("/rs", "").hash(same_text[0]) != maker.hash(same_text[0])


_files = st.builds(
    DumpFile,
    path=st.just("p"),
    relative=st.text(st.characters(exclude_categories=()), max_size=3),
    name=st.text(max_size=2),
    size=st.integers(0, 3) | st.integers(),
    mtime_ns=st.integers(0, 1),
    ctime_ns=st.integers(0, 1),
    inode=st.integers(0, 1) | st.integers(0, 1 << 64),
    place=st.builds(Place, source=st.integers(0, 1), step=st.none() | st.integers(0, 1)),
)


@settings(max_examples=60)
@given(st.lists(_files, max_size=4), st.lists(_files, max_size=4))
def test_batches_have_one_hash_exactly_when_they_are_equal(
    some: list[DumpFile], others: list[DumpFile]
) -> None:
    # Equal objects that are not the same ones: strings and places made anew.
    copies = [dataclasses.replace(f, place=dataclasses.replace(f.place)) for f in some]
    maker = IdentityMaker("/dump", SIGNATURE)
    again = IdentityMaker("/dump", SIGNATURE)
    assert maker.hash_batch(some) == again.hash_batch(copies)
    assert list(map(maker.hash, some)) == list(map(again.hash, copies))
    assert (maker.hash_batch(some) == maker.hash_batch(others)) == (some == others)


# --- where batches end ------------------------------------------------------------------------


def walked(inodes: typing.Iterable[int]) -> list[DumpFile | ReadFailure]:
    return [file_named(str(inode), inode=inode) for inode in inodes]


@given(st.lists(st.integers(0, 40) | st.none(), max_size=40), st.integers(0, 3000))
def test_cutting_loses_nothing_and_keeps_bounds(kinds: list[int | None], more: int) -> None:
    failure = ReadFailure("f", "walk", "OSError", None, "denied")
    found = [failure if kind is None else file_named("x", inode=kind) for kind in kinds]
    found = [*found, *walked(range(more)), *found]
    batches = list(cut(iter(found)))
    assert [item for batch in batches for item in batch] == found
    assert all(LEAST <= len(batch) <= MOST for batch in batches[:-1])
    assert all(batches)


@pytest.mark.parametrize("step", [1, 2, 256, 4096, 1 << 32])
def test_batches_are_of_the_usual_size_however_inodes_are_given_out(step: int) -> None:
    sizes = [len(batch) for batch in cut(iter(walked(range(7, 7 + 60_000 * step, step))))]
    assert (LEAST + USUAL) / 2 < sum(sizes) / len(sizes) < (LEAST + USUAL) * 2


@pytest.mark.parametrize("change", ["came", "went", "written"])
def test_behind_a_change_it_is_the_same_batches_again(change: str) -> None:
    found = walked(range(1_000_000, 1_060_000))
    changed = found[:100] + walked([5]) * (change != "went") + found[100 + (change != "came") :]
    before = {tuple(map(id, batch)) for batch in cut(iter(found))}
    after = [tuple(map(id, batch)) for batch in cut(iter(changed))]
    assert sum(batch not in before for batch in after) <= 3
    assert len(after) > 40


@given(st.lists(st.integers(1, 900), max_size=8), st.integers(0, 2000))
def test_portions_are_cut_where_their_files_would_be(sizes: list[int], first: int) -> None:
    inodes = iter(range(first, first + 10_000))
    portions = [portion_of(list(islice(inodes, size))) for size in sizes]
    failure = ReadFailure("f", "walk", "OSError", None, "denied")
    found: list[DumpFile | Portion | ReadFailure] = [*portions, failure, *portions]
    files = [file for item in found for file in single_files([item])]
    expected = [list(single_files(batch)) for batch in cut(files)]
    assert [list(single_files(batch)) for batch in cut(found)] == expected


def portion_of(inodes: typing.Sequence[int], **changes: typing.Any) -> Portion:
    names = [f"n{inode}" for inode in inodes]
    facts = b"".join(struct.pack("=QqqQ", 8, -1, 2, inode) for inode in inodes)
    portion = Portion("/dump/d/", "d/", Place(step=1), names, facts)
    return dataclasses.replace(portion, **changes)


def single_files(
    batch: typing.Iterable[DumpFile | Portion | ReadFailure],
) -> typing.Iterator[DumpFile | ReadFailure]:
    for item in batch:
        if isinstance(item, Portion):
            yield from item.files()
        else:
            yield item


def test_a_portion_holds_what_its_files_hold() -> None:
    portion = portion_of([7, (1 << 64) - 1])
    assert portion.files() == [
        DumpFile("/dump/d/n7", "d/n7", "n7", 8, -1, 2, 7, Place(step=1)),
        DumpFile(
            "/dump/d/n18446744073709551615", "d/n18446744073709551615", "n18446744073709551615",
            8, -1, 2, 18446744073709551615, Place(step=1),
        ),
    ]  # fmt: skip
    assert (len(portion), portion.size, list(portion.inodes)) == (2, 16, [7, (1 << 64) - 1])
    assert portion.part(1).files() == portion.files()[1:]
    assert portion.part(0, 1).files() == portion.files()[:1]
    assert portion.part(0, 2) is portion


def test_how_a_folder_was_cut_into_portions_does_not_show_in_the_hash() -> None:
    maker = IdentityMaker("/dump", SIGNATURE)
    whole = portion_of(range(5))
    parts = [portion_of(range(2)), portion_of(range(2, 4)), portion_of([4])]
    assert maker.hash_batch(parts) == maker.hash_batch([whole])
    others = [
        whole.part(0, 4),
        dataclasses.replace(whole, relative="e/"),
        dataclasses.replace(whole, place=Place(step=2)),
        dataclasses.replace(whole, names=[*whole.names[:4], "other"]),
        *(
            dataclasses.replace(whole, facts=whole.facts[:at] + b"\7" + whole.facts[at + 1 :])
            for at in (0, 8, 16, 24, 159)
        ),
    ]
    hashes = {maker.hash_batch([other]) for other in others}
    assert len(hashes | {maker.hash_batch([whole])}) == len(others) + 1


def test_portions_are_linked_and_a_changed_file_in_them_is_read(store: Store) -> None:
    portion = portion_of(range(5))
    first = begin(store)
    assert store.reuse(first, [portion], SIGNATURE) == portion.files()
    store.add(first, [result_of(file) for file in portion.files()], SIGNATURE)
    second = begin(store)
    assert store.reuse(second, [portion.part(0, 2), portion.part(2)], SIGNATURE) == []
    assert names_in(store, second) == portion.names
    changed = dataclasses.replace(portion, facts=portion.facts[:-8] + bytes(8))
    assert store.reuse(begin(store), [changed], SIGNATURE) == changed.files()[4:]
    # One by one they are the same files.
    assert store.reuse(begin(store), portion.files(), SIGNATURE) == []


# --- scans ------------------------------------------------------------------------------------


def write_many(root: Path, count: int, *, device: int = 0, bad: tuple[int, ...] = ()) -> None:
    """Write dumps of one small tensor, some of them with a NaN."""
    good = write_op(root, "Add", "net/0", outputs=[np.ones(4, np.float16)], device=device)
    worse = write_op(
        root, "Add", "net/1", outputs=[np.array([1, np.nan], np.float16)], device=device, task=2
    )
    content = {False: good.read_bytes(), True: worse.read_bytes()}
    for task in range(3, count + 1):
        path = good.with_name(f"Add.net_{task}.{task}.2.{1767951000000000 + task}")
        path.write_bytes(content[task in bad])


def essence(answer: typing.Any) -> typing.Any:
    """All of an answer but what is different each time, numbers of operators among it."""
    return dataclasses.replace(
        answer,
        scan_id="",
        started_at="",
        duration_s=0.0,
        findings=[(f.op.file, f.op.op_name, f.verdict, f.reason.code) for f in answer.findings],
        history=[(op.file, op.op_name) for op in answer.history],
    )


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in (("LEAST", 8), ("USUAL", 8), ("MOST", 30)):
        monkeypatch.setattr(f"dumpscope.cutting.{name}", size)


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("jobs", [1, 2])
def test_trees_that_grow_and_shrink_give_what_a_first_scan_gives(tmp_path: Path, jobs: int) -> None:
    options = ScanOptions(jobs=jobs)
    tree = tmp_path / "dump"
    write_many(tree, 150, bad=(100,))
    with Store.open(tmp_path / "scans.db") as store:

        def check() -> int:
            """Scan, compare with a scan into a new store, and say how many files were read."""
            before = count_rows(store, "files")
            assert essence(scan(tree, options, store=store)) == essence(scan(tree, options))
            return count_rows(store, "files") - before

        assert check() == 150
        assert check() == 0
        assert count_rows(store, "identities") == 0
        write_many(tree, 60, device=1)
        assert check() == 60
        assert check() == 0
        gone = sorted(tree.rglob("Add.net_[579]*"))
        for path in gone:
            path.unlink()
        assert len(gone) > 30
        assert check() == 0
        shutil.rmtree(next(tree.rglob("1")))
        write_many(tree, 80, device=1, bad=(50,))
        assert check() == 80
        oldest = store.scans()[-1].scan_id
        store.remove(oldest)
        store.prune(1)
        assert check() == 0


@pytest.mark.usefixtures("small_batches")
def test_filters_and_several_roots_do_not_mix_up_files(tmp_path: Path) -> None:
    tree = tmp_path / "dump"
    for device in (0, 1):
        write_many(tree, 60, device=device)
    folders = sorted(tree.glob("*/[01]"))
    with Store.open(tmp_path / "scans.db") as store:
        for paths, options in [
            ([tree], ScanOptions()),
            ([tree], ScanOptions(ranks=(1,))),
            ([tree], ScanOptions(ranks=(0,))),
            (folders, ScanOptions()),
            (folders[::-1], ScanOptions()),
            (folders[:1], ScanOptions()),
            ([tree], ScanOptions(stats="full")),
            ([tree], ScanOptions(steps=(0,))),
        ]:
            fresh = essence(scan(list(paths), options))
            for _ in range(2):
                assert essence(scan(list(paths), options, store=store)) == fresh
