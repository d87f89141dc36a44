"""The HTML report in a real browser: it sorts, filters, opens rows, and loads nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from browser import Browser, Page, start_browser
from dumpscope.model import Finding, Reason, Scan, Verdict
from dumpscope.reporters.webpage import PageReporter
from dumpscope.words import format_number
from page_samples import realistic_scan
from scan_samples import HOSTILE_NAMES, large_scan, make_finding, named_scan, overflow_scan

__all__ = ["start_browser"]

READY = "document.documentElement.dataset.ready === 'yes'"
FINDINGS = "section#findings"
ROWS = f"{FINDINGS} tbody tr[data-row]"

Show = Callable[..., Page]


@pytest.fixture
def show(browser: Browser, tmp_path: Path) -> Any:
    """Write the page of a scan and open it; at the end nothing may have been complained of."""
    pages: list[tuple[Page, str]] = []

    def _show(scan: Scan, *, lang: str = "en", size: int = 0, **how: Any) -> Page:
        path = tmp_path / f"page{len(pages)}.html"
        reporter = PageReporter(size) if size else PageReporter()
        with path.open("wb") as target:
            reporter.write(scan, target, limit=None, lang=lang)
        page = browser.open(path, **how)
        pages.append((page, path.resolve().as_uri()))
        if how.get("scripts", True):
            page.wait_until(READY)
        return page

    yield _show
    for page, address in pages[-1:]:
        assert page.errors() == []
        assert {request.partition("#")[0] for request in page.requests()} == {address}
    for page, _ in pages:
        page.close()


def column(page: Page, name: str) -> list[str]:
    return page.texts(f"{ROWS} td.c-{name}")


def mixed_scan() -> Scan:
    """Findings of three verdicts in two steps on three ranks, in one table page."""
    findings: list[Finding] = []
    for rank in range(1, 31):
        verdict = [Verdict.PROPAGATED, Verdict.ORIGIN, Verdict.RECEIVED][rank % 3]
        finding = make_finding(rank, verdict, f"net/layer_{31 - rank}/op")
        tensors = finding.op.tensors
        stats = replace(tensors[1].stats, nan=rank * 1000, count=100_000)
        op = replace(
            finding.op,
            step=rank % 2,
            device=rank % 3,
            start_ns=rank,
            op_type="Add" if rank == 7 else "Mul",
            tensors=(tensors[0], replace(tensors[1], stats=stats)),
        )
        findings.append(replace(finding, op=op))
    return replace(overflow_scan(), findings=tuple(findings))


def test_columns_sort_by_value_both_ways(show: Show) -> None:
    page = show(mixed_scan())
    assert column(page, "rank") == [str(rank) for rank in range(1, 31)]
    button = f"{FINDINGS} th[data-column=nan] button"
    page.click(button)
    assert column(page, "nan") == [f"{rank},000" for rank in range(1, 31)]
    page.click(button)
    assert column(page, "nan")[:3] == ["30,000", "29,000", "28,000"]
    head = f"{FINDINGS} th[data-column=nan]"
    assert page.evaluate(f"document.querySelector('{head}').getAttribute('aria-sort')") == (
        "descending"
    )
    # Names sort as people count: layer_2 before layer_10.
    page.click(f"{FINDINGS} th[data-column=op_name] button")
    assert column(page, "op_name") == [f"net/layer_{n}/op" for n in range(1, 31)]
    assert page.count(f"{FINDINGS} th[aria-sort]") == 1
    page.click(f"{FINDINGS} th[data-column=verdict] button")
    # Equal ones keep the order of the ranking.
    assert column(page, "rank")[:10] == [str(rank) for rank in range(1, 31, 3)]


def test_filters_narrow_and_clear(show: Show) -> None:
    page = show(mixed_scan())
    status = f"{FINDINGS} .filters [role=status]"
    assert page.text(status) == "30 of 30 rows"
    choose(page, "verdict", "origin")
    assert set(column(page, "verdict")) == {"origin"}
    assert page.text(status) == "10 of 30 rows"
    choose(page, "step", "0")
    assert column(page, "rank") == ["4", "10", "16", "22", "28"]
    page.evaluate(f"document.querySelector('{FINDINGS} input[type=search]').focus()")
    page.type("LAYER_21 net")
    page.wait_until(f"document.querySelector('{status}').textContent === '1 of 30 rows'")
    assert column(page, "op_name") == ["net/layer_21/op"]
    page.type("nothing like this")
    page.wait_until(f"document.querySelector('{status}').textContent === '0 of 30 rows'")
    assert page.text(f"{FINDINGS} tbody") == "No row matches."
    page.click(f"{FINDINGS} .filters button")
    assert page.text(status) == "30 of 30 rows"
    assert page.evaluate(f"document.querySelector('{FINDINGS} select').value") == ""


def choose(page: Page, name: str, value: str) -> None:
    """Pick a value in a list, as a person does."""
    page.evaluate(
        f"(() => {{ const list = document.querySelector('{FINDINGS} select[name={name}]');"
        f" list.value = '{value}'; list.dispatchEvent(new Event('change')); }})()"
    )


def test_choices_tell_how_many_rows_they_have(show: Show) -> None:
    page = show(mixed_scan())
    assert page.texts(f"{FINDINGS} select[name=op_type] option") == ["all", "Add (1)", "Mul (29)"]
    assert page.texts(f"{FINDINGS} select[name=device] option") == [
        *("all", "0 (10)", "1 (10)", "2 (10)")
    ]
    # All have the same type of data: nothing to choose.
    assert page.count(f"{FINDINGS} select[name=dtype]") == 0
    assert page.texts("section#overflow select[name=kind] option")[1:] == [
        *("AIC (1)", "AIV (1)", "DHA (1)")
    ]


def test_a_row_opens_by_keyboard_and_shows_its_tensors(show: Show) -> None:
    page = show(overflow_scan())
    page.evaluate(f"document.querySelector('{ROWS} .toggle').focus()")
    page.press("Enter")
    detail = f"{FINDINGS} tr.detail"
    assert page.count(detail) == 1
    assert page.evaluate("document.activeElement.getAttribute('aria-expanded')") == "true"
    facts = dict(zip(page.texts(f"{detail} dt"), page.texts(f"{detail} dd"), strict=True))
    assert facts["file"].endswith("-op0.24.2.1764417600003145")
    assert facts["status means"] == "0x20 floating-point overflow"
    assert facts["confirmed"] == "yes"
    assert facts["evidence"] == "own_inputs, status"
    assert facts["L2"] == "3.5e+38"
    assert facts["timestamp"] == "1764417600003145"
    assert page.texts(f"{detail} table tbody td.c-max") == ["400", "310.25", "65,312"]
    assert page.texts(f"{detail} table tbody td.c-role") == ["input", "input", "output"]
    page.press(" ")
    assert page.count(detail) == 0
    # The second finding was caused by the first: a button leads there.
    page.click(f"{FINDINGS} tr[data-row='1'] .toggle")
    page.click(f"{detail} button.link")
    assert page.text(f"{FINDINGS} tr.target td.c-rank") == "1"
    assert page.count(detail) == 2


def test_charts_lead_to_rows_by_pointer_and_by_keyboard(show: Show) -> None:
    page = show(mixed_scan())
    page.click("svg.heat .cell[data-step='1'][data-device='2']")
    assert column(page, "rank") == ["5", "11", "17", "23", "29"]
    page.click("svg.lanes .mark[data-rank='12']")
    # The filter would have hidden it.
    assert page.text(f"{FINDINGS} tr.target td.c-rank") == "12"
    assert page.text(f"{FINDINGS} .filters [role=status]") == "30 of 30 rows"
    # One Tab stop for each chart; arrows go on within it.
    assert page.count("svg.lanes .mark[tabindex='0']") == 1
    page.evaluate("document.querySelector('svg.heat .cell[tabindex]').focus()")
    page.press("ArrowDown")
    here = "[document.activeElement.dataset.step, document.activeElement.dataset.device]"
    assert page.evaluate(here) == ["0", "1"]
    page.press("ArrowRight")
    assert page.evaluate(here) == ["1", "1"]
    page.press("ArrowRight")
    assert page.evaluate(here) == ["1", "1"]
    page.press("End")
    assert page.evaluate(here) == ["1", "2"]
    page.press("Home")
    page.press("Enter")
    assert column(page, "rank") == ["6", "12", "18", "24", "30"]
    page.evaluate("document.querySelector('svg.lanes .mark[tabindex=\"0\"]').focus()")
    # Rank 0 ran these of step 0 first: 6, 12, 18.
    page.press("ArrowRight")
    page.press("ArrowRight")
    page.press(" ")
    assert page.text(f"{FINDINGS} tr.target td.c-rank") == "18"
    assert page.evaluate("document.activeElement.classList.contains('toggle')")


def test_an_address_may_name_a_finding(show: Show) -> None:
    page = show(large_scan(450), fragment="#finding-321")
    page.wait_until(f"document.querySelector('{FINDINGS} tr.target')")
    assert page.text(f"{FINDINGS} tr.target td.c-rank") == "321"
    assert page.text(f"{FINDINGS} .pager span") == "rows 301 to 400 of 450"


def test_pages_turn(show: Show) -> None:
    page = show(large_scan(250))
    assert len(column(page, "rank")) == 100
    assert page.evaluate(f"document.querySelector('{FINDINGS} .pager button').disabled")
    page.click(f"{FINDINGS} .pager button:last-child")
    page.click(f"{FINDINGS} .pager button:last-child")
    assert column(page, "rank") == [str(rank) for rank in range(201, 251)]
    assert page.text(f"{FINDINGS} .pager span") == "rows 201 to 250 of 250"
    assert page.evaluate(f"document.querySelector('{FINDINGS} .pager button:last-child').disabled")
    # Paper cannot be turned.
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert len(column(page, "rank")) == 250
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert len(column(page, "rank")) == 100


GROUND = "getComputedStyle(document.body).backgroundColor"
LIGHT, DARK = "rgb(246, 247, 249)", "rgb(18, 22, 27)"


def test_colours_follow_the_system_until_they_are_chosen(show: Show) -> None:
    page = show(overflow_scan(), dark=True)
    assert page.evaluate(GROUND) == DARK
    page.show_as(dark=False)
    assert page.evaluate(GROUND) == LIGHT
    for value, expected in (("dark", DARK), ("light", LIGHT), ("auto", LIGHT)):
        page.evaluate(
            "(() => { const list = document.getElementById('theme');"
            f" list.value = '{value}'; list.dispatchEvent(new Event('change')); }})()"
        )
        assert page.evaluate(GROUND) == expected
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    page.show_as(printed=True)
    assert page.evaluate(GROUND) == "rgb(255, 255, 255)"


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_reason_can_be_read_on_paper_and_on_a_small_screen(show: Show, lang: str) -> None:
    page = show(mixed_scan(), lang=lang)
    width = f"document.querySelector('{ROWS} td.c-reason').getBoundingClientRect().width"
    right = f"document.querySelector('{ROWS} td.c-reason').getBoundingClientRect().right"
    page.resize(1280, 800)
    assert page.evaluate(right) <= 1280  # without scrolling aside
    assert page.evaluate(width) >= 18 * 14
    # A4 in landscape with margins of 12 mm, in pixels of 1/96 inch.
    page.resize(round((297 - 24) / 25.4 * 96), 700)
    page.show_as(printed=True)
    assert page.evaluate(width) >= 26 * 10
    assert page.evaluate(right) <= 1032


CONTRAST = """
(() => {
  const numbers = (text) => text.match(/[\\d.]+/g).map(Number);
  const share = (c) => (c / 255 <= 0.03928 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * share(r) + 0.7152 * share(g) + 0.0722 * share(b);
  const ground = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const colour = numbers(getComputedStyle(e).backgroundColor);
      if (colour.length < 4 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const worst = {};
  for (const element of document.querySelectorAll('body *')) {
    const text = [...element.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!text || element.closest('script, svg, :disabled, .skip')) continue;
    const [a, b] = [light(numbers(getComputedStyle(element).color)), light(ground(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const key = element.tagName + '.' + element.className;
    worst[key] = Math.min(worst[key] ?? 99, ratio);
  }
  return Object.entries(worst).filter(([, ratio]) => ratio < 4.5);
})()
"""


@pytest.mark.parametrize("dark", [False, True])
def test_every_text_has_enough_contrast(show: Show, dark: bool) -> None:
    findings = tuple(make_finding(i, verdict) for i, verdict in enumerate(list(Verdict)[:9], 1))
    base = overflow_scan()
    counts = replace(
        base.counts, unchecked=1, read_failures=1, by_verdict={v.value: 1 for v in Verdict}
    )
    page = show(replace(base, findings=findings, counts=counts), dark=dark)
    page.click(f"{ROWS} .toggle")
    assert page.evaluate(CONTRAST) == []


def test_a_browser_that_cannot_unpack_shows_the_first_rows(show: Show) -> None:
    page = show(large_scan(1010), before="delete window.DecompressionStream")
    assert page.text(f"{FINDINGS} .filters [role=status]") == "1,000 of 1,000 rows"
    notes = f"{FINDINGS} .only-first"
    assert page.text(notes).startswith("Only the first 1,000 rows are shown")
    assert not page.evaluate(f"document.querySelector('{notes}').hidden")
    page.click(f"{FINDINGS} th[data-column=rank] button")
    page.click(f"{FINDINGS} th[data-column=rank] button")
    assert column(page, "rank")[:2] == ["1000", "999"]
    choose(page, "verdict", "origin")
    assert column(page, "rank") == ["1"]
    assert page.count(f"{ROWS} .toggle") == 0


def test_without_scripts_the_first_rows_stand_there(show: Show) -> None:
    page = show(large_scan(1010), scripts=False)
    assert page.count(f"{FINDINGS} tbody tr") == 1000
    assert page.evaluate(f"document.querySelector('{FINDINGS} .filters').hidden")
    assert page.evaluate("document.querySelector('.theme').hidden")
    assert page.text("h1").startswith("Mul network/layer_1/Mul went wrong first")


def test_all_rows_are_there_and_what_is_not_is_told(show: Show) -> None:
    page = show(large_scan(1200))
    assert page.text(f"{FINDINGS} .filters [role=status]") == "1,200 of 1,200 rows"
    assert page.evaluate(f"document.querySelector('{FINDINGS} .only-first').hidden")
    assert page.evaluate(f"document.querySelector('{FINDINGS} .left-out').hidden")
    page.evaluate(f"document.querySelector('{FINDINGS} input[type=search]').focus()")
    page.type("#1199")
    page.wait_until(f"document.querySelectorAll('{ROWS}').length === 1")
    page.click(f"{ROWS} .toggle")
    assert page.text(f"{FINDINGS} tr.detail p").startswith("Tensors are listed for the first 1,000")
    small = show(realistic_scan(1200), size=700_000)
    total = int(small.text(f"{FINDINGS} .filters [role=status]").split()[0].replace(",", ""))
    assert 0 < total < 1200
    assert small.text(f"{FINDINGS} .left-out") == (
        f"{1200 - total:,} rows of lower rank are left out to keep this page small; the CSV has "
        "all: dumpscope report --csv"
    )


def test_hostile_names_are_only_text(show: Show) -> None:
    attacks = ["<img src=x onerror=window.hacked=1>", "</script><script>window.hacked=1</script>"]
    base = named_scan()
    findings = list(base.findings)
    for number, name in enumerate(attacks):
        finding = findings[number]
        op = replace(finding.op, op_type=name, op_name=name, file=name, stack=(name,), parent=name)
        reason = Reason("propagated", {"producer": name})
        findings[number] = replace(finding, op=op, reason=reason, verdict=Verdict.ORIGIN)
    page = show(replace(base, findings=tuple(findings)))
    names = column(page, "op_name")
    assert names[:2] == attacks
    assert len(names) == len(HOSTILE_NAMES)
    for number in (0, 1, 5, len(names) - 1):
        page.click(f"{FINDINGS} tr[data-row='{number}'] .toggle")
    assert page.texts(f"{FINDINGS} tr.detail")[0].count(attacks[0]) == 3
    choose(page, "verdict", "origin")
    page.click("svg.lanes .mark")
    assert page.evaluate("typeof window.hacked") == "undefined"
    assert page.count("img") == 0


def test_the_chinese_page_speaks_chinese(show: Show) -> None:
    page = show(mixed_scan(), lang="zh")
    assert page.evaluate("document.documentElement.lang") == "zh-CN"
    assert column(page, "verdict")[0] == "源头 origin"
    assert page.text(f"{FINDINGS} .filters [role=status]") == "30 行中的 30 行"
    choose(page, "verdict", "received")
    assert set(column(page, "verdict")) == {"通信传入 received"}
    page.click(f"{ROWS} .toggle")
    assert "该算子的全部张量" in page.text(f"{FINDINGS} tr.detail")
    english = ["Search", "Clear", "rows", "Previous", "reason"]
    seen = page.evaluate("document.querySelector('main').innerText")
    assert not [word for word in english if word in seen.split()]


def test_numbers_are_written_as_everywhere_else(show: Show) -> None:
    page = show(overflow_scan())
    values = [
        *(0.0, 1.0, -1.5, 65504.0, 412.5, 3.3895313892515355e38, -0.00012, 1e-7, 1e9, 123456.75),
        *(99999.5, 0.1, 1 / 3, -2e-310, 1e22, 100000.0, 999999.9999, 5e-324, 12345678.4),
    ]
    for value in values:
        assert page.evaluate(f"real({value!r})") == format_number(value)
    assert page.evaluate("grouped(1234567)") == "1,234,567"


def test_the_page_fits_a_narrow_window(show: Show) -> None:
    page = show(mixed_scan(), size=0)
    for width in (1400, 900, 480):
        page.resize(width, 800)
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_tab_reaches_everything_in_order(show: Show) -> None:
    page = show(overflow_scan())
    seen = []
    for _ in range(60):
        page.press("Tab")
        seen.append(
            page.evaluate(
                "(() => { const e = document.activeElement;"
                " return e.className.baseVal ?? (e.className || e.id || e.name || e.tagName); })()"
            )
        )
    assert seen[:2] == ["skip", "theme"]
    order = [seen.index(name) for name in ("cell", "mark g-passed", "search", "toggle")]
    assert order == sorted(order)
    # What has the focus is to be seen.
    page.evaluate(f"document.querySelector('{ROWS} .toggle').focus()")
    page.press("Tab")
    page.press("Tab", shift=True)
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
