"""Pages in a real browser: Chromium without a window, spoken to through its DevTools pipe.

The pipe is two inherited files (3 to it, 4 from it) with one JSON message after the other, each
ended by a null byte: no port, no library. Tests that need it call `open_browser`, which skips
visibly where there is no Chromium.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

__all__ = ["Browser", "Page", "find_browser", "open_browser"]

NO_BROWSER = "no Chromium here (Debian: apt-get install chromium)"
PATIENCE_S = 60.0

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--metrics-recording-only",
    "--mute-audio",
    "--force-color-profile=srgb",
    "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--remote-debugging-pipe",
)
_KEYS = {
    "Enter": (13, "\r"),
    "Tab": (9, ""),
    "Escape": (27, ""),
    " ": (32, " "),
    "ArrowLeft": (37, ""),
    "ArrowUp": (38, ""),
    "ArrowRight": (39, ""),
    "ArrowDown": (40, ""),
    "Home": (36, ""),
    "End": (35, ""),
}


def find_browser() -> str | None:
    """Return the program to start: the one that DUMPSCOPE_BROWSER names, else what is installed."""
    given = os.environ.get("DUMPSCOPE_BROWSER")
    names = (given,) if given else _NAMES
    return next((path for path in map(shutil.which, names) if path), None)


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Start a browser, and end it whatever happens; skips the test where there is none."""
    program = find_browser()
    if program is None:
        pytest.skip(NO_BROWSER)
    profile = tempfile.mkdtemp(prefix="dumpscope-browser-")
    browser = Browser(program, profile)
    try:
        browser.start()
        yield browser
    finally:
        browser.end()
        shutil.rmtree(profile, ignore_errors=True)


class Browser:
    """One running Chromium."""

    def __init__(self, program: str, profile: str) -> None:
        self._program = program
        self._profile = profile
        self._pid = 0
        self._write = self._read = -1
        self._rest = b""
        self._last_id = 0
        self._pages: dict[str, Page] = {}

    def start(self) -> None:
        child_read, self._write = _pipe()
        self._read, child_write = _pipe()
        nothing = os.open(os.devnull, os.O_RDWR)
        home = {"HOME": self._profile, "XDG_CONFIG_HOME": self._profile}
        self._pid = os.posix_spawn(
            self._program,
            [self._program, *_FLAGS, f"--user-data-dir={self._profile}"],
            {**os.environ, **home, "XDG_CACHE_HOME": self._profile},
            file_actions=[
                *((os.POSIX_SPAWN_DUP2, nothing, number) for number in (0, 1, 2)),
                (os.POSIX_SPAWN_DUP2, child_read, 3),
                (os.POSIX_SPAWN_DUP2, child_write, 4),
            ],
            setpgroup=0,
        )
        for end in (nothing, child_read, child_write):
            os.close(end)

    def end(self) -> None:
        """Ask it to close, and stop it where it does not."""
        if not self._pid:
            return
        with suppress(OSError, AssertionError):
            self.call("Browser.close")
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline and not self._is_over():
            time.sleep(0.02)
        with suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(self._pid, 0)
        self._pid = 0
        os.close(self._write)
        os.close(self._read)

    def open(
        self, path: Path, *, width: int = 1400, height: int = 1000, dark: bool = False
    ) -> Page:
        """Open a file of this machine in a tab of its own and wait until it is loaded."""
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        attached = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})
        page = Page(self, attached["sessionId"])
        self._pages[attached["sessionId"]] = page
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.call(f"{domain}.enable")
        page.resize(width, height)
        page.show_as(dark=dark)
        page.requests.clear()
        page.call("Page.navigate", {"url": path.resolve().as_uri()})
        page.wait_for("document.readyState === 'complete' && location.protocol === 'file:'")
        return page

    def call(
        self, method: str, parameters: dict[str, Any] | None = None, session: str | None = None
    ) -> dict[str, Any]:
        """Call a method of the DevTools protocol and return its result."""
        self._last_id += 1
        number = self._last_id
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters or {}}
        if session:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = self._receive(deadline)
            if answer.get("id") == number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result
            page = self._pages.get(answer.get("sessionId", ""))
            if page is not None and "method" in answer:
                page.notice(answer["method"], answer["params"])

    def _receive(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._read], [], [], max(0, deadline - time.monotonic()))
            assert ready, "the browser does not answer"
            got = os.read(self._read, 1 << 20)
            assert got, "the browser has gone"
            self._rest += got
        text, _, self._rest = self._rest.partition(b"\0")
        answer: dict[str, Any] = json.loads(text)
        return answer

    def _is_over(self) -> bool:
        try:
            return os.waitpid(self._pid, os.WNOHANG)[0] != 0
        except ChildProcessError:
            return True


class Page:
    """One tab.

    Attributes
    ----------
    requests
        Addresses that were asked for, the page's own first.
    complaints
        What the console showed as warning or error, uncaught exceptions, refused content.
    """

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session
        self.requests: list[str] = []
        self.complaints: list[str] = []

    def call(self, method: str, parameters: dict[str, Any] | None = None) -> dict[str, Any]:
        return self._browser.call(method, parameters, self._session)

    def notice(self, method: str, parameters: dict[str, Any]) -> None:
        """Remember an event that a test may ask about."""
        if method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            what = details.get("exception", {}).get("description", "")
            self.complaints.append(f"{details['text']} {what}")
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in {"error", "warning"}:
            self.complaints.append(" ".join(str(a.get("value")) for a in parameters["args"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in {"error", "warning"}:
            self.complaints.append(parameters["entry"]["text"])

    def run(self, script: str) -> Any:
        """Return the value of a JavaScript expression; a promise is waited for."""
        answer = self.call(
            "Runtime.evaluate",
            {"expression": script, "returnByValue": True, "awaitPromise": True},
        )
        assert "exceptionDetails" not in answer, f"{script}: {answer['exceptionDetails']}"
        return answer["result"].get("value")

    def wait_for(self, condition: str) -> None:
        """Wait until a JavaScript expression is true."""
        deadline = time.monotonic() + PATIENCE_S
        while not self.run(f"Boolean({condition})"):
            assert time.monotonic() < deadline, f"still not so: {condition}"
            time.sleep(0.02)

    def press(self, key: str, *, shift: bool = False) -> None:
        """Press and release a key, where the focus is."""
        code, text = _KEYS[key]
        event = {
            "key": key,
            "code": "Space" if key == " " else key,
            "windowsVirtualKeyCode": code,
            "modifiers": 8 if shift else 0,
        }
        kind = "keyDown" if text else "rawKeyDown"
        self.call("Input.dispatchKeyEvent", {"type": kind, "text": text, **event})
        self.call("Input.dispatchKeyEvent", {"type": "keyUp", **event})

    def type(self, text: str) -> None:
        """Type a text where the focus is."""
        self.call("Input.insertText", {"text": text})

    def resize(self, width: int, height: int, scale: float = 1.0) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": False},
        )

    def show_as(self, *, dark: bool = False, printed: bool = False) -> None:
        """Let the system ask for dark or light colours, or for the look on paper."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        media = "print" if printed else ""
        self.call("Emulation.setEmulatedMedia", {"media": media, "features": [scheme]})

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """Write what is seen, or the whole page, as PNG."""
        options: dict[str, Any] = {"format": "png", "captureBeyondViewport": whole}
        if whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            options["clip"] = {"x": 0, "y": 0, "scale": 1, **_only(size, "width", "height")}
        image = self.call("Page.captureScreenshot", options)["data"]
        path.write_bytes(base64.b64decode(image))


def _only(values: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: values[key] for key in keys}


def _pipe() -> tuple[int, int]:
    """Make a pipe whose ends have numbers from 10 on, so that none is 3 or 4."""
    ends = os.pipe()
    high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends]
    for end in ends:
        os.close(end)
    return high[0], high[1]
