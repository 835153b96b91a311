"""What the API server tells is held against nobody who has a reason: pods that go or are done, gpuwatch's own marks."""

import pytest
from msgspec.structs import replace

from gpuwatch.diagnose.model import CheckResult, CheckStatus
from gpuwatch.kube.objects import Condition
from gpuwatch.remediation.model import OWNER, Ownership
from gpuwatch.remediation.planning.ownership import encode
from tests.diagnose.checks.broken_cluster import PLUGIN, cluster, label, node
from tests.diagnose.hosts import Host

DEPLOY = "nvidia.com/gpu.deploy."


@pytest.fixture
def host(tmp_path):
    """A host that is well."""
    return Host(tmp_path)


def diagnosed(host: Host, id_: str) -> CheckResult:
    return host.diagnose().of(id_)


@pytest.mark.parametrize(
    ("changes", "result"),
    [
        ({}, CheckStatus.FAIL),
        ({"deleting": True}, CheckStatus.PASS),
        ({"phase": "Succeeded"}, CheckStatus.PASS),
        ({"phase": "Failed"}, CheckStatus.PASS),
        ({"gpus": 1}, CheckStatus.PASS),
    ],
)
def test_a_pod_that_goes_is_done_or_only_uses_gpus_is_not_waited_for(host, changes, result):
    pods = host.cluster.pods
    late = [replace(pod, ready=False, **changes) if pod.name.startswith(PLUGIN) else pod for pod in pods]
    assert late != list(pods)
    cluster(pods=tuple(late))(host)
    assert diagnosed(host, "L08").result is result


def test_a_part_that_is_not_vital_may_pause_and_mig_has_no_share_in_it(host):
    label(f"{DEPLOY}dcgm-exporter", "paused-for-driver-upgrade")(host)
    label("nvidia.com/mig.config.state", "success")(host)
    found = diagnosed(host, "L03")
    assert (found.result, "mig.config.state" in found.message) == (CheckStatus.WARN, False)


def test_operands_that_are_switched_off_are_reported(host):
    label(f"{DEPLOY}operands", "false")(host)
    assert diagnosed(host, "L03").result is CheckStatus.WARN


def test_conditions_that_others_write_are_not_judged(host):
    conditions = (*host.cluster.node.conditions, Condition(type="FrequentContainerdRestart", status="True"))
    node(conditions=conditions)(host)
    assert diagnosed(host, "L06").result is CheckStatus.PASS


@pytest.mark.parametrize("ours", [True, False])
def test_no_advice_to_lift_a_cordon_of_gpuwatchs(host, ours):
    owner = Ownership(id="x", state="applied", since=0.0, node_uid=host.cluster.node.uid, cordoned=ours)
    node(annotations={OWNER: encode(owner), "weave.works/kured-reboot-in-progress": "x"}, unschedulable=True)(host)
    found = diagnosed(host, "L07")
    assert any("uncordon" in command for command in found.commands) is not ours
