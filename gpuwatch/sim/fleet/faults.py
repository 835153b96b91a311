"""Injects faults into nodes of a fleet and repairs them: the symptoms of their GPUs, and when their agents report."""

import random
from functools import partial

import msgspec

from gpuwatch.sim.fleet.agent import DRIVER, INTERVAL, FleetFault
from gpuwatch.sim.fleet.fleet import SimulatedFleet
from gpuwatch.sim.fleet.node import FleetNode

REBOOT_SECONDS = 90.0


class FaultInjector:
    """Injects and repairs the faults of one fleet."""

    def __init__(self, fleet: SimulatedFleet, seed: int) -> None:
        self._fleet, self._chance = fleet, random.Random(f"ward {seed}")  # noqa: S311

    def inject(self, fault: FleetFault, within: float) -> None:
        """Inject the fault into its share of the nodes, spread over so many seconds."""
        names = list(self._fleet.nodes)
        for name in self._chance.sample(names, max(1, round(fault.share * len(names)))):
            self._fleet.at(self._chance.uniform(0, within), partial(self.inject_into, name, fault))

    def repair_all(self, within: float) -> None:
        """Repair all sick nodes, spread over so many seconds."""
        for name in sorted(self._fleet.sick):
            self._fleet.at(self._chance.uniform(0, within), partial(self.repair, name))

    def inject_into(self, name: str, fault: FleetFault) -> None:
        """Inject the fault into one node."""
        member = self._fleet.nodes[name]
        member.fault = fault
        member.context.agent.driver = fault.driver or DRIVER
        self._apply(member, fault)

    def repair(self, name: str) -> None:
        """Remove a node's fault."""
        member = self._fleet.nodes[name]
        agent, fault = member.context.agent, member.fault
        member.fault, member.symptomatic, agent.driver = None, False, DRIVER
        if fault is not None and fault.reboot:
            agent.trouble = "the node is rebooting"
            if not agent.has_news:
                member.healthy_before = None
            self._fleet.at(REBOOT_SECONDS, partial(self._boot, member))
        else:
            self._set_healthy(member)
        agent.set_symptoms({})
        self._wake(member)

    def _apply(self, member: FleetNode, fault: FleetFault) -> None:
        """Show the fault on the GPUs, and schedule its return where it comes again."""
        if member.fault is not fault:
            return
        agent = member.context.agent
        member.symptomatic = not member.symptomatic or fault.comes_and_goes is None
        if fault.taints and member.symptomatic:
            member.healthy_before, member.healthy_since = member.healthy_since, None
        else:
            self._set_healthy(member)
        hit = range(len(agent.uuids) if fault.gpus is None else fault.gpus)
        agent.set_symptoms(dict.fromkeys(hit, fault.symptom) if member.symptomatic else {})
        again = fault.comes_and_goes or fault.again
        if again is not None:
            self._fleet.at(again, partial(self._apply, member, fault))
        self._wake(member)

    def _boot(self, member: FleetNode) -> None:
        """After a reboot: agent and remediator have restarted, and the boot id is another."""
        self._set_healthy(member)
        boot = f"boot-at-{self._fleet.clock.monotonic():.0f}-of-{member.name}"
        agent = member.context.agent
        agent.host, agent.trouble = msgspec.structs.replace(agent.host, boot_id=boot), None
        agent.restart()
        cluster = self._fleet.cluster
        node = cluster.get("nodes", "", member.name)
        if node is not None:
            info = {**node["status"]["nodeInfo"], "bootID": boot}
            cluster.put("nodes", {**node, "status": {**node["status"], "nodeInfo": info}})
        self._fleet.restart(member.name)

    def _set_healthy(self, member: FleetNode) -> None:
        """Mark the node healthy from now on; a fault that ended before its agent sampled it does not count."""
        if member.healthy_since is None:
            member.healthy_since = member.healthy_before if member.context.agent.has_news else None
            member.healthy_since = member.healthy_since or self._fleet.clock.time()

    def _wake(self, member: FleetNode) -> None:
        self._fleet.wake(member.name, self._chance.uniform(0, INTERVAL))
