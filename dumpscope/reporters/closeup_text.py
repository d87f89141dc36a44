"""One file or operator for people in a terminal: plain lines, safe whatever the names hold."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from typing import TextIO

from dumpscope.inspecting.closeup import Closeup, exponent_range
from dumpscope.inspecting.views import FileView, OpView, View
from dumpscope.model import Finding, OpRecord, OverflowRecord, OverflowUnit, TensorSummary
from dumpscope.naming import is_archive_name
from dumpscope.overflow import describe_status
from dumpscope.reporters.cells import shorten, wrap
from dumpscope.reporters.exponents import draw_exponents
from dumpscope.reporters.screen import WIDTH, is_ascii_only, width_of
from dumpscope.reporters.tables import known_stats
from dumpscope.safetext import count_cells, make_ascii, make_printable
from dumpscope.words import (
    format_count,
    format_number,
    head_column,
    label,
    render,
    render_status,
)
from dumpscope.words.closeup import describe_place, format_index, format_value, phrase

__all__ = ["print_view", "render_view"]

_STATISTICS = (
    ("nan", "posinf", "neginf", "saturated", "near_limit", "subnormal", "zero"),
    ("min", "max", "mean", "std", "rms", "l2"),
)
_MIN_WIDTH = 80
_VALUE_WIDTH = 60
_OTHERS = 20
_STACK = 12


def print_view(view: View, *, lang: str = "en", stream: TextIO | None = None) -> None:
    """Print a view to a stream, stdout by default, as that stream can show it."""
    stream = sys.stdout if stream is None else stream
    ascii_only = is_ascii_only(getattr(stream, "encoding", None), os.environ)
    width = min(width_of(stream), WIDTH)
    stream.write(render_view(view, lang=lang, width=width, ascii_only=ascii_only))


def render_view(
    view: View, *, lang: str = "en", width: int = WIDTH, ascii_only: bool = False
) -> str:
    """Return a view as text.

    No line is wider than `width` cells (at least 80), but for paths, which are there to be copied.
    """
    page = _Page(lang, max(width, _MIN_WIDTH), ascii_only=ascii_only)
    return "\n".join(line.rstrip() for line in page.lines_of(view)) + "\n"


class _Page:
    def __init__(self, lang: str, width: int, *, ascii_only: bool) -> None:
        self._lang = lang
        self._width = width
        self._ascii = ascii_only
        self._zh = lang.startswith("zh")
        self._comma, self._colon = ("，", "：") if self._zh else (", ", ": ")
        self._brackets = "（{}）" if self._zh else " ({})"

    # --- sections ----------------------------------------------------------------------------

    def lines_of(self, view: View) -> Iterator[str]:
        for number, file in enumerate(view.files):
            if number:
                yield ""
            yield from self._file(file, view)
        if view.stored is not None:
            yield ""
            scan_id = "" if view.scan is None else view.scan.scan_id
            yield from self._wrapped(self._phrase("gone", scan=scan_id))
            yield from self._op(view.stored, view)
        if view.others:
            yield ""
            count = self._brackets.format(format_count(len(view.others)))
            yield f"{self._phrase('others')}{count}{self._colon}".rstrip()
            for op, finding in view.others[:_OTHERS]:
                yield from self._other(op, finding)
            if len(view.others) > _OTHERS:
                yield "  " + self._phrase("and_more_nodes", count=len(view.others) - _OTHERS)

    def _file(self, file: FileView, view: View) -> Iterator[str]:
        reader = file.reader or "-"
        size = self._phrase("bytes", count=file.size_bytes)
        yield f"{self._label('file')}  {self._safe(file.path)}"
        yield f"  {self._head('reader')} {self._safe(reader)}{self._comma}{size}"
        if not file.known:
            packed = is_archive_name(os.path.basename(file.path))
            yield from self._wrapped(self._phrase("archive" if packed else "unknown_format"), 2)
        for op in file.ops:
            yield ""
            yield from self._op(op, view)
        if file.left_out:
            yield ""
            yield from self._wrapped(self._phrase("and_more_ops", count=file.left_out))
        for record in file.overflow:
            yield ""
            yield from self._record(record)
        if file.nodes:
            yield ""
            yield f"{self._phrase('graph', count=file.nodes)}{self._colon}".rstrip()
            for node in file.graph:
                yield "  " + self._short(f"{node.op_type} {node.name}".strip(), self._width - 2)
            if file.nodes > len(file.graph):
                yield "  " + self._phrase("and_more_nodes", count=file.nodes - len(file.graph))
        if file.known and not file.read and not file.failures:
            yield "  " + self._phrase("nothing")
        if file.failures:
            yield ""
            yield f"{self._phrase('damage')}{self._colon}".rstrip()
            for failure in file.failures:
                place = "" if failure.offset is None else f" 0x{failure.offset:x}"
                text = f"{failure.error}{place}{self._colon}{failure.message}"
                yield from self._wrapped(self._safe(text), 2)

    def _op(self, view: OpView, whole: View) -> Iterator[str]:
        op = view.op
        title = f"{op.op_type} {op.op_name}" if op.op_name != op.op_type else op.op_name
        yield self._short(title.strip() or op.file, self._width)
        facts = [
            f"{self._head(name)} {value}"
            for name, value in (
                ("step", op.step),
                ("device", op.device),
                ("task_id", op.task_id),
                ("stream_id", op.stream_id),
                ("context_id", op.context_id),
                ("thread_id", op.thread_id),
                ("timestamp", op.timestamp),
            )
            if value is not None
        ]
        yield from self._wrapped(self._comma.join(facts), 2)
        if op.parent:
            yield f"  {self._head('parent')} {self._short(op.parent, self._width - 12)}"
        if view.finding is not None:
            yield from self._finding(view.finding, whole)
        yield from self._attributes(op)
        for at, tensor in enumerate(op.tensors):
            closeup = view.closeups[at] if at < len(view.closeups) else None
            yield ""
            yield from self._tensor(tensor, closeup)

    def _attributes(self, op: OpRecord) -> Iterator[str]:
        if op.attributes:
            yield f"  {self._phrase('attributes')}"
            room = min(_VALUE_WIDTH, self._width - 40)
            for name, value in op.attributes:
                yield f"    {self._short(name, 30)} = {self._short(value, room)}"
        if op.stack:
            yield f"  {self._label('stack')}"
            for frame in op.stack[:_STACK]:
                yield from self._wrapped(self._safe(frame), 4)
            if len(op.stack) > _STACK:
                yield "    " + self._phrase("and_more_nodes", count=len(op.stack) - _STACK)

    def _finding(self, finding: Finding, whole: View) -> Iterator[str]:
        rank = "" if finding.rank is None else f"#{finding.rank} "
        scan = whole.scan
        where = ""
        if scan is not None:
            where = self._brackets.format(self._phrase("of_the_scan", scan=scan.scan_id))
        yield f"  {rank}{self._label(finding.verdict.value)}{where}"
        yield from self._wrapped(self._safe(render(finding.reason, self._lang)), 4)
        overflow = finding.overflow
        if overflow is not None:
            unit = OverflowUnit(overflow.kind, overflow.status)
            yield from self._unit(unit, 4)
            for other in overflow.others:
                yield from self._unit(other, 4)

    # --- tensors -----------------------------------------------------------------------------

    def _tensor(self, tensor: TensorSummary, closeup: Closeup | None) -> Iterator[str]:
        name = f" {self._short(tensor.name, 30)}" if tensor.name else ""
        shape = "x".join(map(str, tensor.shape)) or "()"
        facts = [
            f"{self._label(tensor.role)} {tensor.index}{name}",
            self._safe(tensor.dtype),
            self._safe(tensor.layout),
            self._short(shape, 40),
            self._phrase("bytes", count=tensor.size_bytes),
        ]
        if tensor.address:
            facts.append(f"@0x{tensor.address:x}")
        yield "  ".join(facts)
        yield from self._state(tensor)
        stats = known_stats(tensor)
        for names in _STATISTICS:
            cells = [
                f"{self._head(key)} {format_number(getattr(stats, key))}"
                for key in names
                if getattr(stats, key) is not None
            ]
            if cells:
                yield from _listed("", cells, "   ", 4, self._width)
        if stats.padding_nonfinite:
            yield f"    {self._head('padding_nonfinite')} {format_count(stats.padding_nonfinite)}"
        bad = tensor.stats.nonfinite or tensor.stats.saturated
        if stats.bad_box is not None and bad:
            place = describe_place(tensor.shape, stats.bad_box, bad, self._lang)
            yield from self._wrapped(f"{self._phrase('where')} {place}", 4)
        if closeup is not None:
            yield from self._closeup(tensor, closeup, bad)

    def _state(self, tensor: TensorSummary) -> Iterator[str]:
        if not tensor.dumped:
            yield "    " + self._phrase("not_dumped")
        elif tensor.unchecked is not None:
            why = self._safe(self._label(tensor.unchecked))
            yield from self._wrapped(f"{self._phrase('unchecked')}{self._colon}{why}", 4)
        if tensor.from_statistics:
            yield from self._wrapped(self._phrase("statistics_only"), 4)
        if tensor.missing_bytes:
            yield from self._wrapped(self._phrase("missing", count=tensor.missing_bytes), 4)
        for note in tensor.notes:
            yield from self._wrapped(self._safe(note), 4)

    def _closeup(self, tensor: TensorSummary, closeup: Closeup, bad: int) -> Iterator[str]:
        if closeup.bad:
            head = self._phrase("bad_elements")
            if bad > len(closeup.bad):
                first = self._phrase("bad_elements_first", count=len(closeup.bad), total=bad)
                head += self._brackets.format(first)
            cells = [f"{format_index(e.index)} {format_value(e.value)}" for e in closeup.bad]
            mark = "；" if self._zh else "; "
            yield from _listed(head + self._colon, cells, mark, 4, self._width)
        span = exponent_range(tensor.dtype)
        if span is None or not closeup.exponents:
            return
        total = sum(count for _, count in closeup.exponents)
        yield "    " + self._phrase("exponents", count=total)
        for line in draw_exponents(closeup.exponents, span, ascii_only=self._ascii):
            yield f"      {line}"
        text = self._phrase(
            "exponent_span",
            dtype=tensor.dtype,
            low=span[0],
            high=span[2],
            least=closeup.exponents[0][0],
            most=closeup.exponents[-1][0],
        )
        if span[1] > span[0]:
            text += ("；" if self._zh else "; ") + self._phrase(
                "exponent_subnormal", normal=span[1]
            )
        yield from self._wrapped(self._safe(text), 4)

    # --- overflow, other executions ------------------------------------------------------------

    def _record(self, record: OverflowRecord) -> Iterator[str]:
        empty = f"{self._colon}{self._phrase('empty_record')}" if record.empty else ""
        yield f"{self._phrase('overflow_record')}{empty}"
        for unit in record.units:
            yield from self._unit(unit, 2)

    def _unit(self, unit: OverflowUnit, indent: int) -> Iterator[str]:
        words = " ".join(f"0x{word:x} ({word})" for word in unit.status)
        yield from self._wrapped(
            f"{self._safe(unit.kind)}{self._colon}{self._head('status')} {words}", indent
        )
        for bit in describe_status(unit.kind, unit.status):
            yield from self._wrapped(self._safe(render_status(bit, self._lang)), indent + 2)
        ids = [
            f"{self._head(name)} {value}"
            for name, value in (
                ("task_id", unit.task_id),
                ("stream_id", unit.stream_id),
                ("context_id", unit.context_id),
                ("thread_id", unit.thread_id),
                ("model_id", unit.model_id),
            )
            if value is not None
        ]
        fields = [f"{name} {value} (0x{value:x})" for name, value in unit.fields]
        if ids or fields:
            yield from self._wrapped(self._safe(self._comma.join([*ids, *fields])), indent + 2)

    def _other(self, op: OpRecord, finding: Finding | None) -> Iterator[str]:
        verdict = self._phrase("no_finding")
        if finding is not None:
            rank = "" if finding.rank is None else f"#{finding.rank} "
            verdict = rank + self._label(finding.verdict.value)
        place = [
            f"{self._head(name)} {value}"
            for name, value in (("step", op.step), ("device", op.device), ("task_id", op.task_id))
            if value is not None
        ]
        text = self._comma.join([verdict, *place])
        yield f"  {self._safe(text)}"
        yield f"    {self._short(op.file, self._width - 4)}"

    # --- parts -------------------------------------------------------------------------------

    def _wrapped(self, text: str, indent: int = 0) -> Iterator[str]:
        for line in wrap(text, self._width - indent):
            yield " " * indent + line

    def _short(self, text: str, width: int) -> str:
        return shorten(self._safe(text), width, "..." if self._ascii else "…")

    def _phrase(self, key: str, **values: object) -> str:
        return self._safe(phrase(key, self._lang, **values))

    def _label(self, key: str) -> str:
        return label(key, self._lang)

    def _head(self, name: str) -> str:
        return head_column(name, self._lang)

    def _safe(self, text: str) -> str:
        if self._ascii and not self._lang.startswith("zh"):
            return make_ascii(text)
        return make_printable(text)


def _listed(head: str, cells: Sequence[str], mark: str, indent: int, width: int) -> Iterator[str]:
    """Write items behind a head, and break lines between items only."""
    line = " " * indent + head
    below = " " * (indent + 2 if head else indent)
    for number, cell in enumerate(cells, 1):
        item = f"{cell}{mark}" if number < len(cells) else cell
        if count_cells(line) + count_cells(item.rstrip()) > width and line != below:
            yield line.rstrip()
            line = below
        line += item
    yield line
