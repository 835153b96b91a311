"""What a policy is worth on a set of workloads, told by the true curves and never by what the policy believes."""

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from gpuwatch.tuning.energy.model import Ladder, Terms
from tests.bench.tuner.curves import Curve
from tests.bench.tuner.play import Gpu, Noise, play
from tests.bench.tuner.rivals import oracle

TOLERANCE = 0.003
"""A slowdown counts as over the bound when it is so much over it."""


class Result(NamedTuple):
    """One workload. `best`: the oracle's saving."""

    curve: Curve
    cap: float | None
    best: float
    probes: int = 0
    hold: float | None = None
    refusal: str = ""

    @property
    def saving(self) -> float:
        """Share of the energy for a unit of work."""
        return 1 - self.curve.at(self.cap)[1]

    @property
    def slowdown(self) -> float:
        """Share of the speed."""
        return 1 - self.curve.at(self.cap)[0]


class Score(NamedTuple):
    """A line of the table."""

    what: str
    policy: str
    noise: str
    bound: float
    workloads: int
    saving: float
    oracle: float
    slowdown: float  # mean
    worst: float
    over: float  # share of the workloads
    probes: float | None
    hold: float | None  # seconds, mean
    refused: int

    @property
    def share(self) -> float:
        """Of the oracle's saving."""
        return self.saving / self.oracle if self.oracle else 0.0


HEAD = (
    "",
    "policy",
    "noise",
    "bound",
    "n",
    "saved",
    "oracle",
    "share",
    "slower",
    "worst",
    "over",
    "probes",
    "to hold",
    "refused",
)


def score(what: str, policy: str, noise: str, bound: float, results: Sequence[Result]) -> Score:
    """Sum up results."""
    held = [result.hold for result in results if result.hold is not None]
    return Score(
        what,
        policy,
        noise,
        bound,
        len(results),
        fmean(result.saving for result in results),
        fmean(result.best for result in results),
        fmean(result.slowdown for result in results),
        max(result.slowdown for result in results),
        sum(result.slowdown > bound + TOLERANCE for result in results) / len(results),
        fmean(result.probes for result in results) if held else None,
        fmean(held) if held else None,
        sum(bool(result.refusal) for result in results),
    )


def tuned(curves: Iterable[Curve], noise: Noise, bound: float, seed: int, watts: float = 5.0) -> list[Result]:
    """The tuner on each of them, until it holds a cap or refuses."""
    found = []
    for curve in curves:
        ladder = curve.ladder(watts)
        account = play(Gpu(curve, noise, f"{curve.gpu} {curve.workload} {seed}"), ladder, Terms(slowdown=bound), 0)
        found.append(
            Result(curve, account.held, _best(curve, ladder, bound), account.probes, account.hold_at, account.refusal)
        )
    return found


def ruled(curves: Iterable[Curve], bound: float, rule: Callable[[Curve, Ladder], float | None]) -> list[Result]:
    """A rule that picks a cap at once."""
    ladders = [(curve, curve.ladder()) for curve in curves]
    return [Result(curve, rule(curve, ladder), _best(curve, ladder, bound)) for curve, ladder in ladders]


def cells(found: Score) -> tuple[Any, ...]:
    """As the table shows it."""
    return (
        found.what,
        found.policy,
        found.noise,
        _percent(found.bound, 0),
        found.workloads,
        _percent(found.saving),
        _percent(found.oracle),
        _percent(found.share),
        _percent(found.slowdown),
        _percent(found.worst, 2),
        _percent(found.over),
        found.probes,
        None if found.hold is None else f"{found.hold:.0f} s",
        found.refused if found.probes is not None else None,
    )


def _percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f} %"


def _best(curve: Curve, ladder: Ladder, bound: float) -> float:
    return 1 - curve.at(oracle(curve, bound, ladder.floor))[1]
