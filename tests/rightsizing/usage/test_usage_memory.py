"""The ledger's memory after many workloads came and went: what it was before."""

import gc
import random
import tracemalloc

from gpuwatch.config import RightsizingConfig
from gpuwatch.rightsizing.usage.ledger import UsageLedger
from tests.bench.rightsizing.memory import life

ROOM = 40
MOST_OF_A_BOOK = 40_000
"""Bytes, with what a namespace and a node take; `python -m tests.bench.rightsizing.memory` prints what it is."""


def test_workloads_that_come_and_go_leave_nothing_behind():
    chance, ledger = random.Random(7), UsageLedger(RightsizingConfig(max_workloads=ROOM))
    tracemalloc.start()
    try:
        sizes = []
        for number in range(8 * ROOM):
            for window in life(number, chance, windows=8):
                ledger.add(window)
            if (number + 1) % ROOM == 0:
                gc.collect()  # what other tests of this process have left in cycles counts, too
                sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()

    assert len(ledger) == ROOM
    early, late = sizes[len(sizes) // 2 - 2 : len(sizes) // 2], sizes[-2:]
    assert max(late) < 1.15 * max(early)
    assert max(sizes) < ROOM * MOST_OF_A_BOOK
