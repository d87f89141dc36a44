"""`dumpscope scans`: the scans of a store."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, TypeVar

import click

from dumpscope.cli.rank_options import add_rank_options, asked_ranks
from dumpscope.cli.stored import find_store, remember_options
from dumpscope.cli.talking import add_language_option, pick, say, tell
from dumpscope.errors import StoreError

if TYPE_CHECKING:
    from dumpscope.model import Counts, Scan
    from dumpscope.store import ScanInfo, Store

__all__ = ["scans"]

_COLUMNS = ("scan", "begun", "state", "files", "root")

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
@add_language_option
def list_scans(store_file: str | None, as_json: bool, lang: str | None) -> None:
    """List the scans of a store, the newest first."""
    with _open_store(store_file, lang, write=False) as store:
        found = store.scans()
    if as_json:
        _print_json([_facts_of(info) for info in found])
        return
    rows = [tuple(say(f"head_{name}", lang) for name in _COLUMNS)]
    rows += [
        (info.scan_id, _time_of(info), _state_of(info, lang), f"{info.files:,}", info.root)
        for info in found
    ]
    _print_table(rows)


@scans.command("show", epilog="Example: dumpscope scans show latest")
@click.argument("scan_id", metavar="[SCAN]", default="latest")
@_store_option
@_json_option
@add_language_option
def show_scan(scan_id: str, store_file: str | None, as_json: bool, lang: str | None) -> None:
    """Show what a scan was asked for and what it read.

    SCAN is an id or its beginning; without it the newest one.
    """
    with _open_store(store_file, lang, write=False) as store:
        info = store.scan_info(store.find_scan(scan_id))
        counts = store.totals(info.scan_id)
    if as_json:
        _print_json({**_facts_of(info), "counts": _counts_of(counts)})
        return
    facts = [
        ("scan", info.scan_id),
        ("begun", _time_of(info)),
        ("duration", _duration_of(info, lang)),
        ("state", _state_of(info, lang)),
        ("tool_version", info.tool_version),
        ("root", info.root),
        *(("path", source) for source in info.sources),
        *((name, f"{n:,}") for name, n in _counts_of(counts).items()),
    ]
    _print_table((say(f"fact_{name}", lang), value) for name, value in facts)


@scans.command("rm", epilog="Example: dumpscope scans rm 20260109T173000-5c0ffee5")
@click.argument("scan_ids", metavar="SCAN...", nargs=-1, required=True)
@_store_option
@add_language_option
def remove_scans(scan_ids: Sequence[str], store_file: str | None, lang: str | None) -> None:
    """Remove scans; each SCAN is an id or its beginning."""
    with _open_store(store_file, lang, write=True) as store:
        # All are looked up before the first is removed.
        found = list(dict.fromkeys(store.find_scan(scan_id) for scan_id in scan_ids))
        for scan_id in found:
            store.remove(scan_id)
        _tell_removed(store, found, lang)


@scans.command("prune", epilog="Example: dumpscope scans prune --keep 10")
@click.option(
    "--keep",
    type=click.IntRange(min=0),
    required=True,
    metavar="N",
    help="How many of the newest scans stay.",
)
@_store_option
@add_language_option
def prune_scans(keep: int, store_file: str | None, lang: str | None) -> None:
    """Remove all scans but the newest N."""
    with _open_store(store_file, lang, write=True) as store:
        _tell_removed(store, store.prune(keep), lang)


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
@add_language_option
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
            result = load_scan(store, imported.scan_id, history=False)
    for remark in (said, *imported.said):
        if remark is not None:
            tell(remark.code, lang, **remark.parameters)
    refuse_wrong_sizes(result)
    _print_scan(remember_options(result, store_file), output, limit, lang)
    raise click.exceptions.Exit(result.exit_status)


def _print_scan(result: Scan, output: str, limit: int | None, lang: str | None) -> None:
    if output == "json":
        from dumpscope.reporters.document import DocumentReporter

        # Bytes, because JSON is UTF-8 whatever the terminal's encoding is.
        sys.stdout.flush()
        DocumentReporter().write(result, sys.stdout.buffer, limit=limit, lang=lang or "en")
        sys.stdout.buffer.flush()
    else:
        from dumpscope.reporters.terminal import print_scan

        print_scan(result, limit=limit, lang=pick(lang))


def _open_store(store_file: str | None, lang: str | None, *, write: bool) -> Store:
    from dumpscope.store import Store

    return Store.open(find_store(store_file, lang), create=False, write=write)


def _tell_removed(store: Store, scan_ids: Sequence[str], lang: str | None) -> None:
    for scan_id in scan_ids:
        click.echo(say("removed", lang, scan=scan_id))
    if not scan_ids:
        click.echo(say("nothing_removed", lang, err=True), err=True)
        return
    try:
        store.compact()
    except StoreError as error:
        tell("not_compacted", lang, error=error)


def _time_of(info: ScanInfo) -> str:
    return info.started_at[:19].replace("T", " ")


def _state_of(info: ScanInfo, lang: str | None) -> str:
    return say(f"state_{info.state}", lang)


def _duration_of(info: ScanInfo, lang: str | None) -> str:
    if info.duration_s is None:
        return say("duration_unknown", lang)
    return say("seconds", lang, seconds=f"{info.duration_s:,.1f}")


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
    from dumpscope.safetext import count_cells, make_printable

    lines = [[make_printable(cell) for cell in row] for row in rows]
    widths = [max(map(count_cells, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        padded = [
            cell + " " * (width - count_cells(cell))
            for cell, width in zip(line, widths, strict=True)
        ]
        click.echo("  ".join(padded).rstrip())
