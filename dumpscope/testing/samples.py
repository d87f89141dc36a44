"""Files for tests that are only bytes, and a source that is as strict as memory can be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field

from dumpscope.errors import DumpReadError, TruncatedDumpError
from dumpscope.model import DumpFile, Place
from dumpscope.records import record
from dumpscope.source import HEAD_BYTES

__all__ = ["Sample", "SampleSource"]

_POISON = 0xA5


@record(frozen=True, slots=True)
class Sample:
    """One whole file of a format.

    Attributes
    ----------
    name
        Its name, without folders.
    content
        Its bytes.
    beside
        Other files that it refers to: path relative to its folder -> bytes.
    place
        What the folders around it say.
    """

    name: str
    content: bytes
    beside: Mapping[str, bytes] = field(default_factory=dict)
    place: Place = field(default_factory=Place)

    def open(self, content: bytes | None = None, *, name: str | None = None) -> SampleSource:
        """Open the file, or other bytes in its place, under its own name or another."""
        return SampleSource(
            self.content if content is None else content,
            self.name if name is None else name,
            self.beside,
            self.place,
        )


class SampleSource:
    """A `dumpscope.source.DumpSource` over bytes that sees what a reader does.

    Blocks are small, and overwritten as soon as the next one is asked for: a reader that keeps
    one reads nonsense. `largest_read` is the largest length that was asked for and given.
    """

    def __init__(
        self,
        content: bytes,
        name: str,
        beside: Mapping[str, bytes] | None = None,
        place: Place | None = None,
        *,
        folder: str = "dump",
        block_bytes: int = 1024,
    ) -> None:
        self.content = content
        self.size = len(content)
        self.head = content[:HEAD_BYTES]
        self.largest_read = 0
        self.closed = False
        self._beside = dict(beside or {})
        self._folder = folder
        self._block_bytes = block_bytes
        self.file = DumpFile(
            path=f"/{folder}/{name}",
            relative=f"{folder}/{name}",
            name=name,
            size=self.size,
            mtime_ns=0,
            ctime_ns=0,
            inode=0,
            place=place or Place(),
        )

    def read(self, offset: int, length: int) -> bytes:
        self._check(offset, length)
        self.largest_read = max(self.largest_read, length)
        return self.content[offset : offset + length]

    def blocks(self, offset: int, length: int) -> Iterator[memoryview]:
        self._check(offset, length)
        return self._stream(offset, offset + length)

    def _stream(self, offset: int, end: int) -> Iterator[memoryview]:
        while offset < end:
            block = bytearray(self.content[offset : min(end, offset + self._block_bytes)])
            yield memoryview(block)
            offset += len(block)
            block[:] = bytes([_POISON]) * len(block)

    def _check(self, offset: int, length: int) -> None:
        assert isinstance(offset, int), f"offset {offset!r} is no whole number"
        assert isinstance(length, int), f"length {length!r} is no whole number"
        if offset < 0 or length < 0 or offset + length > self.size:
            raise TruncatedDumpError(
                f"expected {length} bytes, found {max(0, self.size - max(offset, 0))}: "
                "the file ends before them",
                path=self.file.relative,
                offset=max(offset, 0),
            )

    def sibling(self, relative: str) -> SampleSource:
        content = self._beside.get(relative)
        if content is None:
            raise DumpReadError(
                f"names the file {relative!r}, which cannot be opened", path=self.file.relative
            )
        folder, _, name = relative.rpartition("/")
        return SampleSource(
            content, name, folder=f"{self._folder}/{folder}" if folder else self._folder
        )

    def list_folder(self, relative: str) -> list[str]:
        start = f"{relative}/"
        names = (path[len(start) :] for path in self._beside if path.startswith(start))
        return sorted(name for name in names if "/" not in name)

    def close(self) -> None:
        self.closed = True
