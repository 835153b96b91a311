"""Whose advice `gpuwatch recommend` tells: an agent's, which has watched, or its own about what others recorded."""

from typing import NamedTuple

from gpuwatch.cli.session import Session
from gpuwatch.cli.source import parse_source
from gpuwatch.model.errors import GpuwatchError, UsageError
from gpuwatch.model.recommendation import Recommendations


class Advice(NamedTuple):
    """`source` names who was asked."""

    body: Recommendations
    source: str


def advice(session: Session) -> Advice:
    """What there is to say.

    Raises:
        GpuwatchError: nobody answers, or nobody has watched.
    """
    from gpuwatch.roles.client import AgentClient, find_agent

    source = parse_source(session.source) if session.source else None
    if source is not None and source.kind != "agent":
        raise UsageError(
            f"--source {session.source} cannot tell what was",
            "sizes are judged by history",
            "ask an agent that has watched for a while, with --source agent:URL",
        )
    agent = AgentClient(source.argument or None) if source else find_agent()
    if agent is None:
        raise GpuwatchError("nobody has watched these GPUs", "no agent answers here", "start one: gpuwatch agent")
    return Advice(agent.recommendations(), f"agent {agent.name}")
