"""The machine below the driver: PCI bus, kernel, firmware."""

from gpuwatch.diagnose.check import Case, Check, Verdict, failed, passed
from gpuwatch.model.diagnosis import Stage


def _gpus_on_the_bus(case: Case) -> Verdict:
    bus = case.facts.bus or ()
    if not bus:
        return failed("no NVIDIA GPU on the PCI bus")
    return passed(f"{len(bus)} GPU{'s' if len(bus) != 1 else ''}")


HOST: tuple[Check, ...] = (
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
)
