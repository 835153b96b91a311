"""What is asked of a Prometheus, as tables: gpuwatch's own metrics, dcgm-exporter's, and Kubernetes' beside them.

In an expression `[w]` is the window and `{@}` the place of matchers. Every one ends in an aggregation over the labels
that are meant, so that pairs of Prometheus servers, several jobs and restarts of an exporter do not count twice. Joins
are left to us: on the server one duplicate would fail the query.
"""

from typing import NamedTuple

MIB = 1 << 20
GPU_LABELS = ("node", "instance", "Hostname", "hostname", "kubernetes_node", "nodename")
"""Where a target's machine may be named, in this order; `instance` last of all."""

POD_LABELS = tuple(f"{way}{name}" for way in ("", "exported_") for name in ("namespace", "pod", "container"))
"""`exported_*`: the workload's, where the scrape job keeps the names for the exporter's own pod (honor_labels off)."""


class Dialect(NamedTuple):
    """One exporter's way to say it. `probe`: a metric that is there when the exporter is; `labels`: its words."""

    name: str
    probe: str
    uuid: str
    gi: str
    profile: str
    model: str
    queries: dict[str, str]

    @property
    def device(self) -> str:
        """The labels of a GPU or of an instance of it."""
        return f"{self.uuid}, {self.gi}"

    def expression(self, name: str, window: float, matchers: str = "") -> str:
        """What to send."""
        return filled(self.queries[name], window, matchers)


def filled(template: str, window: float, matchers: str = "") -> str:
    """A template with its window (seconds) and matchers."""
    inner = f",{matchers}" if matchers else ""
    return template.replace("[w]", f"[{window:.0f}s]").replace(",@}", f"{inner}}}").replace("{@}", f"{{{matchers}}}")


def _rounded(expression: str) -> str:
    """Four digits are more than any of these is good for, and half the bytes."""
    return f"round({expression}, 0.0001)"


def _each(function: str, *metrics: str) -> str:
    """The first of the metrics that a GPU has; `function` with `X` for the metric."""
    return " or ".join(function.replace("X", f"{metric}{{@}}[w]") for metric in metrics)


def _most(function: str, metrics: tuple[str, ...]) -> str:
    """All of them side by side, kept apart by a label: who aggregates takes the highest."""
    parts = (f'label_replace({_each(function, metric)}, "of", "{metric}", "", "")' for metric in metrics)
    return " or ".join(parts)


def _ratios(by: str, name: str, *metrics: str, scale: str = "") -> dict[str, str]:
    """Mean and high end."""
    return {
        name: _rounded(f"max by ({by}) ({_each('avg_over_time(X)', *metrics)}){scale}"),
        f"{name}_high": _rounded(f"max by ({by}) ({_each('quantile_over_time(0.95, X)', *metrics)}){scale}"),
    }


def _native() -> dict[str, str]:
    device, gpu, pod = "uuid, gi", "uuid", ", ".join(("uuid", "gi", *POD_LABELS))
    busy = (
        "gpuwatch_gpu_graphics_active_ratio",
        "gpuwatch_gpu_utilization_mean_ratio",
        "gpuwatch_gpu_utilization_ratio",
    )
    pipes = tuple(f"gpuwatch_gpu_{pipe}_active_ratio" for pipe in ("tensor", "fp64", "fp32", "fp16"))
    sent, received = (
        f"max by (uuid) (rate(gpuwatch_gpu_pcie_{way}_bytes_total{{@}}[w]))" for way in ("transmit", "receive")
    )
    power = 'gpuwatch_gpu_power_watts{window="%s",@}[w]'
    return {
        "info": f"max by (uuid, gpu, model, {', '.join(GPU_LABELS)}) (count_over_time(gpuwatch_gpu_info{{@}}[w]))",
        "holders": f"max by ({pod}, profile, resource) (count_over_time(gpuwatch_gpu_workload_info{{@}}[w]))",
        **_ratios(device, "busy", *busy),
        "busy_low": _rounded(f"max by ({device}) ({_each('quantile_over_time(0.05, X)', *busy)})"),
        **_ratios(device, "sm", "gpuwatch_gpu_sm_active_ratio"),
        **_ratios(device, "dram", "gpuwatch_gpu_dram_active_ratio"),
        "pipe": _rounded(f"max by ({device}) ({_most('avg_over_time(X)', pipes)})"),
        "memory": f"max by ({device}) (max_over_time(gpuwatch_gpu_memory_used_bytes{{@}}[w]))",
        "memory_low": f"min by ({device}) (min_over_time(gpuwatch_gpu_memory_used_bytes{{@}}[w]))",
        "memory_total": f"max by ({device}) (max_over_time(gpuwatch_gpu_memory_total_bytes{{@}}[w]))",
        "pcie": f"round({sent} + {received})",
        "watts": f"round(max by ({gpu}) (avg_over_time({power % 'mean'}) or avg_over_time({power % 'average'})), 0.1)",
        "power_limit": f'max by ({gpu}) (max_over_time(gpuwatch_gpu_power_limit_watts{{limit="enforced",@}}[w]))',
        "processes": f"max by ({gpu}) (max_over_time(gpuwatch_gpu_processes{{@}}[w]))",
        "pod_memory": f"max by ({pod}) (max_over_time(gpuwatch_pod_gpu_memory_bytes{{@}}[w]))",
        # a pod without processes has no series, so that its mean is taken over the samples of its hold
        "pod_busy": _rounded(f"max by ({pod}) (sum_over_time(gpuwatch_pod_gpu_utilization_ratio{{@}}[w]))"),
        "mig_enabled": f"max by ({gpu}) (last_over_time(gpuwatch_gpu_mig_mode_enabled{{@}}[w]))",
        "instances": "max by (uuid, gi, profile) (last_over_time(gpuwatch_mig_info{@}[w]))",
    }


NATIVE = Dialect("gpuwatch", "gpuwatch_gpu_info", "uuid", "gi", "profile", "model", _native())


def _dcgm() -> dict[str, str]:
    """dcgm-exporter up to 4.8, and the names that DCGM 4.7 has given some fields since."""
    device, gpu = "UUID, GPU_I_ID", "UUID"
    pod = ", ".join(("UUID", "GPU_I_ID", "GPU_I_PROFILE", "job", *POD_LABELS))
    busy = ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO", "DCGM_FI_DEV_GPU_UTIL_RATIO")
    percent = "DCGM_FI_DEV_GPU_UTIL"

    def busy_by(function: str) -> str:
        return _rounded(f"max by ({device}) ({_each(function, *busy)} or {_each(function, percent)} / 100)")

    def size(field: str, function: str) -> str:
        old, new = f"DCGM_FI_DEV_FB_{field}", f"DCGM_FI_DEV_FB_{field}_BYTES"
        return f"{_each(function, old)} * {MIB} or {_each(function, new)}"

    def total(way: str) -> str:
        parts = (size(field, "max_over_time(X)") for field in ("USED", "FREE"))
        return " + ".join(f"{way} ({part})" for part in parts)

    pipes = tuple(
        f"DCGM_FI_PROF_{field}"
        for pipe in ("TENSOR", "FP64", "FP32", "FP16")
        for field in (f"PIPE_{pipe}_ACTIVE", f"{pipe}_UTIL_RATIO")
    )
    used = '{__name__=~"DCGM_FI_DEV_FB_USED|DCGM_FI_DEV_FB_USED_BYTES",@}[w]'
    power = ("DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_BOARD_POWER_WATTS")
    sent, received = (f"max by ({gpu}) (avg_over_time(DCGM_FI_PROF_PCIE_{way}_BYTES{{@}}[w]))" for way in ("TX", "RX"))
    return {
        "info": f"max by (UUID, gpu, modelName, {', '.join(GPU_LABELS)}) (count_over_time({used}))",
        "holders": f"max by ({pod}) (count_over_time({used}))",
        "busy": busy_by("avg_over_time(X)"),
        "busy_high": busy_by("quantile_over_time(0.95, X)"),
        "busy_low": busy_by("quantile_over_time(0.05, X)"),
        **_ratios(device, "sm", "DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_SM_UTIL_RATIO"),
        **_ratios(device, "dram", "DCGM_FI_PROF_DRAM_ACTIVE", "DCGM_FI_PROF_DRAM_UTIL_RATIO"),
        "pipe": _rounded(f"max by ({device}) ({_most('avg_over_time(X)', pipes)})"),
        "memory": f"max by ({device}) ({size('USED', 'max_over_time(X)')})",
        "memory_low": f"min by ({device}) ({size('USED', 'min_over_time(X)')})",
        # reserved memory is left out: it is nobody's to use
        "memory_total": total(f"max by ({device})"),
        "pcie": f"round({sent} + {received})",
        "watts": f"round(max by ({gpu}) ({_each('avg_over_time(X)', *power)}), 0.1)",
        "power_limit": f"max by ({gpu}) ({_each('max_over_time(X)', 'DCGM_FI_DEV_POWER_MGMT_LIMIT')})",
    }


DCGM = Dialect("dcgm", "DCGM_FI_DEV_FB_USED", "UUID", "GPU_I_ID", "GPU_I_PROFILE", "modelName", _dcgm())
DIALECTS = {dialect.name: dialect for dialect in (NATIVE, DCGM)}
PROBES = {"gpuwatch": ("gpuwatch_gpu_info",), "dcgm": ("DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_USED_BYTES")}

PER_GPU = frozenset({"pcie", "watts", "power_limit", "processes"})
"""Readings of the physical GPU, whatever it is cut into."""

READINGS = (
    "busy",
    "busy_high",
    "busy_low",
    "sm",
    "sm_high",
    "dram",
    "dram_high",
    "pipe",
    "memory",
    "memory_low",
    "memory_total",
    "pcie",
    "watts",
    "power_limit",
    "processes",
)

KUBERNETES = {
    "pod_owner": ("kube_pod_owner", ("pod", "owner_kind", "owner_name")),
    "replicaset_owner": ("kube_replicaset_owner", ("replicaset", "owner_kind", "owner_name")),
    "job_owner": ("kube_job_owner", ("job_name", "owner_kind", "owner_name")),
    "image": ("kube_pod_container_info", ("pod", "container", "image")),
    "class": ("kube_pod_annotations", ("pod", "annotation_gpuwatch_io_autotune_class")),
    "start": ("kube_pod_start_time", ("pod",)),
}
"""kube-state-metrics: metric, and the labels that are wanted beside the namespace."""

QUOTA = (
    "max by (namespace, exported_namespace, resourcequota, resource, type) "
    '(last_over_time(kube_resourcequota{resource=~"requests[.]nvidia[.]com/.+"}[w]))'
)


def kubernetes(name: str, window: float, way: str, namespaces: str) -> str:
    """`way`: `exported_` where kube-state-metrics is scraped without honor_labels; `namespaces`: as a regular
    expression.
    """
    metric, labels = KUBERNETES[name]
    by = ", ".join((f"{way}namespace", *(f"{way}{each}" if each in ("pod", "container") else each for each in labels)))
    return f'max by ({by}) (last_over_time({metric}{{{way}namespace=~"{namespaces}"}}[{window:.0f}s]))'


def throttled(window: float, namespaces: str) -> str:
    """Share of CPU periods in which a container was held back (cAdvisor, by the kubelet)."""
    inner = f'{{namespace=~"{namespaces}",container!=""}}[{window:.0f}s]'
    part, whole = (f"rate(container_cpu_cfs_{of}_total{inner})" for of in ("throttled_periods", "periods"))
    return _rounded(f"max by (namespace, pod, container) ({part} / ({whole} > 0))")
