"""Words for one file or operator seen from close by, in both languages."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from dumpscope.words.facts import format_count, format_number

__all__ = ["PHRASES", "describe_place", "format_index", "format_value", "phrase"]

PHRASES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "and_more_ops": (
            "… and {count} more operators; --op PATTERN picks some, --limit 0 shows all",
            "……另有 {count} 个算子；--op 按名称选择，--limit 0 显示全部",
        ),
        "and_more_nodes": ("… and {count} more", "……另有 {count} 个"),
        "attributes": ("attributes", "属性"),
        "bad_elements": ("bad elements", "异常元素"),
        "bad_elements_first": ("the first {count} of {total}", "共 {total} 个，前 {count} 个"),
        "blocked": ("stored as {stored}", "存储形状 {stored}"),
        "bytes": ("{count} bytes", "{count} 字节"),
        "no_finding": ("no finding", "无发现"),
        "damage": ("damage", "损坏"),
        "every_element": ("every element", "全部元素"),
        "exponents": (
            "exponents of {count} finite values other than 0 (height: logarithm of the count)",
            "{count} 个非零有限值的指数分布（高度为个数的对数）",
        ),
        "exponent_span": (
            "{dtype} holds 2^{low} to 2^{high}; the values lie between 2^{least} and 2^{most}",
            "{dtype} 可表示 2^{low} 至 2^{high}；数值在 2^{least} 与 2^{most} 之间",
        ),
        "exponent_subnormal": ("below 2^{normal} subnormal", "2^{normal} 以下为次正规数"),
        "gone": (
            "the file could not be read; this is what scan {scan} had measured",
            "文件无法读取；以下为扫描 {scan} 当时的测量结果",
        ),
        "graph": ("a graph of {count} operators", "含 {count} 个算子的图"),
        "missing": (
            "{count} bytes at its end are missing; the rest is shown",
            "末尾缺少 {count} 字节；以下为现有部分",
        ),
        "not_dumped": ("left out by the writer on purpose", "写入方有意未转储"),
        "nothing": ("no operator in it", "其中没有算子"),
        "of_the_scan": ("of scan {scan}", "见扫描 {scan}"),
        "one_element": ("one element", "一个元素"),
        "others": ("other executions of the same name", "同名的其他执行"),
        "overflow_record": ("overflow record", "溢出记录"),
        "empty_record": ("empty: nothing overflowed", "空：没有溢出"),
        "same_everywhere": ("all over the tensor", "遍布整个张量"),
        "statistics_only": (
            "statistics of another tool: the file holds no values",
            "其他工具写出的统计值：文件中没有数值",
        ),
        "unchecked": ("NOT CHECKED", "未检查"),
        "archive": ("is an archive: unpack it first", "是压缩包：请先解压"),
        "unknown_format": (
            "no reader knows this file; `dumpscope readers` lists the formats",
            "没有读取器认识此文件；`dumpscope readers` 列出支持的格式",
        ),
        "where": ("where", "位置"),
    }
)


def phrase(key: str, lang: str = "en", **values: object) -> str:
    """Return a phrase with its values; whole numbers get thousands separators."""
    shown = {
        name: format_count(value)
        if name in ("count", "total") and isinstance(value, int)
        else value
        for name, value in values.items()
    }
    return PHRASES[key][lang.startswith("zh")].format(**shown)


def describe_place(
    shape: Sequence[int], box: Sequence[tuple[int, int]], bad: int, lang: str = "en"
) -> str:
    """Say where the bad elements of a tensor are: "rows 900-1023 only (of 1,024)".

    Parameters
    ----------
    shape, box
        The logical shape, and first and last index of bad elements along each axis.
    bad
        How many there are.
    """
    zh = lang.startswith("zh")
    if bad >= math.prod(shape):
        return phrase("every_element", lang)
    inside = math.prod(last - first + 1 for first, last in box)
    words = [
        _name_range(axis, len(shape), first, last, size, zh=zh)
        for axis, ((first, last), size) in enumerate(zip(box, shape, strict=True))
        if last - first + 1 < size
    ]
    if bad == 1:
        words.insert(0, phrase("one_element", lang))
    elif not words:
        words.append(phrase("same_everywhere", lang))
    place = ("，" if zh else ", ").join(words)
    if bad == 1:
        return place
    if bad >= inside:
        return f"{place}{'：其中每个元素' if zh else ': every element there'}"
    share = format_number(round(100 * bad / inside, 2)) if bad * 20_000 > inside else "<0.01"
    if zh:
        return f"{place}：其中 {format_count(inside)} 个元素里的 {format_count(bad)} 个（{share}%）"
    return f"{place}: {format_count(bad)} of the {format_count(inside)} elements there ({share} %)"


def _name_range(axis: int, rank: int, first: int, last: int, size: int, *, zh: bool) -> str:
    one = first == last
    span = str(first) if one else f"{first}-{last}"
    if rank == 1:
        name = "元素" if zh else ("element" if one else "elements")
    elif axis == rank - 1:
        name = "列" if zh else ("column" if one else "columns")
    elif axis == rank - 2:
        name = "行" if zh else ("row" if one else "rows")
    else:
        name = f"轴 {axis} 的" if zh else f"axis {axis},"
    if zh:
        return f"仅{name} {span}（共 {format_count(size)}）"
    return f"{name} {span} only (of {format_count(size)})"


def format_index(index: Sequence[int]) -> str:
    """Write an index as it is typed: "[0, 513]"."""
    return f"[{', '.join(map(str, index))}]"


def format_value(value: float | complex) -> str:
    """Write one element: "NaN", "+Inf", "65,504", or both parts of a complex number."""
    if isinstance(value, complex):
        imaginary = format_number(value.imag)
        sign = "" if imaginary[0] in "+-" else "+"
        return f"{format_number(value.real)} {sign}{imaginary}i"
    return format_number(value)
