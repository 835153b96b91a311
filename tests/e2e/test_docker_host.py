"""A Docker host without Kubernetes: agent, Prometheus and the dashboards' own queries name its containers."""

import json
from collections import Counter

import pytest

from gpuwatch.sim.node.scenario import load
from tests.dashboards.boards import all_targets
from tests.e2e.processes import agent, fetch, job, prometheus
from tests.promql import filled
from tests.waiting import until

WORKLOADS = load("docker").workloads
NAMED = {(gpu, work.docker) for work in WORKLOADS if work.docker for gpu in work.gpus}
ALONE = {gpu for gpu, count in Counter(gpu for work in WORKLOADS for gpu in work.gpus).items() if count == 1}
"""GPUs of one workload; the other has a container that Docker does not know, too."""

VARIABLES = ("cluster", "node", "gpu", "kind", "namespace", "workload")
EVERYTHING = {**dict.fromkeys(VARIABLES, ".*"), "1": "$1"}  # $1: of label_replace


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    """(agent, Prometheus that has scraped it)."""
    place, config = tmp_path_factory.mktemp("docker"), {"agent": {"interval": 0.5}, "metrics": {"processes": True}}
    with (
        agent(place / "agent", source=("--source", "sim:docker"), config=config) as found,
        prometheus(place / "prometheus", [job("gpuwatch", found.settle())]) as database,
    ):
        until(lambda: database.query('gpuwatch_workload_info{kind="container", image!=""}'), "containers with an image")
        yield found, database


def test_the_join_of_metrics_has_name_image_and_compose_service(host):
    rows = [row["metric"] for row in host[1].query('gpuwatch_workload_info{kind="container", image!=""}')]
    labels = ("name", "image", "compose_project", "compose_service")
    assert {(int(row["gpu"]), *(row.get(label) for label in labels)) for row in rows} == {
        (gpu, known.name, known.image, known.project, known.service) for gpu, known in NAMED
    }


def test_the_gpus_of_the_node_s_dashboard_name_what_uses_them(host):
    expected = {gpu: known.name if gpu in ALONE else "several" for gpu, known in NAMED}
    (target,) = (each for each in all_targets() if each.panel.title == "GPUs" and "gpuwatch_workload_info" in each.expr)
    rows = host[1].query(filled(target.expr, EVERYTHING))
    assert {int(row["metric"]["gpu"]): row["metric"]["pod"] for row in rows} == expected


def test_the_processes_of_the_node_s_dashboard_have_their_container(host):
    (target,) = (each for each in all_targets() if "gpuwatch_process_info" in each.expr)
    rows = [row["metric"] for row in host[1].query(filled(target.expr, EVERYTHING))]
    assert {(int(row["gpu"]), row["container"]) for row in rows if row.get("container")} == {
        (gpu, known.name) for gpu, known in NAMED
    }


def test_no_secret_of_docker_s_files_leaves_the_agent(host):
    """They have the container's environment, of which nothing is kept."""
    found = host[0]
    files = [file.read_text() for file in found.directory.glob("var/lib/docker/containers/*/config.v2.json")]
    secret = json.loads(files[0])["Config"]["Env"][0].partition("=")[2]
    assert secret
    assert not any(secret.encode() in (fetch(f"{found.url}{path}") or b"") for path in ("/metrics", "/api/v1/view"))
