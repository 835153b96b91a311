"""The GPUs as PCI devices: on the bus, all of them, answering, with all lanes, and without errors or detours."""

from gpuwatch.diagnose.check import CheckContext, CheckVerdict, DiagnosticCheck, failed, passed, skipped, warned
from gpuwatch.diagnose.checks.driver_origin import is_vgpu_host
from gpuwatch.diagnose.checks.kernel_log import gpu_name, index_by_address, nvml_indexes, nvml_works, selected_gpus
from gpuwatch.diagnose.checks.per_gpu import agent_verdict, count_gpus
from gpuwatch.diagnose.checks.remedies import DRAIN, KERNEL_LOG, REBOOT
from gpuwatch.diagnose.model import CheckStage
from gpuwatch.host.pci import BusGpu
from gpuwatch.model.pci import pci_key
from gpuwatch.model.text import number

_SHOW_ACS = "lspci -vvv | grep -E '^[0-9a-f]|ACSCtl'"
_HARMLESS = frozenset({"UnsupReq"})
"""A request for a register that does not exist: probing for hardware causes it."""
_WITHOUT_PEERS = frozenset({"GeForce", "GeForce RTX"})
_SIBLINGS = 3
"""This many others of its model show how a machine is built."""


def check_gpus_on_the_bus(context: CheckContext) -> CheckVerdict:
    bus = context.facts.bus or ()
    if not bus and nvml_works(context):
        return skipped("NVML has GPUs that are on no PCI bus, as on Jetson or in WSL")
    return passed(count_gpus(len(bus))) if bus else failed("no NVIDIA GPU on the PCI bus")


def check_all_gpus(context: CheckContext) -> CheckVerdict:
    wanted, source = _expected(context)
    if wanted is None:
        return skipped("it is not configured how many GPUs this node should have")
    facts, bus = context.facts, context.facts.bus or ()
    evidence = {"expected": f"{wanted}, says {source}", "on the bus": ", ".join(gpu.address for gpu in bus)}
    if len(bus) < wanted:
        driver_gpus = facts.nodes.gpus if facts.nodes else {}
        known = {*index_by_address(context), *(pci_key(address) or "" for address in driver_gpus)} - {""}
        missing = sorted(known - {pci_key(gpu.address) for gpu in bus})
        names = f" (missing: {', '.join(f'{key}.0' for key in missing)})" if missing else ""
        gpus = tuple(index for key, index in index_by_address(context).items() if key in missing)
        silent = facts.view.snapshot.unanswered if facts.view else {}
        if not gpus and len(silent) == wanted - len(bus):  # those without an answer are those that are missing
            gpus = tuple(sorted(silent))
        return failed(f"{len(bus)} of {count_gpus(wanted)} on the PCI bus{names}", evidence, gpus=gpus)
    if len(bus) > wanted and source != "the label":
        remedy = f"Correct the number that {source} gives, or find out where the other GPUs come from."
        message = f"{count_gpus(len(bus))} on the PCI bus, expected {wanted}"
        return warned(message, evidence, remedy=remedy, commands=())
    return passed(f"{len(bus)} of {wanted}")


def _expected(context: CheckContext) -> tuple[int | None, str]:
    """How many GPUs there should be, and the source of that number: the operator's settings before the label."""
    if context.expect.gpus is not None:
        return context.expect.gpus, "the expectation"
    if context.config.agent.expected_gpus is not None:
        return context.config.agent.expected_gpus, "agent.expected_gpus"
    labels = context.facts.node_labels
    count = number(labels.get("nvidia.com/gpu.count"))
    if count is not None and "-MIG-" not in labels.get("nvidia.com/gpu.product", ""):  # else it counts MIG instances
        return count, "the label"
    return None, ""


def check_answering(context: CheckContext) -> CheckVerdict:
    bus = context.facts.bus or ()
    if all(gpu.answers is None for gpu in bus):
        return skipped("not read: the configuration space of the GPUs cannot be read")
    dead = tuple(gpu for gpu in bus if gpu.answers is False)
    if dead:
        return failed(
            f"{', '.join(gpu_name(context, gpu) for gpu in dead)} answers ffffffff: it has fallen off the bus",
            {gpu.address: "configuration space reads ffffffff" for gpu in dead},
            gpus=nvml_indexes(context, dead),
        )
    return passed("all answer")


def check_width(context: CheckContext) -> CheckVerdict:
    gpus = selected_gpus(context)
    wired = {gpu.address for gpu in context.facts.bus or () if _is_as_wired(context, gpu)}
    as_wired = nvml_indexes(context, tuple(gpu for gpu in gpus if gpu.address in wired))
    at_work = agent_verdict(context, "pcie_degraded", without=as_wired)
    if at_work is not None:
        return at_work._replace(remedy=None, commands=None)
    known = tuple(gpu for gpu in gpus if gpu.link_width and gpu.link_width_max)
    if not known:
        return skipped("the kernel reports no link width, as in many virtual machines")
    narrow = tuple(gpu for gpu in known if _is_narrow(gpu) and gpu.address not in wired)
    if narrow:
        first = narrow[0]
        more = f" and {len(narrow) - 1} more" if len(narrow) > 1 else ""
        return warned(
            f"PCIe link of {gpu_name(context, first)}{more} is x{first.link_width} of x{first.link_width_max}",
            {gpu.address: f"x{gpu.link_width} of x{gpu.link_width_max}" for gpu in narrow},
            gpus=nvml_indexes(context, narrow),
        )
    fewer = f"; {count_gpus(len(wired))} in a slot that gives no more, or that does not report it" if wired else ""
    return passed(", ".join(sorted({f"x{gpu.link_width}" for gpu in known})) + fewer)


def _is_narrow(gpu: BusGpu) -> bool:
    return bool(gpu.link_width and gpu.link_width_max) and (gpu.link_width or 0) < (gpu.link_width_max or 0)


def _is_as_wired(context: CheckContext, gpu: BusGpu) -> bool:
    """Whether a narrow link is how this machine is built: the slot has no more lanes, or a hypervisor hides them.
    Where several others of its model all have more lanes, it counts as broken.
    """
    slot = next((port.link_width_max for port in gpu.ports[:1]), None)
    if not _is_narrow(gpu) or (slot is not None and slot > (gpu.link_width or 0)):
        return False
    others = [o for o in context.facts.bus or () if o.device_id == gpu.device_id and o.address != gpu.address]
    return len(others) < _SIBLINGS or any((o.link_width or 0) <= (gpu.link_width or 0) for o in others)


def check_errors(context: CheckContext) -> CheckVerdict:
    gpus = selected_gpus(context)
    parts = {gpu.address: {gpu.address: gpu.aer, **{port.address: port.aer for port in gpu.ports}} for gpu in gpus}
    counted = {address: aer for counters in parts.values() for address, aer in counters.items() if aer is not None}
    if not counted:
        return skipped("the kernel counts no PCIe errors here (no AER, or the firmware keeps it)")
    bad: dict[str, dict[str, int]] = {}
    for address, aer in counted.items():
        for kind, counts in (("fatal", aer.fatal), ("non-fatal", aer.nonfatal)):
            found = {f"{kind} {name}": count for name, count in counts.items() if name not in _HARMLESS}
            if found:
                bad.setdefault(address, {}).update(found)
    if bad:
        total = sum(sum(errors.values()) for errors in bad.values())
        evidence = {at: ", ".join(f"{name} {count}" for name, count in errors.items()) for at, errors in bad.items()}
        hit = tuple(gpu for gpu in gpus if parts[gpu.address].keys() & bad.keys())
        return warned(f"{total} uncorrectable PCIe errors since boot", evidence, gpus=nvml_indexes(context, hit))
    corrected = sum(sum(aer.correctable.values()) for aer in counted.values())
    return passed(f"none uncorrectable, {corrected} corrected")


def check_peer_to_peer(context: CheckContext) -> CheckVerdict:
    bus = context.facts.bus or ()
    if reason := _without_peers(context, bus):
        return skipped(reason)
    ports = {port.address: port for gpu in bus for port in gpu.ports if port.kind == "downstream"}
    redirecting = {address: "redirects to the root complex" for address, port in ports.items() if port.redirects}
    translated = {gpu.address: f"IOMMU domain {gpu.iommu}" for gpu in bus if (gpu.iommu or "").startswith("DMA")}
    machine = context.facts.kernel.machine if context.facts.kernel else None
    if redirecting:
        off = tuple(f"setpci -s {address} ECAP_ACS+6.w=0000" for address in redirecting)
        message = f"ACS redirect is on at {len(redirecting)} switch ports: peer-to-peer is slow"
        return warned(message, redirecting, commands=(_SHOW_ACS, *off))
    if translated and machine != "aarch64":  # there, addresses are always translated, and peers stay fast
        return warned(
            "the IOMMU translates the GPUs' addresses: peer-to-peer over PCIe is slow or fails",
            translated,
            remedy="On bare metal boot with iommu=pt, or switch the IOMMU off in the BIOS. Leave it on where GPUs are "
            "given to virtual machines.",
            commands=("cat /proc/cmdline",),
        )
    if all(port.redirects is None for port in ports.values()):
        return skipped("not read: only root may read the ACS registers")
    return passed("no redirect, no translation")


def _without_peers(context: CheckContext, bus: tuple[BusGpu, ...]) -> str | None:
    """Why these GPUs exchange no data, or have no shorter way than over the root complex."""
    if len(bus) < 2:
        return "one GPU has no peer"
    brands = {gpu.identity.brand for gpu in context.gpus}
    if is_vgpu_host(context) or any(gpu.driver == "vfio-pci" for gpu in bus):
        return "GPUs are given to virtual machines, which needs the IOMMU and ACS"
    if brands and brands <= _WITHOUT_PEERS:
        return "GeForce boards have no peer-to-peer over PCIe"
    has_switch = any(port.kind == "downstream" for gpu in bus for port in gpu.ports)
    return None if has_switch else "no PCIe switch above the GPUs that would be a shorter way"


PCI_BUS: tuple[DiagnosticCheck, ...] = (
    DiagnosticCheck(
        "H01", CheckStage.HOST, "the PCI bus has NVIDIA GPUs",
        how="/sys/bus/pci/devices: vendor 0x10de, class 0x03xx, no virtual functions",
        remedy="If this machine should have GPUs: power it off fully and on; check seating, power cables and the "
        "BMC's log. In a virtual machine, check that the hypervisor passes the GPUs through.",
        commands=("lspci -nn -d 10de:",),
        judge=check_gpus_on_the_bus, reads=("bus",),
    ),
    DiagnosticCheck(
        "H02", CheckStage.HOST, "as many GPUs are on the bus as the node should have",
        how="the PCI bus against --expect, agent.expected_gpus or the label nvidia.com/gpu.count",
        remedy="A GPU fell off the bus. Drain the node, power it off fully (a reboot may not be enough) and on. If "
        "the GPU stays away: check seating, power cables and the BMC's log, then replace it.",
        commands=(DRAIN, "lspci -nn -d 10de:", KERNEL_LOG),
        judge=check_all_gpus, needs=("H01",), reads=("bus",), each=True,
    ),
    DiagnosticCheck(
        "H03", CheckStage.HOST, "every GPU answers on the bus",
        how="the first register of /sys/bus/pci/devices/*/config",
        remedy="Work on this GPU is lost. Drain and reboot the node; if the GPU stays away, power it off and on. If "
        "it happens again: check power, cooling and seating, then replace the GPU.",
        commands=(KERNEL_LOG, DRAIN, REBOOT),
        judge=check_answering, needs=("H01",), reads=("bus",), each=True,
    ),
    DiagnosticCheck(
        "H04", CheckStage.HOST, "every GPU's PCIe link has all its lanes",
        how="link width of GPU and slot in sysfs; the agent's finding pcie_degraded for a low speed under load",
        remedy="Transfers of this GPU are slower. When the node is free, reseat the GPU or its riser and check the "
        "slot's bifurcation in the BIOS; a slot with fewer lanes cannot do better.",
        commands=("nvidia-smi --query-gpu=index,pcie.link.width.current,pcie.link.width.max --format=csv",),
        judge=check_width, needs=("H01", "H03"), reads=("bus",),
    ),
    DiagnosticCheck(
        "H05", CheckStage.HOST, "no uncorrectable PCIe errors",
        how="aer_dev_fatal and aer_dev_nonfatal of the GPUs and the bridges above them",
        remedy="The link loses data. If the number grows: drain the node, reseat GPU, riser or cable, update BIOS and "
        "switch firmware; then replace the GPU.",
        commands=("grep -H . /sys/bus/pci/devices/*/aer_dev_nonfatal | grep -v ' 0$'", "dmesg | grep AER"),
        judge=check_errors, needs=("H01", "H03"), reads=("bus",),
    ),
    DiagnosticCheck(
        "H06", CheckStage.HOST, "GPUs reach each other over PCIe directly",
        how="ACS control of the PCIe switches above the GPUs; type of their IOMMU groups",
        remedy="Peer traffic takes the way through the CPU. On bare metal switch ACS off in the BIOS, or with setpci "
        "at each boot. Leave it on where virtual machines get GPUs.",
        commands=(_SHOW_ACS, "setpci -s PORT ECAP_ACS+6.w=0000"),
        judge=check_peer_to_peer, needs=("H01",), reads=("bus",), level="full",
    ),
)  # fmt: skip
