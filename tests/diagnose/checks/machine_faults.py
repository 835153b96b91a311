"""What can go wrong with PCI bus, kernel, driver and device files of a host, one function each."""

from collections.abc import Callable

import msgspec

from gpuwatch.config import AgentConfig
from gpuwatch.model.finding import Finding, Severity
from gpuwatch.sim.host.machine import LIBRARIES, RELEASE
from tests.diagnose.host.elf_files import module
from tests.diagnose.hosts import Host, seen

DEVICES, VERSION, LOG = "sys/bus/pci/devices", "proc/driver/nvidia/version", "gpuwatch/kernel.log"
MODULES, MODULES_DEP = "proc/modules", f"lib/modules/{RELEASE}/modules.dep"
DKMS_MODULE = f"lib/modules/{RELEASE}/updates/dkms/nvidia.ko"
SECURE_BOOT = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
UPGRADE = "nvidia.com/gpu-driver-upgrade-state"
GPU3, GPU3_KEY = "0000:61:00.0", "0000:61:00"

Change = Callable[[Host], None]


def all_of(*changes: Change) -> Change:
    def change(host: Host) -> None:
        for each in changes:
            each(host)

    return change


def write(path: str, text: str) -> Change:
    return lambda host: host.write(path, text)


def write_bytes(path: str, content: bytes) -> Change:
    def change(host: Host) -> None:
        (host.root / path).parent.mkdir(parents=True, exist_ok=True)
        (host.root / path).write_bytes(content)

    return change


def edit(path: str, old: str, new: str) -> Change:
    return lambda host: host.edit(path, old, new)


def remove(*paths: str) -> Change:
    return all_of(*(lambda host, path=path: host.remove(path) for path in paths))


def logged(*texts: str) -> Change:
    """The kernel says something after the driver was loaded; the lines of one text are one record, with one time."""

    def change(host: Host) -> None:
        lines = "".join(
            f"<4>[{100 + number:5}.000000] {line}\n" for number, text in enumerate(texts) for line in text.splitlines()
        )
        host.write(LOG, (host.root / LOG).read_text() + lines)

    return change


def xid(number: int, message: str) -> Change:
    """Of GPU 3."""
    return logged(f"NVRM: Xid (PCI:{GPU3_KEY}): {number}, pid='<unknown>', name=<unknown>, {message}")


def no_gpus(host: Host) -> None:
    for link in (host.root / DEVICES).iterdir():
        if link.is_symlink():
            link.unlink()


def expect_gpus(number: int) -> Change:
    def change(host: Host) -> None:
        host.expect = msgspec.structs.replace(host.expect, gpus=number)

    return change


def configured_gpus(number: int) -> Change:
    def change(host: Host) -> None:
        host.config = msgspec.structs.replace(host.config, agent=AgentConfig(expected_gpus=number))

    return change


def label(name: str, value: str) -> Change:
    def change(host: Host) -> None:
        assert host.cluster is not None
        labels = host.cluster.node.labels | {name: value}
        node = msgspec.structs.replace(host.cluster.node, labels=labels)
        host.cluster = msgspec.structs.replace(host.cluster, node=node)

    return change


def rebound(driver: str | None, *addresses: str) -> Change:
    def change(host: Host) -> None:
        for link in (host.root / DEVICES).iterdir():
            if (link / "driver").is_symlink() and (not addresses or link.name in addresses):
                (link / "driver").unlink()
                if driver is not None:
                    folder = host.root / "sys/bus/pci/drivers" / driver
                    folder.mkdir(parents=True, exist_ok=True)
                    (link / "driver").symlink_to(f"/{folder.relative_to(host.root)}")

    return change


def no_module(host: Host) -> None:
    lines = (host.root / MODULES).read_text().splitlines(keepends=True)
    host.write(MODULES, "".join(line for line in lines if not line.startswith("nvidia")))
    host.remove(VERSION)
    host.remove("sys/module/nvidia")


def unload(host: Host) -> None:
    """As after a boot without the driver: its lines in the log are gone, too."""
    no_module(host)
    rebound(None)(host)
    log = (host.root / LOG).read_text().splitlines(keepends=True)
    host.write(LOG, "".join(line for line in log if "nvidia" not in line.lower()))


def never_seen(host: Host) -> None:
    """No NVML."""
    host.view = None


def lost(host: Host) -> None:
    """NVML does not read GPU 3."""
    host.view = seen(timeline=[{"do": "lose", "gpu": 3}])


def slow_at_work(host: Host) -> None:
    """A GPU with work, whose link stays slow; as an agent found it."""
    assert host.view is not None
    finding = Finding(
        check="pcie_degraded",
        severity=Severity.WARNING,
        message="PCIe generation 1 instead of 5 at work",
        gpu=host.view.snapshot.gpus[0].identity.uuid,
    )
    judgement = msgspec.structs.replace(host.view.judgement, findings=(finding,))
    host.view = msgspec.structs.replace(host.view, judgement=judgement)


def alone(host: Host) -> None:
    """A machine without Kubernetes."""
    host.cluster = None
    for path in ("run/nvidia/validations", "etc/kubernetes", "var/lib/kubelet"):
        if (host.root / path).exists():
            host.remove(path)


def containerised(host: Host) -> None:
    """The driver comes with the operator's container: nothing of it lies on the host."""
    host.remove(f"lib/modules/{RELEASE}/updates")
    host.write(MODULES_DEP, "kernel/net/bridge/bridge.ko.zst:\n")
    host.remove("var/lib/dkms")
    host.write("run/nvidia/validations/.driver-ctr-ready", "")


def uninstalled(host: Host) -> None:
    host.write(MODULES_DEP, "kernel/net/bridge/bridge.ko.zst:\n")
    host.remove("var/lib/dkms")
    for file in (host.root / LIBRARIES).glob("lib*"):
        if file.name.startswith(("libnvidia", "libcuda")):
            file.unlink()
    host.remove("usr/bin/nvidia-smi")
    alone(host)


def other_kernel(host: Host) -> None:
    """The kernel was updated; the module is there for the one before."""
    (host.root / "lib/modules" / RELEASE).rename(host.root / "lib/modules/6.8.0-50-generic")
    host.write(MODULES_DEP, "kernel/net/bridge/bridge.ko.zst:\n")


def not_built(host: Host) -> None:
    host.write(MODULES_DEP, "kernel/net/bridge/bridge.ko.zst:\n")
    host.write(f"lib/modules/{RELEASE}/build/Makefile", "")


def installed(**facts: str) -> Change:
    """A module that is not compressed, and says what it is."""
    signed = facts.pop("signed", "") == "yes"
    return all_of(
        write(MODULES_DEP, "updates/dkms/nvidia.ko:\n"), write_bytes(DKMS_MODULE, module(signed=signed, **facts))
    )


def libraries(version: str) -> Change:
    def change(host: Host) -> None:
        for name in ("libnvidia-ml.so", "libcuda.so", "libnvidia-ptxjitcompiler.so"):
            host.remove(f"{LIBRARIES}/{name}.1")
            host.write(f"{LIBRARIES}/{name}.{version}", "")
            host.link(f"{LIBRARIES}/{name}.1", f"{name}.{version}")

    return change


def old_container(host: Host) -> None:
    """A driver container that ended has left its root."""
    host.write("run/nvidia/driver/usr/lib64/libcuda.so.550.90.07", "")
    host.link("run/nvidia/driver/usr/lib64/libcuda.so.1", "libcuda.so.550.90.07")


def containers_memlock(number: str) -> Change:
    return all_of(
        write("proc/4242/comm", "containerd\n"),
        write("proc/4242/limits", f"Max locked memory         {number}              {number}             bytes\n"),
    )


def port(name: str, content: bytes) -> Change:
    """Of the switch port above GPU 3."""

    def change(host: Host) -> None:
        ((host.root / DEVICES / GPU3).resolve().parent / name).write_bytes(content)

    return change


REJECTION = "nvidia: Loading of unsigned module is rejected"
OF_GPU3 = f"NVRM: The NVIDIA GPU {GPU3} (PCI ID: 10de:2330)"
TOO_OLD = logged(f"{OF_GPU3}\nNVRM: installed in this system is not supported by the\nNVRM: NVIDIA 580.105.08 driver.")
NEEDS_OPEN = logged(f"{OF_GPU3}\nNVRM: installed in this system requires use of the NVIDIA open kernel modules.")
