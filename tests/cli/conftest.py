"""Agents for the command line to ask."""

import contextlib

import pytest

from tests.cli.commands import serving


@pytest.fixture(autouse=True)
def no_other_agent(monkeypatch, tmp_path_factory):
    """None on the usual sockets, where one of this machine may listen, and no simulated node in the usual folder."""
    empty = tmp_path_factory.getbasetemp() / "no-agent"
    monkeypatch.setattr("gpuwatch.sim.directory.runtime_dir", lambda: empty)
    monkeypatch.setattr("gpuwatch.agent.client.SYSTEM_SOCKET", empty / "agent.sock")
    monkeypatch.setattr("gpuwatch.agent.client.runtime_dir", lambda: empty)


@pytest.fixture
def agent():
    """`agent(view, events)` starts a serving agent and gives its socket's path."""
    with contextlib.ExitStack() as stack:
        yield lambda view, events=None, metrics=b"": stack.enter_context(serving(view, events, metrics))
