"""The driver hangs, crashes, slows down, reloads or loses a GPU: the agent serves on, tells it, and can end."""

import contextlib
import socket
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.drills.agent_process import AgentProcess
from tests.fakes.libnvml import FakeDriver
from tests.waiting import BOUND_SECONDS

SCRAPE_SECONDS = 0.05
STOP_SECONDS = 2.0
MISMATCH = 18  # NVML_ERROR_LIB_RM_VERSION_MISMATCH
UNKNOWN = 999  # NVML_ERROR_UNKNOWN
Start = Callable[..., AgentProcess]


def keeps_fresh(agent: AgentProcess, gpus: set[int], rounds: int = 3) -> None:
    """The samples of these GPUs go on coming, none of them ever older than three intervals."""
    newest = agent.sample_times()
    for _ in range(rounds):
        before = newest
        took = agent.wait(lambda before=before: _newer(agent, before, gpus))
        assert took <= 3 * agent.interval + agent.grace()
        newest = agent.sample_times()


def _newer(agent: AgentProcess, before: dict[int, float], gpus: set[int]) -> bool:
    now = agent.sample_times()
    return all(gpu in now and now[gpu] > before.get(gpu, 0) for gpu in gpus)


def reported_within(agent: AgentProcess, since: float, intervals: float = 4.0) -> None:
    """What was waited for was told in time, counted from monotonic `since`.

    Two intervals, which tests/agent/test_node_state.py holds on a turned clock, and two for a machine with other work,
    on which the slowest call, twice of which is waited for, is slow.
    """
    took = time.monotonic() - since
    print(f"told after {took:.2f} s, {took / agent.interval:.2f} intervals")
    assert took <= intervals * agent.interval + SCRAPE_SECONDS + agent.grace()


def sick(agent: AgentProcess, gpu: int) -> bool:
    return agent.value("gpuwatch_gpu_unresponsive", gpu=gpu) == 1


def test_a_call_that_never_returns_costs_only_its_gpu(driver: FakeDriver, start: Start) -> None:
    agent = start(interval=1.0)
    agent.wait_complete(4)
    since = time.monotonic()
    driver.hang("nvmlDeviceGetUtilizationRates", gpu=2)
    agent.wait(lambda: sick(agent, 2))
    reported_within(agent, since)
    # not seen, and no fault yet: it may be back in a moment
    assert agent.value("gpuwatch_gpu_health", gpu=2, state="unknown") == 1
    keeps_fresh(agent, {0, 1, 3})
    assert [agent.value("gpuwatch_gpu_unresponsive", gpu=gpu) for gpu in (0, 1, 3)] == [0, 0, 0]
    agent.wait(lambda: agent.value("gpuwatch_gpu_power_watts", gpu=2) is None)  # stale by then
    assert agent.value("gpuwatch_gpu_power_watts", gpu=3) is not None
    driver.clear()
    agent.wait(lambda: agent.value("gpuwatch_gpu_health", gpu=2, state="healthy") == 1)
    agent.serves_within(SCRAPE_SECONDS)


def test_sigterm_ends_the_agent_while_a_call_hangs(driver: FakeDriver, start: Start) -> None:
    agent = start()
    agent.wait_complete(4)
    reader = agent.readers()[0]
    driver.hang("nvmlDeviceGetUtilizationRates", gpu=1)
    agent.wait(lambda: sick(agent, 1))
    took = agent.terminate()
    print(f"ended after {took:.2f} s")
    assert took <= STOP_SECONDS
    assert agent.process.returncode == 0
    driver.clear()  # the call returns: the reader that was left inside it has nothing to stay for
    reader.wait(BOUND_SECONDS)


def test_sigterm_leaves_no_reader_behind(start: Start) -> None:
    agent = start()
    agent.wait_complete(4)
    (reader,) = agent.readers()
    assert agent.terminate() <= STOP_SECONDS
    assert not psutil.pid_exists(reader.pid)


def test_init_that_never_returns_is_reported_and_ends_on_sigterm(driver: FakeDriver, start: Start) -> None:
    driver.hang("nvmlInit")
    agent = start(interval=1.0)
    agent.wait(lambda: agent.value("gpuwatch_source_up", source="nvml") == 0)
    reported_within(agent, agent.started)
    agent.wait(lambda: 'reason="starting: nvmlInit"' in agent.page)
    assert agent.get("/-/ready") is None
    agent.serves_within(SCRAPE_SECONDS)
    driver.clear()
    agent.wait(lambda: agent.value("gpuwatch_source_up", source="nvml") == 1)
    driver.hang("*")
    assert agent.terminate() <= STOP_SECONDS


def test_sigterm_while_init_never_returns(driver: FakeDriver, start: Start) -> None:
    driver.hang("nvmlInit")
    agent = start()
    agent.wait(lambda: bool(agent.readers()))
    assert agent.terminate() <= STOP_SECONDS


def test_a_crash_inside_the_library_costs_one_reader(driver: FakeDriver, start: Start) -> None:
    agent = start()
    agent.wait_complete(4)
    driver.crash("nvmlDeviceGetUtilizationRates", gpu=0)
    agent.wait(lambda: agent.value("gpuwatch_reader_restarts_total") == 1)
    keeps_fresh(agent, {0, 1, 2, 3})
    assert "failed" not in {state for state in healths(agent).values()}
    agent.serves_within(SCRAPE_SECONDS)


def healths(agent: AgentProcess) -> dict[int, str]:
    states = ("healthy", "degraded", "failed", "unknown")
    return {
        gpu: next(s for s in states if agent.value("gpuwatch_gpu_health", gpu=gpu, state=s) == 1) for gpu in range(4)
    }


def test_a_slow_gpu_keeps_nobody_waiting(driver: FakeDriver, start: Start) -> None:
    agent = start()
    agent.wait_complete(4)
    driver.delay(2.0, "nvmlDeviceGetUtilizationRates", gpu=3)
    # not `sick`: it is for a moment of the first slow call, between its deadline and its end, which no scrape need meet
    agent.wait(lambda: agent.value("gpuwatch_finding", gpu=3, check="driver_slow") == 1)
    keeps_fresh(agent, {0, 1, 2}, rounds=5)
    driver.clear()
    agent.wait(lambda: driver.in_flight("nvmlDeviceGetUtilizationRates") == 0)
    agent.wait(lambda: agent.value("gpuwatch_finding", gpu=3, check="driver_slow") is None)
    keeps_fresh(agent, {0, 1, 2, 3})
    agent.serves_within(SCRAPE_SECONDS)


def test_a_driver_reload_costs_one_reader_and_no_gpu(driver: FakeDriver, start: Start) -> None:
    agent = start()
    agent.wait_complete(4)
    driver.error(MISMATCH, "nvmlInit")
    driver.reload("580.99.99")
    agent.wait(lambda: agent.value("gpuwatch_source_up", source="nvml") == 0)
    assert set(healths(agent).values()) <= {"healthy", "unknown"}  # nobody can read: no news about the GPUs
    driver.clear()
    agent.wait(lambda: agent.value("gpuwatch_source_up", source="nvml") == 1)
    agent.wait(lambda: agent.value("gpuwatch_driver_info", driver="580.99.99") == 1)
    agent.wait(lambda: set(healths(agent).values()) == {"healthy"})
    keeps_fresh(agent, {0, 1, 2, 3})
    agent.serves_within(SCRAPE_SECONDS)


@pytest.mark.slow  # at the 99th percentile; the tests above and below hold the 90th
def test_ninety_nine_of_a_hundred_scrapes_are_answered_at_once_beside_a_hung_gpu(
    driver: FakeDriver, start: Start
) -> None:
    agent = start()
    agent.wait_complete(4)
    driver.hang("nvmlDeviceGetUtilizationRates", gpu=2)
    agent.wait(lambda: sick(agent, 2))
    agent.serves_within(SCRAPE_SECONDS, percent=99)


def test_all_gpus_hung(driver: FakeDriver, start: Start) -> None:
    agent = start(interval=1.0)
    agent.wait_complete(4)
    since = time.monotonic()
    driver.hang("nvmlDeviceGetUtilizationRates")
    agent.wait(lambda: all(sick(agent, gpu) for gpu in range(4)))
    reported_within(agent, since)
    agent.wait(lambda: agent.value("gpuwatch_source_up", source="nvml") == 0)
    assert agent.value("gpuwatch_gpu_temperature_celsius", gpu=0) is None
    agent.serves_within(SCRAPE_SECONDS)
    assert agent.terminate() <= STOP_SECONDS


def test_gpus_that_hang_while_they_are_registered(driver: FakeDriver, start: Start) -> None:
    """A reader that was started anew meets a GPU that no longer answers at all."""
    agent = start(interval=1.0)
    agent.wait_complete(4)
    driver.hang("nvmlDeviceGetUUID", gpu=1)
    agent.readers()[0].kill()
    agent.wait(lambda: sick(agent, 1))
    keeps_fresh(agent, {0, 2, 3})
    assert agent.value("gpuwatch_gpu_lost", gpu=1) == 0
    assert agent.terminate() <= STOP_SECONDS


def test_a_lost_gpu_shows_its_xid_and_hides_nobody(driver: FakeDriver, start: Start) -> None:
    agent = start(interval=1.0)
    agent.wait_complete(4)
    uuid = driver.get(1, "uuid")
    since = time.monotonic()
    driver.lose(1)
    driver.xid(1, 79)
    agent.wait(lambda: agent.value("gpuwatch_gpu_xid_errors_total", uuid=uuid, xid=79) == 1)
    agent.wait(lambda: agent.value("gpuwatch_gpu_lost", uuid=uuid) == 1)
    reported_within(agent, since)
    assert agent.value("gpuwatch_gpu_health", uuid=uuid, state="failed") == 1
    keeps_fresh(agent, {0, 2, 3})
    assert agent.value("gpuwatch_gpu_xid_errors_total", uuid=uuid, xid=79) == 1
    agent.serves_within(SCRAPE_SECONDS)


def test_a_gpu_that_is_gone_after_a_reload_is_reported_missing(driver: FakeDriver, start: Start) -> None:
    agent = start()
    agent.wait_complete(4)
    uuids = [driver.get(gpu, "uuid") for gpu in range(4)]
    driver.remove(1)
    driver.reload()
    agent.wait(lambda: agent.value("gpuwatch_gpu_lost", uuid=uuids[1]) == 1)
    agent.wait(lambda: agent.value("gpuwatch_gpu_health", uuid=uuids[1], state="failed") == 1)
    agent.wait(lambda: agent.value("gpuwatch_gpu_temperature_celsius", uuid=uuids[1]) is None)
    for uuid in (uuids[0], uuids[2], uuids[3]):
        assert agent.value("gpuwatch_gpu_health", uuid=uuid, state="healthy") == 1
        assert agent.value("gpuwatch_gpu_temperature_celsius", uuid=uuid) is not None
    driver.restore(1)
    driver.reload()
    agent.wait(lambda: agent.value("gpuwatch_gpu_health", uuid=uuids[1], state="healthy") == 1)
    agent.serves_within(SCRAPE_SECONDS)


def test_a_gpu_whose_every_read_fails_is_not_healthy(driver: FakeDriver, start: Start) -> None:
    agent = start(interval=1.0)
    agent.wait_complete(4)
    since = time.monotonic()
    driver.error(UNKNOWN, "*", gpu=2)
    agent.wait(lambda: agent.value("gpuwatch_gpu_health", gpu=2, state="unknown") == 1)
    reported_within(agent, since)
    keeps_fresh(agent, {0, 1, 3})


@pytest.mark.parametrize("refusal", [4, UNKNOWN])  # NO_PERMISSION
def test_a_refused_registration_is_no_fault_of_the_gpu(driver: FakeDriver, start: Start, refusal: int) -> None:
    agent = start()
    agent.wait_complete(4)
    driver.error(refusal, "nvmlDeviceGetUUID", gpu=2)
    agent.readers()[0].kill()
    agent.wait(lambda: agent.value("gpuwatch_gpu_health", gpu=2, state="unknown") == 1)
    time.sleep(4)  # longer than a GPU may stay away before it counts as vanished
    assert agent.value("gpuwatch_gpu_health", gpu=2, state="unknown") == 1
    driver.clear()
    agent.wait(lambda: agent.value("gpuwatch_gpu_health", gpu=2, state="healthy") == 1)


def test_the_library_path_of_an_odd_driver_root(driver: FakeDriver, start: Start, tmp_path: Path) -> None:
    odd = tmp_path / "driver root" / "libnvidia-ml.so.1"
    odd.parent.mkdir()
    odd.symlink_to(driver.library)
    agent = start(nvml_library=str(odd), env={"LD_LIBRARY_PATH": ""})
    agent.wait_complete(4)
    assert agent.value("gpuwatch_source_up", source="nvml") == 1


def test_systemds_watchdog_is_kept_quiet_while_the_driver_hangs(
    driver: FakeDriver, start: Start, tmp_path: Path
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.settimeout(BOUND_SECONDS)
        systemd.bind(str(tmp_path / "notify"))
        agent = start(interval=1.0, env={"NOTIFY_SOCKET": str(tmp_path / "notify")})
        agent.wait_complete(4)
        assert systemd.recv(100) == b"WATCHDOG=1"
        driver.hang("nvmlDeviceGetUtilizationRates")
        agent.wait(lambda: all(sick(agent, gpu) for gpu in range(4)))
        systemd.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while systemd.recv(100):
                pass
        systemd.settimeout(BOUND_SECONDS)
        assert systemd.recv(100) == b"WATCHDOG=1"


def test_a_gpu_that_is_slow_at_every_call_keeps_its_values_and_has_a_finding(driver: FakeDriver, start: Start) -> None:
    agent = start()
    agent.wait_complete(4)
    driver.delay(0.05, gpu=3)
    agent.wait(lambda: agent.value("gpuwatch_finding", gpu=3, check="driver_slow") == 1)
    for _ in range(5):
        before = agent.sample_times()
        agent.wait(lambda before=before: _newer(agent, before, {0, 1, 2}))
        assert not sick(agent, 3)
        assert agent.value("gpuwatch_gpu_power_watts", gpu=3) is not None
    driver.clear()
    agent.wait(lambda: agent.value("gpuwatch_finding", gpu=3, check="driver_slow") is None)
