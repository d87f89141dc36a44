"""NumPy archives (.npz): a zip file whose members are .npy files, stored or deflated.

`np.savez(path, input=x, output=y)` writes the members `input.npy` and `output.npy`. Keys give
the roles (`array_roles`): arrays whose keys name inputs and outputs make one operator, called
after the file; any other array is the output of an operator called after the file and its key.
Stored members are read where they lie, deflated ones are inflated block by block.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from dumpscope.errors import CorruptDumpError, DumpReadError, TruncatedDumpError
from dumpscope.model import DumpFile, Match
from dumpscope.readers.array_groups import KeyedArray, group_arrays
from dumpscope.readers.array_names import name_of_array
from dumpscope.readers.array_records import array_geometry, record_of_array, truncation_of
from dumpscope.readers.npy_header import header_length, parse_header
from dumpscope.readers.npz_members import InflatedData, NpzMember, list_members
from dumpscope.readers.protocol import FileSlice, Record, TensorData, TensorRecord
from dumpscope.readers.stored_values import resolve_descr
from dumpscope.readers.zip_members import ZIP_MAGIC
from dumpscope.source import DumpSource

__all__ = ["NpzReader"]

_EMPTY_ZIP = b"PK\x05\x06"
_HEADER_ROOM = 12 + (1 << 16)
_SUFFIX = ".npy"


class NpzReader:
    """Reads .npz archives without numpy.load."""

    name = "npz"
    formats = "NumPy archives (.npz)"
    versions = "zip and zip64, stored or deflated; npy 1.0 to 3.0"
    companions: Mapping[str, str] = MappingProxyType({})

    def sniff(self, head: bytes, file: DumpFile) -> Match:
        """Recognise a zip file whose first member is an .npy file, else the suffix."""
        if head.startswith(ZIP_MAGIC) and len(head) > 30:
            name = head[30 : 30 + int.from_bytes(head[26:28], "little")]
            if name.endswith(b".npy"):
                return Match.CONTENT
        return Match.NAME if file.name.endswith(".npz") else Match.NONE

    def read(self, source: DumpSource) -> Iterator[Record]:
        """Yield one execution for the arrays with roles, and one for each other array."""
        path = source.file.relative
        if source.head[:4] not in (ZIP_MAGIC, _EMPTY_ZIP):
            raise CorruptDumpError(
                f"expected a zip file, found {source.head[:4]!r}: np.savez did not write this",
                path=path,
                offset=0,
            )
        name = name_of_array(source.file)
        faults: list[DumpReadError] = []
        arrays: list[KeyedArray] = []
        try:
            for member in list_members(source, faults):
                if member.member.name.endswith(_SUFFIX):
                    _add_array(arrays, source, member, name.dtype_label, faults)
        except DumpReadError as error:
            faults.append(error)
        yield from group_arrays(name, arrays)
        for array in arrays:
            cut = truncation_of(array.record, path, source.size)
            if cut is not None:
                yield cut
        for fault in faults:
            fault.path = path
            yield fault


def _add_array(
    arrays: list[KeyedArray],
    source: DumpSource,
    member: NpzMember,
    label: str | None,
    faults: list[DumpReadError],
) -> None:
    key = member.member.name.removesuffix(_SUFFIX)
    try:
        arrays.append(KeyedArray(key, _describe(source, member, key, label)))
    except DumpReadError as error:
        error.offset = member.offset
        faults.append(error)


def _describe(source: DumpSource, found: NpzMember, key: str, label: str | None) -> TensorRecord:
    """Read the header of one member."""
    member, offset, present = found
    room = min(member.size, _HEADER_ROOM)
    if member.deflated:
        start = b"".join(
            bytes(block) for block in InflatedData(source, member, offset, 0, room).blocks()
        )
        present = member.size
    else:
        start = source.read(offset, min(room, present))
    text, body = header_length(start[:12])
    if body > len(start):
        raise TruncatedDumpError(
            f"expected a header of {body - text} bytes in {key!r:.80}, found {len(start) - text}"
        )
    header = parse_header(start[text:body])

    def part(nbytes: int) -> TensorData:
        if member.deflated:
            return InflatedData(source, member, offset, body, nbytes)
        return FileSlice(source, offset + body, nbytes)

    return record_of_array(
        "output",
        0,
        resolve_descr(header.descr, label),
        array_geometry(header.shape, "ND", header.fortran_order),
        part=part,
        available=max(0, min(member.size, present) - body),
        offset=offset + body,
        name=key,
    )
