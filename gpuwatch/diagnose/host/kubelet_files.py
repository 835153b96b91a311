"""The kubelet's side of device plugins as its files show it: sockets and the allocation checkpoint.

kubelet_internal_checkpoint: the devices that are registered (healthy ones only) and allocated,
`{"Data": {"PodDeviceEntries": [...], "RegisteredDevices": {"nvidia.com/gpu": ["GPU-..."]}}, "Checksum": 3952659280}`.
The checksum is 32-bit FNV-1a of the data as go-spew writes Go's own types (kubernetes,
pkg/kubelet/checkpointmanager/checksum and pkg/util/hash).
"""

import base64
import binascii
import contextlib
import re
import socket
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from gpuwatch.diagnose.host.host_root import exists, listing, text
from gpuwatch.host.tree import place
from gpuwatch.model.decoding import prepared
from gpuwatch.model.snapshot import UNREADABLE, Record
from gpuwatch.workloads.podresources import PodResources, PodResourcesError

FOLDERS = ("/var/lib/kubelet", "/var/lib/k0s/kubelet", "/var/snap/microk8s/common/var/lib/kubelet")
CHECKPOINT = "kubelet_internal_checkpoint"
DRA_DRIVERS = ("gpu.nvidia.com", "compute-domain.nvidia.com")
DEADLINE = 2.0
"""Seconds for one answer of a socket."""

_FNV_BASIS, _FNV_PRIME = 0x811C9DC5, 0x01000193
_ENDPOINT = re.compile(r"(?:--container-runtime-endpoint[= ]|containerRuntimeEndpoint:\s*)[\"']?([^\s\"']+)", re.ASCII)


class KubeletFiles(Record, frozen=True, kw_only=True):
    """`present`: there is a kubelet on this host; `folder`: its own, where it can be read; `endpoint`: of the container
    runtime it is configured to use. `plugins`: sockets of NVIDIA's device plugins, None when their folder cannot be
    read; `refusing`: those that refused a connection. `dra`: NVIDIA's DRA drivers that have registered.
    `checkpoint`: resource -> healthy devices the kubelet has registered; `intact`: whether its checksum fits.
    `pod_resources`: None when its socket answered, else why not; `pod_resources_reason`: a `Reason` of podresources.
    """

    present: bool = False
    folder: str | None = None
    kubelet_socket: bool = False
    plugins: tuple[str, ...] | None = None
    refusing: tuple[str, ...] = ()
    dra: tuple[str, ...] = ()
    checkpoint: dict[str, tuple[str, ...]] | None = None
    checkpoint_error: str | None = None
    intact: bool | None = None
    pod_resources: str | None = None
    pod_resources_reason: str | None = None
    endpoint: str | None = None


def kubelet_files(root: Path, pod_resources: Path, *, ask: bool) -> KubeletFiles:
    """Read what can be read; `ask`: also call the pod-resources socket and connect to those of the plugins."""
    # more than a mount point: files that a kubelet makes when it starts, or that it is started with
    made = ("device-plugins", "config.yaml", "pods")
    folder = next((each for each in FOLDERS if any(exists(root, f"{each}/{name}") for name in made)), None)
    if folder is None and not pod_resources.parent.is_dir():
        return KubeletFiles()
    at = folder or FOLDERS[0]
    plugins, endpoint = None, None
    if exists(root, f"{at}/device-plugins"):
        # NVIDIA's plugin listens on nvidia-gpu.sock or nvidia-mig-1g.10gb.sock, Google's on nvidiaGPU-<time>.sock
        sockets = listing(root, f"{at}/device-plugins", ".sock")
        plugins = tuple(path for path in sockets if path.rpartition("/")[2].startswith("nvidia"))
    registered = listing(root, f"{at}/plugins_registry", "-reg.sock")
    for path in (f"{at}/config.yaml", f"{at}/kubeadm-flags.env"):  # flags overrule the file
        with contextlib.suppress(OSError):
            match = _ENDPOINT.search(text(root, path))
            endpoint = match[1] if match else endpoint
    reason, why = _pod_resources(pod_resources, ask=ask)
    checkpoint, error, intact = _read_checkpoint(root, f"{at}/device-plugins/{CHECKPOINT}")
    return KubeletFiles(
        present=True,
        folder=folder,
        kubelet_socket=exists(root, f"{at}/device-plugins/kubelet.sock"),
        plugins=plugins,
        refusing=tuple(path for path in plugins or () if ask and _is_refusing(root, path)),
        # a driver that is upgraded without a gap puts the uid of its pod before `-reg.sock`
        dra=tuple(name for name in DRA_DRIVERS if any(f"/{name}-" in each for each in registered)),
        checkpoint=checkpoint,
        checkpoint_error=error,
        intact=intact,
        pod_resources=why,
        pod_resources_reason=reason,
        endpoint=endpoint,
    )


def _is_refusing(root: Path, path: str) -> bool:
    """Whether the process behind a socket is gone; a socket that this process may not open counts as served."""
    with contextlib.suppress(OSError):
        found = place(root, path)
        if found is None or not stat.S_ISSOCK(found.stat().st_mode):
            return False
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(DEADLINE)
            try:
                client.connect(str(found))
            except ConnectionRefusedError:
                return True
    return False


def _pod_resources(path: Path, *, ask: bool) -> tuple[str | None, str | None]:
    """Reason and text why the socket does not answer; None and None when it does, or is not called."""
    if not ask:
        return (None, None) if path.exists() else ("absent", f"{path} is not there")
    try:
        PodResources(path, deadline=DEADLINE).allocations()
    except PodResourcesError as error:
        return error.reason, f"{error.what}: {error.why}"
    return None, None


def _read_checkpoint(root: Path, path: str) -> tuple[dict[str, tuple[str, ...]] | None, str | None, bool | None]:
    """The registered devices (None: there is no checkpoint), why it cannot be read, and whether the checksum fits."""
    try:
        found = parse_checkpoint(text(root, path))
    except FileNotFoundError:
        return None, None, None
    except OSError as error:
        return None, f"cannot be read: {error.strerror or error}", None
    except ValueError as error:
        return None, str(error), False
    return found.registered, None, found.is_intact


class _Entry(msgspec.Struct, rename="pascal", forbid_unknown_fields=True):
    pod_uid: str = msgspec.field(name="PodUID")
    container_name: str
    resource_name: str
    device_ids: dict[str, list[str] | None] | list[str] | None = msgspec.field(name="DeviceIDs", default=None)
    alloc_resp: str | None = None


class _Data(msgspec.Struct, rename="pascal", forbid_unknown_fields=True):
    pod_device_entries: list[_Entry] | None = None
    registered_devices: dict[str, list[str] | None] | None = None


class KubeletCheckpoint(msgspec.Struct, rename="pascal"):
    """The content of the file."""

    data: _Data
    checksum: int

    @property
    def registered(self) -> dict[str, tuple[str, ...]]:
        """Resource -> healthy devices."""
        return {name: tuple(sorted(ids or ())) for name, ids in (self.data.registered_devices or {}).items()}

    @property
    def is_intact(self) -> bool | None:
        """Whether the checksum fits. None: a kubelet before 1.20 computed it differently, or a copy lacks the answers
        of the plugins (`AllocResp`).
        """
        written = _spew(self.data)
        return None if written is None else _fnv32a(written.encode()) == self.checksum


def parse_checkpoint(content: bytes | str) -> KubeletCheckpoint:
    """The checkpoint.

    Raises:
        ValueError: it is not JSON, or has other members than a kubelet writes.
    """
    try:
        return msgspec.json.decode(content, type=prepared(KubeletCheckpoint))
    except UNREADABLE as error:
        raise ValueError(str(error) or "too deep") from None


def sealed(registered: Mapping[str, Sequence[str]]) -> str:
    """A checkpoint as a kubelet writes it while no pod has a device."""
    data = _Data(registered_devices={name: list(ids) for name, ids in registered.items()})
    checksum = _fnv32a((_spew(data) or "").encode())
    return msgspec.json.encode(KubeletCheckpoint(data=data, checksum=checksum)).decode()


def _spew(data: _Data) -> str | None:
    """`fmt.Sprintf("%#v")` of go-spew with sorted keys: only values after a member's name have their type."""
    entries: list[str] = []
    for entry in data.pod_device_entries or ():
        if isinstance(entry.device_ids, list) or entry.alloc_resp is None:
            return None
        try:
            numbers = sorted((int(numa), ids) for numa, ids in (entry.device_ids or {}).items())
            answer = base64.b64decode(entry.alloc_resp, validate=True)
        except (ValueError, binascii.Error):
            return None
        ids = None if entry.device_ids is None else {str(numa): ids for numa, ids in numbers}
        entries.append(
            f"{{PodUID:(string){entry.pod_uid} ContainerName:(string){entry.container_name} "
            f"ResourceName:(string){entry.resource_name} "
            f"DeviceIDs:(checkpoint.DevicesPerNUMA){_spew_map(ids)} AllocResp:([]uint8)[{' '.join(map(str, answer))}]}}"
        )
    registered = None if data.registered_devices is None else dict(sorted(data.registered_devices.items()))
    return (
        "(checkpoint.checkpointData){PodDeviceEntries:([]checkpoint.PodDevicesEntry)"
        + ("<nil>" if data.pod_device_entries is None else f"[{' '.join(entries)}]")
        + f" RegisteredDevices:(map[string][]string){_spew_map(registered)}}}"
    )


def _spew_map(values: dict[str, list[str] | None] | None) -> str:
    if values is None:
        return "<nil>"
    rows = ((key, "<nil>" if ids is None else f"[{' '.join(ids)}]") for key, ids in values.items())
    return f"map[{' '.join(f'{key}:{ids}' for key, ids in rows)}]"


def _fnv32a(data: bytes) -> int:
    value = _FNV_BASIS
    for byte in data:
        value = ((value ^ byte) * _FNV_PRIME) & 0xFFFFFFFF
    return value
