"""A real browser without a window, driven by its DevTools protocol."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import httpx
from websockets.sync.client import ClientConnection, connect

PATIENCE_S = 30.0
NAMES = ("chromium", "chromium-browser", "google-chrome")


class Page:
    """One page of the browser."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._numbers = count(1)
        self.errors: list[str] = []
        """What went wrong in the page's scripts, or was refused by its policy."""
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.command(f"{domain}.enable")

    # Any: as the protocol has it
    def command(self, method: str, **params: Any) -> Any:
        """Send a command and return its result."""
        number = next(self._numbers)
        self._connection.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            message = self._receive()
            if message.get("id") == number:
                assert "error" not in message, f"{method}: {message['error']}"
                return message["result"]

    def open(self, url: str) -> None:
        """Go to a page and wait until it is loaded."""
        self.command("Page.navigate", url=url)
        while self._receive().get("method") != "Page.loadEventFired":
            pass

    def value(self, expression: str) -> Any:
        """Return what an expression comes to in the page."""
        result = self.command("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def until(self, expression: str) -> None:
        """Wait until an expression is true in the page."""
        until_s = time.monotonic() + PATIENCE_S
        while not self.value(expression):
            assert time.monotonic() < until_s, f"never: {expression}"
            # a page has no event for "anything may have changed"
            self.command(
                "Runtime.evaluate",
                expression="new Promise(r => requestAnimationFrame(r))",
                awaitPromise=True,
            )

    def resize(self, width: int, height: int = 900, *, dark: bool = False) -> None:
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.command("Emulation.setEmulatedMedia", features=[scheme])

    def screenshot(self, path: Path) -> None:
        data = self.command("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        path.write_bytes(base64.b64decode(data))

    def _receive(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self._connection.recv(timeout=PATIENCE_S))
        match message.get("method"):
            case "Runtime.exceptionThrown":
                self.errors.append(str(message["params"]["exceptionDetails"]))
            case "Log.entryAdded" if message["params"]["entry"]["level"] == "error":
                self.errors.append(message["params"]["entry"]["text"])
        return message


@contextmanager
def a_page(folder: Path) -> Iterator[Page]:
    """Start the machine's Chromium with a profile in a folder, and open a page."""
    program = next((path for name in NAMES if (path := shutil.which(name))), None)
    assert program, "there is no Chromium: apt-get install chromium"
    process = subprocess.Popen(
        [
            program,
            "--headless=new",
            # the tests run as root in containers, where its own sandbox cannot be made
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--remote-debugging-port=0",
            f"--user-data-dir={folder}",
            "about:blank",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        with connect(_address(process), max_size=None) as connection:
            yield Page(connection)
    finally:
        process.kill()
        assert process.stderr is not None
        process.stderr.close()
        process.wait()


def _address(process: subprocess.Popen[str]) -> str:
    """Return where the first page's protocol is, from what the browser says of itself."""
    assert process.stderr is not None
    for line in process.stderr:
        if "DevTools listening on ws://" in line:
            port = line.split("ws://")[1].split("/")[0]
            pages = httpx.get(f"http://{port}/json/list").json()
            address: str = next(each for each in pages if each["type"] == "page")[
                "webSocketDebuggerUrl"
            ]
            return address
    raise AssertionError("the browser ended before it listened")
