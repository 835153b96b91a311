"""A Prometheus that serves a folder of blocks, for as long as it is queried."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from dashboards.history.fleet import STEP

START_SECONDS = 60.0
ATTEMPTS = 3
"""How often a port is chosen: another program may take it before Prometheus does."""

LOOKBACK = 1.5 * STEP
"""Series that end vanish after so many seconds: pages carry no marks of staleness, as scrapes would leave them."""


@contextlib.contextmanager
def prometheus(blocks: Path) -> Iterator[str]:
    """The URL of a Prometheus with these blocks, which it leaves alone; it ends with the block.

    Raises:
        RuntimeError: it does not start; says what it said.
    """
    with (
        tempfile.TemporaryDirectory(dir=blocks.parent, prefix="prometheus-") as work,
        contextlib.ExitStack() as running,
    ):
        shutil.copytree(blocks, Path(work) / "data", copy_function=os.link)
        for attempt in range(ATTEMPTS):
            try:
                url = running.enter_context(_serving(Path(work)))
                break
            except _PortTaken:
                if attempt == ATTEMPTS - 1:
                    raise
        yield url


class _PortTaken(RuntimeError):
    """Another program has the port by now."""


@contextlib.contextmanager
def _serving(work: Path) -> Iterator[str]:
    data, log, config = work / "data", work / "log", work / "prometheus.yaml"
    config.write_text("{}\n")
    url = f"http://127.0.0.1:{_free_port()}"
    command = [
        "prometheus",
        f"--config.file={config}",
        f"--storage.tsdb.path={data}",
        "--storage.tsdb.retention.time=100y",
        f"--query.lookback-delta={LOOKBACK:.0f}s",
        f"--web.listen-address={url.removeprefix('http://')}",
        "--log.level=warn",
    ]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        _await(process, url, data, log)
        yield url
    finally:
        process.terminate()
        process.wait()


def _await(process: subprocess.Popen[bytes], url: str, data: Path, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not _serves(url, data):
        if process.poll() is not None or time.monotonic() > deadline:
            said = log.read_text()[-2000:]
            kind = _PortTaken if "address already in use" in said else RuntimeError
            raise kind(f"prometheus does not start: {said}")
        time.sleep(0.05)


def _serves(url: str, data: Path) -> bool:
    """Whether a Prometheus is ready there, and is the one with this data: the port may be another's by now."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        with urllib.request.urlopen(f"{url}/-/ready", timeout=5):  # noqa: S310  # our own
            pass
        with urllib.request.urlopen(f"{url}/api/v1/status/flags", timeout=5) as flags:  # noqa: S310
            return bool(json.load(flags)["data"]["storage.tsdb.path"] == str(data))
    return False


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
