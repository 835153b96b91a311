"""What is drawn: dashboards at moments at which they have something to show."""

from typing import NamedTuple

from dashboards.history.fleet import BEGIN, END, NODES

ALL = "$__all"
MINUTE = 60.0


class Story(NamedTuple):
    """A dashboard, a time, and what its variables are set to; those not named are at All, or at what they come with."""

    dashboard: str
    name: str
    variables: dict[str, str] = {}
    begin: float = BEGIN + 5 * MINUTE  # a rate needs some minutes to be right
    end: float = END


STORIES: tuple[Story, ...] = (
    Story("fleet", "healthy", end=BEGIN + 38 * MINUTE),
    Story("fleet", "faults"),
    Story("node", "healthy", {"node": "gpu-west-01"}, begin=BEGIN + 60 * MINUTE, end=BEGIN + 110 * MINUTE),
    Story("node", "fallen-off-bus", {"node": "gpu-west-02"}),
    Story("node", "thermal", {"node": "gpu-west-04"}, begin=BEGIN + 70 * MINUTE, end=BEGIN + 104 * MINUTE),
    Story("node", "mig", {"node": "gpu-east-02"}),
    Story("workload", "idle-allocated", {"namespace": "team-nlp + team-vision"}),
    Story("workload", "straggler", {"namespace": "ml-research", "workload": "llama-pretrain-30"}),
    Story("cost", "month"),
    Story("operations", "quarantine"),
)


def of_node(dashboard: str, node: str) -> Story:
    """A dashboard set to one node, all the time."""
    return Story(dashboard, node, {"node": node})


def node_of(scenario: str) -> str | None:
    """The node that lives through a scenario."""
    return next((node.name for node in NODES if node.scenario == scenario), None)
