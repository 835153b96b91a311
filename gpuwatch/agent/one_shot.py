"""One sample of the node without a running agent, for the command line."""

import os
import socket
import threading
from collections.abc import Iterable
from pathlib import Path

from gpuwatch import __version__
from gpuwatch.agent.kernel_log_thread import KernelLogThread
from gpuwatch.agent.node_state import SETTLE_SECONDS, NodeState
from gpuwatch.agent.view_builder import ViewBuilder, ViewInputs, capture_status, reader_settings
from gpuwatch.collect.reader.messages import AnyMessage, GpuFound, GpuSample, ReaderFailed
from gpuwatch.collect.reader.supervisor import Supervisor
from gpuwatch.config import Backend, Config
from gpuwatch.health.xid.ledger import Event, XidLedger
from gpuwatch.model.clock import SystemClock
from gpuwatch.model.errors import GpuwatchError
from gpuwatch.model.event import EVERYTHING, EventQuery
from gpuwatch.model.view import AgentStatus, Events, View
from gpuwatch.model.xid import KernelEvent
from gpuwatch.storage.rows import StoredEvent, newest_events, row_of
from gpuwatch.storage.store import stored_events

SAMPLE_SECONDS = 0.25
"""Interval of a short sample: longer than GPM's smallest window, short enough for a person."""

JUDGED_SECONDS = 2.0
"""A sample judges silence as an agent with this interval: on a busy node a healthy GPU takes a second for a sample."""


class OneShotCollector:
    """A reader that runs inside a `with` block; `view` joins its samples with kernel log, kubelet and /proc."""

    def __init__(
        self, config: Config, backend: Backend, interval: float = SAMPLE_SECONDS, *, settle: float = SETTLE_SECONDS
    ) -> None:
        """`settle`: seconds that GPUs have to give their identity: without persistence mode the driver wakes them."""
        self._clock, self._state_dir = SystemClock(), config.state_dir
        self._state = NodeState(max(interval, JUDGED_SECONDS), self._clock.monotonic(), settle)
        self._ledger = XidLedger()
        self._changed = threading.Condition()
        self._samples: dict[str, int] = {}
        self._capture = capture_status(backend)
        self._started = self._clock.time()
        node = os.environ.get("NODE_NAME") or socket.gethostname()
        self._builder = ViewBuilder(config, self._clock, node, hysteresis=False)
        self._kernel = KernelLogThread(config.sources, self._clock, self._on_kernel)
        self._supervisor = Supervisor(reader_settings(config, backend, interval), self._on_message)
        self._slow = threading.Thread(target=self._refresh, name="slow sources", daemon=True)

    def __enter__(self) -> "OneShotCollector":
        self._supervisor.start()
        self._kernel.start()
        self._slow.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._kernel.stop()
        self._supervisor.stop()

    def wait(self, samples: int, deadline: float) -> None:
        """Wait until every GPU has given so many samples, or is known not to answer.

        Raises:
            NoGpuStack: there is no driver or no GPU.
            GpuwatchError: no GPU answered within `deadline` seconds.
        """
        until = self._clock.monotonic() + deadline
        with self._changed:
            done = self._changed.wait_for(lambda: self._is_enough(samples), deadline)
            failure = self._state.failure
            reason = self._state.nvml_status(self._clock.monotonic()).reason
        self._slow.join(max(0.0, until - self._clock.monotonic()))
        if self._state.identities():
            return
        if not done:
            hint = "look at the kernel log: dmesg | grep NVRM"
            raise GpuwatchError(f"the driver did not answer within {deadline:.0f} s", reason, hint)
        raise (failure or ReaderFailed(reason=reason, kind="no GPU")).as_error()

    def view(self) -> View:
        """One View of the current state."""
        now, at = self._clock.monotonic(), self._clock.time()
        with self._changed:
            inputs = ViewInputs(
                at=at,
                reading=self._state.reading(now, at),
                sources=(self._kernel.status(), *self._capture),
                agent=AgentStatus(version=__version__, started=self._started, unknown_xids=self._ledger.unknown),
                xids=self._ledger.xids(),
                sxids=self._ledger.sxids(),
                news=self._ledger.news(),
            )
        return self._builder.view(inputs)

    def events(self, query: EventQuery = EVERYTHING) -> Events:
        """The events that `query` selects, also from the kernel log's history and the store of an agent."""
        with self._changed:
            seen = self._ledger.events()
        return event_history(seen, self._state_dir, query)

    def _refresh(self) -> None:
        """On a thread of its own: with a wedged driver a read of its files may never return either."""
        self._builder.refresh_bus()
        self._builder.refresh_allocations()

    def _is_enough(self, samples: int) -> bool:
        if self._state.failure is not None:
            return True
        now = self._clock.monotonic()
        statuses = self._state.statuses(now, self._clock.time())
        unsettled = any(self._samples.get(each.identity.uuid, 0) < samples and not each.detail for each in statuses)
        if not statuses and not self._state.answered(now):
            return False  # NVML counts GPUs, but none has given its identity: a slow driver, not a node without GPUs
        return self._state.driver is not None and self._state.settled(now) and not unsettled

    def _on_message(self, message: AnyMessage) -> None:
        with self._changed:
            self._state.handle(message, self._clock.monotonic())
            if isinstance(message, GpuFound):
                self._ledger.know({message.identity.pci_bus_id: message.identity.uuid})
            if isinstance(message, GpuSample):
                uuid = message.gpu.identity.uuid
                self._samples[uuid] = self._samples.get(uuid, 0) + 1
            self._changed.notify_all()

    def _on_kernel(self, events: list[KernelEvent]) -> None:
        with self._changed:
            for event in events:
                self._ledger.observe(event)


def event_history(seen: Iterable[Event], state_dir: str | Path, query: EventQuery = EVERYTHING) -> Events:
    """The events in `seen` and in the store, each once; of an event in both, the store's row has more members."""
    stored = stored_events(state_dir, query) or Events()
    known: tuple[Event, ...] = (*stored.xids, *stored.sxids, *stored.bus_losses)
    lines = {(event.boot_id, event.sequence) for event in known if event.sequence is not None}
    own = [row_of(event) for event in seen if (event.boot_id, event.sequence) not in lines]
    wanted = [row for row in own if row.kind in query.kinds and row.at >= query.since]
    kept: tuple[StoredEvent, ...] = (*known, *stored.findings, *stored.actions)
    return newest_events([*wanted, *map(row_of, kept)], query.limit)
