"""How much GPU memory work needs, step by step, as a share of its device: flat, in bursts, growing, by session.

Each law takes the user's load and the steps at which pods begin (what a process holds, it gives back there).
"""

from collections.abc import Callable, Collection, Sequence
from random import Random

from tests.bench.rightsizing.work_laws import DAY, HOUR, at_rate, log_uniform

MOST = 0.96  # of the device: above it the work would have died where it is

Draw = Callable[[Random, Sequence[float], Collection[int]], list[float]]


def base(rng: Random) -> float:
    """What is needed at rest: weights, optimizer, context."""
    return log_uniform(rng, 0.012, 0.9)


def bounded(values: Sequence[float]) -> list[float]:
    """Nobody holds more than there is."""
    return [min(MOST, value) for value in values]


def held(values: Sequence[float], starts: Collection[int]) -> list[float]:
    """As an allocator keeps it that gives nothing back before its process ends."""
    most, found = 0.0, []
    for step, value in enumerate(values):
        most = value if step in starts else max(most, value)
        found.append(most)
    return found


def flat(rng: Random, load: Sequence[float], starts: Collection[int]) -> list[float]:
    """The same always, but for crumbs."""
    need, crumbs = base(rng), log_uniform(rng, 1e-5, 0.01)
    return bounded([need * (1 + rng.uniform(0, crumbs)) for _ in load])


def by_load(rng: Random, load: Sequence[float], starts: Collection[int]) -> list[float]:
    """More requests at a time need more; half of the allocators keep it."""
    need, more = base(rng), log_uniform(rng, 0.02, 1.5)
    values = [need * (1 + more * share) for share in load]
    return bounded(held(values, starts) if rng.random() < 0.5 else values)


def bursts(rng: Random, load: Sequence[float], starts: Collection[int]) -> list[float]:
    """A large request once in hours or days, of up to as much again as all the rest; each has its own size."""
    need, most, spread = base(rng), log_uniform(rng, 0.05, 1.0), rng.uniform(0.0, 0.6)
    values = [need * (1 + rng.uniform(0, 0.02)) for _ in load]
    for begin in at_rate(rng, len(load), log_uniform(rng, 2 * HOUR, 3 * DAY)):
        size = most * (1 - spread * rng.random())
        for step in range(begin, min(len(load), begin + rng.randint(1, 6))):
            values[step] = max(values[step], need * (1 + size))
    return bounded(held(values, starts) if rng.random() < 0.3 else values)


def growth(rng: Random, load: Sequence[float], starts: Collection[int]) -> list[float]:
    """A leak: so much of its need more each day, until the pod is replaced."""
    need, daily = base(rng), log_uniform(rng, 0.002, 0.08)
    values, since = [], 0
    for step in range(len(load)):
        since = step if step in starts else since
        values.append(need * (1 + daily * (step - since) / DAY + rng.uniform(0, 0.005)))
    return bounded(values)


def filling(rng: Random, load: Sequence[float], starts: Collection[int]) -> list[float]:
    """A cache that fills up over days, ever more slowly."""
    need, more, slow = base(rng), log_uniform(rng, 0.05, 1.0), log_uniform(rng, 0.2 * DAY, 5 * DAY)
    values, since = [], 0
    for step in range(len(load)):
        since = step if step in starts else since
        values.append(need * (1 + more * (1 - 2 ** (-(step - since) / slow))))
    return bounded(values)


def evaluation(rng: Random, load: Sequence[float], starts: Collection[int]) -> list[float]:
    """Training that evaluates every few hours, with other shapes."""
    need, more, every = base(rng), log_uniform(rng, 0.01, 0.4), rng.randint(HOUR, 20 * HOUR)
    values = [need * (1 + (more * rng.uniform(0.9, 1.0) if step % every < 3 else 0.0)) for step in range(len(load))]
    return bounded(held(values, starts))


def curriculum(rng: Random, load: Sequence[float], starts: Collection[int]) -> list[float]:
    """Training whose sequences become longer at a moment that nobody can see coming."""
    need, more, when = base(rng), rng.uniform(0.05, 0.6), rng.randrange(len(load))
    return bounded([need * (1 + more * (step >= when)) for step in range(len(load))])


def sessions(rng: Random, load: Sequence[float], starts: Collection[int]) -> list[float]:
    """A notebook: each session as large as it happens to be, kept until the next one begins."""
    need, spread = base(rng), rng.uniform(0.05, 0.6)
    now, rested, values = need, 2 * HOUR, []
    for share in load:
        if share and rested >= 2 * HOUR:
            now = need * rng.lognormvariate(0, spread)
        rested = 0 if share else rested + 1
        values.append(now)
    return bounded(values)


def runs(rng: Random, load: Sequence[float], starts: Collection[int]) -> list[float]:
    """Jobs: each run as large as its input."""
    need, spread, now, values = base(rng), log_uniform(rng, 0.01, 0.3), 0.0, []
    for step in range(len(load)):
        if step in starts or not step:
            now = need * rng.lognormvariate(0, spread)
        values.append(now)
    return bounded(values)
