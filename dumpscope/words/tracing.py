"""Words of a trace, in both languages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from dumpscope.words.facts import format_count, format_number

__all__ = ["TRACE_WORDS", "format_duration", "format_ranges", "trace_word"]

TRACE_WORDS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        # --- headlines -------------------------------------------------------------------------
        "title": ("the way of the bad value", "异常值的传播路径"),
        "began_origin": ("{operator} is where it began", "起点是 {operator}"),
        "began_other": ("What grew out of {operator}", "由 {operator} 引出的传播"),
        "way_up": (
            "The bad value came to it from {source}.",
            "其异常值来自 {source}。",
        ),
        "asked_for": ("asked for", "所查询"),
        "grew": (
            "{count} operators grew out of it, on {ranks}, in {steps}.",
            "由此波及 {count} 个算子，涉及 {ranks}，{steps}。",
        ),
        "grew_one": (
            "1 operator grew out of it, on {ranks}, in {steps}.",
            "由此波及 1 个算子，涉及 {ranks}，{steps}。",
        ),
        "grew_none": (
            "Nothing in the dump is known to have grown out of it.",
            "转储中没有已知受其波及的算子。",
        ),
        "joined": (
            "The same bad values also come from {sources}.",
            "同一批异常值还来自 {sources}。",
        ),
        "no_origin": (
            "The scan has no findings: there is no way of a bad value to show.",
            "该次扫描没有任何发现：无传播路径可显示。",
        ),
        # --- places ----------------------------------------------------------------------------
        "rank": ("rank {number}", "rank {number}"),
        "ranks": ("ranks {numbers}", "rank {numbers}"),
        "rank_count": ("{count} ranks", "{count} 个 rank"),
        "no_rank": ("one rank", "单个 rank"),
        "step": ("step {number}", "step {number}"),
        "steps": ("steps {numbers}", "step {numbers}"),
        "no_step": ("no step", "无 step"),
        "no_steps": ("one step", "单个 step"),
        "stream": ("stream {number}", "stream {number}"),
        "run": ("run {name}", "运行 {name}"),
        # --- heads -----------------------------------------------------------------------------
        "head_operator": ("operator", "算子"),
        "head_verdict": ("verdict", "结论"),
        "head_bad": ("bad values", "异常值"),
        "head_step": ("step", "step"),
        "head_rank": ("rank", "rank"),
        "head_stream": ("stream", "stream"),
        "head_number": ("#", "#"),
        "head_from": ("from", "来自"),
        "head_reason": ("reason", "理由"),
        "head_time": ("time", "时间"),
        # --- entries ---------------------------------------------------------------------------
        "follow": (
            "… {count} operators that only follow ({types})",
            "… {count} 个仅随之异常的算子（{types}）",
        ),
        "follow_one": (
            "… 1 operator that only follows ({types})",
            "… 1 个仅随之异常的算子（{types}）",
        ),
        "follow_short": ("{count} only follow", "{count} 个仅随之异常"),
        "follow_short_one": ("1 only follows", "1 个仅随之异常"),
        "of_which": ("; {words}", "；{words}"),
        "received_count": ("{count} received it", "{count} 个经通信收到"),
        "swallowed_count": ("{count} swallow it", "{count} 个将其掩盖"),
        "expected_count": ("{count} expected", "{count} 个预期"),
        "other_count": ("{count} more", "另 {count} 个"),
        "more_types": ("…", "…"),
        "between": ("{count} between", "中隔 {count} 个"),
        "turns_nan": ("NaN from here", "自此为 NaN"),
        "turns_inf": ("Inf from here", "自此为 Inf"),
        "also_from": ("also from {ranks}", "也来自 {ranks}"),
        "at_limit": ("at the limit", "达上限"),
        "clean": ("clean", "正常"),
        "passing": ("passes it on", "传递"),
        "confirmed": ("hardware", "硬件证实"),
        # --- below the tree --------------------------------------------------------------------
        "edges": ("Edges:", "边："),
        "read_expected": (
            "Expected values that were read on the way:",
            "途中读取的预期值：",
        ),
        "aside": (
            "Expected values beside it (on purpose, not part of this): {count} ({types})",
            "同一 step 中与此无关的预期值：{count} 个（{types}）",
        ),
        "outside": (
            "What began elsewhere in this scan ({count} of {findings} findings are not in this "
            "trace):",
            "该次扫描中另有起点（{findings} 项发现中有 {count} 项不在本路径内）：",
        ),
        "outside_more": ("… and {count} more", "……另有 {count} 项"),
        "followers": ("{count} grew out of it", "波及 {count} 个"),
        "followers_each": ("{count} grew out of them", "共波及 {count} 个"),
        "next_finding": (
            "`dumpscope trace --finding N{options}` shows what grew out of one of them.",
            "`dumpscope trace --finding N{options}` 显示其中某一项的传播路径。",
        ),
        "cut": (
            "… {count} more operators; --limit 0 lists all",
            "……另有 {count} 个算子；--limit 0 列出全部",
        ),
        # --- edges -----------------------------------------------------------------------------
        "edge_communication": ("exchange", "通信"),
        "edge_own_inputs": ("input", "输入"),
        "edge_graph": ("graph", "图"),
        "edge_address": ("address", "地址"),
        "edge_bytes": ("bytes", "字节"),
        "edge_order": ("order", "顺序"),
        "edge_status": ("status", "状态"),
        "edge_statistics": ("statistics", "统计"),
        "means_communication": ("received from another rank", "由其他 rank 经通信传入"),
        "means_own_inputs": ("seen in its own inputs", "见于其自身输入"),
        "means_graph": ("an edge of the graph", "图中的边"),
        "means_address": ("the same device address", "设备地址相同"),
        "means_bytes": ("the same bytes", "字节相同"),
        "means_order": (
            "it ran later, nothing else links them",
            "仅因执行在后；无其他依据",
        ),
        "means_status": ("hardware status", "硬件状态"),
        "means_statistics": ("statistics of another tool", "其他工具的统计值"),
        # --- pictures --------------------------------------------------------------------------
        "axis": (
            "From left to right: causal order, not to scale. +times are each rank's own clock "
            "since its first bad operator; clocks of different ranks are not compared.",
            "从左到右为因果顺序，不按比例。+时间为各 rank 自身时钟下距其首个异常算子的时间；不同 "
            "rank 的时钟不作比较。",
        ),
        "axis_untimed": (
            "From left to right: causal order, not to scale; the dump has no times.",
            "从左到右为因果顺序，不按比例；转储中没有时间。",
        ),
        "legend": ("Legend", "图例"),
        "legend_origin": ("origin: it began here", "源头：异常始于此处"),
        "legend_start": ("the operator that was asked for", "所查询的算子"),
        "legend_other": ("another beginning or hint", "其他起点或线索"),
        "legend_received": ("received from another rank", "由其他 rank 传入"),
        "legend_propagated": ("handed it on", "传递"),
        "legend_swallowed": ("swallowed: its outputs are finite", "掩盖：输出均为有限值"),
        "legend_expected": ("expected: bad on purpose", "预期：有意为之"),
        "legend_clean": ("clean, or no finding", "正常或无发现"),
        "legend_pill": ("counted: only follow", "计数：仅随之异常"),
        "legend_order_rail": ("ran after the origin (order alone)", "在其后执行（仅凭顺序）"),
        "folded_alike": ("all alike", "情形相同"),
        "folded_similar": ("alike in kind", "情形相近"),
        "row_origin": ("it began here", "异常始于此处"),
        "row_joined": ("another source", "另一来源"),
        "row_received": ("received it", "经通信收到"),
        "row_aside": ("+{count} expected", "另有 {count} 个预期值"),
        "later_steps": ("{steps}", "{steps}"),
        # --- the page --------------------------------------------------------------------------
        "page_skip": ("Skip to the operators", "跳到算子列表"),
        "page_picture": ("Picture", "图"),
        "page_operators": ("Operators", "算子"),
        "page_details": ("Details", "详情"),
        "page_hint": (
            "Point at a box or reach it with Tab; arrow keys follow the edges.",
            "将指针移到方框上，或用 Tab 选中；方向键沿边移动。",
        ),
        "page_all_ranks": ("all ranks", "全部 rank"),
        "page_all_steps": ("all steps", "全部 step"),
        "page_all_verdicts": ("all verdicts", "全部结论"),
        "page_search": ("name or type", "名称或类型"),
        "page_reset": ("Reset", "重置"),
        "page_fit": ("Fit to the window", "适应窗口"),
        "page_full": ("Full size", "原始大小"),
        "page_shown": ("{shown} of {count} operators", "{count} 个算子中的 {shown} 个"),
        "page_more": ("Show more", "显示更多"),
        "page_no_script": (
            "Without JavaScript the first {count} operators show, and no filters.",
            "未启用 JavaScript：仅显示前 {count} 个算子，无筛选。",
        ),
        "page_cut": (
            "This page holds the first {shown} operators in causal order; {count} more are in "
            "`dumpscope trace --json --limit 0{options}`.",
            "本页包含按因果顺序排列的前 {shown} 个算子；其余 {count} 个见 "
            "`dumpscope trace --json --limit 0{options}`。",
        ),
        "page_outside": ("What began elsewhere in this scan", "该次扫描中的其他起点"),
        "page_members": ("{count} operators", "{count} 个算子"),
        "page_made_by": (
            "dumpscope {version}, scan {scan} of {root}",
            "dumpscope {version}，扫描 {scan}，目录 {root}",
        ),
    }
)


def trace_word(key: str, lang: str = "en", **values: object) -> str:
    """Return a phrase with its values; whole numbers named `count` get thousands separators."""
    shown = {
        name: format_count(value) if name in _COUNTS and isinstance(value, int) else value
        for name, value in values.items()
    }
    text = TRACE_WORDS[key][lang.startswith("zh")]
    return text.format(**shown) if shown else text


_COUNTS = frozenset({"count", "findings", "shown"})


def format_ranges(numbers: Iterable[int]) -> str:
    """Write numbers with ranges put together.

    >>> format_ranges([0, 1, 2, 4, 7, 6])
    '0-2, 4, 6-7'
    """
    parts: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if parts and parts[-1][1] + 1 == number:
            parts[-1] = (parts[-1][0], number)
        else:
            parts.append((number, number))
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def format_duration(nanoseconds: int) -> str:
    """Write a span of time with three digits.

    >>> [format_duration(ns) for ns in (0, 950, 302_000, 12_345_678, 61_000_000_000)]
    ['0', '950 ns', '302 µs', '12.3 ms', '61 s']
    """
    if nanoseconds == 0:
        return "0"
    for size, unit in ((10**9, "s"), (10**6, "ms"), (10**3, "µs")):
        if abs(nanoseconds) >= size:
            value = nanoseconds / size
            return f"{format_number(round(value)) if abs(value) >= 100 else f'{value:.3g}'} {unit}"
    return f"{nanoseconds} ns"
