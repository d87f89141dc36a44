"""Connections to storage: from the URL of a root to a file system of fsspec, and its errors.

A `Mount` is small and plain, so it travels to other processes; each of them opens file systems of
its own, because the event loops and sessions behind them survive no fork. Those that are not
asynchronous are opened once for each thread: their connections are not made to be shared.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import field
from typing import Any, TypeVar

from dumpscope.errors import OptionsError
from dumpscope.records import record
from dumpscope.remote.urls import hide_secrets, normalize_url, relative_url, without_password

__all__ = ["Mount", "StorageError", "ask", "close_all", "mount", "mount_of", "mounts", "use_mounts"]

_LONGEST_TEXT = 400

Answer = TypeVar("Answer")


class StorageError(Exception):
    """What a backend raised, as one line without secrets.

    Attributes
    ----------
    missing
        Whether there is nothing of that name.
    """

    def __init__(self, text: str, *, missing: bool = False) -> None:
        super().__init__(text)
        self.text = text
        self.missing = missing


@record(frozen=True, slots=True)
class Mount:
    """A URL that was named as a root.

    `url` may be shown and kept; `opened` is what opens it, with the password if it had one.
    """

    url: str
    opened: str = field(repr=False, compare=False)

    def connect(self) -> tuple[Any, str]:
        """Return the file system for this process and thread, and the path of the root in it.

        Raises
        ------
        OptionsError
            fsspec, or the package that speaks the protocol, is not installed.
        StorageError
            There is no connection.
        """
        process = os.getpid()
        keys = ((process, 0, self.url), (process, threading.get_ident(), self.url))
        for key in keys:
            found = _connections.get(key)
            if found is not None:
                return found
        with _lock:
            found = _connections.get(keys[0])
            if found is None:
                found = _connect(self.url, self.opened)
                shared = bool(getattr(found[0], "async_impl", False))
                _connections[keys[0] if shared else keys[1]] = found
        return found


_connections: dict[tuple[int, int, str], tuple[Any, str]] = {}
_mounts: dict[str, Mount] = {}
_lock = threading.Lock()
# A fork in the middle of opening must not leave the child with a lock that nobody lets go of.
os.register_at_fork(
    before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release
)


def mount(url: str) -> Mount:
    """Remember a URL that a user named.

    Raises `OptionsError` for one that cannot be read.
    """
    opened = normalize_url(url)
    shown = without_password(opened)
    known = _mounts.get(shown)
    if known is not None and (opened == shown or known.opened == opened):
        return known  # also without its password, once that is known
    made = Mount(shown, opened)
    with _lock:
        _mounts[shown] = made
        for key in [key for key in _connections if key[2] == shown]:
            del _connections[key]
    return made


def mounts() -> tuple[Mount, ...]:
    """Return all that were named so far, for another process to use."""
    return tuple(_mounts.values())


def use_mounts(given: Iterable[Mount]) -> None:
    """Take over what another process was given to read."""
    for one in given:
        _mounts[one.url] = one


def mount_of(url: str) -> tuple[Mount, str]:
    """Find the mount in which the URL of a file lies, and its path below it."""
    best: tuple[Mount, str] | None = None
    for one in list(_mounts.values()):
        relative = relative_url(url, one.url)
        if relative is not None and (best is None or len(one.url) > len(best[0].url)):
            best = one, relative
    return best or (mount(url), "")


def close_all() -> None:
    """Forget all connections and all that was named; file systems close when they are freed."""
    with _lock:
        _connections.clear()
        _mounts.clear()


def ask(call: Callable[[], Answer]) -> Answer:
    """Ask a backend for something.

    Raises
    ------
    StorageError
        Whatever it raised: backends have exceptions of their own, and fsspec asks nothing of them.
    """
    try:
        return call()
    except (StorageError, OptionsError, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001 - a backend is a plugin of fsspec's
        raise _fault_of(error) from None


def _fault_of(error: Exception) -> StorageError:
    text = " ".join(str(error).split())
    name = type(error).__name__
    missing = isinstance(error, FileNotFoundError)
    if missing:
        text = f"there is nothing of that name ({name})"
    else:
        text = f"{name}: {text}" if text else name
    text = hide_secrets(text)
    if len(text) > _LONGEST_TEXT:
        text = text[:_LONGEST_TEXT] + "…"
    return StorageError(text, missing=missing)


def _connect(shown: str, opened: str) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs
        from fsspec.registry import get_filesystem_class
    except ImportError as error:
        raise OptionsError(
            f"{shown!r} cannot be read without fsspec: pip install 'dumpscope[remote]'"
        ) from error
    protocol = shown.partition("://")[0]
    try:
        get_filesystem_class(protocol)
    except ImportError as error:
        advice = str(error).strip() or f"a package for {protocol} is missing"
        raise OptionsError(
            f"{shown!r} cannot be read, {protocol}:// needs one more package: {advice}"
        ) from error
    except ValueError as error:
        raise OptionsError(f"{shown!r} cannot be read: fsspec knows no {protocol}://") from error
    filesystem, path = ask(lambda: url_to_fs(opened, skip_instance_cache=True))
    listings: Any = getattr(filesystem, "dircache", None)
    if hasattr(listings, "use_listings_cache"):
        # A listing is read once, and of a tree with millions of files none may stay.
        listings.use_listings_cache = False
    return filesystem, path
