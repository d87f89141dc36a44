"""The result store: one SQLite file that holds scans of measured records.

A file of a dump is stored once for each version of it that was seen, and a scan is a list of
links to such file records. So a rescan of an unchanged tree adds links only, and whatever a
killed scan had committed is there for the next one. Verdicts are not stored: they are computed
from the records whenever they are asked for.
"""

from __future__ import annotations

import os

from dumpscope.closing import Closing
from dumpscope.store.copying import StoreCopying
from dumpscope.store.listing import ScanInfo, ScanState, StoreListing
from dumpscope.store.location import default_store_path, existing_store_path, is_users_own
from dumpscope.store.memory import Memory
from dumpscope.store.opening import SQLITE_VERSION, open_file
from dumpscope.store.reading import StoreReading
from dumpscope.store.selection import Selection
from dumpscope.store.writing import StoreWriting

__all__ = [
    "SQLITE_VERSION",
    "Memory",
    "ScanInfo",
    "ScanState",
    "Selection",
    "Store",
    "default_store_path",
    "existing_store_path",
    "is_users_own",
]


class Store(StoreWriting, StoreReading, StoreCopying, StoreListing, Closing):
    """One store file, opened with `Store.open`. Use it from the thread that opened it."""

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        create: bool = True,
        write: bool = True,
        busy_s: float = 30.0,
        vfs: str | None = None,
    ) -> Store:
        """Open a store, and bring its schema up to date.

        Parameters
        ----------
        path
            The file. Its folders are made when `create` is true.
        create
            Make the file when it is not there.
        write
            False opens it for reading only, also on media that cannot be written.
        busy_s
            Seconds to wait for another process that is writing.
        vfs
            Name of one of SQLite's own file layers, `None` for its default.

        Raises
        ------
        StoreError
            It is not there, locked, read-only, damaged, newer than this program, or no store.
        """
        name = os.fspath(path)
        connection, journal = open_file(name, create=create, write=write, busy_s=busy_s, vfs=vfs)
        return cls(connection, name, journal)
