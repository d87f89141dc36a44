from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import MappingProxyType, ModuleType

import pytest

from builders import FLOAT16, Tensor, dump_file, old_payload, opdebug_file, stats_csv
from dumpscope.errors import OptionsError, PluginError
from dumpscope.model import DumpFile, Match
from dumpscope.plugins import check_reader, load_plugins, load_readers
from dumpscope.readers.protocol import Record
from dumpscope.source import DumpSource
from memory_source import NAME, MemorySource

GROUP = "dumpscope.readers"


class PlainReader:
    """A reader that claims what its class says."""

    name = "plain"
    formats = "a private format"
    versions = "1"
    companions: Mapping[str, str] = {}
    match = Match.NAME
    asked = 0

    def sniff(self, head: bytes, file: DumpFile) -> Match:
        type(self).asked += 1
        return self.match

    def read(self, source: DumpSource) -> Iterator[Record]:
        yield from ()


class SureReader(PlainReader):
    name = "sure"
    match = Match.CONTENT


class ExitingReader(PlainReader):
    name = "exiting"

    def __init__(self) -> None:
        raise SystemExit("no licence for this machine")


class FailingReader(PlainReader):
    name = "failing"

    def sniff(self, head: bytes, file: DumpFile) -> Match:
        raise KeyError("head")


class Nameless(PlainReader):
    name = ""


class Wordy(PlainReader):
    name = "wordy"
    sniff = "text"  # type: ignore[assignment]


class NoCompanions(PlainReader):
    name = "no_companions"
    companions = None  # type: ignore[assignment]


@pytest.fixture(autouse=True)
def _module(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this module importable for entry points, under a name of its own."""
    module = ModuleType("private_dumps")
    for value in list(globals().values()):
        if isinstance(value, type) and issubclass(value, PlainReader):
            value.asked = 0
            setattr(module, value.__name__, value)
    monkeypatch.setitem(sys.modules, "private_dumps", module)


def point(name: str, target: str) -> EntryPoint:
    return EntryPoint(name, f"private_dumps:{target}", GROUP)


def file_named(name: str, content: bytes = b"") -> DumpFile:
    return MemorySource(content, name).file


# --- loading --------------------------------------------------------------------------------------


def test_built_in_readers_come_from_the_entry_points_of_the_package() -> None:
    registry = load_readers()
    names = {reader.name for reader in registry.readers}
    assert names >= {"adump", "opdebug", "overflow_json", "stats_csv"}
    own = [plugin for plugin in registry.plugins if plugin.package == "dumpscope"]
    assert [plugin.name for plugin in own] == sorted(plugin.name for plugin in own)
    assert {plugin.name for plugin in own} <= {p.name for p in entry_points(group=GROUP)}
    assert not [broken for broken in registry.broken if broken.package == "dumpscope"]


def test_order_is_the_same_whatever_the_order_of_installation() -> None:
    points = [point("sure", "SureReader"), point("plain", "PlainReader")]
    for order in (points, points[::-1]):
        assert [reader.name for reader in load_readers(order).readers] == ["plain", "sure"]


@pytest.mark.parametrize(
    ("name", "target", "reason"),
    [
        ("missing", "private_missing:Reader", "ModuleNotFoundError"),
        ("absent", "private_dumps:Absent", "AttributeError"),
        ("exiting", "private_dumps:ExitingReader", "no licence for this machine"),
        ("nameless", "private_dumps:Nameless", "'name'"),
        ("other", "private_dumps:PlainReader", "its entry point is 'other'"),
        ("wordy", "private_dumps:Wordy", "no method 'sniff'"),
        ("no_companions", "private_dumps:NoCompanions", "'companions'"),
        ("uncallable", "private_dumps:__name__", "TypeError"),
    ],
)
def test_broken_plugins_are_set_aside_with_their_reason(
    name: str, target: str, reason: str
) -> None:
    registry = load_readers([EntryPoint(name, target, GROUP), point("plain", "PlainReader")])
    assert [reader.name for reader in registry.readers] == ["plain"]
    (broken,) = registry.broken
    assert (broken.name, broken.target) == (name, target)
    assert isinstance(broken.error, PluginError)
    assert reason in broken.reason


def test_second_plugin_of_a_name_is_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    class Second(PlainReader):
        pass

    monkeypatch.setattr(sys.modules["private_dumps"], "Second", Second, raising=False)
    registry = load_readers([point("plain", "Second"), point("plain", "PlainReader")])
    assert [type(reader) for reader in registry.readers] == [PlainReader]
    (broken,) = registry.broken
    assert broken.target == "private_dumps:Second"
    assert "private_dumps:PlainReader" in broken.reason


def test_same_entry_point_found_twice_is_one() -> None:
    registry = load_readers([point("plain", "PlainReader"), point("plain", "PlainReader")])
    assert len(registry.readers) == 1
    assert registry.broken == ()


def test_without_any_reader_nothing_can_be_done() -> None:
    with pytest.raises(PluginError, match="pip install"):
        load_readers([])
    with pytest.raises(PluginError, match="no licence"):
        load_readers([point("exiting", "ExitingReader")])


def test_plugins_of_an_installed_package_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "installed_dumps.py").write_text(
        "from dumpscope.model import Match\n"
        "class Reader:\n"
        "    name = 'installed'\n"
        "    formats = versions = 'any'\n"
        "    companions = {}\n"
        "    def sniff(self, head, file):\n"
        "        return Match.NAME if file.name.endswith('.mine') else Match.NONE\n"
        "    def read(self, source):\n"
        "        yield from ()\n"
    )
    info = tmp_path / "installed_dumps-3.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: Installed-Dumps\nVersion: 3.1\n")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\ninstalled = installed_dumps:Reader\n")
    monkeypatch.syspath_prepend(tmp_path)
    registry = load_readers()
    (plugin,) = [plugin for plugin in registry.plugins if plugin.name == "installed"]
    assert (plugin.package, plugin.version) == ("installed-dumps", "3.1")
    assert registry.readers[-1].name == "installed"  # behind the built-in ones
    chosen = registry.choose(b"", file_named("a.mine"))
    assert chosen is not None
    assert chosen.name == "installed"


def test_other_groups_bring_their_own_check() -> None:
    def refuse(name: str, value: object) -> None:
        raise PluginError(f"{name} is a {type(value).__name__}")

    working, broken = load_plugins("dumpscope.checks", refuse, [point("plain", "PlainReader")])
    assert working == []
    assert broken[0].reason == "plain is a PlainReader"


def test_what_is_no_reader_is_refused() -> None:
    with pytest.raises(PluginError, match="'name'"):
        check_reader("x", object())
    check_reader("plain", PlainReader())


# --- choosing -------------------------------------------------------------------------------------


def test_content_beats_name() -> None:
    registry = load_readers([point("plain", "PlainReader"), point("sure", "SureReader")])
    chosen = registry.choose(b"", file_named("a"))
    assert chosen is not None
    assert chosen.name == "sure"


def test_unknown_file_has_no_reader() -> None:
    registry = load_readers()
    assert registry.choose(b"nothing that anyone knows", file_named("notes.xyz")) is None
    assert registry.choose(b"", file_named("empty")) is None


def test_override_takes_the_reader_by_its_name() -> None:
    registry = load_readers([point("plain", "PlainReader"), point("sure", "SureReader")])
    chosen = registry.choose(b"", file_named("a"), "plain")
    assert chosen is not None
    assert chosen.name == "plain"
    assert PlainReader.asked == 0
    with pytest.raises(OptionsError, match="use one of plain, sure"):
        registry.choose(b"", file_named("a"), "adump")


def test_override_with_a_broken_reader_says_why() -> None:
    registry = load_readers([point("plain", "PlainReader"), point("exiting", "ExitingReader")])
    with pytest.raises(OptionsError, match="no licence"):
        registry.choose(b"", file_named("a"), "exiting")


def test_reader_that_fails_to_look_is_named() -> None:
    registry = load_readers([point("failing", "FailingReader")])
    with pytest.raises(PluginError, match="'failing' failed to look at 0/a"):
        registry.choose(b"", file_named("a"))


CONTENTS = {
    NAME: dump_file((Tensor(bytes(8), FLOAT16, (4,)),)),
    "Opdebug.Node_OpDebug.9.1.1764417600003150": opdebug_file(old_payload(aic=16)),
    "Opdebug.Node_OpDebug.9.1.1764417600003150.output.0.json": b'{"AI Core": {"status": 1}}',
    f"{NAME}.csv": stats_csv("Output,0,8,DT_FLOAT,ND,2,1,1,1,2,0,0,0"),
}
OWNERS = dict(zip(CONTENTS, ("adump", "opdebug", "overflow_json", "stats_csv"), strict=True))


@pytest.mark.parametrize("name", CONTENTS)
def test_every_file_belongs_to_one_reader(name: str) -> None:
    source = MemorySource(CONTENTS[name], name)
    claims = load_readers().claims(source.head, source.file)
    assert claims == [(OWNERS[name], Match.CONTENT)]


def test_choice_does_not_depend_on_the_file_before() -> None:
    registry = load_readers()
    for first in CONTENTS:
        for second in CONTENTS:
            for name in (first, second):
                source = MemorySource(CONTENTS[name], name)
                chosen = registry.choose(source.head, source.file)
                assert chosen is not None
                assert chosen.name == OWNERS[name]


def test_reader_that_claims_everything_does_not_displace_built_in_ones() -> None:
    own = [p for p in entry_points(group=GROUP) if p.name in OWNERS.values()]
    registry = load_readers([*own, point("sure", "SureReader")])
    chosen = registry.choose(b"unknown", file_named("unknown"))
    assert chosen is not None
    assert chosen.name == "sure"
    source = MemorySource(CONTENTS[NAME], NAME)
    chosen = registry.choose(source.head, source.file)
    assert chosen is not None
    # Entry points made by hand have no package, so that only the dump's own reader is built in.
    assert chosen.name == "adump"


def test_companions_of_all_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    class WithFolder(PlainReader):
        name = "with_folder"
        companions = MappingProxyType({"dump.json": "dump_tensor_data"})

    monkeypatch.setattr(sys.modules["private_dumps"], "WithFolder", WithFolder, raising=False)
    registry = load_readers([point("with_folder", "WithFolder"), point("plain", "PlainReader")])
    assert registry.companions == {"dump.json": "dump_tensor_data"}
