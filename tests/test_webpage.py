"""The HTML report: whole, well-formed, safe with any name, and bounded in size."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import math
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from builders import Tensor, dump_file
from dumpscope import scan
from dumpscope.cli.main import run_with
from dumpscope.model import (
    Finding,
    OpRecord,
    Place,
    RankSummary,
    Reason,
    Scan,
    TensorSummary,
    Verdict,
)
from dumpscope.reporters.page_charts import (
    GROUPS,
    MOST_LANES,
    MOST_MARKS,
    MOST_RANKS,
    MOST_STEPS,
    SLOTS,
    draw_heat_map,
    draw_lanes,
)
from dumpscope.reporters.page_scale import draw_range
from dumpscope.reporters.webpage import PAGE_BYTES, PageReporter
from dumpscope.store import Store
from dumpscope.words.page import PAGE_WORDS
from page_samples import realistic_scan
from scan_samples import (
    HOSTILE_NAMES,
    clean_scan,
    incomplete_scan,
    large_scan,
    make_finding,
    named_scan,
    overflow_scan,
    tensor,
)

ATTACKS = (
    "<img src=x onerror=alert(1)>",
    '"><script>alert(1)</script>',
    "</title></style></script><svg onload=alert(1)>",
    "' onmouseover='alert(1)",
    "{{ 7*7 }}{% raw %}${7*7}",
    "<!--<script>",
    "]]>",
    "&lt;b&gt; &amp;amp; &#60;",
)
VOID = {"meta", "input", "br", "hr", "img", "link"}


@dataclass
class Element:
    """One element of a parsed page."""

    tag: str
    attributes: dict[str, str]
    children: list[Element] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    def walk(self) -> Iterator[Element]:
        yield self
        for child in self.children:
            yield from child.walk()

    def find(self, tag: str, **attributes: str) -> list[Element]:
        wanted = {name.rstrip("_"): value for name, value in attributes.items()}
        return [e for e in self.walk() if e.tag == tag and wanted.items() <= e.attributes.items()]

    @property
    def text(self) -> str:
        return "".join(self.texts) + "".join(child.text for child in self.children)


class Parser(HTMLParser):
    """Refuses what is not closed in order and attributes that come twice."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Element("", {})
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(set(names)) == len(names), f"{tag}: {names}"
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.open[-1].children.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].tag == tag, f"</{tag}> closes <{self.open[-1].tag}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].texts.append(data)


def write(scan: Scan, *, limit: int | None = None, lang: str = "en", size: int = 0) -> bytes:
    target = io.BytesIO()
    reporter = PageReporter(size) if size else PageReporter()
    reporter.write(scan, target, limit=limit, lang=lang)
    return target.getvalue()


def parse(page: bytes) -> Element:
    parser = Parser()
    parser.feed(page.decode())
    parser.close()
    assert [element.tag for element in parser.open] == [""], "something was not closed"
    return parser.root


def unpack(root: Element) -> dict[str, list[dict[str, Any]]]:
    """Unpack the rows, with nothing of the code that packed them."""
    (meta,) = root.find("script", id="meta")
    tables = json.loads(meta.text)["tables"]
    (packed,) = root.find("script", id="packed")
    found: dict[str, list[dict[str, Any]]] = {}
    for line in gzip.decompress(base64.b64decode(packed.text)).decode().splitlines():
        block = json.loads(line)
        names = [column["name"] for column in tables[block["table"]]["columns"]]
        count = block["rows"]
        columns = [
            [None] * count
            if column == 0
            else list(range(column["from"], column["from"] + count))
            if isinstance(column, dict)
            else column
            for column in block["columns"]
        ]
        rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
        for row in rows:
            if row.get("file") and row.get("op_name"):
                row["file"] = row["file"].replace("\x01", row["op_name"].replace("/", "_"))
        found.setdefault(block["table"], []).extend(rows)
    return found


def listing(root: Element, name: str) -> Element:
    (section,) = root.find("section", id=name)
    return section


def rows_of(section: Element) -> list[list[str]]:
    return [[cell.text for cell in line.find("td")] for line in section.find("tbody")[0].find("tr")]


SCANS = {
    "overflow": overflow_scan(),
    "clean": clean_scan(),
    "incomplete": incomplete_scan(),
    "hostile": named_scan(),
    "many": large_scan(300),
}


@pytest.mark.parametrize("name", SCANS)
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_page_is_well_formed_and_labelled(name: str, lang: str) -> None:
    page = write(SCANS[name], lang=lang)
    assert page.startswith(b"<!DOCTYPE html>\n")
    root = parse(page)
    (html,) = root.find("html")
    assert html.attributes["lang"] == {"en": "en", "zh": "zh-CN"}[lang]
    elements = list(root.walk())
    ids = [e.attributes["id"] for e in elements if "id" in e.attributes]
    assert len(set(ids)) == len(ids)
    for element in elements:
        for reference in element.attributes.get("aria-labelledby", "").split():
            assert reference in ids
        if element.tag == "th":
            assert element.attributes["scope"] in {"col", "row"}
        if element.tag == "svg":
            told = {"aria-label", "aria-labelledby", "aria-hidden"} & element.attributes.keys()
            assert told
        if element.attributes.get("role") == "region":
            assert {"aria-label", "aria-labelledby"} & element.attributes.keys()
        if element.attributes.get("role") in {"gridcell", "button"}:
            assert element.find("title")
    assert len(root.find("h1")) == 1


@pytest.mark.parametrize("name", SCANS)
def test_a_page_loads_nothing_and_runs_only_its_own_script(name: str) -> None:
    root = parse(write(SCANS[name]))
    for element in root.walk():
        assert not {"src", "srcset", "action", "style", "background"} & element.attributes.keys()
        assert not [a for a in element.attributes if a.startswith("on")]
        assert element.tag not in {"link", "iframe", "object", "embed", "base", "img", "a"} or (
            element.attributes.get("href", "").startswith("#")
        )
    (policy,) = root.find("meta", http_equiv_="") or [
        e for e in root.find("meta") if e.attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    (style,) = root.find("style")
    scripts = [e for e in root.find("script") if "type" not in e.attributes]
    (script,) = scripts

    def digest(text: str) -> str:
        return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

    assert policy.attributes["content"] == (
        f"default-src 'none'; style-src 'sha256-{digest(style.text)}'; "
        f"script-src 'sha256-{digest(script.text)}'; base-uri 'none'; form-action 'none'"
    )
    # Addresses may only stand in names that came out of the dump.
    code = style.text + script.text
    assert not re.search(r"https?:|@import|url\((?!#hatch\))", code)
    assert "\r" not in code


def test_the_script_sets_text_only() -> None:
    folder = files("dumpscope.reporters") / "templates"
    for name in ("page_rows.js", "page_table.js", "page.js"):
        code = (folder / name).read_text(encoding="utf-8")
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|\bFunction\(|"
            r"setTimeout\([\"']|fetch\(|XMLHttpRequest|import\(",
            code,
        )
        assert "</" not in code


def attacked_scan() -> Scan:
    """A scan in which every text that a dump chooses is an attack."""
    base = named_scan()
    names = (*ATTACKS, *HOSTILE_NAMES)
    findings = []
    for rank, name in enumerate(names, 1):
        finding = make_finding(rank, Verdict.ORIGIN, name)
        bad = replace(finding.op.tensors[1], dtype=name, layout=name, name=name)
        place = replace(finding.op.place, host=name, run=name)
        op = replace(
            finding.op,
            op_type=name,
            op_name=name,
            file=name,
            stack=(name,),
            parent=name,
            tensors=(finding.op.tensors[0], bad),
            place=place,
        )
        reason = Reason("propagated", {"producer": name, "dtype": name, "tensor_name": name})
        findings.append(replace(finding, op=op, reason=reason))
    unchecked = TensorSummary("output", 0, ATTACKS[0], "ND", (2,), False, unchecked=ATTACKS[1])
    return replace(
        base,
        root=ATTACKS[1],
        scan_id=ATTACKS[0],
        started_at=ATTACKS[0],
        tool_version=ATTACKS[0],
        findings=tuple(findings),
        unchecked=((findings[0].op, unchecked),),
        notes=(Reason("config_comments", {"path": ATTACKS[0]}), Reason(ATTACKS[0])),
        config={name: name for name in names},
    )


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_no_name_becomes_markup(lang: str) -> None:
    attacked = parse(write(attacked_scan(), lang=lang))
    harmless = parse(write(overflow_scan(), lang=lang))
    known = {e.tag for e in harmless.walk()}
    assert {e.tag for e in attacked.walk()} <= known
    attributes = {a for e in harmless.walk() for a in e.attributes}
    # Without a range to draw, the table of tensors is open.
    assert {a for e in attacked.walk() for a in e.attributes} <= attributes | {"open"}
    cells = [cell.text for cell in listing(attacked, "findings").find("td", class_="c-op_name")]
    assert cells[: len(ATTACKS)] == list(ATTACKS)
    assert cells[len(ATTACKS) + 6] == "esc\\x1b[31mred\\x1b[0m\\x07"
    packed = unpack(attacked)["findings"]
    assert [row["op_name"] for row in packed[: len(ATTACKS)]] == list(ATTACKS)


@pytest.mark.parametrize("scan", [attacked_scan(), named_scan()])
def test_nothing_invisible_reaches_the_page(scan: Scan) -> None:
    page = write(scan)
    root = parse(page)
    (packed,) = root.find("script", id="packed")
    rows = gzip.decompress(base64.b64decode(packed.text)).decode()
    for text in (page.decode(), rows):
        found = {unicodedata.category(c) for c in set(text) - {"\n"}}
        assert not found & {"Cc", "Cf", "Cs", "Cn", "Zl", "Zp"}


def test_the_head_says_the_verdict() -> None:
    root = parse(write(overflow_scan()))
    (verdict,) = [e for e in root.find("section") if "status-1" in e.attributes.get("class", "")]
    assert verdict.find("h1")[0].text == (
        "BatchMatMulV2 network_layers_1_attn_BatchMatMulV2-op0 went wrong first in step 0 on "
        "device 3."
    )
    assert verdict.find("p", class_="reason")[0].text.startswith("Output 0 has 513 +Inf of 2,048")
    assert verdict.find("code")[0].text == (
        "dumpscope show network_layers_1_attn_BatchMatMulV2-op0"
    )
    facts = {row.find("dt")[0].text: row.find("dd")[0].text for row in verdict.find("div")}
    assert facts["called from"] == "model.py:12 in forward < train.py:80 in step"
    assert facts["hardware status"] == "AIC: 0x20 floating-point overflow"
    assert root.find("title")[0].text == verdict.find("h1")[0].text
    chinese = parse(write(overflow_scan(), lang="zh"))
    assert chinese.find("h1")[0].text.startswith("最先出错的算子是 BatchMatMulV2")


def test_what_was_not_checked_stands_before_the_tables() -> None:
    page = write(incomplete_scan())
    root = parse(page)
    (warning,) = root.find("section", class_="warning")
    assert [item.text for item in warning.find("li")] == [
        "1 read failure: files, or parts of them, that could not be read.",
        "1 tensor could not be checked: unchecked is not clean.",
        "2 entries skipped: pipes, sockets, links out of the tree.",
    ]
    assert page.index(b'class="warning"') < page.index(b'class="listing"')
    assert rows_of(listing(root, "failures")) == [
        ["d/Bad.x.1.1.1", "adump", "TruncatedDumpError", "0x8", "expected 64, found 3"]
    ]
    assert rows_of(listing(root, "unchecked"))[0][0] == "its dtype cannot be decoded"
    assert not parse(write(clean_scan())).find("section", class_="warning")


def test_the_tables_without_a_script() -> None:
    root = parse(write(overflow_scan()))
    heads = [head.text for head in listing(root, "findings").find("th")]
    assert heads == [
        *("#", "verdict", "step", "device", "type", "operator", "dtype", "NaN", "+Inf", "reason")
    ]
    rows = rows_of(listing(root, "findings"))
    assert rows[0][:9] == [
        *("1", "origin", "0", "3", "BatchMatMulV2"),
        *("network_layers_1_attn_BatchMatMulV2-op0", "float16", "0", "513"),
    ]
    assert rows_of(listing(root, "overflow")) == [
        [
            *("1", "AIC", "0x20", "0x20 floating-point overflow", "0", "0", "2", "24", "no"),
            "dump/20251129120000/0/ge_default/11/0/Opdebug.Node_OpDebug.1.1.1",
        ],
        [
            *("1", "DHA", "0x900", "0x900 atomic add overflow", "0", "0", "2", "24", "no"),
            "dump/20251129120000/0/ge_default/11/0/Opdebug.Node_OpDebug.1.1.1",
        ],
        [
            *("", "AIV", "0x0 0x0 0x0 0x0", "", "0", "0", "", "", "yes"),
            "dump/20251129120000/0/ge_default/11/0/Opdebug.Node_OpDebug.1.1.2",
        ],
    ]
    assert rows_of(listing(root, "expected"))[0][0] == "mask-fill"
    # A known finding is still in the table, but the headline is about the first unknown one.
    scan = overflow_scan()
    known = replace(scan, findings=(replace(scan.findings[0], known=True), scan.findings[1]))
    page = parse(write(known))
    assert "network/layer_2/Mul" in page.find("h1")[0].text
    assert len(rows_of(listing(page, "findings"))) == 2


def test_twenty_thousand_findings_fit_and_the_packed_ones_are_all_there() -> None:
    scan = realistic_scan(20_000)
    page = write(scan)
    assert len(page) < PAGE_BYTES == 5_000_000
    root = parse(page)
    static = rows_of(listing(root, "findings"))
    assert len(static) == 1000
    assert static[999][0] == "1000"
    (note,) = listing(root, "findings").find("p", class_="note only-first")
    assert note.text.startswith("Only the first 1,000 rows are shown")
    tables = unpack(root)
    rows = tables["findings"]
    assert len(rows) == 20_000
    for rank in (1, 200, 201, 1000, 19_999, 20_000):
        op, row = scan.findings[rank - 1].op, rows[rank - 1]
        stats = op.tensors[2].stats
        assert row["rank"] == rank
        assert row["op_name"] == op.op_name
        assert row["file"] == op.file
        assert (row["step"], row["device"], row["timestamp"]) == (op.step, op.device, op.timestamp)
        assert row["nan"] == stats.nan
        assert (row["min"], row["max"]) == pytest.approx((stats.min, stats.max), rel=1e-8)
    # Tensors of the first thousand only.
    assert {row["rank"] for row in tables["tensors"]} == set(range(1, 1001))
    assert len(tables["tensors"]) == 3000
    assert [row["kind"] for row in tables["overflow"]] == ["AIC", "DHA", "AIV"]


def test_a_page_stays_small_by_leaving_out_the_last_rows() -> None:
    scan = realistic_scan(4000)
    size = 1_100_000
    page = write(scan, size=size)
    assert len(page) < size
    root = parse(page)
    rows = unpack(root)["findings"]
    assert 200 <= len(rows) < 4000
    assert [row["rank"] for row in rows] == list(range(1, len(rows) + 1))
    (meta,) = root.find("script", id="meta")
    assert json.loads(meta.text)["tables"]["findings"]["total"] == 4000
    # One name cannot take all the room either.
    long = replace(scan, findings=(make_finding(1, Verdict.ORIGIN, "x" * 3_000_000),))
    assert len(write(long)) < 200_000


def test_a_limit_cuts_findings_and_says_so() -> None:
    root = parse(write(large_scan(50), limit=7))
    section = listing(root, "findings")
    assert [row[0] for row in rows_of(section)] == [str(rank) for rank in range(1, 8)]
    assert "43 findings left out by --limit" in section.text
    assert len(unpack(root)["findings"]) == 7
    assert len(rows_of(listing(parse(write(large_scan(50), limit=0)), "findings"))) == 50


def test_integers_and_names_survive_packing() -> None:
    finding = make_finding(1, Verdict.ORIGIN)
    op = replace(finding.op, timestamp=1764417600003145999, task_id=2**53)
    root = parse(write(replace(overflow_scan(), findings=(replace(finding, op=op),))))
    (row,) = unpack(root)["findings"]
    # Beyond 2**53 JavaScript's numbers are no longer exact.
    assert (row["timestamp"], row["task_id"]) == ("1764417600003145999", 2**53)


# --- charts -------------------------------------------------------------------------------------


def placed(rank: int, verdict: Verdict, step: int | None, device: int | None) -> Finding:
    finding = make_finding(rank, verdict)
    op = replace(finding.op, step=step, device=device, start_ns=1000 * rank)
    return replace(finding, op=op)


def test_the_map_counts_findings_per_step_and_rank() -> None:
    findings = (
        placed(1, Verdict.ORIGIN, 1, 3),
        placed(2, Verdict.RECEIVED, 2, 0),
        *(placed(rank, Verdict.PROPAGATED, 1, 3) for rank in range(3, 12)),
        placed(12, Verdict.PROPAGATED, None, 0),
    )
    chart = draw_heat_map(replace(overflow_scan(), findings=findings), "en")
    assert chart is not None
    assert [name for _, name in chart.rows] == ["rank 0", "rank 3"]
    assert [name for _, name in chart.columns] == ["1", "2", "?"]
    cells = {(c.step, c.device): c for row in chart.cells for c in row}
    assert {key: (c.count, c.made, c.came) for key, c in cells.items()} == {
        ("2", "0"): (1, 0, 1),
        ("?", "0"): (1, 0, 0),
        ("1", "3"): (10, 1, 0),
    }
    assert cells["1", "3"].title == "step 1, rank 3: 10 findings, 1 made here, 0 came in"
    assert (cells["2", "0"].level, cells["1", "3"].level) == (1, 5)
    assert chart.legend[0][1].startswith("1")
    assert chart.legend[-1][1].endswith("10")
    assert chart.left_out == ""
    single = replace(overflow_scan(), findings=findings[2:5])
    assert draw_heat_map(single, "en") is None


def test_charts_are_bounded_and_say_what_they_leave_out() -> None:
    findings = tuple(
        placed(rank, Verdict.PROPAGATED, rank % 101, rank % 70) for rank in range(1, 7071)
    )
    scan = replace(overflow_scan(), findings=findings)
    heat, lanes = draw_heat_map(scan, "en"), draw_lanes(scan, "en")
    assert heat is not None
    assert lanes is not None
    assert len(heat.rows) == MOST_RANKS
    assert len({cell.step for row in heat.cells for cell in row}) == MOST_STEPS
    assert heat.left_out == (
        f"{101 - MOST_STEPS} more steps and {70 - MOST_RANKS} more ranks with fewer findings are "
        "not drawn"
    )
    assert len(lanes.lanes) == MOST_LANES
    assert lanes.left_out.startswith(f"{70 - MOST_LANES} more ranks")
    assert max(len(lane.marks) for lane in lanes.lanes) <= SLOTS
    assert sum(len(lane.marks) for lane in lanes.lanes) <= MOST_MARKS
    assert len(write(scan)) < 1_500_000


def test_lanes_follow_the_clock_of_their_own_rank_only() -> None:
    findings = [
        placed(1, Verdict.ORIGIN, 0, 1),
        placed(2, Verdict.RECEIVED, 0, 0),
        placed(3, Verdict.PROPAGATED, 0, 1),
        placed(4, Verdict.PROPAGATED, 1, 1),
    ]
    # Rank 0's clock is years ahead, and rank 1 ran #3 before #1.
    for number, start in ((1, 10**18), (2, 1), (0, 500)):
        op = replace(findings[number].op, start_ns=start)
        findings[number] = replace(findings[number], op=op)
    scan = replace(
        overflow_scan(),
        findings=tuple(findings),
        ranks=(
            RankSummary(0, "received", run="20251129120000"),
            RankSummary(1, "own", run="20251129120000"),
            RankSummary(2, "clean", run="20251129120000"),
        ),
    )
    chart = draw_lanes(scan, "en")
    assert chart is not None
    assert [(lane.name, lane.told) for lane in chart.lanes] == [
        ("rank 0", "1 bad, infected by others"),
        ("rank 1", "3 bad, by itself"),
        ("rank 2", "clean"),
    ]
    first, second, clean = chart.lanes
    assert [mark.rank for mark in second.marks] == [3, 1, 4]
    assert [mark.group for mark in second.marks] == ["passed", "made", "passed"]
    assert [name for _, name in second.steps] == ["step 0", "step 1"]
    assert first.marks[0].x == second.marks[0].x == chart.left
    assert second.marks[0].title == "#3 propagated: Mul network/layer_3/Mul, step 0"
    assert clean.marks == ()


def test_many_operators_share_a_mark_named_after_the_worst() -> None:
    findings = [placed(1, Verdict.ORIGIN, 0, 0)]
    findings += [placed(rank, Verdict.PROPAGATED, 0, 0) for rank in range(2, 301)]
    findings = [
        replace(f, op=replace(f.op, start_ns=301 if f.rank == 1 else f.rank)) for f in findings
    ]
    chart = draw_lanes(replace(overflow_scan(), findings=tuple(findings)), "en")
    assert chart is not None
    (lane,) = chart.lanes
    assert len(lane.marks) == 100
    # The origin ran last here, so it is in the last mark.
    assert (lane.marks[-1].rank, lane.marks[-1].group) == (1, "made")
    assert lane.marks[-1].title.startswith(
        "bad operators 298 to 300, the worst is #1 origin: Mul network/layer_1/Mul"
    )
    assert chart.ticks[0][1] == "1"


def test_lanes_of_equal_ranks_are_told_apart() -> None:
    findings = []
    for rank, (run, host) in enumerate([("A", "n1"), ("A", "n2"), ("B", "n1")], 1):
        finding = placed(rank, Verdict.ORIGIN, 0, 0)
        place = Place(run=run, host=host, device_id=0)
        findings.append(replace(finding, op=replace(finding.op, place=place)))
    chart = draw_lanes(replace(overflow_scan(), findings=tuple(findings)), "en")
    assert chart is not None
    assert [lane.name for lane in chart.lanes] == ["rank 0 n1 A", "rank 0 n2 A", "rank 0 n1 B"]


def test_every_verdict_has_a_group_with_a_colour() -> None:
    assert GROUPS.keys() == set(Verdict)
    style = (files("dumpscope.reporters") / "templates" / "page.css").read_text(encoding="utf-8")
    for group in set(GROUPS.values()):
        assert f".badge.g-{group}" in style
        assert f".mark.g-{group}" in style
        assert f"group_{group}" in PAGE_WORDS


def test_the_range_shows_how_far_values_are_from_the_end() -> None:
    chart = draw_range(overflow_scan().findings[0], "en")
    assert chart is not None
    first, second, third = chart.rows
    assert [row.name for row in chart.rows] == ["input 0", "input 1", "output 0"]
    assert [row.deciding for row in chart.rows] == [False, False, True]
    # log2(65504 / 412.5) and log2(65504 / 310.25)
    assert (first.told, second.told) == ("headroom 7.3 bits", "headroom 7.7 bits")
    assert third.told == "headroom < 0.1 bits"
    assert third.beyond == ("513 +Inf", "7 near the limit")
    assert (third.zero, third.subnormal, third.bad) == ("2", "1", True)
    assert (first.zero, first.subnormal, first.bad) == (None, "", False)
    # The axis is one of logarithms: from 2**-24 to 2**16 for float16.
    width = chart.axis_right - chart.axis_left
    assert third.low == chart.axis_left
    assert third.high == pytest.approx(
        chart.axis_left + width * (math.log2(65504) + 24) / 40, abs=0.01
    )
    assert third.normal == pytest.approx(chart.axis_left + width * 10 / 40, abs=0.01)
    (up,) = [needle for needle in first.needles if needle.kind == "up"]
    assert up.x == pytest.approx(chart.axis_left + width * (math.log2(400) + 24) / 40, abs=0.01)
    assert up.text == "max 400"
    assert chart.limit_text == "ends at 65,504"


@pytest.mark.parametrize(
    ("stats", "told", "beyond"),
    [
        ({"nan": 8}, "no finite value", ("8 NaN",)),
        ({"nan": 1, "neginf": 2, "max": 1.0, "min": 0.5}, "headroom 16.0 bits", None),
        ({"saturated": 3, "max": 65504.0, "min": 0.0}, "at the limit", ("3 at the limit",)),
        ({"zero": 8, "max": 0.0, "min": 0.0}, "", ()),
        ({}, "", ()),
    ],
)
def test_the_range_of_any_numbers(
    stats: dict[str, Any], told: str, beyond: tuple[str, ...] | None
) -> None:
    finding = make_finding(1, Verdict.ORIGIN)
    op = replace(finding.op, tensors=(tensor("output", 0, (2, 4), **stats),))
    chart = draw_range(replace(finding, op=op, deciding=0), "en")
    assert chart is not None
    (row,) = chart.rows
    assert row.told == told
    assert row.beyond == (beyond if beyond is not None else ("1 NaN, 2 \u2212Inf",))


def test_a_range_needs_a_type_with_one() -> None:
    finding = make_finding(1, Verdict.ORIGIN)
    for dtype in ("complex64", "string", "dtype99"):
        bad = replace(finding.op.tensors[1], dtype=dtype)
        op = replace(finding.op, tensors=(finding.op.tensors[0], bad))
        assert draw_range(replace(finding, op=op), "en") is None
    assert draw_range(replace(finding, deciding=None), "en") is None
    assert draw_range(replace(finding, deciding=9), "en") is None


def test_a_range_reaches_as_far_as_its_values() -> None:
    finding = make_finding(1, Verdict.ORIGIN)
    wide = replace(tensor("input", 0, (4,), max=3e38, min=-1.0), dtype="float32")
    op = replace(finding.op, tensors=(wide, finding.op.tensors[1]))
    chart = draw_range(replace(finding, op=op), "en")
    assert chart is not None
    first, second = chart.rows
    assert first.fill is not None
    assert second.high is not None
    assert second.high < first.fill <= chart.axis_right
    # More tensors than there is room for: the deciding one is always drawn.
    many = (*(tensor("input", i, (4,), max=1.0) for i in range(30)), finding.op.tensors[1])
    chart = draw_range(replace(finding, op=replace(op, tensors=many), deciding=30), "en")
    assert chart is not None
    assert len(chart.rows) == 8
    assert chart.rows[-1].deciding
    assert chart.left_out == "23 more tensors are in the table below"


@pytest.mark.parametrize("key", PAGE_WORDS)
def test_both_languages_say_the_same_numbers(key: str) -> None:
    english, chinese = PAGE_WORDS[key]
    assert english
    assert chinese
    assert sorted(re.findall(r"\{(\w+)\}", english)) == sorted(re.findall(r"\{(\w+)\}", chinese))


def test_the_first_offender_is_followed_over_the_steps(tmp_path: Path) -> None:
    finite, infinite = b"\x00\x3c" * 32, b"\x00\x7c" * 2 + b"\x00\x3c" * 30
    for step, output in enumerate((finite, infinite, finite)):
        folder = tmp_path / f"20260101000000/0/net/1/{step}"
        folder.mkdir(parents=True)
        (folder / f"Mul.net_Mul.3.1.{1767225600000000 + step}").write_bytes(
            dump_file(
                [Tensor(finite, shape=(4, 8))], [Tensor(output, shape=(4, 8))], op_name="net/Mul"
            )
        )
    answer = scan(tmp_path)
    assert [op.step for op in answer.history] == [0, 1, 2]
    page = write_page(answer)
    assert '<h2 id="trend-title">' in page
    assert page.count("<circle") >= 3
    assert '<h2 id="trend-title">' not in write_page(scan(tmp_path / "20260101000000/0/net/1/1"))


def test_only_a_page_asks_for_the_steps_of_the_first_offender(
    fixture_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Sequence[str]] = []
    read = Store.ops

    def note_names(store: Store, scan_id: str, **wanted: Any) -> Iterator[OpRecord]:
        asked.append(wanted.get("names") or ())
        return read(store, scan_id, **wanted)

    def is_asked(*words: str) -> bool:
        asked.clear()
        assert run_with([*words, "--store", str(tmp_path / "scans.db")]) in (0, 1)
        return [origin] in asked

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Store, "ops", note_names)
    answer = scan(fixture_dir / "sample_dump")
    origin = answer.findings[0].op.op_name
    assert asked.count([origin]) == 1  # a page may be made of it when the store is gone
    assert len(answer.history) == 2
    assert not is_asked("scan", str(fixture_dir / "sample_dump"), "--format", "json")
    assert not is_asked("report", "--json", "--csv", "--xlsx")
    assert not is_asked("trace", "--json")
    assert is_asked("report", "--markdown", "--html")
    assert '<h2 id="trend-title">' in (tmp_path / "dumpscope-report.html").read_text("utf-8")


def write_page(answer: Scan) -> str:
    target = io.BytesIO()
    PageReporter().write(answer, target, limit=None, lang="en")
    return target.getvalue().decode()
