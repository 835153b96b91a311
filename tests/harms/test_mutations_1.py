"""With its guard taken out, the test of every harm fails: share 1 of 4, so that workers can divide them."""

from pathlib import Path

import pytest

from tests.harms.mutating import proofs, show
from tests.harms.table import Harm, Proof


@pytest.mark.parametrize(("harm", "proof"), proofs(0, 4))
def test_without_its_guard_it_fails(harm: Harm, proof: Proof, tmp_path: Path) -> None:
    show(harm, proof, tmp_path)
