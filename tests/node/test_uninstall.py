"""What gpuwatch leaves on a node when it is uninstalled; the last file, as the deployment is gone afterwards."""

from tests.node.cluster import NODE
from tests.node.work import gpuwatch, taints


def test_uninstalling_leaves_nothing(deployed):
    gpuwatch(deployed, "remediator", "--release", container="remediator")
    deployed.kubectl("delete", "-k", deployed.deployment)
    node = deployed.get("node", NODE)
    metadata = {**node["metadata"]["labels"], **node["metadata"]["annotations"]}
    assert [key for key in metadata if key.startswith("gpuwatch.io/")] == []
    assert taints(deployed) == []
    kinds = "clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings,namespaces"
    left = [each["metadata"]["name"] for each in deployed.get(kinds)["items"]]
    assert [name for name in left if "gpuwatch" in name] == []
