"""A storage in memory that counts what it is asked for, and fails where a test wants it to."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import fsspec
from fsspec.implementations.memory import MemoryFileSystem

from dumpscope.remote.mounts import close_all

__all__ = ["CountedStorage", "Request", "counted_storage"]

LONG_AGO = datetime(2025, 11, 29, 12, 0, tzinfo=timezone.utc)


class Request(NamedTuple):
    """One request: `bytes` is how many came back."""

    kind: str
    path: str
    start: int = 0
    bytes: int = 0


class CountedStorage(MemoryFileSystem):  # type: ignore[misc]
    """`counted://[user[:password]@]bucket/path`, with tags and times in its listings."""

    protocol = "counted"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    requests: ClassVar[list[Request]] = []
    instances: ClassVar[list[dict[str, Any]]] = []
    on_request: Callable[[Request], None] | None = None

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        type(self).instances.append(options)

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        rest = path.removeprefix("counted://").strip("/")
        host, slash, below = rest.partition("/")
        return "/" + host.rpartition("@")[2] + slash + below if rest else ""

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, str]:
        user, at, _ = path.removeprefix("counted://").partition("/")[0].rpartition("@")
        name, _, password = user.partition(":")
        return {"username": name, "password": password} if at else {}

    @classmethod
    def _ask(cls, request: Request) -> None:
        cls.requests.append(request)
        if cls.on_request is not None:
            cls.on_request(request)

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> Any:
        self._ask(Request("ls", path))
        found = super().ls(path, detail=True, **kwargs)
        return [self._tagged(entry) for entry in found] if detail else found

    def info(self, path: str, **kwargs: Any) -> Any:
        self._ask(Request("info", path))
        return self._tagged(super().info(path, **kwargs))

    def _tagged(self, entry: dict[str, Any]) -> dict[str, Any]:
        if entry["type"] != "file":
            return entry
        content = self.store[entry["name"]].getvalue()
        return {**entry, "created": LONG_AGO, "ETag": hashlib.sha256(content).hexdigest()}

    def cat_file(self, path: str, start: Any = None, end: Any = None, **kwargs: Any) -> bytes:
        if path not in self.store:
            self._ask(Request("cat", path, start))
            raise FileNotFoundError(path)
        content: bytes = self.store[path].getvalue()[start:end]
        self._ask(Request("cat", path, start, len(content)))
        return content

    @classmethod
    def put_bytes(cls, path: str, content: bytes) -> None:
        """Make an object. The path is taken as it is, however odd."""
        from fsspec.implementations.memory import MemoryFile

        cls.store[path] = MemoryFile(None, path, content)

    @classmethod
    def put_tree(cls, folder: Path, path: str) -> None:
        """Copy the regular files below a local folder."""
        for file in sorted(folder.rglob("*")):
            if file.is_file() and not file.is_symlink():
                cls.put_bytes(f"{path}/{file.relative_to(folder).as_posix()}", file.read_bytes())

    @classmethod
    def count(cls, kind: str) -> int:
        return sum(1 for request in cls.requests if request.kind == kind)


@contextmanager
def counted_storage() -> Iterator[type[CountedStorage]]:
    """Make `counted://` known, with nothing in it."""
    fsspec.register_implementation("counted", CountedStorage, clobber=True)
    CountedStorage.store.clear()
    CountedStorage.requests.clear()
    CountedStorage.instances.clear()
    CountedStorage.on_request = None
    close_all()
    try:
        yield CountedStorage
    finally:
        CountedStorage.on_request = None
        CountedStorage.store.clear()
        close_all()
