"""What changed between two scans: as a table for people, and as JSON `dumpscope.diff/1`."""

from __future__ import annotations

from typing import Any, TextIO

from dumpscope.nightly.diffing import Change, Diff, Drift, FindingBrief, Kind, OperatorChange, Side
from dumpscope.reporters.cells import shorten
from dumpscope.reporters.document import json_number
from dumpscope.reporters.json_lines import dump_json
from dumpscope.reporters.text_page import TextColumn, TextPage, print_page
from dumpscope.safetext import escape_json_text
from dumpscope.version import VERSION
from dumpscope.words import format_count, format_number, render
from dumpscope.words.followers import render_follower
from dumpscope.words.nightly import nightly_word

__all__ = ["SCHEMA", "build_diff", "dump_diff", "print_diff"]

SCHEMA = "dumpscope.diff/1"
_KINDS: tuple[Kind, ...] = ("new", "worse", "moved", "gone")
_STYLES = {"new": "red", "worse": "red", "moved": "yellow", "gone": "green"}

_FOLLOWING = frozenset({"propagated", "swallowed"})
_NAME_CELLS = 40

Json = Any


# --- JSON ---------------------------------------------------------------------------------------


def dump_diff(diff: Diff, *, limit: int = 0, lang: str = "en") -> str:
    """Return the document as JSON text, one entry per line."""
    lines = []
    for key, value in build_diff(diff, limit=limit, lang=lang).items():
        if isinstance(value, list) and value:
            text = "[\n  " + ",\n  ".join(dump_json(entry) for entry in value) + "]"
        else:
            text = dump_json(value)
        lines.append(f"{dump_json(key)}: {text}")
    return escape_json_text("{" + ",\n ".join(lines) + "}")


def build_diff(diff: Diff, *, limit: int = 0, lang: str = "en") -> dict[str, Json]:
    """Return the document; `limit` is the number of entries of each list, 0 for all."""
    of_kind = {kind: diff.of_kind(kind) for kind in _KINDS}
    return {
        "schema": SCHEMA,
        "tool": {"name": "dumpscope", "version": VERSION},
        "before": _build_side(diff.before),
        "now": _build_side(diff.now),
        "exit_status": diff.exit_status,
        "counts": {
            **{kind: len(changes) for kind, changes in of_kind.items()},
            "same": len(diff.of_kind("same")),
            "drift": diff.drift_count,
            "compared_tensors": diff.compared,
        },
        **{
            kind: [_build_change(change, lang) for change in _cut(changes, limit)]
            for kind, changes in of_kind.items()
        },
        "drift": [_build_drift(drift) for drift in _cut(list(diff.drift), limit)],
    }


def _build_side(side: Side) -> dict[str, Json]:
    return {
        "source": side.source,
        "scan_id": side.scan_id,
        "root": side.root,
        "findings": len(side.findings),
    }


def _build_change(change: OperatorChange, lang: str) -> dict[str, Json]:
    shown = change.now or change.before
    assert shown is not None
    return {
        "model": change.model,
        "op_type": change.op_type,
        "op_name": change.op_name,
        "before": _build_brief(change.before),
        "now": _build_brief(change.now),
        "reason": render(shown.reason, lang),
        "reason_code": shown.reason.code,
        "changes": [
            {
                "slot": part.slot,
                "kind": part.kind,
                "share_before": part.share_before,
                "share_now": part.share_now,
                "first_time_first": part.first_time_first,
            }
            for part in change.changes
        ],
    }


def _build_brief(brief: FindingBrief | None) -> dict[str, Json] | None:
    if brief is None:
        return None
    return {
        "rank": brief.rank,
        "verdict": brief.verdict,
        "step": brief.step,
        "device": brief.device,
    }


def _build_drift(drift: Drift) -> dict[str, Json]:
    fields = (
        "model", "op_type", "op_name", "slot", "dtype_before", "dtype_now", "largest_before",
        "largest_now", "headroom_before", "headroom_now", "zero_before", "zero_now",
        "subnormal_before", "subnormal_now",
    )  # fmt: skip
    return {name: json_number(getattr(drift, name)) for name in fields}


def _cut(entries: list[Any], limit: int) -> list[Any]:
    return entries[:limit] if limit else entries


# --- the table ----------------------------------------------------------------------------------


def print_diff(
    diff: Diff, *, limit: int = 0, lang: str = "en", stream: TextIO | None = None
) -> None:
    """Print what changed; `limit` is the number of rows of each table, 0 for all."""

    def fill(page: TextPage, said_in: str) -> None:
        _fill(page, diff, limit, said_in)

    print_page(fill, lang=lang, stream=stream)


def _fill(page: TextPage, diff: Diff, limit: int, lang: str) -> None:
    counts = {kind: len(diff.of_kind(kind)) for kind in (*_KINDS, "same")}
    style = "bold red" if diff.exit_status else "bold green"
    page.say(nightly_word("diff_counts", lang, **counts), style)
    for key, side in (("diff_before", diff.before), ("diff_now", diff.now)):
        page.say(nightly_word(key, lang, scan=side.scan_id, root=side.root))
    changes = [change for kind in _KINDS for change in diff.of_kind(kind)]
    if changes:
        _print_changes(page, _cut(changes, limit), lang)
        _print_rest(page, len(changes), limit, lang)
    page.head(nightly_word("drift", lang))
    if not diff.compared:
        page.say(nightly_word("drift_nothing", lang), indent=2)
        return
    words = {"count": format_count(diff.drift_count), "compared": format_count(diff.compared)}
    page.say(nightly_word("drift_counts", lang, **words))
    if diff.drift:
        _print_drift(page, _cut(list(diff.drift), limit), lang)
        _print_rest(page, diff.drift_count, limit, lang)


def _print_rest(page: TextPage, count: int, limit: int, lang: str) -> None:
    if limit and count > limit:
        page.say(nightly_word("and_more", lang, count=format_count(count - limit)))


def _print_changes(page: TextPage, changes: list[OperatorChange], lang: str) -> None:
    page.say("")
    columns = [
        TextColumn(nightly_word("change", lang), 8),
        TextColumn(nightly_word("operator", lang), 32),
        TextColumn(nightly_word("before", lang), 9),
        TextColumn(nightly_word("now", lang), 9),
        TextColumn(nightly_word("why", lang)),
    ]
    rows = [
        (
            nightly_word(f"change_{change.kind}", lang),
            "\n".join(name for name in (change.op_type, change.op_name) if name)
            or nightly_word("no_operator_name", lang),
            _place(change.before),
            _place(change.now),
            _why(change, lang),
        )
        for change in changes
    ]
    page.table(columns, rows, [_STYLES.get(change.kind, "") for change in changes])


def _place(brief: FindingBrief | None) -> str:
    if brief is None:
        return "-"
    step = "" if brief.step is None else f"step {brief.step}"
    return f"#{brief.rank}\n{step}".rstrip("\n")


def _why(change: OperatorChange, lang: str) -> str:
    if change.kind == "worse":
        mark = "；" if lang.startswith("zh") else "; "
        return mark.join(_tell_worse(part, lang) for part in change.changes)
    brief = change.now or change.before
    if brief is None:
        return ""
    if brief.rank != 1 and brief.verdict in _FOLLOWING:
        return render_follower(brief.reason, lang, lambda name, _: shorten(name, _NAME_CELLS))
    return render(brief.reason, lang)


def _tell_worse(part: Change, lang: str) -> str:
    share = f"{part.share_now:.3%}"
    if part.share_before is None:
        return nightly_word("worse_kind", lang, slot=part.slot, kind=part.kind, share=share)
    if part.first_time_first:
        return nightly_word("worse_first", lang)
    before = f"{part.share_before:.3%}"
    return nightly_word(
        "worse_share", lang, slot=part.slot, kind=part.kind, before=before, now=share
    )


def _print_drift(page: TextPage, drift: list[Drift], lang: str) -> None:
    columns = [
        TextColumn(nightly_word("tensor", lang), 34),
        TextColumn(nightly_word("dtype", lang), 9),
        TextColumn(nightly_word("headroom_bits", lang), 14, right=True),
        TextColumn("max|x|", 14, right=True),
        TextColumn(nightly_word("zeros", lang), 9, right=True),
        TextColumn(nightly_word("subnormals", lang), 9, right=True),
    ]
    rows = [
        (
            f"{entry.op_name or entry.op_type}\n{entry.slot}",
            _pair(entry.dtype_before, entry.dtype_now),
            _numbers(entry.headroom_before, entry.headroom_now, ".1f"),
            _numbers(entry.largest_before, entry.largest_now, ""),
            _numbers(entry.zero_before, entry.zero_now, ".1%"),
            _numbers(entry.subnormal_before, entry.subnormal_now, ".1%"),
        )
        for entry in drift
    ]
    page.table(columns, rows)


def _pair(before: str, now: str) -> str:
    return now if before == now else f"{before}\n{now}"


def _numbers(before: float | None, now: float | None, form: str) -> str:
    """Both numbers, the later one below."""
    texts = [
        "-" if value is None else (format(value, form) if form else format_number(value))
        for value in (before, now)
    ]
    return "\n".join(texts)
