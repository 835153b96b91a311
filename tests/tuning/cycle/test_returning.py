"""A pod that comes back under another name: by its controller, its image and its GPUs it is recognised."""

import pytest

from gpuwatch.tuning.energy.search import SAFE
from gpuwatch.tuning.model.status import TuningState
from tests.tuning.cycle.tuning_world import STEP, TOP, Work, World


def run_of(world: World, pod: str, controller: tuple[str, str]) -> tuple[float, float]:
    """Seconds until a cap of this pod on GPU 2 is held, and the first cap tried."""
    world.annotations.setdefault(pod, world.annotations["b"])
    world.controllers[pod] = controller
    world.works["GPU-2"] = Work(pod, (100 + len(world.controllers),))
    seconds = world.until(TuningState.HOLDING, 2)
    caps = [order.value for _, order in world.orders if order.uuid == "GPU-2" and order.value is not None]
    world.orders.clear()
    return seconds, caps[0]


def made() -> World:
    world = World(max_actions_per_hour=1000)
    world.works = dict.fromkeys(world.works)
    return world


def test_the_next_run_of_a_cron_job_begins_near_the_cap_of_the_one_before():
    world = made()
    before, first = run_of(world, "train-29400000-abcde", ("Job", "train-29400000"))
    held = world.gpu(2).clock_cap
    world.works["GPU-2"] = None
    world.run(30)
    after, again = run_of(world, "train-29401440-fghij", ("Job", "train-29401440"))
    assert held is not None
    assert held < again <= held + SAFE * TOP + STEP
    assert again != first
    assert after <= before / 2


@pytest.mark.parametrize(
    ("pod", "controller"), [("other-29401440-abcde", ("Job", "other-29401440")), ("train-x", ("Deployment", "train"))]
)
def test_work_of_another_controller_starts_over(pod, controller):
    world = made()
    _, first = run_of(world, "train-29400000-abcde", ("Job", "train-29400000"))
    world.works["GPU-2"] = None
    world.run(30)
    assert run_of(world, pod, controller)[1] == first


def test_another_promise_starts_over():
    world = made()
    _, first = run_of(world, "train-29400000-abcde", ("Job", "train-29400000"))
    world.works["GPU-2"] = None
    world.run(30)
    world.annotations["train-29401440-fghij"] = {**world.annotations["b"], "gpuwatch.io/max-slowdown": "2%"}
    assert run_of(world, "train-29401440-fghij", ("Job", "train-29401440"))[1] == first


def test_who_observes_knows_nothing_and_remembers_nothing():
    world = made()
    world.config = type(world.config)(mode="observe", pods="observe")
    world.works["GPU-2"] = Work("b", (12,))
    world.until(TuningState.ELIGIBLE, 2)
    assert world.known == {}


def test_the_status_says_near_which_cap_it_is_tried():
    world = made()
    run_of(world, "train-29400000-abcde", ("Job", "train-29400000"))
    world.works["GPU-2"] = None
    world.run(30)
    world.annotations["train-29401440-fghij"] = world.annotations["b"]
    world.controllers["train-29401440-fghij"] = ("Job", "train-29401440")
    world.works["GPU-2"] = Work("train-29401440-fghij", (300,))
    world.until(TuningState.SEARCHING, 2)
    assert "MHz of before" in world.gpu(2).note
