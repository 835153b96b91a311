"""The GPUs of a node that advice may be about, from its newest View."""

from gpuwatch.model.snapshot import Gpu
from gpuwatch.model.view import View
from gpuwatch.rightsizing.model.usage import Fleet, GpuFacts, NamespaceUse


def fleet_of(view: View, namespaces: tuple[NamespaceUse, ...] = ()) -> Fleet:
    """Of one node: never whole, as another one may have more."""
    held = {
        use.gpu
        for use in view.attribution.devices
        if use.holders or use.allocated is not False  # where there is no kubelet to ask, nobody knows
    }
    return Fleet(
        gpus=tuple(_facts(view, gpu, gpu.identity.uuid in held) for gpu in view.snapshot.gpus),
        namespaces=namespaces,
        alone=True,
    )


def _facts(view: View, gpu: Gpu, held: bool) -> GpuFacts:
    identity = gpu.identity
    return GpuFacts(
        node=view.snapshot.node or "",
        uuid=identity.uuid,
        index=identity.index,
        model=identity.name,
        memory_total=gpu.memory.total,
        mig_enabled=gpu.mig_enabled,
        layout=tuple(mig.profile for mig in gpu.mig if mig.profile),
        held=held or bool(gpu.processes),
        idle_watts=None if held or gpu.processes else gpu.power.mean or gpu.power.average,
    )
