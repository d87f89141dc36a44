"""The parts that English reasons are put together from: tensors, inputs, producers."""

from __future__ import annotations

from dumpscope.words.facts import (
    Facts,
    format_count,
    format_number,
    list_kinds,
    name_operator,
    tell_name,
)

__all__ = [
    "EVIDENCE",
    "describe_counts",
    "has",
    "join_sentences",
    "render_rest",
    "tell_hardware",
    "tell_inputs",
    "tell_made_here",
    "tell_producer",
]

_KIND = {"nan": "NaN", "posinf": "+Inf", "neginf": "-Inf", "saturated": "at the limit"}

EVIDENCE = {
    "own_inputs": "seen in its own dumped inputs",
    "graph": "linked by an edge of the graph",
    "address": "linked by the device address",
    "bytes": "linked by equal bytes",
    "status": "said by the hardware status",
    "statistics": "said by statistics",
}


def describe_counts(facts: Facts) -> str:
    """Return what is bad in the deciding tensor: "513 +Inf of 2,048 float16"."""
    dtype, total, found = facts.text("dtype"), facts.amount("total"), list_kinds(facts)
    if not found:
        return f"non-finite {dtype}".strip()
    if len(found) == 1 and found[0][0] == total and total > 1:
        return f"all {format_count(total)} {dtype} are {_KIND[found[0][1]]}".replace("  ", " ")
    of_whole = f"of {format_count(total)} {dtype}" if total else dtype
    if found[0][1] == "saturated":
        words = f"{_at_least(facts)}{format_count(found[0][0])} {of_whole}".strip()
        return f"{words} at the limit".strip()
    words = _at_least(facts) + _join([f"{format_count(n)} {_KIND[kind]}" for n, kind in found])
    return f"{words} {of_whole}".strip()


def render_rest(facts: Facts, sentence: str) -> str:
    """Return a sentence without its first part, which says what is bad."""
    for role in ("output", "input"):
        first = has(facts, role)
        if sentence.startswith(first):
            rest = sentence[len(first) :].lstrip(" ,;:")
            for word in ("while ", "but ", "and "):
                rest = rest.removeprefix(word)
            return rest
    return sentence


def join_sentences(sentences: list[str]) -> str:
    """Put sentences together: a capital at the start of each, a full stop at its end."""
    return " ".join(s[:1].upper() + s[1:] + "." for s in sentences if s)


def _join(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _slot(facts: Facts, fallback: str = "output") -> str:
    role, index = facts.text("role") or fallback, facts.count("index")
    name = tell_name(facts)
    named = f" ({name})" if name else ""
    return f"an {role}{named}" if index is None else f"{role} {index}{named}"


def has(facts: Facts, fallback: str = "output") -> str:
    """Say which tensor has what: "output 0 has 513 +Inf of 2,048 float16 elements"."""
    slot, found, total = _slot(facts, fallback), list_kinds(facts), facts.amount("total")
    if not found:
        return f"{slot} has non-finite values"
    dtype = facts.text("dtype")
    whole = f"{format_count(total)} {dtype} elements".replace("  ", " ")
    at_limit = f"at the limit{_limit(facts, ' of ')}"
    saturated = found[0][1] == "saturated"
    if len(found) == 1 and found[0][0] == total and total > 1:
        return f"all {whole} of {slot} are {at_limit if saturated else _KIND[found[0][1]]}"
    tail = f" of {whole}" if total else f" {dtype} values"
    if saturated:
        words = f"{format_count(found[0][0])}{tail} {at_limit}"
    else:
        words = _join([f"{format_count(n)} {_KIND[kind]}" for n, kind in found]) + tail
    return f"{slot} has {_at_least(facts)}{words}".replace("  ", " ")


def _at_least(facts: Facts) -> str:
    """Statistics of another tool may tell that there are some, not how many."""
    return "at least " if facts.flag("at_least") else ""


def _limit(facts: Facts, before: str) -> str:
    limit = facts.number("limit")
    return "" if limit is None else before + format_number(limit)


def tell_inputs(facts: Facts, state: str = "finite") -> str:
    count, largest = facts.count("inputs"), facts.number("max_input")
    if count is None:
        words = f"all its inputs are {state}"
    elif count < 1:
        return _no_inputs_are(facts, state)
    elif count == 1:
        words = f"its input is {state}"
    elif count == 2:
        words = f"both inputs are {state}"
    else:
        words = f"all {format_count(count)} inputs are {state}"
    return words if largest is None else f"{words} (largest |x| {format_number(largest)})"


def _no_inputs_are(facts: Facts, state: str) -> str:
    """Say what is known when none of the operator's own inputs could be looked at."""
    evidence = facts.text("evidence")
    if evidence in {"graph", "address", "bytes"}:
        return f"what its producers wrote is {state} ({EVIDENCE[evidence]})"
    if evidence == "order":
        return "no earlier operator of this rank and step did (by order of execution alone)"
    return "no input of it is known to be bad"


def _kinds(facts: Facts) -> str:
    infinite = facts.amount("posinf") or facts.amount("neginf")
    names = (["NaN"] if facts.amount("nan") else []) + (["Inf"] if infinite else [])
    return _join(names) if names else "non-finite values"


def tell_made_here(facts: Facts) -> str:
    words = f"the operator itself produced the {_kinds(facts)}"
    limit = facts.number("limit")
    if facts.amount("posinf") and limit is not None:
        words += f" ({facts.text('dtype') or 'its dtype'} ends at {format_number(limit)})"
    return words


def tell_hardware(facts: Facts) -> str:
    return facts.text("hardware") or facts.text("kind") or "overflow status"


def tell_producer(facts: Facts) -> str:
    name, step = name_operator(facts, "producer_type", "producer"), facts.count("producer_step")
    return name if step is None or not name else f"{name} of step {step}"
