"""Where the bad operators are: a map of ranks and steps, and lanes in order of execution.

Only positions and words are computed here; the templates draw. What does not fit is never left
out silently.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from dumpscope.causality.dataflow import Lane, lane_of, sequence_key
from dumpscope.model import Finding, RankState, RankSummary, Scan, Verdict
from dumpscope.records import record
from dumpscope.reporters.overview import tally_findings
from dumpscope.safetext import make_printable
from dumpscope.words import format_count, label
from dumpscope.words.page import page_word

__all__ = [
    "GROUPS",
    "HeatCell",
    "HeatMap",
    "LaneChart",
    "Mark",
    "RankLane",
    "draw_heat_map",
    "draw_lanes",
    "name_verdict",
]

GROUPS: Mapping[Verdict, str] = MappingProxyType(
    {
        Verdict.ORIGIN: "made",
        Verdict.STATUS_ORIGIN: "made",
        Verdict.SATURATED_ORIGIN: "made",
        Verdict.BAD_INPUT: "came",
        Verdict.RECEIVED: "came",
        Verdict.UNKNOWN_INPUTS: "came",
        Verdict.HANDOFF: "hint",
        Verdict.SWALLOWED: "hint",
        Verdict.PROPAGATED: "passed",
        Verdict.EXPECTED: "passed",
    }
)
"""What verdicts have in common, and their colour: made here, came in, a hint, passed on."""

MOST_STEPS = 48
MOST_RANKS = 32
MOST_LANES = 32
MOST_MARKS = 1600
SLOTS = 120

_LEVELS = 5
_LANE_WIDTH = 720
_LANE_HEIGHT = 34
_NAME_LENGTH = 64


@record(frozen=True, slots=True)
class HeatCell:
    """Findings of one step on one rank. `level` 1 to 5 is the logarithm of their number."""

    x: int
    y: int
    step: str
    device: str
    count: int
    made: int
    came: int
    level: int
    title: str


@record(frozen=True, slots=True)
class HeatMap:
    """The map. A label is empty where there is no room for it."""

    width: int
    height: int
    left: int
    top: int
    size: int
    rows: tuple[tuple[int, str], ...]
    columns: tuple[tuple[float, str], ...]
    cells: tuple[tuple[HeatCell, ...], ...]
    legend: tuple[tuple[int, str], ...]
    left_out: str


@record(frozen=True, slots=True)
class Mark:
    """One bad operator, or several one after the other, by the worst of them."""

    x: float
    width: float
    group: str
    rank: int
    title: str


@record(frozen=True, slots=True)
class RankLane:
    """The bad operators of one rank; `steps` are the places where a step begins."""

    y: int
    name: str
    told: str
    marks: tuple[Mark, ...]
    steps: tuple[tuple[float, str], ...]


@record(frozen=True, slots=True)
class LaneChart:
    """The lanes, from the top those of the ranks that went wrong first."""

    width: int
    height: int
    left: int
    right: int
    lanes: tuple[RankLane, ...]
    ticks: tuple[tuple[float, str], ...]
    left_out: str


def name_verdict(verdict: Verdict, lang: str) -> str:
    """Return the verdict as options and documents spell it, in Chinese with its name before it."""
    name = verdict.value
    return f"{label(name, lang)} {name}" if lang.startswith("zh") else name


# --- the map ------------------------------------------------------------------------------------


def draw_heat_map(scan: Scan, lang: str) -> HeatMap | None:
    """Return the map of findings per rank and step, `None` when it would be one cell."""
    tally = tally_findings(scan, max_steps=MOST_STEPS, max_devices=MOST_RANKS)
    if len(tally.steps) * len(tally.devices) < 2:
        return None
    groups = Counter((GROUPS[f.verdict], f.op.step, f.op.device) for f in scan.findings)
    all_steps = {finding.op.step for finding in scan.findings}
    all_devices = {finding.op.device for finding in scan.findings}
    most = max(max(row) for row in tally.counts)
    names = [_name_rank(device, lang) for device in tally.devices]
    size = 26 if len(tally.steps) <= 24 else 18
    left, top = 14 + 8 * max(map(_cells, names)), 24
    cells = tuple(
        tuple(
            HeatCell(
                x=left + column * size,
                y=top + row * size,
                step=_key(step),
                device=_key(device),
                count=tally.counts[column][row],
                made=groups["made", step, device],
                came=groups["came", step, device],
                level=_level(tally.counts[column][row], most),
                title=page_word(
                    "heat_cell",
                    lang,
                    step=_key(step),
                    device=names[row],
                    count=tally.counts[column][row],
                    made=groups["made", step, device],
                    came=groups["came", step, device],
                ),
            )
            for column, step in enumerate(tally.steps)
            if tally.counts[column][row]
        )
        for row, device in enumerate(tally.devices)
    )
    return HeatMap(
        width=left + len(tally.steps) * size + 8,
        height=top + len(tally.devices) * size + 6,
        left=left,
        top=top,
        size=size,
        rows=tuple((top + row * size + size // 2, name) for row, name in enumerate(names)),
        columns=_label_columns([_key(step) for step in tally.steps], left, size),
        cells=cells,
        legend=_legend(most),
        left_out=_left_out(
            len(all_steps) - len(tally.steps), len(all_devices) - len(tally.devices), lang
        ),
    )


def _level(count: int, most: int) -> int:
    if not count:
        return 0
    return 1 + min(_LEVELS - 1, int(_LEVELS * math.log(count) / (math.log(most) + 1e-9)))


def _legend(most: int) -> tuple[tuple[int, str], ...]:
    """Return each level with the numbers that it stands for."""
    spans: dict[int, list[int]] = {}
    for level in range(1, _LEVELS + 1):
        low = next(iter(_first_of(level, most)), None)
        if low is not None:
            spans[level] = [low]
    starts = sorted((low[0], level) for level, low in spans.items())
    legend = []
    for number, (low, level) in enumerate(starts):
        high = starts[number + 1][0] - 1 if number + 1 < len(starts) else most
        legend.append((level, str(low) if low == high else f"{low}\u2013{high}"))
    return tuple(legend)


def _first_of(level: int, most: int) -> list[int]:
    """The smallest count that has a level, by bisection; empty when none has it."""
    low, high = 1, most
    while low < high:
        middle = (low + high) // 2
        if _level(middle, most) >= level:
            high = middle
        else:
            low = middle + 1
    return [low] if _level(low, most) == level else []


def _label_columns(names: Sequence[str], left: int, size: int) -> tuple[tuple[float, str], ...]:
    """Name as many columns as there is room for."""
    room = 8 * max(len(name) for name in names) + 6
    every = max(1, -(-room // size))
    return tuple(
        (left + column * size + size / 2, name)
        for column, name in enumerate(names)
        if column % every == 0
    )


def _left_out(steps: int, devices: int, lang: str) -> str:
    if steps <= 0 and devices <= 0:
        return ""
    return page_word("heat_left_out", lang, steps=steps, devices=devices)


# --- the lanes ----------------------------------------------------------------------------------


def draw_lanes(scan: Scan, lang: str) -> LaneChart | None:
    """Return one lane per rank with its bad operators, `None` when there are none."""
    lanes: dict[Lane, list[Finding]] = defaultdict(list)
    for finding in scan.findings:
        lanes[lane_of(finding.op)].append(finding)
    if not lanes:
        return None
    states = {_lane_of_rank(summary): summary.state for summary in scan.ranks}
    for lane in states:
        lanes[lane]  # clean ranks have a lane too, after those with findings
    # `scan.findings` is in ranking order: so are the lanes, by their best finding.
    chosen = sorted(list(lanes)[:MOST_LANES])
    names = _name_lanes(chosen, lang)
    longest = max(len(lanes[lane]) for lane in chosen)
    per_mark = -(-longest // min(SLOTS, MOST_MARKS // len(chosen)))
    slots = -(-longest // per_mark)
    pitch = min(26.0, _LANE_WIDTH / slots)
    left = 14 + 8 * max(map(_cells, names))
    drawn = []
    for number, lane in enumerate(chosen):
        findings = sorted(lanes[lane], key=lambda finding: sequence_key(finding.op))
        drawn.append(
            RankLane(
                y=26 + number * _LANE_HEIGHT,
                name=names[number],
                told=_tell_lane(len(findings), states.get(lane) if len(states) > 1 else None, lang),
                marks=tuple(_marks(findings, per_mark, left, pitch, lang)),
                steps=tuple(_step_starts(findings, per_mark, left, pitch)),
            )
        )
    right = int(left + slots * pitch)
    return LaneChart(
        width=max(right + 20 + 7 * max(_cells(lane.told) for lane in drawn), left + 220),
        height=26 + len(drawn) * _LANE_HEIGHT + 34,
        left=left,
        right=right,
        lanes=tuple(drawn),
        ticks=tuple(_ticks(slots, per_mark, left, pitch)),
        left_out=page_word("lanes_left_out", lang, count=len(lanes) - len(chosen))
        if len(lanes) > len(chosen)
        else "",
    )


def _lane_of_rank(summary: RankSummary) -> Lane:
    """The lane of a rank, as `lane_of` gives it for an operator."""
    return (
        summary.source,
        summary.run or "",
        summary.host or "",
        -1 if summary.process is None else summary.process,
        -1 if summary.rank is None else summary.rank,
    )


def _tell_lane(count: int, state: RankState | None, lang: str) -> str:
    if state == "clean" or not count:
        return page_word("rank_clean", lang)
    told = page_word("lanes_count", lang, count=format_count(count))
    if state is None:
        return told
    return f"{told}{'，' if lang.startswith('zh') else ', '}{page_word(f'rank_{state}', lang)}"


def _marks(
    findings: Sequence[Finding], per_mark: int, left: int, pitch: float, lang: str
) -> list[Mark]:
    marks = []
    for slot, start in enumerate(range(0, len(findings), per_mark)):
        here = findings[start : start + per_mark]
        worst = min(here, key=lambda finding: (finding.rank is None, finding.rank or 0))
        values = {
            "rank": worst.rank or "?",
            "verdict": name_verdict(worst.verdict, lang),
            "operator": _short(_name_operator(worst)),
            "step": _key(worst.op.step),
        }
        if len(here) > 1:
            title = page_word("lanes_bin", lang, first=start + 1, last=start + len(here), **values)
        else:
            title = page_word("lanes_mark", lang, **values)
        marks.append(
            Mark(
                x=round(left + slot * pitch, 2),
                width=round(max(pitch - 2, pitch * 0.7), 2),
                group=GROUPS[worst.verdict],
                rank=worst.rank or 0,
                title=title,
            )
        )
    return marks


def _step_starts(
    findings: Sequence[Finding], per_mark: int, left: int, pitch: float
) -> list[tuple[float, str]]:
    """Return where a step begins, with its label where the one before it leaves room."""
    starts: list[tuple[float, str]] = []
    free_from = 0.0
    for number, finding in enumerate(findings):
        if number and finding.op.step == findings[number - 1].op.step:
            continue
        x = round(left + number / per_mark * pitch, 2)
        text = f"step {_key(finding.op.step)}"
        starts.append((x, text if x >= free_from else ""))
        if x >= free_from:
            free_from = x + 6 * len(text) + 8
    return starts


def _ticks(slots: int, per_mark: int, left: int, pitch: float) -> list[tuple[float, str]]:
    every = max(1, slots // 8)
    numbers = [0, *range(every - 1 if every > 1 else 1, slots, every)]
    return [
        (round(left + slot * pitch + pitch / 2, 2), str(slot * per_mark + 1)) for slot in numbers
    ]


def _name_lanes(lanes: Sequence[Lane], lang: str) -> list[str]:
    """Name lanes by rank, and by as much more as tells them apart."""
    names = []
    for source, run, host, process, device in lanes:
        parts = [_name_rank(None if device < 0 else device, lang)]
        for position, text in ((3, f"pid {process}"), (2, host), (1, run), (0, f"path {source}")):
            if len({lane[position] for lane in lanes}) > 1 and text not in {"", "pid -1"}:
                parts.append(text)
        names.append(_short(make_printable(" ".join(parts)), 34))
    return names


def _name_rank(device: int | None, lang: str) -> str:
    if device is None:
        return page_word("rank_unknown", lang)
    return page_word("rank", lang, device=device)


def _name_operator(finding: Finding) -> str:
    op = finding.op
    named = op.op_name if op.op_name.startswith(op.op_type) else f"{op.op_type} {op.op_name}"
    return make_printable(named.strip() or op.file)


def _key(number: int | None) -> str:
    return "?" if number is None else str(number)


def _short(text: str, length: int = _NAME_LENGTH) -> str:
    return text if len(text) <= length else f"{text[: length // 3]}\u2026{text[-length * 2 // 3 :]}"


def _cells(text: str) -> int:
    """How wide a text is, in ASCII characters."""
    return sum(2 if ord(character) >= 0x2E80 else 1 for character in text)
