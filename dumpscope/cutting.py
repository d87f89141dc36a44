"""Cutting the stream of a walk into batches that are the same ones again in the next scan.

The store knows an unchanged batch by one hash. Batches of a fixed size would all be different
behind a file that came or went, so it is the files themselves that say where one ends: after one in
`USUAL`, chosen by its inode. Behind a change that makes it the same batches again, mostly from the
next one on.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from dumpscope.model import DumpFile, ReadFailure

__all__ = ["LEAST", "MOST", "USUAL", "cut"]

LEAST = 256
"""A batch has so many files, unless it is the last: a hash and a transaction must pay."""

MOST = 2048
"""A batch has no more than this: what is not the same is looked up file by file."""

USUAL = 512
"""Every so many-th file is an end (a power of two), so batches have about `LEAST + USUAL`."""

_MIX = 0x9E3779B97F4A7C15
_SHIFT = 32


def cut(found: Iterator[DumpFile | ReadFailure]) -> Iterator[list[DumpFile | ReadFailure]]:
    """Cut what a walk found into batches; the order stays."""
    while batch := list(islice(found, LEAST)):
        for item in islice(found, MOST - LEAST):
            batch.append(item)
            # Inodes often count up, or are multiples of something, so not their last bits.
            if type(item) is DumpFile and not (item.inode * _MIX >> _SHIFT) & (USUAL - 1):
                break
        yield batch
