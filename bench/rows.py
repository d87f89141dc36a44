"""The measurements: one function a row (or a few), each in a folder of its own.

Scans start from no store unless the row is about scanning again. The first scan of a set is
preceded by reading it once, so that every program finds it in the page cache.
"""

from __future__ import annotations

import os
import pickle
import shutil
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench import dumps
from bench.formats import measure_formats
from bench.large_store import measure_large_store
from bench.processes import MIB, Measured, dumpscope, median_seconds, medians_in_turn, python, run
from bench.table import Row

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

GB = 1e9
OTHER_REPORTS = ("csv", "json", "html", "junit", "sarif", "markdown")
READ_LOOP = """
import os, sys
for folder, _, names in os.walk(sys.argv[1]):
    for name in names:
        with open(os.path.join(folder, name), "rb") as file:
            file.read()
"""
CAT = 'find "$0" -type f -print0 | xargs -0 cat > /dev/null'
# What a script for the occasion does: it knows where the tensor begins and takes it whole.
PLAIN_NUMPY = """
import os, sys, numpy as np
for folder, _, names in os.walk(sys.argv[1]):
    for name in names[: int(sys.argv[2])]:
        x = np.fromfile(os.path.join(folder, name), dtype=np.uint8)
        x = x[int.from_bytes(x[:8].tobytes(), "little") + 8 :].view(np.float16)
        np.isnan(x).any(), np.isinf(x).any(), np.nanmax(x), np.nanmin(x)
"""
PLAIN_OPENPYXL = """
import pickle, sys
from openpyxl import Workbook
with open(sys.argv[1], "rb") as file:
    sheets = pickle.load(file)
book = Workbook(write_only=True)
for rows in sheets:
    sheet = book.create_sheet()
    for row in rows:
        sheet.append(row)
book.save(sys.argv[2])
"""


@dataclass(frozen=True)
class Sizes:
    """How much is measured, and how often."""

    large_files: int = 256
    small_files: int = 20_000
    few_files: int = 10_000
    many_files: int = 100_000
    sparse_gib: int = 4
    runs: int = 5
    stored_ops: int = 1_000_000

    @classmethod
    def quick(cls) -> Sizes:
        return cls(32, 4_000, 2_000, 20_000, 1, 3, 100_000)


class Bench:
    """A temporary folder, and the rows measured in it."""

    def __init__(self, folder: Path, sizes: Sizes) -> None:
        self.folder = folder
        self.sizes = sizes
        self.store = folder / "store" / "scans.db"

    def scan(self, root: Path, *options: str) -> list[str]:
        return dumpscope(
            "scan", str(root), "--store", str(self.store), "--format", "json", *options
        )

    def forget(self) -> None:
        """Remove the store, so that the next scan is the first."""
        shutil.rmtree(self.store.parent, ignore_errors=True)
        self.store.parent.mkdir()

    def first_scan_s(self, root: Path, *options: str, statuses: tuple[int, ...] = (0,)) -> float:
        return median_seconds(
            self.scan(root, *options), runs=self.sizes.runs, statuses=statuses, before=self.forget
        )

    def start_up(self) -> list[Row]:
        runs = self.sizes.runs * 5
        click = median_seconds(python("import click"), runs=runs)
        version = median_seconds(dumpscope("--version"), runs=runs)
        bare = median_seconds(python("pass"), runs=runs)
        return [
            Row(
                "`dumpscope --version` against `python -c 'import click'`",
                version / click,
                "×",
                1.5,
                1.1,
                f"{version * 1e3:.0f} ms against {click * 1e3:.0f} ms",
                peers=(f"bare Python {bare * 1e3:.0f} ms",),
            )
        ]

    def large(self) -> list[Row]:
        root = self.folder / "large"
        size = dumps.write_large(root, count=self.sizes.large_files)
        # What was just written would else go to the disk while the stores of scans do.
        os.sync()
        cat = ["sh", "-c", CAT, str(root)]
        run(cat)
        cat_s, screen_s, full_s, screen_one_s, full_two_s = medians_in_turn(
            [
                cat,
                self.scan(root),
                self.scan(root, "--stats", "full", "--jobs", "1"),
                self.scan(root, "--jobs", "1"),
                self.scan(root, "--stats", "full", "--jobs", "2"),
            ],
            runs=self.sizes.runs,
            before=self.forget,
        )
        few = min(4, self.sizes.large_files)
        plain_s = median_seconds(python(PLAIN_NUMPY, str(root), str(few)), runs=1)
        plain_rate = size * few / self.sizes.large_files / plain_s / GB
        shutil.rmtree(root)
        set_name = f"{self.sizes.large_files} × 16 MiB float16"
        return [
            Row(
                f"scan of {set_name} against `cat`",
                screen_s / cat_s,
                "×",
                3,
                1.3,
                f"{size / screen_s / GB:.1f} GB/s against {size / cat_s / GB:.1f} GB/s",
                peers=(f"NumPy isnan, isinf, max, min {plain_rate:.2f} GB/s",),
            ),
            Row(
                "`--stats full` against screening, one job",
                full_s / screen_one_s,
                "×",
                2,
                1.1,
                f"{size / full_s / GB:.1f} GB/s against {size / screen_one_s / GB:.1f} GB/s",
            ),
            Row(
                "two jobs against one, `--stats full`",
                full_s / full_two_s,
                "× faster",
                1.5,
                1.9,
                f"{full_two_s:.2f} s against {full_s:.2f} s",
                higher_is_better=True,
            ),
        ]

    def small(self) -> list[Row]:
        root = self.folder / "small"
        count = self.sizes.small_files
        dumps.write_small(root, count=count)
        os.sync()
        loop = python(READ_LOOP, str(root))
        run(loop)
        loop_s = median_seconds(loop, runs=self.sizes.runs)
        first_s = self.first_scan_s(root)
        again_s = median_seconds(self.scan(root), runs=self.sizes.runs)
        shutil.rmtree(root)
        return [
            Row(
                f"scan of {count:,} × 8 KiB dumps against a Python loop that reads them",
                first_s / loop_s,
                "×",
                8,
                5,
                f"{count / first_s:,.0f} files/s against {count / loop_s:,.0f} files/s",
            ),
            Row(
                f"scanning the same {count:,} files again",
                again_s / first_s,
                "×",
                0.3,
                0.1,
                f"{again_s:.2f} s against {first_s:.2f} s",
            ),
        ]

    def memory(self) -> list[Row]:
        root = self.folder / "sparse"
        dumps.write_sparse(root, gib=self.sizes.sparse_gib)
        one = self.scan_memory(root)
        few_root, many_root = self.folder / "few", self.folder / "many"
        dumps.write_tiny(few_root, count=self.sizes.few_files)
        few = self.scan_memory(few_root)
        shutil.rmtree(few_root)
        dumps.write_tiny(many_root, count=self.sizes.many_files)
        many = self.scan_memory(many_root)
        shutil.rmtree(many_root)
        return [
            Row(
                f"peak memory, one tensor of {self.sizes.sparse_gib} GiB",
                one.peak_bytes / MIB,
                "MiB",
                250,
                150,
                f"in {one.seconds:.1f} s",
            ),
            Row(
                f"peak memory, {self.sizes.many_files:,} files against {self.sizes.few_files:,}",
                (many.peak_bytes - few.peak_bytes) / MIB,
                "MiB more",
                100,
                20,
                f"{many.peak_bytes / MIB:.0f} MiB against {few.peak_bytes / MIB:.0f} MiB, "
                f"{many.seconds:.1f} s",
            ),
        ]

    def scan_memory(self, root: Path) -> Measured:
        self.forget()
        return run(self.scan(root), watch_memory=True)

    def xlsx(self) -> list[Row]:
        root = self.folder / "findings"
        count = self.sizes.small_files
        dumps.write_small(root, count=count, bad=True)
        self.forget()
        run(self.scan(root, "--limit", "1"), statuses=(1,))
        shutil.rmtree(root)
        report, peer = self.folder / "report.xlsx", self.folder / "peer.xlsx"
        command = dumpscope("report", "--store", str(self.store), "--force", f"--xlsx={report}")
        report_s = median_seconds(command, runs=self.sizes.runs)
        cells = self.folder / "cells.pickle"
        number, widest = save_cells(report, cells)
        plain = python(PLAIN_OPENPYXL, str(cells), str(peer))
        plain_s = median_seconds(plain, runs=self.sizes.runs)
        others = tuple(self.time_report(name) for name in OTHER_REPORTS)
        return [
            Row(
                f"`report --xlsx` of {count:,} findings against openpyxl on the same cells",
                report_s / plain_s,
                "×",
                1.5,
                1.1,
                f"{report_s:.1f} s against {plain_s:.1f} s, {number:,} cells, "
                f"widest sheet {widest} columns",
                peers=others,
            )
        ]

    def time_report(self, name: str) -> str:
        """How long another report of the same scan takes, in words."""
        target = self.folder / f"report.{name}"
        command = dumpscope("report", "--store", str(self.store), "--force", f"--{name}={target}")
        return f"--{name} {median_seconds(command, runs=1):.1f} s"


def save_cells(workbook: Path, target: Path) -> tuple[int, int]:
    """Store all cells of a workbook; returns their number and the widest sheet's columns."""
    from openpyxl import load_workbook

    book = load_workbook(workbook, read_only=True)
    sheets = [[list(row) for row in sheet.iter_rows(values_only=True)] for sheet in book]
    book.close()
    target.write_bytes(pickle.dumps(sheets))
    rows = [row for sheet in sheets for row in sheet]
    return sum(len(row) for row in rows), max(len(row) for row in rows)


PARTS: dict[str, Callable[[Bench], list[Row]]] = {
    "start-up": Bench.start_up,
    "large": Bench.large,
    "small": Bench.small,
    "memory": Bench.memory,
    "xlsx": Bench.xlsx,
    "formats": measure_formats,
    "store": measure_large_store,
}


def measure(bench: Bench, names: list[str]) -> list[Row]:
    """Run the parts named, one after the other, saying how long each took."""
    rows = []
    for name in names:
        started = time.perf_counter()
        print(f"measuring {name} …", flush=True)
        part = PARTS[name](bench)
        rows += part
        for row in part:
            print("  " + " | ".join(row.cells()))
        print(f"  ({time.perf_counter() - started:.0f} s)", flush=True)
    return rows
