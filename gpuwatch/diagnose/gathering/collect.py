"""Collects sections from many threads and from the probe process, as they arrive; late ones are given up.

A wedged driver may block its files and its library for ever, so these are left to a process of its own (`probe`). Jobs
on threads are for sockets and recordings.
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
from gpuwatch.diagnose.gathering.probe import ProbeMessage, ProbeOrder, decode, unread_message
from gpuwatch.model.errors import UsageError

Progress = Callable[[str, int, int], None]
"""Called with a section that arrived, how many have arrived, and how many are wanted."""

END_SECONDS = 0.3
GONE = "the process that reads it ended before it was done"


class SectionResult(NamedTuple):
    """The value of a section, or the reason why it cannot be had; `denied`, `usage`: as in ProbeMessage."""

    section: str
    value: Any = None
    reason: str | None = None
    denied: bool = False
    usage: bool = False

    @classmethod
    def of(cls, message: ProbeMessage) -> "SectionResult":
        """From a message of the probe."""
        value = message.view if message.host is None else getattr(message.host, message.section)
        return cls(message.section, value, message.reason, message.denied, message.usage)


class Collected(NamedTuple):
    """`late`: sections of `unread` that did not arrive in time; `denied`: those that lack a permission."""

    found: dict[str, Any]
    unread: dict[str, str]
    late: frozenset[str]
    denied: frozenset[str]


class Collection:
    """One gathering: `start` and `probe` begin to read, `collect` waits for the results, `end` releases the probe."""

    def __init__(self) -> None:
        self._results: queue.SimpleQueue[SectionResult] = queue.SimpleQueue()
        self._wanted: dict[str, tuple[float, float]] = {}  # section -> when it is given up, seconds allowed
        self._process: subprocess.Popen[bytes] | None = None
        self._listener: threading.Thread | None = None

    def expect(self, section: Section, seconds: float) -> None:
        """Wait for a section, up to `seconds` from now."""
        self._wanted[section] = (time.monotonic() + seconds, seconds)

    def start(self, section: Section, job: Callable[[], Any], seconds: float) -> None:
        """Want a section, and run the job that gets it on a thread."""

        def run() -> None:
            try:
                result = SectionResult(section, job())
            except Exception as error:  # noqa: BLE001 one odd answer must not cost the other sections
                # a machine without Kubernetes is no usage error
                result = SectionResult.of(unread_message(section, error))._replace(usage=False)
            self._results.put(result)

        self.expect(section, seconds)
        threading.Thread(target=run, name=section, daemon=True).start()

    def probe(self, order: ProbeOrder) -> None:
        """Start the process that reads host and driver."""
        command = [sys.executable, "-m", "gpuwatch.diagnose", msgspec.json.encode(order).decode()]
        # in a process group of its own: a terminal's Ctrl-C is for this process, which ends the other one
        self._process = process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0
        )

        def receive() -> None:
            pipe = process.stdout
            assert pipe is not None  # noqa: S101 Popen was asked for a pipe
            with pipe:
                while len(head := pipe.read(LENGTH.size)) == LENGTH.size:
                    self._results.put(SectionResult.of(decode(pipe.read(*LENGTH.unpack(head)))))
            for section in (*HOST_SECTIONS, "earlier", "view"):
                self._results.put(SectionResult(section, reason=GONE))
            process.wait()

        self._listener = threading.Thread(target=receive, name="probe", daemon=True)
        self._listener.start()

    def collect(self, then: Mapping[str, Callable[[Any], None]], progress: Progress) -> Collected:
        """Wait until every wanted section has arrived or is late. `then`: called with a section when it arrives.

        Raises:
            UsageError: the user requested something that does not exist.
        """
        found: dict[str, Any] = {}
        unread: dict[str, str] = {}
        denied: set[str] = set()
        late: set[str] = set()
        while waiting := self._wanted.keys() - found.keys() - unread.keys():
            until = min(self._wanted[section][0] for section in waiting)
            try:
                result = self._results.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                now = time.monotonic()
                over = {section for section in waiting if self._wanted[section][0] <= now}
                late |= over
                unread |= {section: f"not there within {self._wanted[section][1]:.2g} s" for section in over}
                continue
            if result.section not in waiting:
                continue
            if result.usage:
                raise UsageError(result.reason or "")
            if result.reason is None:
                found[result.section] = result.value
                then.get(result.section, lambda value: None)(result.value)
            else:
                unread[result.section] = result.reason
                denied |= {result.section} if result.denied else set()
            progress(result.section, len(found) + len(unread), len(self._wanted))
        return Collected(found, unread, frozenset(late), frozenset(denied))

    def end(self) -> None:
        """Close the probe's stdin. It is not killed, which could wedge a GPU, nor waited for, which could block us."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
        if self._listener is not None and self._listener.is_alive():  # False if Ctrl-C came before its start
            self._listener.join(END_SECONDS)
