"""How nodes of a fleet fall ill and are repaired: what their GPUs show, and when their agents have news of it."""

import random
from functools import partial

import msgspec

from gpuwatch.sim.fleet.agent import DRIVER, INTERVAL
from gpuwatch.sim.fleet.faults import Fault
from gpuwatch.sim.fleet.fleet import Fleet
from gpuwatch.sim.fleet.seat import Post

REBOOT_SECONDS = 90.0


class Ward:
    """The patients of one fleet."""

    def __init__(self, fleet: Fleet, seed: int) -> None:
        self._fleet, self._chance = fleet, random.Random(f"ward {seed}")  # noqa: S311

    def strike(self, fault: Fault, within: float) -> None:
        """Let the nodes that a fault hits fall ill in the course of so many seconds."""
        names = list(self._fleet.posts)
        for name in self._chance.sample(names, max(1, round(fault.share * len(names)))):
            self._fleet.at(self._chance.uniform(0, within), partial(self.fall_ill, name, fault))

    def mend(self, within: float) -> None:
        """Let all nodes be repaired in the course of so many seconds."""
        for name in sorted(self._fleet.sick):
            self._fleet.at(self._chance.uniform(0, within), partial(self.repair, name))

    def fall_ill(self, name: str, fault: Fault) -> None:
        """Let one node have a fault."""
        post = self._fleet.posts[name]
        post.fault = fault
        post.seat.agent.driver = fault.driver or DRIVER
        self._show(post, fault)

    def repair(self, name: str) -> None:
        """Take a node's fault away."""
        post = self._fleet.posts[name]
        fault, post.fault, post.symptomatic = post.fault, None, False
        post.seat.agent.driver = DRIVER
        if fault is not None and fault.reboot:
            post.seat.agent.trouble = "the node is rebooting"
            self._fleet.at(REBOOT_SECONDS, partial(self._up_again, post))
        else:
            self._is_well(post)
        post.seat.agent.suffer({})
        self._tell(post)

    def _show(self, post: Post, fault: Fault) -> None:
        """Let the fault be seen on the GPUs, and come again where it does."""
        if post.fault is not fault:
            return
        agent = post.seat.agent
        post.symptomatic = not post.symptomatic or fault.comes_and_goes is None
        if fault.taints and post.symptomatic:
            post.well_before, post.well_since = post.well_since, None
        else:
            self._is_well(post)
        hit = range(agent.gpus if fault.gpus is None else fault.gpus)
        agent.suffer(dict.fromkeys(hit, fault.symptom) if post.symptomatic else {})
        again = fault.comes_and_goes or fault.again
        if again is not None:
            self._fleet.at(again, partial(self._show, post, fault))
        self._tell(post)

    def _up_again(self, post: Post) -> None:
        """After a reboot: agent, kubelet and remediator are new, and the boot id is another."""
        boot = f"boot-at-{self._fleet.clock.monotonic():.0f}-of-{post.name}"
        agent = post.seat.agent
        agent.host, agent.trouble = msgspec.structs.replace(agent.host, boot_id=boot), None
        agent.restart()
        cluster = self._fleet.cluster
        node = cluster.get("nodes", "", post.name)
        if node is not None:
            info = {**node["status"]["nodeInfo"], "bootID": boot}
            cluster.put("nodes", {**node, "status": {**node["status"], "nodeInfo": info}})
        self._is_well(post)
        self._fleet.restart(post.name)

    def _is_well(self, post: Post) -> None:
        """From now on; what went by between two looks of its agent never was."""
        if post.well_since is None:
            post.well_since = post.well_before if post.seat.agent.has_news else None
            post.well_since = post.well_since or self._fleet.clock.time()

    def _tell(self, post: Post) -> None:
        self._fleet.wake(post.name, self._chance.uniform(0, INTERVAL))
