"""How containers get GPUs on this host: the container runtime's configuration and NVIDIA's toolkit."""

from collections.abc import Iterator
from pathlib import Path

from gpuwatch.diagnose.host.host_root import exists, listing, text
from gpuwatch.diagnose.host.packages import versions
from gpuwatch.diagnose.host.runtime_config import CONTAINERD, CRIO, DOCKER, Parsed, containerd, crio, docker, toolkit
from gpuwatch.model.snapshot import Record

CONTAINERD_FILES = (
    "/etc/containerd/config.toml",
    "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
    "/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
    "/etc/k0s/containerd.toml",
    "/etc/cri/containerd.toml",
    "/var/snap/microk8s/current/args/containerd.toml",
)
CRIO_FILE, CRIO_FOLDER = "/etc/crio/crio.conf", "/etc/crio/crio.conf.d"
DOCKER_FILE = "/etc/docker/daemon.json"
HOOK_FOLDERS = ("/usr/share/containers/oci/hooks.d", "/run/containers/oci/hooks.d", "/etc/containers/oci/hooks.d")
TOOLKIT_FOLDERS = ("/usr/bin", "/usr/local/nvidia/toolkit", "/usr/local/bin", "/opt/nvidia/toolkit")
TOOLS = ("nvidia-ctk", "nvidia-container-runtime", "nvidia-container-runtime-hook", "nvidia-cdi-hook")
TOOLKIT_PACKAGE = "nvidia-container-toolkit"
TOOLKIT_FILES = ("/usr/local/nvidia/toolkit/.config/nvidia-container-runtime/config.toml",
                 "/etc/nvidia-container-runtime/config.toml")  # fmt: skip
PROGRAM_FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
DAEMONS = {"containerd": CONTAINERD, "crio": CRIO, "dockerd": DOCKER, "podman": "podman"}
PACKAGES = {
    CONTAINERD: ("containerd.io", "containerd"),
    CRIO: ("cri-o",),
    DOCKER: ("docker-ce", "docker.io", "moby-engine"),
}
GKE_FOLDER = "/home/kubernetes/bin/nvidia"


class RuntimeConfig(Record, frozen=True, kw_only=True):
    """One runtime's configuration, all its files merged. `runtimes`: handlers by name -> binary; `missing`: NVIDIA
    binaries among them that the host lacks; `hook`: an OCI hook of NVIDIA's that does a handler's work; `cdi` and
    `systemd_cgroup` None: not said, and the version does not tell; `error`: why the file cannot be read; `denied`: only
    for want of a right.
    """

    kind: str  # containerd | crio | docker
    path: str
    files: tuple[str, ...] = ()
    version: str | None = None  # of the package
    runtimes: dict[str, str] = {}
    missing: tuple[str, ...] = ()
    hook: str | None = None
    default: str | None = None
    cdi: bool | None = None
    systemd_cgroup: bool | None = None
    error: str | None = None
    denied: bool = False

    @property
    def nvidia(self) -> dict[str, str]:
        """Its handlers that lead to NVIDIA's runtime."""
        return {name: binary for name, binary in self.runtimes.items() if "nvidia" in binary.rpartition("/")[2]}


class ToolkitConfig(Record, frozen=True, kw_only=True):
    """config.toml of NVIDIA's runtime; None: not said."""

    path: str
    mode: str | None = None
    no_cgroups: bool | None = None
    error: str | None = None


class ContainerRuntime(Record, frozen=True, kw_only=True):
    """`toolkit`: path of nvidia-ctk or nvidia-container-runtime -> version where it is told, else an empty text.
    `installed`: kinds of runtimes whose program is there (`containerd`, `crio`, `docker`, `podman`). `gke`: Google's
    way, in which a device plugin of its own mounts the driver and no toolkit is needed.
    """

    configs: tuple[RuntimeConfig, ...] = ()
    toolkit: dict[str, str] = {}
    toolkit_config: ToolkitConfig | None = None
    installed: tuple[str, ...] = ()
    gke: bool = False


def container_runtime(root: Path) -> ContainerRuntime:
    """Read what can be read."""
    packages = versions(root, (TOOLKIT_PACKAGE, *(name for names in PACKAGES.values() for name in names)))
    tools = (f"{folder}/{tool}" for folder in TOOLKIT_FOLDERS for tool in TOOLS)
    packaged = packages.get(TOOLKIT_PACKAGE, "")
    return ContainerRuntime(
        configs=tuple(_configs(root, packages)),
        toolkit={path: packaged if path.startswith("/usr/bin/") else "" for path in tools if exists(root, path)},
        toolkit_config=next((found for path in TOOLKIT_FILES if (found := _toolkit_config(root, path))), None),
        installed=tuple(kind for program, kind in DAEMONS.items() if _found(root, program)),
        gke=exists(root, GKE_FOLDER),
    )


def _configs(root: Path, packages: dict[str, str]) -> Iterator[RuntimeConfig]:
    for kind, path, parsed in _parsed(root):
        version = next((packages[name] for name in PACKAGES[kind] if name in packages), None)
        binaries = [binary for binary in parsed.runtimes.values() if "nvidia" in binary]
        yield RuntimeConfig(
            kind=kind,
            path=path,
            files=parsed.files,
            version=version,
            runtimes=parsed.runtimes,
            missing=tuple(binary for binary in binaries if not _found(root, binary)),
            hook=_hook(root) if kind == CRIO else None,
            default=parsed.default,
            cdi=parsed.cdi if parsed.cdi is not None else _cdi_by_default(kind, version),
            systemd_cgroup=parsed.systemd_cgroup,
            error=parsed.error,
            denied=parsed.denied,
        )


def _parsed(root: Path) -> Iterator[tuple[str, str, Parsed]]:
    for path in CONTAINERD_FILES:
        if exists(root, path):
            yield CONTAINERD, path, containerd(root, path)
    drop_ins = tuple(path for path in listing(root, CRIO_FOLDER) if not path.rpartition("/")[2].startswith("."))
    if exists(root, CRIO_FILE) or drop_ins:
        files = (CRIO_FILE, *drop_ins) if exists(root, CRIO_FILE) else drop_ins
        yield CRIO, CRIO_FILE if exists(root, CRIO_FILE) else CRIO_FOLDER, crio(root, files)
    if exists(root, DOCKER_FILE):
        yield DOCKER, DOCKER_FILE, docker(root, DOCKER_FILE)


def _cdi_by_default(kind: str, version: str | None) -> bool | None:
    """CRI-O has it on since 1.24, containerd since 2.0, Docker since 28.2."""
    if kind == CRIO:
        return True
    numbers = (version or "").partition(":")[2] or version or ""
    parts = [int(part) for part in numbers.replace("-", ".").split(".")[:2] if part.isdecimal()]
    return None if not parts else parts >= ([2, 0] if kind == CONTAINERD else [28, 2])


def _hook(root: Path) -> str | None:
    names = (path for folder in HOOK_FOLDERS for path in listing(root, folder, ".json"))
    return next((path for path in names if "nvidia" in path), None)


def _found(root: Path, program: str) -> bool:
    """A bare name is looked for where daemons look."""
    if "/" in program:
        return exists(root, program)
    return any(exists(root, f"{folder}/{program}") for folder in PROGRAM_FOLDERS)


def _toolkit_config(root: Path, path: str) -> ToolkitConfig | None:
    try:
        found = toolkit(text(root, path))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        return ToolkitConfig(path=path, error=str(error))
    return ToolkitConfig(path=path, mode=found.mode, no_cgroups=found.no_cgroups)
