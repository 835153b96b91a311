"""The GPUs as PCI devices: there, all of them, answering, with all their lanes and without errors."""

from gpuwatch.diagnose.check import Case, Check, Verdict, failed, passed, skipped, warned
from gpuwatch.diagnose.gpu_log import blamed, indexes, named, nvml_works
from gpuwatch.diagnose.remedies import DRAIN, KERNEL_LOG, REBOOT
from gpuwatch.model.diagnosis import Stage
from gpuwatch.model.pci import pci_key
from gpuwatch.sources.pci import BusGpu
from gpuwatch.sources.pci_config import Aer

_COUNT_LABEL, _PRODUCT_LABEL = "nvidia.com/gpu.count", "nvidia.com/gpu.product"
_SHOW_ACS = "lspci -vvv | grep -E '^[0-9a-f]|ACSCtl'"
_HARMLESS = {"UnsupReq"}
"""Somebody asked for a register that is not there: as common as probing for hardware."""


def _gpus_on_the_bus(case: Case) -> Verdict:
    bus = case.facts.bus or ()
    if not bus and nvml_works(case):
        return skipped("NVML has GPUs that are on no PCI bus, as on Jetson or in WSL")
    return passed(_count(len(bus))) if bus else failed("no NVIDIA GPU on the PCI bus")


def _all_gpus(case: Case) -> Verdict:
    wanted, says = _expected(case)
    if wanted is None:
        return skipped("nobody says how many GPUs this node should have")
    bus = case.facts.bus or ()
    evidence = {"expected": f"{wanted}, says {says}", "on the bus": ", ".join(gpu.address for gpu in bus)}
    if len(bus) < wanted:
        missing = _missing(case)
        names = f" (missing: {', '.join(missing)})" if missing else ""
        gpus = tuple(index for key, index in indexes(case).items() if any(key in name for name in missing))
        silent = case.facts.view.snapshot.unanswered if case.facts.view else {}
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


def _expected(case: Case) -> tuple[int | None, str]:
    """How many GPUs there should be, and who says so: people before machines."""
    if case.expect.gpus is not None:
        return case.expect.gpus, "the expectation"
    if case.config.agent.expected_gpus is not None:
        return case.config.agent.expected_gpus, "agent.expected_gpus"
    labels = case.facts.cluster.node.labels if case.facts.cluster else {}
    count = labels.get(_COUNT_LABEL, "")
    if count.isdecimal() and "-MIG-" not in labels.get(_PRODUCT_LABEL, ""):  # else it counts MIG instances
        return int(count), "the label"
    return None, ""


def _missing(case: Case) -> list[str]:
    """GPUs that NVML or the driver knew and the bus does not have."""
    here = {pci_key(gpu.address) for gpu in case.facts.bus or ()}
    nodes = case.facts.nodes
    known = set(indexes(case)) | {pci_key(address) or "" for address in (nodes.gpus if nodes else {})}
    return [f"{key}.0" for key in sorted(known - {""}) if key not in here]


def _answering(case: Case) -> Verdict:
    bus = case.facts.bus or ()
    if all(gpu.answers is None for gpu in bus):
        return skipped("not seen: the configuration space of the GPUs cannot be read")
    dead = tuple(gpu for gpu in bus if gpu.answers is False)
    if dead:
        return failed(
            f"{', '.join(named(case, gpu) for gpu in dead)} answers ffffffff: it has fallen off the bus",
            {gpu.address: "configuration space reads ffffffff" for gpu in dead},
            gpus=blamed(case, dead),
        )
    return passed("all answer")


def _width(case: Case) -> Verdict:
    seen = tuple(gpu for gpu in _meant(case) if gpu.link_width and gpu.link_width_max)
    if not seen:
        return skipped("not seen: the kernel tells no link width, as in many virtual machines")
    narrow = tuple(gpu for gpu in seen if (gpu.link_width or 0) < (gpu.link_width_max or 0))
    if narrow:
        first = narrow[0]
        more = f" and {len(narrow) - 1} more" if len(narrow) > 1 else ""
        return warned(
            f"PCIe link of {named(case, first)}{more} is x{first.link_width} of x{first.link_width_max}",
            {gpu.address: f"x{gpu.link_width} of x{gpu.link_width_max}" for gpu in narrow},
            gpus=blamed(case, narrow),
        )
    return passed(", ".join(sorted({f"x{gpu.link_width}" for gpu in seen})))


def _errors(case: Case) -> Verdict:
    counted: dict[str, Aer] = {}
    for gpu in _meant(case):
        places = ((gpu.address, gpu.aer), *((port.address, port.aer) for port in gpu.ports))
        counted |= {address: aer for address, aer in places if aer is not None}
    if not counted:
        return skipped("not seen: the kernel counts no PCIe errors here (no AER, or the firmware keeps it)")
    bad = {address: errors for address, aer in counted.items() if (errors := _uncorrectable(aer))}
    if bad:
        total = sum(sum(errors.values()) for errors in bad.values())
        hit = tuple(gpu for gpu in _meant(case) if {gpu.address, *(port.address for port in gpu.ports)} & bad.keys())
        evidence = {
            address: ", ".join(f"{name} {count}" for name, count in errors.items()) for address, errors in bad.items()
        }
        return warned(f"{total} uncorrectable PCIe errors since boot", evidence, gpus=blamed(case, hit))
    corrected = sum(sum(aer.correctable.values()) for aer in counted.values())
    return passed(f"none uncorrectable, {corrected} corrected")


def _uncorrectable(aer: Aer) -> dict[str, int]:
    kinds = (("fatal", aer.fatal), ("non-fatal", aer.nonfatal))
    return {
        f"{kind} {name}": count for kind, counts in kinds for name, count in counts.items() if name not in _HARMLESS
    }


def _peer_to_peer(case: Case) -> Verdict:
    bus = case.facts.bus or ()
    if len(bus) < 2:
        return skipped("one GPU has no peer")
    ports = {port.address: port for gpu in bus for port in gpu.ports if port.kind == "downstream"}
    redirecting = {address: "redirects to the root complex" for address, port in ports.items() if port.redirects}
    translated = {gpu.address: f"IOMMU domain {gpu.iommu}" for gpu in bus if (gpu.iommu or "").startswith("DMA")}
    machine = case.facts.kernel.machine if case.facts.kernel else None
    if redirecting:
        off = tuple(f"setpci -s {address} ECAP_ACS+6.w=0000" for address in redirecting)
        words = f"ACS redirect is on at {len(redirecting)} switch ports: peer-to-peer is slow"
        return warned(words, redirecting, commands=(_SHOW_ACS, *off))
    if translated and machine != "aarch64":  # there, addresses are always translated, and peers stay fast
        return warned(
            "the IOMMU translates the GPUs' addresses: peer-to-peer over PCIe is slow or fails",
            translated,
            remedy="On bare metal boot with iommu=pt, or switch the IOMMU off in the BIOS. Leave it on where GPUs are "
            "given to virtual machines.",
            commands=("cat /proc/cmdline",),
        )
    if not ports and not any(gpu.iommu for gpu in bus):
        return skipped("no PCIe switch above the GPUs and no IOMMU")
    if ports and all(port.redirects is None for port in ports.values()):
        return skipped("not seen: only root may read the ACS registers")
    return passed("no redirect, no translation")


def _meant(case: Case) -> tuple[BusGpu, ...]:
    """Of those asked for; one that NVML does not know cannot be left out by its index."""
    known = indexes(case)
    return tuple(
        gpu
        for gpu in case.facts.bus or ()
        if (key := pci_key(gpu.address) or "") not in known or case.means(known[key])
    )


def _count(number: int) -> str:
    return f"{number} GPU{'s' if number != 1 else ''}"


BUS: tuple[Check, ...] = (
    Check(
        id="H01",
        stage=Stage.HOST,
        title="the PCI bus has NVIDIA GPUs",
        how="/sys/bus/pci/devices: vendor 0x10de, class 0x03xx, no virtual functions",
        failure="no NVIDIA GPU on the PCI bus",
        remedy="If this machine should have GPUs: power it off fully and on again; check seating, power cables and "
        "the BMC's log. In a virtual machine, check that the hypervisor passes the GPUs through.",
        commands=("lspci -nn -d 10de:",),
        judge=_gpus_on_the_bus,
        reads=("bus",),
    ),
    Check(
        id="H02",
        stage=Stage.HOST,
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
    Check(
        id="H03",
        stage=Stage.HOST,
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
    Check(
        id="H04",
        stage=Stage.HOST,
        title="every GPU's PCIe link has all its lanes",
        how="current_link_width and max_link_width in sysfs; the speed falls while a GPU rests and is not judged",
        failure="PCIe link of GPU 3 (0000:61:00.0) is x8 of x16",
        remedy="Transfers to and from this GPU are slower. When the node is free, reseat the GPU or its riser and look "
        "at the slot's bifurcation in the BIOS; if the slot has no more lanes, this is as good as it gets.",
        commands=("nvidia-smi --query-gpu=index,pcie.link.width.current,pcie.link.width.max --format=csv",),
        judge=_width,
        needs=("H01", "H03"),
        reads=("bus",),
    ),
    Check(
        id="H05",
        stage=Stage.HOST,
        title="no uncorrectable PCIe errors",
        how="aer_dev_fatal and aer_dev_nonfatal of the GPUs and the bridges above them",
        failure="12 uncorrectable PCIe errors since boot",
        remedy="The link loses data. If the number grows: drain the node, reseat the GPU, its riser or cable, update "
        "the BIOS and the switch's firmware; then have the GPU replaced.",
        commands=("grep -H . /sys/bus/pci/devices/*/aer_dev_nonfatal | grep -v ' 0$'", "dmesg | grep AER"),
        judge=_errors,
        needs=("H01", "H03"),
        reads=("bus",),
    ),
    Check(
        id="H06",
        stage=Stage.HOST,
        title="GPUs reach each other over PCIe directly",
        how="ACS control of the PCIe switches above the GPUs, and the type of the GPUs' IOMMU groups",
        failure="ACS redirect is on at 8 switch ports: peer-to-peer is slow",
        remedy="Peers' traffic goes up to the CPU and back. On bare metal switch ACS off in the BIOS, or with "
        "setpci at each boot. Leave it on where GPUs are given to virtual machines.",
        commands=(_SHOW_ACS, "setpci -s PORT ECAP_ACS+6.w=0000"),
        judge=_peer_to_peer,
        needs=("H01",),
        reads=("bus",),
        level="full",
    ),
)  # fmt: skip
