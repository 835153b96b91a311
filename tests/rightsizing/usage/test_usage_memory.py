"""The ledger's memory after many workloads came and went: what it was before."""

import gc
import random
import tracemalloc

from gpuwatch.config import RightsizingConfig
from gpuwatch.rightsizing.usage.ledger import UsageLedger
from tests.bench.rightsizing.memory import SPAN, life

ROOM = 40
MOST_OF_A_BOOK = 40_000
"""Bytes, with what a namespace and a node take; `python -m tests.bench.rightsizing.memory` prints what it is."""


def test_workloads_that_come_and_go_leave_nothing_behind():
    chance, ledger = random.Random(7), UsageLedger(RightsizingConfig(max_workloads=ROOM))
    tracemalloc.start()
    try:
        sizes = []
        for number in range(16 * ROOM):
            # all within three days: what a namespace keeps for each of its days grows up to MAX_DAYS
            for window in life(number, chance, windows=8, apart=SPAN):
                ledger.add(window)
            if (number + 1) % ROOM == 0:
                gc.collect()  # what other tests of this process have left in cycles counts, too
                sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()

    assert len(ledger) == ROOM
    early, late = sizes[8:12], sizes[12:]  # after a day: for so long a namespace remembers what it held
    assert sum(late) < 1.1 * sum(early)
    assert max(sizes) < ROOM * MOST_OF_A_BOOK
