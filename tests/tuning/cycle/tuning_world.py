"""A small node under the tuner's cycle: two GPUs of one pod, one of another, one of nobody; a record, and a hand that
does as it is told, or not. Time is turned second by second.
"""

import copy
import random
from typing import Any, Self

from gpuwatch.config import TuningConfig
from gpuwatch.model.consent import AUTOTUNE, CLASS, Consents, PodConsent, Progress, ProgressCounter
from gpuwatch.model.finding import Finding, Health, Judgement, Remedy, Severity
from gpuwatch.model.snapshot import (
    Activity,
    ClockEvents,
    Clocks,
    Gpu,
    GpuProcess,
    GpuState,
    GpuStatus,
    Identity,
    Power,
    Snapshot,
    SourceStatus,
)
from gpuwatch.model.view import AgentStatus, View
from gpuwatch.model.workload import Attribution, DeviceUse, Holder, Workload
from gpuwatch.tuning.cycle.cycle import cycle
from gpuwatch.tuning.cycle.state import CycleInputs, CycleMemory, CycleResult
from gpuwatch.tuning.energy.model import TrialState
from gpuwatch.tuning.model.setting import Actuation, ApplyResult, GpuCapabilities, OrderOutcome, Setting, SettingOrder
from gpuwatch.tuning.model.status import GpuTuning, TuningState

TOP, STEP = 1980e6, 15e6
CLOCKS = tuple(TOP - STEP * number for number in range(119))
START = 1.79e9
UUIDS = tuple(f"GPU-{index}" for index in range(4))


class Work:
    """What runs on one GPU. `bound`: the share of its time that goes with the clock."""

    def __init__(self, pod: str, pids: tuple[int, ...], bound: float = 0.2) -> None:
        self.pod, self.pids, self.bound = pod, pids, bound
        self.engine, self.dram, self.pipe, self.watts = 1.0, 0.46, 0.3, 500.0
        self.polls = False  # its DRAM traffic is no progress


class World:
    """Everything a cycle goes by may be changed between two seconds."""

    def __init__(self, **tuning: Any) -> None:
        self.config = TuningConfig(**{"mode": "enforce", "pods": "observe"} | tuning)
        self.now, self.memory, self.step = 1000.0, CycleMemory(), CycleResult(memory=CycleMemory())
        self.works: dict[str, Work | None] = {
            "GPU-0": Work("a", (10,)),
            "GPU-1": Work("a", (11,)),
            "GPU-2": Work("b", (12,)),
            "GPU-3": None,
        }
        self.annotations = {name: {AUTOTUNE: "enforce", CLASS: "batch"} for name in "abcd"}
        self.node: dict[str, str] = {}
        self.consented = True  # the consents come
        self.guarded, self.readable, self.frozen, self.interval = True, True, False, 1.0
        self.stopped = ""
        self.sick: set[str] = set()
        self.judged, self.kubelet = True, True  # health is known; the kubelet answers
        self.locked: dict[str, float] = {}  # by somebody else
        self.reasons: dict[str, str] = {}
        self.fate: dict[str, OrderOutcome] = {}
        self.record: dict[tuple[str, str], Setting] = {}
        self.clocks: dict[str, float | None] = dict.fromkeys(UUIDS)
        self.limits, self.defaults = dict.fromkeys(UUIDS, 700.0), dict.fromkeys(UUIDS, 700.0)
        self.counted = True  # GPM is there
        self.energy = dict.fromkeys(UUIDS, 1e6)
        self.rates: dict[str, float] = {}  # what pods count in a second at full speed
        self.done: dict[str, float] = {}
        self.chance = random.Random(5)
        self.sharing = ""  # a pod that shares every GPU, and whose work goes with the clock by half
        self.counters: dict[str, ProgressCounter] = {}
        self.results: tuple[ApplyResult, ...] = ()
        self.controllers: dict[str, tuple[str, str]] = {}  # of pods: kind and name
        self.saved: dict[str, TrialState] = {}
        self.known: dict[str, float] = {}  # caps that held for work that may come back
        self.orders: list[tuple[float, SettingOrder]] = []
        self.view = self._new_view()

    def copy(self) -> Self:
        """Another world, the same until now."""
        return copy.deepcopy(self)

    @property
    def at(self) -> float:
        return START + self.now

    def gpu(self, index: int) -> GpuTuning:
        return self.step.gpus[index]

    @property
    def caps(self) -> list[float | None]:
        """What is in force."""
        return [self.clocks[uuid] for uuid in UUIDS]

    def tick(self) -> CycleResult:
        """One second."""
        self.now += 1.0
        for uuid, work in self.works.items():
            self.energy[uuid] += self._watts(uuid, work)
        for pod in self.rates:
            self.done[pod] = self.done.get(pod, 0.0) + self.rates[pod] * self.pace(pod) * self.chance.gauss(1, 0.003)
            samples = self.counters.get(f"uid-{pod}", ProgressCounter()).samples
            self.counters[f"uid-{pod}"] = ProgressCounter(
                samples=(*samples, (self.at, float(int(self.done[pod]))))[-20:]
            )
        if not self.frozen:
            self.view = self._new_view()
        self.step = cycle(self.memory, self.inputs())
        self.memory = self.step.memory
        self.known.update(self.step.known)
        self.results = tuple(self._turn(order) for order in self.step.orders)
        return self.step

    def run(self, seconds: float) -> None:
        for _ in range(int(seconds)):
            self.tick()

    def until(self, state: TuningState, index: int = 0, seconds: float = 3600.0) -> float:
        """Seconds until a GPU is in a state."""
        began = self.now
        while self.now - began < seconds:
            if self.tick().gpus[index].state is state:
                return self.now - began
        raise AssertionError(f"no {state} in {seconds} s: {self.gpu(index)}")

    def inputs(self) -> CycleInputs:
        return CycleInputs(
            view=self.view,
            fresh=self.at - self.view.snapshot.at <= 3.0,
            now=self.now,
            at=self.at,
            config=self.config,
            consents=self._consents() if self.consented else None,
            actuation=Actuation(settings=tuple(self.record.values())) if self.readable else None,
            capabilities={
                uuid: GpuCapabilities(
                    uuid=uuid,
                    clocks=CLOCKS,
                    limit=self.limits[uuid],
                    limit_default=700.0,
                    limit_min=200.0,
                    limit_max=700.0,
                )
                for uuid in UUIDS
            },
            guarded=self.guarded,
            stopped=self.stopped,
            results=self.results,
            saved=self.saved,
            known=dict(self.known),
            progress=Progress(at=self.at, owners=self.counters),
        )

    def speed_of_sharing(self) -> float:
        return min(1 / (0.5 + 0.5 * TOP / self._clock(uuid)) for uuid, work in self.works.items() if work is not None)

    def pace(self, pod: str) -> float:
        """The speed of a pod's work: that of its slowest GPU."""
        if pod == self.sharing:
            return self.speed_of_sharing()
        return min(self.speed(uuid) for uuid, work in self.works.items() if work is not None and work.pod == pod)

    def _turn(self, order: SettingOrder) -> ApplyResult:
        self.orders.append((self.now, order))
        key, fate = (order.uuid, order.knob), self.fate.get(order.uuid, OrderOutcome.DONE)
        if order.value is not None and fate is not OrderOutcome.REFUSED:
            self.record[key] = Setting(
                uuid=order.uuid,
                knob=order.knob,
                original=None if order.knob == "locked_clocks" else 700.0,
                applied=(order.value,),
                at=self.at,
                boot_id="boot",
                driver="580",
            )
        if fate is OrderOutcome.DONE:
            if order.knob == "locked_clocks":
                self.clocks[order.uuid] = order.value
            else:
                self.limits[order.uuid] = order.value or 700.0
            if order.value is None and not order.keep:
                self.record.pop(key, None)
        return ApplyResult(order=order, outcome=fate, in_force=order.value if fate is OrderOutcome.DONE else None)

    def speed(self, uuid: str, *, capped: bool = True) -> float:
        """Of the work on a GPU, 1 at its highest clock; `capped` False: without our cap, under the same power limit."""
        work = self.works[uuid]
        assert work is not None
        return 1 / (1 - work.bound + work.bound * TOP / self._clock(uuid, capped=capped))

    def _clock(self, uuid: str, *, capped: bool = True) -> float:
        """The highest that cap and power limit allow."""
        work, clock = self.works[uuid], (self.clocks[uuid] if capped else None) or self.locked.get(uuid, TOP)
        while work is not None and clock > CLOCKS[-1] and self._draw(work, clock) > self.limits[uuid]:
            clock -= STEP
        return clock

    def _draw(self, work: Work, clock: float) -> float:
        share = 0.2 + 0.8 * (clock / TOP) ** 2.5
        return 80.0 + 30.0 * share + work.engine * (work.watts - 110.0) * share

    def _watts(self, uuid: str, work: Work | None) -> float:
        return 70.0 if work is None else self._draw(work, self._clock(uuid))

    def _new_view(self) -> View:
        identities = [
            Identity(index=index, uuid=uuid, pci_bus_id=f"00000000:{index + 1:02X}:00.0")
            for index, uuid in enumerate(UUIDS)
        ]
        findings = tuple(
            Finding(check="ecc_uncorrected", severity=Severity.CRITICAL, message="", gpu=uuid, remedy=Remedy.RESET_GPU)
            for uuid in sorted(self.sick)
        )
        return View(
            snapshot=Snapshot(
                at=self.at,
                interval=self.interval,
                gpus=tuple(map(self._sample, identities)),
                statuses=tuple(GpuStatus(identity=each, state=GpuState.FRESH) for each in identities),
                sources=(SourceStatus(name="podresources", up=self.kubelet),),
            ),
            agent=AgentStatus(version="0", started=START),
            attribution=Attribution(
                devices=tuple(
                    DeviceUse(
                        gpu=uuid,
                        allocated=True,
                        holders=tuple(Holder(workload=_pod(pod)) for pod in filter(None, (work.pod, self.sharing))),
                    )
                    for uuid, work in self.works.items()
                    if work is not None
                )
            ),
            judgement=Judgement(
                gpus={uuid: Health.FAILED if uuid in self.sick else Health.HEALTHY for uuid in UUIDS}
                if self.judged
                else {},
                findings=findings,
            ),
        )

    def _sample(self, identity: Identity) -> Gpu:
        uuid, work = identity.uuid, self.works[identity.uuid]
        clock = self._clock(uuid)
        speed = self.speed(uuid) * work.engine if work else 0.0
        return Gpu(
            identity=identity,
            at=self.at,
            activity=Activity(
                graphics=work.engine if work else 0.0,
                dram=work.dram * (work.engine if work.polls else speed) if work else 0.0,
                tensor=work.pipe * speed * TOP / clock if work else 0.0,
                window_seconds=1.0,
            )
            if self.counted
            else Activity(),
            power=Power(
                energy=self.energy[uuid],
                average=self._watts(uuid, work),
                limit_enforced=self.limits[uuid],
                limit_configured=self.limits[uuid],
                limit_default=self.defaults[uuid],
                limit_min=200.0,
                limit_max=700.0,
            ),
            clocks=Clocks(graphics=clock, sm=clock, graphics_max=TOP, sm_max=TOP),
            clock_events=ClockEvents(active={reason: True for name, reason in self.reasons.items() if name == uuid}),
            processes=tuple(GpuProcess(pid=pid, type="compute") for pid in work.pids) if work else (),
        )

    def _consents(self) -> Consents:
        pods = {work.pod for work in self.works.values() if work is not None} | set(filter(None, (self.sharing,)))
        return Consents(
            at=self.at,
            node=self.node,
            pods=tuple(
                PodConsent(
                    namespace="ml",
                    name=name,
                    uid=f"uid-{name}",
                    annotations=self.annotations[name],
                    owner=self.controllers.get(name),
                    images={"main": "train:1"},
                )
                for name in sorted(pods)
            ),
        )


def _pod(name: str) -> Workload:
    return Workload(namespace="ml", pod=name, container="main", pod_uid=f"uid-{name}")
