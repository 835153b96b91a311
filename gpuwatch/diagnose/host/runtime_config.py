"""The configuration files of containerd, CRI-O, Docker and NVIDIA's own runtime, as far as they concern GPUs.

containerd: version 1 and 2 name the plugin `io.containerd.grpc.v1.cri` (`cri`), version 3 (containerd 2)
`io.containerd.cri.v1.runtime`; `imports` are read after the file that names them and overrule it.
CRI-O: /etc/crio/crio.conf, then /etc/crio/crio.conf.d in order of names. Docker: /etc/docker/daemon.json.
"""

import fnmatch
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from gpuwatch.diagnose.host.host_root import listing, text
from gpuwatch.diagnose.toml import toml_document
from gpuwatch.model.decoding import prepared
from gpuwatch.model.snapshot import UNREADABLE, Record

CONTAINERD, CRIO, DOCKER = "containerd", "crio", "docker"
CRI_PLUGINS = ("io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri", "cri")
MOST_IMPORTS = 64
"""The most files, and the most patterns of names, each of which lists a folder."""

Shape = TypeVar("Shape")


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


class _Options(msgspec.Struct):
    binary: str | None = msgspec.field(name="BinaryName", default=None)
    systemd_cgroup: bool | None = msgspec.field(name="SystemdCgroup", default=None)


class _Handler(msgspec.Struct):
    runtime_type: str = ""
    options: _Options = msgspec.field(default_factory=_Options)


class _Containerd(msgspec.Struct):
    default_runtime_name: str | None = None
    runtimes: dict[str, _Handler] = {}


class _Cri(msgspec.Struct):
    enable_cdi: bool | None = None
    containerd: _Containerd = msgspec.field(default_factory=_Containerd)


class _CrioHandler(msgspec.Struct):
    runtime_path: str = ""


class _Crio(msgspec.Struct):
    default_runtime: str | None = None
    cgroup_manager: str = "systemd"
    runtimes: dict[str, _CrioHandler] = {}


class _DockerHandler(msgspec.Struct):
    path: str = ""


class _Docker(msgspec.Struct, rename="kebab"):
    runtimes: dict[str, _DockerHandler] = {}
    default_runtime: str | None = None
    exec_opts: list[str] = []
    features: dict[str, Any] = {}


def containerd(root: Path, path: str) -> RuntimeConfig:
    """From the file at `path` of the host, with its imports."""
    files: list[str] = []
    try:
        document = _imported(root, path, files, set())
        plugins = _table(document, "plugins")
        name = next((name for name in CRI_PLUGINS if name in plugins), CRI_PLUGINS[0])
        cri = _convert(plugins.get(name, {}), _Cri)
    except (OSError, ValueError, RecursionError) as error:
        return _unreadable(CONTAINERD, path, files, error)
    if cri.enable_cdi is None and document.get("version") == 3:
        cri.enable_cdi = True  # containerd 2, whose default it is
    handlers = cri.containerd.runtimes
    default = cri.containerd.default_runtime_name or "runc"
    options = [handlers[each].options for each in ("nvidia", default, "runc") if each in handlers]
    return RuntimeConfig(
        kind=CONTAINERD,
        path=path,
        files=tuple(files),
        runtimes={name: handler.options.binary or handler.runtime_type for name, handler in handlers.items()},
        default=default,
        cdi=cri.enable_cdi,
        systemd_cgroup=next((each.systemd_cgroup for each in options if each.systemd_cgroup is not None), None),
    )


def crio(root: Path, path: str, files: Sequence[str]) -> RuntimeConfig:
    """From these files of the host; later ones overrule earlier ones; `path` names them as a whole."""
    document: dict[str, Any] = {}
    try:
        for file in files:
            document = _merged(document, _toml(root, file))
        found = _convert(_table(_table(document, "crio"), "runtime"), _Crio)
    except (OSError, ValueError, RecursionError) as error:
        return _unreadable(CRIO, path, files, error)
    return RuntimeConfig(
        kind=CRIO,
        path=path,
        files=tuple(files),
        runtimes={name: handler.runtime_path or name for name, handler in found.runtimes.items()},
        default=found.default_runtime,
        systemd_cgroup=found.cgroup_manager == "systemd",
    )


def docker(root: Path, path: str) -> RuntimeConfig:
    """From daemon.json; an empty file is allowed."""
    try:
        content = text(root, path)
        found = msgspec.json.decode(content, type=prepared(_Docker)) if content.strip() else _Docker()
    except OSError as error:
        return _unreadable(DOCKER, path, (path,), error)
    except UNREADABLE as error:
        return _unreadable(DOCKER, path, (path,), ValueError(f"{path}: {error}"))
    drivers = [option.partition("=")[2] for option in found.exec_opts if option.startswith("native.cgroupdriver=")]
    cdi = found.features.get("cdi")
    return RuntimeConfig(
        kind=DOCKER,
        path=path,
        files=(path,),
        runtimes={name: handler.path for name, handler in found.runtimes.items()},
        default=found.default_runtime,
        cdi=cdi if isinstance(cdi, bool) else None,
        systemd_cgroup=drivers[-1] == "systemd" if drivers else None,
    )


def toolkit(root: Path, path: str) -> ToolkitConfig | None:
    """config.toml of NVIDIA's runtime; None: there is none."""
    try:
        document = _toml(root, path)
        mode = _table(document, "nvidia-container-runtime").get("mode")
        no_cgroups = _table(document, "nvidia-container-cli").get("no-cgroups")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        return ToolkitConfig(path=path, error=str(error))
    return ToolkitConfig(
        path=path,
        mode=mode if isinstance(mode, str) else None,
        no_cgroups=no_cgroups if isinstance(no_cgroups, bool) else None,
    )


def _unreadable(kind: str, path: str, files: Sequence[str], error: Exception) -> RuntimeConfig:
    denied = isinstance(error, PermissionError)
    return RuntimeConfig(kind=kind, path=path, files=tuple(files), error=str(error), denied=denied)


def _imported(root: Path, path: str, files: list[str], tried: set[str]) -> dict[str, Any]:
    """The document at `path` with all it imports; each file is read once. An import is a path or a pattern of names,
    relative to the importing file. `tried`: patterns.
    """
    files.append(path)
    document = _toml(root, path)
    patterns = document.get("imports", [])
    if not isinstance(patterns, list):
        raise ValueError(f"{path}: imports is no list")
    for pattern in map(str, patterns):
        full = pattern if pattern.startswith("/") else f"{path.rpartition('/')[0]}/{pattern}"
        if full in tried or len(tried) >= MOST_IMPORTS:
            continue
        tried.add(full)
        folder, _, name = full.rpartition("/")
        for found in listing(root, folder):
            is_meant = fnmatch.fnmatchcase(found.rpartition("/")[2], name)
            if is_meant and found not in files and len(files) < MOST_IMPORTS:
                document = _merged(document, _imported(root, found, files, tried))
    return document


def _toml(root: Path, path: str) -> dict[str, Any]:
    try:
        return toml_document(text(root, path))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _table(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = document.get(name, {})
    if not isinstance(found, dict):
        raise ValueError(f"{name} is no table")
    return found


def _merged(base: dict[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Tables are merged, anything else is replaced."""
    merged = dict(base)
    for key, value in over.items():
        known = merged.get(key)
        merged[key] = _merged(known, value) if isinstance(known, dict) and isinstance(value, dict) else value
    return merged


def _convert(document: Any, shape: type[Shape]) -> Shape:
    try:
        return msgspec.convert(document, prepared(shape))
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
