"""The bytes of one object, read in large ranges.

A request costs as much as a megabyte, so a small object is read with one, a large one in chunks
of `CHUNK_BYTES`, whatever pieces are asked for. Of an object at most two such chunks are held, and
nothing is written anywhere.

A range that the backend does not deliver, after the attempts that it makes itself, is a
`StorageReadError` with URL, offset and what was expected. It is also kept in `faults`, because
some readers take what cannot be read for what is not there: a scan must not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from dumpscope.closing import Closing
from dumpscope.errors import DumpReadError, StorageReadError, TruncatedDumpError
from dumpscope.model import DumpFile
from dumpscope.remote.listing import Entry, describe_one, join_path, list_folder
from dumpscope.remote.mounts import StorageError, ask, mount_of
from dumpscope.remote.urls import join_url
from dumpscope.source import HEAD_BYTES, ReadBuffer, check_beside

__all__ = ["CHUNK_BYTES", "RemoteSource", "look_again"]

CHUNK_BYTES = 4 << 20
"""How much of a large object is asked for at once."""

_PROBE_BYTES = 1 << 16
"""How much is asked for where a small piece is wanted far from what was read last."""

_MOST_HELD_BYTES = 2 * CHUNK_BYTES


class RemoteSource(Closing):
    """An object in some storage, seen through fsspec.

    Parameters
    ----------
    file
        What the walk found.
    buffer
        The worker's buffer; blocks are handed out in it.

    Attributes
    ----------
    faults
        What the storage did not deliver, of this object and of those beside it.

    Raises
    ------
    StorageReadError
        The storage did not deliver its beginning.
    """

    __slots__ = (
        "_buffer", "_filesystem", "_listings", "_path", "_windows",
        "faults", "file", "head", "size",
    )  # fmt: skip

    def __init__(
        self,
        file: DumpFile,
        buffer: ReadBuffer,
        *,
        faults: list[StorageReadError] | None = None,
    ) -> None:
        self.file = file
        self.size = file.size
        self.faults: list[StorageReadError] = [] if faults is None else faults
        self._buffer = buffer
        self._listings: dict[str, dict[str, Entry]] = {}
        self._windows: list[tuple[int, bytes]] = []
        try:
            self._filesystem, self._path = _locate(file.path)
        except StorageError as error:
            raise self._failure(0, min(self.size, CHUNK_BYTES), error.text) from error
        self._read_beginning()
        self.head = self._windows[0][1][:HEAD_BYTES] if self._windows else b""

    def _read_beginning(self) -> None:
        """Read a small object, or the first chunk; an object that changed counts as it is now."""
        if not self.size:
            return
        # One byte more than there should be shows what has grown.
        asked = min(self.size + 1, CHUNK_BYTES)
        content = self._fetch(0, asked)
        if len(content) != min(self.size, asked):
            try:
                self.size = describe_one(self._filesystem, self._path).size
            except StorageError as error:
                raise self._failure(0, self.size, error.text) from error
            content = content[: self.size]
        if content:
            self._windows.append((0, content))

    def _fetch(self, start: int, length: int) -> bytes:
        """Ask for a range; fewer bytes come where the object ends earlier."""
        filesystem, path = self._filesystem, self._path
        try:
            content = ask(lambda: filesystem.cat_file(path, start=start, end=start + length))
        except StorageError as error:
            raise self._failure(start, length, error.text) from error
        if not isinstance(content, bytes):
            content = bytes(content)
        if len(content) > length:
            raise self._failure(
                start, length, f"it gave {len(content)}: it does not do ranged reads"
            )
        return content

    def _failure(self, offset: int, length: int, why: str) -> StorageReadError:
        return self._keep(
            f"expected {length} bytes of {self.file.path}, the storage did not deliver them: {why}",
            offset,
        )

    def _keep(self, message: str, offset: int | None = None) -> StorageReadError:
        error = StorageReadError(message, path=self.file.relative, offset=offset)
        self.faults.append(error)
        return error

    def _window_at(self, offset: int, wanted: int) -> tuple[int, bytes]:
        """Return bytes that begin at or before `offset` and hold at least one from there on."""
        follows = False
        for window in reversed(self._windows):
            start, content = window
            if start <= offset < start + len(content):
                return window
            follows = follows or offset == start + len(content)
        if not follows and wanted < _PROBE_BYTES:
            return self._add_window(offset, _PROBE_BYTES)
        return self._add_window(offset, CHUNK_BYTES)

    def _add_window(self, offset: int, most: int) -> tuple[int, bytes]:
        windows = self._windows
        while windows and sum(len(held) for _, held in windows) + most > _MOST_HELD_BYTES:
            windows.pop(0)
        length = min(most, self.size - offset)
        content = self._fetch(offset, length)
        if not content:
            raise TruncatedDumpError(
                f"expected {length} more bytes, found 0: the object shrank while it was read",
                path=self.file.relative,
                offset=offset,
            )
        windows.append((offset, content))
        return windows[-1]

    def read(self, offset: int, length: int) -> bytes:
        self._check(offset, length)
        end = offset + length
        parts = []
        while offset < end:
            start, content = self._window_at(offset, end - offset)
            part = content[offset - start : end - start]
            parts.append(part)
            offset += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def blocks(self, offset: int, length: int) -> Iterator[memoryview]:
        self._check(offset, length)
        return self._stream(offset, offset + length)

    def _stream(self, offset: int, end: int) -> Iterator[memoryview]:
        view, room = self._buffer.view, self._buffer.size
        while offset < end:
            start, content = self._window_at(offset, CHUNK_BYTES)
            count = min(start + len(content), end, offset + room) - offset
            if count < end - offset:
                count -= count % 16
                if not count:  # the last few bytes of a chunk begin the next one
                    self._add_window(offset, CHUNK_BYTES)
                    if len(self._windows[-1][1]) < min(16, end - offset):
                        raise TruncatedDumpError(
                            f"expected {end - offset} more bytes, found "
                            f"{len(self._windows[-1][1])}: the object shrank while it was read",
                            path=self.file.relative,
                            offset=offset,
                        )
                    continue
            # A copy costs little beside a request, and starts where every dtype may.
            view[:count] = memoryview(content)[offset - start : offset - start + count]
            yield view[:count]
            offset += count

    def _check(self, offset: int, length: int) -> None:
        if offset + length > self.size or offset < 0 or length < 0:
            raise TruncatedDumpError(
                f"expected {length} bytes, found {max(0, self.size - offset)}: "
                "the file ends before them",
                path=self.file.relative,
                offset=max(offset, 0),
            )

    # --- what lies beside it --------------------------------------------------------------------

    def sibling(self, relative: str) -> RemoteSource:
        check_beside(relative, self.file)
        folder, _, name = relative.rpartition("/")
        known = self._listings.get(folder)
        entry = None if known is None else known.get(name)
        own = self.file.path.rpartition("/")[0]
        if entry is None:
            path = join_path(self._path.rpartition("/")[0], relative)
            try:
                entry = describe_one(self._filesystem, path)
            except StorageError as error:
                if not error.missing:
                    raise self._keep(
                        f"expected to be told what {join_url(own, relative)} is, the storage did "
                        f"not say it: {error.text}"
                    ) from error
                raise DumpReadError(
                    f"names the file {relative!r}, which cannot be opened: {error.text}",
                    path=self.file.relative,
                ) from error
        if entry.kind != "file":
            raise DumpReadError(f"names {relative!r}, which is no file", path=self.file.relative)
        folder_relative = self.file.relative.rpartition("/")[0]
        return self.open_near(
            join_url(own, relative), join_url(folder_relative, relative).lstrip("/"), entry
        )

    def open_near(self, url: str, relative: str, entry: Entry) -> RemoteSource:
        """Open another object of the same storage."""
        file = replace(
            self.file,
            path=url,
            relative=relative,
            name=url.rpartition("/")[2],
            size=entry.size,
            mtime_ns=entry.mtime_ns,
            ctime_ns=entry.ctime_ns,
            inode=entry.tag,
        )
        return RemoteSource(file, ReadBuffer(), faults=self.faults)

    def list_folder(self, relative: str) -> list[str]:
        known = self._listings.get(relative)
        if known is None:
            entries = self.list_near(join_url(self.file.path.rpartition("/")[0], relative))
            known = {entry.name: entry for entry in entries if entry.kind == "file"}
            self._listings[relative] = known
        return sorted(known)

    def list_near(self, url: str) -> list[Entry]:
        """List another folder of the same storage, `[]` where there is none."""
        filesystem, path = self._filesystem, _locate(url)[1]
        try:
            return list_folder(filesystem, path)
        except StorageError as error:
            if error.missing:
                return []
            raise self._keep(
                f"expected the listing of {url}, the storage did not deliver it: {error.text}"
            ) from error

    def close(self) -> None:
        self._windows.clear()


def _locate(url: str) -> tuple[Any, str]:
    found, relative = mount_of(url)
    filesystem, root = found.connect()
    return filesystem, join_path(root, relative)


def look_again(file: DumpFile) -> Entry | None:
    """Ask what an object is like now, `None` where that is not known."""
    try:
        filesystem, path = _locate(file.path)
        return describe_one(filesystem, path)
    except StorageError:
        return None
