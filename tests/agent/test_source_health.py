"""How a source is doing: timed, counted, explained, and off without being a failure."""

import pytest

from gpuwatch.agent.view_builder import SourceHealth


class FakeClock:
    def __init__(self) -> None:
        self.now = 1000.0

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


def test_before_the_first_use() -> None:
    status = SourceHealth("pci", FakeClock()).status
    assert (status.name, status.up, status.reason) == ("pci", None, "not asked yet")


def test_success_then_failure_then_success() -> None:
    clock = FakeClock()
    health = SourceHealth("podresources", clock)
    with health.asking(OSError):
        pass
    assert (health.status.up, health.status.last_success, health.status.failures) == (True, 1000.0, 0)
    clock.now = 1010.0
    with health.asking(OSError):
        raise ConnectionRefusedError("nobody listens")
    status = health.status
    assert (status.up, status.reason, status.last_success, status.failures) == (False, "nobody listens", 1000.0, 1)
    clock.now = 1020.0
    with health.asking(OSError):
        pass
    status = health.status
    assert (status.up, status.reason, status.last_success, status.failures) == (True, "", 1020.0, 1)
    assert status.duration_seconds is not None


def test_what_is_not_named_continues() -> None:
    health = SourceHealth("procfs", FakeClock())
    with pytest.raises(KeyError), health.asking(OSError):
        raise KeyError("a bug")
    assert health.status.failures == 0


def test_switched_off_is_no_failure_and_keeps_its_past() -> None:
    health = SourceHealth("podresources", FakeClock())
    with health.asking(OSError):
        pass
    health.switch_off("no kubelet on this machine")
    status = health.status
    assert (status.up, status.reason, status.last_success) == (None, "no kubelet on this machine", 1000.0)
