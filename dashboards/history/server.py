"""A Prometheus that serves a folder of blocks, for as long as somebody asks it."""

import contextlib
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

LOOKBACK = 1.5 * STEP
"""Series that end vanish after so many seconds: pages carry no marks of staleness, as scrapes would leave them."""


@contextlib.contextmanager
def prometheus(blocks: Path) -> Iterator[str]:
    """The URL of a Prometheus with these blocks, which it leaves alone; it ends with the block.

    Raises:
        RuntimeError: it does not start; says what it said.
    """
    with tempfile.TemporaryDirectory(dir=blocks.parent, prefix="prometheus-") as work:
        data, log, config = Path(work) / "data", Path(work) / "log", Path(work) / "prometheus.yaml"
        shutil.copytree(blocks, data, copy_function=os.link)
        config.write_text("{}\n")
        port = _free_port()
        command = [
            "prometheus",
            f"--config.file={config}",
            f"--storage.tsdb.path={data}",
            "--storage.tsdb.retention.time=100y",
            f"--query.lookback-delta={LOOKBACK:.0f}s",
            f"--web.listen-address=127.0.0.1:{port}",
            "--log.level=warn",
        ]
        with log.open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            _await(process, f"http://127.0.0.1:{port}/-/ready", log)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait()


def _await(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5):  # noqa: S310  # our own
            return
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"prometheus does not start: {log.read_text()[-2000:]}")
        time.sleep(0.05)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
