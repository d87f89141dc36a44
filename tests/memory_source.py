"""A dump file that is only bytes: the same checks as a file on disk, and it counts what is read."""

from __future__ import annotations

from collections.abc import Iterator

from dumpscope.errors import DumpReadError, TruncatedDumpError
from dumpscope.model import DumpFile, Place
from dumpscope.readers.protocol import Execution, Reader, Record
from dumpscope.source import HEAD_BYTES

NAME = "MatMulV2.net_MatMul-op0.5.2.1764417600000000"


class MemorySource:
    """Implements `DumpSource` over bytes; `largest_read` is the largest allocation asked for."""

    def __init__(
        self, content: bytes, name: str = NAME, size: int | None = None, place: Place | None = None
    ) -> None:
        self.content = content
        self.size = len(content) if size is None else size
        self.head = content[:HEAD_BYTES]
        self.largest_read = 0
        self.file = DumpFile(
            path=f"/dump/{name}",
            relative=f"0/{name}",
            name=name,
            size=self.size,
            mtime_ns=0,
            ctime_ns=0,
            inode=0,
            place=place or Place(),
        )

    def read(self, offset: int, length: int) -> bytes:
        if offset < 0 or length < 0 or offset + length > self.size:
            raise TruncatedDumpError("the file ends", path=self.file.relative, offset=offset)
        self.largest_read = max(self.largest_read, length)
        return self.content[offset : offset + length].ljust(length, b"\0")

    def blocks(self, offset: int, length: int) -> Iterator[memoryview]:
        yield memoryview(self.read(offset, length))

    def sibling(self, relative: str) -> MemorySource:
        raise DumpReadError(f"there is no {relative}", path=self.file.relative)

    def list_folder(self, relative: str) -> list[str]:
        return []

    def close(self) -> None:
        pass


def read_all(reader: Reader, source: MemorySource) -> list[Record]:
    """All records, the error that ended the reading among them."""
    records: list[Record] = []
    try:
        records.extend(reader.read(source))
    except DumpReadError as error:
        records.append(error)
    return records


def read_op(reader: Reader, source: MemorySource) -> tuple[Execution, list[DumpReadError]]:
    """The one execution of a file, and its damage."""
    records = read_all(reader, source)
    executions = [record for record in records if isinstance(record, Execution)]
    assert len(executions) == 1, records
    return executions[0], [record for record in records if isinstance(record, DumpReadError)]
