"""What is measured and how: CPU and memory of process trees, latency of scrapes, tables of results."""

import contextlib
import re
import socket
import statistics
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import psutil

# what Prometheus sends
PROMETHEUS = {
    "Accept": "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
    "Accept-Encoding": "gzip",
    "User-Agent": "Prometheus/2.42.0",
}


class Compared(NamedTuple):
    """One line of a comparison; `gain` is what the aim is about: how many times better, or a bound on our figure."""

    what: str
    gpuwatch: float
    peer: float | None
    unit: str
    aim: str = ""
    met: bool | None = None

    @property
    def ratio(self) -> float | None:
        """Peer / gpuwatch."""
        return self.peer / self.gpuwatch if self.peer is not None and self.gpuwatch else None


def faster(what: str, ours: float, peer: float, unit: str, times: float) -> Compared:
    """We should be so many times below the peer."""
    return Compared(what, ours, peer, unit, f"{times:g}x", peer / ours >= times)


def at_most(what: str, ours: float, peer: float | None, unit: str, bound: float) -> Compared:
    """We should not be above a bound."""
    return Compared(what, ours, peer, unit, f"<= {bound:g}", ours <= bound)


def tree(pid: int) -> list[psutil.Process]:
    """A process and all below it."""
    root = psutil.Process(pid)
    return [root, *root.children(recursive=True)]


def cpu_seconds(pid: int) -> float:
    """CPU time of a process tree so far."""
    times = [process.cpu_times() for process in tree(pid)]
    return sum(t.user + t.system for t in times)


def own_memory(pid: int) -> float:
    """MiB of a process, without the files that it maps."""
    found = psutil.Process(pid).memory_info()
    return (found.rss - found.shared) / (1 << 20)


def pss(pid: int) -> list[float]:
    """MiB of each process of a tree; pages shared with others count in proportion."""
    found = []
    for process in tree(pid):
        lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
        found.append(next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024)
    return found


class Scrape(NamedTuple):
    """One answer: seconds from connecting (or asking) to the last byte, bytes of the body on the wire."""

    seconds: float
    size: int


class Scraper:
    """Scrapes one URL with as little of this side's own time in it as can be.

    Like Prometheus it keeps its connection for as long as the server does.
    """

    def __init__(self, url: str, headers: Mapping[str, str] | None = None) -> None:
        parts = urlsplit(url)
        self._address = (parts.hostname or "", parts.port or 80)
        lines = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        self._request = f"GET {target} HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n".encode()
        self._connection: socket.socket | None = None

    def scrape(self) -> Scrape:
        """One scrape."""
        start = time.perf_counter()
        kept = self._connection is not None
        if self._connection is None:
            self._connection = socket.create_connection(self._address, timeout=30)
            self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self._connection.sendall(self._request)
            head, body, ended = self._receive(self._connection)
        except ConnectionError:
            head, body, ended = b"", b"", True
        if kept and not head:  # the server has closed it meanwhile
            self.close()
            return self.scrape()
        seconds = time.perf_counter() - start
        if ended or head.startswith(b"HTTP/1.0") or b"connection: close" in head.lower():
            self.close()
        assert b" 200 " in head.split(b"\r\n")[0], head
        return Scrape(seconds, len(body))

    def close(self) -> None:
        """Give up the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @staticmethod
    def _receive(connection: socket.socket) -> tuple[bytes, bytes, bool]:
        """Head, body, and whether the server hung up."""
        received, length, start = bytearray(), None, 0
        while length is None or len(received) < start + length:
            data = connection.recv(1 << 20)
            if not data:
                break
            received += data
            if not start and (end := received.find(b"\r\n\r\n")) >= 0:
                start = end + 4
                found = re.search(rb"content-length: *(\d+)", received[:start], re.IGNORECASE)
                length = int(found[1]) if found else None
        return bytes(received[:start]), bytes(received[start:]), length is None


def scrape(url: str, headers: Mapping[str, str] | None = None) -> Scrape:
    """One scrape over a connection of its own."""
    scraper = Scraper(url, headers)
    try:
        return scraper.scrape()
    finally:
        scraper.close()


def quantiles(seconds: Sequence[float]) -> tuple[float, float]:
    """p50 and p99 in milliseconds."""
    cuts = statistics.quantiles(seconds, n=100)
    return cuts[49] * 1e3, cuts[98] * 1e3


def latencies(urls: Sequence[str], rounds: int, headers: Mapping[str, str] | None = None) -> list[tuple[float, float]]:
    """(p50, p99) of each URL, asked in turns over kept connections."""
    scrapers = [Scraper(url, headers) for url in urls]
    taken: list[list[float]] = [[] for _ in urls]
    for number in range(rounds + 3):
        for scraper, seconds in zip(scrapers, taken, strict=True):
            found = scraper.scrape().seconds
            if number >= 3:
                seconds.append(found)
    for scraper in scrapers:
        scraper.close()
    return [quantiles(seconds) for seconds in taken]


@contextlib.contextmanager
def scraping(urls: Sequence[str], every: float) -> Iterator[None]:
    """Scrape all URLs now and then, as a Prometheus does."""
    stopping = threading.Event()

    def run() -> None:
        scrapers = [Scraper(url, PROMETHEUS) for url in urls]
        while not stopping.wait(every):
            for scraper in scrapers:
                scraper.scrape()
        for scraper in scrapers:
            scraper.close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


def cpu_per_minute(pids: Sequence[int], seconds: float) -> list[float]:
    """CPU seconds a minute of each process tree, measured side by side."""
    before, start = [cpu_seconds(pid) for pid in pids], time.monotonic()
    time.sleep(seconds)
    passed = time.monotonic() - start
    return [(cpu_seconds(pid) - was) * 60 / passed for pid, was in zip(pids, before, strict=True)]


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print aligned columns: the first one left, the others right."""
    cells = [[_cell(value) for value in row] for row in (head, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    print(f"\n{title}")
    for row in cells:
        first, *others = (
            cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        print("  " + "  ".join((first, *others)).rstrip(), flush=True)


def show(title: str, rows: list[Compared], peer: str) -> list[dict[str, Any]]:
    """Print one comparison."""
    verdict = {True: "met", False: "MISSED", None: ""}
    table(
        title,
        ("", "gpuwatch", peer, "unit", "peer/gpuwatch", "aim", ""),
        [(r.what, r.gpuwatch, r.peer, r.unit, r.ratio, r.aim, verdict[r.met]) for r in rows],
    )
    return [r._asdict() | {"ratio": r.ratio} for r in rows]


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return (
        f"{value:.3g}"
        if isinstance(value, float) and abs(value) < 100
        else f"{value:,.0f}"
        if isinstance(value, float)
        else str(value)
    )
