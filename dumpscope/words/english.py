"""Reasons in English: one function per code, each a sentence without the final stop.

A parameter that is missing shortens the sentence; it never makes it wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from dumpscope.words.facts import (
    Facts,
    format_count,
    format_number,
    list_kinds,
    name_operator,
    normalises_rows,
    tell_name,
)

__all__ = ["SENTENCES", "SUFFIXES", "describe_counts", "join_sentences", "render_rest"]

_KIND = {"nan": "NaN", "posinf": "+Inf", "neginf": "-Inf", "saturated": "at the limit"}

_EVIDENCE = {
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
        first = _has(facts, role)
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


def _has(facts: Facts, fallback: str = "output") -> str:
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


def _inputs_are(facts: Facts, state: str = "finite") -> str:
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
        return f"what its producers wrote is {state} ({_EVIDENCE[evidence]})"
    if evidence == "order":
        return "no earlier operator of this rank and step did (by order of execution alone)"
    return "no input of it is known to be bad"


def _kinds(facts: Facts) -> str:
    infinite = facts.amount("posinf") or facts.amount("neginf")
    names = (["NaN"] if facts.amount("nan") else []) + (["Inf"] if infinite else [])
    return _join(names) if names else "non-finite values"


def _made_here(facts: Facts) -> str:
    words = f"the operator itself produced the {_kinds(facts)}"
    limit = facts.number("limit")
    if facts.amount("posinf") and limit is not None:
        words += f" ({facts.text('dtype') or 'its dtype'} ends at {format_number(limit)})"
    return words


def _hardware(facts: Facts) -> str:
    return facts.text("hardware") or facts.text("kind") or "overflow status"


def _producer(facts: Facts) -> str:
    name, step = name_operator(facts, "producer_type", "producer"), facts.count("producer_step")
    return name if step is None or not name else f"{name} of step {step}"


def _origin(facts: Facts) -> str:
    return f"{_has(facts)} while {_inputs_are(facts)}: {_made_here(facts)}"


def _origin_confirmed(facts: Facts) -> str:
    return f"{_origin(facts)}; the hardware confirms it ({_hardware(facts)})"


def _origin_generator(facts: Facts) -> str:
    return f"{_has(facts)} and the operator has no inputs: it generates these values itself"


def _origin_mask(facts: Facts) -> str:
    index = facts.count("index_in")
    mask = "an input" if index is None else f"input {index}"
    made = "computing with it, the operator itself produced these"
    if normalises_rows(facts):
        made = "a row that is masked completely turns into NaN in this operator"
    return (
        f"{_has(facts)}; the only non-finite values it read are the mask constant in {mask}: {made}"
    )


def _origin_expected(facts: Facts) -> str:
    index = facts.count("index_in")
    read = "an input" if index is None else f"input {index}"
    why = facts.text("expected_why") or facts.text("expected_rule")
    told = f" ({why})" if why else ""
    return (
        f"{_has(facts)}; the only bad values it read are in {read}, where a rule expects them"
        f"{told}: this operator was the first to compute with them"
    )


def _status_origin(facts: Facts) -> str:
    return (
        f"the hardware flagged an overflow in this operator ({_hardware(facts)}); "
        f"{_inputs_are(facts)} and its outputs show neither NaN, Inf nor saturated values: "
        "status only"
    )


def _status_origin_not_dumped(facts: Facts) -> str:
    ids = [
        f"{name} {value}"
        for name, value in (
            ("task", facts.count("task_id")),
            ("stream", facts.count("stream_id")),
        )
        if value is not None
    ]
    where = f" (the record names {', '.join(ids)})" if ids else ""
    return (
        f"the hardware flagged an overflow ({_hardware(facts)}) in an operator that was not "
        f"dumped{where}: status only"
    )


def _saturated_origin(facts: Facts) -> str:
    inputs = _inputs_are(facts, "below the limit")
    return f"{_has(facts)} while {inputs}: the operator itself saturated"


def _saturated_origin_confirmed(facts: Facts) -> str:
    return f"{_saturated_origin(facts)}; the hardware confirms it ({_hardware(facts)})"


def _bad_input(facts: Facts) -> str:
    return (
        f"{_has(facts, 'input')} and nothing in {_where_sought(facts)} produced it: "
        f"{_older_trouble(facts)}"
    )


def _where_sought(facts: Facts) -> str:
    sought = "the dump" if facts.number("seen_before") is None else "this step"
    return f"what could be read of {sought}" if facts.amount("lost") else sought


def _older_trouble(facts: Facts) -> str:
    earlier, source = facts.number("seen_before"), facts.text("source")
    handed = f"{source} hands it in from outside of the graph, " if source else ""
    if earlier is None:
        older = "the trouble is older than the dump (data, weights or an earlier step)"
        places = [] if source else ["in an operator that was not dumped"]
        places += ["in what could not be read"] if facts.amount("lost") else []
        older += f", or lies {' or '.join(places)}" if places else ""
        return f"{handed}and {older}" if source else older
    bad = f"step {earlier:.0f} of this rank was bad already"
    return f"{handed}and {bad}" if source else f"it came from before, and {bad}"


def _lost(facts: Facts) -> str:
    many = facts.amount("lost") != 1
    name = facts.text("lost_name")
    told = f"{', the last of them' if many else ','} {name}," if name else ""
    return (
        f"{format_count(facts.amount('lost'))} {'operators' if many else 'operator'} before it on "
        f"this rank and step{told} could not be read and may be the one at fault"
    )


def _bad_input_source(facts: Facts) -> str:
    return (
        f"{_has(facts)} and this operator only hands in data, constants or weights: they were bad "
        "before the network ran"
    )


def _received(facts: Facts) -> str:
    ranks, through = facts.text("ranks"), facts.text("through")
    if through:
        return (
            f"{_has(facts, 'input')}; {through} before it, whose result was not dumped, was given "
            f"bad values by {_ranks(ranks)}: they came in through it (by order of execution alone)"
        )
    absent, unread = facts.text("absent"), facts.text("unread")
    if ranks:
        source = f"from {_ranks(ranks)}"
    elif unread and not absent:
        source = f"from {_ranks(unread)}, whose inputs could not be checked"
    else:
        source = "most likely from a rank that is not in the dump"
        source += f" (missing: {_ranks(absent)})" if absent else ""
    own = ""
    if facts.count("inputs") != 0:
        own = "this rank's own inputs of the communication operator are finite: "
    return f"{_has(facts)}; {own}the bad values came {source}"


def _ranks(numbers: str) -> str:
    return f"rank{'s' if ',' in numbers or '-' in numbers else ''} {numbers}"


def _handoff(facts: Facts) -> str:
    return (
        f"{_has(facts, 'input')}, but {_producer(facts) or 'its producer'} wrote a clean tensor of "
        "the same shape, dtype and layout there: the memory was overwritten in between, or an "
        "operator that was not dumped wrote to it"
    )


def _unknown_inputs(facts: Facts) -> str:
    return (
        f"{_has(facts)}; its inputs were not dumped or could not all be checked, and no producer "
        "was found: only the order of execution speaks for this place"
    )


def _propagated(facts: Facts) -> str:
    if facts.text("evidence") == "order":
        return (
            f"{_has(facts)}; an earlier operator of this rank and step"
            f"{_named(facts)} was non-finite already (by order of execution alone)"
        )
    link = _EVIDENCE.get(facts.text("evidence"), "")
    link = f" ({link})" if link else ""
    producer = _producer(facts)
    made = f" that {producer} produced" if producer else ""
    if facts.text("role") == "input":
        return f"{_has(facts)}{made}{link}: passed on, not made here"
    return f"{_has(facts)}, but it read non-finite values{made}{link}"


def _propagated_inside(facts: Facts) -> str:
    producer = _producer(facts) or "an operator"
    return f"{_has(facts)}; they were made inside this module, by {producer}: see there"


def _named(facts: Facts) -> str:
    producer = _producer(facts)
    return f" ({producer})" if producer else ""


def _swallowed(facts: Facts) -> str:
    return f"{_has(facts, 'input')} and all outputs are finite: the operator hides them"


def _expected(facts: Facts) -> str:
    why, rule = facts.text("why"), facts.text("rule")
    told = "; ".join(w for w in (why, f"rule {rule}" if rule else "") if w)
    return f"{_has(facts)}, on purpose" + (f": {told}" if told else "")


SENTENCES: Mapping[str, Callable[[Facts], str]] = MappingProxyType(
    {
        "origin": _origin,
        "origin_confirmed": _origin_confirmed,
        "origin_generator": _origin_generator,
        "origin_mask": _origin_mask,
        "origin_expected": _origin_expected,
        "status_origin": _status_origin,
        "status_origin_not_dumped": _status_origin_not_dumped,
        "saturated_origin": _saturated_origin,
        "saturated_origin_confirmed": _saturated_origin_confirmed,
        "bad_input": _bad_input,
        "bad_input_source": _bad_input_source,
        "received": _received,
        "handoff": _handoff,
        "unknown_inputs": _unknown_inputs,
        "propagated": _propagated,
        "propagated_inside": _propagated_inside,
        "swallowed": _swallowed,
        "expected": _expected,
    }
)


def _band(facts: Facts) -> str:
    """Say that all bad values lie in a band along one axis: "rows 900-1023"."""
    axis, axes = facts.count("band_axis"), facts.count("band_axes")
    first, last = facts.count("band_first"), facts.count("band_last")
    if axis is None or first is None or last is None:
        return ""
    span = str(first) if first == last else f"{first}-{last}"
    if axes == 2 and axis in (0, 1):
        name = ("row", "column")[axis] + ("" if first == last else "s")
        return f"all of them are in {name} {span}"
    name = "index" if first == last else "indices"
    return f"all of them are at {name} {span} of axis {axis}" + (f" of {axes}" if axes else "")


SUFFIXES: Mapping[str, Callable[[Facts], str]] = MappingProxyType(
    {
        "band_axis": _band,
        "seen_at_consumer": lambda _: (
            "its output was not dumped or could not be read: judged by what the operator that read "
            "it was given"
        ),
        "lost": _lost,
        "inputs_only": lambda _: (
            "none of its outputs was dumped: in a dump of inputs alone, the operator that wrote "
            "this input may be the one at fault"
        ),
        "contradicts": lambda facts: (
            f"weaker evidence names another producer: {facts.text('contradicts')}"
        ),
        "maybe_mask": lambda _: "it may be a mask: -Inf is the only such value in it",
        "loss_scale": lambda _: "a loss-scale check is in the dump: it would skip this step",
        "from_statistics": lambda _: (
            "judged by statistics that the dump brought along, not by values"
        ),
        "padding_included": lambda _: "the count may include padding of the blocked layout",
    }
)
