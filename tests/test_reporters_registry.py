"""Reporters come from entry points; a broken one is set aside with its reason."""

from __future__ import annotations

import io
from importlib.metadata import EntryPoint
from typing import BinaryIO

import pytest

from dumpscope.errors import PluginError
from dumpscope.model import Scan
from dumpscope.reporters.protocol import ENTRY_POINT_GROUP
from dumpscope.reporters.registry import check_reporter, load_reporters
from scan_samples import clean_scan


class PlainReporter:
    name = "plain"
    suffix = "txt"
    option = "--plain"

    def write(self, scan: Scan, target: BinaryIO, *, limit: int | None, lang: str) -> None:
        target.write(scan.scan_id.encode())


class SecondPlain(PlainReporter):
    name = "second"


class ShoutingReporter(PlainReporter):
    name = "shouting"
    option = "-SHOUT"


class Incomplete:
    name = "incomplete"
    suffix = "x"
    option = "--incomplete"


def point(name: str, target: str) -> EntryPoint:
    return EntryPoint(name, f"{__name__}:{target}", ENTRY_POINT_GROUP)


def test_the_built_in_reporters_are_installed_ones() -> None:
    registry = load_reporters()
    options = {reporter.name: reporter.option for reporter in registry.reporters}
    assert options.items() >= {"csv": "--csv", "json": "--json", "xlsx": "--xlsx"}.items()
    assert registry.broken == ()


def test_a_plugin_is_loaded_and_broken_ones_are_set_aside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, __name__, sys.modules[PlainReporter.__module__])
    registry = load_reporters(
        [
            point("plain", "PlainReporter"),
            point("second", "SecondPlain"),
            point("shouting", "ShoutingReporter"),
            point("incomplete", "Incomplete"),
            point("misnamed", "PlainReporter"),
            point("missing", "Nowhere"),
        ]
    )
    (reporter,) = registry.reporters
    target = io.BytesIO()
    reporter.write(clean_scan(), target, limit=None, lang="en")
    assert target.getvalue() == b"20251129-2"
    reasons = {plugin.name: plugin.reason for plugin in registry.broken}
    assert reasons.keys() == {"second", "shouting", "incomplete", "misnamed", "missing"}
    assert reasons["second"] == "its option --plain belongs to 'plain': rename it"
    assert reasons["shouting"] == "its option '-SHOUT' does not look like --name"
    assert reasons["incomplete"] == "the reporter has no method 'write'"
    assert "calls itself 'plain'" in reasons["misnamed"]


@pytest.mark.parametrize("value", [None, 3, object()])
def test_what_is_no_reporter_at_all(value: object) -> None:
    with pytest.raises(PluginError, match="no text in its attribute 'name'"):
        check_reporter("x", value)
