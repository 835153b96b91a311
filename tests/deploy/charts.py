"""What Helm makes of the chart: objects, notes, or a refusal."""

import atexit
import copy
import json
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from deploy.helm.generate import CHART
from tests import fast_yaml
from tests.deploy.rendering import Manifest
from tests.deploy.tools import helm

CASES = tuple(sorted(path.name.removesuffix("-values.yaml") for path in (CHART / "ci").glob("*-values.yaml")))
"""Names of the files in `ci/`: what people set, and what chart-testing installs."""

LOADER: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Dashboards are long, and the one in C is seven times as quick."""

VERSION = "1.35"
OPERATOR = ("monitoring.coreos.com/v1/PodMonitor", "monitoring.coreos.com/v1/PrometheusRule")
HELMS_OWN = ("helm.sh/chart", "app.kubernetes.io/managed-by", "app.kubernetes.io/version", "app.kubernetes.io/instance")


class HelmRun(NamedTuple):
    """What a run of Helm printed."""

    code: int
    out: str
    error: str


def run(*arguments: str | Path, values: Manifest | None = None) -> HelmRun:
    """Helm with arguments, and values if there are any."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        json.dump(values or {}, file)
        file.flush()
        command = [helm(), *arguments, *(("--values", file.name) if values is not None else ())]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    return HelmRun(done.returncode, done.stdout, done.stderr)


def case(name: str) -> Manifest:
    """The values of a file in `ci/`."""
    values: Manifest = fast_yaml.load((CHART / f"ci/{name}-values.yaml").read_text())
    return values


def rendered(
    values: Manifest | None = None, release: str = "gpuwatch", namespace: str = "gpuwatch", version: str = VERSION
) -> list[Manifest]:
    """Every object, those of `helm test` among them."""
    return copy.deepcopy(_rendered(json.dumps(values or {}), release, namespace, version))


@cache
def _rendered(values: str, release: str, namespace: str, version: str) -> list[Manifest]:
    arguments = ("template", release, CHART, "--namespace", namespace, "--kube-version", version)
    said = run(*arguments, values=json.loads(values))
    assert said.code == 0, said.error
    return [each for each in yaml.load_all(said.out, Loader=LOADER) if each]


def refusal(values: Manifest, version: str = VERSION) -> str:
    """Why these values are refused."""
    said = run("template", "gpuwatch", CHART, "--kube-version", version, values=values)
    assert said.code == 1, said.out
    return said.error


def notes(values: Manifest, version: str = VERSION, operator: bool = False) -> str:
    """What a person reads after an install into a cluster that Helm cannot ask.

    `helm template` prints no notes and `helm install --dry-run` takes no version, so a copy of the chart prints them.
    """
    kinds = ("--api-versions", ",".join(OPERATOR)) if operator else ()
    arguments = ("template", "gpuwatch", telling(), "--namespace", "gpuwatch", "--kube-version", version)
    said = run(*arguments, "--show-only", "templates/said.yaml", *kinds, values=values)
    assert said.code == 0, said.error
    text: str = fast_yaml.load(said.out)["said"]
    return text


@cache
def telling() -> Path:
    """The chart, and an object in it that is its notes."""
    place = Path(tempfile.mkdtemp(prefix="gpuwatch-chart-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    shutil.copytree(CHART, place, dirs_exist_ok=True)
    (place / "templates/NOTES.txt").rename(place / "NOTES.txt")
    (place / "templates/said.yaml").write_text('said: {{ tpl (.Files.Get "NOTES.txt") . | toJson }}\n')
    return place


def warnings(text: str) -> list[str]:
    """Those in notes."""
    return [line.removeprefix("WARNING: ") for line in text.splitlines() if line.startswith("WARNING: ")]


def is_test(manifest: Manifest) -> bool:
    """Whether it belongs to `helm test`."""
    return "helm.sh/hook" in manifest["metadata"].get("annotations", {})


def at(values: Any, path: str) -> Any:
    """What is at `a.b.c`."""
    for key in path.split("."):
        values = values[key]
    return values


def setting(path: str, value: Any) -> Manifest:
    """Values with one of them set, as `--set-json a.b.c=value`."""
    for key in reversed(path.split(".")):
        value = {key: value}
    found: Manifest = value
    return found
