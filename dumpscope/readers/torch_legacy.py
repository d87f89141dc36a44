"""Files of torch that are no complete zip archive.

Before PyTorch 1.6, and with `_use_new_zipfile_serialization=False`, a file is a row of pickles:

====================  ==============================================================
pickle                what it holds
====================  ==============================================================
1                     the magic number 0x1950a86a20f9469cfc6c
2                     the protocol, 1001
3                     a dictionary about the machine: `little_endian`
4                     the object
5                     the list of storage keys
then, of each key     u64 number of elements, and the elements
====================  ==============================================================

An archive that was cut off has lost its directory, but its members still lie one behind the
other: a local header, the bytes, and `PK 07 08` with CRC and sizes. The pickle comes first, and
it tells how long the storages are.
"""

from __future__ import annotations

import struct

from dumpscope.errors import CorruptDumpError, DumpReadError, TruncatedDumpError
from dumpscope.readers.torch_names import PickledDict, Storage
from dumpscope.readers.torch_storage import SavedObject, StorageBytes, itemsizes_of, unpickle_at
from dumpscope.readers.zip_members import ZIP_MAGIC
from dumpscope.source import DumpSource

__all__ = ["CutArchive", "PickleRow"]

_PROTOCOL = 1001
_LOCAL = struct.Struct("<4s5H3I2H")
_HAS_DESCRIPTOR = 8
_LONGEST_SMALL_MEMBER = 4096
_MAX_NAME = 1024


class PickleRow(SavedObject):
    """A file from before PyTorch 1.6."""

    def __init__(self, source: DumpSource) -> None:
        self._source = source
        _, position = unpickle_at(source, 0)
        protocol, position = unpickle_at(source, position)
        if protocol.value != _PROTOCOL:
            raise CorruptDumpError(
                f"expected protocol {_PROTOCOL} of torch.save, found {protocol.value!r:.40}",
                offset=position,
            )
        about, position = unpickle_at(source, position)
        machine = about.value if isinstance(about.value, PickledDict) else PickledDict()
        self.big_endian = ("little_endian", False) in machine[:16]
        pickled, position = unpickle_at(source, position)
        self.value = pickled.value
        self._itemsizes = itemsizes_of(pickled)
        keys, self._position = unpickle_at(source, position)
        self._keys = keys.value if isinstance(keys.value, list) else []
        self._found: dict[str, StorageBytes] = {}

    def find(self, storage: Storage) -> StorageBytes:
        while storage.key not in self._found:
            index = len(self._found)
            key = self._keys[index] if index < len(self._keys) else None
            if not isinstance(key, str) or key in self._found or key not in self._itemsizes:
                raise CorruptDumpError(
                    f"the file has no storage {storage.key!a}", offset=self._position
                )
            count = int.from_bytes(self._source.read(self._position, 8), "little")
            start = self._position + 8
            nbytes = count * self._itemsizes[key]
            present = min(nbytes, self._source.size - start)
            self._found[key] = StorageBytes(present, start)
            self._position = start + nbytes
        return self._found[storage.key]


class CutArchive(SavedObject):
    """What is left of an archive without its end."""

    def __init__(self, source: DumpSource, fault: DumpReadError) -> None:
        self.fault = fault
        self._found: dict[str, StorageBytes] = {}
        name, start, nbytes = _read_local(source, 0)
        prefix = name.removesuffix("data.pkl")
        if prefix == name:
            raise fault
        try:
            pickled, position = unpickle_at(source, start)
        except TruncatedDumpError:
            # The pickle itself is cut off: nothing is left that could be read.
            raise fault from None
        self.value = pickled.value
        itemsizes = itemsizes_of(pickled)
        sizes = {s.key: s.count * itemsizes[s.key] for s in pickled.storages}
        while True:
            try:
                name, start, nbytes = _read_local(source, _skip_descriptor(source, position))
            except DumpReadError:
                return
            key = name.removeprefix(f"{prefix}data/")
            if key in sizes:
                nbytes = sizes[key]
                self._found[key] = StorageBytes(min(nbytes, source.size - start), start)
            elif nbytes is None:
                rest = source.read(start, min(_LONGEST_SMALL_MEMBER, source.size - start))
                nbytes = max(0, rest.find(b"PK\7\x08"))
            if name == f"{prefix}byteorder":
                self.big_endian = source.read(start, nbytes) == b"big"
            position = start + nbytes

    def find(self, storage: Storage) -> StorageBytes:
        found = self._found.get(storage.key)
        if found is None:
            raise TruncatedDumpError(
                f"the file was cut off before storage {storage.key!a}", offset=None
            )
        return found


def _read_local(source: DumpSource, position: int) -> tuple[str, int, int | None]:
    """Return a member's name, where its bytes start, and their number if the header says it."""
    fields = _LOCAL.unpack(source.read(position, _LOCAL.size))
    if fields[0] != ZIP_MAGIC or fields[3] or fields[9] > _MAX_NAME:
        raise CorruptDumpError("expected the header of a stored member", offset=position)
    name = source.read(position + _LOCAL.size, fields[9]).decode("utf-8", "surrogateescape")
    start = position + _LOCAL.size + fields[9] + fields[10]
    return name, start, None if fields[2] & _HAS_DESCRIPTOR else fields[7]


def _skip_descriptor(source: DumpSource, position: int) -> int:
    """Return where the next member starts: behind a descriptor of 16 or 24 bytes, or at once."""
    ahead = source.read(position, min(28, source.size - position))
    for length in (0, 16, 24):
        if ahead[length : length + 4] == ZIP_MAGIC:
            return position + length
    raise TruncatedDumpError("expected the header of the next member", offset=position)
