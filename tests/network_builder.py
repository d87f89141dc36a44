"""Runs random networks on several ranks and writes what a dump of them would hold.

The memory of every rank is a pool that is used again and again. What really happened is kept
beside what is written, so that the truth about every operator is known (`Truth`).
"""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from builders import (
    BFLOAT16,
    BOOL,
    FLOAT16,
    FLOAT32,
    Tensor,
    dump_file,
    old_payload,
    opdebug_file,
    stats_csv,
)
from network_kernels import Array, at_limit, finish, is_bad, run
from network_program import Instruction, Program, ProgramWriter

__all__ = ["Case", "Network", "Ran", "Value", "build_network", "run_network"]

CODES = {"float16": FLOAT16, "bfloat16": BFLOAT16, "float32": FLOAT32, "bool": BOOL}
LABELS = {"float16": "DT_FLOAT16", "bfloat16": "DT_BF16", "float32": "DT_FLOAT", "bool": "DT_BOOL"}
FIRST_US = 1_767_225_600_000_000
RUN = "20260101000000"
ALIGNMENT = 512


@dataclass(frozen=True)
class Case:
    """What is built: a fault and everything around it.

    `addresses` are "pool" (as they were), "unique" (made up) or "zero"; `mode` is dump_mode;
    `form` is "tensor" or "stats"; `graph` writes the graph's text beside the dump; `after` records
    the inputs of operators that work in place after the fact; `records` are overflow records of
    the hardware: "culprit", "innocent" or "", in the old or new layout.
    """

    seed: int
    fault: str
    dtype: str = "float16"
    ranks: int = 1
    steps: int = 1
    saturates: bool = False
    addresses: str = "pool"
    mode: str = "all"
    form: str = "tensor"
    graph: bool = False
    after: bool = False
    records: str = ""
    bad_rank: int = 0


@dataclass
class Value:
    """A tensor at one time. `mask` marks the elements that hold a mask constant on purpose."""

    data: Array
    dtype: str
    address: int
    foreign: bool
    mask: Array | None = None

    def trouble(self) -> Array:
        """Elements that are not finite, and not on purpose."""
        bad = is_bad(self.data)
        return bad if self.mask is None else bad & ~self.mask

    def at_limit(self) -> Array:
        reached = at_limit(self.data, self.dtype)
        return reached if self.mask is None else reached & ~self.mask


@dataclass
class Ran:
    """One execution as it really was."""

    instruction: Instruction
    rank: int
    step: int
    inputs: list[Value]
    output: Value
    task: int
    started_us: int
    truth: str = ""

    @property
    def key(self) -> tuple[int, int, str]:
        return self.rank, self.step, self.instruction.name


@dataclass
class Pool:
    """Device memory that is handed out again after it was given back."""

    random: random.Random
    base: int
    top: int = 0
    free: dict[int, list[int]] = field(default_factory=dict)

    def take(self, nbytes: int) -> int:
        size = -(-nbytes // ALIGNMENT) * ALIGNMENT
        given_back = self.free.get(size, [])
        if given_back and self.random.random() < 0.9:
            return given_back.pop(self.random.randrange(len(given_back)))
        self.top += size
        return self.base + self.top - size

    def give_back(self, address: int, nbytes: int) -> None:
        size = -(-nbytes // ALIGNMENT) * ALIGNMENT
        self.free.setdefault(size, []).append(address)


class Network:
    """Runs a program on all ranks, step by step, and keeps what happened."""

    def __init__(self, case: Case, program: Program) -> None:
        self.case = case
        self.program = program
        self.random = random.Random(case.seed + 1)
        self.ran: list[Ran] = []
        self.uses = {i: self._last_uses(i) for i in range(len(program.instructions))}
        self.pools = [
            Pool(self.random, 0x12C0_0000_0000 + (rank << 36)) for rank in range(case.ranks)
        ]
        self.clocks = [FIRST_US + self.random.randrange(10**9) for _ in range(case.ranks)]
        self.memory: list[dict[str, Value]] = []
        for rank in range(case.ranks):
            numbers = np.random.default_rng((case.seed, rank))
            self.memory.append({})
            for name, values in program.state.items():
                own = values.copy()
                if name in program.data and name != program.foreign:
                    own = numbers.standard_normal(own.shape).astype(own.dtype)
                if name == program.foreign and rank != case.bad_rank and name in program.data:
                    own = numbers.standard_normal(own.shape).astype(own.dtype)
                if rank == case.bad_rank:
                    own = program.on_bad_rank.get(name, own).copy()
                mask = None
                if name in program.masks:
                    mask = is_bad(own) | at_limit(own, program.dtypes[name])
                dtype = program.dtypes[name]
                address = self.pools[rank].take(own.nbytes)
                self.memory[rank][name] = Value(own, dtype, address, foreign=True, mask=mask)

    def run(self) -> None:
        for step in range(self.case.steps):
            for number, instruction in enumerate(self.program.instructions):
                self._run(number, instruction, step)

    def _last_uses(self, number: int) -> list[str]:
        """Tensors whose memory is given back after an operator: nobody reads it later."""
        instructions = self.program.instructions
        later = {self._root(name) for i in instructions[number + 1 :] for name in i.reads}
        return [
            name
            for name in {self._root(name) for name in instructions[number].reads}
            if name not in later and name not in self.program.state
        ]

    def _root(self, name: str) -> str:
        """The tensor whose memory a tensor lies in."""
        for instruction in self.program.instructions:
            if instruction.writes == name and name not in instruction.reads:
                if instruction.view_rows is not None:
                    return self._root(instruction.reads[0])
                if instruction.in_place is not None:
                    return self._root(instruction.reads[instruction.in_place])
        return name

    def _run(self, number: int, instruction: Instruction, step: int) -> None:
        together: list[Ran] = []
        computed = self._compute(instruction)
        for rank in range(self.case.ranks):
            memory = self.memory[rank]
            inputs = [memory[name] for name in instruction.reads]
            data = computed[rank]
            address = self._place(instruction, rank, data)
            mask = _mask_of(instruction, inputs, data)
            output = Value(data, instruction.dtype, address, foreign=False, mask=mask)
            self.clocks[rank] += self.random.randrange(20, 90)
            ran = Ran(instruction, rank, step, inputs, output, number + 1, self.clocks[rank])
            together.append(ran)
            memory[instruction.writes] = output
            for name in self.uses[number]:
                self._free(name, rank)
        _judge(together)
        self.ran += together

    def _compute(self, instruction: Instruction) -> list[Array]:
        saturates = self.case.saturates
        parts = [
            run(
                instruction.kernel, [self.memory[rank][name].data for name in instruction.reads],
                instruction.dtype, saturates=saturates,
            )
            for rank in range(self.case.ranks)
        ]  # fmt: skip
        if instruction.exchanges in ("broadcast", "message"):
            return [parts[0].copy() for _ in parts]
        if instruction.exchanges:
            with np.errstate(all="ignore"):
                total = np.sum([part.astype(np.float32) for part in parts], axis=0)
            return [finish(total, instruction.dtype, saturates=saturates) for _ in parts]
        return parts

    def _place(self, instruction: Instruction, rank: int, data: Array) -> int:
        memory = self.memory[rank]
        if instruction.in_place is not None:
            return memory[instruction.reads[instruction.in_place]].address
        if instruction.view_rows is not None:
            source = memory[instruction.reads[0]]
            row_bytes = source.data.nbytes // len(source.data)
            return source.address + instruction.view_rows[0] * row_bytes
        return self.pools[rank].take(data.nbytes)

    def _free(self, name: str, rank: int) -> None:
        value = self.memory[rank][name]
        self.pools[rank].give_back(value.address, value.data.nbytes)


def _mask_of(instruction: Instruction, inputs: Sequence[Value], data: Array) -> Array | None:
    """Where the result holds a mask constant on purpose."""
    shape = data.shape
    if instruction.masks == "all":
        return np.ones(shape, dtype=bool)
    carried = (
        [np.broadcast_to(v.mask, shape) if v.mask is not None else None for v in inputs]
        if instruction.masks in ("where", "select")
        else []
    )
    if instruction.masks == "where":
        where = np.broadcast_to(inputs[1].data, shape)
        return where if carried[0] is None else where | carried[0]
    if instruction.masks == "select":
        none = np.zeros(shape, dtype=bool)
        first, second = (none if mask is None else mask for mask in carried[1:])
        chosen: Array = np.where(np.broadcast_to(inputs[0].data, shape), first, second)
        return chosen
    if instruction.masks == "carry":
        found = np.zeros(shape, dtype=bool)
        for value in inputs:
            if value.mask is not None:
                found |= value.mask.reshape(value.mask.shape[-len(shape) :][-2:])
        return found
    return None


def _judge(together: Sequence[Ran]) -> None:
    """Say what really happened in each execution of one operator, from what was really read."""
    first_only = together[0].instruction.exchanges in ("broadcast", "message")
    givers = [ran for ran in together if ran.rank == 0 or not first_only]
    given = {ran.rank: any(v.trouble().any() for v in ran.inputs) for ran in givers}
    full = {ran.rank: any(v.at_limit().any() for v in ran.inputs) for ran in givers}
    for ran in together:
        out_bad = bool(ran.output.trouble().any())
        if given.get(ran.rank):
            sources = [v for v in ran.inputs if v.trouble().any()]
            if all(v.foreign for v in sources):
                ran.truth = "bad_input"
            else:
                ran.truth = "propagated" if out_bad else "swallowed"
        elif out_bad:
            infected = ran.instruction.exchanges and any(given.values())
            ran.truth = "received" if infected else "origin"
        elif ran.output.at_limit().any() and not full.get(ran.rank):
            infected = ran.instruction.exchanges and any(full.values())
            ran.truth = "received" if infected else "saturated_origin"


# --- writing --------------------------------------------------------------------------------------


class DumpWriter:
    """Writes what ran as the files of a CANN dump."""

    def __init__(self, root: Path, case: Case, network: Network) -> None:
        self.root = root
        self.case = case
        self.network = network
        self.random = random.Random(case.seed + 2)

    def write(self) -> None:
        ran = [r for r in self.network.ran if r.instruction.dumped]
        self.random.shuffle(ran)
        for one in ran:
            self._write_execution(one)
        if self.case.graph:
            self._write_graph()

    def _folder(self, rank: int, step: int) -> Path:
        folder = self.root / RUN / str(rank) / "net" / "1" / str(step)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _write_execution(self, ran: Ran) -> None:
        instruction = ran.instruction
        inputs = list(ran.inputs)
        if self.case.after and instruction.in_place is not None:
            inputs[instruction.in_place] = ran.output
        if self.case.mode == "output":
            inputs = []
        outputs = [] if self.case.mode == "input" else [ran.output]
        if instruction.exchanges == "message":
            self._write_message(ran, inputs, outputs)
            return
        if instruction.exchanges and self.case.mode == "all" and self.case.form == "tensor":
            self._write(ran, inputs, [], ran.started_us)
            self._write(ran, [], outputs, ran.started_us + 15)
            return
        self._write(ran, inputs, outputs, ran.started_us)

    def _write_message(self, ran: Ran, inputs: Sequence[Value], outputs: Sequence[Value]) -> None:
        """The first rank sends; what the others list as input is the buffer they receive into."""
        if ran.rank == 0:
            self._write(ran, inputs, [], ran.started_us)
            return
        name = ran.instruction.name.replace("HcomSend", "HcomReceive")
        received = replace(
            ran, instruction=replace(ran.instruction, op_type="HcomReceive", name=name)
        )
        garbage = np.full_like(ran.output.data, self.random.choice((np.nan, 0.5)))
        buffer = replace(ran.output, data=garbage)
        self._write(received, [buffer] if inputs else [], outputs, ran.started_us)

    def _write(
        self, ran: Ran, inputs: Sequence[Value], outputs: Sequence[Value], time_us: int
    ) -> None:
        instruction = ran.instruction
        flat = instruction.name.replace("/", "_")
        name = f"{instruction.op_type}.{flat}.{ran.task}.{instruction.stream}.{time_us}"
        folder = self._folder(ran.rank, ran.step)
        if self.case.form == "stats":
            rows = [_stats_row("Input", i, v) for i, v in enumerate(inputs)]
            rows += [_stats_row("Output", i, v) for i, v in enumerate(outputs)]
            (folder / f"{name}.csv").write_bytes(stats_csv(*rows))
            return
        (folder / name).write_bytes(
            dump_file(
                [self._tensor(v) for v in inputs],
                [self._tensor(v) for v in outputs],
                op_name=instruction.name,
            )
        )

    def _tensor(self, value: Value) -> Tensor:
        address = value.address
        if self.case.addresses == "zero":
            address = 0
        elif self.case.addresses == "unique":
            address = 0x7000_0000_0000 + self.random.getrandbits(40) * ALIGNMENT
        return Tensor(value.data.tobytes(), CODES[value.dtype], value.data.shape, address=address)

    def write_record(self, ran: Ran, *, new: bool) -> None:
        """Write a hardware record that names an execution."""
        task, stream = ran.task, ran.instruction.stream
        payload = old_payload(aic=0x20, task_id=task, stream_id=stream)
        if new:
            fields = (1, stream, task, 0, 0, 0, 0x1000, 0x2000, 3, 5, 0x20)
            payload = struct.pack("<6I", 0x5A5A5A5A, 0, 1, 0, 0, 88) + struct.pack("<11Q", *fields)
        name = f"Opdebug.Node_OpDebug.9001.7.{ran.started_us + 5}"
        (self._folder(ran.rank, ran.step) / name).write_bytes(opdebug_file(payload))

    def _write_graph(self) -> None:
        made = {i.writes: i.name for i in self.network.program.instructions}
        lines = ['graph {\n  name: "net"']
        for name in self.network.program.state:
            kind = "Data" if name in self.network.program.data else "Variable"
            lines.append(f'  op {{\n    name: "{name}"\n    type: "{kind}"\n  }}')
        for instruction in self.network.program.instructions:
            lines.append(f'  op {{\n    name: "{instruction.name}"')
            lines.append(f'    type: "{instruction.op_type}"')
            for read in instruction.reads:
                source = read if read in self.network.program.state else made[read]
                lines.append(f'    input: "{source}:0"')
            lines.append("  }")
        lines.append("}\n")
        (self.root / "ge_proto_00000001_net_Build.txt").write_text("\n".join(lines))


def _stats_row(role: str, index: int, value: Value) -> str:
    data = value.data.astype(np.float64)
    finite = data[np.isfinite(data)]
    low, high, mean = (
        (finite.min(), finite.max(), finite.mean()) if finite.size else ("NA", "NA", "NA")
    )
    shape = "x".join(map(str, data.shape)) or "-"
    nan, low_inf, high_inf = np.isnan(data).sum(), (data == -np.inf).sum(), (data == np.inf).sum()
    return (
        f"{role},{index},{value.data.nbytes},{LABELS[value.dtype]},ND,{shape},{high},{low},{mean},"
        f"{data.size},{nan},{low_inf},{high_inf}"
    )


def run_network(case: Case) -> Network:
    """Run a network and keep what happened in it."""
    writer = ProgramWriter(
        case.seed, case.fault, dtype=case.dtype, ranks=case.ranks, saturates=case.saturates
    )
    network = Network(case, writer.write())
    network.run()
    return network


def build_network(root: Path, case: Case) -> Network:
    """Run a network and write its dump below `root`."""
    network = run_network(case)
    dump = DumpWriter(root, case, network)
    dump.write()
    if case.records:
        ran = [r for r in network.ran if r.instruction.dumped]
        if case.records == "culprit":
            wanted = [r for r in ran if r.instruction.name == network.program.culprit]
        else:
            wanted = [r for r in ran if not r.truth and not r.instruction.masks]
        if wanted:
            dump.write_record(wanted[0], new=case.seed % 2 == 0)
    return network
