"""The labels of a GPU node that node-feature-discovery, the GPU operator and GPU feature discovery keep."""

from collections import Counter

from gpuwatch.sim.node.cluster import DOMAIN
from gpuwatch.sim.node.gpu import SimGpu
from gpuwatch.sim.node.node import Node
from gpuwatch.sim.nvml.system import cuda_version

DEPLOYED = (
    "container-toolkit", "dcgm", "dcgm-exporter", "device-plugin", "driver", "gpu-feature-discovery",
    "node-status-exporter", "operator-validator",
)  # fmt: skip
FAMILY = {6: "turing", 7: "ampere", 8: "ada-lovelace", 9: "hopper", 10: "blackwell"}
STARTED = 1_789_000_000
"""Unix time at which GPU feature discovery started; it does not renew its timestamp."""


def node_labels(node: Node, name: str) -> dict[str, str]:
    """All of them; without a GPU only those that every node has."""
    base = {
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "feature.node.kubernetes.io/cpu-model.vendor_id": "Intel",
        "feature.node.kubernetes.io/system-os_release.ID": "ubuntu",
    }
    attached = [gpu for gpu in node.gpus if gpu.attached]
    if not attached:
        return base
    ours = {**_operator(node), **_versions(node), **_gpus(node, attached), **_mig(node, attached)}
    return (
        base | {"feature.node.kubernetes.io/pci-10de.present": "true"} | {f"{DOMAIN}/{k}": v for k, v in ours.items()}
    )


def _operator(node: Node) -> dict[str, str]:
    deployed = (*DEPLOYED, "mig-manager") if node.model.mig else DEPLOYED
    return {"gpu.present": "true", **{f"gpu.deploy.{each}": "true" for each in deployed}}


def _versions(node: Node) -> dict[str, str]:
    major, minor, revision, *_ = (*node.driver.split("."), "", "")
    cuda = (str(cuda_version(node) // 1000), str(cuda_version(node) % 1000 // 10))
    return {
        "gfd.timestamp": str(STARTED),
        "cuda.driver-version.full": node.driver,
        "cuda.driver-version.major": major,
        "cuda.driver-version.minor": minor,
        "cuda.driver-version.revision": revision,
        "cuda.runtime-version.full": ".".join(cuda),
        "cuda.runtime-version.major": cuda[0],
        "cuda.runtime-version.minor": cuda[1],
    }


def _gpus(node: Node, attached: list[SimGpu]) -> dict[str, str]:
    model, replicas = node.model, node.scenario.node.replicas
    shared = "-SHARED" if replicas > 1 else ""
    return {
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
    }


def _mig(node: Node, attached: list[SimGpu]) -> dict[str, str]:
    """By the strategy `mixed`, under which every profile is a resource of its own."""
    if not node.model.mig:
        return {"mig.capable": "false"}
    profiles = [unit.profile for gpu in attached for unit in gpu.units if unit.profile]
    counts = Counter(profile.name.replace("+", ".") for profile in profiles)
    found = {
        "mig.capable": "true",
        "mig.strategy": "mixed",
        "mig.config": "custom" if profiles else "all-disabled",
        "mig.config.state": "success",
    }
    for profile in profiles:
        name = profile.name.replace("+", ".")
        found |= {
            f"mig-{name}.count": str(counts[name]),
            f"mig-{name}.memory": str(profile.memory),
            f"mig-{name}.product": f"{node.model.name.replace(' ', '-')}-MIG-{name}",
            f"mig-{name}.replicas": "1",
            f"mig-{name}.multiprocessors": str(profile.multiprocessors),
            f"mig-{name}.slices.gi": str(profile.slices),
        }
    return found
