"""Trends: as a table for people, as CSV with a row per point, as JSON `dumpscope.trend/1`."""

from __future__ import annotations

import csv
import heapq
import io
from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import Any, BinaryIO, TextIO

from dumpscope.nightly.trend import LARGE_GRADIENT, Point, Series
from dumpscope.records import record
from dumpscope.reporters.document import json_number
from dumpscope.reporters.flat import format_cell
from dumpscope.reporters.json_lines import dump_json
from dumpscope.reporters.tables import Cell
from dumpscope.reporters.text_page import TextColumn, TextPage, print_page
from dumpscope.safetext import escape_json_text
from dumpscope.version import VERSION
from dumpscope.words import format_count, format_number
from dumpscope.words.nightly import nightly_word

__all__ = ["CSV_COLUMNS", "SCHEMA", "Trend", "dump_trend", "print_trend", "write_trend_csv"]

SCHEMA = "dumpscope.trend/1"
_BOM = b"\xef\xbb\xbf"

CSV_COLUMNS = (
    "scan_id", "run", "step", "device", "model", "op_type", "op_name", "slot", "name", "dtype",
    "count", "nan", "nan_share", "nonfinite", "max_abs", "headroom_bits", "mean", "std", "rms",
    "l2", "gradient", "large_gradient", "left_band",
)  # fmt: skip

Json = Any


@record(frozen=False, slots=True)
class Trend:
    """The series to show, most worth looking at first, and how many there are in all."""

    scan_ids: tuple[str, ...]
    across_scans: bool
    series: list[Series] = field(default_factory=list)
    tensors: int = 0
    left_band: int = 0
    large_gradients: int = 0
    screened: int = 0

    def take(self, found: Iterable[Series], limit: int) -> None:
        """Count all series and keep the first `limit` of them, 0 for all."""
        counted = self._count(found)
        if limit:
            self.series = heapq.nsmallest(limit, counted, key=Series.order)
        else:
            self.series = sorted(counted, key=Series.order)

    def _count(self, found: Iterable[Series]) -> Iterator[Series]:
        for series in found:
            self.tensors += 1
            self.left_band += series.left is not None
            self.large_gradients += series.large_gradient
            self.screened += all(point.rms is None for point in series.points)
            yield series


# --- CSV ----------------------------------------------------------------------------------------


def write_trend_csv(series: Iterable[Series], target: BinaryIO) -> None:
    """Write one row for each point, with a byte-order mark as Excel wants it."""
    target.write(_BOM)
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(CSV_COLUMNS)
    for entry in series:
        for index, point in enumerate(entry.points):
            writer.writerow([format_cell(value) for value in _cells(entry, index, point)])
        if text.tell() > 1 << 20:
            target.write(text.getvalue().encode())
            text.seek(0)
            text.truncate()
    target.write(text.getvalue().encode())


def _cells(entry: Series, index: int, point: Point) -> tuple[Cell, ...]:
    return (
        point.scan_id,
        point.run,
        point.step,
        entry.device,
        entry.model,
        entry.op_type,
        entry.op_name,
        entry.slot,
        entry.name or None,
        entry.dtype,
        point.count,
        point.nan,
        point.nan_share,
        point.nonfinite,
        point.largest,
        point.headroom,
        point.mean,
        point.std,
        point.rms,
        point.l2,
        entry.gradient,
        entry.gradient and (point.l2 or 0.0) > LARGE_GRADIENT,
        entry.left is not None and entry.left.index == index,
    )


# --- JSON ---------------------------------------------------------------------------------------


def dump_trend(trend: Trend) -> str:
    """Return the document as JSON text, one series per line."""
    head = {
        "schema": SCHEMA,
        "tool": {"name": "dumpscope", "version": VERSION},
        "scans": list(trend.scan_ids),
        "across": "scans" if trend.across_scans else "steps",
        "counts": {
            "tensors": trend.tensors,
            "left_band": trend.left_band,
            "large_gradients": trend.large_gradients,
            "left_out": trend.tensors - len(trend.series),
        },
    }
    lines = [f"{dump_json(key)}: {dump_json(value)}" for key, value in head.items()]
    series = ",\n  ".join(dump_json(_build_series(entry)) for entry in trend.series)
    lines.append(f'"series": [\n  {series}]' if series else '"series": []')
    return escape_json_text("{" + ",\n ".join(lines) + "}")


def _build_series(entry: Series) -> dict[str, Json]:
    left = entry.left
    return {
        "model": entry.model,
        "op_type": entry.op_type,
        "op_name": entry.op_name,
        "slot": entry.slot,
        "name": entry.name or None,
        "dtype": entry.dtype,
        "device": entry.device,
        "gradient": entry.gradient,
        "large_gradient": entry.large_gradient,
        "left_band": None
        if left is None
        else {
            "index": left.index,
            "scan_id": entry.points[left.index].scan_id,
            "run": entry.points[left.index].run,
            "step": entry.points[left.index].step,
            "metric": left.metric,
            "value": json_number(left.value),
            "low": json_number(left.low),
            "high": json_number(left.high),
        },
        "points": [_build_point(point) for point in entry.points],
    }


def _build_point(point: Point) -> dict[str, Json]:
    return {
        "scan_id": point.scan_id,
        "run": point.run,
        "step": point.step,
        "count": point.count,
        "nan": point.nan,
        "nan_share": point.nan_share,
        "nonfinite": point.nonfinite,
        "max_abs": json_number(point.largest),
        "headroom_bits": json_number(point.headroom),
        "mean": json_number(point.mean),
        "std": json_number(point.std),
        "rms": json_number(point.rms),
        "l2": json_number(point.l2),
    }


# --- the table ----------------------------------------------------------------------------------


def print_trend(trend: Trend, *, lang: str = "en", stream: TextIO | None = None) -> None:
    """Print the series that the trend kept, a row each."""

    def fill(page: TextPage, said_in: str) -> None:
        _fill(page, trend, said_in)

    print_page(fill, lang=lang, stream=stream)


def _fill(page: TextPage, trend: Trend, lang: str) -> None:
    key = "trend_scans" if trend.across_scans else "trend_steps"
    page.say(
        nightly_word(
            key,
            lang,
            tensors=format_count(trend.tensors),
            left=format_count(trend.left_band),
            scans=format_count(len(trend.scan_ids)),
            scan=trend.scan_ids[-1] if trend.scan_ids else "",
        ),
        "bold red" if trend.left_band else "bold",
    )
    if trend.large_gradients:
        count = format_count(trend.large_gradients)
        page.say(nightly_word("trend_gradients", lang, count=count), "red")
    if trend.series:
        page.say("")
        columns = [
            TextColumn(nightly_word("tensor", lang), 34),
            TextColumn(nightly_word("headroom_first_last", lang), 10, right=True),
            TextColumn("NaN", 6, right=True),
            TextColumn("RMS", 9, right=True),
            TextColumn("L2", 9, right=True),
            TextColumn(nightly_word("left_band", lang)),
        ]
        rows = [_row(entry, lang) for entry in trend.series]
        page.table(columns, rows, ["red" if entry.left else "" for entry in trend.series])
    hidden = trend.tensors - len(trend.series)
    if hidden:
        page.say(nightly_word("and_more", lang, count=format_count(hidden)))
    if trend.screened:
        page.say(nightly_word("trend_screened", lang, count=format_count(trend.screened)), "dim")


def _row(entry: Series, lang: str) -> tuple[str, ...]:
    first, last = entry.points[0], entry.points[-1]
    where = f"{entry.slot} {entry.dtype}"
    if entry.device is not None:
        where += f" dev {entry.device}"
    if entry.name:
        where += f" {entry.name}"
    return (
        f"{entry.op_name or entry.op_type}\n{where}",
        f"{_bits(first.headroom)}\n{_bits(last.headroom)}",
        f"{first.nan_share:.1%}\n{last.nan_share:.1%}",
        f"{_number(first.rms)}\n{_number(last.rms)}",
        f"{_norm(entry, first)}\n{_norm(entry, last)}" if entry.gradient else "",
        _tell_left(entry, lang),
    )


def _bits(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _number(value: float | None) -> str:
    return "-" if value is None else format_number(value)


def _norm(entry: Series, point: Point) -> str:
    mark = "!" if entry.gradient and (point.l2 or 0.0) > LARGE_GRADIENT else ""
    return f"{_number(point.l2)}{mark}"


def _tell_left(entry: Series, lang: str) -> str:
    left = entry.left
    if left is None:
        return ""
    point = entry.points[left.index]
    if point.step is None:
        where = nightly_word("at_scan", lang, number=left.index + 1)
    else:
        where = f"step {point.step}"
    if left.metric == "nonfinite":
        return nightly_word(
            "left_nonfinite", lang, where=where, count=format_count(int(left.value))
        )
    return nightly_word(
        "left_value",
        lang,
        where=where,
        metric="max|x|" if left.metric == "max" else "RMS",
        value=format_number(left.value),
        low=format_number(left.low),
        high=format_number(left.high),
    )
