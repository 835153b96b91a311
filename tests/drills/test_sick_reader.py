"""The reader dies, stops or is talked over: another one takes its place, and no GPU is blamed."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from tests.drills.agent_process import AgentProcess
from tests.fakes.libnvml import FakeDriver
from tests.waiting import BOUND_SECONDS

SCRAPE_SECONDS = 0.05
Start = Callable[..., AgentProcess]

CHATTY = """
import os
from gpuwatch.collect.nvml import library as nvml

def open_library(target):
    os.write(1, b"NVIDIA says hello to whoever reads its standard output" * 1000)
    return nvml.open_library(target)
"""


def at_fault(agent: AgentProcess) -> set[int]:
    """GPUs that are called failed."""
    return {gpu for gpu in range(4) if agent.value("gpuwatch_gpu_health", gpu=gpu, state="failed") == 1}


def restarts(agent: AgentProcess) -> float | None:
    return agent.value("gpuwatch_reader_restarts_total")


def test_a_killed_reader_is_replaced_and_no_gpu_at_fault(start: Start) -> None:
    agent = start()
    agent.wait_complete(4)
    before = agent.sample_times()
    since = time.monotonic()
    agent.readers()[0].kill()
    agent.wait(lambda: restarts(agent) == 1)
    assert not at_fault(agent)
    agent.wait(lambda: min(agent.sample_times().values(), default=0) > max(before.values()))
    print(f"all GPUs were read again after {time.monotonic() - since:.2f} s")
    agent.wait(lambda: agent.value("gpuwatch_source_up", source="nvml") == 1)
    agent.serves_within(SCRAPE_SECONDS)


def test_readers_that_die_again_and_again_are_started_ever_more_rarely(driver: FakeDriver, start: Start) -> None:
    agent = start()
    agent.wait_complete(4)
    driver.error(999, "nvmlInit")
    agent.readers()[0].kill()
    agent.wait(lambda: agent.value("gpuwatch_source_up", source="nvml") == 0)
    agent.wait(lambda: (restarts(agent) or 0) >= 2)
    started = restarts(agent)
    time.sleep(2)
    assert (restarts(agent) or 0) - (started or 0) <= 3
    agent.wait(lambda: 'reason="nvmlInit: Unknown Error"' in agent.page)
    assert not at_fault(agent)
    driver.clear()
    agent.wait(lambda: agent.value("gpuwatch_source_up", source="nvml") == 1)


def test_a_stopped_reader_is_given_up_and_no_gpu_at_fault(start: Start) -> None:
    agent = start()
    agent.wait_complete(4)
    (reader,) = agent.readers()
    os.kill(reader.pid, signal.SIGSTOP)
    agent.wait(lambda: agent.value("gpuwatch_gpu_health", gpu=0, state="unknown") == 1)
    assert not at_fault(agent)
    agent.wait(lambda: restarts(agent) == 1)
    agent.wait(lambda: agent.value("gpuwatch_gpu_health", gpu=0, state="healthy") == 1)
    assert reader.pid not in {other.pid for other in agent.readers()}
    agent.serves_within(SCRAPE_SECONDS)


def test_a_library_that_prints_does_not_disturb(start: Start, tmp_path: Path) -> None:
    (tmp_path / "chatty.py").write_text(CHATTY)
    agent = start(factory="chatty:open_library", env={"PYTHONPATH": str(tmp_path)})
    agent.wait_complete(4)
    assert restarts(agent) == 0


def test_ctrl_c_ends_the_agent_without_a_word(start: Start) -> None:
    """A terminal sends the signal to the agent and to the reader."""
    agent = start()
    agent.wait_complete(4)
    (reader,) = agent.readers()
    before = agent.stderr()  # on a busy machine: that the reader takes its time
    os.kill(reader.pid, signal.SIGINT)
    assert agent.terminate(signal.SIGINT) <= 2
    assert agent.end() == before


def test_the_reader_ends_when_the_agent_is_killed(start: Start) -> None:
    agent = start()
    agent.wait_complete(4)
    (reader,) = agent.readers()
    agent.terminate(signal.SIGKILL)
    reader.wait(BOUND_SECONDS)
