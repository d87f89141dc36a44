"""Rows about the other formats: small files of each per second, and the peers for .npy and .pt."""

from __future__ import annotations

import io
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bench.processes import median_seconds, python
from bench.table import Row

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.rows import Bench

# The tests' builders write the bytes: they share no code with the readers.
sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))

SMALL_ELEMENTS = 2048
"""float16 elements of a small file: 4 KiB."""
LARGE_ELEMENTS = 1 << 17

PLAIN_NPY = """
import os, sys, numpy as np
for folder, _, names in os.walk(sys.argv[1]):
    for name in names:
        np.isfinite(np.load(os.path.join(folder, name))).all()
"""
PLAIN_TORCH = """
import os, sys, torch
for folder, _, names in os.walk(sys.argv[1]):
    for name in names:
        torch.isfinite(torch.load(os.path.join(folder, name), weights_only=True)).all()
"""


def measure_formats(bench: Bench) -> list[Row]:
    """Small files of each format, then .npy and .pt against what people do by hand."""
    count = bench.sizes.small_files // 2
    empty = bench.folder / "nothing"
    empty.mkdir()
    start_s = bench.first_scan_s(empty, statuses=(3,))
    rows = []
    for suffix, content in _samples().items():
        root = bench.folder / f"small{suffix}"
        _write(root, suffix, count, content)
        seconds = bench.first_scan_s(root)
        rate = _rate(count, seconds - start_s)
        peers: tuple[str, ...] = ()
        if suffix == ".pt":
            peers = _torch_peer(bench, root, count, rate)
        rows.append(
            Row(f"small {suffix} files scanned per second, start-up apart", rate, "files/s",
                3000, 6000, f"{count} files in {seconds:.2f} s, start-up {start_s:.2f} s",
                higher_is_better=True, peers=peers)
        )  # fmt: skip
    return [*rows, _large_npy(bench, start_s)]


def _large_npy(bench: Bench, start_s: float) -> Row:
    root = bench.folder / "large.npy"
    count = bench.sizes.small_files // 8
    _write(root, ".output.0.npy", count, _npy(LARGE_ELEMENTS))
    numpy_s = median_seconds(python("import numpy"), runs=bench.sizes.runs)
    peer_s = median_seconds(python(PLAIN_NPY, str(root)), runs=bench.sizes.runs)
    scan_s = bench.first_scan_s(root)
    return Row(
        "float16 `.npy` of 256 KiB per second against np.load + isfinite, start-up apart",
        _rate(1, scan_s - start_s) / _rate(1, peer_s - numpy_s), "×", 3, 6,
        f"{count} files: {peer_s:.2f} s against {scan_s:.2f} s", higher_is_better=True,
    )  # fmt: skip


def _rate(count: int, seconds: float) -> float:
    """Things per second; where noise leaves no time at all, as if a millisecond had been."""
    return count / max(seconds, 1e-3)


def _torch_peer(bench: Bench, root: Path, count: int, rate: float) -> tuple[str, ...]:
    if find_spec("torch") is None:
        return ("torch is not installed here",)
    bare_s = median_seconds(python("import torch"), runs=bench.sizes.runs)
    torch_s = median_seconds(python(PLAIN_TORCH, str(root)), runs=bench.sizes.runs)
    peer = _rate(count, torch_s - bare_s)
    return (f"torch.load + isfinite {peer:.0f} files/s, {rate / peer:.1f} times slower",)


def _write(root: Path, suffix: str, count: int, content: bytes) -> None:
    root.mkdir()
    for number in range(count):
        (root / f"MatMul.net_MatMul{number}.{number}.1.{1767225600000000 + number}{suffix}"
         ).write_bytes(content)  # fmt: skip


def _samples() -> dict[str, bytes]:
    from array_builders import atb_bytes, safetensors_bytes
    from builders import stats_csv
    from torch_builders import archive, tensor

    raw = _values(SMALL_ELEMENTS)
    makers: dict[str, Callable[[], bytes]] = {
        ".output.0.npy": lambda: _npy(SMALL_ELEMENTS),
        ".pt": lambda: archive(tensor("0", "float16", (SMALL_ELEMENTS,)), {"0": raw}),
        ".safetensors": lambda: safetensors_bytes({"x": ("F16", (SMALL_ELEMENTS,), raw)}),
        ".bin": lambda: atb_bytes(raw, dims=(SMALL_ELEMENTS,)),
        ".csv": lambda: stats_csv(
            "Input,0,4096,DT_FLOAT16,ND,2048,1,-1,0,2048,0,0,0",
            "Output,0,4096,DT_FLOAT16,ND,2048,1,-1,0,2048,0,0,0",
        ),
    }
    return {suffix: make() for suffix, make in makers.items()}


def _values(count: int) -> bytes:
    return np.random.default_rng(1).standard_normal(count).astype(np.float16).tobytes()


def _npy(count: int) -> bytes:
    out = io.BytesIO()
    np.save(out, np.frombuffer(_values(count), dtype=np.float16))
    return out.getvalue()
