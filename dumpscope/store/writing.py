"""Putting a scan into the store.

Every call is one transaction: what it was given is there afterwards, whole, or not at all.
Numbers of rows are given out inside the transaction, so that nothing is read back and two scans
can write at the same time.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from typing import Literal

from dumpscope.model import DumpFile, FileResult, Portion, ReadFailure, ScanOptions
from dumpscope.store.batches import insert_batch, link_batch
from dumpscope.store.connection import StoreConnection
from dumpscope.store.encoding import bindable, dump_json
from dumpscope.store.file_rows import FileRows, insert_rows
from dumpscope.store.identity import AwaitedBatch, IdentityMaker
from dumpscope.store.opening import told

__all__ = ["StoreWriting"]

_LOOKED_UP_AT_ONCE = 256
_LOOK_UP = (
    "SELECT identity, file_id FROM identities WHERE identity IN"
    f" ({','.join('?' * _LOOKED_UP_AT_ONCE)})"
)


class StoreWriting(StoreConnection):
    """The writing half of `Store`."""

    _last_maker: IdentityMaker | None = None
    _identified_for: int | None = None

    def begin(
        self,
        root: str,
        sources: Sequence[str],
        options: ScanOptions,
        config: Mapping[str, object] | None,
        tool_version: str,
    ) -> str:
        """Start a scan of `sources`, whose common parent is `root`. Returns its id.

        Ids sort by the time (UTC) at which their scans began.
        """
        now = datetime.now(timezone.utc)
        scan_id = f"{now:%Y%m%dT%H%M%S}-{os.urandom(4).hex()}"
        row = (
            scan_id,
            bindable(root),
            dump_json(list(sources)),
            dump_json(asdict(options)),
            None if config is None else dump_json(dict(config)),
            tool_version,
            now.isoformat(timespec="seconds"),
        )
        with self._transaction() as connection:
            connection.execute(
                "INSERT INTO scans(scan_id, root, sources, options, config, tool_version, state,"
                " started_at) VALUES(?,?,?,?,?,?,'running',?)",
                row,
            )
        return scan_id

    def finish(
        self,
        scan_id: str,
        totals: Mapping[str, object],
        duration_s: float,
        state: Literal["finished", "interrupted"] = "finished",
    ) -> None:
        """Say how a scan ended. `totals` is kept as it is, for lists of scans."""
        number = self._scan_no(scan_id)
        with self._transaction() as connection:
            connection.execute(
                "UPDATE scans SET state = ?, totals = ?, duration_s = ? WHERE scan_no = ?",
                (state, dump_json(dict(totals)), duration_s, number),
            )

    def reuse(
        self, scan_id: str, batch: Sequence[DumpFile | Portion], signature: str
    ) -> list[DumpFile]:
        """Link the files whose record is there already. Returns the others.

        A record is used again only if root, path, name, place, size, both times, inode and
        `signature` are the same and the file could be opened and read then.
        """
        number = self._scan_no(scan_id)
        maker = self._identity_maker(number, signature)
        digest = maker.hash_batch(batch)
        count = sum(len(item) if type(item) is Portion else 1 for item in batch)
        with self._transaction() as connection:
            if link_batch(connection, number, digest, count):
                return []
            files = _all_files(batch)
            identities = list(map(maker.hash, files))
            known = self._link_files(connection, number, identities)
            stored = [(known[i], i) for i in identities if i in known]
            self._shared.refresh()
            awaited = AwaitedBatch(digest, count, stored, self._shared.generation)
            if stored and awaited.is_whole:
                insert_batch(connection, awaited, awaited.generation)
        self._identified_for = number
        others = [
            (file, identity)
            for file, identity in zip(files, identities, strict=True)
            if identity not in known
        ]
        for file, identity in others:
            maker.remember(file, identity, awaited)
        return [file for file, _ in others]

    def _link_files(
        self, connection: sqlite3.Connection, scan_no: int, identities: Sequence[bytes]
    ) -> dict[bytes, int]:
        """Link the files with these identities to a scan. Returns the numbers of those there."""
        if self._identified_for != scan_no:
            connection.execute(
                "INSERT OR REPLACE INTO identities SELECT identity, file_id FROM files"
                " WHERE file_id > (SELECT file_id FROM identified) AND identity IS NOT NULL"
                " ORDER BY identity"
            )
            connection.execute(
                "UPDATE identified SET file_id = (SELECT ifnull(max(file_id), 0) FROM files)"
            )
        known: dict[bytes, int] = {}
        for start in range(0, len(identities), _LOOKED_UP_AT_ONCE):
            some: list[bytes | None] = [*identities[start : start + _LOOKED_UP_AT_ONCE]]
            # Another number of marks would be another statement, and each is kept for a while.
            some += [None] * (_LOOKED_UP_AT_ONCE - len(some))
            known.update(connection.execute(_LOOK_UP, some))
        if known:
            connection.executemany(
                "INSERT OR IGNORE INTO scan_files VALUES(?,?)",
                [(scan_no, known[i]) for i in identities if i in known],
            )
        return known

    def add(self, scan_id: str, results: Sequence[FileResult], signature: str) -> None:
        """Store what files gave, and link them to the scan."""
        number = self._scan_no(scan_id)
        identity = self._identity_maker(number, signature)
        with self._transaction() as connection:
            rows = FileRows(connection, self._shared, number, identity)
            for result in results:
                rows.take(result)
            rows.insert()

    def add_failures(self, scan_id: str, failures: Iterable[ReadFailure]) -> None:
        """Store failures that belong to the scan itself: what the walk could not reach."""
        number = self._scan_no(scan_id)
        rows = [
            (None, None, number, f.file, f.reader, f.error, f.offset, f.message) for f in failures
        ]
        with self._transaction() as connection:
            insert_rows(connection, "failures", rows)

    def _identity_maker(self, scan_no: int, signature: str) -> IdentityMaker:
        with told(self.path):
            row = self._connection.execute(
                "SELECT root FROM scans WHERE scan_no = ?", (scan_no,)
            ).fetchone()
        maker = self._last_maker
        if maker is None or (maker.root, maker.signature) != (row[0], signature):
            maker = self._last_maker = IdentityMaker(row[0], signature)
        return maker


def _all_files(batch: Sequence[DumpFile | Portion]) -> list[DumpFile]:
    files: list[DumpFile] = []
    for item in batch:
        if type(item) is Portion:
            files += item.files()
        elif type(item) is DumpFile:
            files.append(item)
    return files
