"""`dumpscope scans`: the scans of a store."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, TypeVar

import click

from dumpscope.cli.rank_options import add_rank_options, asked_ranks
from dumpscope.cli.stored import find_store, options_of
from dumpscope.errors import StoreError

if TYPE_CHECKING:
    from dumpscope.model import Counts, Scan
    from dumpscope.store import ScanInfo, Store

__all__ = ["scans"]

Command = TypeVar("Command", bound=Callable[..., None])


def _store_option(command: Command) -> Command:
    return click.option(
        "--store", "store_file", metavar="FILE", help="The store (default: ./.dumpscope/scans.db)."
    )(command)


def _json_option(command: Command) -> Command:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


@click.group(epilog="Example: dumpscope scans list && dumpscope scans prune --keep 10")
def scans() -> None:
    """List and remove the scans of a store; put those of several nodes together."""


@scans.command("list", epilog="Example: dumpscope scans list --json")
@_store_option
@_json_option
def list_scans(store_file: str | None, as_json: bool) -> None:
    """List the scans of a store, the newest first."""
    with _open_store(store_file, write=False) as store:
        found = store.scans()
    if as_json:
        _print_json([_facts_of(info) for info in found])
        return
    rows = [("SCAN", "BEGUN (UTC)", "STATE", "FILES", "ROOT")]
    rows += [
        (info.scan_id, _time_of(info), info.state, f"{info.files:,}", info.root) for info in found
    ]
    _print_table(rows)


@scans.command("show", epilog="Example: dumpscope scans show latest")
@click.argument("scan_id", metavar="[SCAN]", default="latest")
@_store_option
@_json_option
def show_scan(scan_id: str, store_file: str | None, as_json: bool) -> None:
    """Show what a scan was asked for and what it read.

    SCAN is an id or its beginning; without it the newest one.
    """
    with _open_store(store_file, write=False) as store:
        info = store.scan_info(store.find_scan(scan_id))
        counts = store.totals(info.scan_id)
    if as_json:
        _print_json({**_facts_of(info), "counts": _counts_of(counts)})
        return
    _print_table(
        [
            ("scan", info.scan_id),
            ("begun (UTC)", _time_of(info)),
            ("duration", "unknown" if info.duration_s is None else f"{info.duration_s:,.1f} s"),
            ("state", info.state),
            ("tool version", info.tool_version),
            ("root", info.root),
            *(("path", source) for source in info.sources),
            *((name.replace("_", " "), f"{n:,}") for name, n in _counts_of(counts).items()),
        ]
    )


@scans.command("rm", epilog="Example: dumpscope scans rm 20260109T173000-5c0ffee5")
@click.argument("scan_ids", metavar="SCAN...", nargs=-1, required=True)
@_store_option
def remove_scans(scan_ids: Sequence[str], store_file: str | None) -> None:
    """Remove scans; each SCAN is an id or its beginning."""
    with _open_store(store_file, write=True) as store:
        # All are looked up before the first is removed.
        found = list(dict.fromkeys(store.find_scan(scan_id) for scan_id in scan_ids))
        for scan_id in found:
            store.remove(scan_id)
        _tell_removed(store, found)


@scans.command("prune", epilog="Example: dumpscope scans prune --keep 10")
@click.option(
    "--keep",
    type=click.IntRange(min=0),
    required=True,
    metavar="N",
    help="How many of the newest scans stay.",
)
@_store_option
def prune_scans(keep: int, store_file: str | None) -> None:
    """Remove all scans but the newest N."""
    with _open_store(store_file, write=True) as store:
        _tell_removed(store, store.prune(keep))


@scans.command("import", epilog="Example: dumpscope scans import node0.db node1.db")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path())
@click.option("--store", "store_file", metavar="FILE", help="Where the new scan is kept.")
@click.option(
    "--format",
    "output",
    type=click.Choice(["table", "json"]),
    default="table",
    help="What goes to stdout.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    metavar="N",
    help="Findings to print (table 20, JSON 1000, 0 = all).",
)
@click.option("--lang", type=click.Choice(["en", "zh"]), help="Language of sentences.")
@add_rank_options
def import_scans(
    files: tuple[str, ...],
    store_file: str | None,
    output: str,
    limit: int | None,
    lang: str | None,
    **ranks: object,
) -> None:
    """Put scans that were made on several nodes together as one.

    FILE is a store, of which the newest finished scan counts (FILE:SCAN names another), or a scan
    document written with --limit 0. Verdicts are computed again, over all of them.
    """
    from dumpscope.importable import open_parts
    from dumpscope.importing import import_parts
    from dumpscope.ranks.rankview import refuse_wrong_sizes
    from dumpscope.scanning import load_scan
    from dumpscope.store import Store, default_store_path

    with open_parts(files) as parts:
        path, said = default_store_path([part.root for part in parts], store=store_file)
        with Store.open(path) as store:
            imported = import_parts(store, parts, asked_ranks(ranks))
            result = load_scan(store, imported.scan_id)
    for sentence in (said, *imported.said):
        if sentence:
            click.echo(f"dumpscope: {sentence}", err=True)
    refuse_wrong_sizes(result)
    _print_scan(result, output, limit, lang, options_of(store_file))
    raise click.exceptions.Exit(result.exit_status)


def _print_scan(
    result: Scan, output: str, limit: int | None, lang: str | None, place: Sequence[str]
) -> None:
    if output == "json":
        from dumpscope.reporters.document import DocumentReporter

        # Bytes, because JSON is UTF-8 whatever the terminal's encoding is.
        sys.stdout.flush()
        DocumentReporter().write(result, sys.stdout.buffer, limit=limit, lang=lang or "en")
        sys.stdout.buffer.flush()
    else:
        from dumpscope.reporters.terminal import print_scan
        from dumpscope.words import language_of

        print_scan(result, limit=limit, lang=lang or language_of(os.environ), place=place)


def _open_store(store_file: str | None, *, write: bool) -> Store:
    from dumpscope.store import Store

    return Store.open(find_store(store_file), create=False, write=write)


def _tell_removed(store: Store, scan_ids: Sequence[str]) -> None:
    for scan_id in scan_ids:
        click.echo(f"removed {scan_id}")
    if not scan_ids:
        click.echo("nothing to remove", err=True)
        return
    try:
        store.compact()
    except StoreError as error:
        click.echo(f"dumpscope: the file stays as large as it was: {error}", err=True)


def _time_of(info: ScanInfo) -> str:
    return info.started_at[:19].replace("T", " ")


def _counts_of(counts: Counts) -> dict[str, int]:
    return {
        name: getattr(counts, name)
        for name in (
            "files", "ops", "tensors", "bytes", "unchecked", "read_failures", "overflow_records",
            "empty_overflow_records", "unknown_files",
        )
    }  # fmt: skip


def _facts_of(info: ScanInfo) -> dict[str, object]:
    return {
        "scan_id": info.scan_id,
        "root": info.root,
        "sources": list(info.sources),
        "state": info.state,
        "started_at": info.started_at,
        "duration_s": info.duration_s,
        "tool_version": info.tool_version,
        "files": info.files,
        "options": asdict(info.options),
    }


def _print_json(document: object) -> None:
    # ASCII: names hold what no terminal should see raw.
    click.echo(json.dumps(document, indent=1, allow_nan=False))


def _print_table(rows: Iterable[Sequence[str]]) -> None:
    """Print columns, the last one as long as it is."""
    from dumpscope.safetext import make_printable

    lines = [[make_printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        padded = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        click.echo("  ".join(padded).rstrip())
