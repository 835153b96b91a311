"""Hosts on which checks fail: cluster."""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from gpuwatch.diagnose.model import CheckStatus
from gpuwatch.kube.objects import CONDITION, TAINT, Condition, Taint
from gpuwatch.model.clock import rfc3339
from gpuwatch.model.finding import Finding, Health, Response, Severity
from gpuwatch.remediation.model import FAULTS, HEALTHY_COUNT, LABELS, OPT_OUT, OWNER, Fault, Ownership, PublishedLabels
from gpuwatch.remediation.planning.ownership import encode
from tests.diagnose.checks.broken import Broken
from tests.diagnose.hosts import Host

NFD = "feature.node.kubernetes.io/"
PLUGIN = "nvidia-device-plugin-daemonset"
Change = Callable[[Host], None]


def node(**members: Any) -> Change:
    """Other members of the Node; maps are added to, and None takes a key away."""

    def change(host: Host) -> None:
        assert host.cluster is not None
        old = host.cluster.node
        new = {
            name: {k: v for k, v in (getattr(old, name) | value).items() if v is not None}
            if isinstance(value, dict)
            else value
            for name, value in members.items()
        }
        host.cluster = replace(host.cluster, node=replace(old, **new))

    return change


def cluster(**members: Any) -> Change:
    """Other members of the section."""

    def change(host: Host) -> None:
        assert host.cluster is not None
        host.cluster = replace(host.cluster, **members)

    return change


def label(key: str, value: str | None) -> Change:
    """One label, None: without it."""
    return node(labels={key: value})


def without_discovery(host: Host) -> None:
    """The GPU operator deploys, and nobody discovers features."""
    assert host.cluster is not None
    node(labels=dict.fromkeys(key for key in host.cluster.node.labels if key.startswith(NFD)))(host)


def no_plugin(host: Host) -> None:
    """Nobody gives out GPUs."""
    host.remove("var/lib/kubelet/device-plugins/nvidia-gpu.sock")


def condition(type_: str, status: str, reason: str) -> Change:
    """One of the kubelet's conditions changes."""

    def change(host: Host) -> None:
        assert host.cluster is not None
        others = tuple(each for each in host.cluster.node.conditions if each.type != type_)
        node(conditions=(*others, Condition(type=type_, status=status, reason=reason)))(host)

    return change


def pod(app: str, **members: Any) -> Change:
    """One pod of the operator changes."""

    def change(host: Host) -> None:
        assert host.cluster is not None
        assert host.cluster.pods is not None
        pods = (replace(each, **members) if each.app == app else each for each in host.cluster.pods)
        host.cluster = replace(host.cluster, pods=tuple(pods))

    return change


def tainted(check: str = "gpu_lost", *, written: float | None = 7200.0, **members: Any) -> Change:
    """A quarantine by the remediator; it last wrote its condition so many seconds ago, None: never."""

    def change(host: Host) -> None:
        assert host.cluster is not None
        assert host.view is not None
        now, uuid = host.view.snapshot.at, host.view.snapshot.statuses[3].identity.uuid
        fault = Fault(
            key=f"{check}/{uuid}",
            check=check,
            response=Response.TAINT,
            gpu=uuid,
            index=3,
            xid=79 if "xid" in check else None,
        )
        owner = Ownership(
            id="q", state="applied", since=now - 9000, node_uid=host.cluster.node.uid, value=check, **members
        )
        condition = Condition(type=CONDITION, status="False", last_heartbeat=rfc3339(now - (written or 0)))
        node(
            taints=(Taint(key=TAINT, value=check),),
            annotations={OWNER: encode(owner), FAULTS: encode((fault,))},
            conditions=(*host.cluster.node.conditions, *(() if written is None else (condition,))),
        )(host)

    return change


def both(*changes: Change) -> Change:
    """One after the other."""

    def change(host: Host) -> None:
        for each in changes:
            each(host)

    return change


def found(check: str) -> Change:
    """The agent sees a fault on GPU 3."""

    def change(host: Host) -> None:
        assert host.view is not None
        uuid = host.view.snapshot.statuses[3].identity.uuid
        finding = Finding(check=check, severity=Severity.CRITICAL, message="m", gpu=uuid)
        judgement = replace(host.view.judgement, findings=(finding,))
        host.view = replace(host.view, judgement=judgement)

    return change


def labelled(written: float) -> Change:
    """A remediator has told schedulers of 8 healthy GPUs, and last wrote its condition so many seconds ago."""

    def change(host: Host) -> None:
        assert host.cluster is not None
        assert host.view is not None
        now = host.view.snapshot.at
        condition = Condition(type=CONDITION, status="True", last_heartbeat=rfc3339(now - written))
        ours = {HEALTHY_COUNT: "8"}
        text = encode(PublishedLabels(at=now - written, labels=ours))
        others = tuple(each for each in host.cluster.node.conditions if each.type != CONDITION)
        node(labels=ours, annotations={LABELS: text}, conditions=(*others, condition))(host)

    return change


def sick(host: Host) -> None:
    """GPU 3 is no longer well."""
    assert host.view is not None
    healths = {status.identity.uuid: Health.HEALTHY for status in host.view.snapshot.statuses}
    healths[host.view.snapshot.statuses[3].identity.uuid] = Health.FAILED
    host.view = replace(host.view, judgement=replace(host.view.judgement, gpus=healths))


BROKEN: tuple[Broken, ...] = (
    Broken(
        "L01",
        label("nvidia.com/gpu.product", "NVIDIA-A100-SXM4-80GB"),
        "the label says NVIDIA-A100-SXM4-80GB, NVML NVIDIA H100 80GB HBM3",
        "rollout restart daemonset/gpu-feature-discovery",
    ),
    Broken("L01", label("nvidia.com/gpu.count", "7"), "says 7 GPUs, NVML 8", "Read its pod's log", CheckStatus.WARN),
    Broken(
        "L01",
        label("nvidia.com/cuda.driver-version.full", "550.54.15"),
        "the label says driver 550.54.15, loaded is ",
        "Read its pod's log",
        CheckStatus.WARN,
    ),
    Broken("L01", label("nvidia.com/gpu.product", None), "has not labelled", "Read its pod's log", CheckStatus.WARN),
    Broken("L02", label(f"{NFD}pci-10de.present", None), "has found no", "deviceClassWhitelist", CheckStatus.WARN),
    Broken(
        "L02", without_discovery, "has not labelled this node", "removes its parts from this node", CheckStatus.WARN
    ),
    Broken(
        "L03",
        node(
            labels={
                "nvidia.com/gpu.deploy.device-plugin": "paused-for-mig-change",
                "nvidia.com/mig.config.state": "pending",
            }
        ),
        "device-plugin paused for mig-change (mig.config.state is pending)",
        "daemonset/nvidia-mig-manager",
    ),
    Broken(
        "L03",
        label("nvidia.com/gpu.deploy.dcgm-exporter", "paused-for-driver-upgrade"),
        "dcgm-exporter paused for driver-upgrade",
        "wait ten minutes",
        CheckStatus.WARN,
    ),
    Broken(
        "L03",
        both(no_plugin, label("nvidia.com/gpu.deploy.device-plugin", "false")),
        "switched off by label: device-plugin",
        "kubectl label node gpu-node-1 nvidia.com/gpu.deploy.device-plugin=true",
        CheckStatus.WARN,
    ),
    Broken("L04", tainted(), "has not written for 120 min", "gpuwatch node release --node gpu-node-1"),
    Broken("L04", tainted(written=None), "no remediator works here", "start the remediator again"),
    Broken("L04", tainted(written=60.0), "nothing is seen any more", "remediation.recovery_hold", CheckStatus.WARN),
    Broken(
        "L04",
        tainted(held="came back 3 times in 7 days"),
        "only an operator releases it",
        "looked at",
        CheckStatus.WARN,
    ),
    Broken(
        "L04",
        tainted(by="operator", held="changes the fan"),
        "changes the fan",
        "gpuwatch node release",
        CheckStatus.WARN,
    ),
    Broken("L04", tainted("xid_fatal"), "without the agent it is not known", "gpuwatch status", CheckStatus.WARN),
    Broken(
        "L04", both(tainted(), node(annotations={OPT_OUT: "true"})), "has opted out of gpuwatch", "release the node"
    ),
    Broken(
        "L04",
        node(taints=(Taint(key=TAINT, value="mine"),)),
        "has no owner annotation of this Node",
        f"kubectl taint node gpu-node-1 {TAINT}-",
        well=both(tainted(), found("gpu_lost")),
    ),
    Broken(
        "L05",
        both(cluster(policy_state="notReady"), pod("gpu-feature-discovery", ready=False)),
        "is notReady",
        "logs deploy/gpu-operator",
        CheckStatus.WARN,
    ),
    Broken("L06", condition("Ready", "Unknown", "NodeStatusUnknown"), "Ready is Unknown", "journalctl -u kubelet"),
    Broken(
        "L06",
        condition("DiskPressure", "True", "KubeletHasDiskPressure"),
        "DiskPressure",
        "free space",
        CheckStatus.WARN,
    ),
    Broken(
        "L07",
        node(unschedulable=True),
        "a person or another controller has cordoned",
        "kubectl uncordon gpu-node-1",
        CheckStatus.WARN,
    ),
    Broken("L07", node(deleting=True), "is being deleted", "Ask who did it", CheckStatus.WARN),
    Broken(
        "L07",
        label("nvidia.com/gpu-driver-upgrade-state", "drain-required"),
        "the GPU operator's driver upgrade is working on the node",
        "wait for that controller",
        CheckStatus.WARN,
    ),
    Broken(
        "L08",
        pod(PLUGIN, ready=False, waiting="CrashLoopBackOff", restarts=12),
        "is not ready (CrashLoopBackOff, 12 restarts)",
        "kubectl -n gpu-operator logs nvidia-device-plugin-daemonset-",
    ),
    Broken("L08", pod("nvidia-dcgm-exporter", ready=False), "is not ready", "pull secret", CheckStatus.WARN),
    Broken(
        "L09",
        both(labelled(7200.0), sick),
        "not written for 120 min; no longer true: gpuwatch.io/gpu-healthy-count=8",
        "gpuwatch node release --node gpu-node-1 --forget",
        CheckStatus.WARN,
        well=labelled(60.0),
    ),
    Broken(
        "L09",
        labelled(7200.0),
        "has not written for 120 min",
        "Start the remediator",
        CheckStatus.WARN,
        well=labelled(1.0),
    ),
)
