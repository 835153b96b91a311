"""Other readers of the same counters: DCGM's host engine, its exporter, profilers."""

from gpuwatch.diagnose.check import CheckContext, CheckVerdict, DiagnosticCheck, passed, skipped, warned
from gpuwatch.diagnose.checks.nvswitch import PROCESSES_NOT_READ
from gpuwatch.diagnose.host.exporters import Exporter
from gpuwatch.diagnose.host.services import ServiceProcess, Services
from gpuwatch.diagnose.model import CheckStage
from gpuwatch.model.text import shell_word

ENGINE, EXPORTER = "nv-hostengine", "dcgm-exporter"
ENGINE_PORT, EXPORTER_PORT = 5555, 9400
UNITS = ("nvidia-dcgm.service", "dcgm.service")
PROFILERS = ("ncu", "nsys", "nsys-launcher", "nvprof")
GUARDED = (400, 401, 403)
"""Status of an exporter that requires TLS or credentials: plain HTTP to a TLS port gives 400."""


def check_engine(context: CheckContext) -> CheckVerdict:
    services, cluster = context.facts.services, context.facts.cluster
    listens = services is not None and ENGINE_PORT in (services.ports or ())
    runs = services.runs(ENGINE) if services else None
    if services is None or (runs is None and not listens):
        return skipped(PROCESSES_NOT_READ)
    if runs or listens:
        return passed(f"port {ENGINE_PORT}" if listens else "it runs; its port is not of the host's network")
    unit = next((unit for unit in services.units or () if unit in UNITS), None)
    if unit:
        return warned(f"{unit} is enabled, but nv-hostengine does not run")
    pod = next((pod for pod in (cluster and cluster.pods) or () if pod.app == "nvidia-dcgm"), None)
    if pod:
        place = f"-n {shell_word(pod.namespace)} {shell_word(pod.name)}"
        commands = (f"kubectl describe pod {place}", f"kubectl logs {place} --tail=50")
        return warned(f"there is a pod {pod.path}, but nv-hostengine does not run", commands=commands)
    return skipped("DCGM's host engine is not used here")


def check_profilers(context: CheckContext) -> CheckVerdict:
    services = context.facts.services
    if services is None or services.processes is None:
        return skipped(PROCESSES_NOT_READ)
    running = _named(services, *PROFILERS)
    if not running:
        return passed("no profiler runs")
    profilers = ", ".join(f"{process.name} (pid {process.pid})" for process in running)
    readers = sorted({process.name for process in _named(services, ENGINE, EXPORTER)})
    readers += [f"the exporter at port {e.port}" for e in _profiling(context) if e.kind != "gpuwatch" and not readers]
    if not readers:
        return passed(f"{profilers}; no other program reads profiling counters")
    return warned(f"{profilers} profiles while {' and '.join(readers)} may collect profiling counters")


def check_page(context: CheckContext) -> CheckVerdict:
    runs = bool(context.facts.services and context.facts.services.named(EXPORTER))
    found = [  # an exporter by what it serves; one that serves nothing by its port, if such a process is there
        each
        for each in context.facts.exporters or ()
        if each.kind == EXPORTER
        or (runs and each.kind == "other" and each.families == 0 and each.port == EXPORTER_PORT)
    ]
    if not found:
        where = "it runs, but no port of the host's network answers" if runs else "no dcgm-exporter answers here"
        return skipped(where)
    wrong = {each.port: why for each in found if (why := _wrong_page(context, each))}
    evidence = {f"port {each.port}": f"{each.families} families" for each in found if each.error is None}
    if not wrong:
        guarded = next((each for each in found if each.status in GUARDED), None)
        return skipped(f"port {guarded.port} wants TLS or credentials") if guarded else passed(_ports(found), evidence)
    port, why = next(iter(wrong.items()))
    return warned(f"dcgm-exporter at port {port}: {why}", evidence)


def check_doubles(context: CheckContext) -> CheckVerdict:
    """gpuwatch counts as an exporter where it serves DCGM's profiling names, too."""
    services = context.facts.services
    for name in (EXPORTER, ENGINE):
        running = services.named(name) if services else ()
        if len(running) > 1:
            return warned(f"{len(running)} {name}s run (pids {', '.join(str(p.pid) for p in running)})")
    serving = _profiling(context)
    if len(serving) > 1:
        return warned(f"{len(serving)} exporters serve DCGM_FI_PROF_*: {_ports(serving)}")
    if services is None or (services.processes is None and not context.facts.exporters):
        return skipped(PROCESSES_NOT_READ)
    return passed(_ports(serving) if serving else "no exporter serves DCGM_FI_PROF_*")


def _profiling(context: CheckContext) -> list[Exporter]:
    return [each for each in context.facts.exporters or () if each.profiling]


def _wrong_page(context: CheckContext, exporter: Exporter) -> str:
    if exporter.error:
        return "" if exporter.status in GUARDED else exporter.error
    if exporter.families == 0:
        return "the page is empty"
    has_work = exporter.has_gpu_utilization or exporter.profiling
    if not has_work and not any(gpu.mig_enabled for gpu in context.gpus):
        return "neither DCGM_FI_DEV_GPU_UTIL nor profiling counters are on the page"
    rows = context.facts.view.attribution.devices if context.facts.view else ()
    if not exporter.pods and any(row.allocated and row.holders for row in rows):
        return "no pod labels, though pods hold GPUs"
    return ""


def _named(services: Services, *names: str) -> list[ServiceProcess]:
    return [process for name in names for process in services.named(name)]


def _ports(found: list[Exporter]) -> str:
    return ", ".join(f"{each.kind} at port {each.port}" for each in found)


EXPORTER_POD = "kubectl get pods -A -o wide --field-selector spec.nodeName={node} | grep dcgm"

EXPORTERS: tuple[DiagnosticCheck, ...] = (
    DiagnosticCheck(
        "C01", CheckStage.EXPORTERS, "DCGM's host engine runs where it is enabled",
        how="the process nv-hostengine, TCP port 5555; nvidia-dcgm.service enabled, or a pod nvidia-dcgm",
        remedy="Its clients (dcgmi, dcgm-exporter with a remote host engine) get nothing. Read its log, then start "
        "it, or disable the service if it has no clients.",
        commands=("systemctl status nvidia-dcgm",
                  "journalctl -b -u nvidia-dcgm --no-pager | tail -n 50",
                  "systemctl restart nvidia-dcgm"),
        judge=check_engine, needs=("N02",), reads=("services",),
    ),
    DiagnosticCheck(
        "C02", CheckStage.EXPORTERS, "no profiler holds the counters that exporters read",
        how="processes ncu, nsys, nvprof beside nv-hostengine, dcgm-exporter or an exporter with DCGM_FI_PROF_* "
        "families",
        remedy="A profiler and DCGM's profiling counters exclude each other: one fails or has gaps. Pause the "
        "collection while profiling, or remove DCGM_FI_PROF_* from the exporter's counters on this node.",
        commands=("dcgmi profile --pause", "dcgmi profile --resume"),
        judge=check_profilers, reads=("services",),
    ),
    DiagnosticCheck(
        "C03", CheckStage.EXPORTERS, "dcgm-exporter serves a whole page",
        how="one GET of /metrics at 127.0.0.1 within seconds: DCGM_FI_DEV_GPU_UTIL or profiling counters, pod labels "
        "where pods hold GPUs",
        remedy="Read its log. An empty page: it has not reached the driver or host engine; restart its pod. No pod "
        "labels: set DCGM_EXPORTER_KUBERNETES=true and mount /var/lib/kubelet/pod-resources. Slow: a longer "
        "collect interval, fewer counters.",
        commands=(EXPORTER_POD, "curl -s -m 10 localhost:9400/metrics | grep -c ^DCGM_FI"),
        judge=check_page, needs=("N02",), reads=("exporters",),
    ),
    DiagnosticCheck(
        "C04", CheckStage.EXPORTERS, "only one exporter reads profiling counters",
        how="exporters with DCGM_FI_PROF_* families; processes dcgm-exporter and nv-hostengine",
        remedy="Two readers of profiling counters disturb each other, cost GPU time, and count twice in Prometheus. "
        "Keep one: remove the second DaemonSet, or its DCGM_FI_PROF_* counters.",
        commands=(EXPORTER_POD, "systemctl list-units --no-pager '*dcgm*'"),
        judge=check_doubles, reads=("services",),
    ),
)  # fmt: skip
