"""What commands say beside the reports, in both languages: one place for all these sentences.

`{name}` is a number, a name or a path, and `{name:one,many}` a number with its noun.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from dumpscope.words.facts import format_count

__all__ = ["TALK", "talk"]

TALK: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        # --- any command ----------------------------------------------------------------------
        "wrote": ("wrote {path}", "已写入 {path}"),
        "users_own_store": (
            "this folder has no store, so {path} is read; --store FILE names another",
            "当前目录没有结果库，因此读取 {path}；可用 --store FILE 指定另一个",
        ),
        "store_beside_scanned": (
            "the current folder is part of what is scanned, so the result goes to {path}; --store "
            "FILE chooses another place",
            "当前目录属于被扫描的内容，因此结果写入 {path}；可用 --store FILE 指定其他位置",
        ),
        "store_beside_readonly": (
            "the current folder cannot be written, so the result goes to {path}; --store FILE "
            "chooses another place",
            "当前目录不可写，因此结果写入 {path}；可用 --store FILE 指定其他位置",
        ),
        "reporter_broken": (
            "the reporter {name} is left out: {reason}",
            "报告插件 {name} 未启用：{reason}",
        ),
        # --- scan -----------------------------------------------------------------------------
        "interrupted_at_once": (
            "interrupted before anything was read",
            "已中断，此前没有读取任何内容",
        ),
        "interrupted_scan": (
            "interrupted; what was read so far is kept: `{command}` goes on from there "
            "(store: {path})",
            "已中断；已读取的内容已保存：用 `{command}` 可从中断处继续（结果库：{path}）",
        ),
        # --- trace, export --------------------------------------------------------------------
        "same_name": (
            "{count} findings have this name; the best-ranked is shown (others: {others}; "
            "--finding N shows one)",
            "有 {count} 项发现使用此名称；显示的是排名最前的一项（其余：{others}；"
            "--finding N 可显示指定的一项）",
        ),
        "same_operator": (
            "{target}: the best-ranked of {count} executions is exported; name the file of another "
            "one (dumpscope show lists them)",
            "{target}：共 {count} 次执行，导出的是排名最前的一次；其他各次请指定其文件"
            "（dumpscope show 可列出）",
        ),
        "and_more": ("… and {count} more", "…… 另有 {count} 项"),
        "passed_over": (
            "{count} files of no known format passed over",
            "跳过了 {count} 个格式未知的文件",
        ),
        "wrote_arrays": (
            "wrote {count} arrays below {path}",
            "已在 {path} 下写入 {count} 个数组",
        ),
        # --- scans ----------------------------------------------------------------------------
        "head_scan": ("SCAN", "扫描"),
        "head_begun": ("BEGUN (UTC)", "开始（UTC）"),
        "head_state": ("STATE", "状态"),
        "head_files": ("FILES", "文件数"),
        "head_root": ("ROOT", "根目录"),
        "state_running": ("running", "进行中"),
        "state_interrupted": ("interrupted", "已中断"),
        "state_finished": ("finished", "已完成"),
        "fact_scan": ("scan", "扫描"),
        "fact_begun": ("begun (UTC)", "开始（UTC）"),
        "fact_duration": ("duration", "耗时"),
        "fact_state": ("state", "状态"),
        "fact_tool_version": ("tool version", "工具版本"),
        "fact_root": ("root", "根目录"),
        "fact_path": ("path", "路径"),
        "fact_files": ("files", "文件"),
        "fact_ops": ("ops", "算子执行"),
        "fact_tensors": ("tensors", "张量"),
        "fact_bytes": ("bytes", "字节"),
        "fact_unchecked": ("unchecked", "未检查"),
        "fact_read_failures": ("read failures", "读取失败"),
        "fact_overflow_records": ("overflow records", "溢出记录"),
        "fact_empty_overflow_records": ("empty overflow records", "空溢出记录"),
        "fact_unknown_files": ("unknown files", "未知文件"),
        "seconds": ("{seconds} s", "{seconds} 秒"),
        "duration_unknown": ("unknown", "未知"),
        "removed": ("removed {scan}", "已删除 {scan}"),
        "nothing_removed": ("nothing to remove", "没有可删除的扫描"),
        "not_compacted": (
            "the file stays as large as it was: {error}",
            "文件大小保持不变：{error}",
        ),
        "import_read_by": (
            "{path}: scanned with another {names} than {first}; its records stay as they were "
            "read, and all else follows the first one",
            "{path}：扫描时的 {names} 与 {first} 不同；其记录保持读取时的样子，其余均以第一个为准",
        ),
        "import_config": (
            "{path}: its acl.json differs from that of {first}, which counts",
            "{path}：其 acl.json 与 {first} 的不同，以后者为准",
        ),
        "import_document": (
            "{path}: a document lists findings, not everything that was read: its clean operators "
            "are not counted, and links through them are not known; import the store for a result "
            "that equals one scan",
            "{path}：扫描文档只列出发现，而不是读取的全部内容：其正常算子不计入，经过它们的关联"
            "也无从得知；导入结果库才能得到与一次扫描相同的结果",
        ),
        # --- baseline -------------------------------------------------------------------------
        "baseline_wrote": (
            "wrote {findings:finding,findings} to {path}, as {entries} entries: one for each "
            "tensor and kind of bad value",
            "已将 {findings} 项发现写入 {path}，共 {entries} 个条目：每个张量的每种异常值一个",
        ),
        "baseline_updated": (
            "{path}: {added} added, {dropped} dropped, {entries} now",
            "{path}：新增 {added} 个，删除 {dropped} 个，现有 {entries} 个",
        ),
        "baseline_no_name": ("(operator not dumped)", "（算子未转储）"),
        "baseline_first": ("first in the ranking", "排在第一位"),
        "baseline_until": ("until {date}", "有效期至 {date}"),
        "baseline_expired_on": ("EXPIRED {date}", "已于 {date} 过期"),
        # --- config ---------------------------------------------------------------------------
        "config_refused": (
            "{path}: CANN would refuse it ({errors:error,errors}, {warnings:warning,warnings})",
            "{path}：CANN 会拒绝它（{errors} 个错误，{warnings} 个警告）",
        ),
        "config_accepted": (
            "{path}: CANN accepts it ({errors:error,errors}, {warnings:warning,warnings})",
            "{path}：CANN 接受它（{errors} 个错误，{warnings} 个警告）",
        ),
        "config_wrote": (
            "Wrote {path}. Next: create the folder {folder}, give {path} to aclInit or "
            "aclmdlSetDump and run the program, then: {command}",
            "已写入 {path}。接下来：创建目录 {folder}，将 {path} 交给 aclInit 或 aclmdlSetDump "
            "并运行程序，然后执行：{command}",
        ),
        # --- checks ---------------------------------------------------------------------------
        "checks_verdicts": ("# verdicts", "# 结论"),
        "checks_expected": ("# expected values", "# 预期值"),
        "checks_built_in": ("{name} (built-in): {why}", "{name}（内置）：{why}"),
        "checks_own": ("{name} ({file}): {why}", "{name}（来自 {file}）：{why}"),
    }
)

_FIELD = re.compile(r"\{(\w+)(?::([^{},]*),([^{},]*))?\}")


def talk(key: str, lang: str = "en", **values: object) -> str:
    """Return a sentence with numbers, names and paths put in.

    >>> talk("config_accepted", path="acl.json", errors=0, warnings=1)
    'acl.json: CANN accepts it (0 errors, 1 warning)'
    """

    def _fill(match: re.Match[str]) -> str:
        name, one, many = match.groups()
        value = values[name]
        shown = format_count(value) if isinstance(value, int) else str(value)
        return shown if one is None else f"{shown} {one if value == 1 else many}"

    return _FIELD.sub(_fill, TALK[key][lang.startswith("zh")])
