"""From a device id as the kubelet holds it to the GPU or MIG instance of this node that it means."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gpuwatch.model.device_id import DeviceId, compact_profile, parse
from gpuwatch.model.snapshot import Gpu, MigInstance


class Device(NamedTuple):
    """A GPU, or one MIG instance of it."""

    gpu: Gpu
    mig: MigInstance | None = None

    @property
    def key(self) -> tuple[str, str | None]:
        """Uuid of the GPU and of the instance."""
        return self.gpu.identity.uuid, self.mig.uuid if self.mig else None


def devices_of(gpu: Gpu) -> tuple[Device, ...]:
    """What of this GPU can be handed out: its MIG instances, or itself when it is not cut."""
    return tuple(Device(gpu, mig) for mig in gpu.mig) or (Device(gpu),)


def resolve(text: str, gpus: Sequence[Gpu]) -> tuple[Device, ...]:
    """The devices behind an id; empty when it names nothing on this node.

    Several when a whole GPU is named that is cut into instances (the device plugin's MIG strategy `none`).
    """
    found = parse(text)
    if found is None:
        return ()
    if found.uuid and found.uuid.startswith("MIG-"):
        return tuple(Device(gpu, mig) for gpu in gpus for mig in gpu.mig if mig.uuid == found.uuid)
    gpu = _gpu(found, gpus)
    if gpu is None:
        return ()
    if not found.names_mig:
        return devices_of(gpu)
    instances = [mig for mig in gpu.mig if _matches(found, mig)]
    # placement is not part of what NVML says of an instance, so a DRA name is sure only when one instance fits
    return (Device(gpu, instances[0]),) if len(instances) == 1 or (instances and found.gi is not None) else ()


def on_instance(gpu: Gpu, gi: int | None, ci: int | None) -> Device | None:
    """Where a process with these ids runs; None when the GPU is cut and the ids do not tell."""
    if not gpu.mig:
        return Device(gpu)
    fitting = [mig for mig in gpu.mig if mig.gi == gi and ci in (None, mig.ci)]
    return Device(gpu, fitting[0]) if fitting else None


def _gpu(found: DeviceId, gpus: Sequence[Gpu]) -> Gpu | None:
    def first(matching: Iterable[Gpu]) -> Gpu | None:
        return next(iter(matching), None)

    if found.uuid is not None:
        return first(gpu for gpu in gpus if gpu.identity.uuid == found.uuid)
    if found.index is not None or all(gpu.identity.minor is None for gpu in gpus):
        number = found.minor if found.index is None else found.index
        return first(gpu for gpu in gpus if gpu.identity.index == number)
    return first(gpu for gpu in gpus if gpu.identity.minor == found.minor)


def _matches(found: DeviceId, mig: MigInstance) -> bool:
    wanted = (
        (found.gi, mig.gi),
        (found.ci, mig.ci),
        (found.mig_index, mig.index),
        (found.mig_profile, compact_profile(mig.profile or "")),
    )
    return all(want is None or want == have for want, have in wanted)
