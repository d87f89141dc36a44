"""Reasons in Simplified Chinese: one function per code, each a sentence without the final stop.

A parameter that is missing shortens the sentence; it never makes it wrong. NaN, Inf, dtypes and
names of the framework stay as they are written in code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from dumpscope.words.chinese_phrases import (
    EVIDENCE,
    describe_counts,
    has,
    join_sentences,
    put_spaces,
    render_rest,
    tell_hardware,
    tell_inputs,
    tell_made_here,
    tell_producer,
    translate_status,
)
from dumpscope.words.facts import Facts, format_count, normalises_rows

__all__ = [
    "SENTENCES",
    "SUFFIXES",
    "describe_counts",
    "join_sentences",
    "render_rest",
    "translate_status",
]


def _origin(facts: Facts) -> str:
    return f"{has(facts)}，而{tell_inputs(facts)}：{tell_made_here(facts)}"


def _origin_confirmed(facts: Facts) -> str:
    return f"{_origin(facts)}；硬件状态也证实了这一点（{tell_hardware(facts)}）"


def _origin_generator(facts: Facts) -> str:
    return f"{has(facts)}，而该算子没有输入：这些值由它自己生成"


def _origin_mask(facts: Facts) -> str:
    index = facts.count("index_in")
    mask = "某个输入" if index is None else f"输入 {index} "
    made = "被完全屏蔽的行在该算子中变成了 NaN" if normalises_rows(facts) else "异常由它算出"
    return f"{has(facts)}；它读到的非有限值只有{mask}中的掩码常量：{made}"


def _origin_expected(facts: Facts) -> str:
    index = facts.count("index_in")
    read = "某个输入" if index is None else f"输入 {index} "
    why = facts.text("expected_why_zh") or facts.text("expected_why") or facts.text("expected_rule")
    told = f"（{why}）" if why else ""
    return (
        f"{has(facts)}；它读到的异常值只在{read}中，而有规则认定那里的异常属于预期{told}："
        "该算子最先用它们参与了计算"
    )


def _status_origin(facts: Facts) -> str:
    if facts.flag("unseen"):
        shown = "输出没有被转储，或无法检查"
    elif facts.amount("saturated"):
        shown = f"{has(facts)}，但可能来自输入"
    else:
        shown = "输出中没有 NaN、Inf，也没有饱和值"
    flagged = f"硬件报告该算子溢出（{tell_hardware(facts)}）"
    return f"{flagged}；{tell_inputs(facts)}，{shown}：仅有状态为证"


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
    return f"硬件报告溢出（{tell_hardware(facts)}），但相应算子没有被转储{where}：仅有状态为证"


def _saturated_origin(facts: Facts) -> str:
    return f"{has(facts)}，而{tell_inputs(facts, '均未达到上限')}：饱和由该算子自身造成"


def _saturated_origin_confirmed(facts: Facts) -> str:
    return f"{_saturated_origin(facts)}；硬件状态也证实了这一点（{tell_hardware(facts)}）"


def _bad_input(facts: Facts) -> str:
    earlier, source = facts.number("seen_before"), facts.text("source")
    read = "能读取的" if facts.amount("lost") else ""
    handed = f"它由 {source} 从图外送入，" if source else ""
    if earlier is not None:
        return (
            f"{has(facts, 'input')}，而本 step 中没有任何{read}算子产生过它："
            f"{handed or '它来自之前，'}同一 rank 的 step {earlier:.0f} 已经出错"
        )
    return (
        f"{has(facts, 'input')}，而转储中没有任何{read}算子产生过它："
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
    return f"{has(facts)}，而该算子只提供数据、常量或权重：网络开始计算之前它们就已经有问题"


def _received(facts: Facts) -> str:
    ranks, through = facts.text("ranks"), facts.text("through")
    if through:
        told = f"此前的 {through} 的结果未被转储，而 rank {ranks} 向其送入了异常值"
        return f"{has(facts, 'input')}；{told}：异常值经由它传入（仅依据执行顺序）"
    absent, unread = facts.text("absent"), facts.text("unread")
    if ranks:
        source = f"来自 rank {ranks}"
    elif unread and not absent:
        source = f"来自 rank {unread}，其输入无法检查"
    else:
        source = "很可能来自不在转储中的 rank" + (f"（缺少 rank {absent}）" if absent else "")
    own = "" if facts.count("inputs") == 0 else "本 rank 自己送入该通信算子的数据均为有限值："
    return f"{has(facts)}；{own}异常值{source}"


def _handoff(facts: Facts) -> str:
    return (
        f"{has(facts, 'input')}，但{put_spaces(tell_producer(facts)) or '其生产者'}"
        "写出的同形状、同数据类型、同排布的张量是正常的：其间内存被改写，或有未转储的算子写过它"
    )


def _unknown_inputs(facts: Facts) -> str:
    return f"{has(facts)}；其输入未被转储或无法全部检查，也找不到生产者：排在此处的依据只有执行顺序"


def _propagated(facts: Facts) -> str:
    producer = tell_producer(facts)
    if facts.text("evidence") == "order":
        named = f"（{producer}）" if producer else ""
        return (
            f"{has(facts)}；同一 rank、同一 step 中更早的算子{named}已有非有限值（仅依据执行顺序）"
        )
    link = EVIDENCE.get(facts.text("evidence"), "")
    link = f"（{link}）" if link else ""
    if facts.text("role") == "input":
        made = f"，由{put_spaces(producer)}产生" if producer else ""
        return f"{has(facts)}{made}{link}：异常是传入的，并非在此产生"
    made = f"由{put_spaces(producer)}产生的" if producer else ""
    return f"{has(facts)}，但它读到了{made}非有限值{link}"


def _propagated_inside(facts: Facts) -> str:
    producer = put_spaces(tell_producer(facts)) or "某个算子"
    return f"{has(facts)}；它们由该模块内部的{producer}产生：请看该算子"


def _swallowed(facts: Facts) -> str:
    return f"{has(facts, 'input')}，而所有输出均为有限值：该算子掩盖了异常"


def _expected(facts: Facts) -> str:
    why, rule = facts.text("why_zh") or facts.text("why"), facts.text("rule")
    told = "；".join(w for w in (why, f"规则 {rule}" if rule else "") if w)
    return f"{has(facts)}，属于预期" + (f"：{told}" if told else "")


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
