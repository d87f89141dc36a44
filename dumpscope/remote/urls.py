"""URLs as paths: what is one, what it may show, how two of them lie to each other.

A URL is a path with a protocol in front, `s3://bucket/dump`. Nothing in it is decoded: what an
object is called, it is called here. A password in it is for the connection only; what is kept
and shown is the URL without it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from dumpscope.errors import OptionsError
from dumpscope.regexes import regex

__all__ = [
    "common_url",
    "hide_secrets",
    "is_url",
    "join_url",
    "local_path",
    "normalize_url",
    "relative_url",
    "without_password",
]

_PROTOCOL = regex(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_LOCAL = "file://"
_PASSWORD = regex(r"(://[^\s/@:]*):[^\s/]*@")
_ODD_PASSWORD = regex(r"(://[^\s/@:]*):(?![0-9]+(?:[/\s\"')]|$))[^\s@]*@")
_SIGNED = regex(
    r"(?i)\b((?:x-amz-(?:signature|credential|security-token)|signature|sig|token|password|secret)"
    r"=)[^&\s\"']+"
)
_SECRET_VARIABLE = regex(r"SECRET|PASSW|TOKEN|CREDENTIAL|PRIVATE_KEY|ACCESS_KEY|API_KEY")
_SHORTEST_SECRET = 6
_HIDDEN = "***"


def is_url(path: str) -> bool:
    """Say whether a path names something that is not in the local file system."""
    if path.startswith("/"):
        return False
    return _PROTOCOL.match(path) is not None and not path.lower().startswith(_LOCAL)


def local_path(path: str) -> str:
    """Return the local path that a `file://` URL stands for, anything else as it is."""
    if not path.lower().startswith(_LOCAL):
        return path
    rest = path[len(_LOCAL) :]
    return rest.removeprefix("localhost") if rest.startswith("localhost/") else rest


def normalize_url(url: str) -> str:
    """Check a URL that a user named, and take the slashes off its end.

    Raises
    ------
    OptionsError
        It is one of those that are not read. The text shows no password.
    """
    match = _PROTOCOL.match(url)
    assert match is not None
    shown = hide_secrets(url)
    if "\0" in url:
        raise OptionsError(f"{shown!r} is no path")
    if "::" in url:
        raise OptionsError(
            f"{shown!r} cannot be scanned: chained URLs (::) are not read; name the folder itself"
        )
    begin = match.end()
    rest = url[begin:].rstrip("/")
    host = rest.split("/", 1)[0]
    if "@" not in host and ":" in host and "@" in rest and not host.rpartition(":")[2].isdigit():
        raise OptionsError(
            f"{shown!r} cannot be scanned: a password in a URL has to be percent-encoded "
            "(%2F for /, %40 for @)"
        )
    if match[1].lower() in {"http", "https"} and ("?" in rest or "#" in rest):
        raise OptionsError(
            "a web address with ? or # in it cannot be scanned: it names one answer of a server, "
            "no folder; name the storage itself (s3://…)"
        )
    parts = rest.lstrip("/").split("/")
    if rest and any(part in ("", ".", "..") for part in parts):
        raise OptionsError(f"{shown!r} cannot be scanned: it has empty parts, or . or .. in it")
    return match[1].lower() + "://" + rest


def without_password(url: str) -> str:
    """Return a URL as it may be kept and shown: the user stays, the password goes."""
    match = _PROTOCOL.match(url)
    if match is None:
        return url
    host, slash, path = url[match.end() :].partition("/")
    user, at, place = host.rpartition("@")
    name, colon, _ = user.partition(":")
    if at and colon:
        host = f"{name}@{place}" if name else place
    return f"{match[0]}{host}{slash}{path}"


def hide_secrets(text: str, environ: Mapping[str, str] | None = None) -> str:
    """Take out of a sentence what nobody else may read.

    Passwords in URLs, signatures in the queries of web addresses, and the values of environment
    variables whose names say that they are secret.
    """
    text = _PASSWORD.sub(rf"\1:{_HIDDEN}@", text)
    text = _ODD_PASSWORD.sub(rf"\1:{_HIDDEN}@", text)
    text = _SIGNED.sub(rf"\1{_HIDDEN}", text)
    for name, value in (os.environ if environ is None else environ).items():
        if (
            len(value) >= _SHORTEST_SECRET
            and value in text
            and _SECRET_VARIABLE.search(name.upper())
        ):
            text = text.replace(value, _HIDDEN)
    return text


def join_url(folder: str, relative: str) -> str:
    """Put a path behind the URL of a folder."""
    if not relative:
        return folder
    return f"{folder}{relative}" if folder.endswith("/") else f"{folder}/{relative}"


def relative_url(url: str, folder: str) -> str | None:
    """Return the path from a folder to what lies in it, "" for itself, `None` outside of it."""
    if url == folder:
        return ""
    prefix = join_url(folder, "x")[:-1]
    return url[len(prefix) :] if url.startswith(prefix) else None


def common_url(urls: Sequence[str]) -> str:
    """Return the deepest folder that holds all of several URLs, or is the only one.

    Raises
    ------
    OptionsError
        They have nothing in common but perhaps the protocol's name.
    """
    split = [_split(url) for url in urls]
    heads = {head for head, _ in split}
    if len(heads) > 1:
        raise OptionsError(
            f"{', '.join(map(repr, urls))} cannot be scanned together: they are of several "
            "storages; scan each, then put the scans together with `dumpscope scans import`"
        )
    common: list[str] = []
    for column in zip(*(parts for _, parts in split), strict=False):
        if len(set(column)) > 1:
            break
        common.append(column[0])
    return split[0][0] + "/".join(common)


def _split(url: str) -> tuple[str, list[str]]:
    """Take `protocol://` and the parts of the path apart."""
    head, mark, rest = url.partition("://")
    return head + mark, rest.split("/") if rest else []
