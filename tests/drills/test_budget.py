"""Whenever a tuner is killed, the limits are within the budget: real processes on a driver that logs each write.

`python -m tests.drills.test_budget --count 1000` kills as many.
"""

import argparse
import os
import random
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NamedTuple

import pynvml
import pytest

from tests.drills.budget_child import Place, work
from tests.fakes.libnvml import FakeDriver
from tests.waiting import BOUND_SECONDS

KILLS, FEW = 30, 8
GPUS = 4
ORIGINAL = 700.0
BUDGETS = (2_000.0, 1_500.0, 1_100.0, 2_600.0)
"""Watts for four GPUs of 700 W, whose least is 200 W."""

_processes = get_context("forkserver")
_processes.set_forkserver_preload(["tests.drills.budget_child"])


class Account(NamedTuple):
    """What was written between two kills. `over`: watts above the budget at the worst instant since it was kept."""

    writes: int
    over: float
    highest: float
    rises_while_over: int


@contextmanager
def living(place: Place, seed: int) -> Iterator[BaseProcess]:
    """A loop at work; killed at the end."""
    process = _processes.Process(target=work, args=(place, seed), daemon=True)
    process.start()
    try:
        yield process
    finally:
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join(BOUND_SECONDS)


def limits(driver: FakeDriver) -> dict[int, float]:
    """In force, watts by index."""
    return {gpu: driver.get(gpu, "power_limit_mw") / 1e3 for gpu in range(GPUS)}


def account(driver: FakeDriver, before: Mapping[int, float], budget: float) -> Account:
    """The sum of the limits after each write, as the driver took them."""
    now, over, rises, writes = dict(before), 0.0, 0, 0
    highest, is_within = 0.0, sum(before.values()) <= budget
    for each in driver.sets():
        if each.result != 0 or each.knob != "power_limit" or each.value is None:
            continue
        watts, writes = each.value / 1e3, writes + 1
        rises += sum(now.values()) > budget and watts > now[each.gpu]
        now[each.gpu], highest = watts, max(highest, watts)
        total = sum(now.values())
        over = max(over, total - budget) if is_within else over
        is_within = is_within or total <= budget
    return Account(writes, over, highest, rises)


def drill(driver: FakeDriver, folder: Path, kills: int, seed: int) -> Iterator[Account]:
    """Kill as many loops, each after a random number of writes and a random moment more."""
    chance = random.Random(seed)
    place = Place(str(folder), driver.env["GPUWATCH_FAKE_NVML"], str(driver.library), str(folder / "budget"))
    for number in range(kills):
        budget = BUDGETS[number // 5 % len(BUDGETS)]
        Path(place.budget).write_text(str(budget))
        before, wanted = limits(driver), chance.randint(1, 12)
        driver.reset_calls()
        with living(place, number):
            deadline = time.monotonic() + BOUND_SECONDS
            while len(driver.sets()) < wanted and time.monotonic() < deadline:
                time.sleep(0.001)
            time.sleep(chance.uniform(0.0, 0.02))
        yield account(driver, before, budget)
        if number % 7 == 6:  # some die beside a driver that refuses
            driver.error(pynvml.NVML_ERROR_UNKNOWN, "nvmlDeviceSetPowerManagementLimit", gpu=number % GPUS)
        else:
            driver.clear()


def summary(accounts: list[Account]) -> str:
    """One line."""
    writes, over = sum(each.writes for each in accounts), max(each.over for each in accounts)
    highest = max(each.highest for each in accounts)
    rises = sum(each.rises_while_over for each in accounts)
    return (
        f"{len(accounts)} kills, {writes} writes: at most {over:.0f} W above the budget, {rises} rises while it was "
        f"exceeded, no limit above {highest:.0f} W"
    )


@pytest.mark.parametrize("kills", [FEW, pytest.param(KILLS, marks=pytest.mark.slow)])
def test_however_a_tuner_is_killed_the_limits_it_leaves_are_within_the_budget(
    tmp_path: Path, driver: FakeDriver, kills: int
) -> None:
    found = list(drill(driver, tmp_path, kills, seed=1))
    print(summary(found))
    assert sum(each.writes for each in found) > 2 * kills
    assert max(each.over for each in found) <= 0.01
    assert sum(each.rises_while_over for each in found) == 0
    assert max(each.highest for each in found) <= ORIGINAL


def main() -> None:
    """As many kills as are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=KILLS)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, FakeDriver(Path(folder) / "driver", gpus=GPUS) as driver:
        print(summary(list(drill(driver, Path(folder), chosen.count, chosen.seed))))


if __name__ == "__main__":
    main()
