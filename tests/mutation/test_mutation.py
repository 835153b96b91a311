"""The mutants are those that are meant, they behave as they are written, and the kept baseline can be relied on."""

import gc
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mutation import baseline, sample
from tests.mutation.__main__ import LEAST
from tests.mutation.operators import Mutant, mutants
from tests.mutation.sample import MOST, TABLE, Meter, larger
from tests.mutation.swapping import NotSwapped, swapped
from tests.mutation.targets import GROUPS

ROOT = Path(__file__).resolve().parents[2]
SOURCE = Path(sample.__file__).read_text()


def fits(amount: float) -> bool:
    return Meter().add(amount)


def counted() -> float:
    meter = Meter()
    meter.add(3.0)
    meter.add(4.0)
    return meter.count


CHECKS: dict[str, Callable[[], bool]] = {
    "Meter.__init__": lambda: counted() == 7.0,
    "Meter.add": lambda: fits(10.0) and not fits(10.5) and counted() == 7.0,
    "larger": lambda: (larger(1.0, 2.0), larger(2.0, 1.0), larger(3.0, 3.0)) == (2.0, 2.0, 3.0),
    "at_least": lambda: (sample.POSITIVE(0.5), sample.POSITIVE(0.4), sample.POSITIVE(0.6)) == (True, False, True),
    "": lambda: TABLE["double"](3) == 6 and TABLE["whole"](2.0) and not TABLE["whole"](2.5) and fits(10.0),
}


def survives(mutant: Mutant) -> bool:
    try:
        with swapped(sample, SOURCE, mutant.source):
            return CHECKS[mutant.function]()
    except (TypeError, RecursionError):
        return False


def found(function: str, operator: str, after: str) -> Mutant:
    (mutant,) = (
        each
        for each in mutants(SOURCE)
        if (each.function, each.operator) == (function, operator) and after in each.after
    )
    return mutant


@pytest.mark.parametrize(
    ("function", "operator", "after"),
    [
        ("Meter.add", "compare", "if (self.count + amount >= MOST)"),
        ("Meter.add", "arithmetic", "if (self.count - amount)"),
        ("Meter.add", "remove assignment", "pass"),
        ("Meter.add", "constant", "return (True)"),
        ("Meter.add", "condition False", "if (False)"),
        ("Meter.__init__", "constant", "(1.0)"),
        ("larger", "compare", "one <= other"),
        ("larger", "condition True", "if (True)"),
        ("at_least", "compare", "value > least"),
    ],
)
def test_a_change_that_matters_is_noticed(function: str, operator: str, after: str) -> None:
    places = [
        each
        for each in mutants(SOURCE)
        if (each.function, each.operator) == (function, operator) and after in each.after
    ]
    assert places
    assert not any(map(survives, places))


@pytest.mark.parametrize(("operator", "after"), [("arithmetic", "value / 2"), ("compare", "value != int(value)")])
def test_functions_in_a_table_are_changed_where_they_are(operator: str, after: str) -> None:
    assert not survives(found("", operator, after))


def test_a_change_that_changes_nothing_survives() -> None:
    assert survives(found("larger", "compare", "one >= other"))


def test_a_function_is_changed_although_the_collector_has_put_it_aside() -> None:
    gc.freeze()
    with swapped(sample, SOURCE, found("larger", "compare", "one <= other").source):
        assert larger(1.0, 2.0) == 1.0


def test_what_is_changed_is_changed_back() -> None:
    for mutant in mutants(SOURCE)[::5]:
        survives(mutant)
    assert all(check() for check in CHECKS.values())


def test_a_value_at_the_top_is_changed_for_all_who_have_its_name() -> None:
    with swapped(sample, SOURCE, found("", "constant", "MOST = (20.0)").source):
        assert sample.MOST == MOST == 20.0
        assert fits(15.0)
    assert sample.MOST == MOST == 10.0


def test_what_is_no_change_is_reported_to_be_none() -> None:
    with pytest.raises(NotSwapped), swapped(sample, SOURCE, SOURCE):
        pass


def test_words_are_left_alone() -> None:
    source = '''
def tell(log, count: int | None = None) -> str:
    """If 1 > 0."""
    log.info("more than %d", 3 + count)
    if count < 0:
        raise ValueError(f"{count + 1} is too few")
    return f"{count + 1}"
'''
    changed = {(each.operator, each.after) for each in mutants(source)}
    assert changed == {
        ("compare", "if (count <= 0):"),
        ("compare", "if (count >= 0):"),
        ("condition True", "if (True):"),
        ("condition False", "if (False):"),
        ("constant", "if count < (1):"),
        ("return nothing", "return None"),
    }


def test_a_mutant_is_the_same_wherever_its_function_stands() -> None:
    moved = mutants(f"FIRST = ()\n\n\n{SOURCE}")
    assert [each.key for each in moved] == [each.key for each in mutants(SOURCE)]
    assert [each.line for each in moved] == [each.line + 3 for each in mutants(SOURCE)]


def test_every_mutant_parses_and_no_two_are_the_same() -> None:
    text = SOURCE
    every = mutants(text)
    assert max(Counter(each.key for each in every).values()) == 1
    for each in every:
        compile(each.source, "mutant", "exec")
        assert each.source.count("\n") == text.count("\n")


def test_what_is_mutated_and_what_is_to_notice_are_there() -> None:
    for group in GROUPS:
        for module in group.modules:
            assert (ROOT / "gpuwatch" / module).is_file(), module
        for pattern in group.tests:
            assert list((ROOT / "tests").glob(pattern)), pattern


def test_the_baseline_has_nine_of_ten_killed_in_each_group_and_a_reason_for_each_survivor() -> None:
    rows = baseline.read().values()
    assert {row.key[0] for row in rows} == {group.name for group in GROUPS}
    for group in GROUPS:
        assert baseline.rate(row for row in rows if row.key[0] == group.name) >= LEAST, group.name
    assert {row.outcome for row in rows} == {baseline.KILLED, baseline.SURVIVED}
    assert [row for row in rows if bool(row.reason) is not (row.outcome == baseline.SURVIVED)] == []


def test_the_baseline_is_read_as_it_was_written(tmp_path: Path) -> None:
    rows = baseline.read()
    baseline.write(rows.values(), tmp_path / "copy.tsv")
    assert (tmp_path / "copy.tsv").read_text() == baseline.FILE.read_text()
