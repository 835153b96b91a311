"""What the GPU operator and its parts report of this node: discovery, labels, pods."""

from gpuwatch.diagnose.check import CheckContext, CheckVerdict, DiagnosticCheck, failed, passed, skipped, warned
from gpuwatch.diagnose.model import CheckStage
from gpuwatch.model.text import shell_word

NVIDIA = "nvidia.com/"
DEPLOY = f"{NVIDIA}gpu.deploy."
PRESENT = tuple(f"feature.node.kubernetes.io/pci-{part}.present" for part in ("10de", "0302_10de", "0300_10de"))
GFD_POD = "kubectl get pods -A -o wide --field-selector spec.nodeName={node} | grep gpu-feature-discovery"
NVIDIA_PODS = "kubectl get pods -A -o wide --field-selector spec.nodeName={node} | grep -iE 'nvidia|gpu-|feature'"
VITAL = ("nvidia-driver", "container-toolkit", "device-plugin")
"""Parts of names of pods without which no container gets a GPU."""


def check_discovery(context: CheckContext) -> CheckVerdict:
    """The labels of GPU feature discovery against NVML. Its timestamp is that of its own start, hence not judged."""
    labels, view = context.facts.node_labels, context.facts.view
    product = labels.get(f"{NVIDIA}gpu.product")
    if view is None or not view.snapshot.gpus:
        return skipped("no GPU was read")
    if product is None:
        is_deployed = labels.get(f"{DEPLOY}gpu-feature-discovery") == "true"
        late = warned("GPU feature discovery has not labelled this node")
        return late if is_deployed else skipped("no GPU feature discovery here")
    snapshot = view.snapshot
    names = {gpu.identity.name for gpu in snapshot.gpus if gpu.identity.name}
    wanted = [name.replace(" ", "-")[:63] for name in names]  # the label is NVML's name, cut to a label's length
    derived = tuple(f"{name}{suffix}" for name in wanted for suffix in ("-SHARED", "-MIG-"))
    if names and product not in wanted and not product.startswith(derived):
        there = ", ".join(sorted(names))
        return failed(f"the label says {product}, NVML {there}", {f"{NVIDIA}gpu.product": product, "NVML": there})
    is_cut = any(gpu.mig_enabled for gpu in snapshot.gpus)
    count = labels.get(f"{NVIDIA}gpu.count")
    if count is not None and not is_cut and len(names) == 1 and count != str(len(snapshot.gpus)):
        return warned(f"the label says {count} GPUs, NVML {len(snapshot.gpus)}", {f"{NVIDIA}gpu.count": count})
    driver = labels.get(f"{NVIDIA}cuda.driver-version.full")
    loaded = snapshot.driver.version if snapshot.driver else None
    if driver and loaded and driver != loaded:
        return warned(f"the label says driver {driver}, loaded is {loaded}", {"label": driver, "NVML": loaded})
    return passed(f"{product}, driver {driver}" if driver else product)


def check_feature_discovery(context: CheckContext) -> CheckVerdict:
    labels = context.facts.node_labels
    found = [key for key in PRESENT if labels.get(key) == "true"]
    if found:
        return passed(found[0])
    if any(key.startswith("feature.node.kubernetes.io/") for key in labels):
        return warned("node-feature-discovery labels this node, but has found no NVIDIA device")
    if any(key.startswith(DEPLOY) for key in labels):
        return warned("the GPU operator deploys here, but node-feature-discovery has not labelled this node")
    return skipped("no node-feature-discovery here")


def check_deployed(context: CheckContext) -> CheckVerdict:
    """Parts that the operator has removed from this node, for a while or permanently."""
    labels = context.facts.node_labels
    deploy = {key.removeprefix(DEPLOY): value for key, value in labels.items() if key.startswith(DEPLOY)}
    if not deploy:
        return skipped("the GPU operator deploys nothing here")
    paused = {part: value for part, value in deploy.items() if value.startswith("paused-for-")}
    disabled = {part: value for part, value in deploy.items() if value == "false"}
    if paused:
        reason = sorted(paused.values())[0].removeprefix("paused-for-")
        state = labels.get(f"{NVIDIA}mig.config.state", "")
        message = f"{', '.join(sorted(paused))} paused for {reason}"
        message += f" (mig.config.state is {state})" if state and "mig" in reason else ""
        evidence = {f"{DEPLOY}{part}": value for part, value in sorted(paused.items())}
        return failed(message, evidence) if paused.keys() & {"device-plugin", "driver"} else warned(message, evidence)
    kubelet = context.facts.kubelet
    others = (*(kubelet.dra), *(kubelet.plugins or ())) if kubelet else ()
    if "device-plugin" in disabled and "operands" not in disabled and others:
        return passed(f"device-plugin is switched off by label; {others[0].rpartition('/')[2]} gives the GPUs")
    if "device-plugin" in disabled or "operands" in disabled:
        message = f"switched off by label: {', '.join(sorted(disabled))}"
        return warned(message, remedy=SWITCHED_OFF, commands=(SWITCH_ON,))
    return passed(f"{len(deploy) - len(disabled)} parts are deployed")


SWITCHED_OFF = (
    "The label switches the operator's device plugin off here; that is right where another one hands out the GPUs "
    "(the cloud's own, or a DRA driver). If not, set the label to true."
)
SWITCH_ON = "kubectl label node {node} nvidia.com/gpu.deploy.device-plugin=true --overwrite"


def check_policy(context: CheckContext) -> CheckVerdict:
    cluster = context.facts.cluster
    if cluster is None or cluster.policy_state is None:
        why = cluster.unseen.get("clusterpolicy", "it has no state") if cluster else "the cluster was not read"
        return skipped(f"no ClusterPolicy was seen: {why}")
    if cluster.policy_state in ("ready", "disabled"):
        return passed(cluster.policy_state)
    ours = [pod for pod in cluster.pods or () if pod.app and not pod.gpus]
    if ours and all(pod.ready or pod.phase == "Succeeded" for pod in ours):
        return passed(f"{cluster.policy_state}, for another node's sake: all of its pods on this one are ready")
    return warned(f"the ClusterPolicy is {cluster.policy_state}")


def check_pods(context: CheckContext) -> CheckVerdict:
    """NVIDIA's pods on this node."""
    cluster = context.facts.cluster
    if cluster is None or cluster.pods is None:
        return skipped(f"not read: {cluster.unseen.get('pods', 'pods were not read') if cluster else 'no cluster'}")
    pods = [pod for pod in cluster.pods if pod.app and not pod.gpus and pod.phase not in ("Succeeded", "Failed")]
    if not pods:
        return skipped("no pod of NVIDIA's or of the GPU operator is on this node")
    late = [pod for pod in pods if pod.ready is False and not pod.deleting]
    if not late:
        return passed(f"{len(pods)} pods are ready")
    texts: dict[str, str] = {}
    for pod in late:
        restarts = f", {pod.restarts} restarts" if pod.restarts else ""
        texts[pod.path] = f"{pod.path} is not ready{f' ({pod.waiting}{restarts})' if pod.waiting else restarts}"
    namespace, name = shell_word(late[0].namespace), shell_word(late[0].name)
    commands = tuple(f"kubectl -n {namespace} {ask} {name}" for ask in ("describe pod", "logs"))
    is_vital = any(part in (pod.app or "") for pod in late for part in VITAL)
    return (failed if is_vital else warned)("; ".join(texts.values()), texts, commands=commands)


OPERATOR: tuple[DiagnosticCheck, ...] = (
    DiagnosticCheck(
        "L01", CheckStage.CLUSTER, "the labels of GPU feature discovery are those of these GPUs",
        how="Node labels nvidia.com/gpu.product, gpu.count, cuda.driver-version.full against NVML",
        remedy="GPU feature discovery, which renews its labels every minute, does not run or cannot write. Read its "
        "pod's log, then restart it. Labels that stay without it come from an old NodeFeature object or were "
        "set by hand.",
        commands=(GFD_POD, "kubectl -n gpu-operator rollout restart daemonset/gpu-feature-discovery"),
        judge=check_discovery, needs=("N03", "N04"), reads=("cluster", "view"),
    ),
    DiagnosticCheck(
        "L02", CheckStage.CLUSTER, "node-feature-discovery has found the GPUs",
        how="Node label feature.node.kubernetes.io/pci-10de.present (or pci-0302_10de, pci-0300_10de)",
        remedy="Without this label the GPU operator removes its parts from this node. Read the log of the worker on "
        "it; its configuration must list PCI classes 03 and 0302 (sources.pci.deviceClassWhitelist) and the "
        "field vendor.",
        commands=(NVIDIA_PODS, "kubectl get nodefeatures -A"),
        judge=check_feature_discovery, needs=("H01",), reads=("cluster",),
    ),
    DiagnosticCheck(
        "L03", CheckStage.CLUSTER, "the GPU operator deploys its parts here",
        how="Node labels nvidia.com/gpu.deploy.*: true, false, or paused-for-mig-change, paused-for-driver-upgrade",
        remedy="These parts pause while MIG or the driver is changed; wait ten minutes. If it lasts, read the log of "
        "this node's MIG manager or driver pod and correct what it names; it then ends the pause. Set the "
        "label back by hand only when neither works any more.",
        commands=(
            "kubectl get node {node} --show-labels | tr ',' '\\n' | grep -E 'gpu.deploy|mig.config|upgrade-state'",
            "kubectl -n gpu-operator logs daemonset/nvidia-mig-manager --tail=50",
        ),
        judge=check_deployed, needs=("D08", "M02"), reads=("cluster",),
    ),
    DiagnosticCheck(
        "L05", CheckStage.CLUSTER, "the GPU operator is ready",
        how="status.state of the ClusterPolicy (nvidia.com/v1)",
        remedy="It is notReady while any of its DaemonSets is, on any node: look for pods that do not run, and in the "
        "operator's log for the state it waits for.",
        commands=("kubectl -n gpu-operator get pods -o wide",
                  "kubectl -n gpu-operator logs deploy/gpu-operator --tail=50"),
        judge=check_policy, reads=("cluster",),
    ),
    DiagnosticCheck(
        "L08", CheckStage.CLUSTER, "NVIDIA's pods on this node are ready",
        how="pods of this node whose app is NVIDIA's or the GPU operator's: Ready, waiting reason, restarts",
        remedy="See why the first one waits. Pods in Init wait for the part before them: driver, toolkit, device "
        "plugin. ImagePullBackOff: registry, tag and pull secret. CrashLoopBackOff: its log, also with "
        "--previous.",
        judge=check_pods, needs=("N02", "K02"), reads=("cluster",),
    ),
)  # fmt: skip
