"""All actions on a simulated node, as data: lines of a scenario's timeline and of `sim inject`.

`at` counts simulated seconds from the node's start; `every` repeats until `times` are over. `gpu` is an index, a list
of them or `all`.
"""

from typing import Literal

import msgspec

from gpuwatch.model.workload import Container

KubeletState = Literal["ok", "absent", "refused", "noise", "garbage", "oversized", "slow", "old", "gated", "limited"]
Gpus = int | tuple[int, ...] | Literal["all"]


class SimWorkload(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Work on GPUs: in a pod (`namespace/name`), in a Slurm job or as a plain user.

    `gpus` names GPUs by index (`0`), MIG instances (`0:2`), or slots of a shared GPU (`0::1`); one process each.
    """

    name: str  # namespace/pod for a pod, anything else otherwise
    container: str = "main"
    gpus: tuple[int | str, ...] = ()
    spare: tuple[int | str, ...] = ()  # of these, the GPUs on which it has no process
    load: str = "inference"
    scale: float = 1.0
    memory: float = 0.5  # share of the device
    process: str = "python3"
    kind: Literal["compute", "graphics", "mps"] = "compute"
    slurm: str | None = None
    account: str | None = None  # of the Slurm job
    partition: str | None = None
    user: int | None = None
    docker: Container | None = None  # outside Kubernetes
    claim: str | None = None  # it has whole GPUs by this ResourceClaim (dynamic resource allocation)
    cgroup: str | None = None  # a layout of sim.surroundings.proctree
    annotations: dict[str, str] = {}  # of its pod
    uid: str | None = None  # of its pod; None: made up from its name

    @property
    def pod(self) -> tuple[str, str] | None:
        """(namespace, pod), None outside Kubernetes."""
        if self.slurm is not None or self.user is not None:
            return None
        namespace, slash, pod = self.name.partition("/")
        return (namespace, pod) if slash else ("default", self.name)


class NodeAction(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="do"):
    """Base of all actions: when it happens."""

    at: float = 0.0
    every: float | None = None
    times: int | None = None


class GpuAction(NodeAction, frozen=True, kw_only=True):
    """Base of actions on GPUs: which GPUs."""

    gpu: Gpus


class RaiseXid(GpuAction, frozen=True, kw_only=True, tag="xid"):
    """An XID: the driver's kernel line, an NVML event, or both. `gi`: the GPU instance that has the fault."""

    xid: int
    message: str | None = None
    pid: int | None = None
    process: str | None = None
    gi: int | None = None
    ci: int | None = None
    kernel: bool = True
    event: bool = True


class RaiseSxid(NodeAction, frozen=True, kw_only=True, tag="sxid"):
    """An NVSwitch error in the kernel log."""

    sxid: int
    switch: int = 0
    severity: Literal["Fatal", "Non-fatal", "Correctable"] = "Non-fatal"
    link: int = 0
    message: str = "LTSSM Fault Up"


class WriteKernelLog(NodeAction, frozen=True, kw_only=True, tag="kernel"):
    """Any line in the kernel log; a `facility` other than 0 means that user space wrote it."""

    line: str
    facility: int = 0


class LoseGpu(GpuAction, frozen=True, kw_only=True, tag="lose"):
    """The GPU no longer answers. `announce`: with the driver's lines and XID 79; `from_bus`: sysfs loses it too."""

    announce: bool = True
    from_bus: bool = False


class RecoverGpu(GpuAction, frozen=True, kw_only=True, tag="recover"):
    """Undo every fault of the GPU, as after a reset or a power cycle."""


class HangCalls(NodeAction, frozen=True, kw_only=True, tag="hang"):
    """Calls about the GPU do not return until `unhang`; without `gpu` no call of the driver does."""

    gpu: Gpus | None = None


class ReleaseCalls(NodeAction, frozen=True, kw_only=True, tag="unhang"):
    """Let hanging calls return."""

    gpu: Gpus | None = None


class DelayCalls(GpuAction, frozen=True, kw_only=True, tag="slow"):
    """Every call about the GPU takes so many real seconds longer; 0 ends it."""

    delay: float


class ReloadDriver(NodeAction, frozen=True, kw_only=True, tag="reload"):
    """The driver is unloaded and comes back, perhaps as another version. Lost GPUs do not come back with it."""

    seconds: float = 5.0
    driver: str | None = None


class FinishReload(NodeAction, frozen=True, kw_only=True, tag="loaded"):
    """The end of a reload; the reload schedules it."""


class RefuseInit(NodeAction, frozen=True, kw_only=True, tag="refuse"):
    """nvmlInit fails with this NVML_ERROR_* from now on, such as LIB_RM_VERSION_MISMATCH; empty: no more."""

    error: str = ""


class AddEccErrors(GpuAction, frozen=True, kw_only=True, tag="ecc"):
    """Memory errors that ECC found."""

    kind: Literal["corrected", "uncorrected"] = "corrected"
    location: Literal["dram", "sram"] = "dram"
    count: int = 1


class SetEccMode(GpuAction, frozen=True, kw_only=True, tag="ecc_mode"):
    """ECC is switched on or off at the next reset."""

    on: bool


class RemapRows(GpuAction, frozen=True, kw_only=True, tag="remap"):
    """Rows are taken out of service (Ampere and newer)."""

    cause: Literal["corrected", "uncorrected"] = "uncorrected"
    rows: int = 1
    pending: bool = True
    failure: bool = False


class RetirePages(GpuAction, frozen=True, kw_only=True, tag="retire"):
    """Pages are retired (Turing and older)."""

    cause: Literal["single_bit", "double_bit"] = "double_bit"
    pages: int = 1
    pending: bool = True


class RequireRepair(GpuAction, frozen=True, kw_only=True, tag="repair"):
    """Memory or multiprocessors wait for a repair at the next reset, or are beyond one (Hopper and newer)."""

    channel: bool = False
    tpc: bool = False
    unrepairable: bool = False


class CorruptInforom(GpuAction, frozen=True, kw_only=True, tag="inforom"):
    """The GPU's configuration memory is corrupt: values stored there cannot be read."""


class LeakMemory(GpuAction, frozen=True, kw_only=True, tag="zombie"):
    """Memory stays in use without a process until a reset, as after a process that died inside a call."""

    mebibytes: int = 20_000


class CapClock(GpuAction, frozen=True, kw_only=True, tag="stuck_clock"):
    """Clocks do not rise above so many MHz, and the driver names no reason; None ends it."""

    megahertz: int | None = None


class RequestMigChange(GpuAction, frozen=True, kw_only=True, tag="mig_pending"):
    """MIG mode is to change at the next reset."""


class SetCooling(GpuAction, frozen=True, kw_only=True, tag="thermal"):
    """Temperature of inlet air in degrees, and effect of the cooling, 1 being normal."""

    ambient: float | None = None
    cooling: float = 1.0


class SetPowerBrake(GpuAction, frozen=True, kw_only=True, tag="power_brake"):
    """The power supply pulls the brake line of the board."""

    engaged: bool = True


class SetPowerLimit(GpuAction, frozen=True, kw_only=True, tag="power_limit"):
    """The power limit is set; values out of range are clamped."""

    watts: float


class LockClocks(GpuAction, frozen=True, kw_only=True, tag="lock_clocks"):
    """The SM clock is locked to these MHz, or unlocked without `highest`. A driver load unlocks it, too."""

    lowest: int = 0
    highest: int | None = None


class SetComputeMode(GpuAction, frozen=True, kw_only=True, tag="compute_mode"):
    """How many processes may use the GPU: nvmlComputeMode_t."""

    mode: Literal["default", "exclusive_thread", "prohibited", "exclusive_process"]


class SetPersistenceMode(GpuAction, frozen=True, kw_only=True, tag="persistence_mode"):
    """Whether the driver keeps the GPU initialised while no process uses it."""

    on: bool


class SetNvlink(GpuAction, frozen=True, kw_only=True, tag="nvlink"):
    """Links go down or up, or count errors by their names in `collect.nvml.links.ERRORS`."""

    link: int | None = None  # None: all of them
    active: bool | None = None
    errors: dict[str, int] = {}


class SetFabric(GpuAction, frozen=True, kw_only=True, tag="fabric"):
    """NVSwitch fabric registration: nvmlGpuFabricState_t and health mask."""

    state: int = 3
    status: int = 0
    health: int = 0


class SetPcie(GpuAction, frozen=True, kw_only=True, tag="pcie"):
    """The link trains lower, or replays packets."""

    generation: int | None = None
    width: int | None = None
    replays: int = 0


class RequestRecovery(GpuAction, frozen=True, kw_only=True, tag="recovery_action"):
    """The GPU asks for NVML_GPU_RECOVERY_ACTION_*: field, event, and XID 154 in the log."""

    action: int


class StartWorkload(NodeAction, frozen=True, kw_only=True, tag="start"):
    """Work begins: a pod or process appears."""

    workload: SimWorkload


class StopWorkload(NodeAction, frozen=True, kw_only=True, tag="stop"):
    """Work of that name ends."""

    name: str


class SetMigProfiles(GpuAction, frozen=True, kw_only=True, tag="mig"):
    """Cut the GPU into instances of these profiles; an empty list switches MIG off. What ran there ends."""

    profiles: tuple[str, ...] = ()


class SetKubelet(NodeAction, frozen=True, kw_only=True, tag="kubelet"):
    """A fault of `sim.surroundings.kubelet`, or `ok`."""

    state: KubeletState


class SetDevicePlugin(NodeAction, frozen=True, kw_only=True, tag="device_plugin"):
    """The device plugin reports these GPUs unhealthy until it restarts: the same action without GPUs."""

    unhealthy: tuple[int, ...] = ()


AnyAction = (
    RaiseXid | RaiseSxid | WriteKernelLog | LoseGpu | RecoverGpu | HangCalls | ReleaseCalls | DelayCalls
    | ReloadDriver | FinishReload | RefuseInit | AddEccErrors | SetEccMode | RemapRows | RetirePages
    | RequireRepair | CorruptInforom | LeakMemory | CapClock | RequestMigChange | SetCooling | SetPowerBrake
    | SetPowerLimit | LockClocks | SetComputeMode | SetPersistenceMode | SetNvlink | SetFabric | SetPcie
    | RequestRecovery | StartWorkload | StopWorkload | SetMigProfiles | SetKubelet
    | SetDevicePlugin
)  # fmt: skip
