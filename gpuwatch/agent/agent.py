"""The agent: reader, kernel log, kubelet and /proc in; one View per round out, served over HTTP.

Threads: the publisher; the supervisor, which reads the pipe; one follows the kernel log; two read the kubelet and the
bus at intervals; one keeps support cases; one serves HTTP; one learns the usage of each workload from the Views. Only
the publisher joins their results, so no slow source delays another.
"""

import gc
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path

from msgspec import structs

from gpuwatch import __version__
from gpuwatch.agent.event_recorder import EventLogger, EventRecorder
from gpuwatch.agent.kernel_log_thread import KernelLogThread
from gpuwatch.agent.node_state import SETTLE_SECONDS, NodeState
from gpuwatch.agent.pages import API_REFUSALS, ViewSignal, routes
from gpuwatch.agent.repairs import closed_gpu, repaired_at, repairer_status, validations
from gpuwatch.agent.roles import role_reports
from gpuwatch.agent.support_cases import SupportCases
from gpuwatch.agent.view_builder import ViewBuilder, ViewInputs, capture_status, reader_settings
from gpuwatch.collect.reader.messages import USAGE, AnyMessage, DriverEventMessage, DriverOpened, GpuFound, ReaderFailed
from gpuwatch.collect.reader.supervisor import Supervisor
from gpuwatch.config import Backend, Config, runtime_dir
from gpuwatch.health.xid.ledger import Event, XidLedger
from gpuwatch.host.machine import boot_id_file, first_line
from gpuwatch.http.server import HttpServer, ServerLimits
from gpuwatch.metrics.metric import Family
from gpuwatch.metrics.page_cache import MIN_STALE_SECONDS, PageCache
from gpuwatch.model.clock import Clock, SystemClock
from gpuwatch.model.errors import GpuwatchError, UsageError
from gpuwatch.model.event import EVERYTHING, EventQuery
from gpuwatch.model.pci import pci_key
from gpuwatch.model.recent import Recent, RecentSamples
from gpuwatch.model.view import STALE_INTERVALS, AgentStatus, Events, View
from gpuwatch.model.xid import DriverEvent, KernelEvent, XidEvent
from gpuwatch.process.log_queue import queued_stderr
from gpuwatch.process.signals import ENDS, WATCH_SECONDS, ConfigWatch, Signals, keep_watchdog_quiet
from gpuwatch.rightsizing.model.recommendation import Recommendations
from gpuwatch.rightsizing.service.cpu_throttling import CpuThrottling
from gpuwatch.rightsizing.service.metrics import rightsizing_families
from gpuwatch.rightsizing.service.thread import Rightsizer
from gpuwatch.storage.private_folder import make_named, make_private
from gpuwatch.storage.store import Store

log = logging.getLogger(__name__)

MIN_PUBLISH_GAP = 0.02
"""Seconds: a storm of XIDs must not become a storm of snapshots."""

LAST_VIEW_SECONDS = 0.2
"""Seconds that the agent waits at its end for a View that is being made."""

LAST_CHECKPOINT_SECONDS = 1.2
"""Seconds after which `stop` no longer waits for right-sizing's checkpoint; the one before is an hour old at most."""

BUS_SECONDS = 10.0
CASES_SECONDS = 10.0

MIN_GAP_SECONDS = 1.0
"""A `Periodic` rests at least this long between two turns, however often it is woken."""

WEDGED_INTERVALS, MIN_WEDGED_SECONDS = 10, 10.0
"""A publisher that has stood still for so many intervals, and at least these seconds, does not recover: a lock is not
released, or a View can never be made. The process must then be restarted.
"""

GC_THRESHOLDS = (10_000, 5, 5)
"""New objects between two searches for garbage in cycles. A View has none and is freed at once; Python's 700 would make
the search a fifth of the agent's work. Exceptions and connections have some, hence the two fives.
"""


class Agent:
    """One node's agent. `start` binds and returns; `run` also waits for SIGTERM or SIGINT.

    State that threads share, and its writers:
    - `_state`, `_ledger`, `_published`: guarded by `_lock`. While it is held nothing is logged, no file is read and
      nothing is waited for, because the publisher needs it for each View.
    - `board`, `profiles`, `_view`, `_recent`, `_config`: written by the publisher, replaced as a whole; others only
      read them.
    - `_wanted_config`: written by the main thread; the publisher makes it `_config` before the next View.
    - `_fatal`: written by the supervisor's thread before it sets `_stopping`, read by the main thread after that.
    - `_turned`: when the publisher last ended a turn; written by it, read by HTTP.
    - `_due`, `_stopping`, `published`: safe for many threads. The other parts have locks or threads of their own.
    """

    def __init__(
        self, config: Config, backend: Backend, *, clock: Clock | None = None, watch: ConfigWatch | None = None
    ) -> None:
        self._config, self._clock, self._watch = config, clock or SystemClock(), watch
        self._signals = Signals()
        self.profiles: tuple[str, ...] = config.metrics.profiles
        self.socket_path = Path(config.agent.socket) if config.agent.socket else runtime_dir() / "agent.sock"
        self._lock = threading.Lock()
        self._due = threading.Event()
        self._stopping = threading.Event()
        interval = config.agent.interval
        self._state = NodeState(interval, self._clock.monotonic(), min(1.5 * interval, SETTLE_SECONDS))
        self._ledger = XidLedger()
        self._event_logger = EventLogger()
        self._store = Store.open(config.state_dir, self._clock)
        self._recorder = EventRecorder(self._store, self._clock)
        self._boot_id = first_line(boot_id_file(Path(config.sources.proc)))
        for event in self._recorder.without_line:
            if event.boot_id == self._boot_id:
                self._ledger.expect(event)
        self.published = ViewSignal()
        self._recent = RecentSamples()
        self._fatal: ReaderFailed | None = None
        self._published = self._turned = self._clock.monotonic()
        self._view: View | None = None
        self._wanted_config = config
        self._started = self._clock.time()
        node = os.environ.get("NODE_NAME") or socket.gethostname()
        failures = self._recorder.failures(config.checks.repeat_window)
        self._builder = ViewBuilder(config, self._clock, node, self._store.open_findings(), failures=failures)
        self._supervisor = Supervisor(reader_settings(config, backend, interval), self._on_message)
        self._capture = capture_status(backend)
        reported = self._store.cursor(self._boot_id)
        self._kernel = KernelLogThread(config.sources, self._clock, self._on_kernel, reported)
        self._pods = Periodic(
            "pods", paced(config.sources.pod_resources_interval, interval), self._builder.refresh_allocations
        )
        self._bus = Periodic("bus", BUS_SECONDS, self._read_bus)
        self._support_cases = SupportCases(self._store, self._clock, self.socket_path)
        self._cases = Periodic("cases", CASES_SECONDS, lambda: self._support_cases.step(self._config, self._view))
        self._rightsizer = Rightsizer(
            config.rightsizing,
            Path(config.state_dir) if config.state_dir else None,
            CpuThrottling(Path(config.sources.proc), Path(config.sources.sys)).shares,
        )
        self._publisher = threading.Thread(target=self._publish_for_ever, name="publisher", daemon=True)
        self._http = HttpServer(
            routes(self),
            listen=config.agent.listen or None,
            socket_path=self.socket_path,
            without_users={} if config.agent.api == "open" else API_REFUSALS,
            hosts=config.agent.hosts,
            web_config=Path(config.agent.web_config) if config.agent.web_config else None,
            limits=ServerLimits(connections=config.agent.max_connections, scrapes=config.agent.max_scrapes),
        )
        self._node = node
        self.board = self._new_board(None)

    @property
    def port(self) -> int | None:
        """TCP port in use once started."""
        return self._http.port

    def _new_board(self, view: View | None) -> PageCache:
        """A page cache for the configuration in force, complete before a request can meet it."""
        board = PageCache(
            self._config.metrics, node=self._node, clock=self._clock, http=self._http.stats, store=self._store.stats
        )
        if view is not None:
            board.publish(view, self._rightsizing_families())
        return board

    def start(self) -> None:
        """Bind and begin.

        Raises:
            UsageError: an address, the socket path or the web configuration cannot be used.
            UnsafePath: other users may write to the socket's folder.
        """
        try:
            self._bind()
        except GpuwatchError:
            self._recorder.close()  # it may write already
            raise
        for thread in (self._supervisor, self._kernel, self._pods, self._bus, self._cases, self._publisher):
            thread.start()
        self._rightsizer.start()

    def _bind(self) -> None:
        try:
            (make_named if self._config.agent.socket else make_private)(self.socket_path.parent)
        except OSError as error:
            why = error.strerror or str(error)
            raise UsageError(f"cannot make {self.socket_path.parent}", why, "choose another --socket PATH") from error
        self._http.start()

    def run(self, started: Callable[[], None] = lambda: None) -> None:
        """Start, call `started`, and serve until SIGTERM or SIGINT.

        Raises:
            NoGpuStack: there is no NVML library, and `agent.wait_for_driver` is off.
        """
        self._signals.catch()
        gc.freeze()  # the objects of imported modules are never freed
        gc.set_threshold(*GC_THRESHOLDS)
        with queued_stderr():
            self.start()
            started()
            while not self._stopping.is_set():
                if self.wedged() is None:
                    keep_watchdog_quiet()
                number = self._signals.next(WATCH_SECONDS)
                if number in ENDS:
                    break
                self._follow_configuration(asked=number == signal.SIGHUP)
            self.stop()
        if self._fatal is not None:
            raise self._fatal.as_error()

    def stop(self) -> None:
        """End within two seconds, whatever the driver does."""
        until = time.monotonic() + LAST_CHECKPOINT_SECONDS
        self._stopping.set()
        self._due.set()
        self._rightsizer.stop()
        self._kernel.stop()
        self._pods.stop()
        self._bus.stop()
        self._cases.stop()
        self._supervisor.stop()
        self._http.stop()
        if self._publisher.is_alive():
            self._publisher.join(LAST_VIEW_SECONDS)
        self._rightsizer.wait(until)
        self._recorder.close()

    def ready(self) -> str | None:
        """None when a fresh snapshot exists, else why not."""
        view, age = self._view, self.board.age()
        if view is None or age is None:
            return "no snapshot yet"
        if age > max(STALE_INTERVALS * view.snapshot.interval, MIN_STALE_SECONDS):
            return f"no snapshot for {age:.0f} s"
        nvml = next((source for source in view.snapshot.sources if source.name == "nvml"), None)
        return None if nvml is None or nvml.up else f"nvml: {nvml.reason}"

    def wedged(self) -> str | None:
        """Why only a new process helps: the publisher has stood still for so long. A driver that hangs is no reason, as
        the publisher continues and reports it.
        """
        still = self._clock.monotonic() - self._turned
        if still <= max(WEDGED_INTERVALS * self._config.agent.interval, MIN_WEDGED_SECONDS):
            return None
        return f"the publisher has stood still for {still:.0f} s"

    def view(self) -> View | None:
        """The newest View; None before the first."""
        return self._view

    def recent(self) -> Recent:
        """The last minutes of each GPU."""
        return self._recent.recent

    def events(self, query: EventQuery = EVERYTHING) -> Events:
        """XIDs, SXids, bus losses, findings and actions, also those of earlier runs of the agent."""
        return self._store.events(query)

    def events_json(self, query: EventQuery) -> Generator[bytes]:
        """The same as JSON, in pieces."""
        return self._store.events_json(query)

    def recommendations(self) -> Recommendations | str:
        """Which workloads hold more GPU than they use; without an answer, a text with the reason."""
        return self._rightsizer.recommendations()

    def _follow_configuration(self, *, asked: bool) -> None:
        """Read a changed file; the publisher takes it over with the next View."""
        if self._watch is None or not (self._watch.changed() or asked):
            return
        new = self._watch.reload()
        if new is not None:
            self._wanted_config = new
            self._rightsizer.configure(new.rightsizing)
            self._due.set()

    def _rightsizing_families(self) -> list[Family]:
        body = self._rightsizer.recommendations()
        return rightsizing_families(None if isinstance(body, str) else body, self._config.rightsizing.top)

    def _on_message(self, message: AnyMessage) -> None:
        """News from the reader, on the supervisor's thread."""
        now, events, urgent = self._clock.monotonic(), list[Event](), isinstance(message, DriverOpened | ReaderFailed)
        with self._lock:
            self._state.handle(message, now)
            if isinstance(message, GpuFound):
                self._ledger.know({message.identity.pci_bus_id: message.identity.uuid})
            if isinstance(message, DriverEventMessage):
                if message.event.kind == "xid":
                    event = _xid_event(message.event, self._boot_id, now)
                    events = [new] if (new := self._ledger.observe(event)) else []
                else:
                    urgent = True
            due = urgent or self._state.round_complete(self._published, now)
        if self._keep(events) or due:
            self._due.set()
        if isinstance(message, ReaderFailed):
            # in a pod, which would only be restarted, the agent waits for a reader that may succeed later
            waits = self._config.agent.wait_for_driver and message.kind != USAGE
            if not (message.retry or waits or self._state.identities()):
                self._fatal = message
                self._stopping.set()
                self._signals.wake()

    def _keep(self, events: list[Event]) -> bool:
        """Store events and log new XIDs, outside every lock; whether any event is new."""
        for event in self._recorder.record_events(events, resumed=self._kernel.resumed):
            if isinstance(event, XidEvent) and not event.historical:
                self._event_logger.log_xid(event)
        return any(not event.historical for event in events)

    def _on_kernel(self, events: list[KernelEvent]) -> None:
        """News from the kernel log, on its thread."""
        with self._lock:
            observed = [self._ledger.observe(event) for event in events]
        if self._keep([event for event in observed if event is not None]):
            self._supervisor.refresh()
            self._due.set()

    def _read_bus(self) -> None:
        """Read the store and the bus; GPUs that appeared on the bus, or came back, need a new reader."""
        self._builder.refresh_labels(self._config.metrics)
        findings, now = self._view.judgement.findings if self._view else (), self._clock.time()
        self._builder.set_repaired(repaired_at(self._store, now), validations(self._store, findings, now))
        repairer = repairer_status(self._store)
        self._builder.set_roles(repairer, role_reports(self._config.state_dir, now))
        closed = closed_gpu(repairer, now)
        with self._lock:
            indexes = tuple(i.index for i in self._state.identities() if i.uuid == closed)
        self._supervisor.close(indexes)
        if not self._builder.refresh_bus():
            return
        with self._lock:
            read = {pci_key(gpu.identity.pci_bus_id) for gpu in self._state.gpus(self._clock.monotonic())}
        if any(pci_key(address) not in read for address in self._builder.bus or ()):
            self._supervisor.replace()

    def _publish_for_ever(self) -> None:
        while not self._stopping.is_set():
            with self._lock:
                longest_wait = self._state.longest_wait(self._clock.monotonic())
            self._due.wait(longest_wait)
            self._due.clear()
            if self._stopping.is_set():
                return
            with self._lock:
                settled = self._state.settled(self._clock.monotonic()) or self._state.failure is not None
            try:
                if settled or self._view is not None:
                    self._publish()
                self._turned = self._clock.monotonic()
            except Exception:  # one faulty View must not be the last; meanwhile the old one goes stale and is withheld
                log.exception("this snapshot could not be published; trying again with the next")
            self._stopping.wait(MIN_PUBLISH_GAP)

    def _publish(self) -> None:
        new = self._wanted_config
        if new is not self._config:
            self._config, self.profiles = new, new.metrics.profiles
            self._builder.configure(new)
            self.board = self._new_board(self._view)
        now, at = self._clock.monotonic(), self._clock.time()
        with self._lock:
            inputs = ViewInputs(
                at=at,
                reading=self._state.reading(now, at),
                sources=(
                    *(self._kernel.status(), self._store.status(), *self._capture),
                    *(self._watch.status() if self._watch else ()),
                ),
                agent=AgentStatus(
                    version=__version__,
                    started=self._started,
                    reader_restarts=self._supervisor.restarts,
                    kmsg_lost=self._kernel.lost,
                    unknown_xids=self._ledger.unknown,
                    config_error=self._watch.error if self._watch else None,
                ),
                xids=self._ledger.xids(),
                sxids=self._ledger.sxids(),
                news=self._ledger.news(),
            )
            cursor = self._kernel.cursor
            self._published = now
        view = structs.replace(self._builder.view(inputs), support_cases=self._support_cases.kept)
        self.board.publish(view, self._rightsizing_families())
        self._recent.add(view)
        self._view = view
        self.published.notify()
        self._recorder.record_events(inputs.news, resumed=self._kernel.resumed)
        self._recorder.record_view(view, cursor, urgent=bool(inputs.news))
        self._event_logger.log_changes(view)
        self._rightsizer.submit(view)
        if self._builder.needs_allocations:
            self._pods.wake()


def _xid_event(event: DriverEvent, boot_id: str | None, uptime: float) -> XidEvent:
    return XidEvent(
        at=event.at,
        xid=event.data,
        source="nvml",
        uuid=event.uuid,
        pci=pci_key(event.pci_bus_id),
        gi=event.gi,
        ci=event.ci,
        boot_id=boot_id,
        uptime=uptime if boot_id else None,
    )


def paced(seconds: float, interval: float) -> float:
    """Seconds between two requests to the kubelet: no more often than the Views that show its answer, but at most 1.4
    times `seconds`: an answer is withheld after STALE_INTERVALS times `seconds`, and one request may fail.
    """
    return max(seconds, min(interval, 1.4 * seconds))


class Periodic(threading.Thread):
    """Runs `task` now, then every `interval` seconds; a task that raises is logged and runs again next time."""

    def __init__(self, name: str, interval: float, task: Callable[[], None]) -> None:
        super().__init__(name=name, daemon=True)
        self._interval, self._task = interval, task
        self._wake = threading.Event()
        self._stopping = threading.Event()

    def wake(self) -> None:
        """Run soon."""
        self._wake.set()

    def stop(self) -> None:
        """End after the turn under way."""
        self._stopping.set()
        self._wake.set()

    def run(self) -> None:
        """Run the task until stopped."""
        while not self._stopping.is_set():
            self._wake.clear()
            try:
                self._task()
            except Exception:  # the thread must outlive a bug in one turn
                log.exception("%s failed; trying again in %.0f s", self.name, self._interval)
            self._stopping.wait(MIN_GAP_SECONDS)
            self._wake.wait(max(0.0, self._interval - MIN_GAP_SECONDS))
