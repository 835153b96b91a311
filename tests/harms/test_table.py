"""The table of harms is complete, its patches still fit, its tests exist, and its page is up to date."""

from collections import Counter

import pytest

from tests.harms.mutating import ROOT, functions
from tests.harms.page import markdown
from tests.harms.table import HARMS, Harm

MANY = 69


def test_every_harm_has_its_row_and_a_proof() -> None:
    assert [harm.number for harm in HARMS] == list(range(1, MANY + 1))
    assert all(harm.proofs for harm in HARMS)


@pytest.mark.parametrize("harm", HARMS, ids=lambda harm: harm.number)
def test_patches_fit_and_tests_and_guards_exist(harm: Harm) -> None:
    for test, patch in harm.proofs:
        assert (ROOT / patch.file).read_text().count(patch.text) == 1, patch
        assert patch.text not in patch.instead or patch.instead.count(patch.text) == 1
        path, _, name = test.partition("::")
        assert name.split("[")[0] in functions(path), test
    for where in harm.where:
        path, _, name = where.partition(":")
        assert name in (ROOT / "gpuwatch" / path).read_text(), where


def test_no_proof_is_there_twice() -> None:
    assert max(Counter(proof for harm in HARMS for proof in harm.proofs).values()) == 1


def test_the_page_is_up_to_date() -> None:
    assert (ROOT / "docs/harms.md").read_text() == markdown(), "make generate"
