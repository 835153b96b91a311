"""What a kube-apiserver forgets when the policies are deleted and made again."""

import pytest

from tests.cluster.api import PODS, Api
from tests.cluster.conftest import PLANES
from tests.cluster.manifests import ACCOUNT, PATHS, apply, manifests
from tests.cluster.remediating import BUDGETS
from tests.cluster.story import GPU_CONTAINER, pod_on
from tests.cluster.tenant import Tenant
from tests.remediation.model.remediating import NAMESPACE
from tests.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.slow]  # it waits a minute for what does not come

NOT_OWN = "the token is not of a pod on this Node"
ELSEWHERE = "the pod runs on another Node"


def test_policies_compare_with_old_objects_once_they_were_deleted_and_made_again(tmp_path_factory):
    """The server ends its watch of a kind with the last binding that has such parameters, and begins no other one.

    docs/kubernetes.md tells what to do. When this fails, Kubernetes has mended it: that advice can go. It goes on
    watching Pods and Nodes, which other parts of it watch, too.
    """
    api = Api(PLANES.get("reinstalled", tmp_path_factory))
    api.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    policies = [each for each in manifests() if "AdmissionPolicy" in each["kind"]]
    for each in (each for each in manifests() if each not in policies):
        apply(api, each)
    tenant, answers = Tenant(api, ACCOUNT), []
    for number in range(2):
        for each in sorted(policies, key=lambda each: str(each["kind"])):
            apply(api, each)
        tenant.slot = f"gpuwatch-slot-{number}1"
        until(lambda: NOT_OWN in tenant.patch({}, node=tenant.other).body.get("message", ""), "the policies hold")
        pod_on(api, PODS, f"later-{number}", tenant.other, containers=[GPU_CONTAINER])
        answers.append(tenant.takes_second_slot().status)
        until(lambda pod=f"later-{number}": ELSEWHERE in tenant.evicts(pod).body.get("message", ""), "its pod is known")
        api.request("DELETE", BUDGETS)
        for each in policies:
            path = PATHS[each["kind"]].format(namespace="")
            assert api.request("DELETE", f"{path}/{each['metadata']['name']}").status == 200
        until(lambda: tenant.patch({}, node=tenant.other).status == 200, "no policy holds")
    assert answers == [403, 201]
