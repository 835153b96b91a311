"""How containers get GPUs: NVIDIA's toolkit, the container runtime, the settings of both."""

from gpuwatch.diagnose.check import CheckContext, CheckVerdict, DiagnosticCheck, failed, passed, skipped, warned
from gpuwatch.diagnose.checks.container_devices import device_injection, runtime_config, runtime_kind, valid_cdi_specs
from gpuwatch.diagnose.checks.per_gpu import WORKSTATION_BRANDS
from gpuwatch.diagnose.facts import NodeFacts
from gpuwatch.diagnose.host.runtime_config import RuntimeConfig
from gpuwatch.diagnose.model import CheckStage
from gpuwatch.model.text import shell_word

OPERATOR_PODS = "kubectl -n gpu-operator get pods -o wide --field-selector spec.nodeName={node}"


def check_toolkit_config(context: CheckContext) -> CheckVerdict:
    """config.toml of NVIDIA's runtime."""
    runtime, config = context.facts.runtime, runtime_config(context.facts)
    settings = runtime.toolkit_config if runtime else None
    if settings is None:
        return skipped("no configuration of NVIDIA's runtime: its defaults hold")
    if settings.error:
        return failed(f"{settings.path} cannot be read: {settings.error}", remedy=REWRITE, commands=RESET_CONFIG)
    mode = f"mode {settings.mode or 'auto'}"
    if not settings.no_cgroups or config is None or device_injection(context.facts, config) == "cdi":
        return passed(mode)
    message = f"no-cgroups = true in {settings.path}: containers see GPUs, but may not open them"
    if context.facts.kubelet and context.facts.kubelet.present:
        return failed(message)
    return warned(f"{message}, unless they are rootless")


REWRITE = (
    "The nvidia runtime reads this file whenever a container starts, and none starts while it is broken. Put it right, "
    "or write the default again; with the GPU operator restart the toolkit pod, which writes its own."
)
RESET_CONFIG = ("nvidia-ctk config default --output=/etc/nvidia-container-runtime/config.toml", OPERATOR_PODS)


UNITS = {"/etc/k0s/": "k0sworker", "/var/snap/microk8s/": "snap.microk8s.daemon-containerd"}
INSTALL = "apt-get install -y nvidia-container-toolkit"
NO_RUNTIME = "no container runtime on this machine"
VALIDATOR_LOG = "kubectl -n gpu-operator logs -l app=nvidia-operator-validator -c toolkit-validation --tail=50"
PODMAN = "podman has no nvidia runtime; it takes GPUs from CDI"
NEITHER = "neither nvidia-ctk nor nvidia-container-runtime is on this host"
GKE = "Google's driver installer and device plugin bring the driver into containers; no toolkit is needed"


def _exempt(facts: NodeFacts) -> str | None:
    """Why there is nothing of NVIDIA's to look for in a container runtime."""
    kind = runtime_kind(facts)
    if facts.runtime is None or kind is None:
        return NO_RUNTIME
    return GKE if facts.runtime.gke else None


def check_toolkit(context: CheckContext) -> CheckVerdict:
    """Packages of the host, or the copy that the GPU operator installs."""
    reason, found = _exempt(context.facts), context.facts.runtime.toolkit if context.facts.runtime else {}
    if reason:
        return skipped(reason)
    if not found:
        # A failure only where containers are to have GPUs: many machines have Docker or podman for other things.
        config = runtime_config(context.facts) or RuntimeConfig(kind=runtime_kind(context.facts) or "", path="")
        commands = (INSTALL, *_repair(config))
        if _is_meant(context.facts, config):
            return failed(f"no container toolkit: {NEITHER}", commands=commands)
        if config.kind == "docker" and any(gpu.identity.brand not in WORKSTATION_BRANDS for gpu in context.gpus):
            return warned(f"docker cannot give GPUs to containers: {NEITHER}", commands=commands)
        return skipped(f"no container toolkit, and nothing says that containers of {config.kind} are to have GPUs")
    folders = sorted({path.rpartition("/")[0] for path in found})
    versions = f"{max(found.values()) or 'version unknown'}, in {' and '.join(folders)}"
    validations = context.facts.operator.validations if context.facts.operator else {}
    if "driver-ready" not in validations or "toolkit-ready" in validations:
        return passed(versions)
    return warned(
        f"{versions}; but the GPU operator's validator has not confirmed that it works: no toolkit-ready",
        remedy="Look why the validator's init container toolkit-validation waits; as long as it does, the operator "
        "starts no device plugin here.",
        commands=(OPERATOR_PODS, VALIDATOR_LOG),
    )


def _is_meant(facts: NodeFacts, config: RuntimeConfig) -> bool:
    in_cluster = facts.kubelet is not None and facts.kubelet.present
    return in_cluster or bool(config.nvidia or config.hook or valid_cdi_specs(facts))


def check_configured(context: CheckContext) -> CheckVerdict:
    """A handler whose binary exists, an OCI hook, or CDI in the runtime that starts the containers."""
    kind = runtime_kind(context.facts) or ""
    reason = _exempt(context.facts) or (PODMAN if kind == "podman" else None)
    config = runtime_config(context.facts) or RuntimeConfig(kind=kind, path="", cdi=True if kind == "crio" else None)
    if config.denied:
        reason = reason or f"not read: {config.error}"
    is_for_others = kind in ("containerd", "crio") or not (context.facts.runtime and context.facts.runtime.toolkit)
    if is_for_others and not _is_meant(context.facts, config):
        reason = reason or f"nothing says that containers of {kind} are to have GPUs"
    if reason:
        return skipped(reason)
    if config.error:
        return failed(f"{kind} cannot start with this configuration: {config.error}", commands=_repair(config))
    if config.missing:
        return failed(f"{config.path} names {config.missing[0]}, which is not there", commands=_repair(config))
    toolkit = context.facts.runtime.toolkit if context.facts.runtime else {}
    handler = ""
    if config.nvidia:
        default = ", the default" if config.default in config.nvidia else ""
        handler = f"{kind}: runtime {', '.join(config.nvidia)}{default}{', CDI on' if config.cdi else ''}"
    elif config.hook:
        handler = f"{kind}: hook {config.hook}"
    elif kind == "docker" and any(path.endswith("nvidia-container-runtime-hook") for path in toolkit):
        handler = "docker run --gpus finds nvidia-container-runtime-hook"
    return passed(handler, {"files": ", ".join(config.files)}) if handler else _by_cdi_alone(context.facts, config)


def _by_cdi_alone(facts: NodeFacts, config: RuntimeConfig) -> CheckVerdict:
    """Without a handler: fine where CDI is on, there are specifications, and no RuntimeClass names the handler."""
    none = f"{config.kind} has no nvidia runtime in {config.path or 'its configuration (it has no file)'}"
    if not (config.cdi and valid_cdi_specs(facts)):
        return failed(f"{none}, and CDI does not replace it", commands=_repair(config))
    classes = (facts.cluster.runtime_classes or {}) if facts.cluster else {}
    named = [name for name, handler in classes.items() if "nvidia" in handler]
    if named and facts.operator and facts.operator.present:
        message = f"{none}: pods of RuntimeClass {named[0]} cannot start, nor the GPU operator's own"
        return failed(message, commands=_repair(config))
    if named:
        message = f"{none}: pods of RuntimeClass {named[0]} cannot start; others get GPUs through CDI"
        return warned(message, commands=_repair(config))
    return passed(f"{config.kind}: CDI on, no nvidia runtime needed")


def _repair(config: RuntimeConfig) -> tuple[str, ...]:
    """Commands that repair it. k3s and RKE2 write it again at each start, with NVIDIA's runtimes that they find."""
    if "/rancher/" in config.path:
        return (f"systemctl restart {'rke2-agent' if '/rke2/' in config.path else 'k3s'}", OPERATOR_PODS)
    if config.kind == "podman":
        return ("nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",)
    unit = next((unit for folder, unit in UNITS.items() if config.path.startswith(folder)), config.kind)
    file = f" --config={shell_word(config.path)}" if unit != config.kind else ""
    configure = f"nvidia-ctk runtime configure --runtime={config.kind}{file}"
    return configure, f"systemctl restart {unit}", OPERATOR_PODS


def check_runtime_class(context: CheckContext) -> CheckVerdict:
    """Pods name it, also the GPU operator's; workloads need not where nvidia is the default or CDI is used."""
    cluster, config = context.facts.cluster, runtime_config(context.facts)
    if cluster is None or config is None or not config.nvidia:
        return skipped("no runtime of NVIDIA's that a RuntimeClass could name")
    classes = cluster.runtime_classes
    if classes is None:
        return skipped(f"not read: {cluster.unseen.get('runtimeclasses', 'RuntimeClasses were not read')}")
    found = [name for name, handler in classes.items() if handler in config.nvidia]
    if found:
        return passed(f"RuntimeClass {', '.join(found)}")
    operator = context.facts.operator
    if operator is not None and operator.present:
        return failed("RuntimeClass nvidia is missing: pods of the GPU operator name it and are refused")
    if config.default in config.nvidia or device_injection(context.facts, config) == "cdi":
        return skipped("not needed: containers get GPUs without naming a runtime")
    return failed(f"no RuntimeClass leads to {config.kind}'s runtime {next(iter(config.nvidia))}")


def check_systemd_reload(context: CheckContext) -> CheckVerdict:
    """runc passes to systemd the devices that a container may use, except those without a link in /dev/char."""
    config, nodes = runtime_config(context.facts), context.facts.nodes
    if config is None or nodes is None or config.error or (context.facts.runtime and context.facts.runtime.gke):
        is_google = context.facts.runtime and context.facts.runtime.gke
        return skipped(GKE if is_google else "the runtime's configuration was not read" if config else NO_RUNTIME)
    if config.systemd_cgroup is False:
        return passed("cgroups are not made by systemd")
    if (found := device_injection(context.facts, config)) == "cdi":
        return passed("devices are part of the container's own specification (CDI)")
    links = [name for name in nodes.char_links if name.startswith("195:")]
    if links:
        return passed(f"{len(links)} links in /dev/char")
    if found == "unknown":
        return skipped("not read: the toolkit's version; before 1.18 containers lose GPUs without links in /dev/char")
    return warned("systemctl daemon-reload will take GPUs away from running containers: no links in /dev/char")


RUNTIME: tuple[DiagnosticCheck, ...] = (
    DiagnosticCheck(
        "T01", CheckStage.RUNTIME, "NVIDIA's container toolkit is installed",
        how="/usr/bin or /usr/local/nvidia/toolkit: nvidia-ctk, nvidia-container-runtime; version from dpkg; "
        "/run/nvidia/validations/toolkit-ready",
        remedy="Install nvidia-container-toolkit (apt, dnf or zypper, NVIDIA's repository) and configure the runtime "
        "for it. With the GPU operator look at this node's toolkit pod.",
        commands=(INSTALL, "nvidia-ctk runtime configure --runtime=containerd", "systemctl restart containerd"),
        judge=check_toolkit, needs=("D01", "D05"), reads=("runtime",),
    ),
    DiagnosticCheck(
        "T02", CheckStage.RUNTIME, "the container runtime knows NVIDIA's",
        how="configuration of the kubelet's runtime, with imports and drop-ins: containerd (versions 1 to 3), CRI-O, "
        "Docker; its binary; CDI may replace it",
        remedy="Usually an update replaced the file. Add the nvidia runtime with nvidia-ctk and restart the container "
        "runtime; containers keep running, Docker's only with live-restore. With the GPU operator restart this "
        "node's toolkit pod: it does both.",
        judge=check_configured, needs=("T01",), reads=("runtime",),
    ),
    DiagnosticCheck(
        "T03", CheckStage.RUNTIME, "a RuntimeClass leads to NVIDIA's runtime",
        how="API: RuntimeClasses whose handler is an nvidia runtime of this node",
        remedy="Create the RuntimeClass; the GPU operator makes its own when its pod restarts.",
        commands=(
            "printf 'apiVersion: node.k8s.io/v1\\nkind: RuntimeClass\\nmetadata: {name: nvidia}\\nhandler: nvidia\\n' "
            "| kubectl apply -f -",
            "kubectl get runtimeclass",
        ),
        judge=check_runtime_class, needs=("T02",), reads=("cluster", "runtime"),
    ),
    DiagnosticCheck(
        "T05", CheckStage.RUNTIME, "containers keep their GPUs when systemd reloads",
        how="runtime's cgroup driver, the toolkit's mode, links 195:* in /dev/char",
        remedy="Running containers fail with `Failed to initialize NVML: Unknown Error`. Make the links, also at boot "
        "(NVIDIA's documentation has a udev rule), or use CDI: container toolkit 1.18 or newer in mode auto, "
        "or cdi.enabled=true of the GPU operator, whose validator also makes the links.",
        commands=("nvidia-ctk system create-dev-char-symlinks --create-all",),
        judge=check_systemd_reload, needs=("T02",), reads=("runtime", "nodes"),
    ),
    DiagnosticCheck(
        "T06", CheckStage.RUNTIME, "NVIDIA's runtime may give containers access to GPUs",
        how="config.toml of nvidia-container-runtime: readable, no-cgroups",
        remedy="no-cgroups is only for rootless containers. Switch it off; containers started afterwards work.",
        commands=("nvidia-ctk config --set nvidia-container-cli.no-cgroups=false --in-place",),
        judge=check_toolkit_config, needs=("T01",), reads=("runtime",),
    ),
)  # fmt: skip
