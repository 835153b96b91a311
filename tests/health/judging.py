"""A node made by hand for the judge: GPUs that are well unless said otherwise, and a clock that is turned."""

from typing import Any

from gpuwatch.config import ChecksConfig
from gpuwatch.health.history import Event
from gpuwatch.health.judge import Judge
from gpuwatch.model.finding import Finding, Judgement
from gpuwatch.model.snapshot import (
    ClockEvents,
    Clocks,
    Driver,
    Ecc,
    Fabric,
    Gpu,
    GpuState,
    GpuStatus,
    Host,
    Identity,
    Memory,
    NvLink,
    Pcie,
    Power,
    RetiredPages,
    RowRemap,
    Snapshot,
    SourceStatus,
    Temperature,
    Utilization,
)
from gpuwatch.model.workload import Attribution, DeviceUse, Holder, Workload
from gpuwatch.model.xid import XidEvent

START = 1_000_000.0
INTERVAL = 2.0
LONG_UP = 1e6
NVML = SourceStatus(name="nvml", up=True)
BOOT = Host(boot_id="boot-1")
DRIVER = Driver(version="580.95.05")


def identity(index: int = 0, uuid: str | None = None) -> Identity:
    return Identity(index=index, uuid=uuid or f"GPU-{index}", pci_bus_id=f"00000000:{index + 1:02X}:00.0")


def pci(index: int = 0) -> str:
    return f"0000:{index + 1:02x}:00"


WELL: dict[str, Any] = {
    "utilization": Utilization(gpu=0.9, memory=0.4),
    "memory": Memory(total=80 << 30, used=70 << 30, free=9 << 30, reserved=1 << 30),
    "temperature": Temperature(gpu=62.0, margin=25.0),
    "clocks": Clocks(sm=1.9e9, sm_max=1.98e9),
    "clock_events": ClockEvents(active={"gpu_idle": False, "sw_power_cap": True, "hw_thermal_slowdown": False}),
    "pcie": Pcie(generation=5, generation_max=5, width=16, width_max=16, replays=0),
    "nvlinks": (NvLink(link=0, active=True, remote_pci="00000000:C0:00.0", errors={"replay": 3, "symbol": 10**9}),),
    "ecc": Ecc(
        enabled=True,
        counts={"uncorrected/volatile/total": 0, "corrected/volatile/total": 7},
        sram_threshold_exceeded=False,
        channel_repair_pending=False,
        tpc_repair_pending=False,
        unrepairable_memory=False,
    ),
    "row_remap": RowRemap(corrected=0, uncorrected=0, pending=False, failure=False),
    "retired_pages": RetiredPages(single_bit=0, double_bit=0, pending=False),
    "fabric": Fabric(state=3, status=0, health_mask=0x1AA),
    "recovery_action": 0,
    "mig_enabled": False,
    "mig_pending": False,
    "processes": (),
}
"""A GPU at work with nothing wrong, and every reading there."""


class Bench:
    """A judge and what it is shown. `cycle` turns the clock by one interval and judges."""

    def __init__(self, *gpus: int, memory: tuple[Finding, ...] = (), uptime: float = LONG_UP, **checks: Any) -> None:
        self.indices = gpus or (0, 1)
        self.now = START
        self.energy = dict.fromkeys(self.indices, 1e6)
        self.parts: dict[int, dict[str, Any]] = {index: {} for index in self.indices}
        self.states: dict[int, GpuState] = dict.fromkeys(self.indices, GpuState.FRESH)
        self.node: dict[str, Any] = {"sources": (NVML,), "host": BOOT, "driver": DRIVER}
        self.attribution = Attribution()
        self.config = ChecksConfig(**checks)
        self.judge = Judge(self.config, memory, uptime=uptime)
        self.last = Judgement()

    def restart(self, **node: Any) -> None:
        """A new agent that remembers what the old one had found."""
        self.judge = Judge(self.config, self.last.findings, uptime=LONG_UP)
        self.node |= node

    def make(self, index: int, **parts: Any) -> None:
        """From now on GPU `index` reads so; without parts it is well."""
        self.parts[index] = parts

    def hold(self, *pods: Workload, gpu: int = 0, gi: int | None = None) -> None:
        """The kubelet gave the GPU, or an instance of it, to these."""
        holders = tuple(Holder(workload=pod) for pod in pods)
        kept = tuple(use for use in self.attribution.devices if (use.gpu, use.gi) != (f"GPU-{gpu}", gi))
        use = DeviceUse(gpu=f"GPU-{gpu}", gi=gi, allocated=bool(pods), holders=holders)
        self.attribution = Attribution(devices=(*kept, use))

    def snapshot(self) -> Snapshot:
        gpus = tuple(
            Gpu(
                identity=identity(index),
                at=self.now,
                power=Power(energy=self.energy[index]),
                **{**WELL, **self.parts[index]},
            )
            for index in self.indices
            if self.states[index] is GpuState.FRESH
        )
        statuses = tuple(
            GpuStatus(identity=identity(index), state=self.states[index], detail="why", since=self.now)
            for index in self.indices
        )
        known = {"at": self.now, "interval": INTERVAL, "gpus": gpus, "statuses": statuses}
        return Snapshot(**{**known, **self.node})

    def cycle(self, *events: Event, times: int = 1, seconds: float = INTERVAL) -> Judgement:
        """Judge `times` cycles; the events come with the first."""
        for number in range(times):
            self.now += seconds
            for index in self.indices:
                self.energy[index] += 100.0 * seconds
            self.last = self.judge.judge(self.snapshot(), events if number == 0 else (), self.attribution)
        return self.last

    def pass_time(self, seconds: float) -> Judgement:
        """Judge until so much time has passed, in the longest steps that count fully."""
        return self.cycle(times=round(seconds / (3 * INTERVAL)) + 1, seconds=3 * INTERVAL)

    def xid(self, xid: int, gpu: int = 0, **parts: Any) -> XidEvent:
        """An XID of now, as the kernel log and the driver's event report it; of one of them with `source`."""
        known: dict[str, Any] = {"at": self.now + INTERVAL / 2, "source": "kernel", "message": "text", "pci": pci(gpu)}
        both = {} if "source" in parts else {"also": "nvml"}
        return XidEvent(**{"xid": xid, "uuid": f"GPU-{gpu}", **known, **both, **parts})

    def checks(self) -> set[str]:
        return {finding.check for finding in self.last.findings}

    def finding(self, check: str) -> Finding:
        (found,) = (finding for finding in self.last.findings if finding.check == check)
        return found


def pod(name: str) -> Workload:
    return Workload(namespace="ml", pod=name, container="main", pod_uid=f"uid-{name}")
