"""Tensors in the safetensors format (huggingface/safetensors, "Format").

=========  ==========================================================================
offset     what
=========  ==========================================================================
0          u64 H, length of the header
8          H bytes: JSON `{"key": {"dtype": "F16", "shape": [2, 3], "data_offsets":
           [begin, end]}, …, "__metadata__": {"…": "…"}}`, padded with blanks
8 + H      the bytes of all tensors, C order, little-endian; offsets count from here
=========  ==========================================================================

The safetensors package hands out whole arrays, so the header is read here: a tensor is then
streamed from where it lies. Keys give the roles as in .npz files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from dumpscope.dtypes import dtype_of_label
from dumpscope.errors import CorruptDumpError, DumpReadError, TruncatedDumpError
from dumpscope.model import DumpFile, Match
from dumpscope.readers.array_groups import KeyedArray, group_arrays
from dumpscope.readers.array_names import name_of_array
from dumpscope.readers.array_records import (
    array_geometry,
    check_shape,
    record_of_array,
    truncation_of,
)
from dumpscope.readers.protocol import FileSlice, Record
from dumpscope.readers.stored_values import Stored
from dumpscope.source import DumpSource

__all__ = ["SafetensorsReader"]

MAX_HEADER_BYTES = 100_000_000
"""The limit of the format."""

_DTYPES = {
    "BOOL": "bool",
    "F4": "float4_e2m1fn",
    "F6_E2M3": "float6_e2m3fn",
    "F6_E3M2": "float6_e3m2fn",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
    "BF16": "bfloat16",
    "C64": "complex64",
    **{f"F{bits}": f"float{bits}" for bits in (16, 32, 64)},
    **{f"I{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"U{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
}
_METADATA = "__metadata__"


class SafetensorsReader:
    """Reads .safetensors files."""

    name = "safetensors"
    formats = "safetensors (.safetensors)"
    versions = "safetensors 0.3 to 0.8"
    companions: Mapping[str, str] = MappingProxyType({})

    def sniff(self, head: bytes, file: DumpFile) -> Match:
        """Recognise a length that fits and the JSON behind it, else the suffix."""
        length = int.from_bytes(head[:8], "little")
        if (
            2 <= length <= min(MAX_HEADER_BYTES, file.size - 8)
            and head[8:9] == b"{"
            and (b'"data_offsets"' in head or b'"__metadata__"' in head[:32])
        ):
            return Match.CONTENT
        return Match.NAME if file.name.endswith(".safetensors") else Match.NONE

    def read(self, source: DumpSource) -> Iterator[Record]:
        """Yield one execution for the tensors with roles, and one for each other tensor."""
        path = source.file.relative
        entries, start = _read_header(source)
        faults: list[DumpReadError] = []
        arrays: list[KeyedArray] = []
        for key, entry in entries.items():
            if key == _METADATA:
                continue
            try:
                arrays.append(_describe(source, start, key, entry))
            except DumpReadError as error:
                error.path = path
                error.offset = 8
                faults.append(error)
        yield from group_arrays(name_of_array(source.file), arrays)
        for array in arrays:
            fault = truncation_of(array.record, path, source.size)
            if fault is not None:
                yield fault
        yield from faults


def _read_header(source: DumpSource) -> tuple[dict[str, object], int]:
    """Return the entries of the header and where the tensors start."""
    path = source.file.relative
    if source.size < 8:
        raise TruncatedDumpError(
            f"expected the 8 bytes of a header length, found {source.size}", path=path, offset=0
        )
    length = int.from_bytes(source.head[:8], "little")
    if not 2 <= length <= MAX_HEADER_BYTES:
        raise CorruptDumpError(
            f"expected a header of 2 to {MAX_HEADER_BYTES} bytes, found a length of {length}",
            path=path,
            offset=0,
        )
    if length > source.size - 8:
        raise TruncatedDumpError(
            f"expected a header of {length} bytes, found {source.size - 8}: the file is cut off",
            path=path,
            offset=8,
        )
    try:
        header = json.loads(source.read(8, length))
    except (ValueError, RecursionError) as error:
        raise CorruptDumpError(
            f"expected JSON in the header, found {error}", path=path, offset=8
        ) from error
    if not isinstance(header, dict):
        raise CorruptDumpError(
            f"expected a JSON object as header, found {type(header).__name__}", path=path, offset=8
        )
    return header, 8 + length


def _describe(source: DumpSource, start: int, key: str, entry: object) -> KeyedArray:
    """Check one entry against the file and describe its tensor."""
    if not isinstance(entry, dict):
        raise CorruptDumpError(f"the entry {key!r:.80} is no object")
    label = entry.get("dtype")
    shape = _numbers(entry.get("shape"), key, "shape")
    offsets = _numbers(entry.get("data_offsets"), key, "data_offsets")
    if not isinstance(label, str) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise CorruptDumpError(f"the entry {key!r:.80} has no dtype and two offsets in order")
    check_shape(shape)
    dtype = dtype_of_label(_DTYPES.get(label.upper(), label))
    begin, end = offsets
    geometry = array_geometry(shape)
    needed = dtype.nbytes(geometry.count)
    if dtype.decodable and end - begin != needed:
        raise CorruptDumpError(
            f"expected {needed} bytes for {key!r:.80} of {dtype.name} and shape "
            f"{list(shape)!r:.80}, found offsets {begin} to {end}"
        )
    offset = start + begin
    record = record_of_array(
        "output",
        0,
        Stored(dtype, dtype.bits // 8, unchecked=None if dtype.decodable else "unknown_dtype"),
        geometry,
        part=lambda nbytes: FileSlice(source, offset, nbytes),
        available=max(0, min(end - begin, source.size - offset)),
        offset=offset,
        name=key,
    )
    return KeyedArray(key, record)


def _numbers(value: object, key: str, what: str) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(n) is int and 0 <= n < 1 << 63 for n in value):
        raise CorruptDumpError(f"the {what} of {key!r:.80} is no list of sizes")
    return tuple(value)
