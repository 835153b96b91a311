"""What a PromQL expression asks for: its selectors, read with a real parser; and the families there are to ask for.

Grafana's variables are filled in first, so that the expressions of dashboards can be read as well.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, get_args

import promql_parser
import yaml

from gpuwatch.config import Mode, SourceName
from gpuwatch.metrics.metric import PREFIX
from gpuwatch.metrics.native import METRICS
from gpuwatch.metrics.process import SELF_METRICS
from gpuwatch.model.finding import CHECK_NAMES, Health, Severity
from gpuwatch.remediation.model import BlockReason, NodeStage
from gpuwatch.remediation.service.pages import REMEDIATOR_METRICS
from gpuwatch.rightsizing.service.metrics import RIGHTSIZING_METRICS
from gpuwatch.tuning.model.setting import Trigger
from gpuwatch.tuning.model.status import ObstacleReason as Refused
from gpuwatch.tuning.model.status import TuningState
from gpuwatch.tuning.service.metrics import TUNER_METRICS
from tests.e2e.processes import series

ROOT = Path(__file__).parents[1]
LOADER: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The one in C is seven times as quick."""
RULES = ROOT / "alerts" / "gpuwatch.rules.yaml"
NATIVE_PAGE = ROOT / "tests" / "golden" / "native.metrics"
DURATION = "5m"
"""What Grafana's own intervals are taken for."""
VARIABLE = re.compile(r"\$\{(\w+)(?::\w+)?\}|\$(\w+)|\[\[(\w+)\]\]")
DURATIONS = ("__rate_interval", "__interval", "__range")
ANY = "1"
"""What any other variable is taken for where none is given: it can stand for a number and for a label's value."""

JOBS = frozenset({"gpuwatch", "gpuwatch-remediator", "gpuwatch-tuner"})
"""What a deployment calls gpuwatch's processes."""
TARGET = frozenset({"cluster", "node", "instance", "job"})
"""Labels that Prometheus puts on every series of ours."""
GPU = frozenset({"gpu", "uuid"})
INSTANCE = frozenset({"gi", "profile"})
WORKLOAD = frozenset({"namespace", "pod", "container"})
SCOPES = {"node": frozenset(), "gpu": GPU, "any": GPU, "instance": GPU | INSTANCE}
PROMETHEUS = frozenset(
    {"up", "scrape_duration_seconds", "scrape_samples_scraped", "scrape_series_added", "ALERTS", "ALERTS_FOR_STATE"}
)
"""Series that Prometheus makes by itself."""
PROCESS = frozenset(
    {
        "process_cpu_seconds_total", "process_resident_memory_bytes", "process_virtual_memory_bytes",
        "process_start_time_seconds", "process_open_fds", "process_max_fds",
    }
)  # fmt: skip
"""What prometheus-client tells of our process."""
KUBE_STATE_METRICS = frozenset({"kube_node_status_capacity"})
"""Series of kube-state-metrics that rules or dashboards may ask for; where it is missing they ask in vain."""


class Selector(NamedTuple):
    """`name{label op "value"}`; `op` is =, !=, =~ or !~."""

    name: str
    matchers: tuple[tuple[str, str, str], ...]

    def named(self) -> Iterator[tuple[str, str]]:
        """(label, value) of every value written out, alternatives of a regular expression one by one."""
        for label, op, value in self.matchers:
            alternatives = value.split("|") if "~" in op else [value]
            yield from ((label, one) for one in alternatives if re.fullmatch(r"[\w./-]+", one) and one != ANY)


def filled(expression: str, variables: Mapping[str, str] | None = None) -> str:
    """The expression with Grafana's variables filled in."""

    def value(found: re.Match[str]) -> str:
        name = next(group for group in found.groups() if group)
        return (variables or {}).get(name) or (DURATION if name in DURATIONS else ANY)

    return VARIABLE.sub(value, expression)


def selectors(expression: str, variables: Mapping[str, str] | None = None) -> tuple[Selector, ...]:
    """All selectors of an expression, in order. ValueError where it is no PromQL."""
    found: list[Selector] = []

    def visit(node: Any) -> None:
        vector = node.vector_selector if isinstance(node, promql_parser.MatrixSelector) else node
        if isinstance(vector, promql_parser.VectorSelector):
            found.append(_selector(vector))

    promql_parser.walk(promql_parser.parse(filled(expression, variables)), visit)
    return tuple(dict.fromkeys(found))


def metrics(expression: str, variables: Mapping[str, str] | None = None) -> set[str]:
    """Names of all series an expression asks for."""
    return {selector.name for selector in selectors(expression, variables)}


def grouping(expression: str, variables: Mapping[str, str] | None = None) -> set[str]:
    """Labels after by, without, on, ignoring, group_left and group_right."""
    text = promql_parser.parse(filled(expression, variables)).prettify()
    listed = re.findall(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^()]*)\)", text)
    return {label.strip() for labels in listed for label in labels.split(",") if label.strip()}


def _selector(vector: Any) -> Selector:
    ops = {"Equal": "=", "NotEqual": "!=", "Re": "=~", "NotRe": "!~"}
    matchers = tuple((m.name, ops[str(m.op).removeprefix("MatchOp.")], m.value) for m in vector.matchers.matchers)
    named = next((value for label, _, value in matchers if label == "__name__"), "")
    return Selector(vector.name or named, tuple(matcher for matcher in matchers if matcher[0] != "__name__"))


@cache
def families() -> dict[str, frozenset[str]]:
    """Every family of gpuwatch and the labels its series have in Prometheus."""
    rows = (*METRICS, *RIGHTSIZING_METRICS, *REMEDIATOR_METRICS, *TUNER_METRICS, *SELF_METRICS)
    return {PREFIX + row.name: SCOPES[row.scope] | TARGET | WORKLOAD | frozenset(row.labels) for row in rows}


@cache
def recorded(path: Path = RULES) -> dict[str, dict[str, Any]]:
    """The recording rules of a rule file by name."""
    return {rule["record"]: rule for group in rule_groups(path) for rule in group["rules"] if "record" in rule}


def alerts(path: Path = RULES) -> dict[str, dict[str, Any]]:
    """The alerts of a rule file by name."""
    return {rule["alert"]: rule for group in rule_groups(path) for rule in group["rules"] if "alert" in rule}


@cache
def rule_groups(path: Path = RULES) -> list[dict[str, Any]]:
    """The groups of a rule file, which are read once: leave them as they are."""
    found: list[dict[str, Any]] = yaml.load(path.read_text(), Loader=LOADER)["groups"]
    return found


def is_known(name: str) -> bool:
    """Whether somebody makes series of that name."""
    made = (PROMETHEUS, PROCESS, KUBE_STATE_METRICS, families(), recorded())
    return any(name in names for names in made)


@cache
def label_values(name: str) -> dict[str, frozenset[str]]:
    """The values that a label of a family can have, for labels that have a fixed set of them."""
    fixed: dict[tuple[str, str], tuple[str, ...]] = {
        ("gpuwatch_finding", "check"): CHECK_NAMES,
        ("gpuwatch_finding", "severity"): tuple(Severity),
        ("gpuwatch_gpu_health", "state"): tuple(Health),
        ("gpuwatch_node_health", "state"): tuple(Health),
        ("gpuwatch_remediator_blocked", "reason"): tuple(BlockReason),
        ("gpuwatch_remediator_stage", "stage"): tuple(NodeStage),
        ("gpuwatch_tuner_state", "state"): tuple(TuningState),
        ("gpuwatch_tuner_state", "reason"): tuple(Refused),
        ("gpuwatch_tuner_mode", "mode"): get_args(Mode),
        ("gpuwatch_tuner_restores_total", "trigger"): tuple(Trigger),
        ("gpuwatch_tuner_estimated_slowdown_ratio", "bound"): ("estimate", "upper"),
        ("gpuwatch_source_up", "source"): ("configuration", "nvml", "store", *get_args(SourceName)),
    }
    labels = families().get(name, frozenset())
    found = {label: frozenset(values) for (family, label), values in fixed.items() if family == name}
    for label in labels & frozenset({"window", "limit", "sensor", "threshold", "domain", "cause", "repair", "state"}):
        found.setdefault(label, _shown(name, label))
    return found


def _shown(name: str, label: str) -> frozenset[str]:
    """The values on the golden page, which shows every part of every reading."""
    page = series(NATIVE_PAGE.read_bytes())
    return frozenset(dict(row.labels)[label] for row in page if row.name == name and label in dict(row.labels))
