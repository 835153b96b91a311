"""What the tuner tells of a GPU: what is done with it, and joules saved, which never fall, since a counter that falls
counts anew.
"""

from gpuwatch.model.consent import AUTOTUNE, CLASS
from gpuwatch.model.snapshot import Gpu, Identity, Power
from gpuwatch.tuning.cycle.state import Account
from gpuwatch.tuning.cycle.status import account
from gpuwatch.tuning.model.status import TuningState
from tests.tuning.cycle.tuning_world import World


def gpu(joules: float | None) -> Gpu:
    return Gpu(identity=Identity(index=0, uuid="GPU-a", pci_bus_id="0"), at=1.0, power=Power(energy=joules))


def test_a_rest_that_saves_less_than_nothing_takes_back_what_was_saved_but_not_what_was_reported():
    told, saved = [], []
    found = Account()
    for more in (-0.7, 5.0, -2.0, 1.0, 4.0):
        found = account(found, gpu(100.0), None, more)
        told.append(found.reported)
        saved.append(round(found.saved, 6))
    assert saved == [-0.7, 4.3, 2.3, 3.3, 7.3]
    assert told == sorted(told)
    assert told[0] == 0.0
    assert told[-1] == found.saved


def test_a_gpu_whose_energy_cannot_be_read_keeps_what_was_reported():
    found = account(Account(counter=50.0, saved=3.0, reported=4.0), gpu(None), None, 0.0)
    assert found == Account(None, 3.0, 4.0)


def test_each_state_says_in_words_what_is_done() -> None:
    world, notes = World(), {}
    for _ in range(1500):
        gpu = world.tick().gpus[2]
        notes.setdefault(gpu.state, gpu.note)
        if gpu.state is TuningState.HOLDING:
            break
    assert notes[TuningState.OBSERVING].startswith("at full speed, ")
    assert " MHz in turns, pair 1" in notes[TuningState.SEARCHING]
    assert notes[TuningState.HOLDING] == "next trial in 30 min"
    world.run(600)
    assert world.gpu(2).note == "next trial in 20 min"


def test_a_state_that_lasts_keeps_the_time_at_which_it_began() -> None:
    world = World()
    world.run(3)
    began = world.gpu(3).since
    world.run(60)
    assert (world.gpu(3).state, world.gpu(3).since) == (TuningState.IDLE, began)
    assert began is not None
    assert began > world.at - 100


def test_an_owner_that_goes_before_anything_was_set_for_it_is_no_news() -> None:
    world = World()
    world.run(3)
    world.works["GPU-2"] = None
    told = [world.tick().reports for _ in range(5)]
    assert world.gpu(2).state is TuningState.IDLE
    assert not any(told)


def test_a_serving_pod_without_its_cap_says_why() -> None:
    world = World()
    world.annotations["b"] = {AUTOTUNE: "enforce", CLASS: "serving"}
    work = world.works["GPU-2"]
    assert work is not None
    work.engine = 0.6
    world.until(TuningState.HOLDING, 2)
    cap = world.clocks["GPU-2"]
    assert cap is not None
    work.engine = 0.97
    world.run(2)
    assert world.gpu(2).note == f"full speed while it is this busy, else {cap / 1e6:.0f} MHz"
