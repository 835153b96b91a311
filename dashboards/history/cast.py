"""A node's scenario made fit for the fleet: it begins late enough, and no other node has pods of the same names."""

import re

from msgspec.structs import replace

from dashboards.history.fleet import NODES, Node
from gpuwatch.sim.node.actions import AnyAction, SimWorkload, StartWorkload, StopWorkload
from gpuwatch.sim.node.scenario import Scenario, load

_ORDINAL = re.compile(r"-\d+$")


def scenario(node: Node) -> Scenario:
    """What `node` lives through."""
    story, number = load(node.scenario), NODES.index(node)
    return replace(
        story,
        workloads=tuple(_apart(workload, number) for workload in story.workloads),
        timeline=tuple(_later(action, node.early + node.begins, number) for action in story.timeline),
    )


def _later(action: AnyAction, seconds: float, number: int) -> AnyAction:
    later: AnyAction = replace(action, at=action.at + seconds)
    if isinstance(later, StartWorkload):
        return replace(later, workload=_apart(later.workload, number))
    return replace(later, name=_name(later.name, number)) if isinstance(later, StopWorkload) else later


def _apart(workload: SimWorkload, number: int) -> SimWorkload:
    return replace(workload, name=_name(workload.name, number))


def _name(pod: str, number: int) -> str:
    """Pods of a set are numbered already, and go on to be; two of one node keep their distance."""
    ordinal = _ORDINAL.search(pod)
    if ordinal is None:
        return f"{pod}-{number}"
    return f"{pod[: ordinal.start()]}-{int(ordinal[0][1:]) + 10 * number}"
