"""CHECKS of what connects a GPU: NVLink, its fabric, PCIe."""

from gpuwatch.health.check import UNDECIDED, Check, Detection, is_paced
from gpuwatch.health.gpu_history import GpuHistory, link_errors
from gpuwatch.model.finding import Remedy, Response, Severity
from gpuwatch.model.pci import pci_key

REGISTERING, REGISTERED = 2, 3
"""nvmlGpuFabricState_t; not supported and not started are no fault."""

FABRIC_HEALTH = {"degraded bandwidth": 0, "route recovery": 2, "unhealthy route": 4, "access timeout recovery": 6}
"""What is wrong when the two bits at this place of the health mask are 1 (nvml.h: 0 not supported, 2 false)."""

CONFIGURATION, CONFIGURED = 8, 1
"""The first of four bits for the fabric's configuration, and their highest value that is no error."""


def nvlinks_down(past: GpuHistory) -> Detection | None:
    """Links that are down, but have a remote end or have carried data. A link without a remote end is normal on boards
    without a full bridge, and all links rest while MIG is on. A link to a GPU that does not answer is not counted.
    """
    gpu = past.gpu
    if gpu is None or gpu.mig_enabled:
        return None
    if any(link.active is None for link in gpu.nvlinks):
        return UNDECIDED
    unseen = {
        pci_key(other.status.identity.pci_bus_id) for other in past.other_gpus if other.status and not other.is_fresh
    }
    down = [
        str(link.link)
        for link in gpu.nvlinks
        if link.active is False
        and (link.remote_pci or link.transmit_bytes)
        and (link.remote_pci is None or pci_key(link.remote_pci) not in unseen)
    ]
    links = ", ".join(down)
    return Detection(f"NVLink {links} down", {"nvlinks": links}, level=len(down)) if down else None


def nvlink_errors(past: GpuHistory) -> Detection | None:
    """Errors of all links within the last hour."""
    grown = past.nvlink_errors.amount
    if past.gpu is None or grown < past.config.nvlink_errors_per_hour:
        return None
    worst = max(past.gpu.nvlinks, key=link_errors, default=None)
    where = f", most on link {worst.link}" if worst else ""
    return Detection(f"{grown:.0f} NVLink errors within an hour{where}", {"grown": f"{grown:.0f}"})


def pcie_degraded(past: GpuHistory) -> Detection | None:
    """A busy link below its own maximum; an idle link trains down on purpose."""
    gpu = past.gpu
    if gpu is None:
        return None
    pcie, busy = gpu.pcie, gpu.utilization.gpu or 0.0
    parts = (("generation", pcie.generation, pcie.generation_max), ("width", pcie.width, pcie.width_max))
    low = [f"{name} {now} instead of {most}" for name, now, most in parts if now and most and now < most]
    if not low:
        return None
    if busy < past.config.pcie_utilization or is_paced(gpu):
        return UNDECIDED
    return Detection(f"PCIe {' and '.join(low)} at work")


def fabric_unhealthy(past: GpuHistory) -> Detection | None:
    """Registration with the NVSwitch fabric, and the fabric's own health mask."""
    fabric = past.gpu.fabric if past.gpu else None
    if fabric is None:
        return None
    if fabric.state == REGISTERING:
        return Detection("it is not registered with the NVSwitch fabric yet")
    if fabric.state == REGISTERED and fabric.status:
        return Detection(f"its registration with the NVSwitch fabric failed (status {fabric.status})")
    mask = fabric.health_mask or 0
    wrong = [words for words, shift in FABRIC_HEALTH.items() if mask >> shift & 0x3 == 1]
    wrong += ["incorrect configuration"] if mask >> CONFIGURATION & 0xF > CONFIGURED else []
    evidence = {"fabric.health_mask": hex(mask)}
    return Detection(f"its NVLink fabric reports: {', '.join(wrong)}", evidence) if wrong else None


LINK_CHECKS: tuple[Check, ...] = (
    Check(
        "nvlink_down",
        "an NVLink that leads somewhere is down",
        Severity.WARNING,
        Remedy.RESET_GPU,
        "check the NVLink bridge or the fabric manager; reset the GPU",
        Response.CONDITION,
        scope="node",
        gpu=nvlinks_down,
        reads=("nvlinks",),
        raise_after=(6, 6),
        clear_after=2,
        boot_grace=True,
    ),
    Check(
        "nvlink_errors",
        "at least {nvlink_errors_per_hour} NVLink errors within an hour",
        Severity.WARNING,
        Remedy.INSPECT,
        "check the NVLink bridge or the fabric manager; reset the GPU when its work is done",
        Response.CONDITION,
        scope="node",
        gpu=nvlink_errors,
        reads=("nvlinks",),
    ),
    Check(
        "pcie_degraded",
        "busier than {pcie_utilization} over a link of less width or an older generation than it could have",
        Severity.WARNING,
        Remedy.INSPECT,
        "reseat the GPU; check the riser and the slot",
        Response.CONDITION,
        gpu=pcie_degraded,
        reads=("pcie.width", "pcie.width_max", "pcie.generation", "pcie.generation_max", "utilization.gpu"),
        raise_after=(5, 6),
        clear_after=3,
    ),
    Check(
        "fabric_state",
        "it is not registered with its NVSwitch fabric, or the fabric is not healthy",
        Severity.WARNING,
        Remedy.INSPECT,
        "look at the fabric manager: systemctl status nvidia-fabricmanager",
        Response.CONDITION,
        scope="node",
        gpu=fabric_unhealthy,
        reads=("fabric.state",),
        raise_after=(10, 12),
        clear_after=2,
        boot_grace=True,
    ),
)
"""NVLink, its fabric, PCIe."""
