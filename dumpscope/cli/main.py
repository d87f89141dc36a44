"""The `dumpscope` program: finds the command, runs it, turns its end into an exit status.

Commands are imported when they are called, so `--version` and `--help` stay as fast as click
itself. Python and click answer 1 to an uncaught exception, to Ctrl-C and to a closed pipe; here 1
means that offenders were found, so none of them may leave this module unchanged.
"""

from __future__ import annotations

import errno
import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module

import click

from dumpscope.cli.interrupts import prepare_interrupts
from dumpscope.cli.streams import forget_stdout, prepare_streams
from dumpscope.errors import DumpscopeError
from dumpscope.safetext import make_printable

__all__ = ["COMMANDS", "EXIT_FAILED", "EXIT_INTERRUPTED", "cli", "run", "run_with"]

EXIT_FAILED = 2
EXIT_INTERRUPTED = 130

OBJECTS_BETWEEN_COLLECTIONS = 50_000

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""What writing to a disk that is full or broken gives."""

_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN})
"""What asking a system for more than it gives gives."""

COMMANDS = {
    "scan": ("dumpscope.cli.scan:scan", "Find the operators that went wrong first."),
    "report": ("dumpscope.cli.report:report", "Write the newest scan as files to send around."),
    "show": ("dumpscope.cli.show:show", "Look at one file, tensor or operator."),
    "export": ("dumpscope.cli.export:export", "Write tensors as npy, npz or csv."),
    "trace": ("dumpscope.cli.trace:trace", "Show the way of a bad value from its origin."),
    "diff": ("dumpscope.cli.diff:diff", "Tell what changed from one scan to another."),
    "trend": ("dumpscope.cli.trend:trend", "Follow tensors over steps or scans."),
    "baseline": ("dumpscope.cli.baseline:baseline", "Keep a file of findings that are known."),
    "config": ("dumpscope.cli.config:config", "Check or write an acl.json."),
    "scans": ("dumpscope.cli.scans:scans", "List and remove the scans of a store."),
    "readers": ("dumpscope.cli.readers:readers", "List the formats that can be read."),
    "checks": ("dumpscope.cli.checks:checks", "List what is checked and the rules for masks."),
}
"""Command -> where it is, and the line that `--help` shows."""


class _LazyGroup(click.Group):
    """A group that imports a command when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command = getattr(import_module(module), name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


def _print_version(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from dumpscope.version import VERSION

        click.echo(f"dumpscope {VERSION}")
        if ctx.params.get("verbose"):
            from dumpscope.cli.surroundings import list_surroundings

            for line in list_surroundings():
                click.echo(line)
        ctx.exit(0)


@click.group(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example: dumpscope scan ./dump_data && dumpscope report --xlsx",
)
@click.option(
    "--verbose",
    is_flag=True,
    is_eager=True,
    help="With --version: what a bug report needs as well.",
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and exit.",
)
def cli(verbose: bool) -> None:
    """Find the operator that went wrong first in Ascend NPU dumps."""


def run_with(arguments: Sequence[str]) -> int:
    """Run the program and return its exit status (docs/commands.md lists them)."""
    try:
        status = cli.main(list(arguments), prog_name="dumpscope", standalone_mode=False)
        sys.stdout.flush()
        return status if isinstance(status, int) else 0
    except click.exceptions.Abort:
        return EXIT_INTERRUPTED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except click.ClickException as error:
        error.show()
        return EXIT_FAILED
    except DumpscopeError as error:
        # Paths, and what SQLite quotes of a damaged store, may hold anything.
        click.echo(f"dumpscope: {make_printable(str(error))}", err=True)
        return EXIT_FAILED
    except SystemExit:
        forget_stdout()  # click's answer to a pipe that closes, with 1
        return EXIT_FAILED
    except OSError as error:
        if error.errno in _FULL:
            forget_stdout()
        reason = _explain(error)
        return _tell_bug() if reason is None else _tell(reason)
    except MemoryError:
        return _tell(
            "there is not enough memory: raise the limit of this process (ulimit -v, the cgroup), "
            "or lower --jobs"
        )
    except Exception:  # noqa: BLE001 - a bug must not end as 1, which says offenders
        return _tell_bug()


def _explain(error: OSError) -> str | None:
    """Say what is wrong with the machine; `None` when it is nothing of the machine's."""
    if error.errno in _FULL:
        return f"the output cannot be written: {error.strerror}: make room, or write somewhere else"
    if error.errno in _EXHAUSTED:
        return (
            f"the system gives no more: {error.strerror}: raise its limits (ulimit -a shows "
            "them), or lower --jobs"
        )
    try:
        os.getcwd()
    except OSError as gone:
        return f"the current folder cannot be used: {gone.strerror}: cd to another one"
    return None


def _tell(sentence: str) -> int:
    click.echo(f"dumpscope: {sentence}", err=True)
    return EXIT_FAILED


def _tell_bug() -> int:
    import traceback

    traceback.print_exc()
    click.echo("dumpscope: this is a bug in dumpscope; please report the lines above", err=True)
    return EXIT_FAILED


def run() -> None:
    """The entry point."""
    # NumPy's BLAS would start a thread for every core, and nothing here multiplies matrices.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Modules and records stay: looking through them for garbage at every 700th object, and once
    # more at the end, would take a quarter of the time of a short run.
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
    prepare_interrupts()
    prepare_streams()
    status = run_with(sys.argv[1:])
    try:
        sys.stdout.flush()
    except OSError:
        forget_stdout()
    gc.freeze()
    sys.exit(status)
