"""The host's load, compared with what /proc says itself."""

from pathlib import Path

import pytest

from gpuwatch.host.load import host_use, uptime


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
