"""The example of a weekly report: valid, without rights, and its shell gives the real command line what it takes."""

import subprocess

import pytest

from gpuwatch import IMAGE, __version__
from gpuwatch.config import parse
from tests import fast_yaml
from tests.deploy.commandline import commands
from tests.deploy.rendering import DEPLOY, built, one
from tests.deploy.schemas import VERSIONS, complaints

FOLDER = DEPLOY / "examples/weekly-report"
NAME = "gpuwatch-weekly-report"
KINDS = {"ConfigMap", "CronJob", "PersistentVolumeClaim", "ServiceAccount"}


@pytest.fixture(scope="module")
def found():
    return built(FOLDER)


@pytest.fixture(scope="module")
def spec(found):
    """Of the CronJob's pods."""
    return one(found, "CronJob", NAME)["spec"]["jobTemplate"]["spec"]["template"]["spec"]


@pytest.fixture(scope="module")
def reader():
    return fast_yaml.load((FOLDER / "reader.yaml").read_text())


@pytest.fixture
def arguments(spec, tmp_path):
    """What gpuwatch is told on a Monday, by the container's own command."""
    (container,) = spec["containers"]
    program = tmp_path / "gpuwatch"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    variables = {each["name"]: each["value"] for each in container["env"]} | {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    command = [*container["command"], *container["args"]]
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=True).stdout.splitlines()


def test_every_api_server_takes_it(found, reader):
    assert [words for version in VERSIONS for each in (*found, reader) for words in complaints(each, version)] == []


def test_it_makes_nothing_but_the_report(found):
    assert {each["kind"] for each in found} == KINDS
    assert {each["metadata"]["namespace"] for each in found} == {"gpuwatch"}


def test_it_has_no_rights_and_no_token(found, spec, reader):
    assert one(found, "ServiceAccount", NAME)["automountServiceAccountToken"] is False
    for each in (spec, reader["spec"]):
        assert each["serviceAccountName"] == NAME
        assert each["automountServiceAccountToken"] is False
        assert each["securityContext"]["runAsNonRoot"] is True
        (container,) = each["containers"]
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert not any(name.startswith("nvidia.com/") for name in container["resources"]["limits"])


def test_it_runs_this_version(spec, reader):
    for each in (spec, reader["spec"]):
        assert [container["image"] for container in each["containers"]] == [f"{IMAGE}:{__version__}"]


def test_the_command_line_takes_what_the_shell_gives(arguments):
    outer, command = commands(arguments)
    assert command.info_name == "recommend"
    assert command.params["from_prometheus"].startswith("http://")
    assert command.params["output_dir"].startswith("/reports/2")
    assert str(outer.params["config_file"]) == "/etc/gpuwatch/gpuwatch.yaml"


def test_an_option_that_is_none_is_noticed(arguments):
    with pytest.raises(Exception, match="No such option"):
        commands([*arguments, "--weekly"])


def test_the_configuration_is_one_and_the_pod_has_it(found, spec):
    (config,) = (each for each in found if each["kind"] == "ConfigMap")
    assert parse(fast_yaml.load(config["data"]["gpuwatch.yaml"]), "gpuwatch.yaml").rightsizing.currency == "USD"
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    assert volumes["config"]["configMap"]["name"] == config["metadata"]["name"]
    (container,) = spec["containers"]
    assert {mount["name"] for mount in container["volumeMounts"]} == set(volumes)


def test_what_it_writes_is_in_the_volume_and_the_reader_sees_it(found, spec, reader, arguments):
    (container,) = spec["containers"]
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
    assert list(mounted) == ["reports"]
    _, command = commands(arguments)
    assert command.params["output_dir"].startswith(f"{mounted['reports']}/")
    claims = {
        volume["persistentVolumeClaim"]["claimName"] for volume in (spec["volumes"][1], *reader["spec"]["volumes"])
    }
    assert claims == {one(found, "PersistentVolumeClaim", NAME)["metadata"]["name"]}
