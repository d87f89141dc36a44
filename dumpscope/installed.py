"""Which plugins are installed: the entry points of a group.

importlib.metadata knows. Importing it takes a tenth of the time in which a scan starts, and most
environments hold no plugin but those of dumpscope itself, which a look at the installed packages'
`entry_points.txt` shows. So it is asked only where anything else may be there: another package that
names one of our groups, dumpscope installed twice or in an older way, an archive or an egg on
`sys.path`, or somebody's own finder of packages.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from importlib import import_module
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING, Any, NamedTuple, Union

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["OwnPoint", "Point", "find_points"]

_OWN_FOLDER = "dumpscope-"
_FOLDER_SUFFIX = ".dist-info"
_FILE = "entry_points.txt"
_GROUPS_BEGIN = b"[dumpscope."


class OwnPoint(NamedTuple):
    """An entry point of dumpscope itself. `value` is `module:attribute`."""

    name: str
    value: str
    group: str
    version: str

    def load(self) -> Any:
        """Import what it names."""
        module, _, attribute = self.value.partition(":")
        return getattr(import_module(module), attribute)


Point = Union["EntryPoint", OwnPoint]


def find_points(group: str) -> Iterable[Point]:
    """Find all entry points of a group."""
    found = _find_only_own()
    if found is None:
        from importlib.metadata import entry_points

        return entry_points(group=group)
    folder, text = found
    version = os.path.basename(folder)[len(_OWN_FOLDER) : -len(_FOLDER_SUFFIX)]
    return list(_parse(text, group, version))


def _find_only_own() -> tuple[str, str] | None:
    """Find the folder of dumpscope's metadata and its entry points, if these are the only ones."""
    if any(hasattr(f, "find_distributions") and f is not PathFinder for f in sys.meta_path):
        return None
    own: tuple[str, str] | None = None
    for place in dict.fromkeys(sys.path):
        if place.lower().endswith(".egg"):
            return None
        try:
            names = os.listdir(place or ".")
        except FileNotFoundError:
            continue
        except OSError:
            return None
        for name in names:
            if not name.lower().endswith((_FOLDER_SUFFIX, ".egg-info")):
                continue
            folder = os.path.join(place, name)
            content = _read(os.path.join(folder, _FILE))
            if _GROUPS_BEGIN not in content:
                continue
            if own is not None or not _is_own(name):
                return None
            own = folder, content.decode("utf-8", "replace")
    return own


def _is_own(name: str) -> bool:
    return name.startswith(_OWN_FOLDER) and name.endswith(_FOLDER_SUFFIX)


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:  # most packages have no entry points
        return b""


def _parse(text: str, group: str, version: str) -> Iterator[OwnPoint]:
    """Yield the points of a group, as the installer wrote them: `name = module:attribute`."""
    section = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            section = line[1:].partition("]")[0]
        elif section == group and "=" in line:
            name, _, value = line.partition("=")
            yield OwnPoint(name.strip(), value.strip(), group, version)
