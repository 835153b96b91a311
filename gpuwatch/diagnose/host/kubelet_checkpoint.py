"""The kubelet's note of which devices are registered and given away: kubelet_internal_checkpoint.

`{"Data": {"PodDeviceEntries": [...], "RegisteredDevices": {"nvidia.com/gpu": ["GPU-..."]}}, "Checksum": 3952659280}`.
Only healthy devices are registered there. The checksum is 32-bit FNV-1a of the data as go-spew writes Go's own types
(kubernetes, pkg/kubelet/checkpointmanager/checksum and pkg/util/hash).
"""

import base64
import binascii
from collections.abc import Mapping, Sequence

import msgspec

_BASIS, _PRIME, _MASK = 0x811C9DC5, 0x01000193, 0xFFFFFFFF


class _Entry(msgspec.Struct, rename="pascal", forbid_unknown_fields=True):
    pod_uid: str = msgspec.field(name="PodUID")
    container_name: str
    resource_name: str
    device_ids: dict[str, list[str] | None] | list[str] | None = msgspec.field(name="DeviceIDs", default=None)
    alloc_resp: str | None = None


class _Data(msgspec.Struct, rename="pascal", forbid_unknown_fields=True):
    pod_device_entries: list[_Entry] | None = None
    registered_devices: dict[str, list[str] | None] | None = None


class Checkpoint(msgspec.Struct, rename="pascal"):
    """The file as it stands."""

    data: _Data
    checksum: int

    @property
    def registered(self) -> dict[str, tuple[str, ...]]:
        """Resource -> healthy devices."""
        return {name: tuple(sorted(ids or ())) for name, ids in (self.data.registered_devices or {}).items()}

    @property
    def is_intact(self) -> bool | None:
        """Whether the checksum fits. None: a kubelet before 1.20 has summed it up otherwise, or what containers were
        told (`AllocResp`) has been left out of a copy.
        """
        written = _spew(self.data)
        return None if written is None else _fnv32a(written.encode()) == self.checksum


def parse(content: bytes | str) -> Checkpoint:
    """The checkpoint.

    Raises:
        ValueError: it is not JSON, or has other members than a kubelet writes.
    """
    try:
        return msgspec.json.decode(content, type=Checkpoint)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(str(error) or "too deep") from None


def sealed(registered: Mapping[str, Sequence[str]]) -> str:
    """A checkpoint as a kubelet writes it while no pod has a device."""
    data = _Data(registered_devices={name: list(ids) for name, ids in registered.items()})
    checksum = _fnv32a((_spew(data) or "").encode())
    return msgspec.json.encode(Checkpoint(data=data, checksum=checksum)).decode()


def _spew(data: _Data) -> str | None:
    """`fmt.Sprintf("%#v")` of go-spew with sorted keys: only values behind a member's name carry their type."""
    entries = "<nil>"
    if data.pod_device_entries is not None:
        written = [_entry(entry) for entry in data.pod_device_entries]
        if None in written:
            return None
        entries = f"[{' '.join(map(str, written))}]"
    return (
        f"(checkpoint.checkpointData){{PodDeviceEntries:([]checkpoint.PodDevicesEntry){entries} "
        f"RegisteredDevices:(map[string][]string){_map(data.registered_devices)}}}"
    )


def _entry(entry: _Entry) -> str | None:
    if isinstance(entry.device_ids, list) or entry.alloc_resp is None:
        return None
    try:
        numbers = sorted((int(numa), ids) for numa, ids in (entry.device_ids or {}).items())
        answer = base64.b64decode(entry.alloc_resp, validate=True)
    except (ValueError, binascii.Error):
        return None
    ids = None if entry.device_ids is None else {str(numa): ids for numa, ids in numbers}
    response = " ".join(map(str, answer))
    return (
        f"{{PodUID:(string){entry.pod_uid} ContainerName:(string){entry.container_name} "
        f"ResourceName:(string){entry.resource_name} "
        f"DeviceIDs:(checkpoint.DevicesPerNUMA){_map(ids, ordered=True)} AllocResp:([]uint8)[{response}]}}"
    )


def _map(values: dict[str, list[str] | None] | None, *, ordered: bool = False) -> str:
    if values is None:
        return "<nil>"
    rows = values.items() if ordered else sorted(values.items())
    return f"map[{' '.join(f'{key}:{_list(ids)}' for key, ids in rows)}]"


def _list(ids: list[str] | None) -> str:
    return "<nil>" if ids is None else f"[{' '.join(ids)}]"


def _fnv32a(data: bytes) -> int:
    value = _BASIS
    for byte in data:
        value = ((value ^ byte) * _PRIME) & _MASK
    return value
