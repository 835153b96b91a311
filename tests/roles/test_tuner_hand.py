"""The hand: what is ordered is recorded before it is set, never above what was there, and one GPU holds up no other."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.model.order import Order, Outcome, Turned
from gpuwatch.model.setting import Setting, Trigger
from gpuwatch.roles.tuner_hand import TunerHand
from gpuwatch.sinks.audit import Audit
from gpuwatch.sinks.nvml_control import NvmlControl
from gpuwatch.sinks.settings_record import SettingsRecord
from tests.roles.remediating import HandClock, Ledger
from tests.roles.tuning import BOOT, Knobs, clocks, limit

GPU, OTHER = "GPU-0", "GPU-1"


class Bench:
    """A hand on a driver by hand."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.knobs, self.record = Knobs(GPU, OTHER), SettingsRecord(folder)
        self.hand = TunerHand(
            self.record,
            lambda: NvmlControl(self.knobs),
            **{"boot_id": BOOT, "audit": Audit(Ledger(), HandClock(), actor="tuner"), "clock": HandClock()} | options,
        )

    def limit(self, watts: float | None, uuid: str = GPU, **more: Any) -> Turned:
        return self.turn(Order(uuid=uuid, knob="power_limit", value=watts, **more))

    def cap(self, megahertz: float | None, uuid: str = GPU, **more: Any) -> Turned:
        value = None if megahertz is None else megahertz * 1e6
        return self.turn(Order(uuid=uuid, knob="locked_clocks", value=value, **more))

    def turn(self, order: Order) -> Turned:
        (turned,) = self.hand.turn([order])
        return turned

    def recorded(self) -> list[Setting]:
        return list(self.record.read().settings)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path, patience=5.0)
    yield made
    made.knobs.hanging.clear()
    made.knobs.released.set()


def test_what_is_ordered_is_set_and_recorded_and_given_back(bench: Bench) -> None:
    assert bench.limit(500.0, pod_uid="u") == Turned(
        order=Order(uuid=GPU, knob="power_limit", value=500.0, pod_uid="u"), outcome=Outcome.DONE, in_force=500.0
    )
    assert bench.cap(1200).in_force == 1.2e9
    assert (bench.knobs.limits[GPU], bench.knobs.locked) == (500_000, {GPU: 1200})
    at = HandClock().time()
    assert bench.recorded() == [limit(GPU, at=at, pod_uid="u"), clocks(GPU, at=at)]
    assert [bench.limit(None).outcome, bench.cap(None).outcome] == [Outcome.DONE] * 2
    assert (bench.knobs.limits[GPU], bench.knobs.locked) == (700_000, {})
    assert not bench.recorded()
    assert bench.record.read().restores == {Trigger.TUNER: 2}
