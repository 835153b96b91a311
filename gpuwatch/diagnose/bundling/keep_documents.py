"""What is kept of a host's configuration documents in a bundle: keys that checks and readers need, and no other."""

import json
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from gpuwatch.diagnose.bundling.keep import Keep
from gpuwatch.diagnose.bundling.redaction import MARK, Redactor

_PLAIN = Redactor()

Shape = Mapping[str, Any]
"""Key (`*`: any) -> True: its value is kept, MARK: that it is there; a shape: of its members what that says. A list is
kept item by item."""


def shaped(value: Any, shape: Any) -> Any:
    """What of a document a shape keeps."""
    if shape is True:
        return value
    if isinstance(value, list):
        return [shaped(item, shape) for item in value]
    if not isinstance(value, dict):
        return value if value is None else MARK
    chosen = ((key, shape.get(key, shape.get("*"))) for key in value)
    return {key: shaped(value[key], inner) for key, inner in chosen if inner is not None}


_HANDLER = {
    "runtime_type": True, "runtime_path": True, "runtime_root": True, "pod_annotations": True, "sandbox_mode": True,
    "options": {"BinaryName": True, "SystemdCgroup": True, "Root": True},
}  # fmt: skip
_CRI = {
    "enable_cdi": True, "cdi_spec_dirs": True, "enable_selinux": True,
    "containerd": {"default_runtime_name": True, "snapshotter": True, "runtimes": {"*": _HANDLER}},
}  # fmt: skip
CONTAINERD: Shape = {
    "version": True, "imports": True, "root": True, "state": True,
    "plugins": {"io.containerd.cri.v1.runtime": _CRI, "io.containerd.grpc.v1.cri": _CRI, "cri": _CRI},
}  # fmt: skip
CRIO: Shape = {
    "crio": {
        "runtime": {
            "default_runtime": True, "cgroup_manager": True, "hooks_dir": True, "cdi_spec_dirs": True,
            "runtimes": {"*": {"runtime_path": True, "runtime_type": True, "runtime_root": True, "monitor_path": True}},
        }
    }
}  # fmt: skip
TOOLKIT: Shape = {
    "disable-require": True, "supported-driver-capabilities": True, "swarm-resource": True, "features": True,
    "accept-nvidia-visible-devices-as-volume-mounts": True,
    "accept-nvidia-visible-devices-envvar-when-unprivileged": True,
    "nvidia-container-cli": {
        "root": True, "path": True, "debug": True, "ldcache": True, "ldconfig": True, "load-kmods": True,
        "no-cgroups": True, "user": True,
    },
    "nvidia-container-runtime": {"debug": True, "log-level": True, "mode": True, "runtimes": True, "modes": {
        "cdi": {"default-kind": True, "spec-dirs": True, "annotation-prefixes": True},
        "csv": {"mount-spec-path": True},
    }},
    "nvidia-container-runtime-hook": {"path": True, "skip-mode-detection": True},
    "nvidia-ctk": {"path": True},
}  # fmt: skip
DOCKER: Shape = {
    "runtimes": {"*": {"path": True}}, "default-runtime": True, "exec-opts": True, "cdi-spec-dirs": True,
    "features": {"cdi": True, "containerd-snapshotter": True}, "cgroup-parent": True,
}  # fmt: skip
_EDITS = {
    "deviceNodes": {"*": True},
    "mounts": {"hostPath": True, "containerPath": True, "options": True, "type": True},
    "hooks": {"hookName": True, "path": True},
}
CDI: Shape = {
    "cdiVersion": True, "kind": True, "containerEdits": _EDITS, "devices": {"name": True, "containerEdits": _EDITS},
}  # fmt: skip
CHECKPOINT: Shape = {
    "Data": {
        "PodDeviceEntries": {"PodUID": True, "ContainerName": True, "ResourceName": True, "DeviceIDs": True},
        "RegisteredDevices": True,
    },
    "Checksum": True,
}
KUBELET: Shape = {
    key: True
    for key in (
        "apiVersion", "kind", "cgroupDriver", "containerRuntimeEndpoint", "cpuManagerPolicy", "featureGates", "maxPods",
        "memoryManagerPolicy", "podPidsLimit", "topologyManagerPolicy", "topologyManagerScope",
    )
}  # fmt: skip


def as_toml(shape: Shape) -> Keep:
    """TOML as TOML; what is none is replaced by a line that is none either."""

    def keep(text: str) -> str:
        try:
            document = tomllib.loads(text)
        except (ValueError, RecursionError) as error:
            return f"[left out, for it is not TOML: {error}\n"
        return "".join(_toml(_PLAIN.plain(shaped(document, shape)), ()))

    return keep


def as_json(shape: Shape) -> Keep:
    """JSON as JSON."""

    def keep(text: str) -> str:
        try:
            document = msgspec.json.decode(text) if text.strip() else {}
        except (msgspec.DecodeError, RecursionError) as error:
            return f"left out, for it is not JSON: {error}\n"
        return json.dumps(_PLAIN.plain(shaped(document, shape)), indent=1) + "\n"

    return keep


def as_yaml(shape: Shape) -> Keep:
    """YAML, or JSON, as YAML."""

    def keep(text: str) -> str:
        import yaml

        try:
            document = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 a SafeLoader
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            problem = getattr(error, "problem", None) or type(error).__name__
            return f"left out, for it is not YAML: [{problem}\n"
        return yaml.safe_dump(_PLAIN.plain(shaped(document, shape)), sort_keys=False)

    return keep


def _toml(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    """Tables below plain values, which is what TOML asks for."""
    values = {key: value for key, value in table.items() if not isinstance(value, dict)}
    if path and (values or not table):
        yield f"\n[{'.'.join(map(json.dumps, path))}]\n"
    for key, value in values.items():
        yield f"{json.dumps(key)} = {json.dumps(value, default=str)}\n"
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _toml(value, (*path, key))
