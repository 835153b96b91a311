"""The driver's event set: kinds, identities that outlive their GPU, timeouts, and a set made anew."""

import pytest

from gpuwatch.collect.nvml.events import EVENT_TYPES, handle_key
from tests.fakes.libnvml import FakeDriver
from tests.fakes.nvml_child import run

EVENTS = """
from gpuwatch.model.snapshot import Identity
from gpuwatch.collect.nvml.library import NvmlFailure
from gpuwatch.collect.nvml.events import DriverEventReader
from gpuwatch.collect.nvml.gpu import register
events = DriverEventReader(nvml)
handle, identity = register(nvml, 0)
events.add(handle, identity)
def wait(timeout=2000):
    try:
        tell(events.wait(timeout, lambda: 12.5))
    except NvmlFailure as error:
        tell(str(error))
"""
RECOVERY_ACTION, DOUBLE_BIT_ECC = 0x8000, 0x2


def test_an_xid(driver: FakeDriver) -> None:
    (event,) = run(driver, EVENTS + "pause(); wait()", lambda: driver.xid(0, 79))
    assert event == {
        "kind": "xid",
        "at": 12.5,
        "data": 79,
        "uuid": driver.get(0, "uuid"),
        "pci_bus_id": "00000000:0F:00.0",
    }


def test_an_xid_of_an_instance(driver: FakeDriver) -> None:
    (event,) = run(driver, EVENTS + "pause(); wait()", lambda: driver.xid(0, 45, gi=3, ci=1))
    assert (event["gi"], event["ci"]) == (3, 1)


@pytest.mark.parametrize(("kind", "bit"), [("recovery_action", RECOVERY_ACTION), ("double_bit_ecc", DOUBLE_BIT_ECC)])
def test_other_kinds(driver: FakeDriver, kind: str, bit: int) -> None:
    (event,) = run(driver, EVENTS + "pause(); wait()", lambda: driver.push_event(0, bit, 2))
    assert (event["kind"], event["data"]) == (kind, 2)


def test_a_lost_gpu_keeps_its_name(driver: FakeDriver) -> None:
    def lose() -> None:
        driver.lose(0)
        driver.xid(0, 79)

    (event,) = run(driver, EVENTS + "pause(); wait()", lose)
    assert event["uuid"] == driver.get(0, "uuid")


def test_nothing_happened(driver: FakeDriver) -> None:
    assert run(driver, EVENTS + "wait(1)") == [None]


def test_a_gpu_that_supports_fewer_kinds_shows_those_it_has(driver: FakeDriver) -> None:
    driver.set(0, supported_events=0x8)
    (event,) = run(driver, EVENTS + "pause(); wait()", lambda: driver.xid(0, 31))
    assert event["data"] == 31


def test_a_gpu_without_events_refuses(driver: FakeDriver) -> None:
    driver.set(0, supported_events=None)
    piece = EVENTS.replace(
        "events.add(handle, identity)\n",
        "try:\n    events.add(handle, identity)\nexcept NvmlFailure as error:\n    tell(error.kind)\n",
    )
    assert run(driver, piece) == ["not supported"]


def test_a_reload_ends_the_wait(driver: FakeDriver) -> None:
    assert run(driver, EVENTS + "pause(); wait()", driver.reload) == ["Uninitialized"]


def test_a_set_made_again_shows_what_comes_after(driver: FakeDriver) -> None:
    piece = EVENTS + "pause(); wait(); pause(); events.reopen(); pause(); wait()"
    turns = (lambda: driver.error(15, "nvmlEventSetWait"), driver.clear, lambda: driver.xid(0, 63))
    failed, event = run(driver, piece, *turns)
    assert failed == "GPU is lost"
    assert event["data"] == 63
    assert driver.calls("nvmlEventSetFree") == 1


def test_a_set_made_again_leaves_out_who_refuses(driver: FakeDriver) -> None:
    piece = EVENTS + "pause(); events.reopen(); wait(1)"
    assert run(driver, piece, lambda: driver.lose(0)) == [None]


def test_every_kind_is_a_bit_of_its_own(driver: FakeDriver) -> None:
    (bits,) = run(driver, EVENTS + f"tell([getattr(nvml, name) for name in {list(EVENT_TYPES.values())}])")
    assert all(bit & (bit - 1) == 0 for bit in bits)
    assert len(set(bits)) == len(EVENT_TYPES)


def test_handles_that_are_no_pointers_are_their_own_keys() -> None:
    assert handle_key(7) == 7
