"""What all halves of the store stand on: the connection, transactions, numbers of scans."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from dumpscope.errors import StoreError
from dumpscope.store.opening import told
from dumpscope.store.shared_rows import SharedRows

__all__ = ["StoreConnection"]


class StoreConnection:
    """An open store file.

    Attributes
    ----------
    path
        Its name.
    journal
        "wal" or "delete", "off" when it was opened for reading only.
    """

    def __init__(self, connection: sqlite3.Connection, path: str, journal: str) -> None:
        self._connection = connection
        self._shared = SharedRows(connection)
        self.path = path
        self.journal = journal

    def close(self) -> None:
        """Close the file."""
        with told(self.path):
            self._connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing, whatever ends it."""
        connection = self._connection
        with told(self.path):
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                # What was numbered here will not be in the file.
                self._shared.forget()
                with suppress(sqlite3.Error):
                    connection.rollback()
                raise

    def _scan_no(self, scan_id: str) -> int:
        with told(self.path):
            row = self._connection.execute(
                "SELECT scan_no FROM scans WHERE scan_id = ?", (scan_id,)
            ).fetchone()
        if row is None:
            raise StoreError(
                f"{self.path}: there is no scan {scan_id!r}; `dumpscope scans list` shows them"
            )
        return int(row[0])
