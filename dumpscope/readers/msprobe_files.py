"""The tensor files beside msprobe's dump.json: `dump_tensor_data/{data_name}`, .pt or .npy.

Their place is beside the json whatever `dump_data_dir` says: that path is the one at the time of
the dump. A file is opened, looked at and closed; its tensor opens it again when it is streamed,
so that any number of records costs no open files. Small files stay in memory until their
execution was measured.
"""

from __future__ import annotations

from collections.abc import Iterator

from dumpscope.errors import CorruptDumpError, DumpReadError
from dumpscope.model import DumpFile
from dumpscope.readers.array_records import array_geometry, record_of_array, truncation_of
from dumpscope.readers.npy_header import header_length, parse_header
from dumpscope.readers.protocol import FileSlice, TensorRecord
from dumpscope.readers.stored_values import resolve_descr
from dumpscope.source import HEAD_BYTES, DumpSource

__all__ = ["FOLDER", "TensorFiles"]

FOLDER = "dump_tensor_data"

_KEPT_BYTES = 1 << 14
_KEPT_PER_EXECUTION = 8 << 20


class TensorFiles:
    """Open the files that entries name, and know which ones none has named.

    Attributes
    ----------
    faults
        What could not be read so far.
    """

    def __init__(self, source: DumpSource) -> None:
        self._source = source
        self._names = frozenset(source.list_folder(FOLDER))
        self._unnamed = set(self._names)
        self._room = _KEPT_PER_EXECUTION
        self._told = False
        self.faults: list[DumpReadError] = []

    def start_execution(self) -> None:
        """Give the next execution its share of memory."""
        self._room = _KEPT_PER_EXECUTION

    def unnamed(self) -> list[str]:
        """Names of the files that no entry has named, sorted."""
        return sorted(self._unnamed)

    def open(self, data_name: str, record: TensorRecord) -> TensorRecord | None:
        """Return the record with the values of a file, `None` when they cannot be read.

        Parameters
        ----------
        data_name
            The file, as the entry names it.
        record
            What the entry says of the tensor; its dtype tells what an .npy file cannot.
        """
        if not self._names:
            if not self._told:
                self._told = True
                self._fail(
                    CorruptDumpError(
                        f"names the tensor file {data_name[:200]!a} and others, but no folder "
                        f"{FOLDER} lies beside it: copy it there; statistics were used instead"
                    )
                )
            return None
        if data_name in self._names and data_name not in self._unnamed:
            self._fail(CorruptDumpError(f"names the tensor file {data_name[:200]!a} twice"))
            return None
        self._unnamed.discard(data_name)
        try:
            opened = self._source.sibling(f"{FOLDER}/{data_name}")
        except DumpReadError as error:
            self._fail(error)
            return None
        path = opened.file.relative
        try:
            return self._describe(opened, data_name, record)
        except DumpReadError as error:
            error.path = error.path or path
            self._fail(error)
            return None
        finally:
            opened.close()

    def modified_ns(self, data_name: str) -> int:
        """Return when a file was written last, 0 when it cannot be opened."""
        try:
            opened = self._source.sibling(f"{FOLDER}/{data_name}")
        except DumpReadError:
            return 0
        opened.close()
        return opened.file.mtime_ns

    def _describe(
        self, opened: DumpSource, data_name: str, record: TensorRecord
    ) -> TensorRecord | None:
        source: DumpSource
        if opened.size <= min(_KEPT_BYTES, self._room):
            self._room -= opened.size
            source = _Kept(opened.file, opened.read(0, opened.size))
        else:
            source = _Reopened(self._source, data_name, opened)
        if data_name.endswith(".npy"):
            return self._describe_array(opened, source, record)
        return self._describe_saved(opened, source, record)

    def _describe_saved(
        self, opened: DumpSource, source: DumpSource, record: TensorRecord
    ) -> TensorRecord | None:
        # Only here: most dumps of this kind hold statistics, and all other scans none of them.
        from dumpscope.readers.torch_archive import open_saved
        from dumpscope.readers.torch_names import PickledTensor
        from dumpscope.readers.torch_tree import find_executions
        from dumpscope.readers.torch_views import ViewReader

        saved = open_saved(opened)
        if saved.fault is not None:
            self._fail(saved.fault, opened.file.relative)
        views = ViewReader(saved, source)
        tensors = [
            leaf.value
            for tree in find_executions(saved.value, record.role, record.role)
            for leaf in tree.leaves
            if isinstance(leaf.value, PickledTensor)
        ]
        if len(tensors) != 1:
            raise CorruptDumpError(f"expected one tensor, found {len(tensors)}")
        described = views.record(tensors[0], record.role, record.index, record.name or "")
        for fault in views.faults:
            self._fail(fault, opened.file.relative)
        return None if described.unchecked == "unreadable" else described

    def _describe_array(
        self, opened: DumpSource, source: DumpSource, record: TensorRecord
    ) -> TensorRecord:
        text, start = header_length(opened.head[:12])
        header = parse_header(opened.read(text, start - text))
        described = record_of_array(
            record.role,
            record.index,
            resolve_descr(header.descr, record.dtype),
            array_geometry(header.shape, "ND", header.fortran_order),
            part=lambda nbytes: FileSlice(source, start, nbytes),
            available=opened.size - start,
            offset=start,
            name=record.name,
        )
        fault = truncation_of(described, opened.file.relative, opened.size)
        if fault is not None:
            self._fail(fault)
        return described

    def _fail(self, error: DumpReadError, path: str = "") -> None:
        error.path = error.path or path or self._source.file.relative
        self.faults.append(error)


class _Kept:
    """A small file in memory."""

    def __init__(self, file: DumpFile, content: bytes) -> None:
        self.file = file
        self.size = len(content)
        self.head = content[:HEAD_BYTES]
        self._content = content

    def read(self, offset: int, length: int) -> bytes:
        return self._content[offset : offset + length]

    def blocks(self, offset: int, length: int) -> Iterator[memoryview]:
        # A slice of its own starts where every dtype may.
        if length:
            yield memoryview(self._content[offset : offset + length])

    def sibling(self, relative: str) -> DumpSource:
        raise CorruptDumpError(f"names {relative[:80]!a}", path=self.file.relative)

    def list_folder(self, relative: str) -> list[str]:
        del relative
        return []

    def close(self) -> None:
        """Nothing is open."""


class _Reopened:
    """A file that is opened whenever it is read."""

    def __init__(self, parent: DumpSource, data_name: str, opened: DumpSource) -> None:
        self.file = opened.file
        self.size = opened.size
        self.head = opened.head
        self._parent = parent
        self._data_name = data_name

    def _open(self) -> DumpSource:
        return self._parent.sibling(f"{FOLDER}/{self._data_name}")

    def read(self, offset: int, length: int) -> bytes:
        opened = self._open()
        try:
            return opened.read(offset, length)
        finally:
            opened.close()

    def blocks(self, offset: int, length: int) -> Iterator[memoryview]:
        opened = self._open()
        try:
            yield from opened.blocks(offset, length)
        finally:
            opened.close()

    def sibling(self, relative: str) -> DumpSource:
        return self._parent.sibling(relative)

    def list_folder(self, relative: str) -> list[str]:
        return self._parent.list_folder(relative)

    def close(self) -> None:
        """Nothing stays open."""
