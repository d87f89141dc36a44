"""The page of a trace, as text and in a real browser."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import struct
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from browser import Browser, Page
from dumpscope.model import Scan
from dumpscope.reporters.trace_html import write_page
from dumpscope.tracing.trace import build_trace
from test_trace_reports import hostile_scan
from trace_scans import make_scan, ranks_scan, scan_of_verdicts, wide_scan

EMPTY_ELEMENTS = {"meta", "link", "input", "rect", "path", "br"}


def page_of(scan: Scan, **options: Any) -> str:
    target = io.BytesIO()
    write_page(build_trace(scan), target, **options)
    return target.getvalue().decode()


class Outline(HTMLParser):
    """Elements of a page, checked to be closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in EMPTY_ELEMENTS:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag in EMPTY_ELEMENTS:
            # A path may hold a title.
            return
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


# --- as text ------------------------------------------------------------------------------------


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_page_is_well_formed_and_hostile_names_are_text(lang: str) -> None:
    outline = Outline(page_of(hostile_scan(), lang=lang, limit=0))
    assert [tag for tag, _ in outline.elements].count("script") == 2
    for tag, attributes in outline.elements:
        assert tag not in {"b", "img", "iframe", "object", "base", "form-action"}
        assert not any(name.startswith("on") for name in attributes)
        assert "javascript:" not in "".join(value or "" for value in attributes.values())


def test_the_page_asks_for_nothing() -> None:
    outline = Outline(page_of(ranks_scan(4)))
    addresses = [
        value for _, attributes in outline.elements for name, value in attributes.items()
        if name in ("href", "src", "action", "data", "xlink:href")
    ]  # fmt: skip
    assert sorted(filter(None, addresses)) == ["#operators", "data:,"]


def test_the_policy_allows_this_script_and_no_other() -> None:
    text = page_of(scan_of_verdicts())
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)
    script = re.search(r"<script>(.*?)</script>", text, re.DOTALL)
    assert policy
    assert script
    digest = base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy[1].replace("&#39;", "'")
    assert policy[1].startswith("default-src")


def test_every_operator_is_in_the_page_once() -> None:
    text = page_of(wide_scan(700))
    found = re.search(r'<script type="application/json"[^>]*>(.*?)</script>', text, re.DOTALL)
    assert found
    data = json.loads(found[1])
    assert len(data["columns"]["name"]) == 701
    assert sorted(m for members in data["members"] for m in members) == list(range(701))
    assert len({len(column) for column in data["columns"].values()}) == 1


@pytest.mark.parametrize("count", [5000, 20_000])
def test_a_page_stays_below_5_mb(count: int) -> None:
    text = page_of(wide_scan(count))
    assert len(text.encode()) < 5_000_000
    assert ("more are in `dumpscope trace --json --limit 0`" in text) == (count > 5000)


def test_the_page_of_an_empty_scan_says_so() -> None:
    outline = Outline(page_of(make_scan([])))
    assert "The scan has no findings: there is no way of a bad value to show." in outline.texts


# --- in a browser -------------------------------------------------------------------------------


def open_page(browser: Browser, folder: Path, scan: Scan, **options: Any) -> Page:
    path = folder / "trace.html"
    path.write_text(page_of(scan), encoding="utf-8")
    return browser.open(path, **options)


def check_quiet(page: Page, folder: Path) -> None:
    """Nobody complained, and nothing but the file itself was asked for."""
    assert page.errors() == []
    assert page.requests() == [(folder / "trace.html").resolve().as_uri()]
    page.close()


def test_hostile_names_in_a_browser(browser: Browser, tmp_path: Path) -> None:
    page = open_page(browser, tmp_path, hostile_scan())
    assert page.count("tbody tr") == 21
    assert page.count("script") == 2
    names = page.evaluate("[...document.querySelectorAll('td.operator')].map(td => td.textContent)")
    assert "</script><b>html</b> </script><b>html</b>" in names
    assert "算子/注意力/乘法 算子/注意力/乘法" in names
    assert "esc\\x1b[31mred\\x1b[0m\\x07 esc\\x1b[31mred\\x1b[0m\\x07" in names
    check_quiet(page, tmp_path)


def test_details_show_on_hover_and_on_focus(browser: Browser, tmp_path: Path) -> None:
    page = open_page(browser, tmp_path, ranks_scan(4, guilty=[1]))
    assert "Point at a box" in page.text("#details")
    page.point_at("#ts-box-0")
    assert page.text("#details p").startswith("origin, network/Mul-op0, 2/32 +Inf, step 1, rank 1")
    page.evaluate("document.querySelector('.ts-received[data-box]').focus()")
    assert page.text("#details").startswith("received, gradients/HcomAllReduce-op0, 32/32 NaN")
    assert page.count(".ts-edge.ts-lit") > 0
    check_quiet(page, tmp_path)


def test_the_keyboard_is_enough(browser: Browser, tmp_path: Path) -> None:
    page = open_page(browser, tmp_path, ranks_scan(4, guilty=[1]))
    boxes = page.count(".ts-box[data-box]")
    reached = set()
    for _ in range(20 + boxes):
        page.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.className"))
    assert {f"ts-box-{i}" for i in range(boxes)} <= reached
    assert {"filter-rank", "filter-step", "filter-verdict", "filter-text", "reset"} <= reached
    page.evaluate("document.querySelector('#ts-box-0').focus()")
    page.press("ArrowRight")
    assert page.text("#details").startswith("propagated, network/fc1/MatMulV2-op0")
    page.press("ArrowLeft")
    assert page.text("#details").startswith("origin")
    # A box narrows the table to its own operators.
    page.press("Enter")
    assert page.count("tbody tr") == 1
    assert page.text("tbody .operator") == "Mul network/Mul-op0"
    page.evaluate("document.querySelector('#reset').click()")
    page.evaluate("new Promise(resolve => setTimeout(resolve, 50))")
    assert page.count("tbody tr") > 1
    check_quiet(page, tmp_path)


def choose(page: Page, control: str, value: str) -> None:
    page.evaluate(
        f"(() => {{ const control = document.getElementById({json.dumps(control)});"
        f" control.value = {json.dumps(value)};"
        " control.dispatchEvent(new Event(control.type === 'search' ? 'input' : 'change'));"
        " return 0; })()"
    )


def test_filters_narrow_table_and_picture(browser: Browser, tmp_path: Path) -> None:
    page = open_page(browser, tmp_path, wide_scan(1000))
    assert page.count("tbody tr") == 200
    assert page.text("#shown") == "1,001 of 1,001 operators"
    page.evaluate("document.querySelector('#more').click()")
    assert page.count("tbody tr") == 400
    choose(page, "filter-step", "3")
    assert page.text("#shown") == "200 of 1,001 operators"
    assert page.count(".ts-box.ts-dim[data-box]") > 0
    choose(page, "filter-verdict", "2")
    assert page.text("tbody .verdict") == "swallowed"
    assert page.text("#shown") == "2 of 1,001 operators"
    choose(page, "filter-text", "no such operator")
    assert page.count("tbody tr") == 0
    check_quiet(page, tmp_path)


def test_a_rank_can_be_picked_out_of_256(browser: Browser, tmp_path: Path) -> None:
    page = open_page(browser, tmp_path, ranks_scan(256, guilty=[3, 77]))
    choose(page, "filter-rank", "200")
    # 254 ranks with 8 operators each, 10 of one guilty rank, 4 on the other one's way.
    assert page.text("#shown") == "8 of 2,046 operators"
    dim = page.evaluate(
        "[...document.querySelectorAll('.ts-dim[data-box]')].map(b => b.getAttribute('aria-label'))"
    )
    assert any(label.startswith("origin") for label in dim)
    assert not any(label.startswith("received") for label in dim)
    check_quiet(page, tmp_path)


def test_light_and_dark(browser: Browser, tmp_path: Path) -> None:
    grounds = []
    for dark in (False, True):
        page = open_page(browser, tmp_path, scan_of_verdicts(), dark=dark)
        grounds.append(
            [
                page.evaluate(f"getComputedStyle(document.querySelector({selector!r})).{name}")
                for selector, name in (
                    ("body", "backgroundColor"),
                    ("body", "color"),
                    (".ts-ground", "fill"),
                    (".ts-title, .ts-type", "fill"),
                )
            ]
        )
        check_quiet(page, tmp_path)
    light, dark_ones = grounds
    assert light == ["rgb(255, 255, 255)", "rgb(28, 36, 48)"] * 2
    assert dark_ones == ["rgb(18, 22, 28)", "rgb(232, 236, 242)"] * 2


def test_the_picture_fits_the_window_and_can_be_enlarged(browser: Browser, tmp_path: Path) -> None:
    page = open_page(browser, tmp_path, ranks_scan(4, guilty=[1]), size=(1000, 700))
    width = "document.querySelector('#picture svg').getBoundingClientRect().width"
    assert page.evaluate(width) <= 1000
    page.evaluate("document.querySelector('#zoom').click()")
    natural = page.evaluate("Number(document.querySelector('#picture svg').getAttribute('width'))")
    assert page.evaluate(width) == pytest.approx(natural, abs=1)
    assert natural > 1000
    check_quiet(page, tmp_path)


def test_5000_operators_are_drawn(browser: Browser, tmp_path: Path) -> None:
    page = open_page(browser, tmp_path, wide_scan(5000))
    assert page.count("svg *") < 1200
    assert page.count("tbody tr") == 200
    picture = tmp_path / "page.png"
    page.screenshot(picture)
    head = picture.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", head[16:24]) == (1400, 900)
    check_quiet(page, tmp_path)


def test_names_in_boxes_stay_in_their_boxes(browser: Browser, tmp_path: Path) -> None:
    """Measured in the browser, with its own font."""
    page = open_page(browser, tmp_path, ranks_scan(8, guilty=[1, 2]))
    outside = page.evaluate(
        """[...document.querySelectorAll('.ts-box[data-box]')].flatMap(box => {
            const frame = box.querySelector('.ts-body').getBBox();
            return [...box.querySelectorAll('text')].filter(text => {
                const place = text.getBBox();
                return place.x < frame.x - 1 || place.x + place.width > frame.x + frame.width + 4
                    || place.y < frame.y - 2 || place.y + place.height > frame.y + frame.height + 4;
            }).map(text => text.textContent);
        })"""
    )
    assert outside == []
    check_quiet(page, tmp_path)
