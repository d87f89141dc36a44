"""The scan that commands look things up in: the newest one of the store, or the one asked for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from dumpscope.cli.talking import tell

if TYPE_CHECKING:
    from dumpscope.model import Scan
    from dumpscope.store import Store

__all__ = ["find_store", "open_scan", "open_scan_if_any", "options_of", "remember_options"]


def options_of(store_file: str | None, scan_id: str | None = None) -> list[str]:
    """Return what a command needs to look into the same scan, as it was given to this one."""
    given = (("--store", store_file), ("--scan", scan_id))
    return [word for option, value in given if value for word in (option, value)]


def remember_options(scan: Scan, store_file: str | None, scan_id: str | None = None) -> Scan:
    """Return the scan with the options that commands named in its reports need."""
    return replace(scan, found_by=tuple(options_of(store_file, scan_id)))


def find_store(store_file: str | None, lang: str | None = None) -> str:
    """Return the store to read; say on stderr when it is none that this folder suggests.

    In a folder without a store that is the user's own, whose newest scan may be of another dump.
    """
    from dumpscope.store import existing_store_path, is_users_own

    path = existing_store_path(store=store_file)
    if not store_file and is_users_own(path):
        tell("users_own_store", lang, path=path)
    return path


@contextmanager
def open_scan(
    store_file: str | None, scan_id: str | None, lang: str | None = None
) -> Iterator[tuple[Store, Scan]]:
    """Open a store for reading, and load a scan of it.

    Raises `StoreError` when there is no store or no such scan.
    """
    from dumpscope.scanning import load_scan
    from dumpscope.store import Store

    path = find_store(store_file, lang)
    with Store.open(path, create=False, write=False) as store:
        scan = load_scan(store, store.find_scan(scan_id or "latest"), history=False)
        yield store, remember_options(scan, store_file, scan_id)


@contextmanager
def open_scan_if_any(
    store_file: str | None, scan_id: str | None, lang: str | None = None
) -> Iterator[tuple[Store, Scan] | None]:
    """The same for commands that can do without: `None` when nobody asked and there is none."""
    from dumpscope.store import existing_store_path

    path = existing_store_path(store=store_file)
    if not scan_id and not store_file and not os.path.exists(path):
        yield None
        return
    with open_scan(path, scan_id, lang) as opened:
        yield opened
