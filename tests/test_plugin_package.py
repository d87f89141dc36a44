"""A third party's package, really installed: its reader is found, listed and used by a scan."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import zipfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from cli_runs import ROOT, Ended, environment, start

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PACKAGE = ROOT / "tests/plugin_package"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def can_build() -> bool:
    """Whether there is a setuptools that makes wheels by itself."""
    try:
        major = int(version("setuptools").partition(".")[0])
    except PackageNotFoundError:
        return False
    return major >= 71


def write_wheel(folder: Path) -> Path:
    """Write by hand the wheel that setuptools would make of the package."""
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text(encoding="utf-8"))
    title, release = project["project"]["name"], project["project"]["version"]
    name = title.replace("-", "_")
    groups = project["project"]["entry-points"]
    (module,) = project["tool"]["setuptools"]["py-modules"]
    info = f"{name}-{release}.dist-info"
    points = [
        line
        for group, entries in groups.items()
        for line in (f"[{group}]", *(f"{key} = {value}" for key, value in entries.items()))
    ]
    files = {
        f"{module}.py": (PACKAGE / f"{module}.py").read_text(encoding="utf-8"),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {title}\nVersion: {release}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "\n".join([*points, ""]),
    }
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    wheel = folder / f"{name}-{release}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return wheel


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip installed the package, without network."""
    folder = tmp_path_factory.mktemp("plugin")
    target = folder / "site"
    if importlib.util.find_spec("pip") is None:
        pytest.skip("pip is not installed")
    # pip leaves its traces in a source folder.
    source = shutil.copytree(PACKAGE, folder / "source") if can_build() else write_wheel(folder)
    result = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
            *("--no-deps", "--no-build-isolation", "--no-index", "--target", str(target)),
            str(source),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert (target / "dumpscope_toy.py").is_file()
    return target


def with_packages(*folders: Path) -> dict[str, str]:
    return environment(PYTHONPATH=os.pathsep.join(map(str, (ROOT, *folders))))


def toy_dump(name: str, *values: float) -> bytes:
    raw = name.encode()
    shape = struct.pack("<2IQ", 1, 1, len(values))
    return (
        b"TOYDUMP1"
        + struct.pack("<2I", len(raw), 1)
        + raw
        + shape
        + struct.pack(f"<{len(values)}f", *values)
    )


def ended(result: subprocess.CompletedProcess[str]) -> Ended:
    return Ended(result.returncode, result.stdout, result.stderr)


def test_it_is_listed_with_where_it_comes_from(installed: Path) -> None:
    listed = ended(start("readers", env=with_packages(installed)))
    assert listed.status == 0
    assert "toy: toy dumps\n    versions: 1\n" in listed.out
    assert "from dumpscope-toy 1.0 (dumpscope_toy:ToyReader)" in listed.out
    assert listed.out.index("adump: ") < listed.out.index("toy: ")
    assert "BROKEN" not in listed.out


def test_a_scan_reads_its_files(installed: Path, tmp_path: Path) -> None:
    dump = tmp_path / "dump"
    dump.mkdir()
    (dump / "first.toy").write_bytes(toy_dump("layer1/exp", 1.0, float("inf"), 2.0))
    (dump / "second.toy").write_bytes(toy_dump("layer2/add", 1.0, 2.0)[:-2])
    scanned = ended(
        start("scan", dump, "--format", "json", env=with_packages(installed), cwd=tmp_path)
    )
    assert scanned.status == 1
    document = json.loads(scanned.out)
    (finding,) = document["findings"]
    assert (finding["op_type"], finding["op_name"], finding["reader"]) == (
        "Toy",
        "layer1/exp",
        "toy",
    )
    (tensor,) = finding["tensors"]
    assert (tensor["posinf"], tensor["first_bad"], tensor["shape"]) == (1, [1], [3])
    (failure,) = document["read_failures"]
    assert (failure["file"], failure["reader"]) == ("second.toy", "toy")
    assert "expected 8 bytes of elements, found 6" in failure["message"]
    shown = ended(start("show", "layer1/exp:output.0", env=with_packages(installed), cwd=tmp_path))
    assert shown.status == 0
    assert "[1] +Inf" in shown.out


def test_without_it_its_files_are_unknown(tmp_path: Path) -> None:
    dump = tmp_path / "dump"
    dump.mkdir()
    (dump / "first.toy").write_bytes(toy_dump("layer1/exp", float("inf")))
    scanned = ended(start("scan", dump, "--format", "json", cwd=tmp_path))
    assert json.loads(scanned.out)["counts"]["unknown_files"] == 1
    refused = ended(start("scan", dump, "--reader", "toy", cwd=tmp_path))
    assert (refused.status, refused.out) == (2, "")
    assert "there is no reader 'toy'" in refused.err


def test_its_own_tests_inherit_the_contract(installed: Path, tmp_path: Path) -> None:
    shutil.copyfile(PACKAGE / "toy_contract.py", tmp_path / "toy_contract.py")
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "toy_contract.py"],
        cwd=tmp_path,
        env=with_packages(installed),
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout
    assert re.search(r"^\d\d passed", result.stdout, re.MULTILINE)


def put_package(folder: Path, name: str, code: str, *entries: str) -> Path:
    """Write an installed package by hand, as `pip install` would leave it."""
    info = folder / f"{name}-2.0.dist-info"
    info.mkdir(parents=True)
    (folder / f"{name}.py").write_text(code)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 2.0\n")
    (info / "entry_points.txt").write_text("\n".join(["[dumpscope.readers]", *entries, ""]))
    return folder


BROKEN = """
from dumpscope_toy import ToyReader

class Lacking:
    name = "lacking"
    formats = versions = "x"

class Renamed(ToyReader):
    name = "other"

def explode():
    raise RuntimeError("no \\x1b[31mlicence\\nfor this machine")
"""


def test_broken_and_clashing_plugins_are_listed_and_do_no_harm(
    installed: Path, tmp_path: Path
) -> None:
    site = put_package(
        tmp_path / "site",
        "other_dumps",
        BROKEN,
        "toy = other_dumps:ToyReader",
        "npy = other_dumps:ToyReader",
        "gone = nowhere_at_all:Reader",
        "lacking = other_dumps:Lacking",
        "renamed = other_dumps:Renamed",
        "exploding = other_dumps:explode",
    )
    env = with_packages(installed, site)
    listed = ended(start("readers", env=env))
    assert listed.status == 0
    reasons = dict(re.findall(r"^(\w+): BROKEN: (.*)$", listed.out, re.MULTILINE))
    assert reasons.keys() == {"toy", "npy", "gone", "lacking", "renamed", "exploding"}
    assert "its name is taken by dumpscope_toy:ToyReader of dumpscope-toy 1.0" in reasons["toy"]
    assert "its name is taken by dumpscope.readers.npy:NpyReader of dumpscope" in reasons["npy"]
    assert "ModuleNotFoundError" in reasons["gone"]
    assert "no method 'sniff'" in reasons["lacking"]
    assert "calls itself 'other', its entry point is 'renamed'" in reasons["renamed"]
    assert reasons["exploding"] == "RuntimeError: no \\x1b[31mlicence for this machine"
    assert "from other_dumps (other_dumps:ToyReader)" in listed.out
    assert "Traceback" not in listed.out + listed.err

    told = ended(start("readers", "--verbose", env=env))
    assert 'raise RuntimeError("no \\x1b[31mlicence' in told.out.replace("\\\\", "\\")
    assert "\x1b" not in told.out
    assert "files in dump_tensor_data belong to the dump.json beside it" in told.out

    dump = tmp_path / "first.toy"
    dump.write_bytes(toy_dump("layer1/exp", float("inf")))
    scanned = ended(start("scan", dump, env=env, cwd=tmp_path))
    assert scanned.status == 1
    refused = ended(start("scan", dump, "--reader", "gone", env=env, cwd=tmp_path))
    assert refused.status == 2
    assert "the reader 'gone' cannot be used: ModuleNotFoundError" in refused.err


def test_the_page_shows_these_very_files() -> None:
    page = (ROOT / "docs/extending.md").read_text(encoding="utf-8")
    shown = [body for _, body in BLOCK.findall(page)]
    for name in ("dumpscope_toy.py", "pyproject.toml", "toy_contract.py"):
        assert (PACKAGE / name).read_text(encoding="utf-8") in shown, f"{name} has changed"
