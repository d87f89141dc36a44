"""Readers, checks and reporters are plugins; the built-in ones are found like anyone else's.

A plugin is an entry point of one of the groups below: a name, and a factory without parameters.
What is installed twice, cannot be imported, or is not what its group asks for is set aside with
its reason, and everything else works on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from dumpscope.errors import OptionsError, PluginError
from dumpscope.installed import OwnPoint, Point, find_points
from dumpscope.model import DumpFile, Match
from dumpscope.records import record

if TYPE_CHECKING:
    from importlib.metadata import Distribution

    from dumpscope.readers.protocol import Reader

__all__ = [
    "GROUPS",
    "BrokenPlugin",
    "Plugin",
    "ReaderRegistry",
    "check_reader",
    "load_plugins",
    "load_readers",
]

GROUPS = ("dumpscope.readers", "dumpscope.checks", "dumpscope.reporters")
_OWN = "dumpscope"


@record(frozen=True, slots=True)
class Plugin:
    """One plugin that works: its name, what its factory made, and where it comes from."""

    name: str
    value: Any
    package: str
    version: str
    target: str


@record(frozen=True, slots=True)
class BrokenPlugin:
    """One plugin that cannot be used, and why."""

    name: str
    package: str
    target: str
    error: PluginError

    @property
    def reason(self) -> str:
        return str(self.error)


@record(frozen=False, slots=True)
class ReaderRegistry:
    """All readers that can be used, in a fixed order, and what is broken.

    `plugins` says where each of `readers` comes from.
    """

    readers: Sequence[Reader]
    broken: Sequence[BrokenPlugin] = ()
    plugins: Sequence[Plugin] = ()
    _last: Reader | None = field(default=None, init=False, repr=False)

    def choose(self, head: bytes, file: DumpFile, override: str | None = None) -> Reader | None:
        """Find the reader for a file.

        The highest `Match` wins, and the earlier reader among equals. The built-in reader of the
        previous file is asked first, and it alone when it knows the content: a folder's files
        are mostly of one kind, and that no two of them know the same content is tested.

        Parameters
        ----------
        head
            The file's first bytes.
        override
            Name of the reader to use whatever the file says.

        Returns
        -------
        Reader or None
            `None` when no reader knows the file.

        Raises
        ------
        OptionsError
            There is no reader of the name `override`.
        PluginError
            A reader failed where it should only look.
        """
        if override is not None:
            return self.named(override)
        last = self._last
        if last is not None and last.sniff(head, file) is Match.CONTENT:
            return last
        best: Reader | None = None
        best_match = 0
        for reader in self.readers:
            try:
                match = int(reader.sniff(head, file))
            except Exception as error:
                raise PluginError(
                    f"the reader {reader.name!r} failed to look at {file.relative}: "
                    f"{type(error).__name__}: {error}: uninstall it, or report it to its authors"
                ) from error
            if match > best_match:
                best, best_match = reader, match
                if match >= Match.CONTENT:
                    self._remember(reader)
                    break
        return best

    def _remember(self, reader: Reader) -> None:
        # Only built-in readers are asked first: they come first anyway, so that a plugin which
        # claims their content never makes the answer depend on the file before.
        own = any(p.value is reader and p.package == _OWN for p in self.plugins)
        self._last = reader if own else None

    def named(self, name: str) -> Reader:
        """Return the reader of this name.

        Raises
        ------
        OptionsError
            There is none, or it is broken.
        """
        for reader in self.readers:
            if reader.name == name:
                return reader
        for plugin in self.broken:
            if plugin.name == name:
                raise OptionsError(f"the reader {name!r} cannot be used: {plugin.reason}")
        known = ", ".join(reader.name for reader in self.readers)
        raise OptionsError(f"there is no reader {name!r}: use one of {known}")

    def claims(self, head: bytes, file: DumpFile) -> list[tuple[str, Match]]:
        """List every reader that takes the file for its own, for the test of exclusiveness."""
        matches = [(reader.name, reader.sniff(head, file)) for reader in self.readers]
        return [(name, match) for name, match in matches if match]

    @property
    def companions(self) -> dict[str, str]:
        """File name -> folder beside it whose files are read through that file."""
        folders: dict[str, str] = {}
        for reader in self.readers:
            for name, folder in reader.companions.items():
                folders.setdefault(name, folder)
        return folders


def load_plugins(
    group: str,
    check: Callable[[str, Any], None],
    points: Iterable[Point] | None = None,
) -> tuple[list[Plugin], list[BrokenPlugin]]:
    """Load the plugins of one group.

    Parameters
    ----------
    group
        Name of the entry-point group.
    check
        Raises `PluginError` (or `AttributeError`, `TypeError`) when what a factory made is not
        what the group asks for.
    points
        The entry points; by default those of all installed packages.

    Returns
    -------
    tuple of list
        The plugins that work, the built-in ones first and each part by name, and the broken ones.
        Of several packages that use one name the built-in one wins, then the first by name.
    """
    if points is None:
        points = find_points(group)
    working: dict[str, Plugin] = {}
    broken: list[BrokenPlugin] = []
    seen: set[tuple[str, str, str]] = set()
    for point in sorted(points, key=_order):
        package, version = _origin(point)
        identity = (point.name, point.value, package)
        if identity in seen:  # the same metadata on two folders of sys.path
            continue
        seen.add(identity)
        first = working.get(point.name)
        try:
            if first is not None:
                raise PluginError(
                    f"its name is taken by {first.target} of {first.package} {first.version}: "
                    "uninstall one of them or rename it"
                )
            value = point.load()()
            check(point.name, value)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a plugin fails as it likes
            broken.append(BrokenPlugin(point.name, package, point.value, _explain(error)))
            continue
        working[point.name] = Plugin(point.name, value, package, version, point.value)
    return list(working.values()), broken


def load_readers(points: Iterable[Point] | None = None) -> ReaderRegistry:
    """Load all readers, built-in and installed ones.

    Parameters
    ----------
    points
        Entry points to use instead of the installed ones.

    Raises
    ------
    PluginError
        Not one reader can be used.
    """
    plugins, broken = load_plugins("dumpscope.readers", check_reader, points)
    if not plugins:
        why = "; ".join(f"{plugin.name}: {plugin.reason}" for plugin in broken)
        raise PluginError(
            "no reader can be used"
            + (f" ({why})" if why else ", dumpscope's own are not registered")
            + ": install the package (pip install -e . in a source tree)"
        )
    readers = tuple(cast("Reader", plugin.value) for plugin in plugins)
    return ReaderRegistry(readers, tuple(broken), tuple(plugins))


def require_texts(kind: str, value: object, *attributes: str) -> None:
    """Refuse a plugin that has no text in one of its attributes."""
    for attribute in attributes:
        text = getattr(value, attribute, None)
        if not isinstance(text, str) or not text:
            raise PluginError(f"the {kind} has no text in its attribute {attribute!r}")


def check_reader(name: str, value: object) -> None:
    """Refuse what is no reader.

    Raises
    ------
    PluginError
        Something that the reader protocol asks for is missing or of the wrong type.
    """
    require_texts("reader", value, "name", "formats", "versions")
    own_name = getattr(value, "name", None)
    if own_name != name:
        raise PluginError(
            f"the reader calls itself {own_name!r}, its entry point is {name!r}: "
            "both must be the same"
        )
    for method in ("sniff", "read"):
        if not callable(getattr(value, method, None)):
            raise PluginError(f"the reader has no method {method!r}")
    companions = getattr(value, "companions", None)
    if not hasattr(companions, "items"):
        raise PluginError(
            "the reader has no mapping in its attribute 'companions' (it may be empty)"
        )


def _order(point: Point) -> tuple[bool, str, str, str]:
    """Sort the built-in plugins before the others, then by name: the same on every machine."""
    package = _origin(point)[0]
    return package != _OWN, point.name, package, point.value


def _origin(point: Point) -> tuple[str, str]:
    """Return name and version of the package that an entry point comes from."""
    if isinstance(point, OwnPoint):
        return _OWN, point.version
    dist = getattr(point, "dist", None)
    if dist is None:
        return point.value.partition(":")[0].partition(".")[0], "?"
    return _identify(dist)


@lru_cache(maxsize=256)
def _identify(dist: Distribution) -> tuple[str, str]:
    """Return name and version of a package; its metadata are read anew at every question."""
    metadata = dist.metadata
    return metadata["Name"].lower(), metadata["Version"]


def _explain(error: Exception | SystemExit) -> PluginError:
    if isinstance(error, PluginError):
        return error
    text = " ".join(str(error).split())
    made = PluginError(f"{type(error).__name__}: {text}" if text else type(error).__name__)
    made.__cause__ = error
    return made
