"""Fill a store with many operators, of which a tenth is bad, and measure the answer's making.

Ranks run chains of operators over a pool of memory that is used again and again. In each step
of each rank something saturates, passes operators that keep it finite, becomes an Inf, and is
handed on to the end of the step. Measured are `conclude` and the peak of the process around it.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bench.processes import ProgramFailedError
from bench.table import Row
from dumpscope.model import (
    DumpFile,
    FileResult,
    OpRecord,
    Place,
    ScanOptions,
    TensorStats,
    TensorSummary,
)
from dumpscope.store import Store

if TYPE_CHECKING:
    from bench.rows import Bench

MILLION = 1_000_000
MUST_S, AIM_S = 30, 20
MUST_MIB, AIM_MIB = 1024, 850
RANKS, STEPS = 4, 5
FIRST_NS = 1_767_951_000_000_000_000
RUN = "20260109173000"
TYPES = ("MatMulV2", "Add", "Mul", "LayerNormV3", "Gelu", "Transpose", "SoftmaxV2", "Cast")
SHAPE = (64, 128)
SIZE_BYTES = 64 * 128 * 2
POOL_BLOCKS = 400
COUNT = 64 * 128

MEASURE = """
import resource, sys, time
from dumpscope.conclude import conclude
from dumpscope.model import ScanOptions
from dumpscope.store import Store
with Store.open(sys.argv[1]) as store:
    started, cpu_started = time.perf_counter(), time.process_time()
    scan = conclude(store, store.latest().scan_id, ScanOptions(), history=False)
    seconds = time.perf_counter() - started
    cpu_seconds = time.process_time() - cpu_started
peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
first = scan.findings[0]
print(f"{seconds} {cpu_seconds} {peak_mib} {len(scan.findings)} {first.verdict.value}")
"""


class Concluded(NamedTuple):
    """What it took to make an answer, and what the answer was."""

    seconds: float
    cpu_seconds: float
    peak_mib: float
    findings: int
    first: str


def fill(path: Path, *, ops: int, addresses: bool) -> None:
    """Put one scan of `ops` operators into a new store."""
    per_step = ops // (RANKS * STEPS)
    with Store.open(path) as store:
        scan_id = store.begin("/dump", ["/dump"], ScanOptions(), None, "bench")
        batch: list[FileResult] = []
        for result in _results(per_step, addresses):
            batch.append(result)
            if len(batch) == 2000:
                store.add(scan_id, batch, "bench")
                batch.clear()
        store.add(scan_id, batch, "bench")
        store.finish(scan_id, {}, 0.0)


def _results(per_step: int, addresses: bool) -> Iterator[FileResult]:
    draw = random.Random(7)
    for rank in range(RANKS):
        for step in range(STEPS):
            place = Place(run=RUN, step=step, device_id=rank, model_name="net", model_id=1)
            yield from _chain(per_step, place, addresses, draw)


def _chain(count: int, place: Place, addresses: bool, draw: random.Random) -> Iterator[FileResult]:
    saturates = count * 88 // 100
    turns = count * 90 // 100
    clean = TensorStats(count=COUNT, min=-2.5, max=3.25)
    at_limit = TensorStats(
        count=COUNT, saturated=3, min=-2.0, max=65504.0, first_bad=(0, 1),
        bad_box=((0, 3), (0, 127)), subnormal=0, zero=0, mean=0.1, std=1.0, rms=1.0, l2=9.0,
    )  # fmt: skip
    infinite = TensorStats(
        count=COUNT, nan=4, posinf=9, min=-2.0, max=3.0, first_bad=(0, 1),
        bad_box=((0, 63), (0, 127)), subnormal=0, zero=0, mean=0.1, std=1.0, rms=1.0, l2=9.0,
    )  # fmt: skip
    last, digest = draw.randrange(POOL_BLOCKS), None
    stats = clean
    for number in range(count):
        into = draw.randrange(POOL_BLOCKS - 1)
        into += into >= last
        read_stats, read_digest, read_from = stats, digest, last
        digest = None
        if number == saturates:
            stats = at_limit
        elif number >= turns:
            stats = infinite
        else:
            stats = clean
        if stats in (at_limit, infinite):
            digest = f"{draw.getrandbits(128):032x}"
        if stats is clean:
            stats = TensorStats(count=COUNT, min=draw.uniform(-9, -1), max=3.25)
        tensors = (
            _tensor("input", 0, read_from if addresses else None, read_stats, read_digest),
            _tensor("input", 1, POOL_BLOCKS + number % 500 if addresses else None, clean, None),
            _tensor("output", 0, into if addresses else None, stats, digest),
        )
        last = into
        op_type = TYPES[number % len(TYPES)]
        stamp = FIRST_NS + (place.step or 0) * 10_000_000_000 + number * 20_000
        name = f"{op_type}.net_layer_{number % 9000}_{op_type}.{number % 60_000}.2.{stamp // 1000}"
        relative = f"{RUN}/{place.device_id}/net/1/{place.step}/{name}"
        op = OpRecord(
            op_type, f"net/layer_{number % 9000}/{op_type}", tensors, number % 60_000, 2,
            stamp // 1000, stamp, step=place.step, device=place.device_id, reader="adump",
            file=relative, place=place,
        )  # fmt: skip
        file = DumpFile(f"/dump/{relative}", relative, name, 3 * SIZE_BYTES, 1, 1, number, place)
        yield FileResult(file, "adump", ops=(op,), bytes_read=3 * SIZE_BYTES)


def _tensor(
    role: str, index: int, block: int | None, stats: TensorStats, digest: str | None
) -> TensorSummary:
    return TensorSummary(
        role="input" if role == "input" else "output",
        index=index,
        dtype="float16",
        layout="ND",
        shape=SHAPE,
        size_bytes=SIZE_BYTES,
        address=0 if block is None else 0x12C000000000 + block * SIZE_BYTES,
        digest=digest,
        stats=stats,
    )


def conclude_alone(path: Path) -> Concluded:
    """Conclude the newest scan of a store in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(path)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ProgramFailedError(f"conclude exited {done.returncode}: {done.stderr.strip()}")
    seconds, cpu_seconds, peak_mib, findings, first = done.stdout.split()
    return Concluded(float(seconds), float(cpu_seconds), float(peak_mib), int(findings), first)


def measure_large_store(bench: Bench) -> list[Row]:
    """Time and memory of an answer from the store, with device addresses and without."""
    ops = bench.sizes.stored_ops
    rows = []
    for addresses in (True, False):
        path = bench.folder / "large_store.db"
        fill(path, ops=ops, addresses=addresses)
        found = conclude_alone(path)
        for part in bench.folder.glob(f"{path.name}*"):
            part.unlink()
        what = f"answer from a store of {ops:,} operators {'with' if addresses else 'without'}"
        what += f" addresses, {found.findings:,} of them bad"
        # Smaller stores have to be as much faster; what a process takes at all stays the same.
        share = ops / MILLION
        said = "" if ops == MILLION else f", limits for {share:g} of a million operators"
        rows += [
            Row(f"{what}: time", found.seconds, "s", MUST_S * share, AIM_S * share,
                f"{found.cpu_seconds:.1f} s of processor time, first a {found.first}{said}"),
            Row(f"{what}: peak memory", found.peak_mib, "MiB", MUST_MIB, AIM_MIB,
                f"in {found.seconds:.1f} s"),
        ]  # fmt: skip
    return rows
