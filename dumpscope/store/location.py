"""Where the store lies when nobody says."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

__all__ = ["STORE_VARIABLE", "default_store_path", "existing_store_path"]

STORE_VARIABLE = "DUMPSCOPE_STORE"

_FOLDER = ".dumpscope"
_NAME = "scans.db"


def default_store_path(
    scanned_roots: Iterable[str],
    *,
    store: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> tuple[str, str | None]:
    """Choose where a scan of `scanned_roots` writes its store.

    `store` (the option) wins over the variable `DUMPSCOPE_STORE`, that over
    `./.dumpscope/scans.db`. Where the current folder cannot be written, or lies in a tree that
    is scanned (which is never written to), it is below the user's state folder instead.

    Returns
    -------
    path, said
        `said` is a sentence for stderr when the place is not the usual one, else `None`.
    """
    environ = os.environ if environ is None else environ
    named = store or environ.get(STORE_VARIABLE)
    if named:
        return named, None
    here = os.path.join(_FOLDER, _NAME)
    cwd = os.path.realpath(os.getcwd())
    away = _state_store(environ)
    for root in scanned_roots:
        if _contains(os.path.realpath(root), cwd):
            return away, (
                f"the current folder is part of what is scanned, so the result goes to {away}; "
                "--store FILE chooses another place"
            )
    if not _can_write(_FOLDER if os.path.isdir(_FOLDER) else ".") or (
        os.path.exists(here) and not os.access(here, os.W_OK)
    ):
        return away, (
            f"the current folder cannot be written, so the result goes to {away}; "
            "--store FILE chooses another place"
        )
    return here, None


def existing_store_path(
    *, store: str | None = None, environ: Mapping[str, str] | None = None
) -> str:
    """Choose which store a command reads that does not scan.

    The option, the variable, `./.dumpscope/scans.db`, the one below the user's state folder: the
    first two where they are given, else the first that exists. When none exists it is the usual
    one, so that its absence can be named.
    """
    environ = os.environ if environ is None else environ
    named = store or environ.get(STORE_VARIABLE)
    if named:
        return named
    here = os.path.join(_FOLDER, _NAME)
    away = _state_store(environ)
    return away if not os.path.exists(here) and os.path.exists(away) else here


def _state_store(environ: Mapping[str, str]) -> str:
    state = environ.get("XDG_STATE_HOME", "")
    # The XDG specification says that relative paths are to be ignored.
    if not os.path.isabs(state):
        state = os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(state, "dumpscope", _NAME)


def _contains(folder: str, path: str) -> bool:
    return os.path.isdir(folder) and (path + os.sep).startswith(folder.rstrip(os.sep) + os.sep)


def _can_write(folder: str) -> bool:
    return os.access(folder, os.W_OK | os.X_OK)
