"""What goes wrong under a tuner that has settings in force: `python -m tests.drills.tuner_failures [--count 1000]`.

Each drill starts a tuner and a guard (real processes, see `tuner_children`) on a fake driver, waits until limits and in
half of the drills also a clock cap are in force, lets one thing go wrong, and then wants everything back as it was. The
driver keeps a log of every setter call: nothing may ever have been set above the original.
"""

import argparse
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import pynvml

from gpuwatch.config import TuningMode
from gpuwatch.model.errors import GpuwatchError
from gpuwatch.roles.tuner_guard import LOOK_SECONDS, SILENCE_SECONDS
from gpuwatch.sim.fakelib import FakeDriver, FakeProcess
from gpuwatch.sim.fakelib.coupling import FakeSet
from gpuwatch.sinks.heartbeat import GUARD_NAME, Heartbeat
from gpuwatch.sinks.settings_record import SettingsRecord
from tests.bench.measure import table
from tests.drills import tuner_children
from tests.drills.tuner_children import Place
from tests.e2e.processes import until

VIEWS, GUARD = 40.0, 10.0
"""How many times faster than in earnest the tuner's GPUs and its guard are."""

GPUS = 2
LIMIT, TOP = 700_000, 1980
"""Milliwatts and megahertz: the originals."""

PATH_SECONDS = 35.0
EXIT_SECONDS = 5.0
SWAP_SECONDS = 2.0

SETTERS = ("nvmlDeviceSetPowerManagementLimit", "nvmlDeviceSetGpuLockedClocks", "nvmlDeviceResetGpuLockedClocks")

_processes = get_context("forkserver")
_processes.set_forkserver_preload(["tests.drills.tuner_children"])


class Told(NamedTuple):
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

    def __init__(self, folder: Path, guard: float = GUARD, mode: TuningMode = "enforce") -> None:
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
    def patience(self) -> float:
        """Real seconds in which a guard has given everything back, and tried twice."""
        return 4 * PATH_SECONDS / self.place.guard

    def drill(self, kind: str, seed: str) -> Told:
        """One failure from start to end; what was wrong is told, never raised."""
        self.chance, self.path, self.exit = random.Random(seed), None, None
        clocked, sets = self.chance.random() < 0.5 or kind in NEED_CLOCKS, 0
        try:
            self.reset()
            self.start_guard()
            self.start_tuner()
            until(self.is_limited, "power limits are in force", 20)
            if clocked:
                until(self.is_clocked, "a clock is locked", 20, step=0.002)
            time.sleep(self.chance.uniform(0.0, 0.2))
            KINDS[kind](self)
            self.finish()
            trouble, sets = self.judge(), len(self.driver.sets())
        except (AssertionError, GpuwatchError, OSError) as error:
            trouble = f"{type(error).__name__}: {error}"
        finally:
            self.end()
        return Told(kind, seed, trouble, self.path, self.exit, clocked, sets)

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
        process.join(10)

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
        until(self.is_original, "everything is as it was", self.patience, step=0.005)
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
        until(self.is_forgotten, "nothing is recorded", self.patience)

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
                process.join(10)
                process.close()
        self.tuner = self.guard = None


def in_earnest(seconds: float, guard: float) -> float:
    """What the guard waits for, silence and its next look, is so many times faster here; what it then does is not."""
    waited = (SILENCE_SECONDS + LOOK_SECONDS) / guard
    return min(seconds, waited) * guard + max(0.0, seconds - waited)


def is_above(call: FakeSet) -> bool:
    """Whether a setter call asked for more than there was at the start."""
    return call.value is not None and call.value > (LIMIT if call.knob == "power_limit" else TOP)


def sigterm(rig: Rig) -> None:
    """The tuner is told to end: it gives everything back itself, at once."""
    rig.kill(rig.guard)
    rig.terminate()
    assert rig.is_original(), f"left in force: {rig.limits()}"


def kill_tuner(rig: Rig) -> None:
    """The guard gives it back."""
    died = time.monotonic()
    rig.kill(rig.tuner)
    rig.restored(died)


def kill_guard(rig: Rig) -> None:
    """A tuner without a guard gives everything back and sets nothing."""
    rig.kill(rig.guard)
    rig.restored()
    before = len(rig.driver.sets())
    time.sleep(10 / VIEWS)
    assert len(rig.driver.sets()) == before, "something was set without a guard"


def kill_both_guard_comes(rig: Rig) -> None:
    """A new guard finds what both have left."""
    rig.kill(rig.guard)
    rig.kill(rig.tuner)
    assert not rig.is_original()
    before = Heartbeat(rig.place.state, GUARD_NAME).look()
    rig.start_guard()
    until(lambda: Heartbeat(rig.place.state, GUARD_NAME).look() != before, "the new guard looks")
    rig.restored(time.monotonic())


def kill_both_tuner_comes(rig: Rig) -> None:
    """A new tuner gives back what an earlier one has left before it does anything."""
    rig.kill(rig.guard)
    rig.kill(rig.tuner)
    assert not rig.is_original()
    rig.start_tuner()
    rig.restored()


def error_in_write(rig: Rig) -> None:
    """A setter fails for a while."""
    _fail(rig)
    time.sleep(rig.chance.uniform(0.1, 0.6))


def error_then_sigterm(rig: Rig) -> None:
    """The tuner has to end while the driver refuses."""
    _fail(rig)
    time.sleep(rig.chance.uniform(0.0, 0.3))
    rig.terminate()


def error_then_kill(rig: Rig) -> None:
    """The tuner dies while the driver refuses."""
    _fail(rig)
    time.sleep(rig.chance.uniform(0.0, 0.3))
    rig.kill(rig.tuner)
    time.sleep(rig.chance.uniform(0.0, 1.5) * SILENCE_SECONDS / rig.place.guard)


def hang_in_write(rig: Rig) -> None:
    """A setter does not return for a while."""
    _hang(rig)
    time.sleep(rig.chance.uniform(0.1, 0.6))


def hang_then_sigterm(rig: Rig) -> None:
    """The tuner has to end while the driver hangs."""
    _hang(rig)
    rig.terminate()


def hang_then_kill(rig: Rig) -> None:
    """The tuner dies inside the driver."""
    _hang(rig)
    rig.kill(rig.tuner)
    time.sleep(rig.chance.uniform(0.0, 1.5) * SILENCE_SECONDS / rig.place.guard)


def reboot(rig: Rig) -> None:
    """Nothing of before is in force; an administrator's limit of after the boot stays."""
    rig.kill(rig.tuner)
    rig.kill(rig.guard)
    rig.driver.forget_settings()
    rig.boot()
    theirs = rig.chance.choice((LIMIT, 400_000))
    rig.driver.set(0, power_limit_mw=theirs, power_limit_enforced_mw=theirs)
    before = len(rig.driver.sets())
    rig.start_guard()
    until(rig.is_forgotten, "what went with the boot is forgotten", rig.patience)
    assert len(rig.driver.sets()) == before, "something was set that went with the boot"
    assert rig.limits() == [theirs, LIMIT]
    rig.driver.set(0, power_limit_mw=LIMIT, power_limit_enforced_mw=LIMIT)


def reload(rig: Rig) -> None:
    """The driver is loaded anew, with its defaults, under the tuner."""
    rig.driver.forget_settings()
    rig.driver.reload(rig.chance.choice((None, "590.48.01", "580.105.08")))
    time.sleep(rig.chance.uniform(0.0, 0.5))
    rig.kill(rig.tuner) if rig.chance.random() < 0.5 else rig.terminate()
    rig.kill(rig.guard)


def swap(rig: Rig) -> None:
    """Other work begins on a GPU whose clock is capped."""
    gpu = until(lambda: [each for each in range(GPUS) if rig.is_locked(each)], "a clock is locked", step=0.002)[0]
    rig.own(gpu)
    until(lambda: not rig.is_locked(gpu), "the next owner has its clock", SWAP_SECONDS, step=0.001)
    end = time.monotonic() + 20 / VIEWS
    while time.monotonic() < end:
        assert not rig.is_locked(gpu), "the next owner is capped again"
        time.sleep(0.005)


def stop_and_continue(rig: Rig) -> None:
    """A tuner that is stopped is as good as dead; when it goes on, it finds that its settings were given back."""
    stopped = time.monotonic()
    os.kill(rig.tuner.pid, signal.SIGSTOP)
    rig.restored(stopped)
    os.kill(rig.tuner.pid, signal.SIGCONT)
    time.sleep(rig.chance.uniform(0.1, 0.6))


def full_disk(rig: Rig) -> None:
    """The tuner cannot write a byte any more."""
    resource.prlimit(rig.tuner.pid, resource.RLIMIT_FSIZE, (0, 0))
    rig.restored(time.monotonic())
    time.sleep(rig.chance.uniform(0.1, 0.4))
    assert rig.is_original(), "something was set that cannot be recorded"


def lost_directory(rig: Rig) -> None:
    """The state directory is away for a while: what is set cannot be told, so nothing is set."""
    away = rig.folder / "away"
    rig.place.state.rename(away)
    time.sleep(2 / VIEWS + 0.1)
    before = len([call for call in rig.driver.sets() if is_cap(call)])
    time.sleep(rig.chance.uniform(0.1, 1.0))
    after = len([call for call in rig.driver.sets() if is_cap(call)])
    away.rename(rig.place.state)
    assert after == before, "something was set that cannot be recorded"


def is_cap(call: FakeSet) -> bool:
    """Whether a setter call asked for less."""
    return call.value is not None and call.value < (LIMIT if call.knob == "power_limit" else TOP)


def _fail(rig: Rig) -> None:
    code = rig.chance.choice(
        (pynvml.NVML_ERROR_UNKNOWN, pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_NO_PERMISSION)
    )
    rig.driver.error(
        code, rig.chance.choice((*SETTERS, "nvmlDeviceGetPowerManagementLimit")), rig.chance.choice((0, 1, None))
    )


def _hang(rig: Rig) -> None:
    """Until somebody is inside, if anybody comes."""
    gpu, setters = rig.chance.randrange(GPUS), rig.chance.sample(SETTERS, 2)
    for setter in setters:
        rig.driver.hang(setter, gpu)
    deadline = time.monotonic() + 1.0
    while time.monotonic() < deadline and not any(rig.driver.in_flight(setter) for setter in setters):
        time.sleep(0.005)


KINDS: dict[str, Callable[[Rig], None]] = {
    "SIGTERM": sigterm,
    "SIGKILL of the tuner": kill_tuner,
    "SIGKILL of the guard": kill_guard,
    "SIGKILL of both, a guard comes": kill_both_guard_comes,
    "SIGKILL of both, a tuner comes": kill_both_tuner_comes,
    "NVML error in mid-write": error_in_write,
    "NVML error, SIGTERM": error_then_sigterm,
    "NVML error, SIGKILL": error_then_kill,
    "driver hangs in mid-write": hang_in_write,
    "driver hangs, SIGTERM": hang_then_sigterm,
    "driver hangs, SIGKILL": hang_then_kill,
    "reboot": reboot,
    "driver reload": reload,
    "pod swap": swap,
    "SIGSTOP, SIGCONT": stop_and_continue,
    "full disk": full_disk,
    "state directory lost": lost_directory,
}

NEED_CLOCKS = ("pod swap",)


def drills(
    count: int, seed: int, folder: Path, rigs: int, kinds: Sequence[str] = tuple(KINDS), guard: float = GUARD
) -> list[Told]:
    """So many drills, one kind after the other, on some rigs at once; `guard`: how fast theirs is."""
    jobs = [(kinds[number % len(kinds)], f"{seed} {number}") for number in range(count)]
    free = threading.local()
    numbers = iter(range(rigs))

    def one(job: tuple[str, str]) -> Told:
        if not hasattr(free, "rig"):
            own = folder / f"rig-{next(numbers)}"
            own.mkdir()
            free.rig = Rig(own, guard)
        return free.rig.drill(*job)

    with ThreadPoolExecutor(rigs) as pool:
        return list(pool.map(one, jobs))


def show(found: Sequence[Told]) -> None:
    """A line for each kind."""
    kinds: dict[str, list[Told]] = defaultdict(list)
    for each in found:
        kinds[each.kind].append(each)
        kinds["all"].append(each)
    head = ("failure", "n", "clocks capped, too", "as it was", "guard's path, most", "the tuner's end, most")
    rows = [
        (
            kind,
            len(own),
            sum(each.clocked for each in own),
            f"{sum(not each.trouble for each in own) / len(own):.1%}",
            _most([each.path for each in own]),
            _most([each.exit for each in own]),
        )
        for kind, own in sorted(kinds.items(), key=lambda item: item[0] == "all")
    ]
    print(f"{sum(each.sets for each in found)} calls of setters")
    table("Failures under a tuner that has settings in force", head, rows)
    for each in found:
        if each.trouble:
            print(f"{each.kind} (--seed {each.seed}): {each.trouble}")


def _most(seconds: Sequence[float | None]) -> str | None:
    known = [each for each in seconds if each is not None]
    return f"{max(known):.1f} s" if known else None


def main(arguments: Sequence[str]) -> int:
    """1: something was not as it was."""
    parser = argparse.ArgumentParser(prog="python -m tests.drills.tuner_failures", description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rigs", type=int, default=8, help="how many drills at once")
    parser.add_argument("--kind", action="append", choices=list(KINDS), help="only these")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        found = drills(chosen.count, chosen.seed, Path(folder), chosen.rigs, chosen.kind or tuple(KINDS))
    show(found)
    return 1 if any(each.trouble for each in found) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
