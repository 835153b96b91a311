"""What the tuner tells of a GPU: joules saved never fall, since a counter that falls counts anew."""

from gpuwatch.model.snapshot import Gpu, Identity, Power
from gpuwatch.rules.tuning_face import account
from gpuwatch.rules.tuning_memory import Account


def gpu(joules: float | None) -> Gpu:
    return Gpu(identity=Identity(index=0, uuid="GPU-a", pci_bus_id="0"), at=1.0, power=Power(energy=joules))


def test_a_rest_that_saves_less_than_nothing_takes_back_what_was_saved_but_not_what_was_told():
    told, saved = [], []
    found = Account()
    for more in (-0.7, 5.0, -2.0, 1.0, 4.0):
        found = account(found, gpu(100.0), None, more)
        told.append(found.told)
        saved.append(round(found.saved, 6))
    assert saved == [-0.7, 4.3, 2.3, 3.3, 7.3]
    assert told == sorted(told)
    assert told[0] == 0.0
    assert told[-1] == found.saved


def test_a_gpu_whose_energy_cannot_be_read_keeps_what_was_told():
    found = account(Account(counter=50.0, saved=3.0, told=4.0), gpu(None), None, 0.0)
    assert found == Account(None, 3.0, 4.0)
