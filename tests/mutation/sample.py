"""What `test_mutation.py` mutates: a module small enough to know all about it."""

from collections.abc import Callable

MOST = 10.0


class Meter:
    """Counts up to MOST."""

    def __init__(self) -> None:
        self.count = 0.0

    def add(self, amount: float) -> bool:
        """Whether it fitted."""
        if self.count + amount > MOST:
            return False
        self.count += amount
        return True


def larger(one: float, other: float) -> float:
    """Of two equal ones either will do."""
    return one if one > other else other


def at_least(least: float) -> Callable[[float], bool]:
    """A predicate that is made when the module is loaded."""
    return lambda value: value >= least


POSITIVE = at_least(0.5)
TABLE = {"double": lambda value: value * 2, "whole": lambda value: value == int(value)}
