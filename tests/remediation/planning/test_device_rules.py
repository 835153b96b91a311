"""Where pods get GPUs by resource claims, DeviceTaintRules keep work from the sick GPU, and from no other."""

from typing import Any

import pytest
from msgspec.structs import replace

from gpuwatch.config import BudgetConfig
from gpuwatch.kube.objects import DeviceRule, GpuDevice
from gpuwatch.remediation.model import OWNER, BlockReason, DeleteRule, PatchNode, WriteRule
from gpuwatch.remediation.planning.ownership import read_claim
from tests.remediation.planning.remediating import START, Story, finding

RULES = {"gpuwatch-node-1-gpu-0"}


def story(**settings: Any) -> Story:
    """GPU-0 as a whole, GPU-1 as two MIG instances; no device plugin."""
    made = Story(**settings)
    names = {"gpu-0": "GPU-0", "gpu-1-mig-9-0-4": "GPU-1", "gpu-1-mig-9-4-4": "GPU-1"}
    made.devices = tuple(GpuDevice(gpu=gpu, pool="node-1", name=name) for name, gpu in names.items())
    return made


def test_the_sick_gpu_gets_a_rule_and_the_node_no_taint_and_the_end_takes_it_away() -> None:
    made = story()
    made.see(finding("gpu_lost"))
    made.settle()
    assert made.cluster.rules.keys() == RULES
    rule = made.cluster.rules["gpuwatch-node-1-gpu-0"]
    owner = read_claim(made.node).owner
    assert owner is not None
    assert (rule.value, rule.effect, rule.owner, rule.pool) == ("gpu_lost", "NoSchedule", owner.id, "node-1")
    assert (made.node.taints, owner.scope, owner.rules) == ((), "gpu", tuple(RULES))
    made.recover()
    assert made.cluster.rules == {}
    assert OWNER not in made.node.annotations


def test_it_is_recorded_before_it_is_written() -> None:
    made = story()
    made.see(finding("gpu_lost"))
    steps = made.plan().steps
    kinds = [step.step if isinstance(step, PatchNode) else type(step).__name__ for step in steps]
    assert kinds[:4] == ["claim", "TakeSlot", "WriteRule", "confine"]
    assert isinstance(steps[0], PatchNode)
    assert "gpuwatch-node-1-gpu-0" in (steps[0].annotations[OWNER] or "")


def test_every_instance_of_a_sick_gpu_gets_one_and_a_further_gpu_as_well() -> None:
    made = story(device_effect="NoExecute")
    made.see(finding("gpu_lost", "GPU-1"))
    made.settle()
    assert made.cluster.rules.keys() == {"gpuwatch-node-1-gpu-1-mig-9-0-4", "gpuwatch-node-1-gpu-1-mig-9-4-4"}
    assert {rule.effect for rule in made.cluster.rules.values()} == {"NoExecute"}
    made.see(finding("gpu_lost", "GPU-1"), finding("gpu_lost"))
    made.settle()
    assert made.cluster.rules.keys() > RULES
    made.recover()
    assert made.cluster.rules == {}


@pytest.mark.parametrize("crash", range(8))
def test_a_crash_after_any_step_leaves_no_rule_behind(crash: int) -> None:
    made = story()
    made.see(finding("gpu_lost"))
    made.cycle(crash=crash)
    made.see()
    made.clean_for = 0.0
    made.cycle()
    made.wait(1000.0)
    made.cycle(crash=crash)
    made.settle()
    assert made.cluster.rules == {}
    assert OWNER not in made.node.annotations
    assert not any(lease.holder for lease in made.cluster.leases.values())


def test_a_person_who_deletes_the_rule_has_overruled_it_until_the_fault_comes_again() -> None:
    made = story()
    made.see(finding("gpu_lost"))
    made.settle()
    made.cluster.rules.clear()
    made.settle()
    assert (made.cluster.rules, made.node.taints) == ({}, ())
    made.now += 60.0
    made.see(finding("gpu_lost", at=made.now))
    made.settle()
    assert made.cluster.rules.keys() == RULES


def test_a_budget_in_gpus_holds_back_a_further_one_and_does_not_take_the_node_instead() -> None:
    made = story(budget=BudgetConfig(max_unavailable_gpus=1))
    made.cluster.rules["gpuwatch-other-gpu-3"] = DeviceRule(name="gpuwatch-other-gpu-3", pool="other", device="gpu-3")
    made.see(finding("gpu_lost"))
    plan = made.settle()
    assert BlockReason.BUDGET in {each.reason for each in plan.blocked}
    assert (made.cluster.rules.keys(), made.node.taints) == ({"gpuwatch-other-gpu-3"}, ())
    made.cluster.rules.clear()
    made.settle()
    assert made.cluster.rules.keys() == RULES


def test_a_gpu_that_the_device_plugin_gives_away_too_takes_the_node() -> None:
    made = story()
    made.see(finding("gpu_lost"), withheld=())
    made.settle()
    assert made.node.taint is not None
    assert made.cluster.rules == {}


def test_what_was_not_read_is_asked_for_and_a_rule_of_another_is_never_named() -> None:
    made = story()
    made.see(finding("gpu_lost"))
    assert "devices" in made.plan(devices=None).needs
    foreign = DeviceRule(name="by-hand", pool="node-1", device="gpu-0", owner="someone")
    made.cluster.rules["by-hand"] = foreign
    made.settle()
    made.recover()
    assert made.cluster.rules == {"by-hand": foreign}
    named = [
        s.rule.name if isinstance(s, WriteRule) else s.name for s in made.done if isinstance(s, WriteRule | DeleteRule)
    ]
    assert set(named) == RULES
    assert replace(made.memory, announced={}).slot is None
    assert made.now > START
