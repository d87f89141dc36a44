"""The zip archive that torch.save writes, without compression unless a tool packed it again.

=======================  ==================================================================
member                   what is in it
=======================  ==================================================================
{name}/data.pkl          the pickled object (`torch_unpickle`), its tensors as views
{name}/data/{key}        the bytes of one storage
{name}/byteorder         "little" or "big"; little where it is missing
{name}/version, …        not needed
=======================  ==================================================================
"""

from __future__ import annotations

from dumpscope.errors import CorruptDumpError, DumpReadError, TruncatedDumpError
from dumpscope.readers.torch_legacy import CutArchive, PickleRow
from dumpscope.readers.torch_magic import LEGACY_MAGIC
from dumpscope.readers.torch_names import Storage
from dumpscope.readers.torch_storage import (
    MAX_PICKLE_BYTES,
    SavedObject,
    StorageBytes,
    shift_offset,
)
from dumpscope.readers.torch_unpickle import unpickle
from dumpscope.readers.zip_members import ZIP_MAGIC, Member, locate, read_directory, read_member
from dumpscope.source import DumpSource

__all__ = ["open_saved"]

_LONGEST_BYTEORDER = 64


def open_saved(source: DumpSource) -> SavedObject:
    """Read a file of torch up to the bytes of its storages.

    Raises
    ------
    CorruptDumpError
        It is none, or its pickle asks for something that is not read.
    TruncatedDumpError
        It ends before its pickle is complete.
    """
    head = source.head
    if head.startswith(ZIP_MAGIC):
        try:
            members = read_directory(source)
        except TruncatedDumpError as fault:
            return CutArchive(source, fault)
        return _Archive(source, members)
    if head.startswith(LEGACY_MAGIC):
        return PickleRow(source)
    if LEGACY_MAGIC.startswith(head) or ZIP_MAGIC.startswith(head):
        raise TruncatedDumpError(
            f"expected a file of torch.save, found {source.size} bytes", offset=source.size
        )
    raise CorruptDumpError(
        f"expected a file of torch.save, which starts with {ZIP_MAGIC!r}, found {head[:8]!r}: "
        "save the tensors again with PyTorch 1.6 or later",
        offset=0,
    )


class _Archive(SavedObject):
    def __init__(self, source: DumpSource, members: dict[str, Member]) -> None:
        self._source = source
        self._members = members
        self._found: dict[str, StorageBytes] = {}
        pickled = _find_pickle(members)
        self._prefix = pickled.name.removesuffix("data.pkl")
        content = read_member(source, pickled, MAX_PICKLE_BYTES)
        try:
            self.value = unpickle(content).value
        except DumpReadError as error:
            shift_offset(error, 0 if pickled.deflated else locate(source, pickled))
            raise
        order = members.get(self._prefix + "byteorder")
        if order is not None:
            self.big_endian = read_member(source, order, _LONGEST_BYTEORDER) == b"big"

    def find(self, storage: Storage) -> StorageBytes:
        found = self._found.get(storage.key)
        if found is None:
            name = f"{self._prefix}data/{storage.key}"
            member = self._members.get(name)
            if member is None:
                raise CorruptDumpError(f"the archive has no member {name[:120]!a}")
            start = locate(self._source, member)
            found = StorageBytes(member.size, start, member if member.deflated else None)
            self._found[storage.key] = found
        return found


def _find_pickle(members: dict[str, Member]) -> Member:
    for member in members.values():
        if member.name == "data.pkl" or member.name.endswith("/data.pkl"):
            return member
    raise CorruptDumpError(
        f"expected a member data.pkl, as torch.save writes it, found {len(members)} others: "
        "a zip archive of something else",
        offset=0,
    )
