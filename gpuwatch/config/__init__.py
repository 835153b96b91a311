"""Settings: one frozen struct per section, filled from YAML; an unknown key is an error that names its path.

Values come from, weakest first: the defaults here, the file, `GPUWATCH_*` variables and options of the command line.
"""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from gpuwatch.config.errors import first_wrong, out_of_range
from gpuwatch.model.decoding import prepared
from gpuwatch.model.errors import UsageError
from gpuwatch.model.finding import CheckName, DeviceEffect, Effect, Response, SchedulingLabel, Scope, XidClass
from gpuwatch.model.work import WorkClass

Mode = Literal["off", "observe", "enforce"]
"""The mode of remediation and of tuning. Only `enforce` writes."""

Profile = Literal["native", "dcgm-4.8", "dcgm-4.9"]
SourceName = Literal["gpm", "kmsg", "podresources", "procfs", "pci"]
FamilyGroup = Literal[
    "core", "errors", "pods", "readings", "activity", "vgpus", "links", "rightsizing", "nvlinks", "processes"
]
"""Groups of metric families, in the order of the page; `metrics.native.GROUPS` lists the families of each."""


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all settings."""


class AgentConfig(Section, frozen=True, kw_only=True):
    """`agent:` how often it samples, and where it serves."""

    listen: str = ":9400"  # ADDRESS:PORT; empty: no port
    socket: str = ""  # empty: the runtime directory's agent.sock
    socket_uid: int | None = None  # of the agent, where it is neither root nor the user that asks at its socket
    interval: float = 2.0  # seconds between samples
    web_config: str = ""  # exporter-toolkit web configuration file
    api: Literal["users", "open"] = "users"  # readers of /api/v1 over TCP: users of web_config, or every client
    hosts: tuple[
        str, ...
    ] = ()  # more host names that clients on loopback may use; shell patterns, for all three processes
    wait_for_driver: bool = False  # without an NVML library keep serving, as pods should; false: end with code 5
    max_connections: int = 512  # at once; beyond that, the one idle for longest is closed
    max_scrapes: int = 40  # concurrent; a further one takes the place of the slowest
    expected_gpus: int | None = None  # GPUs this node should have; null: those on the PCI bus


class FamiliesConfig(Section, frozen=True, kw_only=True):
    """`metrics.families:` a family is exported when its group or a pattern of `allow` names it, and none of `deny`."""

    groups: tuple[FamilyGroup, ...] = get_args(FamilyGroup)[:-2]  # [what is in each](metrics.md)
    allow: tuple[str, ...] = ()  # names with * and ?, such as gpuwatch_gpu_nvlink_errors_total
    deny: tuple[str, ...] = ()  # those of the DCGM profiles too


class MetricsConfig(Section, frozen=True, kw_only=True):
    """`metrics:` the series of /metrics."""

    profiles: tuple[Profile, ...] = ("native",)  # names of the series: its own, or those of dcgm-exporter
    workload_labels: Literal["info", "inline"] = "info"  # inline: namespace, pod, container on every GPU series
    families: FamiliesConfig = FamiliesConfig()
    processes: bool = False  # per-process series: the group `processes`
    pod_labels: tuple[str, ...] = ()  # labels of pods on gpuwatch_pod_labels, 8 at most; `tuner --consents` reads them
    pod_annotations: tuple[str, ...] = ()  # annotations of pods on gpuwatch_pod_labels, 8 at most
    node_labels: tuple[str, ...] = ()  # labels of this Node on gpuwatch_node_labels, 8 at most
    max_series: int = 50_000  # more are dropped, whole families at a time, and counted


class SourcesConfig(Section, frozen=True, kw_only=True):
    """`sources:` where gpuwatch reads the machine; paths change inside containers and in tests."""

    nvml_library: str = ""  # path of libnvidia-ml.so.1; empty: as the linker finds it
    disabled: tuple[SourceName, ...] = ()  # not read at all
    kmsg: str = "/dev/kmsg"  # the kernel log
    pod_resources: str = "/var/lib/kubelet/pod-resources/kubelet.sock"  # the kubelet's socket
    pod_resources_interval: float = 10.0  # seconds between requests to the kubelet; agent.interval adds up to 40 %
    resource_names: tuple[str, ...] = ()  # besides nvidia.com/*
    proc: str = "/proc"  # the host's /proc
    sys: str = "/sys"  # the host's /sys
    dev: str = "/dev"  # the host's /dev
    machine_id: str = "/etc/machine-id"  # the host's; a Node of the same name may be another machine
    pod_logs: str = "/var/log/pods"  # the names of its folders hold the uids of pods
    slurm_jobs: str = "/run/gpuwatch-jobs"  # where the Slurm prolog notes account and partition of each job
    containers: tuple[str, ...] = (  # state folders of runtimes: names of containers outside Kubernetes; []: unnamed
        *("/var/lib/docker", "/var/lib/containers/storage", "/run/containerd"),
    )
    sample_buffers: bool = True  # read the driver's own sample buffers, which hold the peaks between samples


class ChecksConfig(Section, frozen=True, kw_only=True):
    """`checks:` what counts as a fault, and for how long."""

    ignore: tuple[CheckName, ...] = ()  # no finding, so no alert, no condition, no taint; `status` names them
    boot_grace: float = 120.0  # after a boot or driver change some checks wait so long for everything to come up
    unresponsive_after: float = 30.0  # a GPU that has not answered for so long hangs; a busy driver answers sooner
    xids: dict[int, XidClass] = {}  # overrules the catalogue and the kernel line
    xid_confirm_within: float = 120.0  # the driver must confirm a kernel line so soon, or it is never acted on
    xid_clear_after: float = 600.0  # the finding of an XID ends once the driver has asked for nothing for so long
    xid_expire: float = 3600.0  # the finding of an XID that asks for no repair ends after so long
    repeat_pods: int = 3  # so many different pods with application XIDs on one GPU make a finding
    repeat_window: float = 86400.0  # within which these pods count
    ecc_corrected_per_hour: int = 1000  # errors an hour, of one GPU
    retired_pages: int = 60  # of the 64 there can be
    thermal_margin: float = 0.0  # degrees left at which a GPU counts as too hot
    nvlink_errors_per_hour: int = 1000  # errors an hour, of one GPU
    pcie_utilization: float = 0.2  # ratio; an idle link trains down and that is normal
    stuck_utilization: float = 0.5  # ratio above which clocks should be up
    stuck_clock: float = 0.3  # share of the highest clock below which they are not
    zombie_memory: int = 1 << 30  # bytes in use without a process or pod


Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]


class MaintenanceWindow(Section, frozen=True, kw_only=True):
    """A time of the week. `end` before `start` means past midnight, of the day named by its start."""

    start: str  # HH:MM
    end: str  # HH:MM
    days: tuple[Day, ...] = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")  # on which it begins
    timezone: str = "UTC"  # of the IANA database


class BudgetConfig(Section, frozen=True, kw_only=True):
    """`remediation.budget:` how many nodes of the cluster may be tainted at once; Leases count them."""

    max_unavailable: int | str = "10%"  # nodes, or a share of those with GPUs; never less than 1 unless it is 0
    max_unavailable_gpus: int | None = None  # by DeviceTaintRules in the cluster; null: as nodes allow
    node_selector: str = "nvidia.com/gpu.present=true"  # which nodes count
    namespace: str = ""  # of the Leases; empty: the pod's own, else gpuwatch
    slot_seconds: float = 900.0  # a slot not renewed for so long may be taken, if its node is not tainted


class DrainConfig(Section, frozen=True, kw_only=True):
    """`remediation.drain:` how pods are evicted; never by force."""

    evict: Literal["pod", "owner-on-node"] = "pod"  # owner-on-node: with each pod those of the same job on this node
    protected_namespaces: tuple[str, ...] = ("kube-system",)  # their pods are never evicted
    deadline: float = 3600.0  # seconds after which gpuwatch evicts no more and reports it
    retry: float = 10.0  # seconds before an eviction is tried again; doubles up to 5 minutes
    windows: tuple[MaintenanceWindow, ...] = ()  # evict only in these; none: at any time


class HandoverConfig(Section, frozen=True, kw_only=True):
    """`remediation.handover:` how a tool that reboots nodes is notified, once the node is drained."""

    annotation: str = ""  # put on the Node, such as gpuwatch.io/reboot-requested
    sentinel: str = ""  # file to create, such as the one that kured watches


class ValidationConfig(Section, frozen=True, kw_only=True):
    """`remediation.validation:` a command of the operator's that a GPU must pass besides the active checks."""

    command: tuple[str, ...] = ()  # program and arguments, without a shell; {uuid} and {index} stand for the GPU
    deadline: float = 600.0  # seconds; SIGTERM after that, and the GPU has failed


class RemediationConfig(Section, frozen=True, kw_only=True):
    """`remediation:` how gpuwatch responds to findings."""

    mode: Mode = "observe"  # observe: gpuwatch plans and writes nothing
    migrate: bool = False  # evict pods from sick GPUs, too, where the response in the table of checks is taint
    at_most: Response = Response.DRAIN  # for every check that `checks` does not name
    checks: dict[CheckName, Response] = {}  # overrules the table of checks
    xids: dict[int, Response] = {}  # overrules both, for findings of that XID
    scope: dict[CheckName, Scope] = {}  # overrules the table of checks: take the sick GPU or the node out of service
    effect: Effect = "NoSchedule"  # of the taint; NoExecute ends pods that do not tolerate it
    device_effect: DeviceEffect = "NoSchedule"  # of DeviceTaintRules, where pods get GPUs by resource claims
    fault_hold: float = 0.0  # a fault must last so long before a taint
    recovery_hold: float = 300.0  # all GPUs must be healthy for so long before the node is released
    validate: Literal["passive", "active"] = "passive"  # active: released only after `gpuwatch node validate` passed
    validation: ValidationConfig = ValidationConfig()
    min_quarantine: float = 300.0  # a taint stays at least so long
    repeats: int = 3  # after so many of the same fault in repeat_window only an operator releases the node
    repeat_window: float = 7 * 86400.0  # within which repeats count
    held_checks: tuple[CheckName, ...] = ("row_remap_failure",)  # only an operator releases the node
    max_quarantines_per_day: int = 6  # of this node; further ones are blocked
    budget: BudgetConfig = BudgetConfig()
    drain: DrainConfig = DrainConfig()
    maintenance: tuple[MaintenanceWindow, ...] = ()  # nothing new is tainted or evicted in these
    handover: HandoverConfig = HandoverConfig()
    restart_plugin: str = ""  # NAMESPACE/NAME of its DaemonSet: its pod is evicted when it omits a healthy GPU
    foreign: tuple[str, ...] = ()  # further keys of labels, annotations or taints by which a controller claims the node
    labels: tuple[SchedulingLabel, ...] = get_args(SchedulingLabel)  # gpuwatch.io/... on the Node; []: none
    heartbeat: float = 300.0  # the condition is refreshed so often; 0: only when it changes
    listen: str = ":9401"  # ADDRESS:PORT
    web_config: str = ""  # exporter-toolkit web configuration file
    kubeconfig: str = ""  # empty: the pod's service account, else KUBECONFIG or ~/.kube/config
    node_name: str = ""  # empty: NODE_NAME; never guessed from the host's name


class RepairConfig(Section, frozen=True, kw_only=True):
    """`repair:` whether `gpuwatch repairer` resets sick GPUs that nothing uses, and how."""

    mode: Mode = "off"  # observe: it reports which GPUs it would reset
    command: tuple[str, ...] = (
        "/usr/bin/nvidia-smi",
        "--gpu-reset",
        "-i",
        "{uuid}",
    )  # without a shell; {uuid}, {index}
    nvidia_smi: str = "/usr/bin/nvidia-smi"  # sets persistence mode, which would keep the GPU open; empty: never
    deadline: float = 180.0  # seconds for the command, then SIGTERM, and the try has failed
    tries: int = 2  # of one GPU within `window`; the next step is a reboot by `remediation.handover`
    window: float = 86400.0  # within which tries count
    quarantined_only: bool = True  # only while the remediator holds this node's quarantine; false: another tool does


class SupportConfig(Section, frozen=True, kw_only=True):
    """`support:` the file that gpuwatch keeps of each critical fault, in the folder `support` of `state_dir`."""

    cases: int = 5  # files; older ones are deleted, and 0 keeps none
    days: float = 30.0  # after which they are deleted
    bug_report: tuple[str, ...] = ()  # the repairer runs it before a reset, without a shell; {file}: what it writes
    deadline: float = 300.0  # seconds for bug_report, then SIGTERM


class TuningConfig(Section, frozen=True, kw_only=True):
    """`tuning:` which GPUs could do their work with less energy, and whether gpuwatch limits them."""

    mode: Mode = "observe"  # observe: it reports what could be tuned
    pods: Mode = "observe"  # for pods without `gpuwatch.io/autotune` on them or their namespace
    work_class: Literal["batch", "serving"] | None = None  # of pods without an `autotune-class`; null: not tuned
    max_slowdown: float = 0.05  # the share of its speed that work may lose; a pod may ask for less
    knob: Literal["auto", "locked_clocks", "power_limit"] = "auto"  # auto: clocks, where the driver locks them
    shared: Literal["refuse", "sum"] = (
        "refuse"  # GPUs of several owners without progress; sum: the bound is on their sum
    )
    min_clock_fraction: float = 0.5  # of the highest clock; nothing below is tried
    node_budget_watts: float | None = None  # for all GPUs together; null: none
    max_actions_per_hour: int = 12  # for each GPU; reverts do not count
    listen: str = ":9402"  # ADDRESS:PORT
    web_config: str = ""  # exporter-toolkit web configuration file
    progress_socket: str = ""  # for --consents: /run/gpuwatch-progress/progress.sock; empty: work adds to no counter
    node_name: str = ""  # for --consents; empty: NODE_NAME
    kubeconfig: str = ""  # for --consents; empty: the pod's service account, else KUBECONFIG or ~/.kube/config


class WorkClassRule(Section, frozen=True, kw_only=True):
    """One of `rightsizing.work_classes:`; patterns as of a shell. The first that fits counts."""

    work_class: WorkClass  # class of the workloads
    namespace: str = "*"  # of the pods
    name: str = "*"  # of the pods' owner
    kind: str = "*"  # Deployment, Job, ...


class RightsizingConfig(Section, frozen=True, kw_only=True):
    """`rightsizing:` which workloads hold more GPU than they use. gpuwatch applies no recommendation."""

    enabled: bool = True  # the agent keeps histograms of what work does with GPUs
    top: int = 20  # so many recommendations become series
    max_workloads: int = 1000  # beyond that, the histograms of those that ended longest ago are dropped
    min_history: float = 86400.0  # no recommendation of a workload's size with less history
    min_coverage: float = 0.95  # ratio of the history with samples; no recommendation of a size with less
    idle_after: float = 1800.0  # a GPU without any work for so long is idle
    lull: float = 4 * 86400.0  # work that has had long pauses, or is new, is not idle before; as a long weekend
    grace: float = 600.0  # after the start of a pod, which is not idle before
    memory_margin: float = 0.05  # ratio, above the highest daily peak; at least 512 MiB
    max_mig_slowdown: float = 0.2  # ratio; work may take so much longer on a MIG instance
    expire: float = 7 * 86400.0  # a recommendation is valid for so long
    work_classes: tuple[WorkClassRule, ...] = ()  # where neither annotation nor kind of owner gives the class
    prices: dict[str, float] = {}  # of an hour, by NVML name of the GPU as a shell pattern
    electricity_price: float | None = None  # of a kilowatt-hour
    currency: str = "USD"  # of all prices


class Config(Section, frozen=True, kw_only=True):
    """The whole file."""

    agent: AgentConfig = AgentConfig()
    metrics: MetricsConfig = MetricsConfig()
    sources: SourcesConfig = SourcesConfig()
    checks: ChecksConfig = ChecksConfig()
    remediation: RemediationConfig = RemediationConfig()
    repair: RepairConfig = RepairConfig()
    support: SupportConfig = SupportConfig()
    tuning: TuningConfig = TuningConfig()
    rightsizing: RightsizingConfig = RightsizingConfig()
    state_dir: str = "/var/lib/gpuwatch"  # what outlives a restart: events, findings, settings of GPUs, usage


class Backend(Section, frozen=True, kw_only=True):
    """Which pynvml-shaped module the reader opens: `factory` is `module:function`, called with `target`.

    The default is the machine's own driver, `target` being the path of libnvidia-ml or empty; the simulator and
    recorded captures take its place, and the reader needs no change. `incomplete`: why a dump is not complete.
    """

    factory: str = "gpuwatch.collect.nvml.library:open_library"
    target: str = ""
    incomplete: str = ""


def runtime_dir() -> Path:
    """The folder of sockets: /run/gpuwatch for root; for others their own run folder, or, where no login has made one
    (a container, `su`, cron), /run/gpuwatch if it is theirs, else a folder of their home.

    Never below /tmp: another user may create a name there first, if it can be guessed.

    Raises:
        UsageError: this user has none.
    """
    uid, shared = os.geteuid(), Path("/run/gpuwatch")
    if uid == 0:
        return shared
    if base := os.environ.get("XDG_RUNTIME_DIR"):
        return Path(base) / "gpuwatch"
    login, home = Path(f"/run/user/{uid}"), Path("~").expanduser()
    for own, folder in ((login, login / "gpuwatch"), (shared, shared), (home, home / ".cache/gpuwatch/run")):
        with contextlib.suppress(OSError):
            if own.lstat().st_uid == uid:
                return folder
    raise UsageError(
        "this user has no run folder",
        f"XDG_RUNTIME_DIR is not set, and neither {login} nor {shared} nor the home {home} belongs to user {uid}",
        "set XDG_RUNTIME_DIR to a folder of your own, or name a place: --socket of agent and demo, --dir of sim run",
    )


def load(path: Path | None) -> Config:
    """The configuration in a file, or the defaults.

    Raises:
        UsageError: the file cannot be read, is no YAML, has an unknown key or a wrong value.
    """
    return load_with_document(path)[0]


def load_with_document(path: Path | None) -> tuple[Config, dict[str, Any]]:
    """As `load`, with the document of the file."""
    if path is None:
        return Config(), {}
    from gpuwatch.config.yaml import read

    found = read(path, "configuration", "--config")
    document = {} if found.value is None else found.value
    return parse(document, str(path), found.at), document


def parse(document: Any, origin: str, at: Callable[[str], str] | None = None) -> Config:
    """Turn a decoded YAML document into settings; `origin` names it in errors, and `at` the place of a key in it.

    Raises:
        UsageError: unknown key (the nearest known one is named) or wrong value.
    """
    if not isinstance(document, dict):
        raise UsageError(
            f"{origin} is no configuration", "the top level is not a mapping", "see `gpuwatch config show`"
        )
    if (wrong := first_wrong(document, Config)) is not None:
        what = f"unknown key {wrong.path}" if wrong.unknown else f"wrong value at {wrong.path}"
        place = at(wrong.path) if at else origin
        raise UsageError(f"{what} in {place}", wrong.why, wrong.hint or "see `gpuwatch config schema`")
    config = msgspec.convert(document, prepared(Config))
    if (wrong := out_of_range(config)) is not None:
        place = at(wrong.path) if at else origin
        raise UsageError(f"wrong value at {wrong.path} in {place}", wrong.why, wrong.hint)
    return config
