"""Reasons in Simplified Chinese: one function per code, each a sentence without the final stop.

A parameter that is missing shortens the sentence; it never makes it wrong. NaN, Inf, dtypes and
names of the framework stay as they are written in code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from dumpscope.model import BITS_UNKNOWN
from dumpscope.words.facts import (
    Facts,
    format_count,
    format_number,
    list_kinds,
    name_operator,
    normalises_rows,
    tell_name,
)

__all__ = [
    "SENTENCES",
    "SUFFIXES",
    "describe_counts",
    "join_sentences",
    "render_rest",
    "translate_status",
]

_ROLE = {"input": "输入", "output": "输出"}
_KIND = {"nan": "NaN", "posinf": "+Inf", "neginf": "-Inf"}

_EVIDENCE = {
    "own_inputs": "依据：该算子自己转储的输入",
    "graph": "依据：计算图的边",
    "address": "依据：设备地址",
    "bytes": "依据：数据逐字节相同",
    "status": "依据：硬件状态",
    "statistics": "依据：统计值",
}

# What overflow.py says of status bits.
_STATUS_WORDS = {
    "negating the smallest signed integer": "对最小有符号整数取负",
    "integer add, subtract, multiply or multiply-add": "整数加、减、乘或乘加溢出",
    "floating-point overflow": "浮点运算溢出",
    "negative floating point to unsigned integer": "负浮点数转无符号整数",
    "float32 or int32 to float16": "float32 或 int32 转 float16 溢出",
    "CUBE accumulation": "CUBE 累加溢出",
    "atomic add overflow": "原子加上溢",
    "atomic add underflow": "原子加下溢",
    "atomic add of a source NaN": "原子加的源操作数为 NaN",
    "atomic add to a destination NaN": "原子加的目的操作数为 NaN",
    "atomic add of a source NaN to a destination NaN": "原子加的源和目的操作数均为 NaN",
}


def describe_counts(facts: Facts) -> str:
    """Return what is bad in the deciding tensor, counts and dtype."""
    dtype, total, found = facts.text("dtype"), facts.amount("total"), list_kinds(facts)
    if not found:
        return f"{dtype} 非有限值".strip()
    if len(found) == 1 and found[0][0] == total and total > 1:
        kind = "达到上限" if found[0][1] == "saturated" else f"为 {_KIND[found[0][1]]}"
        return f"{format_count(total)} 个 {dtype} 全部{kind}".replace("  ", " ")
    whole = f"共 {format_count(total)} 个 {dtype}".strip() if total else dtype
    if found[0][1] == "saturated":
        words = f"{format_count(found[0][0])} 个达到上限"
    else:
        words = _join([f"{format_count(count)} 个 {_KIND[kind]}" for count, kind in found])
    words = f"{'至少 ' if facts.flag('at_least') else ''}{words}"
    return f"{words}（{whole}）" if whole else words


def render_rest(facts: Facts, sentence: str) -> str:
    """Return a sentence without its first part, which says what is bad."""
    for role in ("output", "input"):
        first = _has(facts, role)
        if sentence.startswith(first):
            return sentence[len(first) :].lstrip("，；：").removeprefix("而").removeprefix("但")
    return sentence


def join_sentences(sentences: list[str]) -> str:
    """Put sentences together, each with its full stop."""
    return "".join(f"{s}。" for s in sentences if s)


def translate_status(text: str) -> str:
    """Translate the meaning of status bits ("0x20 floating-point overflow"), keep the rest."""

    def _translate(match: re.Match[str]) -> str:
        bit, meaning, word = match.group(1), match.group(2), match.group(3)
        if meaning.startswith(BITS_UNKNOWN):
            meaning = "含义未知的位" + meaning.removeprefix(BITS_UNKNOWN)
        where = f"（第 {word} 个状态字）" if word else ""
        return f"{bit} {_STATUS_WORDS.get(meaning, meaning)}{where}"

    pattern = r"(0x[0-9a-fA-F]+) (.+?)(?: of word (\d+))?(?=[,;] 0x|$)"
    marks = {", ": "、", "; ": "；"}
    return re.sub(r"[,;] (?=0x)", lambda mark: marks[mark[0]], re.sub(pattern, _translate, text))


def _join(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{'、'.join(words[:-1])} 和 {words[-1]}"


def _slot(facts: Facts, fallback: str = "output") -> str:
    role = facts.text("role") or fallback
    index = facts.count("index")
    name = _ROLE.get(role, role)
    own = tell_name(facts)
    if own:
        return f"某个{name}（{own}）" if index is None else f"{name} {index}（{own}）"
    return f"某个{name}" if index is None else f"{name} {index} "


def _has(facts: Facts, fallback: str = "output") -> str:
    """Say which tensor has what."""
    slot, found, total = _slot(facts, fallback), list_kinds(facts), facts.amount("total")
    if not found:
        return f"{slot}含有非有限值"
    dtype = facts.text("dtype")
    whole = f"{format_count(total)} 个 {dtype} 元素".replace("  ", " ")
    everything = len(found) == 1 and found[0][0] == total and total > 1
    if found[0][1] == "saturated":
        limit = facts.number("limit")
        state = "达到上限" if limit is None else f"达到上限 {format_number(limit)}"
        if everything:
            return f"{slot}的 {whole}全部{state}"
        return (
            f"{slot}{_among(total, whole)}{_there_are(facts)} {format_count(found[0][0])} 个{state}"
        )
    if everything:
        return f"{slot}的 {whole}全部为 {_KIND[found[0][1]]}"
    words = _join([f"{format_count(count)} 个 {_KIND[kind]}" for count, kind in found])
    return f"{slot}{_among(total, whole)}{_there_are(facts)} {words}"


def _there_are(facts: Facts) -> str:
    """Statistics of another tool may tell that there are some, not how many."""
    return "至少有" if facts.flag("at_least") else "有"


def _among(total: int, whole: str) -> str:
    return f"的 {whole}中" if total else ""


def _inputs_are(facts: Facts, state: str = "均为有限值") -> str:
    count, largest = facts.count("inputs"), facts.number("max_input")
    if count is None:
        words = f"所有输入{state}"
    elif count < 1:
        return _no_inputs_are(facts, state)
    elif count == 1:
        words = f"其输入{state.removeprefix('均')}"
    elif count == 2:
        words = f"两个输入{state}"
    else:
        words = f"全部 {format_count(count)} 个输入{state}"
    return words if largest is None else f"{words}（最大 |x| 为 {format_number(largest)}）"


def _no_inputs_are(facts: Facts, state: str) -> str:
    """Say what is known when none of the operator's own inputs could be looked at."""
    evidence = facts.text("evidence")
    if evidence in {"graph", "address", "bytes"}:
        return f"其生产者写出的数据{state}（{_EVIDENCE[evidence]}）"
    if evidence == "order":
        return "同一 rank、同一 step 中更早的算子没有这种情况（仅依据执行顺序）"
    return "没有已知异常的输入"


def _made_here(facts: Facts) -> str:
    infinite = facts.amount("posinf") or facts.amount("neginf")
    names = (["NaN"] if facts.amount("nan") else []) + (["Inf"] if infinite else [])
    kinds = f" {_join(names)} " if names else "非有限值"
    words = f"{kinds}由该算子自身产生".strip()
    limit = facts.number("limit")
    if facts.amount("posinf") and limit is not None:
        words += f"（{facts.text('dtype') or '其数据类型'} 的上限是 {format_number(limit)}）"
    return words


def _hardware(facts: Facts) -> str:
    return translate_status(facts.text("hardware")) or facts.text("kind") or "溢出状态"


def _producer(facts: Facts) -> str:
    name, step = name_operator(facts, "producer_type", "producer"), facts.count("producer_step")
    return name if step is None or not name else f"step {step} 的 {name}"


def _origin(facts: Facts) -> str:
    return f"{_has(facts)}，而{_inputs_are(facts)}：{_made_here(facts)}"


def _origin_confirmed(facts: Facts) -> str:
    return f"{_origin(facts)}；硬件状态也证实了这一点（{_hardware(facts)}）"


def _origin_generator(facts: Facts) -> str:
    return f"{_has(facts)}，而该算子没有输入：这些值由它自己生成"


def _origin_mask(facts: Facts) -> str:
    index = facts.count("index_in")
    mask = "某个输入" if index is None else f"输入 {index} "
    made = "被完全屏蔽的行在该算子中变成了 NaN" if normalises_rows(facts) else "异常由它算出"
    return f"{_has(facts)}；它读到的非有限值只有{mask}中的掩码常量：{made}"


def _origin_expected(facts: Facts) -> str:
    index = facts.count("index_in")
    read = "某个输入" if index is None else f"输入 {index} "
    why = facts.text("expected_why_zh") or facts.text("expected_why") or facts.text("expected_rule")
    told = f"（{why}）" if why else ""
    return (
        f"{_has(facts)}；它读到的异常值只在{read}中，而有规则认定那里的异常属于预期{told}："
        "该算子最先用它们参与了计算"
    )


def _status_origin(facts: Facts) -> str:
    return (
        f"硬件报告该算子溢出（{_hardware(facts)}）；{_inputs_are(facts)}，"
        "输出中没有 NaN、Inf，也没有饱和值：仅有状态为证"
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
    where = f"，记录中的编号为 {'、'.join(ids)}" if ids else ""
    return f"硬件报告溢出（{_hardware(facts)}），但相应算子没有被转储{where}：仅有状态为证"


def _saturated_origin(facts: Facts) -> str:
    return f"{_has(facts)}，而{_inputs_are(facts, '均未达到上限')}：饱和由该算子自身造成"


def _saturated_origin_confirmed(facts: Facts) -> str:
    return f"{_saturated_origin(facts)}；硬件状态也证实了这一点（{_hardware(facts)}）"


def _bad_input(facts: Facts) -> str:
    earlier, source = facts.number("seen_before"), facts.text("source")
    read = "能读取的" if facts.amount("lost") else ""
    handed = f"它由 {source} 从图外送入，" if source else ""
    if earlier is not None:
        return (
            f"{_has(facts, 'input')}，而本 step 中没有任何{read}算子产生过它："
            f"{handed or '它来自之前，'}同一 rank 的 step {earlier:.0f} 已经出错"
        )
    return (
        f"{_has(facts, 'input')}，而转储中没有任何{read}算子产生过它："
        f"{handed}问题早于本次转储（数据、权重或更早的 step）"
        f"{'' if source else '，或出在未转储的算子'}"
        f"{('，或出在' if source else '或') + '未能读取的部分' if read else ''}"
    )


def _lost(facts: Facts) -> str:
    count, name = facts.amount("lost"), facts.text("lost_name")
    told = f"{'，其中最后一个是 ' if count != 1 else '：'}{name}" if name else ""
    return (
        f"同一 rank、同一 step 中此前有 {format_count(count)} 个算子无法读取{told}，出错的可能是它"
    )


def _bad_input_source(facts: Facts) -> str:
    return f"{_has(facts)}，而该算子只提供数据、常量或权重：网络开始计算之前它们就已经有问题"


def _received(facts: Facts) -> str:
    ranks, through = facts.text("ranks"), facts.text("through")
    if through:
        told = f"此前的 {through} 的结果未被转储，而 rank {ranks} 向其送入了异常值"
        return f"{_has(facts, 'input')}；{told}：异常值经由它传入（仅依据执行顺序）"
    absent, unread = facts.text("absent"), facts.text("unread")
    if ranks:
        source = f"来自 rank {ranks}"
    elif unread and not absent:
        source = f"来自 rank {unread}，其输入无法检查"
    else:
        source = "很可能来自不在转储中的 rank" + (f"（缺少 rank {absent}）" if absent else "")
    own = "" if facts.count("inputs") == 0 else "本 rank 自己送入该通信算子的数据均为有限值："
    return f"{_has(facts)}；{own}异常值{source}"


def _handoff(facts: Facts) -> str:
    return (
        f"{_has(facts, 'input')}，但{_spaced(_producer(facts)) or '其生产者'}"
        "写出的同形状、同数据类型、同排布的张量是正常的：其间内存被改写，或有未转储的算子写过它"
    )


def _unknown_inputs(facts: Facts) -> str:
    return (
        f"{_has(facts)}；其输入未被转储或无法全部检查，也找不到生产者：排在此处的依据只有执行顺序"
    )


def _propagated(facts: Facts) -> str:
    producer = _producer(facts)
    if facts.text("evidence") == "order":
        named = f"（{producer}）" if producer else ""
        return (
            f"{_has(facts)}；同一 rank、同一 step 中更早的算子{named}已有非有限值（仅依据执行顺序）"
        )
    link = _EVIDENCE.get(facts.text("evidence"), "")
    link = f"（{link}）" if link else ""
    if facts.text("role") == "input":
        made = f"，由{_spaced(producer)}产生" if producer else ""
        return f"{_has(facts)}{made}{link}：异常是传入的，并非在此产生"
    made = f"由{_spaced(producer)}产生的" if producer else ""
    return f"{_has(facts)}，但它读到了{made}非有限值{link}"


def _propagated_inside(facts: Facts) -> str:
    producer = _spaced(_producer(facts)) or "某个算子"
    return f"{_has(facts)}；它们由该模块内部的{producer}产生：请看该算子"


def _spaced(name: str) -> str:
    return f" {name} " if name else ""


def _swallowed(facts: Facts) -> str:
    return f"{_has(facts, 'input')}，而所有输出均为有限值：该算子掩盖了异常"


def _expected(facts: Facts) -> str:
    why, rule = facts.text("why_zh") or facts.text("why"), facts.text("rule")
    told = "；".join(w for w in (why, f"规则 {rule}" if rule else "") if w)
    return f"{_has(facts)}，属于预期" + (f"：{told}" if told else "")


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
    """Say that all bad values lie in a band along one axis."""
    axis, axes = facts.count("band_axis"), facts.count("band_axes")
    first, last = facts.count("band_first"), facts.count("band_last")
    if axis is None or first is None or last is None:
        return ""
    span = str(first) if first == last else f"{first}-{last}"
    if axes == 2 and axis in (0, 1):
        return f"它们全部位于{'行列'[axis]} {span}"
    return f"它们全部位于轴 {axis}" + (f"（共 {axes} 个轴）" if axes else "") + f"的下标 {span}"


SUFFIXES: Mapping[str, Callable[[Facts], str]] = MappingProxyType(
    {
        "band_axis": _band,
        "seen_at_consumer": lambda _: (
            "其输出没有被转储或无法读取：依据读取它的算子所得到的数据判断"
        ),
        "lost": _lost,
        "inputs_only": lambda _: (
            "它的输出均未被转储：若转储只含输入，出错的也可能是写出该输入的算子"
        ),
        "contradicts": lambda facts: f"较弱的依据指向另一个生产者：{facts.text('contradicts')}",
        "maybe_mask": lambda _: "也可能是掩码：其中的非有限值只有 -Inf",
        "loss_scale": lambda _: "转储中有损失缩放检查，该 step 会被它跳过",
        "from_statistics": lambda _: "判断依据是转储自带的统计值，而不是数据本身",
        "padding_included": lambda _: "计数可能包含分块排布的填充元素",
    }
)
