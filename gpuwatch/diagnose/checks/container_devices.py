"""How devices get into containers: by which runtime, by a hook or by CDI, and whether the CDI specifications fit."""

from typing import Literal

from gpuwatch.diagnose.check import CheckContext, CheckVerdict, DiagnosticCheck, failed, passed, skipped, warned
from gpuwatch.diagnose.facts import NodeFacts
from gpuwatch.diagnose.host.cdi import CdiSpec
from gpuwatch.diagnose.host.runtime_config import RuntimeConfig
from gpuwatch.diagnose.model import CheckStage
from gpuwatch.model.text import number
from gpuwatch.workloads.devices import parse_device_id

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
    sockets = {"crio.sock": "crio", "docker": "docker", "containerd.sock": "containerd"}
    if kind := next((kind for part, kind in sockets.items() if part in endpoint), None):
        return kind
    in_cluster = facts.kubelet is not None and facts.kubelet.present
    order = ("crio", "containerd", "docker") if in_cluster else ("docker", "crio", "containerd")
    running = [kind for kind in order if services and services.runs(_RUNNING[kind])]
    known = {config.kind for config in runtime.configs} | set(runtime.installed)
    return next((kind for kind in (*running, *(k for k in (*order, "podman") if k in known))), None)


def runtime_config(facts: NodeFacts) -> RuntimeConfig | None:
    """The configuration of that runtime; None when it has no file."""
    kind = runtime_kind(facts)
    found = [config for config in facts.runtime.configs if config.kind == kind] if facts.runtime else []
    return next((config for config in found if config.path.startswith(DISTRIBUTIONS)), found[0] if found else None)


def valid_cdi_specs(facts: NodeFacts) -> tuple[CdiSpec, ...]:
    """CDI specifications that a runtime can use."""
    return tuple(spec for spec in facts.cdi or () if spec.error is None)


def device_injection(facts: NodeFacts, config: RuntimeConfig) -> Literal["cdi", "hook", "unknown"]:
    """How devices get into containers. `cdi`: as part of the container's own specification; `hook`: by a hook when
    the container starts, unknown to the runtime.
    """
    environment = (facts.cluster.plugin_environment or {}) if facts.cluster else {}
    strategy = environment.get("DEVICE_LIST_STRATEGY")
    if config.cdi and valid_cdi_specs(facts) and (strategy is None or "cdi" in strategy):
        return "cdi"
    runtime = facts.runtime
    settings = runtime.toolkit_config if runtime else None
    mode = (settings.mode if settings else None) or "auto"
    if mode == "auto":
        known = [version.split(".")[:2] for version in (runtime.toolkit.values() if runtime else ()) if version]
        versions = [tuple(part for part in map(number, version) if part is not None) for version in known]
        if not versions:  # unknown, as with RPMs and copied trees
            return "unknown"
        return "cdi" if min(versions) >= JIT_CDI else "hook"
    return "hook" if mode == "legacy" else "cdi"


_DELETE = "kubectl delete pod -A --field-selector spec.nodeName={node} -l "
WRITERS = {
    "k8s.device-plugin.nvidia.com": ("the device plugin", f"{_DELETE}app=nvidia-device-plugin-daemonset"),
    "management.nvidia.com": ("the GPU operator's toolkit pod", f"{_DELETE}app=nvidia-container-toolkit-daemonset"),
    "k8s.gpu.nvidia.com": ("NVIDIA's DRA driver", f"{_DELETE}app.kubernetes.io/name=nvidia-dra-driver-gpu"),
}
"""Vendor part of the kind -> the writer of the file, and the command that makes it write the file again."""


def check_specs(context: CheckContext) -> CheckVerdict:
    """Each specification against the driver that is loaded, the files of the host and the GPUs that NVML lists."""
    specs = context.facts.cdi or ()
    config = runtime_config(context.facts)
    if not specs:
        if runtime_kind(context.facts) == "podman" and not (context.facts.runtime and context.facts.runtime.toolkit):
            return skipped("no CDI specification, and no toolkit that would write one")
        if runtime_kind(context.facts) == "podman":
            return warned("no CDI specification, and podman has no other way to GPUs")
        return skipped("no CDI specification; containers get GPUs through the nvidia runtime")
    wrong = {spec.path: why for spec in specs if (why := _fault(context.facts, spec))}
    if not wrong:
        loaded = context.facts.kernel.driver if context.facts.kernel else None
        return passed(f"{len(specs)} of {len(specs)} well" + (f", for driver {loaded}" if loaded else ""))
    first = next(spec for spec in specs if spec.path in wrong)
    vendor = (first.kind or "").partition("/")[0] or first.path.rpartition("/")[2]
    writer, command = next(
        (known for name, known in WRITERS.items() if vendor.startswith(name)),
        ("nvidia-ctk (or nvidia-cdi-refresh.service)", f"nvidia-ctk cdi generate --output={first.path}"),
    )
    replaced = {spec.kind for spec in specs if spec.path not in wrong and spec.kind}
    matters = [spec for spec in specs if spec.path in wrong and (spec.kind is None or spec.kind not in replaced)]
    is_used = runtime_kind(context.facts) == "podman" or (config is not None and config.cdi is not False)
    answer = failed if is_used and matters else warned
    remedy = f"{REMEDY} {first.path} is written by {writer}."
    return answer(f"{first.path}: {wrong[first.path]}", wrong, remedy=remedy, commands=(command, "nvidia-ctk cdi list"))


def _fault(facts: NodeFacts, spec: CdiSpec) -> str | None:
    if spec.error:
        return f"no CDI specification: {spec.error}"
    loaded = facts.kernel.driver if facts.kernel else None
    old = [version for version in spec.versions if loaded and version != loaded]
    if old:
        return f"names libraries of driver {', '.join(old)}, loaded is {loaded}"
    # a recording has all device files of NVIDIA's, but not every file that a specification mounts
    missing = [path for path in spec.missing if not facts.plain or path.startswith("/dev/nvidia")]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        return f"names {missing[0]}{more}, which this host lacks"
    snapshot = facts.view.snapshot if facts.view else None
    if snapshot is None or not snapshot.gpus:
        return None
    here = {status.identity.uuid for status in snapshot.statuses} | {m.uuid for gpu in snapshot.gpus for m in gpu.mig}
    uuids = {name: device.uuid for name in spec.devices if (device := parse_device_id(name)) and device.uuid}
    gone = [name for name, uuid in uuids.items() if uuid not in here]
    return f"names {gone[0]}, which this node does not have" if gone else None


REMEDY = (
    "Make the specification again: it does not follow the driver, and containers started with an old one lack devices "
    "or libraries."
)

CDI: tuple[DiagnosticCheck, ...] = (
    DiagnosticCheck(
        "T04", CheckStage.RUNTIME, "CDI specifications fit driver and GPUs",
        how="/etc/cdi and /var/run/cdi: kind, driver version in library paths, existing device files and mounts, "
        "uuids of NVML",
        remedy=REMEDY,
        commands=("nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml", "nvidia-ctk cdi list"),
        judge=check_specs, needs=("D01", "D03", "D04", "N03", "N04", "V01", "V03", "T02"), reads=("cdi",),
    ),
)  # fmt: skip
