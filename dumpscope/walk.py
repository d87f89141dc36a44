"""From folders to a stream of dump files.

The walk reads one folder at a time in the order in which the system lists it and holds no list
of files, so a million names in one folder cost no memory. It opens nothing but folders and
their mapping.csv, never leaves the paths it was given, and reports what it could not see as
`ReadFailure` in the same stream.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Protocol, Union

from dumpscope.folders import WALK, failure_of, list_entries, load_mapping
from dumpscope.mapping_table import MAPPING
from dumpscope.model import DumpFile, Portion, ReadFailure
from dumpscope.naming import parse_name, real_name
from dumpscope.places import place_of
from dumpscope.remote.urls import is_url
from dumpscope.roots import Root, is_inside, join, name_roots, resolve_roots

__all__ = [
    "MAX_DEPTH",
    "STORE_FOLDER",
    "WALK",
    "Found",
    "Walk",
    "Walker",
    "place_of",
    "resolve_roots",
    "too_deep",
    "walk",
]

MAX_DEPTH = 64
"""How many levels of folders below a root are read."""

STORE_FOLDER = ".dumpscope"
_NO_COMPANIONS: Mapping[str, str] = MappingProxyType({})
_DUMP_FILES = frozenset({"dump.json", "debug.json", "statistic.csv"})
_DUMP_SUFFIXES = (".npy", ".npz", ".pt", ".pth", ".safetensors")
_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NONBLOCK

Found = Union[DumpFile, ReadFailure]


def too_deep(relative: str) -> ReadFailure:
    """The failure of a folder that is too deep below its root to be read."""
    return ReadFailure(
        relative,
        WALK,
        "DumpReadError",
        None,
        f"expected at most {MAX_DEPTH} levels of folders, found more: "
        "name this folder as a path of its own",
    )


class Walk(Protocol):
    """What a scan needs of a walk: see `Walker`. `remote` says that files take a request each."""

    remote: bool
    root: str
    files: int
    bytes: int
    folders: int
    finished: bool
    skipped: Counter[str]

    def __iter__(self) -> Iterator[Found]: ...

    def __next__(self) -> Found: ...

    def portions(self) -> Iterator[Found | Portion]: ...

    @property
    def skipped_links(self) -> int: ...

    def close(self) -> None: ...


class _Folder:
    """A folder on the way down: its open descriptor and the subfolders still to be read."""

    __slots__ = ("descriptor", "identity", "path", "real", "relative", "subfolders")

    def __init__(self, descriptor: int, path: str, real: str, relative: str) -> None:
        status = os.fstat(descriptor)
        self.descriptor = descriptor
        self.identity = (status.st_dev, status.st_ino)
        self.path = path
        self.real = real
        self.relative = relative
        self.subfolders: list[str] = []


def walk(
    roots: Sequence[str | os.PathLike[str]], *, companions: Mapping[str, str] = _NO_COMPANIONS
) -> Walk:
    """Walk paths and yield what lies there.

    Parameters
    ----------
    roots
        Folders and files, as the user named them: paths, or URLs of one storage.
    companions
        File name -> folder beside it whose files belong to that file
        (`{"dump.json": "dump_tensor_data"}`): where the file is, the folder is not offered.

    Returns
    -------
    Walk
        An iterable of `DumpFile` and `ReadFailure` with running totals.

    Raises
    ------
    OptionsError
        A path leads nowhere.
    """
    if any(is_url(os.fsdecode(root)) for root in roots):
        from dumpscope.remote.walking import RemoteWalker

        return RemoteWalker([os.fsdecode(root) for root in roots], companions=companions)
    return Walker(roots, companions=companions)


class Walker:
    """The iterator that `walk` returns. It is walked once.

    Attributes
    ----------
    root
        The folder to which `DumpFile.relative` is relative.
    files, bytes, folders
        How many files were yielded so far, their size in bytes, and how many folders were read.
    finished
        Whether everything was walked: the totals are final then.
    skipped
        What was passed over, by kind: `link_inside` (its target is walked anyway),
        `link_outside`, `link_circle`, `link_dangling`, `fifo`, `socket`, `device`, `loop` (a
        folder mounted inside itself), `other`.
    """

    def __init__(
        self,
        roots: Sequence[str | os.PathLike[str]],
        *,
        companions: Mapping[str, str] = _NO_COMPANIONS,
    ) -> None:
        self.root, paths = resolve_roots(roots)
        self.remote = False
        self.skipped: Counter[str] = Counter()
        self.files = 0
        self.bytes = 0
        self.folders = 0
        self.finished = False
        self._companions = companions
        self._roots = name_roots(self.root, paths)
        self._real_folders = [root.real for root in self._roots if root.is_folder]
        self._stream = self._walk_roots()
        self._files = self._single_files()

    def __iter__(self) -> Iterator[Found]:
        return self._files

    def __next__(self) -> Found:
        return next(self._files)

    def portions(self) -> Iterator[Found | Portion]:
        """Yield what iterating yields, but files that need no object for each as a `Portion`."""
        for found in self._stream:
            if type(found) is Portion:
                self.files += len(found)
                self.bytes += found.size
            elif type(found) is DumpFile:
                self.files += 1
                self.bytes += found.size
            yield found

    def _single_files(self) -> Generator[Found, None, None]:
        for found in self._stream:
            if isinstance(found, ReadFailure):
                yield found
                continue
            for file in found.files() if isinstance(found, Portion) else (found,):
                self.files += 1
                self.bytes += file.size
                yield file

    def close(self) -> None:
        """Stop walking and close the folders that are open."""
        self._files.close()
        self._stream.close()

    @property
    def skipped_links(self) -> int:
        """How many links were passed over."""
        return sum(n for kind, n in self.skipped.items() if kind.startswith("link_"))

    def _walk_roots(self) -> Generator[Found | Portion, None, None]:
        for root in self._roots:
            if root.is_folder:
                yield from self._walk_tree(root)
            else:
                yield from self._offer_file(root)
        self.finished = True

    def _offer_file(self, root: Root) -> Iterator[Found]:
        """Yield a single file that the user named, be it behind a link."""
        folder, name = os.path.split(root.real)
        try:
            status = os.stat(root.real, follow_symlinks=False)
        except OSError as error:
            yield failure_of(root.relative, "its status cannot be read", error)
            return
        if not stat.S_ISREG(status.st_mode):
            self.skipped[_kind_of(status.st_mode)] += 1
            return
        try:
            descriptor = os.open(folder, _OPEN_FOLDER)
        except OSError:
            mapping: dict[str, str] = {}  # a folder that may be passed through, not listed
        else:
            try:
                mapping, failure = load_mapping(descriptor, os.path.dirname(root.relative))
            finally:
                os.close(descriptor)
            if failure is not None:
                yield failure
        yield DumpFile(
            path=root.real,
            relative=root.relative,
            name=real_name(name, mapping),
            size=status.st_size,
            mtime_ns=status.st_mtime_ns,
            ctime_ns=status.st_ctime_ns,
            inode=status.st_ino,
            place=place_of(folder, root.source),
        )

    def _walk_tree(self, root: Root) -> Iterator[Found | Portion]:
        """Yield the files of one folder and of all below it, depth first."""
        try:
            top = _Folder(os.open(root.real, _OPEN_FOLDER), root.path, root.real, root.relative)
        except OSError as error:
            yield failure_of(root.relative or ".", "the folder cannot be opened", error)
            return
        stack = [top]
        try:
            yield from self._list_folder(top, root)
            while stack:
                parent = stack[-1]
                if not parent.subfolders:
                    os.close(stack.pop().descriptor)
                    continue
                name = parent.subfolders.pop()
                relative = join(parent.relative, name)
                if len(stack) > MAX_DEPTH:
                    yield too_deep(relative)
                    continue
                try:
                    descriptor = os.open(
                        name, _OPEN_FOLDER | os.O_NOFOLLOW, dir_fd=parent.descriptor
                    )
                except OSError as error:
                    yield failure_of(relative, "the folder cannot be opened", error)
                    continue
                folder = _Folder(
                    descriptor, join(parent.path, name), join(parent.real, name), relative
                )
                if any(folder.identity == above.identity for above in stack):
                    os.close(descriptor)
                    self.skipped["loop"] += 1
                    continue
                stack.append(folder)
                yield from self._list_folder(folder, root)
        finally:
            for folder in stack:
                os.close(folder.descriptor)

    def _list_folder(self, folder: _Folder, root: Root) -> Iterator[Found | Portion]:
        """Yield the files of one folder and note its subfolders."""
        self.folders += 1
        place = place_of(folder.real, root.source, root.real)
        mapping, failure = load_mapping(folder.descriptor, folder.relative)
        if failure is not None:
            yield failure
        portion = Portion(
            join(folder.path, ""),
            f"{folder.relative}/" if folder.relative else "",
            place,
            [],
            b"",
        )
        companions = self._companions
        belonging: set[str] = set()
        subfolders = folder.subfolders
        try:
            for names, folders, others, facts in list_entries(folder.descriptor):
                subfolders += folders
                belonging.update(companions[name] for name in companions if name in names)
                if mapping or MAPPING in names:
                    for file in portion.having(names, facts).files():
                        if file.name != MAPPING:
                            yield replace(file, name=real_name(file.name, mapping))
                elif names:
                    yield portion.having(names, facts)
                for name in others:
                    found = self._look_again(folder, portion, name, mapping)
                    if found is not None:
                        yield found
        except OSError as error:
            yield failure_of(folder.relative or ".", "the folder cannot be listed", error)
        passed_over = {STORE_FOLDER, *belonging}
        if not passed_over.isdisjoint(subfolders):
            subfolders[:] = [name for name in subfolders if name not in passed_over]
        subfolders.sort(reverse=True)  # they are taken from the end

    def _look_again(
        self, folder: _Folder, portion: Portion, name: str, mapping: dict[str, str]
    ) -> Found | None:
        """Say what an entry is that did not look like a file or a folder."""
        try:
            status = os.stat(name, dir_fd=folder.descriptor, follow_symlinks=False)
        except OSError as error:
            return failure_of(portion.relative + name, "its status cannot be read", error)
        if stat.S_ISDIR(status.st_mode):
            folder.subfolders.append(name)
            return None
        if not stat.S_ISREG(status.st_mode):
            return self._pass_over(folder, name, status.st_mode, mapping)
        if name == MAPPING:
            return None
        return DumpFile(
            portion.path + name,
            portion.relative + name,
            real_name(name, mapping),
            status.st_size,
            status.st_mtime_ns,
            status.st_ctime_ns,
            status.st_ino,
            portion.place,
        )

    def _pass_over(
        self, folder: _Folder, name: str, mode: int, mapping: dict[str, str]
    ) -> ReadFailure | None:
        """Count what is neither a file nor a folder; a dangling link can be a lost dump."""
        if not stat.S_ISLNK(mode):
            self.skipped[_kind_of(mode)] += 1
            return None
        try:
            os.stat(name, dir_fd=folder.descriptor)
        except OSError as error:
            if error.errno == errno.ELOOP:
                self.skipped["link_circle"] += 1
                return None
            if not _is_dump_name(real_name(name, mapping)):
                self.skipped["link_dangling"] += 1
                return None
            return failure_of(
                join(folder.relative, name),
                "the link leads to a file that cannot be reached",
                error,
            )
        target = os.path.realpath(join(folder.real, name))
        if is_inside(folder.real, target):
            self.skipped["link_circle"] += 1
        elif any(is_inside(target, real) for real in self._real_folders):
            self.skipped["link_inside"] += 1
        else:
            self.skipped["link_outside"] += 1
        return None


def _is_dump_name(name: str) -> bool:
    """Say whether a name alone lets one expect a dump behind it."""
    return name in _DUMP_FILES or name.endswith(_DUMP_SUFFIXES) or parse_name(name) is not None


def _kind_of(mode: int) -> str:
    if stat.S_ISFIFO(mode):
        return "fifo"
    if stat.S_ISSOCK(mode):
        return "socket"
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        return "device"
    return "other"
