"""A real OpenTelemetry collector runs what is offered for it: every series arrives as in a scrape by Prometheus."""

import contextlib
import subprocess

import pytest

from tests import fast_yaml
from tests.e2e.otelcol import CONFIGURATIONS, collector, otelcol, otlp_server
from tests.e2e.processes import agent, prometheus, series
from tests.waiting import until

pytestmark = (
    pytest.mark.slow
)  # it has to be built; quick: test_remote_write.py sends, tests/deploy/test_scrape.py scrapes

FILES = sorted(CONFIGURATIONS.glob("*.yaml"))
MACHINE = "gpu-1"
META = {
    "__meta_kubernetes_pod_container_port_name": "metrics",
    "__meta_kubernetes_pod_phase": "Running",
    "__meta_kubernetes_pod_node_name": MACHINE,
}
TARGET = {"cluster": "gpu-east", "node": MACHINE}
IDENTITY = {"job": "gpuwatch", "instance": MACHINE}
MADE = {"up", "scrape_duration_seconds", "scrape_samples_scraped", "scrape_samples_post_metric_relabeling"}
MADE |= {"scrape_series_added"}


def pointed(file, target):
    """The configuration, its only target an agent: what Kubernetes would say of its pod is said at once."""
    config = fast_yaml.load(file.read_text())
    scrapes = config["receivers"]["prometheus"]["config"]["scrape_configs"]
    job = scrapes[0]
    if job.pop("kubernetes_sd_configs", None):
        job["static_configs"] = [{"targets": [target], "labels": META}]
    else:
        job["static_configs"] = [{"targets": [MACHINE]}]
        (address,) = (rule for rule in job["relabel_configs"] if rule["target_label"] == "__address__")
        address["replacement"] = target
    scrapes[:] = [job]
    return config


@contextlib.contextmanager
def collecting(place, file):
    """(agent, Prometheus that gets remote writes, OTLP server)"""
    program = otelcol()
    with (
        agent(place / "agent", source=("--source", "sim:idle-allocated")) as node,
        prometheus(place / "receiver", [], ["--web.enable-remote-write-receiver"]) as receiver,
        otlp_server() as (otlp, points),
    ):
        node.settle()
        config = pointed(file, node.url.removeprefix("http://"))
        with collector(program, place, config, receiver.url, otlp, {"CLUSTER_NAME": "gpu-east"}):
            until(lambda: receiver.query('gpuwatch_gpu_workload_info{pod!=""}'), "a pod's series has arrived")
            yield node, receiver, points


@pytest.fixture(scope="module", params=FILES, ids=lambda file: file.stem)
def sent(request, tmp_path_factory):
    with collecting(tmp_path_factory.mktemp("collector"), request.param) as found:
        yield found


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_collector_takes_the_file_as_it_is(file):
    done = subprocess.run([otelcol(), "validate", "--config", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_remote_write_brings_what_a_scrape_would_have(sent):
    node, receiver, _ = sent
    target = (TARGET | IDENTITY).items()

    def is_same():
        served = {(name, labels.union(target)) for name, labels in series(node.page())}
        found = [dict(row["metric"]) for row in receiver.query('{job="gpuwatch"}')]
        there = {(row.pop("__name__"), frozenset(row.items())) for row in found}
        return served == {each for each in there if each[0] not in MADE}

    until(is_same, "the same series")
    assert receiver.query("target_info") == []


def test_otlp_brings_the_same_names_and_labels(sent):
    node, _, points = sent
    served = {(name, labels.union(TARGET.items())) for name, labels in series(node.page())}
    until(lambda: served - points.points == set(), "every series by OTLP")
    assert {("service.name", "gpuwatch"), ("service.instance.id", MACHINE)} <= set.union(*map(set, points.resources))
    assert "gpuwatch_gpu_energy_joules_total" in points.monotonic


def test_the_series_of_an_agent_that_is_gone_end_at_once(tmp_path):
    """By the mark of staleness; without it Prometheus would answer with the last values for five minutes."""
    with collecting(tmp_path, FILES[0]) as (node, receiver, _):
        node.process.terminate()
        until(lambda: receiver.value('up{job="gpuwatch"}') == 0, "the target is down")
        until(lambda: receiver.query("gpuwatch_gpu_info") == [], "its series have ended")
