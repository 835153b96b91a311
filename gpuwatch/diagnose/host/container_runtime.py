"""How containers get GPUs on this host: the container runtime's configuration and NVIDIA's toolkit."""

from collections.abc import Collection, Iterator
from pathlib import Path

from gpuwatch.diagnose.host.host_root import exists, listing, place, text
from gpuwatch.diagnose.host.runtime_config import CONTAINERD, CRIO, DOCKER, Parsed, containerd, crio, docker, toolkit
from gpuwatch.host.plain_file import plain
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
DPKG_STATUS = "/var/lib/dpkg/status"
MOST_STATUS_LINES = 2_000_000


class RuntimeConfig(Record, frozen=True, kw_only=True):
    """One runtime's configuration, all its files merged. `runtimes`: handlers by name -> binary; `missing`: NVIDIA
    binaries among them that the host lacks; `hook`: an OCI hook of NVIDIA's that does a handler's work; `cdi` and
    `systemd_cgroup` None: not set, and the version has no known default; `error`: why the file cannot be read;
    `denied`: only because a permission is missing.
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
        """Its handlers that run NVIDIA's runtime."""
        return {name: binary for name, binary in self.runtimes.items() if "nvidia" in binary.rpartition("/")[2]}


class ToolkitConfig(Record, frozen=True, kw_only=True):
    """config.toml of NVIDIA's runtime; None: not set."""

    path: str
    mode: str | None = None
    no_cgroups: bool | None = None
    error: str | None = None


class ContainerRuntime(Record, frozen=True, kw_only=True):
    """`toolkit`: path of nvidia-ctk or nvidia-container-runtime -> its version, empty where it is not known.
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
    packages = package_versions(root, (TOOLKIT_PACKAGE, *(name for names in PACKAGES.values() for name in names)))
    tools = (f"{folder}/{tool}" for folder in TOOLKIT_FOLDERS for tool in TOOLS)
    packaged = packages.get(TOOLKIT_PACKAGE, "")
    return ContainerRuntime(
        configs=tuple(_runtime_config(root, packages, *found) for found in _parsed(root)),
        toolkit={path: packaged if path.startswith("/usr/bin/") else "" for path in tools if exists(root, path)},
        toolkit_config=next((found for path in TOOLKIT_FILES if (found := _toolkit_config(root, path))), None),
        installed=tuple(kind for program, kind in DAEMONS.items() if _is_installed(root, program)),
        gke=exists(root, GKE_FOLDER),
    )


def _parsed(root: Path) -> Iterator[tuple[str, str, Parsed]]:
    for path in CONTAINERD_FILES:
        if exists(root, path):
            yield CONTAINERD, path, containerd(root, path)
    drop_ins = tuple(path for path in listing(root, CRIO_FOLDER) if not path.rpartition("/")[2].startswith("."))
    main = (CRIO_FILE,) if exists(root, CRIO_FILE) else ()
    if main or drop_ins:
        yield CRIO, CRIO_FILE if main else CRIO_FOLDER, crio(root, (*main, *drop_ins))
    if exists(root, DOCKER_FILE):
        yield DOCKER, DOCKER_FILE, docker(root, DOCKER_FILE)


def _runtime_config(root: Path, packages: dict[str, str], kind: str, path: str, parsed: Parsed) -> RuntimeConfig:
    version = next((packages[name] for name in PACKAGES[kind] if name in packages), None)
    cdi = parsed.cdi
    if cdi is None and kind == CRIO:  # on since CRI-O 1.24
        cdi = True
    elif cdi is None:  # on since containerd 2.0 and Docker 28.2
        numbers = (version or "").partition(":")[2] or version or ""
        parts = [int(part) for part in numbers.replace("-", ".").split(".")[:2] if part.isdecimal()]
        cdi = parts >= ([2, 0] if kind == CONTAINERD else [28, 2]) if parts else None
    hooks = (found for folder in HOOK_FOLDERS for found in listing(root, folder, ".json") if "nvidia" in found)
    binaries = [binary for binary in parsed.runtimes.values() if "nvidia" in binary]
    return RuntimeConfig(
        kind=kind,
        path=path,
        files=parsed.files,
        version=version,
        runtimes=parsed.runtimes,
        missing=tuple(binary for binary in binaries if not _is_installed(root, binary)),
        hook=next(hooks, None) if kind == CRIO else None,
        default=parsed.default,
        cdi=cdi,
        systemd_cgroup=parsed.systemd_cgroup,
        error=parsed.error,
        denied=parsed.denied,
    )


def _is_installed(root: Path, program: str) -> bool:
    """A bare name is looked for in the folders that daemons search."""
    paths = (program,) if "/" in program else (f"{folder}/{program}" for folder in PROGRAM_FOLDERS)
    return any(exists(root, path) for path in paths)


def _toolkit_config(root: Path, path: str) -> ToolkitConfig | None:
    try:
        found = toolkit(text(root, path))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        return ToolkitConfig(path=path, error=str(error))
    return ToolkitConfig(path=path, mode=found.mode, no_cgroups=found.no_cgroups)


def package_versions(root: Path, names: Collection[str]) -> dict[str, str]:
    """Name -> version (`1.18.1-1`) of the installed ones by dpkg; empty where dpkg is not used, as with RPM."""
    found: dict[str, str] = {}
    path = place(root, DPKG_STATUS)
    if path is None:
        return found
    try:
        with open(path, errors="replace", opener=plain) as file:
            package, installed = "", False
            for _, line in zip(range(MOST_STATUS_LINES), file, strict=False):
                key, _, value = line.rstrip("\n").partition(": ")
                if key == "Package":
                    package, installed = value, False
                elif key == "Status":
                    installed = value.endswith(" installed")
                elif key == "Version" and installed and package in names:
                    found[package] = value
    except OSError:
        return found
    return found
