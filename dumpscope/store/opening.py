"""Opening a store file, and the sentences for what can be wrong with it."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote

from dumpscope.errors import StoreError
from dumpscope.store.migrations import (
    APPLICATION_ID,
    NEWEST_VERSION,
    is_empty,
    migrate,
    user_version,
)

__all__ = ["SQLITE_VERSION", "is_network_path", "open_file", "told"]

SQLITE_VERSION = sqlite3.sqlite_version

_CACHE_KIB = 16 * 1024

_DAMAGED = "the store is damaged; move it away and scan again"

# Of a schema that was damaged, and of a text that is none.
_MISSING = (
    "no such table", "no such column", "has no column", "already exists", "Could not decode",
    "datatype mismatch", "no such collation", "no such function",
)  # fmt: skip

_NETWORK_TYPES = (
    "9p", "afs", "beegfs", "ceph", "cifs", "dpc", "fhgfs", "gfs", "glusterfs", "gpfs", "juicefs",
    "lustre", "ncpfs", "nfs", "ocfs2", "orangefs", "panfs", "pvfs2", "smb", "virtiofs", "weka",
    "yrfs",
)  # fmt: skip


def open_file(
    name: str, *, create: bool, write: bool, busy_s: float, vfs: str | None
) -> tuple[sqlite3.Connection, str]:
    """Open a store file and bring its schema up to date. Returns its journal mode too."""
    if not os.path.exists(name):
        if not create or not write:
            raise StoreError(
                f"{name}: there is no store here; `dumpscope scan PATH` makes one, "
                "--store FILE names another"
            )
        _make_folder(name)
    elif os.path.isdir(name):
        raise StoreError(f"{name}: expected a store file, found a folder")
    with told(name):
        if not write:
            connection = _connect_to_read(name, busy_s, vfs)
            if user_version(connection) == NEWEST_VERSION:
                return connection, "off"
            connection.close()
        connection = _connect(name, "rwc" if create else "rw", busy_s, vfs)
        try:
            return connection, _prepare(connection, name, busy_s)
        except BaseException:
            connection.close()
            raise


def _make_folder(name: str) -> None:
    try:
        os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"{name}: its folder cannot be made: {error.strerror}; "
            "--store FILE chooses another place"
        ) from error


@contextmanager
def told(path: str) -> Iterator[None]:
    """Turn what SQLite raises into one sentence about the store."""
    try:
        yield
    except sqlite3.Error as error:
        raise StoreError(f"{path}: {_sentence(error)}") from error
    except UnicodeDecodeError as error:
        # SQLite quotes what is damaged in its message, which Python then cannot decode.
        raise StoreError(f"{path}: {_DAMAGED}") from error


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
        return _DAMAGED
    if "full" in text or "I/O" in text:
        return (
            f"the disk is full or faulty ({text}); what was committed is kept: make room and run "
            "the same scan again, it goes on from there"
        )
    if any(part in text for part in _MISSING):
        return f"the store is damaged ({text}); move it away and scan again"
    return f"the store cannot be used: {text}"


def _connect(name: str, mode: str, busy_s: float, vfs: str | None) -> sqlite3.Connection:
    """Connect to a file, which SQLite opens at the first statement."""
    place = quote(os.path.abspath(os.fsencode(name)))
    uri = f"file:{place}?mode={mode}" + (f"&vfs={vfs}" if vfs else "")
    return sqlite3.connect(uri, uri=True, timeout=busy_s, isolation_level=None)


def _connect_to_read(name: str, busy_s: float, vfs: str | None) -> sqlite3.Connection:
    try:
        return _connect_and_check(name, "ro", busy_s, vfs)
    except sqlite3.OperationalError as error:
        # A store in WAL mode needs a file beside it, which read-only media do not let be made.
        # Without a log beside it nothing is missing from the file itself.
        log = f"{name}-wal"
        if "unable to open" not in str(error) or (os.path.exists(log) and os.path.getsize(log)):
            raise
    return _connect_and_check(name, "ro&immutable=1", busy_s, vfs)


def _connect_and_check(name: str, mode: str, busy_s: float, vfs: str | None) -> sqlite3.Connection:
    connection = _connect(name, mode, busy_s, vfs)
    try:
        _check_version(connection, name)
    except BaseException:
        connection.close()
        raise
    return connection


def _check_version(connection: sqlite3.Connection, name: str) -> None:
    version = user_version(connection)
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        if version == 0 and is_empty(connection):
            raise StoreError(f"{name}: the store is empty; `dumpscope scan PATH` fills it")
        raise StoreError(
            f"{name}: the file is not a store (SQLite file of another program); "
            "choose another one with --store FILE"
        )
    if version > NEWEST_VERSION:
        raise StoreError(
            f"{name}: expected a store of version {NEWEST_VERSION} or older, found {version}; "
            "a newer dumpscope wrote it: upgrade, or choose another store with --store FILE"
        )


def _prepare(connection: sqlite3.Connection, name: str, busy_s: float) -> str:
    connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
    if not is_empty(connection) or user_version(connection):
        _check_version(connection, name)
    journal = _set_journal(connection, name, busy_s)
    # In WAL mode NORMAL loses at most the newest commits when the power fails, never the file.
    connection.execute(f"PRAGMA synchronous = {'NORMAL' if journal == 'wal' else 'FULL'}")
    migrate(connection)
    return journal


def _set_journal(connection: sqlite3.Connection, name: str, busy_s: float) -> str:
    """Choose WAL where it works: its shared memory does not reach over a network."""
    wanted = "DELETE" if is_network_path(name) else "WAL"
    deadline = time.monotonic() + busy_s
    while True:
        try:
            # Where WAL is impossible, SQLite answers with the mode that stays.
            return str(connection.execute(f"PRAGMA journal_mode = {wanted}").fetchone()[0])
        except sqlite3.OperationalError as error:
            # SQLite does not wait by itself here when another process opens the file, too.
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


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
    # Whatever fuse shows (sshfs, s3, …): DELETE works there too.
    return kind.startswith(_NETWORK_TYPES) or kind.startswith("fuse.")
