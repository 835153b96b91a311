"""Filters: what a bundle keeps of a host's file: known parameters, modules, packages and document keys; nothing else.

Each filter takes the text of a file and returns what may leave the machine.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from gpuwatch.diagnose.bundling.redaction import MARK, Redactor
from gpuwatch.diagnose.toml import toml_document
from gpuwatch.model.errors import UsageError
from gpuwatch.model.snapshot import UNREADABLE

Filter = Callable[[str], str]

_REDACTOR = Redactor()

Shape = Mapping[str, Any]
"""Key (`*`: any) -> True: its value is kept; a shape: it applies to the members of the value, and to each item of a
list. A value that is no document where a shape expects one becomes MARK."""


_PARAMETERS = re.compile(
    r"(?:BOOT_IMAGE|root|ro|rw|quiet|splash|nosplash|debug|iommu(?:\..*)?|intel_iommu|amd_iommu|pci(?:e_.*)?|pcie.*|nvidia.*|nouveau.*"
    r"|nova.*|vfio.*|(?:rd\.)?(?:driver|modprobe|module)[._]blacklist|module_blacklist|rdblacklist|module\.sig_enforce|lockdown"
    r"|(?:default_)?hugepage.*|transparent_hugepage|numa.*|isolcpus|nohz.*|rcu_nocbs|mitigations|mem|nomodeset|systemd\."
    r"(?:unified|legacy).*|cgroup.*|swiotlb|efi|nosmt|processor\..*|intel_idle\..*|cpuidle\..*|crashkernel|selinux|apparmor)"
)
_MODULES = re.compile(r"(?:nvidia|nouveau|nova|vfio|gdrdrv|mlx5|ib_)[\w-]*", re.A)
_ASSIGNED = re.compile(r"\s*(?:export\s+)?([\w.-]+)=(?:true|false|\d+|/[\w./-]*|[\w.-]{1,15})?\s*", re.A)
_PACKAGES = re.compile(
    r"(?:lib)?nvidia|cuda|datacenter-gpu|containerd|cri-o|docker|moby|podman|linux-(?:image|headers)|kubelet|mlnx"
)
_PACKAGE_KEYS = ("Package", "Status", "Version", "Architecture", "Source")


def _is_known(parameter: str) -> bool:
    return _PARAMETERS.fullmatch(parameter.partition("=")[0]) is not None


def left_out_of_cmdline(text: str) -> tuple[str, ...]:
    """The values that `cmdline` removes."""
    unknown = (each.partition("=") for each in text.split() if not _is_known(each))
    return tuple(value.strip('"') for _, sign, value in unknown if sign)


def cmdline(text: str) -> str:
    """/proc/cmdline: parameters that matter to GPUs in full, the names of the others."""
    parameters = text.split()
    return " ".join(p if "=" not in p or _is_known(p) else f"{p.partition('=')[0]}={MARK}" for p in parameters) + "\n"


def modprobe(text: str) -> str:
    """modprobe.d: every line `blacklist NAME`; options and commands only of modules around GPUs."""
    kept = []
    for line in text.splitlines():
        fields = line.split()
        if fields[:1] == ["blacklist"]:
            is_kept = len(fields) == 2
        else:
            is_kept = len(fields) > 1 and fields[0] in ("options", "install", "remove", "softdep", "alias")
            modules = (fields[1], fields[-1] if fields[0] == "alias" else "") if is_kept else ()
            is_kept = any(map(_MODULES.fullmatch, modules))
        kept += [f"{line}\n"] if is_kept else []
    return "".join(kept)


def assignments(text: str) -> str:
    """KEY=VALUE lines; values only where they are switches, numbers, short words or paths."""
    return "".join(
        f"{line}\n" if "=" not in line or _ASSIGNED.fullmatch(line) else f"{line.partition('=')[0]}={MARK}\n"
        for line in text.splitlines()
    )


def packages(text: str) -> str:
    """dpkg's status: name and version of packages around GPUs."""
    kept = []
    for paragraph in text.split("\n\n"):
        keys = dict(line.partition(": ")[::2] for line in paragraph.splitlines() if line[:1] not in ("", " "))
        if _PACKAGES.match(keys.get("Package", "")):
            kept.append("".join(f"{key}: {keys[key]}\n" for key in _PACKAGE_KEYS if key in keys))
    return "\n".join(kept)


def shaped(value: Any, shape: Any) -> Any:
    """The part of a document that a shape keeps."""
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


def as_toml(shape: Shape) -> Filter:
    """A filter of TOML; text that is not TOML is replaced by a line that is not TOML either."""

    def filtered(text: str) -> str:
        try:
            document = toml_document(text)
        except ValueError as error:
            return f"[left out, for it is not TOML: {error}\n"
        return "".join(_to_toml(_REDACTOR.document(shaped(document, shape)), ()))

    return filtered


def as_json(shape: Shape) -> Filter:
    """A filter of JSON."""

    def filtered(text: str) -> str:
        try:
            document = msgspec.json.decode(text) if text.strip() else {}
        except UNREADABLE as error:
            return f"left out, for it is not JSON: {error}\n"
        return json.dumps(_REDACTOR.document(shaped(document, shape)), indent=1) + "\n"

    return filtered


def as_yaml(shape: Shape) -> Filter:
    """A filter of YAML or JSON that writes YAML."""

    def filtered(text: str) -> str:
        import yaml

        from gpuwatch.config.yaml import document

        try:
            found = document(text, "the file", secrets=True).value
        except UsageError as error:
            return f"left out, for gpuwatch does not read it as YAML: [{error.what}: {error.why}\n"
        return yaml.safe_dump(_REDACTOR.document(shaped(found, shape)), sort_keys=False)

    return filtered


def _to_toml(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    """Plain values before tables, as TOML requires."""
    values = {key: value for key, value in table.items() if not isinstance(value, dict)}
    if path and (values or not table):
        yield f"\n[{'.'.join(map(json.dumps, path))}]\n"
    for key, value in values.items():
        yield f"{json.dumps(key)} = {json.dumps(value, default=str)}\n"
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _to_toml(value, (*path, key))
