"""How containers get GPUs on this host: the container runtimes, their configuration, and NVIDIA's toolkit."""

import re
from pathlib import Path

from msgspec.structs import replace

from gpuwatch.diagnose.host.host_root import exists, listing, package_versions
from gpuwatch.diagnose.host.runtime_config import (
    CONTAINERD,
    CRIO,
    DOCKER,
    RuntimeConfig,
    ToolkitConfig,
    containerd,
    crio,
    docker,
    toolkit,
)
from gpuwatch.model.snapshot import Record
from gpuwatch.model.text import number

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


class ContainerRuntime(Record, frozen=True, kw_only=True):
    """`toolkit`: path of each of `TOOLS` that is there -> its version, empty where it is not known.
    `installed`: kinds of runtimes whose program is there (`containerd`, `crio`, `docker`, `podman`). `gke`: a node of
    Google's, where Google's device plugin mounts the driver and no toolkit is needed.
    """

    configs: tuple[RuntimeConfig, ...] = ()
    toolkit: dict[str, str] = {}
    toolkit_config: ToolkitConfig | None = None
    installed: tuple[str, ...] = ()
    gke: bool = False


def container_runtime(root: Path) -> ContainerRuntime:
    """Read what can be read."""
    wanted = "|".join(re.escape(name) for names in (*PACKAGES.values(), (TOOLKIT_PACKAGE,)) for name in names)
    packages = package_versions(root, wanted)
    tools = (f"{folder}/{tool}" for folder in TOOLKIT_FOLDERS for tool in TOOLS)
    packaged = packages.get(TOOLKIT_PACKAGE, "")
    configs = [containerd(root, path) for path in CONTAINERD_FILES if exists(root, path)]
    drop_ins = [path for path in listing(root, CRIO_FOLDER) if not path.rpartition("/")[2].startswith(".")]
    main = [CRIO_FILE] if exists(root, CRIO_FILE) else []
    if main or drop_ins:
        configs.append(crio(root, CRIO_FILE if main else CRIO_FOLDER, main + drop_ins))
    if exists(root, DOCKER_FILE):
        configs.append(docker(root, DOCKER_FILE))
    return ContainerRuntime(
        configs=tuple(_completed(root, packages, config) for config in configs),
        toolkit={path: packaged if path.startswith("/usr/bin/") else "" for path in tools if exists(root, path)},
        toolkit_config=next((found for path in TOOLKIT_FILES if (found := toolkit(root, path))), None),
        installed=tuple(kind for program, kind in DAEMONS.items() if _is_installed(root, program)),
        gke=exists(root, GKE_FOLDER),
    )


def _completed(root: Path, packages: dict[str, str], config: RuntimeConfig) -> RuntimeConfig:
    """The configuration with version, defaults, and the binaries and the hook that were found or are missing."""
    kind, cdi = config.kind, config.cdi
    version = next((packages[name] for name in PACKAGES[kind] if name in packages), None)
    if cdi is None and kind == CRIO:  # on since CRI-O 1.24
        cdi = True
    elif cdi is None:  # on since containerd 2.0 and Docker 28.2
        numbers = (version or "").partition(":")[2] or version or ""
        parts = [part for part in map(number, numbers.replace("-", ".").split(".")[:2]) if part is not None]
        cdi = parts >= ([2, 0] if kind == CONTAINERD else [28, 2]) if parts else None
    hooks = (found for folder in HOOK_FOLDERS for found in listing(root, folder, ".json") if "nvidia" in found)
    binaries = [binary for binary in config.runtimes.values() if "nvidia" in binary]
    missing = tuple(binary for binary in binaries if not _is_installed(root, binary))
    hook = next(hooks, None) if kind == CRIO else None
    return replace(config, version=version, missing=missing, hook=hook, cdi=cdi)


def _is_installed(root: Path, program: str) -> bool:
    """A bare name is looked for in the folders that daemons search."""
    paths = (program,) if "/" in program else (f"{folder}/{program}" for folder in PROGRAM_FOLDERS)
    return any(exists(root, path) for path in paths)
