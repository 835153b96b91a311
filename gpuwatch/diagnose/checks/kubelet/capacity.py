"""How many devices a device plugin should advertise for the GPUs that NVML lists, and which it reports as healthy."""

from collections import Counter
from collections.abc import Iterable, Mapping

from gpuwatch.diagnose.facts import NodeFacts
from gpuwatch.model.snapshot import Gpu
from gpuwatch.model.text import number
from gpuwatch.workloads.devices import parse_device_id

DOMAIN = "nvidia.com"
WHOLE = f"{DOMAIN}/gpu"
MIG = f"{DOMAIN}/mig-"
SHARED = ".shared"


def nvidia_resources(advertised: Mapping[str, int]) -> dict[str, int]:
    """What NVIDIA's plugin advertises, shared resources under the plain name; others' resources are left out."""
    found: Counter[str] = Counter()
    for name, count in advertised.items():
        plain = name.removesuffix(SHARED)
        if plain == WHOLE or plain.startswith(MIG):
            found[plain] += count
    return dict(found)


def expected_devices(
    gpus: Iterable[Gpu], about: Mapping[str, str], advertised: Mapping[str, int]
) -> dict[str, int] | None:
    """Resource -> devices. `about`: the Node's labels; `advertised`: its resources, used where labels are missing.

    None: MIG is on, and the strategy by which it is advertised is not known.
    """
    found = Counter({name: 0 for name in advertised})
    strategy = about.get(f"{DOMAIN}/mig.strategy")
    if strategy is None and any(name.startswith(MIG) and count for name, count in advertised.items()):
        strategy = "mixed"
    for gpu in gpus:
        if not gpu.mig_enabled or strategy == "none":
            found[WHOLE] += 1
        elif strategy == "mixed":
            # `1g.10gb+me` -> `nvidia.com/mig-1g.10gb.me`
            found.update(MIG + instance.profile.replace("+", ".") for instance in gpu.mig if instance.profile)
        elif strategy == "single":
            found[WHOLE] += len(gpu.mig)
        else:
            return None
    devices = {}
    for name, count in found.items():
        # slots of each device; without a label any whole number of them is accepted
        there = advertised.get(name, 0)
        guessed = there // count if count and there and there % count == 0 else 1
        devices[name] = count * (number(about.get(f"{name}.replicas")) or guessed)
    return devices


def healthy_devices(facts: NodeFacts) -> dict[str, tuple[str, ...]] | None:
    """Resource -> devices that the plugin reported as healthy, by the kubelet's checkpoint; None: it was not read."""
    checkpoint = facts.kubelet.checkpoint if facts.kubelet else None
    if checkpoint is None:
        return None
    found: dict[str, tuple[str, ...]] = {}
    for name, ids in checkpoint.items():
        if nvidia_resources({name: 1}):
            plain = name.removesuffix(SHARED)
            found[plain] = (*found.get(plain, ()), *ids)
    return found


def gpus_without_device(facts: NodeFacts, gpus: Iterable[Gpu]) -> tuple[int, ...]:
    """NVML indexes of GPUs of which no healthy device is registered; none where devices have other names."""
    registered = healthy_devices(facts)
    parsed = [parse_device_id(each) for ids in (registered or {}).values() for each in ids]
    if registered is None or None in parsed:
        return ()
    uuids = {each.uuid for each in parsed if each}
    indexes = {each.index for each in parsed if each and each.index is not None}
    minors = {each.minor for each in parsed if each and each.minor is not None}
    return tuple(
        gpu.identity.index
        for gpu in gpus
        if not ({gpu.identity.uuid, *(instance.uuid for instance in gpu.mig)} & uuids)
        and gpu.identity.index not in indexes
        and (gpu.identity.minor is None or gpu.identity.minor not in minors)
    )


def is_shared(facts: NodeFacts, resource: str) -> bool | None:
    """Whether several pods may have one device; None: not known."""
    if resource.endswith(SHARED):
        return True
    ids = (facts.kubelet.checkpoint or {}).get(resource) if facts.kubelet else None
    if ids is not None:
        return any((parsed := parse_device_id(each)) is None or parsed.replica is not None for each in ids)
    replicas = number(facts.node_labels.get(f"{resource}.replicas"))
    return None if replicas is None else replicas > 1
