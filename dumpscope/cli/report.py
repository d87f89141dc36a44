"""`dumpscope report`: write a stored scan as files.

The options that name a report come from the installed reporters, so that a plugin's report is
asked for as the built-in ones are.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from dumpscope.cli.optional_paths import OptionalPathCommand, check_asked_paths
from dumpscope.cli.rank_options import asked_ranks, make_rank_options
from dumpscope.cli.stored import find_store, remember_options
from dumpscope.cli.talking import pick, tell
from dumpscope.reporters.registry import load_reporters

if TYPE_CHECKING:
    from dumpscope.model import Scan
    from dumpscope.reporters.protocol import Reporter
from dumpscope.reporters.registry import ReporterRegistry

__all__ = ["make_report_command", "report"]

_PREFIX = "report_as_"

_EPILOG = (
    "Example: dumpscope report --xlsx --csv=offenders.csv --json=-; every PATH is optional, "
    "- is stdout. Exit status 0 when everything asked for was written."
)


def make_report_command(registry: ReporterRegistry | None = None) -> click.Command:
    """Build the command with one option per reporter.

    `registry` holds the reporters to offer instead of the installed ones.
    """
    found = load_reporters() if registry is None else registry
    options: list[click.Parameter] = [_report_option(reporter) for reporter in found.reporters]
    options += [
        click.Option(["--scan", "scan_id"], metavar="ID", help="Which scan (default: the newest)."),
        click.Option(["--store", "store_file"], metavar="FILE", help="Where results are kept."),
        click.Option(["--force"], is_flag=True, help="Overwrite files that exist."),
        click.Option(
            ["--limit"],
            type=click.IntRange(min=0),
            metavar="N",
            help="Findings to list (0 = all; without it each kind has its own limit).",
        ),
        click.Option(["--step", "steps"], type=int, multiple=True, help="Only this step."),
        click.Option(["--rank", "ranks"], type=int, multiple=True, help="Only this rank."),
        click.Option(
            ["--op", "op_globs"], metavar="GLOB", multiple=True, help="Only operators named so."
        ),
        click.Option(["--run"], metavar="latest|all|TIME", help="Only this run."),
        *make_rank_options(),
        click.Option(["--lang"], type=click.Choice(["en", "zh"]), help="Language of sentences."),
    ]

    def _run(**values: Any) -> None:
        _report(found, values)

    command = OptionalPathCommand(
        "report",
        callback=_run,
        params=options,
        epilog=_EPILOG,
        help="Write the newest scan as files to send around; without a report option, print it.",
    )
    command.defaults = {r.option: _default_path(r) for r in found.reporters}
    return command


def _default_path(reporter: Reporter) -> str:
    """Where a report goes without a PATH: to a file, unless it is made for the log of a job."""
    return str(getattr(reporter, "default_path", f"dumpscope-report.{reporter.suffix}"))


def _report_option(reporter: Reporter) -> click.Option:
    """Make an option whose value may be left out: `--csv`, `--csv=PATH`, `--csv PATH`."""
    return click.Option(
        [reporter.option, _PREFIX + reporter.name.replace("-", "_")],
        type=str,
        metavar="[PATH]",
        help="Print it, or write PATH."
        if _default_path(reporter) == "-"
        else f"Write {_default_path(reporter)}, or PATH.",
    )


def _report(registry: ReporterRegistry, values: dict[str, Any]) -> None:
    from dumpscope.reporters.delivery import check_target, deliver

    for plugin in registry.broken:
        tell("reporter_broken", values["lang"], name=repr(plugin.name), reason=plugin.reason)
    asked = _asked_reports(registry, values)
    for _, path in asked:
        check_target(path, force=values["force"])
    history = any(getattr(reporter, "shows_history", False) for reporter, _ in asked)
    scan = _load(values, history)
    if not asked:
        _print_table(scan, values)
    for reporter, path in asked:
        deliver(
            reporter,
            scan,
            path,
            limit=values["limit"],
            lang=_language(reporter, values["lang"]),
            force=values["force"],
        )
        if path != "-":
            tell("wrote", values["lang"], path=path)


def _asked_reports(
    registry: ReporterRegistry, values: dict[str, Any]
) -> list[tuple[Reporter, str]]:
    """Return what is to be written, and where.

    Raises `click.UsageError` for an empty path and for two reports to one place.
    """
    paths = [(r, values[_PREFIX + r.name.replace("-", "_")]) for r in registry.reporters]
    check_asked_paths((reporter.option, path) for reporter, path in paths)
    return [(reporter, path) for reporter, path in paths if path is not None]


def _load(values: dict[str, Any], history: bool) -> Scan:
    """Load the scan, with what it was asked for and the filters of this call."""
    from dumpscope.ranks.rankview import refuse_wrong_sizes
    from dumpscope.scanning import load_scan
    from dumpscope.store import Store

    path = find_store(values["store_file"], values["lang"])
    with Store.open(path, create=False, write=False) as store:
        scan_id = store.find_scan(values["scan_id"] or "latest")
        filters: dict[str, Any] = {
            name: values[name] for name in ("steps", "ranks", "op_globs", "run") if values[name]
        }
        layout = asked_ranks(values)
        options = replace(store.scan_info(scan_id).options, **filters, **layout)
        scan = load_scan(store, scan_id, options, history=history)
    if layout:
        refuse_wrong_sizes(scan)
    return remember_options(scan, values["store_file"], values["scan_id"])


def _print_table(scan: Scan, values: dict[str, Any]) -> None:
    from dumpscope.reporters.terminal import print_scan

    print_scan(
        scan,
        limit=values["limit"],
        lang=pick(values["lang"]),
    )


def _language(reporter: Reporter, asked: str | None) -> str:
    """Return the language of a report: the one asked for, else the locale's for people."""
    if not asked and getattr(reporter, "for_machines", False):
        return "en"
    return pick(asked)


report = make_report_command()
