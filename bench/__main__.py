"""`python -m bench`: print each ratio with what it must and should be. See `--help`."""

from __future__ import annotations

import argparse
import dataclasses
import shutil
import sys
import tempfile
from pathlib import Path

from bench.processes import MIB, ProgramFailedError
from bench.rows import PARTS, Bench, Sizes, measure
from bench.table import machine, markdown, page

PAGE = Path(__file__).resolve().parent.parent / "docs" / "benchmarks.md"
LARGE_FILE_MIB = 16


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller sets, fewer runs")
    parser.add_argument("--only", action="append", choices=PARTS, help="measure only this part")
    parser.add_argument("--large-files", type=int, help="number of 16 MiB dumps (256)")
    parser.add_argument("--many-files", type=int, help="files of the memory row (100000)")
    parser.add_argument("--runs", type=int, help="runs of which the median counts (5)")
    parser.add_argument("--folder", type=Path, help="where the temporary folder is made")
    parser.add_argument("--write", action="store_true", help=f"write docs/{PAGE.name}")
    return parser.parse_args(arguments)


def sizes_for(options: argparse.Namespace, folder: Path) -> Sizes:
    """Return what was asked for, less where memory or disk cannot hold it."""
    sizes = Sizes.quick() if options.quick else Sizes()
    given = {
        name: getattr(options, name)
        for name in ("large_files", "many_files", "runs")
        if getattr(options, name) is not None
    }
    sizes = dataclasses.replace(sizes, **given)
    room_mib = min(free_memory_mib(), shutil.disk_usage(folder).free // MIB) * 6 // 10
    fits = max(1, room_mib // LARGE_FILE_MIB)
    if sizes.large_files > fits:
        print(f"note: memory or disk hold only {fits} files of {LARGE_FILE_MIB} MiB: using these")
        sizes = dataclasses.replace(sizes, large_files=fits)
    return sizes


def free_memory_mib() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) // 1024
    return 1024


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    folder = Path(tempfile.mkdtemp(prefix="dumpscope-bench-", dir=options.folder))
    try:
        rows = measure(Bench(folder, sizes_for(options, folder)), options.only or list(PARTS))
    except ProgramFailedError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"\n{machine()}")
    print(markdown(rows))
    if options.write:
        PAGE.write_text(page(rows), encoding="utf-8")
        print(f"\nwrote docs/{PAGE.name}")
    return 1 if any(row.verdict == "MISSED" for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
