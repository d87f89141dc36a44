"""What only the reports for CI, `diff` and `trend` say, in both languages.

`{name}` is a number or a name.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["NIGHTLY_WORDS", "nightly_word"]

NIGHTLY_WORDS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        # one line of a CI report
        "known": ("known to the baseline", "基线已登记"),
        "known_reason": ("known to the baseline: {sentence}", "基线已登记：{sentence}"),
        "not_counted": (
            "not counted (--fail-on {fail_on}): {sentence}",
            "不计入（--fail-on {fail_on}）：{sentence}",
        ),
        "more_executions": (
            "and {count} more findings of this operator",
            "该算子另有 {count} 项发现",
        ),
        "tolerated": (
            "tolerated (--max-unreadable {tolerance}): {sentence}",
            "在容许范围内（--max-unreadable {tolerance}）：{sentence}",
        ),
        "left_out": (
            "{count} more findings are left out here; dumpscope report --csv{options} lists all",
            "此处省略了 {count} 项发现；dumpscope report --csv{options} 列出全部",
        ),
        "operators_left_out": (
            "{count} more operators with findings have no annotation; dumpscope report{options} "
            "lists them",
            "另有 {count} 个有发现的算子未加标注；dumpscope report{options} 可列出",
        ),
        "no_operator_name": ("(operator not dumped)", "（算子未转储）"),
        "no_summary_file": (
            "the job summary could not be written: {error}",
            "无法写入任务摘要：{error}",
        ),
        "dump_folder": ("the folder that was scanned", "被扫描的目录"),
        # two scans
        "diff_counts": (
            "{new} new, {worse} worse, {moved} moved, {gone} gone, {same} unchanged",
            "新增 {new}，恶化 {worse}，移位 {moved}，消失 {gone}，未变 {same}",
        ),
        "diff_before": ("before: scan {scan} of {root}", "之前：扫描 {scan}（{root}）"),
        "diff_now": ("now:    scan {scan} of {root}", "现在：扫描 {scan}（{root}）"),
        "change": ("change", "变化"),
        "change_new": ("new", "新增"),
        "change_worse": ("worse", "恶化"),
        "change_moved": ("moved", "移位"),
        "change_gone": ("gone", "消失"),
        "before": ("before", "之前"),
        "now": ("now", "现在"),
        "worse_kind": ("{slot}: {kind} is new ({share})", "{slot}：新出现 {kind}（{share}）"),
        "worse_share": (
            "{slot}: {kind} grew from {before} to {now}",
            "{slot}：{kind} 占比由 {before} 增至 {now}",
        ),
        "worse_first": ("leads the ranking for the first time", "首次排在第一位"),
        "and_more": (
            "{count} more; --limit 0 shows all",
            "另有 {count} 项；--limit 0 显示全部",
        ),
        "drift": ("Drift of tensors", "张量漂移"),
        "drift_counts": (
            "{count} of {compared} tensors changed by half a bit of headroom or 1% of their "
            "elements (upper line before, lower line now)",
            "{compared} 个张量中有 {count} 个的余量变化达 0.5 位或 1% 的元素有变化"
            "（上行为之前，下行为现在）",
        ),
        "drift_nothing": (
            "no tensor is known on both sides",
            "没有两侧都有的张量",
        ),
        "tensor": ("tensor", "张量"),
        "dtype": ("dtype", "数据类型"),
        "headroom_bits": ("headroom, bits", "余量（位）"),
        "zeros": ("zeros", "零"),
        "subnormals": ("subnormal", "次正规"),
        # tensors over time
        "trend_steps": (
            "{left} of {tensors} tensors left their band within the steps of scan {scan}",
            "扫描 {scan} 的各 step 中，{tensors} 个张量里有 {left} 个离开其区间",
        ),
        "trend_scans": (
            "{left} of {tensors} tensors left their band within {scans} scans",
            "{scans} 次扫描中，{tensors} 个张量里有 {left} 个离开其区间",
        ),
        "trend_gradients": (
            "{count} gradients have an L2 norm over 10,000 (marked !)",
            "{count} 个梯度的 L2 范数超过 10,000（以 ! 标出）",
        ),
        "trend_screened": (
            "mean, standard deviation, RMS and L2 of {count} tensors are not known: "
            "scan with --stats full",
            "{count} 个张量的均值、标准差、均方根和 L2 未知：请用 --stats full 扫描",
        ),
        "headroom_first_last": ("bits left", "余量位数"),
        "left_band": ("left its band", "离开区间"),
        "at_scan": ("scan {number}", "第 {number} 次扫描"),
        "left_nonfinite": ("{where}: {count} NaN or Inf", "{where}：{count} 个 NaN 或 Inf"),
        "left_value": (
            "{where}: {metric} {value}, not {low} to {high}",
            "{where}：{metric} 为 {value}，区间为 {low} 至 {high}",
        ),
        "plot_headroom": (
            "Headroom of the tensors that changed most, in bits below the limit of their dtype",
            "变化最大的张量的余量（距数据类型上限的位数）",
        ),
        "plot_bits": ("bits", "位"),
        # the summary of a job
        "findings": ("Findings", "发现"),
        "operator": ("operator", "算子"),
        "verdict": ("verdict", "结论"),
        "step": ("step", "step"),
        "device": ("device", "设备"),
        "why": ("why", "理由"),
        "not_checked": ("What was not checked", "未检查的内容"),
        "notes": ("Notes", "备注"),
        "go_on": ("How to go on", "下一步"),
        "totals": (
            "{ops} operator executions, {tensors} tensors, {files} files; exit status {status}",
            "算子执行 {ops} 次，张量 {tensors} 个，文件 {files} 个；退出码 {status}",
        ),
    }
)


def nightly_word(key: str, lang: str = "en", **values: object) -> str:
    """Return words with numbers and names put in.

    >>> nightly_word("more_executions", count=3)
    'and 3 more findings of this operator'
    """
    text = NIGHTLY_WORDS[key][lang.startswith("zh")]
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", str(value))
    return text
