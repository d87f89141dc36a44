"""MindSpore's statistics: `statistic.csv`, one file a folder, one row a tensor.

Sources: MindSpore's public debugger code and dump tutorial, versions 1.8 to 2.10.

=========================  =====================================================================
column                     what
=========================  =====================================================================
Op Type, Op Name           as in the names of tensor files
Task ID, Stream ID         numbers; 65535 and 4294967295 mean unknown
Timestamp                  of this tensor, in microseconds: each of an operator has its own
IO, Slot                   `input` or `output`, and which
Data Size, Data Type       bytes; MindSpore's name (`float32`)
Shape                      `"(2, 3)"`, `"(2,3)"`, `"()"`
Max, Min, Avg Value        over finite elements in old versions, over all in new ones; `null`
                           when no element is finite
L2Norm Value               over all elements
Count, Zero Count          elements, zeros
Negative, Positive Zero    `Negative Zero Count` counts negative values, not negative zeros;
Count                      `Positive Zero Count` positive ones
NaN Count                  spelled `Nan Count` in one version
Negative, Positive Inf     `Negative Inf Count`, `Positive Inf Count`
Count
MD5, SHA1                  of the bytes
=========================  =====================================================================

The first ten are always there, the others as configured: columns are found by name. The rows of
an operator follow each other. One version writes one comma too many behind each row. The file
grows while the job runs: a last line that is cut off is damage, what stands before it counts.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from dumpscope.dtypes import dtype_of_label
from dumpscope.errors import CorruptDumpError, DumpReadError, TruncatedDumpError
from dumpscope.layouts import plain
from dumpscope.model import FORM_STATISTICS, DumpFile, Match, Role
from dumpscope.readers.array_records import check_shape
from dumpscope.readers.protocol import Execution, Record, TensorRecord
from dumpscope.readers.text_lines import TextLine, stream_lines
from dumpscope.readers.written_stats import (
    NULL,
    WrittenValues,
    judge_values,
    read_count,
    read_value,
)
from dumpscope.source import DumpSource

__all__ = ["CsvTable", "MindSporeCsvReader", "read_shape"]

_FIXED = (
    *("op type", "op name", "task id", "stream id", "timestamp"),
    *("io", "slot", "data size", "data type", "shape"),
)
_START = re.compile(rb"(?:\xef\xbb\xbf)?\s*op type\s*,\s*op name\s*,\s*task id\s*,", re.IGNORECASE)
_NUMBER = re.compile(r"[0-9]{1,20}")
_SHAPE = re.compile(r"[(\[]?\s*(?:[0-9]{1,18}(?:\s*[,x]\s*[0-9]{1,18}){0,31}\s*[,x]?)?\s*[)\]]?")
_UNKNOWN_IDS = frozenset({0xFFFF, 0xFFFFFFFF})
_MAX_TENSORS = 1 << 14
_MAX_BAD_ROWS = 50

_Key = tuple[str, str, int | None, int | None]


class CsvTable:
    """The rows of a CSV file with a header, streamed; a damaged row does not end it.

    Parameters
    ----------
    source
        The file.
    required
        Names of columns without which it is another file, in lower case.

    Attributes
    ----------
    columns
        Name in lower case -> position. Where a name repeats the first one counts.

    Raises
    ------
    DumpReadError
        There is no header, or it lacks a required column.
    """

    def __init__(self, source: DumpSource, required: Sequence[str]) -> None:
        self._path = source.file.relative
        self._lines = stream_lines(source)
        header = next(self._lines, None)
        if header is None or not header.text.strip():
            raise TruncatedDumpError(
                "expected a header line, found none: the file is empty", path=self._path, offset=0
            )
        names = [cell.strip().lower() for cell in self._split(header)]
        self.columns: dict[str, int] = {}
        for at, column in enumerate(names):
            self.columns.setdefault(column, at)
        missing = [column for column in required if column not in self.columns]
        if missing:
            raise CorruptDumpError(
                f"expected the columns {', '.join(missing)} too, found {header.text!r:.200}",
                path=self._path,
                offset=0,
            )
        self._width = len(names)

    def rows(self) -> Iterator[tuple[int, list[str]] | DumpReadError]:
        """Yield each row with its offset; an error in place of a line that is no row."""
        for line in self._lines:
            if not line.text.strip():
                continue
            try:
                cells = [cell.strip() for cell in self._split(line)]
            except CorruptDumpError as error:
                yield error
                continue
            if not line.ended and len(cells) < self._width:
                yield TruncatedDumpError(
                    f"expected {self._width} cells in the last line, found {len(cells)}: its "
                    "writer stopped there, what stands before was read",
                    path=self._path,
                    offset=line.offset,
                )
                continue
            yield line.offset, cells

    def cell(self, cells: Sequence[str], *names: str) -> str:
        """Return the cell of the first of these columns that is there, `""` without one."""
        for name in names:
            at = self.columns.get(name)
            if at is not None:
                return cells[at] if at < len(cells) else ""
        return ""

    def damage(self, offset: int, why: object) -> CorruptDumpError:
        """Return the fault of a row."""
        return CorruptDumpError(f"a row is damaged: {why}", path=self._path, offset=offset)

    def _split(self, line: TextLine) -> list[str]:
        if line.cut:
            raise self.damage(line.offset, "it is longer than any row")
        try:
            return next(csv.reader([line.text]), [])
        except csv.Error as error:
            raise self.damage(line.offset, error) from error


class MindSporeCsvReader:
    """Reads statistic.csv."""

    name = "mindspore_csv"
    formats = "MindSpore statistics (statistic.csv)"
    versions = "MindSpore 1.8 to 2.10, any set of columns"
    companions: Mapping[str, str] = MappingProxyType({})

    def sniff(self, head: bytes, file: DumpFile) -> Match:
        """Recognise the first columns, else the name."""
        if _START.match(head):
            return Match.CONTENT
        return Match.NAME if file.name == "statistic.csv" else Match.NONE

    def read(self, source: DumpSource) -> Iterator[Record]:
        """Yield one execution for the rows of an operator that follow each other."""
        table = CsvTable(source, _FIXED)
        current: Execution | None = None
        key: _Key | None = None
        slots: set[tuple[Role, int]] = set()
        order = bad = 0
        for row in table.rows():
            if isinstance(row, DumpReadError):
                yield row
                continue
            offset, cells = row
            try:
                tensor = _read_tensor(table, cells)
                row_key, timestamp = _read_key(table, cells)
            except (ValueError, CorruptDumpError) as error:
                bad += 1
                yield table.damage(offset, error)
                if bad >= _MAX_BAD_ROWS:
                    raise table.damage(offset, f"so are {bad - 1} before it: gave up") from error
                continue
            slot = (tensor.role, tensor.index)
            if current is None or row_key != key or slot in slots or len(slots) >= _MAX_TENSORS:
                if current is not None:
                    yield current
                key = row_key
                slots = set()
                current = _start_execution(row_key, timestamp, order)
                order += 1
            slots.add(slot)
            current.tensors.append(tensor)
        if current is not None:
            yield current


def _start_execution(key: _Key, timestamp: int | None, order: int) -> Execution:
    op_type, op_name, task_id, stream_id = key
    return Execution(
        op_type,
        op_name,
        task_id=task_id,
        stream_id=stream_id,
        timestamp=timestamp,
        order=order,
        form=FORM_STATISTICS,
        partial=True,
    )


def _read_key(table: CsvTable, cells: Sequence[str]) -> tuple[_Key, int | None]:
    """Return what the rows of one operator have in common, and this tensor's timestamp."""
    op_name = table.cell(cells, "op name")
    op_type = table.cell(cells, "op type")
    if not op_name and not op_type:
        raise ValueError("it names no operator")
    key = (
        op_type,
        op_name,
        _read_id(table.cell(cells, "task id")),
        _read_id(table.cell(cells, "stream id")),
    )
    return key, _read_number(table.cell(cells, "timestamp"))


def _read_tensor(table: CsvTable, cells: Sequence[str]) -> TensorRecord:
    """Read one row.

    Raises
    ------
    ValueError, CorruptDumpError
        It has no role, slot or shape, or a cell is no number.
    """

    def cell(*names: str) -> str:
        return table.cell(cells, *names)

    role = _read_role(cell("io"))
    slot = _read_number(cell("slot"))
    if slot is None:
        raise ValueError(f"expected the slot of an {role}, found {cell('slot')!r:.40}")
    dtype = dtype_of_label(cell("data type"))
    shape = read_shape(cell("shape"))
    record = TensorRecord(
        role,
        slot,
        dtype.name,
        plain(shape),
        size_bytes=_read_number(cell("data size")) or 0,
    )
    if 0 in shape or dtype.kind == "string":
        return record
    low, high = cell("min value", "min"), cell("max value", "max")
    judged = judge_values(
        WrittenValues(
            count=read_count(cell("count")),
            nan=read_count(cell("nan count")),
            neginf=read_count(cell("negative inf count")),
            posinf=read_count(cell("positive inf count")),
            zero=read_count(cell("zero count")),
            max=read_value(high),
            min=read_value(low),
            mean=read_value(cell("avg value", "avg", "mean value")),
            l2=read_value(cell("l2norm value", "l2norm")),
            all_nonfinite=NULL in (low.lower(), high.lower()),
        ),
        dtype,
        shape,
    )
    record.stats = judged.stats
    record.unchecked = judged.unchecked
    record.notes = judged.notes
    return record


def read_shape(text: str) -> tuple[int, ...]:
    """Read `(2, 3)`, `(2,3)`, `2x3` or `()`.

    Raises
    ------
    ValueError, CorruptDumpError
        It is no shape, or one that no tensor has.
    """
    if not _SHAPE.fullmatch(text):
        raise ValueError(f"expected a shape like (2, 3), found {text!r:.40}")
    shape = tuple(int(dim) for dim in re.findall(r"[0-9]+", text))
    check_shape(shape)
    return shape


def _read_role(text: str) -> Role:
    word = text.lower()
    if word == "input":
        return "input"
    if word == "output":
        return "output"
    raise ValueError(f"expected input or output, found {text!r:.40}")


def _read_number(text: str) -> int | None:
    if not text:
        return None
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"expected a number, found {text!r:.40}")
    return min(int(text), (1 << 63) - 1)


def _read_id(text: str) -> int | None:
    number = _read_number(text)
    return None if number in _UNKNOWN_IDS else number
