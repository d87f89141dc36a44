"""Bare bytes of one tensor, as the vendor's converter writes them (`-t bin`).

The file is the elements and nothing else, in the memory layout of the dump; everything else is
in its name::

    {dump name}.{input|output}.{i}.{d0_d1_…}.{dtype}.{format}.bin
    {dump name}.space.{i}.bin                                        a workspace: not a tensor
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from dumpscope.dtypes import dtype_of_label
from dumpscope.errors import DumpReadError
from dumpscope.model import FORM_CONVERTED, DumpFile, Match
from dumpscope.naming import parse_name
from dumpscope.readers.array_names import name_of_array
from dumpscope.readers.array_records import (
    array_geometry,
    check_shape,
    record_of_array,
    truncation_of,
)
from dumpscope.readers.protocol import FileSlice, Record, TensorRecord
from dumpscope.readers.stored_values import Stored
from dumpscope.regexes import regex
from dumpscope.source import DumpSource

__all__ = ["RawBinReader"]

_WITHOUT_ROLE = regex(
    r"(.+)(\.[0-9]{1,5}\.[0-9]+(?:_[0-9]+)*_?\.\w+\.\w+\.bin)", re.DOTALL | re.ASCII
)
_NO_TENSOR = frozenset({"space.bin", "buffer.bin"})


class RawBinReader:
    """Reads the converter's bare .bin files."""

    name = "raw_bin"
    formats = "bare tensors of the vendor's converter (.bin, described by their names)"
    versions = "msaccucmp of CANN 5 to 9"
    companions: Mapping[str, str] = MappingProxyType({})

    def sniff(self, head: bytes, file: DumpFile) -> Match:
        """Recognise the name: the bytes say nothing."""
        if not file.name.endswith(".bin"):
            return Match.NONE
        parsed = parse_name(_with_role(file.name))
        if parsed is None:
            return Match.NONE
        if parsed.suffix in _NO_TENSOR or (parsed.role is not None and parsed.suffix == "bin"):
            return Match.NAME
        return Match.NONE

    def read(self, source: DumpSource) -> Iterator[Record]:
        """Yield the one tensor; nothing for a workspace."""
        file = replace(source.file, name=_with_role(source.file.name))
        parsed = parse_name(file.name)
        if parsed is not None and parsed.suffix in _NO_TENSOR:
            return
        name = name_of_array(file)
        shape = name.shape or ()
        try:
            check_shape(shape)
        except DumpReadError as error:
            error.path = source.file.relative
            raise
        dtype = dtype_of_label(name.dtype_label or "")
        geometry = array_geometry(shape, name.layout)
        if dtype.decodable:
            record = record_of_array(
                name.role,
                name.slot,
                Stored(dtype, dtype.bits // 8),
                geometry,
                part=lambda nbytes: FileSlice(source, 0, nbytes),
                available=source.size,
            )
        else:
            record = TensorRecord(
                name.role,
                name.slot,
                dtype.name,
                geometry,
                FileSlice(source, 0, source.size),
                unchecked=_why(dtype.name, dtype.kind),
                size_bytes=source.size,
            )
        yield name.execution([record], FORM_CONVERTED)
        fault = truncation_of(record, source.file.relative, source.size)
        if fault is not None:
            yield fault


def _why(dtype: str, kind: str) -> str | None:
    if kind == "string":
        return None
    return "undefined_dtype" if dtype == "undefined" else "unknown_dtype"


def _with_role(name: str) -> str:
    """Add the role to a name that has none: such a file is an output."""
    match = None if ".input." in name or ".output." in name else _WITHOUT_ROLE.fullmatch(name)
    return name if match is None else f"{match[1]}.output{match[2]}"
