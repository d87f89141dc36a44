"""Tensors and statistics of ATB (Ascend Transformer Boost), as msit and msprobe dump them.

A tensor's file is text lines, then bytes (ATB's public `FileSystem::BinFile`):

========================  ======================================================================
line                      what
========================  ======================================================================
`$Version=1.0`            first
`$Object.Count=1`         how many pieces of bytes follow
`$Object.Length=32`       bytes of all of them
`format=2`                GE's format code
`dtype=1`                 GE's type code (`ge_codes`); -1 undefined
`dims=2,16`               the shape
`$Object.data=0,32`       offset of the tensor behind the lines, and its length
`data=0_1_outtensor0.bin` instead: the bytes were saved in that file already (`atb_paths`)
`$End=1`                  last; the bytes follow
========================  ======================================================================

The folders give the operation (`atb_paths`). `statistic.csv` in the {round} folder has a row for
every tensor (`atb_statistics`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from dumpscope.dtypes import Dtype
from dumpscope.errors import CorruptDumpError, DumpReadError, TruncatedDumpError
from dumpscope.layouts import layout_name
from dumpscope.model import FORM_RAW, DumpFile, Match
from dumpscope.readers.array_records import (
    array_geometry,
    check_shape,
    record_of_array,
    truncation_of,
)
from dumpscope.readers.atb_paths import (
    AtbPath,
    open_saved_elsewhere,
    order_of_ids,
    read_path,
)
from dumpscope.readers.atb_statistics import STATISTICS_START, read_statistics
from dumpscope.readers.ge_codes import dtype_of_ge_code
from dumpscope.readers.protocol import Execution, FileSlice, Record, TensorRecord
from dumpscope.readers.stored_values import Stored
from dumpscope.source import DumpSource

__all__ = ["AtbReader"]

_START = b"$Version="
_END = b"$End=1\n"
_MAX_HEADER_BYTES = 1 << 16
_CODE_LIMIT = 1 << 31


class AtbReader:
    """Reads ATB tensors and ATB's statistic.csv."""

    name = "atb"
    formats = "ATB tensors (.bin with a text header) and statistics (statistic.csv)"
    versions = "msit and msprobe of CANN 7 to 9"
    companions: Mapping[str, str] = MappingProxyType({})

    def sniff(self, head: bytes, file: DumpFile) -> Match:
        """Recognise the first line of either file."""
        if head.startswith(_START) or STATISTICS_START.match(head):
            return Match.CONTENT
        return Match.NONE

    def read(self, source: DumpSource) -> Iterator[Record]:
        """Yield the one tensor of a .bin, or the operations of a statistic.csv."""
        if not source.head.startswith(_START):
            yield from read_statistics(source)
            return
        path = read_path(source.file)
        try:
            header = _read_header(source)
        except DumpReadError as error:
            error.path = source.file.relative
            raise
        if header.elsewhere is None:
            yield from _read_tensor(source, source, header, header, path)
            return
        other = _follow(source, path, header.elsewhere)
        if other is None:
            yield _execution(source.file, path, _unread(header, path, source.file))
            return
        try:
            yield from _read_tensor(source, other, header, _read_header(other), path)
        finally:
            other.close()


class _Header(NamedTuple):
    """The lines. `start` and `length` say where the tensor's bytes are in this file."""

    dtype: Dtype
    layout: str
    shape: tuple[int, ...]
    elsewhere: str | None
    start: int
    length: int


def _read_header(source: DumpSource) -> _Header:
    """Read the lines up to `$End`."""
    room = min(source.size, _MAX_HEADER_BYTES)
    text = source.head if _END in source.head else source.read(0, room)
    end = text.find(_END)
    if end < 0:
        if source.size <= _MAX_HEADER_BYTES:
            raise TruncatedDumpError(
                "expected the line $End=1, found the end of the file: the header is cut off",
                offset=source.size,
            )
        raise CorruptDumpError(
            f"expected the line $End=1 within {_MAX_HEADER_BYTES} bytes, found none", offset=0
        )
    body = end + len(_END)
    fields: dict[str, str] = {}
    for line in text[:end].decode("utf-8", "surrogateescape").splitlines():
        key, _, value = line.partition("=")
        fields.setdefault(key.strip(), value.strip())
    shape = tuple(_number(part, "dims") for part in fields.get("dims", "").split(",") if part)
    check_shape(shape)
    code = _number(fields.get("dtype", "-1"), "dtype")
    layout = _number(fields.get("format", "2"), "format")
    offset, length = 0, source.size - body
    if "$Object.data" in fields:
        place = [_number(part, "$Object.data") for part in fields["$Object.data"].split(",")]
        if len(place) != 2 or min(place) < 0:
            raise CorruptDumpError(
                f"expected two numbers in $Object.data, found {fields['$Object.data']!r:.80}",
                offset=0,
            )
        offset, length = place
    start = min(body + offset, source.size)
    return _Header(
        dtype_of_ge_code(code),
        "ND" if layout < 0 else layout_name(layout),
        shape,
        fields.get("data"),
        start,
        min(length, source.size - start),
    )


def _number(text: str, what: str) -> int:
    digits = text.strip()
    sign = digits.startswith("-")
    if not digits[sign:].isascii() or not digits[sign:].isdigit() or len(digits) > 19:
        raise CorruptDumpError(f"expected a number in {what}, found {text!r:.80}", offset=0)
    return int(digits)


def _follow(source: DumpSource, path: AtbPath, name: str) -> DumpSource | None:
    """Open the file in which the bytes were saved; `None` where it is not to be had."""
    if name == source.file.path.rpartition("/")[2]:
        return None
    try:
        return source.sibling(name)
    except DumpReadError:
        return open_saved_elsewhere(source, path, name)


def _read_tensor(
    source: DumpSource, holder: DumpSource, header: _Header, bytes_of: _Header, path: AtbPath
) -> Iterator[Record]:
    """Yield the tensor that `header` describes and `holder` holds."""
    if holder is not source and bytes_of.elsewhere is not None:
        yield _execution(source.file, path, _unread(header, path, source.file))
        return
    dtype = header.dtype
    why = None
    if not dtype.decodable and dtype.kind != "string":
        why = "undefined_dtype" if dtype.name == "undefined" else "unknown_dtype"
    record = record_of_array(
        path.role,
        path.index,
        Stored(dtype, 1 if why else 0, unchecked=why),
        array_geometry(header.shape, header.layout),
        part=lambda nbytes: FileSlice(holder, bytes_of.start, nbytes),
        available=bytes_of.length,
        offset=bytes_of.start,
        notes=() if holder is source else (f"bytes_in:{holder.file.relative}",),
    )
    yield _execution(source.file, path, record)
    fault = truncation_of(record, holder.file.relative, holder.size)
    if fault is not None and not why:
        yield fault


def _unread(header: _Header, path: AtbPath, file: DumpFile) -> TensorRecord:
    """Describe a tensor whose bytes are not to be had.

    One that names itself was left out by the filter that was chosen for the dump.
    """
    own = header.elsewhere == file.path.rpartition("/")[2]
    return TensorRecord(
        path.role,
        path.index,
        header.dtype.name,
        array_geometry(header.shape, header.layout),
        unchecked=None if own else "data_elsewhere",
        dumped=not own,
        notes=(f"bytes_in:{header.elsewhere}",),
    )


def _execution(file: DumpFile, path: AtbPath, record: TensorRecord) -> Execution:
    name = path.names[-1] if path.names else ""
    stem = file.name.rpartition(".")[0] or file.name
    return Execution(
        op_type=name,
        op_name=path.op_name or stem,
        tensors=[record],
        order=order_of_ids(path.ids) if path.ids else 0,
        form=FORM_RAW,
        partial=True,
        container=bool(name) and not name.endswith("Kernel"),
        parent=path.parent,
    )
