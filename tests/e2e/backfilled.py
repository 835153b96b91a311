"""A real Prometheus over a past that a test has written: promtool makes blocks of OpenMetrics text."""

import contextlib
import json
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.e2e.processes import Prometheus, fetch, running
from tests.ports import free_port
from tests.waiting import BOUND_SECONDS, until

Value = float | Callable[[float], float | None] | None


def lines(name: str, labels: dict[str, str], times: Iterable[float], value: Value = 1.0) -> str:
    """One series; `value` of a time may be None: no sample."""
    shown = ",".join(f'{key}="{text}"' for key, text in labels.items())
    found = ((at, value(at) if callable(value) else value) for at in times)
    return "".join(f"{name}{{{shown}}} {number} {at:.0f}\n" for at, number in found if number is not None)


def backfill(place: Path, text: str) -> Path:
    """Into the storage path `place`."""
    place.mkdir(parents=True, exist_ok=True)
    file = place / "past.om"
    file.write_text(f"{text}# EOF\n")
    command = ["promtool", "tsdb", "create-blocks-from", "--max-block-duration=18h", "openmetrics", "-q"]
    subprocess.run([*command, str(file), str(place)], check=True, stdout=subprocess.DEVNULL)
    file.unlink()
    shutil.rmtree(place / "wal", ignore_errors=True)
    return place


@contextlib.contextmanager
def serving(
    place: Path, *flags: str, settings: Mapping[str, Any] = {}, seconds: float = BOUND_SECONDS
) -> Iterator[Prometheus]:
    """A Prometheus that scrapes nobody, over a database that is there. `settings`: its configuration."""
    file, port = place / "prometheus.json", free_port()
    file.write_text(json.dumps(settings))
    command = ["prometheus", f"--config.file={file}", f"--storage.tsdb.path={place}", "--log.level=warn"]
    command += [f"--web.listen-address=127.0.0.1:{port}", "--storage.tsdb.retention.time=100y", *flags]
    with running(command, place / "prometheus.log") as process:
        found = Prometheus(process, f"http://127.0.0.1:{port}")
        closed = any(flag.startswith("--web.config.file") for flag in flags)
        until(lambda: _listens(port) if closed else fetch(f"{found.url}/-/ready"), "Prometheus is ready", seconds)
        yield found


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
