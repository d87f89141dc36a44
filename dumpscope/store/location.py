"""Where the store lies when nobody says."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from dumpscope.errors import StoreError
from dumpscope.model import Remark

__all__ = ["STORE_VARIABLE", "default_store_path", "existing_store_path", "is_users_own"]

STORE_VARIABLE = "DUMPSCOPE_STORE"

_FOLDER = ".dumpscope"
_NAME = "scans.db"
_REFUSED = {
    "store_beside_scanned": "the current folder is part of what is scanned",
    "store_beside_readonly": "the current folder cannot be written",
}


def default_store_path(
    scanned_roots: Iterable[str],
    *,
    store: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> tuple[str, Remark | None]:
    """Choose where a scan of `scanned_roots` writes its store.

    `store` (the option) wins over the variable `DUMPSCOPE_STORE`, that over
    `./.dumpscope/scans.db`. Where the current folder cannot be written, or lies in a tree that
    is scanned (which is never written to), it is below the user's state folder instead.

    Returns
    -------
    path, said
        `said` is something for stderr when the place is not the usual one, else `None`.

    Raises
    ------
    StoreError
        The usual place will not do, and the user has no folder for a state.
    """
    environ = os.environ if environ is None else environ
    named = store or environ.get(STORE_VARIABLE)
    if named:
        return named, None
    here = os.path.join(_FOLDER, _NAME)
    cwd = os.path.realpath(os.getcwd())
    reason = _refuse(here, cwd, scanned_roots)
    if reason is None:
        return here, None
    away = _state_store(environ)
    if away is None:
        raise StoreError(
            f"{_REFUSED[reason]}, and this user has no home folder where the result could be kept: "
            "name a file for it (--store FILE)"
        )
    return away, Remark(reason, {"path": away})


def _refuse(here: str, cwd: str, scanned_roots: Iterable[str]) -> str | None:
    """Return the code of why nothing is written into this folder, `None` where it may be."""
    for root in scanned_roots:
        if _contains(os.path.realpath(root), cwd):
            return "store_beside_scanned"
    if not _can_write(_FOLDER if os.path.isdir(_FOLDER) else ".") or (
        os.path.exists(here) and not os.access(here, os.W_OK)
    ):
        return "store_beside_readonly"
    return None


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
    return away if away and not os.path.exists(here) and os.path.exists(away) else here


def is_users_own(path: str, *, environ: Mapping[str, str] | None = None) -> bool:
    """Whether a store was chosen because neither the variable nor this folder names one."""
    environ = os.environ if environ is None else environ
    return not environ.get(STORE_VARIABLE) and path == _state_store(environ)


def _state_store(environ: Mapping[str, str]) -> str | None:
    state = environ.get("XDG_STATE_HOME", "")
    # The XDG specification says that relative paths are to be ignored.
    if not os.path.isabs(state):
        home = environ.get("HOME") or _home_of_user()
        if not os.path.isabs(home):
            return None  # nobody of the system's: containers run as such
        state = os.path.join(home, ".local", "state")
    return os.path.join(state, "dumpscope", _NAME)


def _home_of_user() -> str:
    """Return the home folder that the system knows, "" where it knows none."""
    try:
        import pwd

        return pwd.getpwuid(os.getuid()).pw_dir
    except (ImportError, KeyError):
        return ""


def _contains(folder: str, path: str) -> bool:
    return os.path.isdir(folder) and (path + os.sep).startswith(folder.rstrip(os.sep) + os.sep)


def _can_write(folder: str) -> bool:
    return os.access(folder, os.W_OK | os.X_OK)
