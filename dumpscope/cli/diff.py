"""`dumpscope diff`: what changed from one scan to another."""

from __future__ import annotations

import click

from dumpscope.cli.talking import add_language_option, pick

__all__ = ["diff"]

_TABLE_LIMIT = 20
_JSON_LIMIT = 1000


@click.command(
    epilog="Example: dumpscope diff latest~1 latest; exit status 0 nothing new, 1 new or worse "
    "findings, 2 wrong usage."
)
@click.argument("before", metavar="[SCAN_A]", default="latest~1")
@click.argument("now", metavar="[SCAN_B]", default="latest")
@click.option("--json", "as_json", is_flag=True, help="Print JSON (dumpscope.diff/1).")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    metavar="N",
    help="Rows of each list (table 20, JSON 1000; 0 = all).",
)
@click.option("--store", "store_file", metavar="FILE", help="Where results are kept.")
@add_language_option
def diff(
    before: str,
    now: str,
    as_json: bool,
    limit: int | None,
    store_file: str | None,
    lang: str | None,
) -> None:
    """Compare SCAN_A (before) with SCAN_B (now), without them the two newest scans.

    Each is an id or its beginning, latest, latest~N, a store file (its newest scan), or a scan
    document written with --limit 0. Findings are compared as with a baseline; tensors by the
    headroom to their data type's limit and by their shares of zeros and subnormals.
    """
    from dumpscope.nightly.diffing import compare
    from dumpscope.nightly.sides import open_side
    from dumpscope.reporters.diff_report import dump_diff, print_diff

    shown = (_JSON_LIMIT if as_json else _TABLE_LIMIT) if limit is None else limit
    with open_side(before, store_file) as old, open_side(now, store_file) as new:
        found = compare(old, new, most_drift=shown)
    if as_json:
        click.echo(dump_diff(found, limit=shown, lang=lang or "en"))
    else:
        print_diff(found, limit=shown, lang=pick(lang))
    raise click.exceptions.Exit(found.exit_status)
