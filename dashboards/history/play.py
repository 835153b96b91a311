"""Plays the nodes of a cluster, all in one time, and writes what a Prometheus would have scraped."""

import heapq
from collections.abc import Iterator
from itertools import repeat

from dashboards.history.fleet import BEGIN, LAG, STEP, of
from dashboards.history.targets import Agent, Remediator, Tuner
from gpuwatch.kube.objects import LeaseObject


def samples(cluster: str) -> Iterator[bytes]:
    """What was scraped from a cluster, in order of time: lines of OpenMetrics with time stamps."""
    nodes = of(cluster)
    leases: dict[str, LeaseObject] = {}
    agents = [Agent(node) for node in nodes]
    others = [(Remediator(node, len(nodes), leases), Tuner(node)) if node.acts else () for node in nodes]
    tapes = (zip(agent.views(), repeat(number)) for number, agent in enumerate(agents))
    for view, number in heapq.merge(*tapes, key=lambda turn: (turn[0].snapshot.at, turn[1])):
        for other in others[number]:
            other.see(view)
        at = view.snapshot.at + LAG
        if (at - BEGIN) % STEP == 0:
            yield agents[number].scraped(view, at)
            for other in others[number]:
                yield other.scraped(at)
