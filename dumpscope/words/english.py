"""Reasons in English: one function per code, each a sentence without the final stop.

A parameter that is missing shortens the sentence; it never makes it wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from dumpscope.words.english_phrases import (
    EVIDENCE,
    describe_counts,
    has,
    join_sentences,
    render_rest,
    tell_hardware,
    tell_inputs,
    tell_made_here,
    tell_producer,
)
from dumpscope.words.facts import Facts, format_count, normalises_rows

__all__ = ["SENTENCES", "SUFFIXES", "describe_counts", "join_sentences", "render_rest"]


def _origin(facts: Facts) -> str:
    return f"{has(facts)} while {tell_inputs(facts)}: {tell_made_here(facts)}"


def _origin_confirmed(facts: Facts) -> str:
    return f"{_origin(facts)}; the hardware confirms it ({tell_hardware(facts)})"


def _origin_generator(facts: Facts) -> str:
    return f"{has(facts)} and the operator has no inputs: it generates these values itself"


def _origin_mask(facts: Facts) -> str:
    index = facts.count("index_in")
    mask = "an input" if index is None else f"input {index}"
    made = "computing with it, the operator itself produced these"
    if normalises_rows(facts):
        made = "a row that is masked completely turns into NaN in this operator"
    return (
        f"{has(facts)}; the only non-finite values it read are the mask constant in {mask}: {made}"
    )


def _origin_expected(facts: Facts) -> str:
    index = facts.count("index_in")
    read = "an input" if index is None else f"input {index}"
    why = facts.text("expected_why") or facts.text("expected_rule")
    told = f" ({why})" if why else ""
    return (
        f"{has(facts)}; the only bad values it read are in {read}, where a rule expects them"
        f"{told}: this operator was the first to compute with them"
    )


def _status_origin(facts: Facts) -> str:
    flagged = f"the hardware flagged an overflow in this operator ({tell_hardware(facts)})"
    if facts.flag("unseen"):
        shown = "its outputs were not dumped or could not be checked"
    elif facts.amount("saturated"):
        shown = f"{has(facts)}, which may have come from there"
    else:
        shown = "its outputs show neither NaN, Inf nor saturated values"
    return f"{flagged}; {tell_inputs(facts)} and {shown}: status only"


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
        f"the hardware flagged an overflow ({tell_hardware(facts)}) in an operator that was not "
        f"dumped{where}: status only"
    )


def _saturated_origin(facts: Facts) -> str:
    inputs = tell_inputs(facts, "below the limit")
    return f"{has(facts)} while {inputs}: the operator itself saturated"


def _saturated_origin_confirmed(facts: Facts) -> str:
    return f"{_saturated_origin(facts)}; the hardware confirms it ({tell_hardware(facts)})"


def _bad_input(facts: Facts) -> str:
    return (
        f"{has(facts, 'input')} and nothing in {_where_sought(facts)} produced it: "
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
        f"{has(facts)} and this operator only hands in data, constants or weights: they were bad "
        "before the network ran"
    )


def _received(facts: Facts) -> str:
    ranks, through = facts.text("ranks"), facts.text("through")
    if through:
        return (
            f"{has(facts, 'input')}; {through} before it, whose result was not dumped, was given "
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
    return f"{has(facts)}; {own}the bad values came {source}"


def _ranks(numbers: str) -> str:
    return f"rank{'s' if ',' in numbers or '-' in numbers else ''} {numbers}"


def _handoff(facts: Facts) -> str:
    return (
        f"{has(facts, 'input')}, but {tell_producer(facts) or 'its producer'} wrote a clean tensor "
        "of the same shape, dtype and layout there: the memory was overwritten in between, or an "
        "operator that was not dumped wrote to it"
    )


def _unknown_inputs(facts: Facts) -> str:
    return (
        f"{has(facts)}; its inputs were not dumped or could not all be checked, and no producer "
        "was found: only the order of execution speaks for this place"
    )


def _propagated(facts: Facts) -> str:
    if facts.text("evidence") == "order":
        return (
            f"{has(facts)}; an earlier operator of this rank and step"
            f"{_named(facts)} was non-finite already (by order of execution alone)"
        )
    link = EVIDENCE.get(facts.text("evidence"), "")
    link = f" ({link})" if link else ""
    producer = tell_producer(facts)
    made = f" that {producer} produced" if producer else ""
    if facts.text("role") == "input":
        return f"{has(facts)}{made}{link}: passed on, not made here"
    return f"{has(facts)}, but it read non-finite values{made}{link}"


def _propagated_inside(facts: Facts) -> str:
    producer = tell_producer(facts) or "an operator"
    return f"{has(facts)}; they were made inside this module, by {producer}: see there"


def _named(facts: Facts) -> str:
    producer = tell_producer(facts)
    return f" ({producer})" if producer else ""


def _swallowed(facts: Facts) -> str:
    return f"{has(facts, 'input')} and all outputs are finite: the operator hides them"


def _expected(facts: Facts) -> str:
    why, rule = facts.text("why"), facts.text("rule")
    told = "; ".join(w for w in (why, f"rule {rule}" if rule else "") if w)
    return f"{has(facts)}, on purpose" + (f": {told}" if told else "")


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
