"""The options that say where each rank of a parallel job stands: `--rank-map`, or its sizes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

__all__ = ["add_rank_options", "asked_ranks", "make_absolute", "make_rank_options"]

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

_NAMES = ("rank_map", "tp", "pp", "dp", "cp", "ep", "order")
_SIZES = (
    ("tp", "tensor"),
    ("pp", "pipeline"),
    ("dp", "data"),
    ("cp", "context"),
    ("ep", "expert"),
)

_REMARKS = {"tp": ", instead of a rank map", "dp": " (default: what the dump's ranks need)"}


def make_absolute(_ctx: click.Context, _option: click.Parameter, path: str | None) -> str | None:
    """Keep a file of options by its whole path: reports of the scan may be asked for elsewhere."""
    return path and os.path.abspath(path)


def make_rank_options() -> list[click.Option]:
    """Make the options, for a command that is put together from parts."""
    return [
        click.Option(
            ["--rank-map"],
            metavar="FILE",
            callback=make_absolute,
            help="JSON or CSV: the tp, pp, dp (cp, ep) of every rank.",
        ),
        *(
            click.Option(
                [f"--{name}"],
                type=click.IntRange(min=1),
                metavar="N",
                help=f"Size of {words} parallelism{_REMARKS.get(name, '')}.",
            )
            for name, words in _SIZES
        ),
        click.Option(
            ["--order"],
            metavar="tp-cp-ep-dp-pp",
            help="How ranks are numbered, fastest first (default: as Megatron does).",
        ),
    ]


def add_rank_options(function: Decorated) -> Decorated:
    """Add the options to a function that becomes a command."""
    function.__click_params__ = [  # type: ignore[attr-defined]
        *getattr(function, "__click_params__", ()),
        *reversed(make_rank_options()),
    ]
    return function


def asked_ranks(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of `ScanOptions` that a call sets: all of them, or none."""
    given = {name: values.get(name) for name in _NAMES}
    return given if any(value is not None for value in given.values()) else {}
