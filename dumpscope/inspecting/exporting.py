"""Write the tensors of dump files as arrays: .npy, .npz or .csv.

One file per tensor (one per execution for npz), named after it and below the output folder in
the folders of the dump. A file appears under its name when it is complete. Where numpy lacks the
type, a .json beside the array says what the values really are.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field
from typing import Any, BinaryIO, Literal, cast

from dumpscope.errors import DumpReadError, ReportError
from dumpscope.inspecting.exportnames import FileNamer, name_array, name_execution
from dumpscope.inspecting.exportvalues import ArrayLayout, ArraySource
from dumpscope.inspecting.targets import Slot
from dumpscope.model import DumpFile
from dumpscope.opening import open_source
from dumpscope.plugins import ReaderRegistry
from dumpscope.readers.protocol import Execution, TensorRecord
from dumpscope.records import record
from dumpscope.safetext import escape_json_text, make_printable
from dumpscope.source import ReadBuffer

__all__ = ["CSV_ELEMENTS_MAX", "Exporter", "FileKind", "LeftOut"]

FileKind = Literal["npy", "npz", "csv"]

CSV_ELEMENTS_MAX = 1 << 20
"""More elements than this become text only when that is forced."""


@record(frozen=True, slots=True)
class LeftOut:
    """What was not exported, and why. `refused`: `force` would have exported it."""

    file: str
    what: str
    why: str
    refused: bool = False


@record(frozen=False, slots=True)
class Exporter:
    """Exports files one after the other.

    Attributes
    ----------
    registry
        The readers.
    folder
        The output folder; nothing is written outside of it.
    kind, layout
        What is written: type of file, and the logical shape or the memory as it is.
    force
        Overwrite files that exist, and write large tensors as text.
    left_out
        What could not be exported so far.
    unknown_files
        How many files no reader knows.
    """

    registry: ReaderRegistry
    folder: str
    kind: FileKind = "npy"
    layout: ArrayLayout = "logical"
    force: bool = False
    reader: str | None = None
    left_out: list[LeftOut] = field(default_factory=list)
    unknown_files: int = 0
    written: int = 0
    _namer: FileNamer | None = None
    _buffer: ReadBuffer = field(default_factory=ReadBuffer)

    def export_file(
        self,
        file: DumpFile,
        *,
        slot: Slot | None = None,
        wanted: Callable[[Execution], bool] | None = None,
        folder: str | None = None,
    ) -> Iterator[str]:
        """Export the tensors of one file; yield the paths that were written.

        Parameters
        ----------
        slot
            Only this tensor of every execution.
        wanted
            Says which executions are; by default all.
        folder
            Where to, below the output folder; by default where the file lies below its root.

        Raises
        ------
        ReportError
            A file exists already, or cannot be written.
        """
        if folder is None:
            folder = os.path.dirname(file.relative)
        try:
            with open_source(file, self._buffer) as source:
                reader = self.registry.choose(source.head, file, self.reader)
                if reader is None:
                    self.unknown_files += 1
                    return
                for record in reader.read(source):
                    if isinstance(record, DumpReadError):
                        self._leave_out(file, "", str(record.message))
                    elif isinstance(record, Execution) and (wanted is None or wanted(record)):
                        yield from self._export_execution(record, file, slot, folder)
        except DumpReadError as error:
            self._leave_out(file, "", error.message)
        except OSError as error:
            self._leave_out(file, "", f"cannot be read: {error.strerror}")

    def _export_execution(
        self, execution: Execution, file: DumpFile, slot: Slot | None, folder: str
    ) -> Iterator[str]:
        sources = []
        for tensor in execution.tensors:
            if slot is not None and (tensor.role, tensor.index) != slot:
                continue
            if not tensor.dumped:
                continue
            source = self._open_array(execution, tensor, file)
            if source is not None:
                sources.append(source)
        if not sources:
            return
        if self.kind == "npz":
            yield from self._write_archive(execution, sources, file, folder)
            return
        stem = name_execution(execution)
        for source in sources:
            yield from self._write_array(execution, stem, source, file, folder)

    def _open_array(
        self, execution: Execution, tensor: TensorRecord, file: DumpFile
    ) -> ArraySource | None:
        what = f"{execution.op_name} {tensor.role}.{tensor.index}"
        try:
            source = ArraySource(tensor, self.layout, self.folder)
        except DumpReadError as error:
            self._leave_out(file, what, error.message)
            return None
        if self.kind == "csv" and source.count > CSV_ELEMENTS_MAX and not self.force:
            why = f"{source.count:,} elements make a very large text; --to npy, or --force"
            self._leave_out(file, what, why, refused=True)
            return None
        self._make_root()
        free = shutil.disk_usage(self.folder).free
        if source.needed_bytes > free:
            why = f"takes {source.needed_bytes:,} bytes, {free:,} are free in the output folder"
            self._leave_out(file, what, why)
            return None
        return source

    def _write_array(
        self, execution: Execution, stem: str, source: ArraySource, file: DumpFile, folder: str
    ) -> Iterator[str]:
        path = self._names().place(folder, stem, _tail(source), self.kind)
        what = f"{execution.op_name} {source.record.role}.{source.record.index}"
        try:
            with self._new_file(path) as target:
                if self.kind == "csv":
                    source.write_csv(target)
                else:
                    source.write_npy(target)
        except DumpReadError as error:
            self._leave_out(file, what, error.message)
            return
        self.written += 1
        yield path
        if source.stored.name != source.dtype.name:
            yield self._write_sidecar(path, _describe(execution, source, file))

    def _write_archive(
        self, execution: Execution, sources: Sequence[ArraySource], file: DumpFile, folder: str
    ) -> Iterator[str]:
        path = self._names().place(folder, name_execution(execution), "", "npz")
        try:
            with (
                self._new_file(path) as target,
                zipfile.ZipFile(target, "w", zipfile.ZIP_STORED, allowZip64=True) as archive,
            ):
                for source in sources:
                    # A fixed date: the same tensors give the same bytes.
                    member = zipfile.ZipInfo(f"{_tail(source)}.npy", (1980, 1, 1, 0, 0, 0))
                    with archive.open(member, "w", force_zip64=True) as opened:
                        source.write_npy(cast(BinaryIO, opened))
        except DumpReadError as error:
            self._leave_out(file, execution.op_name, error.message)
            return
        self.written += len(sources)
        yield path
        foreign = [s for s in sources if s.stored.name != s.dtype.name]
        if foreign:
            facts = {_tail(s): _describe(execution, s, file) for s in foreign}
            yield self._write_sidecar(path, facts)

    def _write_sidecar(self, path: str, facts: dict[str, Any]) -> str:
        beside = f"{path[: -len(self.kind)]}json"
        with self._new_file(beside) as target:
            target.write(escape_json_text(json.dumps(facts, ensure_ascii=False, indent=1)).encode())
            target.write(b"\n")
        return beside

    # --- files ---------------------------------------------------------------------------------

    def _make_root(self) -> None:
        try:
            os.makedirs(self.folder, exist_ok=True)
        except OSError as error:
            raise ReportError(
                f"{make_printable(self.folder)}: the folder cannot be made: {error.strerror}"
            ) from error

    def _names(self) -> FileNamer:
        if self._namer is None:
            self._namer = FileNamer(self.folder)
        return self._namer

    @contextmanager
    def _new_file(self, path: str) -> Iterator[BinaryIO]:
        """Open a file that appears under its name when the block ends well.

        A link of that name is replaced, never followed.
        """
        shown = make_printable(path)
        if os.path.lexists(path):
            if os.path.isdir(path) and not os.path.islink(path):
                raise ReportError(f"{shown}: is a folder; choose another --output")
            if not self.force:
                raise ReportError(f"{shown}: exists already; --force overwrites it")
        temporary = ""
        try:
            descriptor, temporary = tempfile.mkstemp(
                prefix=".dumpscope-", dir=os.path.dirname(path)
            )
            with os.fdopen(descriptor, "wb") as target:
                os.fchmod(descriptor, 0o666 & ~_umask())
                yield target
            os.replace(temporary, path)
        except BaseException as error:
            with suppress(OSError):
                os.unlink(temporary)
            if isinstance(error, OSError):
                raise ReportError(
                    f"{shown}: cannot be written: {error.strerror or error}"
                ) from error
            raise

    def _leave_out(self, file: DumpFile, what: str, why: str, *, refused: bool = False) -> None:
        self.left_out.append(LeftOut(file.relative, what, why, refused))


def _tail(source: ArraySource) -> str:
    record = source.record
    return name_array(record.role, record.index, source.shape, source.layout, source.dtype.name)


def _describe(execution: Execution, source: ArraySource, file: DumpFile) -> dict[str, Any]:
    record = source.record
    return {
        "dtype": source.dtype.name,
        "stored_as": source.stored.name,
        "shape": list(source.shape),
        "layout": source.layout,
        "op_type": execution.op_type,
        "op_name": execution.op_name,
        "role": record.role,
        "index": record.index,
        "file": file.relative,
    }


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
