"""Rows of METRICS about users of the GPUs: pods, processes, virtual machines."""

from collections.abc import Callable, Iterator
from functools import partial

from gpuwatch.metrics.metric import Metric, MetricContext, Sample, Samples, distinct, each, label_text, node, summed
from gpuwatch.model.consent import Consents
from gpuwatch.model.snapshot import GpuProcess, Vgpu
from gpuwatch.model.workload import Container, ProcessOwner, Workload

Row = Metric[MetricContext]
_node, _instance = partial(Row, scope="node"), partial(Row, scope="instance")
NOTHING = Consents(at=0.0)
POD = ("namespace", "pod", "container")
IMAGE = ("image", "compose_project", "compose_service")
PROCESS = ("pid", "name", "type")
VGPU = ("vgpu", "type", "vm")


def _pod(workload: Workload) -> tuple[str | None, ...]:
    """Labels of a container; a pod without a known name has its uid as name."""
    return workload.namespace, workload.pod or workload.pod_uid, workload.container


def _allocated(context: MetricContext) -> list[Sample]:
    """Whether a device is allocated; of a GPU instance with several compute instances, whether any is."""
    found: dict[tuple[str, tuple[str | None, ...]], float] = {}
    for device in context.view.attribution.devices:
        if device.allocated is not None:
            key = (context.subject(device.gpu, device.gi), ())
            found[key] = max(device.allocated, found.get(key, 0))
    return list(found.items())


def _usage(member: str) -> Samples[MetricContext]:
    """A member of PodUsage."""

    def samples(context: MetricContext) -> list[Sample]:
        return summed(
            ((context.subject(row.gpu, row.gi), _pod(row.workload)), value)
            for row in context.view.attribution.usage
            if (value := getattr(row, member)) is not None
        )

    return samples


def _owned_processes(context: MetricContext) -> Iterator[tuple[str, GpuProcess, ProcessOwner | None]]:
    owners = {owner.pid: owner for owner in context.view.owners}
    for _, gpu in context.gpus:
        for process in gpu.processes or ():
            yield context.subject(gpu.identity.uuid, process.gi), process, owners.get(process.pid)


def _name(process: GpuProcess, owner: ProcessOwner | None) -> str | None:
    """The short name: NVML's may be a whole command line, which may hold secrets."""
    if owner is not None and owner.name:
        return owner.name
    words = (process.name or "").split()
    return words[0].rsplit("/", 1)[-1] if words else None


def _processes(member: str) -> Samples[MetricContext]:
    """A member of GpuProcess."""

    def samples(context: MetricContext) -> list[Sample]:
        return summed(
            ((subject, (str(process.pid), _name(process, owner), process.type)), value)
            for subject, process, owner in _owned_processes(context)
            if (value := getattr(process, member)) is not None
        )

    return samples


def _process_info(context: MetricContext) -> list[Sample]:
    return distinct(
        (
            subject,
            (
                str(process.pid),
                _name(process, owner),
                process.type,
                owner.account,
                owner.slurm_job,
                *_pod(
                    owner.workload or Workload(pod_uid=owner.pod_uid, container=(owner.container or Container()).name)
                ),
            ),
        )
        for subject, process, owner in _owned_processes(context)
        if owner is not None
    )


def _workloads(context: MetricContext) -> list[Sample]:
    """Pods from the join of kubelet and processes; for other processes the nearest owner with a name."""
    pods = (
        (context.subject(device.gpu, device.gi), ("pod", *_pod(holder.workload), *(None,) * 7))
        for device in context.view.attribution.devices
        for holder in device.holders
    )
    others = ((subject, ident) for subject, _, ident in _outside_pods(context))
    return distinct([*pods, *others])


def _outside_pods(context: MetricContext) -> Iterator[tuple[str, GpuProcess, tuple[str | None, ...]]]:
    for subject, process, owner in _owned_processes(context):
        if owner is None or owner.pod_uid is not None:
            continue
        container = owner.container or Container()
        ident = container.name or (owner.container_id or "")[:12]  # as many characters as `docker ps` shows
        names = {"slurm": owner.slurm_job, "container": ident, "unit": owner.unit, "user": owner.account}
        job = owner.slurm_step, owner.slurm_account, owner.slurm_partition
        image = container.image, container.project, container.service
        kind = next((kind for kind, name in names.items() if name), None)
        if kind is not None:
            yield subject, process, (kind, None, names[kind], None, owner.account, *job, *image)


def _own(member: str) -> Samples[MetricContext]:
    """A member of GpuProcess, summed for each workload outside of pods."""

    def samples(context: MetricContext) -> list[Sample]:
        return summed(
            ((subject, (ident[0], ident[2])), value)
            for subject, process, ident in _outside_pods(context)
            if (value := getattr(process, member)) is not None
        )

    return samples


def _vgpus(get: Callable[[Vgpu], float | None]) -> Samples[MetricContext]:
    return each(lambda gpu: (((vgpu.uuid, vgpu.type, vgpu.vm), get(vgpu)) for vgpu in gpu.vgpus))


WORKLOADS: tuple[Row, ...] = (
    _instance(
        "gpu_workload_info",
        "A container that has the GPU or GPU instance; several when it is shared.",
        lambda context: distinct(
            (context.subject(device.gpu, device.gi), (*_pod(holder.workload), holder.workload.pod_uid, holder.resource))
            for device in context.view.attribution.devices
            for holder in device.holders
        ),
        (*POD, "pod_uid", "resource"),
    ),
    _instance(
        "workload_info",
        "What uses the GPU or GPU instance: a pod, a Slurm job, a container, a systemd unit, else a user.",
        _workloads,
        ("kind", "namespace", "name", "container", "user", "step", "account", "partition", *IMAGE),
    ),
    _instance(
        "workload_gpu_memory_bytes",
        "Device memory of the processes of a workload that is no pod.",
        _own("used_memory"),
        ("kind", "name"),
    ),
    _instance(
        "workload_gpu_utilization_ratio",
        "Share of the whole GPU that the processes of a workload that is no pod keep busy, 0 to 1.",
        _own("sm_utilization"),
        ("kind", "name"),
    ),
    _instance("gpu_allocated", "Whether the GPU or GPU instance is given to a container.", _allocated),
    Row(
        "gpu_processes",
        "Processes on the GPU.",
        lambda context: [
            (key, len({process.pid for process in gpu.processes}))
            for key, gpu in context.gpus
            if gpu.processes is not None
        ],
    ),
    _instance("pod_gpu_memory_bytes", "Device memory of the container's own processes.", _usage("memory"), POD),
    _instance(
        "pod_gpu_utilization_ratio",
        "Share of the whole GPU that the container's own processes keep busy, 0 to 1.",
        _usage("utilization"),
        POD,
    ),
    Row(
        "pod_gpu_energy_joules_total",
        "Energy of the GPU put down to the container's own processes since the agent first saw them; shared by their "
        "utilization, by the activity of their GPU instances, or by the size of what they hold.",
        lambda context: summed(
            ((context.subject(row.gpu), (*_pod(row.workload), row.method)), row.joules)
            for row in context.view.pod_energy
        ),
        (*POD, "method"),
        owned=True,
    ),
    _node(
        "pod_labels",
        "A pod that may have GPUs, with what `metrics.pod_labels` and `metrics.pod_annotations` name.",
        lambda context: distinct(
            (label_text(**pod.labels), (pod.namespace, pod.name))
            for pod in (context.view.consents or NOTHING).pods
            if pod.labels is not None
        ),
        ("namespace", "pod"),
    ),
    _node(
        "pod_labels_omitted",
        "Pods without a series in `gpuwatch_pod_labels`, as there are too many.",
        node(lambda c: [((), sum(pod.labels is None for pod in s.pods))] if (s := c.view.consents) and s.pods else []),
    ),
    _node(
        "node_labels",
        "The Node, with the labels that `metrics.node_labels` names.",
        lambda context: distinct(
            (label_text(**labels), ()) for labels in [(context.view.consents or NOTHING).node_labels] if labels
        ),
    ),
)
"""Pods, and in `workload_info` also work outside of them."""

VGPUS: tuple[Row, ...] = (
    Row(
        "vgpu_info",
        "An active vGPU and its virtual machine.",
        lambda context: distinct(
            (subject, (vgpu.uuid, vgpu.type, vgpu.vm, vgpu.vm_name))
            for (subject, _), gpu in context.gpus
            for vgpu in gpu.vgpus
        ),
        (*VGPU, "vm_name"),
    ),
    Row("vgpu_memory_used_bytes", "Device memory of the vGPU.", _vgpus(lambda vgpu: vgpu.used_memory), VGPU),
    Row(
        "vgpu_utilization_ratio",
        "Share of the GPU the vGPU keeps busy, 0 to 1.",
        _vgpus(lambda vgpu: vgpu.utilization),
        VGPU,
    ),
    Row("vgpu_licensed", "Whether the vGPU has its licence.", _vgpus(lambda vgpu: vgpu.licensed), VGPU),
)
"""vGPUs of a host."""

PROCESSES: tuple[Row, ...] = (
    _instance("process_gpu_memory_bytes", "Device memory of the process.", _processes("used_memory"), PROCESS),
    _instance(
        "process_gpu_utilization_ratio",
        "Share of the GPU the process keeps busy, 0 to 1.",
        _processes("sm_utilization"),
        PROCESS,
    ),
    _instance("process_info", "Whose process it is.", _process_info, (*PROCESS, "user", "slurm_job", *POD)),
)
"""One series per process."""
