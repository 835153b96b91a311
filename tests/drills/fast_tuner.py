"""A tuner that enforces, in a process of its own and in a quicker time: `python -m tests.drills.fast_tuner FILE`.

FILE is the configuration as JSON. All is what `gpuwatch tuner` wires, but for the clock and the agent's Views: both go
FAST times as quickly, so that a search of minutes takes a test's seconds.
"""

import sys
import time
from pathlib import Path

import msgspec
from msgspec.structs import replace

from gpuwatch.agent.client import AgentClient, AgentViews
from gpuwatch.cli.console.session import Session
from gpuwatch.cli.tune.driver_access import nvml_actuator
from gpuwatch.config import Config
from gpuwatch.config import parse as parsed
from gpuwatch.model.clock import SystemClock
from gpuwatch.model.snapshot import Gpu
from gpuwatch.model.view import View
from gpuwatch.process.signals import ConfigWatch
from gpuwatch.storage.audit import Audit
from gpuwatch.storage.store import Store
from gpuwatch.tuning.service.process import TunerService
from gpuwatch.tuning.service.state_dir import TunerFolder
from gpuwatch.tuning.service.tuner import Tuner, checked

FAST = 10.0


class FastClock:
    """Starts with the machine's clocks, and runs away from them."""

    def __init__(self) -> None:
        self.began = time.time(), time.monotonic()

    def time(self) -> float:
        return self.fast(time.time())

    def monotonic(self) -> float:
        return self.began[1] + FAST * (time.monotonic() - self.began[1])

    def fast(self, at: float) -> float:
        """Unix seconds of the machine in this time."""
        return self.began[0] + FAST * (at - self.began[0])


class FastAgent:
    """An agent that looks FAST times as often as it does."""

    def __init__(self, agent: AgentClient, clock: FastClock) -> None:
        self.name, self._agent, self._clock = agent.name, agent, clock
        self._after: float | None = None

    def view(self, *, after: float | None = None, wait: float = 0.0) -> View:
        found = self._agent.view(after=None if after is None else self._after, wait=wait)
        self._after = found.snapshot.at
        snapshot = replace(
            found.snapshot,
            at=self._clock.fast(found.snapshot.at),
            interval=FAST * found.snapshot.interval,
            gpus=tuple(map(self._gpu, found.snapshot.gpus)),
        )
        return replace(found, snapshot=snapshot)

    def _gpu(self, gpu: Gpu) -> Gpu:
        window, energy = gpu.activity.window_seconds, gpu.power.energy
        return replace(
            gpu,
            at=self._clock.fast(gpu.at),
            activity=replace(gpu.activity, window_seconds=None if window is None else FAST * window),
            power=replace(gpu.power, energy=None if energy is None else FAST * energy),
        )


def main(file: Path) -> None:
    """Run until SIGTERM."""

    def read() -> Config:
        return checked(parsed(msgspec.json.decode(file.read_bytes()), str(file)), enforcing=True)

    config, session, clock = read(), Session(), FastClock()
    session.start_logging(default="INFO")
    session.start_audit()
    store = Store.open(config.state_dir)
    views = AgentViews(FastAgent(AgentClient(config.agent.socket), clock), clock)
    with nvml_actuator(session, config) as turning:
        tuner = Tuner(
            config.tuning,
            views,
            TunerFolder.at(Path(config.state_dir)),
            clock=clock,
            actuator=turning,
            audit=Audit(store, SystemClock(), actor="tuner"),
        )
        watch = ConfigWatch(config, file, read, live=("tuning", "checks"), role="tuner")
        TunerService(tuner, views, config.tuning.listen, watch=watch).run()
    store.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
