"""No reader of foreign bytes fails on what once was a find, on the seeds, or on small changes of them.

`make fuzz` looks for more, guided by coverage; what it finds becomes a file in `corpus/`.
"""

import contextlib
import random

import pytest

from tests.fuzz.mutation import mutants
from tests.fuzz.targets import TARGETS, Target

CASES = {"http": 150, "captures": 100}
"""Of the targets that are slow; 400 of the others."""


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_each_reader_understands_one_of_its_seeds(target: Target) -> None:
    """Else all that is made of them is refused at the first look, and nothing behind that is tried."""
    understood = []
    for data in target.seeds():
        with contextlib.suppress(*target.allowed):
            target.call(data)
            understood.append(data)
    assert understood


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_nothing_but_a_refusal_comes_of_bytes_of_others(target: Target) -> None:
    for data in mutants(target.seeds(), CASES.get(target.name, 400), random.Random(target.name), target.reshape):
        try:
            target.run(data)
        except Exception as error:
            error.add_note(f"{target.name}: {data[:2000]!r}")
            raise
