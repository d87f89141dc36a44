"""Opening what the walk found, wherever it lies."""

from __future__ import annotations

from dumpscope.model import DumpFile
from dumpscope.remote.reading import RemoteSource
from dumpscope.remote.urls import is_url
from dumpscope.source import LocalSource, ReadBuffer

__all__ = ["open_source"]


def open_source(file: DumpFile, buffer: ReadBuffer) -> LocalSource | RemoteSource:
    """Open a file of the local file system, or an object behind a URL.

    Raises
    ------
    OSError
        The file vanished or may not be read.
    DumpReadError
        It is no longer a regular file, or its storage does not deliver it.
    """
    if is_url(file.path):
        return RemoteSource(file, buffer)
    return LocalSource(file, buffer)
