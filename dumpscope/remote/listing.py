"""What lies in a folder of some storage: names, sizes, and what tells versions apart.

Backends agree on `name`, `size` and `type` only. When an object was written last, and a tag that
changes with its content, have other names in each.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from typing import Any, Literal, NamedTuple

from dumpscope.remote.mounts import StorageError, ask

__all__ = ["Entry", "describe", "describe_one", "join_path", "list_folder"]

_TIMES = (
    "LastModified", "mtime", "last_modified", "updated", "timeModified", "created", "modified",
)  # fmt: skip
_TAGS = ("ETag", "etag", "content_md5", "md5Hash", "md5", "checksum", "generation", "version_id")
_RECENT_NS = 5_000_000_000

Kind = Literal["file", "folder", "link", "nameless", "other"]


class Entry(NamedTuple):
    """One thing in a folder.

    `kind` is "nameless" where no file system could have a file of that name: `name` is what the
    storage says then. `tag` is a number made of the storage's own tag, 0 without one; `ctime_ns`
    is 0 where size, time and tag tell versions apart, else the time of looking, so that nothing
    that was read before counts as unchanged.
    """

    name: str
    kind: Kind
    size: int
    mtime_ns: int
    ctime_ns: int
    tag: int


def join_path(folder: str, name: str) -> str:
    """Put a name behind a path in a file system of fsspec."""
    if not name:
        return folder
    return f"{folder}{name}" if folder.endswith("/") else f"{folder}/{name}"


def list_folder(filesystem: Any, path: str) -> list[Entry]:
    """List a folder, sorted by name, with one call of the backend.

    Raises
    ------
    StorageError
        It cannot be listed to its end.
    """
    found = ask(lambda: filesystem.ls(path, detail=True))
    entries: dict[str, Entry] = {}
    # From the end, so that the large records of the backend go as ours are made.
    while found:
        for entry in _entries_of(found.pop(), path):
            key = f"{entry.kind}/{entry.name}"
            entries[key] = entry
    return sorted(entries.values())


def describe_one(filesystem: Any, path: str) -> Entry:
    """Ask what lies at a path.

    Raises
    ------
    StorageError
        Nothing, or the storage does not say.
    """
    return describe(ask(lambda: filesystem.info(path)), path.rpartition("/")[2])


def describe(info: Mapping[str, Any], name: str) -> Entry:
    """Make an entry of what a backend tells of one."""
    kind = _kind_of(info.get("type"))
    size = info.get("size")
    if kind == "file" and (isinstance(size, bool) or not isinstance(size, int) or size < 0):
        raise StorageError(f"the storage does not say how large it is (found {size!r:.40})")
    mtime_ns = next((ns for key in _TIMES if (ns := _nanoseconds(info.get(key)))), 0)
    tag = next((_number(info[key]) for key in _TAGS if info.get(key)), 0)
    now = time.time_ns()
    ctime_ns = 0
    if not tag and (not mtime_ns or now - mtime_ns < _RECENT_NS):
        ctime_ns = now  # times are coarse: it may change again without showing it
    return Entry(name, kind, size if isinstance(size, int) else 0, mtime_ns, ctime_ns, tag)


def _entries_of(info: Any, folder: str) -> Iterator[Entry]:
    if not isinstance(info, Mapping) or not isinstance(info.get("name"), str):
        raise StorageError(f"expected a listing with names, found {info!r:.80}")
    full: str = info["name"]
    kind = _kind_of(info.get("type"))
    prefix = join_path(folder, "x")[:-1]
    name = full[len(prefix) :] if full.startswith(prefix) else None
    if name is None and full.startswith(prefix.lstrip("/")):
        name = full[len(prefix.lstrip("/")) :]
    if kind == "folder" and name is not None:
        name = name.removesuffix("/")
    if not name and kind == "file" and not info.get("size"):
        return  # an empty object that stands for the folder itself, as consoles make them
    if full == folder and kind == "folder":
        return
    if not name or name in (".", "..") or "/" in name or "\0" in name:
        yield Entry(full, "nameless", 0, 0, 0, 0)
        return
    yield describe(info, name)


def _kind_of(value: object) -> Kind:
    if value == "file":
        return "file"
    if value == "directory":
        return "folder"
    return "link" if value == "link" else "other"


def _nanoseconds(value: object) -> int:
    """Return a time as nanoseconds since the epoch, 0 for what is none."""
    try:
        if isinstance(value, str):
            value = datetime.fromisoformat(value.replace("Z", "+00:00"))
        if isinstance(value, datetime):
            if value.tzinfo is None:
                value = value.replace(tzinfo=timezone.utc)
            return int(value.timestamp() * 1_000_000) * 1000
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return int(value * 1_000_000) * 1000
    except (ValueError, OverflowError):
        return 0
    return 0


def _number(tag: object) -> int:
    digest = hashlib.blake2b(str(tag).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1 or 1
