"""Headlines, notes and next steps of a run, in both languages, as templates.

`{name}` is a parameter, `{name:one,many}` a count with its noun, and a part in `[...]` is left
out when a parameter inside it is not known.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from dumpscope.regexes import regex
from dumpscope.words.facts import Facts, format_count, name_operator

__all__ = ["NOTES", "fill_template"]

_PLACE_EN = "[ in step {step}][ on device {device}]"
_PLACE_ZH = "[，step {step}][，设备 {device}]"
_OWN_EN = "{count:rank,ranks} of {total} went bad before receiving anything"
_OWN_ZH = "{total} 个 rank 中有 {count} 个在接收任何数据之前自行异常"

NOTES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        # --- the verdict of a run in one sentence ---------------------------------------------
        "headline_origin": (
            f"{{operator}} went wrong first{_PLACE_EN}",
            f"最先出错的算子是{{operator}}{_PLACE_ZH}",
        ),
        "headline_bad_input": (
            f"The trouble is older than the dump: {{operator}} reads bad values first{_PLACE_EN}",
            f"问题早于本次转储：最先读到异常值的是{{operator}}{_PLACE_ZH}",
        ),
        "headline_received": (
            f"The bad values came through communication: {{operator}} received them{_PLACE_EN}",
            f"异常值经通信传入：接收它的是{{operator}}{_PLACE_ZH}",
        ),
        "headline_handoff": (
            f"A clean tensor arrived bad: {{operator}} read other values than were written"
            f"{_PLACE_EN}",
            f"写出时正常的张量在读入时已异常：读到它的是{{operator}}{_PLACE_ZH}",
        ),
        "headline_unknown_inputs": (
            f"{{operator}} is the earliest one with bad values{_PLACE_EN}, but its inputs are not "
            "known: it may only have passed them on",
            f"最早出现异常值的是{{operator}}{_PLACE_ZH}，但其输入未知：异常也可能是传入的",
        ),
        "headline_propagated": (
            "What made the bad values is not in the dump; they show first in "
            f"{{operator}}{_PLACE_EN}",
            f"产生异常值的算子不在转储中；最早可见于{{operator}}{_PLACE_ZH}",
        ),
        "headline_swallowed": (
            f"Bad values show only in inputs and vanish again; first in {{operator}}{_PLACE_EN}",
            f"异常值只出现在输入中，随后被掩盖；最早可见于{{operator}}{_PLACE_ZH}",
        ),
        "headline_known": (
            "Nothing new: {findings:finding,findings} known to the baseline",
            "没有新问题：[{findings} 项]发现均已在基线中登记",
        ),
        "headline_clean": (
            "No operator produced NaN, Inf or saturated values[ in {ops:execution,executions}]"
            "[ with {tensors:tensor,tensors}]",
            "没有算子产生 NaN、Inf 或饱和值[：共检查 {ops} 次执行][、{tensors} 个张量]",
        ),
        "headline_incomplete": (
            "No offender was found, but not everything could be checked: this is not a clean run",
            "没有发现出错的算子，但并非所有数据都已检查：不能视为正常",
        ),
        # --- notes of a run -------------------------------------------------------------------
        "clean": (
            "No operator produced NaN, Inf or saturated values",
            "没有算子产生 NaN、Inf 或饱和值",
        ),
        "nothing_expected": (
            "The folder is empty, and that is good news: only overflows were to be dumped "
            "(dump_debug on, or --expect overflow)",
            "目录为空，这是好消息：此次只转储溢出算子（dump_debug 为 on，或 --expect overflow）",
        ),
        "nothing_found": (
            "Nothing to read was found where a dump was expected: check dump_path, dump_step and "
            "dump_list in acl.json, and whether the job ran that far",
            "应有转储的位置没有可读内容：请检查 acl.json 的 dump_path、dump_step 和 dump_list，"
            "以及任务是否运行到该处",
        ),
        "config_comments": (
            "[{path}: ]comments and trailing commas are accepted here, but CANN itself refuses "
            "them: remove them before the next run",
            "[{path}：]此处接受注释和多余的逗号，但 CANN 自身会拒绝：下次运行前请删除",
        ),
        "several_runs": (
            "The dump holds {runs:run,runs}[; the newest, {newest}, comes first]; --run picks one",
            "转储中不止一次运行[（共 {runs} 次）][，最新的 {newest} 排在最前]；可用 --run 选择",
        ),
        "partial_steps": (
            "The dump is partial[: steps {asked} were asked for][, {found} found]"
            "[; {count:step,steps} missing: {missing}]",
            "转储不完整[：要求的 step 为 {asked}][，实际找到 {found}]"
            "[；缺少 {count} 个 step：{missing}]",
        ),
        "unknown_files": (
            "{count:file,files} of no known format not read; `dumpscope readers` lists the formats",
            "{count} 个文件格式未知，未读取；`dumpscope readers` 列出支持的格式",
        ),
        "archives": (
            "{count:archive was,archives were} not looked into[, the first is {path}]: to have a "
            "dump in it read, unpack it first",
            "{count} 个压缩包未读取[，第一个是 {path}]：如其中有转储，请先解压再扫描",
        ),
        "unchecked": (
            "{count:tensor,tensors} could not be checked: unchecked is not clean",
            "{count} 个张量无法检查：未检查不等于正常",
        ),
        "read_failures": (
            "{count:read failure,read failures}: files, or parts of them, that could not be read",
            "{count} 处读取失败：相应文件或其一部分无法读取",
        ),
        "skipped_links": (
            "{count:entry,entries} skipped: pipes, sockets, links out of the tree",
            "跳过了 {count} 个管道、套接字或链接",
        ),
        "expected_values": (
            "{count:operator,operators} non-finite on purpose (masks, fresh buffers): listed, "
            "not counted",
            "{count} 个算子的非有限值属于预期（掩码、未初始化缓冲区等）：列出但不计入",
        ),
        "baseline_known": (
            "{count:finding,findings} known to the baseline: listed, not counted",
            "{count} 项发现已在基线中登记：列出但不计入",
        ),
        "still_growing": (
            "{count:file,files} may still be being written[: {names}]; "
            "scan again when the dump is complete",
            "{count} 个文件可能仍在写入[：{names}]；转储完成后请重新扫描",
        ),
        "imported_documents": (
            "{count:part,parts} came in as a scan document: only what it lists is known, so the "
            "counts leave out its clean operators, and verdicts can be weaker",
            "{count} 个部分由扫描文档导入：只包含文档中列出的内容，因此计数不含其正常算子，"
            "判定也可能较弱",
        ),
        "baseline_gone": (
            "{count:baseline entry,baseline entries} did not occur[: {names}]; "
            "`dumpscope baseline update FILE --drop-gone` removes them",
            "基线中有 {count} 个条目本次没有出现[：{names}]；"
            "`dumpscope baseline update FILE --drop-gone` 可将其删除",
        ),
        "baseline_expired": (
            "{count:baseline entry,baseline entries} ran out and count as new again[: {names}]",
            "基线中有 {count} 个条目已过期，重新按新发现计入[：{names}]",
        ),
        "empty_overflow_records": (
            "{count:overflow record,overflow records} with an all-zero status: nothing overflowed",
            "{count} 条溢出记录的状态全为零：没有溢出",
        ),
        "findings_left_out": (
            "{count:finding,findings} left out[ by --limit {limit}]; --limit 0 gives all",
            "[受 --limit {limit} 限制，]有 {count} 项发现未列出；--limit 0 列出全部",
        ),
        "sheet_full": (
            "{count:row,rows} left out, the lowest in the ranking[: a sheet holds {limit} rows]",
            "省略了排名最靠后的 {count} 行[：一张工作表最多 {limit} 行]",
        ),
        "interrupted": (
            "Interrupted[ after {done:file,files}]; what was read is stored: the same command "
            "goes on from there",
            "已中断[，此前完成 {done} 个文件]；已读取的内容已保存：再次运行同一命令即可继续",
        ),
        "number_mode_inf_nan": (
            "Number mode INF/NaN, inferred: computed outputs hold non-finite values",
            "数值模式为 INF/NaN（推断）：计算输出中存在非有限值",
        ),
        "number_mode_saturation": (
            "Number mode saturation, inferred: values reach the limit and none is non-finite",
            "数值模式为饱和（推断）：有值达到上限，且没有非有限值",
        ),
        "number_mode_unknown": (
            "Number mode unknown: nothing in the data tells it",
            "数值模式未知：数据中没有依据",
        ),
        "not_for_verdict": (
            "[{count:overflow record,overflow records} of ]an unknown kind: listed, no finding",
            "[{count} 条]类型未知的溢出记录：列出，但不作为发现",
        ),
        # --- notes on ranks -------------------------------------------------------------------
        "ranks_own": (
            f"{_OWN_EN}: {{ranks}}[ ({{place}})][, first in step {{step}}]",
            f"{_OWN_ZH}：{{ranks}}[（{{place}}）][，最早在 step {{step}}]",
        ),
        "ranks_own_group": (
            f"{_OWN_EN}: {{ranks}}[, all and only {{group}}][; first in step {{step}}]",
            f"{_OWN_ZH}：{{ranks}}[，恰好是 {{group}} 的全部][；最早在 step {{step}}]",
        ),
        "ranks_own_inside": (
            f"{_OWN_EN}: {{ranks}}[, all in {{group}} ({{size}} ranks)][; first in step {{step}}]",
            f"{_OWN_ZH}：{{ranks}}[，均属于 {{group}}（共 {{size}} 个）][；最早在 step {{step}}]",
        ),
        "ranks_own_all": (
            "All {total} ranks went bad before they received anything[, first in step {step}]: "
            "look for what they share (data, weights, code) rather than for one device",
            "全部 {total} 个 rank 均在接收任何数据之前自行异常[，最早在 step {step}]："
            "应查找它们的共同因素（数据、权重、代码），而非某个设备",
        ),
        "ranks_together": (
            "{operator} made bad values out of finite inputs of all its ranks[ in step {step}]; "
            "{count:rank,ranks} got them at once: {ranks}",
            "{operator} 在各 rank 输入均为有限值时产生了异常值[（step {step}）]；"
            "{count} 个 rank 同时得到：{ranks}",
        ),
        "ranks_received": (
            "{count:rank,ranks} of {total} received bad values[ in step {step}] through {operator}"
            "[, sent by {senders}]: {ranks}",
            "{total} 个 rank 中有 {count} 个[在 step {step} ]经 {operator} 收到异常值"
            "[（来自 {senders}）]：{ranks}",
        ),
        "ranks_unclear": (
            "{count:rank,ranks} of {total} may have received what is bad[ in step {step}]: they "
            "show it first in {operator}, and the result of an exchange before it was not dumped: "
            "{ranks}",
            "{total} 个 rank 中有 {count} 个的异常值可能是[在 step {step} ]收到的："
            "最早可见于 {operator}，而此前有通信算子的结果未被转储：{ranks}",
        ),
        "ranks_later": (
            "{count:rank,ranks} of {total} went bad only later[, in step {step}], through what an "
            "earlier step left (weights, states): {ranks}",
            "{total} 个 rank 中有 {count} 个之后才异常[（step {step}）]，"
            "原因是更早的 step 留下的数据（权重、状态）：{ranks}",
        ),
        "rank_clean": ("clean", "正常"),
        "rank_own": (
            "bad before receiving anything: {operator}[ in step {step}][, finding {finding}]",
            "在接收任何数据之前自行异常：{operator}[，step {step}][，第 {finding} 项发现]",
        ),
        "rank_together": (
            "bad together with all ranks of {operator}[ in step {step}][, finding {finding}]",
            "与 {operator} 的各 rank 同时异常[，step {step}][，第 {finding} 项发现]",
        ),
        "rank_received": (
            "received bad values through {operator}[ in step {step}][, sent by {senders}]"
            "[, finding {finding}]",
            "经 {operator} 收到异常值[，step {step}][，来自 {senders}][，第 {finding} 项发现]",
        ),
        "rank_unclear": (
            "may have received it, in an exchange whose result was not dumped: {operator}"
            "[ in step {step}][, finding {finding}]",
            "异常值可能是收到的，此前有通信算子的结果未被转储：{operator}"
            "[，step {step}][，第 {finding} 项发现]",
        ),
        "rank_later": (
            "bad only later, from what an earlier step left: {operator}[ in step {step}]"
            "[, finding {finding}]",
            "之后才异常，源于更早的 step：{operator}[，step {step}][，第 {finding} 项发现]",
        ),
        "ranks_same_device": (
            "{count:device,devices} went bad unaided in each of the {jobs} runs that hold bad "
            "values: {devices}[ of {host}]; suspect the hardware, unless all runs did the same",
            "在出现异常值的全部 {jobs} 次运行中，都有 {count} 个设备自行异常：{devices}"
            "[（{host}）]；除非各次运行的计算完全相同，否则应怀疑硬件",
        ),
        "ranks_assumed_order": (
            "Coordinates of the {count:rank,ranks} of the job follow Megatron's default order"
            "[, {order}], which is assumed here; --order names another",
            "作业共 {count} 个 rank，其坐标按 Megatron 的默认顺序推算[（{order}）]，"
            "此处为假定；可用 --order 指定",
        ),
        "ranks_not_mapped": (
            "The rank map does not name {count:rank,ranks} of the dump: {ranks}",
            "rank 映射表中没有转储里的 {count} 个 rank：{ranks}",
        ),
        "ranks_beyond_sizes": (
            "The sizes of the job[, {sizes},] make {world:rank,ranks}, but the dump holds rank "
            "{highest}: they were not used; correct --tp, --pp, --dp, --cp",
            "作业的并行规模[（{sizes}）]共 {world} 个 rank，但转储中有 rank {highest}："
            "未使用；请修正 --tp、--pp、--dp、--cp",
        ),
        "ranks_not_global": (
            "The layout of the job was not used: the dump names device ids of several hosts, "
            "which are no global ranks",
            "未使用作业的并行布局：转储中是多台主机各自的设备号，而不是全局 rank",
        ),
        "totals": (
            "{findings:finding,findings}, {ops:operator execution,operator executions}, "
            "{tensors:tensor,tensors}, {files:file,files}, "
            "{overflow_records:overflow record,overflow records}[; number mode {mode}]",
            "发现 {findings} 项，算子执行 {ops} 次，张量 {tensors} 个，文件 {files} 个，"
            "溢出记录 {overflow_records} 条[；数值模式：{mode}]",
        ),
        # --- how to go on ---------------------------------------------------------------------
        "next_show": (
            "all tensors of the first offender: dumpscope show {target}[ {place}]",
            "查看首个出错算子的全部张量：dumpscope show {target}[ {place}]",
        ),
        "next_report": (
            "a workbook to send around: dumpscope report --xlsx[ {place}]",
            "生成可转发的工作簿：dumpscope report --xlsx[ {place}]",
        ),
        "next_failures": (
            "what could not be read, and why: dumpscope report --json=- --limit 1[ {place}]",
            "查看哪些内容无法读取及原因：dumpscope report --json=- --limit 1[ {place}]",
        ),
        "next_formats": (
            "which formats are read: dumpscope readers",
            "查看支持哪些格式：dumpscope readers",
        ),
    }
)

_PART = regex(r"\[([^\[\]]*)\]")
_FIELD = regex(r"\{(\w+)(?::([^{}]*),([^{},]*))?\}")


def fill_template(template: str, facts: Facts, *, chinese: bool = False) -> str:
    """Put the parameters into a template; parts with an unknown parameter are left out."""

    def _field(match: re.Match[str]) -> str:
        name, one, many = match.groups()
        if name == "operator":
            return _name_operator(facts, chinese=chinese)
        count = facts.count(name)
        if count is None:
            unknown = "若干" if chinese else f"some {many or ''}"
            return facts.text(name) or (unknown if one or name == "count" else "")
        if one is None:
            return str(count) if name in {"step", "device"} else format_count(count)
        return f"{format_count(count)} {one if count == 1 else many}"

    def _part(match: re.Match[str]) -> str:
        names = [name for name, _, _ in _FIELD.findall(match.group(1))]
        known = all(facts.text(name) for name in names)
        return _FIELD.sub(_field, match.group(1)) if known else ""

    filled: list[str] = []
    end = 0
    for match in _PART.finditer(template):
        filled += [_FIELD.sub(_field, template[end : match.start()]), _part(match)]
        end = match.end()
    filled.append(_FIELD.sub(_field, template[end:]))
    text = " ".join("".join(filled).split())
    return re.sub("(若干|[，：；（]) ", r"\1", text) if chinese else text


def _name_operator(facts: Facts, *, chinese: bool) -> str:
    named = name_operator(facts, "op_type", "op_name")
    if not named:
        return "某个算子" if chinese else "an operator"
    return f" {named}" if chinese else named
