"""The parts that Chinese reasons are put together from: tensors, inputs, producers, status bits."""

from __future__ import annotations

import re

from dumpscope.model import BITS_UNKNOWN
from dumpscope.words.facts import (
    Facts,
    format_count,
    format_number,
    list_kinds,
    name_operator,
    tell_name,
)

__all__ = [
    "EVIDENCE",
    "describe_counts",
    "has",
    "join_sentences",
    "put_spaces",
    "render_rest",
    "tell_hardware",
    "tell_inputs",
    "tell_made_here",
    "tell_producer",
    "translate_status",
]

_ROLE = {"input": "输入", "output": "输出"}
_KIND = {"nan": "NaN", "posinf": "+Inf", "neginf": "-Inf"}

EVIDENCE = {
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
        first = has(facts, role)
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


def has(facts: Facts, fallback: str = "output") -> str:
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


def tell_inputs(facts: Facts, state: str = "均为有限值") -> str:
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
        return f"其生产者写出的数据{state}（{EVIDENCE[evidence]}）"
    if evidence == "order":
        return "同一 rank、同一 step 中更早的算子没有这种情况（仅依据执行顺序）"
    return "没有已知异常的输入"


def tell_made_here(facts: Facts) -> str:
    infinite = facts.amount("posinf") or facts.amount("neginf")
    names = (["NaN"] if facts.amount("nan") else []) + (["Inf"] if infinite else [])
    kinds = f" {_join(names)} " if names else "非有限值"
    words = f"{kinds}由该算子自身产生".strip()
    limit = facts.number("limit")
    if facts.amount("posinf") and limit is not None:
        words += f"（{facts.text('dtype') or '其数据类型'} 的上限是 {format_number(limit)}）"
    return words


def tell_hardware(facts: Facts) -> str:
    return translate_status(facts.text("hardware")) or facts.text("kind") or "溢出状态"


def tell_producer(facts: Facts) -> str:
    name, step = name_operator(facts, "producer_type", "producer"), facts.count("producer_step")
    return name if step is None or not name else f"step {step} 的 {name}"


def put_spaces(name: str) -> str:
    return f" {name} " if name else ""
