"""CDI specifications: the files that list, for container runtimes, the device files and libraries of each GPU.

Format: https://github.com/cncf-tags/container-device-interface, SPEC.md. `nvidia-ctk cdi generate`, the device plugin
(`k8s.device-plugin.nvidia.com/gpu`), NVIDIA's DRA driver and the GPU operator (`management.nvidia.com/gpu`) write them.
"""

import re
from pathlib import Path

import msgspec

from gpuwatch.config.yaml import decode as decode_yaml
from gpuwatch.diagnose.host.host_root import exists, listing, text
from gpuwatch.model.decoding import prepared
from gpuwatch.model.errors import UsageError
from gpuwatch.model.snapshot import UNREADABLE, Record

FOLDERS = ("/etc/cdi", "/var/run/cdi")
"""Where runtimes look; a specification in a later one overrules one in an earlier one."""

MOST_MISSING = 32

_OURS = re.compile(r"(?:[\w.-]+\.)?nvidia\.com/[\w.-]+", re.ASCII)
_VERSION = re.compile(
    r"/(?:libcuda|libnvidia-[\w-]+)\.so\.(\d{3,}\.\d+(?:\.\d+)?)$|/nvidia/(\d{3,}\.\d+(?:\.\d+)?)/", re.ASCII
)
"""Files of NVIDIA with the driver's version; libnvidia-egl-gbm.so.1.1.2 has a version of its own."""


class CdiSpec(Record, frozen=True, kw_only=True):
    """One file. `nodes`: device files for containers; `missing`: of its device files and mounts those the host lacks;
    `versions`: driver versions named by its library paths; `error`: why it is no specification.
    """

    path: str
    kind: str | None = None
    devices: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()
    error: str | None = None


class _DeviceNode(msgspec.Struct, rename="camel"):
    path: str
    host_path: str | None = None


class _Mount(msgspec.Struct, rename="camel"):
    host_path: str


class _Edits(msgspec.Struct, rename="camel"):
    device_nodes: list[_DeviceNode] | None = None
    mounts: list[_Mount] | None = None


class _Device(msgspec.Struct, rename="camel"):
    name: str
    container_edits: _Edits = msgspec.field(default_factory=_Edits)


class _Spec(msgspec.Struct, rename="camel"):
    kind: str
    devices: list[_Device] | None = None
    container_edits: _Edits | None = None


def cdi_specs(root: Path, dev: Path) -> tuple[CdiSpec, ...]:
    """Those of NVIDIA in /etc/cdi and /var/run/cdi, broken ones included."""
    files = (path for folder in FOLDERS for path in listing(root, folder, ".yaml", ".yml", ".json"))
    return tuple(spec for path in files if (spec := _cdi_spec(root, dev, path)) is not None)


def parse(path: str, content: str) -> CdiSpec | _Spec:
    """A specification, or a CdiSpec with the error why it is none. Never raises."""
    decode = msgspec.json.decode if path.endswith(".json") else decode_yaml
    try:
        return msgspec.convert(decode(content), prepared(_Spec))
    except (UsageError, *UNREADABLE) as error:
        return CdiSpec(path=path, error=" ".join(str(error).split())[:300] or type(error).__name__)


def _cdi_spec(root: Path, dev: Path, path: str) -> CdiSpec | None:
    """None: another vendor's."""
    try:
        content = text(root, path)
    except OSError as error:
        return CdiSpec(path=path, error=error.strerror or str(error)) if "nvidia" in path else None
    found = parse(path, content)
    if isinstance(found, CdiSpec):
        return found if "nvidia" in path or "nvidia" in content else None
    if not _OURS.fullmatch(found.kind):
        return None
    edits = [found.container_edits] if found.container_edits else []
    edits += [device.container_edits for device in found.devices or ()]
    nodes = tuple(dict.fromkeys(node.host_path or node.path for edit in edits for node in edit.device_nodes or ()))
    mounts = tuple(dict.fromkeys(mount.host_path for edit in edits for mount in edit.mounts or ()))
    # device files are looked for where this host's /dev is
    places = [(dev, node.removeprefix("/dev/")) if node.startswith("/dev/") else (root, node) for node in nodes]
    missing = [node for node, (base, below) in zip(nodes, places, strict=True) if not exists(base, below)]
    missing += [mount for mount in mounts if not exists(root, mount)]
    matches = (match for mount in mounts for match in _VERSION.finditer(mount))
    return CdiSpec(
        path=path,
        kind=found.kind,
        devices=tuple(device.name for device in found.devices or ()),
        nodes=nodes,
        missing=tuple(missing[:MOST_MISSING]),
        versions=tuple(sorted({match[1] or match[2] for match in matches})),
    )
