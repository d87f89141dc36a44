"""What exported arrays are called, and where they lie: never outside the folder asked for.

The names are those of converted dumps, so that what was exported can be scanned again::

    {op_type}.{op_name}.{task}.{stream}.{time}.{role}.{i}.{shape}.{layout}.{dtype}.npy
    {op_name}.{role}.{i}.{shape}.{layout}.{dtype}.npy                      without ids and time

A shape is `2x4`, of a scalar `_`. What a file name should not hold becomes an underscore. A name
of more than 255 bytes becomes 32 hex digits, and mapping.csv beside it has the real one.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from hashlib import blake2b

from dumpscope.errors import ReportError
from dumpscope.readers.protocol import Execution
from dumpscope.regexes import regex
from dumpscope.safetext import make_printable

__all__ = ["FileNamer", "clean_part", "name_array", "name_execution", "open_subfolder"]

_LONGEST_NAME_BYTES = 255
_LONGEST_REAL_NAME = 2048
_UNWANTED = regex(r'[\s/\\<>:"|?*\x00-\x1f]')
_DOTTED = regex(r"\.")
_MAPPING = "mapping.csv"
_UNKNOWN_ID = 65535


def clean_part(text: str, *, dots: bool = True) -> str:
    """Make a text fit to be part of a file name: printable, no separators, not hidden."""
    text = _UNWANTED.sub("_", text)
    if not text.isprintable():
        text = "".join(c if c.isprintable() else "_" for c in text)
    if not dots:
        text = _DOTTED.sub("_", text)
    if len(text) > _LONGEST_REAL_NAME:
        half = _LONGEST_REAL_NAME // 2
        text = f"{text[:half]}~{text[-half:]}"
    return f"_{text}" if text[:1] in ("", ".", "-", "~") else text


def name_execution(execution: Execution) -> str:
    """Name an execution as a dump file would be named."""
    op_type, op_name = execution.op_type, execution.op_name
    if execution.timestamp is None:
        alone = not op_type or op_name.startswith(op_type)
        return clean_part(op_name if alone else f"{op_type}.{op_name}")
    ids = [
        _UNKNOWN_ID if number is None else number
        for number in (execution.task_id, execution.stream_id)
    ]
    parts = [clean_part(op_type or op_name, dots=False), clean_part(op_name, dots=False)]
    parts += [str(number) for number in (*ids, execution.timestamp)]
    if execution.context_id is not None:
        parts += ["4", str(execution.context_id), str(execution.thread_id or 0), "0"]
    return ".".join(parts)


def name_array(role: str, index: int, shape: Sequence[int], layout: str, dtype: str) -> str:
    """Name one array of an execution: `output.0.2x4.ND.float16`."""
    dims = "x".join(map(str, shape)) or "_"
    return ".".join((role, str(index), dims, clean_part(layout, dots=False), clean_part(dtype)))


class FileNamer:
    """Gives every array a file of its own, whatever the names say.

    Parameters
    ----------
    root
        The folder that nothing is written outside of.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self._given: set[bytes] = set()

    def place(self, folder: str, stem: str, tail: str, suffix: str) -> str:
        """Return the path for an array; the folder is there afterwards.

        Parameters
        ----------
        folder
            Below the root, "" for the root itself.
        stem, tail
            `{stem}[~N][.{tail}].{suffix}` is its name; N tells those apart that are alike.

        Raises
        ------
        ReportError
            The folder cannot be made, or one on the way is a link.
        """
        path = open_subfolder(self.root, folder)
        number = 1
        while True:
            again = f"~{number}" if number > 1 else ""
            name = ".".join(part for part in (stem + again, tail, suffix) if part)
            key = blake2b(os.fsencode(f"{folder}/{name.casefold()}"), digest_size=12).digest()
            if key not in self._given:
                break
            number += 1
        self._given.add(key)
        # A sidecar has the same name with the suffix json.
        if len(os.fsencode(name)) - len(suffix) + len("json") <= _LONGEST_NAME_BYTES:
            return os.path.join(path, name)
        short = f"{blake2b(os.fsencode(name), digest_size=16).hexdigest()}.{suffix}"
        _add_mapping(path, short, name)
        return os.path.join(path, short)


def open_subfolder(root: str, folder: str) -> str:
    """Make a folder below `root` and return its path.

    Raises `ReportError` when it cannot be made, or one on the way is a link.
    """
    path = root
    try:
        os.makedirs(root, exist_ok=True)
        for part in folder.split("/"):
            if part in ("", "."):
                continue
            path = os.path.join(path, clean_part(part))
            with suppress(FileExistsError):
                os.mkdir(path)
            if not stat.S_ISDIR(os.lstat(path).st_mode):
                raise ReportError(
                    f"{make_printable(path)}: is no folder but a file or a link; remove it or "
                    "choose another --output"
                )
    except OSError as error:
        raise ReportError(
            f"{make_printable(path)}: the folder cannot be made: {error.strerror}"
        ) from error
    return path


def _add_mapping(folder: str, short: str, name: str) -> None:
    path = os.path.join(folder, _MAPPING)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(path, flags, 0o666), "ab") as mapping:
            mapping.write(os.fsencode(f"{short},{name}\n"))
    except OSError as error:
        raise ReportError(f"{make_printable(path)}: cannot be written: {error.strerror}") from error
