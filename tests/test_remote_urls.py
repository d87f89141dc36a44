"""What a URL shows, how URLs lie to each other, and which are refused."""

from __future__ import annotations

import pytest

from dumpscope.errors import OptionsError
from dumpscope.remote.urls import (
    common_url,
    hide_secrets,
    is_url,
    join_url,
    local_path,
    normalize_url,
    relative_url,
    without_password,
)
from dumpscope.roots import absolute, resolve_roots


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("s3://bucket/dump", True), ("memory://", True), ("sftp://u@h:22/x", True),
        ("abfs+https://c/x", True), ("/a/s3://b", False), ("dump", False), ("a:b", False),
        ("file:///dump", False), ("FILE:///dump", False), ("://x", False), ("9p://x", False),
        ("./s3://x", False),
    ],
)  # fmt: skip
def test_what_is_a_url(path: str, expected: bool) -> None:
    assert is_url(path) is expected


def test_file_urls_are_local_paths() -> None:
    assert local_path("file:///data/dump") == "/data/dump"
    assert local_path("file://localhost/data") == "/data"
    assert local_path("FILE:///data/a%20b") == "/data/a%20b"
    assert local_path("s3://bucket") == "s3://bucket"
    assert absolute("file:///data/dump/") == "/data/dump"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sftp://u:pw@host/dump", "sftp://u@host/dump"),
        ("sftp://:pw@host/dump", "sftp://host/dump"),
        ("sftp://u:p@w@host:22/a@b:c", "sftp://u@host:22/a@b:c"),
        ("sftp://u@host/dump", "sftp://u@host/dump"),
        ("s3://bucket/a:b@c", "s3://bucket/a:b@c"),
    ],
)
def test_a_password_goes_and_the_user_stays(url: str, shown: str) -> None:
    assert without_password(url) == shown
    assert absolute(url + "/") == shown


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("no route to ftp://me:hunter2@host:21/x now", "no route to ftp://me:***@host:21/x now"),
        ("GET https://h/x?X-Amz-Signature=abcdef&n=1", "GET https://h/x?X-Amz-Signature=***&n=1"),
        ("X-Amz-Credential=AKIA/2026 and sig=zz", "X-Amz-Credential=*** and sig=***"),
        ("key tops3cret refused", "key *** refused"),
        ("ftp://me:hun/ter2@host/x", "ftp://me:***@host/x"),
        ("cannot reach 'http://127.0.0.1:5000/b'", "cannot reach 'http://127.0.0.1:5000/b'"),
        ("harmless", "harmless"),
    ],
)
def test_sentences_lose_their_secrets(text: str, hidden: str) -> None:
    environ = {"AWS_SECRET_ACCESS_KEY": "tops3cret", "HOME": "harmless", "MY_TOKEN": "no"}
    assert hide_secrets(text, environ) == hidden


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("s3://bucket//dump", "empty parts"),
        ("s3://bucket/../dump", ".. in it"),
        ("s3://bucket/./dump", ". or .."),
        ("zip://x.zip::s3://bucket/a.zip", "chained"),
        ("s3://bucket/a\0b", "is no path"),
        ("https://host/dump?X-Amz-Signature=secret", "web address"),
        ("sftp://u:se/cret@host/x", "percent-encoded"),
    ],
)
def test_urls_that_are_refused(url: str, why: str) -> None:
    with pytest.raises(OptionsError) as caught:
        normalize_url(url)
    assert why in str(caught.value)
    assert "cret" not in str(caught.value)


def test_slashes_at_the_end_go() -> None:
    assert normalize_url("S3://Bucket/Dump//") == "s3://Bucket/Dump"
    assert normalize_url("memory://") == "memory://"


def test_urls_in_each_other() -> None:
    assert join_url("memory://", "a/b") == "memory://a/b"
    assert join_url("s3://b/x", "a") == "s3://b/x/a"
    assert join_url("s3://b/x", "") == "s3://b/x"
    assert relative_url("s3://b/x/a/b", "s3://b/x") == "a/b"
    assert relative_url("s3://b/x", "s3://b/x") == ""
    assert relative_url("s3://b/xy", "s3://b/x") is None
    assert relative_url("memory://a", "memory://") == "a"


def test_the_common_root_of_several() -> None:
    assert common_url(["s3://b/x/r0", "s3://b/x/r1"]) == "s3://b/x"
    assert common_url(["s3://a/x", "s3://b/x"]) == "s3://"
    assert common_url(["s3://b/x"]) == "s3://b/x"
    roots = ["s3://b/x/r1", "s3://b/x/r1/0", "s3://b/x/r0/", "s3://b/x/r1"]
    assert resolve_roots(roots) == ("s3://b/x", ["s3://b/x/r1", "s3://b/x/r0"])
    assert resolve_roots(["s3://b/x/0", "s3://b/x"]) == ("s3://b/x", ["s3://b/x"])


@pytest.mark.parametrize("paths", [["s3://b/x", "memory://x"], ["s3://b/x", "/dump"]])
def test_several_storages_are_scanned_one_by_one(paths: list[str]) -> None:
    with pytest.raises(OptionsError, match="scans import"):
        resolve_roots(paths)
