"""The facts behind a verdict, as the parameters of one sentence. words.py puts them into words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dumpscope.causality.inputs import InputState
from dumpscope.dtypes import dtype_named
from dumpscope.model import Evidence, OpRecord, OverflowFinding, Reason, TensorSummary
from dumpscope.ranks.parallelism import format_ranks
from dumpscope.rules import Rule, is_one_sided

__all__ = ["Because", "build_reason"]

_Parameters = dict[str, "str | int | float | bool | None"]


@dataclass(frozen=True, slots=True)
class Because:
    """What a verdict rests on, beside the tensor that decided it.

    Attributes
    ----------
    inputs
        What is known of each input.
    producer, evidence
        Who made the bad value, or wrote the tensor, and what says so.
    ranks, absent, unread
        Those that sent it, that are not in the dump, and whose inputs are not known.
    contradiction
        Who made it according to weaker evidence.
    foreign
        The input that nothing in the dump has made.
    seen_before
        The latest earlier step in which something of the rank was bad.
    maybe_mask
        Whether a one-sided constant may be there on purpose.
    expected_by
        The rule by which the bad values that were read are expected.
    """

    op: OpRecord
    inputs: Sequence[InputState] = ()
    producer: OpRecord | None = None
    evidence: Evidence | None = None
    ranks: tuple[int, ...] = ()
    absent: tuple[int, ...] = ()
    unread: tuple[int, ...] = ()
    contradiction: OpRecord | None = None
    foreign: InputState | None = None
    seen_before: int | None = None
    maybe_mask: bool = False
    expected_by: Rule | None = None

    def evidence_of_inputs(self) -> Iterator[Evidence]:
        """All that was used to know the inputs."""
        if self.evidence is not None:
            yield self.evidence
        own = [s for s in self.inputs if s.own and s.kind in ("finite", "expected", "bad")]
        if own or self.evidence is None:
            yield "own_inputs"
        for state in self.inputs:
            if state.kind in ("finite", "expected") and state.evidence is not None:
                yield state.evidence


def build_reason(
    code: str, tensor: TensorSummary | None, because: Because, overflow: OverflowFinding | None
) -> Reason:
    """Collect the numbers that the sentence of `code` may use."""
    op = because.op
    known = [
        s
        for s in because.inputs
        if s.kind in ("finite", "expected") and (s.own or s.evidence is None)
    ]
    parameters: _Parameters = {
        "op_type": op.op_type,
        "op_name": op.op_name,
        "step": op.step,
        "device": op.device,
        "task_id": op.task_id,
        "stream_id": op.stream_id,
        "inputs": len(known),
        "max_input": _largest(because.inputs),
        "evidence": because.evidence or "own_inputs",
    }
    if any(t.from_statistics for t in op.tensors):
        parameters["from_statistics"] = True
    if tensor is not None:
        _describe_tensor(tensor, because, parameters)
    expected = next((s.tensor.index for s in because.inputs if s.kind == "expected"), None)
    if expected is not None:
        parameters["index_in"] = expected
    if because.expected_by is not None:
        rule = because.expected_by
        parameters.update(
            expected_rule=rule.name, expected_why=rule.reason, expected_why_zh=rule.reason_zh
        )
    if because.producer is not None:
        parameters["producer"] = because.producer.op_name
        parameters["producer_type"] = because.producer.op_type
        if because.producer.step != op.step and because.producer.step is not None:
            parameters["producer_step"] = because.producer.step
    if because.contradiction is not None:
        parameters["contradicts"] = because.contradiction.op_name or because.contradiction.op_type
    for name in ("ranks", "absent", "unread"):
        ranks: tuple[int, ...] = getattr(because, name)
        if ranks:
            parameters[name] = format_ranks(ranks)
    if because.foreign is not None and because.foreign.source:
        parameters["source"] = because.foreign.source
    if because.seen_before is not None:
        parameters["seen_before"] = because.seen_before
    if code == "bad_input" and not op.outputs:
        parameters["inputs_only"] = True
    if overflow is not None:
        parameters["hardware"] = ", ".join(overflow.bits) or " ".join(
            f"0x{word:x}" for word in overflow.status
        )
        parameters["kind"] = overflow.kind
    return Reason(code, parameters)


def _describe_tensor(tensor: TensorSummary, because: Because, parameters: _Parameters) -> None:
    """What is wrong with the tensor that decided, and where."""
    stats = tensor.stats
    parameters.update(
        role=tensor.role,
        index=tensor.index,
        dtype=tensor.dtype,
        nan=stats.nan,
        posinf=stats.posinf,
        neginf=stats.neginf,
        saturated=stats.saturated,
        total=stats.count,
        limit=dtype_named(tensor.dtype).limit,
    )
    flags = {
        "maybe_mask": because.maybe_mask and is_one_sided(tensor),
        "padding_included": "padding_included" in tensor.notes,
        "at_least": "count_at_least" in tensor.notes,
        "seen_at_consumer": "seen_at_consumer" in tensor.notes,
    }
    parameters.update((name, True) for name, holds in flags.items() if holds)
    if tensor.name:
        parameters["tensor_name"] = tensor.name
    band = _find_band(tensor)
    if band is not None:
        names = ("band_axis", "band_axes", "band_first", "band_last")
        parameters.update(zip(names, band, strict=True))


def _find_band(tensor: TensorSummary) -> tuple[int, int, int, int] | None:
    """Axis, number of axes, first and last index of a band that holds all bad values.

    `None` unless their box is the whole tensor but along one axis of several.
    """
    box = tensor.stats.bad_box
    shape = tensor.shape
    if box is None or len(box) != len(shape) or sum(size > 1 for size in shape) < 2:
        return None
    cut = [
        axis
        for axis, ((first, last), size) in enumerate(zip(box, shape, strict=True))
        if last - first + 1 < size
    ]
    if len(cut) != 1:
        return None
    return (cut[0], len(shape), *box[cut[0]])


def _largest(inputs: Sequence[InputState]) -> float | None:
    """The largest finite magnitude among the inputs, where it is known."""
    largest: float | None = None
    for state in inputs:
        for value in (state.tensor.stats.min, state.tensor.stats.max):
            if value is not None and (largest is None or abs(value) > largest):
                largest = abs(float(value))
    return largest
