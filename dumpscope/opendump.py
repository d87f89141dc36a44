"""One dump file as tensors, for people's own scripts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache

from dumpscope.closing import Closing
from dumpscope.errors import DumpReadError, OptionsError, UnknownFormatError
from dumpscope.model import DumpFile, GraphNode, OverflowRecord
from dumpscope.naming import is_archive_name
from dumpscope.plugins import ReaderRegistry, load_readers
from dumpscope.readers.protocol import Execution, TensorRecord
from dumpscope.remote.reading import RemoteSource
from dumpscope.remote.urls import is_url, local_path
from dumpscope.source import DumpSource, LocalSource, ReadBuffer
from dumpscope.walk import walk

__all__ = ["Dump", "find_file", "is_dump_file", "open_dump"]


class Dump(Closing):
    """The tensors of one dump file, in the file's order.

    Iterate over it; `load()` of a tensor gives its values as a read-only array in the logical
    shape. The file stays open until the object is closed, or neither it nor one of its tensors
    is used any more. It is read as far as it is asked for, and what was read is kept: it may be
    iterated over again.

    Attributes
    ----------
    file
        Path, size and what the name and the folders say.
    reader
        Name of the reader that reads it.
    faults
        The damage met so far. Reading goes on behind it where that is possible; the first fault
        is raised when everything else was given out, unless `strict` is false.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, reader: str | None = None, strict: bool = True
    ) -> None:
        self.file = find_file(path)
        self.faults: list[DumpReadError] = []
        self._strict = strict
        self._executions: list[Execution] = []
        self._overflow: list[OverflowRecord] = []
        self._nodes: list[GraphNode] = []
        self._complete = False
        self._source: DumpSource
        if is_url(self.file.path):
            self._source = RemoteSource(self.file, ReadBuffer())
        else:
            self._source = _OwnSource(self.file, ReadBuffer())
        try:
            chosen = _registry().choose(self._source.head, self.file, reader)
            if chosen is None:
                what = "no reader knows this file; `dumpscope readers` lists the formats"
                if is_archive_name(self.file.name):
                    what = "is an archive: unpack it first"
                raise UnknownFormatError(what, path=self.file.path)
            self.reader = chosen.name
            self._records = chosen.read(self._source)
        except BaseException:
            self._source.close()
            raise

    @property
    def executions(self) -> list[Execution]:
        """All operator executions of the file, with names, ids, attributes and tensors.

        Raises `DumpReadError` when the file is damaged.
        """
        self._finish()
        return self._executions

    @property
    def overflow_records(self) -> list[OverflowRecord]:
        """All overflow records of the hardware that the file holds.

        Raises `DumpReadError` when the file is damaged.
        """
        self._finish()
        return self._overflow

    @property
    def graph_nodes(self) -> list[GraphNode]:
        """The operators of a graph text. Raises `DumpReadError` when the file is damaged."""
        self._finish()
        return self._nodes

    def __iter__(self) -> Iterator[TensorRecord]:
        for execution in self._read():
            yield from execution.tensors
        self._complain()

    def _finish(self) -> None:
        for _ in self._read():
            pass
        self._complain()

    def _read(self) -> Iterator[Execution]:
        """Yield the executions: those that were read, then those still to be read."""
        given = 0
        while given < len(self._executions) or self._advance():
            yield self._executions[given]
            given += 1

    def _advance(self) -> bool:
        """Read up to the next execution; say whether there was one."""
        while not self._complete:
            try:
                record = next(self._records, None)
            except DumpReadError as error:
                self.faults.append(error)
                record = None
            if record is None:
                self._complete = True
            elif isinstance(record, Execution):
                self._executions.append(record)
                return True
            elif isinstance(record, DumpReadError):
                self.faults.append(record)
            elif isinstance(record, OverflowRecord):
                self._overflow.append(record)
            else:
                self._nodes.append(record)
        return False

    def _complain(self) -> None:
        if self.faults and self._strict:
            raise self.faults[0]

    def close(self) -> None:
        """Close the file; tensors that were not loaded can no longer be."""
        self._source.close()


class _OwnSource(LocalSource):
    """A file that is closed when nobody can read from it any more."""

    __slots__ = ()

    def __del__(self) -> None:
        if getattr(self, "_fd", -1) >= 0:
            self.close()


def open_dump(
    path: str | os.PathLike[str], *, reader: str | None = None, strict: bool = True
) -> Dump:
    """Open one dump file of any format that dumpscope reads.

    Parameters
    ----------
    path
        The file, or its URL. A mapping.csv beside it is honoured.
    reader
        Name of a reader to use instead of the one that recognises the file.
    strict
        Raise the first fault of a damaged file at the end of reading. Otherwise damage is only
        listed in `faults`, and what is whole is what there is.

    Raises
    ------
    OptionsError
        There is no such file or reader, or the path is a folder.
    DumpReadError
        No reader knows the file, or (after iterating) it is damaged.
    OSError
        The file may not be read.
    """
    return Dump(path, reader=reader, strict=strict)


def find_file(path: str | os.PathLike[str]) -> DumpFile:
    """Describe one file as a walk would: real name, place, size.

    Raises
    ------
    OptionsError
        There is no such file, or it is a folder.
    UnknownFormatError
        It is no regular file.
    """
    path = shown = local_path(os.fsdecode(path))
    if is_url(shown):
        from dumpscope.remote.walking import find_remote_file

        return find_remote_file(shown)
    if os.path.isdir(path):
        raise OptionsError(f"{shown!r} is a folder: expected one dump file; scan reads folders")
    for found in walk([path]):
        if isinstance(found, DumpFile):
            return found
    raise UnknownFormatError("is no regular file", path=shown)


def is_dump_file(path: str) -> bool:
    """Say whether there is a file at a path or URL."""
    if is_url(path):
        from dumpscope.remote.walking import is_remote_file

        return is_remote_file(path)
    return os.path.isfile(path)


@cache
def _registry() -> ReaderRegistry:
    """Return the readers, loaded once: scripts open files by the thousand."""
    return load_readers()
