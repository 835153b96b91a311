"""The host's load, compared with what /proc says itself."""

import os
import time
from pathlib import Path

import pytest

from gpuwatch.host.load import ProcessMeter, host_use, uptime


def test_the_host_is_what_proc_says() -> None:
    use = host_use()
    facts = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    assert use.memory_total == int(facts["MemTotal"].split()[0]) * 1024
    assert 0 < use.memory_used < use.memory_total
    assert use.processors == sum(
        line.startswith("processor") for line in Path("/proc/cpuinfo").read_text().splitlines()
    )
    assert 0 <= use.cpu <= 1
    assert use.load >= 0


@pytest.mark.parametrize(("text", "seconds"), [("350735.47 234388.90\n", 350735.47), ("", None), ("odd\n", None)])
def test_uptime(tmp_path: Path, text: str, seconds: float | None) -> None:
    (tmp_path / "uptime").write_text(text)
    assert uptime(tmp_path) == seconds
    assert uptime(tmp_path / "nowhere") is None


def test_processes_are_read_again_and_again_until_they_are_gone() -> None:
    meter, gone = ProcessMeter(), 2**22 + 1  # no kernel gives out such a number
    first = meter.read((os.getpid(), gone))
    assert set(first) == {os.getpid()}
    burnt = time.process_time() + 0.05
    while time.process_time() < burnt:
        pass
    second = meter.read((os.getpid(),))[os.getpid()]
    assert first[os.getpid()].cpu == 0.0, "the first look has none to compare with"
    assert second.cpu > 0.0
    assert second.memory > 1 << 20
    assert second.seconds >= first[os.getpid()].seconds > 0
    assert "pytest" in second.command or "python" in second.command
