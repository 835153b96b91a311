"""What kustomize makes of `deploy/`: the base, components on top of it, overlays."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

import gpuwatch
from tests import fast_yaml
from tests.deploy.tools import kubectl

Manifest = dict[str, Any]

DEPLOY = Path(gpuwatch.__file__).parents[1] / "deploy"
OVERLAYS = ("demo", "gpu-operator", "gke", "eks", "migrate")
NEEDS: dict[str, tuple[str, ...]] = {
    "remediation": (),
    "remediation-enforce": ("remediation",),
    "remediation-drain": ("remediation", "remediation-enforce"),
    "remediation-devices": ("remediation", "remediation-enforce"),
    "klog": (),
    "processes": (),
    "tuner": (),
    "consents": (),
    "progress": ("consents",),
    "tuner-enforce": ("tuner", "consents"),
    "monitoring": (),
}
"""Every component -> those it builds on, in the order in which they are applied."""
COMPONENTS = tuple(NEEDS)


def with_needs(component: str) -> tuple[str, ...]:
    """A component after those it builds on."""
    return (*NEEDS[component], component)


def kustomization(place: Path, *components: str, on: str = "base", **more: Any) -> Path:
    """A folder as its user writes one: `on` with components, and `more` keys of a kustomization."""
    place.mkdir(parents=True, exist_ok=True)
    root = os.path.relpath(DEPLOY.resolve(), place.resolve())
    file = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [f"{root}/{on}"],
        "components": [f"{root}/components/{name}" for name in components],
        **more,
    }
    (place / "kustomization.yaml").write_text(yaml.safe_dump(file))
    return place


def built(folder: Path) -> list[Manifest]:
    """`kubectl kustomize`, which needs no server."""
    done = subprocess.run([kubectl(), "kustomize", folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not done.stderr, done.stderr  # deprecated fields are told here
    return list(fast_yaml.load_all(done.stdout))


def one(found: list[Manifest], kind: str, name: str = "gpuwatch") -> Manifest:
    """The only one of its kind and name."""
    (manifest,) = (each for each in found if (each["kind"], each["metadata"]["name"]) == (kind, name))
    return manifest


def pod(found: list[Manifest]) -> Manifest:
    """The pod of the DaemonSet: metadata and spec."""
    template: Manifest = one(found, "DaemonSet")["spec"]["template"]
    return template


def containers(found: list[Manifest]) -> Iterator[Manifest]:
    """Those of the pod."""
    yield from pod(found)["spec"]["containers"]
