"""Batches of files that are found by one hash.

Their numbers are the ranges `first_file` … `last_file` of all rows with one `digest`.
"""

from __future__ import annotations

import sqlite3

__all__ = ["apply"]


def apply(connection: sqlite3.Connection) -> None:
    """Add the table."""
    connection.execute(
        "CREATE TABLE batches(digest NOT NULL, first_file INTEGER NOT NULL,"
        " last_file INTEGER NOT NULL, PRIMARY KEY(digest, first_file)) WITHOUT ROWID"
    )
