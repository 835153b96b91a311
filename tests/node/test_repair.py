"""A repairer in a pod: it resets a sick GPU when kubelet, driver and remediator say that nothing is in its way.

The reset's command is a script that asks this test to reset the fake's GPU.
"""

import json

import pytest

from gpuwatch.remediation.model import OWNER
from tests.fakes.libnvml import FakeProcess
from tests.node.cluster import NODE, PRODUCT
from tests.node.work import POLICY, SECONDS, deployment, gpuwatch, holders, names, overlay, taints
from tests.waiting import until

POLICY_OF_REPAIR = """
repair:
  mode: enforce
  command: [/tools/reset, "{uuid}"]
  nvidia_smi: ""
"""
RESET = """#!/bin/sh
echo "$1" >> /tools/calls
echo "$1" > /tools/asked
while [ -e /tools/asked ]; do sleep 0.1; done
echo "GPU $1 was successfully reset."
"""
UNCORRECTABLE, NOTHING, RESET_GPU = 95, 0, 1
"""An XID, and two recovery actions of NVML."""


@pytest.fixture
def tools(deployed, tmp_path):
    """The folder of the reset's command on a node with device files and a repairer; both go away afterwards."""
    folder = deployed.folder / "tools"
    folder.mkdir()
    (folder / "reset").write_text(RESET)
    (folder / "reset").chmod(0o755)
    for gpu in range(8):
        deployed.run("mknod", f"/dev/nvidia{gpu}", "c", "195", str(gpu))
    policy = POLICY.replace("checks: {", "checks: {recovery_action: drain, ") + POLICY_OF_REPAIR
    place = overlay(tmp_path / "repair", policy)
    kustomization = json.dumps(repairer(folder))
    file = place / "kustomization.yaml"
    file.write_text(file.read_text() + f"patches: [{{patch: '{kustomization}'}}]\n")
    _roll(deployed, place)
    yield folder
    _roll(deployed, deployed.deployment)
    for gpu in range(8):
        deployed.run("rm", f"/dev/nvidia{gpu}")


def repairer(folder):
    """The patch that adds one; `deploy/` has none yet. docs/repairer.md says what it needs."""
    mounts = {"config": "/etc/gpuwatch", "run": "/run/gpuwatch", "state": "/var/lib/gpuwatch", "tools": "/tools"}
    container = {
        "name": "repairer",
        "image": PRODUCT,
        "args": ["--config=/etc/gpuwatch/gpuwatch.yaml", "repairer"],
        "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}],
        "securityContext": {"privileged": True, "runAsUser": 0},
        "volumeMounts": [{"name": name, "mountPath": path} for name, path in mounts.items()],
    }
    spec = {"containers": [container], "volumes": [{"name": "tools", "hostPath": {"path": str(folder)}}]}
    metadata = {"name": "gpuwatch", "namespace": "gpuwatch"}
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata, "spec": {"template": {"spec": spec}}}


def _roll(node, folder):
    node.kubectl("apply", "-k", folder)
    node.kubectl("-n", "gpuwatch", "rollout", "status", "daemonset/gpuwatch", f"--timeout={SECONDS:.0f}s")


def report(node, gpu):
    """What the repairer reports of a GPU: state and reason."""
    (item,) = json.loads(gpuwatch(node, "describe", "gpu", str(gpu), "-o", "json"))["items"]
    return (item["repair"]["state"], item["repair"]["message"]) if item["repair"] else ("", "")


def calls(tools):
    """UUIDs that a reset was asked for, one for each time."""
    file = tools / "calls"
    return file.read_text().split() if file.exists() else []


def test_a_gpu_is_reset_when_its_pod_and_its_processes_are_gone(deployed, tools):
    """And not before; then the node is as it was, and the work that waited runs."""
    work, budget = deployment(1)
    budget["spec"]["maxUnavailable"] = 0
    deployed.apply(work, budget)
    deployed.kubectl("-n", "ml", "wait", "--for=condition=Available", "deployment/serve", f"--timeout={SECONDS:.0f}s")
    (tenant,) = names(deployed)
    until(lambda: tenant in holders(deployed), "it is known", SECONDS, step=1)
    (gpu,) = holders(deployed)[tenant]
    uuid = json.loads(gpuwatch(deployed, "get", "gpus", "-o", "json"))["items"][gpu]["uuid"]
    deployed.driver.set_processes(gpu, [FakeProcess(pid=4711, memory=1 << 30)])
    deployed.driver.xid(gpu, UNCORRECTABLE)
    deployed.driver.set(gpu, recovery_action=RESET_GPU)
    until(
        lambda: report(deployed, gpu) == ("waiting", f"allocated to ml/{tenant}"), "the pod keeps it", SECONDS, step=1
    )
    deployed.kubectl("-n", "ml", "delete", "pdb", "serve")
    until(lambda: tenant not in names(deployed), "the pod is evicted", SECONDS, step=0.5)
    until(lambda: report(deployed, gpu)[1] == "in use by 1 process", "another process keeps it", SECONDS, step=1)
    assert not calls(tools)
    deployed.driver.set_processes(gpu, [])
    until((tools / "asked").exists, "the reset is asked for", SECONDS, step=0.3)
    assert report(deployed, gpu)[0] == "resetting"
    deployed.driver.set(gpu, recovery_action=NOTHING)
    (tools / "asked").unlink()
    until(lambda: "recovery_action" not in findings(deployed), "the GPU is well", SECONDS, step=1)
    deployed.stop("device-plugin")  # it counts the GPU out until it is started anew
    deployed.start_plugin()
    until(lambda: not owned(deployed), "the quarantine has ended", SECONDS, step=1)
    until(lambda: set(holders(deployed)) == names(deployed), "the work runs", SECONDS, step=1)
    assert not taints(deployed)
    assert calls(tools) == [uuid]
    done = json.loads(gpuwatch(deployed, "events", "--kind", "action", "-o", "json"))["items"]
    assert [each["result"] for each in done if each["action"] == "reset_gpu"][-1] == "done"
    deployed.kubectl("-n", "ml", "delete", "deployment", "serve")


def findings(node):
    return gpuwatch(node, "get", "findings", "-o", "json")


def owned(node):
    """Whether gpuwatch's record on the Node names a quarantine."""
    return json.loads(node.get("node", NODE)["metadata"]["annotations"].get(OWNER, "{}")).get("state") == "applied"
