"""The Node object with its labels, its pods and other answers of the API server about the simulated host."""

from collections import Counter

import msgspec

from gpuwatch.diagnose.model import ClusterFacts, NodePod
from gpuwatch.kube.objects import Condition, NodeObject
from gpuwatch.sim.host import Files
from gpuwatch.sim.node import noise
from gpuwatch.sim.node.actions import SetKubelet
from gpuwatch.sim.node.node import SimNode
from gpuwatch.sim.node.pods import DOMAIN, allocatable, allocations
from gpuwatch.sim.nvml.system import cuda_version

NAME = "gpu-node-1"
OPERATOR = "gpu-operator"
OPERANDS = {
    "nvidia-driver-daemonset": {},
    "nvidia-container-toolkit-daemonset": {},
    "nvidia-device-plugin-daemonset": {"MIG_STRATEGY": "mixed", "DEVICE_LIST_STRATEGY": "envvar"},
    "gpu-feature-discovery": {},
    "nvidia-dcgm-exporter": {},
    "nvidia-operator-validator": {},
    "node-feature-discovery-worker": {},
}
"""The operator's DaemonSets that matter here -> environment that controls them."""

DEPLOYED = (
    "container-toolkit", "dcgm", "dcgm-exporter", "device-plugin", "driver", "gpu-feature-discovery",
    "node-status-exporter", "operator-validator",
)  # fmt: skip
FAMILY = {6: "turing", 7: "ampere", 8: "ada-lovelace", 9: "hopper", 10: "blackwell"}
STARTED = 1_789_000_000
"""Unix time at which GPU feature discovery started; it does not renew its timestamp."""

CONDITIONS = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID"),
    ("Ready", "True", "KubeletReady"),
)


def has_kubelet(node: SimNode) -> bool:
    """Whether the machine was part of a cluster at its start; a kubelet that ends later leaves its files."""
    begin = (action for action in node.scenario.timeline if action.at == 0)
    return not any(isinstance(action, SetKubelet) and action.state == "absent" for action in begin)


def cluster(node: SimNode) -> Files:
    """The files; a machine outside a cluster has none."""
    if not has_kubelet(node):
        return {}
    workload_gpus: Counter[tuple[str, str]] = Counter()
    for each in allocations(node):
        if each.claim is None and each.workload.namespace and each.workload.pod:
            workload_gpus[each.workload.namespace, each.workload.pod] += len(each.device_ids)
    workloads = (
        NodePod(
            namespace=namespace, name=name, uid=noise.uuid(node.seed, "pod", namespace, name), gpus=gpus, ready=True
        )
        for (namespace, name), gpus in workload_gpus.items()
    )
    operands = (
        NodePod(
            namespace=OPERATOR,
            name=f"{app}-{uid[:5]}",
            uid=uid,
            controller="DaemonSet",
            app=app,
            ready=True,
            environment=environment,
        )
        for app, environment in OPERANDS.items()
        for uid in [noise.uuid(node.seed, "operand", app)]
    )
    found = ClusterFacts(
        node=NodeObject(
            name=NAME,
            uid=noise.uuid(node.seed, "node"),
            resource_version="1000",
            labels=node_labels(node),
            conditions=tuple(Condition(type=kind, status=status, reason=why) for kind, status, why in CONDITIONS),
            capacity=capacity(node),
            allocatable={each.resource: len(each.device_ids) for each in allocatable(node)},
        ),
        way="the recording",
        pods=(*operands, *workloads),
        pending=(),
        runtime_classes={"nvidia": "nvidia"},
        policy_state="ready",
        plugin_environment=OPERANDS["nvidia-device-plugin-daemonset"],
    )
    return {"gpuwatch/cluster.json": msgspec.json.format(msgspec.json.encode(found)).decode() + "\n"}


def capacity(node: SimNode) -> dict[str, int]:
    """Devices by resource that the plugin has registered: a lost GPU stays among them until the driver is reloaded."""
    found: Counter[str] = Counter()
    for gpu in node.gpus:
        for unit in gpu.units if gpu.attached else ():
            profile = unit.profile.name.replace("+", ".") if unit.profile else None
            found[f"{DOMAIN}/mig-{profile}" if profile else f"{DOMAIN}/gpu"] += (
                1 if profile else node.scenario.node.replicas
            )
    return dict(found)


def node_labels(node: SimNode) -> dict[str, str]:
    """The labels that node-feature-discovery, the GPU operator and GPU feature discovery keep; without a GPU only those
    that every node has. MIG has the strategy `mixed`, in which every profile is a resource of its own.
    """
    base = {
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": NAME,
        "kubernetes.io/os": "linux",
        "feature.node.kubernetes.io/cpu-model.vendor_id": "Intel",
        "feature.node.kubernetes.io/system-os_release.ID": "ubuntu",
    }
    attached = [gpu for gpu in node.gpus if gpu.attached]
    if not attached:
        return base
    model, replicas = node.model, node.scenario.node.replicas
    shared = "-SHARED" if replicas > 1 else ""
    major, minor, revision, *_ = (*node.driver.split("."), "", "")
    cuda = (str(cuda_version(node) // 1000), str(cuda_version(node) % 1000 // 10))
    labels = {
        "gpu.present": "true",
        **{f"gpu.deploy.{each}": "true" for each in (*DEPLOYED, *(("mig-manager",) if model.mig else ()))},
        "gfd.timestamp": str(STARTED),
        "cuda.driver-version.full": node.driver,
        "cuda.driver-version.major": major,
        "cuda.driver-version.minor": minor,
        "cuda.driver-version.revision": revision,
        "cuda.runtime-version.full": ".".join(cuda),
        "cuda.runtime-version.major": cuda[0],
        "cuda.runtime-version.minor": cuda[1],
        "gpu.product": model.name.replace(" ", "-") + shared,
        "gpu.count": str(len(attached)),
        "gpu.replicas": str(replicas),
        "gpu.sharing-strategy": "time-slicing" if shared else "none",
        "gpu.memory": str(model.memory),
        "gpu.family": FAMILY[model.architecture],
        "gpu.compute.major": str(model.compute_capability[0]),
        "gpu.compute.minor": str(model.compute_capability[1]),
        "gpu.machine": "SYS-821GE-TNHR",
        "gpu.mode": "compute",
        "mps.capable": "false",
        "vgpu.present": "false",
        "mig.capable": "true" if model.mig else "false",
    }
    if model.mig:
        profiles = [unit.profile for gpu in attached for unit in gpu.units if unit.profile]
        counts = Counter(profile.name.replace("+", ".") for profile in profiles)
        labels |= {
            "mig.strategy": "mixed",
            "mig.config": "custom" if profiles else "all-disabled",
            "mig.config.state": "success",
        }
        for profile in profiles:
            name = profile.name.replace("+", ".")
            labels |= {
                f"mig-{name}.count": str(counts[name]),
                f"mig-{name}.memory": str(profile.memory),
                f"mig-{name}.product": f"{model.name.replace(' ', '-')}-MIG-{name}",
                f"mig-{name}.replicas": "1",
                f"mig-{name}.multiprocessors": str(profile.multiprocessors),
                f"mig-{name}.slices.gi": str(profile.slices),
            }
    present = {"feature.node.kubernetes.io/pci-10de.present": "true"}
    return base | present | {f"{DOMAIN}/{key}": value for key, value in labels.items()}
