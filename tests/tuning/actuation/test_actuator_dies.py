"""A hand that dies between any two steps, and a driver that is loaded anew: real processes on the fake driver."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.tuning.actuation.record import SettingsRecord
from gpuwatch.tuning.model.setting import SettingOrder
from tests.fakes.libnvml import FakeDriver

CHILD = """
import json, os, sys
from pathlib import Path

import msgspec

from gpuwatch.model.clock import SystemClock
from gpuwatch.tuning.model.setting import SettingOrder
from gpuwatch.tuning.model.setting import Trigger
from gpuwatch.tuning.actuation.restore import Restorer
from gpuwatch.tuning.actuation.actuator import NvmlActuator
from gpuwatch.storage.audit import Audit
from gpuwatch.tuning.actuation.driver import NvmlControl
from gpuwatch.tuning.actuation.record import SettingsRecord
from gpuwatch.collect.nvml.library import open_library
from tests.remediation.model.remediating import Ledger

place, library = Path(sys.argv[1]), sys.argv[2]
left = None


def step():
    # Dies where another step would begin, as after kill -9: no handler runs, every thread is gone.
    global left
    if left is not None:
        left -= 1
        if left < 0:
            os._exit(9)


class Stepping:
    # pynvml; each call is a step
    def __init__(self, nvml):
        self.nvml = nvml

    def __getattr__(self, name):
        found = getattr(self.nvml, name)
        return (lambda *args: (step(), found(*args))[1]) if name.startswith("nvml") else found


def heed(event, args):
    # what the record does with its files is a step, too
    if event in ("open", "os.rename", "os.remove") and str(args[0]).startswith(str(place / "tuner/actuation")):
        step()


def new(kind, **more):
    nvml, clock = Stepping(open_library(library)), SystemClock()
    audit = Audit(Ledger(), clock)
    return kind(
        SettingsRecord(place), lambda: NvmlControl(nvml), boot_id=BOOT, audit=audit, clock=clock, timeout=20, **more
    )


def in_a_child(steps, act):
    # It has so many steps to live.
    global left
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    sys.addaudithook(heed)
    left = steps
    act()
    os._exit(0)


def work(orders):
    actuator = new(NvmlActuator)
    for order in orders:
        actuator.apply([order])


def give_back(times):
    restorer = new(Restorer, trigger=Trigger.GUARD)
    for _ in range(times):
        restorer.restore()


BOOT = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
own = None
for line in sys.stdin:
    command = json.loads(line)
    orders = msgspec.convert(command.get("orders", []), list[SettingOrder])
    if command["do"] == "work":
        answer = in_a_child(command["steps"], lambda: work(orders))
    elif command["do"] == "restore":
        answer = in_a_child(command["steps"], lambda: give_back(command.get("times", 1)))
    else:
        own = own or new(NvmlActuator)
        answer = [(each.outcome, each.message) for each in own.apply(orders)]
    print(json.dumps(answer), flush=True)
"""


class Child:
    """A process that has a hand, or lets others have one and die."""

    def __init__(self, driver: FakeDriver, place: Path, log: Path) -> None:
        self.log = log.open("w")
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(place), str(driver.library)],
            env={**os.environ, **driver.env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
        )

    def send(self, do: str, **more: Any) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps({"do": do, **more}) + "\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        assert self.process.stdout
        return json.loads(self.process.stdout.readline())

    def ask(self, do: str, **more: Any) -> Any:
        self.send(do, **more)
        return self.answer()

    def apply(self, *orders: SettingOrder) -> list[tuple[str, str]]:
        return [tuple(each) for each in self.ask("turn", orders=plain(orders))]

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.log):
            if pipe:
                pipe.close()


def plain(orders: tuple[SettingOrder, ...]) -> list[dict[str, Any]]:
    return [{name: getattr(order, name) for name in order.__struct_fields__} for order in orders]


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[FakeDriver]:
    with FakeDriver(tmp_path / "driver", gpus=1) as fake:
        fake.set(power_limit_mw=650_000, power_limit_enforced_mw=650_000)
        yield fake


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "state").mkdir()
    return tmp_path / "state"


@pytest.fixture
def child(driver: FakeDriver, place: Path, tmp_path: Path) -> Iterator[Child]:
    made = Child(driver, place, tmp_path / "child.log")
    yield made
    made.close()


def order(driver: FakeDriver, knob: Any, value: float | None, *, keep: bool = False) -> SettingOrder:
    return SettingOrder(uuid=driver.get(0, "uuid"), knob=knob, value=value, keep=keep)


def in_force(driver: FakeDriver) -> dict[str, float]:
    """What is not as it was: watts and hertz by knob."""
    watts, cap = driver.get(0, "power_limit_mw") / 1e3, driver.get(0, "locked_max_mhz")
    return ({"power_limit": watts} if watts != 650 else {}) | ({"locked_clocks": cap * 1e6} if cap else {})


def applied(place: Path) -> dict[str, tuple[float, ...]]:
    return {each.knob: each.applied for each in SettingsRecord(place).read().settings}


def test_s2_s4_wherever_it_dies_what_is_in_force_is_recorded_and_is_restored(
    driver: FakeDriver, child: Child, place: Path
) -> None:
    """Killed before its first step, before its second, and so on, until it lives to the end."""
    orders = (
        order(driver, "locked_clocks", 1.2e9),
        order(driver, "power_limit", 500.0),
        order(driver, "power_limit", 400.0),
        order(driver, "locked_clocks", None, keep=True),
        order(driver, "locked_clocks", 1.2e9),
        order(driver, "power_limit", None),
        order(driver, "locked_clocks", None),
    )
    steps, died_with = 0, set()
    while child.ask("work", steps=steps, orders=plain(orders)) == 9:
        ours, recorded = in_force(driver), applied(place)
        assert all(value in recorded.get(knob, ()) for knob, value in ours.items()), f"after {steps} steps"
        died_with.add((tuple(ours), tuple(recorded)))
        if recorded:
            assert child.ask("restore", steps=None) == 0
        assert (in_force(driver), applied(place)) == ({}, {}), f"after {steps} steps"
        steps += 1
    assert (in_force(driver), applied(place)) == ({}, {})
    assert ((), ("locked_clocks",)) in died_with, "recorded and not set yet"
    assert (("power_limit", "locked_clocks"), ("locked_clocks", "power_limit")) in died_with
    assert steps > 60
    values = [each.value for each in driver.sets() if each.knob == "power_limit" and not each.result]
    assert max(values) == 650_000
    print(f"{steps} deaths, {len(driver.sets())} calls of setters")


def test_s4_wherever_the_guard_dies_the_next_one_restores(driver: FakeDriver, child: Child, place: Path) -> None:
    orders = plain((order(driver, "locked_clocks", 1.2e9), order(driver, "power_limit", 500.0)))
    steps, died = 0, 9
    while died:
        assert child.ask("work", steps=None, orders=orders) == 0
        died = child.ask("restore", steps=steps)
        assert in_force(driver).keys() <= applied(place).keys()
        assert child.ask("restore", steps=None) == 0
        assert (in_force(driver), applied(place)) == ({}, {}), f"after {steps} steps"
        steps += 1
    assert steps > 10
    assert max(each.value or 0 for each in driver.sets()) == 650_000


def test_s1_s2_an_actuator_and_a_guard_at_once_raise_nothing_and_lose_nothing(
    driver: FakeDriver, child: Child, place: Path, tmp_path: Path
) -> None:
    """One sets, the other gives back as fast as it can, and now and then one of them dies."""
    driver.couple()
    guard, chance = Child(driver, place, tmp_path / "guard.log"), random.Random(5)
    wishes = [("power_limit", watts) for watts in (None, 200.0, 400.0, 650.0)]
    wishes += [("locked_clocks", hertz) for hertz in (None, 2.1e8, 1.2e9, 1.98e9)]
    try:
        for _ in range(8):
            orders = [
                order(driver, knob, value, keep=chance.random() < 0.3) for knob, value in chance.choices(wishes, k=40)
            ]
            child.send("work", steps=chance.choice([None, chance.randrange(400)]), orders=plain(tuple(orders)))
            guard.send("restore", steps=chance.choice([None, chance.randrange(40)]), times=20)
            assert {child.answer(), guard.answer()} <= {0, 9}
            recorded = applied(place)
            assert all(value in recorded.get(knob, ()) for knob, value in in_force(driver).items())
    finally:
        guard.close()
    assert child.ask("restore", steps=None) == 0
    assert (in_force(driver), applied(place)) == ({}, {})
    done = [each for each in driver.sets() if not each.result]
    assert max(each.value or 0 for each in done if each.knob == "power_limit") == 650_000
    assert len({each.pid for each in done}) > 8, "both had a hand in it"


def test_s5_the_same_driver_loaded_again_is_met_again_and_what_was_set_is_gone(
    driver: FakeDriver, child: Child, place: Path
) -> None:
    driver.set(power_limit_mw=700_000, power_limit_enforced_mw=700_000)
    both = order(driver, "locked_clocks", 1.2e9), order(driver, "power_limit", 500.0)
    assert child.apply(*both) == [("done", "")] * 2
    driver.reload()
    assert child.apply(order(driver, "power_limit", None), order(driver, "locked_clocks", None, keep=True)) == [
        ("done", "nothing of gpuwatch is in force, the limit is 700 W"),
        ("done", "the clocks are unlocked"),
    ]
    assert child.apply(*both) == [("done", "")] * 2
    driver.reload()
    assert child.apply(*both) == [("done", "")] * 2
    assert (driver.get(0, "locked_max_mhz"), driver.get(0, "power_limit_mw")) == (1200, 500_000)


def test_s5_after_another_driver_nothing_is_set_by_the_old_process_and_a_new_one_drops_the_record(
    driver: FakeDriver, child: Child, place: Path, tmp_path: Path
) -> None:
    cap = order(driver, "locked_clocks", 1.2e9)
    assert child.apply(cap) == [("done", "")]
    driver.reload("590.48.01")
    ((outcome, message),) = child.apply(order(driver, "locked_clocks", 1.5e9))
    assert outcome == "failed"
    assert "cannot reach the NVIDIA driver" in message
    assert applied(place) == {"locked_clocks": (1.2e9,)}
    new = Child(driver, place, tmp_path / "new.log")
    try:
        driver.reset_calls()
        assert new.apply(order(driver, "locked_clocks", None)) == [("done", "nothing was set")]
    finally:
        new.close()
    assert (applied(place), driver.sets()) == ({}, ())


def test_s9_a_cap_that_was_lifted_for_a_while_is_restored_without_a_penalty(
    driver: FakeDriver, child: Child, place: Path
) -> None:
    """At full clocks it looks as if somebody else had unlocked them: the tuner has, and the record lists it still."""
    driver.couple()
    cap, end = (order(driver, "locked_clocks", value) for value in (1.2e9, None))
    pause = order(driver, "locked_clocks", None, keep=True)
    assert child.apply(cap, pause, end) == [
        ("done", ""),
        ("done", "the clocks are unlocked"),
        ("done", "it runs at 1980 MHz, so the lock of 1200 MHz is not in force"),
    ]
    assert (in_force(driver), applied(place)) == ({}, {})
    assert child.apply(cap) == [("done", "")]
    driver.forget_settings()
    assert [outcome for outcome, _ in child.apply(end)] == ["foreign"]
