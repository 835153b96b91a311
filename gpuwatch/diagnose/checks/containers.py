"""Which container runtime starts the containers of this node, and by which way it gives them GPUs."""

from typing import Literal

from gpuwatch.diagnose.facts import NodeFacts
from gpuwatch.diagnose.host.cdi import CdiSpec
from gpuwatch.diagnose.host.container_runtime import RuntimeConfig

JIT_CDI = (1, 18)
"""Since this version NVIDIA's runtime, in its mode `auto`, adds devices by CDI before the container is made."""

DISTRIBUTIONS = ("/var/lib/rancher/", "/etc/k0s/", "/etc/cri/", "/var/snap/")
"""Where distributions keep the configuration of a containerd of their own."""

_RUNNING = {"crio": "crio", "containerd": "containerd", "docker": "dockerd"}


def runtime_kind(facts: NodeFacts) -> str | None:
    """containerd, crio, docker or podman: the one the kubelet uses, else the one that runs; None: there is none."""
    runtime, services = facts.runtime, facts.services
    if runtime is None:
        return None
    endpoint = (facts.kubelet.endpoint or "") if facts.kubelet else ""
    told = {"crio.sock": "crio", "docker": "docker", "containerd.sock": "containerd"}
    if kind := next((kind for part, kind in told.items() if part in endpoint), None):
        return kind
    in_cluster = facts.kubelet is not None and facts.kubelet.present
    order = ("crio", "containerd", "docker") if in_cluster else ("docker", "crio", "containerd")
    running = [kind for kind in order if services and services.runs(_RUNNING[kind])]
    known = {config.kind for config in runtime.configs} | set(runtime.installed)
    return next((kind for kind in (*running, *(k for k in (*order, "podman") if k in known))), None)


def runtime_config(facts: NodeFacts) -> RuntimeConfig | None:
    """Its configuration; None when it has no file."""
    kind = runtime_kind(facts)
    found = [config for config in facts.runtime.configs if config.kind == kind] if facts.runtime else []
    return next((config for config in found if config.path.startswith(DISTRIBUTIONS)), found[0] if found else None)


def good_specs(facts: NodeFacts) -> tuple[CdiSpec, ...]:
    """CDI specifications that a runtime can use."""
    return tuple(spec for spec in facts.cdi or () if spec.error is None)


def way(facts: NodeFacts, config: RuntimeConfig) -> Literal["cdi", "hook", "unknown"]:
    """How devices get into containers. `cdi`: as part of the container's own specification; `hook`: behind the back of
    the runtime, when the container is started.
    """
    environment = (facts.cluster.plugin_environment or {}) if facts.cluster else {}
    strategy = environment.get("DEVICE_LIST_STRATEGY")
    if config.cdi and good_specs(facts) and (strategy is None or "cdi" in strategy):
        return "cdi"
    runtime = facts.runtime
    settings = runtime.toolkit_config if runtime else None
    mode = (settings.mode if settings else None) or "auto"
    if mode == "auto":
        versions = [_numbers(version) for version in (runtime.toolkit.values() if runtime else ()) if version]
        if not versions:  # RPMs and copies do not tell
            return "unknown"
        return "cdi" if min(versions) >= JIT_CDI else "hook"
    return "hook" if mode == "legacy" else "cdi"


def _numbers(version: str) -> tuple[int, ...]:
    """`1.18.1-1` -> (1, 18)"""
    return tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
