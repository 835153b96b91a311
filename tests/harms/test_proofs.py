"""With its guard taken out, the test of every harm fails.

`make test` shows it for what has changed since a base commit (`tests/harms/changes.py`), `make test-slow` for the
rest. That every patch still fits and every test is there is held by `test_table.py`, always.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harms.mutating import Runner, proofs, show
from tests.harms.table import Harm, Proof


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    with Runner() as running:
        yield running


@pytest.mark.parametrize(("harm", "proof"), proofs())
def test_without_its_guard_it_fails(harm: Harm, proof: Proof, runner: Runner, tmp_path: Path) -> None:
    show(runner, harm, proof, tmp_path)
