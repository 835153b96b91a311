"""Settings: one frozen struct per section, filled from YAML; an unknown key is an error that names its path.

Values come from, weakest first: the defaults here, the file, `GPUWATCH_*` variables and options of the command line.
"""

import difflib
import os
import re
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

import msgspec

from gpuwatch.model.errors import UsageError
from gpuwatch.model.remediation import Effect, Response

Profile = Literal["native", "dcgm-4.8", "dcgm-4.9"]
SourceName = Literal["gpm", "kmsg", "podresources", "procfs", "pci"]


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all settings."""


class AgentConfig(Section, frozen=True, kw_only=True):
    """`agent:` how often to look and where to answer."""

    listen: str = ":9400"
    socket: str = ""  # empty: the runtime directory's agent.sock
    interval: float = 2.0  # seconds between samples
    web_config: str = ""  # exporter-toolkit web configuration file
    max_connections: int = 512
    max_scrapes: int = 40  # concurrent; more get 503
    expected_gpus: int | None = None  # GPUs this node should have; None: what was first seen


class MetricsConfig(Section, frozen=True, kw_only=True):
    """`metrics:` what leaves through /metrics."""

    profiles: tuple[Profile, ...] = ("native",)
    workload_labels: Literal["info", "inline"] = "info"  # inline: namespace, pod, container on every GPU series
    processes: bool = False  # per-process series
    max_series: int = 50_000  # more are dropped, whole families at a time, and counted


class SourcesConfig(Section, frozen=True, kw_only=True):
    """`sources:` where the world is read; paths change inside containers and in tests."""

    nvml_library: str = ""
    disabled: tuple[SourceName, ...] = ()
    kmsg: str = "/dev/kmsg"
    pod_resources: str = "/var/lib/kubelet/pod-resources/kubelet.sock"
    pod_resources_interval: float = 10.0
    resource_names: tuple[str, ...] = ()  # besides nvidia.com/*
    proc: str = "/proc"
    sys: str = "/sys"
    dev: str = "/dev"
    pod_logs: str = "/var/log/pods"
    sample_buffers: bool = True  # read the driver's own sample buffers, so that peaks between looks are not lost


Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]


class Window(Section, frozen=True, kw_only=True):
    """A time of the week. `end` before `start` means past midnight, of the day named by its start."""

    start: str  # HH:MM
    end: str
    days: tuple[Day, ...] = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
    timezone: str = "UTC"  # of the IANA database


class BudgetConfig(Section, frozen=True, kw_only=True):
    """`remediation.budget:` how many nodes of the cluster may be tainted at once, agreed on through Leases."""

    max_unavailable: int | str = "10%"  # nodes, or a share of those with GPUs; never less than 1 unless it is 0
    node_selector: str = "nvidia.com/gpu.present=true"  # which nodes count
    namespace: str = ""  # of the Leases; empty: the pod's own, else gpuwatch
    slot_seconds: float = 900.0  # a slot not renewed for so long may be taken, if its node is not tainted


class DrainConfig(Section, frozen=True, kw_only=True):
    """`remediation.drain:` how pods are asked to leave; never by force."""

    protected_namespaces: tuple[str, ...] = ("kube-system",)
    deadline: float = 3600.0  # seconds after which gpuwatch stops asking and says so
    retry: float = 10.0  # seconds before a pod is asked again; doubles up to 5 minutes
    windows: tuple[Window, ...] = ()  # evict only in these; none: at any time


class HandoverConfig(Section, frozen=True, kw_only=True):
    """`remediation.handover:` how a tool that reboots nodes is told, once the node is drained."""

    annotation: str = ""  # put on the Node, such as gpuwatch.io/reboot-requested
    sentinel: str = ""  # file to create, such as the one kured watches


class RemediationConfig(Section, frozen=True, kw_only=True):
    """`remediation:` what is done about findings. Seconds unless said otherwise."""

    mode: Literal["off", "observe", "enforce"] = "observe"
    checks: dict[str, Response] = {}  # overrules the table of checks
    xids: dict[int, Response] = {}  # overrules both, for findings of that XID
    effect: Effect = "NoSchedule"
    fault_hold: float = 0.0  # a fault must last so long before a taint
    recovery_hold: float = 300.0  # all must be well for so long before the node is given back
    min_quarantine: float = 300.0  # a taint stays at least so long
    repeats: int = 3  # the same fault so often within repeat_window: only a person gives the node back
    repeat_window: float = 7 * 86400.0
    held_checks: tuple[str, ...] = ("row_remap_failure",)  # only a person gives the node back
    max_quarantines_per_day: int = 6  # of this node; more are blocked
    budget: BudgetConfig = BudgetConfig()
    drain: DrainConfig = DrainConfig()
    maintenance: tuple[Window, ...] = ()  # nothing new is tainted or evicted in these
    handover: HandoverConfig = HandoverConfig()
    foreign: tuple[str, ...] = ()  # more keys of labels, annotations or taints that mean: somebody else has the node
    heartbeat: float = 300.0  # the condition is refreshed so often; 0: only when it changes
    listen: str = ":9401"
    kubeconfig: str = ""  # empty: the pod's service account, else KUBECONFIG or ~/.kube/config
    node_name: str = ""  # empty: NODE_NAME; never guessed from the host's name


class Config(Section, frozen=True, kw_only=True):
    """The whole file."""

    agent: AgentConfig = AgentConfig()
    metrics: MetricsConfig = MetricsConfig()
    sources: SourcesConfig = SourcesConfig()
    remediation: RemediationConfig = RemediationConfig()
    state_dir: str = "/var/lib/gpuwatch"


class Backend(Section, frozen=True, kw_only=True):
    """Which pynvml-shaped module the reader opens: `factory` is `module:function`, called with `target`.

    The default is the machine's own driver, `target` being the path of libnvidia-ml or empty; the simulator and
    recorded captures take its place without the reader knowing.
    """

    factory: str = "gpuwatch.sources.nvml:open_library"
    target: str = ""


def runtime_dir() -> Path:
    """Where sockets live: /run/gpuwatch for root, else below XDG_RUNTIME_DIR or /tmp."""
    if os.geteuid() == 0:
        return Path("/run/gpuwatch")
    base = os.environ.get("XDG_RUNTIME_DIR")
    return Path(base) / "gpuwatch" if base else Path(f"/tmp/gpuwatch-{os.getuid()}")  # noqa: S108


def load(path: Path | None) -> Config:
    """The configuration in a file, or the defaults.

    Raises:
        UsageError: the file cannot be read, is no YAML, has an unknown key or a value of the wrong type.
    """
    if path is None:
        return Config()
    import yaml

    try:
        document = yaml.safe_load(path.read_text())
    except OSError as error:
        raise UsageError(f"cannot read configuration {path}", error.strerror or str(error), "check --config") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not YAML", " ".join(str(error).split())) from None
    return parse({} if document is None else document, str(path))


def parse(document: Any, origin: str) -> Config:
    """Turn a decoded YAML document into settings; `origin` names it in errors.

    Raises:
        UsageError: unknown key (the nearest known one is named) or wrong value.
    """
    if not isinstance(document, dict):
        raise UsageError(
            f"{origin} is no configuration", "the top level is not a mapping", "see `gpuwatch config show`"
        )
    unknown = _unknown(document, Config, "")
    if unknown:
        where, nearest = unknown
        hint = f"did you mean {nearest}?" if nearest else "see `gpuwatch config show` for all keys"
        raise UsageError(f"unknown key {where} in {origin}", "gpuwatch does not know it", hint)
    try:
        config = msgspec.convert(document, Config)
    except msgspec.ValidationError as error:
        why = str(error).replace("`$.", "`")
        raise UsageError(
            f"wrong value in {origin}", why, _choices(str(error)) or "see `gpuwatch config schema`"
        ) from None
    _check_ranges(config, origin)
    return config


def _unknown(document: dict[Any, Any], section: type[msgspec.Struct], prefix: str) -> tuple[str, str | None] | None:
    hints = get_type_hints(section)
    for key, value in document.items():
        if key not in hints:
            near = difflib.get_close_matches(str(key), hints, n=1, cutoff=0.5)
            return f"{prefix}{key}", f"{prefix}{near[0]}" if near else None
        inner = next((t for t in (hints[key], *get_args(hints[key])) if _is_section(t)), None)
        if inner is not None and isinstance(value, dict):
            found = _unknown(value, inner, f"{prefix}{key}.")
            if found:
                return found
    return None


def _choices(error: str) -> str | None:
    """The words that were possible where msgspec met another one: it names the place, not the choice."""
    place = re.search(r"Invalid enum value .* at `\$\.([a-z_.]+)", error)
    if place is None:
        return None
    kind: Any = Config
    for name in place[1].split("."):
        kind = get_type_hints(kind)[name]
    words = [word for candidate in (kind, *get_args(kind)) for word in get_args(candidate) if isinstance(word, str)]
    return f"use {', '.join(dict.fromkeys(words))}" if words else None


def _is_section(candidate: Any) -> bool:
    return isinstance(candidate, type) and issubclass(candidate, Section)


RANGES = {
    ("agent", "interval"): (0.1, 3600),
    ("agent", "max_connections"): (8, 100_000),
    ("agent", "max_scrapes"): (1, 10_000),
    ("metrics", "max_series"): (100, 10_000_000),
    ("sources", "pod_resources_interval"): (1, 3600),
    ("remediation", "fault_hold"): (0, 86400),
    ("remediation", "recovery_hold"): (1, 30 * 86400),
    ("remediation", "min_quarantine"): (0, 30 * 86400),
    ("remediation", "heartbeat"): (0, 86400),
}
"""(section, key) -> smallest and largest value that make sense."""


def _check_ranges(config: Config, origin: str) -> None:
    for (section, key), (low, high) in RANGES.items():
        value = getattr(getattr(config, section), key)
        if not low <= value <= high:
            raise UsageError(f"wrong value in {origin}", f"{section}.{key} is {value}", f"use {low} to {high}")
