"""ATB's `statistic.csv`: one row a tensor, in the {round} folder.

=======================  ======================================================================
column                   what
=======================  ======================================================================
Device and PID           `0_39943`
Execution Count          the round
Op Name, Op Id           names and ids from the layer down: `Prefill_layer/Attention`, `5_0`
Op Type                  the last of the names
Input/Output, Index      `input` or `output`, and which
Dtype, Format, Shape     ATB's words: `bf16`, `nd`, `36x128`
Max, Min, Mean, Norm     over all elements, Max and Min pass over NaN; `N/A` where they were not
                         asked for, or the type has none
Tensor Path              the file that holds the values, `N/A` without one
=======================  ======================================================================
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from dumpscope.dtypes import dtype_of_label
from dumpscope.errors import DumpReadError
from dumpscope.layouts import plain
from dumpscope.model import FORM_STATISTICS, Role
from dumpscope.readers.atb_paths import order_of_ids
from dumpscope.readers.csv_table import CsvTable, read_shape
from dumpscope.readers.protocol import Execution, Record, TensorRecord
from dumpscope.readers.written_stats import BLANK, WrittenValues, judge_values, read_value
from dumpscope.regexes import regex
from dumpscope.source import DumpSource

__all__ = ["STATISTICS_START", "read_statistics"]

STATISTICS_START = regex(
    rb"(?:\xef\xbb\xbf)?\s*device and pid\s*,\s*execution count\s*,", re.IGNORECASE
)
_REQUIRED = ("op name", "op id", "input/output", "index", "dtype", "shape")
_IDS = regex(r"[0-9]{1,10}(?:_[0-9]{1,10}){0,31}")
_NUMBER = regex(r"[0-9]{1,9}")
_PROCESS = regex(r"([0-9]{1,5})_[0-9]+")
_MAX_TENSORS = 1 << 14


def read_statistics(source: DumpSource) -> Iterator[Record]:
    """Yield one execution for the rows of an operation that follow each other."""
    table = CsvTable(source, _REQUIRED)
    current: Execution | None = None
    slots: set[tuple[Role, int]] = set()

    def parse(cells: Sequence[str]) -> tuple[Execution, TensorRecord]:
        return _read_operation(table, cells, source), _read_tensor(table, cells)

    for row in table.parse_rows(parse):
        if isinstance(row, DumpReadError):
            yield row
            continue
        started, tensor = row
        slot = (tensor.role, tensor.index)
        if (
            current is None
            or (current.op_name, current.step, current.rank)
            != (started.op_name, started.step, started.rank)
            or slot in slots
            or len(slots) >= _MAX_TENSORS
        ):
            if current is not None:
                yield current
            current = started
            slots = set()
        slots.add(slot)
        current.tensors.append(tensor)
    if current is not None:
        yield current


def _read_operation(table: CsvTable, cells: Sequence[str], source: DumpSource) -> Execution:
    """Return the operation of a row, without its tensors."""
    names = table.cell(cells, "op name").split("/")
    ids_text = table.cell(cells, "op id")
    if not _IDS.fullmatch(ids_text) or not all(names):
        raise ValueError(f"expected ids like 5_0 and names, found {ids_text!r:.40}")
    ids = tuple(int(number) for number in ids_text.split("_"))
    if len(names) == len(ids):
        op_name = "/".join(f"{at}_{name}" for at, name in zip(ids, names, strict=True))
    else:
        op_name = f"{ids_text}_{'/'.join(names)}"
    name = names[-1]
    place = source.file.place
    step = table.cell(cells, "execution count")
    process = _PROCESS.fullmatch(table.cell(cells, "device and pid"))
    return Execution(
        op_type=name,
        op_name=op_name,
        order=order_of_ids(ids),
        form=FORM_STATISTICS,
        partial=True,
        container=not name.endswith("Kernel"),
        parent=op_name.rpartition("/")[0] or None,
        step=int(step) if place.step is None and _NUMBER.fullmatch(step) else None,
        rank=int(process[1]) if place.device is None and process is not None else None,
    )


def _read_tensor(table: CsvTable, cells: Sequence[str]) -> TensorRecord:
    """Read the tensor of a row."""

    def cell(name: str) -> str:
        return table.cell(cells, name)

    word = cell("input/output").lower()
    if word not in ("input", "output"):
        raise ValueError(f"expected input or output, found {word!r:.40}")
    role: Role = "input" if word == "input" else "output"
    index = cell("index")
    if not _NUMBER.fullmatch(index):
        raise ValueError(f"expected the slot of an {role}, found {index!r:.40}")
    dtype = dtype_of_label(cell("dtype"))
    shape = read_shape(cell("shape"))
    record = TensorRecord(
        role, int(index), dtype.name, plain(shape, cell("format").upper()[:64] or "ND")
    )
    if 0 in shape or dtype.kind == "string":
        return record
    judged = judge_values(
        WrittenValues(
            max=read_value(cell("max")),
            min=read_value(cell("min")),
            mean=read_value(cell("mean")),
            l2=read_value(cell("norm")),
            mean_is_of_all=True,
        ),
        dtype,
        shape,
    )
    record.stats = judged.stats
    record.notes = judged.notes
    record.unchecked = judged.unchecked
    in_file = cell("tensor path").lower() not in BLANK
    if judged.unchecked == "statistics_blank" and in_file:
        # The values lie in a file of their own, which is read for itself.
        record.unchecked = None
        record.dumped = False
        record.notes = ("values_in_file",)
    return record
