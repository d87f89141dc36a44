"""`dumpscope trace`: the way of a bad value, from the operator where it began."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from dumpscope.cli.optional_paths import OptionalPathCommand, check_asked_paths
from dumpscope.cli.talking import add_language_option, pick, tell

if TYPE_CHECKING:
    from dumpscope.model import Finding, OpRecord
    from dumpscope.store import Store
    from dumpscope.tracing.trace import Trace

__all__ = ["trace"]

_FORMS = ("html", "svg", "dot", "json")
_MOST_NAMED = 5

_EPILOG = (
    "Example: dumpscope trace --html (finding 1, as a page); dumpscope trace network/Mul-op0 "
    "--svg=way.svg. The operator comes before the options whose PATH may be left out. Exit status "
    "0 when everything asked for was written."
)


@click.command(cls=OptionalPathCommand, epilog=_EPILOG)
@click.argument("op_name", required=False)
@click.option("--finding", "number", type=click.IntRange(min=1), metavar="N",
              help="Begin at the finding of this place in the ranking (default: 1).")  # fmt: skip
@click.option("--html", metavar="[PATH]", help="Write dumpscope-trace.html, or PATH: a page.")
@click.option("--svg", metavar="[PATH]", help="Write dumpscope-trace.svg, or PATH: the picture.")
@click.option("--dot", metavar="[PATH]", help="Write dumpscope-trace.dot, or PATH: for Graphviz.")
@click.option("--json", metavar="[PATH]", help="Write dumpscope-trace.json, or PATH.")
@click.option("--scan", "scan_id", metavar="ID", help="Which scan (default: the newest).")
@click.option("--store", "store_file", metavar="FILE", help="Where results are kept.")
@click.option("--step", "steps", type=int, multiple=True, help="Begin at a finding of this step.")
@click.option("--rank", "ranks", type=int, multiple=True, help="Begin at a finding of this rank.")
@click.option("--limit", type=click.IntRange(min=0), metavar="N",
              help="Operators to show by name (0 = all; JSON: nodes, 1000); the others are "
              "counted.")  # fmt: skip
@click.option("--force", is_flag=True, help="Overwrite files that exist.")
@add_language_option
def trace(op_name: str | None, **values: Any) -> None:
    """Show what grew out of a bad value: from finding 1, or from OP_NAME.

    OP_NAME is an operator's name, its type, or a pattern; its best-ranked execution counts.
    Without a file option the way is printed as a tree.
    """
    from dumpscope.reporters.delivery import check_target, open_target

    asked = [(f"--{form}", values[form]) for form in _FORMS]
    check_asked_paths(asked)
    for _, path in asked:
        if path is not None:
            check_target(path, force=values["force"])
    found = _trace(op_name, values)
    if all(path is None for _, path in asked):
        _print_tree(found, values["limit"], values["lang"])
    for form in _FORMS:
        path = values[form]
        if path is None:
            continue
        lang = _language(values["lang"], for_machines=form == "json")
        with open_target(path, force=values["force"]) as target:
            _writer_of(form)(found, target, limit=values["limit"], lang=lang)
        if path != "-":
            tell("wrote", values["lang"], path=path)


assert isinstance(trace, OptionalPathCommand)
trace.defaults = {f"--{form}": f"dumpscope-trace.{form}" for form in _FORMS}


def _trace(op_name: str | None, values: dict[str, Any]) -> Trace:
    """Load the scan and follow what grew out of the finding that was asked for."""
    from dumpscope.causality.edges import connect
    from dumpscope.cli.stored import open_scan
    from dumpscope.tracing.trace import build_trace, find_origins

    with open_scan(values["store_file"], values["scan_id"], values["lang"]) as (store, scan):
        origins = find_origins(
            scan, op_name, number=values["number"], steps=values["steps"], ranks=values["ranks"]
        )
        if op_name is not None and len(origins) > 1:
            _tell_others(origins, values["lang"])
        if not origins:
            return build_trace(scan)
        ops = [finding.op for finding in (*scan.findings, *scan.expected)]
        passing = _passing_ops(store, scan.scan_id, ops)
        flow = connect(store, scan.scan_id, [*ops, *passing])
        return build_trace(scan, origins[0], passing=passing, flow=flow)


def _passing_ops(store: Store, scan_id: str, ops: list[OpRecord]) -> list[OpRecord]:
    """Return what is neither clean nor a finding: a saturation that is only handed on."""
    known = {op_id for op in ops for op_id in (op.op_id, *op.part_ids)}
    return [op for op in store.notable_ops(scan_id) if op.op_id not in known and not op.partial]


def _tell_others(origins: list[Finding], lang: str | None) -> None:
    others = [f"#{f.rank}" if f.rank is not None else f.verdict.value for f in origins[1:]]
    shown = ", ".join(others[:_MOST_NAMED]) + (", …" if len(others) > _MOST_NAMED else "")
    tell("same_name", lang, count=len(origins), others=shown)


def _writer_of(form: str) -> Callable[..., None]:
    """Return the function that writes a form of the trace; only what is needed is imported."""
    if form == "html":
        from dumpscope.reporters.trace_html import write_page

        return write_page
    if form == "svg":
        from dumpscope.reporters.trace_svg import write_svg

        return write_svg
    if form == "dot":
        from dumpscope.reporters.trace_dot import write_dot

        return write_dot
    from dumpscope.reporters.trace_document import write_document

    return write_document


def _print_tree(found: Trace, limit: int | None, lang: str | None) -> None:
    """Print the tree as the terminal behind stdout can show it."""
    from dumpscope.reporters.trace_text import print_trace

    print_trace(found, limit=limit, lang=_language(lang), stream=sys.stdout)


def _language(asked: str | None, *, for_machines: bool = False) -> str:
    return "en" if for_machines and not asked else pick(asked)
