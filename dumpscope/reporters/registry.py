"""Find the reporters that are installed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

from dumpscope.errors import PluginError
from dumpscope.installed import Point
from dumpscope.plugins import BrokenPlugin, load_plugins, require_texts
from dumpscope.records import record
from dumpscope.reporters.protocol import ENTRY_POINT_GROUP, Reporter

__all__ = ["ReporterRegistry", "check_reporter", "load_reporters"]


@record(frozen=True, slots=True)
class ReporterRegistry:
    """All reporters that can be used, in a fixed order, and what is broken."""

    reporters: Sequence[Reporter]
    broken: Sequence[BrokenPlugin] = ()


def load_reporters(points: Iterable[Point] | None = None) -> ReporterRegistry:
    """Load all reporters, built-in and installed ones; one that is broken is set aside.

    `points` are entry points to use instead of the installed ones. Of two reporters that ask for
    the same option the first keeps it.
    """
    plugins, broken = load_plugins(ENTRY_POINT_GROUP, check_reporter, points)
    reporters: list[Reporter] = []
    for plugin in plugins:
        reporter = cast(Reporter, plugin.value)
        taken = next((r for r in reporters if r.option == reporter.option), None)
        if taken is None:
            reporters.append(reporter)
        else:
            error = PluginError(
                f"its option {reporter.option} belongs to {taken.name!r}: rename it"
            )
            broken.append(BrokenPlugin(plugin.name, plugin.package, plugin.target, error))
    return ReporterRegistry(tuple(reporters), tuple(broken))


def check_reporter(name: str, value: Any) -> None:
    """Refuse what is no reporter.

    Raises
    ------
    PluginError
        Something that the reporter protocol asks for is missing or of the wrong form.
    """
    require_texts("reporter", value, "name", "suffix", "option")
    if value.name != name:
        raise PluginError(f"the reporter calls itself {value.name!r}, its entry point is {name!r}")
    option = value.option
    if not (option.startswith("--") and option[2:].replace("-", "").isalnum() and option.isascii()):
        raise PluginError(f"its option {option!r} does not look like --name")
    if not callable(getattr(value, "write", None)):
        raise PluginError("the reporter has no method 'write'")
