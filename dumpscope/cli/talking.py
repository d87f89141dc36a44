"""What a command says beside its output: in the language asked for, else in the locale's."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, TextIO, TypeVar

import click

__all__ = ["add_language_option", "pick", "say", "tell"]

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def add_language_option(function: Decorated) -> Decorated:
    """Add `--lang` to a function that becomes a command."""
    return click.option("--lang", type=click.Choice(["en", "zh"]), help="Language of sentences.")(
        function
    )


def pick(lang: str | None) -> str:
    """Return the language asked for, else the locale's."""
    from dumpscope.words import language_of

    return lang or language_of(os.environ)


def say(key: str, lang: str | None, *, err: bool = False, **values: object) -> str:
    """Return a sentence for stdout or stderr; paths and names in it may hold anything."""
    from dumpscope.safetext import make_printable
    from dumpscope.words.talk import talk

    lang = pick(lang)
    if lang == "zh" and not _has_chinese(sys.stderr if err else sys.stdout):
        lang = "en"  # better than a line of escapes
    return make_printable(talk(key, lang, **values))


def tell(key: str, lang: str | None, **values: object) -> None:
    """Say a sentence on stderr."""
    click.echo(f"dumpscope: {say(key, lang, err=True, **values)}", err=True)


def _has_chinese(stream: TextIO) -> bool:
    try:
        "\u4e2d".encode(getattr(stream, "encoding", None) or "ascii")
    except (LookupError, UnicodeEncodeError):
        return False
    return True
