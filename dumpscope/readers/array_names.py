"""What the name of an array file says: operator, role, slot, layout and the values' true type.

Dump names (converted CANN dumps, MindSpore, golden files) are parsed by `naming`. Besides them::

    {entry}.{input|output}.{i}.npy          msprobe's tensors without their dump.json
    {name}_{dtype}_{number}.npy             MindSpore's TensorDump
    {anything}                              output 0 of an operator called so
    nan_input, debug_Softmax_out            the last word gives the role
"""

from __future__ import annotations

import re

from dumpscope.model import DumpFile, Role
from dumpscope.naming import parse_name
from dumpscope.readers.array_roles import role_of_stem
from dumpscope.readers.protocol import Execution, TensorRecord
from dumpscope.records import record
from dumpscope.regexes import regex

__all__ = ["ArrayName", "name_of_array", "stem_of"]

_SLOT = regex(r"(.+)\.(input|output)\.([0-9]{1,5})", re.DOTALL)
_DTYPE_WORD = regex(
    r"(?:^|[._\-])(bfloat16|hifloat8|float8_e[0-9]m[0-9](?:fn(?:uz)?|fnu)?|float[46]_e[0-9]m[0-9](?:fn)?"
    r"|float(?:16|32|64)|u?int[1248])(?=[._\-]|$)",
    re.IGNORECASE,
)
_SAME_AS_ND = frozenset({"DefaultFormat", "default", "Default"})


@record(frozen=True, slots=True)
class ArrayName:
    """The fields of an array file's name.

    `role` and `slot` are what the name says, or output 0. `dtype_label` is the name's word for
    the type of the values, which may be stored as another one. `partial` says that other files
    may hold other tensors of the same execution.
    """

    op_type: str
    op_name: str
    task_id: int | None = None
    stream_id: int | None = None
    timestamp: int | None = None
    context_id: int | None = None
    thread_id: int | None = None
    role: Role = "output"
    slot: int = 0
    layout: str = "ND"
    dtype_label: str | None = None
    shape: tuple[int, ...] | None = None
    partial: bool = False

    def execution(self, tensors: list[TensorRecord], form: int) -> Execution:
        """Return the execution, or the part of one, that these tensors belong to."""
        return Execution(
            op_type=self.op_type,
            op_name=self.op_name,
            tensors=tensors,
            task_id=self.task_id,
            stream_id=self.stream_id,
            timestamp=self.timestamp,
            context_id=self.context_id,
            thread_id=self.thread_id,
            form=form,
            partial=self.partial,
        )


def name_of_array(file: DumpFile) -> ArrayName:
    """Read the name of a file that holds one array, or one container of arrays."""
    parsed = parse_name(file.name)
    if parsed is not None:
        layout = parsed.layout
        return ArrayName(
            op_type=parsed.op_type,
            op_name=parsed.op_name,
            task_id=parsed.task_id,
            stream_id=parsed.stream_id,
            timestamp=parsed.timestamp,
            context_id=parsed.context_id,
            thread_id=parsed.thread_id,
            role=parsed.role or "output",
            slot=parsed.slot or 0,
            layout="ND" if layout is None or layout in _SAME_AS_ND else layout,
            dtype_label=parsed.dtype,
            shape=parsed.shape,
            partial=parsed.role is not None,
        )
    stem = stem_of(file.name)
    word = _DTYPE_WORD.search(stem)
    label = None if word is None else word[1]
    match = _SLOT.fullmatch(stem)
    if match is not None:
        role: Role = "input" if match[2] == "input" else "output"
        return ArrayName(
            "", match[1], role=role, slot=int(match[3]), dtype_label=label, partial=True
        )
    return ArrayName("", stem, role=role_of_stem(stem) or "output", dtype_label=label)


def stem_of(name: str) -> str:
    """Return a file's name without its last suffix."""
    stem, dot, _ = name.rpartition(".")
    return stem if dot and stem else name
