"""A day of one node under the tuner's whole loop, against the same day without one.

`python -m tests.bench.tuner.day [--hours 24] [--gpus 8] [--seed 1]` prints the account. What is driven is
`gpuwatch.tuning.cycle.cycle.cycle`, with a hand whose driver refuses now and then; what is told is what happened.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from statistics import fmean, median
from typing import Any

from gpuwatch.config import TuningConfig
from gpuwatch.tuning.cycle import cycle as tuning_loop
from gpuwatch.tuning.cycle import state as tuning_state
from tests.bench.measure import table
from tests.bench.tuner.day_account import Account, Caps, Report, report
from tests.bench.tuner.day_hand import DayHand
from tests.bench.tuner.day_node import START, Node
from tests.bench.tuner.day_work import HOUR, faults, schedule

CONFIG = TuningConfig(mode="enforce")
"""Pods are observed unless they ask for more."""

LOOK = 0.2
"""Seconds from a sample to the cycle that has seen it."""

BUSY = ("training", "churn")
"""Kinds of pods that are never idle for long."""

STALE = 3.0
"""Seconds after which a View is too old."""


def without(gpus: int, hours: float, seed: int, hurry: float = 1.0) -> Account:
    """What pods do and draw when nobody tunes."""
    node, account = Node(gpus, schedule(gpus, hours, seed, hurry), faults(gpus, hours, seed), seed), Account()
    for _ in range(int(hours * HOUR)):
        node.second()
        account.take(node.done)
    return account


def under(gpus: int, hours: float, seed: int, hurry: float = 1.0, config: TuningConfig = CONFIG) -> Report:
    """The same with the tuner, against the day without."""
    pods, broken = schedule(gpus, hours, seed, hurry), faults(gpus, hours, seed)
    node, account, caps = Node(gpus, pods, broken, seed), Account(), Caps(gpus)
    actuator, memory = DayHand(node.slots, caps, seed), tuning_state.CycleMemory()
    results: tuple[Any, ...] = ()
    spent, decided, believed = [0.0], 0, 0.0
    for _ in range(int(hours * HOUR)):
        node.second()
        account.take(node.done)
        now = node.now + LOOK
        actuator.wait(now)
        age = START + node.now - node.view.snapshot.at
        inputs = tuning_state.CycleInputs(
            view=node.view,
            fresh=age < STALE,
            now=now,
            at=START + now,
            config=config,
            consents=node.consents,
            actuation=actuator.recorded(),
            capabilities=node.capabilities,
            guarded=node.guarded,
            stopped="",
            results=results,
            saved={},
        )
        began = time.perf_counter()
        found = tuning_loop.cycle(memory, inputs)
        spent.append(time.perf_counter() - began)
        memory = found.memory
        results = actuator.apply(found.orders, now)
        decided += len(found.reports)
        believed = sum(gpu.joules_saved for gpu in found.gpus)
    cost = median(spent) / gpus
    return report(
        without(gpus, hours, seed, hurry), account, caps, actuator, pods, broken, hours, (decided, believed, cost)
    )


def show(found: Report, seed: int) -> None:
    """Print it."""
    kinds = [
        (
            kind.name,
            kind.pods,
            f"{kind.joules / 3.6e6:.1f} kWh",
            f"{kind.saved:.1%}",
            f"{kind.best:.1%}" if kind.name in BUSY else None,
            f"{kind.slowdown:.2%}",
            f"{kind.worst:.2%}",
            f"{kind.over:.2%}",
        )
        for kind in found.kinds
    ]
    head = ("pods", "n", "drawn without", "saved", "at best", "slower", "worst pod", "of their time over bound + 1 pp")
    table(f"{found.hours:g} h of {found.gpus} GPUs, seed {seed}", head, kinds)
    lines = [
        ("saved of all that the GPUs draw", f"{found.saved_of_all:.2%}"),
        ("the tuner's own count of joules saved / the true one", f"{found.claimed:.2f}"),
        ("actions, most of one GPU in an hour", found.actions_most),
        ("actions of a GPU in an hour, mean", f"{found.actions_mean:.2f}"),
        ("decisions told", found.decisions),
        *((what, spell(seconds)) for what, seconds in found.spans),
        ("seconds of a cap on pods that must not be touched", f"{found.untouchable:.1f}"),
        ("seconds over, of each change of phase", spell(found.phases)),
        ("cost of the loop, one GPU, one cycle, median", f"{found.cost * 1e6:.0f} us"),
    ]
    table("", ("what", ""), lines)


def spell(seconds: Sequence[float]) -> str:
    """How many, the middle one, the mean and the most."""
    if not seconds:
        return "none"
    ordered = sorted(seconds)
    middle = ordered[len(ordered) // 2]
    return f"{len(ordered)}: p50 {middle:.1f} s, mean {fmean(ordered):.1f} s, most {ordered[-1]:.1f} s"


def main(arguments: Sequence[str]) -> int:
    """Print the account of a day."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.tuner.day", description=__doc__)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--hurry", type=float, default=1.0, help="pods come and go so many times faster")
    chosen = parser.parse_args(arguments)
    show(under(chosen.gpus, chosen.hours, chosen.seed, chosen.hurry), chosen.seed)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
