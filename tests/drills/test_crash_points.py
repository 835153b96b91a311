"""Kill -9 of the remediator at every point between decision and completion: after a restart all is as it should be."""

import signal
from multiprocessing import get_context
from typing import NamedTuple, get_args

import pytest
from msgspec.structs import replace

from gpuwatch.config import DrainConfig, HandoverConfig
from gpuwatch.kube.devices import DRIVER
from gpuwatch.model.finding import Response, SchedulingLabel
from gpuwatch.remediation.model import HEALTHY_COUNT, NVLINK
from gpuwatch.remediation.planning.labels import LABEL_SECONDS
from gpuwatch.remediation.service.executor import CRASH_POINTS
from gpuwatch.sim.kubeapi.cluster import SimulatedCluster
from gpuwatch.sim.kubeapi.server import SimulatedApiServer
from gpuwatch.storage.store import Store
from tests.drills.remediator_child import Orders, bench, die
from tests.remediation.model.remediating import FOREIGN, NAMESPACE, NODE, settings
from tests.waiting import BOUND_SECONDS

_processes = get_context("forkserver")
_processes.set_forkserver_preload(["tests.drills.remediator_child"])


class Story(NamedTuple):
    """How the child's life begins: whether a GPU is sick in it, and what earlier lives left on the Node."""

    sick: bool
    quarantined: bool
    claimed: bool = False
    pods: bool = True
    withheld: bool = False
    device: bool = False


QUARANTINE = Story(sick=True, quarantined=False)
DEVICE = Story(sick=True, quarantined=False, device=True)
CONFINE = Story(sick=True, quarantined=False, withheld=True)
HAND_OVER = Story(sick=True, quarantined=False, pods=False)
GIVE_BACK = Story(sick=False, quarantined=True, pods=False)
FORGET = Story(sick=False, quarantined=False, claimed=True)

STORIES = {
    "claim": (QUARANTINE,),
    "slot": (QUARANTINE,),
    "taint": (QUARANTINE,),
    "confine": (CONFINE,),
    "event": (QUARANTINE, GIVE_BACK),
    "condition": (QUARANTINE, GIVE_BACK),
    "evict": (QUARANTINE,),
    "refresh": (QUARANTINE, HAND_OVER),
    "handover": (HAND_OVER, GIVE_BACK),
    "untaint": (GIVE_BACK,),
    "free_slot": (GIVE_BACK,),
    "forget": (FORGET,),
    "label": (QUARANTINE,),
    "rule": (DEVICE,),
    "unrule": (DEVICE._replace(sick=False),),
}
CASES = [
    pytest.param(point, story, id=f"{point}-{number}", marks=() if point.endswith(".sent") else pytest.mark.slow)
    for point in CRASH_POINTS
    for number, story in enumerate(STORIES[point.partition(".")[0]])
]
"""The worst moment of each action, done and not yet recorded, is in `make test`; the others are slow."""

SETTLED = 2 * LABEL_SECONDS
"""Seconds after which all is as it should be, labels last."""


class Cut(BaseException):
    """The end of an earlier life."""


@pytest.fixture
def server():
    cluster = SimulatedCluster()
    cluster.add_node(NODE, labels={"nvidia.com/gpu.present": "true"})
    cluster.add_namespace(NAMESPACE)
    with SimulatedApiServer(cluster) as running:
        yield running


@pytest.fixture
def orders(server, tmp_path):
    config = settings(
        checks={"gpu_lost": Response.DRAIN},
        drain=DrainConfig(retry=5.0),
        handover=HandoverConfig(annotation="gpuwatch.io/reboot", sentinel=str(tmp_path / "sentinel")),
        labels=get_args(SchedulingLabel),
    )
    return Orders(
        kubeconfig=str(server.kubeconfig()),
        state_dir=str(tmp_path / "state"),
        config=config,
        point="",
        sick=True,
        after=0,
    )


def live(orders, cluster, seconds, checkpoint=lambda name: None):
    """One life in this process, from the store on the disk to its end."""
    store = Store.open(orders.state_dir)
    try:
        made = bench(orders, cluster, store, checkpoint=checkpoint)
        made.run(seconds)
        return made
    finally:
        store.close()


def die_at(point):
    def checkpoint(name):
        if name == point:
            raise Cut

    return checkpoint


@pytest.mark.parametrize(("point", "story"), CASES)
def test_killed_at(point, story, server, orders, tmp_path):
    cluster, sentinel = server.cluster, tmp_path / "sentinel"
    if story.pods:
        cluster.add_pod("ml", "train-0", node=NODE, labels={"app": "train"})
    node = cluster.get("nodes", "", NODE)
    cluster.put("nodes", {**node, "spec": {**node["spec"], "taints": [FOREIGN]}}, user="another controller")
    if story.withheld or story.device:  # a hand-over takes the whole node
        config = replace(orders.config, handover=HandoverConfig())
        orders = replace(orders, withheld=story.withheld, config=config)
    if story.device:
        device = {"name": "gpu-0", "attributes": {"uuid": {"string": "GPU-0"}}}
        spec = {"driver": DRIVER, "nodeName": NODE, "pool": {"name": NODE, "generation": 1}, "devices": [device]}
        cluster.create("resourceslices", {"metadata": {"name": "slice"}, "spec": spec})
        cluster.serve_device_taints()
        if not story.sick:
            assert live(replace(orders, sick=True), cluster, 60).is_confined()
    if story.withheld:
        node = cluster.get("nodes", "", NODE)
        status = {**node["status"], "allocatable": {**node["status"]["allocatable"], "nvidia.com/gpu": "3"}}
        cluster.put("nodes", {**node, "status": status}, user="the kubelet")
    if story.quarantined:
        assert live(orders, cluster, 60).is_quarantined()
        assert sentinel.exists()
    if story.claimed:
        with pytest.raises(Cut):
            live(orders, cluster, 60, die_at("slot.recorded"))

    told = replace(orders, point=point, sick=story.sick, after=100.0)
    child = _processes.Process(target=die, args=(told, tmp_path / "child.log"))
    child.start()
    child.join(BOUND_SECONDS)
    assert child.exitcode == -signal.SIGKILL, (tmp_path / "child.log").read_text()[-2000:]

    again = live(replace(told, after=1000.0), cluster, SETTLED)
    reasons = [event["reason"] for event in cluster.objects("events", "default")]
    if story.sick:
        assert again.is_confined() if story.withheld or story.device else again.is_quarantined()
        assert reasons.count("GPUDegraded" if story.withheld or story.device else "GPUQuarantined") == 1
        assert sentinel.exists() is not story.pods
        again = live(replace(told, after=2000.0, sick=False), cluster, SETTLED)
    assert again.is_clean()
    assert cluster.objects("devicetaintrules") == []
    assert not sentinel.exists()
    assert again.taints == [FOREIGN]
    assert again.condition["status"] == "True"
    assert again.labels == {HEALTHY_COUNT: "4", NVLINK: "none"}
    assert max(reasons.count("GPUQuarantined"), reasons.count("GPURecovered")) <= 1


def test_every_action_has_its_stories():
    assert {point.partition(".")[0] for point in CRASH_POINTS} == STORIES.keys()
