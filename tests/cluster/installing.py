"""An administrator who installs and uninstalls with kubectl, on an API server without controllers."""

import json
from pathlib import Path
from typing import Any, Self

from tests.cluster.api import Api
from tests.cluster.controlplane import ControlPlane
from tests.cluster.manifests import POLICY, manifests, renamed
from tests.deploy.kubectl import Kubectl
from tests.deploy.rendering import DEPLOY, OVERLAYS, Manifest, built, kustomization, pod
from tests.deploy.schemas import CRDS
from tests.remediation.model.remediating import NAMESPACE
from tests.waiting import until

NVIDIA = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "nvidia"}, "handler": "nvidia"}


class Installing:
    """What it takes besides kubectl."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane, self.api = plane, Api(plane)
        self.kubectl = Kubectl(plane.kubeconfig())

    def prepare(self) -> Self:
        """The kinds of the Prometheus Operator, the runtime class of NVIDIA's toolkit, and policies for nobody.

        A kube-apiserver ends its watch of a kind when the last binding with such parameters is deleted, and begins no
        other one (test_reinstall.py). Those for nobody stay, so that every installation is like the first one.
        """
        for crd in CRDS.glob("*.yaml"):
            self.kubectl("apply", "-f", crd)
        self.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
        self.kubectl("apply", "-f", "-", stdin=json.dumps(NVIDIA))
        policies = [each for each in renamed(manifests(), "nobody") if each["kind"].startswith(POLICY)]
        self.kubectl("apply", "-f", "-", stdin="\n---\n".join(json.dumps(each) for each in policies))
        return self

    def folder(self, place: Path, *chosen: str, **more: Any) -> Path:
        """That of an overlay, or one with the base and components."""
        overlay = bool(chosen) and chosen[0] in OVERLAYS
        return DEPLOY / "overlays" / chosen[0] if overlay else kustomization(place, *chosen, **more)

    def uninstall(self, folder: Path) -> None:
        """As docs/kubernetes.md says; and what the controller of namespaces then does."""
        self.kubectl("delete", "-k", folder, "--wait=false", "--ignore-not-found")
        for manifest in built(folder):
            if manifest["kind"] == "Namespace":
                self.finalize(manifest["metadata"]["name"])

    def finalize(self, namespace: str) -> None:
        """Let a namespace go that is being deleted."""
        path = f"/api/v1/namespaces/{namespace}"
        status, body = self.api.request("GET", path)
        if status == 200:
            self.api.request("PUT", f"{path}/finalize", {**body, "spec": {"finalizers": []}})
        until(lambda: self.api.request("GET", path).status == 404, f"namespace {namespace} is gone")


def made_by_controller(folder: Path) -> str:
    """The pod that the controller of DaemonSets would make, as JSON."""
    template: Manifest = pod(built(folder))
    metadata = {**template["metadata"], "name": "gpuwatch-abcde", "namespace": NAMESPACE}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})
