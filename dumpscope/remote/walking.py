"""From URLs to a stream of dump files, with one listing for each folder.

Sizes, times and tags come out of the listing: no file is asked about by itself. The listing of one
folder is in memory at a time, and the names of the subfolders on the way down. What cannot be
listed to its end, and what no file system could have, is a `ReadFailure` in the same stream.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from dumpscope.errors import OptionsError, StorageReadError
from dumpscope.mapping_table import MAPPING, MAX_MAPPING_BYTES, bounded_lines
from dumpscope.model import DumpFile, Place, ReadFailure
from dumpscope.naming import read_mapping, real_name
from dumpscope.places import place_of
from dumpscope.remote.listing import Entry, describe_one, join_path, list_folder
from dumpscope.remote.mounts import Mount, StorageError, ask, mount
from dumpscope.remote.urls import is_url, join_url, relative_url
from dumpscope.roots import resolve_roots
from dumpscope.walk import MAX_DEPTH, STORE_FOLDER, WALK, too_deep

__all__ = ["RemoteWalker", "find_remote_file", "is_remote_file"]

_ERROR = StorageReadError.__name__


class _Root(NamedTuple):
    """One URL to walk: what it is called below the common root, and what is there."""

    mount: Mount
    relative: str
    source: int
    entry: Entry


class _Folder(NamedTuple):
    """A folder still to be read: its URL, its path in the file system, below the common root."""

    url: str
    path: str
    relative: str
    depth: int


class RemoteWalker:
    """What `walk` returns for URLs: see `walk.Walker`, whose attributes it has.

    Raises
    ------
    OptionsError
        Nothing is there, it may not be looked at, or there is no connection.
    """

    def __init__(self, roots: Sequence[str], *, companions: Mapping[str, str]) -> None:
        self.remote = True
        named = [mount(root) for root in roots if is_url(root)]  # with their passwords
        root, urls = resolve_roots(roots)
        by_url = {one.url: one for one in named}
        self.skipped: Counter[str] = Counter()
        self.files = 0
        self.bytes = 0
        self.folders = 0
        self.finished = False
        self._companions = companions
        found = [(by_url[url], _look_at(by_url[url])) for url in urls]
        if len(found) == 1 and found[0][1].kind == "file":
            root = root.rpartition("/")[0] if "/" in root.partition("://")[2] else _origin(root)
        self.root = root
        self._roots: list[_Root] = []
        sources: dict[str, int] = {}
        for index, (one, entry) in enumerate(found):
            source = index
            if entry.kind == "file":  # files of one folder share a number
                source = sources.setdefault(one.url.rpartition("/")[0], index)
            self._roots.append(_Root(one, relative_url(one.url, root) or "", source, entry))
        self._stream = self._walk_roots()

    def __iter__(self) -> Iterator[DumpFile | ReadFailure]:
        return self._stream

    def __next__(self) -> DumpFile | ReadFailure:
        return next(self._stream)

    def portions(self) -> Iterator[DumpFile | ReadFailure]:
        """Yield what iterating yields: each file comes with a tag of the storage's own."""
        return self._stream

    def close(self) -> None:
        """Stop walking."""
        self._stream.close()

    @property
    def skipped_links(self) -> int:
        """How many links were passed over."""
        return self.skipped["link_outside"]

    @property
    def names_one_file(self) -> bool:
        """Whether a single file was named, not a folder."""
        return [root.entry.kind for root in self._roots] == ["file"]

    def _walk_roots(self) -> Generator[DumpFile | ReadFailure, None, None]:
        for root in self._roots:
            if root.entry.kind == "file":
                yield from self._offer_file(root)
            else:
                yield from self._walk_tree(root)
        self.finished = True

    def _offer_file(self, root: _Root) -> Iterator[DumpFile | ReadFailure]:
        """Yield a single file that the user named."""
        filesystem, path = root.mount.connect()
        url = root.mount.url
        above, _, name = path.rpartition("/")
        mapping: dict[str, str] = {}
        beside = join_path(above, MAPPING)
        try:
            table = describe_one(filesystem, beside)
        except StorageError as error:
            if not error.missing:
                yield _failure(MAPPING, f"hashed names stay as they are: {error.text}")
        else:
            mapping, failure = _load_mapping(filesystem, beside, table, MAPPING)
            if failure is not None:
                yield failure
        place = place_of(url.rpartition("/")[0], root.source)
        yield self._offer(url, root.relative, real_name(name, mapping), root.entry, place)

    def _offer(self, url: str, relative: str, name: str, entry: Entry, place: Place) -> DumpFile:
        self.files += 1
        self.bytes += entry.size
        return DumpFile(
            url, relative, name, entry.size, entry.mtime_ns, entry.ctime_ns, entry.tag, place
        )

    def _walk_tree(self, root: _Root) -> Iterator[DumpFile | ReadFailure]:
        """Yield the files of one folder and of all below it, depth first."""
        filesystem, path = root.mount.connect()
        waiting = [_Folder(root.mount.url, path, root.relative, 0)]
        while waiting:
            folder = waiting.pop()
            if folder.depth > MAX_DEPTH:
                yield too_deep(folder.relative)
                continue
            yield from self._list_folder(filesystem, folder, root, waiting)

    def _list_folder(
        self, filesystem: Any, folder: _Folder, root: _Root, waiting: list[_Folder]
    ) -> Iterator[DumpFile | ReadFailure]:
        """Yield the files of one folder and add its subfolders to those waiting."""
        self.folders += 1
        try:
            entries = list_folder(filesystem, folder.path)
        except StorageError as error:
            yield _failure(
                folder.relative or ".",
                f"the folder {folder.url} cannot be listed to its end: {error.text}",
            )
            return
        place = place_of(folder.url, root.source, root.mount.url)
        mapping: dict[str, str] = {}
        table = next((e for e in entries if e.name == MAPPING and e.kind == "file"), None)
        if table is not None:
            mapping, failure = _load_mapping(
                filesystem, join_path(folder.path, MAPPING), table, _join(folder, MAPPING)
            )
            if failure is not None:
                yield failure
        names = {entry.name for entry in entries if entry.kind == "file"}
        passed_over = {
            belonging for name, belonging in self._companions.items() if name in names
        } | {STORE_FOLDER}
        below: list[_Folder] = []
        for entry in entries:
            name = entry.name
            if entry.kind == "file":
                if name != MAPPING:
                    shown = real_name(name, mapping) if mapping else name
                    url = join_url(folder.url, name)
                    yield self._offer(url, _join(folder, name), shown, entry, place)
            elif entry.kind == "folder":
                if name not in passed_over:
                    path = join_path(folder.path, name)
                    url = join_url(folder.url, name)
                    below.append(_Folder(url, path, _join(folder, name), folder.depth + 1))
            elif entry.kind == "nameless":
                yield _failure(
                    folder.relative or ".",
                    f"the storage lists {name!r}, which no file can be called: it is not read; "
                    "rename the object",
                )
            else:
                self.skipped["link_outside" if entry.kind == "link" else "other"] += 1
        waiting.extend(reversed(below))


def find_remote_file(url: str) -> DumpFile:
    """Describe one file as a walk would.

    Raises `OptionsError` when there is no such file, or it is a folder.
    """
    walker = RemoteWalker([url], companions={})
    if walker.names_one_file:
        for found in walker:
            if isinstance(found, DumpFile):
                return found
    shown = walker.root
    raise OptionsError(f"{shown!r} is a folder: expected one dump file; scan reads folders")


def is_remote_file(url: str) -> bool:
    """Say whether there is a file at a URL."""
    filesystem, path = mount(url).connect()
    try:
        return describe_one(filesystem, path).kind == "file"
    except StorageError:
        return False


def _look_at(one: Mount) -> Entry:
    """Ask what a URL leads to, in words for who named it."""
    try:
        filesystem, path = one.connect()
        if not path.strip("/") and not filesystem.root_marker:
            raise OptionsError(f"{one.url!r} cannot be scanned: it names no bucket")
        entry = describe_one(filesystem, path)
    except StorageError as error:
        raise OptionsError(f"{one.url!r} cannot be scanned: {error.text}") from error
    if entry.kind in ("folder", "link", "file"):
        return entry
    raise OptionsError(f"{one.url!r} cannot be scanned: it is neither a folder nor a file")


def _load_mapping(
    filesystem: Any, path: str, entry: Entry, relative: str
) -> tuple[dict[str, str], ReadFailure | None]:
    """Read the mapping.csv of a folder, with one request."""
    length = min(entry.size, MAX_MAPPING_BYTES)
    try:
        content: bytes = ask(lambda: filesystem.cat_file(path, start=0, end=length))
    except StorageError as error:
        why = f"hashed names stay as they are, it cannot be read: {error.text}"
        return {}, _failure(relative, why)
    text = io.TextIOWrapper(
        io.BytesIO(content[:length]), encoding="utf-8", errors="surrogateescape", newline="\n"
    )
    mapping = read_mapping(bounded_lines(text, MAX_MAPPING_BYTES))
    if entry.size > MAX_MAPPING_BYTES:
        return mapping, ReadFailure(
            relative,
            WALK,
            "DumpReadError",
            MAX_MAPPING_BYTES,
            f"expected at most {MAX_MAPPING_BYTES} bytes, found {entry.size}: "
            "the real names after them are not known",
        )
    return mapping, None


def _origin(url: str) -> str:
    return url[: url.index("://") + 3]


def _join(folder: _Folder, name: str) -> str:
    return f"{folder.relative}/{name}" if folder.relative else name


def _failure(relative: str, message: str) -> ReadFailure:
    return ReadFailure(relative, WALK, _ERROR, None, message)
