"""An S3 server on loopback: moto's, with a door in front that counts and breaks answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["S3Server", "s3_server"]

App = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
Answer = tuple[int, dict[str, str], bytes]


class S3Server:
    """What a test does with the server.

    Attributes
    ----------
    requests
        `METHOD /path?query` of all requests, in order, with the range that was asked for.
    break_answer
        Called with each request and its answer; returns another answer, or `None`.
    page
        How many keys one page of a listing has at most.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self._lock = threading.Lock()
        self.requests: list[str] = []
        self.break_answer: Callable[[str, Answer], Answer | None] | None = None
        self.page = 1000
        self.url = ""
        self.client: Any = None

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        if "list-type=2" in environ["QUERY_STRING"]:
            environ["QUERY_STRING"] += f"&max-keys={self.page}"
        query, asked = environ["QUERY_STRING"], environ.get("HTTP_RANGE", "")
        request = f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}?{query} {asked}".strip()
        with self._lock:  # moto answers one after the other
            self.requests.append(request)
            told: list[Any] = []
            body = b"".join(self._app(environ, lambda *given: told.extend(given)))
        answer: Answer = (int(told[0].split()[0]), dict(told[1]), body)
        if self.break_answer is not None:
            answer = self.break_answer(request, answer) or answer
        status, headers, body = answer
        start_response(f"{status} x", list(headers.items()))
        return [body]

    def count(self, begin: str) -> int:
        return sum(1 for request in self.requests if request.startswith(begin))

    def put_tree(self, folder: Path, bucket: str, prefix: str) -> None:
        for file in sorted(folder.rglob("*")):
            if file.is_file() and not file.is_symlink():
                name = f"{prefix}/{file.relative_to(folder).as_posix()}"
                self.put(bucket, name, file.read_bytes())
        self.requests.clear()

    def put(self, bucket: str, key: str, content: bytes) -> None:
        self.client.put_object(Bucket=bucket, Key=key, Body=content)

    def empty(self, bucket: str) -> None:
        for found in self.client.list_objects_v2(Bucket=bucket).get("Contents", ()):
            self.client.delete_object(Bucket=bucket, Key=found["Key"])
        self.requests.clear()


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """Serve a bucket called "bucket" on a free port of 127.0.0.1."""
    import boto3
    from moto.moto_server.werkzeug_app import create_backend_app
    from werkzeug.serving import make_server

    door = S3Server(create_backend_app("s3"))
    server = make_server("127.0.0.1", 0, door, threaded=True)
    door.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        door.client = boto3.client("s3", endpoint_url=door.url)
        door.client.create_bucket(Bucket="bucket")
        door.requests.clear()
        yield door
    finally:
        if door.client is not None:
            door.client.close()
        server.shutdown()
        server.server_close()
        thread.join()
