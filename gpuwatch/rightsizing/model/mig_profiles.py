"""The MIG profiles of each GPU model, as data: `mig_profiles.json` beside this file, one profile a line.

What NVML reports of a GPU that is in MIG mode is authoritative (nvmlDeviceGetGpuInstanceProfileInfoV and
nvmlDeviceGetGpuInstancePossiblePlacements). Advice, though, is about GPUs that are not in that mode, and about those of
other nodes: it uses this table. It is loaded on first use only, in about a millisecond.
"""

import re
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from pathlib import Path

import msgspec

from gpuwatch.model.decoding import prepared

GIB = 2**30
SAME_MEMORY = 0.03
"""Drivers differ by less, relatively, in the memory of an instance of one profile."""

KEPT = 1024
"""Results that are cached: names are few, but the memory size that is passed may vary a little with each call."""

MEDIA = "+me"
"""Ends the name of a profile with the media engines, of which a GPU can have one instance."""

_INSTANCE = re.compile(r"(?:(?P<compute>\d)c\.)?(?P<whole>\d+g\.\d+gb\S*)")


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One kind of GPU instance. Memory bandwidth and L2 come with memory slices, multiprocessors with `sm_count`."""

    name: str
    compute_slices: int
    memory_slices: int
    max_instances: int
    memory_gib_usable: float | None
    """As `nvidia-smi mig -lgip` shows it, the least where drivers differ; None: not known."""
    planning_gib: float
    """What to count on: as above, else 0.88 of the gigabytes in the name, and 0.83 where it is one memory slice."""
    sm_count: int | None
    sm_fraction: float | None
    """Of the multiprocessors that the GPU has without MIG."""
    sm_fraction_nominal: float
    """By compute slices: a fifth too much (H100 1g.10gb: 0.143 for 0.121), or too little (1g.20gb: 0.143 for 0.197)."""
    memory_fraction: float
    starts: tuple[int, ...]
    """Memory slices at which an instance can begin."""
    size: int
    """Memory slices it takes from there."""

    @property
    def resource(self) -> str:
        """Its name with the device plugin's strategy `mixed`."""
        return f"nvidia.com/mig-{self.name.replace('+', '.')}"

    @property
    def memory(self) -> int:
        """Bytes that may be counted on."""
        return int((self.memory_gib_usable or self.planning_gib) * GIB)

    @property
    def sm_share(self) -> float:
        """Of the GPU's multiprocessors; see `estimated`."""
        return self.sm_fraction_nominal if self.sm_fraction is None else self.sm_fraction

    @property
    def estimated(self) -> bool:
        """Whether memory or multiprocessors are computed from the name, as no measurement is known."""
        return self.memory_gib_usable is None or self.sm_fraction is None

    @property
    def media(self) -> bool:
        """Has the media engines: at most one instance of such profiles fits a GPU."""
        return self.name.endswith(MEDIA)


class GpuModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A GPU that can be cut."""

    name: str
    names: tuple[str, ...]
    """As NVML writes it, without `NVIDIA `, as shell patterns."""
    pci_device_ids: tuple[str, ...]
    """Device and vendor, as mig-parted's device-filter expects them."""
    memory_gb: int
    sm_total: int | None
    compute_slices: int
    memory_slices: int
    min_driver: str
    sources: tuple[str, ...]
    profiles: tuple[Profile, ...]
    note: str | None = None

    def share(self, profile: Profile) -> float:
        """Share of the GPU that an instance takes: by memory or by compute, whichever is more."""
        return max(profile.memory_slices / self.memory_slices, profile.compute_slices / self.compute_slices)

    def plain(self) -> tuple[Profile, ...]:
        """What to choose from, least first: no media engines, and 3g before 4g, which has no more memory."""
        chosen = (profile for profile in self.profiles if not profile.media)
        return tuple(sorted(chosen, key=lambda profile: (profile.memory_slices, profile.compute_slices)))


class Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file."""

    sources: dict[str, str]
    gpus: tuple[GpuModel, ...]


@cache
def table() -> Table:
    """The data file, decoded once."""
    return msgspec.json.decode(Path(__file__).with_name("mig_profiles.json").read_bytes(), type=prepared(Table))


@lru_cache(maxsize=KEPT)
def model_of(name: str | None, memory_total: int | None = None) -> GpuModel | None:
    """The model by its NVML name, such as `NVIDIA H100 80GB HBM3`, or by a product label with dashes.

    `memory_total`: bytes of the GPU, or of one of its instances; where they cannot be of that model, another model
    with the same name is taken. None: it cannot be cut, or is not in the table.
    """
    if name is None:
        return None
    plain = _plain(name)
    for gpu in table().gpus:
        # whole GPUs report 0.92 to 1.0 of the name's size; instances half of it or less
        share = memory_total / GIB / gpu.memory_gb if memory_total else 1.0
        is_its_size = share <= 0.6 or 0.9 <= share <= 1.02
        if is_its_size and any(fnmatchcase(plain, _plain(pattern)) for pattern in gpu.names):
            return gpu
    return None


@lru_cache(maxsize=KEPT)
def of(model_name: str | None, memory_total: int | None = None) -> tuple[Profile, ...]:
    """What to choose from on a GPU, least first (`GpuModel.plain`); empty where the model is unknown or has no MIG."""
    model = model_of(model_name, memory_total)
    return model.plain() if model else ()


@lru_cache(maxsize=KEPT)
def instance(model_name: str | None, memory_total: int | None, profile: str | None) -> Profile | None:
    """The profile of a MIG device by its name: `1g.10gb`, `1g.10gb+me`, and `1c.3g.40gb` for a part of a 3g.40gb.

    A part has all memory of its instance, and the multiprocessors of as many 1g instances as it has compute slices.
    """
    model = model_of(model_name, memory_total)
    found = _INSTANCE.fullmatch(profile or "")
    if not model or not found:
        return None
    whole = next((each for each in model.profiles if each.name == found["whole"]), None)
    if whole is None or found["compute"] is None:
        return whole
    compute_slices = int(found["compute"])
    slice_ = model.plain()[0]
    return msgspec.structs.replace(
        whole,
        name=f"{compute_slices}c.{whole.name}",
        compute_slices=compute_slices,
        sm_count=None if slice_.sm_count is None else slice_.sm_count * compute_slices,
        sm_fraction=None if slice_.sm_fraction is None else slice_.sm_fraction * compute_slices,
        sm_fraction_nominal=slice_.sm_fraction_nominal * compute_slices,
    )


def name_of(
    model_name: str | None, memory_total: int, multiprocessors: int, copy_engines: int, ofa_engines: int | None
) -> str | None:
    """The name of a MIG device by what it has, the inverse of `instance`; None where several have the same.

    Memory and engines are those of its GPU instance: a copy engine for each compute slice (a whole Hopper GPU has one
    more), and the one for optical flow only with the media engines. The multiprocessors are its own.
    """
    model = model_of(model_name, memory_total)
    fits = [
        profile
        for profile in (model.profiles if model else ())
        if profile.memory_gib_usable
        and abs(memory_total / GIB / profile.memory_gib_usable - 1) < SAME_MEMORY
        and profile.compute_slices == min(copy_engines, 7)
    ]
    if len(fits) > 1 and ofa_engines is not None:
        fits = [profile for profile in fits if profile.media == (ofa_engines > 0)]
    slices = model.plain()[0].sm_count if model else None
    if len(fits) != 1 or not slices or not multiprocessors:
        return None
    if multiprocessors == fits[0].sm_count:
        return fits[0].name
    return None if multiprocessors % slices else f"{multiprocessors // slices}c.{fits[0].name}"


def _plain(name: str) -> str:
    return name.lower().removeprefix("nvidia").replace("-", " ").strip()
