"""Markdown: the summary of a job, for merge requests, wikis and mails."""

from __future__ import annotations

from typing import BinaryIO

from dumpscope.model import Scan
from dumpscope.reporters.job_summary import build_summary

__all__ = ["MarkdownReporter"]


class MarkdownReporter:
    """`--markdown`: the verdict, the first findings, what was not checked, how to go on."""

    name = "markdown"
    suffix = "md"
    option = "--markdown"

    def write(self, scan: Scan, target: BinaryIO, *, limit: int | None, lang: str) -> None:
        """Write UTF-8; the table has 20 findings unless a limit is given."""
        target.write(build_summary(scan, limit=limit, lang=lang).encode())
