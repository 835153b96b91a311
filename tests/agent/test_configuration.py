"""A changed configuration is taken over by the thread that makes Views, with the next one, and never in the middle."""

from pathlib import Path

from msgspec.structs import replace

from gpuwatch.agent.agent import Agent
from gpuwatch.config import AgentConfig, Backend, Config, MetricsConfig, RightsizingConfig, SourcesConfig
from gpuwatch.process.service import ConfigWatch


def test_it_holds_from_the_next_view_on(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    config = Config(
        agent=AgentConfig(listen="", socket=str(tmp_path / "agent.sock")),
        sources=SourcesConfig(kmsg=missing, pod_resources=f"{missing}/kubelet.sock", sys=missing),
        rightsizing=RightsizingConfig(enabled=False),
        state_dir="",
    )
    new = replace(config, metrics=MetricsConfig(profiles=("native", "dcgm-4.8")))
    agent = Agent(config, Backend(), watch=ConfigWatch(config, None, lambda: new))
    board = agent.board
    agent._follow_configuration(asked=True)
    assert (agent.profiles, agent.board) == (("native",), board)
    agent._publish()
    assert agent.profiles == ("native", "dcgm-4.8")
    assert agent.board is not board
    assert agent.board.page(("dcgm-4.8",), openmetrics=False, gzip=False)
