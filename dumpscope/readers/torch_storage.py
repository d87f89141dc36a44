"""A saved object of torch, and where the bytes of its storages are."""

from __future__ import annotations

from dumpscope.dtypes import Dtype, dtype_named
from dumpscope.errors import CorruptDumpError, DumpReadError, TruncatedDumpError
from dumpscope.readers.torch_names import Storage
from dumpscope.readers.torch_unpickle import Pickled, unpickle
from dumpscope.readers.zip_members import Member
from dumpscope.records import record
from dumpscope.source import DumpSource

__all__ = [
    "MAX_PICKLE_BYTES",
    "SavedObject",
    "StorageBytes",
    "itemsizes_of",
    "shift_offset",
    "torch_dtype",
    "unpickle_at",
]

MAX_PICKLE_BYTES = 64 << 20
_FIRST_BYTES = 1 << 16

_TORCH_DTYPES = {
    "float4_e2m1fn_x2": "float4_e2m1fn",
    "bits8": "uint8",
    "bits16": "uint16",
}


@record(frozen=True, slots=True)
class StorageBytes:
    """Where the bytes of one storage are: `nbytes` of them, from `offset` of the file.

    `member` is set where they are deflated; `offset` is then where the deflated bytes start.
    """

    nbytes: int
    offset: int
    member: Member | None = None


class SavedObject:
    """What a file of torch holds: the object, and its storages on demand.

    Attributes
    ----------
    value
        As `unpickle` gives it.
    big_endian
        The elements of its storages are.
    fault
        What is wrong with the file although the object could be read.
    """

    value: object = None
    big_endian: bool = False
    fault: DumpReadError | None = None

    def find(self, storage: Storage) -> StorageBytes:
        """Find the bytes of a storage.

        Raises
        ------
        DumpReadError
            They are not there.
        """
        raise CorruptDumpError(f"the file has no storage {storage.key!a}")


def torch_dtype(name: str) -> Dtype:
    """Return the type that torch calls so."""
    return dtype_named(_TORCH_DTYPES.get(name, name))


def itemsizes_of(pickled: Pickled) -> dict[str, int]:
    """Return how many bytes an element of each storage has; 1 where it is counted in bytes."""
    sizes: dict[str, int] = {}
    for storage in pickled.storages:
        dtype = storage.dtype
        sizes[storage.key] = 1 if dtype is None else max(1, torch_dtype(dtype).bits // 8)
    return sizes


def unpickle_at(source: DumpSource, start: int) -> tuple[Pickled, int]:
    """Interpret a pickle of unknown length, reading no more of the file than it needs.

    Returns
    -------
    pickled : Pickled
    end : int
        Offset in the file of the first byte behind it.

    Raises
    ------
    DumpReadError
        As `unpickle`, with offsets in the file.
    """
    wanted = _FIRST_BYTES
    while True:
        content = source.read(start, min(wanted, source.size - start))
        try:
            pickled = unpickle(content)
        except TruncatedDumpError as error:
            if start + len(content) >= source.size or wanted >= MAX_PICKLE_BYTES:
                shift_offset(error, start)
                raise
            wanted *= 4
        except DumpReadError as error:
            shift_offset(error, start)
            raise
        else:
            return pickled, start + pickled.end


def shift_offset(error: DumpReadError, start: int) -> None:
    """Make an offset in the pickle one in the file."""
    error.offset = start + (error.offset or 0)
