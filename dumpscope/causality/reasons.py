"""The facts behind a verdict, as the parameters of one sentence. words.py puts them into words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dumpscope.causality.inputs import InputState
from dumpscope.causality.losses import Lost
from dumpscope.dtypes import dtype_named
from dumpscope.model import Evidence, OpRecord, OverflowFinding, Reason, TensorSummary
from dumpscope.ranks.parallelism import format_ranks
from dumpscope.records import record
from dumpscope.rules import Rule, is_one_sided

__all__ = ["Because", "build_reason"]

_FLAGS = {
    "padding_included": "padding_included",
    "count_at_least": "at_least",
    "seen_at_consumer": "seen_at_consumer",
}
"""Notes on a tensor that the sentence about it has to tell."""

_Parameters = dict[str, "str | int | float | bool | None"]


@record(frozen=False, slots=True)
class Because:
    """What a verdict rests on, beside the tensor that decided it; filled in as it is found.

    Attributes
    ----------
    inputs
        What is known of each input.
    producer, evidence
        Who made the bad value, or wrote the tensor, and what says so.
    ranks, absent, unread
        Those that sent it, that are not in the dump, and whose inputs are not known.
    sender
        What the first of `ranks` ran to send it.
    through
        The earlier exchange, without dumped results, that it came in through.
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
    lost
        What could not be read and may have made what was read.
    """

    op: OpRecord
    inputs: Sequence[InputState] = ()
    producer: OpRecord | None = None
    evidence: Evidence | None = None
    ranks: tuple[int, ...] = ()
    absent: tuple[int, ...] = ()
    unread: tuple[int, ...] = ()
    sender: OpRecord | None = None
    through: OpRecord | None = None
    contradiction: OpRecord | None = None
    foreign: InputState | None = None
    seen_before: int | None = None
    maybe_mask: bool = False
    expected_by: Rule | None = None
    lost: Lost | None = None

    def blame(self, producer: OpRecord | None, evidence: Evidence | None) -> None:
        """Say who made the bad value, or wrote the tensor, and what says so."""
        self.producer = producer
        self.evidence = evidence

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
    code: str,
    tensor: TensorSummary | None,
    because: Because,
    overflow: OverflowFinding | None,
    *,
    counted: bool = False,
) -> Reason:
    """Collect the numbers that the sentence of `code` may use.

    `counted` says that they come from statistics which the dump was written with.
    """
    op = because.op
    parameters: _Parameters = {
        "op_type": op.op_type,
        "op_name": op.op_name,
        "step": op.step,
        "device": op.device,
        "task_id": op.task_id,
        "stream_id": op.stream_id,
        "inputs": 0,
        "max_input": None,
        "evidence": because.evidence or "own_inputs",
    }
    if counted:
        parameters["from_statistics"] = True
    if tensor is None:
        parameters["unseen"] = True
    else:
        _describe_tensor(tensor, because, parameters)
    _describe_inputs(because.inputs, parameters)
    if because.expected_by is not None:
        rule = because.expected_by
        parameters.update(
            expected_rule=rule.name, expected_why=rule.reason, expected_why_zh=rule.reason_zh
        )
    producer = because.producer
    if producer is not None:
        parameters["producer"] = producer.op_name
        parameters["producer_type"] = producer.op_type
        if producer.step != op.step and producer.step is not None:
            parameters["producer_step"] = producer.step
    if because.contradiction is not None:
        parameters["contradicts"] = because.contradiction.op_name or because.contradiction.op_type
    for name in ("ranks", "absent", "unread"):
        ranks: tuple[int, ...] = getattr(because, name)
        if ranks:
            parameters[name] = format_ranks(ranks)
    through = because.through
    if through is not None:
        parameters["through"] = f"{through.op_type} {through.op_name}".strip()
    if because.foreign is not None and because.foreign.source:
        parameters["source"] = because.foreign.source
    if because.seen_before is not None:
        parameters["seen_before"] = because.seen_before
    if because.lost is not None:
        parameters.update(lost=because.lost.count, lost_name=because.lost.name)
    if code == "bad_input" and not op.outputs:
        parameters["inputs_only"] = True
    if overflow is not None:
        parameters["hardware"] = ", ".join(overflow.bits) or " ".join(
            f"0x{word:x}" for word in overflow.status
        )
        parameters["kind"] = overflow.kind
    return Reason(code, parameters)


def _describe_inputs(states: Sequence[InputState], parameters: _Parameters) -> None:
    """How many inputs are known, the largest finite magnitude, and which of them is a mask."""
    known = 0
    largest: float | None = None
    seen = True
    for state in states:
        if state.kind == "absent":
            continue
        stats = state.tensor.stats
        # Known to be finite by its producer: the values it has here came later, or are not all.
        seen = seen and not (state.kind == "finite" and _is_other(state.tensor))
        if state.kind in ("finite", "expected") and (state.own or state.evidence is None):
            known += 1
        if state.kind == "expected" and "index_in" not in parameters:
            parameters["index_in"] = state.tensor.index
        for value in (stats.min, stats.max):
            if value is not None and (largest is None or abs(value) > largest):
                largest = abs(float(value))
    parameters["inputs"] = known
    parameters["max_input"] = largest if seen else None


def _is_other(tensor: TensorSummary) -> bool:
    return bool(tensor.stats.nonfinite or tensor.missing_bytes or not tensor.checked)


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
    if because.maybe_mask and is_one_sided(tensor):
        parameters["maybe_mask"] = True
    if tensor.notes:
        parameters.update((flag, True) for note, flag in _FLAGS.items() if note in tensor.notes)
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
