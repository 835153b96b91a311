"""Others who read the same counters: DCGM and its exporter."""

from gpuwatch.diagnose.check import DiagnosticCheck
from gpuwatch.diagnose.checks.other_readers import doubles, engine, page, profilers
from gpuwatch.diagnose.model import CheckStage

EXPORTER_POD = "kubectl get pods -A -o wide --field-selector spec.nodeName={node} | grep dcgm"

EXPORTERS: tuple[DiagnosticCheck, ...] = (
    DiagnosticCheck(
        "C01",
        CheckStage.EXPORTERS,
        "DCGM's host engine runs where somebody wants it",
        "the process nv-hostengine, TCP port 5555; nvidia-dcgm.service enabled, or a pod nvidia-dcgm",
        "nvidia-dcgm.service is enabled, but nv-hostengine does not run",
        "Whoever asks it (dcgmi, dcgm-exporter with a remote host engine) gets nothing. Read its log, then start it. "
        "It is optional: if nobody asks, disable the service.",
        engine,
        needs=("N02",),
        reads=("services",),
        commands=(
            "systemctl status nvidia-dcgm",
            "journalctl -b -u nvidia-dcgm --no-pager | tail -n 50",
            "systemctl restart nvidia-dcgm",
        ),
    ),
    DiagnosticCheck(
        "C02",
        CheckStage.EXPORTERS,
        "no profiler holds the counters that exporters read",
        "processes ncu, nsys, nvprof beside nv-hostengine, dcgm-exporter or an exporter with DCGM_FI_PROF_* families",
        "ncu (pid 4711) profiles while dcgm-exporter collects profiling counters",
        "A profiler and DCGM's profiling counters exclude each other: one of them fails or shows gaps. While somebody "
        "profiles, pause the collection and resume it afterwards; or take DCGM_FI_PROF_* out of the exporter's list of "
        "counters on this node.",
        profilers,
        reads=("services",),
        commands=("dcgmi profile --pause", "dcgmi profile --resume"),
    ),
    DiagnosticCheck(
        "C03",
        CheckStage.EXPORTERS,
        "dcgm-exporter serves a whole page",
        "one GET of /metrics at 127.0.0.1 within a few seconds: DCGM_FI_DEV_GPU_UTIL or profiling counters, pod labels "
        "where pods hold GPUs",
        "dcgm-exporter at port 9400: no pod labels, though pods hold GPUs",
        "Read its log. An empty page: it has not reached the driver or the host engine; restart its pod. No pod "
        "labels: set DCGM_EXPORTER_KUBERNETES=true and mount /var/lib/kubelet/pod-resources. Slow: a longer collect "
        "interval, fewer counters.",
        page,
        needs=("N02",),
        reads=("exporters",),
        commands=(EXPORTER_POD, "curl -s -m 10 localhost:9400/metrics | grep -c ^DCGM_FI"),
    ),
    DiagnosticCheck(
        "C04",
        CheckStage.EXPORTERS,
        "only one exporter reads profiling counters",
        "exporters with DCGM_FI_PROF_* families; processes dcgm-exporter and nv-hostengine",
        "2 dcgm-exporters run (pids 2101, 2177)",
        "Two readers of profiling counters disturb each other, cost time on the GPU, and count everything twice in "
        "Prometheus. Keep one: take away the second DaemonSet, or its DCGM_FI_PROF_* counters.",
        doubles,
        reads=("services",),
        commands=(EXPORTER_POD, "systemctl list-units --no-pager '*dcgm*'"),
    ),
)
