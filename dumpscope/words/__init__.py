"""Put reasons into words: English and Simplified Chinese.

The rest of dumpscope keeps a `Reason` (a code and its numbers); the words are made here, at the
edge, so that both languages say the same thing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Literal

from dumpscope.model import Reason
from dumpscope.records import record
from dumpscope.words import chinese, english
from dumpscope.words.facts import Facts, format_count, format_number
from dumpscope.words.labels import describe_column, describe_verdict, head_column, label
from dumpscope.words.notes import NOTES, fill_template

__all__ = [
    "LANGUAGES",
    "REASON_CODES",
    "Lang",
    "describe_column",
    "describe_verdict",
    "format_count",
    "format_number",
    "head_column",
    "label",
    "language_of",
    "pick_language",
    "render",
    "render_brief",
    "render_rest",
    "render_status",
]

Lang = Literal["en", "zh"]
LANGUAGES: tuple[Lang, ...] = ("en", "zh")

# What only went through needs few further sentences: its origin has them.
_FEW: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "propagated": frozenset({"contradicts"}),
        "propagated_inside": frozenset(),
        "received": frozenset(),
        "swallowed": frozenset({"contradicts", "band_axis"}),
        "expected": frozenset({"band_axis"}),
    }
)

REASON_CODES: tuple[str, ...] = (*english.SENTENCES, *NOTES)


def pick_language(lang: str) -> Lang:
    """Return the language for a tag such as "zh", "zh-CN", "zh_CN.UTF-8"; English otherwise."""
    return "zh" if lang.lower().startswith("zh") else "en"


def language_of(environment: Mapping[str, str]) -> Lang:
    """Return the language that the locale asks for (LC_ALL, LC_MESSAGES, then LANG)."""
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        if environment.get(name):
            return pick_language(environment[name])
    return "en"


def render(reason: Reason, lang: str = "en") -> str:
    """Return the sentence of a reason, with its numbers.

    Parameters
    ----------
    reason
        A code with parameters. An unknown code is spelled out, a missing parameter shortens the
        sentence: nothing is raised.
    lang
        "en" or "zh" (any tag that begins with it).

    Examples
    --------
    >>> render(Reason("unchecked", {"count": 3}))
    '3 tensors could not be checked: unchecked is not clean.'
    """
    facts = Facts(reason)
    zh = pick_language(lang) == "zh"
    words = _words(zh=zh)
    if reason.code in NOTES:
        sentence = fill_template(NOTES[reason.code][zh], facts, chinese=zh)
        # What ends in a command ends without a stop, so that it can be copied.
        return sentence if reason.code.startswith("next_") else words.join_sentences([sentence])
    sentences = [_first_sentence(facts, zh=zh)]
    kept = _FEW.get(reason.code)
    sentences += [
        suffix(facts)
        for key, suffix in words.suffixes.items()
        if facts.given(key) and (kept is None or key in kept)
    ]
    return words.join_sentences(sentences)


def render_rest(reason: Reason, lang: str = "en") -> str:
    """Return a reason without what `render_brief` says: "both inputs are finite (...)"."""
    facts = Facts(reason)
    zh = pick_language(lang) == "zh"
    words = _words(zh=zh)
    return words.join_sentences([words.render_rest(facts, _first_sentence(facts, zh=zh))])


def _first_sentence(facts: Facts, *, zh: bool) -> str:
    words = _words(zh=zh)
    sentence = words.sentences.get(facts.code)
    return facts.described() if sentence is None else sentence(facts)


def render_brief(reason: Reason, lang: str = "en") -> str:
    """Return only what is bad in the deciding tensor: "513 +Inf of 2,048 float16".

    Empty where the reason has no such numbers (hardware status alone, notes).
    """
    facts = Facts(reason)
    if not any(facts.amount(key) for key in ("nan", "posinf", "neginf", "saturated")):
        return ""
    return _words(zh=pick_language(lang) == "zh").describe_counts(facts)


@record(frozen=True, slots=True)
class _Words:
    """What a language's module offers."""

    sentences: Mapping[str, Callable[[Facts], str]]
    suffixes: Mapping[str, Callable[[Facts], str]]
    describe_counts: Callable[[Facts], str]
    render_rest: Callable[[Facts, str], str]
    join_sentences: Callable[[list[str]], str]


_ENGLISH, _CHINESE = (
    _Words(
        module.SENTENCES,
        module.SUFFIXES,
        module.describe_counts,
        module.render_rest,
        module.join_sentences,
    )
    for module in (english, chinese)
)


def _words(*, zh: bool) -> _Words:
    return _CHINESE if zh else _ENGLISH


def render_status(bits: str, lang: str = "en") -> str:
    """Return the meaning of hardware status bits in the language asked for."""
    return chinese.translate_status(bits) if pick_language(lang) == "zh" else bits
