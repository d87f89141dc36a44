"""Imports go down only, libraries stay in their rooms, rooms stay small, start-up stays light."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dumpscope
from dumpscope import kernel

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "dumpscope"
CLEAN = ROOT / "fixtures" / "cases" / "clean"
LONGEST_MODULE_LINES = 400

# From the ground up; a module may import from its own floor and from those below it.
# What is not named stands beside `scanning`: only it and the commands may use it.
FLOORS = (
    {"closing", "errors", "lazy_numpy", "records", "regexes", "version"},
    {"model"},
    {
        "aclconfig",
        "inspecting.closeup",
        "decoding",
        "dtypes",
        "folders",
        "stats.elements",
        "stats.exactstats",
        "stats.floatcodes",
        "nightly.headroom",
        "stats.inspection",
        "kernel",
        "layouts",
        "lowfloats",
        "stats.maskbits",
        "msprobe_names",
        "naming",
        "causality.optypes",
        "overflow",
        "stats.padded_screening",
        "stats.padding",
        "places",
        "installed",
        "plugins",
        "stats.positions",
        "readers.protocol",
        "remote",
        "mapping_table",
        "opening",
        "roots",
        "safetext",
        "stats.screening",
        "source",
        "stats.measuring",
        "inspecting.views",
        "stats",
        "walk",
    },
    {
        "causality.address_edges",
        "causality.addresses",
        "causality.ancestry",
        "causality.assembly",
        "nightly.baseline",
        "causality.causal_order",
        "ranks.collectives",
        "ranks.communication",
        "causality.dataflow",
        "nightly.diffing",
        "ranks.exchange",
        "causality.expectations",
        "causality.findings",
        "ranks.gradnames",
        "tracing.folding",
        "causality.graph_edges",
        "causality.graphs",
        "causality.hardware",
        "causality.input_states",
        "causality.inputs",
        "tracing.lanes",
        "causality.losses",
        "ranks.messages",
        "causality.nesting",
        "tracing.parentage",
        "outcome",
        "ranks.parallelism",
        "ranks.patterns",
        "causality.ranking",
        "ranks.rankmap",
        "ranks.ranksummary",
        "readers",
        "causality.reasons",
        "ranks.rendezvous",
        "ranks.silent",
        "reporters",
        "rules",
        "causality.runs",
        "store",
        "tracing.timeline",
        "ranks.presence",
        "nightly.trend",
        "tracing.trace",
        "causality.verdicts",
        "words",
    },
    {"scanning"},
    {"cli", "__main__"},
)
SCAN_FLOOR = 4
ROOMS_OF_LIBRARY = {
    "click": ("cli",),
    "tqdm": ("cli",),
    "rich": ("cli", "reporters"),
    "pandas": ("reporters",),
    "openpyxl": ("reporters",),
    "jinja2": ("reporters",),
    "sqlite3": ("store",),
    "google": ("readers.adump",),
    "torch": ("probes",),
    "distributed": ("cluster",),
    "fsspec": ("remote.mounts",),
}


def module_name(path: Path) -> str:
    """Name of a module below the package, "" for the package itself."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def imports_of(name: str) -> set[str]:
    """Full names of all that a module imports, wherever in it and for whatever purpose."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(MODULES[name].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: relative import in line {node.lineno}"
            assert node.module is not None
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def libraries_at_run_time(tree: ast.AST) -> set[str]:
    """Top names of what is imported where a program runs, not only where types are checked."""
    found: set[str] = set()
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            found.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found.add(node.module.partition(".")[0])
        found |= libraries_at_run_time(node)
    return found


@pytest.mark.parametrize("name", MODULES)
def test_only_what_is_declared_is_imported(name: str) -> None:
    # An environment for development has more, and so do those with an older Python.
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = [*project["dependencies"], *project["optional-dependencies"]["dask"],
             *project["optional-dependencies"]["remote"], "dask", "torch"]  # fmt: skip
    declared = {re.split("[^A-Za-z0-9_]", text)[0] for text in asked} - {"protobuf"}
    if name.startswith("testing"):
        declared.add("pytest")
    tree = ast.parse(MODULES[name].read_text(encoding="utf-8"))
    libraries = libraries_at_run_time(tree) - sys.stdlib_module_names - {"dumpscope", "google"}
    assert libraries <= declared


def floor_of(name: str) -> int:
    for candidate in (name, name.partition(".")[0]):
        for floor, rooms in enumerate(FLOORS):
            if candidate in rooms:
                return floor
    return SCAN_FLOOR


def plugin_modules(group: str) -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    targets = project["entry-points"].get(f"dumpscope.{group}", {}).values()
    return {target.partition(":")[0].removeprefix("dumpscope.") for target in targets}


@pytest.mark.parametrize("name", [name for name in MODULES if name])
def test_imports_go_down_only(name: str) -> None:
    inside = {i.removeprefix("dumpscope.") for i in imports_of(name) if i.startswith("dumpscope.")}
    upward = {other for other in inside & MODULES.keys() if floor_of(other) > floor_of(name)}
    assert not upward, f"{name} must not import {sorted(upward)}: they stand on a higher floor"


@pytest.mark.parametrize("name", MODULES)
def test_libraries_stay_in_their_rooms(name: str) -> None:
    for library in {i.partition(".")[0] for i in imports_of(name)} & ROOMS_OF_LIBRARY.keys():
        rooms = ROOMS_OF_LIBRARY[library]
        assert name.startswith(rooms), f"{name} imports {library}, which belongs to {rooms}"


@pytest.mark.parametrize("group", ["readers", "checks", "reporters"])
def test_plugins_do_not_import_each_other(group: str) -> None:
    plugins = plugin_modules(group)
    for name in plugins & MODULES.keys():
        others = {f"dumpscope.{other}" for other in plugins - {name}}
        assert not imports_of(name) & others


@pytest.mark.parametrize("name", MODULES)
def test_modules_stay_small(name: str) -> None:
    lines = len(MODULES[name].read_text(encoding="utf-8").splitlines())
    assert lines <= LONGEST_MODULE_LINES, f"{name} has {lines} lines: give a part its own module"


def test_no_module_hides_a_promised_name() -> None:
    # Importing a submodule binds it in the package, over whatever had its name.
    assert not set(dumpscope.__all__) & MODULES.keys()


HEAVY = frozenset(
    {
        *("numpy", "pandas", "openpyxl", "rich", "ml_dtypes", "google.protobuf", "tqdm"),
        *("jinja2", "fsspec", "concurrent.futures"),
    }
)


def modules_of(*arguments: object) -> tuple[str, set[str]]:
    """Run the program; return what it prints, and the modules that it has loaded at its end."""
    program = (
        "import sys\n"
        "from dumpscope.cli.main import run\n"
        "try:\n"
        "    run()\n"
        "finally:\n"
        "    print('loaded:', *sys.modules, file=sys.stderr)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    said, _, loaded = result.stderr.rpartition("loaded: ")
    assert (result.returncode, said) == (0, "")
    return result.stdout, set(loaded.split())


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_start_up_loads_no_heavy_library(option: str) -> None:
    printed, loaded = modules_of(option)
    assert "dumpscope" in printed
    assert not HEAVY & loaded


def test_scanning_what_is_clean_and_then_known_loads_no_heavy_library(tmp_path: Path) -> None:
    scan = ("scan", CLEAN, "--store", tmp_path / "s.db", "--format", "json")
    first, loaded = modules_of(*scan)
    assert {"google.protobuf", "dumpscope.examine"} <= loaded
    # The kernel measures what is clean; without it NumPy does.
    assert ("numpy" in loaded) is (kernel.screen_floats is None)
    assert "dumpscope.judging" not in loaded
    again, loaded = modules_of(*scan)
    assert not (HEAVY | {"dumpscope.examine", "dumpscope.judging"}) & loaded
    assert json.loads(again)["counts"] == json.loads(first)["counts"]
