"""On a simulated node a tuner enforces as on a real one: each of its parts as a process of its own, without root."""

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.cli.processes import finish, start, until

BUDGET_WATTS, TDP_WATTS = 2500, 700
GPUS, OPTED_OUT = 8, 6
SECONDS = 30.0


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
        told = finish("--source", f"agent:{self.socket}", "get", "gpus", "-o", "json")
        if told.returncode == 1:  # nobody answers yet
            return [TDP_WATTS] * GPUS
        return [gpu["power"]["limit_configured"] for gpu in json.loads(told.stdout)["items"]]

    def _start(self, *args: str) -> subprocess.Popen[str]:
        process = start(*args, XDG_RUNTIME_DIR=str(self._place))
        self._stack.callback(ended, process)
        return process


def ended(process: subprocess.Popen[str]) -> None:
    process.terminate()
    process.communicate(timeout=20)


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Town]:
    with ExitStack() as stack:
        yield Town(tmp_path, stack)


def test_a_simulated_node_keeps_its_budget_until_it_is_told_to_stop_or_the_tuner_ends(town: Town) -> None:
    free = [TDP_WATTS] * GPUS
    until(lambda: town.limits() != free, SECONDS)
    until(lambda: sum(town.limits()) <= BUDGET_WATTS + 0.5, SECONDS)
    assert town.limits()[OPTED_OUT] == TDP_WATTS
    status = town.status()
    assert (status["mode"], status["budget"]["budget"]) == ("enforce", BUDGET_WATTS)
    states = [item["state"] for item in status["items"]]
    assert (states[0], states[5], states[6], states[7]) == ("observing", "refused", "refused", "idle")

    assert town.tune("stop", "--reason", "a test").returncode == 0
    until(lambda: town.limits() == free, SECONDS)
    assert "a test" in town.status()["stopped"]
    assert town.tune("resume").returncode == 0
    until(lambda: sum(town.limits()) <= BUDGET_WATTS + 0.5, SECONDS)

    town.configure(", mode: observe")
    until(lambda: town.limits() == free, SECONDS)
    assert town.status()["mode"] == "observe"
    town.configure()
    until(lambda: sum(town.limits()) <= BUDGET_WATTS + 0.5, SECONDS)

    town.tuner.send_signal(signal.SIGTERM)
    _, errors = town.tuner.communicate(timeout=20)
    assert (town.tuner.returncode, "Traceback" in errors) == (0, False)
    until(lambda: town.limits() == free, SECONDS)
    left = town.tune("restore")
    assert (left.returncode, "Nothing is set" in left.stderr) == (0, True)
