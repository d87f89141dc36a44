"""`dumpscope trend`: tensors from step to step, or from scan to scan."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

import click

from dumpscope.cli.optional_paths import OptionalPathCommand, check_asked_paths
from dumpscope.cli.stored import find_store
from dumpscope.cli.talking import add_language_option, pick, tell

if TYPE_CHECKING:
    from dumpscope.model import OpRecord
    from dumpscope.nightly.trend import TrendSource
    from dumpscope.store import Selection, Store

__all__ = ["trend"]

_TABLE_LIMIT = 20
_JSON_LIMIT = 1000
_CSV_FILE = "dumpscope-trend.csv"


class _TrendCommand(OptionalPathCommand):
    defaults = MappingProxyType({"--csv": _CSV_FILE})


@click.command(
    cls=_TrendCommand,
    epilog="Example: dumpscope trend --last 7 --op '*attn*' --csv; exit status 0, or 2 for wrong "
    "usage.",
)
@click.option("--op", "op_globs", metavar="GLOB", multiple=True, help="Only operators named so.")
@click.option(
    "--last",
    type=click.IntRange(min=1),
    metavar="N",
    help="One point for each of the last N scans, instead of each step of one scan.",
)
@click.option("--scan", "scan_id", metavar="ID", help="Which scan (default: the newest).")
@click.option("--store", "store_file", metavar="FILE", help="Where results are kept.")
@click.option("--step", "steps", type=int, multiple=True, help="Only this step (repeatable).")
@click.option("--rank", "ranks", type=int, multiple=True, help="Only this rank or device.")
@click.option("--inputs", is_flag=True, help="Follow inputs too, not only outputs.")
@click.option("--csv", "csv_path", metavar="[PATH]", help=f"Write {_CSV_FILE}, or PATH.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON (dumpscope.trend/1).")
@click.option("--force", is_flag=True, help="Overwrite the CSV file.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    metavar="N",
    help="Tensors to list (table 20, JSON 1000; 0 = all). CSV has all.",
)
@add_language_option
def trend(
    op_globs: tuple[str, ...],
    last: int | None,
    scan_id: str | None,
    store_file: str | None,
    steps: tuple[int, ...],
    ranks: tuple[int, ...],
    inputs: bool,
    csv_path: str | None,
    as_json: bool,
    force: bool,
    limit: int | None,
    lang: str | None,
) -> None:
    """Follow tensors over the steps of a scan, or over the last N scans of a store.

    Shows the headroom to the data type's limit in bits, NaN, RMS, the L2 norm of gradients (over
    10,000 marked), and the first point at which a tensor left the band of the earlier ones.
    """
    from dumpscope.nightly.trend import trend_series
    from dumpscope.reporters.delivery import check_target, open_target
    from dumpscope.reporters.trend_report import Trend, dump_trend, print_trend, write_trend_csv
    from dumpscope.store import Selection, Store

    check_asked_paths([("--csv", csv_path), ("--json", "-" if as_json else None)])
    if csv_path is not None:
        check_target(csv_path, force=force)
    path = find_store(store_file, lang)
    selection = Selection(steps=steps, ranks=ranks, op_globs=op_globs)
    shown = (_JSON_LIMIT if as_json else _TABLE_LIMIT) if limit is None else limit
    with Store.open(path, create=False, write=False) as store:
        sources = _list_sources(store, scan_id, last, selection)
        find = partial(
            trend_series,
            sources,
            across_scans=last is not None,
            roles=("input", "output") if inputs else ("output",),
        )
        if csv_path is not None:
            with open_target(csv_path, force=force) as target:
                write_trend_csv(find(), target)
            if csv_path == "-":
                return
            tell("wrote", lang, path=csv_path)
        found = Trend(tuple(source.scan_id for source in sources), last is not None)
        found.take(find(), shown)
    if as_json:
        click.echo(dump_trend(found))
    else:
        print_trend(found, lang=pick(lang))


def _list_sources(
    store: Store, scan_id: str | None, last: int | None, selection: Selection
) -> list[TrendSource]:
    """The scans to read, the oldest first."""
    from dumpscope.nightly.sides import find_scan_id
    from dumpscope.nightly.trend import TrendSource

    newest = find_scan_id(store, scan_id or "latest")
    wanted = [newest]
    if last is not None:
        ids = [info.scan_id for info in store.scans()]
        start = ids.index(newest)
        wanted = ids[start : start + last][::-1]

    def read(name: str) -> Iterable[OpRecord]:
        return store.ops(name, selection=selection)

    return [TrendSource(name, partial(read, name), store.totals(name).tensors) for name in wanted]
