"""What a scan means to the one who called it: the exit status, and whether it was complete."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from dumpscope.causality.ranking import FAIL_ORDER
from dumpscope.errors import OptionsError
from dumpscope.model import (
    SEVERITY_OF,
    Counts,
    Finding,
    ReadFailure,
    Reason,
    ScanOptions,
    Verdict,
)
from dumpscope.records import record

__all__ = [
    "EXIT_CLEAN",
    "EXIT_INCOMPLETE",
    "EXIT_OFFENDERS",
    "Outcome",
    "decide_outcome",
    "failing_verdicts",
    "parse_tolerance",
]

EXIT_CLEAN = 0
EXIT_OFFENDERS = 1
EXIT_INCOMPLETE = 3

_MAX_STEPS_SHOWN = 10
_SEVERITY_ORDER = ("error", "warning", "info")


@record(frozen=True, slots=True)
class Outcome:
    exit_status: int
    complete: bool
    notes: tuple[Reason, ...]


def decide_outcome(
    counts: Counts,
    findings: Sequence[Finding],
    failures: Sequence[ReadFailure],
    options: ScanOptions,
    config: Mapping[str, object] | None,
    *,
    missing_steps: Sequence[int] = (),
) -> Outcome:
    """Apply the table of docs/verdicts.md.

    Raises `OptionsError` when `fail_on` or `max_unreadable` has no meaning.
    """
    failing = failing_verdicts(options.fail_on)
    tolerated = parse_tolerance(options.max_unreadable)(counts, failures)
    notes: list[Reason] = []
    nothing = not counts.ops and not counts.overflow_records and not counts.empty_overflow_records
    expects = options.expect or (config or {}).get("expects") or "model"
    empty_is_clean = expects == "overflow"
    missing = nothing and not counts.read_failures and not empty_is_clean
    if nothing and not counts.read_failures:
        notes.append(Reason("nothing_expected" if empty_is_clean else "nothing_found"))
    if missing_steps and not nothing and not empty_is_clean:
        # What was dumped of the others is judged; that these are not there is half an answer.
        missing = True
        shown = ", ".join(map(str, missing_steps[:_MAX_STEPS_SHOWN]))
        notes.append(Reason("partial_steps", {"missing": shown, "count": len(missing_steps)}))
    if counts.unchecked:
        notes.append(Reason("unchecked", {"count": counts.unchecked}))
    if counts.read_failures:
        notes.append(Reason("read_failures", {"count": counts.read_failures}))
    if counts.unknown_files:
        notes.append(Reason("unknown_files", {"count": counts.unknown_files}))
    if config and config.get("strict_json") is False:
        notes.append(Reason("config_comments", {"path": str(config.get("path") or "") or None}))
    unread = counts.read_failures + counts.unchecked
    if any(f.verdict in failing and not f.known for f in findings):
        status = EXIT_OFFENDERS
    elif missing or unread > tolerated:
        status = EXIT_INCOMPLETE
    else:
        status = EXIT_CLEAN
    return Outcome(status, not unread and not missing, tuple(notes))


def failing_verdicts(fail_on: str) -> frozenset[Verdict]:
    """The verdicts that `--fail-on` counts as offenders.

    Raises `OptionsError` for a word that is neither a severity, "never" nor a verdict.
    """
    if fail_on == "never":
        return frozenset()
    if fail_on in _SEVERITY_ORDER:
        counted = _SEVERITY_ORDER[: _SEVERITY_ORDER.index(fail_on) + 1]
        return frozenset(v for v in FAIL_ORDER if SEVERITY_OF[v] in counted)
    try:
        position = FAIL_ORDER.index(Verdict(fail_on))
    except ValueError:
        choices = [*_SEVERITY_ORDER, "never", *map(str, FAIL_ORDER)]
        raise OptionsError(f"--fail-on {fail_on}: expected one of {', '.join(choices)}") from None
    return frozenset(FAIL_ORDER[: position + 1])


def parse_tolerance(text: str) -> Callable[[Counts, Sequence[ReadFailure]], float]:
    """Understand `--max-unreadable`: how many unread things are tolerated, given the counts.

    Raises `OptionsError` unless it is a number, a percentage or "all".
    """
    if text == "all":
        return lambda counts, failures: float("inf")
    if re.fullmatch(r"[0-9]{1,18}", text):
        return lambda counts, failures: int(text)
    match = re.fullmatch(r"([0-9]{1,3}(?:\.[0-9]{1,6})?)%", text)
    if match is None or float(match[1]) > 100:
        raise OptionsError(f"--max-unreadable {text}: expected a number, N% or all")
    share = float(match[1]) / 100
    return lambda counts, failures: share * (counts.tensors + len({f.file for f in failures}))
