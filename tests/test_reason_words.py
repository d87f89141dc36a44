"""Everything a reason can carry is told, in both languages.

The codes and parameters are read from the source of the package, so a new one without words fails
here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import get_args

import pytest

from dumpscope.model import Reason, Verdict
from dumpscope.model.ranks import RankState
from dumpscope.words import LANGUAGES, REASON_CODES, chinese, english, render
from dumpscope.words.notes import NOTES

PACKAGE = Path(__file__).resolve().parent.parent / "dumpscope"
STATES = get_args(RankState)

BUILT_BY_RULE = {
    "rank_*": tuple(f"rank_{state}" for state in STATES),
    "ranks_*": tuple(f"ranks_{state}" for state in STATES if state != "clean"),
}
"""Codes that are put together of a prefix and a state of a rank."""

BESIDE = {
    "op_type", "op_name", "step", "device",  # in columns of their own, beside the reason
    "file", "findings",  # for scripts that read the headline's parameters
}  # fmt: skip

VALUES: Mapping[str, str | int | float | bool] = {
    "op_type": "Mul", "op_name": "net/mul", "step": 7, "device": 3, "task_id": 24, "stream_id": 2,
    "inputs": 2, "max_input": 412.5, "evidence": "address", "from_statistics": True,
    "role": "output", "index": 0, "dtype": "float16", "nan": 3, "posinf": 513, "neginf": 5,
    "saturated": 11, "total": 2048, "limit": 65504.0, "index_in": 1, "expected_rule": "fresh",
    "expected_why": "never written", "expected_why_zh": "从未写入", "producer": "net/bmm",
    "producer_type": "BatchMatMulV2", "producer_step": 6, "contradicts": "net/other",
    "lost": 2, "lost_name": "Mul net/gone",
    "ranks": "3, 5", "absent": "2", "unread": "4", "source": "net/weight", "seen_before": 4,
    "through": "HcomAllReduce net/sum",
    "inputs_only": True, "unseen": True, "hardware": "0x20 floating-point overflow", "kind": "AIC",
    "maybe_mask": True, "padding_included": True, "at_least": True, "seen_at_consumer": True,
    "tensor_name": "scale", "band_axis": 2, "band_axes": 4, "band_first": 900, "band_last": 1023,
    "rule": "mask-fill", "why": "a mask", "why_zh": "掩码", "loss_scale": True,
    "count": 8, "place": "tp=3", "group": "pp=5", "size": 16, "senders": "9", "finding": 12,
    "devices": "6", "jobs": 4, "host": "node7", "order": "tp-cp-ep-dp-pp", "sizes": "tp 4",
    "world": 32, "highest": 33, "names": "net/a", "runs": 14, "newest": "20251129120000",
    "missing": "2, 3", "path": "/acl.json", "ops": 204, "tensors": 694, "files": 205,
    "overflow_records": 66, "target": "net/mul", "mode": "INF", "findings": 185, "file": "a.1",
}  # fmt: skip

LEFT_OUT: tuple[frozenset[str], ...] = tuple(
    map(
        frozenset,
        [
            (),
            ("through",),  # an exchange whose result was dumped
            ("through", "ranks"),
            ("through", "ranks", "absent"),
            ("ranks",),  # who is absent or unread is told where nobody was bad
            ("ranks", "absent"),
            ("nan", "posinf", "neginf"),  # saturated values where nothing is worse
            ("hardware",),
            ("expected_why", "expected_why_zh"),
            ("why", "why_zh"),
            ("expected_why_zh",),  # a user's rule may have words in one language
            ("why_zh",),
            ("inputs",),
        ],
    )
)


# --- what the source can make ---------------------------------------------------------------------


def trees() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        if "words" not in path.relative_to(PACKAGE).parts:
            yield path, ast.parse(path.read_text(encoding="utf-8"))


def texts(node: ast.AST) -> set[str]:
    """Strings that an expression can be: a constant, both ends of a condition, a pattern."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return {node.value}
    if isinstance(node, ast.IfExp):
        return texts(node.body) | texts(node.orelse)
    if isinstance(node, ast.JoinedStr):
        return {f"{text}*" for text in texts(node.values[0])}
    return set()


def functions() -> Iterator[tuple[str, ast.FunctionDef]]:
    for path, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                yield path.stem, node


def codes_in(function: ast.FunctionDef) -> set[str]:
    """Codes of the reasons that a function builds."""
    found: set[str] = set()
    for node in ast.walk(function):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if name in {"Reason", "build_reason", "_tell_group"} and node.args:
            found |= texts(node.args[0])
        elif method == "_finding" and len(node.args) > 2:
            found |= texts(node.args[2])
        else:
            continue
        # A code in a variable: all strings that it is given in the function.
        for argument in node.args:
            if isinstance(argument, ast.Name) and argument.id == "code":
                found |= strings_given_to("code", function)
    return found


def strings_given_to(variable: str, function: ast.FunctionDef) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            if any(isinstance(t, ast.Name) and t.id == variable for t in node.targets):
                found |= texts(node.value)
        elif isinstance(node, ast.For) and isinstance(node.target, ast.Tuple):
            names = [t.id for t in node.target.elts if isinstance(t, ast.Name)]
            if variable in names and isinstance(node.iter, ast.Tuple):
                for row in node.iter.elts:
                    if isinstance(row, ast.Tuple):
                        found |= texts(row.elts[names.index(variable)])
    return found


def keys_in(function: ast.FunctionDef) -> set[str]:
    """Names of the parameters that a function sets."""
    found: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Dict):
            found |= {text for key in node.keys if key is not None for text in texts(key)}
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            if isinstance(node.value, ast.Name) and node.value.id == "parameters":
                found |= texts(node.slice)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr == "update":
                found |= {keyword.arg for keyword in node.keywords if keyword.arg}
        elif isinstance(node, ast.Tuple) and len(node.elts) > 1:
            strings = [texts(element) for element in node.elts]
            if function.name in {"build_reason", "_describe_tensor"} and all(strings):
                found |= set().union(*strings)
    return found - {"finite", "expected"}


def spelled_out(codes: set[str]) -> set[str]:
    return {one for code in codes for one in BUILT_BY_RULE.get(code, (code,))}


VERDICT_BUILDERS = ("build_reason", "_describe_tensor", "compose_finding", "note_loss_scale")


def verdict_parameters() -> set[str]:
    return set().union(*(keys_in(f) for _, f in functions() if f.name in VERDICT_BUILDERS))


def notes_built() -> list[tuple[str, frozenset[str], frozenset[str]]]:
    """Functions that build notes: name, codes and parameters."""
    built = []
    for module, function in functions():
        codes = spelled_out(codes_in(function)) & (set(NOTES) | {"status_origin_not_dumped"})
        calls = [n for n in ast.walk(function) if isinstance(n, ast.Call)]
        gives = any(isinstance(n.func, ast.Name) and n.func.id == "Reason" for n in calls)
        if gives and codes:
            built.append(
                (f"{module}.{function.name}", frozenset(codes), frozenset(keys_in(function)))
            )
    return built


# --- that all of it has words ---------------------------------------------------------------------


def test_the_source_was_understood() -> None:
    codes = {code for _, function in functions() for code in codes_in(function)}
    assert {"origin", "origin_confirmed", "origin_expected", "bad_input", "received"} <= codes
    assert {"rank_*", "baseline_gone", "nothing_expected", "ranks_own_inside"} <= codes
    parameters = verdict_parameters()
    assert {"band_axis", "band_last", "source", "inputs_only", "contradicts"} <= parameters
    assert {"producer_step", "absent", "unread", "seen_before", "loss_scale", "rule"} <= parameters
    assert parameters <= set(VALUES)
    assert len(notes_built()) > 15


def test_every_code_has_words_in_both_languages() -> None:
    made = spelled_out({code for _, function in functions() for code in codes_in(function)})
    assert made - {"headline_*"} <= set(REASON_CODES)
    assert set(english.SENTENCES) == set(chinese.SENTENCES)
    assert list(english.SUFFIXES) == list(chinese.SUFFIXES)
    for verdict in Verdict:
        assert any(code == verdict or code.startswith(f"{verdict}_") for code in english.SENTENCES)
    assert all(ours and theirs for ours, theirs in NOTES.values())


def is_told(codes: frozenset[str], parameter: str, lang: str) -> bool:
    """Whether some sentence is another one when the parameter is not there."""
    if parameter.endswith("_zh") and lang == "en":
        return True
    for left_out in LEFT_OUT:
        given = {key: value for key, value in VALUES.items() if key not in left_out}
        if parameter not in given:
            continue
        without = {key: value for key, value in given.items() if key != parameter}
        if any(
            render(Reason(code, given), lang) != render(Reason(code, without), lang)
            for code in codes
        ):
            return True
    return False


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("parameter", sorted(verdict_parameters() - BESIDE))
def test_every_parameter_of_a_verdict_is_told(parameter: str, lang: str) -> None:
    assert is_told(frozenset(english.SENTENCES), parameter, lang)


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize(("function", "codes", "parameters"), notes_built())
def test_every_parameter_of_a_note_is_told(
    function: str, codes: frozenset[str], parameters: frozenset[str], lang: str
) -> None:
    silent = {key for key in parameters - BESIDE if key in VALUES and not is_told(codes, key, lang)}
    assert not silent, (function, sorted(codes))


# --- the sentences --------------------------------------------------------------------------------

BAD: Mapping[str, str | int | float | bool] = {
    "role": "input", "index": 1, "dtype": "float16", "nan": 3, "total": 2048, "inputs": 1,
}  # fmt: skip

SENTENCES: list[tuple[str, Mapping[str, str | int | float | bool], str, str]] = [
    (
        "bad_input",
        {"source": "net/weight"},
        "Input 1 has 3 NaN of 2,048 float16 elements and nothing in the dump produced it: "
        "net/weight hands it in from outside of the graph, and the trouble is older than the dump "
        "(data, weights or an earlier step).",
        "输入 1 的 2,048 个 float16 元素中有 3 个 NaN，而转储中没有任何算子产生过它："
        "它由 net/weight 从图外送入，问题早于本次转储（数据、权重或更早的 step）。",
    ),
    (
        "bad_input",
        {"source": "net/weight", "seen_before": 0},
        "Input 1 has 3 NaN of 2,048 float16 elements and nothing in this step produced it: "
        "net/weight hands it in from outside of the graph, and step 0 of this rank was bad "
        "already.",
        "输入 1 的 2,048 个 float16 元素中有 3 个 NaN，而本 step 中没有任何算子产生过它："
        "它由 net/weight 从图外送入，同一 rank 的 step 0 已经出错。",
    ),
    (
        "bad_input",
        {"lost": 1, "lost_name": "Div net/div"},
        "Input 1 has 3 NaN of 2,048 float16 elements and nothing in what could be read of the dump "
        "produced it: the trouble is older than the dump (data, weights or an earlier step), or "
        "lies in an operator that was not dumped or in what could not be read. 1 "
        "operator before it on this rank and step, Div net/div, could not be read and may be the "
        "one at fault.",
        "输入 1 的 2,048 个 float16 元素中有 3 个 NaN，而转储中没有任何能读取的算子产生过它："
        "问题早于本次转储（数据、权重或更早的 step），或出在未转储的算子或未能读取的部分。"
        "同一 rank、同一 step 中此前有 1 个算子无法读取：Div net/div，出错的可能是它。",
    ),
    (
        "bad_input",
        {"lost": 3, "lost_name": "Div net/div", "seen_before": 0},
        "Input 1 has 3 NaN of 2,048 float16 elements and nothing in what could be read of this "
        "step produced it: it came from before, and step 0 of this rank was bad already. 3 "
        "operators before it on this rank and step, the last of them Div net/div, could not be "
        "read and may be the one at fault.",
        "输入 1 的 2,048 个 float16 元素中有 3 个 NaN，而本 step 中没有任何能读取的算子产生过它："
        "它来自之前，同一 rank 的 step 0 已经出错。同一 rank、同一 step 中此前有 3 个算子无法读取，"
        "其中最后一个是 Div net/div，出错的可能是它。",
    ),
    (
        "bad_input",
        {"inputs_only": True, "band_axis": 0, "band_axes": 2, "band_first": 900, "band_last": 1023},
        "Input 1 has 3 NaN of 2,048 float16 elements and nothing in the dump produced it: the "
        "trouble is older than the dump (data, weights or an earlier step), or lies in an operator "
        "that was not dumped. All of them are in "
        "rows 900-1023. None of its outputs was dumped: in a dump of inputs alone, the operator "
        "that wrote this input may be the one at fault.",
        "输入 1 的 2,048 个 float16 元素中有 3 个 NaN，而转储中没有任何算子产生过它："
        "问题早于本次转储（数据、权重或更早的 step），或出在未转储的算子。它们全部位于行 900-1023。"
        "它的输出均未被转储：若转储只含输入，出错的也可能是写出该输入的算子。",
    ),
    (
        "received",
        {"ranks": "3, 5", "through": "HcomAllReduce net/sum"},
        "Input 1 has 3 NaN of 2,048 float16 elements; HcomAllReduce net/sum before it, whose "
        "result was not dumped, was given bad values by ranks 3, 5: they came in through it (by "
        "order of execution alone).",
        "输入 1 的 2,048 个 float16 元素中有 3 个 NaN；此前的 HcomAllReduce net/sum "
        "的结果未被转储，而 rank 3, 5 向其送入了异常值：异常值经由它传入（仅依据执行顺序）。",
    ),
    (
        "swallowed",
        {"band_axis": 2, "band_axes": 4, "band_first": 7, "band_last": 7},
        "Input 1 has 3 NaN of 2,048 float16 elements and all outputs are finite: the operator "
        "hides them. All of them are at index 7 of axis 2 of 4.",
        "输入 1 的 2,048 个 float16 元素中有 3 个 NaN，而所有输出均为有限值：该算子掩盖了异常。"
        "它们全部位于轴 2（共 4 个轴）的下标 7。",
    ),
    (
        "handoff",
        {"producer": "net/bmm", "producer_type": "MatMul", "producer_step": 6},
        "Input 1 has 3 NaN of 2,048 float16 elements, but MatMul net/bmm of step 6 wrote a clean "
        "tensor of the same shape, dtype and layout there: the memory was overwritten in between, "
        "or an operator that was not dumped wrote to it.",
        "输入 1 的 2,048 个 float16 元素中有 3 个 NaN，但 step 6 的 MatMul net/bmm 写出的同形状、"
        "同数据类型、同排布的张量是正常的：其间内存被改写，或有未转储的算子写过它。",
    ),
    (
        "propagated",
        {"role": "output", "index": 0, "producer": "a", "evidence": "graph", "contradicts": "b"},
        "Output 0 has 3 NaN of 2,048 float16 elements, but it read non-finite values that a "
        "produced (linked by an edge of the graph). Weaker evidence names another producer: b.",
        "输出 0 的 2,048 个 float16 元素中有 3 个 NaN，但它读到了由 a 产生的非有限值"
        "（依据：计算图的边）。较弱的依据指向另一个生产者：b。",
    ),
    (
        "unknown_inputs",
        {"role": "output", "seen_at_consumer": True, "band_axis": 1, "band_axes": 2,
         "band_first": 3, "band_last": 3},
        "Output 1 has 3 NaN of 2,048 float16 elements; its inputs were not dumped or could not "
        "all be checked, and no producer was found: only the order of execution speaks for this "
        "place. All of them are in column 3. Its output was not dumped or could not be read: "
        "judged by what the operator that read it was given.",
        "输出 1 的 2,048 个 float16 元素中有 3 个 NaN；其输入未被转储或无法全部检查，也找不到"
        "生产者：排在此处的依据只有执行顺序。它们全部位于列 3。其输出没有被转储或无法读取："
        "依据读取它的算子所得到的数据判断。",
    ),
    (
        "origin_expected",
        {"role": "output", "index": 0, "index_in": 1, "expected_rule": "fresh"},
        "Output 0 has 3 NaN of 2,048 float16 elements; the only bad values it read are in input "
        "1, where a rule expects them (fresh): this operator was the first to compute with them.",
        "输出 0 的 2,048 个 float16 元素中有 3 个 NaN；它读到的异常值只在输入 1 中，而有规则认定"
        "那里的异常属于预期（fresh）：该算子最先用它们参与了计算。",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("code", "changes", "ours", "theirs"), SENTENCES)
def test_sentences(
    code: str, changes: Mapping[str, str | int | float | bool], ours: str, theirs: str
) -> None:
    reason = Reason(code, {**BAD, **changes})
    assert render(reason, "en") == ours
    assert render(reason, "zh") == theirs
