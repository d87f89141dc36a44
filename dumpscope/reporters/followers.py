"""Which findings a person is shown: those that something began with, and a few that follow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from dumpscope.model import Finding, Verdict

__all__ = ["FEW_FOLLOWERS", "choose_rows", "count_hidden", "is_follower"]

FEW_FOLLOWERS = 4
"""So many followers are all shown; of more only the first `_SHOWN_OF_MANY`."""

_SHOWN_OF_MANY = 3


def is_follower(finding: Finding) -> bool:
    """Whether the operator only passed on, or hid, what another one made.

    The best-ranked finding never is: it is where a reader begins.
    """
    return finding.rank != 1 and finding.verdict in {Verdict.PROPAGATED, Verdict.SWALLOWED}


def choose_rows(findings: Sequence[Finding], heads: int) -> list[Finding]:
    """Return at most `heads` findings that do not follow, and the first few that do."""
    followers = [finding for finding in findings if is_follower(finding)]
    if len(followers) > FEW_FOLLOWERS:
        followers = followers[:_SHOWN_OF_MANY]
    shown = {id(finding) for finding in followers}
    shown |= {id(f) for f in [f for f in findings if not is_follower(f)][:heads]}
    return [finding for finding in findings if id(finding) in shown]


def count_hidden(findings: Sequence[Finding], shown: Sequence[Finding]) -> dict[Verdict, int]:
    """Count the findings that are not shown, by verdict in ranking order."""
    counts = Counter(finding.verdict for finding in findings)
    counts.subtract(finding.verdict for finding in shown)
    return {verdict: counts[verdict] for verdict in Verdict if counts[verdict] > 0}
