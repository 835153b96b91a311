"""A node whose GPUs work through a day, second by second: what the agent would tell of it, and what was really done."""

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from gpuwatch.model.consent import Consents, PodConsent
from gpuwatch.model.finding import Finding, Health, Judgement, Severity
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
)
from gpuwatch.model.view import AgentStatus, View
from gpuwatch.model.workload import Attribution, DeviceUse, Holder, ProcessOwner, Workload
from gpuwatch.tuning.model.setting import GpuCapabilities
from tests.bench.tuner.day_work import Fault, Pod

MHZ = 1e6
TOP, LOWEST, STEP = 1980 * MHZ, 210 * MHZ, 15 * MHZ
CLOCKS = tuple(TOP - STEP * number for number in range(int((TOP - LOWEST) / STEP) + 1))

AT_REST, HOLDING, CLOCKED = 70.0, 82.0, 33.0
"""Watts of a GPU nobody has, of one that is held by a process, and what of the clock comes on top: at half of it a GPU
that is held and does nothing draws a fifth less."""

WAVE, LASTS, COUNTER = 0.015, 0.5, 0.005
"""Standard deviation of a second's rate of work, what is left of it in the next (5 s vary by 1 %), and of a counter."""

LIMIT, LEAST, QUEUE = 700.0, 200.0, 20.0
READ_EVERY = 15.0
"""Seconds until what pods say is read again."""

START = 1.7e9
"""Unix time of the first second."""


class Done(NamedTuple):
    """One second of one GPU for one pod. `busy`: the share of the second it worked; `speed`: at which."""

    pod: Pod
    gpu: int
    busy: float
    speed: float
    work: float
    joules: float


class Slot:
    """One GPU's physics."""

    def __init__(self, index: int, seed: int) -> None:
        self.uuid = f"GPU-{index:08d}-0000-0000-0000-000000000000"
        self.identity = Identity(index=index, uuid=self.uuid, pci_bus_id=f"00000000:{index + 1:02X}:00.0", name="H100")
        self.chance = random.Random(f"slot {index} {seed}")
        self.wave = self.queue = 0.0
        self.joules = 1e6
        self.cap: float | None = None
        self.before: tuple[float | None, float] = (None, 0.0)  # the cap that went during this second, and its share

    def second(self, now: float, pods: Sequence[tuple[Pod, float]], index: int) -> tuple[Gpu, list[Done]]:
        """What was done from `now` on in one second by pods that were there for a share of it."""
        gauss = self.chance.gauss
        self.wave = LASTS * self.wave + math.sqrt(1 - LASTS**2) * gauss(0, WAVE)
        own = [1 + gauss(0, COUNTER) for _ in range(3)]
        (old, gone), self.before = self.before, (self.cap, 0.0)
        done, dram, pipe, engine, watts = [], 0.0, 0.0, 0.0, 0.0
        left = 1.0
        clock = (gone * (old or TOP) + (1 - gone) * (self.cap or TOP)) if pods else 345 * MHZ
        for pod, share in pods:
            work = pod.work(now)
            load = pod.load(now)
            speed = sum(part * _speed(work.b, cap) for cap, part in ((old, gone), (self.cap, 1 - gone)) if part)
            if pod.asked:
                wanted = load * share + self.queue
                amount = min(wanted, speed * share)
                self.queue, busy = min(QUEUE, wanted - amount), amount / speed
            else:
                busy = load * share
                amount = busy * speed * math.exp(self.wave)
            full = sum(part * _watts(work.s, work.a, cap) for cap, part in ((old, gone), (self.cap, 1 - gone)) if part)
            rest = HOLDING + CLOCKED * (clock / TOP) ** 2
            joules = share * rest + busy * (work.watts * full * own[2] * math.exp(0.5 * self.wave) - rest)
            done.append(Done(pod, index, busy, speed, amount, joules))
            dram += work.dram * amount * own[0]
            pipe += work.pipe * amount * own[1] * TOP / clock
            engine += busy
            watts += joules
            left -= share
        watts += max(0.0, left) * AT_REST
        self.joules += watts
        self.queue = self.queue if pods else 0.0
        return self._sample(now + 1, dram, pipe, engine, watts, clock if not gone else (self.cap or TOP)), done

    def _sample(self, at: float, dram: float, pipe: float, engine: float, watts: float, clock: float) -> Gpu:
        return Gpu(
            identity=self.identity,
            at=START + at,
            activity=Activity(
                graphics=min(1.0, engine), dram=dram, tensor=pipe, fp64=0.0, fp32=pipe / 5, fp16=0.0, window_seconds=1.0
            ),
            power=Power(average=watts, instant=watts, energy=self.joules, **LIMITS),
            clocks=Clocks(graphics=clock, sm=clock, memory=2619 * MHZ, graphics_max=TOP, sm_max=TOP),
        )


LIMITS = {
    "limit_enforced": LIMIT,
    "limit_configured": LIMIT,
    "limit_default": LIMIT,
    "limit_min": LEAST,
    "limit_max": LIMIT,
}


def _speed(b: float, cap: float | None) -> float:
    return 1.0 if cap is None or cap >= TOP else 1 / (1 - b + b * TOP / cap)


def _watts(s: float, a: float, cap: float | None) -> float:
    return 1.0 if cap is None or cap >= TOP else s + (1 - s) * (cap / TOP) ** a


class Node:
    """All GPUs, their pods, and what goes wrong. `second` goes one second on."""

    def __init__(self, gpus: int, pods: Iterable[Pod], faults: Iterable[Fault], seed: int) -> None:
        self.slots = [Slot(index, seed) for index in range(gpus)]
        self.capabilities = {
            slot.uuid: GpuCapabilities(
                uuid=slot.uuid, clocks=CLOCKS, limit=LIMIT, limit_default=LIMIT, limit_min=LEAST, limit_max=LIMIT
            )
            for slot in self.slots
        }
        self._coming = sorted(pods, key=lambda pod: pod.begins, reverse=True)
        self._faults = tuple(faults)
        self._here: list[Pod] = []
        self._who = Who({}, Attribution(), ())
        self.now = 0.0
        self._gpus: dict[int, Gpu] = {}
        self.done: list[Done] = []
        self._consents = Consents(at=START)
        self.view: View = self._view([])

    def second(self) -> None:
        """Let one second pass; afterwards `view` is what an agent publishes at its end."""
        now, then = self.now, self.now + 1
        came = bool(self._coming) and self._coming[-1].begins < then
        while self._coming and self._coming[-1].begins < then:
            self._here.append(self._coming.pop())
        self.done = []
        for index, slot in enumerate(self.slots):
            mine = [(pod, min(pod.ends, then) - max(pod.begins, now)) for pod in self._here if index in pod.gpus]
            self._gpus[index], done = slot.second(now, mine, index)
            self.done += done
        kept = [pod for pod in self._here if pod.ends > then]
        if came or len(kept) < len(self._here):
            self._here = kept
            self._who = _who(kept, self.slots)
        self.now = then
        broken = [fault for fault in self._faults if fault.begins <= then < fault.ends]
        if not any(fault.kind == "blind" for fault in broken):
            self.view = self._view(broken)
        if then % READ_EVERY == 0:
            self._consents = Consents(
                at=START + then, pods=tuple(_consent(pod) for pod in self._here), namespaces={"work": {}}
            )

    @property
    def consents(self) -> Consents:
        """What was read of the pods last."""
        return self._consents

    @property
    def guarded(self) -> bool:
        """Whether the guard is heard."""
        return not any(fault.kind == "no guard" and fault.begins <= self.now < fault.ends for fault in self._faults)

    def _view(self, broken: Sequence[Fault]) -> View:
        silent = {fault.gpu for fault in broken if fault.kind == "unresponsive"}
        hot = {fault.gpu for fault in broken if fault.kind == "thermal"}
        sick = {fault.gpu for fault in broken if fault.kind == "finding"}
        gpus = tuple(
            self._dressed(index, gpu, hot=index in hot) for index, gpu in self._gpus.items() if index not in silent
        )
        statuses = tuple(
            GpuStatus(
                identity=slot.identity, state=GpuState.UNRESPONSIVE if index in silent else GpuState.FRESH, detail=""
            )
            for index, slot in enumerate(self.slots)
        )
        return View(
            snapshot=Snapshot(at=START + self.now, interval=1.0, gpus=gpus, statuses=statuses),
            agent=AgentStatus(version="1", started=START),
            attribution=self._who.attribution,
            owners=self._who.owners,
            judgement=_judgement(self.slots, sick),
        )

    def _dressed(self, index: int, gpu: Gpu, *, hot: bool) -> Gpu:
        """With its processes and what slows it down."""
        processes = self._who.processes.get(index, ())
        active = {"hw_thermal_slowdown": hot, "sw_power_cap": False}
        return Gpu(
            identity=gpu.identity,
            at=gpu.at,
            activity=gpu.activity,
            power=gpu.power,
            clocks=gpu.clocks,
            clock_events=ClockEvents(active=active),
            processes=processes,
            mig_enabled=False,
        )


class Who(NamedTuple):
    """Whose the GPUs are."""

    processes: Mapping[int, tuple[GpuProcess, ...]]
    attribution: Attribution
    owners: tuple[ProcessOwner, ...]


def pid(pod: Pod) -> int:
    """Of its only process."""
    return 1000 + int(pod.begins * 4 + pod.gpus[0]) % 4_000_000


def _workload(pod: Pod) -> Workload:
    return Workload(namespace="work", pod=pod.name, container="main", pod_uid=f"uid-{pod.name}")


def _consent(pod: Pod) -> PodConsent:
    return PodConsent(namespace="work", name=pod.name, uid=f"uid-{pod.name}", annotations=pod.annotations)


def _who(pods: Sequence[Pod], slots: Sequence[Slot]) -> Who:
    processes = {
        index: tuple(GpuProcess(pid=pid(pod), type="compute", used_memory=1 << 30) for pod in pods if index in pod.gpus)
        for index in range(len(slots))
    }
    devices = tuple(
        DeviceUse(
            gpu=slot.uuid,
            allocated=any(index in pod.gpus for pod in pods),
            holders=tuple(
                Holder(workload=_workload(pod), resource="nvidia.com/gpu") for pod in pods if index in pod.gpus
            ),
        )
        for index, slot in enumerate(slots)
    )
    owners = tuple(
        ProcessOwner(pid=pid(pod), start_time=int(pod.begins), pod_uid=f"uid-{pod.name}", workload=_workload(pod))
        for pod in pods
    )
    return Who(processes, Attribution(devices=devices), owners)


def _judgement(slots: Sequence[Slot], sick: set[int | None]) -> Judgement:
    findings = tuple(
        Finding(check="ecc_uncorrected", severity=Severity.WARNING, message="", gpu=slots[index].uuid)
        for index in sick
        if index is not None
    )
    gpus = {slot.uuid: Health.DEGRADED if index in sick else Health.HEALTHY for index, slot in enumerate(slots)}
    return Judgement(node=Health.HEALTHY, gpus=gpus, findings=findings)
