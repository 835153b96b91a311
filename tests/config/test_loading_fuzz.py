"""Nothing but a UsageError leaves the loading of a configuration, whatever stands in the file.

10^4 cases here, on the corpus of `tests/fuzz`; more by `make fuzz` and by hand with CASES.
"""

import os
import random
from pathlib import Path

from gpuwatch.config import parse
from gpuwatch.config.yaml import Document, document
from gpuwatch.model.errors import UsageError
from tests.fuzz.mutation import mutants

CASES = int(os.environ.get("CASES", "10000"))
SEEDS = sorted((Path(__file__).parents[1] / "fuzz/corpus/configuration").iterdir())


def loaded(source: bytes) -> bool:
    try:
        found: Document = document(source, "FILE")
        parse(found.value, "FILE", found.at)
    except UsageError:
        return False
    return True


def test_no_mutant_of_a_configuration_raises_anything_else() -> None:
    taken = sum(map(loaded, mutants([path.read_bytes() for path in SEEDS], CASES, random.Random(1))))
    assert 0 < taken < CASES
