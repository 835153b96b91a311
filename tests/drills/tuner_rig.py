"""A node with a tuner and a guard as real processes on a fake driver, for drills: started, broken, ended, judged."""

import random
import shutil
import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from gpuwatch.config import Mode
from gpuwatch.model.errors import GpuwatchError
from gpuwatch.tuning.actuation.guard import CHECK_SECONDS, HEARTBEAT_TIMEOUT_SECONDS
from gpuwatch.tuning.actuation.record import SettingsRecord
from tests.drills import tuner_children
from tests.drills.tuner_children import Place
from tests.fakes.libnvml import FakeDriver, FakeProcess
from tests.fakes.libnvml.coupling import FakeSet
from tests.waiting import BOUND_SECONDS, until

VIEWS, GUARD = 40.0, 10.0
"""How many times faster than in earnest the tuner's GPUs and its guard are."""

GPUS = 2
LIMIT, TOP = 700_000, 1980
"""Milliwatts and megahertz: the originals."""

PATH_SECONDS = 35.0
EXIT_SECONDS = 5.0
SWAP_SECONDS = 2.0

_processes = get_context("forkserver")
_processes.set_forkserver_preload(["tests.drills.tuner_children"])


class DrillResult(NamedTuple):
    """One drill. `path`: seconds a guard would have taken in earnest; `exit`: those a tuner took to end."""

    kind: str
    seed: str
    trouble: str = ""
    path: float | None = None
    exit: float | None = None
    clocked: bool = False  # whether a clock cap was in force, too
    sets: int = 0  # calls of setters


class Rig:
    """A node of two GPUs with a tuner and a guard; used for one drill after the other."""

    def __init__(self, folder: Path, guard: float = GUARD, mode: Mode = "enforce") -> None:
        self.folder = folder
        self.driver = FakeDriver(folder / "driver", gpus=GPUS)
        self.place = Place(str(folder), str(self.driver.path), str(self.driver.library), VIEWS, guard, mode)
        self.place.state.mkdir()
        self.place.boot.parent.mkdir(parents=True)
        self.chance = random.Random()
        self.tuner: Any = None
        self.guard: Any = None
        self.path: float | None = None
        self.exit: float | None = None
        self.boots = 0

    @property
    def record(self) -> SettingsRecord:
        """What is recorded."""
        return SettingsRecord(self.place.state)

    @property
    def timeout(self) -> float:
        """Real seconds in which a guard has given everything back, and tried twice."""
        return 4 * PATH_SECONDS / self.place.guard

    def drill(self, kind: str, seed: str, mishap: "Callable[[Rig], None]", *, clocked: bool) -> DrillResult:
        """One failure from start to end; what was wrong is told, never raised. `clocked`: not without a clock cap."""
        self.chance, self.path, self.exit = random.Random(seed), None, None
        clocked, sets = self.chance.random() < 0.5 or clocked, 0
        try:
            self.reset()
            self.start_guard()
            self.start_tuner()
            until(self.is_limited, "power limits are in force")
            if clocked:
                until(self.is_clocked, "a clock is locked", step=0.002)
            time.sleep(self.chance.uniform(0.0, 0.2))
            mishap(self)
            self.finish()
            trouble, sets = self.judge(), len(self.driver.sets())
        except (AssertionError, GpuwatchError, OSError) as error:
            trouble = f"{type(error).__name__}: {error}"
        finally:
            self.end()
        return DrillResult(kind, seed, trouble, self.path, self.exit, clocked, sets)

    def reset(self) -> None:
        """As after a boot."""
        self.end()
        self.boot()
        self.driver.forget_settings()
        for gpu in range(GPUS):
            self.own(gpu)
        for file in self.place.state.iterdir():
            file.unlink() if file.is_file() else shutil.rmtree(file)
        self.driver.reset_calls()

    def boot(self) -> None:
        """The machine gets another boot id."""
        self.boots += 1
        self.place.boot.write_text(f"boot-{self.boots}\n")

    def own(self, gpu: int) -> None:
        """Other work begins on a GPU."""
        self.driver.set_processes(gpu, [FakeProcess(pid=self.chance.randrange(1000, 1_000_000))])

    def start_tuner(self) -> None:
        """A new one."""
        self.tuner = _processes.Process(target=tuner_children.tuner, args=(self.place,), daemon=True)
        self.tuner.start()

    def start_guard(self) -> None:
        """A new one."""
        self.guard = _processes.Process(target=tuner_children.guard, args=(self.place,), daemon=True)
        self.guard.start()

    def kill(self, process: Any) -> None:
        """With SIGKILL."""
        process.kill()
        process.join(BOUND_SECONDS)

    def terminate(self) -> None:
        """Have the tuner end by SIGTERM, and take the time."""
        began = time.monotonic()
        self.tuner.terminate()
        self.tuner.join(4 * EXIT_SECONDS)
        assert not self.tuner.is_alive(), "the tuner does not end"
        self.exit = time.monotonic() - began
        assert self.exit <= EXIT_SECONDS, f"the tuner took {self.exit:.1f} s to end"

    def limits(self) -> list[int]:
        """Milliwatts."""
        return [self.driver.get(gpu, "power_limit_mw") for gpu in range(GPUS)]

    def is_limited(self) -> bool:
        """Whether a limit is in force on each GPU."""
        self.alive()
        return max(self.limits()) < LIMIT

    def is_clocked(self) -> bool:
        """Whether a clock cap is in force somewhere."""
        self.alive()
        return any(map(self.is_locked, range(GPUS)))

    def is_locked(self, gpu: int) -> bool:
        """Whether a clock cap is in force."""
        return self.driver.get(gpu, "locked_max_mhz") is not None

    def is_original(self) -> bool:
        """Whether all knobs are as they were."""
        return self.limits() == [LIMIT] * GPUS and not any(map(self.is_locked, range(GPUS)))

    def is_forgotten(self) -> bool:
        """Whether nothing is recorded any more."""
        return not self.record.read().settings

    def alive(self) -> None:
        """Say so if one of the processes ended by itself."""
        for name, process in (("tuner", self.tuner), ("guard", self.guard)):
            assert process is None or process.is_alive(), f"the {name} ended: {self.tail(name)}"

    def tail(self, name: str) -> str:
        """What a process said last."""
        return (self.folder / f"{name}.log").read_text()[-700:]

    def restored(self, since: float | None = None) -> None:
        """Wait until everything is as it was; `since`: when the guard could begin to count."""
        until(self.is_original, "everything is as it was", self.timeout, step=0.005)
        if since is not None:
            self.path = in_earnest(time.monotonic() - since, self.place.guard)
            assert self.path <= PATH_SECONDS, f"the guard's path took {self.path:.1f} s"

    def finish(self) -> None:
        """End the tuner if it lives; what it could not give back, the guard does."""
        self.driver.clear()
        if self.tuner.is_alive():
            self.terminate()
        if not self.guard.is_alive():
            self.start_guard()
        self.restored()
        until(self.is_forgotten, "nothing is recorded", self.timeout)

    def judge(self) -> str:
        """What the driver's log says against us."""
        above = [call for call in self.driver.sets() if is_above(call)]
        return f"above the original: {above[:3]}" if above else ""

    def end(self) -> None:
        """Nobody is left."""
        self.driver.clear()
        for process in (self.tuner, self.guard):
            if process is not None:
                process.kill()
                process.join(BOUND_SECONDS)
                process.close()
        self.tuner = self.guard = None


def in_earnest(seconds: float, guard: float) -> float:
    """What the guard waits for, silence and its next look, is so many times faster here; what it then does is not."""
    waited = (HEARTBEAT_TIMEOUT_SECONDS + CHECK_SECONDS) / guard
    return min(seconds, waited) * guard + max(0.0, seconds - waited)


def is_above(call: FakeSet) -> bool:
    """Whether a setter call asked for more than there was at the start."""
    return call.value is not None and call.value > (LIMIT if call.knob == "power_limit" else TOP)
