"""Why an operator only follows another, in half a line: for tables that have one line for it."""

from __future__ import annotations

from collections.abc import Callable

from dumpscope.model import Reason
from dumpscope.safetext import count_cells
from dumpscope.words.facts import Facts

__all__ = ["render_follower"]

_EVIDENCE = {
    "graph": ("graph edge", "计算图的边"),
    "address": ("device address", "设备地址"),
    "bytes": ("equal bytes", "数据逐字节相同"),
    "order": ("order only", "仅依据顺序"),
    "statistics": ("by statistics", "依据统计值"),
}

_LEAST_NAME = 9

_FOLLOWS = ("follows {name}", "源自 {name}")
_FOLLOWS_UNKNOWN = ("read non-finite values", "读到非有限值")
_HOLDS = ("holds {name}", "内含 {name}")
_SWALLOWED = ("bad input, finite outputs", "输入异常，输出均为有限值")


def render_follower(reason: Reason, lang: str, shorten: Callable[[str, int], str]) -> str:
    """Return what an operator follows: "follows net/bmm (equal bytes)".

    Parameters
    ----------
    shorten
        Makes a name fit beside the words, whose length it is given.
    """
    facts = Facts(reason)
    zh = lang.startswith("zh")
    if reason.code == "swallowed":
        return _SWALLOWED[zh]
    evidence = _EVIDENCE.get(facts.text("evidence"), ("", ""))[zh]
    tail = ("（{}）" if zh else " ({})").format(evidence) if evidence else ""
    producer = facts.text("producer") or facts.text("producer_type")
    if not producer:
        return _FOLLOWS_UNKNOWN[zh] + tail
    words = (_HOLDS if reason.code == "propagated_inside" else _FOLLOWS)[zh]
    if reason.code == "propagated_inside":
        tail = ""
    bare = words.replace("{name}", "") + tail
    used = count_cells(bare)
    shown = shorten(producer, used)
    if len(shown) < min(len(producer), _LEAST_NAME):
        # In a narrow column: who it was says more than how that is known.
        shown, tail = shorten(producer, used - count_cells(tail)), ""
    return words.replace("{name}", shown) + tail
