"""Pods, device allocations and processes of a simulated node, as the kubelet and /proc report them."""

from gpuwatch.model import workload as model
from gpuwatch.sim.node import noise
from gpuwatch.sim.node.actions import SimWorkload
from gpuwatch.sim.node.gpu import SimGpu, Unit
from gpuwatch.sim.node.node import SimNode
from gpuwatch.sim.surroundings.proctree import SimProcess

DOMAIN = "nvidia.com"


def pod_of(node: SimNode, workload: SimWorkload) -> model.Workload | None:
    """The container that a workload runs in; None outside Kubernetes."""
    if workload.pod is None:
        return None
    namespace, name = workload.pod
    uid = workload.uid or noise.uuid(node.seed, "pod", namespace, name)
    return model.Workload(namespace=namespace, pod=name, container=workload.container, pod_uid=uid)


def pods(node: SimNode) -> list[model.Workload]:
    """Every container of the node that asked for a GPU."""
    return [pod for workload in node.workloads.values() if (pod := pod_of(node, workload)) is not None]


def allocations(node: SimNode) -> list[model.Allocation]:
    """The kubelet's answer to List."""
    found = []
    for workload in node.workloads.values():
        pod = pod_of(node, workload)
        if pod is None:
            continue
        # the kubelet does not report the pod's uid
        named = model.Workload(namespace=pod.namespace, pod=pod.pod, container=pod.container)
        if workload.claim is not None:  # devices by the names that NVIDIA's DRA driver gives them
            devices = tuple(f"gpu-{gpu}" for gpu in workload.gpus)
            claim = f"{pod.namespace}/{workload.claim}"
            found.append(model.Allocation(workload=named, resource=f"gpu.{DOMAIN}", device_ids=devices, claim=claim))
            continue
        ids: dict[str, list[str]] = {}
        for device in workload.gpus:
            unit = node.unit(device)
            if unit is not None:
                slot = str(device).partition("::")[2] or "0"
                ids.setdefault(_resource(unit), []).append(_device_id(node, unit, slot))
        found += [model.Allocation(workload=named, resource=r, device_ids=tuple(d)) for r, d in ids.items()]
    return found


def allocatable(node: SimNode) -> list[model.Allocatable]:
    """All devices that the kubelet can allocate."""
    ids: dict[str, list[str]] = {}
    for unit in (unit for gpu in offered(node) for unit in gpu.units):
        slots = range(1 if unit.profile else node.scenario.node.replicas)
        ids.setdefault(_resource(unit), []).extend(_device_id(node, unit, str(slot)) for slot in slots)
    return [model.Allocatable(resource=r, device_ids=tuple(d)) for r, d in ids.items()]


def offered(node: SimNode) -> list[SimGpu]:
    """GPUs that the device plugin offers: not those that are lost or reported unhealthy."""
    return [gpu for gpu in node.gpus if gpu.attached and not gpu.faults.lost and gpu.index not in node.withdrawn]


def processes(node: SimNode) -> list[SimProcess]:
    """Every process that uses a GPU, as /proc shows it."""
    return [
        SimProcess(
            pid=process.pid,
            name=process.workload.process,
            uid=process.workload.user or 0,
            start_time=1000 + process.pid % 997,
            workload=pod_of(node, process.workload),
            slurm_job=process.workload.slurm,
            container=process.workload.docker,
            layout=process.workload.cgroup,
        )
        for gpu in node.gpus
        for _, process in gpu.processes
    ]


def _resource(unit: Unit) -> str:
    return f"{DOMAIN}/mig-{unit.profile.name.replace('+', '.')}" if unit.profile else f"{DOMAIN}/gpu"


def _device_id(node: SimNode, unit: Unit, slot: str) -> str:
    shared = node.scenario.node.replicas > 1 and not unit.profile
    return f"{unit.uuid}::{slot}" if shared else unit.uuid
