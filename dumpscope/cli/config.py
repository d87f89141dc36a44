"""`dumpscope config`: check an acl.json as CANN does, or write one to start from."""

from __future__ import annotations

import shlex

import click

from dumpscope.cli.talking import add_language_option, pick, say

__all__ = ["config"]

_PRESET_NAMES = ("overflow", "model", "single-op", "stats")
"""Written out, so that `--help` loads nothing; a test compares it with `aclconfig.PRESETS`."""


@click.group(epilog="Example: dumpscope config init --preset overflow && dumpscope config check")
def config() -> None:
    """Check or write an acl.json."""


@config.command(
    epilog="Example: dumpscope config check acl.json; exit status 0 CANN accepts it (warnings "
    "included), 1 CANN would refuse it, 2 it cannot be read."
)
@click.argument("file", default="acl.json", type=click.Path())
@add_language_option
def check(file: str, lang: str | None) -> None:
    """Apply CANN's own rules to FILE (default: ./acl.json).

    Every issue is one line: an error is what CANN would refuse.
    """
    from dumpscope.aclconfig import check_config, load_config
    from dumpscope.safetext import make_printable
    from dumpscope.words.acl import render_issue

    issues = check_config(load_config(file))
    errors = sum(issue.severity == "error" for issue in issues)
    for issue in issues:
        click.echo(make_printable(render_issue(issue, pick(lang))))
    key = "config_refused" if errors else "config_accepted"
    click.echo(say(key, lang, path=file, errors=errors, warnings=len(issues) - errors))
    raise click.exceptions.Exit(1 if errors else 0)


@config.command(
    epilog="Example: dumpscope config init --preset model --dump-path /data/dump --output acl.json"
)
@click.option(
    "--preset",
    "name",
    type=click.Choice(_PRESET_NAMES),
    required=True,
    help="overflow: only operators that overflow; model: every operator of a model; "
    "single-op: operators called one by one; stats: statistics instead of values.",
)
@click.option("--dump-path", metavar="FOLDER", help="Where CANN dumps to (default: dump_data).")
@click.option(
    "--output",
    metavar="FILE",
    default="acl.json",
    show_default=True,
    type=click.Path(),
    help="The file to write, - for stdout.",
)
@click.option("--force", is_flag=True, help="Overwrite FILE.")
@add_language_option
def init(name: str, dump_path: str | None, output: str, force: bool, lang: str | None) -> None:
    """Write an acl.json that CANN accepts."""
    from dumpscope.aclconfig import DEFAULT_DUMP_PATH, preset
    from dumpscope.reporters.delivery import STDOUT, open_target

    folder = DEFAULT_DUMP_PATH if dump_path is None else dump_path
    text = preset(name, folder)
    with open_target(output, force=force) as target:
        target.write(text.encode())
    if output == STDOUT:
        return
    command = shlex.join(["dumpscope", "scan", output])
    said = say("config_wrote", lang, err=True, path=output, folder=folder, command=command)
    click.echo(said, err=True)
