"""On a simulated node a tuner enforces as on a real one: each of its parts as a process of its own, without root."""

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.agent.client import AgentClient
from gpuwatch.model.errors import GpuwatchError
from tests.cli.processes import finish, start
from tests.waiting import BOUND_SECONDS, until

BUDGET_WATTS, TDP_WATTS = 2500, 700
GPUS, OPTED_OUT = 8, 6


class Town:
    """Node, agent, guard and tuner of one directory; `tuner` may be ended before the others."""

    def __init__(self, place: Path, stack: ExitStack) -> None:
        self.node, self._place, self._stack = place / "node", place, stack
        self._config = place / "gpuwatch.yaml"
        self.configure()
        self._start("sim", "run", "tuning", "--dir", str(self.node))
        until((self.node / "node.json").exists)
        self.socket = str(place / "agent.sock")
        source = f"sim:{self.node}"
        self._start("--source", source, "agent", "--interval", "1", "--listen", "", "--socket", self.socket)
        self._start("--source", source, "tuner", "--guard")
        until(self._has_limits, "the agent has looked at all GPUs")
        words = ("tuner", "--mode", "enforce", "--agent", self.socket)
        self.tuner = self._start("--config", str(self._config), "--source", source, *words)

    def configure(self, more: str = "") -> None:
        """Write the file that the tuner watches."""
        partial = self._config.with_suffix(".partial")
        partial.write_text(f"tuning: {{node_budget_watts: {BUDGET_WATTS}, listen: ''{more}}}\n")
        partial.replace(self._config)

    def tune(self, *args: str) -> subprocess.CompletedProcess[str]:
        """A command about the tuner of this node."""
        return finish("--source", f"sim:{self.node}", "tune", *args)

    def status(self) -> dict[str, Any]:
        """What `gpuwatch tune status` says."""
        told = self.tune("status", "-o", "json")
        assert told.returncode in (0, 3), told.stderr
        document: dict[str, Any] = json.loads(told.stdout)
        return document

    def limits(self) -> list[float]:
        """Configured limits, watts, as the agent reads them."""
        gpus = AgentClient(self.socket).view().snapshot.gpus
        return [gpu.power.limit_configured or TDP_WATTS for gpu in gpus]

    def _has_limits(self) -> bool:
        with suppress(GpuwatchError):  # nobody answers yet
            return len(self.limits()) == GPUS
        return False

    def _start(self, *args: str) -> subprocess.Popen[str]:
        process = start(*args, XDG_RUNTIME_DIR=str(self._place))
        self._stack.callback(ended, process)
        return process


def ended(process: subprocess.Popen[str]) -> None:
    process.terminate()
    process.communicate(timeout=BOUND_SECONDS)


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Town]:
    with ExitStack() as stack:
        yield Town(tmp_path, stack)


FREE = [TDP_WATTS] * GPUS


def is_kept(town: Town) -> bool:
    return sum(town.limits()) <= BUDGET_WATTS + 0.5


@pytest.mark.slow  # the same on a turned clock: tests/tuning/service/test_tuner_enforcing.py
def test_a_simulated_node_keeps_its_budget_until_it_is_stopped_and_the_tuner_ends(town: Town) -> None:
    until(lambda: is_kept(town), "the budget is kept")
    assert town.limits()[OPTED_OUT] == TDP_WATTS
    status = town.status()
    assert (status["mode"], status["budget"]["budget"]) == ("enforce", BUDGET_WATTS)
    states = [item["state"] for item in status["items"]]
    assert (states[5], states[6], states[7]) == ("refused", "refused", "idle")
    until(lambda: town.status()["items"][0]["state"] == "observing", "whose owner agreed is looked at", step=0.5)
    assert town.tune("stop", "--reason", "a test").returncode == 0
    until(lambda: town.limits() == FREE, "all is given back")
    until(lambda: "a test" in (town.status()["stopped"] or ""), "it says why", step=0.5)
    ends_with_nothing_set(town)


@pytest.mark.slow  # going on after a stop and a change of mode: tests/tuning/service/test_tuner_enforcing.py
def test_a_simulated_node_keeps_its_budget_again_after_a_stop_and_a_reload(town: Town) -> None:
    until(lambda: is_kept(town), "the budget is kept")
    assert town.tune("stop").returncode == 0
    until(lambda: town.limits() == FREE, "all is given back")
    assert town.tune("resume").returncode == 0
    until(lambda: is_kept(town), "the budget is kept again")
    town.configure(", mode: observe")
    until(lambda: town.limits() == FREE, "all is given back")
    until(lambda: town.status()["mode"] == "observe", "it says that it only looks", step=0.5)
    town.configure()
    until(lambda: is_kept(town), "the budget is kept once more")
    ends_with_nothing_set(town)


def ends_with_nothing_set(town: Town) -> None:
    """SIGTERM gives back what is set, and leaves nothing for a person to do."""
    town.tuner.send_signal(signal.SIGTERM)
    _, errors = town.tuner.communicate(timeout=BOUND_SECONDS)
    assert (town.tuner.returncode, "Traceback" in errors) == (0, False)
    until(lambda: town.limits() == FREE, "all is as it was")
    left = town.tune("restore")
    assert (left.returncode, "Nothing is set" in left.stderr) == (0, True)
