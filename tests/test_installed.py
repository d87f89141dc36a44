from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import Distribution, entry_points
from pathlib import Path

import pytest

import dumpscope
from dumpscope.installed import OwnPoint, find_points

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


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder of packages: dumpscope 9.8, and two that have no plugins."""
    site = tmp_path / "site"
    install(site, "dumpscope-9.8.dist-info", OWN)
    install(site, "plain-1.0.dist-info", None)
    install(site, "program-1.0.dist-info", "[console_scripts]\nprogram = program:main\n")
    (site / "old.egg-info").write_text("Metadata-Version: 1.0\nName: old\nVersion: 1\n")
    monkeypatch.setattr(sys, "path", [str(site), str(tmp_path / "missing")])
    return site


def test_own_points_are_those_that_importlib_finds(site: Path) -> None:
    found = list(find_points(GROUP))
    assert found == [
        OwnPoint("first", "json:dumps", GROUP, "9.8"),
        OwnPoint("second", "json.decoder:JSONDecoder", GROUP, "9.8"),
    ]
    told = entry_points(group=GROUP)
    assert {(p.name, p.value) for p in found} == {(p.name, p.value) for p in told}
    assert [p.load() for p in found] == [json.dumps, json.JSONDecoder]
    assert [p.name for p in find_points("dumpscope.reporters")] == ["third"]
    assert list(find_points("dumpscope.checks")) == []


class Finder:
    """Finds packages in a way of its own: none."""

    @staticmethod
    def find_spec(*_: object) -> None:
        return None

    @staticmethod
    def find_distributions(*_: object) -> Iterator[Distribution]:
        return iter(())


def add_plugin(site: Path) -> None:
    install(site, "other-1.0.dist-info", "[dumpscope.readers]\nother = json:load\n")


def add_old_plugin(site: Path) -> None:
    install(site, "other.egg-info", "[dumpscope.readers]\nother = json:load\n")


def install_again(site: Path) -> None:
    install(site.parent / "again", "dumpscope-9.7.dist-info", OWN)
    sys.path.append(str(site.parent / "again"))


def install_for_developing(site: Path) -> None:
    install(site.parent / "source", "dumpscope.egg-info", OWN)
    sys.path.append(str(site.parent / "source"))


def add_archive(site: Path) -> None:
    with zipfile.ZipFile(site.parent / "more.zip", "w") as archive:
        archive.writestr("other-1.0.dist-info/METADATA", "Name: other\nVersion: 1.0\n")
        archive.writestr(
            "other-1.0.dist-info/entry_points.txt", "[dumpscope.readers]\nz = json:load\n"
        )
    sys.path.append(str(site.parent / "more.zip"))


def add_egg(site: Path) -> None:
    info = site / "other-1.0.egg" / "EGG-INFO"
    info.mkdir(parents=True)
    (info / "PKG-INFO").write_text("Metadata-Version: 1.0\nName: other\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[dumpscope.readers]\negg = json:load\n")
    sys.path.append(str(info.parent))


def add_finder(site: Path) -> None:
    sys.meta_path.append(Finder)


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (add_plugin, ["first", "other", "second"]),
        (add_old_plugin, ["first", "other", "second"]),
        (install_again, ["first", "second"]),
        (install_for_developing, ["first", "second"]),
        (add_archive, ["first", "second", "z"]),
        (add_egg, ["egg", "first", "second"]),
        (add_finder, ["first", "second"]),
    ],
)
def test_where_more_may_be_there_importlib_is_asked(
    site: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Path], None],
    names: Sequence[str],
) -> None:
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    change(site)
    found = list(find_points(GROUP))
    assert sorted({point.name for point in found}) == names
    assert not any(isinstance(point, OwnPoint) for point in found)


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
