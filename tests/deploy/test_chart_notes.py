"""What Helm prints after an install: where to look, and a warning for what is allowed but hardly meant."""

import pytest

from gpuwatch.model.consent import AUTOTUNE, CLASS
from tests.deploy.charts import CASES, case, notes, warnings

ENFORCE = {"mode": "enforce"}
KEY = {"key": "nvidia.com/gpu", "operator": "Exists"}
OWN = {"key": "gpuwatch.io/gpu-fault", "operator": "Exists"}

WARNED = [
    ({"runtimeClassName": ""}, "runtimeClassName is empty"),
    ({"nvidia": {"visibleDevices": ""}}, "nvidia.visibleDevices is empty"),
    ({"hostPaths": {"kubelet": ""}}, "hostPaths.kubelet is empty"),
    ({"config": {"agent": {"wait_for_driver": False}}}, "config.agent.wait_for_driver is off"),
    ({"config": {"agent": None}}, "config.agent.wait_for_driver is off"),
    ({"config": {"metrics": {"node_labels": ["zone"]}}}, "set consents.enabled=true"),
    ({"config": {"metrics": {"processes": True}}}, "config.metrics.processes is set without processes.enabled"),
    ({"remediation": {"mode": "observe"}, "tolerations": [KEY]}, "tolerations do not tolerate gpuwatch.io/gpu-fault"),
    ({"remediation": {"mode": "observe"}, "tolerations": []}, "tolerations do not tolerate gpuwatch.io/gpu-fault"),
    (
        {"remediation": {"mode": "observe"}, "tolerations": [{**OWN, "effect": "NoExecute"}]},
        "tolerations do not tolerate gpuwatch.io/gpu-fault",
    ),
    (
        {"remediation": ENFORCE, "config": {"remediation": {"checks": {"gpu_lost": "drain"}, "xids": {"79": "drain"}}}},
        "the policy says drain for gpu_lost, 79, and the remediator has no right to",
    ),
    (
        {"remediation": ENFORCE, "config": {"remediation": {"restart_plugin": "gpu-operator/plugin"}}},
        "the policy says drain for restart_plugin, and the remediator has no right to",
    ),
    (
        {"remediation": {**ENFORCE, "drain": True}},
        "remediation.drain gives the right to evict the GPU pods of the own node",
    ),
    ({"podMonitor": {"enabled": True}}, "the cluster knows no PodMonitor"),
    ({"prometheusRule": {"enabled": True}, "podMonitor": {"enabled": True}}, "the cluster knows no PrometheusRule"),
]
"""Values and how the warning begins."""

CONTENT = [
    {"remediation": {"mode": "observe"}, "tolerations": [OWN]},
    {"remediation": {"mode": "observe"}, "tolerations": [{**OWN, "effect": "NoSchedule"}]},
    {"tolerations": [KEY]},
    {"source": "sim", "runtimeClassName": "", "hostPaths": {"kubelet": ""}},
    {"config": {"metrics": {"processes": True}}, "processes": {"enabled": True}},
    {"config": {"metrics": {"pod_labels": ["team"]}}, "consents": {"enabled": True}},
    {"config": {"metrics": {"pod_labels": ["team"]}}, "tuner": {"mode": "enforce"}},
    {"remediation": {**ENFORCE, "drain": True}, "config": {"remediation": {"xids": {"79": "drain"}}}},
]


def label(values):
    return str(values).replace("'", "")[:60]


@pytest.mark.parametrize(("values", "words"), WARNED, ids=[label(values) for values, _ in WARNED])
def test_a_warning(values, words):
    assert any(words in each for each in warnings(notes(values)))


@pytest.mark.parametrize("values", CONTENT, ids=label)
def test_no_warning(values):
    assert warnings(notes(values)) == []


def test_every_warning_says_what_to_do():
    """After what is wrong, and why that matters."""
    for values, words in WARNED:
        (told, *_) = [each for each in warnings(notes(values)) if words in each]
        assert len(told.split("; ")) == 2, told


def test_alerts_without_the_chart_s_scrape_are_warned_of():
    told = warnings(notes({"prometheusRule": {"enabled": True}}, operator=True))
    assert [each.split(":")[0] for each in told] == ["prometheusRule.enabled is set without podMonitor.enabled"]


def test_enforce_without_a_guard_is_warned_of():
    told = warnings(notes({"remediation": {**ENFORCE, "acceptUnguarded": True}}, version="1.29"))
    assert [each.split(" cannot")[0] for each in told] == ["Kubernetes v1.29"]


@pytest.mark.parametrize("name", CASES)
def test_they_read_well(name):
    """No empty value, no missing key, no line that a template left behind."""
    text = notes(case(name), operator=True)
    assert "<no value>" not in text
    assert "\n\n\n" not in text
    assert "-n gpuwatch exec ds/" in text


HAS_GPU = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "example.com/gpu", "operator": "Exists"}]}]}
REQUIRED = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": HAS_GPU}}
ANYWHERE = {"nvidia.com/gpu.present": None}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "every node with nvidia.com/gpu.present=true."),
        ({"nodeSelector": ANYWHERE}, "every node, with or without a GPU."),
        ({"source": "sim"}, "every node, with or without a GPU."),
        ({"nodeSelector": ANYWHERE, "affinity": REQUIRED}, "every node with what affinity.nodeAffinity requires."),
        ({"affinity": REQUIRED}, "nvidia.com/gpu.present=true and what affinity.nodeAffinity requires."),
        ({"nodeSelector": ANYWHERE, "affinity": {"podAffinity": {}}}, "every node, with or without a GPU."),
    ],
    ids=["selector", "none", "simulated", "affinity", "both", "other affinity"],
)
def test_they_say_which_nodes_get_a_pod(values, words):
    """As the DaemonSet has it: a simulated node may be anywhere, an affinity selects nodes as a selector does."""
    assert words in notes(values)


def test_they_say_how_to_agree_and_how_to_stop_only_where_something_is_tuned():
    told = notes({"tuner": {"mode": "enforce"}})
    assert f"{AUTOTUNE}=enforce {CLASS}=batch" in told
    assert f"{AUTOTUNE}=off" in told
    assert AUTOTUNE not in notes({"tuner": {"mode": "observe"}})


def test_they_say_how_to_release_nodes_only_where_nodes_are_taken():
    assert "gpuwatch node release --forget" in notes({"remediation": ENFORCE})
    assert "gpuwatch node release" not in notes({"remediation": {"mode": "observe"}})
