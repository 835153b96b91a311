"""Labels and annotations of pods and Node on the metrics: from the API server's JSON to the page that is scraped."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from gpuwatch.agent.view_builder import ViewBuilder
from gpuwatch.config import Config, MetricsConfig
from gpuwatch.consents import kube
from gpuwatch.metrics.page_cache import PageCache
from gpuwatch.model.consent import OLD_SECONDS, PodConsent, prometheus_label
from gpuwatch.model.snapshot import SourceStatus
from gpuwatch.sim.kubeapi.cluster import SimulatedCluster
from gpuwatch.sim.kubeapi.server import SimulatedApiServer
from gpuwatch.storage.versioned_file import MOST_BYTES
from tests.agent.test_view_builder import Node
from tests.consents.test_kube import Pages
from tests.consents.test_service import Bench
from tests.remediation.model.remediating import NODE

TEAM = MetricsConfig(pod_labels=("team", "app.kubernetes.io/name"), pod_annotations=("example.com/costCenter",))
DOCS = Path(__file__).parents[2] / "docs/kubernetes.md"


class Exporting(Bench):
    """The process with the token, and an agent that reads what it writes and shares its clock."""

    def __init__(self, server: SimulatedApiServer, folder: Path, metrics: MetricsConfig = TEAM) -> None:
        super().__init__(server, folder)
        self.metrics = metrics
        self.consenting._source.metrics = metrics
        self.node = Node(folder)
        config = Config(sources=self.node.config.sources, state_dir=str(folder))
        self.node.clock = self.clock  # type: ignore[assignment]
        self.node.builder = ViewBuilder(config, self.clock, "node-7")

    def label(self, resource: str, name: str, namespace: str = "", **metadata: dict[str, str]) -> None:
        found = self.cluster.get(resource, namespace, name)
        self.cluster.put(resource, {**found, "metadata": {**found["metadata"], **metadata}})

    def view(self):
        self.node.builder.refresh_labels(self.metrics)
        return self.node.view()

    def series(self, name: str) -> list[dict[str, str]]:
        """The labels of all series of a family on the page, as Prometheus reads them."""
        cache = PageCache(self.metrics, node=NODE, clock=self.clock)
        cache.publish(self.view())
        families = text_string_to_metric_families(cache.page(("native",)).decode())
        return [sample.labels for family in families for sample in family.samples if sample.name == name]

    def up(self) -> SourceStatus | None:
        sources = [source for source in self.view().snapshot.sources if source.name == "consents"]
        return sources[0] if sources else None


@pytest.fixture
def exporting(tmp_path):
    with SimulatedApiServer(SimulatedCluster()) as server:
        made = Exporting(server, tmp_path)
        yield made
        made.transport.close()


def test_what_is_named_is_on_the_page_and_nothing_else(exporting):
    exporting.label(
        "pods", "train-0", "ml",
        labels={"team": "vision", "app.kubernetes.io/name": "llm", "secret": "planted"},
        annotations={"example.com/costCenter": "4711", "note": "planted"},
    )  # fmt: skip
    exporting.cluster.add_pod("ml", "bare-0", node=NODE)
    exporting.cluster.add_pod("ml", "web-0", node=NODE, gpus=0, labels={"team": "web"})
    exporting.cycle()
    assert "planted" not in exporting.file.path.read_text()
    bare, train = sorted(exporting.series("gpuwatch_pod_labels"), key=lambda each: each["pod"])
    assert bare == {"namespace": "ml", "pod": "bare-0"}
    assert train == {
        "namespace": "ml",
        "pod": "train-0",
        "label_team": "vision",
        "label_app_kubernetes_io_name": "llm",
        "annotation_example_com_cost_center": "4711",
    }
    assert exporting.series("gpuwatch_pod_labels_omitted") == [{}]
    assert exporting.series("gpuwatch_node_labels") == []
    assert exporting.up().up is True


def test_labels_of_the_node_are_a_family_of_their_own(exporting):
    exporting.metrics = exporting.consenting._source.metrics = MetricsConfig(node_labels=("zone", "missing"))
    exporting.label("nodes", NODE, labels={"zone": "a", "other": "planted"})
    exporting.cycle()
    assert exporting.series("gpuwatch_node_labels") == [{"label_zone": "a"}]
    assert exporting.series("gpuwatch_pod_labels") == []


def test_by_default_nothing_is_read_or_exported(exporting):
    exporting.cycle()
    exporting.metrics = MetricsConfig()
    assert exporting.view().consents is None
    assert exporting.up() is None
    assert exporting.series("gpuwatch_pod_labels") == exporting.series("gpuwatch_pod_labels_omitted") == []


HOSTILE = {
    'quote " backslash \\ brace }': 'quote " backslash \\ brace }',
    'line\n# TYPE gpuwatch_gpus counter\ngpuwatch_gpus{state="bus"} 99': (
        r'line\n# TYPE gpuwatch_gpus counter\ngpuwatch_gpus{state="bus"} 99'
    ),
    "\x1b[2J\u202egnp": r"\x1b[2J\u202egnp",
    "x" * 10_000: "x" * 127 + "…",
    "": None,
}
"""An annotation's value -> what Prometheus shows."""


@pytest.mark.parametrize("value", HOSTILE)
def test_a_value_cannot_leave_its_label(exporting, value):
    exporting.label("pods", "train-0", "ml", annotations={"example.com/costCenter": value})
    exporting.cycle()
    (found,) = exporting.series("gpuwatch_pod_labels")
    assert found.get("annotation_example_com_cost_center") == HOSTILE[value]
    assert [each["state"] for each in exporting.series("gpuwatch_gpus")].count("bus") <= 1


def test_labels_vanish_once_nobody_can_say_that_they_hold(exporting):
    exporting.label("pods", "train-0", "ml", labels={"team": "vision"})
    exporting.cycle()
    exporting.clock.go(OLD_SECONDS - 30)
    assert exporting.series("gpuwatch_pod_labels")
    exporting.node.builder.refresh_labels(exporting.metrics)
    exporting.clock.go(31)
    assert exporting.node.view().consents is None, "also where the file was not read again"
    assert exporting.series("gpuwatch_pod_labels") == exporting.series("gpuwatch_pod_labels_omitted") == []
    assert (exporting.up().up, "two minutes old" in exporting.up().reason) == (False, True)
    exporting.cycle()
    assert exporting.series("gpuwatch_pod_labels")
    assert exporting.up().up is True


@pytest.mark.parametrize(("state", "why"), [("", "no file"), ("not json", "cannot use")])
def test_a_file_that_is_missing_or_cannot_be_read_is_a_source_that_fails(exporting, state, why):
    if state:
        exporting.cycle()
        exporting.file.path.write_text(state)
    assert (exporting.up().up, why in exporting.up().reason) == (False, True)


def test_without_labels_no_fault_goes_unseen_so_that_nothing_is_found(exporting):
    assert exporting.up().up is False
    findings = exporting.view().judgement.findings
    assert "monitoring_degraded" not in {finding.check for finding in findings}


def test_more_pods_than_fit_are_counted_and_the_file_stays_small(exporting, monkeypatch):
    """At the bound of kubelets, with all that a pod can put into eight annotations."""
    monkeypatch.setattr(kube, "MOST_LABELLED", 2)
    pages = Pages(3)
    reader = kube.ConsentsReader(pages, NODE)
    assert [each.labels for each in reader.gpu_pods()] == [{}, {}, None]
    for number in range(3):
        exporting.cluster.add_pod("ml", f"more-{number}", node=NODE, labels={"team": "vision"})
    exporting.cycle()
    assert len(exporting.series("gpuwatch_pod_labels")) == 2
    cache = PageCache(exporting.metrics, node=NODE, clock=exporting.clock)
    cache.publish(exporting.view())
    assert "\ngpuwatch_pod_labels_omitted 2\n" in cache.page(("native",)).decode()


def test_the_fullest_file_can_be_written(exporting):
    names = tuple(f"example.com/annotation-{number}" for number in range(8))
    values = kube.exported("annotation", dict.fromkeys(names, "\x07𝄞" * 5000), names)
    full = PodConsent(namespace="n" * 63, name="p" * 253, uid="u" * 36, labels=values)
    exporting.cycle()
    consents = exporting.file.read()
    exporting.file.write(type(consents)(at=consents.at, pods=(full,) * kube.MOST_LABELLED))
    assert exporting.file.path.stat().st_size < MOST_BYTES


def test_pods_that_fill_all_that_is_kept_of_them_leave_the_file_writable(exporting):
    """As many pods as a kubelet is ever given; each with what nobody but its author bounds."""
    names = tuple(f"example.com/annotation-{number}" for number in range(8))
    full = PodConsent(
        namespace="n" * 63,
        name="p" * 253,
        uid="u" * 36,
        annotations=kube.kept(dict.fromkeys(kube.KEPT, "𝄞" * 5000)),
        labels=kube.exported("annotation", dict.fromkeys(names, "\x07𝄞" * 5000), names),
        images={f"{number:063}": "i" * kube.LONGEST_NAME for number in range(kube.MOST_CONTAINERS)},
        owner=("k" * kube.LONGEST_NAME, "n" * kube.LONGEST_NAME),
    )
    exporting.cycle()
    consents = exporting.file.read()
    exporting.file.write(type(consents)(at=consents.at, pods=(full,) * 256))
    assert len(exporting.file.read().pods) == 256


@pytest.mark.parametrize(
    ("name", "exported"),
    [
        ("app.kubernetes.io/name", "label_app_kubernetes_io_name"),
        ("costCenter", "label_cost_center"),
        ("HTTPServer", "label_httpserver"),
        ("a-b_c.9", "label_a_b_c_9"),
    ],
)
def test_names_are_those_of_kube_state_metrics(name, exported):
    """Its SanitizeLabelName, then its toSnakeCase."""
    assert prometheus_label("label", name) == exported


def blocks() -> list[str]:
    return re.findall(r"```promql\n(.*?)```", DOCS.read_text(), re.DOTALL)


@pytest.mark.parametrize("family", ["gpuwatch_pod_labels", "kube_pod_labels"])
def test_the_joins_of_the_documentation_name_each_team(tmp_path, family):
    """On Prometheus' own engine, with a shared GPU, a pod without a team and a page that was scraped twice."""
    energy, utilization = (each.replace("gpuwatch_pod_labels", family) for each in blocks())
    gpu = 'node="n1",instance="n1",gpu="{0}",uuid="GPU-{0}"'
    held = [(0, "train-0"), (1, "chat-0"), (1, "none-0")]
    inputs = {
        f'{family}{{node="n1",namespace="ml",pod="train-0",label_team="vision"}}': "1x20",
        f'{family}{{node="n1",namespace="ml",pod="chat-0",label_team="chat"}}': "1x20",
        f'{family}{{node="n1",instance="again",namespace="ml",pod="chat-0",label_team="chat"}}': "1x20",
        f'{family}{{node="n1",namespace="ml",pod="none-0"}}': "1x20",
    }
    for index, pod in held:
        labels = f'{gpu.format(index)},namespace="ml",pod="{pod}",container="c"'
        inputs[f"gpuwatch_gpu_workload_info{{{labels}}}"] = "1x20"
        inputs[f"gpuwatch_pod_gpu_energy_joules_total{{{labels}}}"] = "0+6000x20"
    inputs |= {f"gpuwatch_gpu_utilization_ratio{{{gpu.format(index)}}}": f"0.{index + 3}x20" for index in (0, 1)}
    teams = {"vision": (100, 0.3), "chat": (100, 0.4), "": (100, 0.4)}
    questions = [
        {
            "expr": expression,
            "eval_time": "10m",
            "exp_samples": [
                {"labels": f'{{label_team="{team}"}}' if team else "{}", "value": value[number]}
                for team, value in teams.items()
            ],
        }
        for number, expression in enumerate((energy, utilization))
    ]
    case = {"interval": "1m", "input_series": [{"series": k, "values": v} for k, v in inputs.items()]}
    file = tmp_path / "join.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [], "tests": [{**case, "promql_expr_test": questions}]}))
    done = subprocess.run(["promtool", "test", "rules", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
