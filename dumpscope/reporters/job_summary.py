"""The summary of a CI job in Markdown: the verdict, the first findings, what was not checked.

Names come out of dumps: nothing in them is markup, a link, a mention or HTML here.
"""

from __future__ import annotations

from dumpscope.model import Finding, Reason, Scan
from dumpscope.regexes import regex
from dumpscope.reporters.summary import (
    headline_of,
    next_steps,
    notes_of,
    options_of,
    split_command,
    unchecked_of,
)
from dumpscope.reporters.tables import cut
from dumpscope.safetext import make_printable
from dumpscope.words import format_count, label, render
from dumpscope.words.nightly import nightly_word

__all__ = ["DEFAULT_LIMIT", "build_summary", "code_span", "escape_markdown"]

DEFAULT_LIMIT = 20
"""Findings in the table when nobody says how many."""

_SIGNS = {0: "\N{WHITE HEAVY CHECK MARK}", 1: "\N{CROSS MARK}", 3: "\N{WARNING SIGN}\ufe0f"}
_SPECIAL = regex(r"[\\`*_\[\]#|~$]|^[-+=](?=[-+= ])|(?<=^[0-9])[.)]")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "&#64;"}
# What is made a link without any brackets.
_AUTOLINK = regex(r"(?i)(?<=https)(?=://)|(?<=http)(?=://)|(?<=ftp)(?=://)|(?<=www)(?=\.)")
_MOST_NAME = 200
_MOST_SENTENCE = 1000


def build_summary(scan: Scan, *, limit: int | None = None, lang: str = "en") -> str:
    """Return the summary; `limit` is the number of findings, 0 for all."""
    shown = DEFAULT_LIMIT if limit is None else limit
    counts = scan.counts
    sign = _SIGNS.get(scan.exit_status, "")
    lines = [f"## {sign} {escape_markdown(render(headline_of(scan), lang))}".replace("  ", " "), ""]
    totals = nightly_word(
        "totals",
        lang,
        ops=format_count(counts.ops),
        tensors=format_count(counts.tensors),
        files=format_count(counts.files),
        status=scan.exit_status,
    )
    lines += [f"{escape_markdown(totals)} {code_span(scan.root)}", ""]
    lines += _table(scan, shown, lang)
    lines += _section("not_checked", _tell(unchecked_of(scan), lang), lang)
    lines += _section("notes", _tell(notes_of(scan), lang), lang)
    steps = [_tell_step(render(reason, lang)) for reason in next_steps(scan)]
    lines += _section("go_on", steps, lang)
    return "\n".join(lines).rstrip("\n") + "\n"


def escape_markdown(text: str) -> str:
    r"""Write a text so that Markdown (GitHub's and GitLab's) shows it as it is.

    >>> escape_markdown("*a* <b>")
    '\\*a\\* &lt;b&gt;'
    """
    text = _SPECIAL.sub(lambda match: "\\" + match.group(), make_printable(text))
    text = "".join(_ENTITIES.get(character, character) for character in text)
    return _AUTOLINK.sub("<!-- -->", text)


def code_span(text: str) -> str:
    """Write a name as code, also inside a table.

    A code span has no escapes, and a table is cut at every `|` but an escaped one, before code is
    looked for: so a name with a backtick or a stroke is HTML instead.
    """
    text = make_printable(text)
    if len(text) > _MOST_NAME:
        text = text[: _MOST_NAME // 3] + "\u2026" + text[-(_MOST_NAME - _MOST_NAME // 3) :]
    return _code(text) if text.strip() else ""


def _code(text: str) -> str:
    if "`" in text or "|" in text or "\\" in text:
        return f"<code>{escape_markdown(text)}</code>"
    return f"`{text}`"


def _table(scan: Scan, limit: int, lang: str) -> list[str]:
    findings = cut(scan.findings, limit)
    if not findings:
        return []
    heads = ("verdict", "step", "device", "operator", "why")
    lines = [f"### {nightly_word('findings', lang)}", ""]
    lines.append("| # | " + " | ".join(nightly_word(head, lang) for head in heads) + " |")
    lines.append("|" + "---|" * (len(heads) + 1))
    lines += [_row(finding, lang) for finding in findings]
    lines.append("")
    left = len(scan.findings) - len(findings)
    if left:
        told = {"count": format_count(left), "options": options_of(scan.found_by)}
        lines += [escape_markdown(nightly_word("left_out", lang, **told)), ""]
    return lines


def _row(finding: Finding, lang: str) -> str:
    op = finding.op
    verdict = label(finding.verdict.value, lang)
    if finding.known:
        verdict += f" ({nightly_word('known', lang)})"
    sentence = render(finding.reason, lang)
    if len(sentence) > _MOST_SENTENCE:
        sentence = sentence[: _MOST_SENTENCE - 1] + "\u2026"
    names = " ".join(code_span(name) for name in (op.op_type, op.op_name) if name)
    cells = [
        "" if finding.rank is None else str(finding.rank),
        verdict,
        "" if op.step is None else str(op.step),
        "" if op.device is None else str(op.device),
        names or code_span(op.file),
        escape_markdown(sentence),
    ]
    return "| " + " | ".join(cells) + " |"


def _tell(reasons: list[Reason], lang: str) -> list[str]:
    return [escape_markdown(render(reason, lang)) for reason in reasons]


def _tell_step(text: str) -> str:
    """Write the command as code: what it is to be copied from must not hold escapes."""
    words, command = split_command(text)
    space = "" if words.endswith("：") else " "
    return f"{escape_markdown(words)}{space}{_code(command)}"


def _section(key: str, texts: list[str], lang: str) -> list[str]:
    if not texts:
        return []
    return [f"### {nightly_word(key, lang)}", "", *(f"- {text}" for text in texts), ""]
