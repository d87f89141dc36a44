"""What the walk takes out of an open folder: its mapping.csv, and its entries with their facts.

Entries come some hundred at a time: an object for each file is made only where it is needed.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterator

from dumpscope import kernel
from dumpscope.mapping_table import MAPPING, MAX_MAPPING_BYTES, bounded_lines
from dumpscope.model import FACTS, ReadFailure
from dumpscope.naming import read_mapping
from dumpscope.roots import explain, join

__all__ = ["WALK", "Entries", "failure_of", "list_entries", "load_mapping"]

WALK = "walk"
"""What stands for the reader's name in failures of the walk."""

Entries = tuple[list[str], list[str], list[str], bytes]
"""Names of regular files, of folders, and of all else, and the facts of the files (`Portion`).

What cannot be looked at, or is too large or too old for its facts, is among all else.
"""

_AT_ONCE = 400
"""About so many entries has a block of the kernel."""


def list_entries(descriptor: int) -> Iterator[Entries]:
    """Yield the entries of a folder that was just opened, in the order of the system.

    Raises
    ------
    OSError
        The folder cannot be read to its end. What was read was yielded before.
    """
    if kernel.list_folder is None:
        yield from _list_with_scandir(descriptor)
        return
    while (entries := kernel.list_folder(descriptor)) is not None:
        yield entries


def _list_with_scandir(descriptor: int) -> Iterator[Entries]:
    """Do what the kernel does."""
    names: list[str] = []
    folders: list[str] = []
    others: list[str] = []
    facts: list[bytes] = []
    with os.scandir(descriptor) as listed:
        entries = iter(listed)
        while True:
            try:
                entry = next(entries, None)
            except OSError:
                yield names, folders, others, b"".join(facts)
                raise
            if entry is not None:
                fact = b""
                try:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.name)
                        continue
                    fact = _facts_of(entry.stat(follow_symlinks=False))
                except (OSError, struct.error):
                    pass
                if fact:
                    names.append(entry.name)
                    facts.append(fact)
                else:
                    others.append(entry.name)
                if len(names) + len(others) < _AT_ONCE:
                    continue
            yield names, folders, others, b"".join(facts)
            if entry is None:
                return
            names, folders, others, facts = [], [], [], []


def _facts_of(status: os.stat_result) -> bytes:
    """Pack what tells versions of a file apart; nothing where it is no regular file."""
    if not stat.S_ISREG(status.st_mode):
        return b""
    return FACTS.pack(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


def load_mapping(descriptor: int, relative: str) -> tuple[dict[str, str], ReadFailure | None]:
    """Read the mapping.csv of an open folder, if it has one that is a regular file."""
    try:
        status = os.stat(MAPPING, dir_fd=descriptor, follow_symlinks=False)
    except FileNotFoundError:
        return {}, None
    except OSError as error:
        return {}, failure_of(join(relative, MAPPING), "its status cannot be read", error)
    if not stat.S_ISREG(status.st_mode):
        return {}, None
    name = join(relative, MAPPING)
    try:
        file = os.open(
            MAPPING, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=descriptor
        )
        with os.fdopen(file, encoding="utf-8", errors="surrogateescape", newline="\n") as lines:
            mapping = read_mapping(bounded_lines(lines, MAX_MAPPING_BYTES))
    except OSError as error:
        return {}, failure_of(name, "hashed names stay as they are, it cannot be read", error)
    if status.st_size > MAX_MAPPING_BYTES:
        return mapping, ReadFailure(
            name,
            WALK,
            "DumpReadError",
            MAX_MAPPING_BYTES,
            f"expected at most {MAX_MAPPING_BYTES} bytes, found {status.st_size}: "
            "the real names after them are not known",
        )
    return mapping, None


def failure_of(relative: str, what: str, error: OSError) -> ReadFailure:
    """Make a failure of what the system refused: what could not be done, and why."""
    return ReadFailure(relative, WALK, type(error).__name__, None, f"{what}: {explain(error)}")
