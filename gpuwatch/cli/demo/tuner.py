"""The demo's tuner with its guard, its actuator and the reader of pods' consents."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from msgspec.structs import replace

from gpuwatch.agent.client import AgentClient, AgentViews
from gpuwatch.cli.console.session import Session
from gpuwatch.cli.demo.tuner_narrator import TunerNarrator
from gpuwatch.cli.tune.driver_access import ACTORS, nvml_actuator, restorer
from gpuwatch.config import Config
from gpuwatch.consents.kube import ConsentsReader
from gpuwatch.consents.service import Consenting
from gpuwatch.kube.transport import Transport
from gpuwatch.model.clock import SystemClock
from gpuwatch.sim.kubeapi import AccessRule
from gpuwatch.storage.audit import Audit
from gpuwatch.storage.store import Store
from gpuwatch.tuning.actuation.guard import Guard
from gpuwatch.tuning.model.setting import Trigger
from gpuwatch.tuning.model.status import TunerState
from gpuwatch.tuning.service.process import TunerService
from gpuwatch.tuning.service.state_dir import TunerFolder
from gpuwatch.tuning.service.tuner import Tuner

RIGHTS = (
    AccessRule(verbs=("get",), resources=("nodes", "namespaces")),
    AccessRule(verbs=("list",), resources=("pods",)),
)
"""Of the token with which the cluster is asked what pods agree to."""


ASK_SECONDS = 2.0
"""Between two requests for consents: 15 s would be too long for a demo."""


class DemoTuner:
    """A context manager; while it is open, it tunes the simulated node in `directory` in mode enforce.

    `node`: its name in the cluster behind `transport`. Its own files are in `config.state_dir`, which is made.
    """

    def __init__(self, config: Config, directory: Path, node: str, transport: Transport) -> None:
        self._config, self._node, self._transport = config, node, transport
        self._there = Session()
        self._there.source = f"sim:{directory}"
        self._narrator, self._stack = TunerNarrator(), ExitStack()

    def __enter__(self) -> Self:
        place, clock = Path(self._config.state_dir), SystemClock()
        place.mkdir(exist_ok=True)
        folder = TunerFolder.at(place)
        with ExitStack() as stack:
            asking = Consenting(ConsentsReader(self._transport, self._node), folder.consents, clock)
            _run_thread(stack, "demo-consents", lambda ended: asking.run(lambda s: ended(min(s, ASK_SECONDS))))
            restoring = stack.enter_context(restorer(self._there, self._config, Trigger.GUARD))
            _run_thread(stack, "demo-guard", Guard(folder.record, folder.heartbeat, restoring, clock).run)
            views = AgentViews(AgentClient(self._config.agent.socket), clock)
            actuator = stack.enter_context(nvml_actuator(self._there, self._config))
            store = Store.open(str(place))
            stack.callback(store.close)
            audit = Audit(store, clock, actor=ACTORS[Trigger.TUNER])
            self._tuner = Tuner(self._config.tuning, views, folder, clock=clock, actuator=actuator, audit=audit)
            service = TunerService(self._tuner, views, self._config.tuning.listen)
            service.start()
            stack.callback(service.stop)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def state(self) -> TunerState:
        """As of its newest cycle."""
        return self._tuner.state

    def allow(self, watts: float | None) -> None:
        """The node may draw so much from now on; None: as much as it likes."""
        self._tuner.reconfigure(replace(self._config.tuning, node_budget_watts=watts))

    def sentences(self) -> Iterator[tuple[str, str]]:
        """(actor, sentence) since the last call."""
        yield from self._narrator.sentences(self.state)


def _run_thread(stack: ExitStack, name: str, run: Callable[[Callable[[float], bool]], None]) -> None:
    """Let it run in a thread of its own until the stack is closed."""
    ended = threading.Event()
    thread = threading.Thread(target=run, args=(ended.wait,), name=name, daemon=True)
    stack.callback(thread.join)
    stack.callback(ended.set)
    thread.start()
