"""Files that were found one after the other, used again all at once.

A row of `batches` says of the hash of such files which numbers they have in the store: nearly
always they were stored together and their numbers follow each other. So of an unchanged tree only
one hash for some hundred files is looked up. A batch is removed with the first of its files.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from dumpscope.store.identity import AwaitedBatch

__all__ = ["insert_batch", "link_batch"]


def link_batch(connection: sqlite3.Connection, scan_no: int, digest: bytes, count: int) -> bool:
    """Link the files of a batch to a scan. Returns whether they are known, all `count` of them."""
    (known,) = connection.execute(
        "SELECT ifnull(sum(last_file - first_file + 1), 0) FROM batches WHERE digest = ?", (digest,)
    ).fetchone()
    if known != count:
        return False
    connection.execute(
        "INSERT OR IGNORE INTO scan_files SELECT ?, f.file_id FROM batches b"
        " CROSS JOIN files f ON f.file_id BETWEEN b.first_file AND b.last_file"
        " WHERE b.digest = ?",
        (scan_no, digest),
    )
    return True


def insert_batch(connection: sqlite3.Connection, batch: AwaitedBatch, generation: int) -> None:
    """Write a batch of which all files are stored.

    `generation` says what `SharedRows.generation` is now.
    """
    wanted = dict(batch.stored)
    ranges = _ranges(sorted(wanted))
    if batch.generation != generation and not _are_there(connection, wanted, ranges):
        return
    connection.execute("DELETE FROM batches WHERE digest = ?", (batch.digest,))
    connection.executemany(
        "INSERT INTO batches VALUES(?,?,?)", [(batch.digest, *pair) for pair in ranges]
    )


def _are_there(
    connection: sqlite3.Connection, wanted: dict[int, bytes], ranges: Sequence[tuple[int, int]]
) -> bool:
    """Whether these are still the numbers of these files: removed ones are given out again."""
    return all(
        dict(
            connection.execute(
                "SELECT file_id, identity FROM files WHERE file_id BETWEEN ? AND ?", (first, last)
            )
        )
        == {number: wanted[number] for number in range(first, last + 1)}
        for first, last in ranges
    )


def _ranges(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Put ascending numbers together where they follow each other."""
    ranges: list[tuple[int, int]] = []
    first = last = numbers[0]
    for number in numbers[1:]:
        if number != last + 1:
            ranges.append((first, last))
            first = number
        last = number
    ranges.append((first, last))
    return ranges
