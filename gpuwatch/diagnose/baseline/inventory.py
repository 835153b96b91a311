"""What a node is made of, as flat text: for comparing two nodes. Nothing in it changes by itself, nothing names one."""

from collections.abc import Iterator

from gpuwatch.diagnose.facts import NodeFacts
from gpuwatch.model.snapshot import Gpu, NvLink

GIB = 1 << 30


def inventory(facts: NodeFacts) -> dict[str, str]:
    """Key -> value: `driver`, `kernel`, `gpus`, `gpu.0.model`, ...; what is unknown is missing.

    Serial numbers, UUIDs, names and addresses of the node are left out: they differ by right.
    """
    rows = (*_software(facts), *_runtimes(facts), *_kubernetes(facts), *_gpus(facts))
    return {key: str(value) for key, value in rows if value not in (None, "")}


def _software(facts: NodeFacts) -> Iterator[tuple[str, object]]:
    if (view := facts.view) is not None and (driver := view.snapshot.driver) is not None:
        yield "driver", driver.version
        yield "cuda", driver.cuda
        yield "nvml", driver.nvml
    if (kernel := facts.kernel) is not None:
        yield "kernel", kernel.release
        yield "kernel_module", kernel.driver or kernel.module
        yield "kernel_module_flavor", kernel.flavor
        yield "secure_boot", _switch(kernel.secure_boot)
    for root in facts.driver_roots or ():
        yield f"driver_root.{root.path}", root.libraries.get("libnvidia-ml.so.1")
    if facts.services is not None:
        yield "fabric_manager", facts.services.fabric_manager
        yield "nvswitches", facts.services.switches
    if facts.limits is not None:
        yield "shared_memory", _gib(facts.limits.shm)


def _runtimes(facts: NodeFacts) -> Iterator[tuple[str, object]]:
    if (runtime := facts.runtime) is not None:
        for path, version in sorted(runtime.toolkit.items()):
            yield f"container_toolkit.{path}", version
        for config in runtime.configs:
            yield f"{config.kind}.default_runtime", config.default
            yield f"{config.kind}.runtimes", ", ".join(sorted(config.runtimes))
            yield f"{config.kind}.cdi", _switch(config.cdi)
            yield f"{config.kind}.systemd_cgroup", _switch(config.systemd_cgroup)
    for spec in facts.cdi or ():
        yield f"cdi.{spec.path}", ", ".join(spec.versions)


def _kubernetes(facts: NodeFacts) -> Iterator[tuple[str, object]]:
    if facts.cluster is not None:
        for resource, count in sorted(facts.cluster.node.capacity.items()):
            yield f"capacity.{resource}", count


def _gpus(facts: NodeFacts) -> Iterator[tuple[str, object]]:
    if facts.bus is not None:
        yield "gpus_on_bus", len(facts.bus)
    if facts.view is not None:
        gpus = facts.view.snapshot.gpus
        yield "gpus", len(gpus)
        for gpu in gpus:
            for name, value in _gpu(gpu):
                yield f"gpu.{gpu.identity.index}.{name}", value


def _gpu(gpu: Gpu) -> Iterator[tuple[str, object]]:
    identity = gpu.identity
    yield "model", identity.name
    yield "part_number", identity.board_part_number
    yield "pci_bus_id", identity.pci_bus_id
    yield "vbios", identity.vbios
    yield "inforom", identity.inforom_image
    yield "gsp_firmware", identity.gsp_firmware
    yield "numa_node", identity.numa_node
    yield "memory", _gib(gpu.memory.total)
    yield "pcie", pcie(gpu)
    yield "nvlinks", _nvlinks(gpu.nvlinks)
    yield "ecc", _switch(gpu.ecc.enabled)
    yield "mig", _switch(gpu.mig_enabled)
    yield "mig_profiles", ", ".join(sorted(instance.profile or "?" for instance in gpu.mig))
    yield "persistence", _switch(gpu.persistence_mode)
    yield "compute_mode", gpu.compute_mode
    yield "power_limit", _watts(gpu.power.limit_configured)
    yield "power_limit_default", _watts(gpu.power.limit_default)


def pcie(gpu: Gpu) -> str | None:
    """`gen5 x16`: the generation is the best that GPU and slot agree on, for an idle link trains down by right."""
    generation, width = gpu.pcie.generation_max, gpu.pcie.width
    return (
        " ".join(part for part in (f"gen{generation}" if generation else "", f"x{width}" if width else "") if part)
        or None
    )


def active(links: tuple[NvLink, ...]) -> tuple[NvLink, ...]:
    """Links that are up."""
    return tuple(link for link in links if link.active)


def _nvlinks(links: tuple[NvLink, ...]) -> str | None:
    speeds = sorted({link.speed_bytes_per_second for link in active(links) if link.speed_bytes_per_second})
    each = ", ".join(f"{speed / 1e9:.4g} GB/s" for speed in speeds)
    return f"{len(active(links))} active" + (f" at {each}" if each else "") if links else None


def _switch(value: bool | None) -> str | None:
    return None if value is None else "on" if value else "off"


def _gib(value: int | None) -> str | None:
    return None if value is None else f"{value / GIB:.1f} GiB"


def _watts(value: float | None) -> str | None:
    return None if value is None else f"{value:.0f} W"
