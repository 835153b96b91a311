"""The kubelet's side of device plugins as its files show it: sockets and the allocation checkpoint."""

from pathlib import Path

from gpuwatch.model.snapshot import Record


class KubeletFiles(Record, frozen=True, kw_only=True):
    """`present`: there is a kubelet on this host. `plugins`: sockets of NVIDIA's device plugins; `checkpoint`: resource
    -> devices the kubelet has registered; `pod_resources`: None when its socket answered, else why not.
    """

    present: bool = False
    kubelet_socket: bool = False
    plugins: tuple[str, ...] = ()
    checkpoint: dict[str, tuple[str, ...]] | None = None
    checkpoint_error: str | None = None
    pod_resources: str | None = None


def kubelet_files(root: Path, pod_resources: Path, *, ask: bool) -> KubeletFiles:
    """Read what can be read; `ask`: also ask the pod-resources socket."""
    return KubeletFiles()
