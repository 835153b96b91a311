"""A real browser without a window, driven over a pipe by its DevTools protocol; nothing but the standard library."""

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SECONDS = 60.0
"""After which a browser that does not answer is ended, and its pipe with it."""


class Page:
    """One tab. `requests`: the URLs it has asked for; `troubles`: what it says of the page."""

    def __init__(self, read: int, write: int) -> None:
        self._read, self._write = os.fdopen(read, "rb"), os.fdopen(write, "wb")
        self._number = 0
        self._session: dict[str, str] = {}
        self._events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._session = {"sessionId": session}
        for domain in ("Network", "Page", "Log", "Runtime"):
            self.call(f"{domain}.enable")

    @property
    def requests(self) -> list[str]:
        sent = (each["params"] for each in self._events if each["method"] == "Network.requestWillBeSent")
        return [each["request"]["url"] for each in sent]

    @property
    def troubles(self) -> list[str]:
        return [
            json.dumps(each["params"])
            for each in self._events
            if each["method"] in ("Log.entryAdded", "Runtime.exceptionThrown", "Page.javascriptDialogOpening")
        ]

    def open(self, file: Path, width: int = 1200) -> "Page":
        """Load a file; comes back when all of it has been loaded."""
        self._events.clear()
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.call("Page.navigate", url=file.as_uri())
        while not any(each["method"] == "Page.loadEventFired" for each in self._events):
            self._next()
        return self

    def media(self, kind: str = "", **features: str) -> None:
        """`print`, or features such as `prefers_color_scheme`."""
        named = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self.call("Emulation.setEmulatedMedia", media=kind, features=named)

    def value(self, expression: str) -> Any:
        """Of JavaScript in the page, which a content security policy does not forbid to us."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Ask, and wait for the answer."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params} | self._session
        self._write.write(json.dumps(message).encode() + b"\0")
        self._write.flush()
        while (answer := self._next()).get("id") != self._number:
            pass
        assert "error" not in answer, answer
        return answer["result"]

    def close(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._write.close()
        self._read.close()

    def _next(self) -> dict[str, Any]:
        text = bytearray()
        while (byte := self._read.read(1)) != b"\0":
            assert byte, "the browser has ended"
            text += byte
        message = json.loads(text)
        if "method" in message:
            self._events.append(message)
        return message


@contextlib.contextmanager
def browser() -> Iterator[Page]:
    """A browser with an empty profile. A person's machine may lack one; CI may not."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        assert not os.environ.get("CI"), "no chromium; `make test` installs it"
        pytest.skip("no chromium; install it: ./scripts/system-packages chromium")
    (ours, its_end), (its_own, end) = os.pipe(), os.pipe()
    with tempfile.TemporaryDirectory(prefix="gpuwatch-browser-", ignore_cleanup_errors=True) as profile:
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe"]
        command = [program, *options, "--no-first-run", f"--user-data-dir={profile}"]
        process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{its_own} 4>&{its_end}', "-", *command],
            pass_fds=(its_own, its_end),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(its_own)
        os.close(its_end)
        patience = threading.Timer(SECONDS, process.kill)
        patience.start()
        try:
            page = Page(ours, end)
            yield page
            page.close()
        finally:
            patience.cancel()
            process.kill()
            process.wait()
