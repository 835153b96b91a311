"""The queries to a Prometheus, as tables: gpuwatch's own metrics, dcgm-exporter's, and Kubernetes' beside them.

In an expression `[w]` is the window and `{@}` the place of matchers. Every one ends in an aggregation over the labels
that are meant, so that pairs of Prometheus servers, several jobs and restarts of an exporter do not count twice. Joins
are made here: on the server one duplicate would fail the query.
"""

from collections.abc import Callable, Collection

MIB = 1 << 20
GPU_LABELS = ("node", "Hostname", "hostname", "kubernetes_node", "nodename", "instance")
"""Where a target's machine may be named, in this order; `instance` last of all."""

POD_LABELS = tuple(f"{way}{name}" for way in ("", "exported_") for name in ("namespace", "pod", "container"))
"""`exported_*`: the workload's, where the scrape job keeps the names for the exporter's own pod (honor_labels off)."""


class Dialect:
    """One exporter's names. `probes`: metrics, one of which is there when the exporter is; the others: labels."""

    def __init__(
        self,
        name: str,
        probes: tuple[str, ...],
        uuid: str,
        gi: str,
        profile: str,
        model: str,
        make: Callable[[Collection[str] | None], dict[str, str]],
        names: Collection[str] | None = None,
    ) -> None:
        self.name, self.probes = name, probes
        self.uuid, self.gi, self.profile, self.model = uuid, gi, profile, model
        self._make = make
        self.queries = {name: query for name, query in make(names).items() if query}

    def with_metrics(self, names: Collection[str]) -> "Dialect":
        """With queries for the metrics that are there."""
        return Dialect(self.name, self.probes, self.uuid, self.gi, self.profile, self.model, self._make, names)

    def expression(self, name: str, window: float, matchers: str = "") -> str:
        """The query to send."""
        return filled(self.queries[name], window, matchers)


def filled(template: str, window: float, matchers: str = "") -> str:
    """A template with its window (seconds) and matchers."""
    inner = f",{matchers}" if matchers else ""
    span = template.replace("[w]", f"[{window:.0f}s]").replace("[w:", f"[{window:.0f}s:")
    return span.replace(",@}", f"{inner}}}").replace("{@}", f"{{{matchers}}}")


class _Known:
    """Makes expressions of the metrics that are there: for a server, an `or` without series costs the same."""

    def __init__(self, names: Collection[str] | None) -> None:
        self._names = names

    def __call__(self, *metrics: str) -> list[str]:
        return [metric for metric in metrics if self._names is None or metric in self._names]

    def each(self, function: str, *metrics: str, scale: str = "") -> str:
        """The first of the metrics that a GPU has; `function` with `X` for the metric. Empty: none is there."""
        return " or ".join(function.replace("X", f"{metric}{{@}}[w]") + scale for metric in self(*metrics))

    def most(self, function: str, *metrics: str) -> str:
        """All of them side by side, distinguished by a label: the aggregation takes the highest."""
        known = self(*metrics)
        if len(known) == 1:
            return self.each(function, *known)
        return " or ".join(f'label_replace({self.each(function, m)}, "of", "{m}", "", "")' for m in known)

    def ratios(self, by: str, name: str, *metrics: str) -> dict[str, str]:
        """Mean and high end."""
        return {
            name: _rounded(by, self.each("avg_over_time(X)", *metrics)),
            f"{name}_high": _rounded(by, self.each("quantile_over_time(0.95, X)", *metrics)),
        }


def _rounded(by: str, expression: str) -> str:
    """Four digits are more than the accuracy of any reading, and halve the bytes of an answer."""
    return expression and f"round(max by ({by}) ({expression}), 0.0001)"


def _by(by: str, expression: str, way: str = "max") -> str:
    return expression and f"{way} by ({by}) ({expression})"


PIPES = ("tensor", "fp64", "fp32", "fp16")


def _native(names: Collection[str] | None) -> dict[str, str]:
    known = _Known(names)
    device, gpu, pod = "uuid, gi", "uuid", ", ".join(("uuid", "gi", *POD_LABELS))
    busy = tuple(f"gpuwatch_gpu_{each}_ratio" for each in ("graphics_active", "utilization_mean", "utilization"))
    used, total = "gpuwatch_gpu_memory_used_bytes", "gpuwatch_gpu_memory_total_bytes"
    pcie = [_by(gpu, known.each("rate(X)", f"gpuwatch_gpu_pcie_{way}_bytes_total")) for way in ("transmit", "receive")]
    draw = known.each("avg_over_time(X)", "gpuwatch_gpu_power_watts").replace("{@}", '{window="%s",@}')
    watts = draw and f"{draw % 'mean'} or {draw % 'average'}"
    limit = known.each("max_over_time(X)", "gpuwatch_gpu_power_limit_watts").replace("{@}", '{limit="enforced",@}')
    return {
        "info": f"max by (uuid, gpu, model, {', '.join(GPU_LABELS)}) (count_over_time(gpuwatch_gpu_info{{@}}[w]))",
        "holders": f"max by ({pod}, profile, resource) (count_over_time(gpuwatch_gpu_workload_info{{@}}[w]))",
        **known.ratios(device, "busy", *busy),
        "busy_low": _rounded(device, known.each("quantile_over_time(0.05, X)", *busy)),
        **known.ratios(device, "sm", "gpuwatch_gpu_sm_active_ratio"),
        **known.ratios(device, "dram", "gpuwatch_gpu_dram_active_ratio"),
        "pipe": _rounded(device, known.most("avg_over_time(X)", *(f"gpuwatch_gpu_{p}_active_ratio" for p in PIPES))),
        "memory": _by(device, known.each("max_over_time(X)", used)),
        "memory_low": _by(device, known.each("min_over_time(X)", used), "min"),
        "memory_total": _by(device, known.each("max_over_time(X)", total)),
        "pcie": (all(pcie) and f"round({' + '.join(pcie)})") or "",
        "watts": watts and f"round({_by(gpu, watts)}, 0.1)",
        "power_limit": _by(gpu, limit),
        "processes": _by(gpu, known.each("max_over_time(X)", "gpuwatch_gpu_processes")),
        "pod_memory": _by(pod, known.each("max_over_time(X)", "gpuwatch_pod_gpu_memory_bytes")),
        # a pod without processes has no series, so that its mean is taken over the samples of its hold
        "pod_busy": _rounded(pod, known.each("sum_over_time(X)", "gpuwatch_pod_gpu_utilization_ratio")),
        "mig_enabled": _by(gpu, known.each("last_over_time(X)", "gpuwatch_gpu_mig_mode_enabled")),
        "instances": _by("uuid, gi, profile", known.each("last_over_time(X)", "gpuwatch_mig_info")),
    }


def _dcgm(names: Collection[str] | None) -> dict[str, str]:
    """dcgm-exporter up to 4.8, and the names that DCGM 4.7 has given some fields since."""
    known = _Known(names)
    device, gpu = "UUID, GPU_I_ID", "UUID"
    pod = ", ".join(("UUID", "GPU_I_ID", "GPU_I_PROFILE", "job", *POD_LABELS))

    def busy(function: str) -> str:
        ratios = ("PROF_GR_ENGINE_ACTIVE", "PROF_GR_ENGINE_UTIL_RATIO", "DEV_GPU_UTIL_RATIO")
        ways = (
            known.each(function, *(f"DCGM_FI_{each}" for each in ratios)),
            known.each(function, "DCGM_FI_DEV_GPU_UTIL", scale=" / 100"),
        )
        return _rounded(device, " or ".join(way for way in ways if way))

    def size(field: str, function: str) -> str:
        old, new = f"DCGM_FI_DEV_FB_{field}", f"DCGM_FI_DEV_FB_{field}_BYTES"
        ways = (known.each(function, old, scale=f" * {MIB}"), known.each(function, new))
        return " or ".join(way for way in ways if way)

    pipes = tuple(
        f"DCGM_FI_PROF_{field}"
        for pipe in ("TENSOR", "FP64", "FP32", "FP16")
        for field in (f"PIPE_{pipe}_ACTIVE", f"{pipe}_UTIL_RATIO")
    )
    used = known.each("count_over_time(X)", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_USED_BYTES")
    most, least = _by(device, size("USED", "max_over_time(X)")), _by(device, size("FREE", "min_over_time(X)"), "min")
    pcie = [_by(gpu, known.each("avg_over_time(X)", f"DCGM_FI_PROF_PCIE_{way}_BYTES")) for way in ("TX", "RX")]
    watts = known.each("avg_over_time(X)", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_BOARD_POWER_WATTS")
    return {
        "info": _by(f"UUID, gpu, modelName, {', '.join(GPU_LABELS)}", used),
        "holders": _by(pod, used),
        "busy": busy("avg_over_time(X)"),
        "busy_high": busy("quantile_over_time(0.95, X)"),
        "busy_low": busy("quantile_over_time(0.05, X)"),
        **known.ratios(device, "sm", "DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_SM_UTIL_RATIO"),
        **known.ratios(device, "dram", "DCGM_FI_PROF_DRAM_ACTIVE", "DCGM_FI_PROF_DRAM_UTIL_RATIO"),
        "pipe": _rounded(device, known.most("avg_over_time(X)", *pipes)),
        "memory": most,
        "memory_low": _by(device, size("USED", "min_over_time(X)"), "min"),
        # where the most was used the least was free; no program can use reserved memory
        "memory_total": (most and least and f"{most} + {least}") or "",
        "pcie": (all(pcie) and f"round({' + '.join(pcie)})") or "",
        "watts": watts and f"round({_by(gpu, watts)}, 0.1)",
        "power_limit": _by(gpu, known.each("max_over_time(X)", "DCGM_FI_DEV_POWER_MGMT_LIMIT")),
    }


NATIVE = Dialect("gpuwatch", ("gpuwatch_gpu_info",), "uuid", "gi", "profile", "model", _native)
DCGM = Dialect(
    "dcgm",
    ("DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_USED_BYTES"),
    "UUID",
    "GPU_I_ID",
    "GPU_I_PROFILE",
    "modelName",
    _dcgm,
)
DIALECTS = {dialect.name: dialect for dialect in (NATIVE, DCGM)}
NAMES = '{__name__=~"gpuwatch_(gpu|pod|mig)_.+|DCGM_FI_(DEV|PROF)_.+"}'
"""Selects every metric of a GPU that is used here."""

KUBERNETES = {
    "pod_owner": ("kube_pod_owner", ("pod", "owner_kind", "owner_name")),
    "replicaset_owner": ("kube_replicaset_owner", ("replicaset", "owner_kind", "owner_name")),
    "job_owner": ("kube_job_owner", ("job_name", "owner_kind", "owner_name")),
    "image": ("kube_pod_container_info", ("pod", "container", "image")),
    "annotations": (
        "kube_pod_annotations",
        ("pod", "annotation_gpuwatch_io_autotune", "annotation_gpuwatch_io_autotune_class"),
    ),
    "start": ("kube_pod_start_time", ("pod",)),
}
"""kube-state-metrics: metric, and the labels that are wanted beside the namespace."""

QUOTA = (
    "max by (namespace, exported_namespace, resourcequota, resource, type) "
    '(last_over_time(kube_resourcequota{resource=~"requests[.]nvidia[.]com/.+"}[w]))'
)
QUOTA_USED = (
    "max by (namespace, exported_namespace, resource) "
    '(max_over_time(max_over_time(kube_resourcequota{type="used",resource=~"requests[.]nvidia[.]com/.+"}[5m])[w:300s]))'
)
"""The most that was used at a time."""


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
    return _rounded("namespace, pod, container", f"{part} / ({whole} > 0)")
