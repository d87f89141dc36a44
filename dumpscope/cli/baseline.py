"""`dumpscope baseline`: findings that are known and shall not fail a nightly job again."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

import click

from dumpscope.cli.stored import find_store
from dumpscope.cli.talking import add_language_option, say, tell

if TYPE_CHECKING:
    from dumpscope.model import Scan
    from dumpscope.nightly.baseline import Entry

__all__ = ["baseline"]


@click.group(epilog="Example: dumpscope baseline write known.json --reason 'issue 123'")
def baseline() -> None:
    """Write, update or show a file of known findings (scan --baseline FILE)."""


def _date(_: click.Context, __: click.Parameter, value: str | None) -> date | None:
    if value is None:
        return None
    try:
        return date.fromisoformat(value)
    except ValueError:
        raise click.BadParameter(f"expected a date such as 2026-12-31, found {value!r}") from None


_FILE = click.argument("file", type=click.Path(dir_okay=False))
_SCAN = click.option("--scan", "scan_id", metavar="ID", help="Which scan (default: the newest).")
_STORE = click.option("--store", "store_file", metavar="FILE", help="Where results are kept.")
_REASON = click.option("--reason", default="", help="Why these are known.")
_EXPIRES = click.option(
    "--expires", callback=_date, metavar="DATE", help="After this day they count as new again."
)


@baseline.command(epilog="Example: dumpscope baseline write known.json --expires 2026-12-31")
@_FILE
@_SCAN
@_STORE
@_REASON
@_EXPIRES
@click.option("--force", is_flag=True, help="Overwrite the file.")
@add_language_option
def write(
    file: str,
    scan_id: str | None,
    store_file: str | None,
    reason: str,
    expires: date | None,
    force: bool,
    lang: str | None,
) -> None:
    """Write the findings of a scan as known ones."""
    from dataclasses import replace

    from dumpscope.nightly.baseline import collect_entries

    found = _load(scan_id, store_file, lang).findings
    entries = [replace(e, reason=reason, expires=expires) for e in collect_entries(found)]
    _save(file, entries, force=force)
    tell("baseline_wrote", lang, findings=len(found), path=file, entries=len(entries))


@baseline.command(epilog="Example: dumpscope baseline update known.json --drop-gone")
@_FILE
@_SCAN
@_STORE
@_REASON
@_EXPIRES
@click.option("--drop-gone", is_flag=True, help="Remove entries that no longer occur.")
@add_language_option
def update(
    file: str,
    scan_id: str | None,
    store_file: str | None,
    reason: str,
    expires: date | None,
    drop_gone: bool,
    lang: str | None,
) -> None:
    """Add the new findings of a scan to a file; reasons that are there are kept."""
    from dataclasses import replace

    from dumpscope.nightly.baseline import collect_entries, load_baseline

    found = {
        entry.key: entry for entry in collect_entries(_load(scan_id, store_file, lang).findings)
    }
    old = {entry.key: entry for entry in load_baseline(file).entries}
    kept = {key: e for key, e in old.items() if key in found or not drop_gone}
    for key, entry in found.items():
        if key in kept:
            known = kept[key]
            kept[key] = replace(
                known,
                share=max(known.share, entry.share),
                first=known.first or entry.first,
                expires=expires or known.expires,
            )
        else:
            kept[key] = replace(entry, reason=reason, expires=expires)
    _save(file, [kept[key] for key in sorted(kept)], force=True)
    added, dropped = len(kept.keys() - old.keys()), len(old.keys() - kept.keys())
    tell("baseline_updated", lang, path=file, added=added, dropped=dropped, entries=len(kept))


@baseline.command(epilog="Example: dumpscope baseline show known.json")
@_FILE
@add_language_option
def show(file: str, lang: str | None) -> None:
    """Print the entries of a file, one a line."""
    from dumpscope.nightly.baseline import load_baseline, local_today
    from dumpscope.safetext import make_printable

    today = local_today()
    for entry in load_baseline(file).entries:
        words = [
            entry.op_type or say("baseline_no_name", lang),
            entry.op_name,
            entry.slot,
            f"{entry.kind} {entry.share:.3%}",
        ]
        if entry.first:
            words.append(say("baseline_first", lang))
        if entry.expires is not None:
            key = "baseline_expired_on" if entry.expires < today else "baseline_until"
            words.append(say(key, lang, date=entry.expires.isoformat()))
        if entry.reason:
            words.append(f"- {entry.reason}")
        click.echo(make_printable(" ".join(word for word in words if word)))


def _load(scan_id: str | None, store_file: str | None, lang: str | None) -> Scan:
    from dumpscope.scanning import load_scan
    from dumpscope.store import Store

    path = find_store(store_file, lang)
    with Store.open(path, create=False, write=False) as store:
        return load_scan(store, store.find_scan(scan_id or "latest"), history=False)


def _save(file: str, entries: list[Entry], *, force: bool) -> None:
    from dumpscope.nightly.baseline import dump_baseline
    from dumpscope.reporters.delivery import open_target

    with open_target(file, force=force) as target:
        target.write(dump_baseline(entries).encode())
