"""Where a dump file lies, what its name says, and how sure a reader is of it."""

from __future__ import annotations

import struct
from dataclasses import field
from enum import IntEnum
from typing import Literal

from dumpscope.records import record

__all__ = ["FACTS", "DumpFile", "DumpName", "Match", "Place", "Portion", "Role"]

FACTS = struct.Struct("=QqqQ")
"""What a `Portion` keeps of a file: size, mtime_ns, ctime_ns, inode."""

Role = Literal["input", "output"]


class Match(IntEnum):
    """How sure a reader is that a file is its own. The highest match reads the file."""

    NONE = 0
    NAME = 1
    CONTENT = 2


@record(frozen=True, slots=True)
class DumpName:
    """The fields of a dump file's name (naming.py parses it).

    `timestamp` is the number as written (its unit follows from its number of digits).
    A task or stream id of 65535 is unknown and becomes `None`.
    `role`, `slot`, `layout`, `dtype` and `shape` are set for files of one tensor.
    """

    op_type: str
    op_name: str
    task_id: int | None = None
    stream_id: int | None = None
    timestamp: int | None = None
    context_id: int | None = None
    thread_id: int | None = None
    device_id: int | None = None
    role: Role | None = None
    slot: int | None = None
    layout: str | None = None
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    suffix: str = ""


@record(frozen=True, slots=True)
class Place:
    """What the folders around a file say. One object for all files of a folder.

    `source` numbers the PATH argument below which the file lies: equal device numbers below
    different paths are different devices. `run` is the {time} folder (14 digits) or `None`.
    `process` is the pid that a folder names (msprobe's proc{pid}, ATB): without a rank, two
    processes are two devices.
    """

    source: int = 0
    run: str | None = None
    step: int | None = None
    device_id: int | None = None
    global_rank: int | None = None
    host: str | None = None
    model_name: str | None = None
    model_id: int | None = None
    process: int | None = None

    @property
    def device(self) -> int | None:
        """The global rank where the layout names one, else the device id."""
        return self.device_id if self.global_rank is None else self.global_rank


@record(frozen=True, slots=True)
class DumpFile:
    """One regular file that the walk found.

    `path` opens it (surrogateescape for names that are not UTF-8), `relative` is the path below
    the scan's root with `/` between the parts, `name` is the real name out of mapping.csv where
    the name on disk is a hash, else the name on disk.
    """

    path: str
    relative: str
    name: str
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    place: Place = field(default_factory=Place)


@record(frozen=True, slots=True)
class Portion:
    """Files of one folder that were listed one after the other, before each is a `DumpFile`.

    `path` and `relative` are what stands before the name in those of the files. `names` are names
    on disk and the real ones as well. `facts` are the `FACTS` of each file.
    """

    path: str
    relative: str
    place: Place
    names: list[str]
    facts: bytes

    def __len__(self) -> int:
        return len(self.names)

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return sum(memoryview(self.facts).cast("Q")[::4])

    @property
    def inodes(self) -> memoryview:
        """The inode of each file."""
        return memoryview(self.facts).cast("Q")[3::4]

    def having(self, names: list[str], facts: bytes) -> Portion:
        """Other files of the same folder."""
        return Portion(self.path, self.relative, self.place, names, facts)

    def part(self, start: int, end: int | None = None) -> Portion:
        """Some of the files, by number."""
        if start == 0 and end in (None, len(self.names)):
            return self
        last = None if end is None else end * FACTS.size
        facts = self.facts[start * FACTS.size : last]
        return self.having(self.names[start:end], facts)

    def files(self) -> list[DumpFile]:
        """Make an object for each file."""
        path, relative, place = self.path, self.relative, self.place
        return [
            DumpFile(path + name, relative + name, name, size, mtime_ns, ctime_ns, inode, place)
            for name, (size, mtime_ns, ctime_ns, inode) in zip(
                self.names, FACTS.iter_unpack(self.facts), strict=True
            )
        ]
