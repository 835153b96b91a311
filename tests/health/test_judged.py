"""What the simulator lets happen, the judge finds, and a simulated reset repairs: through the real reader's eyes."""

from typing import Any

import pytest

from gpuwatch.collect.nvml.gpu import GpuReader, register
from gpuwatch.health.check import Check
from gpuwatch.health.checks import CHECK_BY_NAME
from gpuwatch.health.judge import Judge
from gpuwatch.model.finding import Finding
from gpuwatch.model.snapshot import GpuState, GpuStatus, Snapshot, SourceStatus
from gpuwatch.model.xid import XidEvent
from gpuwatch.sim.directory import attach
from gpuwatch.sim.node.node import SimNode
from gpuwatch.sim.nvml import SimNvml
from tests.seeds import a_third
from tests.sim.node.nodes import FakeClock, open_driver, scenario, work

BEGINS, RESET = 10.0, 100.0
INTERVAL = 2.0
BUSY, IDLE = 0, 1
"""GPUs of the node."""

FAULTS: dict[str, tuple[int, dict[str, Any]]] = {
    "recovery_action": (BUSY, {"do": "recovery_action", "action": 2}),
    "recovery_advised": (BUSY, {"do": "recovery_action", "action": 3}),
    "row_remap_pending": (BUSY, {"do": "remap"}),
    "row_remap_failure": (BUSY, {"do": "remap", "failure": True}),
    "ecc_uncorrected": (BUSY, {"do": "ecc", "kind": "uncorrected"}),
    "ecc_correctable_rate": (BUSY, {"do": "ecc", "count": 5000}),
    "ecc_sram_threshold": (BUSY, {"do": "ecc", "kind": "uncorrected", "location": "sram", "count": 12}),
    "memory_unrepairable": (IDLE, {"do": "repair", "unrepairable": True}),
    "repair_pending": (IDLE, {"do": "repair", "channel": True}),
    "hw_power_brake": (BUSY, {"do": "power_brake"}),
    "hw_thermal_slowdown": (BUSY, {"do": "thermal", "ambient": 95.0, "cooling": 0.1}),
    "thermal_margin": (BUSY, {"do": "thermal", "ambient": 95.0, "cooling": 0.1}),
    "clocks_stuck": (BUSY, {"do": "stuck_clock", "megahertz": 300}),
    "inforom": (IDLE, {"do": "inforom"}),
    "mig_pending": (IDLE, {"do": "mig_pending"}),
    "zombie_memory": (IDLE, {"do": "zombie"}),
    "nvlink_down": (BUSY, {"do": "nvlink", "link": 3, "active": False}),
    "nvlink_errors": (BUSY, {"do": "nvlink", "link": 3, "errors": {"replay": 5000}}),
    "pcie_degraded": (BUSY, {"do": "pcie", "width": 8}),
    "fabric_state": (BUSY, {"do": "fabric", "state": 2}),
}
"""Check -> the GPU and what happens to it."""

OUTLAST = {"row_remap_failure", "ecc_sram_threshold", "inforom", "memory_unrepairable"}
"""What no reset repairs in the simulator is not asked here; NVIDIA replaces such GPUs."""

NOT_SHOWN = {"driver_slow", "retired_pages_pending", "retired_pages_limit", "xid_application_repeated"}
"""Of older models, or of many events."""


class Story:
    """A node of two GPUs, read every two seconds; the first has work."""

    def __init__(self, tmp_path: Any, model: str, *timeline: dict[str, Any], **node: Any) -> None:
        self.clock = FakeClock()
        of = scenario(model, workloads=[work(BUSY)], timeline=timeline, **node)
        self._path = tmp_path
        self._open(open_driver(tmp_path, of, self.clock))
        self.judge = Judge(uptime=1e6)
        self.began = self.clock.now

    def reopen(self) -> None:
        """What the agent's next reader does when the driver was loaded anew."""
        driver = SimNvml(attach(self._path, self.clock))
        driver.nvmlInit()
        self._open(driver)

    def _open(self, driver: Any) -> None:
        self.readers = [GpuReader(driver, *register(driver, index), with_gpm=False) for index in (BUSY, IDLE)]

    def until(self, second: float, *events: XidEvent) -> tuple[Finding, ...]:
        """Findings at this second of the story."""
        findings: tuple[Finding, ...] = ()
        while self.clock.now - self.began < second:
            self.clock.advance(INTERVAL)
            at = self.clock.time()
            gpus = tuple(reader.read(at, self.clock.now) for reader in self.readers)
            statuses = tuple(GpuStatus(identity=gpu.identity, state=GpuState.FRESH) for gpu in gpus)
            sources = (SourceStatus(name="nvml", up=True),)
            snapshot = Snapshot(at=at, interval=INTERVAL, gpus=gpus, statuses=statuses, sources=sources)
            findings = self.judge.judge(snapshot, events).findings
            events = ()
        return findings


def test_all_that_a_sample_can_show_is_shown() -> None:
    def is_of_samples(check: Check) -> bool:
        return check.gpu is not None and not check.name.startswith("gpu_")

    assert {name for name, check in CHECK_BY_NAME.items() if is_of_samples(check)} - NOT_SHOWN == FAULTS.keys()


@pytest.mark.parametrize("check", a_third(FAULTS))
def test_each_fault_is_found_and_a_reset_repairs_it(tmp_path: Any, check: str) -> None:
    index, action = FAULTS[check]
    story = Story(
        tmp_path,
        "h100",
        {"at": BEGINS, "gpu": index, **action},
        {"at": RESET, "do": "recover", "gpu": index},
        driver="595.80",
    )
    assert story.until(BEGINS - INTERVAL) == ()
    found = story.until(RESET - INTERVAL)
    assert check in {finding.check for finding in found}
    assert {finding.gpu for finding in found} == {story.readers[index].identity.uuid}
    after = {finding.check for finding in story.until(RESET + 120.0)}
    lasting = {"nvlink_errors", "ecc_correctable_rate"} if check in ("nvlink_errors", "ecc_correctable_rate") else set()
    assert after <= lasting | OUTLAST
    assert (check in after) <= (check in lasting | OUTLAST)


@pytest.mark.parametrize("pages", [1, 60])
def test_retired_pages_of_older_gpus(tmp_path: Any, pages: int) -> None:
    story = Story(tmp_path, "t4", {"at": BEGINS, "do": "retire", "gpu": BUSY, "pages": pages})
    found = {finding.check for finding in story.until(BEGINS + 30.0)}
    assert found == {"retired_pages_pending"} | ({"retired_pages_limit"} if pages >= 60 else set())


@pytest.mark.parametrize("action", [{"do": "recover", "gpu": BUSY}, {"do": "reload", "seconds": 1.0}])
def test_a_reset_ends_what_an_xid_began(tmp_path: Any, action: dict[str, Any]) -> None:
    """Of a driver too old to say what it asks for."""
    story = Story(tmp_path, "a100", {"at": RESET, **action}, driver="550.163.01")
    story.until(60.0)
    uuid = story.readers[BUSY].identity.uuid
    found = story.until(RESET - INTERVAL, XidEvent(at=story.clock.time(), xid=95, source="nvml", uuid=uuid))
    assert [finding.check for finding in found] == ["xid_fatal"]
    story.clock.advance(2 * INTERVAL)
    story.reopen()
    assert story.until(RESET + 10.0) == ()


def test_a_reset_says_that_the_driver_asks_for_nothing_any_more() -> None:
    node = SimNode(
        scenario(
            timeline=[
                {"at": 1, "do": "recovery_action", "gpu": 1, "action": 1},
                {"at": 5, "do": "recover", "gpu": [0, 1]},
            ]
        )
    )
    node.advance(10.0)
    told = [line.text for line in node.lines if ": 154, " in line.text]
    assert [text.split("changed ")[1] for text in told] == [
        "from 0x0 (None) to 0x1 (GPU Reset Required)",
        "from 0x1 (GPU Reset Required) to 0x0 (None)",
    ]


@pytest.mark.parametrize("action", [{"do": "recover", "gpu": 0}, {"do": "reload", "seconds": 1.0}])
def test_the_energy_counter_starts_over(action: dict[str, Any]) -> None:
    node = SimNode(scenario(workloads=[work(0)], timeline=[{"at": 60, **action}]))
    node.advance(59.0)
    before = node.physics[0].energy
    node.advance(62.0)
    assert node.physics[0].energy < before / 2
