"""Reasons in two languages: exact sentences, the same numbers, and never an exception."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dumpscope.model import Reason, Verdict
from dumpscope.overflow import describe_status
from dumpscope.words import (
    LANGUAGES,
    REASON_CODES,
    describe_verdict,
    format_number,
    label,
    language_of,
    pick_language,
    render,
    render_brief,
    render_rest,
    render_status,
)

PACKAGE = Path(__file__).resolve().parent.parent / "dumpscope"

Parameters = Mapping[str, str | int | float | bool | None]

BASE: Parameters = {
    "role": "output",
    "index": 0,
    "dtype": "float16",
    "nan": 0,
    "posinf": 513,
    "neginf": 0,
    "saturated": 0,
    "total": 2048,
    "inputs": 2,
    "max_input": 412.5,
    "limit": 65504.0,
    "evidence": "own_inputs",
}

FULL: Parameters = {
    **BASE,
    "hardware": "0x20 floating-point overflow",
    "kind": "AIC",
    "producer": "net/bmm",
    "producer_type": "BatchMatMulV2",
    "op_type": "Mul",
    "op_name": "net/mul",
    "step": 7,
    "device": 3,
    "task_id": 24,
    "stream_id": 2,
    "ranks": "3, 5",
    "rule": "mask-fill",
    "why": "a mask",
    "why_zh": "掩码",
    "index_in": 1,
    "count": 11,
    "limit_rows": 9,
    "runs": 4,
    "newest": "20251129120000",
    "asked": "0-3",
    "found": "0-1",
    "missing": "2, 3",
    "done": 17,
    "path": "/store.db",
    "findings": 185,
    "ops": 204,
    "tensors": 694,
    "files": 205,
    "overflow_records": 6,
    "target": "net/mul",
    "mode": "INF",
}


def say(code: str, changes: Parameters, lang: str = "en") -> str:
    return render(Reason(code, {**BASE, **changes}), lang)


ENGLISH: list[tuple[str, Parameters, str]] = [
    (
        "origin",
        {},
        "Output 0 has 513 +Inf of 2,048 float16 elements while both inputs are finite (largest "
        "|x| 412.5): the operator itself produced the Inf (float16 ends at 65,504).",
    ),
    (
        "origin",
        {"nan": 1, "posinf": 2, "neginf": 3, "inputs": 3, "max_input": None},
        "Output 0 has 1 NaN, 2 +Inf and 3 -Inf of 2,048 float16 elements while all 3 inputs are "
        "finite: the operator itself produced the NaN and Inf (float16 ends at 65,504).",
    ),
    (
        "origin",
        {"nan": 2048, "posinf": 0, "inputs": 1, "max_input": 0.0},
        "All 2,048 float16 elements of output 0 are NaN while its input is finite (largest |x| "
        "0): the operator itself produced the NaN.",
    ),
    (
        "origin",
        {"inputs": 0, "evidence": "graph", "posinf": 0, "neginf": 1, "max_input": None},
        "Output 0 has 1 -Inf of 2,048 float16 elements while what its producers wrote is finite "
        "(linked by an edge of the graph): the operator itself produced the Inf.",
    ),
    (
        "origin_confirmed",
        {"hardware": "0x20 floating-point overflow"},
        "Output 0 has 513 +Inf of 2,048 float16 elements while both inputs are finite (largest "
        "|x| 412.5): the operator itself produced the Inf (float16 ends at 65,504); the hardware "
        "confirms it (0x20 floating-point overflow).",
    ),
    (
        "origin_mask",
        {"nan": 4, "posinf": 0, "index_in": 1, "op_type": "SoftmaxV2"},
        "Output 0 has 4 NaN of 2,048 float16 elements; the only non-finite values it read are "
        "the mask constant in input 1: a row that is masked completely turns into NaN in this "
        "operator.",
    ),
    (
        "origin_mask",
        {"nan": 4, "posinf": 0, "index_in": 1, "op_type": "Mul"},
        "Output 0 has 4 NaN of 2,048 float16 elements; the only non-finite values it read are "
        "the mask constant in input 1: computing with it, the operator itself produced these.",
    ),
    (
        "saturated_origin",
        {"posinf": 0, "saturated": 12},
        "Output 0 has 12 of 2,048 float16 elements at the limit of 65,504 while both inputs are "
        "below the limit (largest |x| 412.5): the operator itself saturated.",
    ),
    (
        "status_origin_not_dumped",
        {"task_id": 24, "stream_id": 2, "hardware": "0x10 integer add"},
        "The hardware flagged an overflow (0x10 integer add) in an operator that was not dumped "
        "(the record names task 24, stream 2): status only.",
    ),
    (
        "bad_input",
        {"role": "input", "index": 1, "nan": 3, "posinf": 0, "dtype": "float32", "total": 10},
        "Input 1 has 3 NaN of 10 float32 elements and nothing in the dump produced it: the "
        "trouble is older than the dump (data, weights or an earlier step), or lies in an operator "
        "that was not dumped.",
    ),
    (
        "received",
        {"ranks": "3, 5"},
        "Output 0 has 513 +Inf of 2,048 float16 elements; this rank's own inputs of the "
        "communication operator are finite: the bad values came from ranks 3, 5.",
    ),
    (
        "propagated",
        {"producer": "net/bmm", "producer_type": "BatchMatMulV2", "evidence": "address"},
        "Output 0 has 513 +Inf of 2,048 float16 elements, but it read non-finite values that "
        "BatchMatMulV2 net/bmm produced (linked by the device address).",
    ),
    (
        "propagated",
        {"producer": "Torch.exp.0.forward", "producer_type": "Torch.exp", "evidence": "order"},
        "Output 0 has 513 +Inf of 2,048 float16 elements; an earlier operator of this rank and "
        "step (Torch.exp.0.forward) was non-finite already (by order of execution alone).",
    ),
    (
        "expected",
        {"rule": "mask-fill", "why": "a mask"},
        "Output 0 has 513 +Inf of 2,048 float16 elements, on purpose: a mask; rule mask-fill.",
    ),
    (
        "unknown_inputs",
        {"at_least": True, "from_statistics": True, "tensor_name": "scale"},
        "Output 0 (scale) has at least 513 +Inf of 2,048 float16 elements; its inputs were not "
        "dumped or could not all be checked, and no producer was found: only the order of "
        "execution speaks for this place. Judged by statistics that the dump brought along, not "
        "by values.",
    ),
]


@pytest.mark.parametrize(("code", "changes", "expected"), ENGLISH)
def test_english_sentences(code: str, changes: Parameters, expected: str) -> None:
    assert say(code, changes) == expected


CHINESE: list[tuple[str, Parameters, str]] = [
    (
        "origin",
        {},
        "输出 0 的 2,048 个 float16 元素中有 513 个 +Inf，而两个输入均为有限值（最大 |x| 为 "
        "412.5）：Inf 由该算子自身产生（float16 的上限是 65,504）。",
    ),
    (
        "saturated_origin",
        {"posinf": 0, "saturated": 12},
        "输出 0 的 2,048 个 float16 元素中有 12 个达到上限 65,504，而两个输入均未达到上限（最大 "
        "|x| 为 412.5）：饱和由该算子自身造成。",
    ),
    (
        "propagated",
        {"producer": "net/bmm", "producer_type": "BatchMatMulV2", "evidence": "bytes"},
        "输出 0 的 2,048 个 float16 元素中有 513 个 +Inf，但它读到了由 BatchMatMulV2 net/bmm "
        "产生的非有限值（依据：数据逐字节相同）。",
    ),
    (
        "expected",
        {"rule": "mask-fill", "why": "a mask", "why_zh": "掩码"},
        "输出 0 的 2,048 个 float16 元素中有 513 个 +Inf，属于预期：掩码；规则 mask-fill。",
    ),
    (
        "bad_input",
        {"role": "input", "index": 1, "nan": 2048, "posinf": 0, "at_least": True},
        "输入 1 的 2,048 个 float16 元素全部为 NaN，而转储中没有任何算子产生过它："
        "问题早于本次转储（数据、权重或更早的 step），或出在未转储的算子。",
    ),
]


@pytest.mark.parametrize(("code", "changes", "expected"), CHINESE)
def test_chinese_sentences(code: str, changes: Parameters, expected: str) -> None:
    assert say(code, changes, "zh") == expected


@pytest.mark.parametrize("code", REASON_CODES)
def test_every_code_has_words_with_and_without_parameters(code: str) -> None:
    for parameters in (FULL, {}):
        english = render(Reason(code, parameters), "en")
        chinese = render(Reason(code, parameters), "zh")
        assert english.isascii()
        assert re.search("[\u4e00-\u9fff]", chinese)
        for text in (english, chinese):
            assert text
            assert not re.search(r"None|[{}\[\]]|  | ,|\(\)|（）", text), text


@pytest.mark.parametrize("code", REASON_CODES)
def test_both_languages_tell_the_same_numbers(code: str) -> None:
    if code == "nothing_expected":
        return
    reason = Reason(code, FULL)
    numbers = [sorted(re.findall(r"\d[\d,.]*\d|\d", render(reason, lang))) for lang in LANGUAGES]
    # English says "both" where Chinese says 两个; ordinals of sentences are no numbers.
    assert numbers[0] == numbers[1]


@given(
    st.sampled_from(REASON_CODES),
    st.dictionaries(
        st.sampled_from([*sorted(FULL), "maybe_mask", "loss_scale", "at_least", "tensor_name"]),
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    ),
)
def test_no_parameter_makes_words_fail(
    code: str, parameters: dict[str, str | int | float | bool | None]
) -> None:
    for lang in LANGUAGES:
        reason = Reason(code, parameters)
        assert render(reason, lang).isprintable()
        assert render_rest(reason, lang).isprintable()
        assert render_brief(reason, lang).isprintable()


def test_an_unknown_code_is_spelled_out() -> None:
    reason = Reason("from_a_plugin", {"depth": 3, "name": "\x1b", "gone": None})
    assert render(reason) == "From a plugin (depth 3, name \\x1b)."


def test_suffixes_stand_with_origins_and_not_with_what_passed_on() -> None:
    changes: Parameters = {
        "maybe_mask": True,
        "loss_scale": True,
        "padding_included": True,
    }
    assert say("origin", changes).endswith(
        " It may be a mask: -Inf is the only such value in it. A loss-scale check is in the "
        "dump: it would skip this step. The count may include padding of the blocked layout."
    )
    assert say("propagated", changes) == say("propagated", {})


@pytest.mark.parametrize(
    ("changes", "english", "chinese"),
    [
        ({}, "513 +Inf of 2,048 float16", "513 个 +Inf（共 2,048 个 float16）"),
        (
            {"posinf": 0, "saturated": 9},
            "9 of 2,048 float16 at the limit",
            "9 个达到上限（共 2,048 个 float16）",
        ),
        (
            {"posinf": 0, "nan": 2048},
            "all 2,048 float16 are NaN",
            "2,048 个 float16 全部为 NaN",
        ),
        (
            {"total": None, "posinf": 1, "nan": 2},
            "2 NaN and 1 +Inf float16",
            "2 个 NaN 和 1 个 +Inf（float16）",
        ),
        ({"posinf": 0}, "", ""),
    ],
)
def test_what_is_bad_in_a_few_words(changes: Parameters, english: str, chinese: str) -> None:
    reason = Reason("origin", {**BASE, **changes})
    assert render_brief(reason, "en") == english
    assert render_brief(reason, "zh") == chinese


def test_the_rest_of_a_sentence_leaves_out_what_is_bad() -> None:
    reason = Reason("origin", {**BASE, "limit": None})
    assert render_rest(reason) == (
        "Both inputs are finite (largest |x| 412.5): the operator itself produced the Inf."
    )
    assert (
        render_rest(reason, "zh")
        == "两个输入均为有限值（最大 |x| 为 412.5）：Inf 由该算子自身产生。"
    )


def test_a_tensor_is_named_where_its_name_says_more_than_its_place() -> None:
    assert say("swallowed", {"tensor_name": "output.0"}).startswith("Output 0 has")
    assert say("swallowed", {"tensor_name": "output_0"}).startswith("Output 0 has")
    assert say("swallowed", {"tensor_name": "weight"}).startswith("Output 0 (weight) has")
    assert say("swallowed", {"tensor_name": "weight"}, "zh").startswith("输出 0（weight）的")


def test_commands_end_without_a_stop() -> None:
    assert render(Reason("next_show", {"target": "net/mul"})).endswith("dumpscope show net/mul")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (65504.0, "65,504"),
        (412.5, "412.5"),
        (0.0, "0"),
        (-1.5, "-1.5"),
        (3.3895313892515355e38, "3.38953e+38"),
        (1e-7, "1e-07"),
        (0.00025, "0.00025"),
        (1234567.891, "1,234,568"),
        (2**40, "1,099,511,627,776"),
        (float("inf"), "+Inf"),
        (float("-inf"), "-Inf"),
        (float("nan"), "NaN"),
    ],
)
def test_numbers_as_engineers_write_them(value: float, expected: str) -> None:
    assert format_number(value) == expected


@pytest.mark.parametrize(
    ("kind", "word"),
    [("AIC", 0x8 | 0x10 | 0x20 | 0x80 | 0x100 | 0x400), ("AIC", 0x1)]
    + [("DHA", code << 8) for code in range(0x9, 0xE)]
    + [("L2", code << 16) for code in range(1, 6)],
)
def test_every_hardware_status_is_translated(kind: str, word: int) -> None:
    bits = describe_status(kind, [word])
    assert bits
    for bit in bits:
        assert render_status(bit, "en") == bit
        chinese = render_status(bit, "zh")
        assert chinese.split(" ")[0] == bit.split(" ")[0]
        # Names of dtypes and units stay; no English word does.
        left = re.sub(r"0x[0-9a-f]+|float16|float32|int32|CUBE|NaN", "", chinese)
        assert not re.search("[A-Za-z]", left), chinese
    joined = ", ".join(bits)
    assert render_status(joined, "zh").count("0x") >= len(bits)
    assert not re.search("overflow|integer|atomic", render_status(joined, "zh"))


def test_a_further_status_word_is_told_in_chinese() -> None:
    (_, bit) = describe_status("AIC", [0x20, 0x2])
    assert render_status(bit, "zh") == "0x2 含义未知的位（第 1 个状态字）"


def test_verdicts_have_names_and_meanings() -> None:
    for verdict in Verdict:
        assert re.search("[\u4e00-\u9fff]", label(verdict.value, "zh"))
        assert describe_verdict(verdict, "en").isascii()
        assert re.search("[\u4e00-\u9fff]", describe_verdict(verdict, "zh"))
    assert label("no such key", "zh") == "no such key"


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": "C"}, "en"),
        ({"LANG": "C", "LC_MESSAGES": "zh_CN"}, "zh"),
        ({"LANG": "zh_CN", "LC_ALL": ""}, "zh"),
        ({"LANG": "de_DE.UTF-8"}, "en"),
    ],
)
def test_the_language_follows_the_locale(environment: dict[str, str], expected: str) -> None:
    assert language_of(environment) == expected


def test_language_tags() -> None:
    assert [pick_language(tag) for tag in ("zh", "zh-CN", "ZH_tw", "en", "", "fr")] == [
        "zh",
        "zh",
        "zh",
        "en",
        "en",
        "en",
    ]


def reason_codes_in_source() -> set[str]:
    """Codes that the package builds reasons with, as far as they are written as literals."""
    codes = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            name = node.func.id if isinstance(node.func, ast.Name) else ""
            first = node.args[0]
            if name in {"Reason", "build_reason"} and isinstance(first, ast.Constant):
                codes.add(str(first.value))
    return codes


def test_every_reason_of_the_package_has_words() -> None:
    codes = reason_codes_in_source()
    assert {"status_origin_not_dumped", "unchecked", "several_runs"} <= codes
    assert codes <= set(REASON_CODES)
