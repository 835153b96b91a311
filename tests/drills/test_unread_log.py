"""A log that is not read blinds nobody: XIDs are counted and GPUs shown while the pipe behind stderr is full."""

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

from tests.drills.agent_process import AgentProcess
from tests.drills.test_xid_latency import Kernel, bus_id
from tests.fakes.libnvml import FakeDriver

XIDS = 120
"""Lines enough to fill a pipe of 4 KiB several times."""


def test_a_full_pipe_behind_the_log_keeps_neither_xids_nor_gpus_from_the_page(
    driver: FakeDriver, start: Callable[..., AgentProcess], tmp_path: Path
) -> None:
    kernel = Kernel(tmp_path / "kmsg")
    pipe = tmp_path / "log"
    os.mkfifo(pipe)
    unread = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    fcntl.fcntl(unread, fcntl.F_SETPIPE_SZ, 4096)
    agent = start(kmsg=str(kernel.path), stderr=pipe)
    agent.wait_complete(4)
    for number in range(XIDS):
        kernel.xid(bus_id(driver, number % 4), (31, 43, 45)[number % 3])
    agent.wait(
        lambda: (
            sum(
                agent.value("gpuwatch_gpu_xid_errors_total", uuid=driver.get(gpu, "uuid"), xid=code) or 0
                for gpu in range(4)
                for code in (31, 43, 45)
            )
            == XIDS
        )
    )
    before = agent.sample_times()
    agent.wait(lambda: all(at > before[gpu] for gpu, at in agent.sample_times().items()))
    assert agent.page.count("\ngpuwatch_gpu_temperature_celsius{") >= 4
    assert agent.terminate() <= 2
    os.read(unread, 65536)  # so that nothing waits to read what the pipe has
    os.close(unread)
    kernel.close()
