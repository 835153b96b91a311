"""CDI specifications: whether they fit the driver and the GPUs that are there now."""

from gpuwatch.diagnose.check import CheckContext, CheckVerdict, DiagnosticCheck, failed, passed, skipped, warned
from gpuwatch.diagnose.checks.containers import runtime_config, runtime_kind
from gpuwatch.diagnose.facts import NodeFacts
from gpuwatch.diagnose.host.cdi import CdiSpec
from gpuwatch.diagnose.model import CheckStage
from gpuwatch.workloads.devices import parse_device_id

_DELETE = "kubectl delete pod -A --field-selector spec.nodeName={node} -l "
WRITERS = {
    "k8s.device-plugin.nvidia.com": ("the device plugin", f"{_DELETE}app=nvidia-device-plugin-daemonset"),
    "management.nvidia.com": ("the GPU operator's toolkit pod", f"{_DELETE}app=nvidia-container-toolkit-daemonset"),
    "k8s.gpu.nvidia.com": ("NVIDIA's DRA driver", f"{_DELETE}app.kubernetes.io/name=nvidia-dra-driver-gpu"),
}
"""Vendor part of the kind -> who writes the file, and what makes it write anew."""


def _specs(context: CheckContext) -> CheckVerdict:
    """Each specification against the driver that is loaded, the files of the host and the GPUs NVML shows."""
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
        loaded = _version(context.facts)
        return passed(f"{len(specs)} of {len(specs)} well" + (f", for driver {loaded}" if loaded else ""))
    replaced = {spec.kind for spec in specs if spec.path not in wrong and spec.kind}
    first = next(spec for spec in specs if spec.path in wrong)
    who, command = _writer(first)
    used = runtime_kind(context.facts) == "podman" or (config is not None and config.cdi is not False)
    matters = [spec for spec in specs if spec.path in wrong and (spec.kind is None or spec.kind not in replaced)]
    judge = failed if used and matters else warned
    remedy = f"{REMEDY} {first.path} is written by {who}."
    return judge(f"{first.path}: {wrong[first.path]}", wrong, remedy=remedy, commands=(command, "nvidia-ctk cdi list"))


def _fault(facts: NodeFacts, spec: CdiSpec) -> str | None:
    """What is wrong with one of them."""
    if spec.error:
        return f"no CDI specification: {spec.error}"
    loaded = _version(facts)
    old = [version for version in spec.versions if loaded and version != loaded]
    if old:
        return f"names libraries of driver {', '.join(old)}, loaded is {loaded}"
    # a recording has all device files of NVIDIA's, but not every file that a specification mounts
    missing = [path for path in spec.missing if not facts.plain or path.startswith("/dev/nvidia")]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        return f"names {missing[0]}{more}, which this host lacks"
    gone = _gone(facts, spec)
    return f"names {gone[0]}, which this node does not have" if gone else None


def _gone(facts: NodeFacts, spec: CdiSpec) -> list[str]:
    """Devices by uuid that NVML does not show; none when NVML shows nothing."""
    snapshot = facts.view.snapshot if facts.view else None
    if snapshot is None or not snapshot.gpus:
        return []
    here = {status.identity.uuid for status in snapshot.statuses} | {m.uuid for gpu in snapshot.gpus for m in gpu.mig}
    named = {name: parsed.uuid for name in spec.devices if (parsed := parse_device_id(name)) and parsed.uuid}
    return [name for name, uuid in named.items() if uuid not in here]


def _version(facts: NodeFacts) -> str | None:
    return facts.kernel.driver if facts.kernel else None


def _writer(spec: CdiSpec) -> tuple[str, str]:
    vendor = (spec.kind or "").partition("/")[0] or spec.path.rpartition("/")[2]
    for name, told in WRITERS.items():
        if vendor.startswith(name):
            return told
    return "nvidia-ctk (or nvidia-cdi-refresh.service)", f"nvidia-ctk cdi generate --output={spec.path}"


REMEDY = (
    "Have the specification written anew: it is made once and does not follow the driver. Containers that start with "
    "an old one find no device or no library."
)

CDI: tuple[DiagnosticCheck, ...] = (
    DiagnosticCheck(
        id="T04",
        stage=CheckStage.RUNTIME,
        title="CDI specifications fit driver and GPUs",
        how="/etc/cdi and /var/run/cdi: kind, driver version in paths of libraries, device files and mounts that "
        "exist, uuids that NVML shows",
        failure="/etc/cdi/nvidia.yaml: names libraries of driver 550.90.07, loaded is 570.86.15",
        remedy=REMEDY,
        commands=("nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml", "nvidia-ctk cdi list"),
        judge=_specs,
        needs=("D01", "D03", "D04", "N03", "N04", "V01", "V03", "T02"),
        reads=("cdi",),
    ),
)
