"""JUnit XML: valid, one case per operator, and red exactly when the job is."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dumpscope.model import Scan, Verdict
from dumpscope.reporters.junit import JunitReporter
from scan_samples import (
    HOSTILE_NAMES,
    clean_scan,
    incomplete_scan,
    large_scan,
    make_finding,
    named_scan,
    overflow_scan,
)

etree = pytest.importorskip("lxml.etree", reason="lxml checks XML against its schema")
SCHEMA_FILE = Path(__file__).with_name("junit.xsd")


def write(scan: Scan, *, limit: int | None = None, lang: str = "en") -> Any:
    """Write, check against the schema and against its own counts, and return the suite."""
    target = io.BytesIO()
    JunitReporter().write(scan, target, limit=limit, lang=lang)
    root = etree.fromstring(target.getvalue())
    etree.XMLSchema(etree.parse(str(SCHEMA_FILE))).assertValid(root)
    (suite,) = root
    assert int(suite.get("tests")) == len(suite.findall("testcase"))
    for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        assert int(suite.get(attribute)) == len(suite.findall(f"testcase/{tag}"))
    return suite


def test_an_origin_fails_and_what_it_spread_to_does_not() -> None:
    suite = write(overflow_scan())
    reading, origin, after = suite.findall("testcase")
    assert (reading.get("classname"), len(reading)) == ("dumpscope", 0)
    assert origin.get("classname") == "ge_default.BatchMatMulV2"
    assert origin.get("name") == "network_layers_1_attn_BatchMatMulV2-op0"
    (failure,) = origin
    assert failure.tag == "failure"
    assert failure.get("type") == "origin"
    assert "513 +Inf of 2,048" in failure.get("message")
    assert "device 3" in failure.text
    (skipped,) = after
    assert skipped.tag == "skipped"
    assert skipped.get("message").startswith("not counted (--fail-on warning)")
    assert suite.get("timestamp") == "2025-11-29T12:00:00"


def test_what_fails_follows_the_option() -> None:
    scan = overflow_scan()
    never = write(replace(scan, options=replace(scan.options, fail_on="never")))
    assert (never.get("failures"), never.get("skipped")) == ("0", "2")
    info = write(replace(scan, options=replace(scan.options, fail_on="info")))
    assert (info.get("failures"), info.get("skipped")) == ("2", "0")


def test_executions_of_one_operator_are_one_case() -> None:
    findings = tuple(
        replace(make_finding(rank, Verdict.ORIGIN, "net/Mul"), known=rank == 1)
        for rank in (1, 2, 3)
    )
    suite = write(replace(overflow_scan(), findings=findings))
    _, case = suite.findall("testcase")
    assert case[0].tag == "failure"
    assert case[0].text.count("origin, step 0") == 3
    assert case[0].text.count("known to the baseline") == 1


def test_what_the_baseline_knows_is_skipped() -> None:
    scan = overflow_scan()
    known = tuple(replace(finding, known=True) for finding in scan.findings)
    suite = write(replace(scan, findings=known, exit_status=0))
    assert (suite.get("failures"), suite.get("skipped")) == ("0", "2")
    assert suite[1 + 1][0].get("message").startswith("known to the baseline: Output 0")


def test_what_was_not_read_is_an_error() -> None:
    suite = write(incomplete_scan())
    (case,) = suite.findall("testcase")
    (error,) = case
    assert (error.tag, error.get("type")) == ("error", "incomplete")
    assert "d/Bad.x.1.1.1: expected 64, found 3" in error.text


def test_what_is_tolerated_is_no_error() -> None:
    scan = incomplete_scan()
    tolerant = replace(scan, exit_status=0, options=replace(scan.options, max_unreadable="2"))
    (case,) = write(tolerant).findall("testcase")
    assert case[0].tag == "skipped"
    assert "--max-unreadable 2" in case[0].get("message")
    offenders = replace(tolerant, exit_status=1)
    assert write(offenders).get("errors") == "0"
    strict = replace(offenders, options=replace(scan.options, max_unreadable="1"))
    assert write(strict).get("errors") == "1"


def test_a_clean_scan_has_a_case_that_passes() -> None:
    suite = write(clean_scan())
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("1", "0", "0")
    assert "No operator produced NaN" in suite.findtext("system-out")


def test_hostile_names_stay_text() -> None:
    suite = write(named_scan())
    names = [case.get("name") for case in suite.findall("testcase")[1:]]
    assert len(names) == len(HOSTILE_NAMES)
    assert "null\\x00byte" in names
    assert "</script><b>html</b>" in names
    assert "raw\\xff\\x80bytes" in names
    assert suite.find("properties/property[@name='root']").get("value").startswith("/data/\\xff")


def test_a_limit_is_said() -> None:
    suite = write(large_scan(50), limit=10)
    assert suite.get("tests") == "11"
    assert "40 more findings are left out" in suite.findtext("system-out")


def test_chinese() -> None:
    suite = write(overflow_scan(), lang="zh")
    assert suite.findall("testcase")[2][0].get("message").startswith("不计入（--fail-on warning）")
