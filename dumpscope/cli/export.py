"""`dumpscope export`: write tensors as files that numpy or a spreadsheet reads."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import click

from dumpscope.cli.stored import open_scan
from dumpscope.cli.talking import add_language_option, tell
from dumpscope.errors import OptionsError, StoreError

if TYPE_CHECKING:
    from dumpscope.inspecting.exporting import Exporter, FileKind
    from dumpscope.inspecting.exportvalues import ArrayLayout
    from dumpscope.inspecting.targets import Target
    from dumpscope.model import DumpFile, OpRecord
    from dumpscope.readers.protocol import Execution

__all__ = ["export"]

_DEFAULT_FOLDER = "dumpscope-export"
_LEFT_OUT_SHOWN = 20

EXIT_REFUSED = 2
EXIT_INCOMPLETE = 3


@click.command(
    epilog="Example: dumpscope export BatchMatMulV2.attn.24.2.1764417600003145:output.0 --to npy; "
    "exit status 0 all written, 2 wrong usage or refused, 3 some could not be read."
)
@click.argument("targets", metavar="PATH[:output.N]|OPERATOR...", nargs=-1, required=True)
@click.option(
    "--to",
    "kind",
    type=click.Choice(["npy", "npz", "csv"]),
    required=True,
    help="npy, csv: one file per tensor; npz: one per operator.",
)
@click.option(
    "--layout",
    type=click.Choice(["logical", "raw"]),
    default="logical",
    help="raw: blocked layouts as they lie in memory, padding included.",
)
@click.option(
    "--output",
    metavar="DIR",
    default=_DEFAULT_FOLDER,
    show_default=True,
    help="Where to; nothing is written outside of it.",
)
@click.option(
    "--force", is_flag=True, help="Overwrite files that exist; write large tensors as CSV too."
)
@click.option("--reader", metavar="NAME", help="Read every file with this reader.")
@click.option("--scan", "scan_id", metavar="ID", help="Which scan (default: the newest).")
@click.option("--store", "store_file", metavar="FILE", help="Where results are kept.")
@add_language_option
def export(
    targets: tuple[str, ...],
    kind: FileKind,
    layout: ArrayLayout,
    output: str,
    force: bool,
    reader: str | None,
    scan_id: str | None,
    store_file: str | None,
    lang: str | None,
) -> None:
    """Write the tensors of dump files, of all files in a folder, or of an operator.

    The paths that were written are printed, one per line. bfloat16 and 8-bit floats become
    float32; a .json beside such an array names its true type.
    """
    from dumpscope.inspecting.exporting import Exporter
    from dumpscope.inspecting.targets import parse_target
    from dumpscope.plugins import load_readers
    from dumpscope.safetext import make_printable

    parsed = [parse_target(target) for target in targets]
    _check_output(output, [target.path for target in parsed if target.path is not None])
    registry = load_readers()
    if reader is not None:
        registry.named(reader)
    exporter = Exporter(registry, output, kind=kind, layout=layout, force=force, reader=reader)
    for path in _export_all(exporter, parsed, scan_id, store_file, lang):
        click.echo(make_printable(path))
    raise click.exceptions.Exit(_tell_end(exporter, lang))


def _export_all(
    exporter: Exporter,
    targets: Sequence[Target],
    scan_id: str | None,
    store_file: str | None,
    lang: str | None,
) -> Iterator[str]:
    paths = [target.path for target in targets if target.path is not None and target.slot is None]
    if paths:
        yield from _export_paths(exporter, paths)
    for target in targets:
        if target.path is None:
            yield from _export_operator(exporter, target, scan_id, store_file, lang)
        elif target.slot is not None:
            from dumpscope.opendump import find_file

            yield from _export_slot(exporter, find_file(target.path), target)


def _export_paths(exporter: Exporter, paths: Sequence[str]) -> Iterator[str]:
    """Export files and folders, below the output folder as they lie below what they share."""
    from dumpscope.inspecting.exporting import LeftOut
    from dumpscope.model import DumpFile
    from dumpscope.walk import walk

    walker = walk(paths, companions=exporter.registry.companions)
    try:
        for found in walker:
            if isinstance(found, DumpFile):
                yield from exporter.export_file(found)
            else:
                exporter.left_out.append(LeftOut(found.file, "", found.message))
    finally:
        walker.close()


def _export_slot(exporter: Exporter, file: DumpFile, target: Target) -> Iterator[str]:
    before = exporter.written + len(exporter.left_out)
    yield from exporter.export_file(file, slot=target.slot, folder="")
    if exporter.written + len(exporter.left_out) == before:
        assert target.slot is not None
        role, index = target.slot
        raise OptionsError(
            f"{target.path!r} has no {role} {index}; dumpscope show lists what it has"
        )


def _export_operator(
    exporter: Exporter,
    target: Target,
    scan_id: str | None,
    store_file: str | None,
    lang: str | None,
) -> Iterator[str]:
    """Export the best-ranked execution of an operator."""
    from dumpscope.inspecting.targets import find_executions, is_same_execution
    from dumpscope.opendump import find_file, is_dump_file
    from dumpscope.roots import join
    from dumpscope.safetext import make_printable

    def is_one_of(parts: Sequence[OpRecord], execution: Execution) -> bool:
        return any(is_same_execution(execution, part) for part in parts)

    shown = make_printable(target.text)
    try:
        with open_scan(store_file, scan_id, lang) as (store, scan):
            root = scan.root
            path = join(root, target.name)
            if not os.path.isabs(target.name) and is_dump_file(path):
                yield from exporter.export_file(find_file(path), slot=target.slot, folder="")
                return
            best, *others = find_executions(store, scan, target.name)
    except StoreError as error:
        raise OptionsError(
            f"{shown}: there is no such path, and no scan to look for an operator in: {error}"
        ) from error
    if others:
        tell("same_operator", lang, target=target.text, count=len(others) + 1)
    for name in dict.fromkeys(part.file for part in best.parts):
        parts = [part for part in best.parts if part.file == name]
        yield from exporter.export_file(
            find_file(join(root, name)),
            slot=target.slot,
            wanted=partial(is_one_of, parts),
            folder="",
        )


def _check_output(output: str, paths: Sequence[str]) -> None:
    """Refuse an output folder inside of what is read: it would be scanned as a dump."""
    if not output or "\0" in output:
        raise click.UsageError("--output: expected the name of a folder")
    target = os.path.realpath(output)
    if os.path.lexists(output) and not os.path.isdir(output):
        raise click.UsageError(f"--output {output}: is no folder")
    for path in paths:
        real = os.path.realpath(path)
        if os.path.isdir(real) and os.path.join(target, "").startswith(os.path.join(real, "")):
            raise click.UsageError(
                f"--output {output}: lies inside of {path}, where the next scan would read it; "
                "choose a folder elsewhere"
            )


def _tell_end(exporter: Exporter, lang: str | None) -> int:
    """Say what was left out, and return the exit status."""
    from dumpscope.safetext import make_printable

    left_out = exporter.left_out
    for item in left_out[:_LEFT_OUT_SHOWN]:
        what = f" {item.what}" if item.what else ""
        click.echo(make_printable(f"dumpscope: {item.file}{what}: {item.why}"), err=True)
    if len(left_out) > _LEFT_OUT_SHOWN:
        tell("and_more", lang, count=len(left_out) - _LEFT_OUT_SHOWN)
    if exporter.unknown_files:
        tell("passed_over", lang, count=exporter.unknown_files)
    tell("wrote_arrays", lang, count=exporter.written, path=exporter.folder)
    if any(item.refused for item in left_out):
        return EXIT_REFUSED
    return EXIT_INCOMPLETE if left_out or not exporter.written else 0
