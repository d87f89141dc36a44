"""Short texts for the operators of a trace: names, places, counts, verdicts.

Everything that comes out of a dump is made printable here, once, for all forms of a trace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from dumpscope.causality.dataflow import lane_of
from dumpscope.causality.inputs import is_saturated
from dumpscope.model import Finding, OpRecord, TensorSummary, Verdict
from dumpscope.safetext import make_printable
from dumpscope.tracing.folding import count_types
from dumpscope.tracing.trace import Node, Outside, Trace
from dumpscope.words import format_count, label
from dumpscope.words.tracing import format_duration, format_ranges, trace_word

__all__ = [
    "count_bad",
    "deciding_tensor",
    "describe_beginning",
    "describe_followers",
    "describe_members",
    "describe_node",
    "describe_types",
    "describe_where",
    "first_times",
    "group_outside",
    "name_evidence",
    "name_op",
    "name_ranks",
    "name_steps",
    "name_turn",
    "name_verdict",
    "since_first",
    "split_name",
]

_MOST_TYPES = 4
_LONGEST_RANKS = 24


def name_op(op: OpRecord) -> str:
    """Return type and name, the name alone where it tells the type; never empty."""
    kind, name = split_name(op)
    if name and kind.lower() not in name.lower():
        return f"{kind} {name}".strip()
    return name or kind


def split_name(op: OpRecord) -> tuple[str, str]:
    """Return type and name of an operator; of one that was not dumped, the file that tells."""
    kind, name = make_printable(op.op_type), make_printable(op.op_name)
    if not kind.strip() and not name.strip():
        name = make_printable(op.file.rpartition("/")[2]) or "?"
    return kind, name


def name_verdict(node: Node, lang: str = "en") -> str:
    if node.verdict is not None:
        return label(node.verdict.value, lang)
    saturated = any(is_saturated(tensor) for tensor in node.op.outputs)
    return trace_word("passing" if saturated else "clean", lang)


def name_turn(node: Node, lang: str = "en") -> str:
    """Say what the bad value has become in the node where it turned into something worse."""
    nan = any(tensor.stats.nan for tensor in node.op.outputs)
    return trace_word("turns_nan" if nan else "turns_inf", lang)


def name_evidence(evidence: str, lang: str = "en") -> str:
    return trace_word(f"edge_{evidence}", lang)


def name_ranks(devices: Iterable[int | None], lang: str = "en", longest: int = 0) -> str:
    """Name ranks, by their number where the list would be longer than `longest` characters."""
    numbers = {device for device in devices if device is not None}
    if not numbers:
        return trace_word("no_rank", lang)
    if len(numbers) == 1:
        return trace_word("rank", lang, number=min(numbers))
    ranges = format_ranges(numbers)
    if len(ranges) > (longest or _LONGEST_RANKS):
        return trace_word("rank_count", lang, count=len(numbers))
    return trace_word("ranks", lang, numbers=ranges)


def name_steps(steps: Iterable[int | None], lang: str = "en") -> str:
    numbers = {step for step in steps if step is not None}
    if not numbers:
        return trace_word("no_steps", lang)
    if len(numbers) == 1:
        return trace_word("step", lang, number=min(numbers))
    ranges = format_ranges(numbers)
    if len(ranges) > _LONGEST_RANKS:
        ranges = f"{min(numbers)}…{max(numbers)}"
    return trace_word("steps", lang, numbers=ranges)


def count_bad(node: Node, lang: str = "en") -> str:
    """Return what is bad in the tensor that decided: "513/2,048 +Inf"."""
    tensor = deciding_tensor(node)
    if tensor is None:
        return ""
    stats = tensor.stats
    kinds = ((stats.nan, "NaN"), (stats.posinf, "+Inf"), (stats.neginf, "-Inf"))
    found = [(count, kind) for count, kind in kinds if count]
    if not found and stats.saturated:
        found = [(stats.saturated, trace_word("at_limit", lang))]
    if len(found) == 1 and stats.count:
        least = "≥" if "count_at_least" in tensor.notes else ""
        return f"{least}{format_count(found[0][0])}/{format_count(stats.count)} {found[0][1]}"
    return " ".join(f"{format_count(count)} {kind}" for count, kind in found)


def deciding_tensor(node: Node) -> TensorSummary | None:
    finding, tensors = node.finding, node.op.tensors
    if finding is not None and finding.deciding is not None and finding.deciding < len(tensors):
        return tensors[finding.deciding]
    return next((t for t in node.op.outputs if t.stats.nonfinite or t.stats.saturated), None)


def describe_followers(trace: Trace, members: Sequence[int], lang: str = "en") -> str:
    """Say what is counted: "… 37 operators that only follow (MatMulV2 12, Add 8, …)"."""
    key = "follow_one" if len(members) == 1 else "follow"
    words = trace_word(key, lang, count=len(members), types=describe_types(trace, members))
    return words + describe_members(trace, members, lang)


def describe_members(trace: Trace, members: Iterable[int], lang: str = "en") -> str:
    """Say which of the counted ones do more than hand it on: "; 2 swallow it"."""
    counted = Counter(trace.nodes[number].verdict for number in members)
    words = [
        trace_word(key, lang, count=counted[verdict])
        for verdict, key in (
            (Verdict.RECEIVED, "received_count"),
            (Verdict.SWALLOWED, "swallowed_count"),
            (Verdict.EXPECTED, "expected_count"),
        )
        if counted[verdict]
    ]
    return "".join(trace_word("of_which", lang, words=word) for word in words)


def describe_types(trace: Trace, members: Iterable[int], most: int = _MOST_TYPES) -> str:
    """Count operators by type: "MatMulV2 12, Add 8, …"."""
    types = count_types(trace, members)
    words = [f"{make_printable(kind) or '?'} {format_count(count)}" for kind, count in types[:most]]
    return ", ".join(words) + (", …" if len(types) > most else "")


def group_outside(outside: Iterable[Outside]) -> list[tuple[list[Finding], int]]:
    """Put beginnings together that are the same on several ranks, with what grew out of them."""
    groups: dict[tuple[object, ...], tuple[list[Finding], list[int]]] = {}
    for entry in outside:
        finding = entry.finding
        op = finding.op
        key = (finding.verdict, op.op_type, op.op_name, op.step, op.place.run)
        findings, followers = groups.setdefault(key, ([], []))
        findings.append(finding)
        followers.append(entry.followers)
    return [(findings, sum(followers)) for findings, followers in groups.values()]


def describe_beginning(findings: Sequence[Finding], followers: int, lang: str = "en") -> str:
    """Say where something else began: "#3 bad input network/fc1 (step 2, ranks 0-7; …)"."""
    first = findings[0]
    grown = ""
    if followers:
        key = "followers" if len(findings) == 1 else "followers_each"
        grown = trace_word(key, lang, count=followers)
    where = describe_where((first.op.step,), (f.op.device for f in findings), lang, grown)
    return f"#{first.rank} {label(first.verdict.value, lang)} {name_op(first.op)}{where}"


def describe_node(node: Node, lang: str = "en") -> str:
    """Name one execution with its place: "#1 origin network/Mul (step 1, rank 3)"."""
    finding, op = node.finding, node.op
    if finding is not None and finding.rank is not None:
        return describe_beginning((finding,), 0, lang)
    return (
        f"{name_verdict(node, lang)} {name_op(op)}{describe_where((op.step,), (op.device,), lang)}"
    )


def describe_where(
    steps: Iterable[int | None], devices: Iterable[int | None], lang: str = "en", more: str = ""
) -> str:
    """Name step and ranks in brackets."""
    words = [name_steps(steps, lang), name_ranks(devices, lang)]
    if lang.startswith("zh"):
        return f"（{'，'.join(words)}{'；' + more if more else ''}）"
    return f" ({', '.join(words)}{'; ' + more if more else ''})"


def first_times(trace: Trace) -> dict[object, int]:
    """Return when the first operator of each rank started, in ns of its own clock."""
    first: dict[object, int] = {}
    for node in trace.nodes:
        if node.op.start_ns is not None and node.part != "expected":
            lane = lane_of(node.op)
            first[lane] = min(first.get(lane, node.op.start_ns), node.op.start_ns)
    return first


def since_first(node: Node, begun: dict[object, int]) -> str:
    """Return how long after the first bad operator of its rank a node ran, "" without times."""
    start = begun.get(lane_of(node.op))
    if start is None or node.op.start_ns is None:
        return ""
    elapsed = node.op.start_ns - start
    return ("+" if elapsed >= 0 else "") + format_duration(elapsed)
