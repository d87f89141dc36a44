from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import dumpscope
from dumpscope.installed import OwnPoint

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
GROUP = "dumpscope.readers"
OWN = (
    "[console_scripts]\n"
    "dumpscope = dumpscope.cli.main:run\n"
    "\n"
    "[dumpscope.readers]\n"
    "first = json:dumps\n"
    "# nothing\n"
    "second=json.decoder:JSONDecoder\n"
    "[dumpscope.reporters]\n"
    "third = json:loads\n"
)


def install(site: Path, folder: str, points: str | None) -> None:
    info = site / folder
    info.mkdir(parents=True)
    name, _, version = folder.rpartition(".")[0].partition("-")
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    if points is not None:
        (info / "entry_points.txt").write_text(points)


# In a program of its own: other tests import what replaces the finders of packages.
LIST = """
import json, sys
from importlib.metadata import entry_points
from dumpscope.installed import find_points
class Finder:
    find_spec = find_distributions = staticmethod(lambda *_: ())
sys.path[:], group = json.loads(sys.argv[1]), sys.argv[2]
if sys.argv[3:]:
    sys.meta_path.append(Finder)
found = [[type(p).__name__, p.name, p.value, getattr(p, "version", "")] for p in find_points(group)]
print(json.dumps([found, [[p.name, p.value] for p in entry_points(group=group)]]))
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder of packages: dumpscope 9.8, and some that have no plugins."""
    site = tmp_path / "site"
    install(site, "dumpscope-9.8.dist-info", OWN)
    install(site, "plain-1.0.dist-info", None)
    install(site, "program-1.0.dist-info", "[console_scripts]\nprogram = program:main\n")
    (site / "old.egg-info").write_text("Metadata-Version: 1.0\nName: old\nVersion: 1\n")
    return site


def list_points(
    *path: Path, group: str = GROUP, finder: bool = False
) -> tuple[list[list[str]], list[list[str]]]:
    """What is found on a path: kind, name, value and version; and names and values by importlib."""
    ended = subprocess.run(
        [
            *(sys.executable, "-c", LIST, json.dumps([*map(str, path), "/missing"]), group),
            *(["finder"] if finder else []),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    found, told = json.loads(ended.stdout)
    return found, told


def test_own_points_are_those_that_importlib_finds(site: Path) -> None:
    found, told = list_points(site)
    assert found == [
        ["OwnPoint", "first", "json:dumps", "9.8"],
        ["OwnPoint", "second", "json.decoder:JSONDecoder", "9.8"],
    ]
    assert sorted(told) == [point[1:3] for point in found]
    assert [point[1] for point in list_points(site, group="dumpscope.reporters")[0]] == ["third"]
    assert list_points(site, group="dumpscope.checks")[0] == []


def test_a_point_loads_what_it_names() -> None:
    assert OwnPoint("second", "json.decoder:JSONDecoder", GROUP, "9.8").load() is json.JSONDecoder


def add_plugin(site: Path) -> list[Path]:
    install(site, "other-1.0.dist-info", "[dumpscope.readers]\nother = json:load\n")
    return [site]


def add_old_plugin(site: Path) -> list[Path]:
    install(site, "other.egg-info", "[dumpscope.readers]\nother = json:load\n")
    return [site]


def install_again(site: Path) -> list[Path]:
    install(site.parent / "again", "dumpscope-9.7.dist-info", OWN)
    return [site, site.parent / "again"]


def install_for_developing(site: Path) -> list[Path]:
    install(site.parent / "source", "dumpscope.egg-info", OWN)
    return [site, site.parent / "source"]


def add_archive(site: Path) -> list[Path]:
    with zipfile.ZipFile(site.parent / "more.zip", "w") as archive:
        archive.writestr("other-1.0.dist-info/METADATA", "Name: other\nVersion: 1.0\n")
        points = "[dumpscope.readers]\nz = json:load\n"
        archive.writestr("other-1.0.dist-info/entry_points.txt", points)
    return [site, site.parent / "more.zip"]


def add_egg(site: Path) -> list[Path]:
    info = site / "other-1.0.egg" / "EGG-INFO"
    info.mkdir(parents=True)
    (info / "PKG-INFO").write_text("Metadata-Version: 1.0\nName: other\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[dumpscope.readers]\negg = json:load\n")
    return [site, info.parent]


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (add_plugin, ["first", "other", "second"]),
        (add_old_plugin, ["first", "other", "second"]),
        (install_again, ["first", "second"]),
        (install_for_developing, ["first", "second"]),
        (add_archive, ["first", "second", "z"]),
        (add_egg, ["egg", "first", "second"]),
    ],
)
def test_where_more_may_be_there_importlib_is_asked(
    site: Path, change: Callable[[Path], list[Path]], names: Sequence[str]
) -> None:
    found, _ = list_points(*change(site))
    assert sorted({point[1] for point in found}) == names
    assert {point[0] for point in found} == {"EntryPoint"}


def test_a_finder_of_somebodys_own_is_asked_through_importlib(site: Path) -> None:
    found, _ = list_points(site, finder=True)
    assert sorted(point[:2] for point in found) == [
        ["EntryPoint", "first"],
        ["EntryPoint", "second"],
    ]


def test_readers_load_without_numpy_and_importlib_metadata(tmp_path: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    points = project["entry-points"]
    lines = []
    for group, members in points.items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in members.items())]
    site = tmp_path / "site"
    install(site, "dumpscope-9.8.dist-info", "\n".join([*lines, ""]))
    (site / "dumpscope").symlink_to(Path(dumpscope.__file__).parent)
    program = (
        "import sys\n"
        f"sys.path[:] = [p for p in sys.path if 'site-packages' not in p] + [{str(site)!r}]\n"
        "from dumpscope.plugins import load_readers\n"
        "registry = load_readers()\n"
        "assert not registry.broken, registry.broken\n"
        "print(*(f'{p.name}:{p.package}:{p.version}' for p in registry.plugins))\n"
        "print(*sys.modules)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True
    )
    readers, modules = ended.stdout.splitlines()
    assert readers.split() == [f"{name}:dumpscope:9.8" for name in sorted(points[GROUP])]
    assert not {"numpy", "ml_dtypes", "importlib.metadata", "email"} & set(modules.split())
