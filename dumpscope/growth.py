"""Files that something is still writing while they are scanned."""

from __future__ import annotations

import os

from dumpscope.model import DumpFile
from dumpscope.remote.urls import is_url

__all__ = ["RECENT_NS", "is_growing"]

RECENT_NS = 5_000_000_000
"""A damaged file that was written to within this time before it was read may not be complete."""


def is_growing(file: DumpFile, read_ns: int) -> bool:
    """Whether a file that could not be read whole is likely still being written.

    Parameters
    ----------
    file
        As the walk found it.
    read_ns
        When it was read, in nanoseconds since the epoch.
    """
    if is_url(file.path):
        from dumpscope.remote.reading import look_again

        now = look_again(file)
        if now is None:
            return False
        seen = (file.size, file.mtime_ns, file.inode)
        return (now.size, now.mtime_ns, now.tag) != seen or read_ns - now.mtime_ns < RECENT_NS
    try:
        status = os.stat(file.path, follow_symlinks=False)
    except OSError:
        return False
    changed = (status.st_size, status.st_mtime_ns) != (file.size, file.mtime_ns)
    # A clock that was set back makes the future recent: it cannot be older than now.
    return changed or read_ns - status.st_mtime_ns < RECENT_NS
