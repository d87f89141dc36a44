"""What must be the same for the record of a file to be used again, of one file and of many.

Comparing is comparing hashes: BLAKE2b of 16 bytes over all that tells one version of a file from
another. What is hashed is what `marshal` writes in its version 2, where every value is preceded by
its type and length (so nothing can pass for something else, whatever a file is called) and equal
values give equal bytes. It is written in C, which formatting a text is not.
"""

from __future__ import annotations

import dataclasses
import hashlib
import marshal
from collections.abc import Callable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

from dumpscope.model import DumpFile, Place, Portion
from dumpscope.store.encoding import SqlValue

__all__ = ["AwaitedBatch", "IdentityMaker"]

_MOST_REMEMBERED = 1 << 17

_MARSHAL_VERSION = 2
"""From 3 on it refers to what it has written before, by chance of where objects come from."""

_place_values: Callable[[Place], tuple[Any, ...]] = attrgetter(
    *(field.name for field in dataclasses.fields(Place))
)
_file_values: Callable[[DumpFile], tuple[Any, ...]] = attrgetter(
    "relative", "name", "size", "mtime_ns", "ctime_ns", "inode"
)


class AwaitedBatch:
    """Files that were looked up together and of which some are still to be stored.

    Attributes
    ----------
    digest
        The hash of all of them.
    generation
        `SharedRows.generation` when this was made: while it is the same, no number was lost.
    stored
        Number and identity of those that are in the store.
    """

    __slots__ = ("_count", "digest", "generation", "stored")

    def __init__(
        self, digest: bytes, count: int, stored: list[tuple[int, bytes]], generation: int
    ) -> None:
        self.digest = digest
        self.stored = stored
        self.generation = generation
        self._count = count

    @property
    def is_whole(self) -> bool:
        """Whether all of them are in the store."""
        return len(self.stored) == self._count


class IdentityMaker:
    """Hashes files of one root that are read with one signature.

    A file is looked up, then read, then stored: its hash is computed once.
    """

    def __init__(self, root: SqlValue, signature: str) -> None:
        self.root = root
        self.signature = signature
        self._place: Place | None = None
        self._base = hashlib.blake2b(digest_size=16)
        self._remembered: dict[str, tuple[DumpFile, bytes, AwaitedBatch]] = {}

    def take(self, file: DumpFile) -> tuple[bytes, AwaitedBatch | None]:
        """The identity of a file that is about to be stored, and the batch that waits for it."""
        known = self._remembered.pop(file.relative, None)
        # From another machine comes a copy of it.
        if known is not None and (known[0] is file or known[0] == file):
            return known[1], known[2]
        return self.hash(file), None

    def remember(self, file: DumpFile, identity: bytes, batch: AwaitedBatch) -> None:
        """Keep what was computed, until it is asked for."""
        if len(self._remembered) >= _MOST_REMEMBERED:
            self._remembered.clear()
        self._remembered[file.relative] = (file, identity, batch)

    def hash(self, file: DumpFile) -> bytes:
        """Hash one file."""
        if file.place is not self._place:
            self._place = file.place
            head = (self.root, self.signature, _place_values(file.place))
            self._base = hashlib.blake2b(_bytes(head), digest_size=16)
        hashed = self._base.copy()
        hashed.update(_bytes(_file_values(file)))
        return hashed.digest()

    def hash_batch(self, batch: Sequence[DumpFile | Portion]) -> bytes:
        """Hash several files in their order. In how many portions they came does not show."""
        hashed = hashlib.blake2b(_bytes((self.root, self.signature)), digest_size=16)
        for (relative, place), some in groupby(batch, _folder):
            if relative is None:
                files = [_file_values(item) for item in some if type(item) is DumpFile]
                hashed.update(_bytes((_place_values(place), files)))
                continue
            portions = [item for item in some if type(item) is Portion]
            names = [name for portion in portions for name in portion.names]
            hashed.update(_bytes((relative, _place_values(place), names)))
            hashed.update(b"".join(portion.facts for portion in portions))
        return hashed.digest()


def _folder(item: DumpFile | Portion) -> tuple[str | None, Place]:
    return (item.relative if type(item) is Portion else None), item.place


def _bytes(values: tuple[Any, ...]) -> bytes:
    return marshal.dumps(values, _MARSHAL_VERSION)
