"""JUnit XML: one test case per operator that has findings, and one for what was not read.

A case fails when a finding of its operator fails the job (`--fail-on`, and not known to the
baseline); operators with other findings are skipped cases that say why. What was not read is an
error, not a failure: no operator is to blame. There is always one case, because CI servers take
a file without any for a job that did not run.

The elements, their order and their attributes are those that both schemas in use agree on: Ant's,
as windyroad wrote it down, and that of Jenkins' xunit plugin. XML 1.0 cannot hold control
characters in any form, so texts are made printable first.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import BinaryIO

from dumpscope.model import Finding, Scan
from dumpscope.regexes import regex
from dumpscope.reporters.operator_groups import OperatorGroup, group_findings, is_incomplete
from dumpscope.reporters.summary import headline_of, notes_of, options_of, unchecked_of
from dumpscope.reporters.tables import cut
from dumpscope.safetext import make_printable
from dumpscope.words import describe_verdict, render
from dumpscope.words.nightly import nightly_word

__all__ = ["JunitReporter"]

_MOST_LISTED = 20
"""Findings of one operator, and files that were not read, that one case lists."""

_TIME = regex(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}")
_NO_TIME = "1970-01-01T00:00:00"
_READING = "reading"


class JunitReporter:
    """`--junit`: test cases for a CI server."""

    name = "junit"
    suffix = "xml"
    option = "--junit"

    def write(self, scan: Scan, target: BinaryIO, *, limit: int | None, lang: str) -> None:
        """Write UTF-8; all operators unless a limit (of findings) is given."""
        root = ET.Element("testsuites")
        _build_suite(root, scan, limit or 0, lang)
        ET.indent(root, " ")
        target.write(b'<?xml version="1.0" encoding="UTF-8"?>\n')
        target.write(ET.tostring(root, encoding="unicode").encode())
        target.write(b"\n")


def _build_suite(root: ET.Element, scan: Scan, limit: int, lang: str) -> None:
    groups = group_findings(cut(scan.findings, limit), scan.options.fail_on)
    failures = sum(1 for group in groups if group.state == "failed")
    unread = is_incomplete(scan)
    tolerated = not scan.complete and not unread
    started = _TIME.match(scan.started_at)
    suite = ET.SubElement(
        root,
        "testsuite",
        {
            "name": "dumpscope",
            "id": "0",
            "package": "dumpscope",
            "tests": str(len(groups) + 1),
            "failures": str(failures),
            "errors": str(int(unread)),
            "skipped": str(len(groups) - failures + int(tolerated)),
            "time": f"{scan.duration_s:.3f}",
            "timestamp": started.group() if started else _NO_TIME,
            # The report is about the dump, whichever machine read it.
            "hostname": "localhost",
        },
    )
    properties = ET.SubElement(suite, "properties")
    for key, value in (
        ("scan_id", scan.scan_id),
        ("root", scan.root),
        ("tool_version", scan.tool_version),
        ("exit_status", str(scan.exit_status)),
        ("number_mode", scan.mode.number_mode),
    ):
        attributes = {"name": key, "value": make_printable(value)}
        ET.SubElement(properties, "property", attributes)
    _add_reading_case(suite, scan, unread=unread, lang=lang)
    for group in groups:
        _add_case(suite, group, scan, lang)
    ET.SubElement(suite, "system-out").text = "\n".join(_tell_all(scan, limit, lang))
    ET.SubElement(suite, "system-err").text = ""


def _new_case(suite: ET.Element, class_name: str, name: str) -> ET.Element:
    attributes = {
        "name": make_printable(name),
        "classname": make_printable(class_name),
        "time": "0",
    }
    return ET.SubElement(suite, "testcase", attributes)


def _add_reading_case(suite: ET.Element, scan: Scan, *, unread: bool, lang: str) -> None:
    case = _new_case(suite, "dumpscope", _READING)
    if scan.complete:
        return
    told = [render(reason, lang) for reason in unchecked_of(scan)]
    if not told:
        told = [render(headline_of(scan), lang)]
    if not unread:
        tolerance = scan.options.max_unreadable
        message = nightly_word("tolerated", lang, tolerance=tolerance, sentence=told[0])
        ET.SubElement(case, "skipped", {"message": make_printable(message)})
        return
    attributes = {"message": make_printable(told[0]), "type": "incomplete"}
    error = ET.SubElement(case, "error", attributes)
    files = [f"{failure.file}: {failure.message}" for failure in scan.read_failures]
    files += [f"{op.file}: {tensor.unchecked}" for op, tensor in scan.unchecked]
    error.text = "\n".join(make_printable(line) for line in (*told, *files[:_MOST_LISTED]))


def _add_case(suite: ET.Element, group: OperatorGroup, scan: Scan, lang: str) -> None:
    op_type = group.op_type or nightly_word("no_operator_name", lang)
    class_name = f"{group.model}.{op_type}" if group.model else op_type
    name = group.op_name or group.leading.op.file or op_type
    case = _new_case(suite, class_name, name)
    sentence = render(group.leading.reason, lang)
    if group.state == "failed":
        verdict = group.leading.verdict
        attributes = {"message": make_printable(sentence), "type": verdict.value}
        failure = ET.SubElement(case, "failure", attributes)
        lines = [f"{verdict.value}: {describe_verdict(verdict, lang)}"]
        lines += [_tell(finding, lang) for finding in group.findings[:_MOST_LISTED]]
        left = len(group.findings) - _MOST_LISTED
        if left > 0:
            lines.append(nightly_word("more_executions", lang, count=left))
        failure.text = "\n".join(map(make_printable, lines))
        return
    if group.state == "known":
        message = nightly_word("known_reason", lang, sentence=sentence)
    else:
        fail_on = scan.options.fail_on
        message = nightly_word("not_counted", lang, fail_on=fail_on, sentence=sentence)
    ET.SubElement(case, "skipped", {"message": make_printable(message)})


def _tell(finding: Finding, lang: str) -> str:
    op = finding.op
    where = [f"#{finding.rank}", finding.verdict.value]
    if op.step is not None:
        where.append(f"step {op.step}")
    if op.device is not None:
        where.append(f"device {op.device}")
    if finding.known:
        where.append(nightly_word("known", lang))
    return f"{', '.join(where)}: {render(finding.reason, lang)} [{op.file}]"


def _tell_all(scan: Scan, limit: int, lang: str) -> list[str]:
    """Return the answer of the scan in sentences, for the suite's output."""
    reasons = [headline_of(scan), *unchecked_of(scan), *notes_of(scan)]
    lines = [render(reason, lang) for reason in reasons]
    left = len(scan.findings) - len(cut(scan.findings, limit))
    if left:
        lines.append(nightly_word("left_out", lang, count=left, options=options_of(scan.found_by)))
    return [make_printable(line) for line in lines]
