"""Options that name a file to write and may stand without it: `--csv`, `--csv=PATH`, `--csv PATH`.

click can do that too (`flag_value`), but not in every version that is installed beside CANN.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import click

__all__ = ["OptionalPathCommand", "check_asked_paths"]


class OptionalPathCommand(click.Command):
    """A command whose file options may stand without a value.

    `defaults` maps each of them ("--csv") to the value that it then has.
    """

    defaults: Mapping[str, str] = MappingProxyType({})

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, _complete_values(args, self.defaults))


def check_asked_paths(asked: Iterable[tuple[str, str | None]]) -> None:
    """Refuse an empty path and two files for one place, before anything is written.

    `asked` are options with their paths, `None` for an option that was not given.
    """
    taken: dict[str, str] = {}
    for option, path in asked:
        if path is None:
            continue
        if not path:
            raise click.UsageError(f"{option}: expected a path, found an empty one")
        place = path if path == "-" else os.path.realpath(path)
        if place in taken:
            where = "stdout" if path == "-" else _shown(path)
            raise click.UsageError(
                f"{taken[place]} and {option} both go to {where}; give one another PATH"
            )
        taken[place] = option


def _complete_values(arguments: Sequence[str], defaults: Mapping[str, str]) -> list[str]:
    """Give an option without a value its default: `--csv --xlsx a` is `--csv=... --xlsx a`."""
    completed: list[str] = []
    for position, argument in enumerate(arguments):
        if argument == "--":
            return [*completed, *arguments[position:]]
        following = arguments[position + 1] if position + 1 < len(arguments) else None
        alone = following is None or (following.startswith("-") and following != "-")
        if argument in defaults and alone:
            completed.append(f"{argument}={defaults[argument]}")
        else:
            completed.append(argument)
    return completed


def _shown(path: str) -> str:
    from dumpscope.safetext import make_printable

    return make_printable(path)
