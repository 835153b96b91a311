"""Users of GPUs: the kubelet's allocations, owners of processes, and the two joined.

Unknown is `None`: a pod found only through its processes may have a uid and no name, one known only to the
kubelet a name and no uid.
"""

from typing import Literal

from gpuwatch.model.snapshot import Record


class Workload(Record, frozen=True, kw_only=True):
    """One container of a pod."""

    namespace: str | None = None
    pod: str | None = None
    container: str | None = None
    pod_uid: str | None = None


class Allocation(Record, frozen=True, kw_only=True):
    """Devices the kubelet gave to a container, under one resource name or one dynamic claim.

    `device_ids` are the device plugin's or DRA driver's own ids (see `workloads.devices`). `resource` is
    `nvidia.com/gpu`, `nvidia.com/mig-1g.10gb`, ..., or for dynamic allocation the driver's name; `claim` is
    `namespace/name` of the ResourceClaim.
    """

    workload: Workload
    resource: str
    device_ids: tuple[str, ...]
    claim: str | None = None


class Allocatable(Record, frozen=True, kw_only=True):
    """All devices the kubelet could allocate under one resource name (GetAllocatableResources)."""

    resource: str
    device_ids: tuple[str, ...]


class Container(Record, frozen=True):
    """A container outside Kubernetes, as its runtime has it; `project` and `service` of compose."""

    name: str = ""
    image: str | None = None  # without digest
    project: str | None = None
    service: str | None = None


class ProcessOwner(Record, frozen=True, kw_only=True):
    """The owner of a host process. `start_time` (clock ticks since boot, proc(5)) distinguishes reused pids."""

    pid: int
    start_time: int
    name: str | None = None  # the kernel's comm, 15 bytes at most; never the command line, which may hold secrets
    uid: int | None = None
    user: str | None = None
    pod_uid: str | None = None
    container_id: str | None = None
    container: Container | None = None  # None: it is in a pod, or nothing names it
    workload: Workload | None = None  # set when the process lives in a pod
    slurm_job: str | None = None
    slurm_step: str | None = None
    slurm_account: str | None = None
    slurm_partition: str | None = None
    unit: str | None = None  # the innermost systemd service

    @property
    def account(self) -> str | None:
        """The user, by number where no name is known, as ps(1) prints it."""
        return self.user or (None if self.uid is None else str(self.uid))

    @property
    def name_outside_pods(self) -> str | None:
        """The owner of work outside pods: `slurm 4711` or `user alice`. None: neither is known."""
        user = f"user {self.account}" if self.account else None
        return f"slurm {self.slurm_job}" if self.slurm_job else user


class Holder(Record, frozen=True, kw_only=True):
    """One workload on a device. `resource` None: found only by its processes, the kubelet allocated nothing."""

    workload: Workload
    resource: str | None = None
    replicas: int = 1  # slots of a time-sliced or MPS device


class DeviceUse(Record, frozen=True, kw_only=True):
    """One allocatable device, a GPU or a MIG instance, and its holders.

    A GPU that is cut into MIG instances has one row for each instance and none for itself. `allocated` None:
    there is no kubelet, and no process runs on it.
    """

    gpu: str  # uuid of the physical GPU
    mig: str | None = None  # uuid of the MIG instance
    gi: int | None = None
    ci: int | None = None
    profile: str | None = None
    allocated: bool | None = None
    holders: tuple[Holder, ...] = ()


EnergyMethod = Literal["utilization", "activity", "size"]
"""How the energy of a GPU is divided among its users: by the utilization of their processes, by the activity of their
GPU instances (GPM), or, where neither is known or all are idle, by the size of what they hold.
"""


class PodUsage(Record, frozen=True, kw_only=True):
    """What one container does on one GPU or GPU instance, summed over its own processes.

    `memory` bytes; `utilization` 0..1 of the whole GPU; `energy_share` 0..1 of the physical GPU's energy, by
    `energy_method`. The shares of one GPU sum to at most 1; the rest belongs to processes outside pods, or to none.
    """

    gpu: str
    gi: int | None = None
    workload: Workload
    processes: int = 0
    memory: int | None = None
    utilization: float | None = None
    energy_share: float = 0.0
    energy_method: EnergyMethod = "size"


class Attribution(Record, frozen=True, kw_only=True):
    """The join of GPUs, allocations and processes at one time.

    `unknown_devices` are allocated ids that name no GPU of this node: a reason to ask the kubelet again at once.
    `withheld`: uuids of GPUs of which the kubelet can allocate nothing, while it can of others; None: not known.
    """

    devices: tuple[DeviceUse, ...] = ()
    usage: tuple[PodUsage, ...] = ()
    unknown_devices: tuple[str, ...] = ()
    withheld: tuple[str, ...] | None = None
