"""What the chart starts, started: the variables only it sets, the pod of `helm test`, and the chart as a package."""

import subprocess
import sys

import pytest

from deploy.helm.generate import CHART
from tests import fast_yaml
from tests.deploy.charts import VERSION, case, is_test, rendered, run
from tests.deploy.commandline import commands, variables
from tests.deploy.rendering import containers
from tests.e2e.processes import agent, fetch
from tests.waiting import until

FROM_ELSEWHERE = {"NODE_NAME", "POD_NAME", "POD_NAMESPACE", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"}


@pytest.mark.parametrize("name", ["tls", "demo", "everything"])
def test_every_variable_belongs_to_the_command_of_its_container(name):
    for container in containers(rendered({**case(name), "tuner": {"mode": "observe"}})):
        known = variables(commands(container["args"])).keys() | FROM_ELSEWHERE
        assert {each["name"] for each in container["env"]} <= known, container["name"]


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    """An agent such as the chart starts, but for the GPUs."""
    with agent(tmp_path_factory.mktemp("agent"), source=("--source", "sim")) as started:
        until(lambda: fetch(f"{started.url}/-/ready"), "the agent is ready")
        yield started


def helm_test(url):
    """The command of the test pod, which meets the Service under its name."""
    found = rendered()
    (service,) = (each for each in found if each["kind"] == "Service")
    (spec,) = (each["spec"] for each in found if is_test(each) and each["kind"] == "Pod")
    (port,) = (each["port"] for each in service["spec"]["ports"])
    there = f"http://{service['metadata']['name']}.{service['metadata']['namespace']}.svc:{port}"
    arguments = [each.replace(there, url) for each in spec["containers"][0]["args"]]
    assert any(url in each for each in arguments)
    command = [sys.executable, "-m", "gpuwatch", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_the_test_pod_shows_metrics_of_the_gpus_and_succeeds(started):
    done = helm_test(started.url)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\ngpuwatch_gpu_info{") == 8


def test_the_test_pod_fails_where_no_agent_answers():
    assert helm_test("http://127.0.0.1:9").returncode != 0


def test_a_package_makes_the_same(tmp_path):
    """What a chart repository serves: nothing that the templates read is left out of it."""
    said = run("package", CHART, "--destination", str(tmp_path))
    assert said.code == 0, said.error
    (package,) = tmp_path.glob("gpuwatch-*.tgz")
    arguments = ("gpuwatch", package, "--namespace", "gpuwatch", "--kube-version", VERSION)
    said = run("template", *arguments, values=case("everything"))
    assert said.code == 0, said.error
    assert [each for each in fast_yaml.load_all(said.out) if each] == rendered(case("everything"))
