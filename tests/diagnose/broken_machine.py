"""Hosts on which checks fail: PCI bus, kernel, driver, device files."""

from collections.abc import Callable

import msgspec

from gpuwatch.config import AgentConfig
from gpuwatch.model.diagnosis import Result
from gpuwatch.sim.host.machine import LIBRARIES, RELEASE
from gpuwatch.sim.pciconfig import REQUEST_REDIRECT, port_config
from tests.diagnose.broken import Broken
from tests.diagnose.hosts import Host, seen
from tests.sources.elf_files import module

WARN = Result.WARN
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
    """The kernel says something after the driver was loaded."""

    def change(host: Host) -> None:
        lines = "".join(f"<4>[{100 + number:5}.000000] {text}\n" for number, text in enumerate(texts))
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
                    (link / "driver").symlink_to(folder)

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
TOO_OLD = logged(OF_GPU3, "NVRM: installed in this system is not supported by the", "NVRM: NVIDIA 580.105.08 driver.")
NEEDS_OPEN = logged(OF_GPU3, "NVRM: installed in this system requires use of the NVIDIA open kernel modules.")

BUS = (
    Broken("H01", no_gpus, "no NVIDIA GPU on the PCI bus", "lspci"),
    Broken("H02", remove(f"{DEVICES}/{GPU3}"), f"7 of 8 GPUs on the PCI bus (missing: {GPU3})", "BMC",
           well=expect_gpus(8)),
    Broken("H02", remove(f"{DEVICES}/{GPU3}"), "7 of 8 GPUs", "power it off", well=configured_gpus(8)),
    Broken("H02", remove(f"{DEVICES}/{GPU3}"), "7 of 8 GPUs", "lspci", well=label("nvidia.com/gpu.count", "8")),
    Broken("H02", expect_gpus(4), "8 GPUs on the PCI bus, expected 4", "Correct the number", WARN,
           well=expect_gpus(8)),
    Broken("H03", write_bytes(f"{DEVICES}/{GPU3}/config", b"\xff" * 64), f"GPU 3 ({GPU3}) answers ffffffff", "reboot"),
    Broken("H04", write(f"{DEVICES}/{GPU3}/current_link_width", "8\n"), f"GPU 3 ({GPU3}) is x8 of x16", "reseat",
           WARN),
    Broken("H05", edit(f"{DEVICES}/{GPU3}/aer_dev_fatal", "DLP 0", "DLP 3"), "3 uncorrectable PCIe errors", "riser",
           WARN),
    Broken("H05", port("aer_dev_nonfatal", b"CmpltTO 2\nUnsupReq 7\n"), "2 uncorrectable PCIe errors", "firmware",
           WARN),
    Broken("H06", port("config", port_config("downstream", REQUEST_REDIRECT)),
           "ACS redirect is on at 1 switch ports", "setpci", WARN),
    Broken("H06", write(f"{DEVICES}/{GPU3}/iommu_group/type", "DMA-FQ\n"), "the IOMMU translates", "iommu=pt", WARN),
)  # fmt: skip


KERNEL = (
    Broken("H07", rebound("nouveau"), "nouveau owns 8 of 8 GPUs", "update-initramfs"),
    Broken("H07", all_of(unload, write(MODULES, "nouveau 3096576 0 - Live 0x0\n")), "nouveau is loaded", "blacklist"),
    Broken("H07", edit(MODULES, "overlay ", "nouveau "), "nouveau is loaded, but has no GPU", "blacklist", WARN),
    Broken("H08", other_kernel, f"is there for 6.8.0-50-generic, not for {RELEASE}; the headers", "dkms autoinstall",
           well=unload),
    Broken("H08", not_built, f"DKMS has not built nvidia 580.105.08 for {RELEASE}", "linux-headers", well=unload),
    Broken("H08", installed(vermagic="6.8.0-50-generic SMP"), "nvidia.ko was built for 6.8.0-50-generic", "dkms",
           well=unload),
    Broken("H08", logged(f"nvidia: version magic '6.8.0-50-generic SMP mod_unload ' should be '{RELEASE} SMP '"),
           "built for another kernel", "dkms autoinstall", well=unload),
    Broken("H09", logged(REJECTION), "rejected the signature", "mokutil --import", well=unload),
    Broken("H09", logged("Lockdown: modprobe: unsigned module loading is restricted; see man kernel_lockdown.7"),
           "rejected the signature", "mokutil", well=unload),
    Broken("H09", all_of(write_bytes(SECURE_BOOT, b"\x06\0\0\0\x01"), installed(license="NVIDIA")),
           "the nvidia module is not signed", "mokutil --sb-state", well=unload),
    Broken("H10", logged(f"NVRM: GPU {GPU3}: RmInitAdapter failed! (0x62:0xffff:2477)"), "RmInitAdapter failed",
           "reboot", well=lost),
    Broken("H10", xid(79, "GPU has fallen off the bus."), "XID 79, GPU has fallen off the bus", "power it off",
           well=lost),
    Broken("H10", logged(f"NVRM: GPU {GPU3}: GPU has fallen off the bus."), "fallen off the bus", "dmesg", WARN,
           well=never_seen),
)  # fmt: skip

DRIVER = (
    Broken("D01", unload, "the nvidia module is not loaded", "modprobe nvidia"),
    Broken("D01", all_of(unload, uninstalled), "no NVIDIA driver is installed", "Install the driver"),
    Broken("D01", all_of(rebound("vfio-pci"), no_module), "given to virtual machines (vfio-pci)", "driverctl"),
    Broken("D01", all_of(unload, write("etc/modprobe.d/no.conf", "blacklist nvidia\n")), "it is blacklisted",
           "off the blacklist"),
    Broken("D01", all_of(unload, containerised), "the driver container has not loaded it", "driver pod"),
    Broken("D01", all_of(unload, logged("NVRM: The NVIDIA probe routine failed for 1 device(s).")), "is not loaded",
           "modprobe"),
    Broken("D02", all_of(edit(MODULES, "nvidia_uvm ", "other "), edit("proc/devices", "nvidia-uvm", "other")),
           "nvidia_uvm is not loaded: CUDA", "nvidia-modprobe -u"),
    Broken("D02", all_of(edit(MODULES, "nvidia_uvm ", "other "), edit("proc/devices", "nvidia-uvm", "other")),
           "not loaded yet", "modprobe", WARN, well=alone),
    Broken("D03", libraries("550.90.07"), "the loaded module is 580.105.08, the libraries in / are 550.90.07",
           "Drain the node and reboot"),
    Broken("D03", old_container, "the libraries in /run/nvidia/driver are not of the loaded driver", "reboot", WARN),
    Broken("D03", installed(version="590.44.01"), "590.44.01 is installed and will be loaded", "reboot", WARN),
    Broken("D04", remove(f"{LIBRARIES}/libnvidia-ml.so.1"), "libnvidia-ml.so.1 missing in /", "libnvidia-compute"),
    Broken("D11", remove(f"{LIBRARIES}/libcuda.so.1"), "libcuda.so.1 missing in /", "libnvidia-compute"),
    Broken("D04", uninstalled, "nowhere", "libnvidia-compute"),
    Broken("D05", remove("run/nvidia/validations/driver-ready"), "has not validated the driver", "driver-validation"),
    Broken("D06", all_of(never_seen, edit(VERSION, "580.105.08", "470.57.02")), "Hopper needs driver 525 or newer",
           "Install a driver branch"),
    Broken("D06", TOO_OLD, f"GPU 3 ({GPU3_KEY}) is not supported by the driver 580.105.08", "driver.version"),
    Broken("D07", all_of(never_seen, edit(VERSION, "Open Kernel Module for x86_64", "x86_64 Kernel Module")),
           "Blackwell needs the open kernel modules", "kernelModuleType=open", node={"model": "b200"}),
    Broken("D07", NEEDS_OPEN, f"GPU 3 ({GPU3_KEY}) needs the open kernel modules", "-open"),
    Broken("D08", label(UPGRADE, "upgrade-failed"), "the driver upgrade failed", "upgrade-required", WARN,
           well=label(UPGRADE, "upgrade-done")),
    Broken("D08", label(UPGRADE, "upgrade-failed"), "the driver upgrade failed", "driver pod",
           well=all_of(unload, label(UPGRADE, "upgrade-done"))),
    Broken("D08", label(UPGRADE, "drain-required"), "under way (drain-required)", "Wait", WARN,
           well=label(UPGRADE, "upgrade-done")),
    Broken("D08", label(UPGRADE, "pod-restart-required"), "being upgraded (pod-restart-required)", "Wait",
           well=all_of(unload, label(UPGRADE, "upgrade-done"))),
    Broken("D09", logged(f"nvidia {GPU3}: Direct firmware load for nvidia/580.105.08/gsp_ga10x.bin failed"),
           "the GSP firmware of the driver was not found", "firmware package", well=lost),
    Broken("D09", xid(119, "Timeout after 6s of waiting for RPC response from GPU3 GSP!"),
           "its firmware (GSP) does not answer", "update the driver", well=lost),
    Broken("D09", remove("lib/firmware/nvidia"), "no firmware for 580.105.08", "before anybody resets", WARN),
    Broken("D10", rebound(None, GPU3), f"GPU 3 ({GPU3}): no driver is bound", "power it off"),
    Broken("D10", rebound("vfio-pci", GPU3), "1 of 8 GPUs belong to vfio-pci", "virtual machines", WARN),
)  # fmt: skip

LEGACY = edit("etc/nvidia-container-runtime/config.toml", 'mode = "auto"', 'mode = "legacy"')
NO_CDI = edit("etc/containerd/config.toml", "enable_cdi = true", "enable_cdi = false")

FILES = (
    Broken("V01", remove("dev/nvidia-uvm"), "/dev/nvidia-uvm missing", "nvidia-modprobe -u"),
    Broken("V01", remove("dev/nvidiactl", "dev/nvidia3"), "missing: nvidia-modprobe makes them", "nvidia-smi", WARN,
           well=alone),
    Broken("V02", remove("dev/char/195:3"), "/dev/char/195:3 (/dev/nvidia3) is missing", "create-dev-char-symlinks",
           WARN, well=all_of(LEGACY, NO_CDI)),
    Broken("V03", remove("dev/nvidia-caps/nvidia-cap12"), "/dev/nvidia-caps/nvidia-cap12 missing", "nvidia-modprobe -f",
           node={"mig": {"0": ["3g.40gb", "3g.40gb"]}}),
    Broken("V04", containers_memlock("8388608"), "memlock of containerd is 8192 KiB", "LimitMEMLOCK=infinity", WARN,
           well=containers_memlock("unlimited")),
)  # fmt: skip

BROKEN: tuple[Broken, ...] = (*BUS, *KERNEL, *DRIVER, *FILES)
