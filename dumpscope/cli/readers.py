"""`dumpscope readers`: which formats can be read, and which plugins are broken."""

from __future__ import annotations

from collections.abc import Iterator

import click

__all__ = ["readers"]


@click.command(epilog="Example: dumpscope readers --verbose")
@click.option(
    "--verbose",
    "-v",
    is_flag=True,
    help="Also which folders belong to a file, all of what is broken, and what computes the "
    "statistics.",
)
def readers(verbose: bool) -> None:
    """List the readers: name, formats, versions, and where each comes from.

    Plugins that cannot be used are listed with the reason.
    """
    from dumpscope.plugins import load_readers
    from dumpscope.safetext import make_printable

    registry = load_readers()
    for plugin in registry.plugins:
        reader = plugin.value
        click.echo(make_printable(f"{plugin.name}: {reader.formats}"))
        click.echo(make_printable(f"    versions: {reader.versions}"))
        click.echo(make_printable(f"    from {plugin.package} {plugin.version} ({plugin.target})"))
        if verbose:
            for name, folder in reader.companions.items():
                click.echo(make_printable(f"    files in {folder} belong to the {name} beside it"))
    for broken in registry.broken:
        click.echo(make_printable(f"{broken.name}: BROKEN: {broken.reason}"))
        click.echo(make_printable(f"    from {broken.package} ({broken.target})"))
        if verbose:
            for line in _explain(broken.error):
                click.echo(make_printable(f"    {line}"))
    if verbose:
        from dumpscope.kernel import describe_kernel

        click.echo(f"C kernel for statistics: {describe_kernel()}")


def _explain(error: BaseException) -> Iterator[str]:
    """Yield the lines of what a plugin raised, its own part of the stack last."""
    import traceback

    if error.__cause__ is None:
        return
    for text in traceback.format_exception(error.__cause__):
        yield from text.rstrip("\n").split("\n")
