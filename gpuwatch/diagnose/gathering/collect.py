"""Takes sections from many who look at the same time, as they come; who is late is left behind.

What a wedged driver may keep for ever, its files and its library, is left to a process of its own (`probe`). Jobs on
threads are for sockets and recordings.
"""

import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from gpuwatch.collect.reader.messages import LENGTH
from gpuwatch.diagnose.facts import HOST_SECTIONS, Section
from gpuwatch.diagnose.gathering.protocol import Order, Told, decode, unread
from gpuwatch.model.errors import UsageError

Progress = Callable[[str, int, int], None]
"""Called with a section that came, how many have come, and how many are wanted."""

END_SECONDS = 0.3
GONE = "the process that reads it ended before it was done"


class News(NamedTuple):
    """A section is there, or cannot be had; `denied`, `usage`: as in Told."""

    section: str
    value: Any = None
    reason: str | None = None
    denied: bool = False
    usage: bool = False


class Collected(NamedTuple):
    """`late`: sections of `unread` that were not there in time; `denied`: those for which a right is missing."""

    found: dict[str, Any]
    unread: dict[str, str]
    late: frozenset[str]
    denied: frozenset[str]


class Collection:
    """One gathering: `start` and `probe` set everybody off, `collect` waits for what they tell, `end` lets them go."""

    def __init__(self) -> None:
        self._news: queue.SimpleQueue[News] = queue.SimpleQueue()
        self._wanted: dict[str, tuple[float, float]] = {}  # section -> when it is given up, seconds it was given
        self._process: subprocess.Popen[bytes] | None = None
        self._listener: threading.Thread | None = None

    def want(self, section: Section, seconds: float) -> None:
        """Wait for a section for so long from now."""
        self._wanted[section] = (time.monotonic() + seconds, seconds)

    def start(self, section: Section, job: Callable[[], Any], seconds: float) -> None:
        """Want a section, and have a thread get it."""
        self.want(section, seconds)
        threading.Thread(target=self._run, args=(section, job), name=section, daemon=True).start()

    def probe(self, order: Order) -> None:
        """Have a process of its own look at host and driver."""
        command = [sys.executable, "-m", "gpuwatch.diagnose", msgspec.json.encode(order).decode()]
        # in a process group of its own: a terminal's Ctrl-C is for us, who end this process
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0)
        self._listener = threading.Thread(target=self._listen, args=(self._process,), name="probe", daemon=True)
        self._listener.start()

    def collect(self, then: Mapping[str, Callable[[Any], None]], progress: Progress) -> Collected:
        """Until all that is wanted came or is late. `then`: what to do with a section as soon as it is there.

        Raises:
            UsageError: there is nothing of the kind that was asked for.
        """
        found: dict[str, Any] = {}
        unread: dict[str, str] = {}
        denied: set[str] = set()
        late: set[str] = set()
        while waiting := self._wanted.keys() - found.keys() - unread.keys():
            news = self._next(min(self._wanted[section][0] for section in waiting))
            if news is None:
                late |= (over := self._over(waiting)).keys()
                unread |= over
                continue
            if news.section not in waiting:
                continue
            if news.usage:
                raise UsageError(news.reason or "")
            if news.reason is None:
                found[news.section] = news.value
                then.get(news.section, lambda value: None)(news.value)
            else:
                unread[news.section] = news.reason
                denied |= {news.section} if news.denied else set()
            progress(news.section, len(found) + len(unread), len(self._wanted))
        return Collected(found, unread, frozenset(late), frozenset(denied))

    def end(self) -> None:
        """Let the process go, neither killed nor waited for: that could wedge a GPU, and this process with it."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
        if self._listener is not None and self._listener.is_alive():  # not if Ctrl-C came before it was started
            self._listener.join(END_SECONDS)

    def _next(self, until: float) -> News | None:
        try:
            return self._news.get(timeout=max(0.0, until - time.monotonic()))
        except queue.Empty:
            return None

    def _over(self, waiting: set[str]) -> dict[str, str]:
        now = time.monotonic()
        limits = {section: self._wanted[section] for section in waiting}
        return {section: f"not there within {seconds:.2g} s" for section, (at, seconds) in limits.items() if at <= now}

    def _run(self, section: str, job: Callable[[], Any]) -> None:
        try:
            news = News(section, job())
        except Exception as error:  # noqa: BLE001 one odd answer must not cost the other sections
            news = _news(unread(section, error))._replace(usage=False)  # a machine without Kubernetes is no mistake
        self._news.put(news)

    def _listen(self, process: "subprocess.Popen[bytes]") -> None:
        """Hand on what the process tells, until it ends."""
        pipe = process.stdout
        assert pipe is not None  # noqa: S101 Popen was asked for a pipe
        with pipe:
            while len(head := pipe.read(LENGTH.size)) == LENGTH.size:
                self._news.put(_news(decode(pipe.read(*LENGTH.unpack(head)))))
        for section in (*HOST_SECTIONS, "earlier", "view"):
            self._news.put(News(section, reason=GONE))
        process.wait()


def _news(told: Told) -> News:
    value = told.view if told.host is None else getattr(told.host, told.section)
    return News(told.section, value, told.reason, told.denied, told.usage)
