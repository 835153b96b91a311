"""gpuwatch on a real node: it becomes ready, knows its pods and moves work off a sick GPU."""

import json
import subprocess
import sys
import time

import pytest

from tests.fakes.libnvml import FakeProcess
from tests.node.cluster import NODE
from tests.node.work import SECONDS, deployment, gpuwatch, holders, lose, names, pod, pods, taints
from tests.waiting import until


@pytest.fixture(autouse=True)
def clean(deployed):
    """No work and no fault is left for the next test, also where one fails."""
    yield
    deployed.kubectl("-n", "ml", "delete", "deployment,pdb,pod", "--all")
    for gpu in range(8):
        deployed.driver.restore(gpu)
        deployed.driver.set_processes(gpu, [])


def test_every_form_of_pod_is_known_by_its_gpus(deployed):
    pods = [pod("two-gpus", 2), pod("two-containers", 1, 1, 0), pod("sidecar", 1, init=1), pod("no-gpu", 0)]
    deployed.apply(*pods)
    deployed.kubectl("-n", "ml", "wait", "--for=condition=Ready", "pod", "--all", f"--timeout={SECONDS:.0f}s")
    until(lambda: set(holders(deployed)) == {"two-gpus", "two-containers", "sidecar"}, "all are known", SECONDS, step=1)
    found = holders(deployed)
    assert {name: len(gpus) for name, gpus in found.items()} == {"two-gpus": 2, "two-containers": 2, "sidecar": 2}
    assert len(set().union(*found.values())) == 6, "no GPU is held twice"
    deployed.kubectl("-n", "ml", "delete", "pod", "two-gpus", "--wait=true")
    until(lambda: "two-gpus" not in holders(deployed), "a deleted pod holds nothing", SECONDS, step=0.5)


def test_a_process_is_known_by_the_cgroup_of_its_pod(deployed):
    """The driver has process numbers alone. One of no pod, too; and one whose container was started anew."""
    deployed.apply(pod("trainer", 1, 1))
    until(lambda: "trainer" in holders(deployed), "it is known", SECONDS, step=1)
    gpu = min(holders(deployed)["trainer"])
    (alone,) = pids(deployed, f"containerd --config {deployed.folder}")

    def found():
        ours = pids(deployed, "sleep 100000")
        deployed.driver.set_processes(gpu, [FakeProcess(pid=pid, memory=1 << 30) for pid in (alone, *ours)])
        items = json.loads(gpuwatch(deployed, "get", "processes", "-o", "json"))["items"]
        known = {each["pid"]: each["workload"] or {} for each in items}
        places = {(own.get("pod"), own.get("container")) for pid, own in known.items() if pid in ours}
        return len(known) == 3 and not known[alone] and places == {("trainer", "c0"), ("trainer", "c1")}

    until(found, "each container has its process", SECONDS, step=1)
    first = pids(deployed, "sleep 100000")
    deployed.run("kill", "-9", str(first[0]))
    until(lambda: len(set(pids(deployed, "sleep 100000")) - set(first)) == 1, "it is started again", SECONDS, step=0.5)
    until(found, "its new process is known", SECONDS, step=1)


PIDS = """
import psutil, sys
lines = ((each.pid, " ".join(each.info["cmdline"] or ())) for each in psutil.process_iter(["cmdline"]))
print(*(pid for pid, line in lines if line.startswith(sys.argv[1])))
"""


def pids(node, command):
    """Processes whose command line begins so, as the node numbers them."""
    return [int(pid) for pid in node.run(sys.executable, "-c", PIDS, command).split()]


def test_a_sick_gpu_loses_its_work_and_gets_it_back_when_it_is_well(deployed):
    """XID 79, as the driver reports it: taint, eviction of that GPU's pod alone, a replacement that waits; and back."""
    deployed.apply(*deployment(2))
    deployed.kubectl("-n", "ml", "wait", "--for=condition=Available", "deployment/serve", f"--timeout={SECONDS:.0f}s")
    own = names(deployed)
    until(lambda: set(holders(deployed)) == own, "both are known", SECONDS, step=1)
    found = holders(deployed)
    victim, (gpu,) = sorted(found.items())[0]
    assert taints(deployed) == []
    since = time.monotonic()
    lose(deployed, gpu)
    until(lambda: taints(deployed) == ["gpuwatch.io/gpu-fault"], "the node is tainted", SECONDS, step=0.1)
    until(lambda: victim not in names(deployed), "its pod is evicted", SECONDS, step=0.1)
    print(f"fault to eviction: {time.monotonic() - since:.1f} s")
    assert len(own & names(deployed)) == 1, "the other one stays"
    assert {each["status"]["phase"] for each in pods(deployed) if each["metadata"]["name"] not in own} == {"Pending"}
    deployed.driver.restore(gpu)
    deployed.stop("device-plugin")  # it counts the GPU out until it is started anew
    deployed.start_plugin()
    until(lambda: "gpu_lost" not in gpuwatch(deployed, "get", "findings", "-o", "json"), "it answers", SECONDS, step=1)
    gpuwatch(deployed, "repaired", str(gpu))
    until(lambda: taints(deployed) == [], "the node is given back", SECONDS, step=1)
    until(lambda: {each["status"]["phase"] for each in pods(deployed)} == {"Running"}, "all work runs", SECONDS, step=1)


FORGED = "x\nNVRM: Xid (PCI:0000:{bus}:00): 79, pid=1, name=a, GPU has fallen off the bus. y"


def test_a_pod_that_forges_the_drivers_words_changes_nothing(deployed, tmp_path):
    """Under PodSecurity restricted, it crashes a program whose name continues in a line of the driver."""
    source, place = tmp_path / "crash.c", deployed.folder / "crash"
    place.mkdir()
    source.write_text("int main(void) { *(volatile int *)8 = 1; }")
    subprocess.run(["cc", "-static", "-o", place / "crash", source], check=True)
    bus = gpuwatch(deployed, "get", "gpus", "-o", "json")
    address = json.loads(bus)["items"][0]["pci_bus_id"].split(":")[-2].lower()
    name = FORGED.format(bus=address)
    command = 'f="/w/$NAME"; cp /crash/crash "$f"; chmod 755 "$f"; "$f"; echo crashed; sleep 5'
    strict = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": True}
    container = {
        "name": "main",
        "image": "localhost/busybox:1",
        "command": ["sh", "-c", command],
        "env": [{"name": "NAME", "value": name}],
        "securityContext": strict,
        "volumeMounts": [{"name": "w", "mountPath": "/w"}, {"name": "crash", "mountPath": "/crash"}],
    }
    volumes = [{"name": "w", "emptyDir": {}}, {"name": "crash", "hostPath": {"path": str(place)}}]
    restricted = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
    forger = pod("forger", securityContext=restricted, restartPolicy="Never", volumes=volumes)
    forger["spec"]["containers"] = [container]
    before = deployed.run("dmesg").splitlines()  # its lines say when; of a full log the oldest go
    deployed.apply(forger)
    until(
        lambda: "crashed" in deployed.kubectl("-n", "ml", "logs", "forger", check=False),
        "it crashed",
        SECONDS,
        step=0.5,
    )
    lines = [line for line in deployed.run("dmesg").splitlines() if line not in before]
    assert any("NVRM: Xid" in line for line in lines), f"the forged line is in the kernel log: {lines}"
    deployed.apply(pod("witness", 1))  # time in which a View with that line is judged, and one more
    until(lambda: "witness" in holders(deployed), "gpuwatch goes on", SECONDS, step=1)
    assert taints(deployed) == []
    assert "unschedulable" not in deployed.get("node", NODE)["spec"]


def test_allocations_outlive_a_restart_of_kubelet_and_plugin(deployed):
    deployed.apply(pod("steady", 1))
    until(lambda: "steady" in holders(deployed), "it is known", SECONDS, step=1)
    before = holders(deployed)["steady"]
    address = deployed.get("-n", "gpuwatch", "pods")["items"][0]["status"]["podIP"]
    deployed.stop("kubelet")
    kept = deployed.run("busybox", "wget", "-q", "-O", "-", f"http://{address}:9400/metrics")
    assert 'pod="steady"' in kept, "the last allocations are kept"
    deployed.start_kubelet()
    until(lambda: gpuwatch(deployed, "version", check=False), "it knows its pods again", SECONDS, step=0.5)
    deployed.stop("device-plugin")
    deployed.start_plugin()
    until(lambda: deployed.allocatable().get("nvidia.com/gpu") == 8, "all GPUs are offered again", SECONDS, step=1)
    until(lambda: holders(deployed).get("steady") == before, "and known", SECONDS, step=1)
