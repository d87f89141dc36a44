"""The table that people read in a terminal, in any locale.

Names are made printable first, so no dump can send an escape sequence to a terminal. Where the
stream or the locale cannot show more than ASCII, the frame, the ellipsis and foreign names are
ASCII too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO

from dumpscope.model import Finding, Reason, Scan, Verdict
from dumpscope.reporters.cells import shorten, wrap
from dumpscope.reporters.followers import choose_rows, count_hidden, is_follower
from dumpscope.reporters.ranks import rank_notes
from dumpscope.reporters.screen import (
    WIDTH,
    can_encode,
    has_colour,
    is_ascii_only,
    open_console,
    read_console,
    width_of,
)
from dumpscope.reporters.summary import (
    count_unchecked,
    headline_of,
    leading_finding,
    next_steps,
    notes_of,
    unchecked_of,
)
from dumpscope.reporters.tables import cut
from dumpscope.safetext import make_ascii, make_printable
from dumpscope.words import format_count, label, render, render_brief, render_rest
from dumpscope.words.closeup import phrase
from dumpscope.words.followers import render_follower

if TYPE_CHECKING:
    from rich.box import Box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

__all__ = ["DEFAULT_LIMIT", "print_scan", "render_scan"]

DEFAULT_LIMIT = 20
"""Findings that the table shows when nobody says how many."""

_DETAILS = 3
"""Files that are named where some could not be read, and reasons; the reports name all."""

_COLOURS = {"error": "bold red", "warning": "yellow", "info": "dim"}
_STATUS_COLOURS = {0: "bold green", 1: "bold red", 3: "bold yellow"}


def print_scan(
    scan: Scan,
    *,
    limit: int | None = None,
    lang: str = "en",
    stream: TextIO | None = None,
) -> None:
    """Print the table to a stream, stdout by default, as that stream can show it.

    `limit` is as for `render_scan`. Colours are used only on a terminal, and not
    where NO_COLOR is set; a wide terminal is used up to 160 columns.
    """
    stream = sys.stdout if stream is None else stream
    ascii_only = is_ascii_only(getattr(stream, "encoding", None), os.environ)
    if ascii_only and not can_encode(getattr(stream, "encoding", None), "中"):
        lang = "en"
    stream.write(
        render_scan(
            scan,
            limit=limit,
            lang=lang,
            width=width_of(stream),
            colour=has_colour(stream),
            ascii_only=ascii_only,
        )
    )


def render_scan(
    scan: Scan,
    *,
    limit: int | None = None,
    lang: str = "en",
    width: int = WIDTH,
    colour: bool = False,
    ascii_only: bool = False,
) -> str:
    """Return the table as text: verdict, findings, what was not checked, how to go on.

    `limit` is the number of findings to list, 0 for all. Without one it is the first 20 that do
    not follow another, and a few of those that do. Followers have one line each. No line is
    wider than `width` (at least 60) terminal cells, but for a command.
    """
    console = open_console(width, colour=colour)
    page = _Page(scan, limit, lang, console, ascii_only=ascii_only)
    page.print_all()
    return read_console(console)


class _Page:
    """What is printed, part by part."""

    def __init__(
        self,
        scan: Scan,
        limit: int | None,
        lang: str,
        console: Console,
        *,
        ascii_only: bool,
    ) -> None:
        self._scan = scan
        self._rows = (
            choose_rows(scan.findings, DEFAULT_LIMIT)
            if limit is None
            else list(cut(scan.findings, limit))
        )
        self._lang = lang
        self._console = console
        self._ascii = ascii_only
        self._ellipsis = "..." if ascii_only else "…"
        self._zh = lang.startswith("zh")
        self._width = console.width

    def print_all(self) -> None:
        self._print_headline()
        if self._scan.findings:
            self._console.print(self._make_table())
            self._print_remainder()
        self._print_counts()
        self._print_notes("section_not_checked", unchecked_of(self._scan))
        told = rank_notes(self._scan)
        self._print_notes("section_notes", [n for n in notes_of(self._scan) if n not in told])
        self._print_notes("section_next", next_steps(self._scan))

    def _print_headline(self) -> None:
        style = _STATUS_COLOURS.get(self._scan.exit_status, "bold")
        self._print(self._say(headline_of(self._scan)), style)
        finding = leading_finding(self._scan)
        if finding is not None:
            self._print(self._say(finding.reason))
        for reason in rank_notes(self._scan):
            self._print(self._say(reason))

    def _make_table(self) -> Table:
        from rich.cells import cell_len
        from rich.table import Table

        rows = self._rows
        number = max(2, *(len(str(finding.rank or "")) for finding in rows))
        verdict = max(16, *(cell_len(self._name_verdict(finding)) for finding in rows))
        operator = max(20, (self._width - verdict) * 35 // 100)
        why = self._width - number - verdict - operator - 6
        table = Table(box=self._frame(), padding=(0, 1, 0, 0), show_edge=False, pad_edge=False)
        table.add_column("#", justify="right", width=number)
        table.add_column(self._label("verdict"), width=verdict)
        table.add_column(self._label("operator"), width=operator)
        table.add_column(self._label("what_and_why"), width=why)
        before: Finding | None = None
        for finding in rows:
            if is_follower(finding):
                cells = self._follower_cells(finding, before, operator, why)
            else:
                cells = [
                    self._verdict_cell(finding),
                    self._operator_cell(finding, operator),
                    self._why_cell(finding, why),
                ]
            table.add_row(str(finding.rank or ""), *cells)
            before = finding
        return table

    def _name_step(self, finding: Finding) -> str:
        return "" if finding.op.step is None else f"step {finding.op.step}"

    def _name_device(self, finding: Finding) -> str:
        device = finding.op.device
        return "" if device is None else f"{'设备' if self._zh else 'dev'} {device}"

    def _follower_cells(
        self, finding: Finding, before: Finding | None, operator: int, why: int
    ) -> list[Text]:
        """Return one line of cells. Step and device are told where the row above has others."""
        from rich.cells import cell_len
        from rich.text import Text

        kind, name = self._safe(finding.op.op_type), self._safe(finding.op.op_name)
        named = name if kind in name else f"{kind} {name}"
        if not named.strip():
            named = self._safe(finding.op.file.rpartition("/")[2])
        places = [
            tell(finding)
            for tell in (self._name_step, self._name_device)
            if before is None or tell(finding) != tell(before)
        ]
        place = " ".join(filter(None, places))
        start = f"{place}{'：' if self._zh else ': '}" if place else ""

        def fit(text: str, used: int) -> str:
            return shorten(self._safe(text), why - cell_len(start) - used, self._ellipsis)

        told = start + self._safe(render_follower(finding.reason, self._lang, fit))
        return [
            Text(self._name_verdict(finding), style=self._colour(finding)),
            Text(shorten(named, operator, self._ellipsis)),
            Text(shorten(told, why, self._ellipsis)),
        ]

    def _name_thread(self, finding: Finding) -> str:
        """The part of an operator that was split (FFTS+): its parts have one name."""
        thread = finding.op.thread_id
        return "" if thread is None else f"\n{'线程' if self._zh else 'thread'} {thread}"

    def _verdict_cell(self, finding: Finding) -> Text:
        from rich.text import Text

        place = " ".join(filter(None, (self._name_step(finding), self._name_device(finding))))
        place += self._name_thread(finding)
        cell = Text(self._name_verdict(finding), style=self._colour(finding))
        cell.append("\n" + place, style="not bold default")
        return cell

    def _name_verdict(self, finding: Finding) -> str:
        """The verdict as options and documents spell it, in Chinese with its name before it."""
        return self._spell(finding.verdict)

    def _spell(self, verdict: Verdict) -> str:
        name = verdict.value
        return f"{self._label(name)} {name}" if self._zh else name

    def _operator_cell(self, finding: Finding, width: int) -> Text:
        from rich.text import Text

        kind, name = self._safe(finding.op.op_type), self._safe(finding.op.op_name)
        if not kind and not name:
            name = self._safe(finding.op.file.rpartition("/")[2])
        cell = Text(shorten(kind, width, self._ellipsis), style="bold")
        if name and name != kind:
            cell.append("\n" if kind else "")
            cell.append(shorten(name, width, self._ellipsis), style="not bold")
        return cell

    def _why_cell(self, finding: Finding, width: int) -> Text:
        from rich.text import Text

        brief = self._safe(render_brief(finding.reason, self._lang))
        reason = self._shorten_producer(finding.reason, width)
        rest = self._safe((render_rest if brief else render)(reason, self._lang))
        cell = Text("\n".join(wrap(brief, width)), style="bold")
        if brief:
            cell.append("\n")
        cell.append("\n".join(wrap(rest, width)), style="not bold")
        return cell

    def _shorten_producer(self, reason: Reason, width: int) -> Reason:
        name = reason.parameters.get("producer")
        if not isinstance(name, str):
            return reason
        short = shorten(self._safe(name), width * 2 // 3, self._ellipsis)
        return Reason(reason.code, {**reason.parameters, "producer": short})

    def _colour(self, finding: Finding) -> str:
        return "dim" if finding.known else _COLOURS.get(finding.severity or "", "")

    def _print_remainder(self) -> None:
        hidden = count_hidden(self._scan.findings, self._rows)
        if not hidden:
            return
        told: list[str] = []
        for verdict, count in hidden.items():
            more = "" if told and not self._zh else f" {self._label('more')}"
            number = format_count(count)
            name = self._spell(verdict)
            told.append(f"{name} {number}{more}" if self._zh else f"{number}{more} {name}")
        template = self._label("and_more").replace("…", self._ellipsis)
        self._print(template.replace("{findings}", ("、" if self._zh else ", ").join(told)))

    def _print_counts(self) -> None:
        counts = self._scan.counts
        totals = Reason(
            "totals",
            {
                "findings": counts.findings,
                "ops": counts.ops,
                "tensors": counts.tensors,
                "files": counts.files,
                "overflow_records": counts.overflow_records,
                "mode": self._label(self._scan.mode.number_mode),
            },
        )
        self._print("")
        self._print(self._say(totals), "dim")

    def _print_notes(self, section: str, reasons: list[Reason]) -> None:
        if not reasons:
            return
        self._print(self._label(section) + ("：" if self._zh else ":"), "bold")
        for reason in reasons:
            text = self._say(reason)
            if reason.code.startswith("next_"):
                # A command is never broken into lines: it is there to be copied.
                self._print_line(f"  {text}")
            else:
                self._print(text, indent=2)
            for line in self._list_details(reason.code):
                self._print(self._safe(line), indent=4)

    def _list_details(self, code: str) -> Iterator[str]:
        """Name what a sentence only counts: why it was not checked, the first files."""
        colon = "：" if self._zh else ": "
        if code == "unchecked":
            for why, count in count_unchecked(self._scan)[:_DETAILS]:
                yield f"{format_count(count)}{colon}{self._label(why)}"
        elif code == "read_failures":
            failures = self._scan.read_failures
            for failure in failures[:_DETAILS]:
                yield f"{failure.file}{colon}{failure.message}"
            yield from self._count_others(len(failures))
        elif code == "unknown_files" and self._scan.unknown_files:
            yield from self._scan.unknown_files[:_DETAILS]
            yield from self._count_others(self._scan.counts.unknown_files)

    def _count_others(self, total: int) -> Iterator[str]:
        if total > _DETAILS:
            more = phrase("and_more_nodes", self._lang, count=total - _DETAILS)
            yield more.replace("…", self._ellipsis)

    # --- parts -----------------------------------------------------------------------------

    def _print(self, text: str, style: str = "", indent: int = 0) -> None:
        # Longer lines are hard to read, however wide the terminal is.
        for line in wrap(text, min(self._width, WIDTH) - indent) or [""]:
            self._print_line(" " * indent + line, style)

    def _print_line(self, line: str, style: str = "") -> None:
        from rich.text import Text

        self._console.print(Text(line, style=style), soft_wrap=True)

    def _say(self, reason: Reason) -> str:
        return self._safe(render(reason, self._lang))

    def _label(self, key: str) -> str:
        return label(key, self._lang)

    def _safe(self, text: str) -> str:
        if self._ascii and not self._zh:
            return make_ascii(text)
        return make_printable(text)

    def _frame(self) -> Box:
        from rich import box

        if not self._ascii:
            return box.SIMPLE_HEAD
        return box.Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)
