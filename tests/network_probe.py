"""Writes what ran in a network as msprobe does: dump.json, construct.json, stack.json, tensors.

Calls are numbered by API and step. A product with a weight runs inside a Linear module, a norm
inside a LayerNorm module, and the whole forward pass inside the network's own module; a module's
entry stands behind those of what it contains, because it is written when the module returns.
"""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

import torch_builders
from network_builder import Case, Network, Ran, Value, run_network
from network_program import Program

__all__ = ["write_probe_network"]

APIS: Mapping[str, str] = {
    "MatMulV2": "Torch.matmul", "BatchMatMulV2": "Torch.bmm", "BiasAdd": "Tensor.__add__",
    "Add": "Tensor.__add__", "Sub": "Tensor.__sub__", "Mul": "Torch.mul", "Muls": "Tensor.__mul__",
    "RealDiv": "Torch.div", "LayerNormV3": "Functional.layer_norm", "Gelu": "Functional.gelu",
    "Relu": "Functional.relu", "Tanh": "Torch.tanh", "DropOutDoMask": "Functional.dropout",
    "Transpose": "Tensor.transpose", "MaskedFill": "Tensor.masked_fill", "Fill": "Torch.full",
    "SelectV2": "Torch.where", "SoftmaxV2": "Functional.softmax", "Maximum": "Torch.maximum",
    "Exp": "Torch.exp", "Log": "Torch.log", "Sqrt": "Torch.sqrt", "ReduceSumD": "Torch.sum",
    "Cast": "Tensor.to", "Quant": "Torch.clamp", "Less": "Torch.lt", "GeluGrad": "Torch.mul",
    "ConcatV2": "Torch.cat", "ApplyMomentum": "Tensor.add_",
    "HcomAllReduce": "Distributed.all_reduce", "HcomBroadcast": "Distributed.broadcast",
    "HcomSend": "Distributed.send", "HcomReceive": "Distributed.recv",
}  # fmt: skip


class ProbeWriter:
    """Writes the folder of one rank and step.

    Parameters
    ----------
    tensors
        "" for statistics only, else the suffix of the tensor files, "npy" or "pt".
    modules
        Whether modules are written as well (level mix), or APIs alone (L1).
    """

    def __init__(self, folder: Path, program: Program, *, tensors: str, modules: bool) -> None:
        self.folder = folder
        self.program = program
        self.tensors = tensors
        self.modules = modules
        self.data: dict[str, Any] = {}
        self.construct: dict[str, str | None] = {}
        self.calls: Counter[str] = Counter()
        self.own: dict[str, Value] = {}

    def write_all(self, ran: Sequence[Ran]) -> dict[str, Ran]:
        """Write the executions in their order; returns them by key."""
        keys: dict[str, Ran] = {}
        forward = [r for r in ran if r.instruction.name.startswith("net/")]
        whole = "Module.net.Net.forward.0" if self.modules else None
        for one in ran:
            if one.instruction.dumped:
                inside = whole if one.instruction.name.startswith("net/") else None
                keys[self._write_call(one, inside)] = one
            if whole is not None and forward and one is forward[-1]:
                # It is given all data, and returns what its last operator gave.
                given = {
                    name: value
                    for r in forward
                    for name, value in zip(r.instruction.reads, r.inputs, strict=True)
                    if name in self.program.data
                }
                self._entry(whole, list(given.values()), one.output, None, parameters=self.own)
        return keys

    def _write_call(self, ran: Ran, inside: str | None) -> str:
        instruction = ran.instruction
        op_type = instruction.op_type
        if instruction.exchanges == "message" and ran.rank:
            op_type = "HcomReceive"
        api = APIS[op_type]
        if instruction.in_place == 0 and not api.endswith("_") and not instruction.exchanges:
            api += "_"
        key = f"{api}.{self.calls[api]}.forward"
        self.calls[api] += 1
        module = None
        held = [name in self.program.state for name in instruction.reads]
        if self.modules and any(held[1:]):
            kind = {"MatMulV2": "Linear", "LayerNormV3": "LayerNorm"}.get(op_type)
            if kind is not None and not held[0]:
                module = f"Module.{instruction.writes}.{kind}.forward.0"
        inputs = list(ran.inputs)
        if op_type == "HcomReceive":
            inputs = [_with(ran.output, np.full_like(ran.output.data, np.nan))]
        if op_type == "HcomSend":
            self._entry(key, inputs, None, inside)
            return key
        self._entry(key, inputs, ran.output, module or inside, in_place=instruction.in_place)
        if module is not None:
            parameters = dict(zip(("weight", "bias"), inputs[1:], strict=False))
            self._entry(module, inputs[:1], ran.output, inside, parameters=parameters)
        elif inside is not None:
            # What no inner module holds are parameters of the network's own.
            names = zip(instruction.reads, ran.inputs, held, strict=True)
            self.own.update((name, value) for name, value, is_held in names if is_held)
        return key

    def _entry(
        self,
        key: str,
        inputs: Sequence[Value],
        output: Value | None,
        parent: str | None,
        *,
        parameters: Mapping[str, Value] = MappingProxyType({}),
        in_place: int | None = None,
    ) -> None:
        entry: dict[str, Any] = {
            "input_args": [self._tensor(v, f"{key}.input.{i}") for i, v in enumerate(inputs)],
            "input_kwargs": {},
            "output": [] if output is None else [self._tensor(output, f"{key}.output.0")],
        }
        if parameters:
            entry["parameters"] = {
                name: self._tensor(v, f"{key}.parameters.{name}") for name, v in parameters.items()
            }
        self.data[key] = entry
        self.construct[key] = parent

    def _tensor(self, value: Value, name: str) -> dict[str, Any]:
        entry = {
            "type": "torch.Tensor", "dtype": f"torch.{value.dtype}",
            "shape": list(value.data.shape), **_statistics(value), "requires_grad": False,
        }  # fmt: skip
        if self.tensors:
            suffix = "pt" if value.dtype == "bfloat16" else self.tensors
            entry["data_name"] = f"{name}.{suffix}"
            folder = self.folder / "dump_tensor_data"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{name}.{suffix}").write_bytes(_file_of(value, suffix))
        return entry

    def finish(self) -> None:
        """Write the three json files."""
        head = {
            "task": "tensor" if self.tensors else "statistics",
            "level": "mix" if self.modules else "L1",
            "framework": "pytorch",
            "dump_data_dir": "/elsewhere/dump_tensor_data" if self.tensors else None,
        }
        frame = "File /train/net.py, line 12, in forward, \n x = self.net(x)"
        stack = {str(n): [[key], [frame]] for n, key in enumerate(self.data)}
        for name, content in (
            ("dump", {**head, "data": self.data}), ("construct", self.construct), ("stack", stack),
        ):  # fmt: skip
            (self.folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")


def _with(value: Value, data: Any) -> Value:
    return Value(data, value.dtype, value.address, value.foreign)


def _statistics(value: Value) -> dict[str, Any]:
    """What torch computes: NaN wins in every one of them."""
    data = value.data
    if data.size == 0:
        return dict.fromkeys(("Max", "Min", "Mean", "Norm"))
    if value.dtype == "bool":
        return {"Max": bool(data.max()), "Min": bool(data.min()), "Mean": None, "Norm": None}
    wide = data.astype(np.float64)
    with np.errstate(all="ignore"):
        norm = np.sqrt((wide * wide).sum()).astype(np.float32)
        return {"Max": float(wide.max()), "Min": float(wide.min()),
                "Mean": float(wide.mean()), "Norm": float(norm)}  # fmt: skip


def _file_of(value: Value, suffix: str) -> bytes:
    if suffix == "npy":
        buffer = io.BytesIO()
        np.save(buffer, value.data)
        return buffer.getvalue()
    shape = value.data.shape
    return torch_builders.archive(
        torch_builders.tensor("0", value.dtype, shape), {"0": value.data.tobytes()}
    )


def write_probe_network(
    root: Path, case: Case, *, tensors: str = "", modules: bool = True
) -> tuple[Network, dict[tuple[int, int, str], Ran]]:
    """Run a network and write it below `root`; returns what ran by (rank, step, key)."""
    network = run_network(case)
    truth: dict[tuple[int, int, str], Ran] = {}
    for step in range(case.steps):
        for rank in range(case.ranks):
            folder = root / f"step{step}" / (f"rank{rank}" if case.ranks > 1 else "proc4711")
            folder.mkdir(parents=True)
            writer = ProbeWriter(folder, network.program, tensors=tensors, modules=modules)
            ran = [r for r in network.ran if (r.rank, r.step) == (rank, step)]
            for key, one in writer.write_all(ran).items():
                truth[rank, step, key] = one
            writer.finish()
    return network, truth
