"""What a run of the fleet showed: one row for each phase, and what must not have been."""

import resource

import msgspec

from gpuwatch.sim.fleet.referee import Violation


class Phase(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the story. Times in seconds; `tainted`, `blocked` and `sick` count nodes."""

    name: str
    words: str
    simulated_seconds: float
    wall_seconds: float
    tainted: int
    """The most at any instant."""
    budget: int
    sick: int
    """At the end."""
    blocked: int
    """At the end: sick, and not tainted because the budget is used up."""
    quarantines: int
    reads_per_node_hour: float
    writes_per_node_hour: float
    conflicts: int
    """Answers 409: somebody else was faster."""
    failures: int
    """429, 5xx and connections that broke."""
    retries: int
    kills: int


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The whole run. `races`: how often two nodes raced for the last slot; `writes`: how many the referee checked.

    `leaks`: what was left behind although all was well again; `shortfalls`: what should have been done and was not.
    """

    fault: str
    nodes: int
    seed: int
    budget: int
    phases: tuple[Phase, ...] = ()
    races: int = 0
    writes: int = 0
    quarantines: int = 0
    violations: tuple[Violation, ...] = ()
    leaks: tuple[str, ...] = ()
    shortfalls: tuple[str, ...] = ()
    wall_seconds: float = 0.0
    memory_bytes: int = 0

    @property
    def is_good(self) -> bool:
        """Whether every invariant held and everything was given back."""
        return not (self.violations or self.leaks or self.shortfalls)


def peak_memory() -> int:
    """The most this process ever had, in bytes (getrusage, KiB on Linux)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
