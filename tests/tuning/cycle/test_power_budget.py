"""The power budget inside the tuner's own cycle: who is left alone, and when all of it ends."""

from typing import Literal

import pytest
from msgspec.structs import replace

from gpuwatch.config import TuningConfig
from gpuwatch.model.consent import AUTOTUNE, Consents
from gpuwatch.model.finding import Health, Judgement
from gpuwatch.tuning.cycle.cycle import cycle
from gpuwatch.tuning.cycle.state import CycleInputs, CycleMemory, CycleResult
from gpuwatch.tuning.power_budget.allocation import ShareMethod
from tests.tuning.power_budget.budget_node import DEFAULT, START, Node

BUDGET = TuningConfig(mode="enforce", node_budget_watts=600.0)


class Tuned(Node):
    """A node under the whole tuner's cycle."""

    def __init__(self, config: TuningConfig) -> None:
        super().__init__(config.node_budget_watts)
        self.config, self.tuner = config, CycleMemory()
        self.stopped, self.guarded, self.says = "", True, dict[str, str]()

    def tune(self, seconds: int) -> CycleResult:
        """Cycles of a second."""
        for _ in range(seconds):
            self.now += 1
            node = self.inputs()
            health = dict.fromkeys(self.boards, Health.HEALTHY)
            inputs = CycleInputs(
                view=replace(self.view(), judgement=Judgement(node=Health.HEALTHY, gpus=health)),
                fresh=True,
                now=self.now,
                at=START + self.now,
                config=self.config,
                consents=Consents(at=START, node=self.says),
                actuation=node.actuation,
                results=self.results,
                guarded=self.guarded,
                stopped=self.stopped,
            )
            self.step_of_tuner = cycle(self.tuner, inputs)
            self.tuner = self.step_of_tuner.memory
            self.results = tuple(self._turn(order) for order in self.step_of_tuner.orders)
        return self.step_of_tuner


def a_node(config: TuningConfig = BUDGET) -> Tuned:
    node = Tuned(config)
    for watts in (280.0, 60.0, 100.0):
        node.come(draws=watts)
    return node


def test_the_budget_needs_nobodys_consent_and_each_write_is_a_deed() -> None:
    node = a_node()
    reports = [deed for _ in range(60) for deed in node.tune(1).reports]
    assert node.total <= 600.0
    state = node.step_of_tuner.budget
    assert state is not None
    assert (state.how, state.limits) == (ShareMethod.ROOMY, node.total)
    assert {deed.action for deed in reports} == {"budget"}
    assert {deed.uuid: deed.after for deed in reports}.items() >= {"GPU-2": f"{node.limits['GPU-2']:.0f} W"}.items()


@pytest.mark.parametrize("how", ["stopped", "the Node", "no guard", "config"])
def test_s3_when_it_is_stopped_or_removed_everything_is_restored(how: str) -> None:
    node = a_node()
    node.tune(60)
    assert node.record
    if how == "stopped":
        node.stopped = "a person"
    elif how == "the Node":
        node.says = {AUTOTUNE: "off"}
    elif how == "no guard":
        node.guarded = False
    else:
        node.config = TuningConfig(mode="enforce")
    step = node.tune(2)
    assert step.budget is None
    assert (node.limits, node.record) == (dict.fromkeys(node.boards, DEFAULT), {})


@pytest.mark.parametrize("mode", ["off", "observe"])
def test_s12_without_enforce_a_budget_orders_nothing_whatever_is_in_force(mode: Literal["off", "observe"]) -> None:
    """Who gives back what an earlier mode has set is the role."""
    node = a_node()
    node.tune(60)
    assert node.record
    node.config = TuningConfig(mode=mode, node_budget_watts=600.0)
    assert not any(node.tune(1).orders for _ in range(60))


def test_a_lost_gpu_is_not_written_and_counts_with_the_most() -> None:
    node = a_node()
    node.tune(60)
    node.boards["GPU-1"].is_lost = True
    step = node.tune(15)
    assert "GPU-1" not in {order.uuid for order in step.orders}
    assert node.limits["GPU-2"] + node.limits["GPU-3"] <= 300.0
