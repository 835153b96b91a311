"""The ways in which device plugins and DRA drivers name a GPU or a MIG instance, read into one record.

GPU-<uuid>  MIG-<uuid>              NVIDIA device plugin, deviceIDStrategy uuid
MIG-GPU-<uuid>/<gi>/<ci>            the same on drivers before R470
0  0:1                              deviceIDStrategy index: GPU, or GPU:MIG device
...::<replica>                      time-slicing and MPS replicas of any of these
nvidia0[/gi3][/vgpu1]               GKE device plugin: /dev minor, GPU instance, time-shared slot
gpu-0                               NVIDIA DRA driver: minor (NVML index before v25.8)
gpu-0-mig-19-3-1                    profile id, placement start, size
gpu-0-mig-1g5gb-19-3                profile, profile id, placement start
vendor.com/class=<any of these>     CDI name; DRA puts the claim's uid and a dash before the device
"""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from gpuwatch.model.snapshot import Gpu, MigInstance, Record


class DeviceId(Record, frozen=True, kw_only=True):
    """One parsed id. Exactly one of `uuid`, `index` and `minor` is set; the rest narrows it down to MIG."""

    uuid: str | None = None  # of the GPU, or of the MIG instance when it starts with MIG-
    index: int | None = None
    minor: int | None = None
    mig_index: int | None = None
    gi: int | None = None
    ci: int | None = None
    mig_profile: str | None = None  # as `compact_profile` writes it
    mig_start: int | None = None  # first memory slice of the placement
    replica: str | None = None

    @property
    def names_mig(self) -> bool:
        """True when the id means a MIG instance, not a whole GPU."""
        parts = (self.mig_index, self.gi, self.mig_start)
        return (self.uuid or "").startswith("MIG-") or any(part is not None for part in parts)


_CDI = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+=(?:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}-(?=gpu-))?", re.ASCII)
_REPLICA = r"(?:::(?P<replica>[\w.-]{1,32}))?"
_FORMS = tuple(
    re.compile(form + _REPLICA, re.ASCII)
    for form in (
        r"(?P<uuid>(?:GPU|MIG)-(?!GPU-)[0-9A-Za-z-]{1,64})",
        r"MIG-(?P<uuid>GPU-[0-9A-Za-z-]{1,64})/(?P<gi>\d{1,4})/(?P<ci>\d{1,4})",
        r"(?P<index>\d{1,4})(?::(?P<mig_index>\d{1,4}))?",
        r"nvidia(?P<minor>\d{1,4})(?:/gi(?P<gi>\d{1,4}))?(?:/(?P<slot>vgpu\d{1,4}))?",
        r"gpu-(?P<minor>\d{1,4})",
        r"gpu-(?P<minor>\d{1,4})-mig-\d{1,4}-(?P<mig_start>\d{1,4})-\d{1,4}",
        r"gpu-(?P<minor>\d{1,4})-mig-(?P<mig_profile>\d+[cg][a-z0-9-]{1,40}?)-\d{1,4}-(?P<mig_start>\d{1,4})",
    )
)
_TEXT = {"uuid", "mig_profile", "replica"}


@lru_cache(maxsize=4096)  # the same few ids come back at every look
def parse_device_id(text: str) -> DeviceId | None:
    """Read one device id; None for a form that is not in the table above. Never raises."""
    text = text[cdi.end() :] if (cdi := _CDI.match(text)) else text
    for form in _FORMS:
        if match := form.fullmatch(text):
            found = {name: part for name, part in match.groupdict().items() if part is not None}
            if slot := found.pop("slot", None):
                found.setdefault("replica", slot)
            fields: dict[str, Any] = {k: v if k in _TEXT else int(v) for k, v in found.items()}
            return DeviceId(**fields)
    return None


def compact_profile(profile: str) -> str:
    """A MIG profile as DRA device names carry it: `1g.5gb+me` -> `1g5gb-me`."""
    return re.sub(r"[^a-z0-9-]", "-", profile.lower().replace(".", "")).strip("-")


class Device(NamedTuple):
    """A GPU, or one MIG instance of it."""

    gpu: Gpu
    mig: MigInstance | None = None

    @property
    def key(self) -> tuple[str, str | None]:
        """Uuid of the GPU and of the instance."""
        return self.gpu.identity.uuid, self.mig.uuid if self.mig else None


def devices_of(gpu: Gpu) -> tuple[Device, ...]:
    """What of this GPU can be allocated: its MIG instances, or itself when MIG is off."""
    return tuple(Device(gpu, mig) for mig in gpu.mig) or (Device(gpu),)


def resolve(text: str, gpus: Sequence[Gpu]) -> tuple[Device, ...]:
    """The devices behind an id; empty when it names nothing on this node.

    Several when a whole GPU is named that is cut into instances (the device plugin's MIG strategy `none`).
    """
    found = parse_device_id(text)
    if found is None:
        return ()
    if found.uuid and found.uuid.startswith("MIG-"):
        return tuple(Device(gpu, mig) for gpu in gpus for mig in gpu.mig if mig.uuid == found.uuid)
    gpu = _gpu(found, gpus)
    if gpu is None:
        return ()
    if not found.names_mig:
        return devices_of(gpu)
    wanted = (found.gi, found.ci, found.mig_index, found.mig_profile)
    instances = []
    for mig in gpu.mig:
        facts = (mig.gi, mig.ci, mig.index, compact_profile(mig.profile or ""))
        if mig.start is not None and found.mig_start not in (None, mig.start):
            continue
        if all(want is None or want == fact for want, fact in zip(wanted, facts, strict=True)):
            instances.append(mig)
    # where the driver does not report placements, a DRA name is certain only when one instance fits
    return (Device(gpu, instances[0]),) if len(instances) == 1 or (instances and found.gi is not None) else ()


def is_ambiguous(text: str, gpus: Sequence[Gpu]) -> bool:
    """Whether this names an instance by its placement on a GPU whose driver does not report placements."""
    found = parse_device_id(text)
    gpu = _gpu(found, gpus) if found is not None and found.mig_start is not None else None
    return gpu is not None and any(mig.start is None for mig in gpu.mig)


def on_instance(gpu: Gpu, gi: int | None, ci: int | None) -> Device | None:
    """Where a process with these ids runs; None when the GPU is in MIG mode and the ids do not identify an instance."""
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
