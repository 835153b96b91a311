"""Agents for the command line to ask."""

import contextlib

import pytest

from tests.cli.commands import serving


@pytest.fixture
def agent():
    """`agent(view, events)` starts a serving agent and gives its socket's path."""
    with contextlib.ExitStack() as stack:
        yield lambda view, events=None, metrics=b"": stack.enter_context(serving(view, events, metrics))
