"""Hardware and software of a node, for the documents of `diagnose` and its bundles: only values that do not change by
themselves and do not identify the node.
"""

from collections.abc import Iterator

from gpuwatch.diagnose.facts import NodeFacts
from gpuwatch.model.snapshot import Gpu, NvLink

GIB = 1 << 30


def inventory(facts: NodeFacts) -> dict[str, str]:
    """Parts of a node: `driver`, `kernel`, `gpus`, `gpu.0.model`, ... -> value; unknown ones are missing.

    Serial numbers, UUIDs, names and addresses of the node are left out: they always differ.
    """
    rows = list(_software(facts))
    if facts.cluster is not None:
        rows += [(f"capacity.{resource}", count) for resource, count in sorted(facts.cluster.node.capacity.items())]
    rows.append(("gpus_on_bus", len(facts.bus) if facts.bus is not None else None))
    gpus = facts.view.snapshot.gpus if facts.view is not None else ()
    rows.append(("gpus", len(gpus) if facts.view is not None else None))
    rows += [(f"gpu.{gpu.identity.index}.{name}", value) for gpu in gpus for name, value in _gpu(gpu)]
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
    yield "nvlinks", nvlinks(gpu.nvlinks)
    yield "ecc", _switch(gpu.ecc.enabled)
    yield "mig", _switch(gpu.mig_enabled)
    yield "mig_profiles", ", ".join(sorted(instance.profile or "?" for instance in gpu.mig))
    yield "persistence", _switch(gpu.persistence_mode)
    yield "compute_mode", gpu.compute_mode
    for name, limit in (("", gpu.power.limit_configured), ("_default", gpu.power.limit_default)):
        yield f"power_limit{name}", None if limit is None else f"{limit:.0f} W"


def pcie(gpu: Gpu) -> str | None:
    """`gen5 x16`: the best generation that GPU and slot agree on, because an idle link trains down."""
    generation, width = gpu.pcie.generation_max, gpu.pcie.width
    parts = (f"gen{generation}" if generation else "", f"x{width}" if width else "")
    return " ".join(part for part in parts if part) or None


def active_links(links: tuple[NvLink, ...]) -> tuple[NvLink, ...]:
    """Links that are up."""
    return tuple(link for link in links if link.active)


def nvlinks(links: tuple[NvLink, ...]) -> str | None:
    """`18 active at 26.56 GB/s`."""
    up = active_links(links)
    speeds = sorted({link.speed_bytes_per_second for link in up if link.speed_bytes_per_second})
    each = ", ".join(f"{speed / 1e9:.4g} GB/s" for speed in speeds)
    return f"{len(up)} active" + (f" at {each}" if each else "") if links else None


def _switch(value: bool | None) -> str | None:
    return None if value is None else "on" if value else "off"


def _gib(value: int | None) -> str | None:
    return None if value is None else f"{value / GIB:.1f} GiB"
