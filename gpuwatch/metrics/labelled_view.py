"""A View prepared for the metric rows: every GPU and GPU instance beside the label text it carries in one profile."""

from collections import defaultdict
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gpuwatch.model.pci import pci_key
from gpuwatch.model.snapshot import Gpu, GpuStatus, Identity, MigInstance, NvLink
from gpuwatch.model.view import View
from gpuwatch.model.workload import Workload

if TYPE_CHECKING:
    from gpuwatch.metrics.native.rightsizing import Told

SubjectKey = tuple[str, tuple[()]]
"""The key of a sample without labels of its own; made once, so that most samples cost no new tuple."""
LinkKey = tuple[str, tuple[str | None]]
"""The key of a sample whose only label of its own is the NVLink."""
Naming = Callable[[Identity, MigInstance | None, Workload | None], str]
"""The label text of a GPU or GPU instance and the workload that has it to itself."""

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def label_text(**labels: Any) -> str:
    """`name="value",...` in the given order, values escaped, unknown and empty ones left out."""
    known = ((name, str(value)) for name, value in labels.items() if value is not None)
    return ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in known if value)


def native(identity: Identity, mig: MigInstance | None, workload: Workload | None) -> str:
    """The labels of gpuwatch's own series."""
    return label_text(
        gpu=identity.index,
        uuid=identity.uuid,
        gi=mig.gi if mig else None,
        profile=mig.profile if mig else None,
        namespace=workload.namespace if workload else None,
        pod=workload.pod if workload else None,
        container=workload.container if workload else None,
    )


class Scene:
    """What rows read. `gpus` and `instances` carry workload labels when `inline`; `subject` never does. `advice`: of
    right-sizing, where somebody gives any.
    """

    def __init__(
        self, view: View, naming: Naming = native, *, inline: bool = False, advice: "Told | None" = None
    ) -> None:
        self.view, self.advice = view, advice
        self._naming = naming
        snapshot = view.snapshot
        self._identities = {status.identity.uuid: status.identity for status in snapshot.statuses}
        self._identities |= {gpu.identity.uuid: gpu.identity for gpu in snapshot.gpus}
        self._by_pci = {pci_key(identity.pci_bus_id): uuid for uuid, identity in self._identities.items()}
        self._mig = _one_per_gpu_instance(snapshot.gpus)
        sole = _sole_workloads(view) if inline else {}
        self.gpus: list[tuple[SubjectKey, Gpu]] = [
            ((naming(gpu.identity, None, sole.get((gpu.identity.uuid, None))), ()), gpu) for gpu in snapshot.gpus
        ]
        self.instances: list[tuple[SubjectKey, MigInstance]] = [
            ((naming(self._identities[uuid], mig, sole.get((uuid, gi))), ()), mig)
            for (uuid, gi), mig in self._mig.items()
        ]

        self._subjects: dict[tuple[str, int | None], str] = {}

    def subject(self, uuid: str, gi: int | None = None) -> str:
        """Label text of a GPU or GPU instance by name, also when it is lost; never with a workload."""
        known = self._subjects.get((uuid, gi))
        if known is None:
            known = self._subjects[uuid, gi] = self._subject(uuid, gi)
        return known

    def subject_at(self, uuid: str | None, pci: str | None) -> str:
        """As `subject`, for what may know a GPU by its address only; "" for neither."""
        uuid = uuid or self._by_pci.get(pci_key(pci))
        return self.subject(uuid) if uuid else label_text(pci_bus_id=pci)

    def _subject(self, uuid: str, gi: int | None) -> str:
        identity, mig = self._identities.get(uuid), None if gi is None else self._mig.get((uuid, gi))
        if identity is None:
            return label_text(uuid=uuid, gi=gi)
        if gi is not None and mig is None:
            mig = MigInstance(index=0, uuid="", gi=gi, ci=0)
        return self._naming(identity, mig, None)

    @cached_property
    def links(self) -> list[tuple[LinkKey, NvLink]]:
        """Every NVLink of every fresh GPU."""
        return [((subject, (str(link.link),)), link) for (subject, _), gpu in self.gpus for link in gpu.nvlinks]

    @property
    def identities(self) -> list[tuple[str, Identity]]:
        """Every GPU ever seen, fresh or not."""
        return [(self.subject(uuid), identity) for uuid, identity in self._identities.items()]

    @property
    def statuses(self) -> list[tuple[str, GpuStatus]]:
        """How every GPU's last sample went."""
        return [(self.subject(status.identity.uuid), status) for status in self.view.snapshot.statuses]


def _one_per_gpu_instance(gpus: tuple[Gpu, ...]) -> dict[tuple[str, int], MigInstance]:
    """GPU instances; of several compute instances in one, which share memory and counters, the first."""
    found: dict[tuple[str, int], MigInstance] = {}
    for gpu in gpus:
        for mig in gpu.mig:
            found.setdefault((gpu.identity.uuid, mig.gi), mig)
    return found


def _sole_workloads(view: View) -> dict[tuple[str, int | None], Workload]:
    """The workload of every device that has exactly one; shared and idle devices are not in it."""
    holders: defaultdict[tuple[str, int | None], set[Workload]] = defaultdict(set)
    for device in view.attribution.devices:
        holders[device.gpu, device.gi].update(holder.workload for holder in device.holders)
    return {device: next(iter(workloads)) for device, workloads in holders.items() if len(workloads) == 1}
