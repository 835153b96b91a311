"""The kubelet's side of device plugins as its files show it: sockets and the allocation checkpoint."""

import contextlib
import re
import socket
import stat
from pathlib import Path

from gpuwatch.diagnose.host import kubelet_checkpoint
from gpuwatch.diagnose.host.host_root import exists, listing, place, text
from gpuwatch.model.snapshot import Record

FOLDERS = ("/var/lib/kubelet", "/var/lib/k0s/kubelet", "/var/snap/microk8s/common/var/lib/kubelet")
CHECKPOINT = "kubelet_internal_checkpoint"
DRA_DRIVERS = ("gpu.nvidia.com", "compute-domain.nvidia.com")
DEADLINE = 2.0
"""Seconds for one answer of a socket."""

_ENDPOINT = re.compile(r"(?:--container-runtime-endpoint[= ]|containerRuntimeEndpoint:\s*)[\"']?([^\s\"']+)", re.ASCII)


class KubeletFiles(Record, frozen=True, kw_only=True):
    """`present`: there is a kubelet on this host; `folder`: its own, where it can be seen; `endpoint`: of the container
    runtime it is told to use. `plugins`: sockets of NVIDIA's device plugins, None when their folder cannot be seen;
    `deaf`: those of them that nobody listens on, when asked. `dra`: NVIDIA's DRA drivers that have registered.
    `checkpoint`: resource -> healthy devices the kubelet has registered; `intact`: whether its checksum fits.
    `pod_resources`: None when its socket answered, else why not; `pod_resources_reason`: in a word of `Reason` there.
    """

    present: bool = False
    folder: str | None = None
    kubelet_socket: bool = False
    plugins: tuple[str, ...] | None = None
    deaf: tuple[str, ...] = ()
    dra: tuple[str, ...] = ()
    checkpoint: dict[str, tuple[str, ...]] | None = None
    checkpoint_error: str | None = None
    intact: bool | None = None
    pod_resources: str | None = None
    pod_resources_reason: str | None = None
    endpoint: str | None = None


def kubelet_files(root: Path, pod_resources: Path, *, ask: bool) -> KubeletFiles:
    """Read what can be read; `ask`: also ask the pod-resources socket and knock at those of the plugins."""
    folder = next((each for each in FOLDERS if _is_used(root, each)), None)
    if folder is None and not pod_resources.parent.is_dir():
        return KubeletFiles()
    at = folder or FOLDERS[0]
    plugins = _plugins(root, f"{at}/device-plugins")
    reason, why = _pod_resources(pod_resources, ask=ask)
    checkpoint, error, intact = _checkpoint(root, f"{at}/device-plugins/{CHECKPOINT}")
    return KubeletFiles(
        present=True,
        folder=folder,
        kubelet_socket=exists(root, f"{at}/device-plugins/kubelet.sock"),
        plugins=plugins,
        deaf=tuple(path for path in plugins or () if ask and _is_deaf(root, path)),
        dra=tuple(name for name in DRA_DRIVERS if exists(root, f"{at}/plugins_registry/{name}-reg.sock")),
        checkpoint=checkpoint,
        checkpoint_error=error,
        intact=intact,
        pod_resources=why,
        pod_resources_reason=reason,
        endpoint=_endpoint(root, at),
    )


def _is_used(root: Path, folder: str) -> bool:
    """More than a mount point: what a kubelet makes when it starts, or what it is started with."""
    return any(exists(root, f"{folder}/{name}") for name in ("device-plugins", "config.yaml", "pods"))


def _plugins(root: Path, folder: str) -> tuple[str, ...] | None:
    """NVIDIA's plugin listens on nvidia-gpu.sock or nvidia-mig-1g.10gb.sock, Google's on nvidiaGPU-<time>.sock."""
    if not exists(root, folder):
        return None
    return tuple(path for path in listing(root, folder, ".sock") if path.rpartition("/")[2].startswith("nvidia"))


def _is_deaf(root: Path, path: str) -> bool:
    """A socket whose process is gone; one that we may not open is believed to be well."""
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
    """Reason and words why the socket does not answer; None and None when it does, or is there and is not asked."""
    if not ask:
        return (None, None) if path.exists() else ("absent", f"{path} is not there")
    from gpuwatch.workloads.podresources import PodResources, PodResourcesError

    client = PodResources(path, deadline=DEADLINE)
    try:
        client.allocations()
    except PodResourcesError as error:
        return error.reason, f"{error.what}: {error.why}"
    finally:
        client.close()
    return None, None


def _checkpoint(root: Path, path: str) -> tuple[dict[str, tuple[str, ...]] | None, str | None, bool | None]:
    """What it has registered, or why it cannot be told (None: there is none), and whether the checksum fits."""
    try:
        found = kubelet_checkpoint.parse(text(root, path))
    except FileNotFoundError:
        return None, None, None
    except OSError as error:
        return None, f"cannot be read: {error.strerror or error}", None
    except ValueError as error:
        return None, str(error), False
    return found.registered, None, found.is_intact


def _endpoint(root: Path, folder: str) -> str | None:
    """Flags overrule the file."""
    for path in (f"{folder}/kubeadm-flags.env", f"{folder}/config.yaml"):
        with contextlib.suppress(OSError):
            if match := _ENDPOINT.search(text(root, path)):
                return match[1]
    return None
