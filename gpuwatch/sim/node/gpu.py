"""One simulated GPU: its identity, its faults and its processes. No NVML here, and no time."""

from collections.abc import Iterable

import msgspec

from gpuwatch.model.pci import PciAddress
from gpuwatch.sim.node import noise
from gpuwatch.sim.node.actions import SimWorkload
from gpuwatch.sim.node.load import NOTHING, PATTERNS, Load, scaled
from gpuwatch.sim.node.profiles import MigProfile, Model

FIRST_GI = {7: 0, 4: 1, 3: 1, 2: 3, 1: 7}
"""Compute slices -> id of the first GPU instance of that size, as the driver numbers them."""


class GpuClient(msgspec.Struct, frozen=True, kw_only=True):
    """One host process of a workload on one device."""

    pid: int
    workload: SimWorkload
    stream: int  # of its noise

    def load(self, t: float) -> Load:
        """What it asks for at a simulated second."""
        load = PATTERNS[self.workload.load](t, self.stream)
        scale = self.workload.scale
        return load if scale == 1.0 else scaled(load, scale)


class Unit:
    """A unit for work: a whole GPU, or one MIG instance of it with its own counters."""

    def __init__(self, uuid: str, share: float, memory: int, profile: MigProfile | None = None, gi: int = 0) -> None:
        self.uuid, self.share, self.memory, self.profile, self.gi = uuid, share, memory, profile, gi
        self.processes: list[GpuClient] = []
        self.load = NOTHING
        self.totals = [0.0] * 5  # integrals of busy, sm, tensor, dram and the other pipes' use of the SMs over time

    def demand(self, t: float) -> Load:
        """The load of all processes together, limited to what the unit can do."""
        if not self.processes:
            return NOTHING
        if len(self.processes) == 1:
            return self.processes[0].load(t)
        loads = [process.load(t) for process in self.processes]
        total = [sum(parts) for parts in zip(*loads, strict=True)]
        scale = 1 / max(1.0, total[0])
        bound = max(load.clock_bound for load in loads)
        return Load(*[min(1.1, x * scale) for x in total])._replace(clock_bound=bound)

    @property
    def used(self) -> int:
        """MiB that its processes hold."""
        return min(self.memory, round(self.memory * sum(process.workload.memory for process in self.processes)))


class Faults:
    """The present faults of one GPU, and the counters that remain after a fault."""

    def __init__(self, links: int) -> None:
        self.lost = False
        self.off_bus = False
        self.hung = False
        self.delay = 0.0
        self.recovery_action = 0
        self.ecc: dict[tuple[str, str, str], int] = {}  # kind, scope, location
        self.remaps = {"corrected": 0, "uncorrected": 0}
        self.remap_pending = self.remap_failure = False
        self.retired = {"single_bit": 0, "double_bit": 0}
        self.retire_pending = False
        self.link_active = [True] * links
        self.link_errors: list[dict[str, int]] = [{} for _ in range(links)]
        self.fabric = (3, 0, 0)
        self.pcie_generation: int | None = None
        self.pcie_width: int | None = None
        self.pcie_replays = 0
        self.ambient: float | None = None
        self.cooling = 1.0
        self.power_brake = False
        self.channel_repair = self.tpc_repair = self.unrepairable = False
        self.inforom_corrupt = False
        self.leaked_mib = 0
        self.clock_cap: int | None = None  # MHz
        self.mig_pending = False

    def driver_reloaded(self) -> None:
        """Apply the load of a driver: it clears or repairs some faults."""
        self.hung, self.delay, self.recovery_action = False, 0.0, 0
        self.remap_pending = self.retire_pending = False
        self.channel_repair = self.tpc_repair = self.mig_pending = False
        self.leaked_mib, self.clock_cap = 0, None
        self.pcie_replays = 0
        self.ecc = {key: count for key, count in self.ecc.items() if key[1] != "volatile"}
        self.link_errors = [{} for _ in self.link_errors]


class SimGpu:
    """Identity, faults and units of one GPU."""

    def __init__(self, model: Model, index: int, seed: int, address: PciAddress) -> None:
        self.model, self.index, self.address = model, index, address
        self.stream = noise.key(seed, "gpu", index)
        self.uuid = "GPU-" + noise.uuid(seed, "gpu", index)
        self.serial = str(1650000000000 + self.stream % 10_000_000_000)
        self.power_limit = float(model.power_limit)
        self.locked_clocks: tuple[int, int] | None = None  # MHz
        self.ecc_mode = self.ecc_pending = True
        self.compute_mode, self.persistence_mode = "default", model.persistence
        self.faults = Faults(model.nvlinks)
        self.attached = True  # the driver took it when it was loaded
        self.named_in_log = False
        self.units: list[Unit] = []
        self.mig_enabled = False
        self.cut(())

    def cut(self, profiles: Iterable[str]) -> None:
        """Make instances of these MIG profiles, or one whole GPU of none. Raises KeyError for an unknown profile."""
        known = {profile.name: profile for profile in self.model.mig}
        wanted = [known[name] for name in profiles]
        taken: dict[int, int] = {}
        self.mig_enabled = bool(wanted)
        self.units = [] if wanted else [Unit(self.uuid, 1.0, self.model.memory - self.model.reserved)]
        for profile in sorted(wanted, key=lambda p: -p.slices):
            gi = FIRST_GI[profile.slices] + taken.get(FIRST_GI[profile.slices], 0)
            taken[FIRST_GI[profile.slices]] = taken.get(FIRST_GI[profile.slices], 0) + 1
            uuid = "MIG-" + noise.uuid(self.uuid, profile.name, gi)
            share = profile.multiprocessors / self.model.multiprocessors
            self.units.append(Unit(uuid, share, profile.memory, profile, gi))

    def driver_reloaded(self) -> None:
        """Apply the load of a driver: it resets settings and faults and puts others in force; a reset does the same."""
        self.faults.driver_reloaded()
        self.ecc_mode = self.ecc_pending
        self.compute_mode, self.persistence_mode = "default", self.model.persistence
        self.power_limit, self.locked_clocks = float(self.model.power_limit), None

    @property
    def processes(self) -> list[tuple[Unit, GpuClient]]:
        """Everything that runs on it."""
        return [(unit, process) for unit in self.units for process in unit.processes]
