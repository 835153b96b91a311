"""Runs a piece of Python in a process of its own with pynvml on a fake driver, so that no test sees another's library.

The piece finds `nvml` (pynvml, initialised), `handle` (GPU 0) and `tell(value)`: every value told becomes an element of
the result. `pause()` gives the turn back to the test, which may then change the driver.
"""

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Any

from tests.fakes.libnvml import FakeDriver

PROGRAM = """
import json, sys
import msgspec, pynvml as nvml
nvml.nvmlInit()
handle = nvml.nvmlDeviceGetHandleByIndex(0)
def tell(value):
    print(msgspec.json.encode({"told": value}).decode(), flush=True)
def pause():
    print('{"paused": true}', flush=True)
    sys.stdin.readline()
"""


def run(driver: FakeDriver, piece: str, *turns: Callable[[], object]) -> list[Any]:
    """What the piece told. At its n-th `pause` the n-th turn is taken."""
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAM + textwrap.dedent(piece)],
        env={**os.environ, **driver.env},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    told, waiting = [], list(turns)
    with child:
        assert child.stdin
        assert child.stdout
        for line in child.stdout:
            answer = json.loads(line)
            if "told" in answer:
                told.append(answer["told"])
            else:
                waiting.pop(0)()
                child.stdin.write("\n")
                child.stdin.flush()
    assert child.returncode == 0
    assert not waiting, "the piece ended before all turns were taken"
    return told
