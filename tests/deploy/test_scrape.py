"""The PodMonitor in a real Prometheus: whose labels a series ends up with."""

import pytest

from tests.deploy.rendering import built, kustomization, one
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
def scraped(tmp_path_factory):
    place = tmp_path_factory.mktemp("scrape")
    monitor = one(built(kustomization(place / "kustomization", "monitoring")), "PodMonitor")
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
