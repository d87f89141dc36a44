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

import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from dumpscope.dtypes import dtype_of_label
from dumpscope.errors import DumpReadError
from dumpscope.layouts import plain
from dumpscope.model import FORM_STATISTICS, DumpFile, Match, Role
from dumpscope.readers.csv_table import CsvTable, read_shape
from dumpscope.readers.protocol import Execution, Record, TensorRecord
from dumpscope.readers.written_stats import (
    NULL,
    WrittenValues,
    judge_values,
    read_count,
    read_value,
)
from dumpscope.regexes import regex
from dumpscope.source import DumpSource

__all__ = ["MindSporeCsvReader"]

_FIXED = (
    *("op type", "op name", "task id", "stream id", "timestamp"),
    *("io", "slot", "data size", "data type", "shape"),
)
_START = regex(rb"(?:\xef\xbb\xbf)?\s*op type\s*,\s*op name\s*,\s*task id\s*,", re.IGNORECASE)
_NUMBER = regex(r"[0-9]{1,20}")
_UNKNOWN_IDS = frozenset({0xFFFF, 0xFFFFFFFF})
_MAX_TENSORS = 1 << 14

_Key = tuple[str, str, int | None, int | None]


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
        order = 0

        def parse(cells: Sequence[str]) -> tuple[TensorRecord, tuple[_Key, int | None]]:
            return _read_tensor(table, cells), _read_key(table, cells)

        for row in table.parse_rows(parse):
            if isinstance(row, DumpReadError):
                yield row
                continue
            tensor, (row_key, timestamp) = row
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
