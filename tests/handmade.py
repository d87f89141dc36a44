"""Dumps written operator by operator, for tests that look at what a scan says of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy.typing as npt

import builders
from dumpscope.model import Scan, ScanOptions
from dumpscope.scanning import scan

__all__ = ["Array", "Dump", "encode"]

Array = npt.NDArray[Any]
_CODES = {"float16": builders.FLOAT16, "float32": builders.FLOAT32, "bfloat16": builders.BFLOAT16,
         "bool": builders.BOOL}  # fmt: skip


@dataclass
class Dump:
    """Writes one operator after the other into the folder of one device and step."""

    root: Path
    started_us: int = 1764417600000000
    written: list[str] = field(default_factory=list)

    def run(
        self,
        op_type: str,
        inputs: list[Array | builders.Tensor],
        outputs: list[Array | builders.Tensor],
        device: int = 0,
        *,
        step: int = 0,
        late_us: int = 0,
        name: str = "",
    ) -> None:
        """Write one execution; `late_us` is how far the device's clock goes ahead."""
        name = name or f"{op_type}_op"
        number = len(self.written) + 1
        folder = self.root / "20251129120000" / str(device) / "net" / "1" / str(step)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{op_type}.{name}.{number}.1.{self.started_us + late_us + 1000 * number}"
        path.write_bytes(
            builders.dump_file(
                [encode(array) for array in inputs],
                [encode(array) for array in outputs],
                op_name=name,
            )
        )
        self.written.append(op_type)

    def ask(self, rules: str | None = None) -> Scan:
        options = ScanOptions(jobs=1)
        if rules is not None:
            file = self.root.parent / "rules.toml"
            file.write_text(rules, encoding="utf-8")
            options = ScanOptions(jobs=1, rules_file=str(file))
        return scan(self.root, options)

    def verdicts(self, rules: str | None = None) -> dict[str, str]:
        """Verdicts of the ranking by operator type, and rules of what is kept out of it."""
        answer = self.ask(rules)
        ranked = {f.op.op_type: str(f.verdict) for f in answer.findings}
        kept = {f"expected {f.op.op_type}": f.rule or "" for f in answer.expected}
        assert answer.counts.expected == len(answer.expected)
        return {**ranked, **kept}


def encode(array: Array | builders.Tensor) -> builders.Tensor:
    if isinstance(array, builders.Tensor):
        return array
    return builders.Tensor(array.tobytes(), _CODES[array.dtype.name], array.shape)
