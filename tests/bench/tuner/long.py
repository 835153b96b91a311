"""Hours with the tuner: what is saved when probes and verifications are paid for, and how it meets other work."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any, NamedTuple

from gpuwatch.tuning.energy.model import Terms
from tests.bench.tuner.curves import Curve
from tests.bench.tuner.phases import run, scripts
from tests.bench.tuner.play import Gpu, Noise, play

HOURS = 8.0
MARGIN = 0.01
"""A GPU is over when it is so much slower than promised."""


class Long(NamedTuple):
    """`steady`: the saving of the first cap held, 0 where there was none; `paid`: what 8 h really saved. `off`: share
    of the time spent looking, or at another cap than the one held. `over`: share of the time over the bound by a
    percentage point. `slowest`: the largest slowdown of a workload over the whole time.
    """

    noise: str
    workloads: int
    steady: float
    paid: float
    off: float
    worst_off: float
    over: float
    slowest: float


def amortised(curves: Sequence[Curve], noise: Noise, bound: float, seed: int) -> Long:
    """All of them for HOURS."""
    terms, steady, accounts = Terms(slowdown=bound), [], []
    for curve in curves:
        key = f"{curve.gpu} {curve.workload} {seed}"
        ladder = curve.ladder()
        held = play(Gpu(curve, noise, key), ladder, terms, 0).held
        steady.append(1 - curve.at(held)[1])
        accounts.append(play(Gpu(curve, noise, key), ladder, terms, HOURS * 3600))
    return Long(
        str(noise),
        len(accounts),
        fmean(steady),
        fmean(account.saving for account in accounts),
        fmean(account.off / account.seconds for account in accounts),
        max(account.off / account.seconds for account in accounts),
        fmean(account.over / account.seconds for account in accounts),
        max(1 - account.work / account.seconds for account in accounts),
    )


class Changes(NamedTuple):
    """Seconds over the bound by a percentage point for each change of phase. `late`: share of changes with more than a
    minute of them. `saved`: over all scripts.
    """

    noise: str
    changes: int
    mean: float
    worst: float
    late: float
    saved: float


def changing(count: int, noise: Noise, bound: float, seed: int) -> Changes:
    """Scripts of phases."""
    runs = [run(script, noise, bound, seed) for script in scripts(count, seed)]
    seconds = [after for each in runs for after in each.seconds[1:]]
    return Changes(
        str(noise),
        len(seconds),
        fmean(seconds),
        max(seconds),
        sum(each > 60 for each in seconds) / len(seconds),
        fmean(each.account.saving for each in runs),
    )


def cells(row: Long | Changes) -> tuple[Any, ...]:
    """As the tables show them: shares in percent, seconds as they are."""
    plain = ("workloads", "changes", "noise", "mean", "worst")
    return tuple(
        value if name in plain else f"{100 * value:.1f} %" for name, value in zip(row._fields, row, strict=True)
    )
