"""Helm 3, which many still have, makes the same of the chart as Helm 4, and refuses the same."""

import json
import subprocess

import pytest

from deploy.helm.generate import CHART
from tests.deploy.charts import CASES, VERSION, case, run, setting
from tests.deploy.tools import helm3
from tests.seeds import a_third

ARGUMENTS = ("gpuwatch", CHART, "--namespace", "gpuwatch", "--kube-version", VERSION)


def run3(tmp_path, values):
    file = tmp_path / "values.yaml"
    file.write_text(json.dumps(values))
    command = [helm3(), "template", *ARGUMENTS, "--values", file]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_it_is_helm_3():
    assert subprocess.run([helm3(), "version", "--short"], capture_output=True, text=True).stdout.startswith("v3.")


@pytest.mark.parametrize("name", a_third(CASES))
def test_it_makes_the_same(tmp_path, name):
    assert run3(tmp_path, case(name)).stdout == run("template", *ARGUMENTS, values=case(name)).out


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("image.name", "gpuwatch", "- image: Additional property name is not allowed"),
        ("remediation.mode", "on", "- remediation.mode: remediation.mode must be one of"),
        ("config.agent.intervall", 2, "- config.agent: Additional property intervall is not allowed"),
        ("config.remediation.checks", {"gpu_lost": "tint"}, "- config.remediation.checks.gpu_lost: "),
        ("config.state_dir", "/data", "config.state_dir is set: "),
    ],
)
def test_it_refuses_the_same(tmp_path, path, value, words):
    done = run3(tmp_path, setting(path, value))
    assert done.returncode == 1
    assert words in done.stderr
