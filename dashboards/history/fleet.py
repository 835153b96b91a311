"""Who is in the history: every node, the scenario it lives through, and when that begins."""

from typing import Literal, NamedTuple

STEP = 60.0
"""Seconds between scrapes."""

END = 1_772_366_340.0
"""The last scrape, 2026-03-01 11:59 UTC: always the same, so that pictures are, the last of a block."""

SECONDS = 2 * 3600 - STEP
BEGIN = END - SECONDS
MINUTE = 60.0

LAG = 1.0
"""Seconds between an agent's look and the scrape that brings it."""


class Node(NamedTuple):
    """One machine. `begins`: seconds after BEGIN at which the timeline of `scenario` starts; `away`: from when to when
    its agent does not answer, in such seconds; `acts`: it has a remediator and a tuner; `tuning`: that one's mode.
    """

    name: str
    cluster: str
    scenario: str
    begins: float = 0.0
    away: tuple[float, float] | None = None
    acts: bool = True
    tuning: Literal["observe", "enforce"] = "enforce"

    @property
    def early(self) -> float:
        """Seconds for which it runs before BEGIN."""
        return 2 * MINUTE * (NODES.index(self) % 7)

    @property
    def labels(self) -> dict[str, str]:
        """What a scrape puts on every series, besides the job."""
        return {"cluster": self.cluster, "instance": self.name, "node": self.name}


NODES: tuple[Node, ...] = (
    Node("gpu-west-01", "west", "healthy", away=(30 * MINUTE, 36 * MINUTE)),
    Node("gpu-west-02", "west", "fallen-off-bus", begins=79 * MINUTE),
    Node("gpu-west-03", "west", "repaired", begins=39 * MINUTE),
    Node("gpu-west-04", "west", "thermal", begins=88 * MINUTE),
    Node("gpu-west-05", "west", "nvlink-down", begins=95 * MINUTE),
    Node("gpu-east-01", "east", "row-remap", begins=64 * MINUTE, tuning="observe"),
    Node("gpu-east-02", "east", "mig", begins=50 * MINUTE),
    Node("gpu-east-03", "east", "time-sliced", acts=False),
    Node("gpu-east-04", "east", "idle-allocated"),
    Node("gpu-east-05", "east", "driver-reload", begins=25 * MINUTE),
    Node("gpu-east-06", "east", "app-xid", begins=70 * MINUTE),
)

CLUSTERS = tuple(dict.fromkeys(node.cluster for node in NODES))


def of(cluster: str) -> tuple[Node, ...]:
    """The nodes of a cluster."""
    return tuple(node for node in NODES if node.cluster == cluster)
