"""What gpuwatch leaves on a node when it is uninstalled; the last file, as the deployment is gone afterwards."""

from deploy.helm.generate import CHART
from tests.deploy.tools import helm
from tests.node.cluster import NODE
from tests.node.work import SECONDS, gpuwatch, taints
from tests.waiting import until


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


RELEASE = "chart"


def test_the_charts_test_passes_on_a_quarantined_node(plugin):
    """The node has gpuwatch's taint and is cordoned."""
    chart = ("--kubeconfig", f"{plugin.folder}/keys/admin.kubeconfig", "--namespace", RELEASE)
    values = ("--set", "runtimeClassName=nvidia", "--wait", f"--timeout={SECONDS:.0f}s")
    plugin.kubectl("create", "namespace", RELEASE)
    plugin.kubectl("label", "namespace", RELEASE, "pod-security.kubernetes.io/enforce=privileged")
    plugin.run(helm(), "install", RELEASE, CHART, *chart, *values)
    plugin.kubectl("taint", "node", NODE, "gpuwatch.io/gpu-fault=test:NoSchedule")
    plugin.kubectl("cordon", NODE)
    try:
        agents = plugin.get("-n", RELEASE, "pods")["items"]
        service = f"{RELEASE}-gpuwatch-test"
        plugin.set_names({f"{service}.{RELEASE}.svc.cluster.local": agents[0]["status"]["podIP"]})
        said = plugin.run(helm(), "test", RELEASE, "--logs", *chart, f"--timeout={SECONDS:.0f}s")
        assert "Phase:          Succeeded" in said
        assert "gpuwatch_gpu_info{" in said
    finally:
        plugin.kubectl("uncordon", NODE)
        plugin.kubectl("taint", "node", NODE, "gpuwatch.io/gpu-fault-")
        plugin.run(helm(), "uninstall", RELEASE, *chart, "--wait")
    until(lambda: not plugin.get("-n", RELEASE, "pods")["items"], "its pods are gone", SECONDS, step=0.5)
