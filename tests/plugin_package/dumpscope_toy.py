"""Toy dumps, little endian.

| offset | what |
|---|---|
| 0 | 8 bytes: TOYDUMP1 |
| 8 | u32: bytes of the operator's name; u32: number of tensors |
| 16 | the name, UTF-8 |
| … | per tensor: u32 role (0 input, 1 output); u32 number of dimensions; the dimensions, u64 |
| … | the elements of all tensors, float32 |
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from dumpscope.errors import CorruptDumpError, TruncatedDumpError
from dumpscope.layouts import plain
from dumpscope.model import DumpFile, Match
from dumpscope.readers.protocol import Execution, FileSlice, Record, TensorRecord
from dumpscope.source import DumpSource

MAGIC = b"TOYDUMP1"
MOST_DIMENSIONS = 32


class ToyReader:
    """Reads toy dumps."""

    name = "toy"
    formats = "toy dumps"
    versions = "1"
    companions: Mapping[str, str] = MappingProxyType({})

    def sniff(self, head: bytes, file: DumpFile) -> Match:
        return Match.CONTENT if head.startswith(MAGIC) else Match.NONE

    def read(self, source: DumpSource) -> Iterator[Record]:
        name_bytes, count = struct.unpack("<2I", source.read(8, 8))
        # `read` compares a length with the file's size before it allocates anything.
        op_name = source.read(16, name_bytes).decode("utf-8", "surrogateescape")
        offset = 16 + name_bytes
        headers = []
        for _ in range(count):
            role, rank = struct.unpack("<2I", source.read(offset, 8))
            if role > 1 or rank > MOST_DIMENSIONS:
                raise CorruptDumpError(
                    f"expected role 0 or 1 and at most {MOST_DIMENSIONS} dimensions, found role "
                    f"{role} and {rank} dimensions: write the file again",
                    path=source.file.relative,
                    reader=self.name,
                    offset=offset,
                )
            headers.append((role, struct.unpack(f"<{rank}Q", source.read(offset + 8, 8 * rank))))
            offset += 8 + 8 * rank

        execution = Execution(op_type="Toy", op_name=op_name)
        fault = None
        for role, shape in headers:
            size = 4 * math.prod(shape)
            there = min(size, max(0, source.size - offset))
            same_role = sum(t.role == ("input", "output")[role] for t in execution.tensors)
            execution.tensors.append(
                TensorRecord(
                    role="output" if role else "input",
                    index=same_role,
                    dtype="float32",
                    geometry=plain(shape),
                    # Says where the bytes are; nothing is loaded before it is asked for.
                    data=FileSlice(source, offset, there),
                    size_bytes=size,
                    missing_bytes=size - there,
                    offset=offset,
                )
            )
            if there < size and fault is None:
                fault = TruncatedDumpError(
                    f"expected {size} bytes of elements, found {there}: write the file again",
                    path=source.file.relative,
                    reader=self.name,
                    offset=offset,
                )
            offset += size
        yield execution
        # What is there counts; the damage is told after it.
        if fault is not None:
            yield fault
