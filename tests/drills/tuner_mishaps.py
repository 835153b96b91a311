"""What can go wrong under a tuner that has settings in force, and what has to be so while it does."""

import os
import resource
import signal
import time
from collections.abc import Callable

import pynvml

from gpuwatch.tuning.actuation.guard import HEARTBEAT_TIMEOUT_SECONDS
from gpuwatch.tuning.actuation.heartbeat import GUARD_NAME, HeartbeatFile
from tests.drills.tuner_rig import GPUS, LIMIT, SWAP_SECONDS, TOP, VIEWS, Rig
from tests.fakes.libnvml.coupling import FakeSet
from tests.waiting import until

SETTERS = ("nvmlDeviceSetPowerManagementLimit", "nvmlDeviceSetGpuLockedClocks", "nvmlDeviceResetGpuLockedClocks")


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
    before = HeartbeatFile(rig.place.state, GUARD_NAME).latest()
    rig.start_guard()
    until(lambda: HeartbeatFile(rig.place.state, GUARD_NAME).latest() != before, "the new guard looks")
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
    time.sleep(rig.chance.uniform(0.0, 1.5) * HEARTBEAT_TIMEOUT_SECONDS / rig.place.guard)


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
    time.sleep(rig.chance.uniform(0.0, 1.5) * HEARTBEAT_TIMEOUT_SECONDS / rig.place.guard)


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
    until(rig.is_forgotten, "what went with the boot is forgotten", rig.timeout)
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
