"""How containers get GPUs on this host: the container runtime's configuration and NVIDIA's toolkit."""

from pathlib import Path

from gpuwatch.model.snapshot import Record


class RuntimeConfig(Record, frozen=True, kw_only=True):
    """One runtime's configuration. `runtimes`: handlers by name -> binary; `error`: why the file cannot be read."""

    kind: str  # containerd | crio | docker
    path: str
    runtimes: dict[str, str] = {}
    default: str | None = None
    cdi: bool | None = None
    systemd_cgroup: bool | None = None
    error: str | None = None


class ContainerRuntime(Record, frozen=True, kw_only=True):
    """`toolkit`: path of nvidia-ctk or nvidia-container-runtime -> version where it is told, else an empty text."""

    configs: tuple[RuntimeConfig, ...] = ()
    toolkit: dict[str, str] = {}


def container_runtime(root: Path) -> ContainerRuntime:
    """Read what can be read."""
    return ContainerRuntime()
