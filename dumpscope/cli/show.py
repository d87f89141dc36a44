"""`dumpscope show`: one file, one tensor of it, or one operator of the last scan."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from dumpscope.cli.stored import open_scan, open_scan_if_any
from dumpscope.cli.talking import add_language_option, pick

if TYPE_CHECKING:
    from dumpscope.inspecting.targets import Target
    from dumpscope.inspecting.views import View

__all__ = ["show"]

_DEFAULT_LIMIT = 10


@click.command(
    epilog="Example: dumpscope show BatchMatMulV2.attn.24.2.1764417600003145:output.0; exit "
    "status 0 shown, 2 no such thing, 3 nothing of it could be read."
)
@click.argument("target", metavar="PATH[:output.N]|OPERATOR")
@click.option("--format", "output", type=click.Choice(["text", "json"]), default="text")
@click.option("--op", "op_globs", metavar="GLOB", multiple=True, help="Only operators named so.")
@click.option("--reader", metavar="NAME", help="Read the file with this reader.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=_DEFAULT_LIMIT,
    metavar="N",
    help="Operators of one file to look at (0 = all).",
)
@click.option("--scan", "scan_id", metavar="ID", help="Which scan (default: the newest).")
@click.option("--store", "store_file", metavar="FILE", help="Where results are kept.")
@add_language_option
def show(
    target: str,
    output: str,
    op_globs: tuple[str, ...],
    reader: str | None,
    limit: int,
    scan_id: str | None,
    store_file: str | None,
    lang: str | None,
) -> None:
    """Look at one dump file, one tensor of it, or an operator of the last scan.

    Shows header and attributes, all statistics of every tensor, where its bad elements are and
    what they hold, and how its exponents are spread over what its data type can hold.
    """
    from dumpscope.inspecting.targets import parse_target

    found = parse_target(target)
    if found.path is None:
        view = _show_named(found, op_globs, reader, limit, scan_id, store_file, lang)
    else:
        view = _show_path(found.path, found, op_globs, reader, limit, scan_id, store_file, lang)
    if output == "json":
        from dumpscope.reporters.closeup_json import dump_view

        click.echo(dump_view(view, lang=lang or "en"))
    else:
        from dumpscope.reporters.closeup_text import print_view

        print_view(view, lang=pick(lang))
    raise click.exceptions.Exit(view.exit_status)


def _show_path(
    path: str,
    target: Target,
    op_globs: tuple[str, ...],
    reader: str | None,
    limit: int,
    scan_id: str | None,
    store_file: str | None,
    lang: str | None,
) -> View:
    from dumpscope.inspecting.showing import show_file

    with open_scan_if_any(store_file, scan_id, lang) as opened:
        return show_file(
            path,
            slot=target.slot,
            op_globs=op_globs,
            reader=reader,
            limit=limit,
            scan=None if opened is None else opened[1],
            asked=target.text,
        )


def _show_named(
    target: Target,
    op_globs: tuple[str, ...],
    reader: str | None,
    limit: int,
    scan_id: str | None,
    store_file: str | None,
    lang: str | None,
) -> View:
    from dumpscope.errors import OptionsError, StoreError
    from dumpscope.inspecting.showing import show_file, show_operator
    from dumpscope.opendump import is_dump_file
    from dumpscope.roots import join
    from dumpscope.safetext import make_printable

    shown = make_printable(target.text)
    try:
        with open_scan(store_file, scan_id, lang) as (store, scan):
            # A file as reports name it: by its path below the scan's root.
            path = join(scan.root, target.name)
            if not os.path.isabs(target.name) and is_dump_file(path):
                return show_file(
                    path,
                    slot=target.slot,
                    op_globs=op_globs,
                    reader=reader,
                    limit=limit,
                    scan=scan,
                    asked=target.text,
                )
            return show_operator(store, scan, target.name, slot=target.slot, asked=target.text)
    except StoreError as error:
        if scan_id or store_file:
            raise
        raise OptionsError(
            f"{shown}: there is no such path, and no scan to look for an operator in: {error}"
        ) from error
