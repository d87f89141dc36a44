"""The bytes of one dump file, read through a small reused buffer.

`DumpSource` is all that a reader sees of a file: its size, its first bytes, bounded reads and
streams of blocks. Every length is checked against the file's size before anything is
allocated. Other kinds of storage implement the same methods.

The buffer is an anonymous mapping, hence page aligned: copies into a buffer that starts a few
bytes past a page boundary run at a fraction of the speed.
"""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from dumpscope.closing import Closing
from dumpscope.errors import DumpReadError, TruncatedDumpError
from dumpscope.model import DumpFile

__all__ = [
    "BLOCK_BYTES",
    "HEAD_BYTES",
    "DumpSource",
    "LocalSource",
    "ReadBuffer",
    "Stretch",
    "check_beside",
]

BLOCK_BYTES = 1 << 20
"""The best size of a read: larger blocks leave the cache, smaller ones pay for more calls."""

HEAD_BYTES = 4096
"""How much of a file's beginning a reader is shown to recognise it by."""

_FIRST_BYTES = 1 << 16
"""How much of a large file is read before it is known where its tensors begin."""

_LONG_BYTES = 1 << 18
"""Shorter tensors are taken from blocks, which hold the next one too."""

_HAS_PREADV = hasattr(os, "preadv")
_OPEN_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW


class ReadBuffer:
    """One page-aligned block, reused for file after file by one worker."""

    def __init__(self, size: int = BLOCK_BYTES) -> None:
        self.mapping = mmap.mmap(-1, size)
        self.view = memoryview(self.mapping)
        self.views = [self.view]
        self.size = size


class Stretch(NamedTuple):
    """Bytes of an open file that somebody else may read, and the buffer for it."""

    descriptor: int
    offset: int
    buffer: mmap.mmap


class DumpSource(Protocol):
    """What a reader may ask of a file.

    `head` is the beginning of the file, at most `HEAD_BYTES`; `size` is the file's size in
    bytes when it was opened.
    """

    file: DumpFile
    size: int
    head: bytes

    def read(self, offset: int, length: int) -> bytes:
        """Return exactly `length` bytes from `offset`.

        Raises `TruncatedDumpError` when the file does not hold them.
        """

    def blocks(self, offset: int, length: int) -> Iterator[memoryview]:
        """Yield the bytes from `offset` in consecutive blocks of at most `BLOCK_BYTES`.

        Each block starts on an address that suits every dtype and has a multiple of 16 bytes,
        the last one apart. It is valid until the next one is asked for.
        """

    def sibling(self, relative: str) -> DumpSource:
        """Open a file named by this one, relative to its folder.

        Only files inside the same folder or below it are opened, and no links are followed.
        Raises `DumpReadError` otherwise or when it is not there. The caller closes it.
        """

    def list_folder(self, relative: str) -> list[str]:
        """Names of the regular files in a folder below this file's own, `[]` without one."""

    def close(self) -> None:
        """Release the file."""


class LocalSource(Closing):
    """A file of the local file system, opened read-only.

    Parameters
    ----------
    file
        What the walk found. The path must still lead to a regular file.
    buffer
        The worker's buffer; its content belongs to this source until it is closed.

    Raises
    ------
    OSError
        The file vanished or may not be read.
    DumpReadError
        It is no longer a regular file.
    """

    __slots__ = ("_buffer", "_fd", "_window_end", "_window_start", "file", "head", "size")

    def __init__(self, file: DumpFile, buffer: ReadBuffer) -> None:
        self.file = file
        self._buffer = buffer
        # O_NONBLOCK: a fifo put in the file's place must not hang the scan.
        self._fd = os.open(file.path, _OPEN_FLAGS)
        try:
            self.size = file.size
            self._window_start = 0
            if not self._read_whole(file.size):
                self._look_again()
            self.head = bytes(buffer.view[: min(self._window_end, HEAD_BYTES)])
        except BaseException:
            os.close(self._fd)
            self._fd = -1
            raise

    def _read_whole(self, size: int) -> bool:
        """Read a small file; say whether it has the size that the walk saw.

        More is asked for, so what is no regular file any more shows itself by failing or by
        having more. That saves a call for every small file.
        """
        buffer = self._buffer
        if not _HAS_PREADV or not 0 < size < buffer.size:
            return False
        try:
            self._window_end = os.preadv(self._fd, buffer.views, 0)
        except OSError:
            return False
        return self._window_end == size

    def _look_again(self) -> None:
        """Ask for the size now, and read the beginning."""
        status = os.fstat(self._fd)
        if not stat.S_ISREG(status.st_mode):
            raise DumpReadError("no regular file any more", path=self.file.relative)
        self.size = status.st_size
        self._window_start = self._window_end = 0
        if self.size:
            # Of a large file only the header: its data are then read into an aligned block.
            self._fill(0, self.size if self.size <= self._buffer.size else _FIRST_BYTES)

    def _fill(self, offset: int, wanted: int) -> None:
        """Read at most `wanted` bytes from `offset` on into the buffer."""
        buffer = self._buffer
        if _HAS_PREADV:
            views = buffer.views if wanted >= buffer.size else [buffer.view[:wanted]]
            count = os.preadv(self._fd, views, offset)
        else:
            chunk = os.pread(self._fd, min(wanted, buffer.size), offset)
            count = len(chunk)
            buffer.view[:count] = chunk
        self._window_start = offset
        self._window_end = offset + count

    def read(self, offset: int, length: int) -> bytes:
        end = offset + length
        if end > self.size or offset < 0 or length < 0:
            raise self._beyond(offset, length)
        if self._window_start <= offset and end <= self._window_end:
            start = offset - self._window_start
            return bytes(self._buffer.view[start : start + length])
        parts = []
        while offset < end:
            chunk = os.pread(self._fd, min(end - offset, 1 << 24), offset)
            if not chunk:
                raise TruncatedDumpError(
                    f"expected {end - offset} more bytes, found 0: "
                    "the file shrank while it was read",
                    path=self.file.relative,
                    offset=offset,
                )
            parts.append(chunk)
            offset += len(chunk)
        return b"".join(parts)

    def blocks(self, offset: int, length: int) -> Iterator[memoryview]:
        end = offset + length
        if end > self.size or offset < 0 or length < 0:
            raise self._beyond(offset, length)
        start = offset - self._window_start
        if start >= 0 and end <= self._window_end:
            # Small tensors come out of the block that is there already; a copy gives them an
            # aligned start, which numpy's reductions need to be fast.
            if not length:
                return iter(())
            block = self._buffer.view[start : start + length]
            return iter((memoryview(bytes(block)) if start % 16 else block,))
        return self._stream(offset, end)

    def stretch(self, offset: int, length: int) -> Stretch | None:
        """Let `length` bytes be read past this source, for what does it faster.

        Returns
        -------
        Stretch or None
            `None` when `blocks` has to be asked: the bytes are few, there already, or not in
            the file.
        """
        buffer = self._buffer
        end = offset + length
        if length < _LONG_BYTES or buffer.size < BLOCK_BYTES or end > self.size or offset < 0:
            return None
        if self._window_start <= offset and end <= self._window_end:
            return None
        self._window_start = self._window_end = 0  # the buffer will hold something else
        return Stretch(self._fd, offset, buffer.mapping)

    def _stream(self, offset: int, end: int) -> Iterator[memoryview]:
        view = self._buffer.view
        while offset < end:
            # What follows a large tensor is the beginning of another one, seldom small ones.
            self._fill(offset, max(end - offset, _FIRST_BYTES))
            count = min(self._window_end, end) - offset
            if count < end - offset:
                count -= count % 16
            if count <= 0:
                raise TruncatedDumpError(
                    f"expected {end - offset} more bytes, found {self._window_end - offset}: "
                    "the file shrank while it was read",
                    path=self.file.relative,
                    offset=offset,
                )
            yield view[:count]
            offset += count

    def sibling(self, relative: str) -> LocalSource:
        check_beside(relative, self.file)
        folder = os.path.dirname(self.file.path)
        parts = relative.split("/")
        path = os.path.join(folder, *parts)
        for depth in range(1, len(parts)):
            if os.path.islink(os.path.join(folder, *parts[:depth])):
                raise DumpReadError(
                    f"names the file {relative!r}, which lies behind a link",
                    path=self.file.relative,
                )
        try:
            status = os.lstat(path)
        except OSError as error:
            raise DumpReadError(
                f"names the file {relative!r}, which cannot be opened: {error.strerror}",
                path=self.file.relative,
            ) from error
        if not stat.S_ISREG(status.st_mode):
            raise DumpReadError(
                f"names {relative!r}, which is no regular file", path=self.file.relative
            )
        own = self.file.relative.rpartition("/")[0]
        file = DumpFile(
            path=path,
            relative=f"{own}/{relative}" if own else relative,
            name=parts[-1],
            size=status.st_size,
            mtime_ns=status.st_mtime_ns,
            ctime_ns=status.st_ctime_ns,
            inode=status.st_ino,
            place=self.file.place,
        )
        try:
            return LocalSource(file, ReadBuffer())
        except OSError as error:
            raise DumpReadError(
                f"names the file {relative!r}, which cannot be opened: {error.strerror}",
                path=self.file.relative,
            ) from error

    def list_folder(self, relative: str) -> list[str]:
        path = os.path.join(os.path.dirname(self.file.path), relative)
        try:
            with os.scandir(path) as entries:
                return sorted(e.name for e in entries if e.is_file(follow_symlinks=False))
        except OSError:
            return []

    def _beyond(self, offset: int, length: int) -> TruncatedDumpError:
        return TruncatedDumpError(
            f"expected {length} bytes, found {max(0, self.size - offset)}: "
            "the file ends before them",
            path=self.file.relative,
            offset=max(offset, 0),
        )

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def check_beside(relative: str, file: DumpFile) -> None:
    """Raise `DumpReadError` unless a path that `file` names leads to its own folder or below."""
    if "\0" in relative or any(part in ("", ".", "..") for part in relative.split("/")):
        raise DumpReadError(
            f"names the file {relative!r}, which is not inside its own folder",
            path=file.relative,
        )
