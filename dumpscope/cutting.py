"""Cutting the stream of a walk into batches that are the same ones again in the next scan.

The store knows an unchanged batch by one hash. Batches of a fixed size would all be different
behind a file that came or went, so it is the files themselves that say where one ends: after one in
`USUAL`, chosen by its inode. Behind a change that makes it the same batches again, mostly from the
next one on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Union

from dumpscope.model import DumpFile, Portion, ReadFailure

__all__ = ["LEAST", "MOST", "USUAL", "Batch", "cut"]

LEAST = 256
"""A batch has so many files, unless it is the last: a hash and a transaction must pay."""

MOST = 1024
"""A batch has no more than this: what is not the same is looked up file by file."""

USUAL = 256
"""Every so many-th file is an end (a power of two), so batches have about `LEAST + USUAL`."""

_MIX = 0x9E3779B97F4A7C15
_SHIFT = 32

Batch = list[Union[DumpFile, Portion, ReadFailure]]


def cut(found: Iterable[DumpFile | Portion | ReadFailure]) -> Iterator[Batch]:
    """Cut what a walk found into batches; the order stays."""
    batch: Batch = []
    count = 0
    for item in found:
        if type(item) is Portion:
            start = 0
            while (end := _find_end(item.inodes, start, count)) is not None:
                batch.append(item.part(start, end))
                yield batch
                batch, count, start = [], 0, end
            if start < len(item):
                batch.append(item.part(start))
                count += len(item) - start
        else:
            batch.append(item)
            count += 1
            if count == MOST or (type(item) is DumpFile and count > LEAST and _is_end(item.inode)):
                yield batch
                batch, count = [], 0
    if batch:
        yield batch


def _is_end(inode: int) -> bool:
    # Inodes often count up, or are multiples of something, so not their last bits.
    return not (inode * _MIX >> _SHIFT) & (USUAL - 1)


def _find_end(inodes: memoryview, start: int, count: int) -> int | None:
    """Find where a batch that has `count` files ends among those from `start` on."""
    most = start + MOST - count
    first = start + max(LEAST - count, 0)
    mask = USUAL - 1
    for number, inode in enumerate(inodes[first:most], first):
        if not (inode * _MIX >> _SHIFT) & mask:
            return number + 1
    return most if most <= len(inodes) else None
