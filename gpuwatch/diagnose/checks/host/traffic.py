"""What goes over PCIe: without errors, and between GPUs without a detour."""

from gpuwatch.diagnose.check import CheckContext, CheckVerdict, DiagnosticCheck, passed, skipped, warned
from gpuwatch.diagnose.checks.driver.home import cuts_gpus
from gpuwatch.diagnose.checks.gpu_log import blamed, meant_gpus
from gpuwatch.diagnose.model import CheckStage
from gpuwatch.host.pci import Aer

_SHOW_ACS = "lspci -vvv | grep -E '^[0-9a-f]|ACSCtl'"
_HARMLESS = frozenset({"UnsupReq"})
"""Somebody asked for a register that is not there: as common as probing for hardware."""


def _errors(context: CheckContext) -> CheckVerdict:
    counted: dict[str, Aer] = {}
    for gpu in meant_gpus(context):
        places = ((gpu.address, gpu.aer), *((port.address, port.aer) for port in gpu.ports))
        counted |= {address: aer for address, aer in places if aer is not None}
    if not counted:
        return skipped("not seen: the kernel counts no PCIe errors here (no AER, or the firmware keeps it)")
    bad = {address: errors for address, aer in counted.items() if (errors := _uncorrectable(aer))}
    if bad:
        total = sum(sum(errors.values()) for errors in bad.values())
        hit = tuple(
            gpu for gpu in meant_gpus(context) if {gpu.address, *(port.address for port in gpu.ports)} & bad.keys()
        )
        evidence = {
            address: ", ".join(f"{name} {count}" for name, count in errors.items()) for address, errors in bad.items()
        }
        return warned(f"{total} uncorrectable PCIe errors since boot", evidence, gpus=blamed(context, hit))
    corrected = sum(sum(aer.correctable.values()) for aer in counted.values())
    return passed(f"none uncorrectable, {corrected} corrected")


def _uncorrectable(aer: Aer) -> dict[str, int]:
    kinds = (("fatal", aer.fatal), ("non-fatal", aer.nonfatal))
    return {
        f"{kind} {name}": count for kind, counts in kinds for name, count in counts.items() if name not in _HARMLESS
    }


def _peer_to_peer(context: CheckContext) -> CheckVerdict:
    bus = context.facts.bus or ()
    if reason := _without_peers(context):
        return skipped(reason)
    ports = {port.address: port for gpu in bus for port in gpu.ports if port.kind == "downstream"}
    redirecting = {address: "redirects to the root complex" for address, port in ports.items() if port.redirects}
    translated = {gpu.address: f"IOMMU domain {gpu.iommu}" for gpu in bus if (gpu.iommu or "").startswith("DMA")}
    machine = context.facts.kernel.machine if context.facts.kernel else None
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
    if all(port.redirects is None for port in ports.values()):
        return skipped("not seen: only root may read the ACS registers")
    return passed("no redirect, no translation")


def _without_peers(context: CheckContext) -> str | None:
    """Why these GPUs have nothing to say to each other, or no shorter way than over the root complex."""
    bus = context.facts.bus or ()
    if len(bus) < 2:
        return "one GPU has no peer"
    brands = {gpu.identity.brand for gpu in context.gpus}
    if cuts_gpus(context) or any(gpu.driver == "vfio-pci" for gpu in bus):
        return "GPUs are given to virtual machines, which needs the IOMMU and ACS"
    if brands and brands <= _DESKTOP:
        return "GeForce boards have no peer-to-peer over PCIe"
    has_switch = any(port.kind == "downstream" for gpu in bus for port in gpu.ports)
    return None if has_switch else "no PCIe switch above the GPUs that would be a shorter way"


_DESKTOP = frozenset({"GeForce", "GeForce RTX"})

TRAFFIC: tuple[DiagnosticCheck, ...] = (
    DiagnosticCheck(
        id="H05",
        stage=CheckStage.HOST,
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
    DiagnosticCheck(
        id="H06",
        stage=CheckStage.HOST,
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
)
