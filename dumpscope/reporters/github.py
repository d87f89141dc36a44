"""GitHub Actions: annotations as workflow commands, and the summary of the job.

One line for each operator: `::error file=...,title=...::sentence`. A finding that fails the job
is an error, others are warnings, and notices where bad values only went through. GitHub shows ten
of each kind for a step, so without a limit no more are written, and no notices. Where
GITHUB_STEP_SUMMARY names a file, the Markdown summary is appended to it.

Source of the escapes: "Workflow commands for GitHub Actions" and actions/toolkit's command.ts:
`%`, CR and LF in a message; `:` and `,` too in a property.
"""

from __future__ import annotations

import os
from typing import BinaryIO

from dumpscope.model import Finding, Scan
from dumpscope.remote.urls import is_url
from dumpscope.reporters.job_summary import build_summary
from dumpscope.reporters.operator_groups import group_findings, is_incomplete, level_of
from dumpscope.reporters.summary import headline_of, options_of, unchecked_of
from dumpscope.safetext import make_printable
from dumpscope.words import format_count, label, render
from dumpscope.words.nightly import nightly_word

__all__ = ["GithubReporter", "escape_message", "escape_property", "list_commands"]

_ROOM = {"error": 10, "warning": 10, "notice": 0}
_KINDS = {"error": "error", "warning": "warning", "note": "notice"}
_SUMMARY_FILE = "GITHUB_STEP_SUMMARY"
_WORKSPACE = "GITHUB_WORKSPACE"


class GithubReporter:
    """`--github`: annotations for the log of a step, and the job's summary."""

    name = "github"
    suffix = "github.txt"
    option = "--github"
    default_path = "-"

    def write(self, scan: Scan, target: BinaryIO, *, limit: int | None, lang: str) -> None:
        """Write the commands; without a limit at most ten errors and ten warnings."""
        commands = list_commands(scan, limit=limit, lang=lang)
        error = _append_summary(build_summary(scan, limit=limit, lang=lang))
        if error:
            text = nightly_word("no_summary_file", lang, error=error)
            commands.append(_command("warning", text, title="dumpscope"))
        target.write("".join(f"{command}\n" for command in commands).encode())


def list_commands(scan: Scan, *, limit: int | None = None, lang: str = "en") -> list[str]:
    """Return the workflow commands, one line each.

    `limit` is the number of operators to annotate, 0 for all; `None` is ten errors and warnings.
    """
    groups = group_findings(scan.findings, scan.options.fail_on)
    wanted = [group for group in groups if group.state != "known"]
    commands: list[str] = []
    written = dict.fromkeys(_KINDS.values(), 0)
    left_out = 0
    for group in wanted:
        kind = _KINDS[level_of(group.leading, scan.options.fail_on)]
        full = written[kind] >= _ROOM[kind] if limit is None else 0 < limit <= len(commands)
        if full:
            left_out += 1
            continue
        written[kind] += 1
        commands.append(_annotate(kind, group.leading, len(group.findings), scan, lang))
    if is_incomplete(scan):
        told = " ".join(render(reason, lang) for reason in unchecked_of(scan))
        text = told or render(headline_of(scan), lang)
        commands.append(_command("error", text, title="dumpscope: incomplete"))
    headline = render(headline_of(scan), lang)
    if left_out:
        more = {"count": format_count(left_out), "options": options_of(scan.found_by)}
        headline += " " + nightly_word("operators_left_out", lang, **more)
    commands.append(_command("notice", headline, title="dumpscope"))
    return commands


def escape_message(text: str) -> str:
    """Escape what would end a command.

    >>> escape_message("100%")
    '100%25'
    """
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def escape_property(text: str) -> str:
    """Escape what would end a property of a command, too."""
    return escape_message(text).replace(":", "%3A").replace(",", "%2C")


def _annotate(kind: str, finding: Finding, count: int, scan: Scan, lang: str) -> str:
    op = finding.op
    sentence = render(finding.reason, lang)
    if count > 1:
        more = nightly_word("more_executions", lang, count=format_count(count - 1))
        sentence = f"{sentence} ({more})"
    title = f"{label(finding.verdict.value, lang)}: {op.op_type} {op.op_name}"
    return _command(kind, sentence, file=_seen_from_workspace(op.file, scan.root), title=title)


def _command(kind: str, text: str, *, title: str, file: str = "") -> str:
    properties = [("file", file), ("title", title)]
    told = ",".join(
        f"{name}={escape_property(make_printable(value).strip())}"
        for name, value in properties
        if value.strip()
    )
    return f"::{kind} {told}::{escape_message(make_printable(text))}"


def _seen_from_workspace(file: str, root: str) -> str:
    """Return the path from the checkout where the dump lies in it, else from the dump's root."""
    workspace = os.environ.get(_WORKSPACE)
    if not file or not workspace or is_url(root):
        return file
    path = os.path.join(root, file)
    inside = os.path.relpath(path, workspace)
    return file if inside.startswith("..") else inside


def _append_summary(summary: str) -> str:
    """Append to the job's summary, where there is one. Returns why that was not possible."""
    path = os.environ.get(_SUMMARY_FILE)
    if not path:
        return ""
    try:
        with open(path, "ab") as file:
            file.write(summary.encode())
    except OSError as error:
        return error.strerror or str(error)
    return ""
