"""Read damaged bytes to the end: records, measurements, values. Only `DumpReadError` may leave."""

from __future__ import annotations

from collections.abc import Iterator

from dumpscope.dtypes import dtype_named
from dumpscope.errors import DumpReadError
from dumpscope.model import Match
from dumpscope.readers.protocol import Execution, Reader
from dumpscope.stats.measuring import measure
from memory_source import MemorySource

SMALL = 1 << 20


def exhaust(reader: Reader, content: bytes, name: str) -> int:
    """Read, measure and load whatever a file gives; return how many faults were reported."""
    source = MemorySource(content, name)
    assert reader.sniff(source.head, source.file) in tuple(Match)
    found: list[DumpReadError] = []
    measured: list[DumpReadError] = []
    try:
        for record in reader.read(source):
            if isinstance(record, DumpReadError):
                found.append(record)
            elif isinstance(record, Execution):
                measured.extend(_measure(record))
    except DumpReadError as error:
        found.append(error)
    assert all(fault.path == source.file.relative for fault in found)
    assert source.largest_read <= len(content)
    return len(found) + len(measured)


def _measure(execution: Execution) -> Iterator[DumpReadError]:
    for tensor in execution.tensors:
        if tensor.data is None or tensor.geometry.stored_count > SMALL:
            continue
        try:
            if tensor.unchecked is None and dtype_named(tensor.dtype).decodable:
                measured = measure(tensor.data, dtype_named(tensor.dtype), tensor.geometry)
                assert measured.stats.count <= tensor.geometry.stored_count
            array = tensor.load()
            assert array.shape == tensor.shape
            assert not array.flags.writeable
        except DumpReadError as error:
            yield error
