"""The paths that a scan is asked for: found, made absolute, freed of repetitions, numbered."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from dumpscope.errors import OptionsError
from dumpscope.remote.urls import (
    common_url,
    is_url,
    local_path,
    normalize_url,
    relative_url,
    without_password,
)

__all__ = [
    "Root",
    "absolute",
    "common_root",
    "explain",
    "is_inside",
    "join",
    "name_roots",
    "relative_to",
    "resolve_roots",
]


class Root(NamedTuple):
    """One path to walk: where it is, what it is called below the common root, whose it is."""

    path: str
    real: str
    relative: str
    source: int
    is_folder: bool


def resolve_roots(paths: Sequence[str | os.PathLike[str]]) -> tuple[str, list[str]]:
    """Make the paths of a command line absolute and free of repetitions.

    Returns
    -------
    root : str
        The folder to which names are relative: the path itself when it is a folder, its folder
        when it is a file, and for several paths the deepest folder that holds them all.
    paths : list of str
        In the given order, without those that are or lie inside another one.

    Raises
    ------
    OptionsError
        There is no path, or one leads nowhere.
    """
    if not paths:
        raise OptionsError("no path to scan: name a dump folder, a dump file or an acl.json")
    if any(is_url(os.fsdecode(path)) for path in paths):
        return _resolve_urls([os.fsdecode(path) for path in paths])
    kept: list[tuple[str, str]] = []
    for given in paths:
        path, real = _locate(os.fspath(given))
        if any(is_inside(real, other) for _, other in kept):
            continue
        kept = [(p, r) for p, r in kept if not is_inside(r, real)]
        kept.append((path, real))
    absolute = [path for path, _ in kept]
    root = os.path.commonpath(absolute)
    if not os.path.isdir(root):
        root = os.path.dirname(root)
    return root, absolute


def _resolve_urls(paths: Sequence[str]) -> tuple[str, list[str]]:
    """Free URLs of repetitions; whether something is there is seen when it is listed."""
    strange = next((path for path in paths if not is_url(path)), None)
    if strange is not None:
        raise OptionsError(
            f"{strange!r} is a local path, and cannot be scanned together with a URL: scan each, "
            "then put the scans together with `dumpscope scans import`"
        )
    kept: list[str] = []
    for path in (without_password(normalize_url(path)) for path in paths):
        if any(relative_url(path, other) is not None for other in kept):
            continue
        kept = [other for other in kept if relative_url(other, path) is None]
        kept.append(path)
    return common_url(kept), kept


def absolute(path: str | os.PathLike[str]) -> str:
    """Return a path as a scan keeps it: absolute, or a URL without its password."""
    text = local_path(os.fsdecode(path))
    return without_password(normalize_url(text)) if is_url(text) else os.path.abspath(text)


def common_root(roots: Sequence[str]) -> str:
    """Return the deepest folder that holds several absolute paths.

    Raises `OptionsError` where there is none.
    """
    if all(map(is_url, roots)):
        return common_url(roots)
    try:
        if not any(map(is_url, roots)):
            return os.path.commonpath(roots)
    except ValueError:
        pass
    raise OptionsError(
        f"the roots of the scans have nothing in common: {', '.join(map(repr, roots))}"
    )


def relative_to(path: str, root: str) -> str:
    """Return the path from a root to what lies below it, "" for itself."""
    if is_url(root) or is_url(path):
        relative = relative_url(path, root)
        return path if relative is None else relative
    return os.path.relpath(path, root) if path != root else ""


def _locate(given: str | bytes) -> tuple[str, str]:
    """Return a path made absolute as the user wrote it, and with its links resolved."""
    name = local_path(os.fsdecode(given))
    if not name or "\0" in name:
        raise OptionsError(f"{name!r} is no path")
    try:
        os.stat(name)
        real = os.path.realpath(name, strict=True)
    except OSError as error:
        raise OptionsError(f"{name!r} cannot be scanned: {explain(error)}") from error
    path = os.path.abspath(name)
    # abspath takes "link/.." away, which may lead elsewhere than the link's parent.
    return (path if os.path.realpath(path) == real else real), real


def name_roots(root: str, paths: Sequence[str]) -> list[Root]:
    """Number the resolved paths; files of one folder that are named one by one share a number."""
    named: list[Root] = []
    source_of_folder: dict[str, int] = {}
    for index, path in enumerate(paths):
        real = os.path.realpath(path)
        is_folder = os.path.isdir(real)
        source = index if is_folder else source_of_folder.setdefault(os.path.dirname(real), index)
        relative = os.path.relpath(path, root)
        named.append(Root(path, real, "" if relative == "." else relative, source, is_folder))
    return named


def is_inside(path: str, folder: str) -> bool:
    """Say whether a resolved path is a resolved folder or lies below it."""
    return path == folder or path.startswith(join(folder, ""))


def join(folder: str, name: str) -> str:
    """Put a name behind a folder, which may be the root of the file system or empty."""
    return f"{folder}{name}" if not folder or folder.endswith("/") else f"{folder}/{name}"


def explain(error: OSError) -> str:
    """Say what the system said, without the path, which stands beside it."""
    return error.strerror or type(error).__name__
