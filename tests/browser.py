"""A headless Chromium for tests that open a page, driven over a pipe; skips where there is none.

Nothing but the standard library: the browser's own protocol (Chrome DevTools Protocol) on two
inherited pipes (3 to it, 4 from it), one JSON message after another with a null byte behind it.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

__all__ = ["NO_BROWSER", "Browser", "Page", "find_browser", "start_browser"]

NO_BROWSER = "no chromium here (Debian: apt-get install chromium; CI installs it)"
_PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-dev-shm-usage",
    "--force-color-profile=srgb",
    "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--remote-debugging-pipe",
)
_PATIENCE_S = 120.0
"""How long an answer may take on a machine that does much else; only a hang takes longer."""

_KEYS = {
    "Tab": (9, ""),
    "Enter": (13, "\r"),
    "Escape": (27, ""),
    " ": (32, " "),
    "End": (35, ""),
    "Home": (36, ""),
    "ArrowLeft": (37, ""),
    "ArrowUp": (38, ""),
    "ArrowRight": (39, ""),
    "ArrowDown": (40, ""),
}

Json = dict[str, Any]


class Browser:
    """A running Chromium. Pages are opened one after another."""

    def __init__(self, program: str, profile: Path) -> None:
        child_read, self._write = _make_pipe()
        self._read, child_write = _make_pipe()
        nothing = os.open(os.devnull, os.O_RDWR)
        own = {name: str(profile) for name in ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME")}
        self._pid = os.posix_spawn(
            program,
            [program, *_FLAGS, f"--user-data-dir={profile}", "about:blank"],
            {**os.environ, **own},
            file_actions=[
                *((os.POSIX_SPAWN_DUP2, nothing, number) for number in (0, 1, 2)),
                (os.POSIX_SPAWN_DUP2, child_read, 3),
                (os.POSIX_SPAWN_DUP2, child_write, 4),
            ],
            setpgroup=0,
        )
        for end in (nothing, child_read, child_write):
            os.close(end)
        self._buffer = b""
        self._number = 0
        self._events: list[Json] = []

    def open(
        self,
        path: Path,
        *,
        dark: bool = False,
        size: tuple[int, int] = (1400, 900),
        fragment: str = "",
        before: str = "",
        scripts: bool = True,
    ) -> Page:
        """Open a file and wait until it is loaded.

        `dark` is what the page's reader prefers, `size` that of the window in pixels. `fragment`
        is the part of the address from # on. `before` is a script that runs before those of the
        page, which may be switched off (`scripts`).
        """
        self._events.clear()
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        session = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})
        page = Page(self, target, session["sessionId"])
        for domain in ("Runtime", "Log", "Network", "Page"):
            page.call(f"{domain}.enable")
        page.show_as(dark=dark)
        page.resize(*size)
        if before:
            page.call("Page.addScriptToEvaluateOnNewDocument", {"source": before})
        if not scripts:
            page.call("Emulation.setScriptExecutionDisabled", {"value": True})
        page.call("Page.navigate", {"url": path.resolve().as_uri() + fragment})
        page.wait_for("Page.loadEventFired")
        return page

    def close(self) -> None:
        """End the browser, whether it wants or not."""
        with contextlib.suppress(OSError, AssertionError):
            self.call("Browser.close", patience_s=10)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and not self._has_ended():
            time.sleep(0.02)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)
        os.close(self._write)
        os.close(self._read)

    def call(
        self,
        method: str,
        parameters: Json | None = None,
        *,
        session: str | None = None,
        patience_s: float = _PATIENCE_S,
    ) -> Json:
        """Ask the browser for something and return its answer."""
        self._number += 1
        number = self._number
        message: Json = {"id": number, "method": method, "params": parameters or {}}
        if session is not None:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._write, data) :]
        deadline = time.monotonic() + patience_s
        while True:
            answer = self._next_message(deadline)
            if answer.get("id") == number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: Json = answer["result"]
                return result
            self._events.append(answer)

    def events(self, session: str, method: str) -> list[Json]:
        """Return what a page reported so far, the parameters of one kind of event."""
        return [
            event["params"]
            for event in self._events
            if event.get("method") == method and event.get("sessionId") == session
        ]

    def wait_for(self, session: str, method: str) -> None:
        """Wait until a page reported an event of this kind."""
        deadline = time.monotonic() + _PATIENCE_S
        while not self.events(session, method):
            self._events.append(self._next_message(deadline))

    def _next_message(self, deadline: float) -> Json:
        while b"\0" not in self._buffer:
            left = deadline - time.monotonic()
            ready = select.select([self._read], [], [], max(left, 0))[0]
            assert ready, "the browser does not answer"
            chunk = os.read(self._read, 1 << 20)
            assert chunk, "the browser has ended"
            self._buffer += chunk
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: Json = json.loads(text)
        return message

    def _has_ended(self) -> bool:
        try:
            return os.waitpid(self._pid, os.WNOHANG)[0] != 0
        except ChildProcessError:
            return True


class Page:
    """One page in the browser."""

    def __init__(self, browser: Browser, target: str, session: str) -> None:
        self._browser = browser
        self._target = target
        self._session = session

    def call(self, method: str, parameters: Json | None = None) -> Json:
        return self._browser.call(method, parameters, session=self._session)

    def wait_for(self, event: str) -> None:
        """Wait for an event of the protocol."""
        self._browser.wait_for(self._session, event)

    def wait_until(self, condition: str) -> None:
        """Wait until a JavaScript expression is true."""
        deadline = time.monotonic() + _PATIENCE_S
        while not self.evaluate(f"Boolean({condition})"):
            assert time.monotonic() < deadline, f"still not so: {condition}"
            time.sleep(0.02)

    def evaluate(self, expression: str) -> Any:
        """Return what a JavaScript expression gives, as plain data; a promise is waited for."""
        answer = self.call(
            "Runtime.evaluate",
            {"expression": expression, "returnByValue": True, "awaitPromise": True},
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def press(self, key: str, *, shift: bool = False) -> None:
        """Press and release a key, named as in JavaScript ("Tab", "Enter", "ArrowRight")."""
        code, text = _KEYS[key]
        event: Json = {"key": key, "windowsVirtualKeyCode": code, "modifiers": 8 if shift else 0}
        event["code"] = "Space" if key == " " else key
        down = {"type": "keyDown", "text": text} if text else {"type": "rawKeyDown"}
        for kind in (down, {"type": "keyUp"}):
            self.call("Input.dispatchKeyEvent", {**event, **kind})

    def type(self, text: str) -> None:
        """Enter a text where the focus is."""
        self.call("Input.insertText", {"text": text})

    def point_at(self, selector: str) -> None:
        """Move the pointer over the middle of an element."""
        box = self.evaluate(
            f"(() => {{ const box = document.querySelector({json.dumps(selector)})"
            ".getBoundingClientRect();"
            " return [box.x + box.width / 2, box.y + box.height / 2]; })()"
        )
        self.call("Input.dispatchMouseEvent", {"type": "mouseMoved", "x": box[0], "y": box[1]})

    def click(self, selector: str) -> None:
        """Bring an element into view and press the pointer's button over its middle."""
        self.evaluate(
            f"document.querySelector({json.dumps(selector)}).scrollIntoView({{block: 'center'}})"
        )
        box = self.evaluate(
            f"(() => {{ const box = document.querySelector({json.dumps(selector)})"
            ".getBoundingClientRect();"
            " return [box.x + box.width / 2, box.y + box.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call(
                "Input.dispatchMouseEvent",
                {"type": kind, "x": box[0], "y": box[1], "button": "left", "clickCount": 1},
            )

    def text(self, selector: str) -> str:
        """Return the text of the first element that fits."""
        return str(self.evaluate(f"document.querySelector({json.dumps(selector)}).textContent"))

    def texts(self, selector: str) -> list[str]:
        """Return the texts of all elements that fit."""
        found: list[str] = self.evaluate(
            f"[...document.querySelectorAll({json.dumps(selector)})].map((e) => e.textContent)"
        )
        return found

    def count(self, selector: str) -> int:
        """Count the elements that fit."""
        return int(self.evaluate(f"document.querySelectorAll({json.dumps(selector)}).length"))

    def errors(self) -> list[str]:
        """Return all complaints: uncaught errors, console errors, violated policies."""
        found = [
            str(event["exceptionDetails"]) for event in self._events("Runtime.exceptionThrown")
        ]
        found += [str(event["args"]) for event in self._events("Runtime.consoleAPICalled")]
        found += [
            str(event["entry"])
            for event in self._events("Log.entryAdded")
            if event["entry"]["level"] in ("error", "warning")
        ]
        return found

    def requests(self) -> list[str]:
        """Return the addresses of everything that the page asked for, itself first."""
        return [event["request"]["url"] for event in self._events("Network.requestWillBeSent")]

    def resize(self, width: int, height: int) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )

    def show_as(self, *, dark: bool = False, printed: bool = False) -> None:
        """Let the reader prefer dark or light colours, or look at it on paper."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        media = "print" if printed else ""
        self.call("Emulation.setEmulatedMedia", {"media": media, "features": [scheme]})

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """Write what is visible, or the whole page, as a PNG."""
        options: Json = {"format": "png", "captureBeyondViewport": whole}
        if whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            extent = {"width": size["width"], "height": size["height"]}
            options["clip"] = {"x": 0, "y": 0, "scale": 1, **extent}
        data = self.call("Page.captureScreenshot", options)["data"]
        path.write_bytes(base64.b64decode(data))

    def close(self) -> None:
        self._browser.call("Target.closeTarget", {"targetId": self._target})

    def _events(self, method: str) -> list[Json]:
        # An answer comes behind all events that went before it.
        self.call("Runtime.evaluate", {"expression": "0"})
        return self._browser.events(self._session, method)


def find_browser() -> str | None:
    """Return the program to start: what DUMPSCOPE_BROWSER names, else what is installed."""
    given = os.environ.get("DUMPSCOPE_BROWSER")
    names = (given,) if given else _PROGRAMS
    return next((found for name in names if (found := shutil.which(name))), None)


@pytest.fixture(name="browser", scope="session")
def start_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A headless Chromium; skips where there is none."""
    program = find_browser()
    if program is None or not sys.platform.startswith("linux"):
        pytest.skip(NO_BROWSER)
    browser = Browser(program, tmp_path_factory.mktemp("browser"))
    try:
        yield browser
    finally:
        browser.close()


def _make_pipe() -> tuple[int, int]:
    """Make a pipe whose ends have numbers from 10 on, so that none is 3 or 4."""
    ends = os.pipe()
    high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends]
    for end in ends:
        os.close(end)
    return high[0], high[1]
