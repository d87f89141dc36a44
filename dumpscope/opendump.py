"""One dump file as tensors, for people's own scripts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import TracebackType

from dumpscope.errors import DumpReadError, UnknownFormatError
from dumpscope.model import DumpFile
from dumpscope.plugins import load_readers
from dumpscope.readers.protocol import Execution, TensorRecord
from dumpscope.source import LocalSource, ReadBuffer
from dumpscope.walk import walk

__all__ = ["Dump", "open_dump"]


class Dump:
    """The tensors of one dump file, in the file's order.

    Iterate over it; `load()` of a tensor gives its values as a read-only array in the logical
    shape. The file stays open until the object is closed, or no longer used.

    Attributes
    ----------
    file
        Path, size and what the name says.
    reader
        Name of the reader that reads it.
    executions
        The operator executions of the file, with names, ids and attributes.
    """

    def __init__(self, path: str | os.PathLike[str], *, reader: str | None = None) -> None:
        self.file = _find_file(path)
        self._source = LocalSource(self.file, ReadBuffer())
        try:
            chosen = load_readers().choose(self._source.head, self.file, reader)
            if chosen is None:
                raise UnknownFormatError(
                    "no reader knows this file; `dumpscope readers` lists the formats",
                    path=self.file.path,
                )
            self.reader = chosen.name
            self._records = chosen.read(self._source)
        except BaseException:
            self._source.close()
            raise
        self._executions: list[Execution] = []
        self._complete = False

    @property
    def executions(self) -> list[Execution]:
        """All executions of the file. Raises `DumpReadError` when the file is damaged."""
        for _ in self._read():
            pass
        return self._executions

    def __iter__(self) -> Iterator[TensorRecord]:
        for execution in self._read():
            yield from execution.tensors

    def _read(self) -> Iterator[Execution]:
        yield from list(self._executions)
        if self._complete:
            return
        for record in self._records:
            if isinstance(record, Execution):
                self._executions.append(record)
                yield record
            elif isinstance(record, DumpReadError):
                raise record
        self._complete = True

    def close(self) -> None:
        """Close the file; tensors that were not loaded can no longer be."""
        self._source.close()

    def __enter__(self) -> Dump:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def open_dump(path: str | os.PathLike[str], *, reader: str | None = None) -> Dump:
    """Open one dump file of any format that dumpscope reads.

    Parameters
    ----------
    path
        The file. A mapping.csv beside it is honoured.
    reader
        Name of a reader to use instead of the one that recognises the file.

    Raises
    ------
    OptionsError
        There is no such file or reader.
    DumpReadError
        No reader knows the file, or (while iterating) it is damaged.
    """
    return Dump(path, reader=reader)


def _find_file(path: str | os.PathLike[str]) -> DumpFile:
    for found in walk([path]):
        if isinstance(found, DumpFile) and os.path.isfile(os.fspath(path)):
            return found
        break
    raise UnknownFormatError("is no regular file", path=os.fspath(path))
