"""The exception tree of dumpscope.

A damaged file is not an exception for the caller of a scan: the scan turns every
`DumpReadError` into a `ReadFailure` and goes on. Everything else here ends a command with
exit status 2 and one sentence.
"""

from __future__ import annotations

__all__ = [
    "ClusterError",
    "ConfigError",
    "CorruptDumpError",
    "DumpReadError",
    "DumpscopeError",
    "LostProcessesError",
    "OptionsError",
    "PluginError",
    "ReportError",
    "StorageReadError",
    "StoreError",
    "TruncatedDumpError",
    "UnknownFormatError",
    "UnsupportedDtypeError",
]


class DumpscopeError(Exception):
    """Base of all errors that dumpscope raises on purpose."""


class OptionsError(DumpscopeError):
    """The call itself is wrong: a path that does not exist, options that exclude each other."""


class ConfigError(DumpscopeError):
    """An acl.json, rules file, rank map or baseline that cannot be read."""


class PluginError(DumpscopeError):
    """A reader, check or reporter plugin that cannot be used."""


class StoreError(DumpscopeError):
    """The result store cannot be opened, read or written."""


class ClusterError(DumpscopeError):
    """The cluster that was to do the work cannot be reached, differs, or is lost."""


class LostProcessesError(DumpscopeError):
    """Too many processes ended over the files that they read."""


class ReportError(DumpscopeError):
    """A report cannot be written."""


class DumpReadError(DumpscopeError):
    """A dump file that cannot be read as its format asks.

    Parameters
    ----------
    message
        What is wrong, with expected and found values and, where there is one, what to do next.
    path
        The file, as the walk named it.
    reader
        Name of the reader that found the fault.
    offset
        Byte offset in the file at which it was found, `None` when there is no such place.
    """

    def __init__(
        self, message: str, *, path: str = "", reader: str = "", offset: int | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.path = path
        self.reader = reader
        self.offset = offset

    def __str__(self) -> str:
        where = self.path or "<unnamed>"
        if self.offset is not None:
            where += f" at 0x{self.offset:x}"
        return f"{where}: {self.message}"

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, self.path, self.reader, self.offset))


class TruncatedDumpError(DumpReadError):
    """The file ends before the bytes that its own header announces."""


class CorruptDumpError(DumpReadError):
    """The bytes contradict the format."""


class UnknownFormatError(DumpReadError):
    """No reader knows this file, although something was expected of it."""


class StorageReadError(DumpReadError):
    """A storage behind a URL did not deliver what was asked of it. The file may be whole."""


class UnsupportedDtypeError(DumpReadError):
    """The data type is known or named, but its values cannot be decoded."""


def _rebuild(
    kind: type[DumpReadError], message: str, path: str, reader: str, offset: int | None
) -> DumpReadError:
    return kind(message, path=path, reader=reader, offset=offset)
