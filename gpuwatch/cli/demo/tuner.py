"""The demo's tuner with its guard, its actuator and the reader of pods' consents."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from msgspec.structs import replace

from gpuwatch.agent.client import AgentClient, AgentViews
from gpuwatch.cli.console.session import Session
from gpuwatch.cli.tune.driver_access import ACTORS, nvml_actuator, restorer
from gpuwatch.config import Config
from gpuwatch.consents.kube import ConsentsReader
from gpuwatch.consents.service import Consenting
from gpuwatch.kube.transport import Transport
from gpuwatch.model.clock import SystemClock
from gpuwatch.sim.kubeapi.access import AccessRule
from gpuwatch.storage.audit import Audit
from gpuwatch.storage.store import Store
from gpuwatch.tuning.actuation.guard import Guard
from gpuwatch.tuning.model.setting import Trigger
from gpuwatch.tuning.model.status import GpuTuning, ObstacleReason, TunerState, TuningState
from gpuwatch.tuning.service.process import TunerService
from gpuwatch.tuning.service.state_dir import TunerFolder
from gpuwatch.tuning.service.tuner import Tuner

RIGHTS = (
    AccessRule(verbs=("get",), resources=("nodes", "namespaces")),
    AccessRule(verbs=("list",), resources=("pods",)),
)
"""Of the token with which consents of pods are read."""

ASK_SECONDS = 2.0
"""Between two requests for consents: 15 s would be too long for a demo."""

PASSING = {
    *(ObstacleReason.NO_GUARD, ObstacleReason.NO_CONSENT, ObstacleReason.NO_COUNTERS),
    *(ObstacleReason.STALE_VIEW, ObstacleReason.UNKNOWN, ObstacleReason.MONITORING),
}
"""Reasons of the first seconds, before all inputs are there."""


class TunerNarrator:
    """Compares each state with the one before and describes the differences."""

    def __init__(self) -> None:
        self._topics: dict[str, object] = {}  # uuid -> the topic of its last sentence
        self._limits: dict[int, float] = {}
        self._how = ""

    def sentences(self, state: TunerState) -> Iterator[tuple[str, str]]:
        """(actor, sentence) for each difference."""
        if state.mode != "enforce" or not state.gpus:
            return
        limits = {gpu.index: gpu.power_limit for gpu in state.gpus if gpu.power_limit is not None}
        how = state.budget.how if state.budget else ""
        if state.budget is not None and how != self._how:
            yield "tuner", f"shares {state.budget.budget:.0f} W among the GPUs: {state.budget.message}"
        by_watts: dict[float, list[int]] = {}
        for index, watts in limits.items():
            if watts != self._limits.get(index):
                by_watts.setdefault(watts, []).append(index)
        for watts, indexes in sorted(by_watts.items(), reverse=True):
            yield "tuner", f"limits {_names(indexes)} to {watts:.0f} W{' each' if len(indexes) > 1 else ''}"
        if gone := [index for index in self._limits if index not in limits]:
            yield "tuner", f"restores the power limit of {_names(gone)}"
        self._limits, self._how = limits, how
        together: dict[str, list[int]] = {}  # GPUs with the same sentence
        for gpu in state.gpus:
            text, topic = _sentence(gpu), (gpu.state, gpu.reason, gpu.clock_cap)
            if text and topic != self._topics.get(gpu.uuid):
                self._topics[gpu.uuid] = topic
                together.setdefault(text, []).append(gpu.index)
        for text, indexes in together.items():
            yield "tuner", text.format(gpus=_names(indexes))


def _sentence(gpu: GpuTuning) -> str:
    """A sentence with {gpus} in place of their names; empty: nothing to report."""
    owners = ", ".join(gpu.owners)
    cap = "" if gpu.clock_cap is None else f"{gpu.clock_cap / 1e6:.0f} MHz"
    match gpu.state:
        case TuningState.OBSERVING:
            return f"watches {{gpus}} at full speed for a minute: {owners} has agreed to be tuned"
        case TuningState.SEARCHING | TuningState.VERIFYING if cap:
            return f"tries {cap} on {{gpus}}, in turns with full speed"
        case TuningState.HOLDING if cap and gpu.slowdown is not None and gpu.saved is not None:
            upper = "" if gpu.slowdown_upper is None else f" ({_percent(gpu.slowdown_upper)} at most)"
            gain = f"{_percent(gpu.slowdown)} slower{upper}, {_percent(gpu.saved)} less energy for the same work"
            return f"holds {{gpus}} at {cap}: {gain}"
        case TuningState.RESTING if cap:
            return f"keeps {{gpus}} at {cap}: {owners} holds it and does nothing"
        case TuningState.REFUSED if gpu.reason not in PASSING:
            # the first reason, without the seconds that are left of it
            message = gpu.obstacles[0].message if gpu.obstacles else ""
            why = message.partition(";")[0].replace("{", "").replace("}", "")
            if gpu.reason is ObstacleReason.NOT_OPTED_IN:
                why = "no pod there has agreed to be tuned"
            return f"leaves {{gpus}} alone: {why}"
        case _:
            return ""


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _names(indexes: list[int]) -> str:
    """`GPU 3`, `GPUs 0 to 3`, `GPUs 1, 5`."""
    found = sorted(indexes)
    if len(found) == 1:
        return f"GPU {found[0]}"
    if found == list(range(found[0], found[-1] + 1)) and len(found) > 2:
        return f"GPUs {found[0]} to {found[-1]}"
    return f"GPUs {', '.join(map(str, found))}"


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
            run_thread(stack, "demo-consents", lambda ended: asking.run(lambda s: ended(min(s, ASK_SECONDS))))
            restoring = stack.enter_context(restorer(self._there, self._config, Trigger.GUARD))
            run_thread(stack, "demo-guard", Guard(folder.record, folder.heartbeat, restoring, clock).run)
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

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def state(self) -> TunerState:
        """As of its newest cycle."""
        return self._tuner.state

    def allow(self, watts: float | None) -> None:
        """Set the power budget of the node from now on, watts; None: no budget."""
        self._tuner.reconfigure(replace(self._config.tuning, node_budget_watts=watts))

    def sentences(self) -> Iterator[tuple[str, str]]:
        """(actor, sentence) since the last call."""
        yield from self._narrator.sentences(self.state)


def run_thread(stack: ExitStack, name: str, run: Callable[[Callable[[float], bool]], None]) -> None:
    """Run it in a thread of its own until the stack is closed."""
    ended = threading.Event()
    thread = threading.Thread(target=run, args=(ended.wait,), name=name, daemon=True)
    stack.callback(thread.join)
    stack.callback(ended.set)
    thread.start()
