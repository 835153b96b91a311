"""The PodMonitor in a real Prometheus: whose labels a series ends up with. Collectors are offered the same scrapes."""

import pytest

from tests import fast_yaml
from tests.deploy.rendering import DEPLOY, built, kustomization, one
from tests.e2e.processes import agent, job, prometheus
from tests.waiting import until

META = {
    "namespace": ("__meta_kubernetes_namespace", "gpuwatch"),
    "pod": ("__meta_kubernetes_pod_name", "gpuwatch-abcde"),
    "container": ("__meta_kubernetes_pod_container_name", "agent"),
}
NODE = "__meta_kubernetes_pod_node_name", "gpu-1"


def configured(endpoint, target):
    """The scrape job that the Prometheus Operator makes of an endpoint: its own relabelings first."""
    own = [{"source_labels": [name], "target_label": label} for label, (name, _) in META.items()]
    own += [{"target_label": "job", "replacement": "gpuwatch/gpuwatch"}]
    own += [{"target_label": "endpoint", "replacement": endpoint["port"]}]
    names = {"sourceLabels": "source_labels", "targetLabel": "target_label"}
    ours = [{names.get(key, key): value for key, value in rule.items()} for rule in endpoint["relabelings"]]
    discovered = {**dict(META.values()), NODE[0]: NODE[1]}
    settings = {"honor_labels": endpoint["honorLabels"], "relabel_configs": [*own, *ours]}
    found = job("podMonitor/gpuwatch/gpuwatch/0", target, **settings)
    found["static_configs"][0]["labels"] = discovered
    return found


@pytest.fixture(scope="module")
def monitor(tmp_path_factory):
    return one(built(kustomization(tmp_path_factory.mktemp("kustomization"), "monitoring")), "PodMonitor")


@pytest.fixture(scope="module")
def scraped(monitor, tmp_path_factory):
    place = tmp_path_factory.mktemp("scrape")
    (endpoint,) = (each for each in monitor["spec"]["podMetricsEndpoints"] if each["port"] == "metrics")
    with agent(place / "agent", source=("--source", "sim:idle-allocated")) as target:
        target.settle()
        with prometheus(place / "prometheus", [configured(endpoint, target)]) as running:
            until(lambda: running.query('gpuwatch_gpu_workload_info{pod!=""}'), "a pod has a GPU")
            yield running


def test_every_series_has_its_node_and_the_job_that_queries_ask_for(scraped):
    (up,) = scraped.query('up{job!="prometheus"}')
    told = {key: value for key, value in up["metric"].items() if key != "__name__"}
    assert told == {"job": "gpuwatch", "node": NODE[1], "instance": NODE[1]}


def test_a_workloads_labels_stay_the_workloads(scraped):
    found = {each["metric"]["namespace"] for each in scraped.query('gpuwatch_gpu_workload_info{pod!=""}')}
    assert found
    assert "gpuwatch" not in found


def test_no_gpu_looks_as_if_gpuwatch_held_it(scraped):
    assert scraped.query("gpuwatch_gpu_utilization_ratio")
    assert scraped.query('{job="gpuwatch", pod=~"gpuwatch.*"}') == []
    assert scraped.query('{job="gpuwatch", namespace="gpuwatch"}') == []
    assert scraped.query('gpuwatch_gpu_utilization_ratio{container!=""}') == []


def collected(name):
    """The scrape jobs of an OpenTelemetry collector as a Prometheus would write them."""
    text = (DEPLOY / "opentelemetry" / name).read_text().replace("$$", "$")
    jobs = fast_yaml.load(text)["receivers"]["prometheus"]["config"]["scrape_configs"]
    for each in jobs:
        assert each.pop("scrape_protocols") == ["PrometheusText0.0.4"], "OpenMetrics loses the ending _info"
        cluster = {"target_label": "cluster", "replacement": "${env:CLUSTER_NAME:-}"}
        assert each["relabel_configs"].pop() == cluster, "both exporters need it"
    return jobs


def test_a_collector_scrapes_the_pods_and_ports_of_the_podmonitor(monitor):
    (pods,) = collected("kubernetes.yaml")
    ((selector,),) = (each["selectors"] for each in pods["kubernetes_sd_configs"])
    assert dict([selector["label"].split("=")]) == monitor["spec"]["selector"]["matchLabels"]
    kept, endpoints = pods["relabel_configs"][0], monitor["spec"]["podMetricsEndpoints"]
    assert kept["regex"].split("|") == [each["port"] for each in endpoints]
    assert {each["interval"] for each in endpoints} == {pods["scrape_interval"]}
    assert {each["honorLabels"] for each in endpoints} == {pods["honor_labels"]}


def test_a_collector_scrapes_machines_as_prometheus_does():
    example = fast_yaml.load((DEPLOY / "prometheus/scrape.example.yaml").read_text())
    assert collected("machines.yaml") == example["scrape_configs"]
