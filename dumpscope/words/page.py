"""What only the HTML report says, in both languages. `{name}` is a number or a name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["PAGE_WORDS", "page_word", "page_words"]

PAGE_WORDS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "title": ("dumpscope report", "dumpscope 报告"),
        "skip": ("To the findings", "跳到发现列表"),
        "contents": ("Contents", "目录"),
        "theme": ("Colours", "配色"),
        "theme_auto": ("as the system", "跟随系统"),
        "theme_light": ("light", "浅色"),
        "theme_dark": ("dark", "深色"),
        "verdict": ("Verdict", "结论"),
        "status_0": ("clean", "正常"),
        "status_1": ("went wrong", "发现问题"),
        "status_3": ("not everything was checked", "未全部检查"),
        "exit_status": ("exit status {code}", "退出码 {code}"),
        "evidence": ("evidence", "依据"),
        "overflow_words": ("hardware status", "硬件状态"),
        # charts
        "section_offender": (
            "Its tensors against the range of their data types",
            "其张量与数据类型范围的对照",
        ),
        "section_trend": (
            "The first offender over the steps",
            "首个问题算子随 step 的变化",
        ),
        "trend_note": (
            "Headroom in bits: how often the largest finite |x| of an output could double before "
            "its data type ends. A ring marks the step at which it left its band, or was no "
            "longer finite.",
            "余量（位）：输出的最大有限 |x| 在达到数据类型上限之前还能翻倍多少次。"
            "圆圈标出其偏离常态范围或不再有限的 step。",
        ),
        "scale_note": (
            "Each row is one tensor on an axis of |x| in powers of two. The dump's statistics give "
            "the extremes and the counts drawn here, not a whole distribution.",
            "每行是一个张量，横轴为 |x|（2 的幂）。转储的统计值只给出此处所绘的极值和计数，"
            "不含完整分布。",
        ),
        "scale_aria": (
            "Range of the tensors of {operator} against {dtype}, which ends at {limit}",
            "{operator} 的张量与 {dtype}（上限 {limit}）的范围对照",
        ),
        "scale_zero": ("zero", "零"),
        "scale_subnormal": ("subnormal", "次正规"),
        "scale_limit": ("ends at {limit}", "上限 {limit}"),
        "scale_beyond": ("NaN, Inf", "NaN、Inf"),
        "scale_headroom": ("headroom {bits} bits", "余量 {bits} 位"),
        "scale_at_limit": ("at the limit", "已达上限"),
        "scale_near": ("near the limit", "接近上限"),
        "scale_unchecked": ("not checked", "未检查"),
        "scale_no_finite": ("no finite value", "无有限值"),
        "scale_deciding": ("decides", "判定依据"),
        "scale_legend": (
            "▼ above: largest positive value, ▲ below: largest negative one, ◆ RMS; "
            "hatched: subnormal.",
            "上方 ▼ 最大正值，下方 ▲ 绝对值最大的负值，◆ 均方根；斜线：次正规区。",
        ),
        "scale_left_out": (
            "{count} more tensors are in the table below",
            "另有 {count} 个张量见下表",
        ),
        "section_heat": ("Findings per rank and step", "各 rank、各 step 的发现数"),
        "heat_note": (
            "A ring marks where bad values were made, a dot where they came in. Steps without a "
            "finding are not drawn. A cell filters the table below.",
            "圆环表示异常值在此产生，圆点表示由外传入。没有发现的 step 不绘出。"
            "点击格子可筛选下表。",
        ),
        "heat_cell": (
            "step {step}, {device}: {count} findings, {made} made here, {came} came in",
            "step {step}，{device}：发现 {count} 项，其中 {made} 项在此产生，{came} 项由外传入",
        ),
        "heat_left_out": (
            "{steps} more steps and {devices} more ranks with fewer findings are not drawn",
            "另有 {steps} 个 step、{devices} 个 rank 的发现较少，未绘出",
        ),
        "section_lanes": ("Bad operators in order of execution", "按执行顺序的异常算子"),
        "lanes_note": (
            "One lane per rank, each in its own order: the n-th mark is the n-th bad operator of "
            "that rank. Clocks of different ranks are not compared. A mark leads to its row.",
            "每个 rank 一行，各按自身顺序：第 n 个标记是该 rank 的第 n 个异常算子；不比较不同 "
            "rank 的时钟。点击标记可跳到对应行。",
        ),
        "lanes_mark": (
            "#{rank} {verdict}: {operator}, step {step}",
            "#{rank} {verdict}：{operator}，step {step}",
        ),
        "lanes_bin": (
            "bad operators {first} to {last}, the worst is #{rank} {verdict}: {operator}, "
            "step {step}",
            "第 {first} 至 {last} 个异常算子，最严重的是 #{rank} {verdict}：{operator}，"
            "step {step}",
        ),
        "lanes_axis": ("n-th bad operator of the rank", "该 rank 的第 n 个异常算子"),
        "lanes_count": ("{count} bad", "{count} 个异常"),
        "lanes_left_out": (
            "{count} more ranks are not drawn; the table has them",
            "另有 {count} 个 rank 未绘出，见下表",
        ),
        "rank": ("rank {device}", "rank {device}"),
        "rank_unknown": ("rank unknown", "rank 未知"),
        "step": ("step {step}", "step {step}"),
        "group_made": ("made here", "在此产生"),
        "group_came": ("came in", "由外传入"),
        "group_hint": ("hint", "提示"),
        "group_passed": ("passed on", "传播"),
        "rank_own": ("by itself", "自身出错"),
        "rank_received": ("infected by others", "由其他 rank 传入"),
        "rank_together": ("in an exchange", "通信时溢出"),
        "rank_unclear": ("perhaps from others", "可能由其他 rank 传入"),
        "rank_later": ("from an earlier step", "源自更早的 step"),
        "rank_clean": ("clean", "正常"),
        # tables
        "what_is_what": ("What the verdicts mean", "结论的含义"),
        "occurs": ("findings", "发现数"),
        "about_run": ("About this run", "本次运行"),
        "search": ("Search", "搜索"),
        "search_hint": ("operator, file, reason …", "算子、文件、理由……"),
        "every": ("all", "全部"),
        "unknown_value": ("unknown", "未知"),
        "clear": ("Clear filters", "清除筛选"),
        "shown_of": ("{shown} of {total} rows", "{total} 行中的 {shown} 行"),
        "rows_from": (
            "rows {first} to {last} of {total}",
            "第 {first} 至 {last} 行，共 {total} 行",
        ),
        "previous": ("Previous", "上一页"),
        "next": ("Next", "下一页"),
        "no_match": ("No row matches.", "没有匹配的行。"),
        "sort_by": ("sort by {column}", "按 {column} 排序"),
        "expand": ("details of row {number}", "第 {number} 行的详情"),
        "details": ("Details", "详情"),
        "all_tensors": ("All tensors of the operator", "该算子的全部张量"),
        "no_detail": (
            "Tensors are listed for the first {count} findings; for this one: "
            "dumpscope show NAME{options}.",
            "仅前 {count} 项发现附有张量；查看此项：dumpscope show 算子名{options}。",
        ),
        "go_to": ("go to #{rank}", "转到 #{rank}"),
        "only_first": (
            "Only the first {count} rows are shown, because this program cannot unpack the others "
            "or runs no scripts.",
            "仅显示前 {count} 行：当前程序无法解压其余行，或不运行脚本。",
        ),
        "left_out": (
            "{count} rows of lower rank are left out to keep this page small; the CSV has all: "
            "dumpscope report --csv{options}",
            "为控制页面大小，省略了排名靠后的 {count} 行；CSV 中有全部："
            "dumpscope report --csv{options}",
        ),
        "cut_by_limit": (
            "{count} findings left out by --limit",
            "受 --limit 限制，有 {count} 项发现未列出",
        ),
        "known": ("known", "已知"),
        "footer": (
            "Written by dumpscope {version}. This page is complete in itself: it loads nothing.",
            "由 dumpscope {version} 生成。本页自成一体，不加载任何外部内容。",
        ),
    }
)


def page_word(key: str, lang: str = "en", **values: object) -> str:
    """Return words of the page, with numbers and names put in.

    >>> page_word("shown_of", shown=3, total=12)
    '3 of 12 rows'
    """
    text = PAGE_WORDS[key][lang.startswith("zh")]
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", str(value))
    return text


def page_words(lang: str, **values: object) -> dict[str, str]:
    """Return all of them in one language, for the script, which puts other values in."""
    return {key: page_word(key, lang, **values) for key in PAGE_WORDS}
