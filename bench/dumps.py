"""Dumps to measure with, written into a temporary folder."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

from fixtures.encode import DTYPE_CODES, Entry, encode_dump, encode_header, entry_of

if TYPE_CHECKING:
    from pathlib import Path

FIRST_TIME_US = 1_767_951_000_000_000
LEVELS = "20260109173000/0/bench/1/0"


def folder_of(root: Path) -> Path:
    folder = root / LEVELS
    folder.mkdir(parents=True)
    return folder


def name_of(index: int) -> str:
    return f"MatMulV2.bench_MatMulV2_op{index}.{index % 60_000}.2.{FIRST_TIME_US + index * 10}"


def write_large(root: Path, *, count: int, mib: int = 16) -> int:
    """Write dumps of one finite float16 output each; returns their bytes in all."""
    folder = folder_of(root)
    random = np.random.default_rng(5)
    elements = mib * 2**20 // 2
    values = random.standard_normal(elements, dtype=np.float32).astype(np.float16)
    total = 0
    for index in range(count):
        # Every file its own bytes, without the cost of drawing them anew.
        content = np.roll(values, index * 4099).tobytes()
        entry = Entry(DTYPE_CODES["float16"], (elements // 4096, 4096), content, 0x1000)
        total += write(
            folder / name_of(index), encode_dump(f"bench_MatMulV2_op{index}", [], [entry])
        )
    return total


def write_small(root: Path, *, count: int, bad: bool = False) -> int:
    """Write dumps of 8 KiB: two inputs and an output, which holds an Inf where `bad`."""
    folder = folder_of(root)
    random = np.random.default_rng(6)
    values = random.standard_normal((3, 1365), dtype=np.float32).astype(np.float16)
    if bad:
        values[2, 17] = np.inf
    left, right, out = (
        entry_of(row.reshape(5, 273), 0x1000 * (i + 1)) for i, row in enumerate(values)
    )
    total = 0
    for index in range(count):
        content = encode_dump(f"bench_MatMulV2_op{index}", [left, right], [out])
        total += write(folder / name_of(index), content)
    return total


def write_tiny(root: Path, *, count: int) -> int:
    """Write as many dumps as asked, each of a few bytes."""
    folder = folder_of(root)
    out = entry_of(np.ones(4, dtype=np.float16))
    total = 0
    for index in range(count):
        total += write(folder / name_of(index), encode_dump(f"op{index}", [], [out]))
    return total


def write_sparse(root: Path, *, gib: int) -> int:
    """Write one dump of a tensor of zeros as a sparse file, which takes no room on disk."""
    folder = folder_of(root)
    size = gib * 2**30
    shape = (size // 2 // 4096, 4096)
    entry = Entry(DTYPE_CODES["float16"], shape, b"", 0x1000, size_bytes=size)
    header = encode_header("bench_MatMulV2_op0", [], [entry])
    with (folder / name_of(0)).open("wb") as file:
        file.write(header)
        file.truncate(len(header) + size)
    return len(header) + size


def write(path: Path, content: bytes) -> int:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        os.write(descriptor, content)
    finally:
        os.close(descriptor)
    return len(content)
