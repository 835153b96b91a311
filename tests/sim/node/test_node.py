"""The simulated node: the same for everybody who computes it, and obedient to physics."""

import subprocess
import sys

import pytest

from gpuwatch.sim.node.node import SimNode
from gpuwatch.sim.node.physics import HW_BRAKE, HW_THERMAL, SW_POWER, SW_THERMAL
from gpuwatch.sim.node.profiles import MODELS
from tests.sim.node.nodes import scenario, work

STATE = """
from gpuwatch.sim.node.node import SimNode
from gpuwatch.sim.node.scenario import load
node = SimNode(load({name!r}), seed={seed})
for t in {times}:
    node.advance(t)
print([(p.power, p.clock, p.temperature, p.energy, p.nvlink_bytes) for p in node.physics])
print(list(node.lines), node.events)
"""


def state_in_another_process(name, seed, times):
    code = STATE.format(name=name, seed=seed, times=times)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_two_processes_that_read_at_other_times_have_the_same_node():
    often = [i * 0.173 for i in range(1, 1200)] + [220.0]
    assert state_in_another_process("ecc-storm", 3, often) == state_in_another_process("ecc-storm", 3, [220.0])


def test_another_seed_is_another_node():
    first, second = (SimNode(scenario(workloads=[work(0)]), seed=seed) for seed in (1, 2))
    first.advance(60)
    second.advance(60)
    assert first.gpus[0].uuid != second.gpus[0].uuid
    assert first.physics[0].energy != second.physics[0].energy


@pytest.mark.parametrize("model", MODELS)
def test_no_model_draws_more_than_its_limit_or_gets_too_hot(model):
    node = SimNode(scenario(model, 1, [work(0, load="steady")]))
    for t in range(1, 600):
        node.advance(t)
        physics = node.physics[0]
        assert physics.power <= node.model.power_limit * 1.001
        assert physics.temperature <= node.model.max_operating + 0.5
        assert node.model.clock_idle <= physics.clock <= node.model.clock_max


def test_load_makes_a_gpu_hot_and_an_idle_one_stays_cool():
    node = SimNode(scenario(timeline=[{"at": 1, "do": "start", "workload": work(0, load="steady")}]))
    cool = node.physics[0].temperature
    node.advance(300)
    busy, idle = node.physics
    assert busy.temperature > cool + 25
    assert idle.temperature < cool + 2
    assert idle.power == node.model.power_idle
    assert busy.reasons & SW_POWER


def test_a_node_begins_warm_from_its_work():
    node = SimNode(scenario(workloads=[work(0, load="steady")]))
    warm = node.physics[0].temperature
    node.advance(300)
    assert node.physics[0].temperature == pytest.approx(warm, abs=3)


def test_energy_is_the_integral_of_power():
    node = SimNode(scenario(workloads=[work(0, load="inference")]))
    total = 0.0
    for step in range(1, 1201):
        node.advance(step * 0.5)
        moment = node.physics[0].history[-1]
        total += moment.power * 0.5
    assert node.physics[0].energy == pytest.approx(total, rel=1e-9)


def test_counters_grow_between_steps_too():
    node = SimNode(scenario(workloads=[work(0, load="steady")]))
    node.advance(10.3)
    physics = node.physics[0]
    assert physics.time == 10.0
    early, late = (physics.counter(physics.energy, physics.power, t) for t in (10.1, 10.3))
    assert late - early == pytest.approx(0.2 * physics.power)


def test_poor_cooling_slows_the_clock_before_the_gpu_gets_too_hot():
    timeline = [{"at": 100, "do": "thermal", "gpu": 0, "ambient": 42, "cooling": 0.55}]
    node = SimNode(scenario(workloads=[work(0, load="steady")], timeline=timeline))
    node.advance(100)
    before = node.physics[0].clock
    node.advance(700)
    hot = node.physics[0]
    assert hot.clock < before
    assert hot.reasons & SW_THERMAL
    assert hot.temperature == pytest.approx(node.model.max_operating, abs=1)
    assert 400 < hot.seconds[SW_THERMAL] <= 600


def test_without_cooling_the_hardware_halves_the_clock():
    timeline = [{"at": 10, "do": "thermal", "gpu": 0, "ambient": 55, "cooling": 0.2}]
    node = SimNode(scenario(workloads=[work(0, load="steady")], timeline=timeline))
    node.advance(600)
    hot = node.physics[0]
    assert hot.temperature > node.model.slowdown
    assert hot.reasons & HW_THERMAL
    assert hot.clock <= node.model.clock_max / 2


def test_the_power_brake_counts_its_seconds():
    timeline = [
        {"at": 10, "do": "power_brake", "gpu": "all"},
        {"at": "1m10s", "do": "power_brake", "gpu": "all", "engaged": False},
    ]
    node = SimNode(scenario(workloads=[work(0, 1, load="steady")], timeline=timeline))
    node.advance(40)
    assert all(physics.reasons & HW_BRAKE for physics in node.physics)
    node.advance(300)
    assert [physics.seconds[HW_BRAKE] for physics in node.physics] == pytest.approx([60, 60])


def test_a_lower_limit_costs_a_memory_bound_load_less_than_it_saves():
    def run(limit):
        timeline = [{"at": 0, "do": "power_limit", "gpu": 0, "watts": limit}]
        node = SimNode(scenario(workloads=[work(0, load="memory")], timeline=timeline))
        node.advance(120)
        return node.gpus[0].units[0].totals[3], node.physics[0].energy

    (moved, energy), (moved_less, energy_less) = run(700), run(350)
    assert energy_less < 0.9 * energy
    assert 0.95 * moved < moved_less < moved


def test_two_workloads_on_one_gpu_get_no_more_than_there_is():
    both = [work(0, load="steady"), {**work(0, load="steady"), "name": "ml/other-0"}]
    node = SimNode(scenario(workloads=both))
    node.advance(5)
    assert node.physics[0].load.busy == pytest.approx(1.0)
    assert node.physics[0].power <= node.model.power_limit * 1.001


def test_mig_instances_add_up_to_their_gpu():
    node = SimNode(scenario(gpus=1, mig={0: ["3g.40gb", "1g.10gb"]}, workloads=[work("0:0", load="steady")]))
    node.advance(10)
    large, small = node.gpus[0].units
    assert (large.gi, small.gi) == (1, 7)
    assert node.physics[0].load.sm == pytest.approx(large.share * large.load.sm)
    assert small.totals[1] == 0


def test_repeated_actions_end_after_their_times():
    timeline = [{"at": 5, "do": "xid", "gpu": 0, "xid": 31, "every": 2, "times": 4}]
    node = SimNode(scenario(timeline=timeline), physical=False)
    node.advance(100)
    assert [event.t for event in node.events] == [5, 7, 9, 11]
    assert node.next_action is None


def test_a_fast_node_takes_no_more_steps_in_real_time_than_a_slow_one():
    slow, fast = SimNode(scenario(), speed=1), SimNode(scenario(), speed=600)
    assert slow.step == 0.5
    assert 600 / fast.step == 20
