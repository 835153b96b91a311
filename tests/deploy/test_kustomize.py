"""Base, components and overlays build, and are valid for every Kubernetes they are meant for."""

import copy
import os
import re

import pytest

from gpuwatch import PROJECT_URL, __version__
from tests import fast_yaml
from tests.deploy.rendering import COMPONENTS, DEPLOY, OVERLAYS, built, containers, kustomization, one, pod, with_needs
from tests.deploy.schemas import VERSIONS, complaints
from tests.seeds import a_third

PAGE = DEPLOY.parent / "docs/kubernetes.md"
CHOICES = [(), *(with_needs(name) for name in COMPONENTS), COMPONENTS]


def refusals(found):
    return [words for version in VERSIONS for each in found for words in complaints(each, version)]


@pytest.mark.parametrize("chosen", a_third(CHOICES), ids=lambda chosen: "+".join(chosen) or "base")
def test_components_are_valid(tmp_path, chosen):
    assert refusals(built(kustomization(tmp_path, *chosen))) == []


@pytest.mark.parametrize("overlay", a_third(OVERLAYS))
def test_an_overlay_is_valid_alone_and_with_everything(tmp_path, overlay):
    assert refusals(built(DEPLOY / "overlays" / overlay)) == []
    has = {"demo": ("remediation",), "migrate": with_needs("remediation-drain")}.get(overlay, ())
    more = [name for name in COMPONENTS if name not in has]
    assert refusals(built(kustomization(tmp_path, *more, on=f"overlays/{overlay}"))) == []


@pytest.mark.parametrize(
    ("kind", "path", "wrong"),
    a_third(
        [
            ("DaemonSet", ("spec", "template", "spec", "runtimeClass"), "nvidia"),
            ("DaemonSet", ("spec", "template", "spec", "hostPID"), "yes"),
            ("ConfigMap", ("data",), {"a": 1}),
            ("PodMonitor", ("spec", "podMetricsEndpoint"), []),
            ("PodMonitor", ("spec", "podMetricsEndpoints"), [{"port": "metrics", "interval": "15"}]),
            ("PrometheusRule", ("spec", "group"), []),
        ],
        3,
    ),
)
def test_a_typing_error_is_noticed(tmp_path, kind, path, wrong):
    found = built(kustomization(tmp_path, *COMPONENTS))
    (broken,) = (copy.deepcopy(each) for each in found if each["kind"] == kind and "panels" not in str(each))
    place = broken
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = wrong
    assert complaints(broken, VERSIONS[-1])


def test_all_objects_can_be_found_by_one_label_and_are_in_one_namespace(tmp_path):
    for each in built(kustomization(tmp_path, *COMPONENTS)):
        metadata = each["metadata"]
        assert metadata["labels"]["app.kubernetes.io/name"] == "gpuwatch", metadata["name"]
        assert metadata.get("namespace", "gpuwatch") == "gpuwatch"
        assert metadata["name"].startswith("gpuwatch")


def test_another_namespace_is_one_line(tmp_path):
    """kustomize follows the names of service accounts, and no admission policy names a namespace."""
    found = built(kustomization(tmp_path, *COMPONENTS, namespace="elsewhere"))
    for each in found:
        if "namespace" in each["metadata"]:
            assert each["metadata"]["namespace"] == "elsewhere", each["metadata"]["name"]
        for subject in each.get("subjects", ()):
            assert subject["namespace"] == "elsewhere"
    assert one(found, "Namespace", "elsewhere")
    policies = [each for each in found if each["kind"] == "ValidatingAdmissionPolicy"]
    assert policies
    assert not [each for each in policies if "serviceaccount:gpuwatch" in str(each)]


def test_a_shared_namespace_is_left_to_its_owner(tmp_path):
    """As the page says, word for word: an uninstall must not take it away."""
    block = re.search(r"```yaml\n(namespace: monitoring\n.*?)```", PAGE.read_text(), re.DOTALL)
    assert block
    found = built(kustomization(tmp_path, "remediation", **fast_yaml.load(block[1])))
    assert "Namespace" not in {each["kind"] for each in found}
    assert {each["metadata"].get("namespace", "monitoring") for each in found} == {"monitoring"}


def test_the_patch_for_the_nri_plugin_asks_for_the_agents_gpus_without_a_runtime_class(tmp_path):
    """As the page says, word for word."""
    block = re.search(r"```yaml\n(patches:\n(?:(?!```).)*?management\.nvidia.*?)```", PAGE.read_text(), re.DOTALL)
    assert block
    made = pod(built(kustomization(tmp_path, on="overlays/gpu-operator", **fast_yaml.load(block[1]))))
    assert "runtimeClassName" not in made["spec"]
    asked = {key: value for key, value in made["metadata"]["annotations"].items() if key.startswith("nvidia.cdi")}
    assert asked == {"nvidia.cdi.k8s.io/container.agent": "management.nvidia.com/gpu=all"}
    assert made["spec"]["containers"][0]["name"] == "agent"


def test_the_order_of_components_that_do_not_build_on_each_other_does_not_matter(tmp_path):
    def sorted_pod(*chosen):
        spec = pod(built(kustomization(tmp_path / "-".join(chosen), *chosen)))["spec"]
        return sorted(map(repr, spec["containers"])), sorted(map(repr, spec["volumes"]))

    assert sorted_pod("klog", "processes", "tuner") == sorted_pod("tuner", "processes", "klog")


def test_the_folder_that_the_page_advises_is_what_it_says(tmp_path):
    """With this checkout in place of its address, which needs a network."""
    block = re.search(r"```yaml\n# kustomization.yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert block
    root = os.path.relpath(DEPLOY.parent.resolve(), tmp_path.resolve())
    text = re.sub(rf"{re.escape(PROJECT_URL.partition('://')[2])}//(\S+)\?ref=\S+", rf"{root}/\1", block[1])
    assert f"ref=v{__version__}" in block[1]
    (tmp_path / "gpuwatch.yaml").write_text("agent: {interval: 1}\n")
    for more in ("", "namespace: elsewhere\n"):
        (tmp_path / "kustomization.yaml").write_text(text + more)
        found = built(tmp_path)
        assert one(found, "ConfigMap")["data"] == {"gpuwatch.yaml": "agent: {interval: 1}\n"}
        assert {container["name"] for container in containers(found)} == {"agent", "remediator"}
        assert refusals(found) == []
