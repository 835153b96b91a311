"""Who installs with Helm gets what kustomize makes, object by object; Helm's labels and orders apart."""

import copy
import json

import pytest
import yaml

from gpuwatch.config import parse
from gpuwatch.config.yaml import decode
from tests.deploy.charts import HELMS_OWN, case, is_test, rendered
from tests.deploy.rendering import COMPONENTS, DEPLOY, OVERLAYS, built, kustomization
from tests.seeds import a_third

MONITORING = {"podMonitor": {"enabled": True}, "prometheusRule": {"enabled": True}, "dashboards": {"enabled": True}}

SAME = {
    (): {},
    ("remediation",): case("observe"),
    ("remediation", "remediation-enforce"): {"remediation": {"mode": "enforce"}},
    ("remediation", "remediation-enforce", "remediation-drain"): {"remediation": {"mode": "enforce", "drain": True}},
    ("remediation", "remediation-enforce", "remediation-devices"): {
        "remediation": {"mode": "enforce", "devices": True}
    },
    ("klog",): {"klog": {"enabled": True}},
    ("processes",): {"processes": {"enabled": True}},
    ("tuner",): {"tuner": {"mode": "observe"}},
    ("consents",): {"consents": {"enabled": True}},
    ("remediation", "consents"): {**case("observe"), "consents": {"enabled": True}},
    ("consents", "progress"): {"progress": {"enabled": True}},
    ("tuner", "consents", "tuner-enforce"): {"tuner": {"mode": "enforce"}},
    ("remediation", "tuner", "consents", "tuner-enforce"): {**case("observe"), "tuner": {"mode": "enforce"}},
    ("monitoring",): MONITORING,
    COMPONENTS: {key: value for key, value in case("everything").items() if key != "networkPolicy"},
}
"""Components of kustomize, in their order, and the values that mean the same."""

UNORDERED = {"containers": "name", "env": "name", "volumes": "name", "volumeMounts": "mountPath", "ports": "name"}
"""Lists whose order means nothing, and what tells their items apart."""


def normal(manifest):
    """Without what only Helm says, and with an order where there is none."""
    copied = copy.deepcopy(manifest)
    for labels in labelled(copied):
        for key in HELMS_OWN:
            labels.pop(key, None)
    for policy in copied["spec"].get("matchConditions", ()) if copied["kind"].endswith("Policy") else ():
        policy["expression"] = policy["expression"].replace(*EXACTLY)
    if "gpuwatch.yaml" in copied.get("data", {}):
        copied["data"]["gpuwatch.yaml"] = repr(parse(decode(copied["data"]["gpuwatch.yaml"]), "ConfigMap"))
    return ordered(copied)


EXACTLY = (
    " == 'system:serviceaccount:gpuwatch:gpuwatch-remediator'",
    ".matches('^system:serviceaccount:[^:]+:gpuwatch-remediator$')",
)
"""The chart knows its namespace; kustomize's file has to hold for any."""


def labelled(value):
    """Every mapping of labels."""
    if isinstance(value, dict):
        for key, inside in value.items():
            if key in ("labels", "matchLabels") and isinstance(inside, dict):
                yield inside
            else:
                yield from labelled(inside)
    if isinstance(value, list):
        for each in value:
            yield from labelled(each)


def ordered(value, key=None):
    """Without the order of lists that have none, and without Helm's pull policy, which is Kubernetes' default."""
    if isinstance(value, dict):
        return {name: ordered(each, name) for name, each in value.items() if (name, each) != PULLED}
    if isinstance(value, list):
        items = [ordered(each) for each in value]
        return sorted(items, key=lambda each: each[UNORDERED[key]]) if key in UNORDERED else items
    return " ".join(value.split()) if key == "expression" else value  # kustomize folds lines in its own way


PULLED = ("imagePullPolicy", "IfNotPresent")


def by_name(found):
    """Kind, namespace and name -> object."""
    return {(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]): normal(each) for each in found}


def of_the_chart(values):
    return by_name(each for each in rendered(values) if not is_test(each))


def of_kustomize(found):
    """But for the namespace: Helm's is there before, or made by --create-namespace."""
    return by_name(each for each in found if each["kind"] != "Namespace")


def assert_same(chart, kustomize):
    assert chart.keys() == kustomize.keys()
    for name, manifest in kustomize.items():
        assert yaml.safe_dump(chart[name]) == yaml.safe_dump(manifest), name  # pytest compares line by line


@pytest.mark.parametrize("components", a_third(SAME), ids=lambda components: "+".join(components) or "base")
def test_components(tmp_path, components):
    assert_same(of_the_chart(SAME[components]), of_kustomize(built(kustomization(tmp_path, *components))))


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_overlays(overlay):
    """Each has a file of values of the same name."""
    assert_same(of_the_chart(case(overlay)), of_kustomize(built(DEPLOY / "overlays" / overlay)))


def test_every_component_is_compared():
    assert {name for components in SAME for name in components} == set(COMPONENTS)


def test_a_difference_is_noticed():
    chart = of_the_chart({})
    other = of_the_chart({"klog": {"enabled": True}})
    changed = [name for name in chart if chart[name] != other[name]]
    assert [kind for kind, _, _ in changed] == ["DaemonSet"]
    assert "SYSLOG" in json.dumps(other[changed[0]])
