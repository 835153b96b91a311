"""The pod fits itself: probes, ports, labels, volumes, and words that the real command line and configuration take."""

import re

import click
import pytest

from gpuwatch import IMAGE, __version__
from gpuwatch.config import parse
from gpuwatch.remediation.service.process import FINISH_SECONDS
from tests import fast_yaml
from tests.cli.processes import finish
from tests.deploy.commandline import commands, variables
from tests.deploy.rendering import COMPONENTS, DEPLOY, OVERLAYS, built, containers, kustomization, one, pod

PORTS = {"agent": ("metrics", 9400), "remediator": ("remediator", 9401), "tuner": ("tuner", 9402)}
PROBES = {"startupProbe": "/-/healthy", "readinessProbe": "/-/ready", "livenessProbe": "/-/healthy"}
READ_BY_CODE = {"NODE_NAME", "POD_NAME", "POD_NAMESPACE"}
READ_BY_RUNTIME = {"NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"}


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """All components on the base."""
    return built(kustomization(tmp_path_factory.mktemp("all"), *COMPONENTS))


@pytest.fixture(scope="module")
def every(everything):
    """All that, and each overlay."""
    return [everything, *(built(DEPLOY / "overlays" / name) for name in OVERLAYS)]


def test_every_container_runs_this_version(every):
    images = {container["image"] for found in every for container in containers(found)}
    assert images == {f"{IMAGE}:{__version__}"}


def test_who_serves_has_a_port_and_is_probed_there(everything):
    served = {}
    for container in containers(everything):
        for port in container.get("ports", []):
            served[container["name"]] = port["name"], port["containerPort"]
            for kind, path in PROBES.items():
                assert container[kind]["httpGet"] == {"path": path, "port": port["name"]}
    assert served == PORTS


def test_a_broken_driver_does_not_make_it_restart(everything):
    """Only the readiness depends on the driver: a startup or liveness probe that did would restart it for ever."""
    paths = {probe: path for probe, path in PROBES.items() if path == "/-/ready"}
    assert set(paths) == {"readinessProbe"}
    assert parse(configuration(everything), "ConfigMap").agent.wait_for_driver


def test_the_selector_finds_the_pod_and_the_monitor_finds_its_ports(every, everything):
    for found in every:
        wanted = one(found, "DaemonSet")["spec"]["selector"]["matchLabels"]
        assert wanted.items() <= pod(found)["metadata"]["labels"].items()
    monitor = one(everything, "PodMonitor")["spec"]
    assert monitor["selector"]["matchLabels"].items() <= pod(everything)["metadata"]["labels"].items()
    jobs = {
        (endpoint["port"], rule["replacement"])
        for endpoint in monitor["podMetricsEndpoints"]
        for rule in endpoint["relabelings"]
        if rule.get("targetLabel") == "job"
    }
    assert jobs == {("metrics", "gpuwatch"), ("remediator", "gpuwatch-remediator"), ("tuner", "gpuwatch-tuner")}


def test_the_monitor_names_the_node_and_not_gpuwatchs_own_pod(everything):
    for endpoint in one(everything, "PodMonitor")["spec"]["podMetricsEndpoints"]:
        rules = endpoint["relabelings"]
        assert endpoint["honorLabels"] is True
        assert {r["targetLabel"]: r.get("sourceLabels") for r in rules if r["action"] == "replace"} == {
            "node": ["__meta_kubernetes_pod_node_name"],
            "instance": ["__meta_kubernetes_pod_node_name"],
            "job": None,
        }
        (dropped,) = (re.compile(rule["regex"]) for rule in rules if rule["action"] == "labeldrop")
        assert {"namespace", "pod", "container", "endpoint"} == {
            name
            for name in ("namespace", "pod", "container", "endpoint", "job", "instance", "node", "pod_uid")
            if dropped.fullmatch(name)
        }


def test_every_volume_is_mounted_and_every_mount_has_its_volume(every):
    for found in every:
        mounted = {mount["name"] for container in containers(found) for mount in container["volumeMounts"]}
        assert mounted == {volume["name"] for volume in pod(found)["spec"]["volumes"]}


def test_memory_is_limited_and_cpu_is_not(every):
    for container in (each for found in every for each in containers(found)):
        assert set(container["resources"]["limits"]) == {"memory"}
        assert set(container["resources"]["requests"]) == {"cpu", "memory"}


def test_it_outlives_every_taint_and_every_drain(every):
    for spec in (pod(found)["spec"] for found in every):
        assert spec["tolerations"] == [{"operator": "Exists"}]
        assert spec["priorityClassName"] == "system-node-critical"


def test_it_has_the_time_to_finish_a_step(every):
    for spec in (pod(found)["spec"] for found in every):
        assert spec["terminationGracePeriodSeconds"] > FINISH_SECONDS


def test_the_command_line_takes_every_argument(every):
    for container in (each for found in every for each in containers(found)):
        _, command = commands(container["args"])
        told = next((name for name in ("guard", "consents") if command.params.get(name)), command.info_name)
        assert told == container["name"]
        assert "command" not in container


def test_a_wrong_argument_is_noticed():
    with pytest.raises(click.UsageError):
        commands(["--config=/etc/gpuwatch/gpuwatch.yaml", "agent", "--wait"])


def test_every_variable_is_read(every):
    for container in (each for found in every for each in containers(found)):
        known = variables(commands(container["args"])).keys() | READ_BY_CODE | READ_BY_RUNTIME
        assert {each["name"] for each in container["env"]} <= known


def test_the_command_line_takes_every_value_of_a_variable(every, monkeypatch):
    for container in (each for found in every for each in containers(found)):
        given = {each["name"]: each["value"] for each in container["env"] if "value" in each}
        with monkeypatch.context() as environment:
            for name, value in given.items():
                environment.setenv(name, value)
            taken = variables(commands(container["args"]))
        assert {name: str(taken[name]).lower() for name in given if name in taken} == {
            name: value.lower() for name, value in given.items() if name not in READ_BY_RUNTIME
        }


def test_a_command_in_the_pod_asks_its_agent(every, monkeypatch):
    """`kubectl exec` has the container's variables: a source among them would be read in the agent's place."""
    for agent in (next(containers(found)) for found in every):
        with monkeypatch.context() as inside:
            for each in agent["env"]:
                inside.setenv(each["name"], each.get("value", ""))
            assert variables(commands(["status"]))["GPUWATCH_SOURCE"] is None


def configuration(found):
    """The ConfigMap's file, decoded."""
    (text,) = one(found, "ConfigMap")["data"].values()
    return fast_yaml.load(text)


def test_the_configuration_is_good(every, tmp_path):
    for found in every:
        (file, text), *others = one(found, "ConfigMap")["data"].items()
        assert not others
        assert all(f"--config=/etc/gpuwatch/{file}" in container["args"] for container in containers(found))
        (tmp_path / file).write_text(text)
        checked = finish("config", "check", str(tmp_path / file))
        assert checked.returncode == 0, checked.stderr
