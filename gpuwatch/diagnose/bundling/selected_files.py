"""Files of the host that a bundle selects by their contents, or because another file names them."""

import contextlib
import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from gpuwatch.config.yaml import decode as decode_yaml
from gpuwatch.diagnose.bundling.host_tree import BundleMember, HostFile, HostFiles, contents, resolved
from gpuwatch.diagnose.host.host_root import names
from gpuwatch.diagnose.host.kernel_modules import elf_section
from gpuwatch.diagnose.host.services import NAMES
from gpuwatch.host.plain_file import content, opened, text
from gpuwatch.model.errors import UsageError

_VENDORS = ("0x10de", "0x15b3")  # NVIDIA, Mellanox
_ATTRIBUTES = (
    "vendor", "device", "subsystem_vendor", "subsystem_device", "class", "revision", "enable", "numa_node", "driver",
    "physfn", "iommu_group/type", "current_link_speed", "current_link_width", "max_link_speed", "max_link_width",
    "aer_dev_correctable", "aer_dev_nonfatal", "aer_dev_fatal", "config", "infiniband/*",
)  # fmt: skip
_BRIDGE_ATTRIBUTES = (
    "vendor", "device", "class", "config", "max_link_width", "aer_dev_correctable", "aer_dev_nonfatal", "aer_dev_fatal",
)  # fmt: skip
_FUNCTION = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]", re.A)
_CONFIG_BYTES = 4096
_KERNEL_NAME = 15
_SIGNED = b"~Module signature appended~\n"
_MODULE = re.compile(r"^(\S*\bnvidia\.ko(?:\.\w+)?):", re.A | re.M)
MOST = 4096

Selector = Callable[[HostFiles], Iterator[BundleMember]]


def pci(tree: HostFiles) -> Iterator[BundleMember]:
    """Attributes of NVIDIA's and Mellanox' devices, and of the bridges above them."""
    yield BundleMember(path="sys/bus/pci/devices", folder=True)
    for name in names(tree.here("sys/bus/pci/devices")):
        device = f"sys/bus/pci/devices/{name}"
        if text(tree.here(f"{device}/vendor")) not in _VENDORS:
            continue
        for attribute in _ATTRIBUTES:
            yield from _attribute(tree, f"{device}/{attribute}")
        place = next((item.path for item in tree.find(device)), device)
        above = Path(place).parent
        while _FUNCTION.fullmatch(above.name):
            for attribute in _BRIDGE_ATTRIBUTES:
                yield from _attribute(tree, f"{above}/{attribute}")
            above = above.parent


def _attribute(tree: HostFiles, pattern: str) -> Iterator[BundleMember]:
    for item in tree.find(pattern):
        if item.at.is_dir():
            yield BundleMember(path=item.path, folder=True)
        else:
            with contextlib.suppress(OSError):  # sysfs reports 4096 bytes for every file
                yield BundleMember(path=item.path, body=content(item.at, _CONFIG_BYTES))


def processes(tree: HostFiles) -> Iterator[BundleMember]:
    """Name and state of the daemons that matter, and of the kernel's own process 2; nothing of any other process."""
    wanted = {name[:_KERNEL_NAME] for name in NAMES} | {"kthreadd"}
    for pid in (name for name in names(tree.here("proc")) if name.isascii() and name.isdecimal()):
        name = text(tree.here(f"proc/{pid}/comm"))
        if name in wanted:
            state = (text(tree.here(f"proc/{pid}/stat")) or "").rpartition(")")[2].split()[:2]
            yield BundleMember(path=f"proc/{pid}/comm", body=f"{name}\n".encode())
            yield BundleMember(path=f"proc/{pid}/stat", body=f"{pid} ({name}) {' '.join(state)}\n".encode())
            with contextlib.suppress(OSError):
                body, _ = contents(HostFile("", tree.here(f"proc/{pid}/limits")), MOST)
                yield BundleMember(path=f"proc/{pid}/limits", body=body)


def modules(tree: HostFiles) -> Iterator[BundleMember]:
    """nvidia.ko without its code: only its description of itself."""
    for item in tree.find("lib/modules/*/modules.dep"):
        match = _MODULE.search(text(item.at) or "")
        if match is None:
            continue
        path = resolved(str(Path(item.path).parent), match[1])
        with contextlib.suppress(OSError):
            with opened(tree.here(path)) as file:
                info = elf_section(file, ".modinfo")
                signed = file.seek(-min(len(_SIGNED), file.seek(0, 2)), 2) >= 0 and file.read() == _SIGNED
            yield BundleMember(
                path=path, body=b"" if info is None else without_code(info) + (_SIGNED if signed else b"")
            )


def without_code(info: bytes) -> bytes:
    """An ELF file of 64 bits with nothing but a section `.modinfo`."""
    names = b"\0.modinfo\0.shstrtab\0"
    table = 64 + len(info) + len(names)
    header = struct.pack("<4sBBB9xHHIQQQIHHHHHH", b"\x7fELF", 2, 1, 1, 1, 62, 1, 0, 0, table, 0, 64, 0, 0, 64, 3, 2)
    entry = struct.Struct("<IIQQQQIIQQ")
    entries = (
        entry.pack(0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
        entry.pack(1, 1, 0, 0, 64, len(info), 0, 0, 1, 0),
        entry.pack(10, 3, 0, 0, 64 + len(info), len(names), 0, 0, 1, 0),
    )
    return header + info + names + b"".join(entries)


def named_by_cdi(tree: HostFiles) -> Iterator[BundleMember]:
    """The presence of the files that CDI specifications of NVIDIA hand to containers."""
    for item in (item for folder in ("etc/cdi", "var/run/cdi") for item in tree.find(f"{folder}/*")):
        try:
            decode = msgspec.json.decode if item.at.suffix == ".json" else decode_yaml
            document = decode(content(item.at).decode(errors="replace"))
            edits = [document["containerEdits"], *(device["containerEdits"] for device in document["devices"])]
            paths = [mount["hostPath"] for edit in edits for mount in edit.get("mounts") or ()]
            nodes = [node for edit in edits for node in edit.get("deviceNodes") or ()]
            paths += [node.get("hostPath") or node["path"] for node in nodes]
            named = [str(path) for path in dict.fromkeys(paths)][:MOST]
        except (
            OSError,
            UsageError,
            msgspec.DecodeError,
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            RecursionError,
        ):
            continue
        for path in named:
            yield from presence(tree, path)


def handlers(tree: HostFiles) -> Iterator[BundleMember]:
    """The presence of the programs that configurations of container runtimes name."""
    patterns = ("etc/containerd/*.toml", "etc/containerd/*/*.toml", "etc/crio/crio.conf.d/*", "etc/docker/daemon.json")
    for item in (item for pattern in patterns for item in tree.find(pattern)):
        with contextlib.suppress(OSError):
            document = contents(item, 1 << 20)[0].decode(errors="replace")
            for path in re.findall(r"\"(/[\w./-]*/nvidia-container-runtime[\w.-]*)\"", document):
                yield from presence(tree, path)


def presence(tree: HostFiles, pattern: str) -> Iterator[BundleMember]:
    """Files by pattern, without their contents."""
    for item in tree.find(pattern):
        yield BundleMember(path=item.path, folder=item.at.is_dir())


SELECTORS: dict[str, Selector] = {
    "PCI": pci,
    "processes": processes,
    "kernel modules": modules,
    "CDI files": named_by_cdi,
    "runtime programs": handlers,
}
"""Area -> the function that selects its files; each runs in a thread of its own, as in `allow_list.AREAS`."""

OF_KERNEL = ("PCI", "processes")
"""Areas that need no file of the host but /proc, /sys and /dev."""
