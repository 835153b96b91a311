"""Six hours of a small fleet, as several kinds of scrape jobs would have left them, for the tests of its history."""

from tests.e2e.backfilled import lines

END = 1_790_000_000 // 21600 * 21600
BEGIN = END - 6 * 3600
SCRAPE, STEP = 60, 300
TIMES = range(BEGIN + 7, END, SCRAPE)
GIB = 1 << 30
H100 = "NVIDIA H100 80GB HBM3"
HANDOVER = BEGIN + 2 * 3600 + 130
RESET = BEGIN + 3 * 3600
RENAMED = BEGIN + 3 * 3600


def uuid(letter: str) -> str:
    return f"GPU-{letter}0000000-1111-2222-3333-444444444444"


def gpu(letter: str, node: str, **more: str) -> dict[str, str]:
    return {"gpu": "0", "uuid": uuid(letter), "node": node, "instance": f"{node}:9400", "job": "gpuwatch", **more}


def held(namespace: str, pod: str, container: str = "main") -> dict[str, str]:
    return {"namespace": namespace, "pod": pod, "container": container, "resource": "nvidia.com/gpu"}


def past() -> str:
    return "".join((_train(), _shared(), _mig(), _renamed(), _free(), _bare(), _handover(), _kubernetes(), _dcgm()))


def _train() -> str:
    """A pair of Prometheus servers and a second job have it thrice; its model gets its full name midway."""
    text = ""
    for more in ({"prometheus_replica": "a"}, {"prometheus_replica": "b"}, {"job": "again"}):
        at = gpu("a", "node-1") | more
        text += lines("gpuwatch_gpu_info", at | {"model": "NVIDIA H100"}, TIMES, lambda t: 1 if t < RENAMED else None)
        text += lines("gpuwatch_gpu_info", at | {"model": H100}, TIMES, lambda t: 1 if t >= RENAMED else None)
        text += lines("gpuwatch_gpu_workload_info", at | held("nlp", "train-abcde"), TIMES)
        text += _device(at, busy=0.9, memory=40 * GIB)
        for way in ("transmit", "receive"):
            text += lines(
                f"gpuwatch_gpu_pcie_{way}_bytes_total", at, TIMES, lambda t: 1e6 * (t - (RESET if t >= RESET else 0))
            )
    return text


def _device(at: dict[str, str], busy: float, memory: int, processes: int = 2) -> str:
    text = lines("gpuwatch_gpu_utilization_mean_ratio", at, TIMES, busy)
    text += lines("gpuwatch_gpu_sm_active_ratio", at, TIMES, busy / 2)
    text += lines("gpuwatch_gpu_dram_active_ratio", at, TIMES, busy / 3)
    text += lines("gpuwatch_gpu_tensor_active_ratio", at, TIMES, busy / 4)
    text += lines("gpuwatch_gpu_fp32_active_ratio", at, TIMES, busy / 8)
    text += lines("gpuwatch_gpu_memory_used_bytes", at, TIMES, memory)
    text += lines("gpuwatch_gpu_memory_total_bytes", at, TIMES, 80 * GIB)
    text += lines("gpuwatch_gpu_power_watts", at | {"window": "mean"}, TIMES, 100 + 500 * busy)
    text += lines("gpuwatch_gpu_power_limit_watts", at | {"limit": "enforced"}, TIMES, 700)
    return text + lines("gpuwatch_gpu_processes", at, TIMES, processes)


def _shared() -> str:
    at = gpu("b", "node-1")
    text = lines("gpuwatch_gpu_info", at | {"model": H100}, TIMES) + _device(at, busy=0.5, memory=12 * GIB)
    for pod, busy, memory in (("web-1", 0.3, 4 * GIB), ("web-2", 0.2, 6 * GIB)):
        text += lines("gpuwatch_gpu_workload_info", at | held("shop", pod), TIMES)
        mine = at | {"namespace": "shop", "pod": pod, "container": "main"}
        text += lines("gpuwatch_pod_gpu_utilization_ratio", mine, TIMES, busy)
        text += lines("gpuwatch_pod_gpu_memory_bytes", mine, TIMES, memory)
    return text


def _mig() -> str:
    at = gpu("c", "node-2")
    cut = at | {"gi": "1", "profile": "1g.10gb"}
    text = lines("gpuwatch_gpu_info", at | {"model": H100}, TIMES)
    text += lines("gpuwatch_gpu_mig_mode_enabled", at, TIMES)
    text += lines("gpuwatch_mig_info", cut | {"ci": "0", "mig_uuid": "MIG-c"}, TIMES)
    text += lines("gpuwatch_gpu_workload_info", cut | held("dev", "jupyter-ann"), TIMES)
    text += lines("gpuwatch_gpu_graphics_active_ratio", cut, TIMES, 0.4)
    text += lines("gpuwatch_gpu_sm_active_ratio", cut, TIMES, 0.5)
    text += lines("gpuwatch_gpu_memory_used_bytes", cut, TIMES, 5 * GIB)
    return text + lines("gpuwatch_gpu_power_watts", at | {"window": "mean"}, TIMES, 200)


def _renamed() -> str:
    """A job without honor_labels: the exporter's own pod has the plain names."""
    own = {"namespace": "monitoring", "pod": "gpuwatch-xyz", "container": "agent"}
    theirs = {f"exported_{name}": text for name, text in held("ml", "infer-0").items() if name != "resource"}
    at = gpu("d", "node-2") | own
    text = lines("gpuwatch_gpu_info", at | {"model": H100}, TIMES) + _device(at, busy=0.0, memory=GIB)
    return text + lines("gpuwatch_gpu_workload_info", at | theirs | {"resource": "nvidia.com/gpu"}, TIMES)


def _free() -> str:
    at = gpu("e", "node-3")
    return lines("gpuwatch_gpu_info", at | {"model": H100}, TIMES) + _device(at, busy=0.0, memory=0, processes=0)


def _bare() -> str:
    """Somebody works there, and no pod."""
    at = gpu("9", "node-4")
    return lines("gpuwatch_gpu_info", at | {"model": H100}, TIMES) + _device(at, busy=0.9, memory=9 * GIB)


def _handover() -> str:
    at = gpu("f", "node-3")
    text = lines("gpuwatch_gpu_info", at | {"model": H100}, TIMES) + _device(at, busy=0.7, memory=20 * GIB)
    first, second = at | held("nlp", "one-0"), at | held("nlp", "two-0")
    text += lines("gpuwatch_gpu_workload_info", first, TIMES, lambda t: 1 if t < HANDOVER else None)
    return text + lines("gpuwatch_gpu_workload_info", second, TIMES, lambda t: 1 if t >= HANDOVER else None)


def _kubernetes() -> str:
    pod = {"namespace": "nlp", "pod": "train-abcde"}
    job = {"namespace": "nlp", "job_name": "train-29000000", "owner_kind": "CronJob", "owner_name": "train"}
    image = {"container": "main", "image": "registry/train:7@sha256:" + "0" * 64}
    said = {"annotation_gpuwatch_io_autotune_class": "batch", "annotation_gpuwatch_io_autotune": "off"}
    owner = {"owner_kind": "Job", "owner_name": "train-29000000", "owner_is_controller": "true"}
    text = lines("kube_pod_owner", pod | owner, TIMES) + lines("kube_job_owner", job, TIMES)
    text += lines("kube_pod_container_info", pod | image, TIMES) + lines("kube_pod_annotations", pod | said, TIMES)
    text += lines("kube_pod_start_time", pod, TIMES, BEGIN - 1000)
    cpu = pod | {"container": "main"}
    for of, each in (("throttled_periods", 3), ("periods", 10)):
        text += lines(f"container_cpu_cfs_{of}_total", cpu, TIMES, lambda t, each=each: each * (t - BEGIN))
    for namespace, hard, used in (("nlp", 8, 2), ("ghost", 4, 0), ("night", 6, lambda t: 5 if t < RENAMED else 0)):
        quota = {"namespace": namespace, "resourcequota": "gpu", "resource": "requests.nvidia.com/gpu"}
        text += lines("kube_resourcequota", quota | {"type": "hard"}, TIMES, hard)
        text += lines("kube_resourcequota", quota | {"type": "used"}, TIMES, used)
    scoped = {"namespace": "nlp", "resourcequota": "scoped", "resource": "requests.nvidia.com/gpu"}
    text += lines("kube_resourcequota", scoped | {"type": "hard"}, TIMES, 12)
    text += lines("kube_resourcequota", scoped | {"type": "used"}, TIMES, 1)
    return text


def _dcgm() -> str:
    """Two GPUs, one of them free, by a dcgm-exporter without honor_labels."""
    own = {"job": "dcgm", "instance": "10.0.0.1:9400", "namespace": "gpu-operator", "pod": "dcgm-abc", "container": "x"}
    text = ""
    for letter, busy in (("a", 90), ("e", 0)):
        at = own | {"gpu": "0", "UUID": uuid(letter), "modelName": H100, "Hostname": f"node-{letter}"}
        if letter == "a":
            at |= {"exported_namespace": "nlp", "exported_pod": "train-abcde", "exported_container": "main"}
        text += lines("DCGM_FI_DEV_GPU_UTIL", at, TIMES, busy)
        text += lines("DCGM_FI_DEV_FB_USED", at, TIMES, 40 * 1024)
        text += lines("DCGM_FI_DEV_FB_FREE", at, TIMES, 39 * 1024)
        text += lines("DCGM_FI_DEV_POWER_USAGE", at, TIMES, 550)
    return text
