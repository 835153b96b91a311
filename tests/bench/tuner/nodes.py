"""What a job on several nodes loses when the tuner of each node keeps the bound: `python -m tests.bench.tuner.nodes`.

A model, not the tuner: a step of a data-parallel job takes as long as its slowest rank needs. Each node has one rank,
and holds the lowest clock at which the job loses no more than the bound against this node at full speed, with the
others as they are. In each round every node looks again, in random order, as held caps are verified.
"""

import argparse
import random
import sys
from collections.abc import Sequence

from tests.bench.measure import table

BOUND, FLOOR, STEPS = 0.05, 0.5, 132
SHARES = (0.2, 0.5, 0.9)
"""Of a rank's time, what goes with the clock."""


def speed(clock: float, share: float) -> float:
    """Of a rank, relative to its highest clock."""
    return 1 / (1 - share + share / clock)


def slowdown(nodes: int, share: float, rounds: int, seed: int) -> float:
    """Of the job, after so many rounds."""
    chance, clocks = random.Random(f"nodes {nodes} {share} {seed}"), [1.0] * nodes
    ladder = [1 - step / STEPS for step in range(int(STEPS * (1 - FLOOR)) + 1)]
    for _ in range(rounds):
        for node in chance.sample(range(nodes), nodes):
            others = min((speed(clock, share) for place, clock in enumerate(clocks) if place != node), default=1.0)
            kept = [clock for clock in ladder if min(others, speed(clock, share)) >= (1 - BOUND) * others]
            clocks[node] = min(kept)
    return 1 - min(speed(clock, share) for clock in clocks)


def main(arguments: Sequence[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.tuner.nodes", description=__doc__)
    parser.add_argument("--seed", type=int, default=2026)
    seed = parser.parse_args(arguments).seed
    rows = [
        (nodes, *(f"{100 * slowdown(nodes, share, rounds, seed):.1f} %" for share in SHARES for rounds in (1, 4)))
        for nodes in (1, 2, 4, 8, 16, 32, 64)
    ]
    head = ("nodes", *(f"{100 * share:.0f} % by the clock, {text}" for share in SHARES for text in ("1 round", "4")))
    table(f"A job's slowdown, each node tuned to {100 * BOUND:.0f} %", head, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
