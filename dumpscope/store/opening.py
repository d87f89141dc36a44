"""Opening a store file, and the sentences for what can be wrong with it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING
from urllib.parse import quote

from dumpscope.errors import StoreError
from dumpscope.store.migrations import NEWEST_VERSION, migrate, user_version

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["APPLICATION_ID", "BUSY_SECONDS", "StoreConnection", "is_network_path"]

APPLICATION_ID = 0x44534350
"""Marks a SQLite file as a store of dumpscope ("DSCP")."""

BUSY_SECONDS = 30.0
"""How long a writer waits for another one."""

_CACHE_KIB = 16 * 1024

_NETWORK_TYPES = frozenset(
    "9p afs beegfs ceph cifs fhgfs gfs gfs2 glusterfs gpfs lustre ncpfs nfs nfs4 ocfs2 orangefs "
    "panfs pvfs2 smb3 smbfs virtiofs weka wekafs yrfs dpc juicefs".split()
)
_NETWORK_FUSE = ("fuse.sshfs", "fuse.gluster", "fuse.ceph", "fuse.juicefs", "fuse.s3", "fuse.rclone")


class StoreConnection:
    """The open file. `path` is its name, `journal` its journal mode ("wal" or "delete")."""

    def __init__(self, connection: sqlite3.Connection, path: str, journal: str) -> None:
        self._connection = connection
        self.path = path
        self.journal = journal

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        create: bool = True,
        write: bool = True,
        busy_s: float = BUSY_SECONDS,
        vfs: str | None = None,
    ) -> Self:
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
            How long to wait for another process that is writing.
        vfs
            Name of one of SQLite's own file layers, `None` for its default.

        Raises
        ------
        StoreError
            It is not there, locked, read-only, damaged, newer than this program, or no store.
        """
        name = os.fspath(path)
        if not os.path.exists(name):
            if not create or not write:
                raise StoreError(
                    f"{name}: there is no store here; `dumpscope scan PATH` makes one, "
                    "--store FILE names another"
                )
            try:
                os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
            except OSError as error:
                raise StoreError(
                    f"{name}: its folder cannot be made: {error.strerror}; "
                    "--store FILE chooses another place"
                ) from error
        elif os.path.isdir(name):
            raise StoreError(f"{name}: expected a store file, found a folder")
        with told(name):
            if not write:
                connection = _connect_to_read(name, busy_s, vfs)
                return cls(connection, name, "off")
            connection = _connect(name, "rwc" if create else "rw", busy_s, vfs)
            try:
                journal = _prepare(connection, name)
            except BaseException:
                connection.close()
                raise
        return cls(connection, name, journal)

    def close(self) -> None:
        """Close the file. What was not committed is gone."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

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


@contextmanager
def told(path: str) -> Iterator[None]:
    """Turn what SQLite raises into one sentence about the store."""
    try:
        yield
    except sqlite3.Error as error:
        raise StoreError(f"{path}: {_sentence(error)}") from error


def _sentence(error: sqlite3.Error) -> str:
    # sqlite_errorcode came with Python 3.11; SQLite's own texts have been the same for decades.
    text = str(error)
    if "locked" in text or "busy" in text:
        return (
            "the store is locked by another process; wait for it to end, "
            "or choose another store with --store FILE"
        )
    if "readonly" in text:
        return "the store is read-only; choose another place with --store FILE"
    if "unable to open" in text:
        return "the store cannot be opened; check that its folder can be read and written"
    if "not a database" in text:
        return "the file is not a store (no SQLite file); choose another one with --store FILE"
    if "malformed" in text or "corrupt" in text:
        return "the store is damaged; move it away and scan again"
    if "full" in text:
        return (
            "the disk is full; what was committed is kept: make room and go on with "
            "`dumpscope scan --resume`"
        )
    if "no such table" in text or "no such column" in text:
        return f"the store is damaged ({text}); move it away and scan again"
    return f"the store cannot be used: {text}"


def _connect(name: str, mode: str, busy_s: float, vfs: str | None) -> sqlite3.Connection:
    place = quote(os.path.abspath(os.fsencode(name)))
    uri = f"file:{place}?mode={mode}" + (f"&vfs={vfs}" if vfs else "")
    connection = sqlite3.connect(uri, uri=True, timeout=busy_s, isolation_level=None)
    connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
    return connection


def _connect_to_read(name: str, busy_s: float, vfs: str | None) -> sqlite3.Connection:
    connection = _connect(name, "ro", busy_s, vfs)
    try:
        _check_version(connection, name)
        return connection
    except sqlite3.OperationalError as error:
        connection.close()
        # A store in WAL mode needs a file beside it, which read-only media do not let be made.
        # Without a log beside it nothing is missing from the file itself.
        log = f"{name}-wal"
        if "unable to open" not in str(error) or (os.path.exists(log) and os.path.getsize(log)):
            raise
    except BaseException:
        connection.close()
        raise
    connection = _connect(name, "ro&immutable=1", busy_s, vfs)
    try:
        _check_version(connection, name)
    except BaseException:
        connection.close()
        raise
    return connection


def _check_version(connection: sqlite3.Connection, name: str) -> None:
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    if application != APPLICATION_ID:
        raise StoreError(
            f"{name}: the file is not a store (SQLite file of another program); "
            "choose another one with --store FILE"
        )
    version = user_version(connection)
    if version > NEWEST_VERSION:
        raise StoreError(
            f"{name}: expected a store of version {NEWEST_VERSION} or older, found {version}; "
            "a newer dumpscope wrote it: upgrade, or choose another store with --store FILE"
        )


def _prepare(connection: sqlite3.Connection, name: str) -> str:
    fresh = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
    if not fresh or user_version(connection):
        _check_version(connection, name)
    journal = _set_journal(connection, name)
    if fresh:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    migrate(connection)
    return journal


def _set_journal(connection: sqlite3.Connection, name: str) -> str:
    """Choose WAL where it works. Its shared memory does not work over a network."""
    journal = "delete"
    if not is_network_path(name):
        with suppress(sqlite3.OperationalError):
            journal = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if journal != "wal":
        journal = connection.execute("PRAGMA journal_mode = DELETE").fetchone()[0]
    # In WAL mode NORMAL loses at most the newest commits when the power fails, never the file.
    connection.execute(f"PRAGMA synchronous = {'NORMAL' if journal == 'wal' else 'FULL'}")
    return str(journal)


def is_network_path(path: str, mounts: str = "/proc/self/mounts") -> bool:
    """Whether a path lies on a network file system, as far as the table of mounts tells."""
    try:
        with open(mounts, encoding="utf-8", errors="surrogateescape") as table:
            lines = table.read().splitlines()
    except OSError:
        return False
    place = os.path.realpath(path) + os.sep
    best, kind = "", ""
    for line in lines:
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        # Blanks and the like are written as octal escapes.
        point = fields[1].replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
        if place.startswith(point.rstrip(os.sep) + os.sep) and len(point) >= len(best):
            best, kind = point, fields[2]
    return kind in _NETWORK_TYPES or kind.startswith(_NETWORK_FUSE)
