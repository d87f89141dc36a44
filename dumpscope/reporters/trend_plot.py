"""A line plot of headroom over steps or scans, as SVG to stand inside an HTML page.

It has no colours of its own but the lines': texts and axes take `currentColor`, so that it
follows the page from light to dark. Names are escaped, and nothing is loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from dumpscope.nightly.trend import Point, Series
from dumpscope.reporters.cells import shorten
from dumpscope.safetext import make_printable
from dumpscope.words.nightly import nightly_word

__all__ = ["MOST_LINES", "draw_trend"]

MOST_LINES = 8

# Okabe and Ito's colours, told apart without telling red from green.
_COLOURS = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d31", "#888888",
)  # fmt: skip
_WIDTH, _HEIGHT = 720, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 30, 24, 32
_LINE_HEIGHT = 18
_MOST_LABELS = 12

_Place = tuple[str, str, int]


def draw_trend(series: Sequence[Series], lang: str = "en") -> str:
    """Return an `<svg>` with the headroom of at most eight series, "" where none is known.

    A point where a tensor left its band is a ring.
    """
    shown = [s for s in series if any(p.headroom is not None for p in s.points)][:MOST_LINES]
    if not shown:
        return ""
    places = sorted({_place(point) for entry in shown for point in entry.points})
    x_of = {place: _x(number, len(places)) for number, place in enumerate(places)}
    bits = [p.headroom for s in shown for p in s.points if p.headroom is not None]
    low, high = min(0.0, *bits), max(1.0, *bits)
    height = _HEIGHT + _LINE_HEIGHT * len(shown)
    title = nightly_word("plot_headroom", lang)
    parts = [
        f'<svg class="trend" viewBox="0 0 {_WIDTH} {height}" role="img" '
        f'width="{_WIDTH}" height="{height}" '
        f'xmlns="http://www.w3.org/2000/svg"><title>{escape(title)}</title>'
    ]
    parts += _draw_axes(places, x_of, low, high, lang)
    for number, entry in enumerate(shown):
        parts += _draw_line(entry, _COLOURS[number], x_of, low, high)
        parts.append(_draw_key(entry, _COLOURS[number], _HEIGHT + _LINE_HEIGHT * number + 12))
    parts.append("</svg>")
    return "".join(parts)


def _place(point: Point) -> _Place:
    if point.step is None:
        return (point.scan_id, point.run or "", -1)
    return ("", point.run or "", point.step)


def _x(number: int, count: int) -> float:
    room = _WIDTH - _LEFT - _RIGHT
    return _LEFT + (room / 2 if count == 1 else room * number / (count - 1))


def _y(bits: float, low: float, high: float) -> float:
    room = _HEIGHT - _TOP - _BOTTOM
    return _TOP + room * (high - bits) / (high - low)


def _draw_axes(
    places: Sequence[_Place], x_of: dict[_Place, float], low: float, high: float, lang: str
) -> list[str]:
    bottom = _HEIGHT - _BOTTOM
    parts = [
        f'<path d="M{_LEFT} {_TOP}V{bottom}H{_WIDTH - _RIGHT}" fill="none" '
        'stroke="currentColor" stroke-opacity=".5"/>'
    ]
    for bits in sorted({low, 0.0, (low + high) / 2, high}):
        y = _y(bits, low, high)
        parts.append(
            f'<path d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}" stroke="currentColor" '
            f'stroke-opacity=".15"/>{_text(_LEFT - 6, y + 4, f"{bits:.1f}", "end")}'
        )
    parts.append(_text(4, _TOP - 12, nightly_word("plot_bits", lang), "start"))
    stride = -(-len(places) // _MOST_LABELS)
    for place in places[::stride]:
        words = f"step {place[2]}" if place[2] >= 0 else place[0][:15]
        parts.append(_text(x_of[place], bottom + 16, words, "middle"))
    return parts


def _draw_line(
    entry: Series, colour: str, x_of: dict[_Place, float], low: float, high: float
) -> list[str]:
    known = [(n, p, p.headroom) for n, p in enumerate(entry.points) if p.headroom is not None]
    spots = [(n, x_of[_place(p)], _y(bits, low, high)) for n, p, bits in known]
    path = " ".join(f"{x:.1f},{y:.1f}" for _, x, y in spots)
    parts = [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>']
    for number, x, y in spots:
        left = entry.left is not None and entry.left.index == number
        fill = "none" if left else colour
        radius = 5 if left else 2
        parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{fill}" stroke="{colour}"/>'
        )
    return parts


def _draw_key(entry: Series, colour: str, y: float) -> str:
    name = " ".join(part for part in (entry.op_type, entry.op_name, entry.slot) if part)
    if entry.device is not None:
        name += f" dev {entry.device}"
    mark = f'<rect x="{_LEFT}" y="{y - 9:.0f}" width="12" height="10" fill="{colour}"/>'
    words = shorten(make_printable(f"{name} ({entry.dtype})"), 90)
    return mark + _text(_LEFT + 18, y, words, "start")


def _text(x: float, y: float, words: str, anchor: str) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="12" fill="currentColor" '
        f'text-anchor="{anchor}">{escape(words)}</text>'
    )
