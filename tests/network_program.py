"""Random networks as programs: operators with real arithmetic, one of which is at fault.

A program is written once and runs on every rank and in every step. Tensors are named; weights and
data live through all steps. The order in which operators run is drawn among all that respect what
they read and what they overwrite.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from network_kernels import (
    ADD,
    COPY,
    DIV,
    EXP,
    LESS,
    LIMIT,
    LOG,
    MAXIMUM,
    MUL,
    NUMPY,
    RELU,
    SELECT,
    SQRT,
    SUB,
    SUM,
    TANH,
    TRANSPOSE,
    Array,
    Kernel,
    fill,
    gelu,
    gelu_grad,
    layer_norm,
    masked_fill,
    matmul,
    softmax,
    step_down,
    times,
)

__all__ = ["FAULTS", "RANK_FAULTS", "Instruction", "Program", "ProgramWriter"]

SEQUENCE, WIDTH = 8, 8
SHAPE = (SEQUENCE, WIDTH)

FAULTS = (
    "matmul", "scores", "exp", "log", "zero_div", "sqrt", "sum", "cast", "mul", "masked_row",
    "optimizer", "data", "weight", "limit", "limit_hidden",
)  # fmt: skip
"""What can be wrong on one rank, or on all of them alike. `limit` is a value clipped at the limit
that becomes Inf later in the chain, `limit_hidden` the same with operators between that bring it
below the limit."""

RANK_FAULTS = ("one_rank", "all_reduce", "broadcast", "message")
"""What needs several ranks: a value that overflows on one of them only, gradients whose sum does,
and a weight or an activation that is bad where it comes from."""


@dataclass
class Instruction:
    """One operator.

    Attributes
    ----------
    in_place
        Which of the inputs has the memory that the output is written to.
    dumped
        Whether it leaves a file; views and copies of the framework do not.
    masks
        Whether the result keeps the mask of the inputs ("carry"), is one where input 1 is true
        ("where"), or is one altogether ("all").
    exchanges
        A communication operator: "sum" over the ranks, "broadcast" from the first of them, or
        "message" from the first to all others.
    """

    op_type: str
    name: str
    reads: list[str]
    writes: str
    dtype: str
    kernel: Kernel
    stream: int = 0
    in_place: int | None = None
    dumped: bool = True
    masks: str = ""
    exchanges: str = ""
    view_rows: tuple[int, int] | None = None


@dataclass
class Program:
    """A network with its weights and data, and where its trouble begins.

    `culprit` is the name of the operator at fault (with `data` and `weight`: the first to read
    them), `foreign` the tensor that was bad from the start. `masks` are tensors from outside that
    hold a mask constant, `on_bad_rank` values that differ on the one rank at fault.
    """

    instructions: list[Instruction] = field(default_factory=list)
    state: dict[str, Array] = field(default_factory=dict)
    dtypes: dict[str, str] = field(default_factory=dict)
    data: list[str] = field(default_factory=list)
    masks: set[str] = field(default_factory=set)
    culprit: str = ""
    foreign: str = ""
    on_bad_rank: dict[str, Array] = field(default_factory=dict)


class ProgramWriter:
    """Writes a random network.

    Parameters
    ----------
    fault
        One of `FAULTS`, or "" for a healthy network.
    ranks
        How many ranks exchange gradients.
    saturates
        Whether the hardware clips (then masks are the minimum of the type).
    """

    def __init__(
        self, seed: int, fault: str, *, dtype: str = "float16", ranks: int = 1,
        saturates: bool = False, in_place: bool = True,
    ) -> None:  # fmt: skip
        self.random = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.fault = fault
        self.dtype = dtype
        self.ranks = ranks
        self.saturates = saturates
        self.in_place = in_place
        self.program = Program()
        self._count = 0
        self._weights: list[tuple[str, str, str]] = []

    def write(self) -> Program:
        """Write the network and draw the order in which it runs."""
        current = self._data("tokens")
        blocks = [self.random.choice((self._attention, self._feed_forward, self._branches))
                  for _ in range(self.random.randint(2, 4))]  # fmt: skip
        place = self.random.randrange(len(blocks) + 1)
        for number, block in enumerate(blocks):
            if number == place:
                current = self._inject(current)
            current = block(current)
        if place == len(blocks):
            current = self._inject(current)
        self._train(current)
        self._forbid_overwriting()
        self.program.instructions = self._shuffled()
        return self.program

    # --- tensors and operators -----------------------------------------------------------------

    def _named(self, word: str) -> str:
        self._count += 1
        return f"{word}_{self.random.randrange(1000):03d}_{self._count}"

    def _state(self, word: str, values: Array, dtype: str | None = None) -> str:
        name = self._named(word)
        dtype = dtype or self.dtype
        self.program.state[name] = values.astype(NUMPY[dtype])
        self.program.dtypes[name] = dtype
        return name

    def _data(self, word: str, dtype: str | None = None, scale: float = 1.0) -> str:
        name = self._state(word, self.numbers.standard_normal(SHAPE) * scale, dtype)
        self.program.data.append(name)
        return name

    def _weight(self, scale: float = 0.3) -> str:
        return self._state("weight", self.numbers.standard_normal((WIDTH, WIDTH)) * scale)

    def _op(
        self, op_type: str, kernel: Kernel, *reads: str, dtype: str | None = None, **more: Any
    ) -> str:
        writes = self._named("t")
        dtype = dtype or self.dtype
        self.program.dtypes[writes] = dtype
        name = self._named(f"net/{op_type}")
        self.program.instructions.append(
            Instruction(op_type, name, list(reads), writes, dtype, kernel, **more)
        )
        return writes

    @property
    def _last(self) -> Instruction:
        return self.program.instructions[-1]

    def _maybe_in_place(self) -> int | None:
        return 0 if self.in_place and self.random.random() < 0.4 else None

    def _linear(self, x: str, weight: str | None = None) -> str:
        weight = weight or self._weight()
        out = self._op("MatMulV2", matmul, x, weight)
        self._weights.append((x, weight, out))
        if self.random.random() < 0.3:
            bias = self._state("bias", self.numbers.standard_normal(WIDTH) * 0.1)
            out = self._op("BiasAdd", ADD, out, bias)
        return out

    def _norm(self, x: str) -> str:
        gamma = self._state("gamma", np.ones(WIDTH))
        beta = self._state("beta", np.zeros(WIDTH))
        return self._op("LayerNormV3", layer_norm, x, gamma, beta)

    def _undumped(self, x: str) -> str:
        """What a framework does without an operator that is dumped: a copy, or a view of rows."""
        kind = self.random.choice(("copy", "twice", "rows"))
        if kind == "rows":
            half = SEQUENCE // 2
            top = self._op("StridedSlice", lambda v: v[0][:half], x, dumped=False,
                           view_rows=(0, half))  # fmt: skip
            bottom = self._op("StridedSlice", lambda v: v[0][half:], x, dumped=False,
                              view_rows=(half, SEQUENCE))  # fmt: skip
            return self._op("ConcatV2", lambda v: np.concatenate([v[0], v[1]]), top, bottom)
        turned = self._op("Transpose", TRANSPOSE, x, dumped=False)
        if kind == "copy":
            return self._op("Transpose", TRANSPOSE, turned)
        return self._op("Transpose", TRANSPOSE, turned, dumped=False)

    # --- blocks --------------------------------------------------------------------------------

    def _feed_forward(self, x: str) -> str:
        hidden = self._linear(self._norm(x))
        kernels: Sequence[tuple[str, Kernel]] = (("Gelu", gelu), ("Relu", RELU), ("Tanh", TANH))
        op_type, kernel = self.random.choice(kernels)
        hidden = self._op(op_type, kernel, hidden, in_place=self._maybe_in_place())
        if self.random.random() < 0.4:
            kept = self._state("kept", self.numbers.random(SHAPE) < 0.8, "bool")
            hidden = self._op(
                "DropOutDoMask", lambda v: v[0] * v[1] / np.float32(0.8), hidden, kept
            )
        return self._op("Add", ADD, self._linear(hidden), x, in_place=self._maybe_in_place())

    def _branches(self, x: str) -> str:
        left, right = self._norm(x), self._norm(x)
        for _ in range(self.random.randint(1, 3)):
            left = self._op("Tanh", TANH, self._linear(left), stream=1)
        for _ in range(self.random.randint(1, 3)):
            right = self._op("Gelu", gelu, self._linear(right), stream=2)
            if self.random.random() < 0.3:
                right = self._undumped(right)
        return self._op("Add", ADD, left, right)

    def _attention(self, x: str) -> str:
        normed = self._norm(x)
        query, key, value = (self._linear(normed) for _ in range(3))
        turned = self._op("Transpose", TRANSPOSE, key, dumped=self.random.random() < 0.5)
        scores = self._op("BatchMatMulV2", matmul, query, turned)
        scores = self._op("Muls", times(1 / math.sqrt(WIDTH)), scores)
        scores = self._mask(scores)
        weights = self._op("SoftmaxV2", softmax, scores)
        mixed = self._op("BatchMatMulV2", matmul, weights, value)
        return self._op("Add", ADD, self._linear(mixed), x, in_place=self._maybe_in_place())

    def _mask(self, scores: str) -> str:
        """Mask the future in one of the usual ways."""
        hidden = np.triu(np.ones((SEQUENCE, SEQUENCE), dtype=bool), 1)
        lowest = -LIMIT[self.dtype]
        value = lowest if self.saturates or self.random.random() < 0.5 else -math.inf
        kind = self.random.choice(("fill", "outside", "built", "select", "none"))
        if self.random.random() < 0.3:
            # Scores that take the minimum of the type beyond its range where they are added.
            large = 20.0 * LIMIT[self.dtype] / LIMIT["float16"]
            scores = self._op("Muls", times(large), scores)
        if kind == "fill":
            where = self._state("causal", hidden, "bool")
            return self._op("MaskedFill", masked_fill(value), scores, where, masks="where",
                            in_place=self._maybe_in_place())  # fmt: skip
        if kind == "outside":
            mask = self._state("mask", np.where(hidden, value, 0.0)[None])
            self.program.masks.add(mask)
            return self._op("Add", lambda v: (v[0] + v[1])[0], scores, mask, masks="carry")
        if kind == "built":
            full = self._op("Fill", fill(value, SHAPE), masks="all")
            where = self._state("causal", hidden, "bool")
            zeros = self._state("zeros", np.zeros(SHAPE))
            mask = self._op("SelectV2", SELECT, where, full, zeros, masks="select")
            return self._op("Add", ADD, scores, mask, masks="carry")
        if kind == "select":
            where = self._state("causal", hidden, "bool")
            full = self._op("Fill", fill(value, ()), masks="all")
            return self._op("SelectV2", SELECT, where, full, scores, masks="select")
        return scores

    # --- training ------------------------------------------------------------------------------

    def _train(self, x: str) -> None:
        """Gradients of some weights, exchanged between the ranks, and the optimizer's steps."""
        start = len(self.program.instructions)
        target = self._data("target")
        slope = self._op("Sub", SUB, x, target)
        for source, weight, out in self.random.sample(self._weights, min(3, len(self._weights))):
            grad = self._op("GeluGrad", gelu_grad, slope, out)
            turned = self._op("Transpose", TRANSPOSE, source, dumped=False)
            grad = self._op("MatMulV2", matmul, turned, grad)
            if self.ranks > 1:
                grad = self._exchange("HcomAllReduce", grad, "sum")
            self._update(weight, grad, 1e-3)
        if self.fault == "all_reduce":
            level = self._state("level", np.full(SHAPE, LIMIT[self.dtype] * 0.6))
            self._exchange("HcomAllReduce", self._op("Maximum", MAXIMUM, slope, level), "sum")
            self._blame()
        if self.fault == "optimizer":
            _, weight, _ = self.random.choice(self._weights)
            grad = self._op("Muls", times(3.0), self._state("slope", np.full((WIDTH, WIDTH), 2.0)))
            self._update(weight, grad, LIMIT[self.dtype])
            self.program.culprit = self._last.name
        for instruction in self.program.instructions[start:]:
            instruction.name = instruction.name.replace("net/", "gradients/", 1)
        if self.fault in ("optimizer", "all_reduce"):
            self.program.culprit = self.program.culprit.replace("net/", "gradients/", 1)

    def _exchange(self, op_type: str, x: str, exchanges: str) -> str:
        return self._op(op_type, COPY, x, exchanges=exchanges)

    def _update(self, weight: str, grad: str, rate: float) -> None:
        name = self._named("net/ApplyMomentum")
        self.program.instructions.append(
            Instruction("ApplyMomentum", name, [weight, grad], weight, self.dtype,
                        step_down(rate), in_place=0)
        )  # fmt: skip

    # --- faults --------------------------------------------------------------------------------

    def _inject(self, x: str) -> str:
        """Put what is wrong into the chain."""
        if self.fault in ("", "optimizer", "all_reduce"):
            return x
        plain: dict[str, Callable[[str], str]] = {
            "matmul": self._big_weights, "scores": self._big_scores, "data": self._bad_data,
            "weight": self._bad_weight, "masked_row": self._masked_row, "limit": self._limit,
            "limit_hidden": self._limit, "cast": self._big_cast, "one_rank": self._one_rank,
            "broadcast": self._sent, "message": self._sent,
        }  # fmt: skip
        out = plain[self.fault](x) if self.fault in plain else self._bad_function(x)
        return self._go_on(out, x)

    def _blame(self) -> None:
        self.program.culprit = self._last.name

    def _bad_function(self, x: str) -> str:
        huge = LIMIT[self.dtype] ** 0.75
        if self.fault == "exp":
            out = self._op("Exp", EXP, self._op("Muls", times(1000.0), x))
        elif self.fault == "log":
            out = self._op("Log", LOG, self._op("Relu", RELU, x))
        elif self.fault == "zero_div":
            zero = self._op("Sub", SUB, x, x)
            out = self._op("RealDiv", DIV, zero, zero)
        elif self.fault == "sqrt":
            out = self._op("Sqrt", SQRT, x, in_place=self._maybe_in_place())
        elif self.fault == "sum":
            level = self._state("level", np.full(SHAPE, LIMIT[self.dtype] / 2))
            out = self._op("ReduceSumD", SUM, self._op("Maximum", MAXIMUM, x, level))
        else:
            big = self._op("Muls", times(huge), x)
            out = self._op("Mul", MUL, big, big, in_place=self._maybe_in_place())
        self._blame()
        return out

    def _big_weights(self, x: str) -> str:
        signs = np.where(self.numbers.random((WIDTH, WIDTH)) < 0.5, -1.0, 1.0)
        weight = self._state("weight", signs * LIMIT[self.dtype] * 0.9)
        out = self._op("MatMulV2", matmul, x, weight)
        self._blame()
        return out

    def _big_scores(self, x: str) -> str:
        scale = LIMIT[self.dtype] ** 0.55
        query = self._op("MatMulV2", matmul, x, self._weight(scale))
        key = self._op("MatMulV2", matmul, x, self._weight(scale))
        turned = self._op("Transpose", TRANSPOSE, key, dumped=False)
        out = self._op("BatchMatMulV2", matmul, query, turned)
        self._blame()
        return out

    def _big_cast(self, x: str) -> str:
        wide = self._op("Cast", COPY, x, dtype="float32")
        wide = self._op("Muls", times(1e7), wide, dtype="float32")
        out = self._op("Cast", COPY, wide, dtype="float16")
        self._blame()
        return self._op("Cast", COPY, out)

    def _bad_data(self, x: str) -> str:
        data = self._data("extra")
        self.program.state[data][2, 3:5] = self.random.choice((math.nan, math.inf))
        self.program.foreign = data
        out = self._op("Add", ADD, x, data)
        self._blame()
        return out

    def _bad_weight(self, x: str) -> str:
        weight = self._weight()
        self.program.state[weight][1:3] = math.nan
        self.program.foreign = weight
        out = self._op("MatMulV2", matmul, x, weight)
        self._blame()
        return out

    def _masked_row(self, x: str) -> str:
        hidden = np.zeros((SEQUENCE, SEQUENCE), dtype=bool)
        hidden[3] = True
        where = self._state("padding", hidden, "bool")
        masked = self._op("MaskedFill", masked_fill(-math.inf), x, where, masks="where")
        out = self._op("SoftmaxV2", softmax, masked)
        self._blame()
        return out

    def _limit(self, x: str) -> str:
        """An operator that clips, and what becomes of the limit further down."""
        limit = LIMIT[self.dtype]
        grown = self._op("Muls", times(limit / 3), self._op("Tanh", TANH, x))
        out = self._op("Quant", lambda v: np.clip(v[0] * 9, -limit, limit), grown)
        self._blame()
        if self.fault == "limit_hidden":
            out = self._op("Muls", times(0.5), out)
            out = self._op("Transpose", TRANSPOSE, out)
        return self._op("Mul", MUL, out, out)

    def _one_rank(self, x: str) -> str:
        """A scale that is too large on one rank only."""
        scale = self._state("scale", np.ones(SHAPE))
        huge = np.full(SHAPE, LIMIT[self.dtype] * 0.9)
        self.program.on_bad_rank[scale] = huge.astype(NUMPY[self.dtype])
        out = self._op("Mul", MUL, self._op("Muls", times(9.0), x), scale)
        self._blame()
        return out

    def _sent(self, x: str) -> str:
        """A value that overflows on the first rank, which sends it to the others."""
        out = self._one_rank(x)
        if self.fault == "broadcast":
            return self._exchange("HcomBroadcast", out, "broadcast")
        return self._exchange("HcomSend", out, "message")

    def _go_on(self, out: str, x: str) -> str:
        """Let the network go on from there, sometimes through an operator that hides the value."""
        kind = self.random.choice(("plain", "plain", "relu", "maximum", "less"))
        if self.fault in ("limit", "limit_hidden"):
            kind = "plain"
        if kind == "relu":
            out = self._op("Relu", RELU, out)
        elif kind == "maximum":
            out = self._op("Maximum", MAXIMUM, out, x)
        elif kind == "less":
            smaller = self._op("Less", LESS, out, x, dtype="bool")
            out = self._op("SelectV2", SELECT, smaller, out, x)
        return self._op("Add", ADD, x, out)

    def _forbid_overwriting(self) -> None:
        """Nothing is overwritten that somebody reads later."""
        read_later: set[str] = set()
        for instruction in reversed(self.program.instructions):
            if instruction.in_place is not None and instruction.writes not in instruction.reads:
                overwritten = instruction.reads[instruction.in_place]
                if overwritten in read_later or overwritten in self.program.state:
                    instruction.in_place = None
            read_later.update(instruction.reads)

    # --- order ---------------------------------------------------------------------------------

    def _shuffled(self) -> list[Instruction]:
        """An order drawn among those in which every operator reads what it should."""
        instructions = self.program.instructions
        before: list[set[int]] = []
        writer: dict[str, int] = {}
        readers: dict[str, list[int]] = {}
        memory: dict[str, str] = {}
        for number, instruction in enumerate(instructions):
            needs = {writer[name] for name in instruction.reads if name in writer}
            overwritten = None
            if instruction.in_place is not None:
                overwritten = memory.get(name := instruction.reads[instruction.in_place], name)
                needs |= {reader for reader in readers.get(overwritten, []) if reader != number}
            before.append(needs)
            for name in instruction.reads:
                readers.setdefault(memory.get(name, name), []).append(number)
            writer[instruction.writes] = number
            if overwritten is not None:
                memory[instruction.writes] = overwritten
            elif instruction.view_rows is not None:
                source = instruction.reads[0]
                memory[instruction.writes] = memory.get(source, source)
        return self._draw(before)

    def _draw(self, before: Sequence[set[int]]) -> list[Instruction]:
        instructions = self.program.instructions
        left = [set(needs) for needs in before]
        waiting = set(range(len(instructions)))
        order = []
        while waiting:
            ready = sorted(number for number in waiting if not left[number])
            number = self.random.choice(ready[:6])
            waiting.discard(number)
            order.append(instructions[number])
            for needs in left:
                needs.discard(number)
        return order
