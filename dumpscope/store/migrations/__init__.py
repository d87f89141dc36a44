"""The schema of the store, one numbered step after the other.

`PRAGMA user_version` counts the steps that a file has been through. Each step runs in one
transaction together with that number, so a store is never between two versions.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from dumpscope.store.migrations import m001_first_schema, m002_batches

__all__ = ["APPLICATION_ID", "NEWEST_VERSION", "is_empty", "migrate", "user_version"]

APPLICATION_ID = 0x44534350
"""Marks a SQLite file as a store of dumpscope ("DSCP")."""

MIGRATIONS: tuple[Callable[[sqlite3.Connection], None], ...] = (
    m001_first_schema.apply,
    m002_batches.apply,
)

NEWEST_VERSION = len(MIGRATIONS)


def migrate(connection: sqlite3.Connection) -> None:
    """Bring a store to `NEWEST_VERSION`."""
    for number, apply in enumerate(MIGRATIONS, start=1):
        if user_version(connection) >= number:
            continue
        connection.execute("BEGIN IMMEDIATE")
        try:
            # Another process may have done it while this one waited for the lock.
            if user_version(connection) < number:
                apply(connection)
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {number}")
            connection.execute("COMMIT")
        except BaseException:
            connection.rollback()
            raise


def user_version(connection: sqlite3.Connection) -> int:
    """Return how many steps the file has been through."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def is_empty(connection: sqlite3.Connection) -> bool:
    """Whether the file holds no table yet."""
    return connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is None
