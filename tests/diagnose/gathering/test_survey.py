"""What a diagnosis asks the API server for: pods that matter to GPUs, RuntimeClasses, the GPU operator's state."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.diagnose.gathering import survey
from gpuwatch.diagnose.gathering.survey import SurveyReader
from gpuwatch.kube.errors import ApiCall, Garbled, NotFound
from tests.kube.kube_server import NODE, served

CALL = ApiCall("list", "things")
UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
PLUGIN = "nvidia-device-plugin-daemonset"


def body(*items):
    return json.dumps({"items": list(items)}).encode()


def pod(name, app=None, gpus=0, env=(), status=None):
    resources = {"limits": {"nvidia.com/gpu": gpus}} if gpus else {}
    return {
        "metadata": {
            "name": name,
            "namespace": "ml",
            "uid": name,
            "labels": {"app": app, "secret-team": "x"} if app else {},
            "annotations": {"password": "planted", "dynamo.nvidia.com/gpu-power-limit": "400"},
        },
        "spec": {"containers": [{"env": list(env), "resources": resources}]},
        "status": status or {},
    }


def variable(name, value):
    return {"name": name, "value": value}


def test_only_pods_that_have_or_give_gpus_are_kept_and_nothing_private_of_them():
    env = [
        variable("DP_DISABLE_HEALTHCHECKS", "all"), variable("MIG_STRATEGY", "single"), variable("TOKEN", "planted"),
        {"name": "DP_FROM", "valueFrom": {"fieldRef": {}}},
    ]  # fmt: skip
    found = survey.gpu_pods(CALL, body(pod("web"), pod("train", gpus=2, env=env), pod("plugin", app=PLUGIN, env=env)))
    assert [(each.name, each.gpus, each.app) for each in found] == [("train", 2, None), ("plugin", 0, PLUGIN)]
    assert found[0].annotations == {"dynamo.nvidia.com/gpu-power-limit": "400"}  # what check P02 looks for
    assert found[0].environment == {}
    assert found[1].environment == {"DP_DISABLE_HEALTHCHECKS": "all", "MIG_STRATEGY": "single"}
    assert "planted" not in str(found)
    assert "secret-team" not in str(found)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({}, (None, None, 0)),
        ({"conditions": [{"type": "Ready", "status": "True"}]}, (True, None, 0)),
        (
            {
                "conditions": [{"type": "Ready", "status": "False"}],
                "containerStatuses": [
                    {"restartCount": 7, "state": {"waiting": {"reason": "CrashLoopBackOff"}}},
                    {"restartCount": 2, "state": {"running": {}}},
                ],
            },
            (False, "CrashLoopBackOff", 9),
        ),
        ({"initContainerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull"}}}]}, (None, "ErrImagePull", 0)),
        ({"conditions": [UNSCHEDULABLE]}, (None, "Unschedulable", 0)),
    ],
)  # fmt: skip
def test_why_a_pod_does_not_run(status, expected):
    (found,) = survey.gpu_pods(CALL, body(pod("a", app=PLUGIN, status=status)))
    assert (found.ready, found.waiting, found.restarts) == expected


@pytest.mark.parametrize(
    ("states", "expected"),
    [((), None), (("ready",), "ready"), (("ignored", "notReady"), "notReady"), ((None,), None), (("ignored",), None)],
)
def test_the_policy_in_force_is_the_one_that_is_not_ignored(states, expected):
    items = [{"status": {"state": state}} if state else {"metadata": {"name": "new"}} for state in states]
    assert survey.policy_state(CALL, body(*items)) == expected


def test_runtime_classes_come_with_their_handlers():
    text = body({"metadata": {"name": "nvidia"}, "handler": "nvidia"}, {"metadata": {"name": "gv"}, "handler": "runsc"})
    assert survey.runtime_classes(CALL, text) == {"nvidia": "nvidia", "gv": "runsc"}


def test_the_config_map_of_a_plugin_is_the_one_its_config_manager_chooses_from():
    plugin = pod("plugin", app=PLUGIN)
    plugin["spec"]["volumes"] = [
        {"name": "entrypoint", "configMap": {"name": "nvidia-device-plugin-entrypoint"}},
        {"name": "available-configs", "configMap": {"name": "time-slicing-config"}},
        {"name": "device-plugin", "hostPath": {"path": "/var/lib/kubelet/device-plugins"}},
    ]
    (found,) = survey.gpu_pods(CALL, body(plugin))
    assert found.configs is None
    mounts = [
        {"name": "entrypoint", "mountPath": "/bin/entrypoint.sh"},
        {"name": "available-configs", "mountPath": "/available-configs"},
    ]
    plugin["spec"]["initContainers"] = [{"volumeMounts": mounts}]
    (found,) = survey.gpu_pods(CALL, body(plugin))
    assert found.configs == "time-slicing-config"


def test_of_a_config_map_only_the_keys_are_kept():
    text = json.dumps({"data": {"tesla-t4": "planted", "any": "planted"}}).encode()
    assert survey.keys(CALL, text) == ("any", "tesla-t4")
    assert survey.keys(CALL, b"{}") == ()


MEMBERS = ("items", "status", "spec", "metadata", "state", "handler", "env")
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.text(max_size=5) | st.integers(-1, 1),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(MEMBERS), inner, max_size=4),
    max_leaves=12,
)
PARSERS = (
    survey.gpu_pods, survey.runtime_classes, survey.policy_state,
    survey.keys,
)  # fmt: skip


@pytest.mark.parametrize("parse", PARSERS)
@given(data=st.binary(max_size=200) | ANYTHING.map(lambda value: json.dumps(value).encode()))
def test_whatever_answers_is_read_or_called_garbled(parse, data):
    try:
        found = parse(CALL, data)
    except Garbled:
        return
    assert found is None or isinstance(found, str | tuple | dict)


@pytest.fixture
def api():
    with served() as given_:
        yield given_


def test_pods_of_the_node_and_pods_that_wait(api):
    api.cluster.add_pod("gpu-operator", PLUGIN, node=NODE, gpus=0, labels={"app": PLUGIN}, owner_kind="DaemonSet")
    api.cluster.add_pod("kube-system", "dns", node=NODE, gpus=0)
    api.cluster.add_node("n2")
    api.cluster.add_pod("ml", "elsewhere", node="n2")
    reader = SurveyReader(api.transport, NODE)
    assert {(each.path, each.gpus, each.ready) for each in reader.gpu_pods()} == {
        ("ml/train-0", 1, True), (f"gpu-operator/{PLUGIN}", 0, True),
    }  # fmt: skip
    assert reader.pending() == ()


def test_a_cluster_without_the_operator_reports_it(api):
    with pytest.raises(NotFound, match="clusterpolicies"):
        SurveyReader(api.transport, NODE).policy_state()
