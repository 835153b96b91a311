"""A tuner that dies with settings in force, and one that only looks: real processes, on a fake driver that counts."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pynvml
import pytest

from gpuwatch.tuning.actuation.guard import HEARTBEAT_TIMEOUT_SECONDS
from gpuwatch.tuning.actuation.heartbeat import HeartbeatFile
from gpuwatch.tuning.actuation.record import SettingsRecord
from gpuwatch.tuning.model.setting import Actuation, Setting
from tests.drills.agent_process import AgentProcess
from tests.e2e.processes import fetch, series
from tests.fakes.libnvml import FakeDriver
from tests.ports import free_port
from tests.waiting import BOUND_SECONDS, until

FAST = 10.0
"""How many times faster than in earnest the guard of these tests is."""

GUARD = f"""
import signal, sys, threading
from pathlib import Path
from gpuwatch.cli.console.session import Session
from gpuwatch.cli.tune.driver_access import restorer
from gpuwatch.config import Config
from gpuwatch.model.clock import SystemClock
from gpuwatch.tuning.model.setting import Trigger
from gpuwatch.tuning.actuation.guard import CHECK_SECONDS, HEARTBEAT_TIMEOUT_SECONDS, RETRY_SECONDS, Guard
from gpuwatch.tuning.actuation.heartbeat import HeartbeatFile
from gpuwatch.tuning.actuation.record import SettingsRecord

place, stopping = Path(sys.argv[1]), threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stopping.set())
with restorer(Session(), Config(state_dir=str(place)), Trigger.GUARD) as restoring:
    Guard(
        SettingsRecord(place), HeartbeatFile(place), restoring, SystemClock(),
        timeout=HEARTBEAT_TIMEOUT_SECONDS / {FAST}, interval=CHECK_SECONDS / {FAST}, retry=RETRY_SECONDS / {FAST},
        exit_wait=0.2,
    ).run(stopping.wait)
"""

HOLDER = """
import sys, threading, time
from pathlib import Path
import pynvml
from gpuwatch.tuning.model.setting import Setting
from gpuwatch.tuning.actuation.heartbeat import HeartbeatFile
from gpuwatch.tuning.actuation.record import SettingsRecord
from gpuwatch.host.machine import boot_id_file, first_line

place, record = Path(sys.argv[1]), SettingsRecord(Path(sys.argv[1]))
pynvml.nvmlInit()
here = {"boot_id": first_line(boot_id_file(Path("/proc"))), "driver": pynvml.nvmlSystemGetDriverVersion()}
for index, watts in enumerate((400, 300)):
    gpu = pynvml.nvmlDeviceGetHandleByIndex(index)
    own = {"uuid": pynvml.nvmlDeviceGetUUID(gpu), "at": time.time(), **here}
    record.add(Setting(knob="power_limit", original=700.0, applied=(float(watts),), **own))
    record.add(Setting(knob="locked_clocks", original=None, applied=(1.2e9,), **own))
    pynvml.nvmlDeviceSetPowerManagementLimit(gpu, watts * 1000)
    pynvml.nvmlDeviceSetGpuLockedClocks(gpu, 210, 1200)
print("set", flush=True)
while True:
    HeartbeatFile(place).beat("enforce", time.time())
    time.sleep(0.1)
"""
"""Does what a tuner does, in its order: record, then set, then beat for as long as it lives."""

SETTERS = (
    "nvmlDeviceSetPowerManagementLimit",
    "nvmlDeviceSetGpuLockedClocks",
    "nvmlDeviceResetGpuLockedClocks",
    "nvmlDeviceSetMemoryLockedClocks",
    "nvmlDeviceResetMemoryLockedClocks",
    "nvmlDeviceSetApplicationsClocks",
    "nvmlDeviceResetApplicationsClocks",
)

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    (tmp_path / "state").mkdir()
    return tmp_path / "state"


@pytest.fixture
def start(driver: FakeDriver, tmp_path: Path) -> Iterator[Start]:
    """`start(*arguments)` runs Python on the fake driver; whoever is left at the end is killed."""
    started: list[subprocess.Popen[str]] = []

    def run(*arguments: str) -> subprocess.Popen[str]:
        log = (tmp_path / f"process-{len(started)}.log").open("w")
        started.append(
            subprocess.Popen(
                [sys.executable, *arguments],
                env=environment(driver),
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        )
        log.close()
        return started[-1]

    yield run
    driver.clear()
    for process in started:
        process.kill()
        process.wait(BOUND_SECONDS)
        if process.stdout:
            process.stdout.close()


def environment(driver: FakeDriver) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("GPUWATCH_")} | driver.env


def holding(start: Start, state: Path) -> subprocess.Popen[str]:
    """A holder whose settings are in force."""
    holder = start("-c", HOLDER, str(state))
    assert holder.stdout is not None
    assert holder.stdout.readline() == "set\n"
    return holder


def limits(driver: FakeDriver) -> list[int]:
    return [driver.get(gpu, "power_limit_mw") // 1000 for gpu in (0, 1)]


def is_original(driver: FakeDriver) -> bool:
    return limits(driver) == [700, 700] and all(driver.get(gpu, "locked_max_mhz") is None for gpu in (0, 1))


def recorded(state: Path) -> tuple[Setting, ...]:
    return SettingsRecord(state).read().settings


def tune(driver: FakeDriver, state: Path, *message: str) -> subprocess.CompletedProcess[str]:
    """`gpuwatch tune ...`, run to its end."""
    command = [sys.executable, "-m", "gpuwatch", "--nvml-library", str(driver.library), "tune", *message]
    return subprocess.run(
        [*command, "--state-dir", str(state)], env=environment(driver), capture_output=True, text=True, check=False
    )


def test_s4_after_kill_9_the_guard_restores_everything(driver: FakeDriver, start: Start, state: Path) -> None:
    holder = holding(start, state)
    start("-c", GUARD, str(state))
    assert limits(driver) == [400, 300]
    time.sleep(1.3 * HEARTBEAT_TIMEOUT_SECONDS / FAST)  # it lives: past the time after which silence would be acted on
    assert limits(driver) == [400, 300]
    died = time.monotonic()
    os.kill(holder.pid, signal.SIGKILL)
    until(lambda: is_original(driver), "everything is as it was")
    took = (time.monotonic() - died) * FAST
    print(f"given back {took:.1f} s after the kill, in the time of a real guard")
    assert took >= HEARTBEAT_TIMEOUT_SECONDS - 10
    until(lambda: not recorded(state), "nothing is recorded")
    assert SettingsRecord(state).read().restores == {"guard": 4}


def test_s4_a_tuner_that_hangs_is_as_good_as_dead(driver: FakeDriver, start: Start, state: Path) -> None:
    holder = holding(start, state)
    start("-c", GUARD, str(state))
    os.kill(holder.pid, signal.SIGSTOP)
    until(lambda: is_original(driver), "everything is as it was")


def test_s6_while_the_driver_refuses_the_guard_keeps_the_record_and_tries_again(
    driver: FakeDriver, start: Start, state: Path
) -> None:
    driver.error(pynvml.NVML_ERROR_UNKNOWN, "nvmlDeviceGetPowerManagementLimit", gpu=0)
    holding(start, state).kill()
    start("-c", GUARD, str(state))
    until(lambda: limits(driver)[1] == 700, "the GPU that answers is as it was")
    until(lambda: len(recorded(state)) == 1, "what is not verified stays recorded")
    assert limits(driver)[0] == 400
    driver.clear()
    until(lambda: is_original(driver) and not recorded(state), "the other one, too")


def test_a_guard_that_is_asked_to_end_leaves_nothing_behind(
    tmp_path: Path, driver: FakeDriver, start: Start, state: Path
) -> None:
    holding(start, state)
    guard = start("-m", "gpuwatch", "tuner", "--guard", "--state-dir", str(state))
    until(lambda: "guarding" in (tmp_path / "process-1.log").read_text(), "the guard is there")
    guard.send_signal(signal.SIGTERM)
    assert guard.wait(BOUND_SECONDS) == 0
    assert is_original(driver)


def test_s14_a_person_restores_everything_but_not_from_under_a_living_tuner(
    driver: FakeDriver, start: Start, state: Path
) -> None:
    holder = holding(start, state)
    until(lambda: HeartbeatFile(state).latest(), "the holder beats")
    refused = tune(driver, state, "restore")
    assert refused.returncode == 2
    assert f"a tuner runs (process {holder.pid})" in refused.stderr
    assert limits(driver) == [400, 300]
    done = tune(driver, state, "restore", "--all")
    assert (done.returncode, done.stdout.count("restored")) == (0, 4)
    assert is_original(driver)
    assert tune(driver, state, "restore").returncode == 0


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        (pynvml.NVML_ERROR_NO_PERMISSION, 6),
        pytest.param(pynvml.NVML_ERROR_UNKNOWN, 1, marks=pytest.mark.slow),  # as the other, but for its exit code
    ],
)
def test_what_a_person_cannot_restore_is_an_error(
    driver: FakeDriver, start: Start, state: Path, code: int, exit_code: int
) -> None:
    holding(start, state).kill()
    for setter in ("nvmlDeviceSetPowerManagementLimit", "nvmlDeviceResetGpuLockedClocks"):
        driver.error(code, setter)
    failed = tune(driver, state, "restore", "--all")
    assert failed.returncode == exit_code
    assert "settings not restored: 4 of 4" in failed.stderr
    assert len(recorded(state)) == 4


OBSERVED = {
    ("0", "idle", None),
    ("1", "refused", "mig"),
    ("2", "refused", "slowdown"),
    ("3", "refused", "conflict"),
}


def states(page: bytes) -> set[tuple[str, str, str | None]]:
    """GPU, state and reason."""
    labels = (dict(each.labels) for each in series(page) if each.name == "gpuwatch_tuner_state")
    return {(each["gpu"], each["state"], each.get("reason")) for each in labels}


@contextmanager
def observing(tmp_path: Path, driver: FakeDriver, start: Start, state: Path) -> Iterator[str]:
    """The tuner's URL, beside an agent on the same driver."""
    with AgentProcess(tmp_path, driver) as agent:
        agent.wait_complete(4)
        port = free_port()
        message = ["-m", "gpuwatch", "tuner", "--agent", str(tmp_path / "agent.sock"), "--state-dir", str(state)]
        start(*message, "--listen", f"127.0.0.1:{port}")
        url = f"http://127.0.0.1:{port}"
        until(lambda: fetch(f"{url}/-/ready"), "the tuner is ready")
        yield url


def test_a9_a_tuner_that_observes_calls_no_setter_and_has_a_page_that_pleases_promtool(
    tmp_path: Path, driver: FakeDriver, start: Start, state: Path
) -> None:
    driver.set_mig(1, [])
    driver.set(2, clock_events=0x20)  # software thermal slowdown
    driver.set(3, power_limit_mw=500_000, power_limit_enforced_mw=500_000)
    driver.reset_calls()
    with observing(tmp_path, driver, start, state) as url:
        start("-m", "gpuwatch", "tuner", "--guard", "--state-dir", str(state))
        page = until(lambda: fetch(f"{url}/metrics"), "a page")
        until(lambda: states(fetch(f"{url}/metrics") or b"") == OBSERVED, "each GPU is as it should be")
        beats = {until(HeartbeatFile(state).latest, "a beat").stamp}
        until(lambda: len(beats) > 3 or beats.add(HeartbeatFile(state).latest().stamp), "several cycles", step=0.1)
    done = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")
    assert driver.calls("nvmlDeviceGetUtilizationRates") > 0
    assert {name: driver.calls(name) for name in SETTERS} == dict.fromkeys(SETTERS, 0)
    assert not [name for name in driver.called() if name.startswith(("nvmlDeviceSet", "nvmlDeviceReset"))]
    assert SettingsRecord(state).read() == Actuation()


def test_s4_a_tuner_that_enforces_restores_what_it_finds_and_sets_nothing_without_a_guard(
    tmp_path: Path, driver: FakeDriver, start: Start, state: Path
) -> None:
    holding(start, state).kill()
    driver.reset_calls()
    message = ["--nvml-library", str(driver.library), "tuner", "--mode", "enforce", "--state-dir", str(state)]
    with AgentProcess(tmp_path, driver) as agent:
        agent.wait_complete(4)
        port = free_port()
        more = ["--agent", str(tmp_path / "agent.sock"), "--listen", f"127.0.0.1:{port}"]
        tuner = start("-m", "gpuwatch", *message, *more)
        until(lambda: is_original(driver) and not recorded(state), "what was left is given back")
        until(lambda: b'reason="no_guard"' in (fetch(f"http://127.0.0.1:{port}/metrics") or b""), "it says why not")
        assert SettingsRecord(state).read().restores == {"start": 4}
        driver.reset_calls()
        beats = {until(HeartbeatFile(state).latest, "a beat").stamp}
        until(lambda: len(beats) > 3 or beats.add(HeartbeatFile(state).latest().stamp), "several cycles", step=0.1)
        assert not driver.sets()
        tuner.send_signal(signal.SIGTERM)
        assert tuner.wait(BOUND_SECONDS) == 0


def test_s12_enforce_is_refused_at_a_reload_of_a_tuner_that_was_started_without(
    tmp_path: Path, driver: FakeDriver, start: Start, state: Path
) -> None:
    file = tmp_path / "gpuwatch.yaml"
    file.write_text(json.dumps({"tuning": {"mode": "off"}}))
    message = ["-m", "gpuwatch", "--config", str(file), "tuner", "--state-dir", str(state)]
    port = free_port()
    running = start(*message, "--listen", f"127.0.0.1:{port}", "--agent", str(tmp_path / "nobody.sock"))
    until(lambda: fetch(f"http://127.0.0.1:{port}/-/ready"), "a tuner that is off is ready")
    file.write_text(json.dumps({"tuning": {"mode": "enforce"}}))

    def metrics() -> dict[str, float]:
        page = fetch(f"http://127.0.0.1:{port}/metrics") or b""
        return {each.name: value for each, value in series(page).items()}

    until(lambda: metrics().get("gpuwatch_tuner_config_last_reload_successful") == 0.0, "the refusal shows")
    assert b'mode="off"' in (fetch(f"http://127.0.0.1:{port}/metrics") or b"")
    running.terminate()
    assert running.wait(BOUND_SECONDS) == 0
