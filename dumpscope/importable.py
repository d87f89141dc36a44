"""What can be imported: scans in stores, and scan documents, each opened as a `Part`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from dumpscope.errors import OptionsError, StoreError
from dumpscope.listedrecords import SCAN_MARK, ListedRecords, load_records
from dumpscope.model import FileResult, ReadFailure, ScanOptions
from dumpscope.records import record
from dumpscope.roots import is_inside
from dumpscope.store import ScanInfo, Store

__all__ = ["Part", "open_parts"]

_SQLITE = b"SQLite format 3\0"


@record(frozen=True, slots=True)
class Part:
    """One scan that becomes part of the union.

    `path` is the file that holds it, `paths` how many PATHs it was of. `prefix` and `host` are
    what tells its files and devices from those of the others, `first_source` the number of its
    first PATH. `results` and `failures` read it again each time they are called.
    """

    path: str
    scan_id: str
    root: str
    sources: tuple[str, ...]
    options: ScanOptions
    config: Mapping[str, object] | None
    totals: Mapping[str, Any]
    is_document: bool
    paths: int
    results: Callable[[], Iterator[FileResult]]
    failures: Callable[[], Iterator[ReadFailure]]
    prefix: str = ""
    host: str | None = None
    first_source: int = 0


@contextmanager
def open_parts(files: Sequence[str]) -> Iterator[list[Part]]:
    """Open what is to be imported, for as long as the context lasts.

    Parameters
    ----------
    files
        Stores, of which the newest finished scan counts (`FILE:SCAN` names another one), and
        scan documents. They are only read.

    Raises
    ------
    ConfigError
        A document is none of dumpscope's.
    OptionsError
        A document was cut, or the same scan is named twice.
    StoreError
        A store cannot be read, or holds no finished scan.
    """
    with ExitStack() as opened:
        parts: list[Part] = []
        for file in files:
            path, wanted = _split(file)
            if wanted is None and _is_document(path):
                part = _part_of_document(load_records(path))
            else:
                store = opened.enter_context(Store.open(path, create=False, write=False))
                part = _part_of_store(store, wanted)
            for other in parts:
                if part.scan_id == other.scan_id:
                    raise OptionsError(
                        f"{other.path} and {part.path} hold the same scan, {part.scan_id}; "
                        "name it once"
                    )
            parts.append(part)
        yield parts


def _split(file: str) -> tuple[str, str | None]:
    """Take `FILE:SCAN` apart, unless a file is named so."""
    path, colon, scan_id = file.rpartition(":")
    if colon and path and not os.path.exists(file) and os.path.exists(path):
        return path, scan_id
    return file, None


def _is_document(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            start = file.read(4096)
    except OSError:
        return False  # the store says what is wrong with it
    return not start.startswith(_SQLITE) and (
        path.endswith(".json") or start.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(SCAN_MARK)
    )


def _part_of_store(store: Store, wanted: str | None) -> Part:
    if wanted is not None:
        info = store.scan_info(store.find_scan(wanted))
    else:
        newest = next((scan for scan in store.scans() if scan.state == "finished"), None)
        if newest is None:
            raise StoreError(
                f"{store.path}: no scan of this store was finished; run `dumpscope scan --resume` "
                "where its dump lies"
            )
        info = newest
    if info.state != "finished":
        raise StoreError(
            f"{store.path}: scan {info.scan_id} was stopped before its end; run `dumpscope scan "
            "--resume` where its dump lies"
        )
    scan_id = info.scan_id
    return Part(
        store.path,
        scan_id,
        info.root,
        info.sources,
        info.options,
        info.config,
        info.totals,
        False,
        _count_paths(store, info),
        lambda: store.results(scan_id),
        lambda: store.failures_without_file(scan_id),
    )


def _part_of_document(records: ListedRecords) -> Part:
    return Part(
        records.path,
        records.scan_id,
        records.root,
        (records.root,),
        records.options,
        records.config,
        records.totals,
        True,
        1,
        lambda: iter(records.results),
        lambda: iter(records.failures),
    )


def _count_paths(store: Store, info: ScanInfo) -> int:
    """How many PATHs a scan walked: those inside another one were left out (`roots`)."""
    kept = [
        path
        for number, path in enumerate(info.sources)
        if path not in info.sources[:number]
        and not any(other != path and is_inside(path, other) for other in info.sources)
    ]
    highest = max((place.source for place in store.places(info.scan_id)), default=0)
    return max(len(kept), highest + 1)
