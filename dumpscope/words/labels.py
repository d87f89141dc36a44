"""Short words in both languages: verdicts, column heads with what they mean, titles."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from dumpscope.model import Verdict

__all__ = [
    "COLUMNS",
    "LABELS",
    "VERDICT_MEANINGS",
    "describe_column",
    "describe_verdict",
    "head_column",
    "label",
]

LABELS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        # verdicts
        "origin": ("origin", "源头"),
        "saturated_origin": ("saturated origin", "饱和源头"),
        "status_origin": ("status origin", "状态源头"),
        "bad_input": ("bad input", "输入异常"),
        "received": ("received", "通信传入"),
        "handoff": ("handoff", "交接异常"),
        "unknown_inputs": ("unknown inputs", "输入未知"),
        "propagated": ("propagated", "传播"),
        "swallowed": ("swallowed", "被掩盖"),
        "expected": ("expected", "预期"),
        # severities, roles, number modes
        "error": ("error", "错误"),
        "warning": ("warning", "警告"),
        "info": ("info", "提示"),
        "input": ("input", "输入"),
        "output": ("output", "输出"),
        "inf_nan": ("INF/NaN (inferred)", "INF/NaN（推断）"),
        "saturation": ("saturation (inferred)", "饱和（推断）"),
        "unknown": ("unknown", "未知"),
        "yes": ("yes", "是"),
        "no": ("no", "否"),
        # sheets and sections
        "sheet_summary": ("Summary", "摘要"),
        "sheet_findings": ("First offenders", "首个出错算子"),
        "sheet_tensors": ("Tensors", "张量"),
        "sheet_overflow": ("Overflow status", "溢出状态"),
        "sheet_expected": ("Expected", "预期值"),
        "sheet_failures": ("Failures", "读取失败"),
        "sheet_unchecked": ("Unchecked", "未检查"),
        "sheet_charts": ("Charts", "图表"),
        "sheet_legend": ("Legend", "说明"),
        "section_counts": ("Counts", "计数"),
        "section_ranks": ("Ranks", "各 rank"),
        "section_run": ("Run", "运行信息"),
        "section_config": ("Configuration", "配置"),
        "section_not_checked": ("What was not checked", "未检查的内容"),
        "section_notes": ("Notes", "备注"),
        "section_next": ("How to go on", "下一步"),
        "step": ("step", "step"),
        "device": ("device", "设备"),
        "name": ("name", "名称"),
        "heading": ("in words", "中文"),
        "meaning": ("what it holds", "含义"),
        "section_sheets": ("Sheets", "工作表"),
        "nothing_unchecked": (
            "nothing: every file and tensor found was checked",
            "无：找到的文件和张量都已检查",
        ),
        "no_rows": ("none", "无"),
        "chart_findings": ("Findings per step and device", "各 step、各设备的发现数"),
        "count": ("findings", "发现数"),
        "more": ("more", "项"),
        "and_more": (
            "… {findings}: --limit 0 shows all",
            "……另有 {findings}：--limit 0 显示全部",
        ),
        # facts of the summary
        "root": ("dump", "转储目录"),
        "scan_id": ("scan", "扫描编号"),
        "started_at": ("started", "开始时间"),
        "duration": ("seconds", "耗时（秒）"),
        "tool_version": ("dumpscope", "dumpscope 版本"),
        "exit_status": ("exit status", "退出码"),
        "complete": ("complete", "是否完整"),
        "number_mode": ("number mode", "数值模式"),
        "files": ("files", "文件"),
        "ops": ("operator executions", "算子执行次数"),
        "tensors": ("tensors", "张量"),
        "bytes": ("bytes", "字节"),
        "findings": ("findings", "发现"),
        "unchecked": ("unchecked tensors", "未检查的张量"),
        "read_failures": ("read failures", "读取失败"),
        "overflow_records": ("overflow records", "溢出记录"),
        "empty_overflow_records": ("empty overflow records", "空溢出记录"),
        "baseline_known": ("known to the baseline", "基线已登记"),
        "skipped": ("skipped (links, pipes)", "跳过（链接、管道）"),
        "unknown_files": ("files of unknown format", "格式未知的文件"),
        "file": ("file", "文件"),
        "stack": ("called from", "调用位置"),
        "operator": ("operator", "算子"),
        "what_and_why": ("what and why", "异常内容与理由"),
        "why": ("why", "理由"),
        "verdict": ("verdict", "结论"),
        # why a tensor was not checked
        "blank_statistics": ("its statistics are blank", "统计值为空"),
        "unsupported_dtype": ("its dtype cannot be decoded", "数据类型无法解码"),
        "truncated": ("it is truncated", "数据被截断"),
        "read_failure": ("it could not be read", "无法读取"),
        "no_statistics": ("it has a checksum and no statistics", "只有校验和，没有统计值"),
        "statistics_blank": ("its statistics are blank", "统计值为空"),
        "statistics_incomplete": ("its statistics are incomplete", "统计值不完整"),
        "statistics_missing": ("it has no statistics", "没有统计值"),
        "undefined_dtype": ("its dtype is undefined", "数据类型未定义"),
        "unknown_dtype": ("its dtype is not known", "数据类型未知"),
        "ambiguous_dtype": ("its dtype is ambiguous", "数据类型无法确定"),
        "unreadable": ("it could not be read", "无法读取"),
        "no_values": ("its values are not in the file", "文件中没有其数值"),
        "data_elsewhere": ("its data is in another file", "数据在另一个文件中"),
        "structure_only": ("only its structure was dumped", "只转储了结构"),
    }
)

COLUMNS: Mapping[str, tuple[str, str, str, str]] = MappingProxyType(
    {
        # name: (head, what it holds) in English, then in Chinese
        "rank": ("#", "place in the ranking", "排名", "在排名中的位置"),
        "verdict": ("verdict", "what happened in the operator", "结论", "该算子中发生了什么"),
        "severity": ("severity", "error, warning or info", "级别", "error、warning 或 info"),
        "known": ("known", "listed in the baseline", "已知", "已在基线中登记"),
        "step": ("step", "data_index, step or iteration", "step", "data_index、step 或迭代"),
        "device": ("device", "global rank, else device id", "设备", "全局 rank，否则为设备号"),
        "op_type": ("type", "operator type or API", "算子类型", "算子类型或 API"),
        "op_name": ("operator", "operator name", "算子名", "算子名"),
        "reason": ("reason", "why it has this place", "理由", "排在此处的理由"),
        "role": ("role", "input or output", "角色", "input 或 output"),
        "index": ("index", "number of the input or output", "序号", "第几个输入或输出"),
        "dtype": ("dtype", "data type of the elements", "数据类型", "元素的数据类型"),
        "layout": ("layout", "memory layout (GE format)", "排布", "内存排布（GE format）"),
        "shape": ("shape", "logical shape", "形状", "逻辑形状"),
        "count": ("elements", "elements of the tensor", "元素数", "张量的元素个数"),
        "nan": ("NaN", "elements that are NaN", "NaN", "NaN 元素个数"),
        "posinf": ("+Inf", "elements that are +Inf", "+Inf", "+Inf 元素个数"),
        "neginf": ("-Inf", "elements that are -Inf", "-Inf", "-Inf 元素个数"),
        "saturated": (
            "saturated",
            "elements equal to the dtype's largest finite value",
            "饱和",
            "等于该数据类型最大有限值的元素个数",
        ),
        "near_limit": ("near limit", "elements near that limit", "接近上限", "接近上限的元素个数"),
        "subnormal": ("subnormal", "subnormal elements", "次正规", "次正规数元素个数"),
        "zero": ("zero", "elements that are zero", "零", "为零的元素个数"),
        "padding_nonfinite": (
            "padding",
            "NaN or Inf in the padding of a blocked layout",
            "填充异常",
            "分块排布的填充区中 NaN 或 Inf 的个数",
        ),
        "min": ("min", "smallest finite value", "最小值", "最小有限值"),
        "max": ("max", "largest finite value", "最大值", "最大有限值"),
        "mean": ("mean", "mean of finite values", "均值", "有限值的均值"),
        "std": ("std", "standard deviation of finite values", "标准差", "有限值的标准差"),
        "rms": ("RMS", "root mean square of finite values", "均方根", "有限值的均方根"),
        "l2": ("L2", "L2 norm of finite values", "L2 范数", "有限值的 L2 范数"),
        "first_bad": (
            "first bad",
            "index of the first bad element",
            "首个异常",
            "首个异常元素的下标",
        ),
        "bad_box": (
            "bad box",
            "first and last index of bad elements per dimension",
            "异常范围",
            "各维度上异常元素的首末下标",
        ),
        "checked": ("checked", "values could be read", "已检查", "数值可读"),
        "unchecked": ("not checked", "why it was not checked", "未检查原因", "未检查的原因"),
        "name": ("name", "the tensor's own name", "名称", "张量自己的名称"),
        "size_bytes": ("bytes", "size of the data in bytes", "字节数", "数据的字节数"),
        "missing_bytes": (
            "missing",
            "bytes that a truncated tensor lacks",
            "缺失字节",
            "被截断的张量缺少的字节数",
        ),
        "from_statistics": (
            "statistics",
            "judged by statistics of another tool",
            "统计值",
            "依据其他工具的统计值",
        ),
        "task_id": ("task", "task id", "task", "task 编号"),
        "stream_id": ("stream", "stream id", "stream", "stream 编号"),
        "context_id": ("context", "context id", "context", "context 编号"),
        "thread_id": ("thread", "thread id", "thread", "thread 编号"),
        "model_id": ("model", "model id", "模型", "模型编号"),
        "timestamp": ("timestamp", "as the writer wrote it", "时间戳", "写入方原样写下的数字"),
        "run": ("run", "time folder of the run", "运行", "该次运行的时间目录"),
        "host": ("host", "machine that the layout names", "主机", "目录结构给出的主机"),
        "global_rank": ("global rank", "rank in the whole job", "全局 rank", "在整个任务中的 rank"),
        "device_id": ("device id", "device on its machine", "设备号", "本机上的设备号"),
        "evidence": ("evidence", "how inputs are known", "依据", "输入如何得知"),
        "overflow_kind": ("unit", "hardware unit that reported", "硬件单元", "报告溢出的硬件单元"),
        "overflow_status": ("status", "status words in hex", "状态字", "十六进制状态字"),
        "overflow_bits": ("status means", "status in words", "状态含义", "状态的文字说明"),
        "overflow_confirmed": (
            "confirmed",
            "hardware and data agree",
            "硬件证实",
            "硬件状态与数据一致",
        ),
        "overflow_file": ("record", "file of the overflow record", "溢出文件", "溢出记录所在文件"),
        "file": ("file", "path relative to the dump", "文件", "相对转储目录的路径"),
        "reason_code": ("reason code", "code of the reason", "理由代码", "理由的代码"),
        "caused_by": ("caused by", "# of the finding it descends from", "源自", "所源自发现的排名"),
        "stack": ("stack", "source lines that called it", "调用栈", "调用它的源码位置"),
        "parent": ("module", "module that contains it", "所属模块", "包含它的模块"),
        "rule": ("rule", "rule that expects the values", "规则", "认定为预期的规则"),
        "kind": ("unit", "hardware unit", "硬件单元", "硬件单元"),
        "main": ("main", "main unit of its record", "主单元", "是否为该记录的主单元"),
        "empty": ("empty", "status is all zero", "空", "状态全为零"),
        "status": ("status", "status words in hex", "状态字", "十六进制状态字"),
        "status_decimal": (
            "decimal",
            "status words as most tools print them",
            "十进制",
            "状态字的十进制形式（多数工具的写法）",
        ),
        "bits": ("status means", "status in words", "状态含义", "状态的文字说明"),
        "fields": ("fields", "other fields of the record", "其他字段", "记录中的其他字段"),
        "reader": ("reader", "reader that read the file", "读取器", "读取该文件的读取器"),
        "error": ("error", "class of the error", "错误", "错误类别"),
        "offset": ("offset", "byte offset of the damage", "偏移", "损坏处的字节偏移"),
        "offset_hex": ("offset (hex)", "the same in hex", "偏移（十六进制）", "同上，十六进制"),
        "message": ("message", "expected, found, what to do", "说明", "应有、实有与处理办法"),
    }
)


VERDICT_MEANINGS: Mapping[Verdict, tuple[str, str]] = MappingProxyType(
    {
        Verdict.ORIGIN: (
            "an output is NaN or Inf and every input is finite: it was made here",
            "输出为 NaN 或 Inf，而所有输入均为有限值：在此产生",
        ),
        Verdict.STATUS_ORIGIN: (
            "the hardware flagged an overflow that the data does not show",
            "硬件报告溢出，但数据中看不出来",
        ),
        Verdict.SATURATED_ORIGIN: (
            "an output reaches the dtype's limit and no input does: it was clipped here",
            "输出达到数据类型上限，而输入均未达到：在此被截断",
        ),
        Verdict.BAD_INPUT: (
            "an input is NaN or Inf and nothing in the dump made it: the trouble is older",
            "输入为 NaN 或 Inf，而转储中没有算子产生它：问题更早",
        ),
        Verdict.RECEIVED: (
            "the bad value came in through communication from another rank",
            "异常值经通信从其他 rank 传入",
        ),
        Verdict.HANDOFF: (
            "an input is bad although its producer wrote it clean: overwritten memory, a hint only",
            "生产者写出时正常，读入时已异常：内存可能被改写，仅作提示",
        ),
        Verdict.UNKNOWN_INPUTS: (
            "an output is NaN or Inf and the inputs are not known",
            "输出为 NaN 或 Inf，而输入未知",
        ),
        Verdict.PROPAGATED: (
            "an output is NaN or Inf, and so is an input: passed on",
            "输出与输入均有 NaN 或 Inf：由上游传入",
        ),
        Verdict.SWALLOWED: (
            "an input is NaN or Inf and all outputs are finite: hidden here",
            "输入有 NaN 或 Inf，而输出均为有限值：在此被掩盖",
        ),
        Verdict.EXPECTED: (
            "non-finite on purpose (a mask, a fresh buffer): listed, not ranked",
            "属于预期的非有限值（掩码、未初始化缓冲区等）：列出但不排名",
        ),
    }
)


def describe_verdict(verdict: Verdict, lang: str = "en") -> str:
    """Return what a verdict means, in half a sentence."""
    return VERDICT_MEANINGS[verdict][lang.startswith("zh")]


def label(key: str, lang: str = "en") -> str:
    """Return a short word in the language asked for, the key itself when there is none."""
    words = LABELS.get(key)
    return key if words is None else words[lang.startswith("zh")]


def head_column(name: str, lang: str = "en") -> str:
    """Return a column's head for people."""
    return COLUMNS[name][2 if lang.startswith("zh") else 0]


def describe_column(name: str, lang: str = "en") -> str:
    """Return what a column holds."""
    return COLUMNS[name][3 if lang.startswith("zh") else 1]
