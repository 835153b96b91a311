"""Waiting for a state, never for a time: the bound is generous because a machine under load is slow, not wrong."""

import time
from collections.abc import Callable
from typing import Any

BOUND_SECONDS = 90.0
"""How long a state may take on a machine that has four other things to do. A passing test never waits this long."""


def until(condition: Callable[[], Any], what: str = "", seconds: float = BOUND_SECONDS, step: float = 0.02) -> Any:
    """Return the first true value of `condition`; raise AssertionError, which names `what`, after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        if found := condition():
            return found
        assert time.monotonic() < deadline, f"{what or condition}: not within {seconds:g} s"
        time.sleep(step)
