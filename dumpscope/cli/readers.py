"""`dumpscope readers`: which formats can be read, and which plugins are broken."""

from __future__ import annotations

import click

__all__ = ["readers"]


@click.command(epilog="Example: dumpscope readers --verbose")
@click.option("--verbose", is_flag=True, help="Say too what computes the statistics.")
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
    for broken in registry.broken:
        click.echo(make_printable(f"{broken.name}: BROKEN: {broken.reason}"))
        click.echo(make_printable(f"    from {broken.package} ({broken.target})"))
    if verbose:
        from dumpscope.kernel import describe_kernel

        click.echo(f"C kernel for statistics: {describe_kernel()}")
