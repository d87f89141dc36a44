"""What the folders of an ATB dump say about a file in it.

::

    …/{device}_{pid}/{round}/{id}_{Layer}[/{id}_{Operation}…]/{before|after}/intensor0.bin

`before` holds what an operation was given, `after` what it left; the name of the file, not the
folder, says whether a tensor is an input or an output. A file whose bytes were saved elsewhere
names it `{id}_{id}_…_outtensor0.bin`: the ids of the operation, then its file.
"""

from __future__ import annotations

import os
import re
import stat

from dumpscope.model import DumpFile, Role
from dumpscope.records import record
from dumpscope.regexes import regex
from dumpscope.remote.reading import RemoteSource
from dumpscope.source import DumpSource, LocalSource, ReadBuffer

__all__ = ["AtbPath", "open_saved_elsewhere", "order_of_ids", "read_path"]

_OPERATION = regex(r"([0-9]{1,10})_([A-Za-z][^/]*)", re.DOTALL)
_TENSOR = regex(r"(?:.*_)?(in|out)tensor_?([0-9]{1,5})", re.IGNORECASE | re.DOTALL)
_ELSEWHERE = regex(r"((?:[0-9]{1,10}_){1,32})((?:in|out)tensor[0-9]{1,5}\.bin)", re.IGNORECASE)
_SIDES = ("before", "after")

_ID_BITS = 12
_LEVELS = 5


@record(frozen=True, slots=True)
class AtbPath:
    """The operation that a file belongs to.

    `ids` and `names` are those of the layer and every operation inside down to this one, `depth`
    how many folders lie between the file and the {round} folder.
    """

    role: Role
    index: int
    ids: tuple[int, ...]
    names: tuple[str, ...]
    depth: int

    @property
    def op_name(self) -> str:
        """`0_WordEmbedding/0_GatherOperation`: the names alone repeat from layer to layer."""
        return "/".join(f"{at}_{name}" for at, name in zip(self.ids, self.names, strict=True))

    @property
    def parent(self) -> str | None:
        """The operation around this one."""
        return self.op_name.rpartition("/")[0] or None


def read_path(file: DumpFile) -> AtbPath:
    """Read the path of an ATB file, as far as it follows the layout."""
    parts = file.path.split("/")
    stem = parts[-1].rpartition(".")[0] or parts[-1]
    at = len(parts) - 2
    side = parts[at] if at >= 0 and parts[at] in _SIDES else ""
    if side:
        at -= 1
    ids: list[int] = []
    names: list[str] = []
    while at >= 0 and (match := _OPERATION.fullmatch(parts[at])):
        ids.append(int(match[1]))
        names.append(match[2])
        at -= 1
    match = _TENSOR.fullmatch(stem)
    role: Role = "input" if side == "before" else "output"
    index = 0
    if match is not None:
        role = "input" if match[1].lower() == "in" else "output"
        index = int(match[2])
    return AtbPath(role, index, tuple(reversed(ids)), tuple(reversed(names)), len(parts) - 2 - at)


def order_of_ids(ids: tuple[int, ...]) -> int:
    """Return a number that orders operations as they end: what is inside before what contains it.

    Ids count from 0 within the operation around them.
    """
    order = 0
    for level in range(_LEVELS):
        digit = min(ids[level], (1 << _ID_BITS) - 2) if level < len(ids) else (1 << _ID_BITS) - 1
        order = order << _ID_BITS | digit
    return order


def open_saved_elsewhere(source: DumpSource, path: AtbPath, name: str) -> DumpSource | None:
    """Open the file that holds the bytes of a tensor which was not saved twice.

    Only files below the same {round} folder, inside the scanned tree, are opened, and no links
    are followed.

    Returns
    -------
    DumpSource or None
        `None` when there is no such file. The caller closes it.
    """
    match = _ELSEWHERE.fullmatch(name)
    file = source.file
    if match is None or not isinstance(source, (LocalSource, RemoteSource)) or not path.ids:
        return None
    above = file.relative.split("/")[: -path.depth - 1]
    if len(above) == 0 and file.relative.count("/") < path.depth:
        return None  # the {round} folder lies above what was asked to be read
    if not file.path.endswith("/" + file.relative):
        return None
    parts = file.path.split("/")[: -path.depth - 1]
    for digits in match[1].rstrip("_").split("_"):
        folder = _find_operation(source, "/".join(parts), digits)
        if folder is None:
            return None
        parts.append(folder)
    parts += ["before" if match[2].lower().startswith("in") else "after", match[2]]
    added = parts[len(file.path.split("/")) - path.depth - 1 :]
    relative = "/".join([*above, *added])
    if isinstance(source, RemoteSource):
        return _open_remote(source, "/".join(parts), relative)
    return _open("/".join(parts), relative, file)


def _find_operation(source: DumpSource, folder: str, digits: str) -> str | None:
    """Return the name of the subfolder `{digits}_…`."""
    if isinstance(source, RemoteSource):
        names = (entry.name for entry in source.list_near(folder) if entry.kind == "folder")
        return next((name for name in names if name.startswith(f"{digits}_")), None)
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith(f"{digits}_") and entry.is_dir(follow_symlinks=False):
                    return entry.name
    except OSError:
        return None
    return None


def _open_remote(source: RemoteSource, url: str, relative: str) -> RemoteSource | None:
    folder, _, name = url.rpartition("/")
    for entry in source.list_near(folder):
        if entry.name == name and entry.kind == "file":
            return source.open_near(url, relative, entry)
    return None


def _open(path: str, relative: str, near: DumpFile) -> LocalSource | None:
    folder = os.path.dirname(path)
    try:
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode) or not stat.S_ISDIR(os.lstat(folder).st_mode):
            return None
        file = DumpFile(
            path=path,
            relative=relative,
            name=os.path.basename(path),
            size=status.st_size,
            mtime_ns=status.st_mtime_ns,
            ctime_ns=status.st_ctime_ns,
            inode=status.st_ino,
            place=near.place,
        )
        return LocalSource(file, ReadBuffer())
    except OSError:
        return None
