"""FAULTS, the faults that `gpuwatch sim fleet` can inject, and an agent without a node that shows them: readings of
GPUs that do not exist, judged by the real Judge.
"""

import random
from typing import NamedTuple

from gpuwatch import __version__
from gpuwatch.config import ChecksConfig
from gpuwatch.health.judge import Judge
from gpuwatch.model.clock import Clock
from gpuwatch.model.snapshot import (
    ClockEvents,
    Driver,
    Ecc,
    Gpu,
    GpuState,
    GpuStatus,
    Host,
    Identity,
    Memory,
    Power,
    RowRemap,
    Snapshot,
    SourceStatus,
)
from gpuwatch.model.view import AgentStatus, View
from gpuwatch.model.workload import Attribution
from gpuwatch.model.xid import XidEvent


class Symptom(NamedTuple):
    """How a fault shows on a GPU: recovery action (NVML field 230), whether the GPU is lost, and its XIDs."""

    recovery_action: int = 0
    lost: bool = False
    xids: tuple[int, ...] = ()


HEALTHY = Symptom()


class FleetFault(NamedTuple):
    """One row. `share` of the nodes get it, on `gpus` of their GPUs (None: all of them).

    `driver`: the version that causes it; the repair reverts it. `reboot`: a reboot repairs it. `again`: seconds after
    which its XIDs come again. `comes_and_goes`: seconds for which it is present, then absent. `taints`: whether a node
    may be tainted for it.
    """

    description: str
    symptom: Symptom
    share: float = 1.0
    gpus: int | None = None
    driver: str | None = None
    reboot: bool = False
    again: float | None = None
    comes_and_goes: float | None = None
    taints: bool = True


FAULTS: dict[str, FleetFault] = {
    "driver-rollout": FleetFault(
        "a new driver makes every GPU of every node ask for a reset",
        Symptom(recovery_action=1, xids=(119,)),
        driver="595.58.03",
    ),
    "xid-79": FleetFault(
        "one node in twenty loses a GPU from the bus", Symptom(lost=True, xids=(79,)), share=0.05, gpus=1, reboot=True
    ),
    "app-xids": FleetFault(
        "applications fail on every GPU of every node, again and again",
        Symptom(xids=(13, 31, 43, 45)),
        again=60.0,
        taints=False,
    ),
    "flapping": FleetFault(
        "one GPU of every node asks for a reset, and does not, and does",
        Symptom(recovery_action=1),
        gpus=1,
        comes_and_goes=40.0,
    ),
}


DRIVER = "580.95.05"
INTERVAL = 15.0
"""Seconds between two samples: real agents sample more often, but a thousand of them have more than two cores."""
WATTS = 400.0


class SimulatedAgent:
    """The source of one remediator's Views. Not thread-safe: one remediator asks at a time."""

    def __init__(self, node: str, host: Host, clock: Clock, *, gpus: int, seed: int) -> None:
        self.node, self.host = node, host
        self.driver = DRIVER
        self.trouble: str | None = None
        """Why the agent does not answer: its last View then stays; None: it answers."""
        self.withheld: tuple[str, ...] | None = None
        """UUIDs that the device plugin has taken out; None: the kubelet does not report them."""
        self.symptoms: dict[int, Symptom] = {}
        """By index; GPUs that are not here are healthy."""
        self._clock = clock
        self._gpus: list[Identity] = []
        for index in range(gpus):
            chance = random.Random(f"{seed} {node} {index}")  # noqa: S311
            parts = (chance.getrandbits(32), *(chance.getrandbits(16) for _ in range(3)), chance.getrandbits(48))
            uuid = "GPU-" + "-".join(f"{part:0{width}x}" for part, width in zip(parts, (8, 4, 4, 4, 12), strict=True))
            address = f"00000000:{0x1B + 16 * index:02X}:00.0"
            self._gpus.append(Identity(index=index, uuid=uuid, pci_bus_id=address, name="NVIDIA H100"))
        self.uuids = tuple(gpu.uuid for gpu in self._gpus)
        """By index."""
        self._view: View | None = None
        self.has_news = True
        """Whether something has happened since the newest View."""
        self._events: list[XidEvent] = []
        self.restart()

    @property
    def view(self) -> View | None:
        """The newest View; a call makes another one when a sample is due or something has happened."""
        if self.trouble is None and (self.has_news or self.age >= INTERVAL):
            self._view = self._new_view(self._clock.time())
            self.has_news = False
        return self._view

    @property
    def age(self) -> float:
        """Seconds since it was published; infinite before the first."""
        return float("inf") if self._view is None else self._clock.time() - self._view.snapshot.at

    def set_symptoms(self, symptoms: dict[int, Symptom]) -> None:
        """Set how GPUs look from now on, and raise the XIDs of it (again)."""
        self.symptoms, self.has_news = symptoms, True
        now = self._clock.time()
        self._events += [
            XidEvent(at=now, xid=xid, source="kernel", uuid=gpu.uuid, pci=gpu.pci_bus_id[4:-2].lower())
            for gpu in self._gpus
            for xid in self.symptoms.get(gpu.index, HEALTHY).xids
        ]

    def restart(self) -> None:
        """Restart without stored state, as after a reboot."""
        self._judge = Judge(ChecksConfig(boot_grace=0.0))
        self._since, self.has_news = self._clock.time(), True
        self._events = []

    def _new_view(self, now: float) -> View:
        energy = WATTS * (now - self._since)
        there = [gpu for gpu in self._gpus if not self.symptoms.get(gpu.index, HEALTHY).lost]
        snapshot = Snapshot(
            at=now,
            interval=INTERVAL,
            driver=Driver(version=self.driver),
            gpus=tuple(
                Gpu(
                    identity=gpu,
                    at=now,
                    memory=Memory(total=80 << 30, used=60 << 30),
                    power=Power(average=WATTS, energy=energy),
                    clock_events=ClockEvents(active={"hw_thermal_slowdown": False, "hw_power_brake_slowdown": False}),
                    ecc=Ecc(counts={"uncorrected/volatile/total": 0, "corrected/volatile/total": 0}),
                    row_remap=RowRemap(pending=False, failure=False),
                    recovery_action=self.symptoms.get(gpu.index, HEALTHY).recovery_action,
                )
                for gpu in there
            ),
            statuses=tuple(
                GpuStatus(identity=gpu, state=GpuState.FRESH)
                if gpu in there
                else GpuStatus(identity=gpu, state=GpuState.LOST, detail="the driver reports that the GPU is lost")
                for gpu in self._gpus
            ),
            sources=(SourceStatus(name="nvml", up=True, last_success=now),),
            node=self.node,
            host=self.host,
        )
        events, self._events = self._events, []
        judgement = self._judge.judge(snapshot, events)
        return View(
            snapshot=snapshot,
            agent=AgentStatus(version=__version__, started=self._since),
            attribution=Attribution(withheld=self.withheld),
            judgement=judgement,
        )
