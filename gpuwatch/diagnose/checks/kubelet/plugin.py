"""How the kubelet gets GPUs: its sockets, the device plugin and its configuration, the checkpoint of allocations."""

from gpuwatch.diagnose.check import CheckContext, CheckVerdict, DiagnosticCheck, failed, passed, skipped, warned
from gpuwatch.diagnose.checks.kubelet.capacity import DOMAIN
from gpuwatch.diagnose.checks.kubelet.devices import DEPLOY, NO_KUBELET, PLUGIN_LOG, RESTART_PLUGIN
from gpuwatch.diagnose.facts import NodeFacts
from gpuwatch.diagnose.model import CheckStage

WORKLOAD = f"{DOMAIN}/gpu.workload.config"
CONFIG = f"{DOMAIN}/device-plugin.config"
UNHEALTHY_XIDS = frozenset({"48", "63", "64", "74", "79", "94", "95", "119", "120"})
KUBELET_LOG = "journalctl -u kubelet --since -1h --no-pager"
PLUGIN_PODS = "kubectl get pods -A -o wide --field-selector spec.nodeName={node} | grep -E 'device-plugin|dra-driver'"


def check_pod_resources(context: CheckContext) -> CheckVerdict:
    """The kubelet answers List, or at least its socket is there."""
    kubelet = context.facts.kubelet
    if kubelet is None or not kubelet.present:
        return skipped(NO_KUBELET)
    if kubelet.pod_resources is None:
        return passed("the kubelet answers" if context.facts.live else "the socket is there")
    if kubelet.pod_resources_reason == "permission":
        return skipped(f"not read: {kubelet.pod_resources}; run as root")
    return failed(kubelet.pod_resources)


def check_plugin(context: CheckContext) -> CheckVerdict:
    """A device plugin of NVIDIA's has registered, or its DRA driver has."""
    kubelet = context.facts.kubelet
    if reason := _unwanted(context.facts):
        return skipped(reason)
    if kubelet is None or kubelet.plugins is None:
        return skipped("not read: the kubelet's folder device-plugins is not mounted here")
    if not kubelet.kubelet_socket:
        message = "the kubelet does not listen for device plugins: no kubelet.sock in its folder device-plugins"
        return failed(message, remedy=KUBELET_DOWN, commands=("systemctl status kubelet", KUBELET_LOG))
    if kubelet.refusing:
        return failed(f"no process listens on {kubelet.refusing[0]}: the device plugin has ended", _pods(context.facts))
    names = [path.rpartition("/")[2] for path in kubelet.plugins] or [f"DRA driver {name}" for name in kubelet.dra]
    if not names:
        return failed("no device plugin of NVIDIA's has registered with the kubelet", _pods(context.facts))
    return passed(", ".join(names))


def _unwanted(facts: NodeFacts) -> str | None:
    """Why this node needs no device plugin."""
    if facts.kubelet is None or not facts.kubelet.present:
        return NO_KUBELET
    about = facts.node_labels
    if about.get(DEPLOY, "true") != "true":
        return f"label {DEPLOY}={about[DEPLOY]}"
    if about.get(WORKLOAD, "container") != "container":
        return f"GPUs are for virtual machines: label {WORKLOAD}={about[WORKLOAD]}"
    return None


def _pods(facts: NodeFacts) -> dict[str, str]:
    """The plugin's pods on this node, and the state of each."""
    pods = (facts.cluster.pods or ()) if facts.cluster else ()
    found = [pod for pod in pods if "device-plugin" in (pod.app or "")]
    return {pod.path: pod.waiting or ("ready" if pod.ready else "not ready") for pod in found}


KUBELET_DOWN = (
    "The kubelet makes this socket when it starts. See whether it runs and what its log says; plugins register again "
    "by themselves."
)


def check_checkpoint(context: CheckContext) -> CheckVerdict:
    """From this file the kubelet reads, after a restart, which container has which device."""
    kubelet = context.facts.kubelet
    if kubelet is None or not kubelet.present:
        return skipped(NO_KUBELET)
    if kubelet.checkpoint_error is not None and kubelet.intact is None:
        return skipped(f"not read: the checkpoint {kubelet.checkpoint_error}")
    if kubelet.checkpoint_error is not None:
        return failed(f"kubelet_internal_checkpoint is broken: {kubelet.checkpoint_error}")
    if kubelet.checkpoint is None:
        return skipped("no checkpoint: no device plugin has registered yet, or it cannot be seen")
    if kubelet.intact is False:
        return warned("kubelet_internal_checkpoint does not fit its checksum: a restarted kubelet will not read it")
    resources = [name for name in kubelet.checkpoint if name.startswith(f"{DOMAIN}/")]
    return passed(", ".join(resources) or f"no {DOMAIN} devices")


def check_config_label(context: CheckContext) -> CheckVerdict:
    """The label that chooses the plugin's configuration names one that exists."""
    cluster = context.facts.cluster
    if _unwanted(context.facts) == NO_KUBELET or cluster is None:
        return skipped(NO_KUBELET)
    wanted = cluster.node.labels.get(CONFIG)
    if not wanted:
        return skipped(f"no label {CONFIG}: the default configuration holds")
    known = cluster.plugin_configs
    if known is None:
        return skipped(f"{wanted}; not read: {cluster.unseen.get('configmaps', 'the ConfigMap of the device plugin')}")
    if wanted not in known:
        return failed(f"{CONFIG}={wanted}, but the ConfigMap has only {', '.join(known) or 'no configuration'}")
    return passed(wanted)


def check_health_checks(context: CheckContext) -> CheckVerdict:
    """DP_DISABLE_HEALTHCHECKS: `all`, `xids`, or XIDs that are to be ignored beside those of applications."""
    cluster = context.facts.cluster
    environment = cluster.plugin_environment if cluster else None
    if environment is None:
        reason = cluster.unseen.get("pods") if cluster else None
        return skipped(f"not read: {reason}" if reason else "no pod of a device plugin on this node")
    value = environment.get("DP_DISABLE_HEALTHCHECKS", "").strip().lower()
    entries = {entry.strip() for entry in value.split(",") if entry.strip()}
    if entries & {"all", "xids"}:
        return warned(f"DP_DISABLE_HEALTHCHECKS={value}: the device plugin calls every GPU healthy")
    if ignored := sorted(entries & UNHEALTHY_XIDS, key=int):
        return warned(f"DP_DISABLE_HEALTHCHECKS={value}: the device plugin ignores XID {', '.join(ignored)}")
    return passed(f"on, but for XID {value}" if value else "on")


def check_validated(context: CheckContext) -> CheckVerdict:
    """The last two steps of the GPU operator's validator: a CUDA program, and one in a pod that asked for a GPU."""
    operator = context.facts.operator
    if operator is None or not operator.present or "driver-ready" not in operator.validations:
        return skipped("the GPU operator has noted nothing here")
    if "toolkit-ready" not in operator.validations:
        return skipped("the GPU operator's validator is still at the container toolkit")
    kubelet = context.facts.kubelet
    is_plain = _unwanted(context.facts) is None and (kubelet is None or bool(kubelet.plugins) or not kubelet.dra)
    steps = ("cuda-ready", "plugin-ready") if is_plain else ("cuda-ready",)
    missing = [name for name in steps if name not in operator.validations]
    if missing:
        return warned(f"the GPU operator's validator is not through: no {' and no '.join(missing)}")
    return passed("the GPU operator's validator is through")


PLUGIN: tuple[DiagnosticCheck, ...] = (
    DiagnosticCheck(
        "K01", CheckStage.KUBELET, "the kubelet lists which pod has which device",
        how="/var/lib/kubelet/pod-resources/kubelet.sock: List answers within 2 s",
        remedy="Check that the kubelet runs; it makes the socket when it starts. In a container mount the folder "
        "/var/lib/kubelet/pod-resources, not the socket, which a restart replaces.",
        commands=("systemctl status kubelet", "ls -l /var/lib/kubelet/pod-resources", KUBELET_LOG),
        judge=check_pod_resources, reads=("kubelet",),
    ),
    DiagnosticCheck(
        "K02", CheckStage.KUBELET, "NVIDIA's device plugin is registered",
        how="/var/lib/kubelet/device-plugins: kubelet.sock and nvidia*.sock that answer; or a DRA driver in "
        "plugins_registry",
        remedy="Check that the device plugin's pod runs on this node, and read its log. With the GPU operator it "
        "starts after the validator has seen driver and toolkit. If the pod runs without registering, delete "
        "it.",
        commands=(PLUGIN_PODS, PLUGIN_LOG, RESTART_PLUGIN),
        judge=check_plugin, needs=("D01", "N02", "T01", "T02", "T03", "T04", "T06", "K01", "K07", "L03"),
        reads=("kubelet",),
    ),
    DiagnosticCheck(
        "K06", CheckStage.KUBELET, "the kubelet's device checkpoint is sound",
        how="/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint: JSON, checksum",
        remedy="A kubelet that restarts with it loses track of which container has which GPU and allocates GPUs "
        "twice. Drain the node, check that the disk is not full, stop the kubelet, remove the file, start the "
        "kubelet.",
        commands=("kubectl drain {node} --ignore-daemonsets --delete-emptydir-data",
                  "df -h /var/lib/kubelet",
                  "systemctl stop kubelet",
                  "rm /var/lib/kubelet/device-plugins/kubelet_internal_checkpoint",
                  "systemctl start kubelet"),
        judge=check_checkpoint, reads=("kubelet",),
    ),
    DiagnosticCheck(
        "K07", CheckStage.KUBELET, "the device plugin's configuration exists",
        how=f"Node label {CONFIG} against the keys of the plugin's ConfigMap",
        remedy="The device plugin does not start without this configuration. Name an existing one, or add it to the "
        "ConfigMap (ClusterPolicy: devicePlugin.config).",
        commands=("kubectl label node {node} --overwrite nvidia.com/device-plugin.config=CONFIG", PLUGIN_LOG),
        judge=check_config_label, reads=("cluster",),
    ),
    DiagnosticCheck(
        "K08", CheckStage.KUBELET, "the device plugin watches the GPUs' health",
        how="DP_DISABLE_HEALTHCHECKS in the environment of the device plugin's pod",
        remedy="Broken GPUs stay allocatable, and pods start on them. Remove the variable (ClusterPolicy: "
        "devicePlugin.env, Helm chart: the DaemonSet's env), unless another tool withdraws bad GPUs.",
        commands=("kubectl get clusterpolicy -o yaml | grep -n -A2 DP_DISABLE_HEALTHCHECKS",),
        judge=check_health_checks, reads=("cluster",),
    ),
    DiagnosticCheck(
        "K10", CheckStage.KUBELET, "the GPU operator has seen work run",
        how="/run/nvidia/validations: cuda-ready, plugin-ready",
        remedy="See which init container of the validator's pod waits, and its log: cuda-validation runs a CUDA "
        "program, plugin-validation needs a free GPU.",
        commands=("kubectl -n gpu-operator get pods -o wide --field-selector spec.nodeName={node}",
                  "kubectl -n gpu-operator logs -l app=nvidia-operator-validator --all-containers --tail=50"),
        judge=check_validated, needs=("T02", "K02", "K03", "K04"), reads=("operator",),
    ),
)  # fmt: skip
