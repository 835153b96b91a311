"""Hosts on which checks fail: container runtime, CDI, kubelet and device plugin."""

import base64
import json
from collections.abc import Callable

import msgspec

from gpuwatch.diagnose.model import CheckStatus, NodePod
from gpuwatch.model.snapshot import SourceStatus
from gpuwatch.model.workload import Attribution, DeviceUse, Holder, ProcessOwner, Workload
from tests.diagnose.checks.broken import Broken
from tests.diagnose.hosts import Host

Change = Callable[[Host], None]

DROP_IN = "etc/containerd/conf.d/99-nvidia.toml"
TOOLKIT_CONFIG = "etc/nvidia-container-runtime/config.toml"
SPEC = "run/cdi/nvidia.yaml"
PLUGINS = "var/lib/kubelet/device-plugins"
CHECKPOINT = f"{PLUGINS}/kubelet_internal_checkpoint"
WARN = CheckStatus.WARN
PLUGIN_POD = NodePod(namespace="gpu-operator", name="nvidia-device-plugin-daemonset-x7k2p", uid="1", ready=True)


def each(*changes: Change) -> Change:
    """One after the other."""

    def change(host: Host) -> None:
        for one in changes:
            one(host)

    return change


def remove(*paths: str) -> Change:
    """Files or folders."""
    return lambda host: [host.remove(path) for path in paths] and None


def edit(path: str, old: str, new: str) -> Change:
    """A text in a file."""
    return lambda host: host.edit(path, old, new)


def write(path: str, text: str) -> Change:
    """Another file."""
    return lambda host: host.write(path, text)


def cluster(**members: object) -> Change:
    """Other members of what the API server tells."""

    def change(host: Host) -> None:
        assert host.cluster is not None
        host.cluster = msgspec.structs.replace(host.cluster, **members)

    return change


def node(**members: object) -> Change:
    """Other members of the Node; maps are merged."""

    def change(host: Host) -> None:
        assert host.cluster is not None
        old = host.cluster.node
        new = {n: {**getattr(old, n), **v} if isinstance(v, dict) else v for n, v in members.items()}
        host.cluster = msgspec.structs.replace(host.cluster, node=msgspec.structs.replace(old, **new))

    return change


def plugin(**variables: str) -> Change:
    """Variables of the device plugin's pod."""
    return cluster(plugin_environment=variables)


def alone(host: Host) -> None:
    """No GPU operator on this node."""
    host.remove("run/nvidia/validations")


def no_kubelet(host: Host) -> None:
    """A machine of containers, without Kubernetes."""
    host.remove("var/lib/kubelet")
    host.cluster = None


def docker(settings: object) -> Change:
    """Docker instead of Kubernetes and containerd's CRI."""

    def change(host: Host) -> None:
        no_kubelet(host)
        host.write("usr/bin/dockerd", "\x7fELF")
        host.write("proc/900/comm", "dockerd\n")
        host.write("etc/docker/daemon.json", json.dumps(settings))

    return change


def crio(host: Host) -> None:
    """CRI-O with a runtime of NVIDIA's instead of containerd."""
    host.remove("etc/containerd")
    host.edit("var/lib/kubelet/config.yaml", "/run/containerd/containerd.sock", "/var/run/crio/crio.sock")
    host.write("etc/crio/crio.conf.d/10-crio.conf", '[crio.runtime]\ndefault_runtime = "crun"\n')
    host.write(
        "etc/crio/crio.conf.d/99-nvidia.conf",
        '[crio.runtime.runtimes.nvidia]\nruntime_path = "/usr/bin/nvidia-container-runtime"\n',
    )


def attributed(*holders: Holder, process: ProcessOwner | None = None, unknown: tuple[str, ...] = ()) -> Change:
    """GPU 3 has these holders; the kubelet has told so."""

    def change(host: Host) -> None:
        assert host.view is not None
        snapshot = host.view.snapshot
        sources = (
            *(s for s in snapshot.sources if s.name != "podresources"),
            SourceStatus(name="podresources", up=True),
        )
        gpus = [gpu.identity.uuid for gpu in snapshot.gpus]
        uses = tuple(
            DeviceUse(gpu=uuid, allocated=i == 3, holders=holders if i == 3 else ()) for i, uuid in enumerate(gpus)
        )
        host.view = msgspec.structs.replace(
            host.view,
            snapshot=msgspec.structs.replace(snapshot, sources=sources),
            attribution=Attribution(devices=uses, unknown_devices=unknown),
            owners=(process,) if process else (),
        )

    return change


def held(pod: str, resource: str | None = "nvidia.com/gpu") -> Holder:
    """By a pod of the namespace `ml`."""
    return Holder(workload=Workload(namespace="ml", pod=pod, container="main"), resource=resource)


def unregistered(index: int) -> Change:
    """The device plugin calls one GPU unhealthy: the kubelet notes and tells the others only."""

    def change(host: Host) -> None:
        assert host.view is not None
        uuid = host.view.snapshot.gpus[index].identity.uuid
        document = json.loads((host.root / CHECKPOINT).read_text())
        document["Data"]["RegisteredDevices"]["nvidia.com/gpu"].remove(uuid)
        host.write(CHECKPOINT, json.dumps(document))

    return change


def entry(host: Host) -> None:
    """A pod in the checkpoint, whose checksum is not renewed."""
    row = {
        "PodUID": "9a15d2b5-c152-46b9-96e0-d57032629e1f",
        "ContainerName": "app",
        "ResourceName": "nvidia.com/gpu",
        "DeviceIDs": {"0": ["GPU-1"]},
        "AllocResp": base64.b64encode(b"\n\x05hello").decode(),
    }
    document = json.loads((host.root / CHECKPOINT).read_text())
    document["Data"]["PodDeviceEntries"] = [row]
    host.write(CHECKPOINT, json.dumps(document))


TOOLS = tuple(
    f"usr/bin/{name}"
    for name in ("nvidia-ctk", "nvidia-container-runtime", "nvidia-container-runtime-hook", "nvidia-cdi-hook")
)
NO_CDI = edit("etc/containerd/config.toml", "enable_cdi = true", "enable_cdi = false")
LEGACY = edit(TOOLKIT_CONFIG, 'mode = "auto"', 'mode = "legacy"')
OLD_SPEC = "kind: nvidia.com/gpu\ncontainerEdits: {deviceNodes: [{path: /dev/nvidia9}]}\n"
OPERATOR_CDI = "k8s.device-plugin.nvidia.com-gpu.json"

TOOLKIT = (
    Broken("T01", remove(*TOOLS), "no container toolkit", "nvidia-container-toolkit"),
    Broken("T01", remove(*TOOLS), "no container toolkit", "configure --runtime=docker", well=docker({})),
    Broken("T01", remove("run/nvidia/validations/toolkit-ready"), "no toolkit-ready", "toolkit-validation", WARN),
    Broken("T06", write(TOOLKIT_CONFIG, "[nvidia-container-cli\n"), "cannot be read", "nvidia-ctk config default"),
    Broken("T06", edit(TOOLKIT_CONFIG, "#no-cgroups = false", "no-cgroups = true"), "may not open them",
           "no-cgroups=false", well=LEGACY),
    Broken("T06", edit(TOOLKIT_CONFIG, "#no-cgroups = false", "no-cgroups = true"), "unless they are rootless",
           "rootless", WARN, well=each(LEGACY, NO_CDI, no_kubelet)),
)  # fmt: skip

RUNTIME = (
    Broken("T02", remove(DROP_IN), "pods of RuntimeClass nvidia cannot start", "systemctl restart containerd"),
    Broken("T02", each(remove(DROP_IN), NO_CDI), "no nvidia runtime in /etc/containerd/config.toml",
           "nvidia-ctk runtime configure --runtime=containerd"),
    Broken("T02", remove(DROP_IN, SPEC), "CDI does not replace it", "nvidia-ctk runtime configure", well=alone),
    Broken("T02", remove(DROP_IN), "others get GPUs through CDI", "nvidia-ctk runtime configure", WARN, well=alone),
    Broken("T02", write(DROP_IN, "[plugins\n"), "cannot start with this configuration", "systemctl restart containerd"),
    Broken("T02", write(DROP_IN, "plugins = 3\n"), "plugins is no table", "systemctl restart containerd"),
    Broken("T02", remove("usr/bin/nvidia-container-runtime"), "nvidia-container-runtime, which is not there",
           "toolkit pod"),
    Broken("T02", remove("etc/containerd"), "it has no file", "nvidia-ctk runtime configure", well=alone),
    Broken("T02", each(remove("etc/crio/crio.conf.d/99-nvidia.conf", SPEC)), "crio has no nvidia runtime",
           "nvidia-ctk runtime configure --runtime=crio", well=crio),
    Broken("T02", write("etc/docker/daemon.json", "{"), "docker cannot start", "systemctl restart docker",
           well=docker({"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}})),
    Broken("T02", remove("usr/bin/nvidia-container-runtime-hook", SPEC), "docker has no nvidia runtime",
           "nvidia-ctk runtime configure --runtime=docker", well=docker({})),
    Broken("T03", cluster(runtime_classes={}), "RuntimeClass nvidia is missing", "kubectl apply"),
    Broken("T03", cluster(runtime_classes={"kata": "kata"}), "no RuntimeClass leads to containerd's runtime nvidia",
           "handler: nvidia", well=each(alone, LEGACY, edit(DROP_IN, 'name = "nvidia"', 'name = "runc"'))),
    Broken("T05", LEGACY, "daemon-reload", "create-dev-char-symlinks", WARN,
           well=lambda host: [path.unlink() for path in (host.root / "dev/char").glob("195:*")] and None),
)  # fmt: skip

CDI = (
    Broken("T04", edit(SPEC, ".so.580.105.08", ".so.550.90.07"), "driver 550.90.07, loaded is 580.105.08",
           "nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml"),
    Broken("T04", edit(SPEC, "/dev/nvidia7", "/dev/nvidia9"), "/dev/nvidia9, which this host lacks", "cdi generate"),
    Broken("T04", write(SPEC, "kind: [nvidia.com/gpu"), "no CDI specification", "cdi generate"),
    Broken("T04", edit(SPEC, "name: GPU-", "name: GPU-0"), "which this node does not have", "cdi generate"),
    Broken("T04", write(f"run/cdi/{OPERATOR_CDI}", '{"kind": "k8s.device-plugin.nvidia.com/gpu", "devices": [{}]}'),
           "`name`", "nvidia-device-plugin-daemonset"),
    Broken("T04", write("etc/cdi/nvidia.yaml", OLD_SPEC), "/etc/cdi/nvidia.yaml: names /dev/nvidia9",
           "cdi generate --output=/etc/cdi/nvidia.yaml", WARN),
    Broken("T04", edit(SPEC, "/dev/nvidia7", "/dev/nvidia9"), "which this host lacks", "cdi generate", WARN,
           well=NO_CDI),
)  # fmt: skip

PLUGIN = (
    Broken("K01", remove("var/lib/kubelet/pod-resources"), "kubelet.sock is not there", "mount the folder"),
    Broken("K02", remove(f"{PLUGINS}/nvidia-gpu.sock"), "no device plugin of NVIDIA's", "device-plugin"),
    Broken("K02", remove(f"{PLUGINS}/kubelet.sock"), "the kubelet does not listen", "systemctl status kubelet"),
    Broken("K06", write(CHECKPOINT, '{"Data":{"PodDevi'), "is broken", "rm /var/lib/kubelet/device-plugins"),
    Broken("K06", write(CHECKPOINT, ""), "is broken", "Drain the node"),
    Broken("K06", entry, "does not fit its checksum", "remove the file", WARN),
    Broken("K07", node(labels={"nvidia.com/device-plugin.config": "tesla-t5"}), "=tesla-t5", "ConfigMap",
           well=each(cluster(plugin_configs=("default", "tesla-t4")),
                     node(labels={"nvidia.com/device-plugin.config": "tesla-t4"}))),
    Broken("K08", plugin(DP_DISABLE_HEALTHCHECKS="all"), "calls every GPU healthy", "devicePlugin.env", WARN),
    Broken("K08", plugin(DP_DISABLE_HEALTHCHECKS="13, 79"), "ignores XID 79", "Remove the variable", WARN),
    Broken("K10", remove("run/nvidia/validations/plugin-ready"), "no plugin-ready", "nvidia-operator-validator", WARN),
)  # fmt: skip

DEVICES = (
    Broken("K03", node(capacity={"nvidia.com/gpu": 7}), "nvidia.com/gpu: capacity 7, by NVML 8", "restart its pod"),
    Broken("K03", node(capacity={"nvidia.com/gpu": 9}), "capacity 9, by NVML 8", "restart its pod"),
    Broken("K03", node(capacity={"nvidia.com/mig-3g.40gb": 1}), "mig-3g.40gb: capacity 1, by NVML 2", "device plugin",
           node={"mig": {"0": ["3g.40gb", "3g.40gb"]}}),
    Broken("K03", node(capacity={"nvidia.com/gpu": 4}), "capacity 4, by NVML 8", "device plugin",
           node={"model": "l40s", "gpus": 2, "replicas": 4}),
    Broken("K04", each(node(allocatable={"nvidia.com/gpu": 7}), unregistered(3)), "calls GPU 3 unhealthy", "XID"),
    Broken("K04", each(node(allocatable={"nvidia.com/gpu": 7}), cluster(pods=(PLUGIN_POD,))), "7 of 8",
           "kubectl -n gpu-operator delete pod nvidia-device-plugin-daemonset-x7k2p"),
    Broken("K04", node(allocatable={"nvidia.com/gpu": 0}), "0 of 8 allocatable", "restart the plugin"),
    Broken("K04", unregistered(5), "7 of 8 allocatable; the device plugin calls GPU 5 unhealthy", "dmesg",
           well=lambda host: setattr(host, "cluster", None)),
    Broken("K05", attributed(held("train-0"), unknown=("GPU-deadbeef",)), "GPU-deadbeef, which this node does not have",
           "Delete the pod", well=attributed(held("train-0"))),
    Broken("K05", attributed(held("train-0"), held("train-1")), "ml/train-0 and ml/train-1", "Delete the younger", WARN,
           well=attributed(held("train-0"))),
    Broken("K09", attributed(held("train-0"), held("stray", None)), "ml/stray uses GPU 3, which it was not given",
           "NVIDIA_VISIBLE_DEVICES", WARN, well=attributed(held("train-0"))),
)  # fmt: skip

BROKEN: tuple[Broken, ...] = (*TOOLKIT, *RUNTIME, *CDI, *PLUGIN, *DEVICES)
