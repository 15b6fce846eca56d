"""A headless Chromium driven through its DevTools pipe: what a page asks for, says and shows.

Protocol: https://chromedevtools.github.io/devtools-protocol/, JSON messages that end in a NUL byte,
on file descriptors 3 (to the browser) and 4 (from it) with --remote-debugging-pipe.
"""

from __future__ import annotations

import base64
import json
import os
import select
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from servers import require_server

PATIENCE_SECONDS = 60

KEY_CODES = {
    "ArrowLeft": 37,
    "ArrowUp": 38,
    "ArrowRight": 39,
    "ArrowDown": 40,
    "PageUp": 33,
    "PageDown": 34,
    "Home": 36,
    "End": 35,
    "Tab": 9,
    "Enter": 13,
}


class BrowserError(Exception):
    """The browser refused, or the page threw."""


class Browser:
    """One Chromium process; `open` gives pages."""

    def __init__(self, process: subprocess.Popen[bytes], write: int, read: int) -> None:
        self.process = process
        self.write = write
        self.read = read
        self.readable = select.poll()  # select() refuses descriptors above 1,023
        self.readable.register(read, select.POLLIN)
        self.number = 0
        self.pending = b""
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result; events that come before it are kept."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        _write_all(self.write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            answer = self._next(deadline, method)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def _next(self, deadline: float, awaited: str) -> dict[str, Any]:
        while b"\0" not in self.pending:
            left = deadline - time.monotonic()
            if left <= 0 or not self.readable.poll(left * 1000):
                raise BrowserError(f"no answer to {awaited} within {PATIENCE_SECONDS} s")
            received = os.read(self.read, 1 << 20)
            if not received:
                raise BrowserError(f"the browser ended before it answered {awaited}")
            self.pending += received
        message, _, self.pending = self.pending.partition(b"\0")
        return json.loads(message)

    def open(self, path: Path, width: int = 1280, height: int = 900, dark: bool = False) -> Page:
        """Load a file in a new tab and wait until it is loaded."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.call(f"{domain}.enable")
        page.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        page.dark(dark)
        page.call("Page.navigate", url=path.as_uri())
        page.wait_for("Page.loadEventFired")
        return page


class Page:
    """One tab."""

    def __init__(self, browser: Browser, session: str) -> None:
        self.browser = browser
        self.session = session

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command to this tab."""
        return self.browser.call(method, self.session, **parameters)

    def events(self, method: str) -> list[dict[str, Any]]:
        """Return the parameters of the events of one kind so far."""
        return [
            event["params"]
            for event in self.browser.events
            if event.get("method") == method and event.get("sessionId") == self.session
        ]

    def wait_for(self, method: str) -> None:
        """Wait for an event."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self.events(method):
            self.browser.events.append(self.browser._next(deadline, method))

    def run(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        said = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in said:
            raise BrowserError(json.dumps(said["exceptionDetails"])[:2000])
        return said["result"].get("value")

    def press(self, key: str, times: int = 1) -> None:
        """Press a key as a person would."""
        named = key in KEY_CODES
        for _ in range(times):
            for kind in ("keyDown", "keyUp"):
                self.call(
                    "Input.dispatchKeyEvent",
                    type=kind,
                    key=key,
                    **({"windowsVirtualKeyCode": KEY_CODES[key]} if named else {"text": key}),
                )

    def dark(self, dark: bool) -> None:
        """Choose what the system prefers."""
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[feature])

    def requests(self) -> list[str]:
        """Return the addresses that the page asked for, its own file left out."""
        asked = [event["request"]["url"] for event in self.events("Network.requestWillBeSent")]
        return [url for url in asked if not url.startswith(("file:", "data:"))]

    def complaints(self) -> list[str]:
        """Return errors and warnings of the console, and what was thrown."""
        logged = [event["entry"]["text"] for event in self.events("Log.entryAdded")]
        called = [
            str(event["args"])
            for event in self.events("Runtime.consoleAPICalled")
            if event["type"] in {"error", "warning"}
        ]
        thrown = [str(event) for event in self.events("Runtime.exceptionThrown")]
        return [*logged, *called, *thrown]

    def screenshot(self, path: Path, whole: bool = True) -> None:
        """Write a PNG of the page."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        shot = self.call(
            "Page.captureScreenshot",
            **({"clip": clip, "captureBeyondViewport": True} if whole else {}),
        )
        path.write_bytes(base64.b64decode(shot["data"]))


@contextmanager
def chromium(profile: Path) -> Iterator[Browser]:
    """Start Chromium without a window or a network of its own, and end it.

    Args:
        profile: an empty directory.
    """
    program = require_server("chromium")
    to_browser, write = os.pipe()
    read, from_browser = os.pipe()
    arguments = (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--no-first-run",
        "--host-resolver-rules=MAP * ~NOTFOUND",
        f"--user-data-dir={profile}",
        "--remote-debugging-pipe",
    )
    # The browser wants exactly descriptors 3 and 4; a shell puts them there.
    moved = f'exec "$@" 3<&{to_browser} 4>&{from_browser}'
    process = subprocess.Popen(
        ["/bin/bash", "-c", moved, "browser", program, *arguments],
        pass_fds=(to_browser, from_browser),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(to_browser)
    os.close(from_browser)
    browser = Browser(process, write, read)
    try:
        yield browser
        browser.call("Browser.close")
    finally:
        _end(process)
        os.close(write)
        os.close(read)


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _write_all(descriptor: int, message: bytes) -> None:
    while message:
        message = message[os.write(descriptor, message) :]
