"""The GPUs as PCI devices: there, all of them, answering, with all their lanes."""

from gpuwatch.diagnose.check import CheckContext, CheckVerdict, DiagnosticCheck, failed, passed, skipped, warned
from gpuwatch.diagnose.checks.gpu_log import blamed, indexes, meant_gpus, named, nvml_works
from gpuwatch.diagnose.checks.per_gpu import believed, many
from gpuwatch.diagnose.checks.remedies import DRAIN, KERNEL_LOG, REBOOT
from gpuwatch.diagnose.model import CheckStage
from gpuwatch.host.pci import BusGpu
from gpuwatch.model.pci import pci_key

_COUNT_LABEL, _PRODUCT_LABEL = "nvidia.com/gpu.count", "nvidia.com/gpu.product"


def _gpus_on_the_bus(context: CheckContext) -> CheckVerdict:
    bus = context.facts.bus or ()
    if not bus and nvml_works(context):
        return skipped("NVML has GPUs that are on no PCI bus, as on Jetson or in WSL")
    return passed(_count(len(bus))) if bus else failed("no NVIDIA GPU on the PCI bus")


def _all_gpus(context: CheckContext) -> CheckVerdict:
    wanted, says = _expected(context)
    if wanted is None:
        return skipped("nobody says how many GPUs this node should have")
    bus = context.facts.bus or ()
    evidence = {"expected": f"{wanted}, says {says}", "on the bus": ", ".join(gpu.address for gpu in bus)}
    if len(bus) < wanted:
        missing = _missing(context)
        names = f" (missing: {', '.join(missing)})" if missing else ""
        gpus = tuple(index for key, index in indexes(context).items() if any(key in name for name in missing))
        silent = context.facts.view.snapshot.unanswered if context.facts.view else {}
        if not gpus and len(silent) == wanted - len(bus):  # those that are left are those that are gone
            gpus = tuple(sorted(silent))
        return failed(f"{len(bus)} of {_count(wanted)} on the PCI bus{names}", evidence, gpus=gpus)
    if len(bus) > wanted and says != "the label":
        return warned(
            f"{_count(len(bus))} on the PCI bus, expected {wanted}",
            evidence,
            remedy=f"Correct the number that {says} gives, or find out where the other GPUs come from.",
            commands=(),
        )
    return passed(f"{len(bus)} of {wanted}")


def _expected(context: CheckContext) -> tuple[int | None, str]:
    """How many GPUs there should be, and who says so: people before machines."""
    if context.expect.gpus is not None:
        return context.expect.gpus, "the expectation"
    if context.config.agent.expected_gpus is not None:
        return context.config.agent.expected_gpus, "agent.expected_gpus"
    labels = context.facts.cluster.node.labels if context.facts.cluster else {}
    count = labels.get(_COUNT_LABEL, "")
    if count.isdecimal() and "-MIG-" not in labels.get(_PRODUCT_LABEL, ""):  # else it counts MIG instances
        return int(count), "the label"
    return None, ""


def _missing(context: CheckContext) -> list[str]:
    """GPUs that NVML or the driver knew and the bus does not have."""
    here = {pci_key(gpu.address) for gpu in context.facts.bus or ()}
    nodes = context.facts.nodes
    known = set(indexes(context)) | {pci_key(address) or "" for address in (nodes.gpus if nodes else {})}
    return [f"{key}.0" for key in sorted(known - {""}) if key not in here]


def _answering(context: CheckContext) -> CheckVerdict:
    bus = context.facts.bus or ()
    if all(gpu.answers is None for gpu in bus):
        return skipped("not seen: the configuration space of the GPUs cannot be read")
    dead = tuple(gpu for gpu in bus if gpu.answers is False)
    if dead:
        return failed(
            f"{', '.join(named(context, gpu) for gpu in dead)} answers ffffffff: it has fallen off the bus",
            {gpu.address: "configuration space reads ffffffff" for gpu in dead},
            gpus=blamed(context, dead),
        )
    return passed("all answer")


def _width(context: CheckContext) -> CheckVerdict:
    wired = {gpu.address for gpu in context.facts.bus or () if _is_as_wired(context, gpu)}
    at_work = believed(
        context, "pcie_degraded", without=blamed(context, tuple(g for g in meant_gpus(context) if g.address in wired))
    )
    if at_work is not None:
        return at_work._replace(remedy=None, commands=None)
    seen = tuple(gpu for gpu in meant_gpus(context) if gpu.link_width and gpu.link_width_max)
    if not seen:
        return skipped("not seen: the kernel tells no link width, as in many virtual machines")
    narrow = tuple(gpu for gpu in seen if _is_narrow(gpu) and gpu.address not in wired)
    if narrow:
        first = narrow[0]
        more = f" and {len(narrow) - 1} more" if len(narrow) > 1 else ""
        return warned(
            f"PCIe link of {named(context, first)}{more} is x{first.link_width} of x{first.link_width_max}",
            {gpu.address: f"x{gpu.link_width} of x{gpu.link_width_max}" for gpu in narrow},
            gpus=blamed(context, narrow),
        )
    fewer = f"; {many(len(wired))} in a slot that gives no more, or that does not tell" if wired else ""
    return passed(", ".join(sorted({f"x{gpu.link_width}" for gpu in seen})) + fewer)


def _is_narrow(gpu: BusGpu) -> bool:
    return bool(gpu.link_width and gpu.link_width_max) and (gpu.link_width or 0) < (gpu.link_width_max or 0)


def _is_as_wired(context: CheckContext, gpu: BusGpu) -> bool:
    """Whether a narrow link is how this machine is built: the slot has no more lanes, or a hypervisor does not tell
    them. One among several of its model that all have more is broken all the same.
    """
    slot = next((port.link_width_max for port in gpu.ports[:1]), None)
    if not _is_narrow(gpu) or (slot is not None and slot > (gpu.link_width or 0)):
        return False
    others = [o for o in context.facts.bus or () if o.device_id == gpu.device_id and o.address != gpu.address]
    return len(others) < SIBLINGS or any((o.link_width or 0) <= (gpu.link_width or 0) for o in others)


SIBLINGS = 3
"""So many others of its model show how a machine is built."""


def _count(number: int) -> str:
    return f"{number} GPU{'s' if number != 1 else ''}"


BUS: tuple[DiagnosticCheck, ...] = (
    DiagnosticCheck(
        id="H01",
        stage=CheckStage.HOST,
        title="the PCI bus has NVIDIA GPUs",
        how="/sys/bus/pci/devices: vendor 0x10de, class 0x03xx, no virtual functions",
        failure="no NVIDIA GPU on the PCI bus",
        remedy="If this machine should have GPUs: power it off fully and on again; check seating, power cables and "
        "the BMC's log. In a virtual machine, check that the hypervisor passes the GPUs through.",
        commands=("lspci -nn -d 10de:",),
        judge=_gpus_on_the_bus,
        reads=("bus",),
    ),
    DiagnosticCheck(
        id="H02",
        stage=CheckStage.HOST,
        title="as many GPUs are on the bus as the node should have",
        how="the PCI bus against --expect, agent.expected_gpus or the label nvidia.com/gpu.count",
        failure="7 of 8 GPUs on the PCI bus (missing: 0000:9d:00.0)",
        remedy="A GPU fell off the bus. Drain the node, power it off fully (a reboot may not be enough) and on again. "
        "If the GPU stays away: check seating, power cables and the BMC's log, then have it replaced.",
        commands=(DRAIN, "lspci -nn -d 10de:", KERNEL_LOG),
        judge=_all_gpus,
        needs=("H01",),
        reads=("bus",),
        each=True,
    ),
    DiagnosticCheck(
        id="H03",
        stage=CheckStage.HOST,
        title="every GPU answers on the bus",
        how="the first register of /sys/bus/pci/devices/*/config",
        failure="GPU 3 (0000:61:00.0) answers ffffffff: it has fallen off the bus",
        remedy="What runs on this GPU is lost. Drain the node and reboot it; if the GPU is still away, power the "
        "machine off and on. If it happens again: check power, cooling and seating, and have the GPU replaced.",
        commands=(KERNEL_LOG, DRAIN, REBOOT),
        judge=_answering,
        needs=("H01",),
        reads=("bus",),
        each=True,
    ),
    DiagnosticCheck(
        id="H04",
        stage=CheckStage.HOST,
        title="every GPU's PCIe link has all its lanes",
        how="current_link_width and max_link_width of GPU and slot in sysfs; the agent's finding pcie_degraded for a "
        "speed that is low at work, as it falls while a GPU rests",
        failure="PCIe link of GPU 3 (0000:61:00.0) is x8 of x16",
        remedy="Transfers to and from this GPU are slower. When the node is free, reseat the GPU or its riser and look "
        "at the slot's bifurcation in the BIOS; if the slot has no more lanes, this is as good as it gets.",
        commands=("nvidia-smi --query-gpu=index,pcie.link.width.current,pcie.link.width.max --format=csv",),
        judge=_width,
        needs=("H01", "H03"),
        reads=("bus",),
    ),
)  # fmt: skip
