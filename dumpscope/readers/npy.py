"""NumPy arrays, one a file: converted CANN dumps, MindSpore, golden files, anyone's `np.save`.

The bytes are those of `npy_header`, followed by the elements. What they are an array of is in
the file's name (`array_names`); what the elements are is in the header, except

===========  ==================================================================================
descr        what the elements are
===========  ==================================================================================
`<f4` …      float32 and so on; where the name says BFloat16, bfloat16 widened by MindSpore
`|i1`        int8; where the name says Int4, one int4 a byte
`|V2` `<V2`  bfloat16 saved from an ml_dtypes array, unless the name says another 16-bit type
`<f1`        float8_e5m2 of ml_dtypes, unless the name says another 8-bit type
`|V1` `<V1`  one of ml_dtypes' types of 8 bits and fewer: the name tells which, or nothing does
`<W4`        complex32 of ml_dtypes
`|O`         Python objects: refused, nothing is ever unpickled
===========  ==================================================================================

Big-endian and Fortran-ordered arrays are read as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from dumpscope.errors import DumpReadError, TruncatedDumpError
from dumpscope.model import FORM_CONVERTED, DumpFile, Match
from dumpscope.readers.array_names import name_of_array
from dumpscope.readers.array_records import array_geometry, record_of_array, truncation_of
from dumpscope.readers.npy_header import MAGIC, NpyHeader, header_length, parse_header
from dumpscope.readers.protocol import FileSlice, Record
from dumpscope.readers.stored_values import resolve_descr
from dumpscope.source import DumpSource

__all__ = ["NpyReader"]


class NpyReader:
    """Reads .npy files without numpy.load."""

    name = "npy"
    formats = "NumPy arrays (.npy): converted CANN dumps, MindSpore, golden data"
    versions = "npy 1.0 to 3.0; MindSpore 1.8 to 2.10"
    companions: Mapping[str, str] = MappingProxyType({})

    def sniff(self, head: bytes, file: DumpFile) -> Match:
        """Recognise the magic bytes, else the suffix."""
        if head.startswith(MAGIC):
            return Match.CONTENT
        return Match.NAME if file.name.endswith(".npy") else Match.NONE

    def read(self, source: DumpSource) -> Iterator[Record]:
        """Yield the one array."""
        try:
            header, start = _read_header(source)
            name = name_of_array(source.file)
            stored = resolve_descr(header.descr, name.dtype_label)
        except DumpReadError as error:
            error.path = source.file.relative
            raise
        record = record_of_array(
            name.role,
            name.slot,
            stored,
            array_geometry(header.shape, name.layout, header.fortran_order),
            part=lambda nbytes: FileSlice(source, start, nbytes),
            available=source.size - start,
            offset=start,
        )
        yield name.execution([record], FORM_CONVERTED)
        fault = truncation_of(record, source.file.relative, source.size)
        if fault is not None:
            yield fault


def _read_header(source: DumpSource) -> tuple[NpyHeader, int]:
    """Return the header and where the elements start."""
    head = source.head
    text, start = header_length(head[:12])
    if start > source.size:
        raise TruncatedDumpError(
            f"expected a header of {start - text} bytes, found {source.size - text}: the file is "
            "cut off",
            offset=source.size,
        )
    words = head[text:start] if start <= len(head) else source.read(text, start - text)
    return parse_header(words), start
