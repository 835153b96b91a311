"""Files of the host for a bundle that no pattern of names can choose: by what they hold, or by what names them."""

import contextlib
import os
import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from gpuwatch.diagnose.bundling.copying import Found, Member, Tree, contents, resolved
from gpuwatch.diagnose.host.elf import section
from gpuwatch.diagnose.host.services import NAMES
from gpuwatch.host.plain_file import content, plain, text

_VENDORS = ("0x10de", "0x15b3")  # NVIDIA, Mellanox
_ATTRIBUTES = (
    "vendor", "device", "subsystem_vendor", "subsystem_device", "class", "revision", "enable", "numa_node", "driver",
    "physfn", "iommu_group/type", "current_link_speed", "current_link_width", "max_link_speed", "max_link_width",
    "aer_dev_correctable", "aer_dev_nonfatal", "aer_dev_fatal", "config", "infiniband/*",
)  # fmt: skip
_OF_PORTS = (
    "vendor", "device", "class", "config", "max_link_width", "aer_dev_correctable", "aer_dev_nonfatal", "aer_dev_fatal",
)  # fmt: skip
_FUNCTION = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]", re.A)
_CONFIG_BYTES = 4096
_KERNEL_NAME = 15
_SIGNED = b"~Module signature appended~\n"
_MODULE = re.compile(r"^(\S*\bnvidia\.ko(?:\.\w+)?):", re.A | re.M)
MOST = 4096

Pick = Callable[[Tree], Iterator[Member]]


def pci(tree: Tree) -> Iterator[Member]:
    """Attributes of NVIDIA's and Mellanox' devices, and of the bridges above them."""
    yield Member(path="sys/bus/pci/devices", folder=True)
    for name in _listed(tree.here("sys/bus/pci/devices")):
        device = f"sys/bus/pci/devices/{name}"
        if text(tree.here(f"{device}/vendor")) in _VENDORS:
            for attribute in _ATTRIBUTES:
                yield from _attribute(tree, f"{device}/{attribute}")
            yield from _ports(tree, device)


def _ports(tree: Tree, device: str) -> Iterator[Member]:
    place = next((item.path for item in tree.find(device) if isinstance(item, Found)), device)
    above = Path(place).parent
    while _FUNCTION.fullmatch(above.name):
        for attribute in _OF_PORTS:
            yield from _attribute(tree, f"{above}/{attribute}")
        above = above.parent


def _attribute(tree: Tree, pattern: str) -> Iterator[Member]:
    for item in tree.find(pattern):
        if isinstance(item, Member):
            yield item
        elif item.at.is_dir():
            yield Member(path=item.path, folder=True)
        else:
            with contextlib.suppress(OSError):  # sysfs says 4096 bytes of every file
                yield Member(path=item.path, body=content(item.at, _CONFIG_BYTES))


def processes(tree: Tree) -> Iterator[Member]:
    """Name and state of the daemons that matter, and of the kernel's own process 2; of others not even the name."""
    wanted = {name[:_KERNEL_NAME] for name in NAMES} | {"kthreadd"}
    for pid in (name for name in _listed(tree.here("proc")) if name.isascii() and name.isdecimal()):
        name = text(tree.here(f"proc/{pid}/comm"))
        if name in wanted:
            state = (text(tree.here(f"proc/{pid}/stat")) or "").rpartition(")")[2].split()[:2]
            yield Member(path=f"proc/{pid}/comm", body=f"{name}\n".encode())
            yield Member(path=f"proc/{pid}/stat", body=f"{pid} ({name}) {' '.join(state)}\n".encode())
            with contextlib.suppress(OSError):
                body, _ = contents(Found("", tree.here(f"proc/{pid}/limits")), MOST)
                yield Member(path=f"proc/{pid}/limits", body=body)


def char_links(tree: Tree) -> Iterator[Member]:
    """/dev/char as far as it leads to NVIDIA's device files."""
    for name in _listed(tree.here("dev/char")):
        with contextlib.suppress(OSError):
            target = os.readlink(tree.here(f"dev/char/{name}"))
            if "nvidia" in target:
                meant = resolved("dev/char", target)
                yield Member(path=f"dev/char/{name}", link=os.path.relpath(meant, "dev/char"))


def modules(tree: Tree) -> Iterator[Member]:
    """nvidia.ko without its code: what it says of itself."""
    for item in tree.find("lib/modules/*/modules.dep"):
        if isinstance(item, Member):
            yield item
            continue
        match = _MODULE.search(text(item.at) or "")
        if match is None:
            continue
        path = resolved(str(Path(item.path).parent), match[1])
        with contextlib.suppress(OSError):
            with open(tree.here(path), "rb", opener=plain) as file:
                info = section(file, ".modinfo")
                signed = file.seek(-min(len(_SIGNED), file.seek(0, 2)), 2) >= 0 and file.read() == _SIGNED
            yield Member(path=path, body=b"" if info is None else without_code(info) + (_SIGNED if signed else b""))


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


def named_by_cdi(tree: Tree) -> Iterator[Member]:
    """The files that CDI specifications of NVIDIA hand to containers: that they are there."""
    for folder in ("etc/cdi", "var/run/cdi"):
        for item in tree.find(f"{folder}/*"):
            if isinstance(item, Found):
                for path in _mounts(item.at):
                    yield from there(tree, path)


def _mounts(file: Path) -> list[str]:
    try:
        text = content(file).decode(errors="replace")
        decode = msgspec.json.decode if file.suffix == ".json" else msgspec.yaml.decode
        document = decode(text)
        edits = [document["containerEdits"], *(device["containerEdits"] for device in document["devices"])]
        mounts = [mount["hostPath"] for edit in edits for mount in edit.get("mounts") or ()]
        nodes = [node.get("hostPath") or node["path"] for edit in edits for node in edit.get("deviceNodes") or ()]
    except (OSError, msgspec.DecodeError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return []
    return [str(path) for path in dict.fromkeys((*mounts, *nodes))][:MOST]


def handlers(tree: Tree) -> Iterator[Member]:
    """Programs that containerd's configuration names as runtimes."""
    for pattern in (
        "etc/containerd/*.toml",
        "etc/containerd/*/*.toml",
        "etc/crio/crio.conf.d/*",
        "etc/docker/daemon.json",
    ):
        for item in tree.find(pattern):
            if isinstance(item, Found):
                with contextlib.suppress(OSError):
                    text = contents(item, 1 << 20)[0].decode(errors="replace")
                    for path in re.findall(r"\"(/[\w./-]*/nvidia-container-runtime[\w.-]*)\"", text):
                        yield from there(tree, path)


def there(tree: Tree, pattern: str) -> Iterator[Member]:
    """Files by pattern, without what is in them."""
    for item in tree.find(pattern):
        if isinstance(item, Member):
            yield item
        else:
            yield Member(path=item.path, folder=item.at.is_dir())


def _listed(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


PICKS: dict[str, Pick] = {
    "PCI": pci,
    "processes": processes,
    "device links": char_links,
    "kernel modules": modules,
    "CDI files": named_by_cdi,
    "runtime programs": handlers,
}
"""Area -> what chooses its files; each in a thread of its own, as `taken.AREAS`."""

OF_KERNEL = ("PCI", "processes", "device links")
"""Those that need no file of the host but /proc, /sys and /dev."""
