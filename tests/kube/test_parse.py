"""What comes from an API server, and from what stands between: unknown members, nulls, and garbage."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.kube import parse as kube_parse
from gpuwatch.kube.errors import ApiCall, Garbled, Unavailable, error_of
from gpuwatch.kube.objects import TAINT
from gpuwatch.model.clock import FIRST, LAST, rfc3339, unix_time

CALL = ApiCall("get", "nodes", "n1")
META = {"name": "n1", "uid": "u", "resourceVersion": "1"}


def parsed(**parts):
    return kube_parse.node(CALL, json.dumps({"metadata": META, **parts}).encode())


def test_null_lists_and_members_of_later_versions_are_no_trouble():
    node = parsed(
        spec={"taints": None, "later": {"x": 1}},
        status={"conditions": None, "nodeInfo": {"bootID": "", "swap": {}}},
        kind="Node",
    )
    assert (node.taints, node.conditions, node.host.boot_id) == ((), (), None)


def test_a_taint_may_have_no_value():
    (taint,) = parsed(spec={"taints": [{"key": "a", "effect": "NoExecute", "timeAdded": "t"}]}).taints
    assert (taint.key, taint.value, taint.effect, taint.time_added) == ("a", "", "NoExecute", "t")


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>login</html>", b"{", b"[]", b"{}", b'{"metadata": {}}', b'{"metadata": {"name": 1}}', b"\xff"],
)
def test_garbage_is_reported_to_be_garbage(body):
    with pytest.raises(Garbled, match="cannot get nodes n1; the answer cannot be read"):
        kube_parse.node(CALL, body)


@given(st.binary())
def test_no_body_at_all_ends_in_another_error(body):
    for parse in (kube_parse.node, kube_parse.pods, kube_parse.lease, kube_parse.leases, kube_parse.page):
        with contextlib.suppress(Garbled):
            parse(CALL, body)


@given(st.integers(300, 599), st.binary(), st.dictionaries(st.just("Retry-After"), st.text()))
def test_every_refusal_has_words(code, body, headers):
    error = error_of(CALL, code, headers, body)
    assert str(error).startswith("cannot get nodes n1; ")
    assert error.why
    assert error.retry_after is None or 0 <= error.retry_after <= 300


def test_a_proxys_page_is_an_unavailable_server():
    error = error_of(CALL, 502, {}, b"<html>Bad Gateway</html>")
    assert isinstance(error, Unavailable)
    assert "Bad Gateway" in str(error)


def test_gpus_of_a_pod_are_those_of_its_containers_or_of_its_greediest_init_container():
    def container(**limits):
        return {"resources": {"limits": limits, "requests": limits}}

    spec = {
        "containers": [container(**{"nvidia.com/gpu": "2"}), container(**{"nvidia.com/mig-1g.10gb": "1", "cpu": "1"})],
        "initContainers": [container(**{"nvidia.com/gpu": "1"})],
    }
    items = [
        {"metadata": {**META, "annotations": {kube_parse.MIRROR: "x"}}, "spec": spec},
        {"metadata": META, "spec": {"containers": [{}], "initContainers": [container(**{"nvidia.com/gpu": "4"})]}},
    ]
    first, second = kube_parse.pods(CALL, json.dumps({"items": items}).encode())
    assert (first.gpus, first.mirror) == (3, True)
    assert (second.gpus, second.mirror) == (4, False)


def owned(kind, **labels):
    owner = {"kind": kind, "name": "train", "uid": "u1", "controller": True}
    return {"metadata": {**META, "ownerReferences": [owner], "labels": labels}, "spec": {}}


@pytest.mark.parametrize(
    ("item", "group"),
    [
        (owned("Job"), ("Job", "train", "u1")),
        (owned("PyTorchJob"), ("PyTorchJob", "train", "u1")),
        (owned("Job", **{"jobset.sigs.k8s.io/jobset-name": "set"}), ("JobSet", "set", "")),
        (owned("StatefulSet", **{"leaderworkerset.sigs.k8s.io/group-key": "k"}), ("LeaderWorkerSet group", "k", "")),
        (
            {"metadata": {**META, "labels": {"kueue.x-k8s.io/pod-group-name": "g"}}, "spec": {}},
            ("Kueue pod group", "g", ""),
        ),
        (owned("ReplicaSet"), None),
        (owned("StatefulSet"), None),
        (owned("Node"), None),
        ({"metadata": META, "spec": {}}, None),
    ],
)
def test_what_starts_pods_again_together_is_known_by_label_or_controller(item, group):
    (pod,) = kube_parse.pods(CALL, json.dumps({"items": [item]}).encode())
    assert (pod.group and (pod.group.kind, pod.group.name, pod.group.uid)) == group


@pytest.mark.parametrize(
    ("toleration", "lives"),
    [
        ({"operator": "Exists"}, True),
        ({"operator": "Exists", "key": TAINT, "effect": "NoExecute"}, True),
        ({"operator": "Exists", "effect": "NoSchedule"}, False),
        ({"operator": "Exists", "key": "other"}, False),
        ({"operator": "Exists", "tolerationSeconds": 300}, False),
        ({"operator": "Equal", "key": TAINT, "value": "gpu_lost"}, False),
    ],
)
def test_only_a_toleration_of_every_value_for_ever_lets_a_pod_live(toleration, lives):
    body = json.dumps({"metadata": META, "spec": {"tolerations": [toleration]}}).encode()
    assert kube_parse.tolerates(CALL, body, TAINT, "NoExecute") is lives


@given(st.floats(allow_nan=False))
def test_a_time_beyond_all_dates_is_the_nearest_date(at):
    assert FIRST <= unix_time(rfc3339(at)) <= LAST


@given(st.floats(0, 4e9))
def test_times_come_back(at):
    assert unix_time(rfc3339(at, micro=True)) == pytest.approx(at, abs=1e-5)
    assert unix_time(rfc3339(at)) == pytest.approx(at, abs=1)


def test_what_is_no_time_is_none():
    assert unix_time("soon") is unix_time(None) is None
