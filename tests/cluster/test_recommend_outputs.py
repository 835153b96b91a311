"""Whether a real API server takes what advice prints: commands as they are, as a dry run and then in earnest."""

import copy
import json
import subprocess
from functools import reduce

import pytest

from gpuwatch.rightsizing.apply.pod import TEMPLATES
from gpuwatch.rightsizing.model.recommendation import RecommendedAction, RecommendedChange
from tests import fast_yaml
from tests.cluster.api import NODES, Api
from tests.deploy.kubectl import Kubectl
from tests.deploy.rendering import DEPLOY, built, one
from tests.deploy.tools import kubectl
from tests.rightsizing.findings.advised import advice, applied, cut, layout, resized, shared

pytestmark = [pytest.mark.cluster, pytest.mark.slow]  # quick: the commands as texts, tests/rightsizing/test_apply.py

MIG = "nvidia.com/mig-1g.10gb.me"
GROUPS = {"ReplicationController": "v1", "Pod": "v1", "Job": "batch/v1", "CronJob": "batch/v1"}
PAGE = DEPLOY.parent / "docs/kubernetes.md"
REPORT = DEPLOY / "examples/weekly-report"
APPS = ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet")
CONFIGS = "/api/v1/namespaces/gpu-operator/configmaps"
DRY = """#!/bin/sh
exec {kubectl} --dry-run=server "$@"
"""
ENERGY = RecommendedChange(annotations={"gpuwatch.io/autotune": "enforce", "gpuwatch.io/autotune-class": "batch"})


class Cluster:
    """An administrator's shell in a namespace of a test's own, which is also the name of its node."""

    def __init__(self, plane, place, name):
        self.api, self.kubectl, self.name = Api(plane), Kubectl(plane.kubeconfig()), name
        (place / "kubectl").write_text(DRY.format(kubectl=kubectl()))
        (place / "kubectl").chmod(0o755)
        self._dry = self._variables(plane, place)
        self._wet = self._variables(plane, kubectl().parent)
        for namespace in (name, "gpu-operator"):
            self.api.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        assert self.api.request("POST", NODES, {"metadata": {"name": name}}).status == 201

    def _variables(self, plane, folder):
        return {"PATH": f"{folder}:/usr/bin:/bin", "KUBECONFIG": str(plane.kubeconfig()), "HOME": "/nonexistent"}

    def run(self, command):
        """As a dry run, which must change nothing, then in earnest; returns what it said."""
        return self.tried(command) and self._shell(command, self._wet)

    def tried(self, command):
        before = self._state()
        said = self._shell(command, self._dry)
        assert self._state() == before
        return said

    def _state(self):
        """Everything that a command could change."""
        lists = [
            f"/api/v1/namespaces/{self.name}/{kind}" for kind in ("pods", "resourcequotas", "replicationcontrollers")
        ]
        lists += [f"/apis/apps/v1/namespaces/{self.name}/{kind.lower()}s" for kind in APPS]
        lists += [f"/apis/batch/v1/namespaces/{self.name}/{kind}" for kind in ("jobs", "cronjobs")]
        found = [self.api.request("GET", path) for path in (*lists, CONFIGS, f"{NODES}/{self.name}")]
        assert {status for status, _ in found} == {200}
        return [body.get("items", body) for _, body in found]

    def _shell(self, command, variables):
        done = subprocess.run(["/bin/sh", "-euc", command], env=variables, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Refused(done.stderr)
        return done.stdout

    def make(self, manifest):
        manifest["metadata"]["namespace"] = self.name
        self.kubectl("create", "-f", "-", stdin=json.dumps(manifest))

    def get(self, *what):
        return json.loads(self.kubectl("get", *what, "-o", "json", "-n", self.name))


class Refused(Exception):
    """What the API server said."""


@pytest.fixture
def cluster(control_plane, tmp_path, name):
    return Cluster(control_plane, tmp_path, name)


def pod_spec(**more):
    asked = {"limits": {"nvidia.com/gpu": "1", "memory": "1Gi"}, "requests": {"nvidia.com/gpu": "1", "cpu": "1"}}
    proxy = {"name": "proxy", "image": "proxy"}
    return {"containers": [proxy, {"name": "main", "image": "server", "resources": asked}], **more}


def owner(kind):
    """A workload of that kind that asks for a whole GPU."""
    labels = {"app": "server"}
    pod = pod_spec(restartPolicy="Never") if "Job" in kind else pod_spec()
    template = {"metadata": {"labels": labels}, "spec": pod}
    selector = labels if kind == "ReplicationController" else {"matchLabels": labels}
    spec = {"template": template} if kind == "Job" else {"template": template, "selector": selector}
    if kind == "CronJob":
        spec = {"schedule": "@weekly", "jobTemplate": {"spec": {"template": template}}}
    if kind == "StatefulSet":
        spec["serviceName"] = "server"
    if kind == "Pod":
        spec = pod
    version = GROUPS.get(kind, "apps/v1")
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "server"}, "spec": spec}


def only(found):
    (one,) = (each for each in found.apply if each.command)
    return one.command


def explained(words):
    """What the API server says, which the page has in its table."""
    assert f"`{words}" in PAGE.read_text()
    return words


def template_of(kind, made):
    return reduce(lambda inside, key: inside[key], TEMPLATES[kind], made)


def of_kinds(quick, *more):
    """The first in `make test`: it holds the case of the others, whose templates are elsewhere or have another name."""
    return pytest.mark.parametrize("kind", [quick, *(pytest.param(each, marks=pytest.mark.slow) for each in more)])


@of_kinds("CronJob", *(kind for kind in TEMPLATES if kind != "CronJob"))
def test_a_template_asks_for_the_instance_and_for_nothing_else_less(cluster, kind):
    cluster.make(owner(kind))
    command = only(applied(resized(kind=kind, namespace=cluster.name)))
    cluster.run(command)
    proxy, main = template_of(kind, cluster.get(kind, "server"))["spec"]["containers"]
    assert main["resources"] == {"limits": {MIG: "1", "memory": "1Gi"}, "requests": {MIG: "1", "cpu": "1"}}
    assert (main["image"], proxy["name"]) == ("server", "proxy")


def test_the_whole_gpu_must_be_dropped_in_requests_too(cluster):
    """Why a patch names both: with the limit alone the API server refuses."""
    cluster.make(owner("Deployment"))
    (found,) = applied(resized(namespace=cluster.name)).apply
    half = copy.deepcopy(found.manifest)
    del half["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]
    done = cluster.kubectl.run("patch", "deployment", "server", "-n", cluster.name, "-p", json.dumps(half))
    assert done.returncode
    assert explained("Limit must be set for non overcommitable resources") in done.stderr


def test_a_container_of_another_name_is_refused(cluster):
    """It would be a new one, and has no image: a wrong name changes nothing."""
    cluster.make(owner("Deployment"))
    with pytest.raises(Refused, match=explained("image: Required value")):
        cluster.tried(only(applied(resized(namespace=cluster.name, container="mian"))))


@of_kinds("Pod", "Job")
def test_what_is_made_again_is_taken_with_the_fragment(cluster, kind):
    made = owner(kind)
    cluster.make(made)
    (found,) = applied(resized(kind=kind, namespace=cluster.name)).apply
    pod = made["spec"] if kind == "Pod" else made["spec"]["template"]["spec"]
    patch = {"containers": [found.manifest]}
    patch = {"spec": patch if kind == "Pod" else {"template": {"spec": patch}}}
    done = cluster.kubectl.run("patch", kind, "server", "-n", cluster.name, "-p", json.dumps(patch))
    assert done.returncode  # what the note says: it cannot be patched
    pod["containers"][1] |= found.manifest
    file = json.dumps(made)
    cluster.kubectl("replace", "--force", "-f", "-", "-n", cluster.name, "--grace-period=0", stdin=file)
    containers = cluster.get(kind, "server")["spec"]
    containers = (containers if kind == "Pod" else containers["template"]["spec"])["containers"]
    assert containers[1]["resources"]["limits"] == {MIG: "1"}


@of_kinds("Deployment", "StatefulSet", "ReplicaSet")
def test_what_is_idle_is_scaled_to_nothing(cluster, kind):
    cluster.make(owner(kind))
    cluster.run(
        only(applied(advice(RecommendedAction.SCALE_DOWN, kind=kind, namespace=cluster.name, work_class="notebook")))
    )
    assert cluster.get(kind, "server")["spec"]["replicas"] == 0


def test_a_job_that_is_idle_is_suspended(cluster):
    cluster.make(owner("Job"))
    cluster.run(
        only(applied(advice(RecommendedAction.SCALE_DOWN, kind="Job", namespace=cluster.name, work_class="batch")))
    )
    assert cluster.get("job", "server")["spec"]["suspend"] is True


def test_a_cronjob_continues_when_its_job_is_suspended(cluster):
    cluster.make(owner("CronJob"))
    job = owner("Job")
    job["metadata"]["name"] = "server-29000000"
    cluster.make(job)
    about = {"kind": "CronJob", "namespace": cluster.name, "work_class": "batch", "pods": ("server-29000000-abcde",)}
    cluster.run(only(applied(advice(RecommendedAction.SCALE_DOWN, **about))))
    assert cluster.get("job", "server-29000000")["spec"]["suspend"] is True
    assert cluster.get("cronjob", "server")["spec"]["suspend"] is False


def test_a_pod_that_is_idle_goes(cluster):
    cluster.make(owner("Pod"))
    cluster.run(
        only(applied(advice(RecommendedAction.SCALE_DOWN, kind="Pod", namespace=cluster.name, work_class="notebook")))
    )
    assert cluster.get("pods")["items"] == []


def test_a_quota_keeps_what_else_it_limits(cluster):
    hard = {"requests.nvidia.com/gpu": "8", "pods": "20"}
    cluster.make({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "gpu"}, "spec": {"hard": hard}})
    change = RecommendedChange(hard={"nvidia.com/gpu": 6, "requests.nvidia.com/mig-1g.5gb": 4}, quota="gpu")
    cluster.run(only(applied(advice(RecommendedAction.CHANGE_QUOTA, change, namespace=cluster.name))))
    assert cluster.get("resourcequota", "gpu")["spec"]["hard"] == {
        "requests.nvidia.com/gpu": "6",
        "requests.nvidia.com/mig-1g.5gb": "4",
        "pods": "20",
    }


def test_a_node_is_reserved_and_the_fragment_is_a_pod_for_it(cluster):
    (found,) = applied(advice(RecommendedAction.RESERVE, namespace=cluster.name, nodes=(cluster.name,))).apply
    cluster.run(found.command)
    node = cluster.get("node", cluster.name)
    assert node["metadata"]["labels"].items() >= found.manifest["spec"]["nodeSelector"].items()
    (taint,) = (each for each in node["spec"]["taints"] if each["key"] == "gpuwatch.io/gpu-reserved")
    (tolerated,) = found.manifest["spec"]["tolerations"]
    assert taint.items() <= tolerated.items()
    made = owner("Pod")
    made["spec"] |= found.manifest["spec"]
    cluster.make(made)
    back = found.note.partition("Back with: ")[2]
    cluster.run(back)
    node = cluster.get("node", cluster.name)
    assert not [each for each in node["spec"].get("taints", ()) if each["key"] == "gpuwatch.io/gpu-reserved"]
    assert "gpuwatch.io/gpu-reserved" not in node["metadata"].get("labels", {})


def test_pods_that_run_say_that_they_may_be_tuned(cluster):
    cluster.make(owner("Pod"))
    cluster.run(
        only(applied(advice(RecommendedAction.TUNE, ENERGY, kind="Pod", namespace=cluster.name, pods=("server",))))
    )
    assert cluster.get("pod", "server")["metadata"]["annotations"].items() >= ENERGY.annotations.items()


@of_kinds("Deployment", "CronJob")
def test_pods_to_come_report_it_too(cluster, kind):
    cluster.make(owner(kind))
    (found,) = applied(advice(RecommendedAction.TUNE, ENERGY, kind=kind, namespace=cluster.name)).apply
    cluster.kubectl("patch", kind, "server", "-n", cluster.name, "-p", json.dumps(found.manifest))
    assert template_of(kind, cluster.get(kind, "server"))["metadata"]["annotations"] == ENERGY.annotations


def test_configurations_for_sharing_stand_beside_each_other(cluster):
    cluster.run(applied(shared("time_slicing", 4, nodes=(cluster.name,))).apply[0].command)
    (found, _) = applied(shared("mps", 2, nodes=(cluster.name,))).apply
    cluster.run(found.command)
    data = json.loads(cluster.kubectl("get", "cm", "-n", "gpu-operator", "gpuwatch-device-plugin", "-o", "json"))[
        "data"
    ]
    assert set(data) == {"default", "time-slicing-4", "mps-2"}
    node = cluster.get("node", cluster.name)
    assert node["spec"]["unschedulable"] is True
    assert "nvidia.com/device-plugin.config" not in node["metadata"].get("labels", {}), "its pods may still run"
    cluster.run(found.note.partition("have ended: ")[2].partition(", then uncordon")[0])
    assert cluster.get("node", cluster.name)["metadata"]["labels"]["nvidia.com/device-plugin.config"] == "mps-2"


def test_a_layout_is_made_and_one_that_stands_there_is_not_replaced(cluster):
    first, second = (cut(layout(cluster.name, 0, profile)) for profile in ("1g.10gb", "2g.20gb"))
    command = applied(first).apply[0].command
    cluster.run(command)
    cluster.run(command)
    config = json.loads(cluster.kubectl("get", "cm", "-n", "gpu-operator", "gpuwatch-mig-parted", "-o", "json"))
    name = cluster.get("node", cluster.name)["metadata"]["labels"]["nvidia.com/mig.config"]
    assert name in json.loads(config["data"]["config.yaml"])["mig-configs"]
    with pytest.raises(Refused, match=explained("Apply failed with 1 conflict")):
        cluster.tried(applied(second).apply[0].command)


def test_the_weekly_report_is_taken_where_pods_are_restricted(cluster):
    """The example, the pods that its Jobs make, and the one that fetches reports."""
    cluster.kubectl("label", "namespace", cluster.name, "pod-security.kubernetes.io/enforce=restricted")
    example = built(REPORT)
    template = one(example, "CronJob", "gpuwatch-weekly-report")["spec"]["jobTemplate"]["spec"]["template"]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "report"}, "spec": template["spec"]}
    reader = fast_yaml.load((REPORT / "reader.yaml").read_text())
    for each in (*example, reader, pod):
        each["metadata"]["namespace"] = cluster.name
        cluster.kubectl("create", "-f", "-", "--dry-run=server", stdin=json.dumps(each))
    del pod["spec"]["containers"][0]["securityContext"]
    refused = cluster.kubectl.run("create", "-f", "-", "--dry-run=server", stdin=json.dumps(pod))
    assert "violates PodSecurity" in refused.stderr
