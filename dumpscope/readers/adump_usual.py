"""The short way through a dump that is as nearly all are.

Every input and output is there as a whole, unpadded by the allocator, in a layout whose memory
order is the logical one, and the last one ends where the file does. Millions of such files are
scanned, so they are worth a loop of their own; `adump` itself takes care of all others.
"""

from __future__ import annotations

from collections.abc import Sequence

from dumpscope.model import Role
from dumpscope.readers.adump_plan import MAX_NUMBER, PLAIN_CODES, plan_entry
from dumpscope.readers.adump_schema import HeaderInput, HeaderOutput
from dumpscope.readers.protocol import FileSlice, TensorRecord
from dumpscope.source import DumpSource

__all__ = ["LAST_TENSOR_TYPE", "take_usual"]

LAST_TENSOR_TYPE = 3
"""Inputs of a higher `input_type` are no tensors."""

_MAX_DIMS = 32


def take_usual(
    source: DumpSource,
    start: int,
    op_name: bytes,
    inputs: Sequence[HeaderInput],
    outputs: Sequence[HeaderOutput],
) -> list[TensorRecord] | None:
    """Describe the tensors whose bytes begin at `start`.

    Returns
    -------
    list of TensorRecord or None
        `None` when any of them is not as usual.
    """
    for item in inputs:
        if item.input_type > LAST_TENSOR_TYPE:
            return None
    for result in outputs:
        if result.HasField("original_op") and result.original_op.name not in (b"", op_name):
            return None  # a fused operator's output, which has a name of its own
    tensors: list[TensorRecord] = []
    parts: tuple[tuple[Role, Sequence[HeaderInput | HeaderOutput]], ...] = (
        ("input", inputs),
        ("output", outputs),
    )
    for role, entries in parts:
        for index, entry in enumerate(entries):
            size = entry.size
            layout_code = entry.format
            dims = entry.shape.dim[:]
            if layout_code not in PLAIN_CODES or len(dims) > _MAX_DIMS or entry.offset:
                return None
            dtype, geometry, needed = plan_entry(entry.data_type, layout_code, tuple(dims))
            address = entry.address
            if not size or size != needed or address > MAX_NUMBER or geometry.notes:
                return None
            data = FileSlice(source, start, size)
            start += size
            # By position: names cost half as much again.
            tensors.append(
                TensorRecord(
                    role, index, dtype.name, geometry, data, None, None, True, size, 0, address
                )
            )
    return tensors if start == source.size else None
